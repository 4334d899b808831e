"""Workers and head: CPU a record and a chunk, sizes of chunks, and the capacity that follows; ratios to `replay`.

`python -m bench.stream`: prints the tables of docs/scale.md for the machine it runs on.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time

from msgspec.structs import replace

from bench.data import START, gold_set, write_traces
from bench.otlp import request
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core.record import Record, encode
from ragmon.ingest.gold import load_gold
from ragmon.ingest.lines import decode
from ragmon.monitor.engine import Engine
from ragmon.monitor.replay import AlarmReplay, run_files
from ragmon.scoring.scorer import ScorerFactory
from ragmon.stream.chunk import Chunk, ChunkAdder
from ragmon.stream.worker import PartitionCounter, TracePartitionCounter

RECORDS = 40_000
ROUNDS = 3
RATES = (5, 90, 700, 3_750)
"""Records a second of one partition: a chunk of ten seconds has ten times as many."""
BUSY = 0.6
"""Share of a core that a worker uses when it is sized."""
NEEDS = ((1_000, 0.05), (100_000, 0.001), (100_000, 0.05), (10_000_000, 0.001), (10_000_000, 0.05))
"""Requests a second, and the share that is sampled."""


def settings_in(folder: Path) -> Settings:
    """A configuration with a gold set of 600 items."""
    gold = gold_set().items[:600]
    lines = [
        f'{{"qid": "{item.qid}", "question": "{item.question}", "answerable": {str(item.answerable).lower()}'
        + (
            f', "gold_claim_substr": ["{item.claim_substrings[0]}"], "gold_citations": ["{item.citations[0]}"]'
            if item.citations and item.claim_substrings
            else ""
        )
        + "}\n"
        for item in gold
    ]
    (folder / "gold.jsonl").write_text("".join(lines))
    path = folder / "ragmon.toml"
    path.write_text('[gold.gold]\npath = "gold.jsonl"\n[gates]\npreset = "default"\n')
    return load(path, environ={})


def traffic(folder: Path, rate: float) -> list[tuple[float, bytes]]:
    """User traffic of many sessions at a rate, as arrivals and lines."""
    path = folder / "traces.jsonl"
    if not path.exists():
        write_traces(path, RECORDS, gold_set())
    found = []
    for place, line in enumerate(path.read_bytes().splitlines()):
        record = decode(line)
        assert isinstance(record, Record)
        at = START + place / rate
        record = replace(record, ts=at, source="live", qid=None, session=f"session {place // 2}")
        found.append((at, encode(record)))
    return found


def chunks_of(settings: Settings, log: list[tuple[float, bytes]]) -> Iterator[Chunk]:
    """The chunks of a log of records."""
    counter = PartitionCounter("records/0", 0, settings, load_gold(settings.gold))
    for offset, (at, line) in enumerate(log):
        yield from counter.take(offset, at, line, [decode(line)])


def requests_of(log: list[tuple[float, bytes]]) -> list[tuple[float, bytes]]:
    """The same records as OTLP requests, one each."""
    found = []
    for at, line in log:
        record = decode(line)
        assert isinstance(record, Record)
        found.append((at, request([record], "support")))
    return found


def count_requests(settings: Settings, log: list[tuple[float, bytes]]) -> None:
    """Count a log of requests."""
    counter = TracePartitionCounter("otlp_spans/0", 0, settings, load_gold(settings.gold))
    for offset, (at, body) in enumerate(log):
        for chunk in counter.take_request(offset, at, body):
            chunk.dump()


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    gc.collect()
    began = process_time()
    work()
    return process_time() - began


def per_record(settings: Settings, folder: Path) -> dict[str, float]:
    """Microseconds a record: the best of some rounds that take turns."""
    log = traffic(folder, 700)
    lines, requests = folder / "lines.jsonl", requests_of(log)
    lines.write_bytes(b"".join(line for _, line in log))
    factory = ScorerFactory(settings, load_gold(settings.gold))
    works: dict[str, Callable[[], object]] = {
        "replay": lambda: run_files([str(lines)], factory),
        "replay, alarms": lambda: run_files([str(lines)], factory, follower=AlarmReplay(factory)),
        "worker, lines": lambda: [chunk.dump() for chunk in chunks_of(settings, log)],
        "worker, OTLP": lambda: count_requests(settings, requests),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(ROUNDS):
        for name, work in works.items():
            best[name] = min(best[name], seconds(work) / len(log) * 1e6)
    return best


def per_chunk(settings: Settings, folder: Path, rate: float) -> tuple[int, float]:
    """Bytes of a chunk in the middle, and the head's milliseconds for it."""
    bodies = [chunk.dump() for chunk in chunks_of(settings, traffic(folder, rate)[: int(rate * 130) + 1])]
    engine, adder, took = Engine(settings), ChunkAdder(), list[float]()

    def add(body: bytes) -> None:
        chunk = Chunk.load(body)
        if adder.take(chunk):
            engine.add(chunk.counts, chunk.now)
        engine.advance(adder.watermark(0.0))

    for body in bodies:
        took.append(seconds(partial(add, body)) * 1000)
    return sorted(map(len, bodies[1:]))[len(bodies) // 2 - 1], median(took[1:])


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = settings_in(folder)
        micros = per_record(settings, folder)
        print("CPU a record, us:", {what: round(us, 1) for what, us in micros.items()})
        ratio = micros["worker, lines"] / micros["replay"]
        print(f"  a worker costs {ratio:.2f} x replay (asked: at most 2.0)")
        print("records a chunk | bytes | bytes a record | head, ms")
        heads = {}
        for rate in RATES:
            size, heads[rate] = per_chunk(settings, folder, rate)
            print(f"  {rate * 10:>7,} | {size:>7,} | {size / rate / 10:>5.1f} | {heads[rate]:.1f}")
        print("requests/s, sampled | records/s | workers, OTLP | head, share of a core at 12 partitions")
        for requests, share in NEEDS:
            sampled = requests * share
            workers = sampled * micros["worker, OTLP"] / 1e6 / BUSY
            nearest = min(RATES, key=lambda known, sampled=sampled: abs(known - sampled / 12))  # type: ignore[misc]
            share_of_core = 12 * heads[nearest] / 10_000
            print(f"  {requests:>10,}, {share:.1%} | {sampled:>9,.0f} | {workers:>6.2f} | {share_of_core:.1%}")


if __name__ == "__main__":
    main()
