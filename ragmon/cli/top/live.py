"""A picture of a monitor that stays current on a terminal, and how keys and signals end it.

The terminal is left as it was found, however the command ends: the cursor, the screen and the modes of the keyboard.
"""

from __future__ import annotations

import os
import re
import select
import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import time
from types import TracebackType
from typing import IO, Final, Self

from rich.console import Console
from rich.control import Control

from ragmon.cli.top.frame import OverviewFrame, draw
from ragmon.cli.top.polling import OverviewReader, Poll, Poller

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
    """The picture on a terminal.

    Args:
        console: The terminal.
        place: The address of the monitor.
        reader: Reads the state of the monitor.
        first: The state at the beginning.
        every: Seconds between two readings.
        keyboard: Where keys are read from; where that is no terminal, signals alone end it.
    """

    def __init__(
        self, console: Console, place: str, reader: OverviewReader, first: Poll, every: float, keyboard: IO[str] | None
    ) -> None:
        self._console = console
        self._place = place
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
        """Show the picture; returns whether the user leaves, and False where the process is to be suspended."""
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
        return draw(self._console, self._place, poll, now=now if stale else None, height=self._console.height)

    def _draw(self) -> None:
        """Draw the picture where it has changed, in one write."""
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
        """Scroll as keys say; returns whether one of them leaves."""
        height = self._console.height
        frame = self._frame()
        page, last = max(1, frame.room(height) - 1), frame.last(height)
        moves = ((_UP, -1), (_DOWN, 1), (_PAGE_UP, -page), (_PAGE_DOWN, page), (_FIRST, -last), (_LAST, last))
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
    """Keys come one by one and are not shown; afterwards the terminal is as before, and forgets what was typed.

    Args:
        terminal: The file descriptor of the terminal.
    """
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
        """Wait until something happens.

        Args:
            keyboard: The file descriptor of the keyboard; None where there is none.
            seconds: The longest time to wait.

        Returns:
            The signals and the keys that came; None for the keys where the keyboard is gone.
        """
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
