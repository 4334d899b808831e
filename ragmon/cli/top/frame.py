"""One picture of a monitor in text: what fires, the gates, and the monitor's own health.

Names and reasons come from requests: each is made printable, and none is read as markup.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ragmon.cli.top.bars import STYLES, Axis, interval_text, sparkline_text
from ragmon.cli.top.polling import OverviewStatus, Poll, ShownGate
from ragmon.core.errors import printable, printable_line
from ragmon.export.pages import ago, title
from ragmon.export.status import StatusFinding

FIRES: Final = "bold red"
FINDING_LINES: Final = 3
"""Lines of the screen that a problem may take."""
_DAY: Final = 86_400
_SHORTEST_NAME: Final = 18
_LONGEST_NAME: Final = 30
_SHORTEST_REASON: Final = 20


@dataclass(frozen=True)
class OverviewFrame:
    """A picture in lines.

    Attributes:
        head: What stands at the top.
        body: The gates, which a screen may show in part.
        foot: What stands at the end.
    """

    head: list[Text]
    body: list[Text]
    foot: list[Text]

    @property
    def lines(self) -> list[Text]:
        """All lines."""
        return [*self.head, *self.body, *self.foot]

    def room(self, height: int) -> int:
        """How many lines of the body a screen shows."""
        room = height - len(self.head) - len(self.foot)
        return max(0, room if len(self.body) <= room else room - 1)

    def last(self, height: int) -> int:
        """The line of the body from which on a screen shows its end."""
        return max(0, len(self.body) - self.room(height))

    def screen(self, height: int, first: int) -> list[Text]:
        """The lines that a screen shows.

        Args:
            height: Lines of the screen.
            first: The first line of the body.
        """
        room = self.room(height)
        body = self.body[first : first + room]
        if len(self.body) > room:
            last = first + len(body)
            body.append(Text(f"lines {first + 1} to {last} of {len(self.body)}: ↑ ↓ scroll, q leaves", "dim"))
        filled = [*body, *(Text() for _ in range(room - len(body)))]
        return [*self.head, *filled, *self.foot][:height]


def draw(
    console: Console, place: str, poll: Poll, *, now: float | None = None, height: int | None = None
) -> OverviewFrame:
    """The picture of a state.

    Args:
        console: Its width is that of the picture.
        place: The address of the monitor.
        poll: The state.
        now: Seconds since the epoch by the clock of this machine, where a state without a newer one is to be shown as
            stale; None where the state has just been read.
        height: Lines of the screen; None where there is room for everything.
    """
    status, width = poll.overview.status, console.width
    head = [_title(status, place, width), *_stale(console, poll, now)]
    head += _wrong(console, status, None if height is None else height // 3 - len(head))
    table = _GateTable(poll, width)
    return OverviewFrame([*head, Text(), table.heading()], list(table.rows()), [_health(status, width)])


def _title(status: OverviewStatus, place: str, width: int) -> Text:
    """The state in a sentence, and where and when it was so."""
    counts = {"verdicts": {"fail": 0, **status.verdicts}, "alarms": status.alarms, "trouble": status.trouble}
    text = Text(printable_line(title(counts)), FIRES if status.alarms or status.trouble else "bold")
    where = Text(f"{printable(place)}  {_clock(status.now, status.now)}", "dim")
    gap = width - text.cell_len - where.cell_len
    if gap >= 2:
        text.append(" " * gap).append_text(where)
    return text


def _stale(console: Console, poll: Poll, now: float | None) -> list[Text]:
    """Since when there was no answer, and why; nothing where the state is current."""
    if now is None:
        return []
    why = poll.error or "the answer takes long"
    words = f"stale: no answer since {_clock(poll.at, now)} ({ago(poll.at, now)}): {printable_line(why)}"
    return _wrapped(console, Text(words, "bold reverse yellow"))


def _wrong(console: Console, status: OverviewStatus, room: int | None) -> list[Text]:
    """What is wrong, as much of it as there is room for, and at least the first of it.

    Args:
        console: Its width is that of the lines.
        status: Has what is wrong.
        room: Lines; None for any number of them.
    """
    if not status.wrong:
        return [Text("nothing is wrong", "green")]
    lines: list[Text] = []
    for number, finding in enumerate(status.wrong):
        more = _finding(console, finding, status.now)
        if lines and room is not None and len(lines) + len(more) >= room:
            return [*lines, Text(f"and {len(status.wrong) - number} more", FIRES)]
        lines += more
    return lines


def _finding(console: Console, finding: StatusFinding, now: float) -> list[Text]:
    """A problem, with the time since when first: it is not to be cut."""
    text = Text(style=FIRES)
    if finding.since is not None:
        text.append(f"since {_clock(finding.since, now)} ({ago(finding.since, now)}): ")
    text.append(printable_line(finding.what))
    if finding.hint:
        text.append(f"  {printable_line(finding.hint)}", "not bold default")
    return _wrapped(console, text)


def _wrapped(console: Console, text: Text) -> list[Text]:
    lines = list(text.wrap(console, max(1, console.width)))
    if len(lines) > FINDING_LINES:
        lines = lines[:FINDING_LINES]
        lines[-1].rstrip()
        lines[-1].append("…")
        lines[-1].truncate(console.width, overflow="ellipsis")
    return lines


def _clock(seconds: float, now: float) -> str:
    """A point in time, with its day where that is another one than today."""
    form = "%H:%M:%S UTC" if seconds // _DAY == now // _DAY else "%Y-%m-%d %H:%M:%S UTC"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def _health(status: OverviewStatus, width: int) -> Text:
    """The monitor's own health in one line, what is most important first."""
    residual = sum(counters.residual for counters in status.stages.values())
    doubts = [finding.what for finding in status.doubts]
    count = "no warning" if not doubts else f"{len(doubts)} warning{'s' if len(doubts) > 1 else ''}"
    parts = [f"last record scored {ago(status.last_scored, status.now)}", f"residual {residual}"]
    if status.journal is None:
        parts.append("no journal")
    else:
        parts.append(f"journal {status.journal.size / 2**20:.1f} of {status.journal.limit / 2**20:.0f} MiB")
    parts.append(f"started {ago(status.started, status.now)}")
    text = Text("monitor: ").append(count, "yellow" if doubts else "green").append(f"; {'; '.join(parts)}")
    if doubts:
        text.append(f"; {printable_line(doubts[0])}", "yellow")
    text.truncate(width, overflow="ellipsis")
    return text


VERDICT: Final = "verdict"
VALUE: Final = "value"
ALARM: Final = "alarm"
COUNT: Final = "n"
BAR: Final = "threshold"
TREND: Final = "trend"
BOUND: Final = "asked"
INTERVAL: Final = "95 % interval"
_WIDTHS: Final = {VERDICT: 12, VALUE: 5, ALARM: 10, COUNT: 6, BAR: 11, TREND: 12, BOUND: 7, INTERVAL: 15}
"""The width of each column by its heading, the most important first: a narrow screen shows the first of them."""
_ORDER: Final = (VERDICT, VALUE, BAR, BOUND, INTERVAL, COUNT, TREND, ALARM)
_WIDE_TREND: Final = 24
"""Columns in which each window of a day has its own."""
_RIGHT: Final = (VALUE, COUNT, BOUND)


class _GateTable:
    """The gates, one to a line, in columns that fit the width.

    Args:
        poll: The state.
        width: Columns of the screen.
    """

    def __init__(self, poll: Poll, width: int) -> None:
        self._status = poll.overview.status
        self._width = width
        span = poll.overview.history.span
        self._span = printable(span.words)
        histories = poll.overview.history.gates
        self._points = {
            (entry.pipeline, entry.gate): [(point.end, point.value) for point in entry.points] for entry in histories
        }
        end = max((point.end for entry in histories for point in entry.points), default=0.0)
        self._axis = Axis(end - span.seconds, end, span.step)
        self._acknowledged = {
            (entry.pipeline, entry.alert): entry.at for entry in self._status.acknowledged if entry.until is None
        }
        names = [cell_len(printable(gate.gate)) for gate in self._status.gates]
        self._widths, self._name, self._reason = _layout(width, max(names, default=0))

    def heading(self) -> Text:
        """The headings."""
        cells = [_fit(Text("gate"), self._name)]
        for column in self._columns():
            words = self._span if column == TREND else column
            cells.append(_fit(Text(words), self._widths[column], right=column in _RIGHT))
        if self._reason:
            cells.append(Text("why"))
        line = Text(" ").join(cells)
        line.stylize("dim")
        return line

    def rows(self) -> Iterator[Text]:
        """The name of each pipeline, and its gates below it."""
        by_pipeline: dict[str, list[ShownGate]] = {}
        for gate in self._status.gates:
            by_pipeline.setdefault(gate.pipeline, []).append(gate)
        for pipeline, gates in by_pipeline.items():
            name = Text(printable(pipeline), "bold")
            name.truncate(self._width, overflow="ellipsis")
            yield name
            yield from map(self._row, gates)
        if not self._status.gates:
            yield Text("there are no gates", "dim")

    def _columns(self) -> list[str]:
        return [column for column in _ORDER if column in self._widths]

    def _row(self, gate: ShownGate) -> Text:
        cells = [_fit(Text(printable(gate.gate)), self._name)]
        for column in self._columns():
            width = self._widths[column]
            cells.append(_fit(self._cell(gate, column, width), width, right=column in _RIGHT))
        if self._reason:
            cells.append(_fit(Text(printable_line(gate.reason), "dim"), self._reason))
        return Text(" ").join(cells)

    def _cell(self, gate: ShownGate, column: str, width: int) -> Text:
        threshold, at_least = gate.threshold, gate.at_least
        if column == BAR:
            figures = gate.value, gate.lower, gate.upper
            return interval_text(*figures, threshold=threshold, at_least=at_least, verdict=gate.verdict, width=width)
        if column == TREND:
            points = self._points.get((gate.pipeline, gate.gate), [])
            return sparkline_text(points, self._axis, threshold=threshold, at_least=at_least, width=width)
        if column == ALARM:
            return self._alarm(gate)
        if column == VERDICT:
            return Text(printable(gate.verdict), STYLES.get(gate.verdict, ""))
        interval = "" if gate.lower is None or gate.upper is None else f"{_figure(gate.lower)} … {_figure(gate.upper)}"
        words = {
            VALUE: "–" if gate.value is None else _figure(gate.value),
            COUNT: str(gate.n) if gate.n < 10**6 else f"{gate.n / 10**6:.1f}M",
            BOUND: f"{'≥' if at_least else '≤'} {threshold:g}",
            INTERVAL: interval,
        }
        return Text(words[column])

    def _alarm(self, gate: ShownGate) -> Text:
        """Since when the alarm of a gate fires, or was acknowledged."""
        now, at = self._status.now, self._acknowledged.get((gate.pipeline, gate.gate))
        if gate.firing is not None:
            return Text(f"fires {_duration(gate.firing, now)}", FIRES)
        return Text("–" if at is None else f"acked {_duration(at, now)}", "dim")


def _duration(since: float, now: float) -> str:
    """How long ago a time was, as short as it can be: 8s, 5m, 3h, 2d."""
    return ago(since, now).removesuffix(" ago").replace("min", "m").replace(" ", "")


def _figure(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def _layout(width: int, longest: int) -> tuple[dict[str, int], int, int]:
    """The columns that fit, and the widths of the name and of the reason.

    Args:
        width: Columns of the screen.
        longest: Columns of the longest name.

    Returns:
        The width of each column, of the name, and of the reason; 0 shows no reason.
    """
    widths: dict[str, int] = {}
    left = width - _SHORTEST_NAME
    for column, columns in _WIDTHS.items():
        if left > columns or not widths:
            widths[column] = columns
            left -= columns + 1
    wanted = max(_SHORTEST_NAME, min(longest, _LONGEST_NAME))
    name = max(1, min(wanted, _SHORTEST_NAME + left))
    left -= name - _SHORTEST_NAME
    if TREND in widths and left >= _WIDE_TREND - widths[TREND]:
        left -= _WIDE_TREND - widths[TREND]
        widths[TREND] = _WIDE_TREND
    return widths, name, left - 1 if left > _SHORTEST_REASON else 0


def _fit(text: Text, width: int, *, right: bool = False) -> Text:
    """A text in exactly so many columns."""
    text.truncate(width, overflow="ellipsis")
    text.align("right" if right else "left", width)
    return text
