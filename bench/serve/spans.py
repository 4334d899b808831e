"""CPU microseconds a span without the transport: parsed, mapped, on disk, scored; and what gzip adds."""

from __future__ import annotations

import gzip
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import monotonic, process_time, sleep

from bench.serve import bodies
from ragmon.config.load import load
from ragmon.ingest.otlp import read
from ragmon.ingest.receiver import Encoding, inflate
from ragmon.server.server import make_writer
from ragmon.server.state import Clock
from ragmon.server.writer import JournalWriter
from ragmon.stream.assembler import AssemblyLimits

ROUNDS = 5
BATCHES = 12
ASKED = {"openinference": 28.0, "ragmon": 18.0}
"""The goal, in microseconds on a machine 1.36 times as fast as the one the figures of this project are from."""


def cost(sent: Sequence[bytes], prepare: Callable[[bytes], bytes] = bytes) -> float:
    """CPU microseconds a span of some requests, each handed in when the one before is on disk."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "ragmon.toml"
        config.write_text('[serve]\nstate_dir = "state"\n')
        writer = make_writer(load(config, environ={}), Clock(), AssemblyLimits(idle=0.0))
        writer.start()
        expected = sum(read(body, json=False).spans for body in sent)
        bodies_as_sent = [prepare(body) for body in sent]
        started = process_time()
        for body in bodies_as_sent:
            writer.traces(inflate(body, "gzip") if prepare is not bytes else body, Encoding.PROTOBUF).result()
        _settle(writer)
        took = process_time() - started
        writer.stop()
        writer.journal.close()
    return took / expected * 1e6


def _settle(writer: JournalWriter) -> None:
    deadline = monotonic() + 30
    while monotonic() < deadline and writer.open_traces.pending:
        sleep(0.01)


def main() -> None:
    """Print the figures, measured in turns."""
    rng = random.Random(3)
    shapes = {"openinference": bodies.openinference, "ragmon": bodies.ragmon}
    plain: dict[str, list[float]] = {name: [] for name in shapes}
    zipped: dict[str, list[float]] = {name: [] for name in shapes}
    for _ in range(ROUNDS):
        for name, make in shapes.items():
            plain[name].append(cost(make(rng, BATCHES)))
            zipped[name].append(cost(make(rng, BATCHES), gzip.compress))
    for name, asked in ASKED.items():
        one, two = median(plain[name]), median(zipped[name])
        print(f"{name}: {one:.1f} us a span (asked: {asked:.0f}), compressed {two:.1f}, x {two / one:.2f} (asked: 2)")


if __name__ == "__main__":
    main()
