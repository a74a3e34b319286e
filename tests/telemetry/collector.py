"""An OTLP collector on loopback: what a real one receives over HTTP, decoded with the protocol's own classes."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service


@dataclass
class Received:
    name: str
    span_id: bytes
    parent_id: bytes
    start: int
    end: int
    kind: int
    failed: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    url: str = ""
    spans: list[Received] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)

    def named(self, name: str) -> Received:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def below(self, parent: Received | None) -> list[str]:
        """The names of the spans below one, in the order of their beginning."""
        wanted = parent.span_id if parent else b""
        return [span.name for span in sorted(self.spans, key=lambda each: each.start) if span.parent_id == wanted]

    def take(self, body: bytes) -> None:
        for resource in trace_service.ExportTraceServiceRequest.FromString(body).resource_spans:
            facts = _values(resource.resource.attributes)
            self.services.add(facts["service.name"])
            self.spans += [_received(span) for scope in resource.scope_spans for span in scope.spans]


def _received(span: Any) -> Received:
    return Received(
        span.name,
        span.span_id,
        span.parent_span_id,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.kind,
        span.status.code == 2,
        _values(span.attributes),
    )


def _values(attributes: Any) -> dict[str, Any]:
    found = {}
    for each in attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        found[each.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Post(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.paths.add(self.path)
            collector.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
            return None

    server = HTTPServer(("127.0.0.1", 0), Post)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
