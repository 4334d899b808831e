"""`ragmon top`: the overview of a monitor on a terminal, read again and again from its admin port.

A thread reads the monitor, so that a slow one delays no key. The terminal is left as it was found, however the command
ends: the cursor, the screen and the modes of the keyboard.

Names and reasons come from requests: each is made printable, and none is read as markup. The scales of the charts are
those of the pages; colour repeats what the shape says.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import copysign
from threading import Event, Thread
from time import monotonic, time
from types import TracebackType
from typing import IO, Final, NamedTuple, Self

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.text import Text

from ragmon.alarms.pipelines import AcknowledgedAlarm
from ragmon.cli.client import STATUS, NoResponseError, parse_server_url, read_page
from ragmon.cli.options import on_terminal, write
from ragmon.config.load import load
from ragmon.core.errors import RagmonError, printable, printable_line
from ragmon.export.charts import MARGIN, SMALLEST
from ragmon.export.pages import ago
from ragmon.export.status import StageCounters, StatusFinding
from ragmon.gates.history import GatePoint, TimeSpan

LEVELS: Final = "▁▂▃▄▅▆▇█"
STYLES: Final = {"pass": "green", "fail": "bold red", "insufficient": "yellow"}
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

    A value that differs from the threshold is never drawn on it, however near it is. `width` is odd.

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
    cells = [_GOOD if index in good else " " for index in range(width)]
    cells[middle] = _THRESHOLD
    if bounds:
        for index in range(column(bounds[0]), column(bounds[1]) + 1):
            cells[index] = _COVERED if index == middle else _INTERVAL
    cells[column(value)] = _VALUE
    text = Text("".join(cells), "dim")
    text.highlight_regex(f"[{_VALUE}{_INTERVAL}]+", f"not dim {STYLES.get(verdict, '')}")
    return text


class Axis(NamedTuple):
    """The time axis of a chart, in seconds since the epoch, and the length of a window in seconds."""

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

    >>> hours = [(3600.0 * k, value) for k, value in enumerate((0.9, 0.8, None, 0.5), 1)]
    >>> sparkline_text(hours, Axis(0, 14400, 3600), threshold=0.7, at_least=True, width=4).plain
    '█▆ ▁'
    """
    worst: Callable[[float, float], float] = min if at_least else max
    shown: dict[int, float] = {}
    for end, value in points:
        column = axis.column(end, width)
        if value is not None and 0 <= column < width:
            shown[column] = worst(value, shown.get(column, value))
    if not shown:
        return Text(" " * width)
    low, high = min(*shown.values(), threshold), max(*shown.values(), threshold)
    room = max(0.0, SMALLEST - (high - low)) / 2
    low, high = low - room, high + room
    text = Text()
    for column in range(width):
        value = shown.get(column)
        if value is None:
            text.append(" ")
        else:
            broken = value < threshold if at_least else value > threshold
            text.append(LEVELS[round((value - low) / (high - low) * (len(LEVELS) - 1))], "red" if broken else "green")
    return text


FIRES: Final = "bold red"
FINDING_LINES: Final = 3
"""Lines of the screen that a problem may take."""
_DAY: Final = 86_400
_SHORTEST_NAME: Final = 18
_LONGEST_NAME: Final = 30
_SHORTEST_REASON: Final = 20


@dataclass(frozen=True)
class OverviewFrame:
    """A picture in lines; a screen may show the body, which has the gates, in part."""

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
        """The lines of a screen, from the `first` line of the body."""
        room = self.room(height)
        body = self.body[first : first + room]
        if len(self.body) > room:
            last = first + len(body)
            body.append(Text(f"lines {first + 1} to {last} of {len(self.body)}: ↑ ↓ scroll, q leaves", "dim"))
        filled = [*body, *(Text() for _ in range(room - len(body)))]
        return [*self.head, *filled, *self.foot][:height]


def draw(
    console: Console, address: str, poll: Poll, *, now: float | None = None, height: int | None = None
) -> OverviewFrame:
    """The picture of a state, as wide as the console."""
    status, width = poll.status, console.width
    head = [_title(status, address, width)]
    if now is not None:
        why = poll.error or "waiting for an answer"
        words = f"stale: no answer since {_clock(poll.at, now)} ({ago(poll.at, now)}): {printable_line(why)}"
        head += _wrapped(console, Text(words, "bold reverse yellow"))
    head += _wrong(console, status, None if height is None else height // 3 - len(head))
    table = _GateTable(poll, width)
    health = _health(status)
    foot = _wrapped(console, health) if height is None else [health]  # what is printed once need not fit a screen
    return OverviewFrame([*head, Text(), table.heading()], list(table.rows()), foot)


def _title(status: OverviewStatus, address: str, width: int) -> Text:
    known = "" if status.wrong else status.headline  # what is wrong follows, with its commands
    text = Text(
        f"ragmon: {printable_line('; '.join(filter(None, (status.trouble, known))))}".removesuffix(": "), "bold"
    )
    where = Text(f"{printable(address)}  {_clock(status.now, status.now)}", "dim")
    gap = width - text.cell_len - where.cell_len
    if gap >= 2:
        text.append(" " * gap).append_text(where)
    return text


def _wrong(console: Console, status: OverviewStatus, room: int | None) -> list[Text]:
    # As many problems as there is room for, and at least the first.
    lines: list[Text] = []
    for number, finding in enumerate(status.wrong):
        text = Text(style=FIRES)
        if finding.since is not None:  # at the beginning, where no line is cut
            text.append(f"since {_clock(finding.since, status.now)} ({ago(finding.since, status.now)}): ")
        text.append(printable_line(finding.what))
        if finding.hint:
            text.append(f"  {printable_line(finding.hint)}", "not bold default")
        more = _wrapped(console, text)
        if lines and room is not None and len(lines) + len(more) >= room:
            return [*lines, Text(f"and {len(status.wrong) - number} more", FIRES)]
        lines += more
    return lines


def _wrapped(console: Console, text: Text) -> list[Text]:
    lines = list(text.wrap(console, max(1, console.width)))
    if len(lines) > FINDING_LINES:
        lines = lines[:FINDING_LINES]
        lines[-1].rstrip()
        lines[-1].append("…")
        lines[-1].truncate(console.width, overflow="ellipsis")
    return lines


def _clock(seconds: float, now: float) -> str:
    form = "%H:%M:%S UTC" if seconds // _DAY == now // _DAY else "%Y-%m-%d %H:%M:%S UTC"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def _health(status: OverviewStatus) -> Text:
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
_COLUMNS: Final = (VERDICT, VALUE, BAR, BOUND, INTERVAL, COUNT, TREND, ALARM)
_WIDE_TREND: Final = 24
"""Columns in which each window of a day has its own."""
_RIGHT: Final = (VALUE, COUNT, BOUND)


class _GateTable:
    """The gates, each on a line, in columns that fit the width."""

    def __init__(self, poll: Poll, width: int) -> None:
        self._status = poll.status
        self._width = width
        span = poll.history.span
        self._span = printable(span.words)
        histories = poll.history.gates
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
        return [column for column in _COLUMNS if column in self._widths]

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
            now, acknowledged = self._status.now, self._acknowledged.get((gate.pipeline, gate.gate))
            if gate.firing is not None:
                return Text(f"fires {_duration(gate.firing, now)}", FIRES)
            return Text("–" if acknowledged is None else f"acked {_duration(acknowledged, now)}", "dim")
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


def _duration(since: float, now: float) -> str:
    # As short as it can be: 8s, 5m, 3h, 2d.
    return ago(since, now).removesuffix(" ago").replace("min", "m").replace(" ", "")


def _figure(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def _layout(width: int, longest: int) -> tuple[dict[str, int], int, int]:
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
    text.truncate(width, overflow="ellipsis")
    text.align("right" if right else "left", width)
    return text


HISTORY: Final = "/api/history"
REFRESH: Final = 10.0
"""Seconds for which a history is shown: its windows are at least as long."""


class ShownGate(msgspec.Struct):
    """A gate of `/api/status`; `firing` is since when its alarm fires, if it does."""

    pipeline: str
    gate: str
    threshold: float
    direction: str
    verdict: str
    reason: str = ""
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    n: int = 0
    firing: float | None = None

    @property
    def at_least(self) -> bool:
        """Whether the threshold is a floor."""
        return self.direction == "at_least"


class JournalSize(msgspec.Struct):
    """The size of a journal and its limit, in bytes."""

    size: int = msgspec.field(name="bytes", default=0)
    limit: int = 0


class OverviewStatus(msgspec.Struct):
    """The part of `/api/status` that is shown; times are seconds since the epoch by the monitor's clock."""

    now: float
    started: float
    headline: str
    wrong: list[StatusFinding]
    doubts: list[StatusFinding]
    gates: list[ShownGate]
    stages: dict[str, StageCounters] = msgspec.field(name="books")
    acknowledged: list[AcknowledgedAlarm] = []
    last_scored: float | None = None
    journal: JournalSize | None = None
    trouble: str = ""


class ShownHistory(msgspec.Struct):
    """A gate over a span of time."""

    pipeline: str
    gate: str
    points: list[GatePoint]


class HistoryPage(msgspec.Struct):
    """The part of `/api/history` that is shown."""

    span: TimeSpan = TimeSpan("", "", 0, 0)
    gates: list[ShownHistory] = []


@dataclass(frozen=True)
class Poll:
    """The latest state of a monitor, when it was read by the clock of this machine, and why no newer one was."""

    status: OverviewStatus
    history: HistoryPage
    at: float
    error: str = ""


class OverviewReader:
    """Reads the state of a monitor from its admin port."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._history = HistoryPage()
        self._due = 0.0

    def read(self) -> Poll:
        """The state; a monitor without a history is shown without."""
        status = read_page(self._url, STATUS, OverviewStatus)
        if monotonic() >= self._due:
            with suppress(NoResponseError):
                self._history = read_page(self._url, HISTORY, HistoryPage)
            self._due = monotonic() + REFRESH
        return Poll(status, self._history, time())


class Poller:
    """Reads the state of a monitor again and again, in a thread that calls `on_poll` after every try."""

    def __init__(self, reader: OverviewReader, first: Poll, every: float, on_poll: Callable[[], None]) -> None:
        self.latest = first
        self._reader = reader
        self._every = every
        self._on_poll = on_poll
        self._stopped = Event()

    def start(self) -> None:
        """Begin; the thread does not keep the process alive."""
        Thread(target=self._run, name="ragmon-top", daemon=True).start()

    def stop(self) -> None:
        """End after the try under way."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                self.latest = self._reader.read()
            except RagmonError as error:
                self.latest = replace(self.latest, error=str(error))
            if not self._stopped.is_set():
                self._on_poll()


TICK: Final = 1.0
"""Seconds after which the picture is drawn again, so that the age of a stale state grows."""
LATE: Final = 3.0
"""Seconds beyond the usual time after which a state without a newer one is stale."""
_KEY: Final = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|[\x00-\xff]", re.DOTALL)
_LEAVE: Final = (b"q", b"Q", b"\x03")
_UP: Final = (b"k", b"\x1b[A", b"\x1bOA")
_DOWN: Final = (b"j", b"\x1b[B", b"\x1bOB")
_PAGE_UP: Final = (b"b", b"\x1b[5~")
_PAGE_DOWN: Final = (b" ", b"\x1b[6~")
_FIRST: Final = (b"g", b"\x1b[H", b"\x1b[1~")
_LAST: Final = (b"G", b"\x1b[F", b"\x1b[4~")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGWINCH)
_ENDING: Final = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
_POLLED: Final = b"\x00"
"""What the thread that reads the monitor writes into the pipe; no signal has this number."""


class LiveOverview:
    """The picture on a terminal. Without a keyboard that is a terminal, signals alone end it."""

    def __init__(
        self,
        console: Console,
        address: str,
        reader: OverviewReader,
        first: Poll,
        every: float,
        keyboard: IO[str] | None,
    ) -> None:
        self._console = console
        self._address = address
        self._every = every
        self._wakeups = Wakeups()
        self._poller = Poller(reader, first, every, self._wakeups.wake)
        self._keys = keyboard.fileno() if keyboard is not None and keyboard.isatty() else None
        self._first = 0
        self._drawn: tuple[object, ...] = ()

    def run(self) -> None:
        """Show the picture until the user leaves."""
        with self._wakeups:
            self._poller.start()
            try:
                while not self._shown_to_the_end():
                    signal.raise_signal(signal.SIGSTOP)  # Ctrl-Z: the shell gets its own screen meanwhile
            finally:
                self._poller.stop()

    def _shown_to_the_end(self) -> bool:
        self._drawn = ()
        with ExitStack() as stack:
            if self._keys is not None:
                stack.enter_context(unbuffered(self._keys))
            stack.enter_context(self._console.screen())
            while True:
                self._draw()
                signals, keys = self._wakeups.wait(self._keys, TICK)
                if signals & _ENDING or keys is None or self._leaves(keys):
                    return True
                if signal.SIGTSTP in signals:
                    return False

    def _frame(self) -> OverviewFrame:
        poll, now = self._poller.latest, time()
        stale = bool(poll.error) or now - poll.at > self._every + LATE
        return draw(self._console, self._address, poll, now=now if stale else None, height=self._console.height)

    def _draw(self) -> None:
        console, frame = self._console, self._frame()
        size = console.size
        self._first = max(0, min(self._first, frame.last(size.height)))
        lines = frame.screen(size.height, self._first)
        for line in lines:
            line.truncate(size.width, overflow="ellipsis", pad=True)
        if (state := (size, *lines)) == self._drawn:
            return
        self._drawn = state
        with console:
            console.control(Control.home())
            for number, line in enumerate(lines):
                end = "\n" if number < len(lines) - 1 else ""
                console.print(line, end=end, no_wrap=True, overflow="crop")

    def _leaves(self, keys: list[bytes]) -> bool:
        height = self._console.height
        frame = self._frame()
        page, last = max(1, frame.room(height) - 1), frame.last(height)
        for key in keys:
            if key in _LEAVE:
                return True
            moves = (
                (_UP, -1),
                (_DOWN, 1),
                (_PAGE_UP, -page),
                (_PAGE_DOWN, page),
                (_FIRST, -self._first),
                (_LAST, last),
            )
            for names, lines in moves:
                if key in names:
                    self._first = max(0, min(last, self._first + lines))
        return False


@contextmanager
def unbuffered(terminal: int) -> Iterator[None]:
    """Keys come one by one and are not shown; afterwards the terminal is as before, and forgets what was typed."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield
    finally:
        with suppress(termios.error):  # a terminal that was closed
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


class Wakeups:
    """Waits for signals, for keys, and for what a thread reports, all at once."""

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        for end in (self._reading, self._writing):
            os.set_blocking(end, False)
        self._fd_before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        # A handler that does nothing: the number of the signal comes through the pipe.
        self._before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)

    def wake(self) -> None:
        """End the waiting; from any thread."""
        with suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._writing, _POLLED)

    def wait(self, keyboard: int | None, seconds: float) -> tuple[set[int], list[bytes] | None]:
        """Wait until something happens."""
        watched = [self._reading] if keyboard is None else [self._reading, keyboard]
        ready, _, _ = select.select(watched, [], [], seconds)
        signals = set(os.read(self._reading, 4096)) if self._reading in ready else set[int]()
        if keyboard is None or keyboard not in ready:
            return signals, []
        try:
            typed = os.read(keyboard, 1024)
        except OSError:
            typed = b""
        return signals, _KEY.findall(typed) if typed else None


def top(url: str | None, every: float, once: bool, no_color: bool, config: str | None) -> int:
    """Show what fires and every gate of a monitor, live: that of `ragmon serve`, or one in an application."""
    address = url or f"http://{load(config).serve.admin}"
    console = Console(no_color=no_color or None, highlight=False, markup=False)
    live = not once and on_terminal(None) and not console.is_dumb_terminal
    reader = OverviewReader(address)
    authority = parse_server_url(address).authority
    try:
        poll = reader.read()
        if live:
            LiveOverview(console, authority, reader, poll, every, sys.stdin).run()
        else:
            with console.capture() as captured:
                for line in draw(console, authority, poll).lines:
                    line.rstrip()
                    console.print(line, no_wrap=True, overflow="crop", crop=True)
            write(captured.get().replace(os.linesep, "\n"), None)
    except KeyboardInterrupt:  # before there is a picture
        if not live:
            raise
    return 0
