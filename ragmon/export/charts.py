"""Charts as SVG, drawn where the page is made: they need no script, and their colours come from the style sheet.

Small charts repeat figures that stand beside them. A gate over time has its value as a line, its interval as a ribbon,
its threshold dashed, the number of requests as bars below. The flow of a stage has bands in proportion to its records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from ragmon.core.constants import HOUR
from ragmon.core.errors import printable
from ragmon.export.status import StageCounters
from ragmon.export.text import percent
from ragmon.gates.history import ChangeMark, GateHistory, GatePoint

INTERVAL_WIDTH: Final = 160
INTERVAL_HEIGHT: Final = 22
SPARKLINE_WIDTH: Final = 180
SPARKLINE_HEIGHT: Final = 36
MARGIN: Final = 1.12
"""How much wider than its content a scale is."""
SMALLEST: Final = 0.02
"""Smallest distance from the threshold that a scale shows, so that it does not magnify noise."""
_SHARE_HEIGHT: Final = 10
NUMBERS: Final = ("records", "index_hash", "ms", "rate")
"""What is counted, and is no share of anything."""
_FEW: Final = 10
RATIOS: Final = ("latency",)
"""What is a multiple of what it was before."""
_STRIP_HEIGHT: Final = 18
_TICK: Final = 2.0
_EDGE: Final = 3
WIDTH: Final = 880
HEIGHT: Final = 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 872, 12, 222
_BARS, _FLOOR = 236, 286
_TICKS: Final = 5
_TIME_STEPS: Final = (120, 600, 1800, HOUR, 2 * HOUR, 4 * HOUR, 24 * HOUR)
"""Distances between times on the axis, seconds; the first that gives at most `_TIMES` of them is used."""
_TIMES: Final = 8
FLOW_WIDTH: Final = 640
_FLOW_LEFT, _FLOW_RIGHT = 120, 380
_NODE: Final = 12
_THICKNESS: Final = 120
_THINNEST: Final = 2.0
"""Height of the smallest band, so that a single record is seen."""
_GAP: Final = 16
"""Between two bands on the right, so that each has room for its line of text."""
_FLOW_TOP: Final = 14


class ChartPoint(NamedTuple):
    """One point of a chart over time."""

    end: float
    value: float | None


def interval_bar(
    value: float | None, lower: float | None, upper: float | None, *, threshold: float, at_least: bool, verdict: str
) -> Markup:
    """A value with its interval against its threshold, which is always in the middle; the good side is tinted.

    >>> "interval pass" in interval_bar(0.9, 0.85, 0.95, threshold=0.8, at_least=True, verdict="pass")
    True
    """
    shown = [x for x in (value, lower, upper) if x is not None]
    half = max([SMALLEST, *(abs(x - threshold) for x in shown)]) * MARGIN
    middle, height = INTERVAL_WIDTH / 2, INTERVAL_HEIGHT

    def x_of(figure: float) -> float:
        return middle + (figure - threshold) / half * middle

    parts = [_bar_rect("good", middle if at_least else 0, 0, middle, height)]
    if lower is not None and upper is not None:
        left, right = x_of(lower), x_of(upper)
        parts.append(_bar_rect(f"interval {verdict}", left, height / 2 - 4, max(1.0, right - left), 8))
    parts.append(_line("threshold", middle, 0, middle, height))
    if value is not None:
        parts.append(f'<circle class="value {verdict}" cx="{x_of(value):.1f}" cy="{height / 2:g}" r="4"/>')
    return _svg("bar", INTERVAL_WIDTH, height, parts, "")


def level(metric: str, value: float | None, *, places: int = 1) -> str:
    """The value of a metric as people write it; a dash where there is none.

    >>> level("hit_rate", 0.6821), level("latency", 1.3), level("records", 1200.0), level("hit_rate", 0.8, places=0)
    ('68.2 %', '1.30 x', '1,200', '80 %')
    """
    if value is None or metric in NUMBERS:
        return "–" if value is None else f"{value:,.0f}" if value >= _FEW or value == int(value) else f"{value:.1f}"
    if metric in RATIOS:
        return f"{value:.2f} x"
    return percent(value) if places else f"{100 * value:g} %"


def sparkline(
    points: Sequence[ChartPoint],
    *,
    begin: float,
    threshold: float | None,
    name: str,
    metric: str = "",
    marks: Sequence[ChangeMark] = (),
) -> Markup:
    """A value over time, with its threshold as a dashed line; gaps are windows in which nothing was scored.

    Args:
        points: The values.
        begin: Where the line begins, seconds since the epoch.
        threshold: The threshold; None without one.
        name: What it shows, for screen readers.
        metric: Whose value it is, which says how it is written; "" for a share.
        marks: What changed meanwhile, as upright lines.

    Returns:
        The chart; nothing where no point has a value.
    """
    values = [point.value for point in points if point.value is not None]
    if not values:
        return Markup()
    shown = values if threshold is None else [*values, threshold]
    low, high = min(shown), max(shown)
    room = max(SMALLEST, high - low) * (MARGIN - 1)
    low, high, span = low - room, high + room, max(1.0, points[-1].end - begin)

    def position(point: ChartPoint, value: float) -> tuple[float, float]:
        return (point.end - begin) / span * (SPARKLINE_WIDTH - 4), _y_of(value, low, high)

    parts = []
    if threshold is not None:
        y = _y_of(threshold, low, high)
        parts.append(_line("threshold", 0, y, SPARKLINE_WIDTH, y))
    for mark in marks:
        x = min(1.0, max(0.0, (mark.ts - begin) / span)) * (SPARKLINE_WIDTH - 4)
        parts.append(_line("mark", x, 0, x, SPARKLINE_HEIGHT))
    for stretch in stretches(points):
        positions = [position(point, point.value) for point in stretch if point.value is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in positions)
        if len(positions) > 1:
            parts.append(f'<polyline class="line" points="{path}"/>')
        else:
            parts.append(f'<circle class="line" cx="{positions[0][0]:.1f}" cy="{positions[0][1]:.1f}" r="1"/>')
    last = next(point for point in reversed(points) if point.value is not None)
    x, y = position(last, values[-1])
    parts.append(f'<circle class="last" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>')
    lowest, highest, newest = (level(metric, value) for value in (min(values), max(values), values[-1]))
    words = f"{printable(name)}: lowest {lowest}, highest {highest}, last {newest}"
    words += "".join(f"; {printable(f'{mark.kind} {mark.name}')} at {clock_text(mark.ts)}" for mark in marks)
    return _svg("sparkline", SPARKLINE_WIDTH, SPARKLINE_HEIGHT, parts, words)


def share_bar(share: float, kind: str) -> Markup:
    """A share of a whole as a bar; the figure stands beside it.

    >>> 'width="80.0"' in share_bar(0.5, "bar")
    True
    """
    return _svg(
        "share", INTERVAL_WIDTH, _SHARE_HEIGHT, [_bar_rect(kind, 0, 0, share * INTERVAL_WIDTH, _SHARE_HEIGHT)], ""
    )


def stacked_bar(parts: Sequence[tuple[int, str]], *, width: int = INTERVAL_WIDTH) -> Markup:
    """The parts of a whole side by side, as long as they are large; the figures stand beside it.

    >>> stacked_bar([(1, "pass"), (3, "fail")]).count("<rect"), stacked_bar([(0, "pass")])
    (2, Markup(''))
    """
    whole, begin, drawn = sum(size for size, _ in parts), 0, []
    for size, kind in parts:
        if size:
            drawn.append(_bar_rect(kind, begin / whole * width, 0, size / whole * width, _SHARE_HEIGHT))
            begin += size
    return _svg("stacked", width, _SHARE_HEIGHT, drawn, "") if drawn else Markup()


class Tick(NamedTuple):
    """What happened in a stretch of time."""

    begin: float
    end: float
    kind: str


def tick_strip(ticks: Sequence[Tick], *, begin: float, cut: float, end: float) -> Markup:
    """What happened over time as ticks on a line, with a mark between two spans; words beside it say the same."""
    span = max(1.0, end - begin)

    def x_of(ts: float) -> float:
        return SPARKLINE_WIDTH * min(1.0, max(0.0, (ts - begin) / span))

    parts = [_bar_rect("track", 0, _STRIP_HEIGHT / 2 - 1, SPARKLINE_WIDTH, 2)]
    for tick in ticks:
        left, width = x_of(tick.begin), x_of(tick.end) - x_of(tick.begin)
        width = max(_TICK, width - 1)
        parts.append(_bar_rect(tick.kind, min(left, SPARKLINE_WIDTH - width), 3, width, _STRIP_HEIGHT - 6))
    parts.append(_line("threshold", x_of(cut), 0, x_of(cut), _STRIP_HEIGHT))
    return _svg("strip", SPARKLINE_WIDTH, _STRIP_HEIGHT, parts, "")


def stretches(points: Sequence[ChartPoint]) -> list[list[ChartPoint]]:
    """The points with a value, as runs without a gap.

    >>> [len(run) for run in stretches([ChartPoint(1, 0.5), ChartPoint(2, None), ChartPoint(3, 0.5)])]
    [1, 1]
    """
    runs: list[list[ChartPoint]] = [[]]
    for point in points:
        if point.value is not None:
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def clock_text(ts: float) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(ts, UTC).strftime("%H:%M")


def _y_of(value: float, low: float, high: float) -> float:
    inner = SPARKLINE_HEIGHT - 2 * _EDGE
    return _EDGE + inner * (high - value) / (high - low)


def _bar_rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}"/>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _svg(kind: str, width: int, height: int, parts: Sequence[str], words: str) -> Markup:
    """A chart; without words it is hidden from screen readers, because the figures stand beside it."""
    role = Markup('role="img" aria-label="{}"').format(words) if words else Markup('aria-hidden="true"')
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" {size} {role} focusable="false">'
    return Markup(f"{opening}{''.join(parts)}</svg>")  # noqa: S704 - numbers, fixed class names and escaped words


def picture(kind: str, width: int, height: float, parts: Iterable[str], words: str | Markup) -> Markup:
    """A large chart, which a page scales; the words are for screen readers, and escaped."""
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" viewBox="0 0 {width} {height:.0f}" role="img"'
    body = "".join(parts)
    return Markup(f'{opening} aria-label="{words}" focusable="false">{body}</svg>')  # noqa: S704 - escaped words, numbers


def time_chart(history: GateHistory, *, threshold: float, at_least: bool, name: str, metric: str = "") -> Markup:
    """The chart of a gate on a metric ("" for a share); nothing where no window has a value."""
    if not history.values:
        return Markup()
    chart = _TimeChart(history, threshold, metric)
    parts = [*chart.background(at_least=at_least), *chart.axes(), *chart.curve(), *chart.bars()]
    lowest, highest, last = min(history.values), max(history.values), history.values[-1]
    shown = (level(metric, value) for value in (lowest, highest, last))
    words = Markup("{}: lowest {}, highest {}, last {}").format(printable(name), *shown)
    return picture("over-time", WIDTH, HEIGHT, parts, words)


class _TimeChart:
    def __init__(self, history: GateHistory, threshold: float, metric: str) -> None:
        self._history, self._threshold, self._metric = history, threshold, metric
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

    def background(self, *, at_least: bool) -> Iterator[str]:
        y = self._y(self._threshold)
        top, bottom = (_TOP, y) if at_least else (y, _BOTTOM)
        yield _rect("good", _LEFT, top, _RIGHT - _LEFT, bottom - top)
        yield _line("threshold", _LEFT, y, _RIGHT, y)
        for begin, end in self._history.alarms:
            left = self._x(begin)
            yield _rect("firing", left, _TOP, max(2.0, self._x(end) - left), _BOTTOM - _TOP)
        for number, mark in enumerate(self._history.marks, 1):
            x = self._x(mark.ts)
            yield _line("mark", x, _TOP, x, _BOTTOM)
            yield f'<text class="mark" x="{x + 3:.1f}" y="{_TOP + 10}">{number}</text>'

    def axes(self) -> Iterator[str]:
        for tick in round_ticks(self._low, self._high, _TICKS):
            y = self._y(tick)
            yield _line("grid", _LEFT, y, _RIGHT, y)
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{self._tick(tick)}</text>'
        yield f'<text x="{_LEFT - 6}" y="{_BARS + 10}" text-anchor="end">n {self._most}</text>'
        seconds = self._history.span.seconds
        step = next((step for step in _TIME_STEPS if seconds / step <= _TIMES), _TIME_STEPS[-1])
        first = math.ceil(self._begin / step) * step
        for ts in range(first, int(self._history.now) + 1, step):
            text = datetime.fromtimestamp(ts, UTC).strftime("%d %b" if step >= 24 * HOUR else "%H:%M")
            yield f'<text x="{self._x(ts):.1f}" y="{HEIGHT - 14}" text-anchor="middle">{text}</text>'

    def _tick(self, value: float) -> str:
        return f"{value:g}" if self._metric in (*RATIOS, *NUMBERS) else level(self._metric, value, places=0)

    def curve(self) -> Iterator[str]:
        step, lines = self._history.span.step, []
        for _, numbered in groupby(enumerate(self._points), lambda pair: pair[1].end - pair[0] * step):
            run = [point for _, point in numbered]  # without a gap
            bounded = [(self._x_of(point), point.lower, point.upper) for point in run]
            above = [f"{x:.1f},{self._y(upper):.1f}" for x, _, upper in bounded if upper is not None]
            below = [f"{x:.1f},{self._y(lower):.1f}" for x, lower, _ in bounded if lower is not None]
            if len(above) > 1:
                yield f'<polygon class="ribbon" points="{" ".join((*above, *reversed(below)))}"/>'
            elif above:
                x, lower, upper = next(entry for entry in bounded if entry[2] is not None)
                yield _line("whisker", x, self._y(lower or 0.0), x, self._y(upper or 0.0))
            values = [(self._x_of(point), self._y(point.value)) for point in run if point.value is not None]
            if len(values) > 1:
                lines.append(f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in values)}"/>')
            lines += [f'<circle class="last" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in values]
        yield from lines  # above all ribbons

    def bars(self) -> Iterator[str]:
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


class FlowBand(NamedTuple):
    """One way that records of a stage took.

    Attributes:
        kind: What became of them: `scored`, `duplicate`, `pending`, `ignored`, `dropped` or `unaccounted`.
        reason: Why; "" where the kind says it.
    """

    kind: str
    reason: str
    n: int

    @property
    def words(self) -> str:
        """What a reader calls it."""
        return f"{self.kind}: {self.reason}" if self.reason else self.kind


def flow_bands(counters: StageCounters) -> list[FlowBand]:
    """Where the records of a stage went; the numbers add up to those received.

    >>> [band.words for band in flow_bands(StageCounters(3, 2, dropped={"parse": 1}))]
    ['scored', 'dropped: parse']
    """
    bands = [
        FlowBand("scored", "", counters.scored),
        FlowBand("pending", "", counters.pending),
        FlowBand("duplicate", "", counters.duplicate),
        *(FlowBand("ignored", reason, n) for reason, n in sorted(counters.ignored.items())),
        *(FlowBand("dropped", reason, n) for reason, n in sorted(counters.dropped.items())),
        FlowBand("unaccounted", "", counters.residual),
    ]
    return [band for band in bands if band.n]


def flow_chart(stage: str, received: int, bands: Sequence[FlowBand]) -> Markup:
    """The flow of a stage as SVG.

    Returns:
        The chart; nothing where nothing came in.
    """
    if received <= 0 or not bands:
        return Markup()
    heights = [max(_THINNEST, _THICKNESS * max(0, band.n) / received) for band in bands]
    slots = [max(height, _GAP) for height in heights]
    parts, left, right = [], float(_FLOW_TOP), float(_FLOW_TOP)
    for band, height, slot in zip(bands, heights, slots, strict=True):
        top = right + (slot - height) / 2
        parts.append(_band(band.kind, left, top, height))
        words = f"{band.n:,} {printable(band.words)}"
        parts.append(f'<text x="{_FLOW_RIGHT + _NODE + 8}" y="{right + slot / 2 + 4:.1f}">{escape(words)}</text>')
        left, right = left + height, right + slot + 2
    parts.append(
        f'<rect class="node" x="{_FLOW_LEFT - _NODE}" y="{_FLOW_TOP}" width="{_NODE}" height="{left - _FLOW_TOP:.1f}"/>'
    )
    middle = (_FLOW_TOP + left) / 2
    parts.append(f'<text x="{_FLOW_LEFT - _NODE - 8}" y="{middle - 4:.1f}" text-anchor="end">{received:,}</text>')
    parts.append(f'<text x="{_FLOW_LEFT - _NODE - 8}" y="{middle + 12:.1f}" text-anchor="end">received</text>')
    words = Markup("{}: {:,} received; {}").format(
        stage, received, "; ".join(f"{printable(band.words)} {band.n:,}" for band in bands)
    )
    return picture("flow", FLOW_WIDTH, max(left, right) + _FLOW_TOP, parts, words)


def _band(kind: str, left: float, right: float, height: float) -> str:
    middle = (_FLOW_LEFT + _FLOW_RIGHT) / 2
    path = (
        f"M{_FLOW_LEFT},{left:.1f} C{middle},{left:.1f} {middle},{right:.1f} {_FLOW_RIGHT},{right:.1f} "
        f"V{right + height:.1f} "
        f"C{middle},{right + height:.1f} {middle},{left + height:.1f} {_FLOW_LEFT},{left + height:.1f} Z"
    )
    node = f'<rect class="node {kind}" x="{_FLOW_RIGHT}" y="{right:.1f}" width="{_NODE}" height="{height:.1f}"/>'
    return f'<path class="band {kind}" d="{path}"/>{node}'
