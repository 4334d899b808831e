"""A real server for tests, in this process or in one of its own, on free loopback ports and a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from time import time, time_ns

from ragmon.config.load import load
from ragmon.core.record import Record, Totals
from ragmon.ingest.spans.span import Span
from ragmon.server.server import Server
from ragmon.server.state import Clock, entries
from ragmon.server.store import JournalReader
from ragmon.stream.assembler import AssemblyLimits
from ragmon.testing import make_record
from tests.support.command_line import ragmon
from tests.support.otlp_requests import of_records, with_ids
from tests.support.waiting import TIMEOUT, wait_for

QUICK = AssemblyLimits(idle=0.3, rootless=0.6, age=5.0)
"""Traces are complete soon."""
PORTS = '[serve]\notlp = "127.0.0.1:0"\ngrpc = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nstate_dir = "state"\n'
_TICK = threading.Event()


def configuration(folder, text=""):
    """Writes a ragmon.toml whose server takes free ports; returns its path."""
    path = folder / "ragmon.toml"
    path.write_text(text + PORTS, encoding="utf-8")
    return path


@contextmanager
def serving(folder, text="", **how):
    """A server in this process.

    Args:
        folder: Where its configuration and its state lie.
        text: The configuration beside `[serve]`.
        how: Passed on to the server.
    """
    settings = load(configuration(folder, text), environ={})
    with Server(settings, **{"assembly_limits": QUICK, **how}) as server:
        yield Running(server)


class Running:
    """A server that runs, as its clients see it.

    Args:
        server: The server.
    """

    def __init__(self, server):
        self.server = server
        places = server.addresses()
        self.otlp, self.grpc, self.admin = (f"http://{places[name]}" for name in ("otlp", "grpc", "admin"))

    def get(self, path):
        """What the admin port answers: status and text."""
        return get(f"{self.admin}{path}")

    def status(self):
        """`/api/status`."""
        return json.loads(self.get("/api/status")[1])

    def books(self):
        """The books of what came in."""
        return self.status()["books"]["ingest"]

    def metrics(self):
        """`/metrics` as values by line."""
        return values(self.get("/metrics")[1])

    def wait_for(self, condition):
        """Wait until the books are as they should be; returns them."""
        return wait_for(self.books, condition)

    def settled(self, received):
        """The books once everything that was received is accounted for and nothing waits."""
        return self.wait_for(lambda books: books["received"] == received and not books["pending"])


def free_port():
    """A port that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(url):
    """Status and text of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(errors="replace")


def post(url, body, kind="application/json"):
    """Status and text of what is answered to a body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(errors="replace")


def values(text):
    """The samples of an exposition, by name and labels."""
    lines = (line for line in text.split("\n") if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def journalled(folder, kind=Record):
    """What a journal holds of one kind, in order."""
    with JournalReader(folder / "state") as journal:
        return [entry for row in journal.rows() for entry in entries(row.lines) if isinstance(entry, kind)]


def totals(folder):
    """Producers' totals in a journal."""
    return journalled(folder, Totals)


class Process:
    """`ragmon serve` as a process of its own.

    Args:
        folder: Where its configuration and its state lie.
        arguments: More of the command line.
        files: How many files it may have open; None for as many as this process.
    """

    def __init__(self, folder, *arguments, files=None):
        self.folder = folder
        self.lines = []
        limited = [] if files is None else ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]
        self._process = subprocess.Popen(
            [*limited, sys.executable, "-m", "ragmon", "serve", "--config", folder / "ragmon.toml", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        self.pid = self._process.pid
        for line in self._process.stderr:
            self.lines.append(line.rstrip())
            if line == "ready\n":
                break
        else:
            self._process.wait(timeout=TIMEOUT)
            return
        places = dict(line.split(": ", 1) for line in self.lines if line.startswith(("otlp: ", "grpc: ", "admin: ")))
        self.otlp, self.grpc, self.admin = (f"http://{places[name]}" for name in ("otlp", "grpc", "admin"))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        self.lines.extend(line.rstrip() for line in self._process.stderr)

    def status(self):
        """`/api/status`."""
        return json.loads(get(f"{self.admin}/api/status")[1])

    def books(self):
        """The books of what came in."""
        return self.status()["books"]["ingest"]

    def kill(self):
        """End it as a crash would."""
        self._process.kill()
        return self.wait()

    def stop(self, number=signal.SIGTERM):
        """Ask it to end; returns its exit code."""
        self._process.send_signal(number)
        return self.wait()

    def send(self, number):
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self):
        """Its exit code."""
        code = self._process.wait(timeout=TIMEOUT)
        if reader := getattr(self, "_reader", None):
            reader.join(timeout=TIMEOUT)
        self._process.stderr.close()
        return code


@contextmanager
def process(folder, *arguments, files=None):
    """A server in a process of its own, ended at the end."""
    running = Process(folder, *arguments, files=files)
    try:
        yield running
    finally:
        if running._process.poll() is None:
            running.kill()


# --- faults -----------------------------------------------------------------------------------------------------------

PROTOBUF = "application/x-protobuf"


def asked(number, **fields):
    """A request of a user, just now, whose trace id is its number."""
    told = {"ts": time(), "source": "live", "pipeline": "support", "v": 1, "trace_id": f"{number + 1:032x}"}
    return make_record(f"q{number}", **{**told, **fields})


def whole(records):
    """An export of ragmon's own spans, one to a record; the same records give the same span ids."""
    records = list(records)
    return with_ids(of_records(records, {"service.name": "support"}), [record.trace_id[-16:] for record in records])


def foreign(number, parent=None, *, at=None, **document):
    """The spans of a request some framework traced, now or at a time: the call, and what it retrieved."""
    trace_id, end = f"{number + (1 << 64):032x}", time_ns() if at is None else int(at * 1e9)
    told = {"id": "d1", "score": 0.5, "content": "text", **document}
    documents = {f"retrieval.documents.0.document.{name}": value for name, value in told.items()}
    call = {"openinference.span.kind": "CHAIN", "input.value": f"What is {number}?", "output.value": "an answer"}
    found = {"openinference.span.kind": "RETRIEVER", "input.value": f"What is {number}?", **documents}
    root, child = f"{1:016x}", f"{2:016x}"
    return [
        Span(trace_id, root, parent, "ask", end - 10**9, end, call, scope="openinference"),
        Span(trace_id, child, root, "retrieve", end - 10**9, end - 10**8, found, scope="openinference"),
    ]


def within(record, number):
    """What a framework traced inside a decorated call."""
    spans = foreign(number, parent=record.trace_id[-16:])
    return [span._replace(trace_id=record.trace_id) for span in spans]


def send_body(running, body, kind=PROTOBUF):
    """Hand in an export of traces as a producer does: again, where it may be sent again."""
    found = wait_for(lambda: post(f"{running.otlp}/v1/traces", body, kind), lambda answer: answer[0] not in (429, 503))
    assert found[0] == 200, found


def accounted(running):
    """The books, once nothing waits and everything that came in is accounted for, on every page."""
    send_body(running, b"")  # whoever sends is answered before it is counted, but after what came before was
    books = wait_for(running.books, lambda found: not found["pending"])
    lost = sum(books["ignored"].values()) + sum(books["dropped"].values())
    assert books["received"] == books["scored"] + lost + books["duplicate"] + books["pending"], books
    received = 'ragmon_records_received_total{stage="ingest"}'
    page = lambda: values(get(f"{running.admin}/metrics")[1])  # noqa: E731 - asked again and again
    shown = wait_for(page, lambda found: found[received] == books["received"])
    assert (books["residual"], shown['ragmon_accounting_residual{stage="ingest"}']) == (0, 0), books
    return books


def digest(running):
    """What a server in this process counted, as a fingerprint."""
    with running.server.writer.lock:
        return running.server.writer.server_state.engine.scorer.state.digest()


def between_rows(running, what):
    """Have something done by a server in this process while it writes nothing; returns what came of it."""
    return running.server.writer.run_between_rows(what).result(TIMEOUT)


def replayed(folder):
    """The fingerprint of what a journal holds, scored again by the command."""
    done = ragmon("replay", "--journal", folder / "state", "--config", folder / "ragmon.toml")
    assert done.code == 0, done.err
    return done.json["digest"]


BEGIN = 1_763_683_200.5
"""When a test's time begins: half a second after a whole hour."""


@dataclass
class Time:
    """What time it really is, and by how much the system's clock is off."""

    now: float = BEGIN
    off: float = 0.0

    def clock(self):
        """A server's clock that looks at it."""
        return Clock(wall=lambda: self.now + self.off, passed=lambda: self.now)


def pass_by(running, time, seconds, off=0.0):
    """Let time pass; the server sees it begin and end."""
    time.off = off
    look(running)
    time.now += seconds
    look(running)


def look(running):
    """Let the server see what time it is: it has looked after the first errand when it does the second."""
    for _ in range(2):
        between_rows(running, lambda: None)
