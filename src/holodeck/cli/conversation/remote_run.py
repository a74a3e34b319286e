"""One answer of a server, read to its ending through lost connections, crashes and restarts of the server.

Nothing is asked or done twice. A request that was not answered is repeated with the same run id, which joins the run.
A run that has begun is resumed after its last event. A run that the server ended because it shuts down is continued by
a run without a message, unless a tool was running: whether to continue then is for the user to decide.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holodeck.cli.conversation.remote_server import RemoteServer, ServerRefused
from holodeck.core.events import (
    ActivityShown,
    Ending,
    Event,
    Outcome,
    ReasoningStarted,
    RunFailed,
    RunFinished,
    RunStarted,
    TextAdded,
    TextEnded,
    TextStarted,
    ToolCallEnded,
    ToolCallStarted,
    ToolFinished,
    WarningRaised,
    interrupts_of,
)
from holodeck.core.ids import new_ulid
from holodeck.core.request import Resume
from holodeck.core.text import one_line
from holodeck.errors import RunInterrupted, ShuttingDown
from holodeck.http.client import Exchange
from holodeck.http.client_connection import Response
from holodeck.http.failures import ConnectionBroken, HttpError, NoConnection, NoHost, Unsendable
from holodeck.models.sse_reader import SseReader
from holodeck.wires.agui.client_events import ClientEvents

SILENCE_SECONDS = 120.0  # the server sends a comment long before
MAX_EVENT = 16_000_000
LONGEST = 300
LOST = "connection-lost"
_OK, _NOTHING_MORE = 200, 204
STOPPED_TOOL = (
    "The server was stopped while a tool was running; whether the call took effect is not known. "
    "Send a message to continue."
)
_SHUTDOWN = RunFailed("", "", code=ShuttingDown.code, message="")  # compared by identity
_PASSING = frozenset({429, 502, 503, 504})  # statuses of a restarting server, or of the proxy in front of it
_GONE = frozenset({400, 404, 410})  # the server no longer has the events after ours


@dataclass(frozen=True)
class ReconnectLimits:
    """How a client reconnects: the delays between attempts, the last one again and again, and for how many seconds."""

    delays: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0)
    seconds: float = 120.0


class RemoteRun:
    def __init__(
        self,
        server: RemoteServer,
        session_id: str,
        *,
        content: object = None,
        message_id: str = "",
        resume: Sequence[Resume] = (),
        emit: Callable[[Event], None],
        wait_for: Callable[[str], None],
        reconnect: ReconnectLimits | None = None,
    ) -> None:
        """A run with a message, or with decisions. `wait_for` shows what the user waits for."""
        self.run_id = new_ulid()
        self.is_connected = False
        self.is_new_session = False  # the server did not know the session
        self.is_session_gone = False  # the server lost the session in a restart, and the ending says so
        self.is_stored = False  # the server has shown a part of the answer, so it has stored the session
        self._server, self._session_id = server, session_id
        self._body = _body(session_id, content, message_id, resume)
        self._emit, self._wait_for, self._reconnect = emit, wait_for, reconnect or ReconnectLimits()
        self._events = ClientEvents(self.run_id, session_id, server.tools)
        self._last_id = ""  # id of the last event that was shown
        self._ending: Ending | None = None
        self._has_answer = False  # the server has shown a part of the answer, so it has stored the message
        self._is_tool_cut = False  # the last call failed, and the model has not seen that
        self._open_calls: set[str] = set()  # calls that the model has made, without a result
        self._failures = 0  # since the last event
        self._lost_at: float | None = None
        self._is_stopping = False

    async def ending(self) -> Ending:
        """Emits the run's events and returns the last one. Raises ServerRefused, or InvalidRequest without a server."""
        while True:
            lost = await self._attempt()
            if isinstance(lost, Ending):
                break
            if self._is_stopping:
                lost = self._conclude(RunFinished(self.run_id, self._session_id, outcome=Outcome.CANCELLED))
                break
            if not await self._wait(lost):
                lost = self._conclude(self._given_up())
                break
        self._server.note(interrupts_of(lost))
        return lost

    async def stop(self) -> None:
        """Asks the server to stop the run. Its last event arrives like any other."""
        self._is_stopping = True
        await self._server.stop(self.run_id)

    async def _attempt(self) -> Ending | str:
        """Reads as far as one connection reaches. Returns the ending, or in a sentence why there is none yet."""
        reader = _StreamReader(self._take)
        try:
            async with self._exchange() as response:
                if response.status == _NOTHING_MORE:
                    return await self._from_session()
                if response.status != _OK:
                    raise await self._server.refusal(response)
                self.is_connected = True
                await reader.follow(response)
        except (NoConnection, NoHost, ConnectionBroken, OSError):
            pass
        except HttpError as error:
            # A proxy may send anything while the server is away.
            if self._lost_at is None or isinstance(error, Unsendable):
                raise self._server.away(error) from error
        except ServerRefused as refused:
            if self._last_id and refused.answered in _GONE:
                return await self._from_session()
            if self._lost_at is None or refused.answered not in _PASSING:
                raise
        finally:
            self.is_connected = False
        if self._ending is _SHUTDOWN:
            return self._ask_again()
        return self._ending or f"The connection to {self._server.url} was lost"

    def _exchange(self) -> Exchange:
        if self._last_id:
            return self._server.events(self.run_id, self._last_id)
        return self._server.start(msgspec.json.encode({**self._body, "runId": self.run_id}))

    def _take(self, data: bytes, event_id: str) -> bool:
        """Shows the events of one frame. Returns whether the run has ended."""
        self._last_id = event_id or self._last_id
        for event in self._events.read(data):
            self._ending = self._changed(event) if isinstance(event, Ending) else None
            if self._ending is not _SHUTDOWN:
                self._emit(self._ending or event)
            self._notice(event)
        return self._ending is not None

    def _notice(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.is_new_session = self.is_new_session or event.is_new_session
        if isinstance(event, RunStarted | WarningRaised | ActivityShown):
            return  # the message may not be stored yet
        self._has_answer, self._failures, self._lost_at = True, 0, None
        self.is_stored = self.is_stored or not isinstance(event, RunFailed)
        if isinstance(event, ToolCallEnded):
            self._open_calls.add(event.call_id)
        elif isinstance(event, ToolFinished):
            self._open_calls.discard(event.call_id)
            self._is_tool_cut = self._is_tool_cut or event.failed
        elif isinstance(event, TextStarted | ReasoningStarted | ToolCallStarted):
            self._is_tool_cut = False  # the model has seen the result

    def _changed(self, ending: Ending) -> Ending:
        """Returns the ending to show. `_SHUTDOWN` is not shown: another run, under an id of its own, answers the rest."""
        code = ending.code if isinstance(ending, RunFailed) else None
        is_crash = code == RunInterrupted.code  # then the copy of the log may lack the end of a call
        if is_crash or code == ShuttingDown.code:
            if self._is_tool_cut or (is_crash and self._open_calls):
                return msgspec.structs.replace(ending, message=STOPPED_TOOL, retryable=False)
            return ending if is_crash else _SHUTDOWN
        return ending

    def _ask_again(self) -> str:
        self.run_id, self._last_id, self._ending = new_ulid(), "", None
        if self._has_answer:  # the server has the message, and continues after what is stored
            self._body = _body(self._session_id)
        return "The server is shutting down"

    async def _wait(self, why: str) -> bool:
        """Waits before the next attempt. Returns False if there is to be none."""
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
            self._emit(WarningRaised(LOST, f"{why}; reconnecting. Ctrl+C stops."))
        if now - self._lost_at >= self._reconnect.seconds:
            return False
        self._wait_for("reconnecting")
        await asyncio.sleep(self._reconnect.delays[min(self._failures, len(self._reconnect.delays) - 1)])
        self._failures += 1
        return True

    def _given_up(self) -> Ending:
        again = f"holodeck chat --url {self._server.url} --session {one_line(self._session_id, LONGEST)}"
        message = (
            f"{self._server.url} did not answer for {self._reconnect.seconds:.0f} seconds. When the server runs again, "
            f"`{again}` continues the conversation."
        )
        return RunFailed(self.run_id, self._session_id, code=LOST, message=message)

    async def _from_session(self) -> Ending:
        """Shows the answer as the session has it: its events are gone."""
        session = await self._server.session(self._session_id)
        if session.questions:
            waits = RunFinished(self.run_id, self._session_id, outcome=Outcome.INTERRUPTED)
            return self._conclude(msgspec.structs.replace(waits, interrupts=tuple(session.questions)))
        answers = [each for each in session.messages if each.get("run_id") == self.run_id and each.get("content")]
        last = answers[-1] if answers else {}
        text = last.get("content")
        if last.get("role") == "assistant" and isinstance(text, str) and not last.get("cut"):
            self._emit(TextAdded(str(last.get("id")), text))
            self._emit(TextEnded(str(last.get("id"))))
            return self._conclude(RunFinished(self.run_id, self._session_id))
        if not session.messages:
            self.is_session_gone = True
            why = "The server was restarted and no longer has this conversation; send the message again."
        else:
            why = "The server no longer has the rest of this answer; send a message to continue."
        return self._conclude(RunFailed(self.run_id, self._session_id, code=LOST, message=why))

    def _conclude(self, ending: Ending) -> Ending:
        self._emit(ending)
        return ending


class _StreamReader:
    def __init__(self, take: Callable[[bytes, str], bool]) -> None:
        self._take, self._sse = take, SseReader(MAX_EVENT)
        self._pieces = 0

    async def follow(self, response: Response) -> None:
        """Follows the stream. Raises OSError after a long silence without even a comment."""
        reading = asyncio.ensure_future(response.read_into(self._read))
        try:
            seen = -1
            while not reading.done():
                if seen == self._pieces:
                    raise TimeoutError
                seen = self._pieces
                await asyncio.wait({reading}, timeout=SILENCE_SECONDS)
            await reading
        finally:
            reading.cancel()

    def _read(self, piece: bytes) -> bool:
        self._pieces += 1
        frames = self._sse.feed(piece)
        event_id = self._sse.last_id.decode("latin-1")
        return any(self._take(data, event_id) for _, data in frames)


def _body(
    session_id: str, content: object = None, message_id: str = "", resume: Sequence[Resume] = ()
) -> Mapping[str, Any]:
    body: dict[str, Any] = {"threadId": session_id, "protocolVersion": "1.0", "messages": []}
    body |= {"tools": [], "context": [], "forwardedProps": {}}
    if content is not None:
        body["messages"] = [{"id": message_id or new_ulid(), "role": "user", "content": content}]
    if resume:
        body["resume"] = [_resume(each) for each in resume]
    return body


def _resume(answer: Resume) -> dict[str, Any]:
    edited = answer.payload.get("arguments") if isinstance(answer.payload, dict) else None
    payload: dict[str, Any] = {"approved": answer.approved} | ({} if edited is None else {"arguments": edited})
    payload |= {} if answer.reason is None else {"reason": answer.reason}
    return {"interruptId": answer.interrupt_id, "status": "resolved", "payload": payload}
