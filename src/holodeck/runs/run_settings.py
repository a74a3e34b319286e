"""An agent's settings for its runs: how long they outlive their readers, how many wait, how many are kept."""

from enum import StrEnum

from pydantic import Field

from holodeck.blocks import Block
from holodeck.runs.client_history import ClientHistory
from holodeck.runs.log import MAX_EVENTS


class WhenBusy(StrEnum):
    """The treatment of a second request on a session while a run is in progress."""

    QUEUE = "queue"
    REJECT = "reject"


class KeptRuns(Block):
    """How long a run continues without readers, and how long it can be replayed."""

    detach_grace: float = Field(30, ge=0, le=3600, description="Seconds without any reader before a run is cancelled")
    replay_window: float = Field(
        120, ge=0, le=3600, description="Seconds that the exact events of a finished run are kept"
    )
    max_log_events: int = Field(
        MAX_EVENTS, ge=1000, le=10_000_000, description="Events kept per run; older ones cannot be replayed"
    )


class RunSettings(KeptRuns):
    when_busy: WhenBusy = WhenBusy.QUEUE
    client_history: ClientHistory = ClientHistory.ADOPT
    continues: bool = True  # runs that a crash interrupted continue, if that is safe and a reader reconnects
    max_queued: int = 20  # waiting runs of one session: one conversation must not take all slots of the server
    max_finished: int = 10_000  # finished runs that can be read again, however long the replay window is …
    max_finished_bytes: int = 64 * 1024 * 1024  # … their total size, about …
    max_finished_of_session: int = 8  # … and how many of one conversation, since each may hold all of it
