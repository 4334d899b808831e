"""What pages cost: with 50 pipelines of 12 gates each, and on a journal of a million records."""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import monotonic, time
from urllib.error import HTTPError
from urllib.request import urlopen

from bench.serve.durable import CONFIG, Server, feed
from ragmon.capture.otlp_exporter import OtlpExporter
from ragmon.core.record import Answer, Latency, Record

PIPELINES = 50
MINUTES = 360
EVERY = 3
"""Minutes between two requests of a pipeline."""
ROUNDS = 5
ASKED = 250.0
"""CPU milliseconds a page may take with 50 pipelines."""
LONGEST = 1000.0
"""Milliseconds a page may take on a journal of a million records."""
GATES = (
    *("citation_scope", "coverage", "compliance", "empty_retrieval_rate", "error_rate", "refusal_rate"),
    *("refusal_like_rate", "answered_within", "groundedness", "answer_precision", "recall@5", "hit_rate@5"),
)
NAMED = ("/", "/p/team-07", "/p/team-07/gate-0", "/incidents", "/gold", "/monitor", "/metrics")


def gates(pipeline: str) -> str:
    """The gates of a pipeline, as ragmon.toml has them."""
    return "".join(
        f'[pipelines.{pipeline}.gates.gate-{place}]\nmetric = "{metric}"\nat_least = 0.5\n'
        for place, metric in enumerate(GATES)
    )


def records(now: float) -> Iterator[Record]:
    """Six hours of traffic of every pipeline."""
    rng, number = random.Random(5), count(1)
    for minute in range(0, MINUTES, EVERY):
        for place in range(PIPELINES):
            yield Record(
                v=1,
                trace_id=f"{next(number):032x}",
                ts=now - 60.0 * (MINUTES - minute) + rng.random(),
                pipeline=f"team-{place:02d}",
                source="live",
                q=f"what is {rng.randrange(200)}",
                answer_json=Answer("not in context" if rng.random() < 0.1 else "so", ["d1"]),
                retrieved_ids=["d1", "d2"],
                latency_ms=Latency(total=300.0 + rng.random()),
                build=f"v{2 * minute // MINUTES}",
            )


def cost(server: Server, path: str) -> tuple[float, float, int]:
    """CPU and wall milliseconds of a page, the mean of some rounds, and its size; size 0 where it is not found."""
    size, cpu, started = 0, server.cpu(), monotonic()
    for _ in range(ROUNDS):
        try:
            with urlopen(f"http://{server.admin}{path}", timeout=60) as answer:
                size = len(answer.read())
        except HTTPError:
            return 0.0, 0.0, 0
    return (server.cpu() - cpu) / ROUNDS * 1000, (monotonic() - started) / ROUNDS * 1000, size


def show(server: Server, paths: tuple[str, ...]) -> float:
    """Print the figures of pages; returns the most CPU milliseconds one took."""
    most = 0.0
    for path in paths:
        cpu, wall, size = cost(server, path)
        print(f"  {path:36} {cpu:7.0f} ms CPU {wall:7.0f} ms {size / 1024:8.0f} KiB")
        most = max(most, cpu if path != "/metrics" else 0.0)
    return most


def many_pipelines(folder: Path) -> None:
    """A server with 50 pipelines of 12 gates."""
    (folder / "ragmon.toml").write_text(CONFIG + "".join(gates(f"team-{k:02d}") for k in range(PIPELINES)))
    server = Server(folder)
    exporter = OtlpExporter(f"http://{server.otlp}", resource={"service.name": "bench"})
    batch: list[Record] = []
    for record in records(time()):
        batch.append(record)
        if len(batch) == 200:
            exporter.deliver(batch)
            batch = []
    print(f"{PIPELINES} pipelines of {len(GATES)} gates, six hours of traffic (asked: {ASKED:.0f} ms of CPU a page)")
    show(server, NAMED)
    server.end(signal.SIGTERM)


def large_journal(folder: Path, n: int) -> None:
    """A server with a journal of a million records."""
    (folder / "ragmon.toml").write_text(CONFIG.replace("1GB", "4GB"))
    server = Server(folder)
    feed(server, n)
    pipeline = _pipeline(server)
    print(f"a journal of {n} records (asked: {LONGEST:.0f} ms a page)")
    gate = f"/p/{pipeline}/empty_retrieval_rate"
    show(server, ("/", f"/p/{pipeline}", gate, f"{gate}?span=24h", "/incidents", "/gold", "/monitor", "/metrics"))
    server.end(signal.SIGTERM)


def _pipeline(server: Server) -> str:
    with urlopen(f"http://{server.admin}/", timeout=60) as answer:
        return str(answer.read().decode().partition('href="p/')[2].partition('"')[0])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    n = parser.parse_args().records
    with tempfile.TemporaryDirectory() as name:
        many_pipelines(Path(name))
    with tempfile.TemporaryDirectory() as name:
        large_journal(Path(name), n)


if __name__ == "__main__":
    main()
