"""Repair of OTLP requests that no parser accepts: invalid text is repaired, and malformed spans are left out.

Programs truncate text inside a character. In UTF-8 an incomplete sequence of bytes is left; in UTF-16 half of a
surrogate pair is left, which JSON writes as an escape. Both become a question mark, as in `ragmon.core.text.clean`. All
of this runs only for requests that could not be read.
"""

from __future__ import annotations

import json as lenient
import re
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragmon.core import constants
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp.attribute_layouts import OneByKind, bytes_classes
from ragmon.ingest.otlp.batch import SpanBatch

MALFORMED_PROTOBUF: Final = "malformed_protobuf"
"""The reason for a request or span that is rejected because it is no protocol message of that type."""
_MAX_REPAIRS: Final = 100_000
"""The maximum number of half surrogate pairs of each kind that are repaired in one request; a truncated text has
one."""
_MAX_LENIENT_BYTES: Final = 1 << 20
"""The maximum length of a JSON span that is also read by Python's looser rules, which take ten times as long."""
_HIGH_SURROGATE: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW_SURROGATE: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# Escaped backslashes may precede an escape: two of them are one backslash of the text.
_LONE_SURROGATES: Final = (
    re.compile(rb"(?<!\\)((?:\\\\)+u[dD][89abAB][0-9a-fA-F]{2})" + _LOW_SURROGATE),
    re.compile(rb"(?<!\\)((?:\\\\)*)" + _HIGH_SURROGATE + rb"(?!" + _LOW_SURROGATE + rb")"),
    re.compile(rb"(?<!\\)(?:((?:\\\\)+)|(?<!" + _HIGH_SURROGATE + rb"))" + _LOW_SURROGATE),
)
"""Half surrogate pairs: a low one after text that looks like a high one, a high one alone, a low one alone."""
_ANY_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKET: Final = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([{}\[\]])', re.DOTALL)
"""The next bracket outside of strings."""
_SPAN_LIST_PREFIX: Final = b"{[{[{["
"""The open brackets at a place where spans are: request, resources, resource, scopes, scope, spans."""
_OPENING_OF: Final = {b"}": ord("{"), b"]": ord("[")}


def utf8(value: bytes) -> bytes:
    r"""Replace each byte of a text that is not valid UTF-8 by a question mark.

    >>> utf8(b"caf\xc3"), utf8("café".encode()) == "café".encode()
    (b'caf?', True)
    """
    return value.decode("utf-8", "surrogateescape").encode("utf-8", "replace")


def json(body: bytes) -> bytes:
    r"""Replace the bytes of JSON that are not valid UTF-8, and half surrogate pairs, by question marks.

    >>> json(rb'{"text": "so \ud83d"}'), json(rb'"\ud83d\ude00 \\ud83d"')
    (b'{"text": "so ?"}', b'"\\ud83d\\ude00 \\\\ud83d"')
    """
    body = utf8(body)
    if _ANY_SURROGATE.search(body):
        for half in _LONE_SURROGATES:
            body = half.sub(rb"\1?", body, count=_MAX_REPAIRS)
    return body


class SplitRequest(NamedTuple):
    """A request in JSON, separated from its spans.

    Attributes:
        envelope: The request with an index into `spans` in place of each span.
        spans: The bytes of each span.
    """

    envelope: bytes
    spans: list[bytes]


def split_request(body: bytes) -> SplitRequest | None:
    """Separate a request in JSON from its spans by brackets alone; None where the brackets do not match.

    >>> split = split_request(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":NaN},{"name":"}"}]}]}]}')
    >>> split.envelope, split.spans
    (b'{"resourceSpans":[{"scopeSpans":[{"spans":[0,1]}]}]}', [b'{"name":NaN}', b'{"name":"}"}'])
    """
    open_brackets, rest, spans = bytearray(), [], list[bytes]()
    copied, span_start = 0, -1
    match = _BRACKET.match(body)
    while match is not None:
        position, bracket = match.start(1), match[1]
        if bracket in _OPENING_OF:
            if not open_brackets or open_brackets.pop() != _OPENING_OF[bracket]:
                return None
            if span_start >= 0 and len(open_brackets) == len(_SPAN_LIST_PREFIX):
                rest += [body[copied:span_start], b"%d" % len(spans)]
                spans.append(body[span_start : position + 1])
                copied, span_start = position + 1, -1
        else:
            if bracket == b"{" and open_brackets == _SPAN_LIST_PREFIX:
                span_start = position
            open_brackets += bracket
        match = _BRACKET.match(body, position + 1)
    rest.append(body[copied:])
    return None if open_brackets or b'"' in body[body.rfind(b"}") :] else SplitRequest(b"".join(rest), spans)


def span(message: bytes) -> Any:
    """Decode a span in JSON, also as Python writes JSON: with NaN and with control characters.

    Raises:
        Rejected: It is no JSON.
    """
    try:
        return msgspec.json.decode(message)
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if len(message) > _MAX_LENIENT_BYTES:
            raise Rejected(constants.MALFORMED_JSON, str(error)) from None
    try:
        decoded = lenient.loads(message, strict=False)
        msgspec.json.encode(decoded)  # fails for a half surrogate pair
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except (ValueError, OverflowError, TypeError) as error:
        raise Rejected(constants.MALFORMED_JSON, f"a span is no JSON: {error}") from None
    return decoded


def protobuf(body: bytes, batch: SpanBatch) -> bytes:
    """A request in protobuf with its text repaired, without the spans that are malformed.

    Args:
        body: The request.
        batch: Counts the spans that are left out.

    Raises:
        DecodeError: The request itself is malformed, not only its spans.
    """
    request = bytes_classes().request.FromString(body)
    _repair_texts(request)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            scope_spans.spans[:] = [
                span for raw_span in scope_spans.spans if (span := _repaired_span(raw_span, batch)) is not None
            ]
    repaired: bytes = request.SerializeToString()
    return repaired


def _repaired_span(raw_span: bytes, batch: SpanBatch) -> bytes | None:
    """A span with its text repaired; None where it is malformed."""
    try:
        return _checked(raw_span)
    except DecodeError:
        pass
    try:
        message = bytes_classes().span.FromString(raw_span)
        _repair_texts(message)
        return _checked(message.SerializeToString())
    except DecodeError as error:
        batch.spans += 1
        batch.refuse(Rejected(MALFORMED_PROTOBUF, f"a span is no protocol message: {error}"))
        return None


def _checked(raw_span: bytes) -> bytes:
    Span.FromString(raw_span)
    OneByKind.FromString(raw_span)
    return raw_span


def _repair_texts(message: Any) -> None:
    """Repair the texts of a message, and of the messages in it."""
    texts, name = bytes_classes().texts, message.DESCRIPTOR.name
    for field, value in message.ListFields():
        if field.message_type is not None:
            for submessage in (value,) if hasattr(value, "ListFields") else value:
                _repair_texts(submessage)
        elif (name, field.name) in texts:
            if isinstance(value, bytes):
                setattr(message, field.name, utf8(value))
            else:
                getattr(message, field.name)[:] = map(utf8, value)
