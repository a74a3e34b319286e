"""Spans by the GenAI conventions, seen by a real receiver of OTLP (CHT-11)."""

import json

import pytest
from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import GenAiProviderNameValues

from holodeck.config.agent_schema import ObservabilitySettings
from holodeck.config.load import load_config
from holodeck.core import events as e
from holodeck.core.messages import UserMessage
from holodeck.core.request import RunRequest
from holodeck.core.usage import TokenUsage
from holodeck.runs.log import RunLog
from holodeck.server.options import ServerSettings
from holodeck.server.process import build_server, tracing
from holodeck.telemetry import otlp
from holodeck.telemetry.otel import PROVIDER_NAMES
from tests.cli.process import holodeck
from tests.telemetry.collector import collecting

USAGE = TokenUsage(prompt_tokens=12, completion_tokens=5)
EVENTS = [
    e.RunStarted("r", "s", None, "gemini/flash-2"),
    e.StepStarted(1),
    e.TextStarted("m"),
    e.TextAdded("m", "Let me "),
    e.TextAdded("m", "look."),
    e.TextEnded("m"),
    e.ToolCallStarted("c1", "look", "m"),
    e.ToolCallEnded("c1", "look", '{"what": "secret"}'),
    e.ToolCallStarted("c2", "find", "m"),
    e.ToolCallEnded("c2", "find", "{}"),
    e.ToolFinished("c2", "find", "t2", "not there", failed=True, seconds=0.1),
    e.ToolFinished("c1", "look", "t1", "found it", seconds=0.2),
    e.StepFinished(1, USAGE),
    e.RunFinished("r", "s", usage=USAGE, iterations=1),
]


@pytest.fixture
def collector():
    with collecting() as receiver:
        yield receiver


def export(collector, events, **environment: str) -> None:
    wanted = ObservabilitySettings(service_name="svc", otlp_endpoint=collector.url)
    exporting = otlp.Exporting(wanted, agent="helper", environment=environment)
    run_log = RunLog()
    run_log.observers = [exporting.tracing.run(run_id="r", session_id="s", kept=lambda: run_log.kept)]
    for event in events:
        run_log.append(event)
    assert exporting.close() == 0


def test_the_conventions_know_every_name_of_a_provider_that_differs_from_ours():
    known = {value.value for value in GenAiProviderNameValues}
    assert set(PROVIDER_NAMES.values()) <= known
    assert {"openai", "anthropic"} <= known  # these are the same
    assert not PROVIDER_NAMES.keys() & known


@pytest.mark.req("CHT-11")
def test_a_run_is_a_tree_of_spans(collector):
    export(collector, EVENTS)
    assert collector.paths == {"/v1/traces"}
    assert collector.services == {"svc"}
    run = collector.named("invoke_agent helper")
    assert collector.below(run) == ["chat flash-2", "execute_tool look", "execute_tool find"]
    model, look, find = (collector.named(name) for name in collector.below(run))
    assert run.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "helper",
        "gen_ai.conversation.id": "s",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "flash-2",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.response.finish_reasons": ["stop"],
        "holodeck.run.id": "r",
        "holodeck.run.outcome": "completed",
    }
    assert model.attributes["gen_ai.operation.name"] == "chat"
    assert model.attributes["gen_ai.usage.output_tokens"] == 5
    assert model.kind == 3  # CLIENT
    assert look.attributes["gen_ai.tool.name"] == "look"
    assert look.attributes["gen_ai.tool.call.id"] == "c1"
    assert (look.failed, find.failed, find.attributes["error.type"]) == (False, True, "tool-failed")
    assert run.start <= model.start <= model.end <= look.end <= run.end


@pytest.mark.req("CHT-11")
@pytest.mark.parametrize("asked", [False, True])
def test_contents_are_in_spans_only_when_asked_for(collector, asked):
    variables = {otlp.CONTENT_VARIABLE: "true"} if asked else {}
    export(collector, EVENTS, **variables)
    everything = json.dumps([span.attributes for span in collector.spans])
    for words in ("secret", "found it", "Let me look."):
        assert (words in everything) is asked


def test_a_failure_marks_the_run_and_what_waits_is_closed(collector):
    export(
        collector,
        [*EVENTS[:8], e.StepFinished(1), e.RunFailed("r", "s", "model-error", "No.", reason="upstream_error")],
    )
    run = collector.named("invoke_agent helper")
    assert run.failed
    assert run.attributes["error.type"] == "upstream_error"
    assert collector.named("execute_tool look").attributes["holodeck.tool.waits"] is True


def test_a_result_of_the_run_before_has_its_span(collector):
    export(collector, [EVENTS[0], e.ToolFinished("c0", "wipe", "t", "gone", seconds=2.0), EVENTS[-1]])
    span = collector.named("execute_tool wipe")
    assert span.end - span.start == pytest.approx(2e9, rel=0.1)


@pytest.mark.req("CHT-11")
def test_a_chat_is_one_trace(tmp_path, collector):
    result = holodeck(
        "chat",
        "--demo",
        "--observability",
        "--lines",
        folder=tmp_path,
        stdin="add buy milk\nhello\n",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
    )
    assert (result.code, result.err) == (0, "")
    assert collector.below(None) == ["chat_session"]
    assert collector.below(collector.named("chat_session")) == ["invoke_agent todo-assistant"] * 2
    first, second = sorted((s for s in collector.spans if s.name.startswith("invoke")), key=lambda each: each.start)
    assert collector.below(first) == ["chat demo", "execute_tool create_todo", "chat demo"]
    assert collector.below(second) == ["chat demo"]
    assert "milk" not in json.dumps([span.attributes for span in collector.spans])


@pytest.mark.req("CHT-11")
def test_the_reply_of_each_model_call_is_in_its_own_span(tmp_path, collector):
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, otlp.CONTENT_VARIABLE: "true"}
    result = holodeck("chat", "--demo", "--observability", "--lines", folder=tmp_path, stdin="add milk\n", **variables)
    assert (result.code, result.err) == (0, "")
    calls = sorted((span for span in collector.spans if span.name == "chat demo"), key=lambda each: each.start)
    texts = [each.attributes.get("gen_ai.output.messages", "") for each in calls]
    assert ["Added **Milk**." in text for text in texts] == [False, True], texts


def test_a_collector_that_is_not_there_is_one_line_at_the_end(tmp_path):
    (tmp_path / "agent.yaml").write_text(
        "name: a\nmodel: {provider: demo}\nobservability: {enabled: true, otlp_endpoint: 'http://127.0.0.1:9'}\n"
    )
    result = holodeck("chat", folder=tmp_path, stdin="hello\n")
    assert result.code == 0
    assert "not a language model" in result.out
    assert result.err == "! 3 spans could not be sent to http://127.0.0.1:9/v1/traces\n"


@pytest.mark.parametrize(
    ("endpoint", "environment", "url"),
    [
        (None, {}, "http://localhost:4318/v1/traces"),
        ("http://localhost:4317", {}, "http://localhost:4318/v1/traces"),
        ("http://collector:4318/", {}, "http://collector:4318/v1/traces"),
        ("https://x.example/otlp", {}, "https://x.example/otlp/v1/traces"),
        ("https://x.example/v1/traces", {}, "https://x.example/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://env:1"}, "http://env:1/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://env:1/here"}, "http://env:1/here"),
        ("http://file:2", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://env:1"}, "http://file:2/v1/traces"),
    ],
)
def test_where_spans_go(endpoint, environment, url):
    assert otlp.traces_url(endpoint, environment) == url


@pytest.mark.req("CHT-11")
async def test_the_server_sends_the_same_spans(collector, tmp_path):
    file = tmp_path / "agent.yaml"
    observed = f"observability: {{enabled: true, otlp_endpoint: '{collector.url}', user_ids: true}}"
    file.write_text(f"name: helper\nmodel: {{provider: demo}}\n{observed}\n")
    config = load_config(file, environment={otlp.CONTENT_VARIABLE: "true"})
    with tracing(config) as trace:
        server = build_server(config, ServerSettings(), trace=trace)
        await server.start()
        run = await server.runs.start(RunRequest(session_id="s", messages=(UserMessage(content="hi"),)))
        await run.done()
        await server.close()
    assert collector.below(collector.named("invoke_agent helper")) == ["chat demo"]
    assert collector.named("invoke_agent helper").attributes["enduser.id"] == "anonymous"
    assert "not a language model" in collector.named("chat demo").attributes["gen_ai.output.messages"]
