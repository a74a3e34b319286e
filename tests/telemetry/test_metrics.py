"""The figures: what a run adds to them, and the page that shows them."""

import re

import pytest

from holodeck.core import events as e
from holodeck.core.usage import TokenUsage
from holodeck.telemetry import exposition, metrics
from holodeck.telemetry.exposition import gauge, page
from holodeck.telemetry.metrics import MAX_MODELS, MAX_SERIES, MAX_TOOLS, Counter, Histogram, Metrics

_SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\})? (?P<value>[0-9.e+-]+)'
)


def samples(body: bytes) -> dict[str, float]:
    """A page as {'name{labels}': value}; fails on a line that is not in the format, or a sample before its TYPE."""
    found, typed = {}, set()
    for line in body.decode().removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            assert line.split()[2] not in typed
            typed.add(line.split()[2])
        elif not line.startswith("# HELP "):
            sample = _SAMPLE.fullmatch(line)
            assert sample, line
            assert {sample["name"], re.sub("_(bucket|sum|count)$", "", sample["name"])} & typed, line
            key, value = line.rsplit(" ", 1)
            assert key not in found
            found[key] = float(value)
    return found


class TimedEvents:
    """A run whose events come at the times that the test says."""

    def __init__(self, monkeypatch, figures):
        self.now, self.count = 100.0, 0
        monkeypatch.setattr(metrics.time, "monotonic", lambda: self.now)
        self.emit = figures.run(self)

    def __len__(self):
        return self.count

    def __call__(self, event, at=None):
        self.now = 100.0 + at if at is not None else self.now
        self.count += 1
        if not isinstance(event, e.TextAdded):  # deltas have no watchers
            self.emit(event)


@pytest.mark.req("ORC-11")
def test_a_run_is_counted_by_its_rare_events(monkeypatch):
    figures = Metrics()
    figures.offered_tools = lambda: ["list"]
    emit = TimedEvents(monkeypatch, figures)
    emit(e.RunStarted("r", "s", model="a/first"), at=0)
    emit(e.StepStarted(1))
    emit(e.TextStarted("m"), at=0.4)
    for n in range(11):
        emit(e.TextAdded("m", "x"), at=0.4 + n * 0.02)
    emit(e.TextEnded("m"), at=0.6)
    emit(e.ToolFinished("c", "list", "t", "result", seconds=0.25))
    emit(e.ToolFinished("d", "list", "t", "result", failed=True))
    emit(e.ToolFinished("d", "made up", "t", "There is no such tool.", failed=True))
    usage = TokenUsage(prompt_tokens=3, completion_tokens=4, cached_tokens=2, cost=0.5)
    emit(e.StepFinished(1, usage, model="b/second"))
    emit(e.TextStarted("n"), at=5)
    emit(e.TextAdded("n", "one piece has no gap"))
    emit(e.TextEnded("n"))
    emit(e.StepFinished(2))
    emit(e.RunFinished("r", "s"), at=7)
    shown = samples(page(figures.figures()))
    assert shown["holodeck_time_to_first_token_seconds_count"] == 1
    assert shown["holodeck_time_to_first_token_seconds_sum"] == pytest.approx(0.4)
    assert shown["holodeck_inter_token_seconds_count"] == 10
    assert shown["holodeck_inter_token_seconds_sum"] == pytest.approx(0.2)
    assert shown['holodeck_inter_token_seconds_bucket{le="0.01"}'] == 0
    assert shown['holodeck_inter_token_seconds_bucket{le="0.03"}'] == 10
    assert shown['holodeck_tool_calls_total{tool="list",status="success"}'] == 1
    assert shown['holodeck_tool_calls_total{tool="list",status="failed"}'] == 1
    assert shown['holodeck_tool_calls_total{tool="other",status="failed"}'] == 1
    assert shown['holodeck_tool_call_seconds_sum{tool="list"}'] == 0.25
    assert {name: value for name, value in shown.items() if name.startswith("holodeck_tokens_total")} == {
        'holodeck_tokens_total{kind="input",model="b/second"}': 3,
        'holodeck_tokens_total{kind="output",model="b/second"}': 4,
        'holodeck_tokens_total{kind="cached",model="b/second"}': 2,
    }
    assert shown['holodeck_model_calls_total{model="b/second"}'] == 1
    assert shown['holodeck_model_calls_total{model="a/first"}'] == 1
    assert shown['holodeck_cost_total{model="b/second"}'] == 0.5
    assert shown['holodeck_runs_total{outcome="completed",code="none"}'] == 1
    assert shown["holodeck_run_seconds_sum"] == 7


def test_models_cannot_fill_the_page():
    figures = Metrics()
    labels = {figures.model_label(f"m{number}") for number in range(1000)}
    assert len(labels) == MAX_MODELS + 1
    assert "other" in labels
    assert figures.model_label("m0") == "m0"


def test_a_failure_is_counted_by_its_code(monkeypatch):
    figures = Metrics()
    TimedEvents(monkeypatch, figures)(e.RunFailed("r", "s", code="model-error", message="It failed."))
    assert samples(page(figures.figures()))['holodeck_runs_total{outcome="failed",code="model-error"}'] == 1


@pytest.mark.req("T18")
def test_tools_and_labels_are_bounded():
    figures = Metrics()
    figures.offered_tools = lambda: (f"tool{n}" for n in range(1000))
    labels = {figures.tool_label(f"tool{n}") for n in range(1000)}
    assert len(labels) == MAX_TOOLS + 1
    counter = Counter("c", "A counter", ("label",))
    histogram = Histogram("h", "A histogram", (1,), ("label",))
    for n in range(MAX_SERIES * 3):
        counter.add(f"value{n}")
        histogram.observe(0, f"value{n}")
    shown = samples(page([counter.series(), histogram.series()]))
    assert shown['c{label="other"}'] == MAX_SERIES * 2
    assert shown['h_count{label="other"}'] == MAX_SERIES * 2
    assert len([key for key in shown if key.startswith("c{")]) == MAX_SERIES + 1


def test_a_tool_that_comes_later_gets_its_label():
    figures, offered = Metrics(), ["first"]
    figures.offered_tools = lambda: offered
    assert [figures.tool_label("first"), figures.tool_label("second")] == ["first", "other"]
    offered[:] = ["second"]  # and the first is withdrawn, because its breaker is open
    assert [figures.tool_label("first"), figures.tool_label("second")] == ["first", "second"]


def test_a_histogram_counts_what_is_at_most_so_large():
    histogram = Histogram("h", "Seconds", (0.1, 1))
    for value in (0.1, 0.5, 1, 2):
        histogram.observe(value)
    assert samples(page([histogram.series()])) == {
        'h_bucket{le="0.1"}': 1, 'h_bucket{le="1"}': 3, 'h_bucket{le="+Inf"}': 4, "h_sum": 3.6, "h_count": 4,
    }  # fmt: skip


@pytest.mark.parametrize("hostile", ['"} 1\nforged 2', "\\", "\n", "a\\n", "\ud800", "\x00", "é", "}"])
def test_no_label_breaks_the_page(hostile):
    counter = Counter("c", "A counter", ("label",))
    counter.add(hostile)
    assert list(samples(page([counter.series(), gauge("g", "A gauge", 1.5)])).values()) == [1, 1.5]


def test_an_answer_is_counted_by_its_route():
    figures = Metrics()
    figures.answered("GET", "/runs/{run_id:path}", 200, 0.1)
    figures.answered("BREW", None, None, 0.1)
    shown = samples(page(figures.figures()))
    assert shown['holodeck_http_requests_total{method="GET",route="/runs/{run_id:path}",status="200"}'] == 1
    assert shown['holodeck_http_requests_total{method="other",route="none",status="none"}'] == 1


def test_the_content_type_is_the_one_that_scrapers_ask_for():
    assert exposition.CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.req("T28")
def test_only_named_tenants_have_figures_of_their_own():
    figures = Metrics(["acme", "beta"])
    usage = TokenUsage(prompt_tokens=3, completion_tokens=4, cost=0.5)
    for tenant in ("acme", "beta", *(f"tenant {n}" for n in range(500))):
        run = figures.run([], tenant)
        run(e.StepFinished(1, usage))
        run(e.RunFinished("r", "s"))
    shown = page(figures.figures()).decode()
    assert 'holodeck_tenant_runs_total{tenant="acme",outcome="completed"} 1' in shown
    assert 'holodeck_tenant_tokens_total{tenant="other"} 3500' in shown
    assert 'holodeck_tenant_cost_total{tenant="beta"} 0.5' in shown
    assert shown.count("holodeck_tenant_runs_total{") == 3
    alone = Metrics()
    alone.run([], "acme")(e.RunFinished("r", "s"))
    assert "holodeck_tenant_runs_total{" not in page(alone.figures()).decode()
