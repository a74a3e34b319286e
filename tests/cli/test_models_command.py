"""`holodeck models` and `/model`: what an endpoint offers, which of it is used, and what is reported when it has no list."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.chatting import chat
from tests.cli.fake_model import FakeModel
from tests.cli.process import Result, holodeck
from tests.models.endpoint import ModelEndpoint, Wire, status

LIST = {"object": "list", "data": [{"id": "tiny"}, {"id": "big", "context_length": 128_000}, {"object": "model"}]}


def write_agent(folder: Path, endpoint: str, name: str = "big", provider: str = "openai_compatible") -> None:
    model = f"{{provider: {provider}, name: {name}, endpoint: '{endpoint}', api_key: sk-secret}}"
    (folder / "agent.yaml").write_text(f"name: a\nmodel: {model}\n")


async def run_models(folder: Path, *arguments: str) -> Result:
    return await asyncio.to_thread(holodeck, "models", *arguments, folder=folder)


async def test_the_models_of_an_endpoint_with_the_configured_one_marked(tmp_path):
    async with ModelEndpoint(status(200, LIST)) as endpoint:
        write_agent(tmp_path, endpoint.url)
        result = await run_models(tmp_path)
    assert result == Result(0, "* big  128,000 tokens\n  tiny\n", "")
    (request,) = endpoint.requests
    assert (request.method, request.path) == ("GET", "/v1/models")
    assert request.headers["authorization"] == "Bearer sk-secret"


async def test_check_claims_only_that_the_endpoint_answers(tmp_path):
    async with ModelEndpoint(status(200, LIST)) as endpoint:
        write_agent(tmp_path, endpoint.url, "mistyped")
        result = await asyncio.to_thread(holodeck, "check", folder=tmp_path)
    assert "✓ the endpoint of openai_compatible/mistyped answers\n" in result.out


async def test_models_as_json(tmp_path):
    async with ModelEndpoint(status(200, LIST)) as endpoint:
        write_agent(tmp_path, endpoint.url)
        result = await run_models(tmp_path, "--json")
    assert [json.loads(line) for line in result.out.splitlines()] == [
        {"id": "big", "context_window": 128_000, "configured": True},
        {"id": "tiny", "context_window": None, "configured": False},
    ]


async def test_anthropics_list_has_pages(tmp_path):
    first = {"data": [{"type": "model", "id": "claude-b"}], "has_more": True, "last_id": "claude-b"}
    last = {"data": [{"type": "model", "id": "claude-a"}], "has_more": False, "last_id": "claude-a"}
    async with ModelEndpoint(status(200, first), status(200, last)) as endpoint:
        write_agent(tmp_path, endpoint.url.removesuffix("/v1"), "claude-a", "anthropic")
        result = await run_models(tmp_path)
    assert result == Result(0, "* claude-a\n  claude-b\n", "")
    assert [each.path for each in endpoint.requests] == ["/v1/models", "/v1/models?after_id=claude-b"]
    assert endpoint.requests[0].headers["x-api-key"] == "sk-secret"


async def test_a_list_whose_pages_never_end_is_cut(tmp_path):
    async with ModelEndpoint(status(200, {"data": [{"id": "big"}], "has_more": True, "last_id": "big"})) as endpoint:
        write_agent(tmp_path, endpoint.url)
        result = await run_models(tmp_path)
    assert result.out == "* big\n"
    assert len(endpoint.requests) == 20


@pytest.mark.parametrize(
    "body",
    [
        ["big"],
        {"data": [{"id": "models/big"}]},  # Gemini
        {"models": [{"name": "big"}]},
        {"data": [{"id": "b\x1b]0;evil\x07ig"}]},
    ],
)
async def test_other_forms_of_the_list(tmp_path, body):
    async with ModelEndpoint(status(200, body)) as endpoint:
        write_agent(tmp_path, endpoint.url)
        assert (await run_models(tmp_path)).out == "* big\n"


@pytest.mark.parametrize(("listed", "hint"), [(LIST, "; did you mean tiny?"), ({"data": None}, "")])
async def test_a_model_that_the_endpoint_does_not_list(tmp_path, listed, hint):
    async with ModelEndpoint(status(200, listed)) as endpoint:
        write_agent(tmp_path, endpoint.url, "tinny")
        result = await run_models(tmp_path)
    assert result.code == 0
    assert result.err == f"! the endpoint does not list openai_compatible/tinny{hint}\n"


FAILURES = {
    "no list": (status(404, {"error": "nothing here"}), "does not list its models (it answers 404)"),
    "a web page": (status(200, b"<html>", Content_Type="text/html"), "does not list its models (it answers 200)"),
    "a wrong key": (status(401, {"error": "sk-secret is wrong"}), "did not accept the API key. Check OPENAI_API_KEY"),
    "an overloaded endpoint": (status(529, {}), "is overloaded"),
    "no JSON": (status(200, b"hello"), "with something other than a list"),
    "a number": (status(200, {"data": 3}), "with something other than a list"),
}


@pytest.mark.parametrize(("respond", "text"), FAILURES.values(), ids=FAILURES)
async def test_a_failure_is_one_line(tmp_path, respond, text):
    async with ModelEndpoint(respond) as endpoint:
        write_agent(tmp_path, endpoint.url)
        result = await run_models(tmp_path)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert text in result.err
    assert len(result.err.splitlines()) == 1
    assert "sk-secret" not in result.err


def test_the_demo_model_has_no_list(tmp_path):
    result = holodeck("models", "--demo", folder=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: The demo model has no endpoint that could list others.")


class FakeModelWithList(FakeModel):
    async def _reply(self, wire: Wire) -> None:
        if wire.request.method == "GET":
            await status(200, {"data": [{"id": "m"}, {"id": "mega-9"}]})(wire)
        else:
            await super()._reply(wire)


@pytest.fixture
async def fake_model(tmp_path) -> AsyncIterator[FakeModel]:
    async with FakeModelWithList() as model:
        model.agent(tmp_path)
        yield model


async def test_the_chat_lists_completes_and_changes_models(tmp_path, fake_model):
    async with chat(tmp_path) as terminal:
        await terminal.prompt()
        terminal.enter("/model")
        await terminal.wait_for("* m\n  mega-9\n")
        terminal.type("/model me")
        await terminal.wait_for(lambda: terminal.text.count("mega-9") == 2)  # the menu below the line shows it
        terminal.type("\t")
        await terminal.wait_for("> /model mega-9")
        terminal.enter("")
        await terminal.wait_for("openai_compatible/mega-9")
        terminal.enter("/model")
        await terminal.wait_for("  m\n* mega-9\n")
        terminal.enter("/model megga-9")
        await terminal.wait_for("! the endpoint does not list megga-9; did you mean mega-9?")


async def test_the_demo_model_cannot_be_changed_by_name(tmp_path):
    async with chat(tmp_path, "--demo") as terminal:
        await terminal.prompt()
        terminal.enter("/model other")
        await terminal.wait_for("The demo model has no other models beside it")
