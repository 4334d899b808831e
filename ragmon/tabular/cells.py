"""Cells of tables, converted to values of JSON: what is absent, numbers, times, and lists in one cell.

A list in a cell is a JSON array, a Python list as pandas writes it, or entries with separators. `|`, line breaks and
`;` separate ids and phrases: the first of these that occurs. A comma separates ids only where white space follows each
and no id holds any: `a#1, b#2` is two ids, `Smith,2020` is one. A text is never cut: a cell of contexts that is no
array is one context. Where `TableOptions.list_separator` is given, it alone separates.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from ragmon.core import capture_hints
from ragmon.core.errors import shorten
from ragmon.core.text import Path, look_up

_SEPARATORS: Final = ("|", "\n", ";")
_COMMA_LIST: Final = re.compile(r"[^\s,]+(?:,\s+[^\s,]+)+")
_STRING: Final = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*(,?)""", re.DOTALL)
_MISSING_TYPES: Final = frozenset({"NAType", "NaTType"})
_TRUE: Final = frozenset({"true", "yes", "1", "y", "t"})
_FALSE: Final = frozenset({"false", "no", "0", "n", "f"})
_NO_NUMBER: Final = frozenset({"nan", "none", "null", "na", "n/a", "-"})
_NO_ERROR: Final = frozenset({"false", "0", "no", "none", "null", "nan", "ok"})
_ID_KEYS: Final = ("id", "doc_id", "document_id", "chunk_id")
_TEXT_KEYS: Final = ("text", "page_content", "content")


class CellError(ValueError):
    """A cell that holds no value of its field."""


def is_absent(value: Any) -> bool:
    """Whether a cell is empty: None, an empty text, or what pandas and numpy write for missing values.

    >>> is_absent(""), is_absent(float("nan")), is_absent([]), is_absent(0)
    (True, True, False, False)
    """
    if value is None:
        return True
    if isinstance(value, float):
        return math.isnan(value)
    return value == "" if isinstance(value, str) else type(value).__name__ in _MISSING_TYPES


def plain(value: Any) -> Any:
    """A value of pandas, numpy, pyarrow or openpyxl as a value of JSON; times become ISO 8601 in UTC.

    Objects that are none of these stay as they are.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if type(value).__name__ in _MISSING_TYPES:
        return None
    if isinstance(value, datetime):
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return 1000 * value.total_seconds()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    as_list = getattr(value, "tolist", None)  # arrays and scalars of numpy
    return plain(as_list()) if callable(as_list) else value


def as_text(value: Any) -> str | None:
    """The text of a cell, as it stands; a number becomes text, without `.0` where it is whole.

    Raises:
        CellError: It is a list or an object.

    >>> as_text(7.0), as_text("  yes "), as_text(True)
    ('7', '  yes ', 'true')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else str(value)
    raise CellError(f"is no text: {shorten(value)}")


def as_number(value: Any) -> float | None:
    """The number in a cell; None for the words that programs write in place of one.

    Raises:
        CellError: It is no number.
    """
    if isinstance(value, str):
        if value.strip().lower() in _NO_NUMBER or not value.strip():
            return None
        try:
            value = float(value)
        except ValueError:
            raise CellError(f"is no number: {shorten(value)}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CellError(f"is no number: {shorten(value)}")
    return value


def as_time(value: Any) -> float | str | None:
    """A time as seconds since 1970, or as the text it is written in (ISO 8601 is checked where it is read)."""
    try:
        return as_number(value)
    except CellError:
        return value.strip() if isinstance(value, str) else as_text(value)


def as_flag(value: Any) -> bool | None:
    """A yes or a no.

    Raises:
        CellError: It is neither.

    >>> as_flag("Yes"), as_flag(0.0), as_flag(" ")
    (True, False, None)
    """
    word = (as_text(value) or "").strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    if word in _NO_NUMBER or not word:
        return None
    raise CellError(f"is neither true nor false: {shorten(value)}")


def as_error(value: Any) -> str | None:
    """What went wrong; None where a column of flags says that nothing did."""
    text = as_text(value) or ""
    return None if text.strip().lower() in _NO_ERROR or not text.strip() else text


def as_id(value: Any) -> str | None:
    """One id; white space around it belongs to the cell."""
    return (as_text(value) or "").strip() or None


def as_ids(value: Any, separator: str | None, id_from: Path | None = None) -> list[Any] | None:
    """The ids of a cell; documents that are objects stay objects, with the keys `id`, `text` and `score`.

    Args:
        value: The cell.
        separator: What separates ids in a text that is no array; None tries the usual separators.
        id_from: The location of a document's id; None tries the usual places.

    Raises:
        CellError: An entry is no id.

    >>> as_ids("['p1#2', 'p1#3']", None), as_ids("a, b", None), as_ids("Smith,2020", None), as_ids("[]", None)
    (['p1#2', 'p1#3'], ['a', 'b'], ['Smith,2020'], [])
    """
    entries = as_list(value, separator, _cut_ids)
    if entries and all(isinstance(entry, dict) for entry in entries):
        return [_document(entry, id_from) for entry in entries]
    ids = [as_id(entry) for entry in entries]
    if None in ids:
        raise CellError(f"has an empty entry: {shorten(value)}")
    return ids


def as_phrases(value: Any, separator: str | None) -> list[str]:
    """The phrases of a cell, which are never cut at a comma."""
    return [text for entry in as_list(value, separator, _cut_at_separator) if (text := (as_text(entry) or "").strip())]


def as_texts(value: Any, separator: str | None) -> list[str]:
    """The texts of a cell: those of a list, else the whole cell as one text.

    >>> as_texts("Cats; dogs", None), as_texts('[{"page_content": "Cats"}]', None)
    (['Cats; dogs'], ['Cats'])
    """
    entries = as_list(value, separator, lambda text: [text])
    texts = [_first_of(entry, _TEXT_KEYS) if isinstance(entry, dict) else entry for entry in entries]
    return [as_text(text) or "" for text in texts]


def as_list(value: Any, separator: str | None, cut: Callable[[str], Sequence[Any]]) -> list[Any]:
    """The entries of a cell.

    Args:
        value: A list, a text that writes one, or a single entry.
        separator: What separates entries in a text that is no array; None: `cut` decides.
        cut: The entries of a text that is no array.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return [value]
    written = as_structure(value) if value.strip().startswith("[") else None
    if isinstance(written, list):
        return written
    if separator is not None:
        return [part for part in value.split(separator) if part.strip()]
    return list(cut(value))


def _cut_ids(text: str) -> list[str]:
    """Ids with separators; the brackets of a list without quotes are left out."""
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        return [part for part in re.split(r"[,|;\s]+", bare[1:-1]) if part]
    return re.split(r",\s+", bare) if _COMMA_LIST.fullmatch(bare) else _cut_at_separator(bare)


def _cut_at_separator(text: str) -> list[str]:
    used = next((separator for separator in _SEPARATORS if separator in text.strip()), None)
    return [text] if used is None else [part.strip() for part in text.split(used) if part.strip()]


def kept_comma(value: Any, separator: str | None) -> bool:
    """Whether a cell is one id that holds a comma, so that it may be several ids to the one who wrote it."""
    return isinstance(value, str) and separator is None and len(_ids_of(value)) == 1 and "," in value


def _ids_of(value: str) -> list[Any]:
    return as_list(value, None, _cut_ids)


def as_structure(text: str) -> Any:
    """The list or object that a text writes, in JSON, as Python or as numpy prints it; None where it writes neither.

    >>> as_structure('["a"]'), as_structure("[{'id': 'a', 'score': None}]"), as_structure("['a' 'b']")
    (['a'], [{'id': 'a', 'score': None}], ['a', 'b'])
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    strings = _strings(text.strip())
    if strings is not None:
        return strings
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None
    return plain(value) if isinstance(value, list | tuple | dict | set) else None


def _strings(text: str) -> list[str] | None:
    """The entries of a list of Python strings. numpy writes no commas, where Python would join the strings to one."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    entries, at, end = [], 1, len(text) - 1
    while match := _STRING.match(text, at, end):
        entries.append(match[1])
        at = match.end()
    if at != end or not entries:
        return None
    try:
        return [ast.literal_eval(entry) for entry in entries]
    except (ValueError, SyntaxError):
        return None


def _document(entry: Mapping[str, Any], id_from: Path | None) -> dict[str, Any]:
    """A retrieved document; its id may be in its metadata."""
    metadata = entry.get("metadata")
    found = None if id_from is None else look_up(entry, id_from)
    if is_absent(found):
        found = _first_of(entry, _ID_KEYS)
    if found is None and isinstance(metadata, dict):
        found = _first_of(metadata, _ID_KEYS)
    document_id = None if found is None else as_id(found)
    if document_id is None:
        raise CellError(f"has a document without id: {shorten(entry)}")
    if capture_hints.documents.room > 0:
        capture_hints.documents.note(document_id, entry, metadata)
    document = {"id": document_id, "text": _first_of(entry, _TEXT_KEYS), "score": entry.get("score")}
    return {name: value for name, value in document.items() if not is_absent(value)}


def _first_of(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((entry[key] for key in keys if not is_absent(entry.get(key))), None)
