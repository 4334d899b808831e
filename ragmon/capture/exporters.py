"""Exporters and processors of records, their combinations, and the trace log. All of it runs off the request path."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, time
from typing import Any, BinaryIO, Final, Literal, NamedTuple, Protocol, runtime_checkable

from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnavailableError, error_location, warn_once
from ragmon.core.process import make_folder
from ragmon.core.record import Label, Record, Totals, encode

BATCH: Final = 512


class Exporter(Protocol):
    """An exporter of single records.

    An exporter may have four more methods: `report(totals)` exports a producer's counts of all calls, `label(labels)`
    exports ratings of answers, `holds(trace_id)` tells whether a record that was exported before a crash has arrived,
    and `close()`.
    """

    def submit(self, record: Record) -> None:
        """Export a record; called from one thread, off the request path. If it raises, the record is lost."""


@runtime_checkable
class BatchExporter(Protocol):
    """An exporter of batches of records."""

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Export records; returns how many were lost, by reason."""


class Processor(Protocol):
    """An asynchronous step between the worker and the exporter, for example judging."""

    @property
    def holds(self) -> bool:
        """Whether it holds any records."""

    def take(self, records: Sequence[Record], until: float) -> list[Record]:
        """Take records; returns those to export now, earlier ones among them. Never blocks, never loses a record.

        All are returned until a deadline of the monotonic clock.
        """


def batch_size(sink: Exporter | BatchExporter) -> int:
    """The largest number of records to export at once: one, where a crash must tell which of them arrived."""
    if isinstance(sink, BatchExporter):
        return int(getattr(sink, "at_once", BATCH))
    _ = sink.submit  # an object without it is no exporter
    return 1


def deliver(sink: Exporter | BatchExporter, records: Sequence[Record]) -> dict[str, int]:
    """Export records to an exporter of either kind; returns how many were lost, by reason. It never raises."""
    lost: Counter[str] = Counter()
    send, submit = getattr(sink, "deliver", None), getattr(sink, "submit", None)
    for batch in [records] if send is not None else [[record] for record in records]:
        try:
            if send is not None:
                found = {reason: int(n) for reason, n in send(batch).items()}
                if any(n < 0 for n in found.values()) or sum(found.values()) > len(batch):
                    raise ValueError(f"an exporter lost {found} of {len(batch)} records")  # noqa: TRY301 - caught below
                lost.update(found)
            elif submit is not None:
                submit(batch[0])
        except UnavailableError:  # it was logged where it was raised
            lost[constants.EXPORT_FAILED] += len(batch)
        except BaseException as error:  # noqa: BLE001 - an exporter may raise anything, and the thread must go on
            warn_once(f"records could not be delivered and are dropped: {error_location(error)}")
            lost[constants.EXPORT_FAILED] += len(batch)
    return dict(lost)


def export_totals(sink: Any, totals: Sequence[Totals]) -> bool:
    """Export a producer's counts, if the exporter takes them; returns False only if that failed."""
    report = getattr(sink, "report", None)
    return report is None or not totals or report(totals) is not False


def label(sink: Any, labels: Sequence[Label]) -> bool:
    """Export ratings of answers, if the exporter takes them; returns False only if that failed."""
    send = getattr(sink, "label", None)
    return send is None or not labels or send(labels) is not False


def confirms(sink: Any, trace_id: str) -> bool | None:
    """Whether an exporter has a record; None if it cannot tell."""
    holds = getattr(sink, "holds", None)
    return None if holds is None else holds(trace_id)


def close(sink: Any) -> None:
    """Close an exporter, if it has `close`."""
    close_method = getattr(sink, "close", None)
    if close_method is not None:
        close_method()


class DroppingExporter:
    """Drops and counts every record: the exporter of a forked child whose parent scores records in its own memory."""

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Count all records as lost, with one warning."""
        warn_once(
            "this process was forked from one with a monitor of its own, which cannot see it: its records are dropped "
            "and counted; name a server in [export] endpoint, or call ragmon.install() in each worker"
        )
        return {constants.FORKED: len(records)}


class Tee:
    """Exports everything to other exporters, also when one of them fails."""

    def __init__(self, *sinks: Exporter | BatchExporter, at_once: int = BATCH) -> None:
        self._sinks = sinks
        self.at_once = at_once

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Export records; the losses are those of the exporter that lost most."""
        losses = [deliver(sink, records) for sink in self._sinks]
        return max(losses, key=lambda lost: sum(lost.values()), default={})

    def report(self, totals: Sequence[Totals]) -> bool:
        """Export a producer's counts of all calls; returns whether all exporters that take counts succeeded."""
        # A list, so that every exporter is called, also after one has failed.
        results = [export_totals(sink, totals) for sink in self._sinks]
        return all(results)

    def label(self, labels: Sequence[Label]) -> bool:
        """Export ratings of answers; returns whether all exporters that take ratings succeeded."""
        results = [label(sink, labels) for sink in self._sinks]
        return all(results)

    def holds(self, trace_id: str) -> bool | None:
        """Whether every exporter that can tell has the record; None if none can."""
        answers = [answer for sink in self._sinks if (answer := confirms(sink, trace_id)) is not None]
        return all(answers) if answers else None


class ChangingExporter(Tee):
    """Changes records before it exports them: redacts them, or matches them to gold items by meaning."""

    def __init__(self, sink: Exporter | BatchExporter, change: Callable[[Record], Record]) -> None:
        super().__init__(sink)
        self._change = change

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Export the changed records; returns how many were lost, by reason."""
        return super().deliver([self._change(record) for record in records])

    def close(self) -> None:
        """Close the exporter."""
        for sink in self._sinks:
            close(sink)


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
        size, age: Bytes and seconds from which the file is rotated.
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
        self._incomplete_line = False
        if status.st_size:
            with suppress(OSError), self._path.open("rb") as log:
                log.seek(-1, os.SEEK_END)
                self._incomplete_line = log.read(1) != b"\n"
        self._next_check = monotonic() + _CHECK_INTERVAL
        return file

    def _period_of(self, moment: float) -> int:
        return 0 if self._age is None else int(moment // self._age)

    def submit(self, record: Record) -> None:
        """Write a record; after an incomplete one, the next record starts on a new line."""
        self._write(encode(self._redact(record)))

    def report(self, totals: Sequence[Totals] | Sequence[Label]) -> bool:
        """Write a producer's counts of all calls, or ratings of answers; returns whether the file could be opened."""
        try:
            for line in totals:
                self._write(encode(line))
        except UnavailableError:
            return False
        return True

    label = report

    def _opened(self) -> BinaryIO:
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
        now = monotonic()
        if self._size is None and self._age is None and now < self._next_check:
            return file
        status = os.fstat(file.fileno())
        full = self._size is not None and status.st_size and status.st_size + line_size > self._size
        if full or (status.st_size and self._period_of(time()) > self._period):
            # Rename the file, unless another process has done so.
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                if _is_at(status, self._path):
                    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
                    self._path.rename(self._path.with_name(f"{self._path.stem}-{moment}{self._path.suffix}"))
            except OSError as error:
                warn_once(f"{self._path} cannot be rotated ({error.strerror}) and keeps growing")
                self._size = self._age = None
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
        if full or now >= self._next_check:
            self._next_check = now + _CHECK_INTERVAL
            if self._fsync == "second":
                self._sync()
            if not _is_at(status, self._path):
                self.close()
                self._file = None
                self._file = self._open()
        return self._opened()

    def _sync(self) -> None:
        if self._dirty and self._fsync != "never" and self._file is not None:
            os.fsync(self._file.fileno())
            self._dirty = False

    def holds(self, trace_id: str) -> bool:
        """Whether the complete record of a trace is in the log: the current file, or the last rotated one."""
        rotated = sorted(self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}"))
        for path in (self._path, *rotated[-1:]):
            with suppress(OSError), path.open("rb") as log:
                log.seek(max(0, path.stat().st_size - TAIL))
                if any(trace_id.encode() in line and line.endswith(b"\n") for line in log):
                    return True
        return False

    def close(self) -> None:
        """Close the file."""
        if self._file is not None and not self._file.closed:
            self._sync()
            self._file.close()


def _is_at(status: os.stat_result, path: Path) -> bool:
    try:
        path_status = path.stat()
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (path_status.st_dev, path_status.st_ino)


class Scored(NamedTuple):
    """The scores of one trace, or of a span of it: name, value and label (`pass`, `fail`) of each."""

    trace_id: str
    span_id: str | None
    scores: Sequence[tuple[str, float, str | None]]
