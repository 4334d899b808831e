"""The worker thread, which makes records of finished calls and exports them, and the counters of its process.

The counters are in a memory-mapped file: counts are stores into shared memory, so they survive `os._exit` and
`kill -9`. The file is locked as long as its process lives; a process that finds an unlocked file reads the lost counts
from it and removes it. Each thread has its own column of counters, so two threads never write the same one.
"""

from __future__ import annotations

import fcntl
import os
import queue
import stat
import struct
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from mmap import mmap
from pathlib import Path
from threading import Condition, Lock, Thread, local
from time import monotonic, time
from typing import Final, NamedTuple
from uuid import uuid4

from ragmon.capture.call import Call, Runtime
from ragmon.capture.exporters import BATCH, BatchExporter, Exporter, Processor, batch_size, deliver
from ragmon.core import constants
from ragmon.core.errors import error_location, warn_once
from ragmon.core.process import allocate, is_private, make_private, sleep_if_inherited
from ragmon.core.record import Record
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
    """The counters of this process; without a folder they are kept in memory only."""

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
            self.close()
        self.close()
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

    def leave_to_parent(self) -> None:
        """Close a file inherited through a fork, without removing it: it belongs to the parent."""
        if self._file is not None:
            os.close(self._file)
        self._path = self._file = None

    def close(self) -> None:
        """Remove the counter file: its counts have been exported."""
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


def read_counts(data: bytes) -> DeadProcess | None:
    """The counts in the bytes of a counter file; None if there are none, or its process died before it was complete."""
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
        if path in own_pages:
            continue
        with suppress(OSError):  # its process lives, or another process reaps it
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(file)
                is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
                if is_ours and status.st_nlink:  # else another process has exported its counts since it was opened
                    counts = read_counts(os.pread(file, SIZE, 0))
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


QUEUE: Final = 4096
MAX_BYTES: Final = 64 * 1024 * 1024
"""Limits of the queue, in calls and in bytes they keep alive; beyond them calls are dropped and counted."""
LINGER: Final = 0.2
"""Seconds a call waits in the queue for spans inside it that have not ended."""
DRAIN_SHARE: Final = 0.5
"""Share of a flush timeout for the processor to return its records; the rest is for the export."""
_TICK_INTERVAL: Final = 0.2
_IDLE_SLEEP: Final = 0.05
"""Seconds the worker sleeps when there is nothing to do. To wake it would cost the request path a lock."""


class QueuedRecord(NamedTuple):
    """A record made by other code, for example by the span processor, and the estimated bytes it keeps alive."""

    record: Record
    weight: int


class WorkerCounts(NamedTuple):
    """How many calls and records the worker received, sent and dropped, and how many are pending, at one moment."""

    received: int
    sent: int
    dropped: dict[str, int]
    pending: int


class Worker:
    """A bounded queue and the daemon thread that empties it.

    The thread calls `every` periodically, also when idle, with whether a flush waits.
    """

    def __init__(
        self,
        convert: Callable[[Call], Record],
        sink: Exporter | BatchExporter,
        capacity: int = QUEUE,
        max_bytes: int = MAX_BYTES,
        folder: Path | None = None,
        every: Callable[[bool], None] | None = None,
        processor: Processor | None = None,
    ) -> None:
        self._convert = convert
        self._sink, self._at_once = sink, batch_size(sink)
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._folder = folder
        self._periodic = every
        self._processor = processor
        self._prepare()

    def _prepare(self) -> None:
        self.counter_file = CounterFile(self._folder)
        self._free_bytes = self._max_bytes
        self._queue: deque[Call | QueuedRecord] = deque()
        self._condition = Condition()
        self._done = 0
        self._dequeued = 0
        self._closed = False
        self._stopped = False
        self._drain_deadline = inf
        self._target = self._flushes = self._flushed = 0
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # a signal handler may put into it at any moment
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread; a second start does nothing."""
        if self._thread is not None:
            return
        with self._condition:
            if self._thread is None:
                # gevent may have replaced the class since the fork: its greenlets must not wait for the whole process.
                self._wake = queue.SimpleQueue()
                self._thread = Thread(target=self._run, name="ragmon-capture", daemon=True)
                self._thread.start()

    def reset_after_fork(self, sink: Exporter | BatchExporter, processor: Processor | None = None) -> None:
        """Reset in a forked child: the queue, locks and counters it inherited belong to the parent."""
        self._processor = processor
        self.counter_file.leave_to_parent()
        self._sink, self._at_once = sink, batch_size(sink)
        self._prepare()

    def submit(self, call: Call | QueuedRecord) -> None:
        """Queue a finished call, or drop and count it. Takes no lock, never blocks, never raises."""
        page = self.counter_file
        page.count(KEPT)
        if self._closed:
            page.count(CLOSED)
        elif len(self._queue) >= self._capacity or call.weight > self._free_bytes:
            page.count(FULL)
        else:
            # No other thread can run between this read and write: Python switches threads only at calls.
            self._free_bytes -= call.weight
            self._queue.append(call)

    def counts(self) -> WorkerCounts:
        """How many calls and records were received, delivered and lost so far, and how many are pending."""
        with self._condition:
            page = self.counter_file
            dropped, sent, received = page.dropped(), page.delivered, page.total(KEPT)
            return WorkerCounts(received, sent, dropped, received - sent - sum(dropped.values()))

    def flush(self, timeout: float) -> bool:
        """Wait until everything submitted so far is exported or lost, and the periodic task has run.

        Returns whether that took no longer than the timeout in seconds.
        """
        with self._condition:
            self._target = self._dequeued + len(self._queue)
            self._flushes = flush_id = self._flushes + 1
            self._drain_deadline = min(self._drain_deadline, monotonic() + timeout * DRAIN_SHARE)
            self._wake.put(None)
            if self.is_told:
                return self._done >= self._target
            return self._condition.wait_for(lambda: self._flushed >= flush_id and self._done >= self._target, timeout)

    def stop(self, timeout: float = 5.0) -> bool:
        """Deliver what is queued, run the periodic task, then end the thread; late records are dropped and counted.

        Returns whether all of that took no longer than the timeout in seconds.
        """
        self._drain_deadline = min(self._drain_deadline, monotonic() + timeout * DRAIN_SHARE)
        self._closed = True
        self._wake.put(None)
        if self._thread is not None:
            self._thread.join(timeout)
        with self._condition:
            late, in_flight = len(self._queue), self._dequeued - self._done
            self._queue.clear()
            self._stopped = True
            self.counter_file.commit(0, {constants.SHUTDOWN_TIMEOUT: late, constants.UNCONFIRMED: in_flight})
            self._dequeued += late
            self._done = self._dequeued
            return not late + in_flight

    @property
    def is_told(self) -> bool:
        """Whether the thread has ended, after its last periodic task."""
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        process, due = os.getpid(), monotonic()
        while True:
            sleep_if_inherited(process)
            flush_id = self._flushes
            if monotonic() >= due or (flush_id > self._flushed and self._done >= self._target):
                due = monotonic() + _TICK_INTERVAL
                self._tick(flush_id, process)
            if self._step(process):
                continue
            if self._closed:
                self._tick(flush_id + 1, process)
                if not self._queue and (self._processor is None or not self._processor.holds):
                    return
            with suppress(queue.Empty):
                self._wake.get(timeout=_IDLE_SLEEP)

    def _tick(self, flush_id: int, process: int) -> None:
        # All the work at once if a flush waits.
        try:
            if self._periodic is not None:
                self._periodic(flush_id > self._flushed)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            warn_once(f"counts could not be reported: {error_location(error)}")
        sleep_if_inherited(process)
        with self._condition:
            if self._done >= self._target:
                self._flushed = flush_id
                self._drain_deadline = self._drain_deadline if self._closed else inf
                # Records that the periodic task has queued belong to this flush.
                self._target = self._dequeued + len(self._queue)
            self._condition.notify_all()

    def _step(self, process: int) -> bool:
        with self._condition:
            # The calls to deliver now; a call with spans that have not ended holds back the calls behind it.
            calls: list[Call | QueuedRecord] = []
            while self._queue and len(calls) < BATCH and not self._lingers(self._queue[0]):
                calls.append(self._queue.popleft())
            weight = sum(call.weight for call in calls)
            self._free_bytes += weight
            self._dequeued += len(calls)
        if not calls and (self._processor is None or not self._processor.holds):
            return False
        records = []
        for call in calls:
            try:
                records.append(self._convert(call) if isinstance(call, Call) else call.record)
                if isinstance(call, Call):
                    call.forget()  # tasks it started may reference it as long as they run
            except BaseException as error:  # noqa: BLE001 - extract= may raise anything, and the thread must go on
                warn_once(f"a call could not be read and is dropped: {error_location(error)}")
        failed = len(calls) - len(records)
        sleep_if_inherited(process)
        self._commit(0, {constants.INVALID_SCHEMA: failed} if failed else {})
        if self._processor is not None:
            try:
                records = self._processor.take(records, self._drain_deadline)
            except Exception as error:  # noqa: BLE001 - the thread must go on, and the records must be exported
                warn_once(f"records continue without a judge: {error_location(error)}")
        sleep_if_inherited(process)
        for start in range(0, len(records), self._at_once):
            batch = records[start : start + self._at_once]
            self.counter_file.give(len(batch), batch[0].trace_id)
            lost = deliver(self._sink, batch)
            sleep_if_inherited(process)  # the parent counts what it gave
            self._commit(len(batch) - sum(lost.values()), lost, given=len(batch))
        return bool(calls or records)

    def _lingers(self, call: Call | QueuedRecord) -> bool:
        # Spans inside a call may still end.
        if not isinstance(call, Call) or not call.open or self._closed or self._flushes > self._flushed:
            return False
        return 0 <= time() - call.ts < LINGER

    def _commit(self, delivered: int, lost: Mapping[str, int], given: int = 0) -> None:
        with self._condition:
            if self._stopped:  # already counted as unconfirmed
                return
            self.counter_file.commit(delivered, lost, given=given)
            self._done += delivered + sum(lost.values())
            self._condition.notify_all()
