"""Charts in text: a value with its interval against a threshold, and a value over time.

The scales are those of the charts of the pages. Colour repeats what the shape says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import copysign
from typing import Final, NamedTuple

from rich.text import Text

from ragmon.export.charts import MARGIN, SMALLEST

LEVELS: Final = "▁▂▃▄▅▆▇█"
STYLES: Final = {"pass": "green", "fail": "bold red", "insufficient": "yellow"}
"""The style of each verdict."""
_VALUE, _INTERVAL, _THRESHOLD, _COVERED, _GOOD = "●━│┿·"


def interval_text(
    value: float | None,
    lower: float | None,
    upper: float | None,
    *,
    threshold: float,
    at_least: bool,
    verdict: str,
    width: int,
) -> Text:
    """A value with its interval against its threshold, which is always in the middle; dots are on the good side.

    What is not equal to the threshold is never drawn on it, however near it is.

    Args:
        value: The value; None draws nothing.
        lower: The lower end of its 95 % interval; None without one.
        upper: The upper end.
        threshold: The threshold.
        at_least: Whether the good side is above the threshold.
        verdict: The verdict, which is the colour of the interval.
        width: Columns, an odd number.

    >>> interval_text(0.9, 0.85, 0.95, threshold=0.8, at_least=True, verdict="pass", width=11).plain
    '     │━━●━·'
    """
    if value is None:
        return Text(" " * width)
    middle, bounds = width // 2, () if lower is None or upper is None else (lower, upper)
    half = max([SMALLEST, *(abs(x - threshold) for x in (value, *bounds))]) * MARGIN

    def column(figure: float) -> int:
        steps = round(abs(figure - threshold) / half * middle)
        return middle if figure == threshold else middle + int(copysign(min(middle, max(1, steps)), figure - threshold))

    good = range(middle + 1, width) if at_least else range(middle)
    cells = [_GOOD if place in good else " " for place in range(width)]
    cells[middle] = _THRESHOLD
    if bounds:
        for place in range(column(bounds[0]), column(bounds[1]) + 1):
            cells[place] = _COVERED if place == middle else _INTERVAL
    cells[column(value)] = _VALUE
    text = Text("".join(cells), "dim")
    text.highlight_regex(f"[{_VALUE}{_INTERVAL}]+", f"not dim {STYLES.get(verdict, '')}")
    return text


class Axis(NamedTuple):
    """The time axis of a chart.

    Attributes:
        begin: Its start, seconds since the epoch.
        end: Its end.
        step: The length of a window, seconds.
    """

    begin: float
    end: float
    step: float

    def column(self, end: float, width: int) -> int:
        """The column in which a window is drawn, given its end; outside of the axis below 0 or from `width` on."""
        return int((end - self.step / 2 - self.begin) / (self.end - self.begin) * width // 1)


def sparkline_text(
    points: Sequence[tuple[float, float | None]], axis: Axis, *, threshold: float, at_least: bool, width: int
) -> Text:
    """A value over time, red where it breaks its threshold; a gap is a time in which nothing was scored.

    A column shows the worst of its windows.

    Args:
        points: The ends of windows, seconds since the epoch, and their values.
        axis: The time axis.
        threshold: The threshold.
        at_least: Whether the good side is above the threshold.
        width: Columns.

    >>> hours = [(3600.0 * k, value) for k, value in enumerate((0.9, 0.8, None, 0.5), 1)]
    >>> sparkline_text(hours, Axis(0, 14400, 3600), threshold=0.7, at_least=True, width=4).plain
    '█▆ ▁'
    """
    worst: Callable[[float, float], float] = min if at_least else max
    shown: dict[int, float] = {}
    for end, value in points:
        place = axis.column(end, width)
        if value is not None and 0 <= place < width:
            shown[place] = worst(value, shown.get(place, value))
    if not shown:
        return Text(" " * width)
    low, high = min(*shown.values(), threshold), max(*shown.values(), threshold)
    room = max(0.0, SMALLEST - (high - low)) / 2
    low, high = low - room, high + room
    text = Text()
    for place in range(width):
        value = shown.get(place)
        if value is None:
            text.append(" ")
        else:
            broken = value < threshold if at_least else value > threshold
            text.append(LEVELS[round((value - low) / (high - low) * (len(LEVELS) - 1))], "red" if broken else "green")
    return text
