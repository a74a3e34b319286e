"""One run of one kind: a conversation on one wire, and the invariants that hold after it whatever happened.

A play asks, is treated badly, says what it expected; `settle` then holds the client's transcript, the session, the run,
the endpoint's journal and the log against each other (I1 to I5 and I9). I6 to I8 concern a whole batch: see `matrix`.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from holodeck.core.ids import new_ulid
from tests.faults.planned_endpoint import Plan, PlannedEndpoint, marked
from tests.faults.server_process import ServerProcess, until
from tests.faults.tool_servers import ToolServers
from tests.faults.wires import ClientView, Wire
from tests.models.endpoint import Respond, text_stream

LONGEST = 30.0  # seconds that any answer may take
MARGIN = 2.0


@dataclass
class Turn:
    """One question of a conversation, and what became of it."""

    words: str
    plan: Plan
    request_id: str
    run_id: str
    view: ClientView | None = None
    accepted: bool = True
    left: bool = False  # the client did not wait for the end
    again: bool = False  # it is posted more than once, and shall be asked once

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Request-ID": self.request_id} | ({"Idempotency-Key": self.run_id} if self.again else {})


@dataclass
class FaultScenario:
    kind: str
    seed: int
    wire: Wire
    server: ServerProcess
    endpoint: PlannedEndpoint
    client: aiohttp.ClientSession
    folder: Path
    tools: ToolServers
    turns: list[Turn] = field(default_factory=list)
    session: str = field(default_factory=new_ulid)
    figures: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.kind} {self.seed} {self.wire.name}")
        self.name = f"{self.kind}-{self.seed}-{self.wire.name.replace(' ', '.')}"

    def turn(self, *responses: Respond, words: str = "") -> Turn:
        """Writes down what the endpoint will answer to the next question."""
        key = f"{self.name}-{len(self.turns)}"
        turn = Turn(
            words=marked(key, words),
            plan=self.endpoint.plan(key, *responses),
            request_id=f"req_{self.random.getrandbits(48):012x}",
            run_id=f"{key}-{new_ulid()}",
        )
        self.turns.append(turn)
        return turn

    @asynccontextmanager
    async def begin(
        self, turn: Turn, client: aiohttp.ClientSession | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Puts the question; the body is the play's to read, or not."""
        async with (client or self.client).post(
            self.server.url + self.wire.path,
            json=self.wire.body(turn.words, self.session, turn.run_id),
            headers={**self.wire.headers, **turn.headers},
        ) as answer:
            yield answer

    async def finish(self, turn: Turn) -> ClientView:
        """Asks the question and reads all of the answer."""
        begun = time.monotonic()
        async with asyncio.timeout(LONGEST), self.begin(turn) as answer:
            body, whole = await everything(answer)
        turn.view = self.wire.read(answer.status, body, whole=whole)
        turn.view.seconds = time.monotonic() - begun
        turn.view.headers = {name.lower(): value for name, value in answer.headers.items()}
        return turn.view

    async def ask(self, *responses: Respond, words: str = "") -> ClientView:
        return await self.finish(self.turn(*responses, words=words))

    async def continues(self, words: str = "and now? ") -> None:
        """Whatever happened before, the next question of the same conversation is answered."""
        view = await self.ask(text_stream("all ", "is well"), words=words)
        assert view.status == 200, f"the next turn: {view}"
        assert (view.ending, view.text) == ("finished", "all is well"), f"the next turn: {view}"

    async def session_now(self) -> dict[str, Any]:
        status, view = await self.server.get(f"/sessions/{self.session}")
        assert status == 200, f"GET /sessions: {status} {view}"
        return dict(view)

    async def run_now(self, turn: Turn) -> dict[str, Any] | None:
        run_id = turn.run_id if self.wire.names_runs else turn.view.run_id if turn.view else None
        if run_id is None:
            return None  # a wire that does not send the run id
        status, view = await self.server.get(f"/runs/{run_id}")
        assert status == 200, f"I1 GET /runs/{run_id}: {status} {view}"
        return dict(view)

    async def settle(self) -> None:
        await self._session_is_idle()
        kept = await self.session_now()
        for turn in self.turns:
            await self._ended_once(turn)
            await self._logged_once(turn)
        self._users_messages_once_and_in_order(kept["messages"])
        self._seen_text_is_kept(kept["messages"])
        _every_call_has_one_result(kept["messages"])
        offences = {key: why for key, why in self.endpoint.offences.items() if key.startswith(f"{self.name}-")}
        assert not offences, f"I4 at the provider: {offences}"

    async def _session_is_idle(self) -> None:
        deadline = time.monotonic() + LONGEST
        while (await self.session_now())["active_runs"]:
            assert time.monotonic() < deadline, "I1: a run does not end"
            await asyncio.sleep(0.02)

    async def _ended_once(self, turn: Turn) -> None:
        """I1."""
        view = turn.view
        if view is not None and not turn.left:
            assert view.whole, "I1: the HTTP answer was cut off"
            assert view.wrong is None, f"I1: {view.wrong}"
            assert view.ending is not None, f"I1: no ending in {view.frames[-3:]}"
        if not turn.accepted:
            return
        run = await self.run_now(turn)
        if run is not None:
            assert run["state"] in {"finished", "failed", "cancelled"}, f"I1: the run is {run['state']}"
            if view is not None and view.ending is not None:
                assert run["state"] == view.ending, f"I1: the wire says {view.ending}, the server {run['state']}"

    async def _logged_once(self, turn: Turn) -> None:
        """I9."""
        if not turn.accepted:
            return
        await until(lambda: self.server.endings(turn.request_id) > 0, what=f"I9: a line about {turn.request_id}")
        count = self.server.endings(turn.request_id)
        assert count == 1, f"I9: {count} lines tell the end of one run"

    def _users_messages_once_and_in_order(self, messages: list[dict[str, Any]]) -> None:
        """I2."""
        kept = [message["content"] for message in messages if message["role"] == "user"]
        asked = [turn.words for turn in self.turns if turn.accepted]
        assert kept == asked, f"I2: asked {asked}, kept {kept}"

    def _seen_text_is_kept(self, messages: list[dict[str, Any]]) -> None:
        """I3: by turn, what the client saw is the beginning of what is kept; less than all of it is flagged."""
        replies: list[list[dict[str, Any]]] = []
        for message in messages:
            if message["role"] == "user":
                replies.append([])
            elif message["role"] == "assistant":
                replies[-1].append(message)
        for turn, kept in zip((turn for turn in self.turns if turn.accepted), replies, strict=True):
            if turn.view is None:
                continue
            seen, stored = _letters(turn.view.text), _letters("".join(each.get("content", "") for each in kept))
            if not self.wire.streams and turn.view.ending == "finished":
                assert stored.endswith(seen), f"I3: seen {seen!r}, kept {stored!r}"
                continue
            assert stored.startswith(seen), f"I3: seen {seen!r}, kept {stored!r}"
            if turn.view.ending == "failed" and kept and not kept[-1].get("tool_calls") and stored:
                assert kept[-1].get("cut"), f"I3: a text that was cut off is not flagged: {kept[-1]}"


def _letters(text: str) -> str:
    """Wires put a blank line between the texts of two steps; the session keeps them apart anyway."""
    return text.replace("\n", "")


def _every_call_has_one_result(messages: list[dict[str, Any]]) -> None:
    """I4."""
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    results = [message["call_id"] for message in messages if message["role"] == "tool"]
    assert sorted(calls) == sorted(results), f"I4: calls {calls}, results {results}"
    assert len(set(calls)) == len(calls), f"I5: a call id twice: {calls}"


async def everything(answer: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """The body, and whether it had its proper end."""
    pieces: list[bytes] = []
    try:
        async for piece in answer.content.iter_any():
            pieces.append(piece)  # noqa: PERF401  what came before a break is kept
    except aiohttp.ClientError:
        return b"".join(pieces), False
    return b"".join(pieces), True
