"""Sends spans to a collector: OTLP over HTTP, in the background (extra `otel`).

The usual variables apply: OTEL_EXPORTER_OTLP_ENDPOINT and its relatives if the agent file names no collector, and
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT for message contents. An unreachable collector costs nothing but a
count of lost spans.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from holodeck.errors import StartError
from holodeck.telemetry.otel import SCOPE, Tracing

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
except ImportError as error:
    raise StartError("OpenTelemetry is not installed; install it with: pip install 'holodeck-agents[otel]'") from error

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
DEFAULT_ENDPOINT = "http://localhost:4318"
GRPC_PORT, HTTP_PORT = 4317, 4318
SECONDS = 2.0  # how long an exit waits for a collector


class Exporting:
    """A tracer with its exporter, as `observability` of an agent file wants them. Closing it sends the remaining spans."""

    def __init__(self, wanted: Any, *, agent: str, environment: Mapping[str, str]) -> None:
        """The environment's collector replaces the file's default, not an explicit one."""
        endpoint = wanted.otlp_endpoint if "otlp_endpoint" in wanted.model_fields_set else None
        self.endpoint = traces_url(endpoint, environment)
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # else it would write into the chat
        self._exporter = _Counting(OTLPSpanExporter(endpoint=self.endpoint, timeout=SECONDS))
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": wanted.service_name or agent}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        content = environment.get(CONTENT_VARIABLE, "").lower() in ("true", "1", "span_only", "span_and_event")
        self.tracing = Tracing(self._provider.get_tracer(SCOPE), agent=agent, content=content)

    def close(self) -> int:
        """Returns how many spans were lost."""
        self._provider.shutdown()
        return self._exporter.lost


def traces_url(endpoint: str | None, environment: Mapping[str, str]) -> str:
    """Returns the address for spans: the file's collector, else the environment's, else the local one.

    4317 is the port of OTLP over gRPC, which we do not support. The same collectors accept HTTP on 4318.
    """
    for_traces, for_all = (environment.get(name) for name in ENDPOINT_VARIABLES)
    if endpoint is None and for_traces:
        return for_traces
    url = urlsplit(endpoint or for_all or DEFAULT_ENDPOINT)
    netloc = url.netloc.removesuffix(f":{GRPC_PORT}") + f":{HTTP_PORT}" if url.port == GRPC_PORT else url.netloc
    path = url.path.rstrip("/")
    return urlunsplit((url.scheme, netloc, path if path.endswith("/v1/traces") else f"{path}/v1/traces", "", ""))


class _Counting(SpanExporter):
    """Counts the spans that its exporter could not send."""

    def __init__(self, exporter: SpanExporter) -> None:
        self.lost = 0
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self.lost += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
