"""A HoloDeck server from its client's side: the identity, a conversation, streams of runs (`remote_run` reads them).

Speaks AG-UI over our own HTTP client. Errors are sentences for the user, and none contains a key.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from holodeck.core.events import Interrupt
from holodeck.core.text import one_line
from holodeck.errors import HoloDeckError, InvalidRequest, StartError
from holodeck.http.client import Client, Exchange
from holodeck.http.client_connection import Response
from holodeck.http.failures import HttpError, NoConnection, NoHost, Unsendable
from holodeck.wires.agui.client_events import CLIENT_HEADER, TERMINAL

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0  # for answers that are not streams
MAX_ANSWER = 64_000_000
LONGEST = 300
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
    is_active: bool = False  # a run of it has not ended
    is_missing: bool = False  # the server has no such conversation


class RemoteServer:
    def __init__(self, url: str, key: str | None) -> None:
        self.url = url.rstrip("/")
        self._has_key = key is not None
        self.tools: Mapping[str, str] = {}  # tools whose calls wait for the user, by call id
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http = Client({**headers, "Accept": "application/json"}, CONNECT_SECONDS)
        self._streams = Client({**headers, CLIENT_HEADER: TERMINAL, "Accept": "text/event-stream"}, CONNECT_SECONDS)

    async def connect(self) -> str:
        """Returns the name of the agent. Raises StartError if no server answers, or it refuses us."""
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
                return RemoteSession(is_missing=error.answered == _MISSING)
            raise
        pending = found.get("pending") or {}
        questions = [] if pending.get("client_calls") else [_question(each) for each in pending.get("questions") or ()]
        self.note(questions)
        return RemoteSession(found.get("messages") or (), questions, bool(found.get("active_runs")))

    def note(self, questions: Sequence[Interrupt]) -> None:
        self.tools = {each.call_id: each.tool for each in questions}

    def start(self, body: bytes) -> Exchange:
        """Starts a run and streams its events. The same run id again joins the run."""
        return self._streams.post(f"{self.url}/awp", body)

    def events(self, run_id: str, last_id: str) -> Exchange:
        """Streams the events of a run after the one with this id."""
        return self._streams.get(f"{self.url}/runs/{quote(run_id, safe='')}/events", {"Last-Event-ID": last_id})

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
                    raise await self.refusal(response)
                return _decode(await response.read(MAX_ANSWER))
        except (HttpError, OSError) as error:
            raise StartError(self.away(error).message) from error
        except msgspec.DecodeError as error:
            raise self._no_server() from error

    def _no_server(self) -> StartError:
        return StartError(f"{self.url} is not a HoloDeck server; use the address that `holodeck serve` prints")

    def away(self, error: Exception) -> InvalidRequest:
        if isinstance(error, Unsendable):
            near = (
                "write http://host:port" if "://" in self.url else f"did you mean http://{one_line(self.url, LONGEST)}?"
            )
            return InvalidRequest(f"{one_line(self.url, LONGEST)} is not the address of a server; {near}")
        is_away = isinstance(error, NoConnection | NoHost | OSError)
        what = "cannot be reached" if is_away else "does not answer in HTTP as expected"
        return InvalidRequest(f"{self.url} {what}; is the server running? ({one_line(str(error), LONGEST)})")

    def _no_agent(self) -> str:
        """Explains a wrong address: newcomers copy that of an endpoint or a page, which begins with the server's."""
        given = urlsplit(self.url)
        near = f"did you mean {given.scheme}://{given.netloc}?"
        return f"There is no agent at {self.url}; {near if given.path else 'is it a HoloDeck server?'}"

    async def refusal(self, response: Response) -> ServerRefused:
        try:
            problem = _decode(await response.read(65_536))
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


def _question(given: Mapping[str, Any]) -> Interrupt:
    return Interrupt(
        id=str(given.get("interrupt_id")),
        call_id=str(given.get("call_id", "")),
        tool=str(given.get("tool", "")),
        arguments=str(given.get("arguments", "")),
        message="",
    )
