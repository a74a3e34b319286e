"""Runs that continue under their own id, as CopilotKit resumes them: each resume adds a part to the run.

A resume counts once. Its fingerprint is stored with the run (`RunRequest.answered`), so a late duplicate of it is found
by any process: it joins the part that the first one started.
"""

from holodeck.core.events import interrupts_of, says_not_stored
from holodeck.core.owner import OwnedId
from holodeck.core.request import RunRequest
from holodeck.errors import InvalidRequest
from holodeck.runs.log import follow
from holodeck.runs.port import RunRecord, RunState
from holodeck.runs.run import Run

MAX_PARTS = 50  # parts per run id: readers see all parts, so all are kept


def check_continues(run: Run, request: RunRequest, session: OwnedId, *, is_idle: bool) -> None:
    """Raises InvalidRequest unless the request answers what the run waits for.

    A run that a crash interrupted may wait as before, and so may one whose last resume could not be stored: on a session
    that is `is_idle`, the stored step decides.
    """
    asked = {each.id for each in interrupts_of(run.log.ending)}
    answers = {each.interrupt_id for each in request.resume}
    may_wait = run.log.ended and (run.state is RunState.INTERRUPTED or says_not_stored(run.log.ending))
    is_asked = answers <= asked or (is_idle and may_wait)
    if (run.owner, run.session_id) != session or not answers or not is_asked:
        raise InvalidRequest(
            f"Run id {request.run_id!r} is already used by another request; send a new one with each message.",
            field="runId",
        )
    if len(run.parts) >= MAX_PARTS:
        raise InvalidRequest(
            f"Run {request.run_id!r} has {MAX_PARTS} parts, one for each resume, which is the maximum; resume it under a new run id.",
            field="runId",
        )


def answered_with(earlier: Run, fingerprint: bytes) -> tuple[bytes, ...]:
    """The fingerprints of all resumes of a run, with that of the part which begins now."""
    return (*earlier.request.answered, fingerprint)


def is_continued_elsewhere(run: Run, record: RunRecord) -> bool:
    """Whether another process has continued this run under its own id since it was read here."""
    return len(record.request.answered) > len(run.request.answered)


async def part_of(run: Run, record: RunRecord, fingerprint: bytes) -> Run:
    """The part that this resume started, as soon as the parts before it are copied. The last one if it is unknown.

    A resume that was not stored may have come again: then its last part counts.
    """
    begun_by = record.fingerprint, *record.request.answered
    number = len(begun_by) - 1 - begun_by[::-1].index(fingerprint)
    while run.is_remote and len(_begun(run)) <= number:
        async for _ in follow(run.log):
            pass
        if run.later is None:
            break
        run = run.later
    begun = _begun(run)
    return begun[number] if number < len(begun) else run


def lacks_part(run: Run) -> bool:
    """Whether the last resume of a run that was read from its copy has started a part that is not copied yet."""
    return run.log.ended and len(_begun(run)) <= len(run.request.answered)


def _begun(run: Run) -> list[Run]:
    """The parts that a request began. The others continue one of them after a crash."""
    return [part for part in run.parts if part.earlier is None or part.earlier.log.ending is not None]
