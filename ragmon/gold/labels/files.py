"""Files of labels: JSON Lines, or a spreadsheet saved as CSV, with whatever columns and words it has."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ragmon.core.errors import InputError, RagmonError, shorten
from ragmon.core.record import Label, parse_label

NAMED: Final = 10
"""Wrong rows of a file that are named."""
COLUMNS: Final = ("trace_id", "correct", "answerable", "relevant_ids", "rater", "ts", "comment")
_DELIMITERS: Final = ",;\t"
_BETWEEN: Final = str.maketrans(";|\n\t", "    ")
"""What stands between ids beside spaces."""


@dataclass(frozen=True)
class LabelSpelling:
    """How a file spells what a label says.

    Args:
        columns: The file's column for each field.
        true, false: Words that stand for true and false, whatever their case.
        rater: Who gave the labels of rows that do not say.
    """

    columns: Mapping[str, str] = field(default_factory=lambda: {name: name for name in COLUMNS})
    true: Sequence[str] = ("yes", "true", "1")
    false: Sequence[str] = ("no", "false", "0")
    rater: str | None = None


def read_labels(path: str | Path, words: LabelSpelling) -> list[Label]:
    """The labels of a file; it is taken whole or refused whole.

    A row that says nothing of its answer is passed over: that is how a sheet looks before somebody has filled it in.

    Args:
        path: A `.csv` or `.tsv` file with a line of column names, or JSON Lines.
        words: How it spells things.

    Raises:
        InputError: It cannot be read, or some of its rows are no labels: the first of them with their lines.
    """
    found: list[Label] = []
    wrong: list[tuple[int, str]] = []
    for line, row in _rows(Path(path), words):
        try:
            label = _label(row, words)
        except ValueError as error:
            wrong.append((line, str(error)))
        else:
            found += [label] if label is not None else []
    if wrong:
        (line, first), *others = wrong
        more = [f"line {line}: {told}" for line, told in others[: NAMED - 1]]
        more += [f"{len(others) - len(more)} more"] if len(others) > len(more) else []
        hint = "; ".join(more) or "mend the row, or say in [labels] how the file spells it"
        raise InputError(first, path=str(path), line=line, hint=hint)
    return found


def _rows(path: Path, words: LabelSpelling) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows by the names of fields, with the lines they end on."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        hint = "name a .csv, .tsv or .jsonl file"
        raise InputError(f"it cannot be read ({error.strerror})", path=str(path), hint=hint) from error
    except UnicodeDecodeError as error:
        raise InputError("it is not UTF-8", path=str(path), hint="save it as CSV UTF-8") from error
    spelled = path.suffix.lower() in (".csv", ".tsv") or not text.lstrip().startswith("{")
    return _of_table(path, text, words) if spelled else _of_lines(path, text, words)


def _of_table(path: Path, text: str, words: LabelSpelling) -> Iterator[tuple[int, dict[str, Any]]]:
    head = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text), delimiter=max(_DELIMITERS, key=head.count), strict=True)
    try:
        columns = _columns(path, reader.fieldnames or (), words)
        for row in reader:
            yield reader.line_num, {field: (row[column] or "").strip() for field, column in columns.items()}
    except csv.Error as error:
        line = reader.line_num + 1
        raise InputError(f"it is no table: {error}", path=str(path), line=line, hint="save it as CSV UTF-8") from error


def _columns(path: Path, names: Sequence[str], words: LabelSpelling) -> dict[str, str]:
    """The columns of the fields a table has."""
    known = {name.strip().casefold(): name for name in names if name}
    columns = {field: known[column.casefold()] for field, column in words.columns.items() if column.casefold() in known}
    if "trace_id" not in columns:
        there = ", ".join(known.values()) or "none"
        hint = f'say which it is: [labels] column = {{ trace_id = "…" }}; its columns: {there}'
        raise InputError("there is no column of this name", path=str(path), value=words.columns["trace_id"], hint=hint)
    return columns


def _of_lines(path: Path, text: str, words: LabelSpelling) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, told in enumerate(text.split("\n"), 1):
        if told.strip():
            try:
                row = json.loads(told)
            except (ValueError, RecursionError) as error:
                raise InputError(
                    "this is no JSON", path=str(path), line=line, value=told, hint="one object a line"
                ) from error
            if not isinstance(row, dict):
                raise InputError("this is no object", path=str(path), line=line, value=row, hint="one object a line")
            yield line, {field: row[column] for field, column in words.columns.items() if column in row}


def _label(row: Mapping[str, Any], words: LabelSpelling) -> Label | None:
    """The label of a row; None where the row says nothing.

    Raises:
        ValueError: It is none.
    """
    told = {name: value for name, value in row.items() if value not in ("", None)}
    if not told.keys() & {"correct", "answerable", "relevant_ids"}:
        return None
    found = dict(told)
    for name in ("correct", "answerable"):
        if isinstance(value := told.get(name), str):
            found[name] = _truth(name, value, words)
    if isinstance(value := told.get("relevant_ids"), str):
        found["relevant_ids"] = _ids(value)
    if isinstance(value := told.get("ts"), str):
        found["ts"] = _time(value)
    if "rater" not in found and words.rater is not None:
        found["rater"] = words.rater
    if "rater" not in found:
        raise ValueError("the row does not say who labelled it: --rater NAME says so for all such rows")
    return parse_label(found)


def _truth(name: str, value: str, words: LabelSpelling) -> bool | float:
    folded = value.casefold()
    if folded in {word.casefold() for word in words.true}:
        return True
    if folded in {word.casefold() for word in words.false}:
        return False
    try:
        if name == "correct":
            return float(value)
    except ValueError:
        pass
    known = ", ".join((*words.true, *words.false))
    raise ValueError(f"{name} is {shorten(value)}, and [labels.values] knows {known}")


def _ids(value: str) -> list[str]:
    """Ids as people write them: a JSON array, else separated by spaces, semicolons, bars or lines.

    >>> _ids("doc#1, doc#2; doc#3")
    ['doc#1', 'doc#2', 'doc#3']
    """
    if value.startswith("["):
        try:
            return [str(one) for one in json.loads(value)]
        except (ValueError, RecursionError):
            raise ValueError(f"relevant_ids is {shorten(value)}, which is no JSON array") from None
    return [one for part in value.translate(_BETWEEN).split() if (one := part.strip(","))]


def _time(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"ts is {shorten(value)}: seconds since the epoch, or 2026-11-22T09:30:00Z") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def template(rows: Iterable[Mapping[str, object]], words: LabelSpelling) -> str:
    """A sheet to fill in: rows of a labelling queue as CSV, under the columns that `read_labels` looks for.

    Args:
        rows: By the names of fields, and whatever else helps whoever labels.
        words: How the sheet spells things.

    Raises:
        RagmonError: There is no row.
    """
    held = list(rows)
    if not held:
        raise RagmonError("there is nothing to label", hint="answers are queued as they come in")
    shown = {name: words.columns.get(name, name) for name in held[0]}
    wanted = [*shown.values(), *(words.columns[name] for name in COLUMNS)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(wanted)))
    writer.writeheader()
    writer.writerows({shown[name]: value for name, value in row.items()} for row in held)
    return text.getvalue()
