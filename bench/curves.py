"""CPU a record while pipelines, gold items, windows and slices grow: each curve is to be flat within a tenth.

`python -m bench.curves`: replay, and the live scorer with its alarms (`Engine.observe`). What a run costs once, such
as the first answer to a gold item, is not in it: replay is the slope between a file and the same file several times,
the live scorer is whole minutes after some others.
"""

from __future__ import annotations

import gc
import logging
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import process_time
from typing import NamedTuple

from bench.readings import BEGIN, Case, Traffic, write_config
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core.record import Record, encode
from ragmon.ingest.gold import load_gold
from ragmon.monitor.replay import run_files
from ragmon.scoring.buckets import State
from ragmon.scoring.scorer import ScorerFactory
from ragmon.server.state import ServerState

RECORDS = 4_000
"""Records of the file."""
TIMES = 3
"""How often the file is replayed in a run, beside once."""
ROUNDS = 5
LIVE = 2_000
"""Records of a round of the live scorer, at least; it ends with a minute, as alarms work when a minute has ended."""
WARM = 2
"""Minutes of the live scorer that are not measured."""
RATE = 2
"""Records of a pipeline in a second, so that its rows and minutes hold as many however many pipelines there are."""
WINDOWS = ("1h", "5m", "30m", "6h", "24h")
FLAT = 0.10
"""How far the points of a flat curve may be above its first one."""


class Point(NamedTuple):
    """One configuration, and how much of one thing it has."""

    amount: int
    case: Case
    windows: int


class Curve(NamedTuple):
    """What grows.

    Attributes:
        name: What it is.
        points: The configurations, the smallest first.
        reason: Why a point may be above the first all the same.
        flat_from: The smallest amount from which the cost is to be constant.
        first_step: Why an amount below that costs something else.
    """

    name: str
    points: tuple[Point, ...]
    reason: str
    flat_from: int = 1
    first_step: str = ""


class Cost:
    """The CPU of some records, as the difference of two measurements that are repeated.

    Args:
        records: How many records lie between them.
        whole: Measures the seconds with these records.
        rest: Measures the seconds without them.
    """

    def __init__(self, records: int, whole: Callable[[], float], rest: Callable[[], float] = lambda: 0.0) -> None:
        self._records, self._whole, self._rest = records, whole, rest
        self._best, self._best_rest = float("inf"), float("inf")

    def measure(self) -> None:
        """Measure once more; of each measurement the best counts, not that of their difference."""
        self._best, self._best_rest = min(self._best, self._whole()), min(self._best_rest, self._rest())

    @property
    def microseconds(self) -> float:
        """CPU microseconds a record."""
        return (self._best - self._best_rest) / self._records * 1e6


def point(amount: int, *, pipelines: int = 1, slices: int = 0, items: int = 600, windows: int = 3) -> Point:
    """A configuration that differs from the usual one in one thing."""
    return Point(amount, Case("", pipelines, slices, items, 0.0), windows)


CURVES = (
    Curve(
        "pipelines",
        tuple(point(n, pipelines=n) for n in (1, 10, 50)),
        "each file and each row has a cost a stream, and one pipeline is one stream",
    ),
    Curve(
        "gold items",
        tuple(point(n, items=n) for n in (100, 10_000, 100_000)),
        "what a run costs once grows with the items, and its noise is left in the slope",
    ),
    Curve(
        "windows",
        tuple(point(n, windows=n) for n in (1, 3, 5)),
        "a window is a sum of rows that is made when it is read, so only noise is left",
    ),
    Curve(
        "slices",
        tuple(point(n, slices=n) for n in (0, 1, 10)),
        "more series are in use at a time",
        first_step="a record without a slice is counted in one series, with a slice in two, however many there are",
    ),
)


def settings_of(folder: Path, at: Point) -> Settings:
    """The configuration of a point."""
    path = write_config(folder, at.case)
    windows = ", ".join(f'"{name}"' for name in WINDOWS[: at.windows])
    path.write_text(f"windows = [{windows}]\n{path.read_text()}")
    return load(path)


def traffic(at: Point) -> Iterator[Record]:
    """Endless records of a point, in the order of their time."""
    made, now = Traffic(at.case), BEGIN
    while True:
        yield from made.at(now, 1)
        now += 1 / RATE


def replay(folder: Path, at: Point, settings: Settings) -> Cost:
    """The cost of replay: one scorer, whose state is emptied before each measurement."""
    path = folder / "traces.jsonl"
    path.write_bytes(b"".join(encode(record) for record in islice(traffic(at), RECORDS)))
    scorer = ScorerFactory(settings, load_gold(settings.gold))()

    def seconds(times: int) -> float:
        scorer.restore(State())
        gc.collect()
        started = process_time()
        run_files([str(path)] * times, lambda: scorer)
        return process_time() - started

    return Cost((TIMES - 1) * RECORDS, lambda: seconds(TIMES), lambda: seconds(1))


def live(at: Point, settings: Settings) -> Cost:
    """The cost of the live scorer: each measurement goes on where the last one ended."""
    engine, records = ServerState(settings).engine, traffic(at)
    minute = 60 * RATE * at.case.pipelines
    count = -(-LIVE // minute) * minute
    for record in islice(records, WARM * minute):
        engine.observe(record, record.ts or BEGIN)

    def seconds() -> float:
        batch = list(islice(records, count))
        gc.collect()
        started = process_time()
        for record in batch:
            engine.observe(record, record.ts or BEGIN)
        return process_time() - started

    return Cost(count, seconds)


def measure(curve: Curve) -> dict[str, dict[int, float]]:
    """Microseconds a record in interleaved rounds, by what is measured and amount."""
    costs: dict[str, dict[int, Cost]] = {"replay": {}, "live": {}}
    with tempfile.TemporaryDirectory() as name:
        for at in curve.points:
            folder = Path(name, str(at.amount))
            folder.mkdir()
            settings = settings_of(folder, at)
            costs["replay"][at.amount] = replay(folder, at, settings)
            costs["live"][at.amount] = live(at, settings)
        gc.collect()
        gc.freeze()  # the gold of all points is there, and a collection would look at it in every run
        for _ in range(ROUNDS):
            for by_amount in costs.values():
                for cost in by_amount.values():
                    cost.measure()
        gc.unfreeze()
    return {what: {amount: cost.microseconds for amount, cost in found.items()} for what, found in costs.items()}


def show(curve: Curve) -> None:
    """Print the curve, and what of it is not flat."""
    for what, costs in measure(curve).items():
        points = "  ".join(f"{amount:>7,}: {cost:6.2f}" for amount, cost in costs.items())
        flat = [cost for amount, cost in costs.items() if amount >= curve.flat_from]
        rise = max(flat) / flat[0] - 1
        verdict = "flat" if rise <= FLAT else f"NOT FLAT, {rise:+.0%}: {curve.reason}"
        print(f"{curve.name:11} {what:6} {points}   {verdict}", flush=True)
    if curve.first_step:
        print(f"{'':12}{curve.first_step}")


def main() -> None:
    """Print the curves."""
    logging.disable()  # alarms fire
    print("CPU microseconds a record")
    for curve in CURVES:
        show(curve)


if __name__ == "__main__":
    main()
