"""What a token costs from the model's socket to a reader that only counts: client, loop and emitter, no server.

Beside it, in the same process and in turns, the two limits: aiohttp with nothing done to the bytes, and the same with each
event decoded by msgspec. All of them read the same bytes from the same endpoint on the same event loop (uvloop).
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiohttp
import msgspec
import uvloop

from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.processes import cores
from benchmarks.report import CannotMeasureError, Row, Target, ratios
from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.loop import run as run_agent
from holodeck.core.events import Event, TextAdded
from holodeck.core.messages import UserMessage
from holodeck.models.chat_completions_model import OpenAIChatModel
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.tools.catalogue import Catalogue

STREAMS, TOKENS = 64, 200
TOKEN_LENGTH = 12  # characters of every token that the fake model sends
BURSTS = 8  # in one sample: about a second of CPU, against the noise
MODE = f"fake-{TOKENS}"

Stream = Callable[[], Awaitable[int]]
"""Reads one answer; returns how many tokens it saw."""


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice]


decode_chunk = msgspec.json.Decoder(Chunk).decode


@dataclass(frozen=True)
class BareClient:
    """aiohttp alone."""

    session: aiohttp.ClientSession
    url: str
    body: bytes = msgspec.json.encode(
        {"model": MODE, "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    )

    async def copied(self) -> int:
        """Joins the bytes. A copy sees no tokens; it counts the marks of the whole answer once, as everybody's check."""
        async with self.session.post(self.url, data=self.body, headers={"Content-Type": "application/json"}) as answer:
            parts = [data async for data in answer.content.iter_any()]
        return b"".join(parts).count(b" @")

    async def decoded(self) -> int:
        tokens, rest = 0, b""
        async with self.session.post(self.url, data=self.body, headers={"Content-Type": "application/json"}) as answer:
            async for data in answer.content.iter_any():
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    if event.startswith(b"data: {"):
                        tokens += sum(bool(choice.delta.content) for choice in decode_chunk(event[6:]).choices)
        return tokens


@dataclass(frozen=True)
class WholeAgent:
    agent: AgentDefinition

    async def answered(self) -> int:
        characters = 0

        def emit(event: Event) -> None:
            nonlocal characters
            if type(event) is TextAdded:
                characters += len(event.delta)

        await run_agent(self.agent, AgentContext(input=[UserMessage(content="hello")]), emit)
        return characters // TOKEN_LENGTH


async def microseconds_per_token(stream: Stream, bursts: int) -> float:
    """CPU time of this process while it reads `bursts` times STREAMS answers at once."""
    started = time.process_time_ns()
    for _ in range(bursts):
        seen = await asyncio.gather(*(stream() for _ in range(STREAMS)))
        if set(seen) != {TOKENS}:
            raise CannotMeasureError(f"a stream had {min(seen)} to {max(seen)} tokens instead of {TOKENS}")
    return (time.process_time_ns() - started) / 1000 / (bursts * STREAMS * TOKENS)


async def measure(port: int, rounds: int, bursts: int) -> dict[str, list[float]]:
    endpoint = f"http://127.0.0.1:{port}/v1"
    model = OpenAIChatModel(EndpointSettings(name=MODE, endpoint=endpoint))
    async with AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        bare = BareClient(session, f"{endpoint}/chat/completions")
        whole = WholeAgent(
            await stack.enter_async_context(AgentDefinition(name="bench", model=model, tools=Catalogue()))
        )
        streams = {"copy": bare.copied, "decode": bare.decoded, "agent": whole.answered}
        for stream in streams.values():
            await microseconds_per_token(stream, 1)  # warm: connections, caches, lazy imports
        samples: dict[str, list[float]] = {name: [] for name in streams}
        for _ in range(rounds):
            for name, stream in streams.items():
                samples[name].append(await microseconds_per_token(stream, bursts))
        return samples


def run(options: Options) -> list[Row]:
    before = os.sched_getaffinity(0)
    with fake_model(needs_c=False) as port, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        os.sched_setaffinity(0, cores()[1])
        try:
            samples = runner.run(measure(port, options.rounds + 2, 1 if options.quick else BURSTS))
        finally:
            os.sched_setaffinity(0, before)
    measure_name = f"CPU per token, {STREAMS} x {TOKENS}"
    return [
        Row(measure=measure_name, system="aiohttp, bytes joined", unit="µs", samples=samples["copy"]),
        Row(measure=measure_name, system="aiohttp + msgspec", unit="µs", samples=samples["decode"]),
        Row(measure=measure_name, system="HoloDeck: client → loop → reader", unit="µs", samples=samples["agent"]),
        Row(
            measure="the same, relative",
            system="HoloDeck / (aiohttp + msgspec)",
            unit="x",
            samples=ratios(samples["agent"], samples["decode"]),
            target=Target(limit=2),
        ),
    ]
