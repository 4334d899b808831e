"""A process that freezes or hangs ends by itself, so that whoever starts it again can: what it was at is noted on disk.

Two things can hold it. A call into C, a regular expression, say, keeps Python's lock: no thread runs, and no signal is
heard. A timer of the kernel that counts the process' own CPU time ends it then, unless a thread of Python sets it back
in time. Time in which the process does not run, stopped or on a machine asleep, does not count. And a loop in Python,
somebody's redactor, say, holds up the one thread that writes: the same thread sees that nothing ends any more.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

from ragmon.server.journal.quarantine import Attempts

FROZEN: Final = 6.0
"""Seconds of CPU of the whole process in which no thread of Python gets a turn: the kernel ends it."""
STUCK: Final = 30.0
"""Seconds of CPU that one trace or one line may take."""
WAITING: Final = 300.0
"""Seconds between looks at the same trace or line, added up, after which it is stuck although it takes no CPU."""
LEAVE: Final = 8.0
"""Seconds after a signal to end at which the process leaves, whatever it is at."""
LOOK: Final = 0.5
"""Seconds between two looks, at most."""
_LOOKS: Final = 4
"""How often it looks while the process uses as much CPU as would end it, on all processors at once."""
_log = logging.getLogger("ragmon.server")


class Watchdog:
    """Ends this process where it cannot end itself.

    Args:
        stuck: The exit code where a request takes too long: the process is to be started again.
        leave: Ends the process with an exit code at once.
    """

    def __init__(self, stuck: int, leave: Callable[[int], object] = os._exit) -> None:
        self._stuck = stuck
        self._leave = leave
        self._attempts: Attempts | None = None
        self._leave_at: float | None = None
        self._seen = (-1, 0, 0.0)
        self._ended = Event()
        # Threads in libraries that let go of Python's lock may use all processors, and are not frozen.
        self._pause = min(LOOK, FROZEN / (_LOOKS * len(os.sched_getaffinity(0))))
        self._thread = Thread(target=self._run, name="ragmon-watchdog", daemon=True)
        self._has_timer = signal.getsignal(signal.SIGPROF) == signal.SIG_DFL  # no profiler uses it

    def watch(self, attempts: Attempts) -> None:
        """See that what is begun there ends."""
        self._attempts = attempts

    def hurry(self) -> None:
        """Somebody asked the process to end; a handler of signals may call this."""
        self._leave_at = self._leave_at or time.monotonic() + LEAVE

    def __enter__(self) -> Self:
        """Begin."""
        if self._has_timer:
            # It writes where every thread is, without Python's lock, and then lets the signal end the process.
            with suppress(OSError, ValueError, RuntimeError):  # there is no stderr
                faulthandler.register(signal.SIGPROF, chain=True)
            self._wind(FROZEN)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, and leave no timer behind."""
        self._ended.set()
        self._thread.join()
        self._wind(0.0)
        if self._has_timer:
            faulthandler.unregister(signal.SIGPROF)

    def _wind(self, seconds: float) -> None:
        """Set the kernel's timer back; 0 stops it."""
        if self._has_timer:
            signal.setitimer(signal.ITIMER_PROF, seconds)

    def _run(self) -> None:
        while not self._ended.wait(self._pause):
            self._wind(FROZEN)
            if self._leave_at is not None and time.monotonic() >= self._leave_at:
                self._end(0, "the process was asked to end and is not done: it leaves; what was accepted is on disk")
            elif self._is_stuck():
                self._end(self._stuck, "a request takes too long: the process leaves; the second time sets it aside")

    def _is_stuck(self) -> bool:
        """Whether the same trace or line has been worked on for too long."""
        attempts = self._attempts
        if attempts is None or not attempts.busy:
            self._seen = (-1, 0, 0.0)
            return False
        begun, looks, since = self._seen
        spent = _spent(attempts.thread)
        if begun != attempts.begun:
            self._seen = (attempts.begun, 0, spent)
            return False
        self._seen = (begun, looks + 1, since)
        return spent - since > STUCK or looks * self._pause > WAITING

    def _end(self, code: int, why: str) -> None:
        _log.error("%s; this is where its threads are:", why)
        with suppress(OSError, ValueError, RuntimeError):
            faulthandler.dump_traceback()
        self._leave(code)


def _spent(thread: int) -> float:
    """Seconds of CPU a thread of this process has used; 0 where it has ended."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:
        return 0.0
