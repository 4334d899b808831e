"""Lists and objects that are written in one text, as the program wrote it that filled the cell.

| what | example |
|---|---|
| JSON | `["a", null]`, `{"a": 0.9}` |
| Python | `('a', 'b')`, `['a', nan]`, `[Document(id='a', metadata={})]` |
| numpy, pandas | `['a' 'b']`, `array(['a', 'b'], dtype=object)`, `Index(['a'], dtype='object')` |
| Postgres | `{a,"b c",NULL}` |
| words in brackets | `[a, b]`, `[a b]` |
| one entry a line | `- a` or `1. a` |

What begins and ends as a list and can be read in none of these ways is refused: a part of it is no id. Ids and phrases
may also stand between separators: `|`, line breaks or `;`, the first of these that occurs. A comma separates ids only
where white space follows each and no id holds any: `a#1, b#2` is two ids, `Smith,2020` is one. A text is never cut.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ragmon.core import shapes
from ragmon.core.errors import shorten
from ragmon.core.text import Path

_MISSING_TYPES: Final = frozenset({"NAType", "NaTType"})
_SEPARATORS: Final = ("|", "\n", ";")
_COMMA_LIST: Final = re.compile(r"[^\s,]+(?:,\s+[^\s,]+)+")

_LONGEST_CITATIONS: Final = 1 << 18

_CLOSING: Final = {"[": "]", "(": ")", "{": "}"}
_CALL: Final = re.compile(r"[A-Za-z_][\w.]*\(")
_QUOTED: Final = re.compile(r"""(?:[A-Za-z_][\w.]*\(\s*)?[\[({]\s*[bu]?['"]|\[\s*[A-Za-z_][\w.]*\(""")
"""How only a list with quotes or objects in it begins."""
_STRING: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ENTRY: Final = re.compile(
    rf"\s*({_STRING}|(?:nan|NaN|NaT|None|null|<NA>|[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![^\s,]))\s*(,?)", re.DOTALL
)
_ANGLED: Final = re.compile(rf"({_STRING})|<(?:NA|[\w.]+: [^<>]*)>", re.DOTALL)
"""What Python prints for a missing value of pandas and for a member of an enumeration, outside of strings."""
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("nan", "NaN", "NaT", "NA", "null", "NULL", "inf", "Infinity")),
    "true": True,
    "false": False,
}
_MESSAGE: Final = "Message"
_SIDE_BY_SIDE: Final = re.compile(r"(?:\[[^\[\]]+\][\s,;]*){2,}")
_BULLET: Final = re.compile(r"[-*•‣◦·–—]\s+(\S.*)")
_NUMBER: Final = re.compile(r"(?:(\d+)[.):]|\((\d+)\)|\[(\d+)\])\s+(\S.*)")


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


def as_list(value: Any, separator: str | None, cut: Callable[[str], Sequence[Any]]) -> list[Any]:
    """The entries of a cell; a text that writes no list is cut.

    A list that holds one list alone is that list, as vector stores return it.
    """
    entries = value
    if isinstance(value, str):
        try:
            entries = as_structure(value)
        except CellError:
            if separator is None:
                raise
            entries = None
        if entries is None:
            entries = cut(value) if separator is None else [text for text in value.split(separator) if text.strip()]
    if not isinstance(entries, list):
        return [entries]
    if len(entries) == 1 and isinstance(entries[0], list):
        entries = entries[0]
    return list(entries)


def cut_citations(value: Any, separator: str | None = None) -> Any:
    """The citations of a cell: a text that writes no list and no object is cut.

    >>> cut_citations("p1#2, p1#3"), cut_citations("[1][2]"), cut_citations('{"document_id": "p1"}')
    (['p1#2', 'p1#3'], ['[1]', '[2]'], {'document_id': 'p1'})
    """
    if not isinstance(value, str):
        return value
    written = written_citations(value) if separator is None else None
    return as_list(value, separator, cut_ids) if written is None and value.strip() else written


def written_citations(value: Any) -> Any:
    """The citations of a JSON value: a text counts only where it writes a list or an object, not as one id.

    Raises:
        CellError: The text begins as a list and cannot be read.

    >>> written_citations('["p1"]'), written_citations("[1][2]"), written_citations("p1")
    (['p1'], ['[1]', '[2]'], None)
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text or len(text) > _LONGEST_CITATIONS:
        return None
    written = as_structure(text)
    return unquoted(text) if written is None and text[0] == "[" else written


def cited_documents(
    citations: Any,
    retrieved_ids: Sequence[str] | None,
    id_from: Path | None = None,
    titles: Iterable[tuple[Any, Any]] = (),
    unread: Callable[[str], object] | None = None,
) -> list[str] | None:
    """The documents that citations name, whoever wrote them.

    Args:
        citations: A value of JSON, or a text that writes one.
        retrieved_ids: The retrieved ids in rank order.
        id_from: The location of a document's id, where the usual keys do not hold it.
        titles: The id and the title of each retrieved document.
        unread: Called with what is wrong where they cannot be read.
    """
    names, problem = None, ""
    try:
        names = shapes.cited_names(written_citations(citations), retrieved_ids, id_from)
    except CellError as error:
        problem = str(error)
    if names is None and citations and unread is not None:
        problem = problem or f"have an entry that names no document: {shorten(citations)}"
        unread(f"citations {problem}")
    return shapes.named_by_title(names, titles) if names else names


def cut_ids(text: str) -> list[str]:
    """The ids of a text without quotes."""
    bare = text.strip()
    entries = unquoted(bare)
    if entries is None:
        entries = bulleted(bare)
    if entries is None:
        entries = re.split(r",\s+", bare) if _COMMA_LIST.fullmatch(bare) else cut_at_separator(bare)
    return entries


def cut_phrases(text: str) -> list[str]:
    """The phrases of a text: the entries of a list with bullets, else what stands between separators."""
    return (bulleted(text) if "\n" in text else None) or cut_at_separator(text)


def cut_at_separator(text: str) -> list[str]:
    """The parts of a text between the separator that it uses; the text as it stands where it uses none."""
    used = next((separator for separator in _SEPARATORS if separator in text.strip()), None)
    return [text] if used is None else [entry.strip() for entry in text.split(used) if entry.strip()]


def kept_comma(value: Any, separator: str | None) -> bool:
    """Whether a cell is one id that contains a comma, which may be meant as a list."""
    return isinstance(value, str) and separator is None and "," in value and len(as_list(value, None, cut_ids)) == 1


class _UnreadableError(ValueError):
    """A node of Python's syntax that no value is printed as."""


def as_structure(text: str) -> list[Any] | dict[str, Any] | None:
    """The list or object that a text writes with its strings in quotes; None where the text is something else.

    Raises:
        CellError: The text begins and ends as a list and cannot be read.

    >>> as_structure("('a', nan)"), as_structure("['a' 'b']"), as_structure("[Document(id='a')]")
    (['a', None], ['a', 'b'], [{'id': 'a'}])
    >>> as_structure("(see page 3)") is None
    True
    """
    bare = text.strip()
    opening = bare[:1]
    if opening not in _CLOSING and not _CALL.match(bare):
        return None
    if bare[-1] != _CLOSING.get(opening, ")"):
        return None
    if opening in "[{":
        try:
            value = json.loads(bare)
        except (ValueError, RecursionError):
            pass
        else:
            return value if isinstance(value, list | dict) else None
    if opening == "[" and (entries := _printed(bare)) is not None:
        return entries
    try:
        node = ast.parse(_ANGLED.sub(lambda match: match[1] or "None", bare), mode="eval").body
        if isinstance(node, ast.List | ast.Set | ast.Dict | ast.Call) or (
            isinstance(node, ast.Tuple) and opening == "("
        ):
            value = _value(node)
            return value if isinstance(value, list | dict) else None
    except (_UnreadableError, SyntaxError, ValueError, MemoryError, RecursionError):
        if _QUOTED.match(bare):
            entries = _of_postgres(bare[1:-1]) if opening == "{" else None
            if entries is None:
                raise _unreadable(bare) from None
            return entries
    return None


def _printed(bare: str) -> list[Any] | None:
    # numpy writes strings without commas, where Python would join them to one.
    entries, position, end = [], 1, len(bare) - 1
    while match := _ENTRY.match(bare, position, end):
        entries.append(match[1])
        position = match.end()
    if position != end or not entries:
        return None
    try:
        return [None if entry in _WORDS or entry in ("None", "<NA>") else ast.literal_eval(entry) for entry in entries]
    except (ValueError, SyntaxError):
        return None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and node.value is not ...:
        return node.value.decode("utf-8", "replace") if isinstance(node.value, bytes) else node.value
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [_value(entry) for entry in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {str(_value(key)): _value(entry) for key, entry in zip(node.keys, node.values, strict=True) if key}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _value(node.operand)
        return -number if isinstance(number, int | float) else number
    if isinstance(node, ast.Name | ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in _WORDS:
            return _WORDS[name]
        if isinstance(node, ast.Attribute):  # a member of an enumeration, a type
            return ast.unparse(node)
    if isinstance(node, ast.Call):
        if node.args:  # `array([...], dtype=object)`, `float64(0.9)`
            first = _value(node.args[0])
            return first if len(node.args) == 1 or isinstance(first, list | dict) else ast.unparse(node)
        members = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        name = ast.unparse(node.func)  # `Document(id='a')`, `HumanMessage(content='Why?')`
        kind = {"type": name.removesuffix(_MESSAGE).lower()} if name.endswith(_MESSAGE) else {}
        return {**kind, **members} if members else []
    raise _UnreadableError


def unquoted(text: str) -> list[str] | None:
    """The words that a text holds in brackets, and the entries of an array of Postgres; None for other texts.

    Raises:
        CellError: The text is in brackets or braces and no list of words.

    >>> unquoted("[a, b c]"), unquoted('{a,"b c",NULL}'), unquoted("[1][2]"), unquoted("[draft] a")
    (['a', 'b c'], ['a', 'b c'], ['[1]', '[2]'], None)
    """
    bare = text.strip()
    opening = bare[:1]
    if _SIDE_BY_SIDE.fullmatch(bare):
        return re.findall(r"\[[^\[\]]+\]", bare)
    if opening and opening in "'\"":
        return _printed(f"[{bare}]")
    if _QUOTED.match(bare):  # and cut off: `as_structure` reads the others
        raise _unreadable(bare)
    if opening not in _CLOSING or bare[-1] != _CLOSING[opening] or (opening == "(" and "," not in bare):
        return None
    inner = bare[1:-1].strip()
    entries: Sequence[str | None] | None
    if opening == "{":
        entries = _of_postgres(inner)
    elif "," in inner or not any(separator in inner for separator in "|;"):
        entries = inner.split(",") if "," in inner else inner.split()
    else:
        entries = re.split(r"[|;]", inner)
    words = [entry.strip() for entry in entries or () if entry is not None]
    if opening == "(" or entries is None or any(_is_no_word(word) for word in words):
        raise _unreadable(bare)
    return [word for word in words if word and word not in ("NULL", "None", "nan")]


def _of_postgres(inner: str) -> list[str | None] | None:
    if re.search(r"[{}]|:\s|['\"]\s*:", inner) or "\n" in inner:
        return None
    try:
        entries = next(csv.reader([inner], escapechar="\\", doublequote=False, skipinitialspace=True, strict=True), [])
    except csv.Error:
        return None
    return [None if entry == "NULL" else entry for entry in entries]


def _is_no_word(word: str) -> bool:
    return word == "..." or word[:1] in ("'", '"', "[", "(", "<") or word[-1:] in ("'", '"', "]", ">")


def bulleted(text: str) -> list[str] | None:
    r"""The entries of a list with a bullet or a number before each; None for other texts.

    One line with a number is no list: it may be the title of a section.

    >>> bulleted("- a\n- b"), bulleted("1. a\n2. b"), bulleted("1. Introduction")
    (['a', 'b'], ['a', 'b'], None)
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    bullets = [_BULLET.fullmatch(line) for line in lines]
    if bullets and all(bullets):
        return [match[1] for match in bullets if match]
    numbers = [_NUMBER.fullmatch(line) for line in lines]
    if len(numbers) > 1 and all(numbers):
        counts = [int(match[1] or match[2] or match[3]) for match in numbers if match]
        if counts[0] in (0, 1) and counts == [*range(counts[0], counts[0] + len(counts))]:
            return [match[4] for match in numbers if match]
    return None


def _unreadable(bare: str) -> CellError:
    why = ""
    if "..." in bare:
        why = ", cut short by `...`"
    elif " object at 0x" in bare:
        why = ", of objects without their fields"
    return CellError(f"is a list that cannot be read{why}: {shorten(bare)}")
