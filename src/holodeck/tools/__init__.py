"""Tools: the port and its implementations."""
