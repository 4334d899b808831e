"""Rows to gold items: what is right, as a line of a gold file holds it; and which of two files was given as the other.

A row is a dictionary by column, from a table, a DataFrame or a line of JSON; objects in it are looked into.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragmon.core.errors import InputError
from ragmon.core.text import normalise_question
from ragmon.tabular.cells import CellError, plain
from ragmon.tabular.columns import (
    GOLD,
    TAG,
    TRACE,
    TableOptions,
    UsualNames,
    assign,
    flat,
    normalised,
    shown,
    suggestion,
)
from ragmon.tabular.fields import assigned_columns, value_of

SAYS_WHAT_WAS_ANSWERED: Final = ("answer", "retrieved_ids", "contexts", "citations", "error", "latency_ms")
"""Fields that only a trace has."""
SAYS_WHAT_IS_RIGHT: Final = ("answerable", "gold_claim", "gold_claim_substr", "gold_ids", "gold_contexts")
"""Fields that only a gold item has."""
_ANSWERED: Final = frozenset(name for field in SAYS_WHAT_WAS_ANSWERED for name in TRACE[field].strong)
_RIGHT: Final = frozenset(name for field in SAYS_WHAT_IS_RIGHT for name in GOLD[field].strong)
"""The names of these fields that mean nothing else."""
_TRACE_MEMBERS: Final = ("answer_json", "chunks", "kind", "retrieval", "sampling", "trace_id", "v")
"""Members of trace lines that no gold item has."""
_NO_REFERENCE: Final = frozenset(("unanswerable", "not answerable", "no answer", "n/a", "not in context"))
"""References that say that there is none."""
_WRITTEN: Final = {"gold_ids": "gold_citations"}
"""Names of fields in gold files, where the table's field has another one."""
_QID_DIGITS: Final = 12


def gold_fields(
    row: Mapping[str, Any], options: TableOptions, empty_reference: str | None = None
) -> dict[str, Any] | None:
    """The fields of a gold item in a row, as a line of a gold file holds them.

    Args:
        row: The row by column.
        options: The mapping of the user.
        empty_reference: What a row means that names no answer and has no `answerable`: one of `EMPTY_REFERENCE`.

    Returns:
        The fields; None where the row is left out.

    Raises:
        CellError: A cell holds no value of its field, or there is no question; `MissingReferenceError` where nothing
            says whether it has an answer.
        InputError: A mapped column is not there, or two columns have usual names of one field.

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
        answerable = _answerable(found, empty_reference)
        if answerable is None:
            return None
    if not answerable:
        found.pop("gold_claim", None)  # what a right refusal says, not what the answer contains
    tags = {name.removeprefix(TAG): found.pop(name) for name in list(found) if name.startswith(TAG)}
    fields = {"qid": question_id(question) if qid is None else qid, "question": question, "answerable": answerable}
    fields |= {_WRITTEN.get(name, name): value for name, value in found.items()}
    fields |= {"tags": tags} if tags else {}
    return {name: value for name, value in fields.items() if value is not None}


class MissingReferenceError(CellError):
    """A row does not say whether its question has an answer."""


def _answerable(found: Mapping[str, Any], empty_reference: str | None) -> bool | None:
    """Whether a question has an answer, where no column says so; None where its row is left out."""
    if found.keys() & SAYS_WHAT_IS_RIGHT:
        return True
    if empty_reference is None:
        raise MissingReferenceError("the row names no answer: is its question unanswerable, or is it to be left out?")
    return False if empty_reference == "unanswerable" else None


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
    """Whether a row has a member by one of these names, which mean nothing else."""
    return not strong.isdisjoint(map(normalised, flat(row)))


def check_traces(columns: Sequence[str], first: Mapping[str, Any], options: TableOptions, path: str) -> None:
    """Refuse a table in which nothing says what was answered: its report would be empty.

    Args:
        columns: The columns, with names that are there twice.
        first: The first row.
        options: The mapping of the user.
        path: The file, for messages.

    Raises:
        InputError: Nothing was answered, a mapped column is not there, or two columns are one field.
    """
    if "v" in columns and "answer_json" in columns:
        return
    members = _members(columns, first)
    assigned = _checked(members, TRACE, options.columns, path)
    if assigned.keys() & SAYS_WHAT_WAS_ANSWERED:
        return
    if _says(dict.fromkeys(members), _RIGHT):
        raise gold_as_traces(path)
    unknown = [name for name in ("question", "answer", "retrieved_ids") if name not in assigned]
    message = f"no column is known as the answer or what was retrieved; its columns: {shown(members) or 'none'}"
    hint = f"{suggestion(members, TRACE, unknown)}; in Python: columns={{...}}"
    raise InputError(message, path=path, hint=hint)


def check_gold(columns: Sequence[str], first: Mapping[str, Any], options: TableOptions, path: str) -> None:
    """Refuse a table in which nothing says what is right.

    Args:
        columns: The columns, with names that are there twice.
        first: The first row.
        options: The mapping of the user.
        path: The file, for messages.

    Raises:
        InputError: Nothing says what is right, a mapped column is not there, or two columns are one field.
    """
    members = _members(columns, first)
    assigned = _checked(members, GOLD, options.columns, path)
    if assigned.keys() & SAYS_WHAT_IS_RIGHT and assigned.keys() & {"question", "qid"}:
        return
    if _is_answered(dict.fromkeys(members)) and not assigned.keys() & SAYS_WHAT_IS_RIGHT:
        hint = f"{TRACES_HINT}; a column that says what is right is mapped by ragmon gold from-table --map"
        raise InputError(TRACES_AS_GOLD, path=path, hint=f"{hint} gold_claim=COLUMN")
    message = f"no column is known as the question and what is right; its columns: {shown(members) or 'none'}"
    raise InputError(message, path=path, hint=_from_table(members, assigned, path))


TRACES_AS_GOLD: Final = "these are traces, which say what was answered, and no gold, which says what is right"
TRACES_HINT: Final = "traces come first, gold after --gold"


def _from_table(columns: Sequence[str], assigned: Mapping[str, str], path: str) -> str:
    """The command that makes gold of a table with other names."""
    wanted = [name for name in ("question", "gold_claim") if name not in assigned]
    return f"ragmon gold from-table {path or 'FILE'} {suggestion(columns, GOLD, wanted)} --output gold.jsonl"


def _members(columns: Sequence[str], first: Mapping[str, Any]) -> list[str]:
    """The columns, and the members of objects in the first row."""
    names = [column for column in columns if column]
    return [*names, *(name for name in flat(plain(first)) if name not in names and name)]


def _checked(
    columns: Sequence[str], names: Mapping[str, UsualNames], mapping: Mapping[str, str], path: str
) -> dict[str, str]:
    try:
        return assign(columns, names, mapping)
    except InputError as error:
        raise InputError(str(error), path=path, hint=error.hint) from None
