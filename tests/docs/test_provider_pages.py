"""Each provider has a page, and the file on it gets an answer from an endpoint that speaks the provider's own wire."""

import re
from typing import get_args

import pytest
import yaml

from docs import tables
from holodeck.config.build_model import build_model
from holodeck.config.load import config_of
from holodeck.core.messages import UserMessage
from holodeck.models.port import Prompt
from holodeck.models.providers import ProviderName
from tests.docs.snippets import ROOT, snippets
from tests.models.anthropic.message_streams import SHAPES as MESSAGES
from tests.models.bedrock.converse_streams import SHAPES as CONVERSE
from tests.models.endpoint import ModelEndpoint, Wire, stream, text_stream
from tests.models.openai_responses.response_streams import Shape, completed, message, text_events
from tests.models.recording_listener import RecordingListener

FOLDER = ROOT / "docs" / "models"
PAGES = sorted(FOLDER.glob("*.md"))
PATHS = {  # page → where its file's request goes
    "anthropic": "/v1/messages",
    "azure": "/openai/v1/chat/completions",
    "bedrock": "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream",
    "demo": None,
    "gateways": "/api/v1/chat/completions",
    "gemini": "/v1beta/openai/chat/completions",
    "local": "/v1/chat/completions",
    "openai": "/v1/responses",
    "vertex": "/v1/projects/my-project/locations/global/endpoints/openapi/chat/completions",
}
DEFAULTS = {"gemini": "/v1beta/openai", "openai": "/v1", "local": "/v1"}  # paths of endpoints that the files leave out
RESPONSES = [Shape([*text_events(0, "Hello world"), completed(message("Hello world"))]).body]


async def answer(wire: Wire) -> None:
    path = wire.request.path
    if path.endswith("/messages"):
        await stream(*MESSAGES["text"].frames)(wire)
    elif path.endswith("/converse-stream"):
        await stream(*CONVERSE["text"].frames, content_type="application/vnd.amazon.eventstream")(wire)
    elif path.endswith("/responses"):
        await stream(*RESPONSES)(wire)
    else:
        await text_stream("Hello", " world")(wire)


def test_there_is_a_page_for_every_provider():
    assert {page.stem for page in PAGES} == set(PATHS)
    assert {_model(page)["provider"] for page in PAGES} == set(get_args(ProviderName))


def test_the_index_leads_to_every_page():
    index = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(models/(\w+)\.md\)", index)) == {page.stem for page in PAGES}
    assert "providers" in tables.tables_in(ROOT / "docs" / "models.md")


def _model(page) -> dict[str, str]:
    text = next(each.text for each in snippets(page) if each.file == "agent.yaml")
    return yaml.safe_load(text)["model"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_the_file_of_a_page_gets_an_answer(page):
    model, path = _model(page), PATHS[page.stem]
    async with ModelEndpoint(answer) as endpoint:
        if path is not None:
            written = re.sub(r"^https?://[^/]+", "", model.get("endpoint", DEFAULTS.get(page.stem, "")))
            model |= {"endpoint": endpoint.url.removesuffix("/v1") + written, "api_key": "k"}
            model |= {"api": "responses"} if page.stem == "openai" else {}  # what `auto` means at OpenAI itself
        client = build_model(config_of({"name": "a", "model": model}, environment={}))
        reply = await client.reply(Prompt(messages=(UserMessage(content="Hi"),)), RecordingListener())
        await client.close()
    assert path is None or reply.text == "Hello world"
    assert reply.text
    assert [request.path for request in endpoint.requests] == ([] if path is None else [path])
