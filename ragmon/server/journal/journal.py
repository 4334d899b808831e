"""One transaction on the journal: all of it is on disk, or none.

The journal of one server: the truth from which everything it shows is computed again after a crash.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time

from ragmon.core import record
from ragmon.core.record import Record
from ragmon.server.journal import erasure, files, quarantine, reader, retention, store
from ragmon.server.journal.errors import JournalError, translate_errors, translate_file_errors, translate_read_errors
from ragmon.server.journal.failures import Failure, FailureIndex
from ragmon.server.journal.files import Lock
from ragmon.server.journal.keys import Key, Keys
from ragmon.server.journal.quarantine import Attempts
from ragmon.server.journal.reader import HighWaterMark, JournalReaderBase, finished_traces
from ragmon.server.journal.retention import RetentionLimits
from ragmon.server.journal.schema import checksum


class JournalBatch:
    """What is written together.

    Args:
        connection: The journal, inside a transaction.
        keys: Its keys.
        index: Its failures.
        tail: The newest row there ever was.
        limits: How much the journal holds.

    Attributes:
        tail: The newest row, those of this batch included.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        keys: Keys,
        index: FailureIndex,
        tail: HighWaterMark,
        limits: RetentionLimits,
    ) -> None:
        self.tail = tail
        self._connection = connection
        self._keys = keys
        self._index = index
        self._limits = limits

    def claim(self, keys: Sequence[Key]) -> set[int]:
        """Take the keys of records, so that none is counted twice.

        Args:
            keys: The step of the event time, and an id that is unique in it, of each.

        Returns:
            The places of those that were there already or stand twice in the list; the others are taken now.
        """
        return self._keys.claim(keys)

    def append(self, arrival: float, n: int, counts: bytes, lines: bytes, ends: bytes = b"") -> int:
        """Write a row.

        Args:
            arrival: When it came, seconds since the epoch; never before the row before it.
            n: How many records it has.
            counts: The books that go with it.
            lines: Its lines, each with its newline.
            ends: The ends of its records' trace ids (`ragmon.server.journal.reader`), by which labels find them.

        Returns:
            Its number.
        """
        seq, upto = self.tail.seq + 1, self.tail.upto + len(lines)
        told = (seq, arrival, n, upto, checksum(seq, float(arrival), n, counts, lines), counts, lines)
        self._connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", told)
        if ends:
            self._connection.execute("INSERT INTO traced VALUES (?, ?)", (seq, ends))
        self.tail = HighWaterMark(seq, arrival, upto)
        return seq

    def answers(self, trace_ids: Collection[str]) -> dict[str, Record]:
        """The records of traces, the newest of each: what labels are about.

        Args:
            trace_ids: In lower case.
        """
        return reader.records_of_traces(self._connection, trace_ids)

    def hold(self, arrival: float, form: str, body: bytes, waits: Iterable[bytes] = (), lowest: int = 0) -> int:
        """Write a request whose spans wait for the rest of their traces.

        Args:
            arrival: When it came, seconds since the epoch.
            form: How it is written: `protobuf` or `json`; `record` for a record that waits for a reply.
            body: The request, not compressed.
            waits: The ids of the traces whose spans wait, 16 bytes each; its other spans were counted.
            lowest: The smallest draw that was kept when it came.

        Returns:
            Its number, which no other gets.
        """
        ids = b"".join(waits)
        add = "INSERT INTO bodies (arrival, form, lowest, sum, waits, body) VALUES (?, ?, ?, ?, ?, ?)"
        sum_of = checksum(float(arrival), form, body, lowest, ids)
        return self._connection.execute(add, (arrival, form, lowest, sum_of, ids, body)).lastrowid or 0

    def release(self, seqs: Iterable[int]) -> int:
        """Delete requests nobody waits for any more; one that is gone already does no harm.

        Returns:
            How many were there.
        """
        return self._connection.executemany("DELETE FROM bodies WHERE seq = ?", ((seq,) for seq in seqs)).rowcount

    def quarantine(self, trace_id: bytes, step: str, seqs: Iterable[int]) -> None:
        """Keep the spans of a trace that is not assembled, to be looked at.

        Args:
            trace_id: 16 bytes.
            step: What was done with it when the process ended.
            seqs: The requests that hold them.
        """
        find = "SELECT arrival, form, body FROM bodies WHERE seq = ?"
        trace = trace_id.hex()
        for seq in seqs:
            for arrival, form, body in self._connection.execute(find, (seq,)).fetchall():
                # What could not be read is kept as it is.
                kept = body if step == quarantine.READING else erasure.keep_trace(form, body, trace)
                quarantine.add(self._connection, arrival, step, trace, form, kept)

    def quarantine_line(self, seq: int, arrival: float, place: int) -> bool:
        """Set a line aside that ended the process twice while it was scored; that it was stays in its place.

        Args:
            seq: The number of its row.
            arrival: When that came, seconds since the epoch: another row of that number is not meant.
            place: Its place among the lines of the row.

        Returns:
            Whether it was there.
        """
        find = "SELECT n, counts, lines FROM rows WHERE seq = ? AND arrival = ?"
        n, counts, held = self._connection.execute(find, (seq, arrival)).fetchone() or (0, b"", b"")
        lines: list[bytes] = held.split(b"\n")
        line = lines[place] if place < len(lines) else b""
        if not line or record.is_forgotten(line) or record.is_quarantined(line):
            return False
        lines[place] = record.quarantined(line)
        left = b"\n".join(lines)
        told = (left, checksum(seq, arrival, n, counts, left), seq)
        self._connection.execute("UPDATE rows SET lines = ?, sum = ? WHERE seq = ?", told)
        trace_id = str(getattr(record.decode_entry(line), "trace_id", None) or "").lower()
        quarantine.add(self._connection, arrival, quarantine.SCORING, trace_id, erasure.RECORD, line)
        return True

    def known(self, trace_ids: Iterable[bytes]) -> dict[bytes, float]:
        """When those traces that are done were; below zero where they were forgotten and nobody counted them."""
        return {trace_id: arrival for trace_id, arrival, _ in finished_traces(self._connection, trace_ids)}

    def recorded(self, trace_ids: Iterable[bytes]) -> set[bytes]:
        """Those traces whose spans became records."""
        return {trace_id for trace_id, _, recorded in finished_traces(self._connection, trace_ids) if recorded}

    def remember(self, trace_ids: Iterable[bytes], arrival: float, *, recorded: bool = False) -> None:
        """Write down that traces are done.

        Args:
            trace_ids: 16 bytes each.
            arrival: When they were, seconds since the epoch.
            recorded: Their spans became records.
        """
        told = ((trace_id, arrival, recorded) for trace_id in trace_ids)
        self._connection.executemany("INSERT OR REPLACE INTO assembled VALUES (?, ?, ?)", told)

    def fail(self, failures: Iterable[Failure]) -> None:
        """Write down requests that failed a gate; one that is written down again is changed."""
        self._index.add(failures)

    def forgotten(self) -> list[str]:
        """The traces that somebody had forgotten since this was asked last, in lower case."""
        return erasure.read_erasures(self._connection)

    def save(self, seq: int, at: float, data: bytes) -> None:
        """Save a state.

        Args:
            seq: The last row it knows of.
            at: When that row came or later, seconds since the epoch.
            data: The state; it is compressed here.
        """
        retention.save(self._connection, seq, at, data, self.tail, self._limits)


class Journal(JournalReaderBase):
    """Writes the journal of a state folder; used by one thread at a time.

    What can be read is read through it while nothing is being written, at the start; beside it, by `open_readonly`.

    Args:
        folder: Where it lies; made for this user alone if there is none.
        limits: How much it holds; may be set again.
        clock: What time it is, seconds since the epoch.

    Attributes:
        path: Its file.
        limits: How much it holds.
        set_aside: Where the file that could not be read was put; a new one was begun then. None if it could.
        attempts: What is being worked on, and what the process ended over before.

    Raises:
        RagmonError: Another process writes to the folder, or a newer ragmon wrote the journal.
        JournalError: The disk is full, or the folder cannot be written to.
    """

    def __init__(
        self, folder: Path, limits: RetentionLimits | None = None, *, clock: Callable[[], float] = time
    ) -> None:
        self.path = folder / store.FILE
        self.limits = limits or RetentionLimits()
        self.set_aside: Path | None = None
        self._clock = clock
        self._tail = HighWaterMark()
        self._writes = False
        self._lost = False
        self._came: set[bytes] = set()
        self._version = 0
        with translate_file_errors(self.path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = Lock(folder)
        self.attempts = Attempts(folder)
        try:
            if files.is_orphaned(self.path):
                self.set_aside = files.quarantine_file(self.path, clock())
            try:
                self._open()
            except JournalError as error:
                if error.reason != "corrupt":
                    raise
                self.set_aside = files.quarantine_file(self.path, clock())
                self._open()
        except BaseException:
            self.attempts.close()
            self._lock.release()
            raise

    def _open(self) -> None:
        self._connection = files.open_file(self.path)
        self._fitted = -1
        try:
            with translate_read_errors(self.path):
                self._tail = max(self._tail, self._tail_on_disk())
                self._keys = Keys(self._connection)
                self._index = FailureIndex(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def quarantine_and_reset(self) -> Path:
        """Put a file that turned out to be damaged aside and begin a new one; the lock is held all the while.

        Rows go on where they were: a state that was reached before can be saved in the new file.

        Returns:
            Where it is.

        Raises:
            JournalError: The disk is full, or the folder cannot be written to.
        """
        with suppress(sqlite3.Error):
            self._connection.close()
        self._lost = True
        self._came = self._keys.held()
        self.set_aside = files.quarantine_file(self.path, self._clock())
        self._go_on()
        return self.set_aside

    def _go_on(self) -> None:
        """Begin the file anew, with rows where they were."""
        self._open()
        self._lost = False
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO tail VALUES (1, ?, ?, ?)", self._tail)
            self._keys.take_over(self._came)
        self._came = set()

    @contextmanager
    def begin(self) -> Iterator[JournalBatch]:
        """One transaction: on disk when the block ends, undone where it raises.

        Raises:
            JournalError: It could not be written; nothing of it was.
        """
        if self._lost:
            self._go_on()
        batch = JournalBatch(self._connection, self._keys, self._index, self._tail, self.limits)
        with self._transaction():
            self._index.erased = self._changed_elsewhere()
            yield batch
        self._tail = batch.tail

    def _changed_elsewhere(self) -> bool:
        """Whether another process wrote since the transaction before: somebody may have forgotten something."""
        (before, self._version) = self._version, store.data_version(self._connection)
        return self._version != before

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._writes:
            raise RuntimeError("the journal is being written to: one transaction at a time")
        self._writes = True
        try:
            with translate_errors(self.path):
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            self._keys.kept()
        except BaseException:
            self._keys.undone()
            self._index.forget_series()
            with suppress(sqlite3.Error):
                self._connection.rollback()
            raise
        finally:
            self._writes = False

    def recent(self) -> Iterator[bytes]:
        """What is unique in the keys of the records that came last, in no order: some hundred thousand."""
        return self._keys.recent()

    @property
    def upto(self) -> int:
        """Bytes of lines of all rows there ever were."""
        return self._tail.upto

    def excess(self) -> int:
        """Bytes by which it is larger than it may be, its log included; below zero where it is smaller.

        Raises:
            JournalError: It cannot be read.
        """
        with translate_errors(self.path):
            if self._fitted != self.limits.size:
                store.fit_wal(self._connection, self.limits.size)
                self._fitted = self.limits.size
            return store.excess_bytes(self._connection, self.path, self.limits.size)

    def expire(self) -> bool:
        """Delete some of what has had its time or has no room, in a transaction of some 20 ms.

        Rows are deleted up to a checkpoint only, so that the rest can be replayed from it.

        Returns:
            Whether there was any: then there may be more, and it is to be called again soon.

        Raises:
            JournalError: It could not be written.
        """
        return self._expire(self._clock()) or self._shrink()

    def make_room(self) -> bool:
        """The same, of what has no room alone: what time it is plays no part."""
        excess = self.excess()
        return (excess > 0 and self._expire(None)) or (excess + self._free() > 0 and self._shrink())

    def _expire(self, now: float | None) -> bool:
        excess = self.excess()
        with translate_read_errors(self.path), self._transaction():
            found = retention.expire(self._connection, self._keys, self.limits, excess, now)
            self._index.forget_series()
        return found

    def _free(self) -> int:
        with translate_errors(self.path):
            return store.free_pages(self._connection) * store.PAGE

    def _shrink(self) -> bool:
        with translate_errors(self.path):
            return retention.shrink(self._connection, self.limits.size)

    def quarantine_size(self) -> int:
        """How many requests are set aside.

        Raises:
            JournalError: It cannot be read.
        """
        with translate_errors(self.path):
            return quarantine.count(self._connection)

    def wipe_log(self) -> None:
        """Leave nothing of what was deleted in the write-ahead log, unless somebody reads just now.

        Raises:
            JournalError: The file could not be written.
        """
        with translate_errors(self.path):
            store.truncate_wal(self._connection)

    def close(self) -> None:
        """Let go of the folder; again is harmless."""
        with suppress(sqlite3.Error):
            self._connection.close()
        self.attempts.close()
        self._lock.release()
