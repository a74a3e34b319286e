"""A HoloDeck server from its client's side: the identity, a conversation, runs as events.

Speaks AG-UI over our own HTTP client. Errors are sentences for the user, and none contains a key.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from holodeck.core.events import Ending, Event, Interrupt, RunFailed, RunFinished
from holodeck.core.ids import new_ulid
from holodeck.core.request import Resume
from holodeck.core.text import one_line
from holodeck.errors import HoloDeckError, InvalidRequest, StartError
from holodeck.http.client import Client
from holodeck.http.client_connection import Response
from holodeck.http.failures import HttpError, NoConnection, NoHost, Unsendable
from holodeck.models.sse_reader import SseReader
from holodeck.wires.agui.client_events import CLIENT_HEADER, TERMINAL, ClientEvents

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0  # for answers that are not streams
SILENCE_SECONDS = 120.0  # the server sends a comment long before
MAX_ANSWER = 64_000_000
MAX_EVENT = 16_000_000
LONGEST = 300
LOST = "connection-lost"
_OK, _MISSING, _UNAUTHORIZED, _FORBIDDEN = 200, 404, 401, 403
_decode = msgspec.json.Decoder().decode


class ServerRefused(HoloDeckError):
    """The server answered with an error. `answered` is its status."""

    code, status, title = "server-refused", 502, "The server refused"

    def __init__(self, message: str, answered: int) -> None:
        super().__init__(message)
        self.answered = answered


@dataclass(frozen=True)
class RemoteSession:
    """A conversation as a server shows it."""

    messages: Sequence[Mapping[str, Any]] = ()
    questions: Sequence[Interrupt] = ()


class RemoteServer:
    def __init__(self, url: str, key: str | None) -> None:
        self.url = url.rstrip("/")
        self._has_key = key is not None
        self._tools: dict[str, str] = {}  # of calls that wait for the user, by call id
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http = Client({**headers, "Accept": "application/json"}, CONNECT_SECONDS)
        self._streams = Client({**headers, CLIENT_HEADER: TERMINAL, "Accept": "text/event-stream"}, CONNECT_SECONDS)

    async def connect(self) -> str:
        """Returns the name of the agent. StartError if no server answers, or it refuses us."""
        try:
            await self._json("/me")
            about = await self._json("/")
        except ServerRefused as error:
            raise StartError(self._no_agent() if error.answered == _MISSING else error.message) from error
        name = about.get("agent") if isinstance(about, dict) else None
        if not isinstance(name, str):
            raise self._no_server()
        return name

    async def session(self, session_id: str) -> RemoteSession:
        """Returns the conversation, or an empty one if none exists yet or the key may not read it."""
        try:
            found = await self._json(f"/sessions/{quote(session_id, safe='')}")
        except ServerRefused as error:
            if error.answered in (_MISSING, _FORBIDDEN):
                return RemoteSession()
            raise
        pending = found.get("pending") or {}
        questions = [] if pending.get("client_calls") else [_question(each) for each in pending.get("questions") or ()]
        self._note(questions)
        return RemoteSession(found.get("messages") or (), questions)

    async def run(
        self,
        session_id: str,
        run_id: str,
        *,
        content: object = None,
        resume: Sequence[Resume] = (),
        emit: Callable[[Event], None],
    ) -> Ending:
        """Starts a run, with a message or with decisions, and emits its events. Returns its last one."""
        body: dict[str, Any] = {"threadId": session_id, "runId": run_id, "protocolVersion": "1.0", "messages": []}
        body |= {"tools": [], "context": [], "forwardedProps": {}}
        if content is not None:
            body["messages"] = [{"id": new_ulid(), "role": "user", "content": content}]
        if resume:
            body["resume"] = [_resume(each) for each in resume]
        reading = _RunReader(ClientEvents(run_id, session_id, self._tools), emit)
        try:
            async with self._streams.post(f"{self.url}/awp", msgspec.json.encode(body)) as response:
                if response.status != _OK:
                    raise await self._refusal(response)
                await reading.follow(response)
        except (HttpError, OSError) as error:
            if reading.is_begun:
                again = f"--session {one_line(session_id, LONGEST)} continues the conversation"
                return reading.lost(
                    f"The connection to {self.url} was lost; the server may still finish the answer. {again}."
                )
            raise self._away(error) from error
        ending = reading.ending or reading.lost("The server closed the stream before the end of the answer.")
        self._note(ending.interrupts if isinstance(ending, RunFinished) else ())
        return ending

    def _note(self, questions: Sequence[Interrupt]) -> None:
        self._tools = {each.call_id: each.tool for each in questions}

    async def stop(self, run_id: str) -> None:
        """Asks the server to stop a run. Failures are ignored."""
        try:
            url = f"{self.url}/runs/{quote(run_id, safe='')}/stop"
            async with asyncio.timeout(ANSWER_SECONDS), self._http.post(url, b"") as response:
                await response.read_into(lambda _piece: False)
        except (HttpError, OSError):
            return

    async def close(self) -> None:
        await self._http.close()
        await self._streams.close()

    async def _json(self, path: str) -> Any:
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._http.get(self.url + path) as response:
                if response.status != _OK:
                    raise await self._refusal(response)
                return _decode(await _whole(response))
        except (HttpError, OSError) as error:
            raise StartError(self._away(error).message) from error
        except msgspec.DecodeError as error:
            raise self._no_server() from error

    def _no_server(self) -> StartError:
        return StartError(f"{self.url} is not a HoloDeck server; use the address that `holodeck serve` prints")

    def _away(self, error: Exception) -> InvalidRequest:
        if isinstance(error, Unsendable):
            near = (
                "write http://host:port" if "://" in self.url else f"did you mean http://{one_line(self.url, LONGEST)}?"
            )
            return InvalidRequest(f"{one_line(self.url, LONGEST)} is not the address of a server; {near}")
        what = (
            "cannot be reached"
            if isinstance(error, NoConnection | NoHost | OSError)
            else "does not answer in HTTP as expected"
        )
        return InvalidRequest(f"{self.url} {what}; is the server running? ({one_line(str(error), LONGEST)})")

    def _no_agent(self) -> str:
        """Explains a wrong address: newcomers copy that of an endpoint or a page, which begins with the server's."""
        given = urlsplit(self.url)
        near = f"did you mean {given.scheme}://{given.netloc}?"
        return f"There is no agent at {self.url}; {near if given.path else 'is it a HoloDeck server?'}"

    async def _refusal(self, response: Response) -> ServerRefused:
        try:
            problem = _decode(await _whole(response, 65_536))
            detail = problem.get("detail") if isinstance(problem, dict) else None
        except (msgspec.DecodeError, ServerRefused):
            detail = None
        if response.status == _UNAUTHORIZED:
            text = "The server requires a key; set HOLODECK_API_KEY, or name a file with --key-file."
            if self._has_key:
                why = f": {one_line(detail, LONGEST).rstrip('.')}" if isinstance(detail, str) and detail else ""
                text = f"The server does not accept this key{why}; set another in HOLODECK_API_KEY or with --key-file."
        elif isinstance(detail, str) and detail:
            text = one_line(detail, LONGEST)
        elif response.status == _MISSING:
            text = self._no_agent()
        else:
            text = f"The server answered {response.status}."
        return ServerRefused(text, response.status)


class _RunReader:
    """Reads the stream of one run until its last event."""

    def __init__(self, events: ClientEvents, emit: Callable[[Event], None]) -> None:
        self._events, self._emit, self._sse = events, emit, SseReader(MAX_EVENT)
        self._pieces = 0
        self.ending: Ending | None = None

    @property
    def is_begun(self) -> bool:
        return self._pieces > 0

    async def follow(self, response: Response) -> None:
        """Follows the stream. Raises OSError after a long silence without even a comment."""
        reading = asyncio.ensure_future(response.read_into(self._take))
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

    def _take(self, piece: bytes) -> bool:
        self._pieces += 1
        for _, data in self._sse.feed(piece):
            for event in self._events.read(data):
                self._emit(event)
                if isinstance(event, Ending):
                    self.ending = event
        return self.ending is not None

    def lost(self, message: str) -> Ending:
        if self.ending is None:
            self.ending = RunFailed("", "", code=LOST, message=message)
            self._emit(self.ending)
        return self.ending


async def _whole(response: Response, limit: int = MAX_ANSWER) -> bytes:
    pieces: list[bytes] = []

    def take(piece: bytes) -> bool:
        pieces.append(piece)
        return sum(map(len, pieces)) > limit

    await response.read_into(take)
    return b"".join(pieces)


def _question(given: Mapping[str, Any]) -> Interrupt:
    return Interrupt(
        id=str(given.get("interrupt_id")),
        call_id=str(given.get("call_id", "")),
        tool=str(given.get("tool", "")),
        arguments=str(given.get("arguments", "")),
        message="",
    )


def _resume(answer: Resume) -> dict[str, Any]:
    edited = answer.payload.get("arguments") if isinstance(answer.payload, dict) else None
    payload: dict[str, Any] = {"approved": answer.approved} | ({} if edited is None else {"arguments": edited})
    payload |= {} if answer.reason is None else {"reason": answer.reason}
    return {"interruptId": answer.interrupt_id, "status": "resolved", "payload": payload}
