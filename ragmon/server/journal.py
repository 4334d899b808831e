"""The journal of one server: its deduplication keys, its retention, and one transaction on it.

After a crash, the server computes everything it shows from the journal again. A transaction is on disk as a whole or
not at all.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import time
from typing import Final

import msgspec

from ragmon.core import record
from ragmon.core.process import make_state_folder
from ragmon.core.record import Record
from ragmon.server.erasure import RECORD, keep_trace
from ragmon.server.process import READING, SCORING, Attempts
from ragmon.server.store import (
    DATABASE,
    FOREVER,
    LEVEL,
    LOCK_TIMEOUT,
    PAGE,
    SIDE_FILES,
    FailureIndex,
    FinishedTrace,
    HighWaterMark,
    JournalError,
    JournalReaderBase,
    Lock,
    add_quarantined,
    checksum,
    delete_failures,
    delete_series,
    finished,
    open_file,
    pragma,
    quarantine_file,
    records_of_traces,
    translate_errors,
    translate_read_errors,
)

Key = tuple[int, bytes]
"""The time step of the event, and an id that is unique in the step."""
FRESH: Final = 1 << 16
"""Keys in a generation; fewer than three times as many are in memory, about 20 MB."""
_MERGED_AT_ONCE: Final = 1 << 13
_DELETED_AT_ONCE: Final = 1 << 13
_LOOKUP_BATCH: Final = 256
_FIND: Final = f"SELECT key FROM keys WHERE key IN ({', '.join('?' * _LOOKUP_BATCH)})"  # noqa: S608 - no user input
_PREFIX: Final = 5
"""Bytes of the time step before the id; for steps of ten seconds, four are enough until the year 10000."""
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[bytes]).decode
_CHECKPOINTS: Final = 8
"""Checkpoints divide the retention into so many parts."""
_DAY: Final = 86_400.0
_FINISH: Final = """INSERT INTO assembled VALUES (?, ?, ?, ?) ON CONFLICT (trace_id) DO UPDATE SET
    arrival = excluded.arrival, recorded = max(recorded, excluded.recorded), ended = max(ended, excluded.ended)"""
_SELECT_CHECKPOINTS: Final = "SELECT seq, at, upto FROM checkpoints ORDER BY seq"
KEY_STEP: Final = 10.0
"""Seconds of event time in a time step of the deduplication keys."""
_AT_ONCE: Final = 4 << 20
"""Bytes of lines deleted in one transaction; a single row may have more."""
_MAX_ROWS: Final = 1024
_MAX_OTHER_ROWS: Final = 4096
_FREE_SHARE: Final = 8
"""One in so many pages of the file may be free: new rows use free pages."""
_MIN_FREE: Final = 64
_SHORT_TIMEOUT_MS: Final = 50
"""Milliseconds to wait for readers when the work can also be done later."""
_MAX_WAL: Final = 16 << 20
"""Bytes of the write-ahead log after which it is moved into the file: hot pages are moved once for many changes."""
_MIN_WAL: Final = 1 << 18
_WAL_SHARE: Final = 16
"""The write-ahead log may be one in so many parts of the journal."""
_MAX_WAL_GROWTH: Final = 2
"""The write-ahead log counts at most so many times its limit; just after a large row was written it is that large."""


def _prefix(step: int) -> bytes:
    return step.to_bytes(_PREFIX, "big")


class Keys:
    """The keys of the records that were accepted, kept as long as a record may be sent again.

    New keys are random: inserted one by one, each would change one page of the table. Therefore each call of `claim`
    writes its new keys as one blob (a claim) and keeps them in memory. Keys are grouped in generations: while one
    grows, the previous one is sorted into the table, where keys of one time step are adjacent.

    Changes made inside a transaction become valid with `committed`, and are dropped with `rolled_back`.
    """

    def __init__(self, connection: sqlite3.Connection, fresh: int = FRESH) -> None:
        self._connection = connection
        self._most = fresh
        # Steps are few and keys are many, so one index seek finds each next step.
        self._steps: set[int] = set()
        step, select = -1, "SELECT min(key) FROM keys WHERE key >= ?"
        while (key := connection.execute(select, (_prefix(step + 1),)).fetchone()[0]) is not None:
            step = int.from_bytes(key[:_PREFIX], "big")
            self._steps.add(step)
        self._growing: set[bytes] = set()
        last = 0
        for seq, blob in connection.execute("SELECT seq, keys FROM claims ORDER BY seq"):
            self._growing.update(_decode(blob))
            last = seq
        self._begin_generation(last)
        self.rolled_back()

    def _begin_generation(self, last: int) -> None:
        """End the growing generation; it is sorted into the table next. `last` is the number of its last claim."""
        self._merging, self._growing = self._growing, set()
        self._queue = sorted(self._merging)
        self._position = 0
        self._last = last

    def rolled_back(self) -> None:
        """Drop the changes of a transaction that was rolled back."""
        self._new: set[bytes] = set()
        self._merged = 0
        self._merged_steps: set[bytes] = set()
        self._is_complete = False

    def claim(self, keys: Sequence[Key]) -> set[int]:
        """Claim keys, inside a transaction."""
        prefixes = {step: _prefix(step) for step in {step for step, _ in keys}}
        packed = [prefixes[step] + unique for step, unique in keys]
        new, duplicates = set(packed), set[int]()
        seen = new & self._new | new & self._growing | new & self._merging
        stored_prefixes = {prefixes[step] for step in self._steps.intersection(prefixes)}
        if stored_prefixes:
            candidates = [key for key in new if key[:_PREFIX] in stored_prefixes]
            for start in range(0, len(candidates), _LOOKUP_BATCH):
                batch = candidates[start : start + _LOOKUP_BATCH]
                # Padded, so that the same statement serves any number of keys.
                parameters = (*batch, *[b""] * (_LOOKUP_BATCH - len(batch)))
                seen.update(key for (key,) in self._connection.execute(_FIND, parameters))
        if seen or len(new) < len(packed):
            new = set()
            for position, key in enumerate(packed):
                if key in seen or key in new:
                    duplicates.add(position)
                else:
                    new.add(key)
        if new:
            self._connection.execute("INSERT INTO claims (keys) VALUES (?)", (_encode(list(new)),))
            self._new |= new
            if len(self._growing) + len(self._new) >= self._most and not self._is_complete:
                self._merge(max(_MERGED_AT_ONCE, 4 * len(new)))
        return duplicates

    def _merge(self, limit: int) -> None:
        """Put the next keys of the previous generation into the table; delete its claims when all keys are there."""
        begin = self._position + self._merged
        keys = self._queue[begin : begin + limit]
        self._connection.executemany("INSERT OR IGNORE INTO keys VALUES (?)", zip(keys, strict=True))
        self._merged += len(keys)
        self._merged_steps.update(key[:_PREFIX] for key in keys)
        if begin + len(keys) == len(self._queue):
            self._connection.execute("DELETE FROM claims WHERE seq <= ?", (self._last,))
            self._is_complete = True

    def committed(self) -> None:
        """Apply the changes of a transaction that was committed."""
        self._growing |= self._new
        self._position += self._merged
        self._steps |= {int.from_bytes(prefix, "big") for prefix in self._merged_steps}
        if self._is_complete:
            (last,) = self._connection.execute("SELECT coalesce(max(seq), 0) FROM claims").fetchone()
            self._begin_generation(last)
        self.rolled_back()

    def in_memory(self) -> set[bytes]:
        """The keys in memory: the most recent keys."""
        return self._growing | self._merging

    def take_over(self, keys: set[bytes]) -> None:
        """Claim keys carried over from another journal, inside a transaction."""
        if keys:
            self._connection.execute("INSERT INTO claims (keys) VALUES (?)", (_encode(list(keys)),))
            self._new |= keys

    def expire(self, before: int) -> bool:
        """Delete some keys of steps before `before`, inside a transaction; returns whether any were deleted."""
        select = "SELECT key FROM keys WHERE key < ? ORDER BY key LIMIT 1 OFFSET ?"
        end = _prefix(max(0, before))
        last = self._connection.execute(select, (end, _DELETED_AT_ONCE)).fetchone()
        n_deleted = self._connection.execute("DELETE FROM keys WHERE key < ?", last or (end,)).rowcount
        if not n_deleted:
            self._steps = {step for step in self._steps if step >= before}
        return n_deleted > 0


@dataclass(frozen=True)
class RetentionLimits:
    """How much data a journal keeps, and for how long.

    Args:
        keys: Seconds of event time within which a duplicate record is recognised.
        assembled: Seconds for which an assembled trace is remembered; any later span of it starts a new trace.
    """

    retention: float = 7 * _DAY
    size: int = 5 << 30
    keys: float = _DAY + 600
    assembled: float = _DAY + 600


class JournalBatch:
    """The writes of one transaction."""

    def __init__(self, journal: Journal, connection: sqlite3.Connection, keys: Keys, index: FailureIndex) -> None:
        self.tail = journal.tail
        self.claim = keys.claim
        self.add_failures = index.add
        self._connection = connection
        self._limits = journal.limits

    def append(self, arrival: float, n: int, counts: bytes, lines: bytes, ends: bytes = b"") -> int:
        """Write a row."""
        seq, upto = self.tail.seq + 1, self.tail.upto + len(lines)
        values = (seq, arrival, n, upto, checksum(seq, float(arrival), n, counts, lines), counts, lines)
        self._connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        if ends:
            self._connection.execute("INSERT INTO traced VALUES (?, ?)", (seq, ends))
        self.tail = HighWaterMark(seq, arrival, upto)
        return seq

    def answers(self, trace_ids: Collection[str]) -> dict[str, Record]:
        """The newest record of each trace: the record that labels of the trace refer to."""
        return records_of_traces(self._connection, trace_ids)

    def add_pending(
        self, arrival: float, encoding: str, body: bytes, waits: Iterable[bytes] = (), lowest: int = 0
    ) -> int:
        """Write a pending request: its spans wait for the rest of their traces."""
        ids = b"".join(waits)
        add = "INSERT INTO bodies (arrival, form, lowest, sum, waits, body) VALUES (?, ?, ?, ?, ?, ?)"
        sum_of = checksum(float(arrival), encoding, body, lowest, ids)
        return self._connection.execute(add, (arrival, encoding, lowest, sum_of, ids, body)).lastrowid or 0

    def delete_pending(self, seqs: Iterable[int]) -> int:
        """Delete requests that are no longer pending; unknown numbers are ignored."""
        return self._connection.executemany("DELETE FROM bodies WHERE seq = ?", ((seq,) for seq in seqs)).rowcount

    def quarantine(self, trace_id: bytes, step: str, seqs: Iterable[int]) -> None:
        """Quarantine the spans of a trace that will not be assembled."""
        find = "SELECT arrival, form, body FROM bodies WHERE seq = ?"
        trace = trace_id.hex()
        for seq in seqs:
            for arrival, form, body in self._connection.execute(find, (seq,)).fetchall():
                # A request that could not be read is kept as it is.
                kept = body if step == READING else keep_trace(form, body, trace)
                add_quarantined(self._connection, arrival, step, trace, form, kept)

    def quarantine_line(self, seq: int, arrival: float, index: int) -> bool:
        """Quarantine a line that ended the process twice while it was scored; a quarantine entry takes its place."""
        find = "SELECT n, counts, lines FROM rows WHERE seq = ? AND arrival = ?"
        n, counts, text = self._connection.execute(find, (seq, arrival)).fetchone() or (0, b"", b"")
        lines: list[bytes] = text.split(b"\n")
        line = lines[index] if index < len(lines) else b""
        if not line or record.is_tombstone(line) or record.is_quarantined(line):
            return False
        lines[index] = record.quarantined(line)
        remaining = b"\n".join(lines)
        values = (remaining, checksum(seq, arrival, n, counts, remaining), seq)
        self._connection.execute("UPDATE rows SET lines = ?, sum = ? WHERE seq = ?", values)
        trace_id = str(getattr(record.decode_entry(line), "trace_id", None) or "").lower()
        add_quarantined(self._connection, arrival, SCORING, trace_id, RECORD, line)
        return True

    def finished(self, trace_ids: Iterable[bytes]) -> dict[bytes, FinishedTrace]:
        """The finished traces among some."""
        return finished(self._connection, trace_ids)

    def mark_finished(
        self, traces: Iterable[bytes] | Mapping[bytes, int], arrival: float, *, recorded: bool = False
    ) -> None:
        """Record that traces are finished: for ever, or with what ended by a time, in nanoseconds."""
        ended = traces if isinstance(traces, Mapping) else dict.fromkeys(traces, FOREVER)
        rows = ((trace_id, arrival, recorded, min(end_ns, FOREVER)) for trace_id, end_ns in ended.items())
        self._connection.executemany(_FINISH, rows)

    def forgotten(self, *, clear: bool = True) -> list[str]:
        """The traces erased since they were cleared last, in lower case; they are cleared unless told otherwise."""
        trace_ids = [trace_id for (trace_id,) in self._connection.execute("SELECT trace_id FROM forgotten").fetchall()]
        if trace_ids and clear:
            self._connection.execute("DELETE FROM forgotten")
        return trace_ids

    def refused(self, trace_ids: Iterable[str]) -> set[str]:
        """The erased traces among some: nothing of them is taken again from chunks."""
        find = "SELECT trace_id FROM erased WHERE trace_id = ?"
        return {trace_id for trace_id in set(trace_ids) if self._connection.execute(find, (trace_id,)).fetchone()}

    def save(self, seq: int, at: float, data: bytes) -> None:
        """Save a checkpoint, and delete the older ones that no replay needs.

        The newest is for the next start; a replay can start from an older one when the rows before it are deleted.
        """
        self._connection.execute(
            "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)",
            (seq, at, self.tail.upto, zlib.compress(data, LEVEL)),
        )
        first, *others = self._connection.execute(_SELECT_CHECKPOINTS).fetchall()
        _, kept_at, kept_upto = first
        for number, saved_at, upto in others[:-1]:
            if (
                saved_at - kept_at >= self._limits.retention / _CHECKPOINTS
                or upto - kept_upto >= self._limits.size / _CHECKPOINTS
            ):
                kept_at, kept_upto = saved_at, upto
            else:
                self._connection.execute("DELETE FROM checkpoints WHERE seq = ?", (number,))


class Journal(JournalReaderBase):
    """Writes the journal of a state folder; used by one thread at a time.

    Only its own thread reads through it, at the start and to count it again; others use `JournalReader`.
    """

    def __init__(
        self, folder: Path, limits: RetentionLimits | None = None, *, clock: Callable[[], float] = time
    ) -> None:
        self.path = folder / DATABASE
        self.limits = limits or RetentionLimits()
        self.set_aside: Path | None = None
        self._clock = clock
        self.tail = HighWaterMark()
        self._is_writing = False
        self._is_lost = False
        self._carried_keys: set[bytes] = set()
        self._version = 0
        with translate_read_errors(self.path):
            make_state_folder(folder)
            self._lock = Lock(folder)
        self.attempts = Attempts(folder)
        try:
            logs = [self.path.with_name(self.path.name + suffix) for suffix in SIDE_FILES]
            # SQLite would apply a write-ahead log without its file to a new file of that name.
            if not self.path.exists() and any(log.exists() for log in logs):
                self.set_aside = quarantine_file(self.path, clock())
            try:
                self._open()
            except JournalError as error:
                if error.reason != "corrupt":
                    raise
                self.set_aside = quarantine_file(self.path, clock())
                self._open()
        except BaseException:
            self.attempts.close()
            self._lock.release()
            raise

    def _open(self) -> None:
        self._connection = open_file(self.path)
        self._wal_sized_for = -1
        try:
            with translate_read_errors(self.path):
                self.tail = max(self.tail, self._tail_on_disk())
                self._keys = Keys(self._connection)
                self._index = FailureIndex(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def quarantine_and_reset(self) -> Path:
        """Set a damaged file aside and start a new one; the lock stays held.

        Row numbers continue: the state reached so far can be saved as a checkpoint in the new file.
        """
        with suppress(sqlite3.Error):
            self._connection.close()
        self._is_lost = True
        self._carried_keys = self._keys.in_memory()
        self.set_aside = quarantine_file(self.path, self._clock())
        self._continue_in_new_file()
        return self.set_aside

    def _continue_in_new_file(self) -> None:
        """Start a new file; row numbers continue, and recent keys are carried over."""
        self._open()
        self._is_lost = False
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO tail VALUES (1, ?, ?, ?)", self.tail)
            self._keys.take_over(self._carried_keys)
        self._carried_keys = set()

    @contextmanager
    def begin(self) -> Iterator[JournalBatch]:
        """One transaction: committed when the block ends, rolled back if it raises."""
        if self._is_lost:
            self._continue_in_new_file()
        batch = JournalBatch(self, self._connection, self._keys, self._index)
        with self._transaction():
            (previous, self._version) = self._version, pragma(self._connection, "data_version")
            self._index.erased = self._version != previous
            yield batch
        self.tail = batch.tail

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
        return (key[_PREFIX:] for key in self._keys.in_memory())

    def excess(self) -> int:
        """Bytes by which the journal exceeds its limit, its write-ahead log included; negative if it is smaller.

        Free pages do not count, as new rows use them. While a reader is active without a pause, the log cannot be moved
        and grows; it counts only up to a bound, as deleting rows would make it even larger.
        """
        size, limit, wal = self.limits.size, self._wal_limit, 0
        with translate_errors(self.path):
            if self._wal_sized_for != size:
                for setting in (f"wal_autocheckpoint = {limit // PAGE}", f"journal_size_limit = {limit}"):
                    self._connection.execute(f"PRAGMA {setting}").fetchall()
                self._wal_sized_for = size
            with suppress(OSError):  # there is none
                wal = self.path.with_name(self.path.name + SIDE_FILES[0]).stat().st_size
            used = pragma(self._connection, "page_count") - pragma(self._connection, "freelist_count")
        return used * PAGE + min(max(limit, wal), _MAX_WAL_GROWTH * limit) - size

    @property
    def _wal_limit(self) -> int:
        """Bytes of the write-ahead log after which it is moved into the file."""
        return max(_MIN_WAL, min(self.limits.size // _WAL_SHARE, _MAX_WAL))

    def expire(self) -> bool:
        """Delete some data that is too old or exceeds the size limit, in a transaction of some 20 ms.

        Rows are deleted only up to a checkpoint, so that the remaining rows can be replayed from it.
        """
        return self._expire(self._clock()) or self._shrink()

    def make_room(self) -> bool:
        """Delete some data that exceeds the size limit, whatever its age; returns whether anything was deleted."""
        excess = self.excess()
        if excess > 0 and self._expire(None):
            return True
        with translate_errors(self.path):
            free = pragma(self._connection, "freelist_count") * PAGE
        return excess + free > 0 and self._shrink()

    def _expire(self, now: float | None) -> bool:
        excess = self.excess()
        before = -inf if now is None else now - self.limits.retention
        with translate_read_errors(self.path), self._transaction():
            is_deleted = self._delete_rows(before, excess) or (
                now is not None
                and (
                    self._keys.expire(int((now - self.limits.keys) // KEY_STEP))
                    or self._delete_older("assembled", "trace_id", now - self.limits.assembled)
                    or self._delete_older("bodies", "seq", before)
                    or self._delete_older("quarantined", "seq", before)
                )
            )
            self._index.forget_series()
        return is_deleted

    def _delete_rows(self, before: float, excess: int) -> bool:
        """Delete the oldest rows up to a checkpoint, some bytes of lines, with their index entries and failures."""
        connection = self._connection
        checkpoints: list[tuple[int, float, int]] = connection.execute(_SELECT_CHECKPOINTS).fetchall()
        last = max((seq for seq, at, _ in checkpoints if at < before), default=0)
        first = connection.execute("SELECT upto - length(lines) FROM rows ORDER BY seq LIMIT 1").fetchone()
        if excess > 0 and checkpoints and first is not None:
            far_enough = (seq for seq, _, upto in checkpoints if upto - first[0] >= excess)
            last = max(last, next(far_enough, checkpoints[-1][0]))
        # First: a checkpoint must not remain when rows after it are deleted, as no replay can start from it.
        connection.execute("DELETE FROM checkpoints WHERE seq < ?", (last,))
        select = "SELECT seq, upto FROM rows WHERE seq <= ? ORDER BY seq LIMIT 1"
        oldest = connection.execute(select, (last,)).fetchone()
        if oldest is None:
            return False
        select = f"SELECT seq FROM rows WHERE seq <= ? AND upto < ? ORDER BY seq LIMIT {_MAX_ROWS}"  # noqa: S608 - no user input
        rows = connection.execute(select, (last, oldest[1] + self._bytes_per_transaction)).fetchall()
        (seq,) = rows[-1] if rows else (oldest[0],)
        newest = "SELECT 1, seq, arrival, upto FROM rows ORDER BY seq DESC LIMIT 1"
        connection.execute(f"INSERT OR REPLACE INTO tail {newest}")
        connection.execute("DELETE FROM rows WHERE seq <= ?", (seq,))
        connection.execute("DELETE FROM traced WHERE seq <= ?", (seq,))
        delete_failures(connection, "seq <= ?", seq)
        delete_series(connection)
        return True

    def _delete_older(self, table: str, key: str, before: float) -> bool:
        old = f"SELECT {key} FROM {table} WHERE arrival >= 0 AND arrival < ? LIMIT {_MAX_OTHER_ROWS}"  # noqa: S608 - no user input
        return self._connection.execute(f"DELETE FROM {table} WHERE {key} IN ({old})", (before,)).rowcount > 0  # noqa: S608

    def _shrink(self) -> bool:
        """Return some free pages to the file system; returns whether there were too many."""
        with translate_errors(self.path):
            free, total = pragma(self._connection, "freelist_count"), pragma(self._connection, "page_count")
            if free < _MIN_FREE or (free * _FREE_SHARE < total and total * PAGE <= self.limits.size):
                return False
            limit = self._bytes_per_transaction // PAGE
            # executescript, because it steps the statement to its end; execute would free a single page.
            self._connection.executescript(f"PRAGMA incremental_vacuum({limit})")
            if free <= limit:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            return True

    @property
    def _bytes_per_transaction(self) -> int:
        """Bytes deleted or freed in one transaction; deleted pages are overwritten through the write-ahead log."""
        return min(_AT_ONCE, self._wal_limit)

    def quarantine_size(self) -> int:
        """How many requests are quarantined."""
        with translate_errors(self.path):
            return int(self._connection.execute("SELECT count(*) FROM quarantined").fetchone()[0])

    def truncate_wal(self) -> None:
        """Move the write-ahead log into the file and truncate it, as it still contains deleted data.

        While a reader is active, SQLite moves what it can and does not truncate: requests must not wait for readers.
        """
        with translate_errors(self.path):
            self._connection.execute(f"PRAGMA busy_timeout = {_SHORT_TIMEOUT_MS}")
            try:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * LOCK_TIMEOUT)}")

    def close(self) -> None:
        """Close the file and release the folder; calling it again does nothing."""
        with suppress(sqlite3.Error):
            self._connection.close()
        self.attempts.close()
        self._lock.release()
