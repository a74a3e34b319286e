"""Anthropic's Messages API: `messages_model` makes the requests, `message_request` writes their bodies, `message_answer` reads the events."""
