"""The offline model: rules instead of weights, so that HoloDeck can be tried without a key, a network or a cost.

- `model.py` is the port: it streams what `conversation.py` decided.
- `conversation.py` plays the history again and finds out what comes next, by `scripts.py`: one short script per intent,
  which tools to ask for and what to say.
- `reading.py` turns an English message into intents (`intents.py`). What each kind looks like is in `talk.py` (small
  talk), `plans.py` (new todos), `changes.py`, `filters.py` (questions about the list), `details.py` (title, priority,
  tags) and `targets.py` ("it", "the second one").
- `dates.py` finds the due date, by the rules of `days.py` and `times.py` in the terms of `pieces.py` and `zones.py`.
- `vocabulary.py` says intents as calls of whichever todo tools are offered, `todos.py` reads what they answer,
  `wording.py` has every sentence that is said.
"""
