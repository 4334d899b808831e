"""Rows of tables, DataFrames and JSON of other programs as the fields of a trace or of a gold item.

A row is a dictionary by column; objects in it are looked into. A field's column is named by the user's mapping, else by
the names that Ragas, DeepEval, LangSmith, Langfuse and Phoenix give, and plain words. Names are compared without case
and punctuation: `User Input`, `userInput` and `user_input` are one name.

A list in a cell is a JSON array, a Python list as pandas writes it, or entries with separators. `|`, line breaks and
`;` separate ids and phrases: the first of these that occurs. A comma separates ids only where white space follows each
and no id holds any: `a#1, b#2` is two ids, `Smith,2020` is one. A text is never cut: a cell of contexts that is no
array is one context. Where `TableOptions.list_separator` is given, it alone separates.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ragmon.core import shapes
from ragmon.core.constants import CONTRACT_VERSION, SOURCES
from ragmon.core.errors import InputError, UnknownNameError, printable, shorten
from ragmon.core.text import Path, look_up, normalise_question

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
        return {str(key): plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    as_list = getattr(value, "tolist", None)  # arrays and scalars of numpy
    return plain(as_list()) if callable(as_list) else value


def as_text(value: Any) -> str | None:
    """The text of a cell, as it stands; a number becomes text, without `.0` where it is whole.

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
    """The number in a cell; None for the words that programs write instead of a number."""
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

    Without a separator, the usual ones are tried.

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
    """The entries of a cell."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return [value]
    written = as_structure(value) if value.strip().startswith("[") else None
    if isinstance(written, list):
        return written
    if separator is not None:
        return [text for text in value.split(separator) if text.strip()]
    return list(cut(value))


def _cut_ids(text: str) -> list[str]:
    """Ids with separators; the brackets of a list without quotes are left out."""
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        return [name for name in re.split(r"[,|;\s]+", bare[1:-1]) if name]
    return re.split(r",\s+", bare) if _COMMA_LIST.fullmatch(bare) else _cut_at_separator(bare)


def _cut_at_separator(text: str) -> list[str]:
    used = next((separator for separator in _SEPARATORS if separator in text.strip()), None)
    return [text] if used is None else [entry.strip() for entry in text.split(used) if entry.strip()]


def kept_comma(value: Any, separator: str | None) -> bool:
    """Whether a cell is one id that contains a comma, which may be meant as a list."""
    return isinstance(value, str) and separator is None and len(as_list(value, None, _cut_ids)) == 1 and "," in value


def as_structure(text: str) -> Any:
    """The list or object that a text writes, in JSON, as Python or as numpy prints it; None where it writes neither.

    >>> as_structure('["a"]'), as_structure("[{'id': 'a', 'score': None}]"), as_structure("['a' 'b']")
    (['a'], [{'id': 'a', 'score': None}], ['a', 'b'])
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        # numpy writes strings without commas, where Python would join them to one.
        strings, position, end = [], 1, len(bare) - 1
        while match := _STRING.match(bare, position, end):
            strings.append(match[1])
            position = match.end()
        if position == end and strings:
            with suppress(ValueError, SyntaxError):
                return [ast.literal_eval(string) for string in strings]
    try:
        value = ast.literal_eval(bare)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None
    return plain(value) if isinstance(value, list | tuple | dict | set) else None


def _document(entry: Mapping[str, Any], id_from: Path | None) -> dict[str, Any]:
    metadata = entry.get("metadata")
    found = None if id_from is None else look_up(entry, id_from)
    if is_absent(found):
        found = _first_of(entry, _ID_KEYS)
    if found is None and isinstance(metadata, dict):
        found = _first_of(metadata, _ID_KEYS)
    document_id = None if found is None else as_id(found)
    if document_id is None:
        raise CellError(f"has a document without id: {shorten(entry)}")
    if shapes.document_hints.room > 0:
        shapes.document_hints.note(document_id, entry, metadata)
    document = {"id": document_id, "text": _first_of(entry, _TEXT_KEYS), "score": entry.get("score")}
    return {name: value for name, value in document.items() if not is_absent(value)}


def _first_of(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((entry[key] for key in keys if not is_absent(entry.get(key))), None)


TAG: Final = "tags."
"""The prefix of a field that is a tag: `tags.lang`."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_WORD: Final = re.compile(r"[\W_]+")
_MAX_DEPTH: Final = 3
"""How many objects within objects are looked into: `inputs.request.question` is two."""
_SHOWN: Final = 12
_NEAR: Final = 0.75
_LONGEST: Final = 40
_DEEP_EVAL: Final = frozenset({"actual_output", "expected_output", "retrieval_context"})
"""Columns of DeepEval's test cases, whose `context` is not what was retrieved but what should have been."""


@dataclass(frozen=True)
class TableOptions:
    """How a table, and what is in its cells, is read.

    Args:
        columns: The column of each field, where the names are not the usual ones; "" leaves a field unread.
        encoding: The encoding of CSV and TSV; None is UTF-8, with or without byte order mark.
        list_separator: What separates the entries of a list in one cell; None: see `ragmon.ingest.tables`.
        sheet: The sheet of a workbook; None is the first one.
        id_from: The location of a document's id; None tries the usual places.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    encoding: str | None = None
    list_separator: str | None = None
    sheet: str | None = None
    id_from: Path | None = None


EMPTY_REFERENCE: Final = ("unanswerable", "skip")
"""What a row without a reference may mean: the question has no answer, or the row is left out."""
USUAL: Final = TableOptions()


class UsualNames(NamedTuple):
    """The names that programs give to the column of a field.

    Attributes:
        strong: Names that mean this field, whatever the other columns are.
        weak: Names that mean it only where no column has a strong one.
    """

    strong: tuple[str, ...]
    weak: tuple[str, ...] = ()


def _names(strong: str, weak: str = "") -> UsualNames:
    return UsualNames(tuple(strong.split()), tuple(weak.split()))


_QUESTION: Final = _names(
    "question q query user_question user_query user_input user_message inputs_question inputs_query input_question "
    "input_query attributes_input_value input_value",
    "input inputs_input prompt",
)
_QID: Final = _names("qid q_id question_id query_id")

TRACE: Final[Mapping[str, UsualNames]] = {
    "question": _QUESTION,
    "answer": _names(
        "answer response bot_answer bot_response actual_output generated_answer model_answer answer_json_claim "
        "outputs_answer outputs_response outputs_output output_answer output_response attributes_output_value "
        "output_value",
        "output completion result reply",
    ),
    "retrieved_ids": _names(
        "retrieved_ids retrieved_context_ids retrieved_doc_ids retrieved_document_ids retrieved_chunk_ids doc_ids "
        "document_ids chunk_ids source_ids",
        "docs documents sources chunks source_documents retrieved_docs retrieved_documents retrieved_chunks",
    ),
    "contexts": _names("contexts retrieved_contexts retrieval_context retrieved_texts", "context passages"),
    "citations": _names("citations answer_json_citations cited_ids cited_docs"),
    "candidate_ids": _names("candidate_ids"),
    "qid": _QID,
    "trace_id": _names("trace_id traceid"),
    "ts": _names("ts timestamp", "time datetime date end_time created_at"),
    "latency_ms": _names("latency_ms latency_ms_total duration_ms response_time_ms"),
    "retrieval_ms": _names("retrieval_ms latency_ms_retrieve"),
    "generation_ms": _names("generation_ms latency_ms_generate"),
    "error": _names("error", "error_message exception"),
    "session": _names("session session_id conversation_id thread_id chat_id"),
    "build": _names("build app_version release"),
    "index_hash": _names("index_hash index_version"),
    "pipeline": _names("pipeline"),
}

GOLD: Final[Mapping[str, UsualNames]] = {
    "question": _QUESTION,
    "qid": _QID,
    "answerable": _names("answerable is_answerable"),
    "gold_claim": _names(
        "gold_claim reference ground_truth ground_truths expected_output reference_answer expected_answer gold_answer "
        "correct_answer ideal_answer reference_output reference_outputs_answer",
        "expected",
    ),
    "gold_claim_substr": _names("gold_claim_substr gold_phrases expected_phrases", "phrases"),
    "gold_ids": _names(
        "gold_ids gold_citations relevant reference_context_ids relevant_ids relevant_doc_ids gold_doc_ids "
        "expected_ids expected_doc_ids expected_sources expected_docs gold_docs relevant_docs"
    ),
    "gold_contexts": _names("gold_contexts reference_contexts gold_context ideal_context expected_context", "context"),
    "paraphrases": _names("paraphrases"),
    "negatives": _names("negatives"),
}


@lru_cache(4096)  # every row of a file has the same few names
def normalised(name: str) -> str:
    """The key by which names are compared.

    >>> normalised("User Input"), normalised("actualOutput"), normalised("attributes.input.value")
    ('user_input', 'actual_output', 'attributes_input_value')
    """
    return _NOT_WORD.sub("_", _CAMEL.sub("_", name)).strip("_").lower()


def parse_map(text: str, known: Iterable[str]) -> dict[str, str]:
    """The mapping that a command line gives: `question=user_question,answer=bot_answer`.

    Args:
        text: Pairs of a field and its column, separated by commas; a pair with an empty column leaves the field unread.
        known: The fields; a tag is `tags.NAME`.

    >>> parse_map("question=User question,tags.lang=language", TRACE)
    {'question': 'User question', 'tags.lang': 'language'}
    """
    columns: dict[str, str] = {}
    for pair in text.split(","):
        name, equals, column = (text.strip() for text in pair.partition("="))
        if not equals:
            raise InputError("a mapping is FIELD=COLUMN,…", value=pair, hint="such as question=user_question")
        if name not in known and not (name.startswith(TAG) and name != TAG):
            raise UnknownNameError("field of a mapping", name, [*known, f"{TAG}NAME"])
        if name in columns:
            raise InputError("a field is mapped twice", value=name, hint="give it one column")
        columns[name] = column
    return columns


def flat(row: Mapping[str, Any], depth: int = _MAX_DEPTH) -> dict[str, Any]:
    """The members of an object, and those of the objects in it under dotted names.

    >>> flat({"inputs": {"question": "Why?"}, "docs": ["a"]})
    {'inputs.question': 'Why?', 'docs': ['a']}
    """
    members: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and depth > 0:
            members |= {f"{name}.{inner}": member for inner, member in flat(value, depth - 1).items()}
        else:
            members[str(name)] = value
    return members


def assign(columns: Sequence[str], names: Mapping[str, UsualNames], mapping: Mapping[str, str]) -> dict[str, str]:
    """The column of each field.

    The user's mapping goes before the usual names; a mapped field that has no usual names is left out.

    >>> assign(["When", "userInput", "response"], TRACE, {"ts": "When"})
    {'ts': 'When', 'question': 'userInput', 'answer': 'response'}
    """
    assigned: dict[str, str] = {}
    for name, wanted in mapping.items():
        if wanted and (name in names or name.startswith(TAG)):
            # The column of this very name, else the column whose name is compared alike.
            alike = [column for column in columns if column == wanted] or [
                column for column in columns if normalised(column) == normalised(wanted)
            ]
            if not alike:
                raise InputError(f"there is no column for {name}", value=wanted, hint=f"its columns: {_shown(columns)}")
            if len(alike) > 1:
                raise InputError(f"several columns are called {shorten(wanted)}", hint="rename them in the file")
            assigned[name] = alike[0]
    by_key: dict[str, list[str]] = {}
    for column in columns:
        if column not in assigned.values():
            by_key.setdefault(normalised(column), []).append(column)
            if column.startswith(TAG) and column != TAG and column not in mapping:
                assigned[column] = column
    is_deep_eval = not by_key.keys().isdisjoint(_DEEP_EVAL)
    for name, usual in names.items():
        if name in mapping:
            continue
        weak = [key for key in usual.weak if not (is_deep_eval and name == "contexts" and key == "context")]
        found = [column for key in usual.strong for column in by_key.get(key, ())]
        found = found or [column for key in weak for column in by_key.get(key, ())]
        if len(found) > 1:
            both = " and ".join(f"`{column}`" for column in found[:2])
            example = f'--map {name}={found[0]} (in Python: columns={{"{name}": "{found[0]}"}})'
            raise InputError(f"columns {both} are both names of {name}", hint=f"say which: {example}")
        if found:
            assigned[name] = found[0]
    return assigned


def _shown(columns: Sequence[str]) -> str:
    # As many columns as a line of a message holds.
    more = f", … {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    return ", ".join(printable(name, _LONGEST) for name in columns[:_SHOWN]) + more


def suggestion(columns: Sequence[str], names: Mapping[str, UsualNames], fields: Sequence[str]) -> str:
    """The mapping that would help where the fields have no column: columns with similar names, else a placeholder.

    >>> suggestion(["Q text", "the_answer", "n"], TRACE, ("question", "answer"))
    '--map question=COLUMN,answer=the_answer'
    """
    pairs = [f"{name}={_similar(columns, names[name]) or 'COLUMN'}" for name in fields]
    return f"--map {','.join(pairs)}"


def _similar(columns: Sequence[str], usual: UsualNames) -> str | None:
    """The column whose name contains a usual name of a field as a word, or is spelt nearly like one."""
    keys = {normalised(column): column for column in columns}
    for name in (*usual.strong, *usual.weak):
        for key, column in keys.items():
            if len(name) > 1 and name in key.split("_"):
                return column
    for name in (*usual.strong, *usual.weak):
        if near := difflib.get_close_matches(name, keys, n=1, cutoff=_NEAR):
            return keys[near[0]]
    return None


_SINGLE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "question": as_text,
    "answer": as_text,
    "qid": as_id,
    "trace_id": as_id,
    "ts": as_time,
    "latency_ms": as_number,
    "retrieval_ms": as_number,
    "generation_ms": as_number,
    "error": as_error,
    "session": as_id,
    "build": as_id,
    "index_hash": as_id,
    "pipeline": as_id,
    "answerable": as_flag,
}
_LISTS: Final[Mapping[str, Callable[[Any, str | None], list[Any] | None]]] = {
    "citations": as_ids,
    "gold_ids": as_ids,
    "negatives": as_ids,
    "contexts": as_texts,
    "gold_contexts": as_texts,
    "gold_claim": as_phrases,
    "gold_claim_substr": as_phrases,
    "paraphrases": as_phrases,
}
_OF_DOCUMENTS: Final = frozenset({"retrieved_ids", "candidate_ids"})
_STRUCTURED: Final = frozenset(
    "answer_json latency_ms sampling facts tags measures verdicts scores retrieved_ids candidate_ids contexts".split()  # noqa: SIM905
)
"""Fields of the trace contract that are lists or objects."""
_FLAGS: Final = frozenset({"partial", "exported", "probe"})


@lru_cache(maxsize=256)
def _assigned(
    columns: tuple[str, ...], gold: bool, mapping: tuple[tuple[str, str], ...], only: tuple[str, ...] | None = None
) -> Mapping[str, str]:
    usual = GOLD if gold else TRACE
    return assign(columns, usual if only is None else {name: usual[name] for name in only}, dict(mapping))


def assigned_columns(row: Mapping[str, Any], options: TableOptions, *, gold: bool = False) -> Mapping[str, str]:
    """The column of each field in a row whose objects have been flattened; remembered for rows of equal columns."""
    return _assigned(tuple(row), gold, tuple(options.columns.items()))


def value_of(name: str, cell: Any, options: TableOptions) -> Any:
    """The value of a field in a cell; None where the cell is absent."""
    cell = plain(cell)
    if is_absent(cell):
        return None
    try:
        if name in _OF_DOCUMENTS:
            return as_ids(cell, options.list_separator, options.id_from)
        if name in _LISTS:
            return _LISTS[name](cell, options.list_separator)
        return _SINGLE[name](cell) if name in _SINGLE else as_text(cell)
    except CellError as error:
        raise CellError(f"{name} {error}") from None


def trace_fields(row: Mapping[str, Any], options: TableOptions) -> dict[str, Any]:
    """The fields of a trace in a row of a table, for the decoder of trace lines.

    >>> trace_fields({"user_input": "Why?", "response": "So.", "docs": "a; b", "tags.lang": "en"}, TableOptions())
    {'tags': {'lang': 'en'}, 'question': 'Why?', 'answer': 'So.', 'retrieved_ids': ['a', 'b']}
    """
    fields: dict[str, Any] = {}
    if plain(row.get("v")) in (CONTRACT_VERSION, str(CONTRACT_VERSION)):
        # A whole record of the trace contract: a trace log read with pandas.
        for name, cell in row.items():
            value = plain(cell)
            if is_absent(value):
                continue
            if name in _STRUCTURED and isinstance(value, str):
                value = as_structure(value)
            elif name in _FLAGS:
                value = as_flag(value)
            elif name == "ts":
                value = as_number(value)
            fields[name] = _without_absent(value)
        return {**fields, "v": CONTRACT_VERSION}
    members = flat(row)
    for name, column in assigned_columns(members, options).items():
        value = value_of(name, members[column], options)
        if value is None:
            continue
        if name.startswith(TAG):
            fields.setdefault("tags", {})[name.removeprefix(TAG)] = value
        elif _are_documents(name, value):
            fields["chunks"] = value
        else:
            fields[name] = value
    source = plain(row.get("source"))
    return {**fields, "source": source} if source in SOURCES and isinstance(source, str) else fields


def _are_documents(name: str, value: Any) -> bool:
    return name == "retrieved_ids" and bool(value) and isinstance(value[0], dict)


def _without_absent(value: Any) -> Any:
    """An object without absent members: a DataFrame gives every object the members of all of them."""
    if isinstance(value, dict):
        return {
            name: _without_absent(member) for name, member in value.items() if not is_absent(member) or member == ""
        }
    return value


def usual_fields(row: Mapping[str, Any], options: TableOptions, missing: Collection[str]) -> dict[str, Any]:
    """Fields of a line of JSON that has none of the contract's names for them.

    A member that holds no value of the field is no such field, except where the user maps it. The fields that the user
    maps are read whether they are missing or not.
    """
    members = flat(row)
    fields: dict[str, Any] = {}
    # A mapped member may be absent in some lines.
    mapping = tuple((name, column) for name, column in options.columns.items() if column in members or not column)
    mapped = dict(mapping)
    names = tuple(name for name in TRACE if name in missing or name in mapped)
    for name, column in _assigned(tuple(members), gold=False, mapping=mapping, only=names).items():
        if name.startswith(TAG) and name not in mapped:
            continue
        try:
            value = value_of(name, members[column], options)
        except CellError:
            if name in options.columns:
                raise
            continue
        if value is not None:
            fields["chunks" if _are_documents(name, value) else name] = value
    return fields


_SAYS_WHAT_WAS_ANSWERED: Final = ("answer", "retrieved_ids", "contexts", "citations", "error", "latency_ms")
_SAYS_WHAT_IS_RIGHT: Final = ("answerable", "gold_claim", "gold_claim_substr", "gold_ids", "gold_contexts")
_ANSWERED: Final = frozenset(name for field in _SAYS_WHAT_WAS_ANSWERED for name in TRACE[field].strong)
_RIGHT: Final = frozenset(name for field in _SAYS_WHAT_IS_RIGHT for name in GOLD[field].strong)
"""The names of these fields that mean nothing else."""
_TRACE_MEMBERS: Final = ("answer_json", "chunks", "kind", "retrieval", "sampling", "trace_id", "v")
"""Members of trace lines that no gold item has."""
_NO_REFERENCE: Final = frozenset(("unanswerable", "not answerable", "no answer", "n/a", "not in context"))
"""References that say that there is none."""
_WRITTEN: Final = {"gold_ids": "gold_citations"}
"""Names of fields in gold files, where the table's field has another one."""
_QID_DIGITS: Final = 12
TRACES_AS_GOLD: Final = "these are traces, which say what was answered, and no gold, which says what is right"
TRACES_HINT: Final = "traces come first, gold after --gold"


def gold_fields(
    row: Mapping[str, Any], options: TableOptions, empty_reference: str | None = None
) -> dict[str, Any] | None:
    """The fields of a gold item in a row, as a line of a gold file holds them.

    `empty_reference`, one of `EMPTY_REFERENCE`, says what a row means that names no answer and has no `answerable`.
    The result is None where the row is left out.

    >>> gold_fields({"user_input": "Why?", "reference": "So.", "reference_context_ids": ["a"]}, TableOptions())
    {'qid': 'q-2be23c585f15', 'question': 'Why?', 'answerable': True, 'gold_citations': ['a'], 'gold_claim': 'So.'}
    """
    members = flat(row)
    found = {
        name: value
        for name, column in assigned_columns(members, options, gold=True).items()
        if (value := value_of(name, members[column], options)) not in (None, [])
    }
    question, qid, claim = found.pop("question", None), found.pop("qid", None), found.pop("gold_claim", None)
    if qid is None and not (question and question.strip()):
        raise CellError("it has neither a question nor a qid")
    if claim is not None and not (len(claim) == 1 and claim[0].strip().lower() in _NO_REFERENCE):
        found["gold_claim"] = "; ".join(claim)
    answerable = found.pop("answerable", None)
    if answerable is None:
        if found.keys() & _SAYS_WHAT_IS_RIGHT:
            answerable = True
        elif empty_reference is None:
            raise MissingReferenceError(
                "the row names no answer: is its question unanswerable, or is it to be left out?"
            )
        elif empty_reference == "unanswerable":
            answerable = False
        else:
            return None
    if not answerable:
        found.pop("gold_claim", None)  # what a right refusal says, not what the answer contains
    tags = {name.removeprefix(TAG): found.pop(name) for name in list(found) if name.startswith(TAG)}
    fields = {
        "qid": question_id(question) if qid is None else qid,
        "question": question,
        "answerable": answerable,
    }
    fields |= {_WRITTEN.get(name, name): value for name, value in found.items()}
    fields |= {"tags": tags} if tags else {}
    return {name: value for name, value in fields.items() if value is not None}


class MissingReferenceError(CellError):
    """A row does not say whether its question has an answer."""


def question_id(question: str) -> str:
    """The id of a question that has none: equal questions have equal ids.

    >>> question_id("Why?") == question_id(" why ")
    True
    """
    return f"q-{hashlib.sha256(normalise_question(question).encode()).hexdigest()[:_QID_DIGITS]}"


def gold_as_traces(path: str) -> InputError:
    """The error about a gold file where traces are expected."""
    hint = f"traces come first, gold after --gold: ragmon replay TRACES --gold {path or 'GOLD'}"
    return InputError("this is gold, which says what is right, and no trace of what was answered", path=path, hint=hint)


def is_gold(row: Mapping[str, Any]) -> bool:
    """Whether a row says what is right, and nothing of what was answered.

    >>> is_gold({"question": "Why?", "answerable": True}), is_gold({"question": "Why?", "answer": "So."})
    (True, False)
    """
    return _says(row, _RIGHT) and not _is_answered(row)


def has_reference(row: Mapping[str, Any]) -> bool:
    """Whether a row says what is right, by any usual name."""
    return _says(row, _RIGHT)


def is_trace(row: Mapping[str, Any]) -> bool:
    """Whether a row says what was answered, and nothing of what is right."""
    return _is_answered(row) and not _says(row, _RIGHT)


def _is_answered(row: Mapping[str, Any]) -> bool:
    return not row.keys().isdisjoint(_TRACE_MEMBERS) or _says(row, _ANSWERED)


def _says(row: Mapping[str, Any], strong: frozenset[str]) -> bool:
    return not strong.isdisjoint(map(normalised, flat(row)))


def check_traces(columns: Sequence[str], first: Mapping[str, Any], options: TableOptions, path: str) -> None:
    """Refuse a table in which nothing says what was answered: its report would be empty."""
    if "v" in columns and "answer_json" in columns:
        return
    members, assigned = _assigned_members(columns, first, TRACE, options, path)
    if assigned.keys() & _SAYS_WHAT_WAS_ANSWERED:
        return
    if _says(dict.fromkeys(members), _RIGHT):
        raise gold_as_traces(path)
    unknown = [name for name in ("question", "answer", "retrieved_ids") if name not in assigned]
    message = f"no column is known as the answer or what was retrieved; its columns: {_shown(members) or 'none'}"
    hint = f"{suggestion(members, TRACE, unknown)}; in Python: columns={{...}}"
    raise InputError(message, path=path, hint=hint)


def check_gold(columns: Sequence[str], first: Mapping[str, Any], options: TableOptions, path: str) -> None:
    """Refuse a table in which nothing says what is right."""
    members, assigned = _assigned_members(columns, first, GOLD, options, path)
    if assigned.keys() & _SAYS_WHAT_IS_RIGHT and assigned.keys() & {"question", "qid"}:
        return
    if _is_answered(dict.fromkeys(members)) and not assigned.keys() & _SAYS_WHAT_IS_RIGHT:
        hint = f"{TRACES_HINT}; a column that says what is right is mapped by ragmon gold from-table --map"
        raise InputError(TRACES_AS_GOLD, path=path, hint=f"{hint} gold_claim=COLUMN")
    message = f"no column is known as the question and what is right; its columns: {_shown(members) or 'none'}"
    unknown = [name for name in ("question", "gold_claim") if name not in assigned]
    mapping = suggestion(members, GOLD, unknown)
    hint = f"ragmon gold from-table {path or 'FILE'} {mapping} --output gold.jsonl"
    raise InputError(message, path=path, hint=hint)


def _assigned_members(
    columns: Sequence[str], first: Mapping[str, Any], names: Mapping[str, UsualNames], options: TableOptions, path: str
) -> tuple[list[str], dict[str, str]]:
    """The columns with the members of objects in the first row, and the column of each field."""
    members = [column for column in columns if column]
    members += [name for name in flat(plain(first)) if name not in members and name]
    try:
        return members, assign(members, names, options.columns)
    except InputError as error:
        raise InputError(str(error), path=path, hint=error.hint) from None
