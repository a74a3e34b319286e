"""Limits over time: how much was used in the last minute or day, in this process or in a store that replicas share."""
