"""OpenAI's Chat Completions: messages in, a completion or its chunks out. Pure and synchronous."""
