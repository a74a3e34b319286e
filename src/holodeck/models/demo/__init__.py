"""The offline model: rules instead of weights, so that HoloDeck can be tried without a key, a network or a cost.

- `model.py` implements the port: it streams the step that `conversation.py` decided on.
- `conversation.py` replays the history and decides the next step: tool calls or a text.
- `sentences.py` is the grammar: a table of English sentences about todos. `dates.py` reads the date words in them.
- `todos.py` knows the todo tools; `tools_by_name.py` calls any other tool that a sentence names.
- `small_talk.py` answers sentences that ask for nothing.
"""
