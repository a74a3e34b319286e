"""Represents this process to the others that share its store.

It reports that it is alive, handles their requests and takes over dead ones. A process counts as dead when its counter
has stood still for `take_over_seconds` by another process's own clock. A process that could not raise its counter for
most of that time ends its runs itself, so that no run is ever in two processes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from holodeck.core.owner import OwnedId
from holodeck.errors import HoloDeckError, LostClaim, RunInterrupted
from holodeck.runs.interrupted_runs import InterruptedRuns
from holodeck.runs.port import Pulse, SharedRunStore
from holodeck.runs.remote_runs import NOTE_SECONDS
from holodeck.runs.run import Run, cancel_all
from holodeck.runs.runs import Runs

log = logging.getLogger(__name__)

BEATS = 4  # heartbeats within `take_over_seconds`
LOST_TEXT = "The server lost its session store in the middle of this run. The session has the part that was stored."
OWN_SHARE = 0.8  # share of `take_over_seconds` after which a process that cannot reach the store ends its runs


class Replica:
    def __init__(
        self, runs: Runs, interrupted: InterruptedRuns, records: SharedRunStore, take_over_seconds: float
    ) -> None:
        self._runs, self._interrupted, self._records, self._seconds = runs, interrupted, records, take_over_seconds
        self._beaten = 0.0  # the last beat, by the loop's clock
        self._silence: asyncio.TimerHandle | None = None  # from the first attempt to beat until one succeeds
        self._beating: asyncio.Task[None] | None = None
        self._is_due = asyncio.Event()  # set early if another process has left
        self._taking_up: set[asyncio.Task[int]] = set()
        self._has_lost_store = False  # and has logged so
        self.takes_over = False  # not before the agent can carry on with what it takes
        self.is_connected = True  # whether the last attempt to reach the store succeeded
        records.on_pulse = self._apply

    def start(self) -> None:
        self._beaten = asyncio.get_running_loop().time()
        self._beating = asyncio.create_task(self._beat_regularly(), name="replica")

    async def close(self) -> None:
        await cancel_all([self._beating])  # first: it starts the others
        self._was_reached()
        await cancel_all(self._taking_up)

    async def _beat_regularly(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds / BEATS):  # `wait_for` may lose a cancellation
                    await self._is_due.wait()
            self._is_due.clear()
            if self._silence is None:  # a process that stood still itself may ask first whether it counts as dead
                self._end_in(max(self._seconds / BEATS, self._left()))
            reached = False
            try:
                await self.beat()
                reached = True
                self._was_reached()
            except HoloDeckError as error:
                if self.is_connected:
                    log.warning("heartbeat failed: %s", error.message)
            except Exception:  # the next attempt may succeed; if none does, the others take over
                log.exception("heartbeat failed")
            self.is_connected = reached
            if self._left() <= 0:
                self._lost_store()

    def _end_in(self, seconds: float) -> None:
        """Ends the runs of this process in time, whether beats fail or wait for an answer that never comes."""
        self._silence = asyncio.get_running_loop().call_later(seconds, self._end_if_silent)

    def _was_reached(self) -> None:
        self._has_lost_store = False
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _end_if_silent(self) -> None:
        if (left := self._left()) > 0:  # the counter was raised meanwhile
            self._end_in(left)
        else:
            self._silence = None  # the next attempt sets it again: the counter may be raised for once
            self._lost_store()

    def _left(self) -> float:
        """Seconds until this process ends its runs, unless it raises its counter."""
        return self._beaten + OWN_SHARE * self._seconds - asyncio.get_running_loop().time()

    def _lost_store(self) -> None:
        """Ends the runs of this process before another may take them over. Those that wait for their turn wait on."""
        self.is_connected = False
        if not self._has_lost_store:  # until a heartbeat arrives, this is called again and again
            self._has_lost_store = True
            log.warning(
                "no heartbeat has reached the store for %g seconds; this server ends its runs",
                OWN_SHARE * self._seconds,
            )
        self._runs.stop_all(RunInterrupted(LOST_TEXT), also_queued=False)

    async def beat(self) -> None:
        begun = asyncio.get_running_loop().time()
        pulse = await self._records.beat()
        if not pulse.is_alive:
            log.warning("other processes considered this one dead; its runs are stopped")
            self._runs.stop_all(LostClaim("Another process has taken this run over."))
            await self._records.join()
            return
        self._beaten = begun
        self._apply(pulse)
        if not self.takes_over or self._runs.is_closing:
            return
        taken = await self._records.take_over(self._seconds)
        if taken:
            log.warning("runs_taken_over", extra={"details": {"runs": len(taken)}})
            # Not awaited: thousands take longer than the time after which a process that does not beat counts as dead.
            self._taking_up.add(task := asyncio.create_task(self._interrupted.take_up(taken), name="take runs up"))
            task.add_done_callback(self._taking_up.discard)

    def _apply(self, pulse: Pulse) -> None:
        if pulse.left:
            self._is_due.set()
        self._interrupted.stop_queued(pulse.stops)
        for run in self._own(pulse.stops):
            self._runs.stop(run)
        until_next_note = NOTE_SECONDS + 2 * self._seconds / BEATS  # one heartbeat may be late
        for run in self._own(pulse.followed):
            self._runs.note_reader_elsewhere(run, until_next_note)
        for run in self._own(pulse.awaited):
            self._runs.give_up(run)
        for run in self._own(pulse.gone):
            self._runs.stop(
                run, LostClaim("This run was deleted with its session, or another process has taken it over.")
            )

    def _own(self, names: Sequence[OwnedId]) -> list[Run]:
        found = (self._runs.find(run_id, owner=owner) for owner, run_id in names)
        return [run for run in found if run is not None and not run.log.ended]
