"""A receiver of OTLP over HTTP, which decodes what it gets by the protocol's own messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Receiver", "attributes_of", "receiving"]


@dataclass
class Receiver:
    """What was received: requests for metrics, and spans.

    Attributes:
        status: What is answered from now on.
        answers: Cleared: no request is answered until it is set.
    """

    url: str = ""
    status: int = 200
    answers: threading.Event = field(default_factory=threading.Event)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)

    @property
    def spans(self) -> list[Any]:
        """All spans."""
        scopes = [scope for each in self.traces for of in each.resource_spans for scope in of.scope_spans]
        return [span for scope in scopes for span in scope.spans]

    def values(self, request: ExportMetricsServiceRequest) -> dict[tuple[str, ...], Any]:
        """The points of a request, by the name of the metric and the values of its attributes in order."""
        found: dict[tuple[str, ...], Any] = {}
        for of in request.resource_metrics:
            for scope in of.scope_metrics:
                for metric in scope.metrics:
                    data = getattr(metric, metric.WhichOneof("data"))
                    for point in data.data_points:
                        found[metric.name, *attributes_of(point).values()] = point
        return found


def attributes_of(has: Any) -> dict[str, Any]:
    """The attributes of a span, a point or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in has.attributes}


@contextmanager
def receiving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Receive what this process sends from now on."""
    receiver = Receiver()
    receiver.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.answers.wait()
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            if receiver.status == 200:
                kinds = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}
                request = kinds[self.path]()
                request.ParseFromString(body)
                (receiver.metrics if self.path == "/v1/metrics" else receiver.traces).append(request)
            self.send_response(receiver.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        receiver.url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        try:
            yield receiver
        finally:
            receiver.answers.set()
            server.shutdown()
            thread.join()
