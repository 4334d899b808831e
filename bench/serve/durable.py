"""A long run: whole records to a server process as fast as it takes them, then a crash and a new start."""

from __future__ import annotations

import argparse
import http.client
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep, time_ns
from urllib.request import urlopen

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.serve import bodies

RECORDS = 1_000_000
PREPARED = 8
CONFIG = """[serve]
otlp = "127.0.0.1:0"
grpc = "127.0.0.1:0"
admin = "127.0.0.1:0"
state_dir = "state"
max_size = "1GB"
"""
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """`ragmon serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        started = monotonic()
        command = [sys.executable, "-m", "ragmon", "serve", "--config", str(folder / "ragmon.toml")]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)
        assert self.process.stderr is not None
        places = {}
        for line in self.process.stderr:
            name, _, place = line.strip().partition(": ")
            places[name] = place
            if name == "ready":
                break
        self.otlp, self.admin = places["otlp"], places["admin"]
        self.ready = monotonic() - started

    def cpu(self) -> float:
        """CPU seconds it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def peak(self) -> float:
        """Megabytes of memory it had at most."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def scrape(self) -> float:
        """Milliseconds `/metrics` takes."""
        started = monotonic()
        with urlopen(f"http://{self.admin}/metrics", timeout=30) as answer:
            answer.read()
        return (monotonic() - started) * 1000

    def end(self, number: int) -> None:
        """End it."""
        self.process.send_signal(number)
        self.process.wait()


def fresh(body: bytes, rng: random.Random) -> bytes:
    """The same records in spans of other ids that end now: keys of one time lie side by side in the journal."""
    message, now = ExportTraceServiceRequest.FromString(body), time_ns()
    for span in message.resource_spans[0].scope_spans[0].spans:
        span.span_id, span.end_time_unix_nano = rng.randbytes(8), now
    return bytes(message.SerializeToString())


def feed(server: Server, n: int) -> tuple[float, list[float]]:
    """Send so many records; returns the seconds it took, and what scrapes took meanwhile."""
    rng, scrapes, sent = random.Random(1), [], 0
    prepared = bodies.ragmon(rng, PREPARED)
    connection = http.client.HTTPConnection(server.otlp)
    started = due = monotonic()
    while sent < n:
        body = fresh(prepared[rng.randrange(PREPARED)], rng)
        connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        answer = connection.getresponse()
        answer.read()
        if answer.status == 429:
            sleep(0.05)
            continue
        assert answer.status == 200, answer.status
        sent += bodies.SPANS
        if monotonic() > due:
            scrapes.append(server.scrape())
            due = monotonic() + 2
    return monotonic() - started, scrapes


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    n = parser.parse_args().records
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ragmon.toml").write_text(CONFIG)
        server = Server(folder)
        before = server.cpu()
        took, scrapes = feed(server, n)
        cpu, peak = server.cpu() - before, server.peak()
        server.end(signal.SIGKILL)
        again = Server(folder)
        again.end(signal.SIGTERM)
    print(f"{n} records: {n / cpu:.0f} records a CPU second (asked: 30,000), {n / took:.0f} a second with their sender")
    print(f"memory at most {peak:.0f} MB (asked: 200), /metrics at most {max(scrapes):.0f} ms (asked: 250)")
    print(f"ready {again.ready:.2f} s after a kill -9 with {n} records journalled (asked: 2)")


if __name__ == "__main__":
    main()
