"""Conversion of a finished call to a record of the contract. Runs in the worker, never on the request path.

Arguments and results are known by their shape, not by their class: requests and responses of Starlette, FastAPI, Flask,
Django, aiohttp and API gateways; chat messages of OpenAI, Anthropic, LangChain, LlamaIndex and Haystack; documents as
ids, dicts or objects. Nothing is read from a connection: a body that the application has not read is unknown.
"""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache, partial
from http import HTTPStatus
from inspect import Parameter
from itertools import chain, islice
from math import inf, isnan
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

import msgspec

from ragmon.capture.call import Call, TracedFunction
from ragmon.capture.events import is_raw_text, raw_texts, read_stream
from ragmon.capture.objects import (
    STEPS,
    attempt,
    entries,
    first,
    held,
    held_at,
    is_a,
    is_data,
    is_handle,
    is_list,
    is_str,
    number,
    plain_text,
    scalar,
    spend,
    storage,
    stored,
    stored_fields,
    unread,
)
from ragmon.core import answers, constants, shapes
from ragmon.core.citations import alike, with_marks
from ragmon.core.documents import (
    DOCUMENT_FIELDS,
    Document,
    View,
    first_known,
    list_in,
    matched,
    may_list,
    note_ids,
    read_document,
)
from ragmon.core.documents import as_id as core_id
from ragmon.core.endings import INTERRUPTED, REJECTED, is_of_web
from ragmon.core.errors import warn_once
from ragmon.core.record import DOCUMENTS, MAX_DOCUMENTS_KEPT, Answer, Latency, Record, Sampling
from ragmon.core.shapes import ASSISTANT, ROLES, USER, document_hints, is_text_kind
from ragmon.core.text import Path, clean
from ragmon.ingest.cells import cited_documents
from ragmon.ingest.spans.mapper import covered, fill
from ragmon.ingest.spans.span import SpanOptions, from_sdk_span

_MAX_BODY: Final = 1 << 20
_MAX_QUERY: Final = 1 << 16
_MAX_QUERY_FIELDS: Final = 64
_PARSED: Final = ("_json", "_cached_json", "_full_data", "_form", "_post", "GET", "_query_params")
"""Where a request keeps what it has parsed: Starlette, Flask, Django REST framework, forms, queries."""
_RAW: Final = ("_body", "_cached_data", "_read_bytes")
_GATEWAY_QUERY: Final = "queryStringParameters"
_decode = msgspec.json.Decoder().decode


def is_request(value: Any) -> bool:
    """Whether a value is an HTTP request, or the dictionary a server makes of it (ASGI, WSGI, an API gateway)."""
    return _environment(value) is not None


def requests_in(context: Context) -> Iterator[Any]:
    """The requests that context variables hold: Flask and Quart hand none to the functions that answer."""
    for value in context.values():
        request = stored(value, "request", "_request")
        if request is not None and is_request(request):
            yield request


def request_fields(request: Any) -> Iterator[dict[str, Any]]:
    """The fields of the parsed body of a request, then those of its query."""
    for name in _PARSED:
        yield _as_fields(stored(request, name))
    for name in _RAW:
        yield _as_fields(decoded(stored(request, name)))
    environment = _environment(request) or {}
    if request is environment:
        yield _as_fields(decoded(environment.get("body")))
        yield _as_fields(environment.get(_GATEWAY_QUERY))
    query = environment.get("query_string", environment.get("QUERY_STRING"))
    text = query.decode("utf-8", "replace") if type(query) is bytes else query
    if type(text) is str and len(text) <= _MAX_QUERY:
        try:
            fields = parse_qs(text, max_num_fields=_MAX_QUERY_FIELDS)
        except ValueError:
            return
        yield {name: values[-1] for name, values in fields.items()}


def _environment(value: Any) -> dict[str, Any] | None:
    # A `scope` of ASGI, an `environ` of WSGI, the event of an API gateway, the address of aiohttp.
    fields = storage(value)
    inner = dict.get(fields, "_request")  # Django REST framework
    holders = (fields,) if inner is None else (fields, storage(inner))
    for found in (value, *(dict.get(holder, name) for holder in holders for name in ("scope", "environ"))):
        if type(found) is dict:
            is_asgi = "path" in found and found.get("type") in ("http", "websocket")
            if is_asgi or "REQUEST_METHOD" in found or _GATEWAY_QUERY in found:
                return found
    url = dict.get(fields, "_rel_url")  # aiohttp
    return None if url is None else {"path_params": fields.get("_match_info"), "query_string": stored(url, "_query")}


def _as_fields(value: Any) -> dict[str, Any]:
    # Of a field with several values, the last one.
    if type(value) is tuple and value:  # Flask keeps a value for each way to parse
        value = value[0]
    if type(value) is not dict:
        parsed = stored(value, "_dict")
        value = value if parsed is None else parsed
    if type(value) is dict or not is_a(value, dict):
        return value if type(value) is dict else {}
    return {name: field[-1] if type(field) is list and field else field for name, field in stored_fields(value).items()}


def decoded(body: Any) -> Any:
    """The value of a JSON body; None where it is none, or too long."""
    if type(body) not in (bytes, bytearray, str) or len(body) > _MAX_BODY:
        return None
    try:
        return _decode(body)
    except (ValueError, RecursionError):
        return None


def is_response(value: Any) -> bool:
    """Whether a value is an HTTP response, known by its status and its body."""
    return _body(value) is not None


def response_value(response: Any) -> Any:
    """What a response says: the value of a JSON body, or a plain text; None where it is neither, as a page is."""
    if stored(response, "_is_rendered") is False:  # Django renders after its views; REST framework keeps the value
        return stored(response, "data")
    body = _body(response)
    value = decoded(body)
    if value is not None or body is None or len(body) > _MAX_BODY:
        return value
    if "text/plain" not in _content_type(response):
        return None
    return body if isinstance(body, str) else body.decode("utf-8", "replace")


def _body(response: Any) -> str | bytes | None:
    # Starlette's `body`, the parts of Flask and Django, the text of an API gateway.
    if type(response) is dict:
        body = response.get("body") if "statusCode" in response else None
    elif stored(response, "status_code", "_status_code") is not None:
        body = stored(response, "body", "response", "_content")
    else:
        body = stored(response, "_container") if stored(response, "headers") is not None else None
    if type(body) is list and all(type(part) is bytes for part in body) and sum(map(len, body)) <= _MAX_BODY:
        return b"".join(body)
    return body if type(body) in (str, bytes) else None


def _content_type(response: Any) -> str:
    # Headers are pairs or a dict, or objects that keep either.
    headers = stored(response, "raw_headers", "headers")
    kept = stored(headers, "_list", "_store")
    kept = headers if kept is None else kept
    pairs = list(dict.items(kept)) if is_a(kept, dict) else kept if type(kept) is list else ()
    plain = (pair for pair in pairs if type(pair) is tuple and all(map(_is_plain, pair)))
    return next((text for pair in plain if "content-type" in (text := str(pair).lower())), "")


def _is_plain(part: Any) -> bool:
    # To write such a part runs no code of the application.
    return type(part) in (str, bytes) or (type(part) is tuple and all(map(_is_plain, part)))


_MAX_MESSAGES: Final = 256
_MAX_MESSAGE_PARTS: Final = 256
_MAX_MESSAGE_DEPTH: Final = 4
"""How deep the text of a message may lie: a part of a content, its text, the value of that."""


def last_text(messages: Any, author: str) -> str | None:
    """The text of the last message of a role that has any.

    >>> last_text([{"role": "user", "content": "Is it?"}, {"role": "assistant", "content": "It is."}], USER)
    'Is it?'
    """
    if not is_list(messages):
        return None
    for entry in reversed((entries(messages) or ())[-_MAX_MESSAGES:]):
        if type(entry) is tuple and len(entry) == 2:  # LangChain's short form
            is_asked = is_str(entry[0]) and ROLES.get(name := plain_text(entry[0]), name) == author
            text = part_text(entry[1]) if is_asked else None
        else:
            text = message_text(entry, author)
        if text:
            return text
    return None


def message_text(message: Any, author: str | None = None) -> str | None:
    """The text of a message; None where it has no text, or another role."""
    found = role(message)
    is_asked = found is not None and author in (None, found)
    return part_text(stored(message, *shapes.CONTENT_KEYS)) if is_asked else None


def role(message: Any) -> str | None:
    """The role of a message; None where the value has no content and so is no message."""
    fields = held(message)
    if first(fields, shapes.CONTENT_KEYS) is None:
        return None
    # An enumeration of texts becomes a plain text, which has the hash of its value.
    found = next((plain_text(name) for key in shapes.ROLE_KEYS if is_str(name := dict.get(fields, key))), None)
    return None if found is None else ROLES.get(found, found)


def is_text(part: Any) -> bool:
    """Whether a part of a message is text, and no step of the model on its way: reasoning, or the call of a tool."""
    fields = held(part)
    kind = first(fields, ("type", "block_type"))
    kind = plain_text(kind) if is_str(kind) else ""
    return is_text_kind(kind) and dict.get(fields, "thought") is not True


def part_text(content: Any, depth: int = _MAX_MESSAGE_DEPTH) -> str | None:
    """The text of a message's content: a text, or the texts of its parts together."""
    if is_str(content):
        return plain_text(content)
    if not depth:
        return None
    if is_list(content):
        parts = (
            part_text(part, depth - 1) for part in (entries(content) or ())[:_MAX_MESSAGE_PARTS] if part is not None
        )
        texts = [text for text in parts if text is not None]
        return "".join(texts) if texts else None
    return part_text(stored(content, *shapes.PART_TEXT_KEYS), depth - 1) if is_text(content) else None


_QUESTION_NAMES: Final = (
    *(*shapes.QUESTION_KEYS, "message", "messages", "input", "inputs", "search", "search_query", "prompt", "text"),
)
"""Names of parameters and fields that hold the question, the surest first."""
_LABEL: Final = re.compile(
    r"(?:.*_)?(?:id|ids|key|token|lang|language|locale|user|username|tenant|session|thread|model)", re.IGNORECASE
)
"""Names of parameters and fields whose text is no question."""
_SENTENCE: Final = re.compile(r"\s|[^\x00-\x7f]|\?")
"""A text without any of these is a label, not a question."""
_NOT_READ: Final = frozenset({"config", "settings", "options", "metadata", "headers", "cookies"})
"""Names of parameters and fields that are not looked into: a prompt among settings is no question."""
_MAX_QUESTION_DEPTH: Final = 3
_MAX_OBJECTS: Final = 128


def question(
    function: TracedFunction, args: Sequence[Any], kwargs: Mapping[str, Any], context: Context | None = None
) -> Any:
    """The question of a call; None if there is none.

    It is where `question=` of the decorator says; else the parameter with a usual name; else a field with such a name
    in the other arguments, or in the request that the context holds; else the first text among the arguments, or the
    only one in an object.
    """
    if callable(function.question):
        return function.question(*args, **kwargs)
    if function.question is not None:
        return held_at(arguments(function, args, kwargs), function.question)
    passed = _without_instance(arguments(function, args, kwargs, defaults=False))
    text = _named([passed])
    if text is not None:
        return text
    read = [value for name, value in passed.items() if name not in _NOT_READ]
    text = _nested(read)
    if text is not None:
        return text
    text = _named([_without_instance(arguments(function, args, kwargs))])
    if text is None and context is not None:
        text = _nested(requests_in(context))
    if text is not None:
        return text
    text = next((text for name, text in passed.items() if is_str(text) and not _LABEL.fullmatch(name)), None)
    if text is not None:
        return text
    for value in read:
        if is_data(value) and type(value) is not dict:
            named = [(name, field) for name, field in stored_fields(value).items() if is_str(field)]
            sentences = [field for name, field in named if _SENTENCE.search(field) and not _LABEL.fullmatch(name)]
            if len(sentences) == 1:
                return sentences[0]
    return None


def _without_instance(values: dict[str, Any]) -> dict[str, Any]:
    first = next(iter(values), None)
    return {name: value for name, value in values.items() if name not in ("self", "cls") or name != first}


def _named(values: Iterable[Any], names: Sequence[str] = _QUESTION_NAMES) -> str | None:
    # The field with the surest name, over several objects: a text, a message of a user, or a list of messages.
    objects = [storage(value) for value in values]
    for name in names:
        for fields in objects:
            field, text = dict.get(fields, name), None
            if is_str(field):
                return field
            if is_list(field):
                text = last_text(field, USER)
            elif field is not None:
                author = role(field)
                is_question = author == USER or (name == "message" and author not in (ASSISTANT, *shapes.OTHER_ROLES))
                text = part_text(field) if is_question else None
            if text is not None:
                return text
    return None


def _nested(values: Iterable[Any]) -> str | None:
    # The least deep data first.
    level = [value for value in values if not is_str(value)]
    for _ in range(_MAX_QUESTION_DEPTH):
        level = level[:_MAX_OBJECTS]
        data = [inner for value in level for inner in _readable(value)]
        text = _named(data) or _named(
            (value for value in level if not (is_data(value) or is_handle(value))), shapes.QUESTION_KEYS
        )
        if text is not None:
            return text
        level = [field for value in data for name, field in stored_fields(value).items() if _holds(name, field)]
    return None


def _readable(value: Any) -> Iterator[Any]:
    if is_request(value):
        yield from request_fields(value)
    elif is_str(value):
        inner = decoded(value)
        if type(inner) is dict:
            yield inner
    elif is_data(value):
        yield value
    messages = dict.get(storage(value), "root") if is_data(value) else value  # of a root model of pydantic
    if is_list(messages):
        yield {"messages": messages}


def _holds(name: str, value: Any) -> bool:
    if is_str(value):
        return name == "body" and value.lstrip().startswith("{")
    return name not in _NOT_READ and (is_data(value) or is_request(value))


_MAX_CALLER_DEPTH: Final = 4
SESSION: Final = "session"
USER_OF_CALL: Final = "user"
_CALLER_NAMES: Final = {
    SESSION: tuple(dict.fromkeys((*shapes.SESSION_KEYS, *shapes.SESSION_OBJECTS))),
    USER_OF_CALL: tuple(dict.fromkeys((*shapes.USER_KEYS, *shapes.USER_OBJECTS))),
}
_NO_OBJECTS: Final = frozenset({str, bytes, int, float, bool, list, tuple, set, type(None)})
_CALLER_ID: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")


def session_and_user(
    function: TracedFunction, args: Sequence[Any], kwargs: Mapping[str, Any], context: Context | None = None
) -> tuple[str | None, str | None]:
    """The ids of the conversation and of the user that a call belongs to; None where there is none.

    They are arguments, or fields of data in the arguments, of settings such as LangGraph's `config` or of a request,
    whatever the case of their names: `session_id`, `threadId`. The least deep, then the surest name.
    """
    found: dict[str, str] = {}
    passed = _without_instance(arguments(function, args, kwargs, defaults=False))
    level = [passed, *(() if context is None else requests_in(context))]
    for depth in range(_MAX_CALLER_DEPTH):
        inner, best = list[Any](), dict[str, tuple[int, str]]()
        for value in level[:_MAX_OBJECTS]:
            for fields in (passed,) if value is passed else _all_fields(value):
                for name, field in fields.items():
                    kind = type(field)
                    whose, place = _caller_name(name)
                    names = shapes.SESSION_KEYS if whose == SESSION else shapes.USER_KEYS
                    # A parameter `user` may be what a user says, and a `chat` a text.
                    is_text = kind is str and (place >= len(names) or (name == "user" and not depth))
                    if whose and not is_text:
                        text = as_id(field)
                        if text is None and kind not in _NO_OBJECTS:
                            text = as_id(stored(field, "id", "uuid", *names))
                        if text is not None and _CALLER_ID.fullmatch(text):
                            best[whose] = min(best.get(whose, (place, text)), (place, text))
                    if kind not in _NO_OBJECTS and (is_data(field) or is_request(field)):
                        inner.append(field)
        found = {whose: text for whose, (_, text) in best.items()} | found
        if len(found) == 2 or not inner:
            break
        level = inner
    return found.get(SESSION), found.get(USER_OF_CALL)


def _all_fields(value: Any) -> Iterator[dict[str, Any]]:
    is_model = type(value) is not dict and is_data(value)
    if not is_model and is_request(value):
        yield from request_fields(value)
        yield _as_fields((_environment(value) or {}).get("path_params"))
    else:
        yield stored_fields(value)


@lru_cache(4096)  # every call has the same few names
def _caller_name(name: str) -> tuple[str, int]:
    # Whose id a field with this name holds, and how sure that is; "" where it holds none.
    key = shapes.normalised(name)
    for whose, names in _CALLER_NAMES.items():
        if key in names:
            return whose, names.index(key)
    return "", 0


def arguments(
    function: TracedFunction, args: Sequence[Any], kwargs: Mapping[str, Any], *, defaults: bool = True
) -> dict[str, Any]:
    """The arguments of a call by parameter name; those of catch-all parameters have their own names or numbers.

    Without `defaults`, only the arguments that were passed.
    """
    names = None if defaults else function.parameter_names
    if names is not None and len(args) <= len(names):
        return {**dict(zip(names, args, strict=False)), **kwargs}
    try:
        bound = function.signature.bind_partial(*args, **kwargs) if function.signature is not None else None
    except TypeError:  # the call itself has already raised for such arguments
        bound = None
    if bound is None:
        return {**{str(index): value for index, value in enumerate(args)}, **kwargs}
    if defaults:
        bound.apply_defaults()
    values = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is Parameter.VAR_POSITIONAL:
            values.update({f"{name}[{index}]": entry for index, entry in enumerate(value)})
        elif kind is Parameter.VAR_KEYWORD:
            values.update(value)
        else:
            values[name] = value
    return values


_ENVELOPES: Final = (
    *("structured_response", "final_result", "answer_json", "answer", "response", "result", "output", "data"),
)
"""Fields that may hold the whole result; the innermost result is read first."""
_SOURCE_FIELDS: Final = ("sources", "references")
"""The retrieved documents, or those of them that the answer cites."""
_COMPONENT_FIELDS: Final = frozenset({"replies", "answers", "documents"})
_CANDIDATE_FIELDS: Final = ("candidates", "candidate_ids")
LABEL_FIELDS: Final = ("qid", "index_hash", "build", "session", "model", "user")
_RESULT_SESSION: Final = tuple(
    name for key in shapes.SESSION_KEYS[:5] for name in dict.fromkeys((key, re.sub("_i", "I", key)))
)
_MESSAGES: Final[tuple[Path, ...]] = ((), ("choices", 0, "message"), ("message",), ("output", -1))
_MAX_ANSWER_DEPTH: Final = 5
_MAX_ENVELOPES: Final = 3
_MAX_PARTS: Final = 64
_MAX_RETURNED: Final = 8
_MAX_COMPONENTS: Final = 32
_STREAM_STEPS: Final = 500 * STEPS
_ID: Final = re.compile(r"[!-~]{1,200}")
SOURCES: Final = "sources"
CONTEXT: Final = "context"
"""Fields of `extract` beside those of `ragmon.record`: see there."""


def extract(result: Any, function: TracedFunction) -> dict[str, Any]:
    """The fields of any result, named as in `ragmon.record`.

    Documents without an id list are under `documents`, those that may be citations under `sources`, and a text that was
    made of all of them under `context`.
    """
    paths = function.extract
    if callable(paths):
        return attempt("result", lambda: dict(paths(result))) or {}
    if paths is not None:
        return {field: attempt(field, held_at, result, path) for field, path in paths.items()}
    fields = attempt("result", _result_fields, result, steps=2 * STEPS) or {}
    return {field: value for field, value in fields.items() if value is not None}


def _result_fields(result: Any) -> dict[str, Any]:
    if is_response(result):
        return _result_fields(response_value(result))
    if is_str(result):
        return {"claim": result}
    if type(result) is tuple:
        if len(result) > 1 and (type(result[1]) is int or is_a(result[1], HTTPStatus)):  # a response with its status
            return _result_fields(result[0])
        result = result[:_MAX_RETURNED]
        answers = (part for part in result if is_str(part) or _has_parts(part))
        fields = next((fields for part in answers if (fields := _result_fields(part)).get("claim") is not None), {})
        documents = next((part for part in result if not is_a(part, tuple) and entries(part) is not None), None)
        if documents is None or not fields:
            return fields
        return {**fields, "retrieved" if are_ids(documents) else "documents": documents}
    if is_a(result, list):
        claim = last_text(result, ASSISTANT)
        if claim is None and all(_is_text_part(part) for part in entries(result) or ()):
            claim = text_of(result)
        return {"claim": claim, "citations": _cited_in([result])}
    if not _has_parts(result):
        return {}
    parts = [*islice(_inside(result, _MAX_ENVELOPES), _MAX_PARTS), result, *_components(result)]
    views = [view for part in parts if (view := attempt("result", held, part)) is not None]
    context, citations = _first_in(views, (CONTEXT,)), _first_in(views, ("citations",))
    # Beside `source_nodes`, LlamaIndex has the outputs of tools under `sources`.
    has_nodes = entries(_first_in(views, ("source_nodes",))) is not None
    claim = attempt("claim", lambda: next((text for part in parts if (text := text_of(part)) is not None), None))
    return {
        "claim": claim,
        "refused": attempt("claim", _refuses, result) or None,
        "citations": _cited_in(parts) if citations is None and claim is not None else citations,
        "retrieved": _first_in(views, shapes.ID_LIST_KEYS),
        "documents": _first_listed(views, DOCUMENT_FIELDS, held_at(result, ("retrieval", "topk"))),
        SOURCES: None if has_nodes else _first_listed(views, _SOURCE_FIELDS),
        CONTEXT: context if is_str(context) else None,
        "candidates": _first_in(views, _CANDIDATE_FIELDS),
        **{
            name: attempt(name, as_id, _first_in(views, (name,) if name != SESSION else _RESULT_SESSION))
            for name in LABEL_FIELDS
        },
    }


def _refuses(result: Any) -> bool:
    if any(stored(result, name) is says for name, says in answers.REFUSES.items()):
        return True
    # Of a client of OpenAI: a message has a refusal in place of a text, or as a part of its content.
    for path in _MESSAGES:
        message = held_at(result, path)
        content = stored(message, "content")
        if content is None and is_str(stored(message, answers.REFUSAL)):
            return True
        kinds = (stored(part, "type") for part in entries(content) or ())
        if any(is_str(kind) and kind == answers.REFUSAL for kind in kinds):
            return True
    return False


def _cited_in(parts: Sequence[Any]) -> list[Any] | None:
    # Beside the parts of the answer's content.
    found = (attempt("citations", shapes.citations_in, part, held, entries, steps=STEPS // 4) for part in parts)
    return next((cited for cited in found if cited is not None), None)


def _is_text_part(part: Any) -> bool:
    kind = stored(part, "type")
    return is_str(kind) and plain_text(kind) in shapes.TEXT_PARTS


def are_ids(documents: Any) -> bool:
    """Whether documents are short texts without spaces, as ids and file names are: a passage must never pass for an id.

    Many scripts are written without spaces, so these texts are ASCII.
    """
    found = (list_in(documents, OBJECTS) or ())[:MAX_DOCUMENTS_KEPT]
    return bool(found) and all(is_str(entry) and _ID.fullmatch(entry) for entry in found)


def _inside(result: Any, depth: int) -> Iterator[Any]:
    # The innermost first.
    fields = held(result) if depth else {}
    inner = {id(part): part for name in _ENVELOPES if _has_parts(part := first(fields, (name,))) and part is not result}
    for part in inner.values():
        yield from _inside(part, depth - 1)
        yield part


def _has_parts(value: Any) -> bool:
    return value is not None and not is_a(value, str, int, float) and not is_list(value)


def _first_in(views: Sequence[dict[str, Any]], names: Sequence[str]) -> Any:
    return next((value for fields in views if (value := first(fields, names)) is not None), None)


def _first_listed(views: Sequence[dict[str, Any]], names: Sequence[str], default: Any = None) -> Any:
    values = (first(fields, (name,)) for fields in views for name in names)
    return next((value for value in values if value is not None and may_list(value, OBJECTS)), default)


def _components(result: Any) -> Iterator[Any]:
    # Of a Haystack pipeline, the last component first.
    if type(result) is not dict or len(result) > _MAX_COMPONENTS:
        return
    for output in reversed(result.values()):
        if type(output) is dict and not output.keys().isdisjoint(_COMPONENT_FIELDS):
            answers = output.get("answers")
            yield from (entries(answers) or ())[:1] if is_a(answers, list) else ()
            yield output


def text_of(value: Any, depth: int = _MAX_ANSWER_DEPTH) -> str | None:
    """The text of an answer or question: a string, a number as text, or the text of a message or its parts."""
    if is_str(value):
        return part_text(value)
    if value is None or not depth:
        return None
    if (found := number(value)) is not None:
        return str(found)
    if is_list(value):
        texts = [
            text for part in entries(value) or () if is_text(part) and (text := text_of(part, depth - 1)) is not None
        ]
        return "".join(texts) if texts else None
    fields = held(value)
    for name in shapes.ANSWER_KEYS:
        if (text := text_of(first(fields, (name,)), depth - 1)) is not None:
            return text
    if (text := message_text(value)) is not None:
        return text
    for name in shapes.ALTERNATIVES:
        alternative, levels = stored(value, name), depth
        while is_a(alternative, list) and (listed := entries(alternative)) and levels:
            alternative, levels = listed[0], levels - 1
        text = None if is_a(alternative, list) else text_of(alternative, depth - 1)
        text = text_of(stored(alternative, "data"), depth - 1) if text is None and name == "answers" else text
        if text is not None:
            return text
    return last_text(stored(value, "messages"), ASSISTANT)


def as_id(value: Any) -> str | None:
    """An id as text: of a text, bytes, a whole number, or an id of a database; None for other values.

    >>> as_id("a"), as_id(7), as_id(7.0), as_id(True), as_id(1.5)
    ('a', '7', '7', None, None)
    """
    return None if value is None else core_id(scalar(value))


def stream_fields(items: Sequence[Any], function: TracedFunction, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stream: its answer, and what its events say beside that.

    What the call has recorded needs no reading.
    """
    if function.reduce is not None:
        reduced = attempt("stream", lambda reduce: (reduce(list(items)),), function.reduce)
        return {} if reduced is None else extract(reduced[0], function)
    if function.extract is not None:
        return extract("".join(raw_texts(items)) if all(map(is_raw_text, items)) else items[-1], function)
    reader = attempt("stream", read_stream, items, text_of, _result_fields, steps=_STREAM_STEPS)
    if reader is None:
        return {}
    claim = reader.answer() if items else ""
    if claim is None and not reader.is_broken and recorded.get("claim") is None:
        unread["claim", "not_understood"] += 1
        seen = "; ".join(f"`{shape}`" for shape in reader.strange) or "no event is an answer"
        warn_once(
            f"a stream has no answer, as its events are not understood ({seen}): @ragmon.trace(reduce=...) makes the "
            "answer of its items, or ragmon.record(claim=...) in the call says it"
        )
    return {**reader.fields, "claim": claim}


_NO_ID: Final = "a document or citation has no id: say where it is with id_from; metrics by ids stay unassessed"
_TITLE: Final = 200
"""Characters; a longer text among `sources` is a passage."""


class CapturedDocuments(NamedTuple):
    """Documents in rank order; None where there is no list."""

    documents: Sequence[Document] | None = None

    @property
    def ids(self) -> list[str] | None:
        """Their ids; None unless every document has one."""
        ids = (
            None if self.documents is None else [each.label if each.id is None else each.id for each in self.documents]
        )
        return None if ids is None or None in ids else [name for name in ids if name is not None]

    @property
    def texts(self) -> list[str] | None:
        """The same of their texts."""
        texts = [each.text for each in self.documents or ()]
        return [text for text in texts if text is not None] if texts and None not in texts else None

    @property
    def scores(self) -> list[float] | None:
        """The same of their scores."""
        scores = [each.score for each in self.documents or ()]
        return [score for score in scores if score is not None] if scores and None not in scores else None

    @property
    def titles(self) -> Sequence[str | None]:
        """Of each document, where it has one."""
        return [each.title for each in self.documents or ()]

    def completed(self, pool: CapturedDocuments) -> CapturedDocuments:
        """With what a reranker left out, from the documents that it was given."""
        if not self.documents or not pool.documents:
            return self
        return CapturedDocuments(attempt("documents", matched, self.documents, pool.documents) or self.documents)


def _members(value: Any) -> dict[str, Any]:
    # As in JSON, an object may be written as text.
    if not is_str(value):
        return held(value)
    inner = decoded(value) if str.lstrip(value)[:1] == "{" else None
    return inner if type(inner) is dict else {}


OBJECTS: Final = View(_members, entries, scalar, partial(attempt, steps=inf))


def read_documents(value: Any, id_from: Path | None, *, strings: str = "ids") -> CapturedDocuments:
    """The documents in a value in rank order; a plain text among them is an id or a text (`strings`)."""
    listed = None if value is None else attempt("documents", list_in, value, OBJECTS, steps=inf)
    if listed is None:
        return CapturedDocuments()
    if len(listed) > MAX_DOCUMENTS_KEPT:
        warn_once(
            f"a retrieval found more than {DOCUMENTS} documents: ranks end there, and metrics of whole lists are "
            "unassessed"
        )
        listed = listed[:MAX_DOCUMENTS_KEPT]
    known = [entry for entry in listed if entry is not None and not (type(entry) is float and isnan(entry))]
    if listed and not known:
        return CapturedDocuments()

    def read() -> list[Document]:
        found = [read_document(entry, OBJECTS, id_from, are_ids=strings == "ids") for entry in known]
        for each, entry in zip(found, known if document_hints.room > 0 else (), strict=False):
            note_ids(each, entry, OBJECTS)
        return found

    return CapturedDocuments(attempt("documents", read, steps=inf))


_CITED: Final = frozenset((*shapes.CITED_KEYS, *shapes.CITED_INNER))
_CITED_FIELDS: Final = 256
_CITED_STEPS: Final = 20 * STEPS


def answer(fields: Mapping[str, Any], documents: CapturedDocuments, id_from: Path | None) -> Answer:
    """The answer in the fields."""
    names = cited(fields.get("citations"), documents.ids, id_from, documents.titles)
    return Answer(fields.get("claim"), names, refused=fields.get("refused") or None)


def cited(
    citations: Any, retrieved_ids: Sequence[str] | None, id_from: Path | None, titles: Sequence[str | None] = ()
) -> list[str] | None:
    """The documents that a list of citations names, or one citation."""

    def names() -> list[str] | None:
        plain = _plain(citations, {*_CITED, *(id_from or ())}, shapes.CITED_DEPTH + 1)
        ids = retrieved_ids or ()
        pairs = zip(ids, titles, strict=True) if len(titles) == len(ids) else ()
        return cited_documents(plain, retrieved_ids, id_from, pairs)

    found = None if citations is None else attempt("citations", names, steps=_CITED_STEPS)
    if found is None and citations is not None:
        warn_once(_NO_ID)
    return found


def _plain(value: Any, wanted: Collection[str | int], depth: int) -> Any:
    # A citation in JSON, of objects only the wanted fields. A value that is none of JSON becomes an empty object.
    spend(1)
    if value is None or type(value) is bool:
        return value
    if (found := scalar(value)) is not None:
        return found
    if not depth:
        return {}
    kind = next((kind for kind in (set, frozenset) if is_a(value, kind)), None)
    listed = entries(value) if kind is None else list(islice(kind.__iter__(value), MAX_DOCUMENTS_KEPT))
    if listed is None:
        fields = list(islice(dict.items(held(value)), _CITED_FIELDS))
        return {
            name: _plain(field, wanted, depth - 1)
            for name, field in fields
            if is_str(name) and (name in wanted or shapes.normalised(name) in wanted)
        }
    if type(value) is tuple and len(value) == 2 and type(number(value[1])) is float:  # a document and its score
        listed = value[:1]
    return [_plain(entry, wanted, depth - 1) for entry in listed[:MAX_DOCUMENTS_KEPT]]


def call_to_record(call: Call, *, build: str | None = None) -> Record:
    """The record of a call; spans of the application's tracer inside it fill its missing fields.

    `build` is the application's version, unless the call has set another.
    """
    function = call.traced_function
    id_from = function.id_from or call.plan.id_from
    fields = _call_fields(call)
    candidates = read_documents(fields.get("candidates"), id_from)
    documents = _documents(fields, candidates, id_from)
    parent, decision = call.parent, call.decision

    def asked() -> str | None:
        recorded = fields.get("question")
        return text_of(question(function, call.args, call.kwargs, call.context) if recorded is None else recorded)

    ended = call.ending or (None if call.error is not None else attempt("ending", _ending, call))
    labels: dict[str, Any] = {name: attempt(name, as_id, fields.get(name)) for name in LABEL_FIELDS}
    if not (labels["session"] and labels["user"]):
        found = attempt("session", session_and_user, function, call.args, call.kwargs, call.context) or (None, None)
        labels["session"], labels["user"] = labels["session"] or found[0], labels["user"] or found[1]
    labels["build"] = labels["build"] or build
    if call.probe is not None:
        labels["qid"] = as_id(call.probe)
    record = Record(
        v=constants.CONTRACT_VERSION,
        trace_id=call.trace_id,
        ts=call.ts,
        pipeline=clean(call.plan.pipeline),
        source=constants.LIVE if call.probe is None else constants.PROBE,
        q=attempt("question", asked),
        retrieved_ids=_ids(documents),
        candidate_ids=_ids(candidates),
        scores=documents.scores,
        contexts=documents.texts,
        answer_json=answer(fields, documents, id_from) if call.error is None and ended is None else None,
        error=call.error,
        latency_ms=_latency(call),
        sampling=Sampling(
            audit=decision.audit,
            stratum=call.stratum,
            p_audit=decision.p_audit,
            p=decision.p(call.plan.outcome_rates.get(call.stratum, 0.0)) if decision.known else 1.0,
        ),
        partial=not call.detailed or ended is not None,
        ended=ended,
        exported=None if parent is None else parent.sampled,
        parent_span_id=None if parent is None else f"{parent.span_id:016x}",
        tags=attempt("tags", _tags, fields.get("tags")),
        **labels,
    )
    if call.spans:
        spans = map(from_sdk_span, call.spans)
        options = SpanOptions(id_from, retrievers=call.plan.retrievers, reasoning=call.plan.reasoning)
        filled = attempt("spans", fill, record, spans, options)
        record = filled or record
    attempt("sources", _add_sources, record, fields, id_from, documents.titles, steps=inf)
    if documents.ids is None and record.retrieved_ids and record.answer_json and fields.get("citations") is not None:
        own = cited(fields["citations"], record.retrieved_ids, id_from)
        if own is not None and not set(own).isdisjoint(record.retrieved_ids):
            record.answer_json.citations = own
    record.answer_json = with_marks(record.answer_json, record.retrieved_ids)
    if record.error is None and record.ended is None:
        attempt("hints", _note_paths, call, record, steps=inf)
    return record


_HINT_DEPTH: Final = 3


def _note_paths(call: Call, record: Record) -> None:
    """Note where the call holds a text or a list that may be what its record lacks: names of fields, no contents."""
    lacks = {
        "question": record.q is None,
        "answer": record.answer_json is None or (record.answer_json.claim is None and not record.answer_json.refused),
        "ids": record.retrieved_ids is None,
    }
    for field, is_missing in lacks.items():
        key = f"{record.pipeline or constants.DEFAULT_PIPELINE} {field}"
        if is_missing and shapes.path_hints.get(key) is None:
            asked = field == "question"
            where = arguments(call.traced_function, call.args, call.kwargs, defaults=False) if asked else call.result
            _, path = max(_places(where, field == "ids"), default=(0, ""))
            shapes.path_hints.put(key, path)  # none, too: it is looked for once


def _places(value: Any, of_lists: bool, path: tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
    # The paths of texts with several words, or of lists of objects, each with its length.
    for name, field in islice(held(value).items(), shapes.HINT_KEYS):
        if type(name) is not str or not name.isidentifier() or len(name) > shapes.LONGEST_KEY:
            continue
        below = (*path, name)
        listed = entries(field) if of_lists else None
        if of_lists and listed and held(listed[0]):
            yield len(listed), ".".join(below)
        elif not of_lists and is_str(field) and " " in (part_text(field) or "").strip():
            yield len(field), ".".join(below)
        elif len(below) < _HINT_DEPTH and not is_str(field):
            yield from _places(field, of_lists, below)


def _add_sources(record: Record, fields: Mapping[str, Any], id_from: Path | None, titles: Sequence[str | None]) -> None:
    sources, context = fields.get(SOURCES), fields.get(CONTEXT)
    if sources is not None and record.retrieved_ids is None and record.contexts is None:
        listed = (entries(sources) or ())[:MAX_DOCUMENTS_KEPT]
        are_short = all(is_str(entry) and str.__len__(entry) <= _TITLE for entry in listed)
        if not (listed and are_short) or are_ids(listed):  # titles are neither ids nor passages
            found = read_documents(sources, id_from, strings="ids" if are_ids(sources) else "texts")
            record.retrieved_ids, record.contexts, record.scores = _ids(found), found.texts, found.scores
    elif sources is not None and record.answer_json is not None and record.answer_json.citations is None:
        retrieved = record.retrieved_ids
        names = cited(sources, retrieved, id_from, titles)
        record.answer_json.citations = names if names is None or retrieved is None or alike(names, retrieved) else None
    is_alone = record.retrieved_ids is None or len(record.retrieved_ids) == 1
    if record.contexts is None and context and is_alone:
        record.contexts = [clean(context)]


def _call_fields(call: Call) -> dict[str, Any]:
    fields = dict(call.fields or {})
    if "candidates" in fields:
        batches = attempt(
            "candidates", lambda: [list_in(batch, OBJECTS) or () for batch in fields["candidates"]], steps=inf
        )
        fields["candidates"] = list(islice(chain.from_iterable(batches or ()), MAX_DOCUMENTS_KEPT))
    if call.error is not None or call.ending is not None:
        return fields
    function = call.traced_function
    found = extract(call.result, function) if call.items is None else stream_fields(call.items, function, fields)
    return _taken_apart({**found, **fields}, call.plan.reasoning)


def _taken_apart(fields: dict[str, Any], reasoning: Sequence[str] = ()) -> dict[str, Any]:
    # What the text of an answer holds counts where the call says nothing of it.
    text = attempt("claim", text_of, fields.get("claim"))
    reply = None if text is None else attempt("claim", answers.parse, text, reasoning)
    if reply is None:
        return {**fields, "claim": None}
    documents = reply.documents
    if documents is not None and fields.keys().isdisjoint(("retrieved", "documents", SOURCES)):
        fields["retrieved" if are_ids(documents) else "documents"] = documents
    citations = fields.get("citations")
    fields |= {"claim": reply.claim, "citations": reply.citations if citations is None else citations}
    return {**fields, "refused": True} if reply.refused else fields


def _ending(call: Call) -> str | None:
    # How a call ended that returned, and not with an answer.
    last = call.items[-1] if call.items else call.result
    pair = last if type(last) is tuple and last else (last,)
    if type(pair[-1]) is dict and "__interrupt__" in pair[-1]:  # what a graph of LangGraph asks a person
        return INTERRUPTED
    if type(last) is dict:
        status = last.get("statusCode") if "body" in last else None
    elif len(pair) > 1:
        status = pair[1] if type(pair[1]) is int or is_a(pair[1], HTTPStatus) else None
    else:
        status = stored(last, "status_code", "_status_code", "_status") if is_of_web(type(last)) else None
    # A status with which an application answers its client, and gives no answer.
    return REJECTED if isinstance(status, int) and 300 <= status < HTTPStatus.INTERNAL_SERVER_ERROR else None


def _ids(documents: CapturedDocuments) -> list[str] | None:
    ids = documents.ids
    if ids is None and documents.documents:
        warn_once(_NO_ID)
    return ids


def _documents(fields: Mapping[str, Any], candidates: CapturedDocuments, id_from: Path | None) -> CapturedDocuments:
    documents = read_documents(fields.get("documents"), id_from, strings="texts").completed(candidates)
    retrieved = read_documents(fields.get("retrieved"), id_from).completed(documents).completed(candidates)
    if not retrieved.documents or not documents.documents:
        return documents if retrieved.documents is None else retrieved
    if len(retrieved.documents) != len(documents.documents):
        has_more = retrieved.ids is None and (documents.ids is not None or retrieved.texts is None)
        return documents if has_more else retrieved
    rows = zip(retrieved.documents, documents.documents, strict=True)
    return CapturedDocuments([first_known(*row) for row in rows])


def _tags(tags: Any) -> dict[str, str] | None:
    # Booleans as in JSON; None is no tag.
    if not is_a(tags, dict, UserDict, MappingProxyType):
        return None
    texts = ((_tag(name), _tag(tag)) for name, tag in list(dict.items(storage(tags))))
    return {name: tag for name, tag in texts if name is not None and tag is not None}


def _tag(value: Any) -> str | None:
    if type(value) in (bool, date, datetime, Decimal):
        return str(value).lower() if type(value) is bool else str(value)
    found = scalar(value)
    return None if found is None else str(found)


def _latency(call: Call) -> Latency:
    def milliseconds(stage: str) -> float | None:
        intervals = [(started, ended) for name, started, ended in call.stages or () if name == stage]
        return round(covered(intervals) * 1000, 3) if intervals else None

    total = None if call.seconds is None else round(call.seconds * 1000, 3)
    return Latency(total=total, retrieve=milliseconds("retrieve"), generate=milliseconds("generate"))
