"""Deliver what is on its way when the process is told to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

from ragmon.core.errors import RagmonError


def install(signum: int, drain: Callable[[], object]) -> None:
    """Drain on a signal, then do what was done before; a second signal does that at once.

    Args:
        signum: The signal.
        drain: Delivers what waits, within its own time limit.

    Raises:
        RagmonError: This is not the main thread.
    """
    previous = signal.getsignal(signum)

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, _pass_on if previous in (signal.SIG_DFL, None) else previous)
        try:
            drain()
        finally:
            if callable(previous):
                previous(number, frame)
            elif previous != signal.SIG_IGN:
                _pass_on(number, frame)

    try:
        signal.signal(signum, handle)
    except ValueError:
        hint = "call it in the main thread"
        raise RagmonError("signal handlers cannot be installed in this thread", hint=hint) from None


def _pass_on(number: int, _frame: FrameType | None) -> None:
    """End as a process without a handler ends, so that whoever waits for it learns of the signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
