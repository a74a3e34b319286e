"""Reads one document in a process of its own: `python -E -P -m holodeck.files.worker '{"kind": "pdf", …}' < document`.

The answer is one JSON object on standard output (`extraction.WorkerAnswer`). It trusts no input: limits are set first, the parser
is imported after them. It does not know the file's name or who sent it.
"""

import contextlib
import json
import logging
import os
import sys
from importlib import import_module
from typing import Any

from holodeck.files import sandbox
from holodeck.files.documents import markdown
from holodeck.files.documents.document import Document, DocumentRefused

READERS = {  # imported when needed: a Word file should not pay for the picture engine
    "pdf": "holodeck.files.documents.pdf",
    "docx": "holodeck.files.documents.docx",
    "xlsx": "holodeck.files.documents.xlsx",
    "pptx": "holodeck.files.documents.pptx",
    "ocr": "holodeck.files.documents.picture",
}
STDIN, STDOUT = 0, 1


def main() -> None:
    task = json.loads(sys.argv[1])
    answer_to = _own_stdout()
    logging.disable(logging.CRITICAL)  # parsers complain about every oddity of every file
    with open(STDIN, "rb", closefd=False) as stdin:
        data = stdin.read()
    in_place = sandbox.enter(**task["limits"])
    answer = _answer(task["kind"], data, task["characters"])
    sandbox.leave_alarms()
    _write(answer_to, {**answer, "sandbox": in_place})
    os._exit(0)  # no destructors of a library that a document may have confused


def _own_stdout() -> int:
    """Standard output for the answer only; what libraries print goes nowhere."""
    answer_to = os.dup(STDOUT)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDOUT)
    os.close(nowhere)
    return answer_to


def _answer(kind: str, data: bytes, characters: int) -> dict[str, Any]:
    collected = _Collected(characters)
    try:
        collected.take(import_module(READERS[kind]).read(data))
    except DocumentRefused as refusal:
        return {"refused": refusal.why, "sentence": str(refusal)}
    except ImportError:
        return {"refused": "no_reader", "sentence": "cannot be read by this server: its extra 'files' is not installed"}
    except sandbox.OutOfTime:
        return collected.stopped("too_slow", "takes too long to read")
    except MemoryError:
        return collected.stopped("too_large", "takes too much memory to read")
    except Exception as error:  # noqa: BLE001  a hostile document can make a parser raise anything; that is an answer too
        return {"refused": "damaged", "sentence": "is damaged: it cannot be read", "fault": type(error).__name__}
    return collected.answer()


class _Collected:
    """Text up to a number of characters, and the note to add if it is cut there."""

    def __init__(self, characters: int) -> None:
        self._room = characters
        self._pieces: list[str] = []
        self._detail = ""
        self._truncated = False

    def take(self, document: Document) -> None:
        self._detail = document.detail
        previous = ""
        for block in document.blocks:
            if not block:
                continue
            piece = markdown.between(previous, block) + block if previous else block
            self._truncated = len(piece) > self._room
            self._pieces.append(piece[: self._room])
            self._room -= len(self._pieces[-1])
            previous = block
            if self._truncated:
                return

    def answer(self) -> dict[str, Any]:
        return {"text": "".join(self._pieces), "detail": self._detail, "truncated": self._truncated}

    def stopped(self, why: str, sentence: str) -> dict[str, Any]:
        """What was read before it stopped is worth having; if that is nothing, it is a refusal."""
        if not self._pieces:
            return {"refused": why, "sentence": sentence}
        self._truncated = True
        return self.answer()


def _write(descriptor: int, answer: dict[str, Any]) -> None:
    data = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
    with contextlib.suppress(BrokenPipeError):  # the server has given up on this file
        while data:
            data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
