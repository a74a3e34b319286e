"""Reads one document in a worker process, and makes sure that the process ends.

The document is passed as an unnamed file. The answer arrives through a pipe that is read up to a limit. A crash, a kill
or a silent worker becomes an answer like any other. Nothing that the worker writes is trusted.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import IO

import msgspec

from holodeck.core.text import clean, strip_controls
from holodeck.errors import StorageFull
from holodeck.files.limits import WorkerLimits

MAX_ANSWER = 2_000_000  # bytes
HEAD_START = 1.0  # seconds before the kill in which the worker may send what it has
# Nothing from the environment or the current folder; -I would lose user installs.
FLAGS = ("-E", "-P", "-B", "-X", "utf8")
_WRITE = 1 << 20
_EXPECTED = {"no-network", "landlock", "seccomp"}
_KEPT = ("LD_LIBRARY_PATH",)  # without it some Pythons do not start
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each takes address space

_log = logging.getLogger(__name__)


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The worker's result. `refused` is a word for programs, `sentence` continues after the file's name.

    `scans` are numbers of pages that are images: a separate worker reads each.
    """

    text: str = ""
    detail: str = ""
    truncated: bool = False
    scans: list[int] = []
    refused: str | None = None
    sentence: str = ""
    fault: str = ""
    sandbox: list[str] | None = None  # sandbox layers in effect; None if the worker died first


_decoder = msgspec.json.Decoder(WorkerAnswer)
_DAMAGED = WorkerAnswer(refused="damaged", sentence="is damaged: it cannot be read")
_TOO_SLOW = WorkerAnswer(refused="too_slow", sentence="takes too long to read")


class Extraction:
    """Starts workers, one for each document. It does not limit how many run at the same time."""

    def __init__(self, characters: int, *, command: Sequence[str] = ()) -> None:
        self._command = command or (sys.executable, *FLAGS, "-m", "holodeck.files.worker")
        self._characters = characters
        self._complained = False

    async def read(
        self, kind: str, data: bytes, limits: WorkerLimits, *, page: int | None = None, characters: int | None = None
    ) -> WorkerAnswer:
        """`page` is for kinds that read one page. `characters` is for an answer that the model is not shown as text."""
        limit = characters or self._characters
        with await asyncio.to_thread(_kept_for_worker, data) as document:
            raw = bytearray()
            code = await self._run(_task(kind, limits, limit, page), document, limits.wall, raw)
        answer = _understood(bytes(raw), code)
        if answer.refused:
            details = {"kind": kind, "refused": answer.refused, "fault": answer.fault, "exit_code": code}
            _log.info("file_refused", extra={"details": details})
        self._complain_once(answer)
        return msgspec.structs.replace(answer, text=strip_controls(clean(answer.text))[:limit])

    async def _run(self, task: str, document: IO[bytes], wall: float, raw: bytearray) -> int | None:
        """Fills `raw` with the worker's output. Returns its exit code, or None if it did not end in time."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            task,
            stdin=document,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT if name in os.environ} | _ONE_THREAD,
            cwd="/",
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(wall):
                await _collect(process.stdout, raw)
                return await process.wait() if len(raw) <= MAX_ANSWER else 1
        except TimeoutError:
            return None
        finally:
            await asyncio.shield(_end(process))

    def _complain_once(self, answer: WorkerAnswer) -> None:
        if answer.sandbox is None or self._complained:
            return
        if missing := sorted(_EXPECTED.difference(answer.sandbox)):
            self._complained = True
            _log.warning("file_sandbox_incomplete", extra={"details": {"missing": missing}})


def _task(kind: str, limits: WorkerLimits, characters: int, page: int | None) -> str:
    mine = {
        "parent": os.getpid(),
        "memory": limits.memory,
        "cpu": limits.cpu,
        "wall": max(0.1, limits.wall - HEAD_START),
    }
    return json.dumps({"kind": kind, "characters": characters, "page": page, "limits": mine})


def _kept_for_worker(data: bytes) -> IO[bytes]:
    try:
        return _nameless_file(data)
    except OSError as error:
        _log.error("no temporary file for a document: %s", error.strerror)
        raise StorageFull("The server has no disk space for the file while it reads it.") from error


def _nameless_file(data: bytes) -> IO[bytes]:
    """Returns a file without a name: in memory if the system supports it, else an unlinked temporary file."""
    file: IO[bytes]
    if sys.platform == "linux":
        file = os.fdopen(os.memfd_create("document"), "w+b", buffering=0)
    else:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed by who asked for it
    try:
        view = memoryview(data)
        while view:
            view = view[file.write(view[:_WRITE]) :]  # without a buffer, a write may be partial
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


async def _collect(stdout: asyncio.StreamReader | None, raw: bytearray) -> None:
    """Reads the worker's output, up to the size limit."""
    while stdout is not None and len(raw) <= MAX_ANSWER and (piece := await stdout.read(65_536)):
        raw += piece


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # start_new_session made its pid the group's id
    with contextlib.suppress(TimeoutError):  # some versions of asyncio call a process alive while its pipe has bytes
        async with asyncio.timeout(HEAD_START):
            while process.stdout is not None and await process.stdout.read(65_536):
                pass
    await process.wait()


def _understood(raw: bytes, code: int | None) -> WorkerAnswer:
    """Joins the lines. A worker that ended early, by a crash or by its limits, leaves what it had read."""
    try:
        lines = [_decoder.decode(line) for line in raw.split(b"\n")[:-1]] if len(raw) <= MAX_ANSWER else []
    except msgspec.DecodeError:
        return _DAMAGED
    text = "".join(line.text for line in lines)
    if code == 0 and lines and lines[-1].sandbox is not None:
        return msgspec.structs.replace(lines[-1], text="" if lines[-1].refused else text)
    if text:
        return WorkerAnswer(text=text, truncated=True)
    return _TOO_SLOW if code is None or code in {-signal.SIGKILL, -signal.SIGXCPU} else _DAMAGED
