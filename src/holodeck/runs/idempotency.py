"""One run for each key that a client gave its request (C08): whoever brings the key again, joins the run.

A key is taken from the moment on in which its first request is understood, before files are read and a run is there, so
two that come together ask once. It is free again when its run can no longer be read, and if no run came of it. What a
key is made of, and what makes two requests the same, is known to the wires.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from holodeck.core.owner import Owner
from holodeck.errors import InvalidRequest
from holodeck.runs.runs import Run, Runs


class RunKey(NamedTuple):
    """Names one request of one owner on one wire."""

    wire: str
    owner: Owner
    name: str
    header_name: str = "key"  # what the client has to look at if it is taken; the same for all keys of a wire
    part: bytes = b""  # tells a resume under a run's own id from the request that began the run


class _Beginning:
    """A run that is not there yet. Few have a duplicate who waits for it."""

    __slots__ = ("_over", "fingerprint")

    def __init__(self, fingerprint: bytes) -> None:
        self.fingerprint = fingerprint
        self._over: asyncio.Event | None = None

    async def wait(self) -> None:
        self._over = self._over or asyncio.Event()
        await self._over.wait()

    def end(self) -> None:
        if self._over is not None:
            self._over.set()


class Idempotency:
    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._beginning: dict[RunKey, _Beginning] = {}
        self._started: WeakValueDictionary[RunKey, Run] = WeakValueDictionary()  # how long a run lives, `Runs` decides
        self._fingerprints: WeakKeyDictionary[Run, bytes] = WeakKeyDictionary()

    async def run(self, key: RunKey, fingerprint: bytes, begin: Callable[[], Awaitable[Run]]) -> Run:
        """The run of this key, begun now if there is none. `fingerprint` is the same for the same request only."""
        while (duplicate := self._beginning.get(key)) is not None:
            _check(key, fingerprint, duplicate.fingerprint)
            await duplicate.wait()
        run = self._started.get(key)
        if run is not None and self._runs.knows(run):
            _check(key, fingerprint, self._fingerprints[run])
            return run
        return await self._begin(key, fingerprint, begin)

    async def _begin(self, key: RunKey, fingerprint: bytes, begin: Callable[[], Awaitable[Run]]) -> Run:
        self._beginning[key] = beginning = _Beginning(fingerprint)
        try:
            run = await begin()
            self._started[key], self._fingerprints[run] = run, fingerprint
            return run
        finally:  # a request that was refused leaves its duplicate to try for itself
            del self._beginning[key]
            beginning.end()


def _check(key: RunKey, fingerprint: bytes, first: bytes) -> None:
    if fingerprint != first:
        raise InvalidRequest(f"{key.header_name} {key.name!r} was given to another request.", field=key.header_name)
