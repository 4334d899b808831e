"""Files of labels: JSON, or a spreadsheet as CSV, Parquet or a workbook, with configurable columns and values."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ragmon.core.errors import InputError, RagmonError, shorten
from ragmon.core.record import Label, parse_label
from ragmon.ingest.tables import USUAL, binary_table, plain, table_format
from ragmon.ingest.values import ABSENT, times

NAMED: Final = 10
"""Wrong rows of a file that the error names."""
COLUMNS: Final = ("trace_id", "correct", "answerable", "relevant_ids", "rater", "ts", "comment")
_DELIMITERS: Final = ",;\t"
_SEPARATORS: Final = str.maketrans(";|\n\t", "    ")


@dataclass(frozen=True)
class LabelSpelling:
    """The columns and values by which a file expresses labels.

    Args:
        columns: The file's column for each field.
        true, false: Values that mean true and false, in upper or lower case.
        rater: The rater of rows that do not name one.
    """

    columns: Mapping[str, str] = field(default_factory=lambda: {name: name for name in COLUMNS})
    true: Sequence[str] = ("yes", "true", "1")
    false: Sequence[str] = ("no", "false", "0")
    rater: str | None = None


def read_labels(path: str | Path, words: LabelSpelling) -> list[Label]:
    """Read the labels of a file; all are accepted or none, and the error names the first wrong rows.

    A row without any judgement is skipped: a sheet looks like that before it is filled in.
    """
    labels: list[Label] = []
    wrong: list[tuple[int, str]] = []
    for line, row in _rows(Path(path), words):
        try:
            label = _label(row, words)
        except ValueError as error:
            wrong.append((line, str(error)))
        else:
            labels += [label] if label is not None else []
    if wrong:
        (line, first_message), *others = wrong
        details = [f"line {line}: {message}" for line, message in others[: NAMED - 1]]
        details += [f"{len(others) - len(details)} more"] if len(others) > len(details) else []
        hint = "; ".join(details) or "fix the row, or say in [labels] how the file writes it"
        raise InputError(first_message, path=str(path), line=line, hint=hint)
    return labels


def _rows(path: Path, spelling: LabelSpelling) -> Iterator[tuple[int, dict[str, Any]]]:
    kind = table_format(path)
    if kind in ("parquet", "xlsx") and path.is_file():
        table = binary_table(str(path), kind, USUAL)
        columns = _columns(table.columns, path, spelling)
        for number, cells in table.rows:
            yield number, {field: plain(cells[column]) for field, column in columns.items()}
        return
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        hint = "name a .csv, .tsv or .jsonl file"
        raise InputError(f"it cannot be read ({error.strerror})", path=str(path), hint=hint) from error
    except UnicodeDecodeError as error:
        raise InputError("it is not UTF-8", path=str(path), hint="save it as CSV UTF-8") from error
    if kind != "csv" and text.lstrip().startswith("["):
        try:
            entries = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError("this is not JSON", path=str(path), hint="a JSON array, or one object a line") from error
        for number, row in enumerate(entries, 1):  # the number of an entry stands for its line
            if not isinstance(row, dict):
                raise InputError(
                    "this is not an object", path=str(path), line=number, value=row, hint="an array of objects"
                )
            yield number, {field: row[column] for field, column in spelling.columns.items() if column in row}
        return
    if kind == "csv" or not text.lstrip().startswith("{"):
        header = text.partition("\n")[0]
        reader = csv.DictReader(io.StringIO(text), delimiter=max(_DELIMITERS, key=header.count), strict=True)
        try:
            columns = _columns(reader.fieldnames or (), path, spelling)
            for row in reader:
                if all(
                    row[column] == column for column in columns.values()
                ):  # sheets were joined, each with its header
                    continue
                yield reader.line_num, {field: (row[column] or "").strip() for field, column in columns.items()}
        except csv.Error as error:
            number, hint = reader.line_num + 1, "save it as CSV UTF-8"
            raise InputError(f"it is not a table: {error}", path=str(path), line=number, hint=hint) from error
        return
    hint = "one object a line"
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError("this is not JSON", path=str(path), line=number, value=line, hint=hint) from error
            if not isinstance(row, dict):
                raise InputError("this is not an object", path=str(path), line=number, value=row, hint=hint)
            yield number, {field: row[column] for field, column in spelling.columns.items() if column in row}


def _columns(names: Iterable[str], path: Path, spelling: LabelSpelling) -> dict[str, str]:
    """The column of each field."""
    headers = {name.strip().casefold(): name for name in names if name}
    found = ((name, headers.get(column.casefold())) for name, column in spelling.columns.items())
    columns = {name: column for name, column in found if column is not None}
    if "trace_id" not in columns:
        hint = f"its columns: {', '.join(headers.values()) or 'none'}"
        hint = f'say which it is: [labels] column = {{ trace_id = "…" }}; {hint}'
        wanted = spelling.columns["trace_id"]
        raise InputError("there is no column of this name", path=str(path), value=wanted, hint=hint)
    return columns


def _label(row: Mapping[str, Any], spelling: LabelSpelling) -> Label | None:
    """The label of a row; None where the row has no judgement."""
    absent = ABSENT - {word.lower() for word in (*spelling.true, *spelling.false)}
    given = {name: value for name, value in row.items() if str(value).strip().lower() not in absent}
    if not given.keys() & {"correct", "answerable", "relevant_ids"}:
        return None
    fields = dict(given)
    if isinstance(value := given.get("trace_id"), int):
        fields["trace_id"] = str(value)
    for name in ("correct", "answerable"):
        if isinstance(value := given.get(name), str):
            fields[name] = _truth(name, value, spelling)
    if isinstance(value := given.get("relevant_ids"), str):
        fields["relevant_ids"] = _ids(value)
    if isinstance(value := given.get("ts"), str):
        fields["ts"] = _time(value)
    if "rater" not in fields and spelling.rater is not None:
        fields["rater"] = spelling.rater
    if "rater" not in fields:
        raise ValueError("the row does not say who labelled it: --rater NAME says so for all such rows")
    return parse_label(fields)


def _truth(name: str, value: str, spelling: LabelSpelling) -> bool | float:
    folded = value.casefold()
    if folded in {word.casefold() for word in spelling.true}:
        return True
    if folded in {word.casefold() for word in spelling.false}:
        return False
    try:
        if name == "correct":
            return float(value)
    except ValueError:
        pass
    accepted = ", ".join((*spelling.true, *spelling.false))
    raise ValueError(f"{name} is {shorten(value)}, and [labels.values] knows {accepted}")


def _ids(value: str) -> list[str]:
    """Ids as people write them: a JSON array, or separated by spaces, semicolons, bars or line breaks.

    >>> _ids("doc#1, doc#2; doc#3")
    ['doc#1', 'doc#2', 'doc#3']
    """
    if value.startswith("["):
        try:
            return [str(item) for item in json.loads(value)]
        except (ValueError, RecursionError):
            raise ValueError(f"relevant_ids is {shorten(value)}, which is not a JSON array") from None
    return [item for part in value.translate(_SEPARATORS).split() if (item := part.strip(","))]


def _time(value: str) -> float:
    readings = times(value, serials=False)
    if len(readings) != 1:
        raise ValueError(f"ts is {shorten(value)}: seconds since the epoch, or 2026-11-22T09:30:00Z")
    return next(iter(readings.values()))


def template(rows: Iterable[Mapping[str, object]], words: LabelSpelling) -> str:
    """A sheet to fill in: rows of a labelling queue as CSV, with the columns that `read_labels` expects."""
    records = list(rows)
    if not records:
        raise RagmonError("there is nothing to label", hint="answers are queued as they arrive")
    column_of = {name: words.columns.get(name, name) for name in records[0]}
    columns = [*column_of.values(), *(words.columns[name] for name in COLUMNS)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(columns)))
    writer.writeheader()
    writer.writerows({column_of[name]: value for name, value in row.items()} for row in records)
    return text.getvalue()
