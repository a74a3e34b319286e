"""A terminal: its screen and its keyboard."""
