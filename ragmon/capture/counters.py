"""A page of counters per process that outlives the process, however that ends.

Counts are stores into shared memory, so they are there after `os._exit` or a kill. The file is locked for as long as
its process lives; whoever finds one unlocked reads what was lost in it and removes it. Two threads never write the same
counter: each has a column of its own.

Pages of processes that are gone: told by one that lives, and removed.

What one process tells of all its calls, kept or not: lines of the contract, counted from its start.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from threading import Lock
from time import time
from typing import Any, Final
from uuid import uuid4

from ragmon.capture.call import count_value
from ragmon.capture.runtime import Runtime
from ragmon.core import constants
from ragmon.core.private_files import is_private, make_private
from ragmon.core.record import Totals
from ragmon.stats import buckets

MAGIC: Final = 0x31_6E_6F_6D_67_61_72  # "ragmon1" in ASCII, read from the right
THREADS: Final = 1000
"""Threads with a column of their own; all others share one, under a lock."""
REASONS: Final = (
    constants.QUEUE_FULL,
    constants.SHUTDOWN_TIMEOUT,
    constants.INVALID_SCHEMA,
    constants.EXPORT_FAILED,
    constants.EXPORT_REFUSED,
    constants.EXPORT_TIMEOUT,
    constants.UNCONFIRMED,
    constants.FORKED,
    constants.OTHER,
)
"""Why records are lost; the order is the file's and only ever grows."""
_INSTANCE, _STARTED, _GIVEN, _SETTLED, _DELIVERED, _DOUBT = 1, 3, 4, 5, 6, 7
_HEADER: Final = 9
_LOST: Final = _HEADER
_COLUMNS: Final = _LOST + 16
KEPT, FULL, CLOSED = 0, 1, 2
"""What a thread counts: calls it kept, and of these the ones it dropped because the queue was full or closed."""
_WIDTH: Final = 3
_WORDS: Final = _COLUMNS + (THREADS + 1) * _WIDTH
SIZE: Final = 8 * _WORDS
SUFFIX: Final = ".page"


own_pages: set[Path] = set()
"""Pages of this process: locking and closing one of these again would give its lock away."""
os.register_at_fork(after_in_child=own_pages.clear)


@dataclass(frozen=True)
class DeadProcess:
    """What the page of a process that is gone says.

    Attributes:
        instance: Its id.
        started: When it began to count, seconds since the epoch.
        kept: Calls it kept.
        delivered: Records it delivered.
        dropped: Records it dropped and counted itself, by reason.
        doubtful: Records it had given to the sink without learning what became of them.
        doubt: The trace id of the record that was under way; "" where none was, or where it was one of a batch.
    """

    instance: str
    started: float
    kept: int
    delivered: int
    dropped: Mapping[str, int]
    doubtful: int
    doubt: str

    @property
    def missing(self) -> int:
        """Records that were neither delivered nor counted as dropped."""
        return self.kept - self.delivered - sum(self.dropped.values())


class CounterFile:
    """The counters of this process.

    Args:
        folder: Where pages lie; None keeps the counters in memory alone.

    Attributes:
        instance: The id of this process among all that ever counted.
        started: When it began to count, seconds since the epoch.
        words: The counters; a thread's first one, of calls it kept, stands at its column.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.instance = uuid4().hex
        self.started = time()
        self._path: Path | None = None
        self._file: int | None = None
        self._map = self._open(folder)
        self.words = memoryview(self._map).cast("Q")
        self._shared = Lock()
        self._free = list(range(_COLUMNS + THREADS * _WIDTH, _COLUMNS, -_WIDTH))
        high, low = struct.unpack(">QQ", bytes.fromhex(self.instance))
        self.words[0], self.words[_INSTANCE], self.words[_INSTANCE + 1] = MAGIC, high, low
        self.words[_STARTED] = int(self.started * 1e6)

    def _open(self, folder: Path | None) -> mmap:
        if folder is not None:
            try:
                make_private(folder)
                self._path = folder / f"{self.instance}{SUFFIX}"
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                own_pages.add(self._path)
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.posix_fallocate(self._file, 0, SIZE)  # a store into a hole of a full disk would kill the process
                return mmap(self._file, SIZE)
            except OSError:  # a folder nobody may write to: the counters live as long as the process
                self._forget()
        return mmap(-1, SIZE)

    def column(self, owner: Any) -> int:
        """A column for one thread, given back when its owner is gone; 0 where none is left.

        Args:
            owner: What lives as long as the thread.
        """
        try:
            column = self._free.pop()
        except IndexError:
            return 0
        weakref.finalize(owner, self._free.append, column).atexit = False
        return column

    def count(self, column: int, what: int) -> None:
        """Count one call of the thread that has the column."""
        if column:
            self.words[column + what] += 1
        else:
            with self._shared:
                self.words[_COLUMNS + what] += 1

    def total(self, what: int) -> int:
        """What all threads counted."""
        return sum(self.words[_COLUMNS + what :][::_WIDTH])

    def give(self, n: int, trace_id: str | None = None) -> None:
        """Note that the sink is given records: one, by its trace id, or several."""
        self.words[_DOUBT], self.words[_DOUBT + 1] = _halves(trace_id if n == 1 else None)
        self.words[_GIVEN] += n

    def commit(self, delivered: int, lost: Mapping[str, int], *, given: int = 0) -> None:
        """Note what became of records.

        Args:
            delivered: Those that were delivered.
            lost: Those that were lost, by reason.
            given: How many of all these the sink was given.
        """
        self.words[_SETTLED] += given
        for reason, n in lost.items():
            place = REASONS.index(reason) if reason in REASONS else REASONS.index(constants.OTHER)
            self.words[_LOST + place] += n
        self.words[_DELIVERED] += delivered
        self.words[_DOUBT] = self.words[_DOUBT + 1] = 0

    @property
    def delivered(self) -> int:
        """Records that were delivered."""
        return self.words[_DELIVERED]

    def dropped(self) -> dict[str, int]:
        """Records that were lost, by reason."""
        return _dropped(self.words)

    def close(self) -> None:
        """Remove the page: what it says has been told."""
        self._forget()

    def leave_to_parent(self) -> None:
        """Let go of a page that came along through a fork and is still its parent's."""
        if self._file is not None:
            os.close(self._file)
        self._path = self._file = None

    def _forget(self) -> None:
        if self._path is not None:
            own_pages.discard(self._path)
            with suppress(OSError):  # the folder may hold others, or be written to no more
                self._path.unlink(missing_ok=True)
                self._path.parent.rmdir()
                self._path.parent.parent.rmdir()
        if self._file is not None:
            os.close(self._file)
        self._path = self._file = None


def _dropped(words: memoryview) -> dict[str, int]:
    found = {reason: words[_LOST + place] for place, reason in enumerate(REASONS)}
    found[constants.QUEUE_FULL] += sum(words[_COLUMNS + FULL :][::_WIDTH])
    found[constants.SHUTDOWN_TIMEOUT] += sum(words[_COLUMNS + CLOSED :][::_WIDTH])
    return {reason: n for reason, n in found.items() if n}


def _halves(trace_id: str | None) -> tuple[int, int]:
    if trace_id is None or len(trace_id) != 32:
        return 0, 0
    number = int(trace_id, 16)
    return number >> 64, number & 0xFFFF_FFFF_FFFF_FFFF


def read(path: Path) -> DeadProcess | None:
    """What a page says; None where it is none, or its process was gone before it was whole."""
    return parse(path.read_bytes())


def parse(data: bytes) -> DeadProcess | None:
    """The same of its bytes."""
    words = memoryview(data).cast("Q") if len(data) == SIZE else None
    if words is None or words[0] != MAGIC:
        return None
    doubt = f"{words[_DOUBT]:016x}{words[_DOUBT + 1]:016x}"
    return DeadProcess(
        instance=f"{words[_INSTANCE]:016x}{words[_INSTANCE + 1]:016x}",
        started=words[_STARTED] / 1e6,
        kept=sum(words[_COLUMNS + KEPT :][::_WIDTH]),
        delivered=words[_DELIVERED],
        dropped=_dropped(words),
        doubtful=words[_GIVEN] - words[_SETTLED],
        doubt=doubt if doubt.strip("0") else "",
    )


def reap(folder: Path | None, tell: Callable[[DeadProcess], bool]) -> None:
    """Tell of processes that are gone, and remove their pages.

    A page is held until it has been told, and stays where it could not be: whoever dies over it leaves it to the next.
    What is told twice says the same.

    Args:
        folder: Where pages lie; None has none.
        tell: Tells one; returns whether it could.
    """
    try:
        paths = sorted(folder.glob(f"*{SUFFIX}")) if folder is not None and is_private(folder) else []
    except OSError:  # there is none
        return
    for path in paths:
        if path not in own_pages:
            with suppress(OSError):  # its process lives, or another one was faster
                _adopt(path, tell)


def _adopt(path: Path, tell: Callable[[DeadProcess], bool]) -> None:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            return
        lost = parse(os.pread(file, SIZE, 0))
        if lost is None or tell(lost):
            path.unlink()
    finally:
        os.close(file)


Key = tuple[str, str, str]
"""Pipeline, source, stratum."""


class Timings:
    """How long all calls took, in log buckets of milliseconds; each call is counted once, whoever looks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[Key, Counter[int]] = {}

    def read(self, runtime: Runtime) -> dict[Key, Counter[int]]:
        """Take in what waits, and give all there is."""
        with self._lock:
            for pipeline, tally in list(runtime.tallies.items()):
                for (source, stratum), waiting in tally.latencies.items():
                    seconds = [waiting.popleft() for _ in range(len(waiting))]
                    if seconds:
                        counted = self._found.setdefault((pipeline, source, stratum), Counter())
                        counted.update(buckets([1000.0 * second for second in seconds]))
            return {key: Counter(counted) for key, counted in self._found.items()}


def count_lines(
    runtime: Runtime, page: CounterFile, timings: Mapping[Key, Mapping[int, int]], dropped: Mapping[str, int]
) -> list[Totals]:
    """The counts of this process: a line per pipeline, source and stratum that had calls, and one for what was lost.

    What was lost stands on a line of its own, of the pipeline `__other__`: a batch is lost as a whole.
    """
    now, found = time(), []
    for (pipeline, source, stratum), calls in runtime.totals().items():
        if calls:
            found.append(
                Totals(
                    ts=now,
                    instance=page.instance,
                    started=page.started,
                    pipeline=pipeline,
                    source=source,
                    stratum=stratum,
                    calls=calls,
                    kept=count_value(runtime.tallies[pipeline].kept[source, stratum]),
                    latency_ms=dict(timings.get((pipeline, source, stratum), {})),
                )
            )
    if dropped:
        found.append(_losses(now, page.instance, page.started, dropped))
    return found


def lines_of_dead_process(lost: DeadProcess, dropped: Mapping[str, int]) -> list[Totals]:
    """What is told of a process that is gone, by one that found its page.

    Args:
        lost: The page.
        dropped: What it counted as lost itself, and what was missing besides.
    """
    return [_losses(time(), lost.instance, lost.started, dropped)] if dropped else []


def _losses(now: float, instance: str, started: float, dropped: Mapping[str, int]) -> Totals:
    return Totals(
        ts=now,
        instance=instance,
        started=started,
        pipeline=constants.OTHER,
        source=constants.LIVE,
        dropped=dict(dropped),
    )
