"""Sessions: the port and what stands behind it. They hold data only, so that any process can take one up."""
