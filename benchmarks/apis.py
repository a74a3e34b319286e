"""What a token costs by each API: chat completions, Responses, Anthropic's Messages, from the socket to a reader that counts.

The same process asks all three in turns, so that their ratio means something. Events of the newer APIs are longer: the limit is
1.5 times chat completions.
"""

import asyncio
import os
from contextlib import AsyncExitStack

import uvloop

from benchmarks.native import fake_apis
from benchmarks.options import Options
from benchmarks.processes import cores
from benchmarks.report import Row, Target, ratios
from benchmarks.tokens import BURSTS, MODE, STREAMS, TOKENS, WholeAgent, microseconds_per_token
from holodeck.agent.definition import AgentDefinition
from holodeck.models.anthropic.messages_model import AnthropicModel
from holodeck.models.chat_completions_model import OpenAIChatModel
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.openai_responses.responses_model import ResponsesModel
from holodeck.models.port import Model
from holodeck.tools.catalogue import Catalogue

CHAT, RESPONSES, MESSAGES = "chat completions", "Responses", "Anthropic Messages"


def models(port: int) -> dict[str, Model]:
    base = f"http://127.0.0.1:{port}"
    openai = EndpointSettings(name=MODE, endpoint=f"{base}/v1")
    anthropic = EndpointSettings(name=MODE, provider="anthropic", endpoint=base, api_key="none")
    return {CHAT: OpenAIChatModel(openai), RESPONSES: ResponsesModel(openai), MESSAGES: AnthropicModel(anthropic)}


async def measure(port: int, rounds: int, bursts: int) -> dict[str, list[float]]:
    async with AsyncExitStack() as stack:
        readers: dict[str, WholeAgent] = {}
        for name, model in models(port).items():
            agent = await stack.enter_async_context(AgentDefinition(name="bench", model=model, tools=Catalogue()))
            readers[name] = WholeAgent(agent)
        for reader in readers.values():
            await microseconds_per_token(reader.answered, 1)  # warm: connections, caches, lazy imports
        samples: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(rounds):
            for name, reader in readers.items():
                samples[name].append(await microseconds_per_token(reader.answered, bursts))
        return samples


def run(options: Options) -> list[Row]:
    before = os.sched_getaffinity(0)
    with fake_apis() as port, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        os.sched_setaffinity(0, cores()[1])
        try:
            samples = runner.run(measure(port, options.rounds + 2, 1 if options.quick else BURSTS))
        finally:
            os.sched_setaffinity(0, before)
    name = f"CPU per token by API, {STREAMS} x {TOKENS}"
    figures = [Row(measure=name, system=api, unit="µs", samples=each) for api, each in samples.items()]
    relative = [
        Row(
            measure="the same, relative",
            system=f"{api} / {CHAT}",
            unit="x",
            samples=ratios(samples[api], samples[CHAT]),
            target=Target(limit=1.5),
        )
        for api in (RESPONSES, MESSAGES)
    ]
    return [*figures, *relative]
