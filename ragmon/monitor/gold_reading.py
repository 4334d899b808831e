"""What pages show of gold items and raters: it is read off the counts, which are locked for one table at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from time import monotonic, thread_time
from typing import Final, NamedTuple

from ragmon.core.constants import DROPPED_PIPELINES, FRESH, HOUR
from ragmon.core.errors import UnknownNameError
from ragmon.gates.history import GoldFindings, TimeSpan, item_findings, oldest
from ragmon.monitor.engine import Engine
from ragmon.scoring.ratings import TTL, Raters, raters_of
from ragmon.scoring.windows import ItemPoints, SetPipeline, add_points, item_tables, set_pipelines

SPANS: Final = (
    TimeSpan("10m", "last 10 min", 600, 10),
    TimeSpan("1h", "last hour", HOUR, 10),
    TimeSpan("6h", "last 6 h", 6 * HOUR, HOUR),
    TimeSpan("24h", "last 24 h", 24 * HOUR, HOUR),
)
"""The spans that can be compared with what was before them; those up to an hour by steps, the others by hours."""
USUAL: Final = ("6h", "1h", "10m")
"""The spans in order: the first is shown before which the monitor counted for as long, or the last."""
SHOWN: Final = 20
"""Items of each kind that are shown of a set and pipeline."""
IDLE: Final = 50
"""What was read is shown again for so many times as long as reading it took: a page that comes again and again takes
2 % of a core at most.
"""
_DAYS: Final = round(TTL / (24 * HOUR))
"""For how long ratings are kept."""
ATTEMPTS: Final = 3
"""How often reading is begun."""


class _Reading(NamedTuple):
    """What was read at a moment."""

    engine: Engine
    now: float
    points: Mapping[SetPipeline, ItemPoints]
    raters: Raters
    labellable: Mapping[str, int]


class GoldReader:
    """Reads gold items and raters.

    Args:
        locked: The engine and the time, and what they are locked by while they are read.
    """

    def __init__(self, locked: Callable[[], AbstractContextManager[tuple[Engine, float]]]) -> None:
        self._locked = locked
        self._found: dict[str, tuple[float, Engine, GoldFindings]] = {}

    def spans(self) -> list[TimeSpan]:
        """The spans that can be compared: counts are kept for at least as long before them."""
        with self._locked() as (engine, _):
            retention = engine.scorer.state.retention or FRESH
        return [span for span in SPANS if 2 * span.seconds <= retention] or [SPANS[0]]

    def findings(self, name: str = "") -> GoldFindings:
        """The findings, which may be as old as `IDLE` times the time it took to read them.

        Args:
            name: The name of the span; "" takes one that suits the age of the counts.

        Raises:
            UnknownNameError: There is no such span.
        """
        spans = {span.name: span for span in self.spans()}
        if name and name not in spans:
            raise UnknownNameError("span", name, spans)
        with self._locked() as (engine, _):
            expires, found_in, found = self._found.get(name, (0.0, None, None))
            if found is not None and found_in is engine and monotonic() < expires:
                return found
        started = thread_time()
        reading = self._read()
        found = _findings(reading, spans, name)
        self._found[name] = (monotonic() + IDLE * (thread_time() - started), reading.engine, found)
        return found

    def _read(self) -> _Reading:
        with self._locked() as (engine, now):
            state, book = engine.scorer.state, engine.labels.book
            versions = {(gold.name, gold.version) for gold in engine.scorer.gold.infos()}
            asked = sorted(one for one in set_pipelines(state) if (one.gold, one.version) in versions)
            rated, labellable = book.rated(now - TTL), state.cohorts.labellable(now - TTL)
        points = {one: self._points(engine, one) for one in asked if one.pipeline != DROPPED_PIPELINES}
        return _Reading(engine, now, points, raters_of(rated), labellable)

    def _points(self, engine: Engine, asked: SetPipeline) -> ItemPoints:
        """The answers to the items of a set; whoever counts records waits for one table at a time.

        Where rows are folded meanwhile, every five minutes, all is read anew.
        """
        for _ in range(ATTEMPTS):
            points: ItemPoints = {}
            with self._locked():
                folded, tables = engine.scorer.state.fold_due, item_tables(engine.scorer.state, asked)
            for begin, end, table in tables:
                with self._locked():
                    add_points(points, begin, end, table)
            with self._locked():
                if engine.scorer.state.fold_due == folded:
                    break
        return points


def _findings(reading: _Reading, spans: Mapping[str, TimeSpan], name: str) -> GoldFindings:
    begins = [begin for points in reading.points.values() if (begin := oldest(points.values())) is not None]
    begin = min(begins, default=None)
    names = [name] if name else [usual for usual in USUAL if usual in spans]
    for usual in names:
        span, cut = spans[usual], _cut(reading.now, spans[usual])
        if begin is not None and cut - begin >= span.seconds:
            break
    sets = {one: item_findings(points, cut, SHOWN) for one, points in reading.points.items()}
    return GoldFindings(span, begin, cut, reading.now, sets, reading.raters, reading.labellable, _DAYS)


def _cut(now: float, span: TimeSpan) -> float:
    """Where a span begins: at the edge of a step or an hour, so that none lies in both parts."""
    return (int(now - span.seconds) // span.step + (1 if span.step < HOUR else 0)) * span.step
