"""REST: a chat request in JSON or as a form, answered whole or as named events. Pure and synchronous."""
