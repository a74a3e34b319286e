"""The reference MCP server of HoloDeck: a todo list for many users.

It is independent: nothing here imports the rest of `holodeck`, and nothing there imports this package.
The two talk over MCP only, so what works with this server works with any other.

Two sets of tools (`create_todo` … and `add_task` …) use the same rows. The model never decides whose rows these are:
every tool takes a `user_id`, which the runtime binds, or `--user` fixes for stand-alone use.
"""
