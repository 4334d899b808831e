"""The rows of table files and DataFrames, and the records of tables and of TREC runs.

CSV and TSV are read as a stream, Parquet and XLSX by the extra `table`. A row is a dictionary by column. A row that
cannot be read is rejected with its line, and the next row is read. A row becomes a line of the trace contract, and is
decoded as one.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol

import msgspec

from ragmon.core import constants
from ragmon.core.constants import INVALID_SCHEMA, MALFORMED_ROW, OVERSIZE
from ragmon.core.errors import InputError, RagmonError, shorten
from ragmon.core.record import Line, Record
from ragmon.ingest.lines import BOM, Rejected, Unknown, decode
from ragmon.ingest.tables import (
    GOLD,
    TRACE,
    CellError,
    TableOptions,
    assigned_columns,
    check_traces,
    flat,
    is_absent,
    kept_comma,
    normalised,
    plain,
    trace_fields,
)

MAX_ROW: Final = 8 << 20
"""The maximum length of a row in characters, as of a line of JSON; a longer row is skipped and counted."""
MAX_TABLE: Final = 512 << 20
"""The maximum size in bytes of what is packed in a workbook or a Parquet file, as it says and as it is read."""
_PACKED: Final = (".gz", ".zst")
_DELIMITERS: Final = ",;\t|"
_HEADER_LINES: Final = 64
"""Lines that a header may take: names of spreadsheets hold line breaks."""
_BATCH: Final = 1024
_FORMATS: Final = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
}
_NAMES: Final = frozenset(name for names in (TRACE, GOLD) for usual in names.values() for name in usual.strong)

RejectRow = Callable[[int, str, str, int], None]
"""Called with the line or row, the reason, the details and the number of lines that are lost with it."""


class Frame(Protocol):
    """A DataFrame of pandas or polars, or a table of Arrow."""

    @property
    def columns(self) -> Any:
        """Its columns."""


class TableRows(NamedTuple):
    """A table.

    Attributes:
        columns: Its columns in order; a name may be there twice.
        rows: Its rows by column, each with its line in a text file, else with its row.
    """

    columns: Sequence[str]
    rows: Iterator[tuple[int, Mapping[str, Any]]]


def table_format(path: str | Path) -> str | None:
    """The format of a table by the name of its file: `csv` (also TSV), `parquet` or `xlsx`; None for other files.

    >>> table_format("log.csv.gz"), table_format("log.TSV"), table_format("log.jsonl")
    ('csv', 'csv', None)
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
        return "csv" if suffixes and _FORMATS.get(suffixes[-1]) == "csv" else None
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def is_header(line: bytes, options: TableOptions) -> bool:
    """Whether the first line of a file of any name is the header of a CSV or TSV file with known columns."""
    if line.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b"") or b'":' in line:  # damaged JSON has keys, too
        return False
    text = line.decode("utf-8", "replace").lstrip("\ufeff")
    mapped = {normalised(column) for column in options.columns.values()}
    for delimiter in _DELIMITERS:
        names = {normalised(name) for name in _split(text, delimiter)}
        if len(names) > 1 and not names.isdisjoint(_NAMES | mapped):
            return True
    return False


def csv_table(stream: IO[bytes], path: str, options: TableOptions, reject: RejectRow) -> TableRows:
    """The rows of CSV or TSV, read as a stream. The delimiter is `,`, `;`, `|` or a tab: the one the header shows.

    Raises:
        InputError: It is not in the encoding, or its header cannot be read. Iterating over the rows raises it, too.
    """
    try:
        text = _OpenText(stream, options.encoding or "utf-8-sig", newline="")
    except LookupError:
        hint = "such as utf-8, cp1252, latin-1, utf-16"
        raise InputError("unknown encoding", path=path, value=options.encoding, hint=hint) from None
    lines = _Lines(text, path, options.encoding)
    header, delimiter = _header(lines, path, options)
    return TableRows(header, _csv_rows(lines, header, delimiter, reject))


class _OpenText(io.TextIOWrapper):
    """Decodes a stream and leaves it open for the caller to close."""

    def close(self) -> None:
        """Do nothing."""


class _OversizeError(Exception):
    """A row is longer than `MAX_ROW`; the next line that is read belongs to another row."""


class _Lines:
    """The lines of a text; a row that takes too many characters is an error after which reading goes on."""

    def __init__(self, text: io.TextIOWrapper, path: str, encoding: str | None) -> None:
        self.number = 0
        self._text = text
        self._path = path
        self._encoding = encoding
        self._size = 0
        self._quotes = 0

    def start_row(self) -> int:
        self._size = self._quotes = 0
        return self.number + 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._read()
        if not line:
            raise StopIteration
        self.number += 1
        self._size += len(line)
        self._quotes += line.count('"')
        if self._size > MAX_ROW:
            # Read to the end of the row, which is no line's end while a quote is open, without keeping it.
            while line and not (line.endswith(("\n", "\r")) and self._quotes % 2 == 0):
                ended = line.endswith(("\n", "\r"))
                line = self._read()
                self._quotes += line.count('"')
                self.number += ended and bool(line)
            raise _OversizeError
        return line

    def _read(self) -> str:
        try:
            return self._text.readline(MAX_ROW + 1)
        except UnicodeError as error:
            name = "UTF-8" if self._encoding is None else self._encoding
            found = error.object[error.start : error.end] if isinstance(error, UnicodeDecodeError) else None
            hint = "save it as CSV UTF-8, or name its encoding: --encoding cp1252 (Excel on Windows), --encoding utf-16"
            raise InputError(f"not {name} after line {self.number}", path=self._path, value=found, hint=hint) from error


def _header(lines: _Lines, path: str, options: TableOptions) -> tuple[list[str], str]:
    text = ""
    try:
        for line in islice(lines, _HEADER_LINES):
            if line.lower().startswith("sep=") and not text:  # Excel's own line before the header
                continue
            text += line if text or line.strip() else ""
            if text and text.count('"') % 2 == 0:
                break
    except _OversizeError:
        hint = "the first line names the columns"
        raise InputError(f"its header is longer than {MAX_ROW} characters", path=path, hint=hint) from None
    if not text:
        raise InputError("it is empty", path=path, hint="the first line names the columns")
    mapped = {normalised(column) for column in options.columns.values()}

    def known(delimiter: str) -> tuple[int, int]:
        names = _split(text, delimiter)
        return len({normalised(name) for name in names} & (_NAMES | mapped)), len(names)

    delimiter = max(_DELIMITERS, key=known)
    return [name.strip() for name in _split(text, delimiter)], delimiter


def _split(text: str, delimiter: str) -> list[str]:
    """The names in a header; none where its quotes are wrong for the delimiter."""
    with suppress(csv.Error):
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    return []


def _csv_rows(
    lines: _Lines, columns: Sequence[str], delimiter: str, reject: RejectRow
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    # The limit is of the whole process, and 128 KiB unless it was changed: a cell of contexts may be longer.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW))
    reader, width = csv.reader(lines, delimiter=delimiter, strict=True), len(columns)
    while True:
        start = lines.start_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reject(start, MALFORMED_ROW, str(error), lines.number - start + 1)
            continue
        except _OversizeError:
            reject(start, OVERSIZE, f"it is longer than {MAX_ROW} characters", 1)
            continue
        if not any(cells):
            continue
        if len(cells) > width and not any(cells[width:]):
            del cells[width:]
        if len(cells) != width:
            reject(start, MALFORMED_ROW, f"it has {len(cells)} cells, and there are {width} columns", 1)
        else:
            yield start, dict(zip(columns, cells, strict=True))


def binary_table(path: str, kind: str, options: TableOptions) -> TableRows:
    """The rows of a Parquet file or of a workbook."""
    return _parquet(path) if kind == "parquet" else _workbook(path, options.sheet)


def _missing_extra(path: str, package: str) -> RagmonError:
    return RagmonError(f"{path}: {package} is not installed, which reads it", hint="pip install 'ragmon[table]'")


_BROKEN: Final = (OSError, KeyError, ValueError, EOFError, RuntimeError, SyntaxError, zipfile.BadZipFile, zlib.error)
"""What the packages for workbooks raise; broken XML is a `SyntaxError`."""


def _unreadable(path: str, error: Exception) -> InputError:
    return InputError(f"cannot be read ({shorten(str(error), 200)})", path=path, hint="check name, rights and content")


def _check_size(path: str, size: int) -> None:
    if size > MAX_TABLE:
        hint = "split it, or save it as CSV or JSON Lines, which are read line by line"
        raise InputError(
            f"holds {size >> 20} MiB, more than the {MAX_TABLE >> 20} MiB that are read", path=path, hint=hint
        )


def _written_out(array: Any) -> int:
    """Bytes of an array of Arrow with each text written as often as it occurs."""
    from pyarrow import compute, types  # noqa: PLC0415 - an extra

    if types.is_dictionary(array.type) and not types.is_primitive(array.type.value_type):
        lengths = compute.take(compute.binary_length(array.dictionary), array.indices)
        return compute.sum(lengths).as_py() or 0
    if types.is_map(array.type):
        return _written_out(array.keys) + _written_out(array.items)
    if types.is_struct(array.type):
        return sum(map(_written_out, array.flatten()))
    return _written_out(array.flatten()) if types.is_nested(array.type) else int(array.nbytes)


def _parquet(path: str) -> TableRows:
    try:
        from pyarrow import ArrowException, ArrowNotImplementedError, Table, parquet  # noqa: PLC0415 - an extra
    except ImportError:
        raise _missing_extra(path, "pyarrow") from None
    try:
        with parquet.ParquetFile(path) as plain:
            declared, schema = plain.metadata, plain.schema_arrow
        groups = [declared.row_group(number) for number in range(declared.num_row_groups)]
        columns = [(group.num_rows, group.column(k)) for group in groups for k in range(group.num_columns)]
        # Lists of numbers that repeat take no room in the file, and four bytes each where they are read.
        _check_size(path, sum(c.total_uncompressed_size + 4 * max(c.num_values - rows, 0) for rows, c in columns))
        # A text that repeats stands in a batch once.
        repeating = {column.path_in_schema for _, column in columns if column.physical_type == "BYTE_ARRAY"}
        file = parquet.ParquetFile(path, read_dictionary=sorted(repeating))
    except (OSError, ArrowException) as error:
        raise _unreadable(path, error) from error

    def rows() -> Iterator[tuple[int, Mapping[str, Any]]]:
        number = size = 0
        with file:
            try:
                for batch in file.iter_batches(_BATCH):
                    size += sum(map(_written_out, batch.columns))
                    _check_size(path, size)
                    with suppress(ArrowNotImplementedError):  # of rare types; the rows are the same, and made slower
                        batch = Table.from_batches([batch]).cast(schema)  # noqa: PLW2901
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
            except (OSError, ArrowException) as error:
                raise _unreadable(path, error) from error

    return TableRows(schema.names, rows())


def _workbook(path: str, sheet: str | None) -> TableRows:
    try:
        from openpyxl import load_workbook  # noqa: PLC0415 - an extra
        from openpyxl.utils.exceptions import InvalidFileException  # noqa: PLC0415
    except ImportError:
        raise _missing_extra(path, "openpyxl") from None
    try:
        with zipfile.ZipFile(path) as packed:  # it unpacks no more of a part than the directory says
            _check_size(path, sum(part.file_size for part in packed.infolist()))
        book = load_workbook(path, read_only=True, data_only=True)
    except (*_BROKEN, InvalidFileException) as error:
        raise _unreadable(path, error) from error
    if sheet is not None and sheet not in book.sheetnames:
        raise InputError("there is no sheet", path=path, value=sheet, hint=f"its sheets: {', '.join(book.sheetnames)}")
    page = book[sheet] if sheet is not None else book.worksheets[0]
    page.reset_dimensions()  # some programs write wrong ones
    rows = _sheet_rows(book, page, path)
    _, header = next(rows, (0, ()))
    columns = ["" if name is None else str(plain(name)).strip() for name in header]
    return TableRows(columns, ((number, dict(zip(columns, cells, strict=False))) for number, cells in rows))


def _sheet_rows(book: Any, page: Any, path: str) -> Iterator[tuple[int, Sequence[Any]]]:
    try:
        yield from ((number, cells) for number, cells in enumerate(page.values, 1) if not all(map(is_absent, cells)))
    except _BROKEN as error:
        raise _unreadable(path, error) from error
    finally:
        book.close()


def frame_table(frame: object) -> TableRows | None:
    """The rows of a DataFrame of pandas or polars, a table of Arrow, or an object that can become one of pandas.

    None of these packages is imported: the object is recognised by what it can do.
    """
    rows: Iterable[Mapping[str, Any]]
    by_name: Any = getattr(frame, "iter_rows", None)  # polars
    tuples: Any = getattr(frame, "itertuples", None)  # pandas
    batches: Any = getattr(frame, "to_batches", None)  # Arrow
    to_pandas: Any = getattr(frame, "to_pandas", None)  # data sets of Ragas and Hugging Face
    collect: Any = getattr(frame, "collect", None)  # a lazy frame of polars
    if callable(by_name):
        columns = [str(name) for name in frame.columns]  # type: ignore[attr-defined]
        rows = by_name(named=True)
    elif callable(tuples):
        columns = [str(name) for name in frame.columns]  # type: ignore[attr-defined]
        rows = (dict(zip(columns, row, strict=True)) for row in tuples(index=False, name=None))
    elif callable(batches):
        columns = list(frame.schema.names)  # type: ignore[attr-defined]
        rows = chain.from_iterable(batch.to_pylist() for batch in batches())
    elif callable(to_pandas):
        return frame_table(to_pandas())
    elif callable(collect):
        return frame_table(collect())
    else:
        return None
    return TableRows(columns, iter(enumerate(rows, 1)))


_TRACE_ID_DIGITS: Final = 32
_ID_LISTS: Final = ("retrieved_ids", "citations", "candidate_ids")

Note = Callable[[str], None]
"""Called with a sentence for the reader of the report."""


def table_records(
    table: TableRows, path: str, options: TableOptions, *, reject: RejectRow, unknown: Unknown, note: Note
) -> Iterator[Line]:
    """The records of a table.

    Args:
        table: The table.
        path: The file, for messages and for the ids of traces that have none.
        options: The mapping of the user.
        reject: Called for a row that is no record.
        unknown: Called for each field of a record that is out of range.
        note: Called where cells may mean something else than they were read as.
    """
    first = next(table.rows, None)
    check_traces(table.columns, first[1] if first is not None else {}, options, path)
    kept_commas: dict[str, tuple[int, str]] = {}  # by column: cells that are one id with a comma in it, and the first
    for number, row in chain([] if first is None else [first], table.rows):
        if sum(len(cell) for cell in row.values() if isinstance(cell, str)) > MAX_ROW:
            reject(number, OVERSIZE, f"it is longer than {MAX_ROW} characters", 1)
            continue
        try:
            line = decode(msgspec.json.encode(trace_fields(row, options)), unknown)
        except Rejected as rejected:
            reject(number, rejected.reason, str(rejected), 1)
        except (CellError, TypeError, ValueError, OverflowError, RecursionError) as error:
            reject(number, INVALID_SCHEMA, str(error), 1)
        else:
            members = flat(row)
            for name, column in assigned_columns(members, options).items():
                if name in _ID_LISTS and kept_comma(members[column], options.list_separator):
                    n, example = kept_commas.get(column, (0, members[column]))
                    kept_commas[column] = (n + 1, example)
            if isinstance(line, Record) and line.trace_id is None:
                # The same id in every run over the same file; the folder does not count.
                row_name = f"{Path(path).name}\n{number}".encode("utf-8", "surrogateescape")
                line.trace_id = hashlib.sha256(row_name).hexdigest()[:_TRACE_ID_DIGITS]
            yield line
    for column, (n, example) in kept_commas.items():
        cells = f"{path}: {n} cells of `{column}` hold a comma and are one id each, such as {example[:40]!r}"
        note(f"{cells}; --list-separator , cuts them")


Reject = Callable[[int, str, str], None]
"""Called with the line number, the reason and the details of a line that cannot be read."""

_COLUMNS: Final = 6
_SINGLE: Final = struct.Struct("f")


def is_run(line: bytes) -> bool:
    """Whether the first line of a file looks like a TREC run: six columns, the fifth a number.

    >>> is_run(b"301 Q0 FR940202-2-00150 104 2.129133 STANDARD"), is_run(b'{"qid": "301"}')
    (True, False)
    """
    columns = line.split(None, _COLUMNS)
    if len(columns) != _COLUMNS:
        return False
    try:
        float(columns[4])
    except ValueError:
        return False
    return True


def trec_records(lines: Iterable[tuple[int, bytes]], reject: Reject) -> Iterator[Record]:
    """One record per query, ranked as trec_eval ranks: by score, then by document id, both descending.

    The rank column is not used, because trec_eval does not use it either. A run has no answers, so they are unknown.
    """
    runs: dict[str, list[tuple[float, str, float]]] = {}
    for number, line in lines:
        try:
            qid, document, score = _run_columns(line)
        except Rejected as rejected:
            reject(number, rejected.reason, str(rejected))
        else:
            # trec_eval has scores in single precision: scores that differ only beyond it are ties.
            try:
                single: float = _SINGLE.unpack(_SINGLE.pack(score))[0]
            except OverflowError:
                single = math.copysign(math.inf, score)
            runs.setdefault(qid, []).append((single, document, score))
    for qid, documents in runs.items():
        documents.sort(reverse=True)
        yield Record(
            qid=qid,
            retrieved_ids=[document for _, document, _ in documents],
            scores=[score for *_, score in documents],
            partial=True,
        )


def _run_columns(line: bytes) -> tuple[str, str, float]:
    try:
        columns = line.removeprefix(BOM).decode().split(None, _COLUMNS)
    except UnicodeDecodeError as error:
        raise Rejected(constants.INVALID_UTF8, str(error)) from None
    if len(columns) != _COLUMNS:
        raise Rejected(constants.INVALID_SCHEMA, f"a line of a run has {_COLUMNS} columns: qid Q0 docid rank score tag")
    try:
        score = float(columns[4])
    except ValueError:
        raise Rejected(constants.INVALID_SCHEMA, f"a score is a number, not {columns[4]!r:.80}") from None
    if not math.isfinite(score):
        raise Rejected(constants.NON_FINITE, f"a score is finite, not {columns[4]!r:.80}")
    return columns[0], columns[2], score
