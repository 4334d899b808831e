"""One transaction on the journal: all of it is on disk, or none."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence

from ragmon.core import record
from ragmon.core.record import Record
from ragmon.journal import bodies, checkpoints, quarantine, saved, traced
from ragmon.journal.checkpoints import Limits
from ragmon.journal.failures import Failure, Index
from ragmon.journal.held import Tail, checksum, done
from ragmon.journal.keys import Key, Keys


class Batch:
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

    def __init__(self, connection: sqlite3.Connection, keys: Keys, index: Index, tail: Tail, limits: Limits) -> None:
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
            ends: The ends of its records' trace ids (`ragmon.journal.traced`), by which labels find them.

        Returns:
            Its number.
        """
        seq, upto = self.tail.seq + 1, self.tail.upto + len(lines)
        told = (seq, arrival, n, upto, checksum(seq, float(arrival), n, counts, lines), counts, lines)
        self._connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", told)
        if ends:
            self._connection.execute("INSERT INTO traced VALUES (?, ?)", (seq, ends))
        self.tail = Tail(seq, arrival, upto)
        return seq

    def answers(self, trace_ids: Collection[str]) -> dict[str, Record]:
        """The records of traces, the newest of each: what labels are about.

        Args:
            trace_ids: In lower case.
        """
        return traced.answers(self._connection, trace_ids)

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
                kept = body if step == quarantine.READING else bodies.only(form, body, trace)
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
        quarantine.add(self._connection, arrival, quarantine.SCORING, trace_id, bodies.RECORD, line)
        return True

    def known(self, trace_ids: Iterable[bytes]) -> dict[bytes, float]:
        """When those traces that are done were; below zero where they were forgotten and nobody counted them."""
        return {trace_id: arrival for trace_id, arrival, _ in done(self._connection, trace_ids)}

    def recorded(self, trace_ids: Iterable[bytes]) -> set[bytes]:
        """Those traces whose spans became records."""
        return {trace_id for trace_id, _, recorded in done(self._connection, trace_ids) if recorded}

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
        return saved.told(self._connection)

    def save(self, seq: int, at: float, data: bytes) -> None:
        """Save a state.

        Args:
            seq: The last row it knows of.
            at: When that row came or later, seconds since the epoch.
            data: The state; it is compressed here.
        """
        checkpoints.save(self._connection, seq, at, data, self.tail, self._limits)
