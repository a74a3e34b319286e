"""An agent's settings for its runs: how long they outlive their readers, how many wait, how many are kept."""

from dataclasses import dataclass
from enum import StrEnum

from holodeck.runs.client_history import ClientHistory
from holodeck.runs.log import MAX_EVENTS


class WhenBusy(StrEnum):
    """The treatment of a second request on a session while a run is in progress."""

    QUEUE = "queue"
    REJECT = "reject"


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    detach_grace: float = 30
    replay_window: float = 120
    when_busy: WhenBusy = WhenBusy.QUEUE
    client_history: ClientHistory = ClientHistory.ADOPT
    max_log_events: int = MAX_EVENTS
    continues: bool = True  # runs that a crash interrupted continue, if that is safe and a reader reconnects
    max_queued: int = 20  # waiting runs of one session: one conversation must not take all slots of the server
    max_finished: int = 10_000  # finished runs that can be read again, however long the replay window is …
    max_finished_bytes: int = 64 * 1024 * 1024  # … their total size, about …
    max_finished_of_session: int = 8  # … and how many of one conversation, since each may hold all of it
