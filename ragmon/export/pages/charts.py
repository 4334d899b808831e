"""Small charts as SVG, drawn where the page is made: they need no script, and their colours come from the style sheet.

Every chart repeats what stands in words beside it, or carries the words itself for screen readers. The chart of a gate
over time is in `ragmon.export.pages.time_chart`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from ragmon.core.errors import printable

INTERVAL_WIDTH: Final = 160
"""Width of an interval bar, CSS pixels."""
INTERVAL_HEIGHT: Final = 22
SPARKLINE_WIDTH: Final = 180
SPARKLINE_HEIGHT: Final = 36
MARGIN: Final = 1.12
"""How much wider than its content a scale is."""
SMALLEST: Final = 0.02
"""Smallest distance from the threshold that a scale shows, so that it does not magnify noise."""
_SHARE_HEIGHT: Final = 10
_STRIP_HEIGHT: Final = 18
_TICK: Final = 2.0
"""Width of the shortest tick."""
_EDGE: Final = 3
"""Pixels kept free at the upper and lower edge of a sparkline."""


class ChartPoint(NamedTuple):
    """One point of a chart over time.

    Attributes:
        end: The end of its window, seconds since the epoch.
        value: The value; None where nothing was scored.
    """

    end: float
    value: float | None


def interval_bar(
    value: float | None, lower: float | None, upper: float | None, *, threshold: float, at_least: bool, verdict: str
) -> Markup:
    """A value with its interval against its threshold, which is always in the middle; the good side is tinted.

    Args:
        value: The value; None draws the threshold alone.
        lower: The lower end of its 95 % interval; None without one.
        upper: The upper end.
        threshold: The threshold.
        at_least: Whether the good side is above the threshold.
        verdict: The verdict, which becomes the CSS class of the interval.

    >>> "interval pass" in interval_bar(0.9, 0.85, 0.95, threshold=0.8, at_least=True, verdict="pass")
    True
    """
    shown = [x for x in (value, lower, upper) if x is not None]
    half = max([SMALLEST, *(abs(x - threshold) for x in shown)]) * MARGIN
    middle, height = INTERVAL_WIDTH / 2, INTERVAL_HEIGHT

    def x_of(figure: float) -> float:
        return middle + (figure - threshold) / half * middle

    parts = [_rect("good", middle if at_least else 0, 0, middle, height)]
    if lower is not None and upper is not None:
        left, right = x_of(lower), x_of(upper)
        parts.append(_rect(f"interval {verdict}", left, height / 2 - 4, max(1.0, right - left), 8))
    parts.append(_line("threshold", middle, 0, middle, height))
    if value is not None:
        parts.append(f'<circle class="value {verdict}" cx="{x_of(value):.1f}" cy="{height / 2:g}" r="4"/>')
    return _svg("bar", INTERVAL_WIDTH, height, parts, "")


def sparkline(points: Sequence[ChartPoint], *, begin: float, threshold: float | None, name: str) -> Markup:
    """A value over time, with its threshold as a dashed line; gaps are windows in which nothing was scored.

    Args:
        points: The points, in order of time.
        begin: The start of the time axis, seconds since the epoch; it ends with the last point.
        threshold: The threshold; None without one.
        name: What is shown, for screen readers.

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

    def place(point: ChartPoint, value: float) -> tuple[float, float]:
        return (point.end - begin) / span * (SPARKLINE_WIDTH - 4), _y_of(value, low, high)

    parts = []
    if threshold is not None:
        y = _y_of(threshold, low, high)
        parts.append(_line("threshold", 0, y, SPARKLINE_WIDTH, y))
    for stretch in stretches(points):
        places = [place(point, point.value) for point in stretch if point.value is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        if len(places) > 1:
            parts.append(f'<polyline class="line" points="{path}"/>')
        else:
            parts.append(f'<circle class="line" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="1"/>')
    last = next(point for point in reversed(points) if point.value is not None)
    x, y = place(last, values[-1])
    parts.append(f'<circle class="last" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>')
    words = (
        f"{printable(name)}: lowest {_figure(min(values))}, highest {_figure(max(values))}, last {_figure(values[-1])}"
    )
    return _svg("sparkline", SPARKLINE_WIDTH, SPARKLINE_HEIGHT, parts, words)


def share_bar(share: float, kind: str) -> Markup:
    """A share of a whole as a bar; the figure stands beside it.

    Args:
        share: The share, in [0, 1].
        kind: The CSS class of the bar.

    >>> 'width="80.0"' in share_bar(0.5, "bar")
    True
    """
    return _svg("share", INTERVAL_WIDTH, _SHARE_HEIGHT, [_rect(kind, 0, 0, share * INTERVAL_WIDTH, _SHARE_HEIGHT)], "")


def stacked_bar(parts: Sequence[tuple[int, str]], *, width: int = INTERVAL_WIDTH) -> Markup:
    """The parts of a whole side by side, as long as they are large; the figures stand beside it.

    Args:
        parts: The size and the CSS class of each.
        width: Its width, CSS pixels.

    >>> stacked_bar([(1, "pass"), (3, "fail")]).count("<rect"), stacked_bar([(0, "pass")])
    (2, Markup(''))
    """
    whole, begin, drawn = sum(size for size, _ in parts), 0, []
    for size, kind in parts:
        if size:
            drawn.append(_rect(kind, begin / whole * width, 0, size / whole * width, _SHARE_HEIGHT))
            begin += size
    return _svg("stacked", width, _SHARE_HEIGHT, drawn, "") if drawn else Markup()


class Tick(NamedTuple):
    """What happened in a stretch of time.

    Attributes:
        begin, end: Its edges, seconds since the epoch.
        kind: Its CSS class.
    """

    begin: float
    end: float
    kind: str


def tick_strip(ticks: Sequence[Tick], *, begin: float, cut: float, end: float) -> Markup:
    """What happened over time as ticks on a line, with a mark between two spans; words beside it say the same.

    Args:
        ticks: The ticks, in order of time.
        begin: The start of the line, seconds since the epoch.
        cut: Where the second span begins, likewise.
        end: The end of the line, likewise.
    """
    span = max(1.0, end - begin)

    def x_of(ts: float) -> float:
        return SPARKLINE_WIDTH * min(1.0, max(0.0, (ts - begin) / span))

    parts = [_rect("track", 0, _STRIP_HEIGHT / 2 - 1, SPARKLINE_WIDTH, 2)]
    for tick in ticks:
        left, width = x_of(tick.begin), x_of(tick.end) - x_of(tick.begin)
        width = max(_TICK, width - 1)
        parts.append(_rect(tick.kind, min(left, SPARKLINE_WIDTH - width), 3, width, _STRIP_HEIGHT - 6))
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


def _figure(value: float) -> str:
    """A share with three decimals, a count as it is."""
    return f"{value:.3f}" if (abs(value) <= 1 and value != int(value)) or abs(value) < 1 else f"{value:g}"


def _y_of(value: float, low: float, high: float) -> float:
    inner = SPARKLINE_HEIGHT - 2 * _EDGE
    return _EDGE + inner * (high - value) / (high - low)


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}"/>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _svg(kind: str, width: int, height: int, parts: Sequence[str], words: str) -> Markup:
    """A chart; without words it is hidden from screen readers, because the figures stand beside it."""
    role = Markup('role="img" aria-label="{}"').format(words) if words else Markup('aria-hidden="true"')
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" {size} {role} focusable="false">'
    return Markup(f"{opening}{''.join(parts)}</svg>")  # noqa: S704 - numbers, fixed class names and escaped words
