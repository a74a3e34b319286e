"""A Messages client in front of a test's endpoint: pauses are written down instead of slept."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holodeck.core.messages import UserMessage
from holodeck.core.tools import ToolSchema
from holodeck.errors import ModelError
from holodeck.models.anthropic.messages_model import AnthropicModel
from holodeck.models.endpoint_settings import Deadlines, EndpointSettings
from holodeck.models.port import ModelReply, Prompt
from tests.models.anthropic.message_streams import SHAPES
from tests.models.endpoint import ModelEndpoint, Respond, stream
from tests.models.recording_listener import RecordingListener

KEY = "sk-ant-planted-0123456789abcdef"
PROMPT = Prompt(system="Be brief.", messages=(UserMessage(content="Hi"),))
LOOK = ToolSchema(name="look", description="Looks.", parameters={"properties": {"a": {"type": "integer"}}})
WITH_TOOLS = Prompt(system="Be brief.", messages=PROMPT.messages, tools=(LOOK,))


def shaped(name: str) -> Respond:
    return stream(*SHAPES[name].frames)


OK = shaped("text")


class Asking(AnthropicModel):
    pauses: list[float]


@asynccontextmanager
async def asking(endpoint: ModelEndpoint, **settings: Any) -> AsyncIterator[Asking]:
    """`pauses` are the seconds it would have waited between attempts."""
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    defaults = {"name": "claude-test", "provider": "anthropic", "api_key": KEY, "cache": "off", "temperature": None}
    base = endpoint.url.removesuffix("/v1")
    model = Asking(
        EndpointSettings(**{**defaults, "endpoint": base, "deadlines": Deadlines(connect=2), **settings}),
        sleep=note,
        chance=lambda: 1.0,
    )
    model.pauses = pauses
    try:
        yield model
    finally:
        await model.close()


async def answers(*responses: Respond, prompt: Prompt = PROMPT, **settings: Any) -> tuple[ModelReply, ModelEndpoint]:
    async with ModelEndpoint(*responses) as endpoint, asking(endpoint, **settings) as model:
        return await model.reply(prompt, RecordingListener()), endpoint


async def fails(error: type[ModelError], *responses: Respond, prompt: Prompt = PROMPT, **settings: Any):
    """Asks once and expects the error; gives it back with what was seen on the way."""
    listener = RecordingListener()
    async with ModelEndpoint(*responses) as endpoint, asking(endpoint, **settings) as model:
        with pytest.raises(error) as caught:
            await model.reply(prompt, listener)
        assert type(caught.value) is error
        assert KEY not in str(caught.value)
    return caught.value, endpoint, model.pauses
