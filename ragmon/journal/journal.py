"""The journal of one server: the truth from which everything it shows is computed again after a crash."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time

from ragmon.journal import expiry, opening, quarantine, store
from ragmon.journal.attempts import Attempts
from ragmon.journal.batch import Batch
from ragmon.journal.checkpoints import Limits
from ragmon.journal.failures import Index
from ragmon.journal.faults import JournalError, told, told_of_files, told_reading
from ragmon.journal.held import Readable, Tail
from ragmon.journal.keys import Keys
from ragmon.journal.lock import Lock


class Journal(Readable):
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

    def __init__(self, folder: Path, limits: Limits | None = None, *, clock: Callable[[], float] = time) -> None:
        self.path = folder / store.FILE
        self.limits = limits or Limits()
        self.set_aside: Path | None = None
        self._clock = clock
        self._tail = Tail()
        self._writes = False
        self._lost = False
        self._came: set[bytes] = set()
        self._version = 0
        with told_of_files(self.path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = Lock(folder)
        self.attempts = Attempts(folder)
        try:
            if opening.is_orphaned(self.path):
                self.set_aside = opening.set_aside(self.path, clock())
            try:
                self._open()
            except JournalError as error:
                if error.reason != "corrupt":
                    raise
                self.set_aside = opening.set_aside(self.path, clock())
                self._open()
        except BaseException:
            self.attempts.close()
            self._lock.release()
            raise

    def _open(self) -> None:
        self._connection = opening.open_file(self.path)
        self._fitted = -1
        try:
            with told_reading(self.path):
                self._tail = max(self._tail, self._tail_on_disk())
                self._keys = Keys(self._connection)
                self._index = Index(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def set_aside_and_begin_again(self) -> Path:
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
        self.set_aside = opening.set_aside(self.path, self._clock())
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
    def begin(self) -> Iterator[Batch]:
        """One transaction: on disk when the block ends, undone where it raises.

        Raises:
            JournalError: It could not be written; nothing of it was.
        """
        if self._lost:
            self._go_on()
        batch = Batch(self._connection, self._keys, self._index, self._tail, self.limits)
        with self._transaction():
            self._index.erased = self._changed_elsewhere()
            yield batch
        self._tail = batch.tail

    def _changed_elsewhere(self) -> bool:
        """Whether another process wrote since the transaction before: somebody may have forgotten something."""
        (before, self._version) = self._version, store.version(self._connection)
        return self._version != before

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._writes:
            raise RuntimeError("the journal is being written to: one transaction at a time")
        self._writes = True
        try:
            with told(self.path):
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
        with told(self.path):
            if self._fitted != self.limits.size:
                store.fit(self._connection, self.limits.size)
                self._fitted = self.limits.size
            return store.excess(self._connection, self.path, self.limits.size)

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
        with told_reading(self.path), self._transaction():
            found = expiry.expire(self._connection, self._keys, self.limits, excess, now)
            self._index.forget_series()
        return found

    def _free(self) -> int:
        with told(self.path):
            return store.free_pages(self._connection) * store.PAGE

    def _shrink(self) -> bool:
        with told(self.path):
            return expiry.shrink(self._connection, self.limits.size)

    def quarantine_size(self) -> int:
        """How many requests are set aside.

        Raises:
            JournalError: It cannot be read.
        """
        with told(self.path):
            return quarantine.count(self._connection)

    def wipe_log(self) -> None:
        """Leave nothing of what was deleted in the write-ahead log, unless somebody reads just now.

        Raises:
            JournalError: The file could not be written.
        """
        with told(self.path):
            store.wipe_log(self._connection)

    def close(self) -> None:
        """Let go of the folder; again is harmless."""
        with suppress(sqlite3.Error):
            self._connection.close()
        self.attempts.close()
        self._lock.release()
