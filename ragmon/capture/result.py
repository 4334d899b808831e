"""The answer and the documents of a call, looked for in its result. Runs in the worker, never on the request path.

A result may be a text, a message, a response of a web framework, an object of any class with the usual fields, or one
of these inside another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from itertools import islice
from math import inf
from typing import Any, Final
from uuid import UUID

from ragmon.capture.call import TracedFunction
from ragmon.capture.layouts import class_name, is_a, is_list, is_str
from ragmon.capture.messages import ASSISTANT, is_text, last_text, message_text, part_text
from ragmon.capture.stored import STEPS, attempt, entries, first, held, held_at, number, stored
from ragmon.capture.web import is_response, response_value
from ragmon.core.record import MAX_DOCUMENTS_KEPT

_CLAIM_FIELDS: Final = (
    *("claim", "answer", "response", "response_txt", "result", "output_text", "output", "generation", "text"),
    *("content", "completion", "message", "reply", "refusal"),
)
_ALTERNATIVES: Final = ("choices", "generations", "replies", "answers")
"""Lists of which the first entry is the answer: of OpenAI, LangChain, Haystack."""
_ENVELOPES: Final = ("answer_json", "answer", "response", "result", "output", "data")
"""Fields that may hold the whole result inside another one, the innermost of which is read first."""
_ID_LIST_FIELDS: Final = ("retrieved", "retrieved_ids")
_DOCUMENT_FIELDS: Final = (
    *("documents", "source_documents", "source_nodes", "chunks", "contexts", "context", "docs", "retrieved_documents"),
    *("retrieved_docs", "retrieved_contexts", "retrieval_context"),
)
_SOURCE_FIELDS: Final = ("sources", "references")
"""Documents that were retrieved, or of several retrieved ones those that the answer cites."""
_COMPONENT_FIELDS: Final = frozenset({"replies", "answers", "documents"})
_CANDIDATE_FIELDS: Final = ("candidates", "candidate_ids")
LABEL_FIELDS: Final = ("qid", "index_hash", "build", "session", "model", "user")
_MAX_DEPTH: Final = 5
"""How deep the answer may be nested, for example a message in a field of the result."""
_MAX_ENVELOPES: Final = 3
_MAX_PARTS: Final = 64
"""The objects of a result that are searched for its fields."""
_MAX_RETURNED: Final = 8
"""The values of a returned tuple that are looked at."""
_MAX_COMPONENTS: Final = 32
"""The components of a pipeline's result that are looked into."""
_ID: Final = re.compile(r"[!-~]{1,200}")
SOURCES: Final = "sources"
CONTEXT: Final = "context"
"""Fields of `extract` beside those of `ragmon.record`: see there."""


def extract(result: Any, site: TracedFunction) -> dict[str, Any]:
    """The fields of a result, named as in `ragmon.record`.

    Documents without an id list are under `documents`, those that may be citations under `sources`, and a text that was
    made of all of them under `context`.

    Args:
        result: Any return value of a pipeline: text, mappings, dataclasses, pydantic models, framework responses.
        site: The function, with the decorator's `extract=`.
    """
    told = site.extract
    if callable(told):
        return attempt("result", lambda: dict(told(result))) or {}
    if told is not None:
        return {field: attempt(field, held_at, result, path) for field, path in told.items()}
    fields = attempt("result", _fields, result, steps=2 * STEPS) or {}
    return {field: value for field, value in fields.items() if value is not None}


def _fields(result: Any) -> dict[str, Any]:
    if is_response(result):
        return _fields(response_value(result))
    if is_str(result):
        return {"claim": result}
    if type(result) is tuple:
        return _fields_of_tuple(result)
    if is_a(result, list):
        return {"claim": last_text(result, ASSISTANT)}
    if not _has_parts(result):
        return {}
    parts = [*islice(_inside(result, _MAX_ENVELOPES), _MAX_PARTS), result, *_components(result)]
    views = [view for part in parts if (view := attempt("result", held, part)) is not None]
    context = _first_in(views, (CONTEXT,))
    return {
        "claim": attempt("claim", lambda: next((said for part in parts if (said := text_of(part)) is not None), None)),
        "citations": _first_in(views, ("citations",)),
        "retrieved": _first_in(views, _ID_LIST_FIELDS),
        "documents": _first_listed(views, _DOCUMENT_FIELDS, held_at(result, ("retrieval", "topk"))),
        SOURCES: _sources(views),
        CONTEXT: context if is_str(context) else None,
        "candidates": _first_in(views, _CANDIDATE_FIELDS),
        **{name: attempt(name, as_id, _first_in(views, (name,))) for name in LABEL_FIELDS},
    }


def _fields_of_tuple(result: tuple[Any, ...]) -> dict[str, Any]:
    """The fields of several return values: an answer and its documents, or the body and status of a response."""
    if len(result) > 1 and (type(result[1]) is int or is_a(result[1], HTTPStatus)):
        return _fields(result[0])
    result = result[:_MAX_RETURNED]
    answers = (part for part in result if is_str(part) or _has_parts(part))
    fields = next((fields for part in answers if (fields := _fields(part)).get("claim") is not None), {})
    documents = next((part for part in result if is_a(part, list)), None)
    name = "documents" if documents is None or not are_ids(documents) else "retrieved"
    return {**fields, name: documents} if documents is not None and fields else fields


def are_ids(documents: Any) -> bool:
    """Whether documents are short texts without spaces, as ids and file names are: a passage must never pass for an id.

    Many scripts are written without spaces, so these texts are ASCII.
    """
    found = (entries(documents) or ())[:MAX_DOCUMENTS_KEPT]
    return bool(found) and all(is_str(entry) and _ID.fullmatch(entry) for entry in found)


def _inside(result: Any, depth: int) -> Iterator[Any]:
    """The results inside a result, the innermost first."""
    fields = held(result) if depth else {}
    inner = {id(part): part for name in _ENVELOPES if _has_parts(part := first(fields, (name,))) and part is not result}
    for part in inner.values():
        yield from _inside(part, depth - 1)
        yield part


def _has_parts(value: Any) -> bool:
    """Whether an answer is an object with members, and no text."""
    return value is not None and not is_a(value, str, int, float) and not is_list(value)


def _first_in(views: Sequence[dict[str, Any]], names: Sequence[str]) -> Any:
    return next((value for fields in views if (value := first(fields, names)) is not None), None)


def _first_listed(views: Sequence[dict[str, Any]], names: Sequence[str], default: Any = None) -> Any:
    values = (first(fields, (name,)) for fields in views for name in names)
    return next((value for value in values if entries(value) is not None), default)


def _sources(views: Sequence[dict[str, Any]]) -> Any:
    """The documents under `sources`; beside `source_nodes`, LlamaIndex has the outputs of tools there."""
    has_nodes = entries(_first_in(views, ("source_nodes",))) is not None
    return None if has_nodes else _first_listed(views, _SOURCE_FIELDS)


def _components(result: Any) -> Iterator[Any]:
    """The outputs of the components of a Haystack pipeline, the last one first."""
    if type(result) is not dict or len(result) > _MAX_COMPONENTS:
        return
    for output in reversed(result.values()):
        if type(output) is dict and not output.keys().isdisjoint(_COMPONENT_FIELDS):
            answers = output.get("answers")
            yield from (entries(answers) or ())[:1] if is_a(answers, list) else ()
            yield output


def text_of(value: Any, depth: int = _MAX_DEPTH) -> str | None:
    """The text of an answer or question: a string, a number as text, or the text of a message or its parts."""
    if is_str(value):
        return part_text(value)
    if value is None or not depth:
        return None
    if (found := number(value)) is not None:
        return str(found)
    if is_list(value):
        texts = [
            said for part in entries(value) or () if is_text(part) and (said := text_of(part, depth - 1)) is not None
        ]
        return "".join(texts) if texts else None
    fields = held(value)
    in_fields = (text_of(first(fields, (name,)), depth - 1) for name in _CLAIM_FIELDS)
    said = next((said for said in in_fields if said is not None), None)
    return _alternative(value, depth) if said is None else said


def _alternative(value: Any, depth: int) -> str | None:
    """The text of a message, of the first alternative that a model gave, or of the last message in a conversation."""
    if (said := message_text(value)) is not None:
        return said
    for name in _ALTERNATIVES:
        alternative, levels = stored(value, name), depth
        while is_a(alternative, list) and (listed := entries(alternative)) and levels:
            alternative, levels = listed[0], levels - 1
        said = None if is_a(alternative, list) else text_of(alternative, depth - 1)
        said = text_of(stored(alternative, "data"), depth - 1) if said is None and name == "answers" else said
        if said is not None:
            return said
    return last_text(stored(value, "messages"), ASSISTANT)


def as_id(value: Any) -> str | None:
    """An id as text, from a string, an integer or a UUID; None for all other types.

    >>> as_id("a"), as_id(7), as_id(True), as_id(1.5)
    ('a', '7', None, None)
    """
    if value is None or is_str(value):
        return None if value is None else part_text(value)
    found = number(value)
    return UUID.__str__(value) if is_a(value, UUID) else str(found) if type(found) is int else None


def stream_fields(items: Sequence[Any], site: TracedFunction) -> dict[str, Any]:
    """The fields of a stream: its text joined, and what its last item says beside that.

    Args:
        items: The items in order; texts, bytes, the chunks of a model's client, or these and a result at the end.
        site: The function, with the decorator's `reduce=` and `extract=`.
    """
    if site.reduce is not None:
        reduced = attempt("stream", lambda reduce: (reduce(list(items)),), site.reduce)
        return {} if reduced is None else extract(reduced[0], site)
    if all(is_a(item, bytes, bytearray) for item in items):
        return extract(b"".join(items).decode("utf-8", "replace"), site)
    # How long a stream may be is bounded while it runs.
    pieces = attempt("stream", lambda: [_piece(item) for item in items], steps=inf)
    if pieces is None:
        return {}
    others = [item for item, piece in zip(items, pieces, strict=True) if piece is None]
    said = "".join(piece for piece in pieces if piece is not None)
    if not others:
        return extract(said, site)
    fields = extract(items[-1] if site.extract is not None else others[-1], site)
    return {**fields, "claim": said} if said and not fields.get("claim") else fields


def _piece(item: Any) -> str | None:
    """The text that an item of a stream adds: an item that is a text, or a chunk of a model's client."""
    if is_str(item):
        return part_text(item)
    choices = stored(item, "choices")
    delta = stored((entries(choices) or [item])[0] if is_list(choices) else item, "delta")
    if delta is not None:
        return part_text(delta)
    return part_text(stored(item, "content")) if class_name(item).endswith("Chunk") else None
