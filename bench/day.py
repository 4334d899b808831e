"""A day of live traffic in one server: what memory grows by, and what readings of it cost.

`python -m bench.day`: five varied records a second, through the engine of a server, in this process.
"""

from __future__ import annotations

import gc
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import process_time

from bench.data import gold_set, write_varied
from bench.replay import write_gold
from ragmon.config.load import load
from ragmon.core.record import Record, decode_entry
from ragmon.server.state import ServerState
from ragmon.stream.chunk import BatchCounts

RATE = 5
"""Records a second."""
SECONDS = 86_400
VARIED = 50_000
"""Distinct records; they come again at later times, with the questions, sessions and answers that they have."""
CONFIG = """
[gold.main]
path = "gold.jsonl"

[gates.right]
metric = "answer_precision"
at_least = 0.5

[gates.found]
metric = "recall@5"
at_least = 0.5
"""


def resident() -> float:
    """Resident MB of this process."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1024


def day(folder: Path) -> Iterator[tuple[float, Record]]:
    """The arrival of each record, and the record."""
    path = folder / "varied"
    write_varied(path, VARIED, gold_set())
    lines, begin = path.read_bytes().splitlines(), 1_763_683_200.0
    for number in range(RATE * SECONDS):
        record = decode_entry(lines[number % VARIED])
        assert isinstance(record, Record)
        record.ts = begin + number / RATE
        yield record.ts, record


def main() -> None:
    """Print the figures."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_gold(folder / "gold.jsonl")
        (folder / "ragmon.toml").write_text(CONFIG)
        state = ServerState(load(folder / "ragmon.toml"))
        records = day(folder)
        arrival, record = next(records)
        state.engine.observe(record, arrival)
        before, started = resident(), process_time()
        for number, (arrival, record) in enumerate(records):
            state.apply(number, arrival, BatchCounts(), [record])
            state.failures.clear()
        took = (process_time() - started) / (RATE * SECONDS)
        print(f"a record costs {took * 1e6:.0f} us of CPU, with the benchmark's own reading of it")
        print(f"memory grows by {resident() - before:.0f} MB in a day (asked 70)")
        complete: list[float] = []
        again: list[float] = []
        for step in range(5):
            arrival += 10.0
            record.ts = arrival
            state.engine.observe(record, arrival)
            for times in (complete, again):
                begin = process_time()
                state.monitor_snapshot(arrival, 0)
                times.append((process_time() - begin) * 1000)
            if not step:
                print(f"the first reading of that day takes {complete[0]:.0f} ms (asked 220)")
        print(f"a reading after ten seconds takes {median(complete[1:]):.0f} ms")
        print(f"if nothing closed since {median(again):.0f} ms (asked 20)")
        begin = process_time()
        size = len(state.dump())
        print(f"a checkpoint takes {(process_time() - begin) * 1000:.0f} ms and {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
