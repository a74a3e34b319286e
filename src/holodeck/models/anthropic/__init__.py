"""Anthropic's Messages API: `messages_model` does the talking, `message_request` writes, `message_answer` reads."""
