"""Sessions: the port and its implementation in memory.

A session holds only data, so that any process can take it over.
"""
