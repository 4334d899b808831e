"""The rows a gate reads in a stretch of time, step by step and on both sides of a cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ragmon.core import constants
from ragmon.core.constants import FOLDED, STEP
from ragmon.core.policy import Outcome
from ragmon.scoring.counts import Row
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.windows import UNTIMED, SeriesKey, State
from ragmon.why.change import Point, Sums
from ragmon.why.measures import Measure


class Reads(NamedTuple):
    """Which series a gate reads.

    Attributes:
        pipeline, where: As the gate says.
        source: The source; "" for all that are counted once.
        gold: The gold set; "" for requests without one; None for all requests.
    """

    pipeline: str
    source: str
    gold: str | None
    where: str

    def takes(self, key: SeriesKey) -> bool:
        """Whether a series is one of them, in any slice and of any sampling."""
        source = key.source == self.source if self.source else key.source not in constants.AGAIN
        return key.pipeline == self.pipeline and source and self.gold in (None, key.gold)


def reads(outcome: Outcome, state: State, table: ScoreTable) -> Reads:
    """Which series a gate's outcome rests on; without data in its window, those of the gold set with most records."""
    gate, gold = outcome.gate, outcome.gold or outcome.gate.gold or None
    if gold is None and gate.kind == "threshold" and table.metrics[gate.metric].needs_gold:
        sizes: dict[str, int] = {}
        for key, series in state.series.items():
            if (key.pipeline, key.source, key.slice) == (gate.pipeline, outcome.source, gate.where) and key.gold:
                sizes[key.gold] = sizes.get(key.gold, 0) + sum(row.count for row in state.window(series, None, 0))
        gold = max(sorted(sizes), key=sizes.__getitem__, default="")
    return Reads(gate.pipeline, outcome.source, gold, gate.where)


@dataclass(frozen=True, eq=False)
class Look:
    """What was counted in a stretch of time.

    Args:
        state: Everything that was counted.
        reads: Which series.
        begin, end: The stretch, seconds since the epoch.
        version: Of the gold set; None for all.
    """

    state: State
    reads: Reads
    begin: int
    end: int
    version: str | None = None

    @cached_property
    def every(self) -> tuple[SeriesKey, ...]:
        """All series it may read, slices and calls that were kept for their outcome included."""
        return tuple(
            key
            for key in sorted(self.state.series)
            if self.reads.takes(key) and self.version in (None, key.gold_version)
        )

    @cached_property
    def keys(self) -> tuple[SeriesKey, ...]:
        """The series of audit members, which a gate's verdict and its alarm rest on."""
        return tuple(key for key in self.every if key.drawn and key.slice == self.reads.where)

    @cached_property
    def _edge(self) -> int:
        """Where rows of `STEP` seconds begin; before it they are `FOLDED` seconds long."""
        folded = (start for key in self.every for start in self.state.series[key].folded if start != UNTIMED)
        return max(folded, default=-FOLDED) + FOLDED

    def rows(self, key: SeriesKey, begin: float, end: float) -> Iterator[tuple[int, int, Row]]:
        """Start and end of each step that starts in a stretch, and its row; a step may have two."""
        series = self.state.series[key]
        for start, row in series.fresh.items():
            place = start if start >= self._edge else start // FOLDED * FOLDED
            if begin <= place < end:
                yield place, place + (STEP if start >= self._edge else FOLDED), row
        for start, row in series.folded.items():
            if start != UNTIMED and begin <= start < end:
                yield start, start + FOLDED, row

    @cached_property
    def steps(self) -> dict[int, int]:
        """Where every step with a record ends, by its start."""
        return {start: end for key in self.keys for start, end, _ in self.rows(key, self.begin, self.end)}

    def points(self, measure: Measure) -> list[Point]:
        """The steps with at least one score, in the order of time."""
        found: dict[int, Sums] = {}
        for key in self.keys:
            for start, _, row in self.rows(key, self.begin, self.end):
                sums = measure.sums(measure.of(key, row))
                if sums.n:
                    found[start] = found[start].plus(sums) if start in found else sums
        return [Point(start, self.steps[start], found[start]) for start in sorted(found)]

    def merged(self, keys: Iterable[SeriesKey], begin: float, end: float) -> dict[SeriesKey, Row]:
        """What each series counted in a stretch, as one row."""
        found: dict[SeriesKey, Row] = {}
        for key in keys:
            whole = found[key] = Row()
            for _, _, row in self.rows(key, begin, end):
                whole.merge(row)
        return found


def first_seen(state: State, keys: Sequence[SeriesKey]) -> float | None:
    """The start of the first step in which any of some series has a record; None where it is older than any step."""
    starts = []
    for key in keys:
        series = state.series[key]
        if series.past.count or UNTIMED in series.folded:
            return None
        starts += [*series.fresh, *series.folded]
    return float(min(starts)) if starts else None
