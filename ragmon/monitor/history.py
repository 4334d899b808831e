"""The history of the gates of a running monitor, of which windows that are over are computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from time import thread_time
from typing import Final, NamedTuple

from ragmon.core.constants import HOUR
from ragmon.core.errors import UnknownNameError
from ragmon.gates.history import GateHistory, GateKey, GatePoint, TimeSpan
from ragmon.monitor.engine import Engine
from ragmon.scoring.history import point_ends

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
BUDGET: Final = 0.05
"""Seconds of CPU in which past windows of all gates are computed at a time: they are for a page that comes again."""


class _Kind(NamedTuple):
    """Windows that are computed alike.

    Attributes:
        step: Their length, seconds.
        pipeline: Their pipeline; None for all.
    """

    step: int
    pipeline: str | None


class GateHistories:
    """The points of gates; those of the past come window by window, the newest first.

    Args:
        locked: The engine and the time, and what they are locked by while they are read.
    """

    def __init__(self, locked: Callable[[], AbstractContextManager[tuple[Engine, float]]]) -> None:
        self._locked = locked
        self._engine: Engine | None = None
        self._finished: dict[_Kind, dict[int, Mapping[GateKey, GatePoint]]] = {}

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

    def _longest(
        self, spans: Sequence[TimeSpan], pipeline: str | None, budget: float | None
    ) -> tuple[TimeSpan, dict[GateKey, GateHistory]]:
        for span in spans:
            histories = self._read(span, pipeline, budget)
            if max((len(history.values) for history in histories.values()), default=0) > FEW:
                break
        return span, histories

    def _read(self, span: TimeSpan, pipeline: str | None, budget: float | None) -> dict[GateKey, GateHistory]:
        with self._locked() as (engine, now):
            if engine is not self._engine:
                self._engine, self._finished = engine, {}
            fired = engine.alarm_spans(now - span.seconds, now)
        ends, kind = point_ends(now, span.seconds, span.step), _Kind(span.step, pipeline)
        finished = self._finished.get(kind, {})
        finished = self._finished[kind] = {end: points for end, points in finished.items() if end >= ends[0]}
        points_by_end, started = dict(finished), thread_time()
        for end in reversed(ends):
            in_budget = budget is None or end == ends[-1] or thread_time() - started < budget
            if end not in points_by_end and in_budget:
                points_by_end[end] = self._read_window(kind, end)
                if end + min(LATE, 2 * span.step) <= now:
                    finished[end] = points_by_end[end]
        histories: dict[GateKey, GateHistory] = {}
        for end in ends:
            for gate, point in points_by_end.get(end, {}).items():
                histories.setdefault(gate, GateHistory(span, now, [], fired.get(gate, []))).points.append(point)
        return histories

    def _read_window(self, kind: _Kind, end: int) -> Mapping[GateKey, GatePoint]:
        """The points of one window; whoever counts records waits for no more than that."""
        with self._locked() as (engine, _):
            return engine.gate_history(end, kind.step, kind.pipeline)
