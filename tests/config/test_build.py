"""A file becomes the pieces that it describes."""

import json
import sys
from dataclasses import replace

import pytest

from holodeck.config.build import (
    build_agent,
    build_instructions,
    build_middleware,
    build_run_settings,
    build_tools,
    mcp_settings,
)
from holodeck.config.build_model import build_model
from holodeck.config.build_stores import build_memory, build_stores
from holodeck.config.load import LoadedConfig, load_config
from holodeck.core import events as e
from holodeck.core.messages import UserMessage
from holodeck.core.tools import Approval
from holodeck.errors import ConfigError, ModelAuthFailed
from holodeck.models.port import Prompt
from holodeck.runs.memory_runs import MemoryRunStore
from holodeck.runs.run_settings import RunSettings, WhenBusy
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.tools.port import ToolContext
from tests.models.anthropic.message_streams import Shape, end, start, text_block
from tests.models.endpoint import ModelEndpoint, status, stream, text_stream
from tests.models.recording_listener import RecordingListener
from tests.tools.mcp.rogue_client import ROGUE

START = "name: helper\ndescription: Helps.\n"
DEMO = START + "model: {provider: demo}\n"


@pytest.fixture
def loaded(tmp_path):
    def load(text: str, **environment: str) -> LoadedConfig:
        (tmp_path / "agent.yaml").write_text(text)
        return load_config(tmp_path / "agent.yaml", environment=environment)

    return load


async def test_each_model_has_its_own_price(loaded):
    usage = {"prompt_tokens": 1000, "completion_tokens": 0}
    async with ModelEndpoint(text_stream("Yes.", usage=usage)) as there:
        gone, cheap = "http://127.0.0.1:9/v1", f"endpoint: '{there.url}', price: {{input: 2, output: 3}}"
        model = build_model(
            loaded(
                f"{START}model: {{provider: openai_compatible, name: a, endpoint: '{gone}', price: {{input: 9, output: 9}}, "
                f"fallback: [{{provider: openai_compatible, name: b, {cheap}}}]}}\n"
            )
        )
        reply = await model.reply(Prompt(), RecordingListener())
        await model.close()
    assert reply.usage is not None
    assert reply.usage.cost == pytest.approx(0.002)


@pytest.mark.req("AGT-02")
@pytest.mark.parametrize(
    ("model", "environment", "name"),
    [
        ("{provider: demo}", {}, "demo"),
        ("{provider: gemini, name: gemini-2.5-flash}", {"GEMINI_API_KEY": "k"}, "gemini/gemini-2.5-flash"),
        ("{provider: openai, name: x, api_key: k}", {}, "openai/x"),
        ("{provider: anthropic, name: claude-x}", {"ANTHROPIC_API_KEY": "k"}, "anthropic/claude-x"),
        ("{provider: anthropic, name: claude-x}", {"ANTHROPIC_AUTH_TOKEN": "t"}, "anthropic/claude-x"),
        ("{provider: anthropic, name: claude-x, endpoint: 'http://127.0.0.1:1'}", {}, "anthropic/claude-x"),
        ("{provider: openai, name: x, api_key: '${MY}'}", {"MY": "k"}, "openai/x"),
        ("{provider: openai_compatible, name: x, endpoint: 'http://127.0.0.1:1/v1'}", {}, "openai_compatible/x"),
        ("{provider: ollama, name: x}", {}, "ollama/x"),
        ("{provider: openai, name: x, fallback: [{provider: demo}]}", {"OPENAI_API_KEY": "k"}, "openai/x"),
    ],
)
async def test_every_provider_gives_a_model(loaded, model, environment, name):
    built = build_model(loaded(f"{START}model: {model}\n", **environment))
    assert built.name == name
    await built.close()


@pytest.mark.parametrize("provider", ["openai_compatible", "anthropic"])
async def test_an_empty_key_is_no_key_and_sends_no_other_one(loaded, provider):
    """A key that is not set for a gateway must not send the key of another service there."""
    refusal = status(401, b"{}")
    others = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "another-services-key")
    async with ModelEndpoint(refusal) as there:
        file = f"{START}model: {{provider: {provider}, name: x, endpoint: '{there.url}', api_key: '${{GATEWAY:-}}'}}\n"
        model = build_model(loaded(file, **others))
        with pytest.raises(ModelAuthFailed, match=r"Set the variable that model\.api_key names"):
            await model.reply(Prompt(messages=(UserMessage(content="Hi"),)), RecordingListener())
        await model.close()
    assert "another-services-key" not in repr([request.headers for request in there.requests])
    with pytest.raises(ConfigError, match="api_key: is empty; set the variable that it names"):
        build_model(loaded(f"{START}model: {{provider: openai, name: x, api_key: '${{GATEWAY:-}}'}}\n", **others))


ANTHROPIC = """
name: helper
model:
  provider: anthropic
  name: claude-x
  endpoint: {endpoint}
  headers: {{X-Team: blue}}
  betas: [context-1m-2025-08-07]
  reasoning: {{budget_tokens: 2048}}
  max_tokens: 8000
  cache: {cache}
  provider_tools: [{{type: web_search_20250305, name: web_search, max_uses: 3}}]
  extra: {{metadata: {{user_id: u}}}}
  price: {{input: 3, output: 15, cached: 0.3, cache_write: 3.75}}
"""


@pytest.mark.parametrize(("written", "sent"), [("", 1.0), (", temperature: 0.5", 0.5), (", temperature: null", None)])
async def test_a_temperature_of_null_is_not_sent(loaded, written, sent):
    async with ModelEndpoint(text_stream("Yes.")) as there:
        file = f"name: a\nmodel: {{provider: openai_compatible, name: m, endpoint: '{there.url}'{written}}}\n"
        model = build_model(loaded(file))
        await model.reply(Prompt(messages=(UserMessage(content="Hi"),)), RecordingListener())
        await model.close()
    assert there.requests[0].json.get("temperature") == sent


@pytest.mark.parametrize(("cache", "mark"), [("auto", {"type": "ephemeral"}), ("off", None)])
async def test_anthropic_from_its_file(loaded, cache, mark):
    used = start(input_tokens=10, cache_read_input_tokens=100, cache_creation_input_tokens=1000)
    async with ModelEndpoint(stream(*Shape([used, *text_block(0, "Hi."), *end()]).frames)) as there:
        file = ANTHROPIC.format(endpoint=there.url.removesuffix("/v1"), cache=cache)
        model = build_model(loaded(file, ANTHROPIC_AUTH_TOKEN="token"))
        reply = await model.reply(
            Prompt(system="Be brief.", messages=(UserMessage(content="Hi"),)), RecordingListener()
        )
        await model.close()
    (request,) = there.requests
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer token", "blue")
    assert request.headers["anthropic-beta"] == "context-1m-2025-08-07"
    system = {"type": "text", "text": "Be brief."} | ({} if mark is None else {"cache_control": mark})
    assert request.json["system"] == [system]
    assert request.json["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert request.json["tools"][0]["max_uses"] == 3
    assert (request.json["max_tokens"], request.json["metadata"]) == (8000, {"user_id": "u"})
    assert "temperature" not in request.json
    assert reply.usage is not None
    assert reply.usage.cost == pytest.approx((10 * 3 + 100 * 0.3 + 1000 * 3.75 + 7 * 15) / 1_000_000)


def test_anthropic_without_a_key_says_which_variable_to_set(loaded):
    with pytest.raises(ConfigError, match=r"3:1: model\.api_key: set ANTHROPIC_API_KEY in the environment"):
        build_agent(loaded(START + "model: {provider: anthropic, name: x}\n"))


@pytest.mark.req("AGT-02")
@pytest.mark.parametrize("environment", [{}, {"GEMINI_API_KEY": ""}])
def test_a_missing_key_says_which_variable_to_set(loaded, environment):
    with pytest.raises(ConfigError, match=r"3:1: model\.api_key: set GEMINI_API_KEY in the environment or in \.env"):
        build_agent(loaded(START + "model: {provider: gemini, name: x}\n", **environment))


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("provider: ollama, endpoint: 'http://127.0.0.1:1'", "http://127.0.0.1:1/v1/chat/completions"),
        ("provider: ollama, endpoint: 'http://127.0.0.1:1/v1/'", "http://127.0.0.1:1/v1/chat/completions"),
        (
            "provider: azure_openai, api: chat, api_key: k, api_version: 2024-10-21, endpoint: 'https://r.openai.azure.com/'",
            "https://r.openai.azure.com/openai/deployments/x/chat/completions?api-version=2024-10-21",
        ),
        (
            "provider: azure_openai, api: chat, api_key: k, endpoint: 'https://r.openai.azure.com'",
            "https://r.openai.azure.com/openai/v1/chat/completions",
        ),
        (
            "provider: azure_openai, api: responses, api_key: k, endpoint: 'https://r.openai.azure.com'",
            "https://r.openai.azure.com/openai/v1/responses",
        ),
        (
            "provider: azure_openai, api: responses, api_key: k, api_version: 2025-04-01, endpoint: 'https://r.example'",
            "https://r.example/openai/responses?api-version=2025-04-01",
        ),
        ("provider: openai, api: responses, api_key: k", "https://api.openai.com/v1/responses"),
        ("provider: openai, api_key: k, provider_tools: [{type: web_search}]", "https://api.openai.com/v1/responses"),
    ],
)
def test_short_forms_of_an_endpoint(loaded, endpoint, url):
    assert build_model(loaded(f"{START}model: {{name: x, {endpoint}}}\n"))._url == url


@pytest.mark.req("AGT-03", "T03")
@pytest.mark.parametrize(
    ("instructions", "part"),
    [
        ("", "You are helper, a helpful assistant. Helps."),
        ("instructions: Serve {user_id}.", "Serve u1."),
        ("instructions: {inline: 'Serve {user_id} in {timezone}.'}", "Serve u1 in Europe/Berlin."),
        ("instructions: {role_definition: Count.}", "Count."),
        ("instructions: '{{7*7}} {__class__} %s'", "{{7*7}} {__class__} %s"),
    ],
)
def test_instructions_in_every_form(loaded, instructions, part):
    built = build_instructions(loaded(DEMO + instructions + "\n"))
    assert part in built.render(user_id="u1", timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "p.md is empty"),
        (b"---\na: 1\n---\n", "p.md is empty"),
        (b"\xff", "p.md is not UTF-8"),
        (b"x" * 300_000, "longer than 256 kB"),
    ],
)
def test_an_instructions_file_that_is_no_instructions(loaded, tmp_path, content, message):
    (tmp_path / "p.md").write_bytes(content)
    with pytest.raises(ConfigError, match=r"4:22: instructions\.file: ") as caught:
        build_instructions(loaded(DEMO + "instructions: {file: p.md}\n"))
    assert message in str(caught.value)


@pytest.mark.req("AGT-07")
async def test_a_function_tool_with_everything(loaded, tmp_path):
    (tmp_path / "t.py").write_text('def f(user_id: str, n: int) -> str:\n    """Doc."""\n    return f"{user_id} {n}"\n')
    text = (
        DEMO
        + "tools: [{name: g, type: function, file: t.py, function: f, approval: always, bind: {user_id: '{user_id}'}}]\n"
    )
    tools = build_tools(loaded(text))
    await tools.start()
    (schema,) = tools.schemas()
    assert (schema.name, schema.description, schema.approval) == ("g", "Doc.", Approval.ALWAYS)
    assert list(schema.parameters["properties"]) == ["n"]
    result = await tools.call("g", {"n": 2, "user_id": "other"}, ToolContext(user_id="me"))
    assert result.text == "me 2"
    await tools.close()


@pytest.mark.parametrize(
    ("block", "of_tool", "seconds"), [("", "", 60), ("mcp: {start_timeout: 5}\n", "", 5), ("", ", start_timeout: 7", 7)]
)
def test_servers_have_a_minute_to_start_or_what_the_file_says(loaded, block, of_tool, seconds):
    config = loaded(DEMO + block + f"tools: [{{name: t, type: mcp, command: npx{of_tool}}}]\n")
    assert mcp_settings(config, config.agent.tools[0]).start_timeout == seconds


def test_sessions_and_runs_follow_the_file(loaded):
    config = loaded(
        DEMO + "sessions: {busy: reject, ttl_seconds: 60}\nserver: {runs: {detach_grace: 1, replay_window: 2}}\n"
    )
    assert build_run_settings(config) == RunSettings(detach_grace=1, replay_window=2, when_busy=WhenBusy.REJECT)
    assert build_memory(config)._ttl == 60
    assert build_stores(config).sessions._ttl == 60


def test_a_server_keeps_its_sessions_in_a_file_beside_the_agent_unless_it_says_otherwise(loaded, tmp_path):
    config = loaded(DEMO)
    stores = build_stores(config)
    assert stores.sessions.file.path == config.folder / ".holodeck" / "sessions.db"
    assert (stores.sessions._ttl, type(stores.runs)) == (30 * 24 * 3600, SqliteRunStore)
    named = replace(config, environment={"HOLODECK_SESSIONS_PATH": str(tmp_path / "data.db")})
    assert build_stores(named).sessions.file.path == tmp_path / "data.db"
    elsewhere = loaded(DEMO + f"sessions: {{path: {tmp_path}/mine.db}}\n")
    assert build_stores(elsewhere).sessions.file.path == tmp_path / "mine.db"
    memory = build_stores(loaded(DEMO + "sessions: {store: memory}\n"))
    assert (type(memory.sessions).__name__, memory.sessions._ttl) == ("MemorySessionStore", 1800)
    assert isinstance(memory.runs, MemoryRunStore)


def test_the_defaults_of_runs_are_those_of_the_code(loaded):
    assert build_run_settings(loaded(DEMO)) == RunSettings()


@pytest.mark.req("SRV-21")
def test_middleware_in_the_order_of_the_file(loaded, tmp_path):
    (tmp_path / "m.py").write_text(
        "from holodeck.core.events import TextAdded\n\n\n"
        "def shout(event):\n"
        "    return TextAdded(event.message_id, event.delta.upper()) if isinstance(event, TextAdded) else event\n"
    )
    middleware = build_middleware(
        loaded(
            DEMO
            + "middleware:\n  - {type: filter, hide: [reasoning], tools: [secret]}\n  - {file: m.py, function: shout}\n"
            + "  - {type: throttle, max_chars: 100}\n  - {type: log}\n  - {type: annotate, metadata: {a: 1}, on: [custom]}\n"
        )
    )
    assert middleware is not None
    stream = [
        e.ReasoningStarted("r"),
        e.ReasoningAdded("r", "hm"),
        e.ReasoningEnded("r"),
        e.ToolCallStarted("c", "secret", "m"),
        e.ToolCallEnded("c", "secret", "{}"),
        e.TextStarted("m"),
        e.TextAdded("m", "he"),
        e.TextAdded("m", "y"),
        e.TextEnded("m"),
    ]
    assert [event for _, event in middleware()(list(enumerate(stream)))] == [
        e.TextStarted("m"),
        e.TextAdded("m", "HEY"),
        e.TextEnded("m"),
    ]


def test_no_middleware_is_no_chain_and_a_wrong_function_is_named(loaded):
    assert build_middleware(loaded(DEMO)) is None
    with pytest.raises(ConfigError, match=r"4:14: middleware\[0\]: m\.py: there is no such file"):
        build_middleware(loaded(DEMO + "middleware: [{file: m.py, function: f}]\n"))


@pytest.mark.parametrize(
    ("model", "more", "shown"),
    [
        ("{provider: demo}", "", None),
        ("{provider: ollama, name: llama3.2}", "", None),
        ("{provider: ollama, name: llama3.2, context_window: 8192}", "", 4608),
        ("{provider: anthropic, name: claude-sonnet-4-5, api_key: k}", "", 138_000),
        ("{provider: anthropic, name: claude-sonnet-4-5, api_key: k, context_window: 1000000}", "", 738_000),
        ("{provider: openai, name: gpt-4o, api_key: k}", "sessions: {history: {max_tokens: 5000}}\n", 5000),
    ],
)
def test_a_conversation_is_shown_as_far_as_the_models_window_has_room(tmp_path, model, more, shown):
    file = tmp_path / "agent.yaml"
    file.write_text(f"name: a\nmodel: {model}\n{more}")
    assert build_agent(load_config(file, environment={})).max_tokens == shown


@pytest.mark.parametrize(
    ("given", "marked"),
    [
        ("", {"cwd", "pid"}),
        ("repeatable: false", set()),
        ("repeatable: true", {"cwd", "pid", "environment", "meta", "echo"}),
        ("repeatable: [ech*]", {"cwd", "pid", "echo"}),
    ],
)
async def test_a_server_says_which_of_its_tools_are_repeatable_and_the_file_has_the_last_word(
    loaded, tmp_path, given, marked
):
    """A hint of the wrong type is none."""
    (tmp_path / "journal").touch()
    arguments = json.dumps(["-I", "-S", str(ROGUE), str(tmp_path / "journal")])
    tools = build_tools(
        loaded(
            f"{DEMO}tools: [{{name: rogue, type: mcp, command: {sys.executable}, args: {arguments}, "
            f"include: [cwd, pid, environment, meta, echo], {given}}}]\n"
        )
    )
    try:
        await tools.start()
        assert {schema.name for schema in tools.schemas() if schema.repeatable} == marked
    finally:
        await tools.close()
