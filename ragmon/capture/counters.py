"""Counters of all calls of a process, in a memory-mapped file that survives a crash, and the totals made of them.

Counts are stores into shared memory, so they survive `os._exit` and `kill -9`. The file is locked as long as its
process lives; a process that finds an unlocked file reads the lost counts from it and removes it. Each thread has its
own column of counters, so two threads never write the same one.

The totals of one process count all calls, kept or not, from its start; they are lines of the contract.
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
from threading import Lock, local
from time import time
from typing import Final
from uuid import uuid4

from ragmon.capture.call import Runtime, count_value
from ragmon.core import constants
from ragmon.core.process import allocate, is_private, make_private
from ragmon.core.record import Totals
from ragmon.stats.histograms import buckets

MAGIC: Final = 0x31_6E_6F_6D_67_61_72  # "ragmon1" in ASCII, read from the right
THREADS: Final = 1000
"""Threads with their own column; all others share one column under a lock."""
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
"""Why records are lost; the file stores counts in this order, so it may only be extended at the end."""
_INSTANCE, _STARTED, _GIVEN, _CONFIRMED, _DELIVERED, _PENDING_ID = 1, 3, 4, 5, 6, 7
_HEADER: Final = 9
_LOST: Final = _HEADER
_COLUMNS: Final = _LOST + 16
KEPT, FULL, CLOSED = 0, 1, 2
"""Counters of a thread: calls it kept, and those of them it dropped because the queue was full or closed."""
_WIDTH: Final = 3
_WORDS: Final = _COLUMNS + (THREADS + 1) * _WIDTH
SIZE: Final = 8 * _WORDS
SUFFIX: Final = ".page"
_ATTEMPTS: Final = 20
"""How often a process tries to create its file while others remove it; each attempt takes microseconds."""


own_pages: set[Path] = set()
"""Counter files of this process: to open, lock and close one of them again would release its lock."""
os.register_at_fork(after_in_child=own_pages.clear)


@dataclass(frozen=True)
class DeadProcess:
    """The counts of a dead process, read from its counter file.

    Attributes:
        dropped: Records it dropped and counted itself, by reason.
        doubtful: Records it had given to the exporter whose outcome is unknown.
        doubt: The trace id of the record that was being exported; "" if there was none, or it was part of a batch.
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


class _Owner:
    """Lives as long as a thread."""


class CounterFile:
    """The counters of this process.

    Args:
        folder: The folder of the counter files; None keeps the counters in memory only.

    Attributes:
        words: The counters; a thread's first counter, of calls it kept, is at its column.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.instance = uuid4().hex
        self.started = time()
        self._path: Path | None = None
        self._file: int | None = None
        self._map = self._open(folder)
        self.words = memoryview(self._map).cast("Q")
        self._shared_lock = Lock()
        self._threads = local()
        self._free_columns = list(range(_COLUMNS + THREADS * _WIDTH, _COLUMNS, -_WIDTH))
        high, low = struct.unpack(">QQ", bytes.fromhex(self.instance))
        self.words[0], self.words[_INSTANCE], self.words[_INSTANCE + 1] = MAGIC, high, low
        self.words[_STARTED] = int(self.started * 1e6)

    def _open(self, folder: Path | None) -> mmap:
        for _ in range(_ATTEMPTS):
            if folder is None:
                break
            try:
                # Create and lock a file. Until it is locked, another process may take it for the file of a dead
                # process, and remove it.
                make_private(folder)
                self._path = folder / f"{self.instance}{SUFFIX}"
                own_pages.add(self._path)
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                allocate(self._file, SIZE)
                file = self._file
                if os.fstat(file).st_nlink:
                    return mmap(file, SIZE)
            except (FileNotFoundError, BlockingIOError):  # another process removed the folder, or locked the file first
                pass
            except OSError:  # the folder is not writable: the counters live as long as the process
                break
            self._remove()
        self._remove()
        return mmap(-1, SIZE)

    def count(self, what: int) -> None:
        """Count one call of this thread."""
        try:
            column = self._threads.column
        except AttributeError:
            column, owner = 0, _Owner()
            with suppress(IndexError):  # without a free column, the thread counts in the shared one
                column = self._free_columns.pop()
                weakref.finalize(owner, self._free_columns.append, column).atexit = False
            self._threads.column, self._threads.owner = column, owner
        if column:
            self.words[column + what] += 1
        else:
            with self._shared_lock:
                self.words[_COLUMNS + what] += 1

    def total(self, what: int) -> int:
        """The sum of one counter over all threads."""
        return sum(self.words[_COLUMNS + what :][::_WIDTH])

    def give(self, n: int, trace_id: str | None = None) -> None:
        """Count records given to the exporter: one, by its trace id, or several."""
        number = int(trace_id, 16) if n == 1 and trace_id is not None and len(trace_id) == 32 else 0
        self.words[_PENDING_ID], self.words[_PENDING_ID + 1] = number >> 64, number & 0xFFFF_FFFF_FFFF_FFFF
        self.words[_GIVEN] += n

    def commit(self, delivered: int, lost: Mapping[str, int], *, given: int = 0) -> None:
        """Count the records that were delivered and lost, and how many of all these were given to the exporter."""
        self.words[_CONFIRMED] += given
        for reason, n in lost.items():
            index = REASONS.index(reason) if reason in REASONS else REASONS.index(constants.OTHER)
            self.words[_LOST + index] += n
        self.words[_DELIVERED] += delivered
        self.words[_PENDING_ID] = self.words[_PENDING_ID + 1] = 0

    @property
    def delivered(self) -> int:
        """Records that were delivered."""
        return self.words[_DELIVERED]

    def dropped(self) -> dict[str, int]:
        """Records that were lost, by reason."""
        return _dropped(self.words)

    def close(self) -> None:
        """Remove the counter file: its counts have been exported."""
        self._remove()

    def leave_to_parent(self) -> None:
        """Close a file inherited through a fork, without removing it: it belongs to the parent."""
        if self._file is not None:
            os.close(self._file)
        self._path = self._file = None

    def _remove(self) -> None:
        if self._path is not None:
            own_pages.discard(self._path)
            with suppress(OSError):  # the folder may hold other files, or have become read-only
                self._path.unlink(missing_ok=True)
                self._path.parent.rmdir()
                self._path.parent.parent.rmdir()
        if self._file is not None:
            os.close(self._file)
        self._path = self._file = None


def _dropped(words: memoryview) -> dict[str, int]:
    counts = {reason: words[_LOST + index] for index, reason in enumerate(REASONS)}
    counts[constants.QUEUE_FULL] += sum(words[_COLUMNS + FULL :][::_WIDTH])
    counts[constants.SHUTDOWN_TIMEOUT] += sum(words[_COLUMNS + CLOSED :][::_WIDTH])
    return {reason: n for reason, n in counts.items() if n}


def read(path: Path) -> DeadProcess | None:
    """The counts in a counter file; None if it is not one, or its process died before it was complete."""
    return parse(path.read_bytes())


def parse(data: bytes) -> DeadProcess | None:
    """The counts in the bytes of a counter file; None as in `read`."""
    words = memoryview(data).cast("Q") if len(data) == SIZE else None
    if words is None or words[0] != MAGIC:
        return None
    doubt = f"{words[_PENDING_ID]:016x}{words[_PENDING_ID + 1]:016x}"
    return DeadProcess(
        instance=f"{words[_INSTANCE]:016x}{words[_INSTANCE + 1]:016x}",
        started=words[_STARTED] / 1e6,
        kept=sum(words[_COLUMNS + KEPT :][::_WIDTH]),
        delivered=words[_DELIVERED],
        dropped=_dropped(words),
        doubtful=words[_GIVEN] - words[_CONFIRMED],
        doubt=doubt if doubt.strip("0") else "",
    )


def reap(folder: Path | None, tell: Callable[[DeadProcess], bool]) -> None:
    """Export the counts of dead processes with a function that returns whether it succeeded, and remove their files.

    A file stays locked until its counts are exported, and remains if the export fails or this process dies: the next
    process tries again. To export the same counts twice changes nothing.
    """
    try:
        paths = sorted(folder.glob(f"*{SUFFIX}")) if folder is not None and is_private(folder) else []
    except OSError:  # the folder does not exist
        return
    for path in paths:
        if path not in own_pages:
            with suppress(OSError):  # its process lives, or another process reaps it
                _reap_file(path, tell)


def _reap_file(path: Path, tell: Callable[[DeadProcess], bool]) -> None:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            return
        if not status.st_nlink:  # another process has exported its counts since it was opened
            return
        counts = parse(os.pread(file, SIZE, 0))
        if counts is None or tell(counts):
            path.unlink()
    finally:
        os.close(file)


Key = tuple[str, str, str]
"""Pipeline, source, stratum."""


class Timings:
    """Latency histograms of all calls, in log buckets of milliseconds; several readers count each call only once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[Key, Counter[int]] = {}

    def read(self, runtime: Runtime) -> dict[Key, Counter[int]]:
        """Count the latencies that wait, and return all histograms."""
        with self._lock:
            for pipeline, counters in list(runtime.counters.items()):
                for source, stratum in counters.latencies:
                    if seconds := counters.take_latencies(source, stratum):
                        histogram = self._counts.setdefault((pipeline, source, stratum), Counter())
                        histogram.update(buckets([1000.0 * second for second in seconds]))
            return {key: Counter(histogram) for key, histogram in self._counts.items()}


def count_lines(
    runtime: Runtime, page: CounterFile, timings: Mapping[Key, Mapping[int, int]], dropped: Mapping[str, int]
) -> list[Totals]:
    """The totals of this process: a line per pipeline, source and stratum with calls, and one line for dropped records.

    The dropped records have a line of their own, of the pipeline `__other__`: a batch is lost as a whole.
    """
    now, lines = time(), []
    for (pipeline, source, stratum), calls in runtime.totals().items():
        if calls:
            lines.append(
                Totals(
                    ts=now,
                    instance=page.instance,
                    started=page.started,
                    pipeline=pipeline,
                    source=source,
                    stratum=stratum,
                    calls=calls,
                    kept=count_value(runtime.counters[pipeline].kept[source, stratum]),
                    latency_ms=dict(timings.get((pipeline, source, stratum), {})),
                )
            )
    if dropped:
        lines.append(_drop_line(now, page.instance, page.started, dropped))
    return lines


def lines_of_dead_process(lost: DeadProcess, dropped: Mapping[str, int]) -> list[Totals]:
    """Lines for the lost records of a dead process, written by the process that found its counter file."""
    return [_drop_line(time(), lost.instance, lost.started, dropped)] if dropped else []


def _drop_line(now: float, instance: str, started: float, dropped: Mapping[str, int]) -> Totals:
    return Totals(
        ts=now,
        instance=instance,
        started=started,
        pipeline=constants.OTHER,
        source=constants.LIVE,
        dropped=dict(dropped),
    )
