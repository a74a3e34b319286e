"""What was read of documents lately. Chat clients send the whole conversation, with all its files, every turn.

The key is the tenant and the content, so a client gets back only what its own tenant has sent, and cannot learn from the
time of an answer whether another tenant has sent the same document.
"""

import asyncio
import hashlib
from collections import OrderedDict
from typing import NamedTuple

from holodeck.files.extraction import WorkerAnswer

MAX_CHARACTERS = 4_000_000
MAX_DOCUMENTS = 1_000
_PASSING = {"too_slow", "no_reader"}  # may go better next time


class DocumentKey(NamedTuple):
    tenant: str
    kind: str
    digest: bytes


class Recall:
    def __init__(self) -> None:
        self._answers: OrderedDict[DocumentKey, WorkerAnswer] = OrderedDict()
        self._characters = 0

    async def key(self, tenant: str, kind: str, data: bytes) -> DocumentKey:
        return DocumentKey(tenant, kind, await asyncio.to_thread(lambda: hashlib.sha256(data).digest()))

    def get(self, key: DocumentKey) -> WorkerAnswer | None:
        if key in self._answers:
            self._answers.move_to_end(key)
        return self._answers.get(key)

    def put(self, key: DocumentKey, answer: WorkerAnswer) -> None:
        if key not in self._answers and answer.refused not in _PASSING:
            self._answers[key] = answer
            self._characters += len(answer.text)
        while self._characters > MAX_CHARACTERS or len(self._answers) > MAX_DOCUMENTS:
            _, oldest = self._answers.popitem(last=False)
            self._characters -= len(oldest.text)
