"""What a parser leaves to do: a limit on how much a request holds, and the repair of requests that it refuses.

Two bytes can be a whole span, so the messages of a large request are counted before they are parsed. A parser refuses
a request for one invalid byte in a text, or for one malformed span. Programs truncate text inside a character: in UTF-8
an incomplete sequence of bytes is left, in UTF-16 half of a surrogate pair, which JSON writes as an escape. Both become
a question mark, as in `ragmon.core.text.clean`, and malformed spans are left out.
"""

from __future__ import annotations

import json as lenient
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from ragmon.core import constants
from ragmon.ingest.lines import Rejected

MALFORMED_PROTOBUF: Final = "malformed_protobuf"
TOO_MANY: Final = "too_many_messages"
"""The reason for a request that is rejected because its messages would fill the memory."""
MAX_ITEMS: Final = 50_000
"""The maximum number of spans or points of one request; exporters send some hundred, collectors some thousand."""
MAX_MESSAGES: Final = 900_000
"""The maximum number of messages in a request; an attribute is two. An empty one takes two bytes, and 200 in memory."""
MAX_FIELDS: Final = 2 * MAX_MESSAGES
_MAX_BRACKETS: Final = 12 * MAX_ITEMS
_MAX_QUOTES: Final = 60 * MAX_ITEMS
"""The maximum number of its quotation marks: an attribute has two brackets and ten quotation marks."""
_MAX_DEPTH: Final = 100
"""The maximum depth of nested messages that protobuf's parser follows."""
_LENGTH_DELIMITED: Final = 2
_FIXED_SIZES: Final = {1: 8, 5: 4}

Layout = dict[int, Any]
"""The layouts of the messages in a message, and None for its texts, by the number of their field."""
_layouts: Final[dict[str, Layout]] = {}


def _layout_of(descriptor: Any) -> Layout:
    if descriptor.full_name not in _layouts:
        layout = _layouts[descriptor.full_name] = Layout()
        for field in descriptor.fields:
            if field.message_type is not None:
                layout[field.number] = _layout_of(field.message_type)
            elif field.type == field.TYPE_STRING:
                layout[field.number] = None
    return _layouts[descriptor.full_name]


_REQUEST: Final = _layout_of(ExportTraceServiceRequest.DESCRIPTOR)
_PROCESS: Final = _layout_of(ResourceSpans.DESCRIPTOR)
_RESOURCE: Final = _layout_of(Resource.DESCRIPTOR)
_INSTRUMENTATION: Final = _layout_of(ScopeSpans.DESCRIPTOR)
_SCOPE: Final = _layout_of(InstrumentationScope.DESCRIPTOR)
_SPAN: Final = _layout_of(Span.DESCRIPTOR)
_UNKNOWN: Final = Layout()
for _request in (ExportMetricsServiceRequest, ExportLogsServiceRequest):
    _layout_of(_request.DESCRIPTOR)
_TAGS: Final = bytes(
    {0, *(number << 3 | 2 for fields in _layouts.values() for number, inner in fields.items() if inner is not None)}
)
"""The tags of all fields that hold messages, and the last byte of a tag with redundant bytes."""
_SPANS_DEPTH: Final = 3
"""The depth of spans: request, process, instrumentation."""


def check_size(body: bytes, message: Any, *, json: bool) -> None:
    r"""Check that a request holds no more than any regular exporter or collector sends, before it is parsed.

    >>> check_size(1_000_000 * b"\n\x00", ExportTraceServiceRequest, json=False)
    Traceback (most recent call last):
    ragmon.ingest.lines.Rejected: it holds too many messages; send them in several requests
    """
    if not json:
        # Few requests have so many bytes that may be tags of messages: to count all fields takes longer than to parse.
        if len(body) - len(body.translate(None, _TAGS)) > MAX_MESSAGES:
            deque(_parts(body, _layout_of(message.DESCRIPTOR)), maxlen=0)
        return
    # JSON inside a string has a backslash after the bracket, before the quotation mark; it is no message.
    brackets = body.count(b"{") - body.count(b"{\\") + body.count(b"[")
    if brackets > _MAX_BRACKETS or body.count(b'"') - body.count(b'\\"') > _MAX_QUOTES:
        raise too_many()


def too_many(lost: int = 1) -> Rejected:
    """The error for a request that holds too much."""
    return Rejected(TOO_MANY, "it holds too many messages; send them in several requests", lost)


def spans_in(body: bytes) -> int:
    r"""The number of spans that start in a truncated or malformed request; at least one.

    >>> spans_in(b"\n\x06\x12\x04\x12\x00\x12\x09"), spans_in(b"no request")
    (2, 1)
    """
    return max(1, sum(layout is _SPAN for _, _, layout in _parts(body, _REQUEST)))


def repaired_protobuf(body: bytes, refuse: Callable[[Rejected], None]) -> Any:
    """A request in protobuf with its text repaired, without the spans that are malformed.

    Raises:
        DecodeError: The request itself is malformed, not only its spans.
    """
    text = bytearray(body)
    for start, end, layout in _parts(body, _REQUEST, _SPANS_DEPTH):
        if layout is None:
            text[start:end] = utf8(body[start:end])  # as long as before
    whole, request = bytes(text), ExportTraceServiceRequest()
    for start, end, layout in _parts(whole, _REQUEST):
        if layout is _PROCESS:
            process = request.resource_spans.add()
        elif layout is _RESOURCE:
            process.resource.MergeFromString(whole[start:end])
        elif layout is _INSTRUMENTATION:
            instrumentation = process.scope_spans.add()
        elif layout is _SCOPE:
            instrumentation.scope.MergeFromString(whole[start:end])
        elif layout is _SPAN:
            try:
                instrumentation.spans.append(Span.FromString(whole[start:end]))
            except DecodeError as error:
                refuse(Rejected(MALFORMED_PROTOBUF, f"a span is no protocol message: {error}"))
    return request


def utf8(text: bytes) -> bytes:
    r"""Replace each byte of a text that is not valid UTF-8 by a question mark.

    >>> utf8(b"caf\xc3"), utf8("café".encode()) == "café".encode()
    (b'caf?', True)
    """
    return text.decode("utf-8", "surrogateescape").encode("utf-8", "replace")


def _parts(body: bytes, layout: Layout, strict_depth: int = 0) -> Iterator[tuple[int, int, Layout | None]]:
    """The messages and texts in a request, each with its start, its end, and its layout; None for a text.

    A message comes before what is in it. A malformed field ends its message, and not the messages around it.

    `Rejected` is raised where there are too many, `DecodeError` where a message up to `strict_depth` is malformed.
    """
    at, end, messages, fields, around = 0, len(body), 0, 0, list[tuple[int, int, Layout]]()
    while True:
        try:
            while at < end:
                fields += 1
                if fields > MAX_FIELDS or messages >= MAX_MESSAGES:
                    raise too_many()
                tag, at = body[at], at + 1
                if tag >= 0x80:  # a call for every tag and size would be a third of the work
                    fields += 4  # and this one takes as long as several fields
                    tag, at = _varint(body, at - 1)
                if tag & 7 != _LENGTH_DELIMITED:
                    at = _end_of_value(body, at, tag)
                    continue
                size, at = body[at], at + 1
                if size >= 0x80:
                    size, at = _varint(body, at - 1)
                inner = layout.get(tag >> 3, _UNKNOWN)
                if inner is not _UNKNOWN:
                    messages += 1
                    yield at, min(at + size, end), inner
                if inner and size and len(around) < _MAX_DEPTH:
                    around.append((at + size, end, layout))
                    end, layout = min(at + size, end), inner
                else:
                    at += size
        except (DecodeError, IndexError):
            at = end + 1
        if at > end and len(around) < strict_depth:
            raise DecodeError("it breaks off, or a field of it is malformed")
        if not around:
            return
        at, end, layout = around.pop()


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Decode a varint of several bytes; returns the number and the position after it."""
    number, shift = body[at] & 0x7F, 7
    while shift < 64:
        at += 1
        byte = body[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
        shift += 7
    raise DecodeError("a varint has more than ten bytes")


def _end_of_value(body: bytes, at: int, tag: int) -> int:
    kind = tag & 7
    if tag < 8 or kind > 5:
        raise DecodeError(f"there is no field {tag >> 3} of wire type {kind}")
    if kind == 0:
        while body[at] >= 0x80:
            at += 1
        return at + 1
    return at + _FIXED_SIZES.get(kind, 0)  # a group's fields count as fields of the message around it


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
_SPAN_LIST_PREFIX: Final = b"{[{[{["
"""The open brackets around a span: request, resources, resource, scopes, scope, spans."""
_OPENING_OF: Final = {b"}": ord("{"), b"]": ord("[")}


def repaired_json(body: bytes) -> bytes:
    r"""Replace the bytes of JSON that are not valid UTF-8, and half surrogate pairs, by question marks.

    >>> repaired_json(rb'{"text": "so \ud83d"}'), repaired_json(rb'"\ud83d\ude00 \\ud83d"')
    (b'{"text": "so ?"}', b'"\\ud83d\\ude00 \\\\ud83d"')
    """
    body = utf8(body)
    if _ANY_SURROGATE.search(body):
        for half in _LONE_SURROGATES:
            body = half.sub(rb"\1?", body, count=_MAX_REPAIRS)
    return body


def split_request(body: bytes) -> tuple[bytes, list[bytes]] | None:
    """Separate a request in JSON from its spans by brackets alone; None where the brackets do not match.

    The request has the index of each span in the place of the span.

    >>> envelope, spans = split_request(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":NaN},{"name":"}"}]}]}]}')
    >>> envelope, spans
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
    return None if open_brackets or b'"' in body[body.rfind(b"}") :] else (b"".join(rest), spans)


def decode_span(message: bytes) -> Any:
    """Decode a span in JSON, also as Python writes JSON: with NaN and with control characters."""
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
