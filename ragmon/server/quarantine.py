"""Quarantine: requests that twice ended or froze the process, and the detection of such requests.

Such a request would end the process again after every start. So each attempt is noted in a page of shared memory
before the work begins and cleared after it: a store into memory, without a write to the disk. The kernel keeps the
page when the process is killed. An attempt that is in the page at the next start did not end. After two such attempts
the request is moved to the quarantine, where it can be inspected.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path
from threading import get_ident
from typing import Final, NamedTuple

from ragmon.core.process import allocate

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
MAX_REQUESTS: Final = 100
"""Maximum number of requests in the quarantine; the oldest are deleted, but stay counted."""
MAX_BYTES: Final = 16 << 20
"""Maximum bytes in the quarantine; a larger single request is kept without its content."""
ASSEMBLING: Final = "assembling"
SCORING: Final = "scoring"
READING: Final = "reading"
"""The processing step during which the process ended."""


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


class QuarantinedRequest(NamedTuple):
    """A request in quarantine.

    Attributes:
        seq: Its number in the quarantine.
        arrival: Its arrival time, seconds since the epoch.
        step: The processing step that failed: `assembling`, `scoring` or `reading`.
        trace_id: Its trace id, 32 hex digits; "" if there is none.
        encoding: Its encoding: `protobuf` or `json` for spans, `record` for a line of the journal.
        size: Its size in bytes.
        body: The spans or the line; empty if too large to keep.
    """

    seq: int
    arrival: float
    step: str
    trace_id: str
    encoding: str
    size: int
    body: bytes


def add(connection: sqlite3.Connection, arrival: float, step: str, trace_id: str, form: str, body: bytes) -> None:
    """Put a request into the quarantine, inside a transaction; delete the oldest if there are too many."""
    kept = body if len(body) <= MAX_BYTES else b""
    insert = "INSERT INTO quarantined (arrival, step, trace_id, form, size, body) VALUES (?, ?, ?, ?, ?, ?)"
    connection.execute(insert, (arrival, step, trace_id, form, len(body), kept))
    total = 0
    sizes = connection.execute("SELECT seq, length(body) FROM quarantined ORDER BY seq DESC").fetchall()
    for position, (seq, size) in enumerate(sizes):
        total += size
        if position >= MAX_REQUESTS or total > MAX_BYTES:
            connection.execute("DELETE FROM quarantined WHERE seq <= ?", (seq,))
            return
