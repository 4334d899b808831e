"""A consumer that keeps what comes and answers what a test wants, and clients that behave badly on purpose."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ragmon.ingest.receiver import ExportResult
from tests.support.waiting import TIMEOUT

TICK = threading.Event()


class FakeConsumer:
    """Where the receivers under test hand requests to.

    Attributes:
        taken: What came, in order: what it is, and the arguments.
        refused: What the receivers rejected, by reason.
        answers: What the next requests come to: a result, or an error. Once there are none left, all are taken.
        raises: An error that is raised at once.
        holds: Requests are not answered until `release`.
    """

    def __init__(self):
        self.taken = []
        self.refused = Counter()
        self.answers = []
        self.raises = None
        self.holds = False
        self._held = []
        self._changed = threading.Condition()

    def traces(self, body, form):
        return self._take(ExportResult(), "traces", body, form)

    def metrics(self, body, form):
        return self._take(ExportResult(), "metrics", body, form)

    def labels(self, labels):
        return self._take(ExportResult(), "labels", list(labels))

    def acknowledge(self, pipeline, alert, reason, by=""):
        return self._take(True, "acknowledge", pipeline, alert, reason, by)

    def refuse(self, reason):
        with self._changed:
            self.refused[reason] += 1
            self._changed.notify_all()

    def _take(self, usual, *what):
        future = Future()
        with self._changed:
            self.taken.append(what)
            answer = self.answers.pop(0) if self.answers else usual
            if self.holds:
                self._held.append((future, answer))
            self._changed.notify_all()
            if self.raises is not None:
                raise self.raises
            holds = self.holds
        if not holds:
            resolve(future, answer)
        return future

    def release(self):
        """Answer what is held, and hold no more."""
        with self._changed:
            self.holds = False
            held, self._held = self._held, []
        for future, answer in held:
            resolve(future, answer)

    def wait_for(self, condition):
        """Wait until a condition holds; it is looked at whenever something comes."""
        with self._changed:
            assert self._changed.wait_for(condition, TIMEOUT), (self.taken, self.refused)


def resolve(future, answer):
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def connect(address):
    """A plain connection."""
    found = socket.create_connection((address.host, address.port), timeout=TIMEOUT)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def rest(sock):
    """Everything the other side sends until it hangs up, however it does so."""
    found = b""
    try:
        while piece := sock.recv(65_536):
            found += piece
    except ConnectionError:
        pass
    return found


def send(sock, data):
    """Send, also to somebody who has hung up; returns whether that went well."""
    try:
        sock.sendall(data)
    except OSError:
        return False
    return True


def trickling(socks, piece):
    """Send a piece over each connection again and again, until the event that is returned is set."""
    stop = threading.Event()

    def run():
        while not stop.wait(0.1):
            for sock in socks:
                send(sock, piece)

    threading.Thread(target=run, daemon=True).start()
    return stop


def hung_up(sock):
    """Whether the other side has ended the connection; what it sent before is read."""
    sock.setblocking(False)
    try:
        while sock.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def certificate(folder: Path):
    """A certificate of 127.0.0.1 and localhost that signs itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    made, key = folder / "cert.pem", folder / "key.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=ragmon", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    command = [openssl, "req", "-x509", *kind, *names, "-keyout", key, "-out", made]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


def traced(names, exporter):
    """Send spans the way an application does."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    for name in names:
        provider.get_tracer("app").start_span(name).end()
    assert provider.force_flush()
    provider.shutdown()


def names_in(body):
    request = ExportTraceServiceRequest.FromString(body)
    return [span.name for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]
