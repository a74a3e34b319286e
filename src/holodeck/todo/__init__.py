"""The reference MCP server of HoloDeck: a todo list for many users.

It is a world of its own: nothing here imports the rest of `holodeck`, and nothing there imports this.
The two meet over MCP only, so what works with this server works with any other.

Two vocabularies (`create_todo` … and `add_task` …) speak about the same rows. Whose rows is never a question of trust in
the model: every tool takes a `user_id`, which the runtime binds, or `--user` fixes for stand-alone use.
"""
