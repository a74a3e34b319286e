"""The first commit of a run, made while the model is asked already. Nothing is shown before it is stored."""

import asyncio
from typing import Any

from holodeck.agent.emitter import RunEmitter
from holodeck.errors import HoloDeckError, InternalError


class FirstCommit:
    """Holds the emitter back until the commit is done. If it fails, so does the run, whatever it does by then."""

    def __init__(self, emitter: RunEmitter) -> None:
        self._emitter = emitter
        self._under_way = False
        self._task: asyncio.Task[Any] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None

    def begin(self, stored: "asyncio.Future[Any] | None") -> None:
        """`stored` is done when the commit is; None if it is done already."""
        if stored is not None:
            self._under_way, self._task = True, asyncio.current_task()
            self._emitter.hold()
            stored.add_done_callback(self._settled)

    async def wait(self) -> None:
        """Returns when it is stored, and all that was kept back is shown; raises why it cannot be stored."""
        if self._under_way:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def cancelled_by(self) -> HoloDeckError | None:
        """Why the commit failed, if that is what cancelled the task; it is cancelled no more."""
        if self._failure is None or self._task is None or self._task.uncancel() > 0:
            return None  # the run was stopped, by its own or as well
        error = self._failure
        return error if isinstance(error, HoloDeckError) else InternalError("The run's messages could not be stored.")

    def _settled(self, stored: "asyncio.Future[Any]") -> None:
        self._under_way = False
        failure = asyncio.CancelledError() if stored.cancelled() else stored.exception()
        if failure is None:
            self._emitter.release()
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
            return
        self._emitter.discard()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(failure)
        elif self._waiter is None and self._task is not None:
            self._failure = failure
            self._task.cancel()
