"""What is being worked on, in shared memory that outlives the process, however that ends.

A request that ends the process, or freezes it until somebody ends it, would do so again after every start. So what is
begun is noted before and struck out behind: a store into a page of memory, which costs no write to the disk. The kernel
keeps the page when the process is killed. What stands in it at the next start was begun and did not end.

Requests nobody works on any more: twice the process ended or froze while it did. They are kept to be looked at.
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

FILE: Final = "journal.attempts"
SIZE: Final = 4096
TWICE: Final = 2
"""Attempts without an end after which there is no further one."""
_SLOT: Final = struct.Struct("=II24s")
"""Attempts that did not end, a line of a row, and what it is. The first slot is of what is being worked on."""
_SLOTS: Final = SIZE // _SLOT.size
_MOST: Final = 1000
"""Attempts no server makes: where a page says so, it says nothing."""
_PLACE: Final = 1
"""Which word of the page says the line that is being worked on."""
_NUMBERED: Final = struct.Struct(">cqd")


class WorkItem(NamedTuple):
    """Something that is worked on as a whole.

    Attributes:
        key: What it is: `trace_key`, `row_key` or `body_key`, 17 bytes each.
        place: Its line, where it is one of a row.
    """

    key: bytes
    place: int = 0


def trace_key(trace_id: bytes) -> bytes:
    """A trace that is assembled."""
    return b"t" + trace_id


def row_key(seq: int, arrival: float) -> bytes:
    """A row whose lines are scored. A journal that begins anew may give its number again, with another arrival."""
    return _NUMBERED.pack(b"r", seq, arrival)


def row_of(key: bytes) -> tuple[int, float] | None:
    """Number and arrival of the row that a key is of; None where it is another one's."""
    kind, seq, arrival = _NUMBERED.unpack(key)
    return (seq, arrival) if kind == b"r" else None


def body_key(seq: int, arrival: float) -> bytes:
    """A journalled request that is read."""
    return _NUMBERED.pack(b"b", seq, arrival)


class Attempts:
    """Notes what is begun and what ends. One thread works at a time.

    Args:
        folder: Where the page lies; where it cannot be made there, it lives as long as the process.

    Attributes:
        begun: How often something was begun; it grows while there is progress.
        thread: The thread that began something last.
    """

    def __init__(self, folder: Path) -> None:
        self.begun = 0
        self.thread = get_ident()
        self._page = _open(folder / FILE)
        self._words = memoryview(self._page).cast("I")
        self._failed: dict[WorkItem, int] = {}
        for slot in (*range(1, _SLOTS), 0):  # what was being worked on is the newest
            self._read(slot)
        self._words[0] = 0
        self._write()

    @property
    def busy(self) -> bool:
        """Whether something is being worked on."""
        try:
            return bool(self._words[0])
        except ValueError:  # the page was let go of
            return False

    def poison(self) -> list[WorkItem]:
        """What was begun twice and did not end."""
        return [item for item, n in self._failed.items() if n >= TWICE]

    def begin(self, key: bytes) -> None:
        """Work on something begins."""
        self.begun += 1
        self.thread = get_ident()
        _SLOT.pack_into(self._page, 0, 1, 0, key.ljust(24, b"\0"))

    @contextmanager
    def attempt(self, key: bytes) -> Iterator[None]:
        """Work on something, inside the block: an exception ends it as well."""
        self.begin(key)
        try:
            yield
        finally:
            self.end(key)

    def at(self, place: int) -> None:
        """Work goes on with a line of the row that was begun."""
        self.begun += 1
        self._words[_PLACE] = place

    def end(self, key: bytes) -> None:
        """Work on it has ended, well or with an exception that was caught: it harms nobody."""
        self._words[0] = 0
        if self._failed:
            self._forget([item for item in self._failed if item.key == key])

    def commit(self) -> None:
        """What was begun twice is quarantined, and that is on disk."""
        self._forget(self.poison())

    def close(self) -> None:
        """Let go of the page; again is harmless."""
        if not self._page.closed:
            self._words.release()
            self._page.close()

    def _read(self, slot: int) -> None:
        """Add up what a slot says of something that was begun and did not end."""
        n, place, padded = _SLOT.unpack_from(self._page, slot * _SLOT.size)
        key = padded[: _NUMBERED.size]  # what it was filled up with is no part of it: ids may end in zeros
        if 0 < n < _MOST and key[:1] in (b"t", b"r", b"b"):
            self._failed[WorkItem(key, place)] = self._failed.pop(WorkItem(key, place), 0) + n

    def _forget(self, items: list[WorkItem]) -> None:
        for item in items:
            del self._failed[item]
        if items:
            self._write()

    def _write(self) -> None:
        """Write down what failed: the newest, where there is more than a page takes."""
        kept = [*self._failed.items()][1 - _SLOTS :]
        told = b"".join(_SLOT.pack(n, item.place, item.key.ljust(24, b"\0")) for item, n in kept)
        self._page[_SLOT.size :] = told.ljust(SIZE - _SLOT.size, b"\0")
        with suppress(OSError):
            self._page.flush()


def _open(path: Path) -> mmap:
    with suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, SIZE)  # a store into a hole of a full disk would end the process
            return mmap(file, SIZE)
        finally:
            os.close(file)
    return mmap(-1, SIZE)


MOST: Final = 100
"""Requests that are kept; of more the oldest go, which stay counted."""
LARGEST: Final = 16 << 20
"""Bytes of all that is kept; what is larger by itself is kept without its content."""
ASSEMBLING: Final = "assembling"
SCORING: Final = "scoring"
READING: Final = "reading"
"""What was done with a request when the process ended."""


class QuarantinedRequest(NamedTuple):
    """A request that is set aside.

    Attributes:
        seq: Its number among them.
        arrival: When it came, seconds since the epoch.
        step: What was done with it: `assembling`, `scoring` or `reading`.
        trace_id: Its trace, 32 hex digits; "" where there is none.
        form: How it is written: `protobuf` or `json` for spans, `record` for a line of the journal.
        size: Its bytes.
        body: The spans or the line; empty where it is too large to be kept.
    """

    seq: int
    arrival: float
    step: str
    trace_id: str
    form: str
    size: int
    body: bytes


def add(connection: sqlite3.Connection, arrival: float, step: str, trace_id: str, form: str, body: bytes) -> None:
    """Keep a request, inside a transaction; the oldest go where there are too many.

    Args:
        connection: The journal.
        arrival: When it came, seconds since the epoch.
        step: What was done with it.
        trace_id: Its trace, 32 hex digits; "" where there is none.
        form: How it is written.
        body: The request.
    """
    kept = body if len(body) <= LARGEST else b""
    add_one = "INSERT INTO quarantined (arrival, step, trace_id, form, size, body) VALUES (?, ?, ?, ?, ?, ?)"
    connection.execute(add_one, (arrival, step, trace_id, form, len(body), kept))
    total = 0
    sizes = connection.execute("SELECT seq, length(body) FROM quarantined ORDER BY seq DESC").fetchall()
    for place, (seq, size) in enumerate(sizes):
        total += size
        if place >= MOST or total > LARGEST:
            connection.execute("DELETE FROM quarantined WHERE seq <= ?", (seq,))
            return


def count(connection: sqlite3.Connection) -> int:
    """How many are kept."""
    return int(connection.execute("SELECT count(*) FROM quarantined").fetchone()[0])
