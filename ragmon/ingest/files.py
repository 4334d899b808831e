"""Trace files as a stream of records, with every line that is none counted by reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Final

from ragmon.core.record import Line, Record
from ragmon.ingest import trec
from ragmon.ingest.decode import decode
from ragmon.ingest.lines import Lines, Reject, open_bytes
from ragmon.ingest.otlp.assembly import Assembly, record_of
from ragmon.ingest.otlp.lines import is_export, spans
from ragmon.ingest.rejected import Rejected
from ragmon.spans import Mapped
from ragmon.spans.model import TOO_MANY_SPANS

EXAMPLES: Final = 5
"""Rejected lines that are named one by one."""
_TICK: Final = 8192

Progress = Callable[[int], None]
"""Told how many bytes of the files have been read."""


@dataclass(frozen=True)
class Example:
    """One line that is no record."""

    path: str
    line: int
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}" + (f": {self.detail}" if self.detail else "")


@dataclass
class Intake:
    """What a reader met: how many lines, how many were no record and why.

    Attributes:
        lines: How many lines the file read last has, blank ones too.
        read: Records, totals lines and rejected lines together; complete when a file has been read to its end.
        totals: Totals lines, which are no requests, among them.
        labels: What people said of answers, among them too.
        rejected: Lines that are no record, by reason.
        unknown: Records of which a field is unknown because of what they hold, by `field: reason`.
        examples: The first few of them.
    """

    lines: int = 0
    read: int = 0
    totals: int = 0
    labels: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)

    @property
    def rejections(self) -> int:
        """Lines that are no record, for whatever reason."""
        return sum(self.rejected.values())

    def reject(self, path: str, line: int, reason: str, detail: str = "", lost: int = 1) -> None:
        """Count one line that is no record, or the spans that are lost with it."""
        self.rejected[reason] = self.rejected.get(reason, 0) + lost
        if len(self.examples) < EXAMPLES:
            self.examples.append(Example(path, line, reason, detail))

    def miss(self, name: str, reason: str, n: int = 1) -> None:
        """Count a record of which a field is unknown."""
        key = f"{name}: {reason}"
        self.unknown[key] = self.unknown.get(key, 0) + n

    def merge(self, other: Intake, *, lines_before: int = 0) -> None:
        """Add what another reader met; it may have started in the middle of a file."""
        self.lines = lines_before + other.lines
        self.read += other.read
        self.totals += other.totals
        self.labels += other.labels
        moved = [replace(example, line=example.line + lines_before) for example in other.examples]
        self.examples = [*self.examples, *moved][:EXAMPLES]
        for mine, theirs in ((self.rejected, other.rejected), (self.unknown, other.unknown)):
            for key, n in theirs.items():
                mine[key] = mine.get(key, 0) + n


def read_files(paths: Sequence[str], intake: Intake, progress: Progress | None = None) -> Iterator[Line]:
    """The records of trace files, one file after the other.

    Args:
        paths: JSON Lines, OTLP-JSON lines or TREC runs, plain, gzip or zstd; `-` for standard input.
        intake: Where lines are counted.
        progress: Told the bytes read of all files together, now and then.

    Raises:
        InputError: A file cannot be read.
    """
    before = 0
    for path in paths:
        yield from read_file(path, intake, progress=_after(before, progress))
        before += Path(path).stat().st_size if progress is not None and Path(path).is_file() else 0


def _after(before: int, progress: Progress | None) -> Progress | None:
    """Progress in one file as progress in all of them."""
    return None if progress is None else lambda done: progress(before + done)


def read_file(
    path: str, intake: Intake, *, progress: Progress | None = None, part: tuple[int, int] | None = None
) -> Iterator[Line]:
    """The records of one trace file, or of the lines that start within a byte range of it.

    Args:
        path: The file.
        intake: Where lines are counted.
        progress: Told the bytes read, now and then.
        part: Start and end in bytes, of a plain file.

    Raises:
        InputError: The file cannot be read.
    """
    reject: Reject = partial(intake.reject, path)
    with open_bytes(path) as (stream, raw):
        if part is not None:
            stream.seek(part[0])
        reader = Lines(stream, reject, length=part[1] - part[0] if part is not None else None)
        lines = iter(reader)
        first = list(islice(lines, 1))
        lines = chain(first, lines)
        if first and trec.is_run(first[0]):
            yield from _queries(((reader.number, line) for line in lines), intake, reject)
            intake.lines = reader.number
            return
        if first and is_export(first[0]):
            yield from _requests(path, ((reader.number, line) for line in lines), intake)
            intake.lines = reader.number
            return
        watched = progress if raw.seekable() else None
        try:
            for line in lines:
                try:
                    yield decode(line, intake.miss)
                except Rejected as rejected:
                    reject(reader.number, rejected.reason, str(rejected))
                if watched is not None and reader.number % _TICK == 0:
                    watched(raw.tell())
        finally:
            intake.lines = reader.number
            intake.read += reader.number - reader.blank


def _requests(path: str, lines: Iterable[tuple[int, bytes]], intake: Intake) -> Iterator[Record]:
    """The requests of OTLP lines; each counts as one thing read, and so does a line or span that cannot be read."""
    assembly, number = Assembly(), 0

    def refuse(rejected: Rejected) -> None:
        if rejected.lost:
            intake.read += rejected.lost
            intake.reject(path, number, rejected.reason, str(rejected), rejected.lost)

    reject: Reject = partial(intake.reject, path)
    for number, line in lines:
        try:
            for span, resource in spans(line, refuse):
                yield from _read(assembly.add(span, resource), number, intake, reject)
        except Rejected as rejected:
            refuse(rejected)
    yield from _read(assembly.end(), number, intake, reject)
    if assembly.left_out:
        intake.miss("spans", TOO_MANY_SPANS, assembly.left_out)


def _read(found: Iterable[Mapped], number: int, intake: Intake, reject: Reject) -> Iterator[Record]:
    for mapped in found:
        intake.read += 1
        try:
            record = record_of(mapped)
        except Rejected as rejected:
            reject(number, rejected.reason, str(rejected))
            continue
        for name, reason in mapped.missing.items():
            intake.miss(name, reason)
        yield record


def _queries(lines: Iterable[tuple[int, bytes]], intake: Intake, reject: Reject) -> Iterator[Record]:
    """The queries of a TREC run; each counts as one thing read, however many lines it takes."""
    before = intake.rejections
    for record in trec.records(lines, reject):
        intake.read += 1
        yield record
    intake.read += intake.rejections - before


def splittable(path: str) -> bool:
    """Whether several processes can read a file side by side: a plain regular file whose every line stands alone."""
    if not Path(path).is_file():
        return False
    with open_bytes(path) as (stream, raw):
        first = next(iter(Lines(stream, lambda *_: None)), None)
        return stream is raw and not (first is not None and (trec.is_run(first) or is_export(first)))
