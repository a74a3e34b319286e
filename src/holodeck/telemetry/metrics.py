"""Metrics for operators: requests, runs, tokens, times, tools, breakers. Counted as they happen, shown at `/metrics`.

A run is observed as in `run_logger.py`: rare events only, so that a token costs nothing here. The time between two
pieces of a text is the average over the text, taken when the text ends. This module does not know the page or its other
metrics.

Metrics belong to the event loop, so counting needs no lock. Labels cannot fill the memory: a metric keeps at most
`MAX_SERIES` of them; later ones are counted as "other".
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sized

from holodeck.core import events as e
from holodeck.core.usage import TokenUsage
from holodeck.telemetry.exposition import Labels, Series

MAX_SERIES = 512
MAX_TOOLS = 128
MAX_MODELS = 32
NONE = "none"
OTHER = "other"
METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_GAPS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
_CHECKS = (0.00001, 0.0001, 0.001, 0.01, 0.1, 1, 5)
_LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 5)


class Counter:
    """A counter. Without labels it starts at 0, so that the first count shows as an increase."""

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        self._name, self._meaning, self._labels = name, meaning, labels
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        try:
            self._values[labels] += by
        except KeyError:
            labels = _bounded(labels, self._values)
            self._values[labels] = self._values.get(labels, 0) + by

    def series(self) -> Series:
        values = [(labels, [value]) for labels, value in self._values.items()]
        return Series(name=self._name, meaning=self._meaning, kind="counter", labels=self._labels, values=values)


class Histogram:
    """Counts values by upper bound. One `observe` may stand for many equal values."""

    def __init__(self, name: str, meaning: str, bounds: tuple[float, ...], labels: Labels = ()) -> None:
        self._name, self._meaning, self._labels, self._bounds = name, meaning, labels, bounds
        self._series: dict[Labels, list[float]] = {}  # a count for each bound, one for values above, the sum
        if not labels:
            self._series[()] = self._empty()

    def observe(self, value: float, *labels: str, times: int = 1) -> None:
        series = self._series.get(labels)
        if series is None:
            series = self._series.setdefault(_bounded(labels, self._series), self._empty())
        series[bisect_left(self._bounds, value)] += times
        series[-1] += value * times

    def series(self) -> Series:
        return Series(
            name=self._name,
            meaning=self._meaning,
            kind="histogram",
            labels=self._labels,
            bounds=self._bounds,
            values=[(labels, list(values)) for labels, values in self._series.items()],
        )

    def _empty(self) -> list[float]:
        return [0] * (len(self._bounds) + 2)


def _bounded(labels: Labels, known: Mapping[Labels, object]) -> Labels:
    return labels if len(known) < MAX_SERIES else (OTHER,) * len(labels)


class Metrics:
    """All metrics of one server that are counted, not read at scrape time."""

    def __init__(self, tenants: Iterable[str] = ()) -> None:
        """`tenants` have metrics of their own. Without any, nothing is counted by tenant."""
        self._tenants = frozenset(tenants)
        self.requests = Counter("holodeck_http_requests_total", "Requests answered", ("method", "route", "status"))
        self.request_seconds = Histogram(
            "holodeck_http_request_seconds",
            "Time from a request's head to the end of its response",
            _SECONDS,
            ("route",),
        )
        self.connections = Counter(
            "holodeck_connections_total", "Connections: served, over the limit but answered, closed at once", ("entry",)
        )
        self.runs = Counter("holodeck_runs_total", "Finished runs, by outcome", ("outcome", "code"))
        self.run_seconds = Histogram("holodeck_run_seconds", "Time from a run's start to its end", _SECONDS)
        self.steps = Counter("holodeck_model_calls_total", "Model calls, by the model that answered", ("model",))
        self.tokens = Counter("holodeck_tokens_total", "Tokens, as the model's endpoint counts them", ("kind", "model"))
        self.cost = Counter(
            "holodeck_cost_total", "What model calls cost, in the currency of model.price or of the gateway", ("model",)
        )
        self.tenant_runs = Counter("holodeck_tenant_runs_total", "Finished runs, by tenant", ("tenant", "outcome"))
        self.tenant_tokens = Counter("holodeck_tenant_tokens_total", "Tokens, by tenant", ("tenant",))
        self.tenant_cost = Counter("holodeck_tenant_cost_total", "What model calls cost, by tenant", ("tenant",))
        self.first_token = Histogram(
            "holodeck_time_to_first_token_seconds", "Time from a run's start to its first text", _SECONDS
        )
        self.inter_token = Histogram(
            "holodeck_inter_token_seconds", "Time between two pieces of a text, averaged over each text", _GAPS
        )
        self.tool_calls = Counter("holodeck_tool_calls_total", "Tool calls carried out", ("tool", "status"))
        self.tool_seconds = Histogram("holodeck_tool_call_seconds", "Duration of tool calls", _SECONDS, ("tool",))
        self.breaker_changes = Counter(
            "holodeck_circuit_breaker_changes_total",
            "State changes of circuit breakers, by the new state",
            ("service", "state"),
        )
        self.auth = Counter(
            "holodeck_auth_total",
            "Credential checks, by outcome: accepted, scope missing, or the reason of the refusal",
            ("via", "outcome"),
        )
        self.limit_refusals = Counter(
            "holodeck_limit_refusals_total", "Requests refused with 429, by limit", ("limit",)
        )
        self.auth_seconds = Histogram("holodeck_auth_seconds", "Time to check a credential", _CHECKS)
        self.loop_lag = Histogram("holodeck_event_loop_lag_seconds", "Delay of the event loop", _LAGS)
        self.log_drops: Callable[[], int] = int  # returns how many lines were dropped so far
        self.offered_tools: Callable[[], Iterable[str]] = tuple  # returns the names that may become labels
        self._tools: set[str] = set()
        self._models: set[str] = set()

    def figures(self) -> list[Series]:
        return [each.series() for each in vars(self).values() if isinstance(each, Counter | Histogram)]

    def answered(self, method: str, route: str | None, status: int | None, seconds: float) -> None:
        """`route` is the declared address, never the requested one. No status: the client disconnected first."""
        where = route or NONE
        self.requests.add(method if method in METHODS else OTHER, where, NONE if status is None else str(status))
        self.request_seconds.observe(seconds, where)

    def run(self, log: Sized, tenant: str = NONE) -> "RunMetrics":
        """Returns the metrics of one run. `log` knows how many events there are so far."""
        label = tenant if tenant in self._tenants else OTHER
        return RunMetrics(self, log, label if self._tenants else None)

    def tool_label(self, name: str) -> str:
        """Returns the label of a tool: only tools that the agent offers have their own, whatever a model makes up."""
        if name not in self._tools:
            room = MAX_TOOLS - len(self._tools)
            self._tools.update([each for each in self.offered_tools() if each not in self._tools][:room])
        return name if name in self._tools else OTHER

    def model_label(self, name: str) -> str:
        """Returns the label of a model. Agent files and Python code name models; the first ones get a label each."""
        if name not in self._models and len(self._models) < MAX_MODELS:
            self._models.add(name)
        return name if name in self._models else OTHER


class RunMetrics(e.Observer):
    def __init__(self, metrics: Metrics, log: Sized, tenant: str | None = None) -> None:
        self._metrics, self._log, self._tenant = metrics, log, tenant
        self._begun = self._text_begun = time.monotonic()
        self._text_at = 0
        self._silent = True
        self._model = NONE

    def run_started(self, event: e.RunStarted) -> None:
        self._model = event.model or NONE

    def text_started(self, _event: e.TextStarted) -> None:
        self._text_begun, self._text_at = time.monotonic(), len(self._log)
        if self._silent:
            self._silent = False
            self._metrics.first_token.observe(self._text_begun - self._begun)

    def text_ended(self, _event: e.TextEnded) -> None:
        """Counts all events since the start as pieces of this text: other parts are closed, and notes are rare."""
        gaps = len(self._log) - self._text_at - 2
        if gaps > 0:
            self._metrics.inter_token.observe((time.monotonic() - self._text_begun) / gaps, times=gaps)

    def step_finished(self, event: e.StepFinished | e.HistoryCompacted) -> None:
        model = self._metrics.model_label(event.model or self._model)
        self._metrics.steps.add(model)
        if event.usage is not None:
            self._count_tokens(event.usage, model)

    history_compacted = step_finished  # a model call, too

    def tool_finished(self, event: e.ToolFinished) -> None:
        tool = self._metrics.tool_label(event.name)
        self._metrics.tool_calls.add(tool, "failed" if event.failed else "success")
        self._metrics.tool_seconds.observe(event.seconds, tool)

    def run_finished(self, event: e.RunFinished) -> None:
        self._ended(str(event.outcome))

    def run_failed(self, event: e.RunFailed) -> None:
        self._ended("failed", event.code)

    def _ended(self, outcome: str, code: str = NONE) -> None:
        self._metrics.runs.add(outcome, code)
        self._metrics.run_seconds.observe(time.monotonic() - self._begun)
        if self._tenant is not None:
            self._metrics.tenant_runs.add(self._tenant, outcome)

    def _count_tokens(self, usage: TokenUsage, model: str) -> None:
        add = self._metrics.tokens.add
        add("input", model, by=usage.prompt_tokens)
        add("output", model, by=usage.completion_tokens)
        if usage.cached_tokens is not None:  # part of the input
            add("cached", model, by=usage.cached_tokens)
        if usage.cache_write_tokens is not None:  # part of the input
            add("cache_write", model, by=usage.cache_write_tokens)
        if usage.reasoning_tokens is not None:  # part of the output
            add("reasoning", model, by=usage.reasoning_tokens)
        if usage.cost is not None:
            self._metrics.cost.add(model, by=usage.cost)
        if self._tenant is not None:
            self._metrics.tenant_tokens.add(self._tenant, by=usage.total_tokens)
            self._metrics.tenant_cost.add(self._tenant, by=usage.cost or 0.0)
