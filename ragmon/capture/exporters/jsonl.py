"""A trace log: one record per line, in a file that several processes may share and that is rotated by size or age."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, time
from typing import BinaryIO, Final, Literal

from ragmon.core.errors import RagmonError, UnavailableError, warn_once
from ragmon.core.process import make_folder
from ragmon.core.record import Label, Record, Totals, encode

TAIL: Final = 4 * 1024 * 1024
"""Bytes at the end of a log that are searched for a record."""
_CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks whether another process has rotated the file, and between two calls of fsync."""

Fsync = Literal["never", "second", "record"]


class JsonlExporter:
    """Writes a trace log; each line is one write, so that lines of several processes do not mix.

    Args:
        path: The file; it is appended to. It and its folder are made for this user alone, and a log that is there is
            closed to users outside its group. A symbolic link is not followed, unless it is in /dev or /proc.
        redact: Removes from a record what must not be written.
        size: Bytes from which the file is rotated; None for no limit.
        age: Seconds from which the file is rotated; None for no limit.
        fsync: When data is flushed to disk: whenever the system decides, once a second, or after each record.
        strict: A file that cannot be opened is an error; otherwise what is written raises until it can be opened.

    Raises:
        RagmonError: The file cannot be opened, in strict mode.
    """

    def __init__(
        self,
        path: str | Path,
        redact: Callable[[Record], Record],
        *,
        size: int | None = None,
        age: float | None = None,
        fsync: Fsync = "never",
        strict: bool = True,
    ) -> None:
        self._path = Path(path)
        self._redact = redact
        self._size = size
        self._age = age
        self._fsync = fsync
        self._dirty = False
        self._next_check = 0.0
        self._file: BinaryIO | None = None
        try:
            self._file = self._open()
        except OSError as error:
            is_link = error.errno == errno.ELOOP
            hint = "it is a symbolic link: name the file it leads to" if is_link else "check folder and rights"
            message = f"{path}: cannot be written ({error.strerror})"
            if strict:
                raise RagmonError(message, hint=hint) from error
            warn_once(f"{message}; {hint}; until then its records are counted as dropped")
            self._next_check = monotonic() + _CHECK_INTERVAL

    def _open(self) -> BinaryIO:
        make_folder(self._path.parent)
        # A link such as /dev/stdout is the system's; any other could lead texts into a file of somebody's choice.
        is_system = self._path.parent == Path("/dev") or self._path.is_relative_to("/proc")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (0 if is_system else os.O_NOFOLLOW)
        file = open(os.open(self._path, flags, 0o600), "ab", buffering=0)  # noqa: SIM115, PTH123 - for the exporter's life
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IRWXO:
            with suppress(OSError):  # of another owner, who may have meant it
                os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode) & ~stat.S_IRWXO)
        self._period = self._period_of(status.st_mtime if status.st_size else time())
        self._incomplete_line = status.st_size > 0 and not _ends_a_line(self._path)
        self._next_check = monotonic() + _CHECK_INTERVAL
        return file

    def _period_of(self, moment: float) -> int:
        return 0 if self._age is None else int(moment // self._age)

    def submit(self, record: Record) -> None:
        """Write a record.

        Raises:
            OSError: It was not written, or not completely; the next record starts on a new line.
            UnavailableError: The file cannot be opened, which was logged when it was first tried.
        """
        self._write(encode(self._redact(record)))

    def report(self, totals: Sequence[Totals]) -> bool:
        """Write a producer's counts of all calls; returns whether the file could be opened.

        Raises:
            OSError: They were not written.
        """
        return self._write_all(totals)

    def label(self, labels: Sequence[Label]) -> bool:
        """Write ratings of answers; returns whether the file could be opened.

        Raises:
            OSError: They were not written.
        """
        return self._write_all(labels)

    def _write_all(self, lines: Sequence[Totals] | Sequence[Label]) -> bool:
        try:
            for line in lines:
                self._write(encode(line))
        except UnavailableError:
            return False
        return True

    def _opened(self) -> BinaryIO:
        """The file; one that could not be opened is tried again after a while.

        Raises:
            UnavailableError: It cannot be opened.
        """
        if self._file is None and monotonic() >= self._next_check:
            self._next_check = monotonic() + _CHECK_INTERVAL
            with suppress(OSError):
                self._file = self._open()
        if self._file is None:
            raise UnavailableError(f"{self._path}: cannot be written")
        return self._file

    def _write(self, line: bytes) -> None:
        file = self._poll(self._opened(), len(line))
        if self._incomplete_line:
            line = b"\n" + line
        written = file.write(line)
        self._incomplete_line = self._incomplete_line if not written else written < len(line)
        if written != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._dirty = True
        if self._fsync == "record":
            self._sync()

    def _poll(self, file: BinaryIO, line_size: int) -> BinaryIO:
        """Rotate the file when it is large or old enough, and reopen it when another process has rotated it."""
        now = monotonic()
        if self._size is None and self._age is None and now < self._next_check:
            return file
        status = os.fstat(file.fileno())
        full = self._size is not None and status.st_size and status.st_size + line_size > self._size
        if full or (status.st_size and self._period_of(time()) > self._period):
            self._rotate(file, status)
        if full or now >= self._next_check:
            self._next_check = now + _CHECK_INTERVAL
            if self._fsync == "second":
                self._sync()
            if not _is_at(status, self._path):
                self.close()
                self._file = None
                self._file = self._open()
        return self._opened()

    def _rotate(self, file: BinaryIO, status: os.stat_result) -> None:
        """Rename the file, unless another process has done so."""
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            if _is_at(status, self._path):
                moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
                self._path.rename(self._path.with_name(f"{self._path.stem}-{moment}{self._path.suffix}"))
        except OSError as error:
            warn_once(f"{self._path} cannot be put aside ({error.strerror}) and goes on growing")
            self._size = self._age = None
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _sync(self) -> None:
        if self._dirty and self._fsync != "never" and self._file is not None:
            os.fsync(self._file.fileno())
            self._dirty = False

    def holds(self, trace_id: str) -> bool:
        """Whether the complete record of a trace is in the log: the current file, or the last rotated one."""
        rotated = sorted(self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}"))
        return any(_holds(path, trace_id.encode()) for path in (self._path, *rotated[-1:]))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None and not self._file.closed:
            self._sync()
            self._file.close()


def _is_at(status: os.stat_result, path: Path) -> bool:
    """Whether an open file is the one a path names."""
    try:
        path_status = path.stat()
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (path_status.st_dev, path_status.st_ino)


def _ends_a_line(path: Path) -> bool:
    """Whether a file's last byte ends a line; True for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True


def _holds(path: Path, trace_id: bytes) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            return any(trace_id in line and line.endswith(b"\n") for line in file)
    except OSError:
        return False
