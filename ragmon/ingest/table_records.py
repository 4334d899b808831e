"""The records of a table: a row becomes a line of the trace contract, and is decoded as one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from ragmon.core.constants import INVALID_SCHEMA, OVERSIZE
from ragmon.core.record import Line, Record
from ragmon.ingest.decode import Unknown, decode
from ragmon.ingest.fields import Rejected
from ragmon.tabular.cells import CellError, kept_comma
from ragmon.tabular.columns import TableOptions, flat
from ragmon.tabular.fields import assigned_columns, trace_fields
from ragmon.tabular.files import MAX_ROW, RejectRow, TableRows
from ragmon.tabular.gold import check_traces

_TRACE_ID_DIGITS: Final = 32
_ID_LISTS: Final = ("retrieved_ids", "citations", "candidate_ids")

Note = Callable[[str], None]
"""Called with a sentence for the reader of the report."""


def records(
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

    Raises:
        InputError: Nothing in the table says what was answered, or its columns are ambiguous.
    """
    first = next(table.rows, None)
    check_traces(table.columns, first[1] if first is not None else {}, options, path)
    commas = _KeptCommas(path, options)
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
            commas.see(row)
            if isinstance(line, Record) and line.trace_id is None:
                line.trace_id = row_trace_id(path, number)
            yield line
    commas.tell(note)


def row_trace_id(path: str, number: int) -> str:
    """The trace id of a row that has none: the same in every run over the same file.

    Args:
        path: The file; the folder does not count.
        number: The row.
    """
    text = f"{Path(path).name}\n{number}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_TRACE_ID_DIGITS]


class _KeptCommas:
    """Counts cells that are one id with a comma in it, by column."""

    def __init__(self, path: str, options: TableOptions) -> None:
        self._path = path
        self._options = options
        self._seen: dict[str, tuple[int, str]] = {}

    def see(self, row: Mapping[str, Any]) -> None:
        members = flat(row)
        for name, column in assigned_columns(members, self._options).items():
            if name in _ID_LISTS and kept_comma(members[column], self._options.list_separator):
                n, example = self._seen.get(column, (0, members[column]))
                self._seen[column] = (n + 1, example)

    def tell(self, note: Note) -> None:
        """Say what was kept whole; nothing where no cell was."""
        for column, (n, example) in self._seen.items():
            read = f"{self._path}: {n} cells of `{column}` hold a comma and are one id each, such as {example[:40]!r}"
            note(f"{read}; --list-separator , cuts them")
