"""One row, measured: `python -m bench.peers.measure KEY ROUNDS FILE`, in the environment that has the tracers.

CPU microseconds a call above the undecorated call, the best of rounds over undecorated, bare span and decorated.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import process_time, thread_time
from typing import Final

import msgspec

from bench.peers.offline import offline
from bench.peers.tracers import Function, Tracing, bare
from bench.peers.variants import VARIANTS, Variant

RECORDED: Final = 400
DROPPED: Final = 10_000
"""Calls between two flushes, where they are recorded and where they are not; the former fit every tracer's queue."""
RESULT: Final = {
    "answer": "The harbour master sets the fee, says the handbook of the port.",
    "citations": ["doc1#2"],
    "documents": [{"id": f"doc{place}#1", "text": "x" * 540, "score": 0.5} for place in range(5)],
}


class Cost(msgspec.Struct):
    """CPU microseconds a call.

    Attributes:
        caller: Of the calling thread.
        process: Of all threads, until nothing is on its way any more.
    """

    caller: float = float("inf")
    process: float = float("inf")

    def lower(self, other: Cost) -> None:
        """Keep the better of both."""
        self.caller, self.process = min(self.caller, other.caller), min(self.process, other.process)

    def above(self, floor: Cost) -> Cost:
        """What is left without the floor."""
        return Cost(self.caller - floor.caller, self.process - floor.process)


class Measured(msgspec.Struct):
    """What one process found.

    Attributes:
        version: Of the tracer's package.
        bare: A recorded span of the bare SDK in this process.
        trivial: A decorated function that returns a word.
        rag: A decorated function that returns an answer and five documents.
        calls: Decorated calls made.
        recorded: How many of them arrived where they would leave the process.
        refused: Connections that would have left the machine, by host.
    """

    version: str
    bare: Cost
    trivial: Cost
    rag: Cost
    calls: int
    recorded: int
    refused: dict[str, int]


def trivial(question: str) -> object:
    """A pipeline that costs nothing."""
    return "yes"


def rag(question: str) -> object:
    """The same, with what a pipeline returns."""
    return RESULT


def block(function: Function, flush: Callable[[], object], calls: int) -> Cost:
    """What calls cost, and what they leave to do."""
    before, started = process_time(), thread_time()
    for _ in range(calls):
        function("Who sets the fee?")
    caller = thread_time() - started
    flush()
    return Cost(caller / calls * 1e6, (process_time() - before) / calls * 1e6)


def measure(variant: Variant, tracing: Tracing, rounds: int, refused: Counter[str]) -> Measured:
    """Measure a tracer that is set up."""
    calls = RECORDED if variant.share == 1 else DROPPED
    reference = bare(1.0)
    blocks = {
        "plain": (trivial, lambda: None, DROPPED),
        "bare": (reference.decorate(trivial), reference.flush, RECORDED),
        "trivial": (tracing.decorate(trivial), tracing.flush, calls),
        "rag": (tracing.decorate(rag), tracing.flush, calls),
    }
    best = {name: Cost() for name in blocks}
    for _ in range(rounds):
        for name, (function, flush, times) in blocks.items():
            best[name].lower(block(function, flush, times))
    floor = best.pop("plain")
    above = {name: cost.above(floor) for name, cost in best.items()}
    made, found = 2 * rounds * calls, tracing.recorded()
    return Measured(version(variant.package), calls=made, recorded=found, refused=dict(refused), **above)


def main() -> None:
    """Measure the row that is asked for."""
    key, rounds, file = sys.argv[1:]
    variant = next(variant for variant in VARIANTS if variant.key == key)
    refused: Counter[str] = Counter()
    with offline(refused):
        found = measure(variant, variant.set_up(), int(rounds), refused)
    Path(file).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
