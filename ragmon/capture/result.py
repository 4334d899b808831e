"""The answer and the documents of a call, looked for in its result. Runs in the worker, never on the request path.

A result may be a text, a message, a response of a web framework, an object of any class with the usual fields, or one
of these inside another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from http import HTTPStatus
from numbers import Integral
from typing import Any, Final, TypeGuard
from uuid import UUID

from ragmon.capture.call import TracedFunction
from ragmon.capture.messages import ASSISTANT, is_text, last_text, part_text
from ragmon.capture.stored import is_list, stored
from ragmon.capture.web import is_response, response_value
from ragmon.core.paths import look_up, member
from ragmon.core.text import clean

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
_LABEL_FIELDS: Final = ("qid", "index_hash", "build", "session", "model", "user")
_MAX_DEPTH: Final = 5
"""How deep the answer may be nested, for example a message in a field of the result."""
_MAX_ENVELOPES: Final = 3
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

    Raises:
        Exception: A callable `extract=` or a property of the result raised it.
    """
    if callable(site.extract):
        return dict(site.extract(result))
    if site.extract is not None:
        return {field: look_up(result, path) for field, path in site.extract.items()}
    return {field: value for field, value in _fields(result).items() if value is not None}


def _fields(result: Any) -> dict[str, Any]:
    if is_response(result):
        return _fields(response_value(result))
    if isinstance(result, str):
        return {"claim": result}
    if type(result) is tuple:
        return _fields_of_tuple(result)
    if isinstance(result, list):
        return {"claim": last_text(result, ASSISTANT)}
    if not _has_parts(result):
        return {}
    documents = look_up(result, ("retrieval", "topk"))
    parts = [*_parts(result, _MAX_ENVELOPES), *_components(result)]
    context = _first_in(parts, (CONTEXT,))
    return {
        "claim": next((text for part in parts if (text := text_of(part)) is not None), None),
        "citations": _first_in(parts, ("citations",)),
        "retrieved": _first_in(parts, _ID_LIST_FIELDS),
        "documents": _first_listed(parts, _DOCUMENT_FIELDS, documents),
        SOURCES: _sources(parts),
        CONTEXT: context if isinstance(context, str) else None,
        "candidates": _first_in(parts, _CANDIDATE_FIELDS),
        **{name: as_id(_first_in(parts, (name,))) for name in _LABEL_FIELDS},
    }


def _fields_of_tuple(result: tuple[Any, ...]) -> dict[str, Any]:
    """The fields of several return values: an answer and its documents, or the body and status of a response."""
    if len(result) > 1 and (isinstance(result[1], HTTPStatus) or type(result[1]) is int):
        return _fields(result[0])
    answers = (part for part in result if isinstance(part, str) or _has_parts(part))
    fields = next((fields for part in answers if (fields := _fields(part)).get("claim") is not None), {})
    documents = next((part for part in result if isinstance(part, list)), None)
    name = "documents" if documents is None or not are_ids(documents) else "retrieved"
    return {**fields, name: documents} if documents is not None and fields else fields


def are_ids(documents: Collection[Any]) -> bool:
    """Whether documents are short texts without spaces, as ids and file names are: a passage must never pass for an id.

    Many scripts are written without spaces, so these texts are ASCII.
    """
    return bool(documents) and all(isinstance(entry, str) and _ID.fullmatch(entry) for entry in documents)


def _parts(result: Any, depth: int) -> Iterator[Any]:
    """A result and the results inside it, the innermost first."""
    if depth:
        for name in _ENVELOPES:
            # A property `data` is deprecated in some libraries, and warns.
            inner = stored(result, name) if name == "data" else member(result, name)
            if _has_parts(inner):
                yield from _parts(inner, depth - 1)
    yield result


def _has_parts(value: Any) -> bool:
    """Whether an answer is an object with members, and no text."""
    return value is not None and not isinstance(value, str | int | float) and not is_list(value)


def _first_in(parts: Sequence[Any], names: Sequence[str]) -> Any:
    return next((value for part in parts for name in names if (value := member(part, name)) is not None), None)


def _first_listed(parts: Sequence[Any], names: Sequence[str], default: Any = None) -> Any:
    values = (member(part, name) for part in parts for name in names)
    return next((value for value in values if is_listed(value)), default)


def _sources(parts: Sequence[Any]) -> Any:
    """The documents under `sources`; beside `source_nodes`, LlamaIndex has the outputs of tools there."""
    return None if is_listed(_first_in(parts, ("source_nodes",))) else _first_listed(parts, _SOURCE_FIELDS)


def _components(result: Any) -> Iterator[Any]:
    """The outputs of the components of a Haystack pipeline, the last one first."""
    if type(result) is not dict or len(result) > _MAX_COMPONENTS:
        return
    for output in reversed(result.values()):
        if type(output) is dict and not output.keys().isdisjoint(_COMPONENT_FIELDS):
            answers = output.get("answers")
            yield from answers[:1] if isinstance(answers, list) else ()
            yield output


def text_of(value: Any, depth: int = _MAX_DEPTH) -> str | None:
    """The text of an answer or question: a string, a number as text, or the text of a message or its parts."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, bool) or not depth:
        return None
    if isinstance(value, int | float):
        return str(value)
    if is_list(value):
        texts = [text for part in value if is_text(part) and (text := text_of(part, depth - 1)) is not None]
        return "".join(texts) if texts else None
    in_fields = (text_of(member(value, name), depth - 1) for name in _CLAIM_FIELDS)
    text = next((text for text in in_fields if text is not None), None)
    return _alternative(value, depth) if text is None else text


def _alternative(value: Any, depth: int) -> str | None:
    """The text of the first alternative that a model gave, or of its last message in a conversation."""
    for name in _ALTERNATIVES:
        first = member(value, name)
        while isinstance(first, list) and first:
            first = first[0]
        text = None if isinstance(first, list) else text_of(first, depth - 1)
        text = text_of(stored(first, "data"), depth - 1) if text is None and name == "answers" else text
        if text is not None:
            return text
    return last_text(member(value, "messages"), ASSISTANT)


def is_listed(value: Any) -> TypeGuard[Collection[Any]]:
    """Whether a value is a collection that can be read twice: to read an iterator would consume the application's."""
    if value is None or type(value) is list:  # a check of the abstract classes takes ten times as long
        return value is not None
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping | AbstractSet)


def as_id(value: Any) -> str | None:
    """An id as text, from a string, an integer or a UUID; None for all other types.

    >>> as_id("a"), as_id(7), as_id(True), as_id(1.5)
    ('a', '7', None, None)
    """
    if value is None or isinstance(value, str):
        return None if value is None else clean(value)
    if isinstance(value, bool) or not isinstance(value, Integral | UUID):
        return None
    return str(value)


def stream_fields(items: Sequence[Any], site: TracedFunction) -> dict[str, Any]:
    """The fields of a stream: its text joined, and what its last item says beside that.

    Args:
        items: The items in order; texts, bytes, the chunks of a model's client, or these and a result at the end.
        site: The function, with the decorator's `reduce=` and `extract=`.

    Raises:
        Exception: A callable `reduce=` or `extract=` raised it.
    """
    if site.reduce is not None:
        return extract(site.reduce(list(items)), site)
    if all(isinstance(item, bytes | bytearray) for item in items):
        return extract(b"".join(items).decode("utf-8", "replace"), site)
    pieces = [_piece(item) for item in items]
    others = [item for item, piece in zip(items, pieces, strict=True) if piece is None]
    text = "".join(piece for piece in pieces if piece is not None)
    if not others:
        return extract(text, site)
    fields = extract(items[-1] if site.extract is not None else others[-1], site)
    return {**fields, "claim": text} if text and not fields.get("claim") else fields


def _piece(item: Any) -> str | None:
    """The text that an item of a stream adds: an item that is a text, or a chunk of a model's client."""
    if isinstance(item, str):
        return item
    choices = member(item, "choices")
    delta = member(choices[0] if is_list(choices) and choices else item, "delta")
    if delta is not None:
        return part_text(delta)
    return part_text(member(item, "content")) if type(item).__name__.endswith("Chunk") else None
