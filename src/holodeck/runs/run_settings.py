"""What an agent's file says about its runs: how long they outlive their readers, how many wait, how many are kept."""

from dataclasses import dataclass
from enum import StrEnum

from holodeck.runs.client_history import ClientHistory
from holodeck.runs.log import MAX_EVENTS


class WhenBusy(StrEnum):
    """What a second request on a session gets while a run is in progress."""

    QUEUE = "queue"
    REJECT = "reject"


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    detach_grace: float = 30.0
    replay_window: float = 120.0
    when_busy: WhenBusy = WhenBusy.QUEUE
    client_history: ClientHistory = ClientHistory.ADOPT
    max_log_events: int = MAX_EVENTS
    continues: bool = True  # runs that a crash cut go on, where that is safe and a reader comes back
    max_queued: int = 20  # runs that wait on one session: one conversation must not take all slots of the server
    max_finished: int = 10_000  # finished runs that can be read again, whatever the replay window says …
    max_finished_bytes: int = 64 * 1024 * 1024  # … what they take together, about …
    max_finished_of_session: int = 8  # … and those of one conversation, since each may hold all of it
