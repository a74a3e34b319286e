"""Models: the port, and its implementations."""
