"""Sixteen servers that an exporter may meet: each treats `/v1/traces` badly, and hears `/v1/metrics` as it should.

Turned good, each takes everything, so that what an exporter counted of its bad times can be asked afterwards.
"""

from __future__ import annotations

import gzip
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

KIND = b"Content-Type: application/x-protobuf\r\n"
LIMIT = 60.0
"""Seconds after which a connection is given up."""
MIB = 1 << 20


class BadServer:
    """A server on loopback.

    Args:
        behave: What it does with a connection that has asked for `/v1/traces`.
        tls: Its certificates: the bad and the good one; None without TLS.

    Attributes:
        good: Whether it takes everything.
        asked: How many requests for traces came while it was bad.
        metrics: The requests for metrics.
        spans: The number of spans it took while it was good.
    """

    def __init__(
        self, behave: Callable[[BadServer, socket.socket], None] | None, tls: list[Path] | None = None
    ) -> None:
        self.good = False
        self.asked = self.spans = 0
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.ended = Event()
        self._behave, self._tls = behave, [_context(path) for path in tls or []]
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = self._listening.getsockname()[1]
        self._threads: list[Thread] = []
        if behave is None:
            self._listening.close()
        else:
            self._start()

    def turn_good(self) -> None:
        """Take everything from now on, at the same port."""
        self.good = True
        if self._behave is None:
            self._listening = socket.create_server(("127.0.0.1", self.port))
            self._start()

    def _start(self) -> None:
        accepting = Thread(target=self._accept, daemon=True)
        self._threads.append(accepting)
        accepting.start()

    def _accept(self) -> None:
        while not self.ended.is_set():
            with suppress(OSError):
                connection, _ = self._listening.accept()
                thread = Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(LIMIT)
        with suppress(OSError, ValueError):
            if self._tls:
                connection = self._tls[self.good].wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as reader:
                while request := reader.readline():
                    self._answer(connection, request, _body(reader))

    def _answer(self, connection: socket.socket, request: bytes, body: bytes) -> None:
        if b"/v1/traces" in request and not self.good:
            self.asked += 1
            assert self._behave is not None
            self._behave(self, connection)
            return
        if b"/v1/traces" in request:
            sent = ExportTraceServiceRequest.FromString(body)
            self.spans += sum(len(scope.spans) for process in sent.resource_spans for scope in process.scope_spans)
        else:
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + KIND + b"Content-Length: 0\r\n\r\n")

    def close(self) -> None:
        """End all that it does."""
        self.ended.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def _body(reader: object) -> bytes:
    """The body of a request whose first line was read."""
    size = 0
    while line := reader.readline().strip():  # type: ignore[attr-defined]
        name, _, value = line.partition(b":")
        size = int(value) if name.lower() == b"content-length" else size
    found: bytes = reader.read(size)  # type: ignore[attr-defined]
    return found


def _context(path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


# --- what they do -----------------------------------------------------------------------------------------------------


def hang(server: BadServer, connection: socket.socket) -> None:
    """Say nothing."""
    server.ended.wait(LIMIT)


def reset(_: BadServer, connection: socket.socket) -> None:
    """Break the connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def saying(text: bytes) -> Callable[[BadServer, socket.socket], None]:
    """Say something, and close."""

    def behave(_: BadServer, connection: socket.socket) -> None:
        connection.sendall(text)
        connection.shutdown(socket.SHUT_RDWR)

    return behave


def status(line: str, headers: str = "") -> Callable[[BadServer, socket.socket], None]:
    """Answer with a status and nothing else."""
    return saying(f"HTTP/1.1 {line}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())


def flooding(beginning: bytes, over: bytes, pause: float = 0.0) -> Callable[[BadServer, socket.socket], None]:
    """Begin an answer, and say the same over and over."""

    def behave(server: BadServer, connection: socket.socket) -> None:
        connection.sendall(beginning)
        while not server.ended.wait(pause):
            connection.sendall(over)

    return behave


def lying() -> bytes:
    """A partial success that rejects more than was sent."""
    body = ExportTraceServiceResponse()
    body.partial_success.rejected_spans = 10**12
    body.partial_success.error_message = "\x1b[31mall of it\r\nLOG forged"
    text = body.SerializeToString()
    return b"HTTP/1.1 200 OK\r\n" + KIND + b"Content-Length: %d\r\n\r\n" % len(text) + text


BOMB = gzip.compress(bytes(64 * MIB), mtime=0)
OK = b"HTTP/1.1 200 OK\r\n" + KIND
BEHAVIOURS: dict[str, Callable[[BadServer, socket.socket], None] | None] = {
    "dead": None,
    "hanging": hang,
    "reset": reset,
    "401": status("401 Unauthorized", 'WWW-Authenticate: Bearer realm="x"\r\n'),
    "413": status("413 Content Too Large"),
    "500": status("500 Internal Server Error"),
    "503 with Retry-After": status("503 Service Unavailable", "Retry-After: 1000000000\r\n"),
    "307": status("307 Temporary Redirect", "Location: http://127.0.0.1:9/v1/traces\r\n"),
    "garbage": saying(bytes(range(256)) * 20),
    "gzip bomb": saying(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB),
    "endless body": flooding(OK + b"\r\n", b"x" * 65536),
    "endless headers": flooding(b"HTTP/1.1 200 OK\r\n", b"X-Header: " + b"x" * 8000 + b"\r\n"),
    "drip": flooding(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x", pause=0.2),
    "flood of 100 Continue": flooding(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "lying partial success": saying(lying()),
    "certificate of another name": status("500 Internal Server Error"),
}
"""The sixteen; with a certificate of another name no client gets as far as an answer."""


def certificate(folder: Path, name: str) -> Path:
    """A certificate that signs itself, and its key, in one file."""
    openssl = shutil.which("openssl")
    assert openssl is not None, "openssl is not installed"
    made, key = folder / f"{name}.pem", folder / f"{name}.key"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={name}"]
    subprocess.run(
        [openssl, "req", "-x509", *kind, *names, "-keyout", key, "-out", made], check=True, capture_output=True
    )
    made.write_text(made.read_text() + key.read_text())
    return made


@contextmanager
def bad_server(name: str, folder: Path) -> Iterator[tuple[BadServer, str, dict[str, str]]]:
    """A bad server; gives it, its address, and what its client needs in its environment to trust it.

    Args:
        name: One of `BEHAVIOURS`.
        folder: Where certificates are written.
    """
    trust, tls = {}, None
    if name == "certificate of another name":
        tls = [certificate(folder, "DNS:other.example"), certificate(folder, "IP:127.0.0.1")]
        (folder / "trusted").write_text("".join(path.read_text() for path in tls))
        trust = {"SSL_CERT_FILE": str(folder / "trusted")}
    server = BadServer(BEHAVIOURS[name], tls)
    try:
        yield server, f"{'https' if tls else 'http'}://127.0.0.1:{server.port}", trust
    finally:
        server.close()
