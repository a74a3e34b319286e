"""Readers that tell operators what happens: JSON logs, the context of a request."""
