"""What a reading of `/metrics` costs while traffic goes on: many pipelines, slices, large gold sets.

The server's state is in this process, so that its CPU is told apart from that of HTTP and the journal. Before each
reading some records arrive in every pipeline, and ten seconds pass.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import process_time
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest

from ragmon.config.load import load
from ragmon.core.record import Answer, Latency, Record
from ragmon.export.prometheus import Collector
from ragmon.server.state import ServerState

BEGIN = 1_763_683_200.0
MINUTES = 90
"""Minutes of traffic before the first reading: rows of the first half hour are folded."""
READINGS = 9
GATES = ("answer_precision", "citation_scope", "coverage", "compliance", "recall@5", "under_refusal_rate")
PER_MINUTE = 12
"""Records of a pipeline in a minute; every third one asks a gold question."""


class Case(NamedTuple):
    """A server whose readings are measured.

    Attributes:
        name: What it is.
        pipelines: How many pipelines it has.
        slices: How many values the tag `team` has.
        items: Gold items, which the records ask one after another.
        asked: CPU milliseconds that a reading may take.
    """

    name: str
    pipelines: int
    slices: int
    items: int
    asked: float


CASES = (
    Case("one pipeline", 1, 0, 600, 10.0),
    Case("20 pipelines", 20, 0, 600, 150.0),
    Case("10 slices", 1, 10, 600, 50.0),
    Case("20,000 gold items", 1, 0, 20_000, 30.0),
    Case("100,000 gold items", 1, 0, 100_000, 30.0),
)


def write_config(folder: Path, case: Case) -> Path:
    """The configuration and the gold set of a case."""
    with (folder / "gold.jsonl").open("w") as file:
        for item in range(case.items):
            gold = {"qid": f"q{item}", "q": f"what is {item}?", "answerable": True, "gold_citations": [f"d{item % 50}"]}
            file.write(json.dumps({**gold, "gold_claim_substr": [f"value {item}"]}) + "\n")
    text = '[gold.main]\npath = "gold.jsonl"\n'
    if case.slices:
        text += f"[slices]\nteam = {json.dumps([f'team-{n}' for n in range(case.slices)])}\n"
    for place in range(case.pipelines):
        for name in GATES:
            text += f'[pipelines.p{place}.gates.{name.replace("@", "_")}]\nmetric = "{name}"\nat_least = 0.01\n'
    path = folder / "ragmon.toml"
    path.write_text(text)
    return path


class Traffic:
    """Seeded records of a case.

    Args:
        case: The case.
    """

    def __init__(self, case: Case) -> None:
        self._case, self._rng, self._number = case, random.Random(7), 0

    def at(self, now: float, each: int) -> Iterator[Record]:
        """Records of every pipeline at a time, so many of each."""
        for place in range(self._case.pipelines):
            for _ in range(each):
                yield self._record(now, f"p{place}")

    def _record(self, now: float, pipeline: str) -> Record:
        rng, self._number = self._rng, self._number + 1
        asks_gold = self._number % 3 == 0
        item = self._number // 3 % self._case.items
        ids = [f"d{rng.randrange(50)}" for _ in range(5)]
        total = rng.lognormvariate(5.9, 0.5)
        return Record(
            v=1,
            trace_id=f"{self._number:032x}",
            ts=now,
            pipeline=pipeline,
            source="probe" if asks_gold else "live",
            qid=f"q{item}" if asks_gold else None,
            q=f"what is {item}?" if asks_gold else f"tell me of {self._number}",
            retrieved_ids=ids,
            answer_json=Answer("not in context", []) if rng.random() < 0.1 else Answer(f"value {item}", ids[:2]),
            latency_ms=Latency(total=total, retrieve=total / 4, generate=total / 2),
            tags={"team": f"team-{rng.randrange(self._case.slices)}"} if self._case.slices else None,
            build="b1",
        )


def measure(case: Case, folder: Path) -> tuple[int, float, float, float]:
    """Series, and CPU milliseconds of a start, of the first reading and of a later one."""
    config = write_config(folder, case)
    begin = process_time()
    state = ServerState(load(config))
    start = process_time() - begin
    traffic, now = Traffic(case), BEGIN
    each = max(PER_MINUTE, 3 * case.items // MINUTES) if case.pipelines == 1 else PER_MINUTE
    for _ in range(MINUTES):
        for record in traffic.at(now, each):
            state.engine.observe(record, now)
        now += 60.0
    registry = CollectorRegistry()
    registry.register(Collector(lambda: state.monitor_snapshot(now, 0)))
    times: list[float] = []
    body = b""
    for _ in range(READINGS + 1):
        for record in traffic.at(now, 2):
            state.engine.observe(record, now)
        now += 10.0
        state.engine.advance(now)
        begin = process_time()
        body = generate_latest(registry)  # type: ignore[no-untyped-call]
        times.append(process_time() - begin)
    series = sum(not line.startswith(b"#") for line in body.splitlines())
    return series, start * 1000, times[0] * 1000, median(times[1:]) * 1000


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names hold this")
    only = parser.parse_args().only
    print("A reading of /metrics, CPU ms                series   start   first   later   asked")
    for case in CASES:
        if only in case.name:
            with tempfile.TemporaryDirectory() as name:
                series, start, first, later = measure(case, Path(name))
            print(f"{case.name:42} {series:8} {start:7.0f} {first:7.0f} {later:7.1f} {case.asked:7.0f}")


if __name__ == "__main__":
    main()
