"""What the demo shows: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragmon.core.policy import Outcome
from ragmon.export.markdown import between, value

WIDE: Final = 80
"""Columns of a terminal that holds the whole table."""
_STYLES: Final = {"pass": "bold green", "fail": "bold white on red", "insufficient": "yellow"}


class Screen(Protocol):
    """Shows the gates as they are now."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Show the gates at a moment."""

    def say(self, text: str) -> None:
        """Say something that stays on screen."""


def open_screen(console: Console) -> Screen:
    """A live table on a terminal that can move its cursor, else plain lines; whatever FORCE_COLOR says of colours."""
    return LiveScreen(console) if console.file.isatty() and not console.is_dumb_terminal else PlainScreen(console)


class LiveScreen:
    """A table that is drawn anew every time."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Draw the table."""
        wide = self._live.console.width >= WIDE
        self._live.update(Group(Text(f"\n{seconds:4.0f} s  {headline}"), table(outcomes, wide=wide)), refresh=True)

    def say(self, text: str) -> None:
        """Print above the table."""
        self._live.console.print(text, highlight=False, markup=False)


class PlainScreen:
    """One line a gate: its name, value and verdict; only now and then, and whenever something changes."""

    EVERY: Final = 10.0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._due = 0.0
        self._headline = ""
        self._verdicts: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Print the lines that are due."""
        due = seconds >= self._due or headline != self._headline
        if due:
            self._due, self._headline = seconds + self.EVERY, headline
            self.say(f"-- {seconds:.0f} s  {headline}")
        for outcome in outcomes:
            name = outcome.gate.name
            if due or self._verdicts.get(name) != outcome.verdict:
                self.say(f"{name} {value(outcome)} {outcome.verdict}")
            self._verdicts[name] = outcome.verdict

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def table(outcomes: Sequence[Outcome], *, wide: bool = True) -> Table:
    """The gates with value and verdict.

    Args:
        outcomes: The gates.
        wide: There is room for source, interval, threshold and n as well.
    """
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("gate", no_wrap=True)
    shown.add_column("value", justify="right", no_wrap=True)
    if wide:
        for column in ("95 % interval", "needs", "n", "source"):
            shown.add_column(column, justify="left" if column == "source" else "right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        details = (between(outcome), needs(outcome), str(outcome.n), outcome.source)
        verdict = Text(outcome.verdict, style=_STYLES[outcome.verdict])
        shown.add_row(outcome.gate.name, value(outcome), *(details if wide else ()), verdict)
    return shown


def needs(outcome: Outcome) -> str:
    """What the gate asks for, in the way ragmon.toml writes it."""
    return f"{'≥' if outcome.gate.at_least else '≤'} {outcome.gate.threshold:g}"
