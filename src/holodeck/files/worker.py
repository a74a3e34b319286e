"""Reads one document in its own process: `python -E -P -m holodeck.files.worker '{"kind": "pdf", …}' < document`.

The answer is JSON lines on standard output (`extraction.WorkerAnswer`): one for each block of text as soon as it is
read, so that the server has them even if the next page crashes a parser, and a last one with the rest. The worker
trusts no input: it sets limits first, and imports the parser afterwards. It does not know the file's name or its
sender.
"""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from holodeck.files import sandbox
from holodeck.files.documents import markdown
from holodeck.files.documents.document import Document, DocumentRefused

READERS = {  # kind → module of `documents`, where the names differ
    **dict.fromkeys(("odt", "ods", "odp"), "odf"),
    "zip": "listing",
    "eml": "mail",
    "ipynb": "notebook",
    "text": "charset",
    "ocr": "picture",
}
STDIN, STDOUT = 0, 1

_NOT_INSTALLED = "cannot be read here: it needs the extra 'files' (pip install \"holodeck-agents[files]\")"


def main() -> None:
    task = json.loads(sys.argv[1])
    answer_to = _own_stdout()
    logging.disable(logging.CRITICAL)  # parsers log every oddity of every file
    with open(STDIN, "rb", closefd=False) as stdin:
        data = stdin.read()
    in_place = sandbox.enter(**task["limits"])
    send = partial(_write, answer_to)
    answer = _answer(task["kind"], data, task["characters"], task.get("page"), send)
    sandbox.leave_alarms()
    send({**answer, "sandbox": in_place})
    os._exit(0)  # skips destructors of a library that a document may have corrupted


def _own_stdout() -> int:
    """Reserves standard output for the answer. What libraries print is discarded."""
    answer_to = os.dup(STDOUT)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDOUT)
    os.close(nowhere)
    return answer_to


def _answer(
    kind: str, data: bytes, characters: int, page: int | None, send: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """`page` is for readers that read one page of a document. `send` gets the text, block by block."""
    collected = _Collected(characters, send)
    try:
        # Imported when needed: a Word file should not pay for the OCR engine.
        read = import_module(f"holodeck.files.documents.{READERS.get(kind, kind)}").read
        collected.take(read(data) if page is None else read(data, page))
    except DocumentRefused as refusal:
        return {"refused": refusal.why, "sentence": str(refusal)}
    except ImportError:
        return {"refused": "no_reader", "sentence": _NOT_INSTALLED}
    except sandbox.OutOfTime:
        return collected.stopped("too_slow", "takes too long to read")
    except MemoryError:
        return collected.stopped("too_large", "takes too much memory to read")
    except Exception as error:  # noqa: BLE001  a hostile document can make a parser raise anything; that is an answer too
        return {"refused": "damaged", "sentence": "is damaged: it cannot be read", "fault": type(error).__name__}
    return collected.answer()


class _Collected:
    """Sends text up to a number of characters, and records whether it was cut there."""

    def __init__(self, characters: int, send: Callable[[dict[str, Any]], None]) -> None:
        self._room = characters
        self._send = send
        self._document = Document()
        self._any = False
        self._truncated = False

    def take(self, document: Document) -> None:
        self._document = document
        previous = ""
        for block in document.blocks:
            if not block:
                continue
            piece = markdown.between(previous, block) + block if previous else block
            self._truncated = len(piece) > self._room
            self._send({"text": piece[: self._room]})
            self._room -= len(piece[: self._room])
            self._any = True
            previous = block
            if self._truncated:
                return

    def answer(self) -> dict[str, Any]:
        detail = ", ".join(self._document.details)
        return {"detail": detail, "scans": self._document.scans, "truncated": self._truncated}

    def stopped(self, why: str, sentence: str) -> dict[str, Any]:
        """Returns what was read before it stopped; if that is nothing, a refusal."""
        if not self._any:
            return {"refused": why, "sentence": sentence}
        self._truncated = True
        return self.answer()


def _write(descriptor: int, answer: dict[str, Any]) -> None:
    data = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    with contextlib.suppress(BrokenPipeError):  # the server has given up on this file
        while data:
            data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
