r"""Trace files as a stream of records, read in bounded memory; every line that is no record is counted by reason.

A file, or standard input, is plain, gzip or zstd; of a damaged stream, every byte before the damage is read. It holds
trace log lines (JSON Lines), OTLP-JSON lines (an export request each, as collectors write them), a JSON array of
objects, a table, or a TREC run: six columns `qid Q0 docid rank score tag`, one line per retrieved document. A line ends
at the byte `\n` alone, because text inside a record may hold U+2028 and similar characters. A JSON array alone is read
into memory as a whole.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from ragmon.core import constants
from ragmon.core.errors import InputError, RagmonError, printable, shorten
from ragmon.core.record import Line, Record
from ragmon.ingest.cells import CellError, kept_comma
from ragmon.ingest.datasets import rows_of
from ragmon.ingest.lines import BOM, NOTHING_TO_JUDGE, Rejected, decode, finite, is_export, refuse_gold
from ragmon.ingest.spans.messages import NO_SPAN
from ragmon.ingest.spans.span import NO_OPTIONS, NOT_RAG, UNKNOWN_CONVENTION, Mapped, SpanOptions
from ragmon.ingest.tables import (
    MAX_ROW,
    USUAL,
    TableOptions,
    TableRows,
    assigned_columns,
    binary_table,
    cell_at,
    check_traces,
    csv_table,
    flat,
    is_header,
    table_format,
    trace_fields,
)
from ragmon.ingest.trace_buffer import FileTraceBuffer
from ragmon.ingest.values import (
    EPOCH,
    EXCEL,
    POINT,
    ColumnForms,
    Readings,
    formatted_time,
    milliseconds,
    time_format,
    times,
)

GZIP: Final = b"\x1f\x8b"
ZSTD: Final = (b"\x28\xb5\x2f\xfd", *(bytes([n]) + b"\x2a\x4d\x18" for n in range(0x50, 0x60)))
"""The first bytes of a zstd stream: the magic number of a frame, or of a skippable frame."""

_GZIP_WBITS: Final = 31
_READ: Final = 1 << 16
_INFLATED: Final = 1 << 18
# A zstd decompressor has no limit on its output; 128 bytes of input hold at most 32 blocks of 128 KiB.
_ZSTD_READ: Final = 128


class BrokenStreamError(Exception):
    """A compressed stream is truncated or damaged; everything before the damage was read."""


class Inflated(io.RawIOBase):
    """The decompressed bytes of a compressed stream."""

    def __init__(self, raw: IO[bytes], magic: bytes) -> None:
        if magic.startswith(GZIP):
            self._chunks = _gunzip(raw)
        else:
            try:
                import zstandard  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise RagmonError("this file needs zstandard to be read", hint="pip install 'ragmon[zstd]'") from error
            self._chunks = _unzstd(raw, zstandard)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from at most one chunk."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _gunzip(raw: IO[bytes]) -> Iterator[bytes]:
    """Decompress the members of a gzip stream in order; zeros between and after them are padding."""
    data = raw.read(_READ)
    while data:
        member = zlib.decompressobj(_GZIP_WBITS)
        while not member.eof:
            if not data:
                raise BrokenStreamError("the gzip stream ends too early")
            try:
                yield member.decompress(data, _INFLATED)
            except zlib.error as error:
                raise BrokenStreamError(f"the gzip stream is damaged ({error})") from None
            data = member.unconsumed_tail or (b"" if member.eof else raw.read(_READ))
        data = member.unused_data.lstrip(b"\0")
        while not data and (more := raw.read(_READ)):
            data = more.lstrip(b"\0")


def _unzstd(raw: IO[bytes], zstandard: Any) -> Iterator[bytes]:
    data = raw.read(_ZSTD_READ)
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            if not data:
                raise BrokenStreamError("the zstd stream ends too early")
            try:
                yield frame.decompress(data)
            except zstandard.ZstdError as error:
                raise BrokenStreamError(f"the zstd stream is damaged ({error})") from None
            data = b"" if frame.eof else raw.read(_ZSTD_READ)
        data = frame.unused_data or raw.read(_ZSTD_READ)


Reject = Callable[[int, str, str], None]
"""Called with the line number, the reason and the details of a line that cannot be read."""

_TRACE_ID_DIGITS: Final = 32
_WRITTEN: Final = ("ts", "latency_ms", "retrieval_ms", "generation_ms")
"""Fields whose cells are written in a form."""
_HELD: Final = 10_000
_HELD_CHARS: Final = 64 << 20
"""Rows, and characters, of a table that are held back until the form of its times and numbers is known."""
_Row = tuple[int, Mapping[str, Any], dict[str, Any]]  # its number, its cells, its fields
_Held = Sequence[
    tuple[_Row, Mapping[str, Readings]]
]  # rows, and what the times and numbers among their fields may mean
_ID_LISTS: Final = ("retrieved_ids", "citations", "candidate_ids")
_RUN_COLUMNS: Final = 6
_SINGLE: Final = struct.Struct("f")


def is_run(line: bytes) -> bool:
    """Whether the first line of a file looks like a TREC run: six columns, the fifth a number.

    >>> is_run(b"301 Q0 FR940202-2-00150 104 2.129133 STANDARD"), is_run(b'{"qid": "301"}')
    (True, False)
    """
    columns = line.split(None, _RUN_COLUMNS)
    if len(columns) != _RUN_COLUMNS:
        return False
    try:
        float(columns[4])
    except ValueError:
        return False
    return True


MAX_EXAMPLES: Final = 5
_NO_REQUEST: Final = frozenset((NOT_RAG, NO_SPAN, UNKNOWN_CONVENTION))
"""Reasons of traces of which it is known, or nothing says otherwise, that they are no requests to a pipeline."""


@dataclass(frozen=True)
class Example:
    """One rejected line."""

    path: str
    line: int
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}" + (f": {self.detail}" if self.detail else "")


@dataclass
class Unread:
    """Values of one field in one file that could not be read: how many, and the first one."""

    line: int
    example: str
    n: int = 0


@dataclass
class ReadSummary:
    """What a reader counted: lines, records, and rejected lines by reason.

    Attributes:
        lines: The number of lines in the file that was read last, blank lines included.
        read: Records, totals lines, labels and rejected lines together; complete when a file has been read to its end.
        unknown: Records with an unknown field, by `field: reason`.
        notes: What the reader of the report should know, one sentence each.
        unread: Values that could not be read, by file and field.
        lost: Rejected lines that may be requests: no verdict knows how those were answered.
    """

    lines: int = 0
    read: int = 0
    totals: int = 0
    labels: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unread: dict[tuple[str, str], Unread] = field(default_factory=dict)
    lost: int = 0

    @property
    def rejections(self) -> int:
        """The number of rejected lines, whatever the reason."""
        return sum(self.rejected.values())

    @property
    def readable(self) -> int:
        """The number of records, totals lines and labels that could be read."""
        return self.read - self.rejections

    def sentences(self, *, examples: bool) -> list[str]:
        """The notes, and what could not be read; examples are texts of users."""
        unread = [
            f"{field}: {found.n} {'value' if found.n == 1 else 'values'} could not be read"
            + (f", e.g. at {path}:{found.line}: {found.example}" if examples else f" in {path}")
            + ("; --time-format says how times are written" if field == "ts" else "")
            for (path, field), found in self.unread.items()
        ]
        return [*self.notes, *unread]

    def reject(self, path: str, line: int, reason: str, detail: str = "", lost: int = 1) -> None:
        """Count one rejected line, or the spans that are lost with it."""
        self.rejected[reason] = self.rejected.get(reason, 0) + lost
        self.lost += lost if reason not in _NO_REQUEST else 0
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(Example(path, line, reason, detail))

    def miss(self, name: str, reason: str, n: int = 1) -> None:
        """Count a record with an unknown field."""
        key = f"{name}: {reason}"
        self.unknown[key] = self.unknown.get(key, 0) + n

    def miss_at(self, path: str, line: int, name: str, reason: str, found: str = "") -> None:
        """Count a record with an unknown field, and keep the first value of a file that could not be read."""
        self.miss(name, reason)
        if reason == constants.UNREADABLE:
            self.unread.setdefault((path, name), Unread(line, found)).n += 1

    def merge(self, other: ReadSummary, *, lines_before: int = 0) -> None:
        """Add the counts of another reader, which may have started in the middle of the file."""
        self.lines = lines_before + other.lines
        self.read += other.read
        self.totals += other.totals
        self.labels += other.labels
        examples = [replace(example, line=example.line + lines_before) for example in other.examples]
        self.examples = [*self.examples, *examples][:MAX_EXAMPLES]
        self.notes += other.notes
        self.lost += other.lost
        for place, found in other.unread.items():
            self.unread.setdefault(place, Unread(found.line + lines_before, found.example)).n += found.n
        for counts, added in ((self.rejected, other.rejected), (self.unknown, other.unknown)):
            for key, n in added.items():
                counts[key] = counts.get(key, 0) + n


MAX_LINE: Final = 8 << 20
"""The maximum length of a line in bytes; a longer line is skipped and counted."""
_BUFFER_BYTES: Final = 1 << 20
_SKIP_BYTES: Final = 1 << 16
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def open_bytes(path: str, *, utf_16: bool = False) -> Iterator[tuple[io.BufferedReader, io.BufferedReader]]:
    """The decompressed bytes of a file, `-` for standard input, and the file below, whose position shows the progress.

    The first bytes show gzip and zstd.
    """
    try:
        with _open(path) as raw:
            magic = raw.peek(4)
            if magic.startswith(_UTF_16) and not utf_16:
                hint = "write it as UTF-8; a table may be read with --encoding utf-16"
                raise InputError("this is UTF-16", path=path, hint=hint)
            if magic.startswith((GZIP, *ZSTD)):
                yield io.BufferedReader(Inflated(raw, magic), _BUFFER_BYTES), raw
            else:
                yield raw, raw
    except OSError as error:
        message = f"cannot be read ({error.strerror or error})"
        raise InputError(message, path=path, hint="check name and rights") from error


@contextmanager
def _open(path: str) -> Iterator[Any]:
    if path == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed", path=path, hint="pipe traces into it, or name a file")
        stdin: Any = sys.stdin.buffer  # a test runner may replace it with any stream
        yield stdin if isinstance(stdin, io.BufferedReader) else io.BufferedReader(stdin)
    elif Path(path).is_dir():
        raise InputError("this is a directory", path=path, hint="name the trace files in it")
    else:
        with open(path, "rb", buffering=_BUFFER_BYTES) as file:  # noqa: PTH123 - the buffer's size matters
            yield file


class LineReader:
    """The non-blank lines of a stream, numbered from its current position; no further line starts after `length`.

    Lines that are too long, and a truncated or damaged compressed stream, are rejected.
    """

    def __init__(self, stream: IO[bytes], reject: Reject, *, length: int | None = None) -> None:
        self.number = 0
        self.blank = 0
        self._stream = stream
        self._reject = reject
        self._length = length

    def __iter__(self) -> Iterator[bytes]:
        length, position = self._length, 0
        raw_lines = iter(partial(self._stream.readline, MAX_LINE + 1), b"")
        try:
            for number, line in enumerate(raw_lines, 1):
                self.number = number
                if len(line) > MAX_LINE and not line.endswith(b"\n"):
                    position += skip_line(self._stream)
                    self._reject(number, constants.OVERSIZE, f"it is longer than {MAX_LINE} bytes")
                elif line.isspace():
                    self.blank += 1
                else:
                    yield line
                if length is not None:
                    position += len(line)
                    if position >= length:
                        return
        except BrokenStreamError as error:
            self.number += 1
            self._reject(self.number, constants.TRUNCATED, str(error))


def skip_line(stream: IO[bytes]) -> int:
    """Read to the end of a line without keeping it; returns the number of bytes."""
    skipped = 0
    for chunk in iter(partial(stream.readline, _SKIP_BYTES), b""):
        skipped += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return skipped


def byte_ranges(path: str, parts: int) -> list[tuple[int, int]]:
    """Divide a plain file into ranges of about equal size that start at line starts."""
    size = os.stat(path).st_size  # noqa: PTH116 - one number
    starts = [0]
    with open(path, "rb") as file:  # noqa: PTH123
        for part in range(1, parts):
            file.seek(size * part // parts)
            skip_line(file)
            if starts[-1] < file.tell() < size:
                starts.append(file.tell())
    return list(zip(starts, [*starts[1:], size], strict=True))


_PROGRESS_LINES: Final = 8192

Progress = Callable[[int], None]
"""Called with the number of bytes of the files that have been read."""


def read_files(
    paths: Sequence[str],
    intake: ReadSummary,
    progress: Progress | None = None,
    options: TableOptions = USUAL,
    span_options: SpanOptions = NO_OPTIONS,
) -> Iterator[Line]:
    """The records of trace files, one file after the other; `progress` gets the bytes read of all files together."""
    bytes_before = 0
    for path in paths:
        counted = None if progress is None else lambda read, before=bytes_before: progress(before + read)
        yield from read_file(path, intake, progress=counted, options=options, span_options=span_options)
        bytes_before += Path(path).stat().st_size if progress is not None and Path(path).is_file() else 0


def read_file(
    path: str,
    intake: ReadSummary,
    *,
    progress: Progress | None = None,
    part: tuple[int, int] | None = None,
    options: TableOptions = USUAL,
    span_options: SpanOptions = NO_OPTIONS,
) -> Iterator[Line]:
    """The records of one trace file, or of the lines that start within a byte range of it."""
    kind, reader = table_format(path), _FileReader(path, intake, options, span_options)
    if kind in ("parquet", "xlsx"):
        yield from reader.table(binary_table(path, kind, options))
        return
    with open_bytes(path, utf_16=options.encoding is not None) as (stream, raw):
        progress_callback = progress if raw.seekable() else None
        try:
            start, newline, _ = (b"" if part is not None else stream.peek(_SKIP_BYTES)).partition(b"\n")
        except BrokenStreamError as error:
            intake.read, intake.lines = intake.read + 1, 1
            reader.reject(1, constants.TRUNCATED, str(error))
            return
        if kind == "csv" or is_header(start, options):
            entries = reader.csv(stream)
        elif _is_array(start) or (newline and _is_document(start)):
            entries = reader.document(stream)
        else:
            entries = reader.lines(stream, part)
        for number, entry in enumerate(entries, 1):
            yield entry
            if progress_callback is not None and number % _PROGRESS_LINES == 0:
                progress_callback(raw.tell())


def read_table(table: TableRows, path: str, intake: ReadSummary, options: TableOptions) -> Iterator[Line]:
    """The records of a table."""
    return _FileReader(path, intake, options, NO_OPTIONS).table(table)


def _is_array(start: bytes) -> bool:
    """Whether a file whose first line starts so is one JSON array of objects."""
    bare = start.removeprefix(BOM).strip()
    return bare.startswith(b"[") and bare[1:].lstrip()[:1] in (b"{", b"]", b"")


def _is_document(start: bytes) -> bool:
    """Whether a file whose first line starts so is one JSON object over several lines."""
    bare = start.removeprefix(BOM).strip()
    return bare.startswith(b"{") and bare.endswith((b"{", b"[", b","))


def _is_table(line: bytes) -> bool:
    """Whether a line holds the rows of a whole file, and is no row itself."""
    try:
        return rows_of(msgspec.json.decode(line), gold=False) is not None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


@dataclass
class _FileReader:
    """The records of one file; what is read and rejected is counted."""

    path: str
    intake: ReadSummary
    options: TableOptions
    span_options: SpanOptions

    def reject(self, number: int, reason: str, detail: str) -> None:
        self.intake.reject(self.path, number, reason, detail)

    def reject_row(self, number: int, reason: str, detail: str, lost: int = 1) -> None:
        # A rejected row counts as read, with all lines that are lost with it.
        self.intake.read += lost
        self.intake.lines = number
        self.intake.reject(self.path, number, reason, detail, lost)

    def miss(self, number: int, name: str, reason: str, found: str = "", /) -> None:
        self.intake.miss_at(self.path, number, name, reason, found)

    def table(self, table: TableRows) -> Iterator[Line]:
        first = next(table.rows, None)
        check_traces(table.columns, first[1] if first is not None else {}, self.options, self.path)
        # Columns are mapped already.
        known = TableOptions(
            id_from=self.options.id_from, pipeline=self.options.pipeline, reasoning=self.options.reasoning
        )
        kept_commas: dict[str, tuple[int, str]] = {}  # by column: cells that are one id with a comma, and the first one
        for number, row, fields in self.settled(self.rows(chain([] if first is None else [first], table.rows))):
            try:
                line = decode(msgspec.json.encode(fields), partial(self.miss, number), known)
            except Rejected as rejected:
                self.reject_row(number, rejected.reason, str(rejected))
                continue
            except (CellError, InputError, TypeError, ValueError, OverflowError, RecursionError) as error:
                self.reject_row(number, constants.INVALID_SCHEMA, str(error))
                continue
            members = flat(row)
            for name, column in assigned_columns(members, self.options).items():
                cell = cell_at(members, column)
                if name in _ID_LISTS and kept_comma(cell, self.options.list_separator):
                    n, example = kept_commas.get(column, (0, cell))
                    kept_commas[column] = (n + 1, example)
            if isinstance(line, Record) and line.trace_id is None:
                # The same id in every run over the same file; the folder does not count.
                row_name = f"{Path(self.path).name}\n{number}".encode("utf-8", "surrogateescape")
                line.trace_id = hashlib.sha256(row_name).hexdigest()[:_TRACE_ID_DIGITS]
            self.intake.read += 1
            yield line
        for column, (n, example) in kept_commas.items():
            cells = f"{self.path}: {n} cells of `{column}` hold a comma and are one id each, such as {example[:40]!r}"
            self.intake.notes.append(f"{cells}; --list-separator , cuts them")

    def rows(self, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[_Row]:
        """The rows of a table with their fields."""
        for number, row in rows:
            if sum(len(cell) for cell in row.values() if isinstance(cell, str)) > MAX_ROW:
                self.reject_row(number, constants.OVERSIZE, f"it is longer than {MAX_ROW} characters")
                continue
            try:
                unread = partial(self.unread, number)
                yield number, row, trace_fields(row, self.options, unread)
            except (CellError, TypeError, ValueError, OverflowError, RecursionError) as error:
                self.reject_row(number, constants.INVALID_SCHEMA, str(error))

    def unread(self, number: int, name: str, why: str, /) -> None:
        self.miss(number, name, constants.UNREADABLE, why)

    def settled(self, rows: Iterable[_Row]) -> Iterator[_Row]:
        """The rows with times and numbers in the one form of their columns, held back while it is not known.

        A row that decides may be the last one. Of a long table the first rows decide.
        """
        columns: dict[str, ColumnForms] = {}
        undecidable: set[str] = set()
        held: list[tuple[_Row, dict[str, Readings]]] = []
        size = 0
        for entry in rows:
            _, row, fields = entry
            written = {}
            for name in _WRITTEN:
                if isinstance(value := fields.get(name), int | float | str):
                    written[name] = self.readings(name, value)
                    columns.setdefault(name, ColumnForms()).see(written[name])
            held.append((entry, written))
            undecided = [name for name in columns if len(columns[name].forms) > 1 and name not in undecidable]
            if undecided:
                size += sum(len(cell) for cell in row.values() if isinstance(cell, str))
                if len(held) < _HELD and size < _HELD_CHARS:
                    continue
                self.decide(columns, held)
                undecidable.update(undecided)
            yield from self.filled(columns, held)
            held, size = [], 0
        self.decide(columns, held)
        yield from self.filled(columns, held)

    def readings(self, name: str, value: Any) -> Readings:
        if name != "ts":
            return milliseconds(value)
        if self.options.time_format is not None:
            return formatted_time(value, self.options.time_format)
        return times(value)

    def decide(self, columns: Mapping[str, ColumnForms], held: _Held) -> None:
        """Decide the form of times that all held rows leave open; only the user knows whether day or month is first."""
        column = columns.get("ts", ColumnForms())
        if column.forms == {EPOCH, EXCEL}:  # all of them are days of this century, or the same morning of 1970
            column.forms = frozenset((EXCEL,))
        if len(column.forms) <= 1:
            return
        row, example = next((row, fields["ts"]) for (_, row, fields), found in held if len(found.get("ts", ())) > 1)
        name = assigned_columns(flat(row), self.options).get("ts", "ts")
        forms = sorted(column.forms)
        hint = " or ".join(f"--time-format {time_format(str(example), form)!r}" for form in forms)
        message = f"the times of column `{name}` may be {' or '.join(forms)}"
        raise InputError(message, path=self.path, value=example, hint=f"{hint}; --map ts= leaves times unread")

    def filled(self, columns: Mapping[str, ColumnForms], held: _Held) -> Iterator[_Row]:
        for entry, written in held:
            number, _, fields = entry
            for name, readings in written.items():
                value, found = fields[name], columns[name].read(readings)
                if found is None and POINT in readings and len(columns[name].forms) > 1 and "," not in str(value):
                    found = readings[POINT]  # Python's own
                if found is None:
                    kind = "number" if name != "ts" else "time"
                    if readings:
                        kind += f" in the form of its column ({' or '.join(sorted(columns[name].forms))})"
                    elif name == "ts" and self.options.time_format is not None:
                        kind += f" of the format {self.options.time_format!r}"
                    self.unread(number, name, f"{name} is not a {kind}: {shorten(value)}")
                fields[name] = found
            yield entry

    def csv(self, stream: IO[bytes]) -> Iterator[Line]:
        try:
            yield from self.table(csv_table(stream, self.path, self.options, self.reject_row))
        except BrokenStreamError as error:
            self.reject_row(self.intake.lines + 1, constants.TRUNCATED, str(error))

    def document(self, stream: IO[bytes]) -> Iterator[Line]:
        """The records of a JSON array, or of one JSON object that holds them."""
        data, is_object = b"", False
        try:
            data = stream.read().removeprefix(BOM)
            is_object = data.lstrip().startswith(b"{")
            if is_object:
                value = msgspec.json.decode(data)
                rows = rows_of(value, gold=False)
                entries = [*map(msgspec.json.encode, [value] if rows is None else rows)]
            else:
                try:
                    raw = msgspec.json.decode(data, type=list[msgspec.Raw])
                except msgspec.DecodeError:
                    raw = msgspec.json.decode(finite(data), type=list[msgspec.Raw])
                entries = [*map(bytes, raw)]
        except (msgspec.DecodeError, BrokenStreamError, UnicodeDecodeError, RecursionError, Rejected) as error:
            if is_object or data.partition(b"\n")[0].rstrip().endswith(b"]"):  # one bad line, and lines after it
                yield from self.lines(io.BufferedReader(io.BytesIO(data)))
                return
            self.intake.read += 1
            self.reject(1, constants.MALFORMED_JSON, f"it starts as a JSON array: {error}")
            return
        if entries:
            refuse_gold(entries[0], self.path)
        for number, entry in enumerate(entries, 1):  # the number of an entry stands for its line
            self.intake.read += 1
            try:
                yield decode(entry, partial(self.miss, number), self.options)
            except Rejected as rejected:
                self.reject(number, rejected.reason, str(rejected))

    def lines(self, stream: io.BufferedReader, part: tuple[int, int] | None = None) -> Iterator[Line]:
        if part is not None:
            stream.seek(part[0])
        reader = LineReader(stream, self.reject, length=part[1] - part[0] if part is not None else None)
        lines = iter(reader)
        first = next(lines, None)
        lines = chain([] if first is None else [first], lines)
        if first is not None and is_run(first):
            # Each query counts as one read, however many lines it has.
            rejections_before = self.intake.rejections
            for record in self.run((reader.number, line) for line in lines):
                self.intake.read += 1
                yield record
            self.intake.read += self.intake.rejections - rejections_before
            self.intake.lines = reader.number
            return
        if first is not None and is_export(first):
            yield from self.otlp((reader.number, line) for line in lines)
            self.intake.lines = reader.number
            return
        if first is not None and (part is None or part[0] == 0):
            if first.lstrip().startswith(b"{") and _is_table(first) and not stream.peek(_SKIP_BYTES).strip():
                yield from self.document(io.BytesIO(first))
                return
            refuse_gold(first, self.path)

        def miss(name: str, reason: str, found: str = "", /) -> None:
            self.miss(reader.number, name, reason, found)

        try:
            for line in lines:
                try:
                    yield decode(line, miss, self.options)
                except Rejected as rejected:
                    self.reject(reader.number, rejected.reason, str(rejected))
        finally:
            self.intake.lines = reader.number
            self.intake.read += reader.number - reader.blank

    def run(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Record]:
        """One record per query of a TREC run, ranked as trec_eval ranks: by score, then by id, both descending.

        The rank column is not used, because trec_eval does not use it either. A run has no answers: they are unknown.
        """
        runs: dict[str, list[tuple[float, str, float]]] = {}
        for number, line in lines:
            try:
                columns = line.removeprefix(BOM).decode().split(None, _RUN_COLUMNS)
                if len(columns) != _RUN_COLUMNS:
                    detail = f"a line of a run has {_RUN_COLUMNS} columns: qid Q0 docid rank score tag"
                    self.reject(number, constants.INVALID_SCHEMA, detail)
                    continue
                qid, document, score = columns[0], columns[2], float(columns[4])
            except UnicodeDecodeError as error:
                self.reject(number, constants.INVALID_UTF8, str(error))
                continue
            except ValueError:
                self.reject(number, constants.INVALID_SCHEMA, f"a score is a number, not {columns[4]!r:.80}")
                continue
            if not math.isfinite(score):
                self.reject(number, constants.NON_FINITE, f"a score is finite, not {columns[4]!r:.80}")
                continue
            # trec_eval has scores in single precision: scores that differ only beyond it are ties.
            try:
                single: float = _SINGLE.unpack(_SINGLE.pack(score))[0]
            except OverflowError:
                single = math.copysign(math.inf, score)
            runs.setdefault(qid, []).append((single, document, score))
        for qid, documents in runs.items():
            documents.sort(reverse=True)
            ids, scores = [document for _, document, _ in documents], [score for *_, score in documents]
            yield Record(qid=qid, pipeline=self.options.pipeline, retrieved_ids=ids, scores=scores, partial=True)

    def otlp(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Record]:
        """The records of OTLP lines; each counts as one read, and so does each line or span that is rejected."""
        from ragmon.ingest.otlp import log_spans, spans  # noqa: PLC0415 - protobuf's messages take long to load

        buffer, number = FileTraceBuffer(options=self.span_options), 0

        def refuse(rejected: Rejected) -> None:
            if rejected.lost_spans:
                self.intake.read += rejected.lost_spans
                self.intake.reject(self.path, number, rejected.reason, str(rejected), rejected.lost_spans)

        for number, line in lines:
            try:
                for span, origin in chain(spans(line, refuse), log_spans(line)):
                    yield from self._records_of(buffer.add(span, origin.service, origin.build), number)
            except Rejected as rejected:
                refuse(rejected)
        yield from self._records_of(buffer.end(), number)
        for reason, n in buffer.left_out.items():
            self.intake.miss("spans", reason, n)

    def _records_of(self, requests: Iterable[Mapped], number: int) -> Iterator[Record]:
        for mapped in requests:
            self.intake.read += 1
            if mapped.record is not None:
                for name, reason in mapped.missing.items():
                    self.miss(number, name, reason, mapped.unread.get(name, ""))
                mapped.record.why_unknown = dict(mapped.missing) or None
                yield mapped.record
                continue
            why = "its record cannot be read"
            if mapped.reason == UNKNOWN_CONVENTION:
                scope = printable(mapped.scope) or "its instrumentation"
                why = f"the attributes of {scope} for models and retrieval are not known"
            elif mapped.reason == NOT_RAG:
                why = "nothing in it retrieves or calls a model"
            elif mapped.reason == NO_SPAN:
                why = "it has only log records and no span"
            self.reject(number, mapped.reason, f"a trace is not a record: {why}")


def splittable(path: str, options: TableOptions = USUAL) -> bool:
    """Whether several processes can read the file in parallel: a plain regular file with independent lines."""
    if not Path(path).is_file() or table_format(path) is not None:
        return False
    with open_bytes(path, utf_16=options.encoding is not None) as (stream, raw):
        if stream is not raw:
            return False
        start = stream.peek(_SKIP_BYTES).partition(b"\n")[0]
        if is_header(start, options) or _is_array(start) or _is_document(start):
            return False
        first = next(iter(LineReader(stream, lambda *_: None)), None)
        return first is None or not (is_run(first) or is_export(first))


def unreadable(paths: Sequence[str], intake: ReadSummary, options: TableOptions = USUAL) -> InputError:
    """The error about files in which nothing could be read: what was seen, and what would help."""
    names = ", ".join(paths)
    if not intake.examples:
        return InputError("there is no record in it", path=names, hint=FORMATS)
    first = intake.examples[0]
    message = f"no record could be read, {intake.rejections} rejected; the first: {first}"
    if first.detail == NOTHING_TO_JUDGE and not options.columns:
        hint = "if the columns have other names, map them: --map question=NAME,answer=NAME,retrieved_ids=NAME"
    else:
        hint = FORMATS
    return InputError(message, hint=hint)


FORMATS: Final = (
    "traces are JSON Lines (one object a line), a JSON array, OTLP-JSON lines, TREC runs, or tables with a header: "
    ".csv, .tsv, .parquet, .xlsx"
)
