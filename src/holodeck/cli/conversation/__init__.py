"""A conversation between a user and an agent: messages, commands, checks, saved chats; independent of the display."""
