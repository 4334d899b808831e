"""The server's process: what it works on, a watchdog that ends it when it is frozen or stuck, and its memory.

Work that ended or froze the process would do so again after every start. So each attempt is noted in a page of shared
memory before the work begins and cleared after it: a store into memory, without a write to the disk. The kernel keeps
the page when the process is killed. An attempt that is in the page at the next start did not end. After two such
attempts the request is moved to the quarantine, where it can be inspected.

A call into C, for example a regular expression, holds the GIL: no thread runs and no signal is handled. A kernel timer
that counts the process' CPU time then ends the process, unless a Python thread resets it in time. A loop in Python, for
example in a custom redactor, blocks the writer thread: the watchdog thread sees that the same item never ends.

glibc keeps freed memory in an arena per thread, for the next allocation; with dozens of threads the arenas hold most of
what was ever used. It is limited to two arenas, and asked every few seconds to release the free memory in them.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path
from threading import Event, Thread, get_ident
from time import monotonic
from types import TracebackType
from typing import Final, NamedTuple, Self

from ragmon.core.process import allocate

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
FILE: Final = "journal.attempts"
SIZE: Final = 4096
MAX_ATTEMPTS: Final = 2
"""Attempts without an end after which a request is quarantined."""
_SLOT: Final = struct.Struct("=II24s")
"""The number of attempts that did not end, the line in the row, and the key. The first slot is the work in progress."""
_SLOTS: Final = SIZE // _SLOT.size
_MAX_ATTEMPTS: Final = 1000
"""A slot with this many attempts or more is invalid: no server makes so many."""
_LINE: Final = 1
"""The index of the word of the page that holds the line in progress."""
_NUMBERED: Final = struct.Struct(">cqd")
"""A key of a row or of a request: kind, sequence number, arrival time."""
ASSEMBLING: Final = "assembling"
SCORING: Final = "scoring"
READING: Final = "reading"
"""The processing step during which the process ended."""


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


class WorkItem(NamedTuple):
    """A unit of work that can fail by itself."""

    key: bytes
    line: int = 0


def trace_key(trace_id: bytes) -> bytes:
    """The key of a trace that is being assembled."""
    return b"t" + trace_id


def row_key(seq: int, arrival: float) -> bytes:
    """The key of a row that is being scored. The arrival is part of it: a new journal may use the same number again."""
    return _NUMBERED.pack(b"r", seq, arrival)


def row_of(key: bytes) -> tuple[int, float] | None:
    """Number and arrival time of the row of a key; None if it is not the key of a row."""
    kind, seq, arrival = _NUMBERED.unpack(key)
    return (seq, arrival) if kind == b"r" else None


def body_key(seq: int, arrival: float) -> bytes:
    """The key of a journalled request that is being read."""
    return _NUMBERED.pack(b"b", seq, arrival)


class Attempts:
    """Notes in shared memory which work begins and ends. One thread works at a time."""

    def __init__(self, folder: Path) -> None:
        self.begun = 0
        self.thread = get_ident()
        self._page = _open(folder / FILE)
        self._words = memoryview(self._page).cast("I")
        self._failed: dict[WorkItem, int] = {}
        for slot in (*range(1, _SLOTS), 0):  # the work in progress is the newest, so it is read last
            n, line, padded = _SLOT.unpack_from(self._page, slot * _SLOT.size)
            key = padded[: _NUMBERED.size]  # cut by length, not at zeros: ids may end in zeros
            if 0 < n < _MAX_ATTEMPTS and key[:1] in (b"t", b"r", b"b"):
                self._failed[WorkItem(key, line)] = self._failed.pop(WorkItem(key, line), 0) + n
        self._words[0] = 0
        self._write()

    @property
    def busy(self) -> bool:
        """Whether there is work in progress."""
        try:
            return bool(self._words[0])
        except ValueError:  # the page was closed
            return False

    def poison(self) -> list[WorkItem]:
        """The work items that were attempted twice and did not end."""
        return [item for item, n in self._failed.items() if n >= MAX_ATTEMPTS]

    def begin(self, key: bytes) -> None:
        """Note that work begins."""
        self.begun += 1
        self.thread = get_ident()
        _SLOT.pack_into(self._page, 0, 1, 0, key.ljust(24, b"\0"))

    @contextmanager
    def attempt(self, key: bytes) -> Iterator[None]:
        """Note the work inside the block; an exception ends the attempt as well."""
        self.begin(key)
        try:
            yield
        finally:
            self.end(key)

    def at(self, line: int) -> None:
        """Note which line of the current row is next."""
        self.begun += 1
        self._words[_LINE] = line

    def end(self, key: bytes) -> None:
        """Note that work ended, with or without an exception: it did not end the process."""
        self._words[0] = 0
        if self._failed:
            self._forget([item for item in self._failed if item.key == key])

    def commit(self) -> None:
        """Forget the poison items: their quarantine is on disk."""
        self._forget(self.poison())

    def close(self) -> None:
        """Close the page; calling it again does nothing."""
        if not self._page.closed:
            self._words.release()
            self._page.close()

    def _forget(self, items: list[WorkItem]) -> None:
        for item in items:
            del self._failed[item]
        if items:
            self._write()

    def _write(self) -> None:
        """Write the failed items to the page; the newest, if the page cannot hold all."""
        kept = [*self._failed.items()][1 - _SLOTS :]
        slots = b"".join(_SLOT.pack(n, item.line, item.key.ljust(24, b"\0")) for item, n in kept)
        self._page[_SLOT.size :] = slots.ljust(SIZE - _SLOT.size, b"\0")
        with suppress(OSError):
            self._page.flush()


def _open(path: Path) -> mmap:
    with suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            allocate(file, SIZE)
            return mmap(file, SIZE)
        finally:
            os.close(file)
    return mmap(-1, SIZE)


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
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._pause = min(LOOK, FROZEN / (_POLLS * processors))
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
                self._end(
                    0, "the process was asked to end and takes too long: it exits now; what was accepted is on disk"
                )
            elif self._is_stuck():
                self._end(
                    self._stuck, "a request takes too long: the process exits; the second time sets the request aside"
                )

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
