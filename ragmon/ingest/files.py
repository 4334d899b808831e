r"""Trace files as a stream of records, read in bounded memory; every line that is no record is counted by reason.

A file, or standard input, is plain, gzip or zstd. It holds trace log lines (JSON Lines), OTLP-JSON lines, a JSON array
of objects, a table (`ragmon.tabular`), or a TREC run: six columns `qid Q0 docid rank score tag`, one line per retrieved
document. A line ends at the byte `\n` alone, because text inside a record may hold U+2028 and similar characters. A
JSON array alone is read into memory as a whole.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from ragmon.core import constants
from ragmon.core.errors import InputError
from ragmon.core.record import Line, Record
from ragmon.ingest.compression import GZIP, ZSTD, BrokenStreamError, Inflated
from ragmon.ingest.decode import BOM, decode, refuse_gold
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp import NO_OPTIONS, SpanOptions, is_export
from ragmon.ingest.summary import ReadSummary
from ragmon.ingest.table_records import records as table_records
from ragmon.ingest.trec import Reject, is_run
from ragmon.ingest.trec import records as trec_records
from ragmon.tabular.columns import USUAL, TableOptions
from ragmon.tabular.files import RejectRow, TableRows, binary_table, csv_table, is_header, table_format

MAX_LINE: Final = 8 << 20
"""The maximum length of a line in bytes; a longer line is skipped and counted."""
_BUFFER_BYTES: Final = 1 << 20
_SKIP_BYTES: Final = 1 << 16
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def open_bytes(path: str, *, utf_16: bool = False) -> Iterator[tuple[io.BufferedReader, io.BufferedReader]]:
    """Open a trace file by its path, `-` for standard input; its first bytes show gzip and zstd.

    Args:
        path: The file.
        utf_16: UTF-16 is no error, because its encoding is known.

    Yields:
        The decompressed bytes, and the file below them, whose position shows the progress. Both are the same object
        where the file is not compressed.

    Raises:
        InputError: The file cannot be opened or read, is a directory, or is UTF-16.
        RagmonError: The file is zstd, and the extra that reads zstd is not installed.
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
    """The non-blank lines of a stream, numbered from its current position.

    Args:
        stream: Decompressed bytes.
        reject: Called for lines that are too long, and for a truncated or damaged compressed stream.
        length: The number of bytes after which no further line starts; None reads to the end.

    Attributes:
        number: The number of the last line that was read, from 1.
        blank: The number of blank lines so far.
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
    """Divide a plain file into ranges of about equal size that start at line starts.

    Args:
        path: A file that is not compressed.
        parts: The maximum number of ranges.
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
    """The records of trace files, one file after the other.

    Args:
        paths: JSON Lines, OTLP-JSON lines, JSON arrays, tables or TREC runs; `-` for standard input.
        intake: Counts the lines.
        progress: Called from time to time with the number of bytes read of all files together.
        options: How tables are read, and which members of JSON hold which field.
        span_options: How the spans of OTLP lines become records.

    Raises:
        InputError: A file cannot be read, or holds gold.
    """
    bytes_before = 0
    for path in paths:
        offset_progress = with_offset(bytes_before, progress)
        yield from read_file(path, intake, progress=offset_progress, options=options, span_options=span_options)
        bytes_before += Path(path).stat().st_size if progress is not None and Path(path).is_file() else 0


def with_offset(bytes_before: int, progress: Progress | None) -> Progress | None:
    """A progress callback for one file that counts the bytes of the files before it too."""
    return None if progress is None else lambda bytes_read: progress(bytes_before + bytes_read)


def read_file(
    path: str,
    intake: ReadSummary,
    *,
    progress: Progress | None = None,
    part: tuple[int, int] | None = None,
    options: TableOptions = USUAL,
    span_options: SpanOptions = NO_OPTIONS,
) -> Iterator[Line]:
    """The records of one trace file, or of the lines that start within a byte range of it.

    Args:
        path: The file.
        intake: Counts the lines.
        progress: Called from time to time with the number of bytes read.
        part: Start and end of the range in bytes; only for a plain file of lines.
        options: How a table is read, and which members of JSON hold which field.
        span_options: How the spans of OTLP lines become records.

    Raises:
        InputError: The file cannot be read, or holds gold.
    """
    kind = table_format(path)
    if kind in ("parquet", "xlsx"):
        yield from read_table(binary_table(path, kind, options), path, intake, options)
        return
    with open_bytes(path, utf_16=options.encoding is not None) as (stream, raw):
        progress_callback = progress if raw.seekable() else None
        try:
            start = b"" if part is not None else stream.peek(_SKIP_BYTES).partition(b"\n")[0]
        except BrokenStreamError as error:
            intake.read, intake.lines = intake.read + 1, 1
            intake.reject(path, 1, constants.TRUNCATED, str(error))
            return
        if kind == "csv" or is_header(start, options):
            entries = _csv_records(stream, path, intake, options)
        elif _is_array(start):
            entries = _array_records(stream, path, intake, options)
        else:
            entries = _line_records(stream, path, intake, part, options, span_options)
        for number, entry in enumerate(entries, 1):
            yield entry
            if progress_callback is not None and number % _PROGRESS_LINES == 0:
                progress_callback(raw.tell())


def _is_array(start: bytes) -> bool:
    """Whether a file whose first line starts so is one JSON array of objects."""
    bare = start.removeprefix(BOM).strip()
    return bare.startswith(b"[") and bare[1:].lstrip()[:1] in (b"{", b"]", b"")


def _line_records(
    stream: IO[bytes],
    path: str,
    intake: ReadSummary,
    part: tuple[int, int] | None,
    options: TableOptions,
    span_options: SpanOptions = NO_OPTIONS,
) -> Iterator[Line]:
    """The records of a file of lines."""
    reject: Reject = partial(intake.reject, path)
    if part is not None:
        stream.seek(part[0])
    reader = LineReader(stream, reject, length=part[1] - part[0] if part is not None else None)
    lines = iter(reader)
    first = list(islice(lines, 1))
    lines = chain(first, lines)
    if first and is_run(first[0]):
        yield from _run_records(((reader.number, line) for line in lines), intake, reject)
        intake.lines = reader.number
        return
    if first and is_export(first[0]):
        from ragmon.ingest.otlp.lines import records  # noqa: PLC0415 - with protobuf: longer to load than most files

        yield from records(path, ((reader.number, line) for line in lines), intake, span_options)
        intake.lines = reader.number
        return
    if first and (part is None or part[0] == 0):
        refuse_gold(first[0], path)
    try:
        for line in lines:
            try:
                yield decode(line, intake.miss, options)
            except Rejected as rejected:
                reject(reader.number, rejected.reason, str(rejected))
    finally:
        intake.lines = reader.number
        intake.read += reader.number - reader.blank


def _array_records(stream: IO[bytes], path: str, intake: ReadSummary, options: TableOptions) -> Iterator[Line]:
    """The records of a JSON array; the number of an entry stands for its line."""
    data = b""
    try:
        data = stream.read()
        entries = msgspec.json.decode(data.removeprefix(BOM), type=list[msgspec.Raw])
    except (msgspec.DecodeError, BrokenStreamError, UnicodeDecodeError, RecursionError) as error:
        if data.partition(b"\n")[0].rstrip().endswith(b"]"):  # one bad line, and lines after it
            yield from _line_records(io.BytesIO(data), path, intake, None, options)
            return
        intake.read += 1
        intake.reject(path, 1, constants.MALFORMED_JSON, f"it starts as a JSON array: {error}")
        return
    if entries:
        refuse_gold(bytes(entries[0]), path)
    for number, entry in enumerate(entries, 1):
        intake.read += 1
        try:
            yield decode(bytes(entry), intake.miss, options)
        except Rejected as rejected:
            intake.reject(path, number, rejected.reason, str(rejected))


def _csv_records(stream: IO[bytes], path: str, intake: ReadSummary, options: TableOptions) -> Iterator[Line]:
    """The records of a CSV or TSV file."""
    try:
        yield from read_table(csv_table(stream, path, options, _row_reject(path, intake)), path, intake, options)
    except BrokenStreamError as error:
        _row_reject(path, intake)(intake.lines + 1, constants.TRUNCATED, str(error), 1)


def _row_reject(path: str, intake: ReadSummary) -> RejectRow:
    """Counts a rejected row as read, with all lines that are lost with it."""

    def reject(number: int, reason: str, detail: str, lost: int) -> None:
        intake.read += lost
        intake.lines = number
        intake.reject(path, number, reason, detail, lost)

    return reject


def read_table(table: TableRows, path: str, intake: ReadSummary, options: TableOptions) -> Iterator[Line]:
    """The records of a table.

    Args:
        table: The table.
        path: The file, for messages.
        intake: Counts the rows.
        options: Which columns hold which field.

    Raises:
        InputError: Nothing in it says what was answered, or its columns are ambiguous.
    """
    reject, note = _row_reject(path, intake), intake.notes.append
    for line in table_records(table, path, options, reject=reject, unknown=intake.miss, note=note):
        intake.read += 1
        yield line


def _run_records(lines: Iterable[tuple[int, bytes]], intake: ReadSummary, reject: Reject) -> Iterator[Record]:
    """The records of a TREC run; each query counts as one read, however many lines it has."""
    rejections_before = intake.rejections
    for record in trec_records(lines, reject):
        intake.read += 1
        yield record
    intake.read += intake.rejections - rejections_before


def splittable(path: str, options: TableOptions = USUAL) -> bool:
    """Whether several processes can read the file in parallel: a plain regular file with independent lines."""
    if not Path(path).is_file() or table_format(path) is not None:
        return False
    with open_bytes(path, utf_16=options.encoding is not None) as (stream, raw):
        if stream is not raw:
            return False
        start = stream.peek(_SKIP_BYTES).partition(b"\n")[0]
        if is_header(start, options) or _is_array(start):
            return False
        first = next(iter(LineReader(stream, lambda *_: None)), None)
        return first is None or not (is_run(first) or is_export(first))


def unreadable(paths: Sequence[str], intake: ReadSummary, options: TableOptions = USUAL) -> InputError:
    """The error about files in which nothing could be read: what was seen, and what would help.

    Args:
        paths: The files.
        intake: What the reader counted.
        options: How they were read.
    """
    names = ", ".join(paths)
    if not intake.examples:
        return InputError("there is no record in it", path=names, hint=FORMATS)
    first = intake.examples[0]
    message = f"no record could be read, {intake.rejections} rejected; the first: {first}"
    if first.reason == constants.INVALID_SCHEMA and not options.columns:
        hint = "where the names are others, say which: --map question=NAME,answer=NAME,retrieved_ids=NAME"
    else:
        hint = FORMATS
    return InputError(message, hint=hint)


FORMATS: Final = (
    "traces are JSON Lines (one object a line), a JSON array, OTLP-JSON lines, TREC runs, or tables with a header: "
    ".csv, .tsv, .parquet, .xlsx"
)
