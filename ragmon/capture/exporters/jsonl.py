"""A trace log: one record a line, in a file that several processes may share and that is put aside as it grows."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, time
from typing import BinaryIO, Final, Literal

from ragmon.core.errors import RagmonError
from ragmon.core.log import warn_once
from ragmon.core.record import Label, Record, Totals, encode

TAIL: Final = 4 * 1024 * 1024
"""Bytes at the end of a log that are searched for a record."""
_LOOK: Final = 1.0
"""Seconds between two looks whether another process has put the file aside, or the disk should be told."""

Fsync = Literal["never", "second", "record"]


class JsonlExporter:
    """A trace log; each line is one write, so that lines of several processes do not mix.

    Args:
        path: The file; it is appended to, its folder is made.
        redact: Takes out of a record what must not be written.
        size: Bytes from which the file is put aside and a new one begun; None lets it grow.
        age: Seconds of a file; None lets it grow old.
        fsync: When the disk must have it: whenever the system sees fit, once a second, or before the next record.

    Raises:
        RagmonError: The file cannot be opened.
    """

    def __init__(
        self,
        path: str | Path,
        redact: Callable[[Record], Record],
        *,
        size: int | None = None,
        age: float | None = None,
        fsync: Fsync = "never",
    ) -> None:
        self._path = Path(path)
        self._redact = redact
        self._size = size
        self._age = age
        self._fsync = fsync
        self._dirty = False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
        except OSError as error:
            raise RagmonError(
                f"{path}: cannot be written ({error.strerror})", hint="check folder and rights"
            ) from error

    def _open(self) -> BinaryIO:
        file = open(self._path, "ab", buffering=0)  # noqa: SIM115, PTH123 - held open for the life of the sink
        found = os.fstat(file.fileno())
        self._period = self._period_of(found.st_mtime if found.st_size else time())
        self._torn = found.st_size > 0 and not _ends_a_line(self._path)
        self._next_look = monotonic() + _LOOK
        return file

    def _period_of(self, moment: float) -> int:
        return 0 if self._age is None else int(moment // self._age)

    def submit(self, record: Record) -> None:
        """Write a record.

        Raises:
            OSError: It was not written, or not whole; the next record starts on a line of its own.
        """
        self._write(encode(self._redact(record)))

    def report(self, totals: Sequence[Totals]) -> None:
        """Write a producer's counts of all calls.

        Raises:
            OSError: They were not written.
        """
        for line in totals:
            self._write(encode(line))

    def label(self, labels: Sequence[Label]) -> None:
        """Write what people say of answers.

        Raises:
            OSError: It was not written.
        """
        for line in labels:
            self._write(encode(line))

    def _write(self, line: bytes) -> None:
        self._poll(len(line))
        if self._torn:
            line = b"\n" + line
        written = self._file.write(line)
        self._torn = self._torn if not written else written < len(line)
        if written != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._dirty = True
        if self._fsync == "record":
            self._sync()

    def _poll(self, coming: int) -> None:
        """Put the file aside when it is large or old enough, and follow when another process has done so."""
        now = monotonic()
        if self._size is None and self._age is None and now < self._next_look:
            return
        own = os.fstat(self._file.fileno())
        full = self._size is not None and own.st_size and own.st_size + coming > self._size
        if full or (own.st_size and self._period_of(time()) > self._period):
            self._put_aside(own)
        if full or now >= self._next_look:
            self._next_look = now + _LOOK
            if self._fsync == "second":
                self._sync()
            if not _is_at(own, self._path):
                self._sync()
                self._file.close()
                self._file = self._open()

    def _put_aside(self, own: os.stat_result) -> None:
        """Rename the file, unless another process was faster."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            if _is_at(own, self._path):
                moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
                self._path.rename(self._path.with_name(f"{self._path.stem}-{moment}{self._path.suffix}"))
        except OSError as error:
            warn_once(f"{self._path} cannot be put aside ({error.strerror}) and goes on growing")
            self._size = self._age = None
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _sync(self) -> None:
        if self._dirty and self._fsync != "never":
            os.fsync(self._file.fileno())
            self._dirty = False

    def holds(self, trace_id: str) -> bool:
        """Whether the record of a trace is in the log, whole: this file, or the one put aside last."""
        aside = sorted(self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}"))
        return any(_holds(path, trace_id.encode()) for path in (self._path, *aside[-1:]))

    def close(self) -> None:
        """Close the file."""
        if not self._file.closed:
            self._sync()
            self._file.close()


def _is_at(own: os.stat_result, path: Path) -> bool:
    """Whether the file that is open is the one a path names."""
    try:
        there = path.stat()
    except OSError:
        return False
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def _ends_a_line(path: Path) -> bool:
    """Whether a file's last byte ends a line; one nobody may read counts as whole."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True


def _holds(path: Path, wanted: bytes) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            return any(wanted in line and line.endswith(b"\n") for line in file)
    except OSError:
        return False
