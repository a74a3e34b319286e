"""The first commit of a run, made while the model is asked already. Nothing is shown before it is stored."""

import asyncio
from typing import Any

from holodeck.agent.emitter import RunEmitter
from holodeck.errors import HoloDeckError, InternalError


class FirstCommit:
    """Holds the emitter back until the commit is done. If it fails, so does the run, whatever it does by then."""

    def __init__(self, emitter: RunEmitter) -> None:
        self._emitter = emitter
        self._stored: asyncio.Future[Any] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._has_cancelled = False

    def begin(self, stored: "asyncio.Future[Any] | None") -> None:
        """`stored` is done when the commit is; None if it is done already."""
        if stored is not None:
            self._stored, self._task = stored, asyncio.current_task()
            self._emitter.hold()
            stored.add_done_callback(self._settled)

    async def wait(self) -> None:
        """Returns when it is stored; raises why it cannot be."""
        if self._stored is not None:
            stored, self._task = self._stored, None
            await asyncio.shield(stored)
            self._stored = None

    def cancelled_by(self) -> HoloDeckError | None:
        """Why the commit failed, if that is what cancelled the task; it is cancelled no more."""
        if not self._has_cancelled or self._stored is None:
            return None
        task = asyncio.current_task()
        if task is None or task.uncancel() > 0:
            return None  # the run was stopped as well
        error = None if self._stored.cancelled() else self._stored.exception()
        return error if isinstance(error, HoloDeckError) else InternalError("The run's messages could not be stored.")

    def _settled(self, stored: "asyncio.Future[Any]") -> None:
        if not stored.cancelled() and stored.exception() is None:
            self._emitter.release()
            return
        self._emitter.discard()
        if self._task is not None:
            self._has_cancelled = self._task.cancel()
