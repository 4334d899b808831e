"""A gate over time as SVG: the value as a line, its interval as a ribbon, the number of requests as bars below.

The threshold is a dashed line; the good side is tinted. Spans in which the alarm fired are shaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from markupsafe import Markup

from ragmon.core.constants import HOUR
from ragmon.core.errors import printable
from ragmon.export.pages.charts import MARGIN, SMALLEST
from ragmon.gates.history import GateHistory, GatePoint

WIDTH: Final = 880
"""Width of the drawing; a page scales it."""
HEIGHT: Final = 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 872, 12, 222
"""The edges of the part with the line."""
_BARS, _FLOOR = 236, 286
"""The upper and lower edge of the bars."""
_TICKS: Final = 5
_TIME_STEPS: Final = (120, 600, 1800, HOUR, 2 * HOUR, 4 * HOUR, 24 * HOUR)
"""Distances between times on the axis, seconds; the first that gives at most `_TIMES` of them is used."""
_TIMES: Final = 8


def time_chart(history: GateHistory, *, threshold: float, at_least: bool, name: str) -> Markup:
    """The chart of a gate.

    Args:
        history: The points and the alarms.
        threshold: The threshold.
        at_least: Whether the good side is above the threshold.
        name: What is shown, for screen readers.

    Returns:
        The chart; nothing where no window has a value.
    """
    if not history.values:
        return Markup()
    chart = _TimeChart(history, threshold)
    parts = [
        *chart.good_side(at_least=at_least),
        *chart.alarms(),
        *chart.marks(),
        *chart.scale(),
        *chart.times(),
        *chart.ribbon(),
        *chart.line(),
        *chart.bars(),
    ]
    lowest, highest, last = min(history.values), max(history.values), history.values[-1]
    words = Markup("{}: lowest {:.3f}, highest {:.3f}, last {:.3f}").format(printable(name), lowest, highest, last)
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="over-time" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    body = "".join(parts)
    return Markup(f'{opening} aria-label="{words}" focusable="false">{body}</svg>')  # noqa: S704 - escaped words, numbers


class _TimeChart:
    """The scales of a chart and its parts."""

    def __init__(self, history: GateHistory, threshold: float) -> None:
        self._history, self._threshold = history, threshold
        self._points = [point for point in history.points if point.value is not None]
        edges = [x for point in self._points for x in (point.lower, point.upper) if x is not None]
        shown = [threshold, *history.values, *edges]
        room = max(SMALLEST, max(shown) - min(shown)) * (MARGIN - 1)
        self._low, self._high = min(shown) - room, max(shown) + room
        self._most = max((point.n for point in self._points), default=1) or 1
        self._begin = history.now - history.span.seconds

    def _x(self, ts: float) -> float:
        share = (ts - self._begin) / self._history.span.seconds
        return _LEFT + (_RIGHT - _LEFT) * min(1.0, max(0.0, share))

    def _x_of(self, point: GatePoint) -> float:
        return self._x(point.end - self._history.span.step / 2)

    def _y(self, value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - self._low) / (self._high - self._low)

    def good_side(self, *, at_least: bool) -> Iterator[str]:
        """The side of the threshold where the gate is kept, and the threshold."""
        y = self._y(self._threshold)
        top, bottom = (_TOP, y) if at_least else (y, _BOTTOM)
        yield _rect("good", _LEFT, top, _RIGHT - _LEFT, bottom - top)
        yield _line("threshold", _LEFT, y, _RIGHT, y)

    def alarms(self) -> Iterator[str]:
        """The spans in which the alarm fired."""
        for begin, end in self._history.alarms:
            left = self._x(begin)
            yield _rect("firing", left, _TOP, max(2.0, self._x(end) - left), _BOTTOM - _TOP)

    def marks(self) -> Iterator[str]:
        """What changed: a line each, with the number of its row in the list of changes."""
        for number, mark in enumerate(self._history.marks, 1):
            x = self._x(mark.ts)
            yield _line("mark", x, _TOP, x, _BOTTOM)
            yield f'<text class="mark" x="{x + 3:.1f}" y="{_TOP + 10}">{number}</text>'

    def scale(self) -> Iterator[str]:
        """The values on the left."""
        for tick in round_ticks(self._low, self._high, _TICKS):
            y = self._y(tick)
            yield _line("grid", _LEFT, y, _RIGHT, y)
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        yield f'<text x="{_LEFT - 6}" y="{_BARS + 10}" text-anchor="end">n {self._most}</text>'

    def times(self) -> Iterator[str]:
        """The times below."""
        seconds = self._history.span.seconds
        step = next((step for step in _TIME_STEPS if seconds / step <= _TIMES), _TIME_STEPS[-1])
        first = math.ceil(self._begin / step) * step
        for ts in range(first, int(self._history.now) + 1, step):
            moment = datetime.fromtimestamp(ts, UTC)
            text = moment.strftime("%d %b" if step >= 24 * HOUR else "%H:%M")
            yield f'<text x="{self._x(ts):.1f}" y="{HEIGHT - 14}" text-anchor="middle">{text}</text>'

    def _runs(self) -> Iterator[list[GatePoint]]:
        """The points without a gap between them."""
        step = self._history.span.step
        for _, run in groupby(enumerate(self._points), lambda pair: pair[1].end - pair[0] * step):
            yield [point for _, point in run]

    def ribbon(self) -> Iterator[str]:
        """The intervals."""
        for run in self._runs():
            bounded = [(self._x_of(point), point.lower, point.upper) for point in run]
            above = [f"{x:.1f},{self._y(upper):.1f}" for x, _, upper in bounded if upper is not None]
            below = [f"{x:.1f},{self._y(lower):.1f}" for x, lower, _ in bounded if lower is not None]
            if len(above) > 1:
                yield f'<polygon class="ribbon" points="{" ".join((*above, *reversed(below)))}"/>'
            elif above:
                x, lower, upper = next(entry for entry in bounded if entry[2] is not None)
                yield _line("whisker", x, self._y(lower or 0.0), x, self._y(upper or 0.0))

    def line(self) -> Iterator[str]:
        """The values."""
        for run in self._runs():
            places = [(self._x_of(point), self._y(point.value)) for point in run if point.value is not None]
            if len(places) > 1:
                yield f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'
            yield from (f'<circle class="last" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in places)

    def bars(self) -> Iterator[str]:
        """The number of requests."""
        width = (_RIGHT - _LEFT) * self._history.span.step / self._history.span.seconds
        for point in self._points:
            height = (_FLOOR - _BARS) * point.n / self._most
            left = max(_LEFT, self._x_of(point) - width / 2)
            yield _rect("bar", left, _FLOOR - height, max(1.0, width - 1), height)


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two others, at most as many as asked.

    >>> round_ticks(0.71, 0.98, 5)
    [0.75, 0.8, 0.85, 0.9, 0.95]
    """
    magnitude = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(factor * magnitude for factor in (1, 2, 5, 10, 20) if (high - low) / (factor * magnitude) <= most + 0.5)
    return [round(k * step, 10) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
