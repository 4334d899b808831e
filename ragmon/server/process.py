"""The server's process: a watchdog that ends it when it is frozen or stuck, and memory returned to the system.

What the process was working on is noted on disk before. There are two cases. A call into C, for example a regular
expression, holds the GIL: no thread runs and no signal is handled. A kernel timer that counts the process' CPU time
then ends the process, unless a Python thread resets it in time. Time in which the process does not run (stopped, or the
machine sleeps) does not count. The other case is a loop in Python, for example in a custom redactor, that blocks the
writer thread: the watchdog thread sees that the same item never ends.

glibc keeps freed memory in an arena per thread, for the next allocation; with dozens of threads the arenas hold most of
what was ever used. It is limited to two arenas, and asked every few seconds to release the free memory in them.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Final, Self

from ragmon.server.quarantine import Attempts

EVERY: Final = 10.0
"""Seconds between two trims: one takes some milliseconds."""
_ARENAS: Final = 2
_LARGE: Final = 1 << 20
"""Bytes from which an allocation gets pages of its own, which are released when it is freed."""
_SPARE: Final = 4 << 20
"""Bytes that an arena keeps free at its end: to release them after each request costs a tenth of what it takes."""
# Source: GNU C Library manual, "Malloc Tunable Parameters"; the numbers are those of its malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
FROZEN: Final = 6.0
"""Seconds of CPU of the whole process without any Python thread running, after which the kernel ends it."""
STUCK: Final = 30.0
"""Seconds of CPU that one trace or one line may take."""
WAITING: Final = 300.0
"""Seconds, summed over the polls, after which the same trace or line is stuck although it uses no CPU."""
LEAVE: Final = 8.0
"""Seconds after a termination signal at which the process exits, whatever it is doing."""
LOOK: Final = 0.5
"""Seconds between two polls, at most."""
_POLLS: Final = 4
"""Polls in the time in which the process could use `FROZEN` seconds of CPU on all processors at once."""
_log = logging.getLogger("ragmon.server")


def limit_arenas() -> None:
    """Configure glibc to keep little freed memory; any other C library is left unchanged."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for name, value in ((_ARENA_MAX, _ARENAS), (_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _SPARE)):
            library.mallopt(name, value)


class MemoryTrimmer:
    """Returns free memory to the system, if anything arrived since the last trim."""

    def __init__(self) -> None:
        self._due = monotonic() + EVERY
        self._last_came = 0

    def trim_if_due(self, arrivals: int) -> None:
        """Trim, if it is time."""
        now = monotonic()
        if now < self._due:
            return
        self._due = now + EVERY
        if arrivals != self._last_came:
            self._last_came = arrivals
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)


def _processors() -> int:
    """How many processors this process may use; where the system does not tell, as on macOS, all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Watchdog:
    """Ends this process where it cannot end itself."""

    def __init__(self, stuck: int, leave: Callable[[int], object] = os._exit) -> None:
        self._stuck = stuck
        self._leave = leave
        self._attempts: Attempts | None = None
        self._leave_at: float | None = None
        self._last_poll = (-1, 0, 0.0)
        self._ended = Event()
        # Threads in libraries that release the GIL may use all processors; the process is not frozen then.
        self._pause = min(LOOK, FROZEN / (_POLLS * _processors()))
        self._thread = Thread(target=self._run, name="ragmon-watchdog", daemon=True)
        self._has_timer = signal.getsignal(signal.SIGPROF) == signal.SIG_DFL  # no profiler uses the signal

    def watch(self, attempts: Attempts) -> None:
        """Watch that each attempt noted there ends."""
        self._attempts = attempts

    def hurry(self) -> None:
        """Note that the process was asked to end; safe to call in a signal handler."""
        self._leave_at = self._leave_at or time.monotonic() + LEAVE

    def __enter__(self) -> Self:
        """Start the kernel timer and the thread."""
        if self._has_timer:
            # It writes the stack of every thread, without the GIL, and then lets the signal end the process.
            with suppress(OSError, ValueError, RuntimeError):  # there is no stderr
                faulthandler.register(signal.SIGPROF, chain=True)
            self._set_timer(FROZEN)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the thread and the timer."""
        self._ended.set()
        self._thread.join()
        self._set_timer(0.0)
        if self._has_timer:
            faulthandler.unregister(signal.SIGPROF)

    def _set_timer(self, seconds: float) -> None:
        """Reset the kernel timer; 0 stops it."""
        if self._has_timer:
            signal.setitimer(signal.ITIMER_PROF, seconds)

    def _run(self) -> None:
        while not self._ended.wait(self._pause):
            self._set_timer(FROZEN)
            if self._leave_at is not None and time.monotonic() >= self._leave_at:
                self._end(0, "the process was asked to end and is not done: it leaves; what was accepted is on disk")
            elif self._is_stuck():
                self._end(self._stuck, "a request takes too long: the process leaves; the second time sets it aside")

    def _is_stuck(self) -> bool:
        attempts = self._attempts
        if attempts is None or not attempts.busy:
            self._last_poll = (-1, 0, 0.0)
            return False
        begun, polls, cpu_at_start = self._last_poll
        cpu_now = 0.0
        with suppress(OSError):  # the thread has ended
            cpu_now = time.clock_gettime(time.pthread_getcpuclockid(attempts.thread))
        if begun != attempts.begun:
            self._last_poll = (attempts.begun, 0, cpu_now)
            return False
        self._last_poll = (begun, polls + 1, cpu_at_start)
        return cpu_now - cpu_at_start > STUCK or polls * self._pause > WAITING

    def _end(self, code: int, message: str) -> None:
        _log.error("%s; this is where its threads are:", message)
        with suppress(OSError, ValueError, RuntimeError):
            faulthandler.dump_traceback()
        self._leave(code)
