"""The loop: an agent, what it may do, and how a run of it goes."""
