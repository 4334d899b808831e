"""The history of a running monitor: its gates, of which windows that are over are computed once, and its series."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from time import thread_time
from typing import Any, Final, NamedTuple, TypeVar

from ragmon.alarms.pipelines import AlarmTransition
from ragmon.core.constants import HOUR
from ragmon.core.errors import UnknownNameError
from ragmon.gates.change import first_seen
from ragmon.gates.history import ChangeMark, GateHistory, GateKey, GatePoint, TimeSpan, gate_points
from ragmon.monitor.engine import Engine
from ragmon.monitor.gold_reading import GoldReader
from ragmon.scoring.buckets import SeriesKey
from ragmon.scoring.snapshot import Snapshot, point_ends, take_history

SPANS: Final = {
    "10m": TimeSpan("10m", "last 10 min", 600, 10),
    "1h": TimeSpan("1h", "last hour", HOUR, 60),
    "6h": TimeSpan("6h", "last 6 h", 6 * HOUR, 300),
    "24h": TimeSpan("24h", "last 24 h", 24 * HOUR, HOUR // 2),
    "7d": TimeSpan("7d", "last 7 d", 168 * HOUR, 3 * HOUR),
}
"""What a gate can be shown over; the retention of counts may be shorter."""
OVERVIEW: Final = (TimeSpan("24h", "last 24 h", 24 * HOUR, HOUR), SPANS["1h"], SPANS["10m"])
"""What all gates are shown over: the first of which more than a few windows have a value, or the last."""
GATE: Final = (SPANS["6h"], SPANS["1h"], SPANS["10m"])
"""What one gate is shown over unless a reader chooses, likewise."""
FEW: Final = 3
"""Windows with a value up to which a shorter span is shown."""
LATE: Final = 900.0
"""Seconds after which a window that is over is not read again: records that come later are missing in its point."""
STILL_OPEN: Final = 60
"""The window that is not over is read again after this part of its length, on pages of all gates."""
BUDGET: Final = 0.02
"""Seconds of CPU in which past windows of all gates are computed for a page: more of them when it comes again."""


class _Kind(NamedTuple):
    """Windows that are computed alike.

    Attributes:
        step: Their length, seconds.
        pipeline: Their pipeline; None for all.
        what: What is read: `gates` or `series`.
    """

    step: int
    pipeline: str | None
    what: str


T = TypeVar("T")
ReadWindow = Callable[[Engine, _Kind, int], T]
"""Reads a window, given its end."""


class MonitorHistory:
    """What was in the past. The points of gates that are over come window by window, the newest first.

    Args:
        locked: The engine and the time, and what they are locked by while they are read.

    Attributes:
        gold: Reads how gold items were answered, and who rated answers.
    """

    def __init__(self, locked: Callable[[], AbstractContextManager[tuple[Engine, float]]]) -> None:
        self.gold = GoldReader(locked)
        self._locked = locked
        self._engine: Engine | None = None
        self._finished: dict[_Kind, dict[int, Any]] = {}
        self._open: dict[_Kind, tuple[float, dict[int, Any]]] = {}

    def overview(self) -> tuple[TimeSpan, dict[GateKey, GateHistory]]:
        """The last day of every gate, or less of a young monitor; windows that were not read yet are missing."""
        return self._longest(OVERVIEW, None, BUDGET)

    def of_pipeline(self, pipeline: str, span: str = "") -> tuple[TimeSpan, dict[GateKey, GateHistory]]:
        """The gates of a pipeline over a span of time, all windows of it.

        Args:
            pipeline: The pipeline.
            span: The name of the span; "" takes one that suits the age of the counts.

        Raises:
            UnknownNameError: There is no such span.
        """
        if span and span not in SPANS:
            raise UnknownNameError("span", span, SPANS)
        return self._longest((SPANS[span],) if span else GATE, pipeline, None)

    def series_of(self, pipeline: str) -> tuple[TimeSpan, float, list[Snapshot]]:
        """The series of a pipeline over the last day, or less of a young monitor: the span, its end, the windows."""
        for span in OVERVIEW:
            now, ends = self._ends(span)
            points = self._windows(_Kind(span.step, pipeline, "series"), ends, now, None, _series_in)
            if sum(any(series.records for series in point.series) for point in points.values()) > FEW:
                break
        return span, now, [points[end] for end in ends]

    def transitions(self) -> list[AlarmTransition]:
        """The alarm transitions that are kept, in order of time."""
        with self._locked() as (engine, _):
            return list(engine.transitions)

    def _longest(
        self, spans: Sequence[TimeSpan], pipeline: str | None, budget: float | None
    ) -> tuple[TimeSpan, dict[GateKey, GateHistory]]:
        started = thread_time()
        for span in spans:
            left = None if budget is None else budget - (thread_time() - started)
            histories = self._read(span, pipeline, left)
            if max((len(history.values) for history in histories.values()), default=0) > FEW:
                break
        return span, histories

    def _read(self, span: TimeSpan, pipeline: str | None, budget: float | None) -> dict[GateKey, GateHistory]:
        now, ends = self._ends(span)
        with self._locked() as (engine, _):
            fired = engine.alarm_spans(now - span.seconds, now)
            marks = [] if pipeline is None else changes(engine, pipeline, now - span.seconds)
        points_by_end = self._windows(_Kind(span.step, pipeline, "gates"), ends, now, budget, _gates_in)
        histories: dict[GateKey, GateHistory] = {}
        for end in ends:
            for gate, point in points_by_end.get(end, {}).items():
                histories.setdefault(gate, GateHistory(span, now, [], fired.get(gate, []), marks)).points.append(point)
        return histories

    def _ends(self, span: TimeSpan) -> tuple[float, list[int]]:
        """The time, and the ends of the windows of a span up to it. What another engine counted is forgotten."""
        with self._locked() as (engine, now):
            if engine is not self._engine:
                self._engine, self._finished, self._open = engine, {}, {}
        return now, point_ends(now, span.seconds, span.step)

    def _windows(
        self, kind: _Kind, ends: Sequence[int], now: float, budget: float | None, read: ReadWindow[T]
    ) -> dict[int, T]:
        """What was in windows, the newest read first; whoever counts records waits for one window at a time.

        Args:
            kind: What the windows are of.
            ends: Their ends, seconds since the epoch.
            now: The time, likewise.
            budget: Seconds of CPU after which no further window is read, and the open one may be a little old; None
                reads all.
            read: Reads one window.
        """
        finished = {end: points for end, points in self._finished.get(kind, {}).items() if end >= ends[0]}
        self._finished[kind] = finished
        windows, started = dict(finished), thread_time()
        at, opened = self._open.get(kind, (-math.inf, {}))
        if budget is not None and now - at < kind.step / STILL_OPEN:
            windows |= {end: points for end, points in opened.items() if end == ends[-1]}
        for end in reversed(ends):
            in_budget = budget is None or end == ends[-1] or thread_time() - started < budget
            if end not in windows and in_budget:
                with self._locked() as (engine, _):
                    windows[end] = read(engine, kind, end)
                if end + min(LATE, 2 * kind.step) <= now:
                    finished[end] = windows[end]
                elif end == ends[-1]:
                    self._open[kind] = (now, {end: windows[end]})
        return windows


def _series_in(engine: Engine, kind: _Kind, end: int) -> Snapshot:
    return series_history(engine, end, kind.step, None if kind.pipeline is None else {kind.pipeline})


def _gates_in(engine: Engine, kind: _Kind, end: int) -> Mapping[GateKey, GatePoint]:
    return gate_history(engine, end, kind.step, kind.pipeline)


def series_history(engine: Engine, end: int, step: int, pipelines: Collection[str] | None = None) -> Snapshot:
    """The metrics of pipelines in one window.

    Args:
        engine: Has the counts.
        end: The end of the window, seconds since the epoch, from `ragmon.scoring.snapshot.point_ends`.
        step: The length of the window, seconds.
        pipelines: The pipelines; None for all.
    """
    scorer = engine.scorer
    (snapshot,) = take_history(
        scorer.state,
        scorer.table,
        ends=[end],
        step=step,
        golds=scorer.gold.infos(),
        gated=engine.gated,
        pipelines=pipelines,
    )
    return snapshot


def gate_history(engine: Engine, end: int, step: int, pipeline: str | None = None) -> dict[GateKey, GatePoint]:
    """The value and the interval of every gate in one window.

    Args:
        engine: Has the counts and the gates.
        end: The end of the window, seconds since the epoch, from `ragmon.scoring.snapshot.point_ends`.
        step: The length of the window, seconds.
        pipeline: Whose gates; None for those of all pipelines with records.
    """
    pipelines = None if pipeline is None else {pipeline}
    snapshot = series_history(engine, end, step, pipelines)
    names = pipelines or {series.pipeline for series in snapshot.series}
    return gate_points(snapshot, map(engine.policy, sorted(names)))


def changes(engine: Engine, pipeline: str, begin: float) -> list[ChangeMark]:
    """The builds, indexes and versions of gold that a pipeline's records first had since a time.

    Args:
        engine: Has the counts.
        pipeline: The pipeline.
        begin: The time, seconds since the epoch. What was there when counting began is no change.
    """
    state = engine.scorer.state
    keys: dict[tuple[str, str], list[SeriesKey]] = {}
    for key in state.series:
        if key.pipeline == pipeline and not key.slice:
            names = (("build", key.build), ("index", key.index_hash), (f"gold {key.gold}", key.gold_version))
            for name in names:
                if name[1]:
                    keys.setdefault(name, []).append(key)
    seen = {name: first_seen(state, group) for name, group in keys.items()}
    oldest = min((ts for ts in seen.values() if ts is not None), default=0.0)
    marks = [ChangeMark(ts, *name) for name, ts in seen.items() if ts is not None and ts >= begin and ts > oldest]
    return sorted(marks)
