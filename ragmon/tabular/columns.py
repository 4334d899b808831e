"""Which column of a table holds which field: by the user's mapping, else by the names that programs usually give.

Names are compared without case and punctuation: `User Input`, `userInput` and `user_input` are one name. The names of
Ragas, DeepEval, LangSmith, Langfuse and Phoenix are known, and plain words.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ragmon.core.errors import InputError, UnknownNameError, printable, shorten
from ragmon.core.text import Path

TAG: Final = "tags."
"""The prefix of a field that is a tag: `tags.lang`."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_WORD: Final = re.compile(r"[\W_]+")
_MAX_DEPTH: Final = 3
"""How many objects within objects are looked into: `inputs.request.question` is two."""
_SHOWN: Final = 12
"""Columns that a message names."""
_NEAR: Final = 0.75
"""Similarity from which a column is suggested for a field."""
_LONGEST: Final = 40
"""Characters of a column's name in a message."""
_DEEP_EVAL: Final = frozenset({"actual_output", "expected_output", "retrieval_context"})
"""Columns of DeepEval's test cases, whose `context` is not what was retrieved but what should have been."""


@dataclass(frozen=True)
class TableOptions:
    """How a table, and what is in its cells, is read.

    Args:
        columns: The column of each field, where the names are not the usual ones; "" leaves a field unread.
        encoding: The encoding of CSV and TSV; None is UTF-8, with or without byte order mark.
        list_separator: What separates the entries of a list in one cell; None: see `ragmon.tabular.cells`.
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
"""UTF-8, with the usual names."""


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
"""The fields of a trace."""

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
"""The fields of a gold item."""


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

    Raises:
        UnknownNameError: There is no such field.
        InputError: A part is no pair, or a field is named twice.

    >>> parse_map("question=User question,tags.lang=language", TRACE)
    {'question': 'User question', 'tags.lang': 'language'}
    """
    columns: dict[str, str] = {}
    for part in text.split(","):
        name, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError("a mapping is FIELD=COLUMN,…", value=part, hint="such as question=user_question")
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
            members |= {f"{name}.{inner}": each for inner, each in flat(value, depth - 1).items()}
        else:
            members[str(name)] = value
    return members


def assign(columns: Sequence[str], names: Mapping[str, UsualNames], mapping: Mapping[str, str]) -> dict[str, str]:
    """The column of each field.

    Args:
        columns: The columns of the table.
        names: The usual names, by field.
        mapping: The column of each field that the user names; fields that `names` does not have are left out.

    Raises:
        InputError: A mapped column is not there, or two columns have usual names of one field.

    >>> assign(["When", "userInput", "response"], TRACE, {"ts": "When"})
    {'ts': 'When', 'question': 'userInput', 'answer': 'response'}
    """
    wanted = {name: column for name, column in mapping.items() if column and (name in names or name.startswith(TAG))}
    assigned = {name: _mapped(name, column, columns) for name, column in wanted.items()}
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
        weak = [each for each in usual.weak if not (is_deep_eval and name == "contexts" and each == "context")]
        found = _named(usual.strong, by_key) or _named(weak, by_key)
        if len(found) > 1:
            both = " and ".join(f"`{column}`" for column in found[:2])
            raise InputError(f"columns {both} are both names of {name}", hint=f"say which: {map_hint(name, found[0])}")
        if found:
            assigned[name] = found[0]
    return assigned


def _named(names: Iterable[str], by_key: Mapping[str, Sequence[str]]) -> list[str]:
    return [column for name in names for column in by_key.get(name, ())]


def _mapped(name: str, column: str, columns: Sequence[str]) -> str:
    """The column of the table that a mapping means: by its very name, else by the one that is compared alike."""
    alike = [each for each in columns if each == column] or [
        each for each in columns if normalised(each) == normalised(column)
    ]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise InputError(f"several columns are called {shorten(column)}", hint="rename them in the file")
    raise InputError(f"there is no column for {name}", value=column, hint=f"its columns: {shown(columns)}")


def map_hint(name: str, column: str) -> str:
    """How a user maps a column, on the command line and in Python.

    >>> map_hint("answer", "reply")
    '--map answer=reply (in Python: columns={"answer": "reply"})'
    """
    return f'--map {name}={column} (in Python: columns={{"{name}": "{column}"}})'


def shown(columns: Sequence[str]) -> str:
    """The columns for a message, as far as a line holds them."""
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
