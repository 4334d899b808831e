"""Requests of one record each: what a server spends on one, beside what it would without its short way for them."""

from __future__ import annotations

import random
import signal
import socket
import tempfile
from pathlib import Path
from threading import Thread
from time import time

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.otlp import records
from bench.serve.durable import CONFIG, Server
from ragmon.capture.exporters.otlp import SpanWriter, add_scope

REQUESTS = 4000
CONNECTIONS = 8
ROUNDS = 3
GENERAL = "Upgrade: none\r\n"
"""A header that takes a request to the general parser, and changes nothing else."""


def singles(rng: random.Random, n: int) -> list[bytes]:
    """Exports of one record each."""
    writer, found = SpanWriter(stages=False), list[bytes]()
    while len(found) < n:
        for record in records(rng, content=False):
            request = ExportTraceServiceRequest()
            record.trace_id, record.ts, record.source = rng.randbytes(16).hex(), time(), "live"
            writer.write(add_scope(request, "spans", {"service.name": "shop"}).spans, record)
            found.append(request.SerializeToString())
    return found[:n]


def send(place: str, bodies: list[bytes], more: str) -> None:
    """Send requests over one connection, each once the one before is answered."""
    host, _, port = place.rpartition(":")
    head = f"POST /v1/traces HTTP/1.1\r\nHost: {place}\r\nContent-Type: application/x-protobuf\r\n{more}"
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for body in bodies:
            sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")


def cost(server: Server, rng: random.Random, more: str = "") -> float:
    """CPU milliseconds of a server for one request."""
    shares = [singles(rng, REQUESTS // CONNECTIONS) for _ in range(CONNECTIONS)]
    before = server.cpu()
    threads = [Thread(target=send, args=(server.otlp, share, more)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (server.cpu() - before) * 1000 / REQUESTS


def main() -> None:
    """Print the figures."""
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ragmon.toml").write_text(CONFIG)
        server = Server(folder)
        cost(server, rng)
        pairs = [(cost(server, rng), cost(server, rng, GENERAL)) for _ in range(ROUNDS)]
        server.end(signal.SIGTERM)
    short, general = (min(column) for column in zip(*pairs, strict=True))
    print(f"one record a request: {short:.2f} ms CPU, {short / general:.2f} of the general parser's (asked: 0.5)")


if __name__ == "__main__":
    main()
