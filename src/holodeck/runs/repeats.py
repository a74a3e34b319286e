"""One run for each key that a client gave its request (C08): whoever brings the key again, joins the run.

A key is taken from the moment on in which its first request is understood, before files are read and a run is there, so
two that come together ask once. It is free again when its run can no longer be read, and if no run came of it. What a
key is made of, and what makes two requests the same, is known to the wires.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary, WeakValueDictionary

from holodeck.errors import InvalidRequest
from holodeck.runs.runs import Run, Runs


@dataclass(frozen=True)
class RunKey:
    """Two wires or two users never mean the same run, whatever they call it."""

    wire: str
    user_id: str
    name: str
    written_in: str = field(default="key", compare=False)  # what the client has to look at if it is taken


@dataclass(frozen=True, eq=False)
class _Beginning:
    essence: bytes
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Repeats:
    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._beginning: dict[RunKey, _Beginning] = {}
        self._started: WeakValueDictionary[RunKey, Run] = WeakValueDictionary()  # how long a run lives, `Runs` decides
        self._essences: WeakKeyDictionary[Run, bytes] = WeakKeyDictionary()

    async def run(self, key: RunKey, essence: bytes, begin: Callable[[], Awaitable[Run]]) -> Run:
        """The run of this key, begun now if there is none. `essence` is the same for the same request only."""
        while (twin := self._beginning.get(key)) is not None:
            _check(key, essence, twin.essence)
            await twin.over.wait()
        run = self._started.get(key)
        if run is not None and self._runs.knows(run):
            _check(key, essence, self._essences[run])
            return run
        return await self._begin(key, essence, begin)

    async def _begin(self, key: RunKey, essence: bytes, begin: Callable[[], Awaitable[Run]]) -> Run:
        self._beginning[key] = beginning = _Beginning(essence)
        try:
            run = await begin()
            self._started[key], self._essences[run] = run, essence
            return run
        finally:  # a request that was refused leaves its twin to try for itself
            del self._beginning[key]
            beginning.over.set()


def _check(key: RunKey, essence: bytes, first: bytes) -> None:
    if essence != first:
        raise InvalidRequest(f"{key.written_in} {key.name!r} was given to another request.", field=key.written_in)
