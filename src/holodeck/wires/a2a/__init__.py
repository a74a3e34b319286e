"""A2A, the protocol between agents: messages in, tasks and their updates out, in the JSON of 1.0 and of 0.3. Pure."""
