"""The journal of one server, and one transaction on it.

After a crash, the server computes everything it shows from the journal again. A transaction is on disk as a whole or
not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time

from ragmon.core import record
from ragmon.core.process import make_state_folder
from ragmon.core.record import Record
from ragmon.server.journal import erasure, files, quarantine, reader, retention, store
from ragmon.server.journal.failures import Failure, FailureIndex
from ragmon.server.journal.files import Lock
from ragmon.server.journal.keys import Key, Keys
from ragmon.server.journal.quarantine import Attempts
from ragmon.server.journal.reader import HighWaterMark, JournalReaderBase, finished_traces
from ragmon.server.journal.retention import RetentionLimits
from ragmon.server.journal.schema import checksum
from ragmon.server.journal.store import JournalError, translate_errors, translate_file_errors, translate_read_errors


class JournalBatch:
    """The writes of one transaction.

    Args:
        connection: The journal, inside a transaction.
        keys: Its deduplication keys.
        index: Its index of failures.
        tail: The newest row ever written, even if deleted since.
        limits: The retention limits of the journal.

    Attributes:
        tail: The newest row, rows of this batch included.
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
        """Claim the keys of records, so that no record is counted twice.

        Args:
            keys: For each record, the time step of its event and an id that is unique in the step.

        Returns:
            The positions of duplicates: keys claimed before, or twice in the list. The other keys are claimed now.
        """
        return self._keys.claim(keys)

    def append(self, arrival: float, n: int, counts: bytes, lines: bytes, ends: bytes = b"") -> int:
        """Write a row.

        Args:
            arrival: Its arrival time, seconds since the epoch; never earlier than that of the previous row.
            n: How many records it has.
            counts: The counters of the batch, encoded.
            lines: Its lines, each with its newline.
            ends: The last bytes of its records' trace ids (`ragmon.server.journal.reader`), by which labels find them.

        Returns:
            Its sequence number.
        """
        seq, upto = self.tail.seq + 1, self.tail.upto + len(lines)
        values = (seq, arrival, n, upto, checksum(seq, float(arrival), n, counts, lines), counts, lines)
        self._connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        if ends:
            self._connection.execute("INSERT INTO traced VALUES (?, ?)", (seq, ends))
        self.tail = HighWaterMark(seq, arrival, upto)
        return seq

    def answers(self, trace_ids: Collection[str]) -> dict[str, Record]:
        """The newest record of each trace: the record that labels of the trace refer to.

        Args:
            trace_ids: The trace ids, in lower case.
        """
        return reader.records_of_traces(self._connection, trace_ids)

    def add_pending(
        self, arrival: float, encoding: str, body: bytes, waits: Iterable[bytes] = (), lowest: int = 0
    ) -> int:
        """Write a pending request: its spans wait for the rest of their traces.

        Args:
            arrival: Its arrival time, seconds since the epoch.
            encoding: Its encoding: `protobuf` or `json`; `record` for a record that waits for a probe reply.
            body: The request, not compressed.
            waits: The ids of the traces whose spans wait, 16 bytes each; its other spans were counted already.
            lowest: The sampling threshold at arrival: the smallest draw that was kept.

        Returns:
            Its sequence number, which is never used again.
        """
        ids = b"".join(waits)
        add = "INSERT INTO bodies (arrival, form, lowest, sum, waits, body) VALUES (?, ?, ?, ?, ?, ?)"
        sum_of = checksum(float(arrival), encoding, body, lowest, ids)
        return self._connection.execute(add, (arrival, encoding, lowest, sum_of, ids, body)).lastrowid or 0

    def delete_pending(self, seqs: Iterable[int]) -> int:
        """Delete requests that are no longer pending; unknown numbers are ignored.

        Returns:
            How many were deleted.
        """
        return self._connection.executemany("DELETE FROM bodies WHERE seq = ?", ((seq,) for seq in seqs)).rowcount

    def quarantine(self, trace_id: bytes, step: str, seqs: Iterable[int]) -> None:
        """Quarantine the spans of a trace that will not be assembled.

        Args:
            trace_id: 16 bytes.
            step: The processing step during which the process ended.
            seqs: The pending requests that contain the spans.
        """
        find = "SELECT arrival, form, body FROM bodies WHERE seq = ?"
        trace = trace_id.hex()
        for seq in seqs:
            for arrival, form, body in self._connection.execute(find, (seq,)).fetchall():
                # A request that could not be read is kept as it is.
                kept = body if step == quarantine.READING else erasure.keep_trace(form, body, trace)
                quarantine.add(self._connection, arrival, step, trace, form, kept)

    def quarantine_line(self, seq: int, arrival: float, place: int) -> bool:
        """Quarantine a line that ended the process twice while it was scored; a quarantine entry takes its place.

        Args:
            seq: The number of its row.
            arrival: The arrival time of the row; a row of the same number with another arrival is not changed.
            place: Its position among the lines of the row.

        Returns:
            Whether there was such a line.
        """
        find = "SELECT n, counts, lines FROM rows WHERE seq = ? AND arrival = ?"
        n, counts, text = self._connection.execute(find, (seq, arrival)).fetchone() or (0, b"", b"")
        lines: list[bytes] = text.split(b"\n")
        line = lines[place] if place < len(lines) else b""
        if not line or record.is_tombstone(line) or record.is_quarantined(line):
            return False
        lines[place] = record.quarantined(line)
        remaining = b"\n".join(lines)
        values = (remaining, checksum(seq, arrival, n, counts, remaining), seq)
        self._connection.execute("UPDATE rows SET lines = ?, sum = ? WHERE seq = ?", values)
        trace_id = str(getattr(record.decode_entry(line), "trace_id", None) or "").lower()
        quarantine.add(self._connection, arrival, quarantine.SCORING, trace_id, erasure.RECORD, line)
        return True

    def finished_traces(self, trace_ids: Iterable[bytes]) -> dict[bytes, float]:
        """Finished traces with their times; a negative time means erased and not counted by a server yet."""
        return {trace_id: arrival for trace_id, arrival, _ in finished_traces(self._connection, trace_ids)}

    def recorded(self, trace_ids: Iterable[bytes]) -> set[bytes]:
        """The traces whose spans became records."""
        return {trace_id for trace_id, _, recorded in finished_traces(self._connection, trace_ids) if recorded}

    def mark_finished(self, trace_ids: Iterable[bytes], arrival: float, *, recorded: bool = False) -> None:
        """Record that traces are finished.

        Args:
            trace_ids: 16 bytes each.
            arrival: When they were finished, seconds since the epoch.
            recorded: Whether their spans became records.
        """
        rows = ((trace_id, arrival, recorded) for trace_id in trace_ids)
        self._connection.executemany("INSERT OR REPLACE INTO assembled VALUES (?, ?, ?)", rows)

    def add_failures(self, failures: Iterable[Failure]) -> None:
        """Write requests that failed a gate; a failure that is there already is replaced."""
        self._index.add(failures)

    def forgotten(self, *, clear: bool = True) -> list[str]:
        """The traces erased since they were cleared last, in lower case; they are cleared unless told otherwise."""
        return erasure.read_erasures(self._connection, clear=clear)

    def refused(self, trace_ids: Iterable[str]) -> set[str]:
        """Those of some traces that were erased: nothing of them is taken again from chunks."""
        return erasure.refused(self._connection, trace_ids)

    def save(self, seq: int, at: float, data: bytes) -> None:
        """Save a checkpoint.

        Args:
            seq: The last row it includes.
            at: The arrival time of that row or later, seconds since the epoch.
            data: The encoded state; it is compressed here.
        """
        retention.save(self._connection, seq, at, data, self.tail, self._limits)


class Journal(JournalReaderBase):
    """Writes the journal of a state folder; used by one thread at a time.

    Only its own thread reads through it, at the start and to count it again; others use `open_readonly`.

    Args:
        folder: The folder of the journal; created for this user alone if there is none.
        limits: The retention limits; may be assigned again.
        clock: Returns the current time, seconds since the epoch.

    Attributes:
        path: The journal's file.
        limits: The retention limits.
        set_aside: The new name of a damaged file that was replaced by a new journal; None if the file was readable.
        attempts: The work in progress, and the work during which the process ended before.

    Raises:
        RagmonError: Another process writes to the folder, or the version of the journal is another one.
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
        self._is_writing = False
        self._is_lost = False
        self._carried_keys: set[bytes] = set()
        self._version = 0
        with translate_file_errors(self.path):
            make_state_folder(folder)
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
        self._wal_sized_for = -1
        try:
            with translate_read_errors(self.path):
                self._tail = max(self._tail, self._tail_on_disk())
                self._keys = Keys(self._connection)
                self._index = FailureIndex(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def quarantine_and_reset(self) -> Path:
        """Set a damaged file aside and start a new one; the lock stays held.

        Row numbers continue: the state reached so far can be saved as a checkpoint in the new file.

        Returns:
            The new name of the damaged file.

        Raises:
            JournalError: The disk is full, or the folder cannot be written to.
        """
        with suppress(sqlite3.Error):
            self._connection.close()
        self._is_lost = True
        self._carried_keys = self._keys.in_memory()
        self.set_aside = files.quarantine_file(self.path, self._clock())
        self._continue_in_new_file()
        return self.set_aside

    def _continue_in_new_file(self) -> None:
        """Start a new file; row numbers continue, and recent keys are carried over."""
        self._open()
        self._is_lost = False
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO tail VALUES (1, ?, ?, ?)", self._tail)
            self._keys.take_over(self._carried_keys)
        self._carried_keys = set()

    @contextmanager
    def begin(self) -> Iterator[JournalBatch]:
        """One transaction: committed when the block ends, rolled back if it raises.

        Raises:
            JournalError: It could not be written; it was rolled back.
        """
        if self._is_lost:
            self._continue_in_new_file()
        batch = JournalBatch(self._connection, self._keys, self._index, self._tail, self.limits)
        with self._transaction():
            self._index.erased = self._has_external_changes()
            yield batch
        self._tail = batch.tail

    def _has_external_changes(self) -> bool:
        """Whether another process wrote since the previous transaction; it may have erased something."""
        (previous, self._version) = self._version, store.data_version(self._connection)
        return self._version != previous

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._is_writing:
            raise RuntimeError("the journal is being written to: one transaction at a time")
        self._is_writing = True
        try:
            with translate_errors(self.path):
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            self._keys.committed()
        except BaseException:
            self._keys.rolled_back()
            self._index.forget_series()
            with suppress(sqlite3.Error):
                self._connection.rollback()
            raise
        finally:
            self._is_writing = False

    def recent(self) -> Iterator[bytes]:
        """The unique parts of the most recent keys, in no order: some hundred thousand."""
        return self._keys.recent()

    @property
    def newest(self) -> int:
        """The number of the newest row."""
        return self._tail.seq

    @property
    def upto(self) -> int:
        """Bytes of the lines of all rows ever written."""
        return self._tail.upto

    def excess(self) -> int:
        """Bytes by which the journal exceeds its limit, its write-ahead log included; negative if it is smaller.

        Raises:
            JournalError: It cannot be read.
        """
        with translate_errors(self.path):
            if self._wal_sized_for != self.limits.size:
                store.fit_wal(self._connection, self.limits.size)
                self._wal_sized_for = self.limits.size
            return store.excess_bytes(self._connection, self.path, self.limits.size)

    def expire(self) -> bool:
        """Delete some data that is too old or exceeds the size limit, in a transaction of some 20 ms.

        Rows are deleted only up to a checkpoint, so that the remaining rows can be replayed from it.

        Returns:
            Whether anything was deleted: then there may be more, and it should be called again soon.

        Raises:
            JournalError: It could not be written.
        """
        return self._expire(self._clock()) or self._shrink()

    def make_room(self) -> bool:
        """Delete some data that exceeds the size limit, whatever its age; returns whether anything was deleted."""
        excess = self.excess()
        return (excess > 0 and self._expire(None)) or (excess + self._free() > 0 and self._shrink())

    def _expire(self, now: float | None) -> bool:
        excess = self.excess()
        with translate_read_errors(self.path), self._transaction():
            is_deleted = retention.expire(self._connection, self._keys, self.limits, excess, now)
            self._index.forget_series()
        return is_deleted

    def _free(self) -> int:
        with translate_errors(self.path):
            return store.free_pages(self._connection) * store.PAGE

    def _shrink(self) -> bool:
        with translate_errors(self.path):
            return retention.shrink(self._connection, self.limits.size)

    def quarantine_size(self) -> int:
        """How many requests are quarantined.

        Raises:
            JournalError: It cannot be read.
        """
        with translate_errors(self.path):
            return quarantine.count(self._connection)

    def truncate_wal(self) -> None:
        """Truncate the write-ahead log, so that deleted data is not in it; skipped while another process reads.

        Raises:
            JournalError: The file could not be written.
        """
        with translate_errors(self.path):
            store.truncate_wal(self._connection)

    def close(self) -> None:
        """Close the file and release the folder; calling it again does nothing."""
        with suppress(sqlite3.Error):
            self._connection.close()
        self.attempts.close()
        self._lock.release()
