"""The one place that ends a run: it stores the ending, and then shows readers exactly that one.

Invariant: readers see the ending that is stored. Whichever ending is given to the store first counts: completed, waiting
for input, out of iterations, failed, out of time, or stopped. Once the store has been given an ending, later stops, time
limits and failures have no effect.

There are two exceptions to the invariant. If the store is lost, a failure or a stop is shown, since
readers must not wait for ever; `AgentContext.not_stored` is called with it, and `runs/unstored_endings.py` stores it as
soon as the store takes it. If another process has taken the run over, that process stores the ending, and readers here
are shown the stored messages first. A run whose log was cut has no ending here at all: it is neither stored nor shown.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holodeck.agent.definition import AgentContext
from holodeck.agent.emitter import OverlappingCommit, RunEmitter
from holodeck.core.events import Ending, MessagesReplaced, before_anything_is_stored
from holodeck.core.messages import Message, PendingStep, places_of
from holodeck.errors import HoloDeckError, LostClaim, SessionDeleted
from holodeck.sessions.port import KEEP, Keep

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RunEnding:
    _context: AgentContext
    _emitter: RunEmitter
    _overlap: OverlappingCommit
    lacks_message: bool = False  # events were shown, and then the user's message could not be stored

    async def settle(
        self,
        ending: Ending,
        messages: Sequence[Message] = (),
        pending: PendingStep | Keep | None = KEEP,
        *,
        state: Any = KEEP,
        shows_history: bool = False,
    ) -> None:
        """Stores the last step of the run with its ending, then shows the ending.

        If the store raises, readers see no ending, and the caller gets the exception.
        """
        await self._store(ending, messages, pending, state)
        self._emitter.release()  # what was accepted before is stored with it
        if shows_history:
            with suppress(HoloDeckError, asyncio.CancelledError):  # readers get the ending without it
                await show_history(self._context, self._emitter)
        self._emitter.run_ended(ending)

    async def force(self, ending: Ending, begin: Callable[[], None], *, state: Any = KEEP) -> None:
        """Ends a run that failed or was stopped. Shows the ending even if the store does not take it.

        `begin` shows the beginning of a run that has not shown it yet.
        """
        try:
            with suppress(HoloDeckError):  # after a failed commit the step stays pending
                await self.durable(self._overlap.stored)
            self._overlap.finish()
            self._emitter.release()
            if self.lacks_message or not self._emitter.started:
                ending = before_anything_is_stored(ending)
            await self._store(ending, (), KEEP, state)
        except SessionDeleted as error:
            log.info("the end of run %s is not stored: %s", self._context.run_id, error.message)
        except LostClaim as error:  # only the session is lost for certain: the row of the run may still be ours
            log.warning("cannot store the ending of run %s: %s", self._context.run_id, error.message)
            self._context.not_stored(ending)
            await self._show_stored(ending.model)
        except HoloDeckError as error:
            log.warning("the end of run %s could not be stored: %s", self._context.run_id, error.message)
            self._context.not_stored(ending)
        except Exception:  # a bug of the store: the log has it, the readers get their ending
            log.exception("the end of run %s could not be stored", self._context.run_id)
            self._context.not_stored(ending)
        finally:
            self._emitter.release()
            if not self._emitter.started:
                begin()
            self._emitter.run_ended(ending)

    async def _store(
        self, ending: Ending, messages: Sequence[Message], pending: PendingStep | Keep | None, state: Any
    ) -> None:
        if not self._context.is_over():
            await self.durable(self._context.conversation.end(messages, pending, state=state, ending=ending))

    async def durable(self, stored: "asyncio.Future[Any] | None") -> None:
        """Waits until the store has written it, and raises its error. Only a run that is over stops waiting."""
        try:
            while stored is not None and not stored.done():
                try:
                    await asyncio.shield(stored)
                except asyncio.CancelledError:
                    if self._context.is_over():
                        raise
            if stored is not None:
                stored.result()
        finally:
            del stored  # the traceback of its error leads to this frame: the cycle would keep the run

    async def _show_stored(self, model: str | None) -> None:
        """Shows the conversation as the process has stored it that has taken the run over.

        It cannot have stored the last events that were shown here.
        """
        self._emitter.release()
        if self._emitter.started:
            self._emitter.step_finished(None, model)
            with suppress(HoloDeckError):
                self._emitter.emit(MessagesReplaced(await self._context.conversation.stored(), corrects=True))


async def show_history(context: AgentContext, emitter: RunEmitter, *, if_client_lacks_some: bool = False) -> None:
    """Shows the client our history, unless that would take messages from it that we do not have."""
    theirs = context.client_ids
    if theirs is None:
        return
    history = await context.conversation.history()
    ours = places_of(history).keys()
    if theirs <= ours and not (if_client_lacks_some and len(ours) == len(theirs)):
        emitter.emit(MessagesReplaced(history))
