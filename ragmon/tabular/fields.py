"""Rows to the fields of a trace, as a line of a trace log holds them.

A row is a dictionary by column, from a table, a DataFrame or a line of JSON; objects in it are looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final

from ragmon.core.constants import CONTRACT_VERSION, SOURCES
from ragmon.tabular import cells
from ragmon.tabular.cells import CellError, is_absent, plain
from ragmon.tabular.columns import (
    GOLD,
    TAG,
    TRACE,
    TableOptions,
    assign,
    flat,
)

_SINGLE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "question": cells.as_text,
    "answer": cells.as_text,
    "qid": cells.as_id,
    "trace_id": cells.as_id,
    "ts": cells.as_time,
    "latency_ms": cells.as_number,
    "retrieval_ms": cells.as_number,
    "generation_ms": cells.as_number,
    "error": cells.as_error,
    "session": cells.as_id,
    "build": cells.as_id,
    "index_hash": cells.as_id,
    "pipeline": cells.as_id,
    "answerable": cells.as_flag,
}
"""How the cell of a field with one value is read."""
_LISTS: Final[Mapping[str, Callable[[Any, str | None], list[Any] | None]]] = {
    "citations": cells.as_ids,
    "gold_ids": cells.as_ids,
    "negatives": cells.as_ids,
    "contexts": cells.as_texts,
    "gold_contexts": cells.as_texts,
    "gold_claim": cells.as_phrases,
    "gold_claim_substr": cells.as_phrases,
    "paraphrases": cells.as_phrases,
}
"""How the cell of a field with several values is read."""
_OF_DOCUMENTS: Final = frozenset({"retrieved_ids", "candidate_ids"})
"""Lists of ids, or of the documents themselves."""
_STRUCTURED: Final = frozenset(
    "answer_json latency_ms sampling facts tags measures verdicts scores retrieved_ids candidate_ids contexts".split()  # noqa: SIM905
)
"""Fields of the trace contract that are lists or objects."""
_FLAGS: Final = frozenset({"partial", "exported", "probe"})


@lru_cache(maxsize=256)
def _assigned(columns: tuple[str, ...], gold: bool, mapping: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return assign(columns, GOLD if gold else TRACE, dict(mapping))


def assigned_columns(row: Mapping[str, Any], options: TableOptions, *, gold: bool = False) -> Mapping[str, str]:
    """The column of each field in a row whose objects have been flattened; remembered for rows of equal columns.

    Raises:
        InputError: A mapped column is not there, or two columns have usual names of one field.
    """
    return _assigned(tuple(row), gold, tuple(options.columns.items()))


def value_of(name: str, cell: Any, options: TableOptions) -> Any:
    """The value of a field in a cell; None where the cell is absent.

    Raises:
        CellError: The cell holds no value of the field.
    """
    cell = plain(cell)
    if is_absent(cell):
        return None
    try:
        if name in _OF_DOCUMENTS:
            return cells.as_ids(cell, options.list_separator, options.id_from)
        if name in _LISTS:
            return _LISTS[name](cell, options.list_separator)
        return _SINGLE[name](cell) if name in _SINGLE else cells.as_text(cell)
    except CellError as error:
        raise CellError(f"{name} {error}") from None


def trace_fields(row: Mapping[str, Any], options: TableOptions) -> dict[str, Any]:
    """The fields of a trace in a row of a table, for the decoder of trace lines.

    Args:
        row: The row by column.
        options: The mapping of the user.

    Raises:
        CellError: A cell holds no value of its field.
        InputError: A mapped column is not there, or two columns have usual names of one field.

    >>> trace_fields({"user_input": "Why?", "response": "So.", "docs": "a; b", "tags.lang": "en"}, TableOptions())
    {'tags': {'lang': 'en'}, 'question': 'Why?', 'answer': 'So.', 'retrieved_ids': ['a', 'b']}
    """
    if plain(row.get("v")) in (CONTRACT_VERSION, str(CONTRACT_VERSION)):
        return _contract_fields(row)
    members = flat(row)
    fields: dict[str, Any] = {}
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


def _contract_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that holds a whole record of the trace contract: a trace log read with pandas."""
    fields: dict[str, Any] = {}
    for name, cell in row.items():
        value = plain(cell)
        if is_absent(value):
            continue
        if name in _STRUCTURED and isinstance(value, str):
            value = cells.as_structure(value)
        elif name in _FLAGS:
            value = cells.as_flag(value)
        elif name == "ts":
            value = cells.as_number(value)
        fields[name] = _without_absent(value)
    return {**fields, "v": CONTRACT_VERSION}


def _without_absent(value: Any) -> Any:
    """An object without absent members: a DataFrame gives every object the members of all of them."""
    if isinstance(value, dict):
        return {name: _without_absent(each) for name, each in value.items() if not is_absent(each) or each == ""}
    return value


def usual_fields(row: Mapping[str, Any], options: TableOptions, missing: Collection[str]) -> dict[str, Any]:
    """Fields of a line of JSON that has none of the contract's names for them.

    A member that holds no value of the field is no such field, except where the user maps it.

    Args:
        row: The decoded line.
        options: The mapping of the user, whose fields are read whether they are missing or not.
        missing: The fields that the line lacks.

    Raises:
        CellError: A mapped member holds no value of its field.
        InputError: Two members have usual names of one field.
    """
    members = flat(row)
    fields: dict[str, Any] = {}
    for name, column in _present(members, options, missing).items():
        try:
            value = value_of(name, members[column], options)
        except CellError:
            if name in options.columns:
                raise
            continue
        if value is not None:
            fields["chunks" if _are_documents(name, value) else name] = value
    return fields


def _present(members: Mapping[str, Any], options: TableOptions, missing: Collection[str]) -> Mapping[str, str]:
    """The members of a line that hold missing or mapped fields; a mapped member may be absent in some lines."""
    mapping = tuple((name, column) for name, column in options.columns.items() if column in members or not column)
    names = tuple(name for name in TRACE if name in missing or name in dict(mapping))
    return _assigned_some(tuple(members), names, mapping)


@lru_cache(maxsize=256)
def _assigned_some(
    columns: tuple[str, ...], names: tuple[str, ...], mapping: tuple[tuple[str, str], ...]
) -> Mapping[str, str]:
    assigned = assign(columns, {name: TRACE[name] for name in names}, dict(mapping))
    return {name: column for name, column in assigned.items() if not name.startswith(TAG) or name in dict(mapping)}
