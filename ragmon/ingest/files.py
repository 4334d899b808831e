r"""Lines of a file, a pipe or a compressed stream, in bounded memory whatever they hold.

Lines end at the byte `\n` alone: text inside a record may hold U+2028 and its like.

TREC run files: six columns `qid Q0 docid rank score tag`, one line per retrieved document.

Trace files as a stream of records, with every line that is none counted by reason.
"""

from __future__ import annotations

import io
import math
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final

from ragmon.core import constants
from ragmon.core.errors import InputError
from ragmon.core.record import Line, Record
from ragmon.ingest.compression import GZIP, ZSTD, BrokenStreamError, Inflated
from ragmon.ingest.decode import BOM, decode
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp.file_traces import Assembly, record_of
from ragmon.ingest.otlp.json import is_export, spans
from ragmon.ingest.spans import Mapped
from ragmon.ingest.spans.model import TOO_MANY_SPANS

MAX_LINE: Final = 8 << 20
"""Bytes of the longest line that is read; a longer one is skipped and counted."""
_BUFFER: Final = 1 << 20
_SKIP: Final = 1 << 16
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")

Reject = Callable[[int, str, str], None]
"""Told the line number, the reason and the details of what could not be read."""


@contextmanager
def open_bytes(path: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a trace file by its name, `-` for standard input; gzip and zstd are told by their first bytes.

    Yields:
        The inflated bytes and the file underneath, whose position tells the progress; one and the same where nothing
        is compressed.

    Raises:
        InputError: The file cannot be opened or read on, is a directory, or is UTF-16.
        RagmonError: zstd without the extra that reads it.
    """
    try:
        with _open(path) as raw:
            magic = raw.peek(4)
            if magic.startswith(_UTF_16):
                raise InputError("this is UTF-16", path=path, hint="write it as UTF-8")
            if magic.startswith((GZIP, *ZSTD)):
                yield io.BufferedReader(Inflated(raw, magic), _BUFFER), raw
            else:
                yield raw, raw
    except OSError as error:
        said = f"cannot be read ({error.strerror or error})"
        raise InputError(said, path=path, hint="check name and rights") from error


@contextmanager
def _open(path: str) -> Iterator[Any]:
    if path == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed", path=path, hint="pipe traces into it, or name a file")
        stdin: Any = sys.stdin.buffer  # a test runner may have put any stream there
        yield stdin if isinstance(stdin, io.BufferedReader) else io.BufferedReader(stdin)
    elif Path(path).is_dir():
        raise InputError("this is a directory", path=path, hint="name the trace files in it")
    else:
        with open(path, "rb", buffering=_BUFFER) as file:  # noqa: PTH123 - the buffer's size matters
            yield file


class LineReader:
    """The non-blank lines of a stream, counted from where it stands.

    Args:
        stream: Inflated bytes.
        reject: Told about lines that are too long, and about a compressed stream that breaks off.
        length: Bytes after which no further line starts; None reads to the end.

    Attributes:
        number: Number of the line read last, from 1.
        blank: How many lines so far held nothing.
    """

    def __init__(self, stream: IO[bytes], reject: Reject, *, length: int | None = None) -> None:
        self.number = 0
        self.blank = 0
        self._stream = stream
        self._reject = reject
        self._length = length

    def __iter__(self) -> Iterator[bytes]:
        length, passed = self._length, 0
        read = iter(partial(self._stream.readline, MAX_LINE + 1), b"")
        try:
            for number, line in enumerate(read, 1):
                self.number = number
                if len(line) > MAX_LINE and not line.endswith(b"\n"):
                    passed += skip_line(self._stream)
                    self._reject(number, constants.OVERSIZE, f"it is longer than {MAX_LINE} bytes")
                elif line.isspace():
                    self.blank += 1
                else:
                    yield line
                if length is not None:
                    passed += len(line)
                    if passed >= length:
                        return
        except BrokenStreamError as error:
            self.number += 1
            self._reject(self.number, constants.TRUNCATED, str(error))


def skip_line(stream: IO[bytes]) -> int:
    """Read on to the end of a line without holding it; returns how many bytes that were."""
    passed = 0
    for chunk in iter(partial(stream.readline, _SKIP), b""):
        passed += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return passed


def byte_ranges(path: str, parts: int) -> list[tuple[int, int]]:
    """Cut a plain file into about equal ranges that start at line starts.

    Args:
        path: A file that is not compressed.
        parts: How many ranges at most.
    """
    size = os.stat(path).st_size  # noqa: PTH116 - one number
    starts = [0]
    with open(path, "rb") as file:  # noqa: PTH123
        for part in range(1, parts):
            file.seek(size * part // parts)
            skip_line(file)
            if starts[-1] < file.tell() < size:
                starts.append(file.tell())
    return list(zip(starts, [*starts[1:], size], strict=True))


COLUMNS: Final = 6
_SINGLE: Final = struct.Struct("f")


def is_run(line: bytes) -> bool:
    """Whether a first line looks like a run: six columns, the fifth a number.

    >>> is_run(b"301 Q0 FR940202-2-00150 104 2.129133 STANDARD"), is_run(b'{"qid": "301"}')
    (True, False)
    """
    columns = line.split(None, COLUMNS)
    if len(columns) != COLUMNS:
        return False
    try:
        float(columns[4])
    except ValueError:
        return False
    return True


def records(lines: Iterable[tuple[int, bytes]], reject: Reject) -> Iterator[Record]:
    """One record per query, ranked as trec_eval ranks: by score, then by document id, both falling.

    The rank column is not used, because trec_eval does not use it either. Answers are unknown in a run.
    """
    runs: dict[str, list[tuple[float, str, float]]] = {}
    for number, line in lines:
        try:
            qid, document, score = _columns(line)
        except Rejected as rejected:
            reject(number, rejected.reason, str(rejected))
        else:
            runs.setdefault(qid, []).append((_single(score), document, score))
    for qid, found in runs.items():
        found.sort(reverse=True)
        yield Record(
            qid=qid,
            retrieved_ids=[document for _, document, _ in found],
            scores=[score for *_, score in found],
            partial=True,
        )


def _columns(line: bytes) -> tuple[str, str, float]:
    """Query, document and score of one line."""
    try:
        columns = line.removeprefix(BOM).decode().split(None, COLUMNS)
    except UnicodeDecodeError as error:
        raise Rejected(constants.INVALID_UTF8, str(error)) from None
    if len(columns) != COLUMNS:
        raise Rejected(constants.INVALID_SCHEMA, f"a line of a run has {COLUMNS} columns: qid Q0 docid rank score tag")
    try:
        score = float(columns[4])
    except ValueError:
        raise Rejected(constants.INVALID_SCHEMA, f"a score is a number, not {columns[4]!r:.80}") from None
    if not math.isfinite(score):
        raise Rejected(constants.NON_FINITE, f"a score is finite, not {columns[4]!r:.80}")
    return columns[0], columns[2], score


def _single(score: float) -> float:
    """The score as trec_eval holds it: scores that differ only past single precision are ties."""
    try:
        single: float = _SINGLE.unpack(_SINGLE.pack(score))[0]
    except OverflowError:
        return math.copysign(math.inf, score)
    return single


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
class ReadSummary:
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

    def merge(self, other: ReadSummary, *, lines_before: int = 0) -> None:
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


def read_files(paths: Sequence[str], intake: ReadSummary, progress: Progress | None = None) -> Iterator[Line]:
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
    path: str, intake: ReadSummary, *, progress: Progress | None = None, part: tuple[int, int] | None = None
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
        reader = LineReader(stream, reject, length=part[1] - part[0] if part is not None else None)
        lines = iter(reader)
        first = list(islice(lines, 1))
        lines = chain(first, lines)
        if first and is_run(first[0]):
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


def _requests(path: str, lines: Iterable[tuple[int, bytes]], intake: ReadSummary) -> Iterator[Record]:
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


def _read(found: Iterable[Mapped], number: int, intake: ReadSummary, reject: Reject) -> Iterator[Record]:
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


def _queries(lines: Iterable[tuple[int, bytes]], intake: ReadSummary, reject: Reject) -> Iterator[Record]:
    """The queries of a TREC run; each counts as one thing read, however many lines it takes."""
    before = intake.rejections
    for record in records(lines, reject):
        intake.read += 1
        yield record
    intake.read += intake.rejections - before


def splittable(path: str) -> bool:
    """Whether several processes can read a file side by side: a plain regular file whose every line stands alone."""
    if not Path(path).is_file():
        return False
    with open_bytes(path) as (stream, raw):
        first = next(iter(LineReader(stream, lambda *_: None)), None)
        return stream is raw and not (first is not None and (is_run(first) or is_export(first)))
