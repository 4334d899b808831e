"""A real OTLP/HTTP receiver on loopback. It keeps every request decoded, and answers what it is told to."""

from __future__ import annotations

import gzip
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ragmon.core import semconv
from ragmon.core.record import Record
from tests.support.otlp_requests import from_json
from tests.support.waiting import TIMEOUT

PROTOBUF = "application/x-protobuf"
MESSAGES = {
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse, "rejected_spans"),
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse, "rejected_data_points"),
    "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse, "rejected_log_records"),
}


@dataclass(frozen=True)
class Answer:
    """What the receiver does with one request.

    Attributes:
        status: The HTTP status.
        headers: Beside the usual ones.
        rejected: How much it refuses of what it accepts.
        body: The whole body, in place of a protocol message.
        hang: It never answers.
        drip: It answers, a byte at a time, without end.
        vanish: It closes the connection instead of answering.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    rejected: int = 0
    body: bytes | None = None
    hang: bool = False
    drip: bool = False
    vanish: bool = False


@dataclass(frozen=True)
class Request:
    """What was received, and over which connection."""

    connection: tuple[str, int]
    path: str
    headers: dict[str, str]
    message: object


class Receiver(ThreadingHTTPServer):
    """Listens, one thread a connection.

    Attributes:
        requests: What was received, in order.
        answers: What the next requests are answered; once there are none left, everything is accepted.
        connections: How many connections were opened.
    """

    daemon_threads = True

    def __init__(self, host, port, tls):
        super().__init__((host, port), _Handler)
        self.requests = []
        self.answers = deque()
        self.connections = 0
        self.released = threading.Event()
        self.arrived = threading.Condition()
        self.scheme = "http" if tls is None else "https"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)

    @property
    def port(self):
        return self.server_port

    @property
    def endpoint(self):
        return f"{self.scheme}://{self.server_address[0]}:{self.port}"

    def get_request(self):
        self.connections += 1
        return super().get_request()

    def handle_error(self, request, client_address):
        """A client that breaks off is part of the tests."""

    def take(self, request):
        with self.arrived:
            self.requests.append(request)
            answer = self.answers.popleft() if self.answers else Answer()
            self.arrived.notify_all()
        return answer

    def wait_for(self, condition):
        """Wait until a condition holds; it is looked at after every request."""
        with self.arrived:
            assert self.arrived.wait_for(condition, TIMEOUT), self.requests

    def of(self, path):
        return [request for request in self.requests if request.path.endswith(path)]

    def spans(self):
        """All spans, in the order they came."""
        return [
            span
            for request in self.of("/v1/traces")
            for resource in request.message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def records(self):
        """The records of all root spans, read with the contract's own decoder."""
        found = [attributes(span) for span in self.spans()]
        return [
            msgspec.json.decode(held[semconv.RAGMON_RECORD], type=Record)
            for held in found
            if semconv.RAGMON_RECORD in held
        ]

    def metrics(self):
        """All metrics, in the order they came."""
        return [
            metric
            for request in self.of("/v1/metrics")
            for resource in request.message.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]

    def events(self):
        """All log records, in the order they came."""
        return [
            event
            for request in self.of("/v1/logs")
            for resource in request.message.resource_logs
            for scope in resource.scope_logs
            for event in scope.log_records
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        if "Content-Length" in self.headers:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        else:
            body = b"".join(iter(self._chunk, b""))  # as OpenTelemetry's SDK in JavaScript sends it
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        kind, response, refused = MESSAGES["/v1/" + self.path.rpartition("/")[2]]
        message = from_json(body, kind) if "json" in self.headers["Content-Type"] else kind.FromString(body)
        answer = self.server.take(Request(self.client_address, self.path, dict(self.headers), message))
        if answer.hang:
            self.server.released.wait(TIMEOUT)
        if answer.hang or answer.vanish:
            self.close_connection = True
        elif answer.drip:
            self._drip()
        else:
            self._answer(answer, response, refused)

    def _chunk(self):
        chunk = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return chunk

    def do_GET(self):
        """The project of a client's keys, which Langfuse's integrations ask for."""
        project = {"id": "project", "name": "project", "metadata": {}, "organization": {"id": "one", "name": "one"}}
        self._answer(Answer(body=msgspec.json.encode({"data": [project]})), None, None)

    def _answer(self, answer, response, refused):
        body = answer.body
        if body is None:
            message = response()
            if answer.rejected:
                setattr(message.partial_success, refused, answer.rejected)
            body = message.SerializeToString()
        self.send_response(answer.status)
        headers = {"Content-Type": PROTOBUF, "Content-Length": str(len(body)), **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _drip(self):
        """Keep every single read short of a timeout."""
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not self.server.released.wait(0.02):
            self.wfile.write(b"x")

    def log_message(self, *_):
        """Say nothing on the terminal."""


@contextmanager
def receiving(host="127.0.0.1", tls=None, port=0):
    """A receiver that runs inside the block.

    Args:
        host: Where it listens.
        tls: The server's TLS context; None for plain HTTP.
        port: The port; 0 for any free one.
    """
    with Receiver(host, port, tls) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


def attributes(holder):
    """A span's, event's or point's attributes, each as a plain value."""
    return {held.key: getattr(held.value, held.value.WhichOneof("value")) for held in holder.attributes}
