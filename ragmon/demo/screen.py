"""What the demo shows: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragmon.export.markdown import percent
from ragmon.gates import Outcome

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
    """A live table where there is a terminal, else plain lines."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


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
        self._live.update(Group(Text(f"{seconds:4.0f} s  {headline}"), table(outcomes)), refresh=True)

    def say(self, text: str) -> None:
        """Print above the table."""
        self._live.console.print(text, highlight=False)


class PlainScreen:
    """One line a gate: its name, value and verdict; only now and then, and whenever a verdict changes."""

    EVERY: Final = 5.0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._due = 0.0
        self._verdicts: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Print the lines that are due."""
        due = seconds >= self._due
        if due:
            self._due = seconds + self.EVERY
            self.say(f"-- {seconds:.0f} s {headline}")
        for outcome in outcomes:
            name = outcome.gate.name
            if due or self._verdicts.get(name) != outcome.verdict:
                self.say(f"{name} {number(outcome)} {outcome.verdict}")
            self._verdicts[name] = outcome.verdict

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def table(outcomes: Sequence[Outcome]) -> Table:
    """The gates with value, interval, n, threshold and verdict."""
    shown = Table()
    for column in ("gate", "source"):
        shown.add_column(column)
    for column in ("value", "95 % interval", "gate at", "n"):
        shown.add_column(column, justify="right")
    shown.add_column("verdict")
    for outcome in outcomes:
        shown.add_row(
            outcome.gate.name,
            outcome.source,
            number(outcome),
            interval(outcome),
            f"{'≥' if outcome.gate.at_least else '≤'} {outcome.gate.threshold:g}",
            str(outcome.n),
            Text(f" {outcome.verdict} ", style=_STYLES[outcome.verdict]),
        )
    return shown


def number(outcome: Outcome) -> str:
    """The value as people read it."""
    if outcome.gate.kind == "distinct" and outcome.value is not None:
        return f"{outcome.value:.0f}"
    return percent(outcome.value)


def interval(outcome: Outcome) -> str:
    """The interval as people read it."""
    if outcome.lower is None or outcome.upper is None:
        return ""
    return f"{100 * outcome.lower:.1f} – {100 * outcome.upper:.1f} %"
