"""A terminal: what its screen shows and what its keyboard sends."""
