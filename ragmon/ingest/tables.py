"""Rows of tables, DataFrames and JSON of other programs as the fields of a trace or of a gold item.

A row is a dictionary by column; objects in it are looked into. A field's column is named by the user's mapping, else by
the names that Ragas, DeepEval, LangSmith, Langfuse and Phoenix give, and plain words. Names are compared without case
and punctuation: `User Input`, `userInput` and `user_input` are one name.

`ragmon.ingest.cells` says which lists a cell may hold. Where `TableOptions.list_separator` is given, it separates the
entries of a text that is none of them. A question or an answer may be JSON: messages, or an object that holds it. What
is in the JSON of a cell has a path, `input[-1].content`, which the user's mapping may name.

The rows of CSV and TSV are read as a stream, those of Parquet and XLSX by the extra `table`. A row that cannot be read
is rejected with its line, and the next row is read.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol
from uuid import UUID

from ragmon.core import answers, shapes
from ragmon.core.constants import CONTRACT_VERSION, MALFORMED_ROW, OVERSIZE, SOURCES
from ragmon.core.documents import Document, list_in, note_ids, read_document
from ragmon.core.errors import InputError, RagmonError, UnknownNameError, printable, shorten
from ragmon.core.shapes import normalised
from ragmon.core.text import Path as MemberPath
from ragmon.core.text import look_up, normalise_question, parse
from ragmon.core.written import JSON
from ragmon.ingest.cells import CellError, as_list, as_structure, cut_citations, cut_ids, cut_phrases, is_absent
from ragmon.ingest.spans.messages import question_in
from ragmon.ingest.values import ABSENT

_TRUE: Final = frozenset({"true", "yes", "1", "y", "t"})
_FALSE: Final = frozenset({"false", "no", "0", "n", "f"})
_NO_ERROR: Final = frozenset({"false", "0", "no", "none", "null", "nan", "ok"})


def plain(value: Any) -> Any:
    """A value of pandas, numpy, pyarrow or openpyxl as a value of JSON; times become ISO 8601 in UTC.

    Objects that are none of these stay as they are.
    """
    if isinstance(value, str | bool | int | float):
        return value
    if is_absent(value):
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
    if isinstance(value, UUID) or type(value).__name__ == "ObjectId":
        return str(value)
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
    raise CellError(f"is not text: {shorten(value)}")


def as_written(value: Any) -> float | str | None:
    """A time or a number: as a number, or as the text that the reader of a line or of a column reads; None without."""
    if isinstance(value, str):
        return None if value.strip().lower() in ABSENT else value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CellError(f"is not a number: {shorten(value)}")
    return value


def as_flag(value: Any) -> bool | None:
    """A yes or a no.

    >>> as_flag("Yes"), as_flag(0.0), as_flag(" ")
    (True, False, None)
    """
    word = (as_text(value) or "").strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    if word in ABSENT:
        return None
    raise CellError(f"is neither true nor false: {shorten(value)}")


def as_error(value: Any) -> str | None:
    """What went wrong; None where a column of flags says that nothing did."""
    text = as_text(value) or ""
    return None if text.strip().lower() in _NO_ERROR or not text.strip() else text


def as_id(value: Any) -> str | None:
    """One id; white space around it belongs to the cell."""
    return (as_text(value) or "").strip() or None


def as_question(value: Any) -> str | None:
    """The text of a question, or the question in JSON: in messages, or under a usual name.

    >>> as_question('[{"role": "user", "content": "Why?"}]'), as_question('"Why?"'), as_question("Why?")
    ('Why?', 'Why?', 'Why?')
    """
    inner = _json_in(value)
    text = inner if isinstance(inner, str) else None if inner is None else question_in(inner)
    return as_text(value) if text is None else text


def as_answer(value: Any) -> Any:
    """The text of an answer; with its citations and documents where the answer has them.

    >>> as_answer('{"answer": "So.", "citations": ["a"]}'), as_answer('"So."')
    ({'claim': 'So.', 'citations': ['a']}, 'So.')
    """
    written = _json_in(value)
    value = written if written and isinstance(written, str) else value  # an export writes a text as JSON, too
    reply = answers.read(value) if isinstance(value, list | dict) else answers.parse(as_text(value) or "")
    if reply is None or reply.claim is None:
        return as_text(value)
    beside = {"citations": reply.citations, "documents": reply.documents, "refused": reply.refused or None}
    beside = {name: member for name, member in beside.items() if member is not None}
    return {"claim": reply.claim, **beside} if beside else reply.claim


def _json_in(value: Any) -> Any:
    """What a text holds that is JSON or a list or object of Python; None for a plain text."""
    if not isinstance(value, str):
        return value if isinstance(value, list | dict) else None
    bare = value.strip()
    if bare.startswith('"'):
        try:
            text = json.loads(bare)
        except (ValueError, RecursionError):
            return None
        return text if _json_in(text) is None else _json_in(text)
    with suppress(CellError):
        return as_structure(bare)
    return None


def as_ids(value: Any, separator: str | None, id_from: MemberPath | None = None) -> list[Any] | None:
    """The ids of a cell; documents that are objects stay objects, with the keys `id`, `text`, `score` and `title`.

    Without a separator, the usual ones are tried. Absent entries are left out. An object of numbers by id holds the
    ids in the order of their scores.

    >>> as_ids("['p1#2', nan]", None), as_ids("a, b", None), as_ids("Smith,2020", None), as_ids("[]", None)
    (['p1#2'], ['a', 'b'], ['Smith,2020'], [])
    >>> as_ids('{"a": 0.1, "b": 0.9}', None)
    [{'id': 'b', 'score': 0.9}, {'id': 'a', 'score': 0.1}]
    """
    entries = as_list(value, separator, cut_ids)
    if len(entries) == 1 and isinstance(entries[0], dict):
        rows = list_in(entries[0], JSON) if read_document(entries[0], JSON).text is None else None
        entries = _entries(entries[0]) if rows is None else list(rows)
    ids = [_scored(entry, id_from) for entry in entries if not is_absent(entry) and not str(entry).isspace()]
    if any(isinstance(name, dict) for name in ids):
        return [name if isinstance(name, dict) else {"id": name} for name in ids]
    return ids


def as_names(value: Any, separator: str | None) -> list[str]:
    """The ids of a cell alone; of documents with a score those above zero, as in relevance judgements."""
    ids = as_ids(value, separator) or []
    nameless = next((name for name in ids if isinstance(name, dict) and "id" not in name), None)
    if nameless is not None:
        raise CellError(f"has a document without id: {shorten(nameless)}")
    return [name["id"] if isinstance(name, dict) else name for name in ids if not _is_irrelevant(name)]


def _is_irrelevant(name: Any) -> bool:
    score = name.get("score") if isinstance(name, dict) else None
    return isinstance(score, int | float) and score <= 0


def _entries(written: dict[str, Any]) -> list[Any]:
    """The entries of a list that is written as an object: numbers by id, or values by index."""
    scores = {name: entry for name, entry in written.items() if not is_absent(entry)}
    if scores and all(isinstance(entry, int | float) and not isinstance(entry, bool) for entry in scores.values()):
        return [[name, scores[name]] for name in sorted(scores, key=lambda name: -scores[name])]
    return list(written.values()) if [*written] == [str(index) for index in range(len(written))] else [written]


def _scored(entry: Any, id_from: MemberPath | None) -> Any:
    """An entry as an id or a document: an id, an object, or a row of an id, a text and a score."""
    if not isinstance(entry, list | dict):
        return as_id(entry)
    document = as_document(entry, id_from)
    if document.keys().isdisjoint(("id", "text", "index")):
        raise CellError(f"has a document without id: {shorten(entry)}")
    return document


def as_phrases(value: Any, separator: str | None) -> list[str]:
    """The phrases of a cell, which are never cut at a comma."""
    entries = as_list(value, separator, cut_phrases)
    return [text for entry in entries if not is_absent(entry) and (text := _phrase(entry).strip())]


def _phrase(entry: Any) -> str:
    found = as_answer(entry)
    return as_text(found["claim"] if isinstance(found, dict) else found) or ""


def as_answers(value: Any, separator: str | None) -> list[str]:
    """The right answers in a cell as data sets write them: texts, or an object with them and their aliases.

    >>> as_answers("{'text': ['Ada', 'Ada L.', 'Ada'], 'answer_start': [0, 0, 0]}", None)
    ['Ada', 'Ada L.']
    >>> as_answers({"value": "Ada", "aliases": ["A. L."]}, None)
    ['Ada', 'A. L.']
    """
    texts: list[str] = []
    for entry in as_list(value, separator, cut_phrases):
        if isinstance(entry, dict):
            members = {normalised(name): member for name, member in entry.items()}
            given = [members[name] for name in ("text", "value", "aliases") if not is_absent(members.get(name))]
            texts += chain.from_iterable(as_phrases(each, separator) for each in given)
        else:
            texts += as_phrases([entry], separator)
    return list(dict.fromkeys(texts))


def as_texts(value: Any, separator: str | None) -> list[str]:
    """The texts of a cell: those of a list, else the whole cell as one text.

    >>> as_texts("Cats; dogs", None), as_texts('[{"page_content": "Cats"}]', None)
    (['Cats; dogs'], ['Cats'])
    """
    entries = as_list(value, separator, lambda text: [text])
    texts = [read_document(entry, JSON).text if isinstance(entry, dict) else entry for entry in entries]
    if isinstance(value, str) and any(
        isinstance(entry, dict) and not text for entry, text in zip(entries, texts, strict=True)
    ):
        return [value]  # a text that is JSON
    return [as_text(text) or "" for text in texts if text == "" or not is_absent(text)]


def as_document(entry: Any, id_from: MemberPath | None = None) -> dict[str, Any]:
    """A document with the keys of a line: `id`, `text`, `score` and `title`, as far as it has them.

    A document without an id where `id_from` says keeps its own.
    """
    found = read_document(entry, JSON, id_from, are_ids=True)
    if id_from is not None and found.id is None:
        found = read_document(entry, JSON, are_ids=True)
    if shapes.document_hints.room > 0 and (found.id or found.label) is not None:
        note_ids(found, entry, JSON)
    return written(found)


def written(document: Document) -> dict[str, Any]:
    """A document with the keys of a line; with the place that a reranker gave it where it has no id."""
    name = document.id or document.label
    members = {"id": name, "text": document.text, "score": document.score, "title": document.title}
    members |= {"index": document.place} if name is None else {}
    return {key: value for key, value in members.items() if value is not None}


TAG: Final = "tags."
"""The prefix of a field that is a tag: `tags.lang`."""
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
        time_format: The format of times, as of `strptime`; None finds it out (`ragmon.ingest.values`).
        pipeline: The pipeline of rows, and of other programs' lines, that name none.
        reasoning: Names of thoughts in answers, beside the usual ones.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    encoding: str | None = None
    list_separator: str | None = None
    sheet: str | None = None
    id_from: MemberPath | None = None
    time_format: str | None = None
    pipeline: str | None = None
    reasoning: tuple[str, ...] = ()


USUAL: Final = TableOptions()


class UsualNames(NamedTuple):
    """The names that programs give to the column of a field, and how its cells are read.

    Weak names mean the field only where no column has a strong one. The reader of a list takes a separator as well.
    """

    strong: tuple[str, ...]
    weak: tuple[str, ...]
    read: Callable[..., Any]
    is_list: bool


def _names(
    strong: str, weak: str = "", *, read: Callable[..., Any] = as_text, read_list: Callable[..., Any] | None = None
) -> UsualNames:
    return UsualNames(tuple(strong.split()), tuple(weak.split()), read_list or read, read_list is not None)


_QUESTION: Final = _names(
    "question q query user_question user_query user_input user_message inputs_question inputs_query input_question "
    "input_query attributes_input_value input_value",
    "input inputs inputs_input prompt",
    read=as_question,
)
_QID: Final = _names("qid q_id question_id query_id", read=as_id)

TRACE: Final[Mapping[str, UsualNames]] = {
    "question": _QUESTION,
    "answer": _names(
        "answer response bot_answer bot_response actual_output generated_answer model_answer answer_json_claim "
        "outputs_answer outputs_response outputs_output output_answer output_response attributes_output_value "
        "output_value",
        "output outputs completion result reply",
        read=as_answer,
    ),
    "retrieved_ids": _names(
        "retrieved_ids retrieved_context_ids retrieved_doc_ids retrieved_document_ids retrieved_chunk_ids doc_ids "
        "document_ids chunk_ids source_ids",
        "docs documents sources chunks source_documents retrieved_docs retrieved_documents retrieved_chunks",
        read_list=as_ids,
    ),
    "contexts": _names(
        "contexts retrieved_contexts retrieval_context retrieved_texts", "context passages", read_list=as_texts
    ),
    "citations": _names("citations answer_json_citations cited_ids cited_docs", read_list=cut_citations),
    "candidate_ids": _names("candidate_ids", read_list=as_ids),
    "qid": _QID,
    "trace_id": _names("trace_id traceid", read=as_id),
    "ts": _names("ts timestamp", "time datetime date end_time created_at", read=as_written),
    "latency_ms": _names("latency_ms latency_ms_total duration_ms response_time_ms", read=as_written),
    "retrieval_ms": _names("retrieval_ms latency_ms_retrieve", read=as_written),
    "generation_ms": _names("generation_ms latency_ms_generate", read=as_written),
    "error": _names("error", "error_message exception", read=as_error),
    "session": UsualNames(shapes.SESSION_KEYS, (), as_id, False),
    "build": _names("build app_version release", read=as_id),
    "index_hash": _names("index_hash index_version", read=as_id),
    "pipeline": _names("pipeline", read=as_id),
}

GOLD: Final[Mapping[str, UsualNames]] = {
    "question": _QUESTION,
    "qid": _QID,
    "answerable": _names("answerable is_answerable", read=as_flag),
    "gold_claim": _names(
        "gold_claim reference ground_truth ground_truths expected_output reference_answer expected_answer gold_answer "
        "correct_answer ideal_answer reference_output reference_outputs_answer",
        "expected",
        read_list=as_phrases,
    ),
    "gold_claim_substr": _names("gold_claim_substr gold_phrases expected_phrases", "phrases", read_list=as_phrases),
    "answers": _names("answers possible_answers answer_aliases", read_list=as_answers),
    "gold_ids": _names(
        "gold_ids gold_citations relevant reference_context_ids relevant_ids relevant_doc_ids gold_doc_ids "
        "expected_ids expected_doc_ids expected_sources expected_docs gold_docs relevant_docs",
        read_list=as_names,
    ),
    "gold_contexts": _names(
        "gold_contexts reference_contexts gold_context ideal_context expected_context", "context", read_list=as_texts
    ),
    "paraphrases": _names("paraphrases", read_list=as_phrases),
    "negatives": _names("negatives", read_list=as_names),
}


def parse_map(text: str, known: Iterable[str]) -> dict[str, str]:
    """The mapping that a command line gives; an empty column leaves the field unread, and a tag is `tags.NAME`.

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


_RETRIEVED: Final = frozenset((*TRACE["retrieved_ids"].strong, *TRACE["retrieved_ids"].weak))
_SPOKEN: Final = frozenset(
    name
    for usual in (TRACE["question"], TRACE["answer"], GOLD["answers"], GOLD["gold_claim"])
    for name in usual.strong + usual.weak
)


def flat(row: Mapping[str, Any], depth: int = _MAX_DEPTH) -> dict[str, Any]:
    """The members of an object, and those of the objects in it under dotted names.

    What may be a question, an answer, or a result that holds documents, stays an object as well.

    >>> flat({"meta": {"lang": "en"}, "docs": ["a"]}), flat({"output": {"content": "So."}})
    ({'meta.lang': 'en', 'docs': ['a']}, {'output': {'content': 'So.'}, 'output.content': 'So.'})
    """
    members: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and depth > 0 and normalised(str(name)) not in _OBJECTS:
            key = normalised(str(name))
            if key in _SPOKEN or (key in _RETRIEVED and list_in(value, JSON) is not None):
                members[name] = value
            members |= {f"{name}.{inner}": member for inner, member in flat(value, depth - 1).items()}
        else:
            members[str(name)] = value
    return members


def _path_to(wanted: str, columns: Iterable[str]) -> tuple[str, MemberPath] | None:
    """The column at the beginning of a path, and the path in its cells; None where no column begins it.

    >>> _path_to("chat.input[-1].content", ["chat.input", "id"])
    ('chat.input', (-1, 'content'))
    """
    heads = [column for column in columns if column and wanted.startswith((f"{column}.", f"{column}["))]
    head = max(heads, key=len, default="")
    with suppress(RagmonError):
        return (head, parse(wanted[len(head) :].removeprefix("."), "a mapping")) if head else None
    return None


def cell_at(members: Mapping[str, Any], column: str) -> Any:
    """The cell of a column, or what a path names in the JSON of a cell; None where there is none.

    >>> cell_at({"input": '[{"content": "Why?"}]'}, "input[-1].content")
    'Why?'
    """
    if column in members:
        return members[column]
    found = _path_to(column, members)
    if found is None:
        return None
    value = members[found[0]]
    for step in found[1]:
        value = look_up(_json_in(plain(value)), (step,))
    return value


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
            if not alike and _path_to(wanted, columns) is not None:
                alike = [wanted]
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
        if len(found) > 1 and found[0] == found[1]:
            raise InputError(f"several columns are called {shorten(found[0])}", hint="rename them in the file")
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
    keys, pairs = {normalised(column): column for column in columns}, []
    for wanted in fields:
        usual = (*names[wanted].strong, *names[wanted].weak)
        # The column whose name has a usual name as a word, else the column that is spelt nearly like a usual name.
        similar = [c for name in usual for key, c in keys.items() if len(name) > 1 and name in key.split("_")]
        if not similar:
            near = (difflib.get_close_matches(name, keys, n=1, cutoff=_NEAR) for name in usual)
            similar = [keys[match[0]] for match in near if match]
        pairs.append(f"{wanted}={similar[0] if similar else 'COLUMN'}")
    return f"--map {','.join(pairs)}"


_FIELDS: Final = {**TRACE, **GOLD}
_OBJECTS: Final = frozenset(TRACE["citations"].strong)
"""Columns in which an object is one citation."""
_OF_DOCUMENTS: Final = frozenset({"retrieved_ids", "candidate_ids"})
_STRUCTURED: Final = frozenset(
    "answer_json latency_ms sampling facts tags measures verdicts scores retrieved_ids candidate_ids contexts".split()  # noqa: SIM905
)
"""Fields of the trace contract that are lists or objects."""
_FLAGS: Final = frozenset({"partial", "exported", "probe"})
_UNREAD: Final[Mapping[str, Any]] = {"answer": {}}
"""What stands for a value that cannot be read, where its absence would say something: that nothing was answered."""


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
        field = _FIELDS.get(name)  # a tag has none
        if field is None:
            return as_text(cell)
        return field.read(cell, options.list_separator) if field.is_list else field.read(cell)
    except CellError as error:
        raise CellError(f"{name} {error}") from None


Unread = Callable[[str, str], None]
"""Called with a field whose cell or member cannot be read, and why."""


def _no_matter(field: str, why: str, /) -> None:
    pass


def trace_fields(row: Mapping[str, Any], options: TableOptions, unread: Unread = _no_matter) -> dict[str, Any]:
    """The fields of a trace in a row of a table, for the decoder of trace lines; without those that cannot be read.

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
                value = as_written(value)
            fields[name] = _without_absent(value)
        return {**fields, "v": CONTRACT_VERSION}
    members = flat(row)
    for name, column in assigned_columns(members, options).items():
        try:
            value = value_of(name, cell_at(members, column), options)
        except CellError as error:
            unread(name, str(error))
            value = _UNREAD.get(name)
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


def usual_fields(
    row: Mapping[str, Any], options: TableOptions, missing: Collection[str], unread: Unread = _no_matter
) -> dict[str, Any]:
    """Fields of a line of JSON that has none of the contract's names for them.

    A member that holds no value of the field is no such field, except where the user maps it. The fields that the user
    maps are read whether they are missing or not.
    """
    members = flat(row)
    fields: dict[str, Any] = {}
    # A mapped member may be absent in some lines.
    mapping = tuple(
        (name, column)
        for name, column in options.columns.items()
        if not column or column in members or _path_to(column, members) is not None
    )
    mapped = dict(mapping)
    names = tuple(name for name in TRACE if name in missing or name in mapped)
    for name, column in _assigned(tuple(members), gold=False, mapping=mapping, only=names).items():
        if name.startswith(TAG) and name not in mapped:
            continue
        try:
            value = value_of(name, cell_at(members, column), options)
        except CellError as error:
            if name not in options.columns:
                continue
            unread(name, str(error))
            value = _UNREAD.get(name)
        if value is not None:
            fields["chunks" if _are_documents(name, value) else name] = value
    return fields


_SAYS_WHAT_WAS_ANSWERED: Final = ("answer", "retrieved_ids", "contexts", "citations", "error", "latency_ms")
_SAYS_WHAT_IS_RIGHT: Final = (
    *("answerable", "gold_claim", "gold_claim_substr", "answers", "gold_ids", "gold_contexts"),
)
_REFERENCES: Final = frozenset(("gold_claim", "gold_claim_substr", "answers"))
"""Fields that say in words what is right."""
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
TRACES_AS_GOLD: Final = "these are traces, which say what was answered, not gold, which says what is right"
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
    columns = assigned_columns(members, options, gold=True)
    found = {
        name: value
        for name, column in columns.items()
        if (value := value_of(name, cell_at(members, column), options)) is not None
    }
    has_no_answer = found.get("answers") == []  # as SQuAD says it
    found = {name: value for name, value in found.items() if value != []}
    question, qid, claim = found.pop("question", None), found.pop("qid", None), found.pop("gold_claim", None)
    if qid is None and not (question and question.strip()):
        raise CellError("it has neither a question nor a qid")
    if claim is not None and not (len(claim) == 1 and claim[0].strip().lower() in _NO_REFERENCE):
        found["gold_claim"] = "; ".join(claim)
    if answers := found.pop("answers", None):
        found["gold_claim_substr"] = list(dict.fromkeys([*found.get("gold_claim_substr", ()), *answers]))
    answerable = found.pop("answerable", None)
    if answerable is None:
        # Where the user says what an empty reference means, documents beside it do not say that there is an answer.
        has_column = empty_reference is not None and not columns.keys().isdisjoint(_REFERENCES)
        if not found.keys().isdisjoint(_REFERENCES if has_column else _SAYS_WHAT_IS_RIGHT):
            answerable = not (has_no_answer and found.keys().isdisjoint(_REFERENCES))
        elif empty_reference is None and not has_no_answer:
            raise MissingReferenceError("the row has no reference answer")
        elif empty_reference == "skip":
            return None
        else:
            answerable = False
        if not answerable:
            found = {name: value for name, value in found.items() if name not in _SAYS_WHAT_IS_RIGHT}
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
    return InputError(
        "this is gold, which says what is right, not traces, which say what was answered", path=path, hint=hint
    )


def is_gold(row: Mapping[str, Any]) -> bool:
    """Whether a row says what is right, and nothing of what was answered.

    >>> is_gold({"question": "Why?", "answerable": True}), is_gold({"question": "Why?", "answer": "So."})
    (True, False)
    """
    return has_reference(row) and not _is_answered(row)


def has_reference(row: Mapping[str, Any]) -> bool:
    """Whether a row says what is right, by any usual name."""
    return _says(row, _RIGHT)


def is_trace(row: Mapping[str, Any]) -> bool:
    """Whether a row says what was answered, and nothing of what is right."""
    return _is_answered(row) and not has_reference(row)


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
    flattened = flat(plain(first))
    members += [name for name in flattened if name not in members and name]
    try:
        assigned = assign(members, names, options.columns)
    except InputError as error:
        raise InputError(str(error), path=path, hint=error.hint) from None
    for column in assigned.values():
        found = None if column in members else _path_to(column, flattened)
        if found is not None and cell_at(flattened, column) is None and not is_absent(flattened[found[0]]):
            raise InputError(f"there is no {column} in the first row", path=path, hint=shorten(flattened[found[0]]))
    return members, assigned


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
    """The columns of a table, where a name may be there twice, and its rows with their lines or, else, row numbers."""

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
    """The rows of CSV or TSV, read as a stream. The delimiter is `,`, `;`, `|` or a tab: the one the header shows."""
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


_ESCAPED: Final = re.compile(r'(?<!\\)(\\+)"')


def _doubled(match: re.Match[str]) -> str:
    backslashes = len(match[1])
    return backslashes // 2 * "\\" + ('""' if backslashes % 2 else '"')


class _Lines:
    r"""The lines of a text; a row that takes too many characters is an error after which reading goes on.

    Spark writes a quote in a cell as `\"` and not twice. Where `has_escapes` is set, lines are given with such quotes
    twice.
    """

    def __init__(self, text: io.TextIOWrapper, path: str, encoding: str | None) -> None:
        self.number = 0
        self._text = text
        self._path = path
        self._encoding = encoding
        self._size = 0
        self._quotes = 0
        self.has_escapes = False
        self._row: list[str] = []
        self._again: list[str] = []

    def start_row(self) -> int:
        self._size = self._quotes = 0
        self._row = []
        return self.number + 1

    def read_again(self) -> bool:
        """Give the lines of the row once more, with escaped quotes; False where they have none."""
        if not any('\\"' in line for line in self._row):
            return False
        self.has_escapes = True
        self.number -= len(self._row)
        self._again = self._row + self._again
        return True

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
        self._row.append(line)
        return _ESCAPED.sub(_doubled, line) if self.has_escapes and '\\"' in line else line

    def _read(self) -> str:
        if self._again:
            return self._again.pop(0)
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
    lines: _Lines, columns: list[str], delimiter: str, reject: RejectRow
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    # The limit is of the whole process, and 128 KiB unless it was changed: a cell of contexts may be longer.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW))
    width, is_escaped = len(columns), False
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        start = lines.start_row()
        problem, lost, cells = "", 1, list[str]()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem, lost = str(error), lines.number - start + 1
        except _OversizeError:
            reject(start, OVERSIZE, f"it is longer than {MAX_ROW} characters", 1)
            continue
        is_header = [cell.strip() for cell in cells] == columns  # files were joined, each with its header
        if not problem and (is_header or not any(cells)):
            continue
        if len(cells) > width and not any(cells[width:]):
            del cells[width:]
        if not problem and len(cells) != width:
            problem = f"it has {len(cells)} cells, and there are {width} columns"
        if problem and not lines.has_escapes and lines.read_again():
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
        elif problem:
            lines.has_escapes = is_escaped
            reject(start, MALFORMED_ROW, problem, lost)
        else:
            is_escaped = lines.has_escapes
            yield start, dict(zip(columns, cells, strict=True))


def binary_table(path: str, kind: str, options: TableOptions) -> TableRows:
    """The rows of a Parquet file or of a workbook."""
    return _parquet(path) if kind == "parquet" else _workbook(path, options.sheet)


def _missing_extra(path: str, package: str) -> RagmonError:
    return RagmonError(f"{path}: {package}, which reads it, is not installed", hint="pip install 'ragmon[table]'")


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
    import zipfile  # noqa: PLC0415 - of all commands few read a workbook

    try:
        from openpyxl import load_workbook  # noqa: PLC0415 - an extra
        from openpyxl.utils.exceptions import InvalidFileException  # noqa: PLC0415 - an extra
    except ImportError:
        raise _missing_extra(path, "openpyxl") from None
    # What openpyxl raises; broken XML is a SyntaxError.
    broken = (OSError, KeyError, ValueError, EOFError, RuntimeError, SyntaxError, zipfile.BadZipFile, zlib.error)
    try:
        with zipfile.ZipFile(path) as packed:  # it unpacks no more of a part than the directory says
            _check_size(path, sum(part.file_size for part in packed.infolist()))
        book = load_workbook(path, read_only=True, data_only=True)
    except (*broken, InvalidFileException) as error:
        raise _unreadable(path, error) from error
    if sheet is not None and sheet not in book.sheetnames:
        raise InputError("there is no sheet", path=path, value=sheet, hint=f"its sheets: {', '.join(book.sheetnames)}")
    page = book[sheet] if sheet is not None else book.worksheets[0]
    page.reset_dimensions()  # some programs write wrong ones

    def filled() -> Iterator[tuple[int, Sequence[Any]]]:
        try:
            yield from ((n, cells) for n, cells in enumerate(page.values, 1) if not all(map(is_absent, cells)))
        except broken as error:
            raise _unreadable(path, error) from error
        finally:
            book.close()

    rows = filled()
    _, header = next(rows, (0, ()))
    columns = ["" if name is None else str(plain(name)).strip() for name in header]
    return TableRows(columns, ((number, dict(zip(columns, cells, strict=False))) for number, cells in rows))


def frame_table(frame: object) -> TableRows | None:
    """The rows of a DataFrame of pandas or polars, a table of Arrow, or an object that can become one of pandas."""
    table: Any = frame
    rows: Iterable[Mapping[str, Any]]
    if callable(getattr(table, "iter_rows", None)):  # polars
        columns = [str(name) for name in table.columns]
        rows = table.iter_rows(named=True)
    elif callable(getattr(table, "itertuples", None)):  # pandas
        columns = [str(name) for name in table.columns]
        rows = (dict(zip(columns, row, strict=True)) for row in table.itertuples(index=False, name=None))
    elif callable(getattr(table, "to_batches", None)):  # Arrow
        columns = list(table.schema.names)
        rows = chain.from_iterable(batch.to_pylist() for batch in table.to_batches())
    elif callable(getattr(table, "to_pandas", None)):  # data sets of Ragas and Hugging Face
        return frame_table(table.to_pandas())
    elif callable(getattr(table, "collect", None)):  # a lazy frame of polars
        return frame_table(table.collect())
    else:
        return None
    return TableRows(columns, iter(enumerate(rows, 1)))
