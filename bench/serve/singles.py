"""A record that comes alone: what a server spends on it, beside one that comes with others in a request."""

from __future__ import annotations

import random
import signal
import socket
import tempfile
from pathlib import Path
from threading import Thread
from time import time

from bench.otlp import records, request
from bench.serve.durable import CONFIG, Server

RECORDS = 4000
CONNECTIONS = 8
ROUNDS = 3
BATCH = 50
"""Records of a request that holds several."""


def exports(rng: random.Random, n: int, size: int) -> list[bytes]:
    """Exports of `n` records, `size` in each; at most the 512 of one batch."""
    found = list[bytes]()
    several = records(rng, content=False)[:n]
    for start in range(0, n, size):
        for record in several[start : start + size]:
            record.trace_id, record.ts, record.source = rng.randbytes(16).hex(), time(), "live"
        found.append(request(several[start : start + size], "shop"))
    return found


def send(place: str, bodies: list[bytes]) -> None:
    """Send requests over one connection, each once the one before is answered."""
    host, _, port = place.rpartition(":")
    head = f"POST /v1/traces HTTP/1.1\r\nHost: {place}\r\nContent-Type: application/x-protobuf\r\n"
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for body in bodies:
            sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")


def cost(server: Server, rng: random.Random, size: int) -> float:
    """CPU milliseconds of a server for one record, of `size` in a request."""
    shares = [exports(rng, RECORDS // CONNECTIONS, size) for _ in range(CONNECTIONS)]
    before = server.cpu()
    threads = [Thread(target=send, args=(server.otlp, share)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (server.cpu() - before) * 1000 / RECORDS


def main() -> None:
    """Print the figures."""
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ragmon.toml").write_text(CONFIG)
        server = Server(folder)
        cost(server, rng, 1)
        pairs = [(cost(server, rng, 1), cost(server, rng, BATCH)) for _ in range(ROUNDS)]
        server.end(signal.SIGTERM)
    alone, together = (min(column) for column in zip(*pairs, strict=True))
    print(f"a record that comes alone: {alone:.2f} ms CPU, {alone / together:.1f} x one of {BATCH} in a request")


if __name__ == "__main__":
    main()
