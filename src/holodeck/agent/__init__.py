"""The agent loop: the definition of an agent, its limits, and the execution of one run."""
