"""What somebody asks to be forgotten is taken out of the journal, and off the disk, while a server goes on writing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from ragmon.core import record as entries
from ragmon.core.errors import RagmonError
from ragmon.journal import bodies, failures, opening, saved, store
from ragmon.journal.faults import told_reading
from ragmon.journal.held import Body, Readable, Row, checksum
from ragmon.journal.quarantine import Quarantined

_WIPED_WITHIN: Final = 15.0
_PATIENCE: Final = 500
"""Milliseconds the log is waited for at once: nobody can write meanwhile."""
_IN_PLACE: Final = {
    was: entries.encode_entry(entries.Forgotten(was)).rstrip(b"\n")
    for was in (entries.RECORD_ENTRY, entries.LABEL_ENTRY)
}


@dataclass
class Erasure:
    """What was forgotten.

    Attributes:
        rows: Rows that were changed.
        records, labels: Lines that were taken out of them.
        spans: Spans that waited for the rest of their traces.
        quarantined: Requests that were set aside and held it.
        states: Saved states that held what people said of its answers.
        wiped: The bytes are off the disk; if not, somebody read all the while: the same again does it.
        unread: Damaged journals that were set aside and may hold it still; they can only be deleted as a whole.
    """

    rows: int = 0
    records: int = 0
    labels: int = 0
    spans: int = 0
    quarantined: int = 0
    states: int = 0
    wiped: bool = False
    unread: list[Path] = field(default_factory=list)


class _Line(msgspec.Struct):
    """What of a line tells whether it is meant."""

    kind: str | None = None
    trace_id: str | None = None
    tags: dict[str, str] | None = None
    answer: _Line | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode


@dataclass
class _Wanted:
    """What is to be forgotten.

    Attributes:
        traces: Traces whose labels and spans go, in lower case.
        tag: Name and value of a tag whose records go; None: those of the traces go.
    """

    traces: set[str]
    tag: tuple[str, str] | None

    def record(self, line: _Line) -> bool:
        """Whether it is a record that is meant."""
        if line.kind is not None:
            return False
        if self.tag is None:
            return _trace_of(line) in self.traces
        return (line.tags or {}).get(self.tag[0]) == self.tag[1]

    def label(self, line: _Line) -> bool:
        """Whether it is a label that is meant."""
        return line.kind == "label" and _trace_of(line) in self.traces


def forget(folder: Path, *, trace: str | None = None, tag: tuple[str, str] | None = None) -> Erasure:
    """Take a trace, or all records with a tag, out of a journal: records, labels, waiting spans, failures.

    In the place of a line stays one of the kind `forgotten`. Keys and the ids of traces that became records stay until
    they expire, or a producer that sends twice would bring them back. Saved states hold counts, which stay, and the
    words of raters, which go.

    Args:
        folder: Where the journal lies; a server may be writing to it.
        trace: A trace id.
        tag: A tag's name and value.

    Raises:
        RagmonError: Neither or both were given, there is no journal, or it is one of another version.
        JournalError: It cannot be read or written.
    """
    if (trace is None) is (tag is None):
        raise RagmonError("what is to be forgotten?", hint="name a trace, or a tag and its value")
    path = opening.existing(folder)
    with told_reading(path), closing(store.writing(path)) as connection:
        opening.check_version(connection, path)
        eraser = _Eraser(path, connection, _Wanted(set() if trace is None else {trace.lower()}, tag))
        eraser.run()
        eraser.done.wiped = _wipe(connection)
    eraser.done.unread = opening.files_set_aside(path)
    return eraser.done


class _Eraser(Readable):
    """Goes through a journal.

    Args:
        path: The journal's file.
        connection: A connection that writes.
        wanted: What is to be forgotten.

    Attributes:
        done: What was.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, wanted: _Wanted) -> None:
        self.path = path
        self.done = Erasure()
        self._connection = connection
        self._wanted = wanted

    def run(self) -> None:
        """Take out what is wanted; each row in a transaction of its own, so that the server need not wait."""
        if self._wanted.tag is not None:
            self._wanted.traces |= set(self._tagged())
        for row in self.rows():
            if self._without(row.lines)[1:] != ([], 0):
                self._rewrite(row)
        if self._wanted.tag is None:
            with self._transaction():
                for trace in self._wanted.traces:
                    failures.delete(self._connection, "lower(trace_id) = ?", trace)
        for body in self.bodies():
            self._take_out_of(body)
        for one in self.quarantined():
            self._take_out_of_quarantine(one)
        self._take_out_of_states()

    def _tagged(self) -> Iterator[str]:
        """The traces of records that have the tag."""
        for row in self.rows():
            for text in row.lines.split(b"\n"):
                line = _read(text)
                # The row of an answer may have expired, and a label that came days later still holds it.
                for one in () if line is None else (line, line.answer):
                    if one is not None and self._wanted.record(one) and one.trace_id:
                        yield _trace_of(one)
        held = chain(
            ((one.form, one.body) for one in self.bodies()), ((one.form, one.body) for one in self.quarantined())
        )
        for form, body in held:
            waits = _read(body) if form == bodies.RECORD else None
            if waits is not None and self._wanted.record(waits):
                yield _trace_of(waits)

    def _rewrite(self, row: Row) -> None:
        with self._transaction():
            # It may have expired, or another one forgets at the same time.
            found = self._connection.execute("SELECT lines FROM rows WHERE seq = ?", (row.seq,)).fetchone()
            if found is None:
                return
            lines, places, labels = self._without(found[0])
            told = (lines, checksum(*row._replace(lines=lines)), row.seq)
            self._connection.execute("UPDATE rows SET lines = ?, sum = ? WHERE seq = ?", told)
            for place in places:
                failures.delete(self._connection, "seq = ? AND place = ?", row.seq, place)
        self.done.rows += 1
        self.done.records += len(places)
        self.done.labels += labels

    def _without(self, lines: bytes) -> tuple[bytes, list[int], int]:
        """Lines without what is wanted, the places of the records among it, and how many labels there were."""
        kept, places, labels = lines.split(b"\n"), [], 0
        for place, text in enumerate(kept):
            line = _read(text)
            if line is None:
                continue
            if self._wanted.record(line):
                places.append(place)
                kept[place] = _IN_PLACE[entries.RECORD_ENTRY]
            elif self._wanted.label(line):
                labels += 1
                kept[place] = _IN_PLACE[entries.LABEL_ENTRY]
        return b"\n".join(kept), places, labels

    def _take_out_of(self, body: Body) -> None:
        left = bodies.without(body.form, body.body, self._wanted.traces)
        if not left.removed:
            return
        with self._transaction():
            if left.body is None:
                self._connection.execute("DELETE FROM bodies WHERE seq = ?", (body.seq,))
            else:
                told = (left.body, checksum(*body._replace(body=left.body)[1:]), body.seq)
                self._connection.execute("UPDATE bodies SET body = ?, sum = ? WHERE seq = ?", told)
            # What comes of such a trace later is late, and makes no record; below zero, until a server has counted it.
            waited = [one for one in body.traces if one.hex() in self._wanted.traces]
            traces = [(trace_id, -body.arrival) for trace_id in waited]
            self._connection.executemany("INSERT OR IGNORE INTO assembled VALUES (?, ?, 0)", traces)
        self.done.spans += left.removed

    def _take_out_of_quarantine(self, one: Quarantined) -> None:
        """What is set aside was counted then; nothing else changes."""
        left = bodies.without(one.form, one.body, self._wanted.traces)
        if not left.removed and one.trace_id not in self._wanted.traces:
            return
        with self._transaction():
            if left.removed and left.body is not None:
                told = (left.body, len(left.body), one.seq)
                self._connection.execute("UPDATE quarantined SET body = ?, size = ? WHERE seq = ?", told)
            else:
                self._connection.execute("DELETE FROM quarantined WHERE seq = ?", (one.seq,))
        self.done.quarantined += 1

    def _take_out_of_states(self) -> None:
        """First a server is told: what it saves after that is without, and what it saved before is here."""
        with self._transaction():
            saved.tell(self._connection, self._wanted.traces)
        for seq in saved.places(self._connection):
            with self._transaction():
                self.done.states += saved.forget(self._connection, seq, self._wanted.traces)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _read(text: bytes) -> _Line | None:
    try:
        return _decode(text) if text else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _trace_of(line: _Line) -> str:
    return (line.trace_id or "").lower()


def _wipe(connection: sqlite3.Connection) -> bool:
    """Move what the log holds into the file and cut it off; returns whether nobody stood in the way."""
    connection.execute(f"PRAGMA busy_timeout = {_PATIENCE}")
    deadline = monotonic() + _WIPED_WITHIN
    while True:
        blocked, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not blocked or monotonic() >= deadline:
            return not blocked
