"""The offline model: rules instead of weights, so that HoloDeck can be tried without a key, a network or a cost.

model.py          the port: streams what `conversation` decided
conversation.py   replays the history and finds out what comes next
scripts.py        one short script per intent: which tools to ask for, what to say
reading.py        an English sentence → intents (`intents.py`), with `talk.py`, `filters.py` and `details.py`
dates.py          date words → a due date, with `days.py`, `times.py`, `zones.py`
vocabulary.py     intents as calls of whichever todo tools are offered
todos.py          a tool's JSON → todos; which of them a phrase means
wording.py        every sentence it says
"""
