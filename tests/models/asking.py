"""A model client in front of a test's endpoint: pauses are written down instead of slept."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holodeck.core.messages import UserMessage
from holodeck.errors import ModelError
from holodeck.models.chat_completions_model import OpenAIChatModel
from holodeck.models.endpoint_settings import Deadlines, EndpointSettings
from holodeck.models.port import Prompt
from tests.models.endpoint import ModelEndpoint, chunk, frame, text_stream
from tests.models.recording_listener import RecordingListener

PROMPT = Prompt(system="Be brief.", messages=(UserMessage(content="Hi"),))
SHORT = Deadlines(connect=2, first_token=0.2, idle=0.2, total=5)
KEY = "sk-planted-0123456789abcdef"
HI = frame(chunk({"content": "Hi"}))
OK = text_stream("Hello", " world", usage={"prompt_tokens": 3, "completion_tokens": 2})


class Asking(OpenAIChatModel):
    pauses: list[float]


@asynccontextmanager
async def asking(url: str, **settings: Any) -> AsyncIterator[Asking]:
    """`pauses` are the seconds it would have waited between attempts."""
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    model = Asking(
        EndpointSettings(
            **{"name": "m", "endpoint": url, "api_key": KEY, "deadlines": Deadlines(connect=2), **settings}
        ),
        sleep=note,
        chance=lambda: 1.0,
    )
    model.pauses = pauses
    try:
        yield model
    finally:
        await model.close()


async def fails(error: type[ModelError], *responses, **settings):
    """Asks once and expects the error; gives it back with what was seen on the way."""
    listener = RecordingListener()
    async with ModelEndpoint(*responses) as endpoint, asking(endpoint.url, **settings) as model:
        with pytest.raises(error) as caught:
            await model.reply(PROMPT, listener)
        assert type(caught.value) is error
        assert caught.value.started == any(piece[0] != "warning" for piece in listener.recorded)
        assert KEY not in str(caught.value)
    return caught.value, listener, endpoint, model


async def succeeds(*responses, **settings):
    listener = RecordingListener()
    async with ModelEndpoint(*responses) as endpoint, asking(endpoint.url, **settings) as model:
        reply = await model.reply(PROMPT, listener)
    return reply, listener, endpoint, model


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
