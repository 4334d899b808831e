"""What requests and responses of web frameworks hold in memory: query, parsed body, rendered body.

They are known by their shape: Starlette, FastAPI, Flask, Django, aiohttp, API gateways. Nothing is read from a
connection: a body that the application has not read is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import Context
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from ragmon.capture.layouts import is_a
from ragmon.capture.stored import storage, stored, stored_fields

_MAX_BODY: Final = 1 << 20
"""The bytes of a body that is decoded; a longer one is unknown."""
_MAX_QUERY: Final = 1 << 16
_MAX_QUERY_FIELDS: Final = 64
_PARSED: Final = ("_json", "_cached_json", "_full_data", "_form", "_post", "GET", "_query_params")
"""Where a request keeps what it has parsed: Starlette, Flask, Django REST framework, forms, queries."""
_RAW: Final = ("_body", "_cached_data", "_read_bytes")
"""Where a request keeps the bytes of a body that was read."""
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
    """The fields of a request's parsed body, then those of its query.

    Args:
        request: A value that `is_request`.
    """
    for name in _PARSED:
        yield _as_fields(stored(request, name))
    for name in _RAW:
        yield _as_fields(decoded(stored(request, name)))
    environment = _environment(request) or {}
    if request is environment:
        yield _as_fields(decoded(environment.get("body")))
        yield _as_fields(environment.get(_GATEWAY_QUERY))
    yield _query(environment.get("query_string", environment.get("QUERY_STRING")))


def _environment(value: Any) -> dict[str, Any] | None:
    """The dictionary that describes a request: a `scope` of ASGI, an `environ` of WSGI, the event of a gateway."""
    fields = storage(value)
    inner = dict.get(fields, "_request")  # Django REST framework
    holders = (fields,) if inner is None else (fields, storage(inner))
    candidates = (value, *(dict.get(holder, name) for holder in holders for name in ("scope", "environ")))
    return next((candidate for candidate in candidates if type(candidate) is dict and _describes(candidate)), None)


def _describes(environment: dict[str, Any]) -> bool:
    is_asgi = "path" in environment and environment.get("type") in ("http", "websocket")
    return is_asgi or "REQUEST_METHOD" in environment or _GATEWAY_QUERY in environment


def _as_fields(value: Any) -> dict[str, Any]:
    """The fields of a parsed body or form; of a field with several values the last one."""
    if type(value) is tuple and value:  # Flask keeps a value for each way to parse
        value = value[0]
    if type(value) is not dict:
        parsed = stored(value, "_dict")
        value = value if parsed is None else parsed
    if type(value) is dict or not is_a(value, dict):
        return value if type(value) is dict else {}
    return {name: field[-1] if type(field) is list and field else field for name, field in stored_fields(value).items()}


def _query(text: Any) -> dict[str, Any]:
    if type(text) is bytes:
        text = text.decode("utf-8", "replace")
    if type(text) is not str or len(text) > _MAX_QUERY:
        return {}
    try:
        fields = parse_qs(text, max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in fields.items()}


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
    """What a response says: the value of a JSON body, or a plain text; None where it is neither, as a page is.

    Args:
        response: A value that `is_response`.
    """
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
    """The rendered body: Starlette's `body`, the parts of Flask and Django, the text of an API gateway."""
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
    """The header that names the content type: headers are pairs or a dict, or objects that keep either."""
    headers = stored(response, "raw_headers", "headers")
    kept = stored(headers, "_list", "_store")
    kept = headers if kept is None else kept
    pairs = list(dict.items(kept)) if is_a(kept, dict) else kept if type(kept) is list else ()
    plain = (pair for pair in pairs if type(pair) is tuple and all(map(_is_plain, pair)))
    return next((text for pair in plain if "content-type" in (text := str(pair).lower())), "")


def _is_plain(part: Any) -> bool:
    """Whether to write a part of a header runs no code: a text, bytes, or a pair of them."""
    return type(part) in (str, bytes) or (type(part) is tuple and all(map(_is_plain, part)))
