"""Requests of OTLP in either encoding, read as spans: limits, repair, traces, and log records of model calls.

Two bytes can be a whole span, so the messages of a large request are counted before they are parsed. A parser refuses
a request for one invalid byte in a text, or for one malformed span. Programs truncate text inside a character: in UTF-8
an incomplete sequence of bytes is left, in UTF-16 half of a surrogate pair, which JSON writes as an escape. Both become
a question mark, as in `ragmon.core.text.clean`, and malformed spans are left out.

The messages of the JSON encoding have the fields of protobuf's, so the spans of both are read by the same code. In JSON
ids are hexadecimal, 64-bit integers may be strings, and unknown fields are ignored.

Log records are read where they are events of a model call: its messages, written beside its span instead of on it.
Older releases of OpenTelemetry's instrumentations write one event per message (`gen_ai.user.message`, `gen_ai.choice`),
later ones `gen_ai.client.inference.operation.details` with all messages. Each becomes a span that stands for it
(`ragmon.ingest.spans.messages`). All other log records are not read.

Source: OpenTelemetry, OTLP specification 1.5 with its JSON Protobuf encoding, and its protocol definitions; semantic
conventions for generative AI, events, 1.28 to 1.37.
"""

from __future__ import annotations

import base64
import json as lenient
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf.json_format import ParseDict, ParseError  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ragmon.core import constants, semconv
from ragmon.ingest.lines import Rejected, is_export, wrong_type
from ragmon.ingest.spans.conventions import EVENT_KEYS, KEY_PREFIXES, KEYS, MESSAGE_EVENTS
from ragmon.ingest.spans.mapper import MEMBERS
from ragmon.ingest.spans.messages import LOG_SCOPE
from ragmon.ingest.spans.span import HIT_EVENTS, MEANINGS, OWN_SCOPE, Event, Span
from ragmon.ingest.spans.tools import LISTS, Memo

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
_MAX_MESSAGE_DEPTH: Final = 100
"""The maximum depth of nested messages that protobuf's parser follows."""
_LENGTH_DELIMITED: Final = 2
_SIZES: Final = {0: 1, 1: 8, 3: 0, 4: 0, 5: 4}
"""Bytes of a value by its wire type; a group's fields count as fields of the message around it."""

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
_PROCESS: Final = _layout_of(trace_pb2.ResourceSpans.DESCRIPTOR)
_RESOURCE: Final = _layout_of(Resource.DESCRIPTOR)
_INSTRUMENTATION: Final = _layout_of(trace_pb2.ScopeSpans.DESCRIPTOR)
_SCOPE: Final = _layout_of(InstrumentationScope.DESCRIPTOR)
_SPAN: Final = _layout_of(trace_pb2.Span.DESCRIPTOR)
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
    """A request with its text repaired, without malformed spans; `DecodeError` where more is malformed than spans."""
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
                instrumentation.spans.append(trace_pb2.Span.FromString(whole[start:end]))
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
                if (kind := tag & 7) != _LENGTH_DELIMITED:
                    while kind == 0 and body[at] >= 0x80:
                        at += 1
                    at = at + _SIZES[kind] if tag >= 8 and kind in _SIZES else end + 1
                    continue
                size, at = body[at], at + 1
                if size >= 0x80:
                    size, at = _varint(body, at - 1)
                inner = layout.get(tag >> 3, _UNKNOWN)
                if inner is not _UNKNOWN:
                    messages += 1
                    yield at, min(at + size, end), inner
                if inner and size and len(around) < _MAX_MESSAGE_DEPTH:
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


def _decode_item(raw: bytes) -> tuple[Any, bool]:
    """A span or log record in JSON, also as Python writes JSON: with NaN and with control characters.

    Numbers that are not finite are null. The second value is whether the item was repaired.
    """
    try:
        try:
            return msgspec.json.decode(raw), False
        except (msgspec.DecodeError, UnicodeDecodeError):
            raw = repaired_json(raw)
        try:
            return msgspec.json.decode(raw), True
        except msgspec.DecodeError as error:
            if len(raw) > _MAX_LENIENT_BYTES:
                raise Rejected(constants.MALFORMED_JSON, str(error)) from None
        return lenient.loads(raw, strict=False, parse_constant=_finite, parse_float=_finite), True
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except ValueError as error:
        raise Rejected(constants.MALFORMED_JSON, f"a span is no JSON: {error}") from None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


_RECORD_SEARCH_LIMIT: Final = 2
"""In a span of ragmon that another program forwards under its own scope name, the record is looked for among this many
first attributes: to search all attributes of every span would take too long. The mapper finds a later one."""
_SCALARS: Final = frozenset({"string_value", "bool_value", "int_value", "double_value"})
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_NO_TRACE: Final = bytes(_TRACE_ID_BYTES)
_NO_SPAN: Final = bytes(_SPAN_ID_BYTES)
_NO_PARENT: Final = (b"", _NO_SPAN)
_SAMPLED: Final = 1


class NativeSpan(msgspec.Struct, gc=False):
    """A span of ragmon that holds a whole record: a line of the trace contract, not decoded yet."""

    trace_id: bytes
    span_id: bytes
    end_ns: int
    line: str


class ExternalSpan(msgspec.Struct, gc=False):
    """A span of another instrumentation; its content is bytes, because a message keeps its whole request in memory."""

    trace_id: bytes
    span_id: bytes
    is_root: bool
    end_ns: int
    failed: bool
    service: str | None
    build: str | None
    scope: str
    content: bytes

    def span(self) -> Span:
        """The span in the mapper's form, with only the attributes the mapper reads."""
        return to_span(trace_pb2.Span.FromString(self.content), self.scope)


class SpanOrigin(NamedTuple):
    """The service and version of a span's program, and the name of the instrumentation."""

    service: str | None
    build: str | None
    scope: str


@dataclass(slots=True)
class SpanBatch:
    """The spans of one request: their number, ragmon's own, others', and the rejected by reason.

    Attributes:
        stages: The number of child spans of ragmon; they add nothing to the record on their root.
        first: The details of the first rejection.
        body: The request as it was read, where it had to be repaired first; b"" where it was read unchanged.
    """

    spans: int = 0
    native: list[NativeSpan] = field(default_factory=list)
    external: list[ExternalSpan] = field(default_factory=list)
    stages: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    first: str = ""
    body: bytes = b""

    def refuse(self, rejected: Rejected) -> None:
        """Count a span that is rejected."""
        self.spans += 1
        self.first = self.first or str(rejected)
        self.rejected[rejected.reason] += 1

    def add(self, message: Any, origin: SpanOrigin) -> None:
        """Add a span to the list that it belongs to; raises `Rejected` where it is malformed."""
        trace_id, span_id, end_ns = message.trace_id, message.span_id, message.end_time_unix_nano
        _check_ids(message)
        own = origin.scope == OWN_SCOPE
        pairs = message.attributes if own else message.attributes[:_RECORD_SEARCH_LIMIT]
        record = next((pair.value for pair in pairs if pair.key == semconv.RAGMON_RECORD), None)
        if record is not None:
            if record.WhichOneof("value") != "string_value":
                raise Rejected(constants.INVALID_SCHEMA, f"{semconv.RAGMON_RECORD} is text")
            self.native.append(NativeSpan(trace_id, span_id, end_ns, record.string_value))
        elif own:
            self.stages += 1
        else:
            is_root, failed = message.parent_span_id in _NO_PARENT, message.status.code == Status.STATUS_CODE_ERROR
            content = message.SerializeToString()
            self.external.append(ExternalSpan(trace_id, span_id, is_root, end_ns, failed, *origin, content))
        self.spans += 1


def spans_of(request: Any) -> Iterator[tuple[Any, SpanOrigin]]:
    """The spans of a request, each with what made it."""
    resources = request.resource_spans
    count = sum(len(scope_spans.spans) for resource_spans in resources for scope_spans in resource_spans.scope_spans)
    if count > MAX_ITEMS:
        raise too_many(count)
    for resource_spans in resources:
        texts = _texts(resource_spans.resource.attributes)
        service, build = texts.get("service.name") or None, texts.get("service.version") or None
        for scope_spans in resource_spans.scope_spans:
            origin = SpanOrigin(service, build, scope_spans.scope.name)
            for message in scope_spans.spans:
                yield message, origin


def _texts(attributes: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in attributes}


def _check_ids(message: Any) -> None:
    trace_id, span_id, parent = message.trace_id, message.span_id, message.parent_span_id
    if len(trace_id) != _TRACE_ID_BYTES or trace_id == _NO_TRACE:
        raise wrong_type("trace_id", f"{_TRACE_ID_BYTES} bytes, not all zero", trace_id)
    if len(span_id) != _SPAN_ID_BYTES or span_id == _NO_SPAN:
        raise wrong_type("span_id", f"{_SPAN_ID_BYTES} bytes, not all zero", span_id)
    if parent and len(parent) != _SPAN_ID_BYTES:
        raise wrong_type("parent_span_id", f"{_SPAN_ID_BYTES} bytes", parent)


_READ_KEYS: Final = frozenset(
    {
        *(semconv.RAGMON_RECORD, semconv.RAGMON_QID, semconv.RAGMON_CLAIM, semconv.RAGMON_CITATIONS),
        *(semconv.RAGMON_INTERNAL, semconv.ERROR_TYPE),
        # OpenTelemetry's GenAI conventions and MCP
        *(semconv.OPERATION, semconv.WORKFLOW_NAME, semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES),
        *(semconv.QUERY_TEXT, semconv.DOCUMENTS, semconv.GENAI_TOOL_NAME, semconv.TOOL_RESULT, semconv.MCP_METHOD),
        *(semconv.CONVERSATION, semconv.REQUEST_MODEL, semconv.RESPONSE_MODEL, semconv.END_USER),
        # OpenInference
        *(semconv.SPAN_KIND, semconv.INPUT_VALUE, semconv.OUTPUT_VALUE, semconv.RERANKER_QUERY, semconv.LLM_MODEL),
        *(semconv.PROMPT_TEMPLATE, semconv.METADATA, semconv.SESSION, semconv.USER, semconv.TOOL_NAME),
        # OpenLLMetry
        *(semconv.TRACELOOP_KIND, semconv.TRACELOOP_WORKFLOW, semconv.ENTITY_NAME, semconv.FUNCTION_NAME),
        *(semconv.ENTITY_INPUT, semconv.ENTITY_OUTPUT, semconv.TASK_STATUS, semconv.REQUEST_TYPE),
        *(semconv.VECTOR_TOP_K, semconv.CHROMA_RESULTS),
        # TruLens
        *(semconv.TRULENS_KIND, semconv.TRULENS_INPUT, semconv.TRULENS_OUTPUT, semconv.TRULENS_ERROR),
        *(semconv.TRULENS_QUERY, semconv.TRULENS_CONTEXTS, semconv.TRULENS_RERANKED, semconv.TRULENS_INPUT_ID),
        semconv.TRULENS_CONVERSATION,
        *KEYS,
    }
)
"""The attributes of spans that the mapper reads: the others stay undecoded, which takes half as long."""
_READ_PREFIXES: Final = (*(f"{name}." for name in (*LISTS, semconv.ASSOCIATION)), *KEY_PREFIXES)


IS_READ: Final[Memo[str, bool]] = Memo(
    lambda key: key in _READ_KEYS or key.startswith(_READ_PREFIXES) or bool(MEANINGS[key])
)
"""Whether an attribute of a span is read, by its key; texts and names of models in any convention are, because the
reason for an unknown field depends on whether there are such."""


def on_event(event: str, key: str) -> bool:
    """Whether an attribute of an event is read.

    >>> on_event("exception", "exception.type"), on_event("exception", "exception.stacktrace")
    (True, False)
    """
    return (
        event in HIT_EVENTS
        or (event in MESSAGE_EVENTS and key in EVENT_KEYS)
        or (event == semconv.EXCEPTION and key == semconv.EXCEPTION_TYPE)
        or (event == semconv.EVALUATION and key in MEMBERS)
    )


def to_span(message: Any, scope: str) -> Span:
    """A span in the mapper's form, with only the attributes the mapper reads."""
    parent, flags = message.parent_span_id, message.flags
    return Span(
        message.trace_id.hex(),
        message.span_id.hex(),
        None if parent in _NO_PARENT else parent.hex(),
        message.name,
        message.start_time_unix_nano,
        message.end_time_unix_nano,
        {key: _value(pair.value) for pair in message.attributes if IS_READ[key := pair.key]},
        [
            Event(event.name, {p.key: _value(p.value) for p in event.attributes if on_event(event.name, p.key)})
            for event in message.events
        ],
        message.status.code == Status.STATUS_CODE_ERROR,
        message.dropped_attributes_count,
        message.dropped_events_count,
        scope,
        bool(flags & _SAMPLED) if flags else None,
        [link.trace_id.hex() for link in message.links] if message.links else (),
    )


def _value(any_value: Any) -> Any:
    """The value of an attribute as a Python object; bytes become base64 text, as in JSON."""
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [_value(member) for member in any_value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _value(pair.value) for pair in any_value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(any_value.bytes_value).decode()
    # An index into a string table, which traces do not have, is unset.
    return getattr(any_value, kind) if kind in _SCALARS else None


_START_TIME: Final = b'"startTimeUnixNano"'
"""A key that is once in every span; quoted inside a string it has a backslash before its second quotation mark."""
_ID_SIZES: Final = {"traceId": _TRACE_ID_BYTES, "spanId": _SPAN_ID_BYTES, "parentSpanId": _SPAN_ID_BYTES}
_HEX: Final = re.compile(r"[0-9a-fA-F]+")


class _Message(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """What is read of a request around its spans and log records; unknown members are ignored."""


class _Text(_Message):
    string_value: str | None = None


class _Attribute(_Message):
    key: str | None = None
    value: _Text | None = None


class _Resource(_Message):
    attributes: list[_Attribute] | None = None


class _Scope(_Message):
    name: str | None = None


class _ScopeItems(_Message):
    scope: _Scope | None = None
    spans: list[msgspec.Raw] | None = None
    log_records: list[msgspec.Raw] | None = None


class _ResourceItems(_Message):
    resource: _Resource | None = None
    scope_spans: list[_ScopeItems] | None = None
    scope_logs: list[_ScopeItems] | None = None


class _ExportRequest(_Message):
    resource_spans: list[_ResourceItems] | None = None
    resource_logs: list[_ResourceItems] | None = None


_decode_export: Final = msgspec.json.Decoder(_ExportRequest).decode


def _traces_in_json(line: bytes, refuse: Callable[[Rejected], None]) -> tuple[ExportTraceServiceRequest, bytes]:
    """Decode a request in JSON; invalid UTF-8 and half surrogate pairs are repaired, and malformed spans are refused.

    Returns:
        The request, and its encoding after repairs and without refused spans; b"" where it was read unchanged.
    """
    export, raw_spans = _separated(line)
    if (count := _span_count(export)) > MAX_ITEMS:
        raise too_many(count)
    request, is_changed = ExportTraceServiceRequest(), raw_spans is not None
    for process in export.resource_spans or ():
        resource_spans = request.resource_spans.add(resource=_resource(process))
        for items in process.scope_spans or ():
            scope_spans = resource_spans.scope_spans.add(scope={"name": items.scope and items.scope.name})
            kept: list[Any] = []
            for raw in items.spans or ():
                try:
                    span, is_repaired = _decode_item(bytes(raw) if raw_spans is None else raw_spans[int(bytes(raw))])
                    scope_spans.spans.append(_from_json(span, trace_pb2.Span))
                except Rejected as rejected:
                    refuse(Rejected(rejected.reason, str(rejected)))  # a raised one keeps its traceback
                    is_changed = True
                else:
                    kept.append(span)
                    is_changed |= is_repaired
            items.spans = kept
    return request, lenient.dumps(msgspec.to_builtins(export)).encode() if is_changed else b""


def _separated(line: bytes) -> tuple[_ExportRequest, list[bytes] | None]:
    """A request in JSON; where a part of it is malformed, it holds the indexes of spans, which follow it."""
    try:
        try:
            return _decode_export(line), None
        except msgspec.ValidationError:
            msgspec.json.decode(line)  # where it is malformed or too deep as well, that is the reason
            raise
    except RecursionError:
        reason, detail = constants.DEPTH, "it is nested too deeply"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = constants.INVALID_SCHEMA if isinstance(error, msgspec.ValidationError) else constants.MALFORMED_JSON
        detail = str(error)
    split = split_request(repaired_json(line))
    if split is not None:
        envelope, spans = split
        if len(spans) > MAX_ITEMS:
            raise too_many(len(spans))
        with suppress(msgspec.DecodeError, RecursionError):
            export = _decode_export(envelope)
            if _span_count(export) == len(spans):
                return export, spans
    raise Rejected(reason, detail, max(1, line.count(_START_TIME)))


def _span_count(export: _ExportRequest) -> int:
    scopes = [scope_spans for process in export.resource_spans or () for scope_spans in process.scope_spans or ()]
    return sum(len(scope_spans.spans or ()) for scope_spans in scopes)


def _resource(items: _ResourceItems) -> Resource:
    """The resource of spans or log records, with the attributes that are texts."""
    resource = Resource()
    for pair in (items.resource and items.resource.attributes) or ():
        resource.attributes.add(key=pair.key, value=pair.value and {"string_value": pair.value.string_value})
    return resource


def _from_json(item: Any, kind: Any) -> Any:
    """A span or log record as a message of protobuf, whose JSON encoding has ids in base64."""
    if not isinstance(item, dict):
        raise wrong_type("an entry", "an object", item)
    fields = _with_ids(item)
    if isinstance(links := item.get("links"), list):
        fields["links"] = [_with_ids(link) if isinstance(link, dict) else link for link in links]
    try:
        if kind is trace_pb2.Span and fields.get("attributes"):
            # To convert what is not read takes long; it keeps its place, because a record is looked for by place.
            fields["attributes"] = [pair if IS_READ[pair.get("key") or ""] else {} for pair in fields["attributes"]]
        return ParseDict(fields, kind(), ignore_unknown_fields=True)
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except (ParseError, ValueError, TypeError, AttributeError) as error:
        if "too deep" in str(error):
            raise Rejected(constants.DEPTH, "it is nested too deeply") from None
        raise Rejected(constants.INVALID_SCHEMA, str(error)) from None


def _with_ids(message: dict[str, Any]) -> dict[str, Any]:
    fields = dict(message)
    for name, size in _ID_SIZES.items():
        if digits := message.get(name):
            if not (isinstance(digits, str) and len(digits) == 2 * size and _HEX.fullmatch(digits)):
                raise wrong_type(name, f"{2 * size} hex digits", digits)
            fields[name] = base64.b64encode(bytes.fromhex(digits)).decode()
    return fields


def spans(line: bytes, refuse: Callable[[Rejected], None]) -> Iterator[tuple[Span, SpanOrigin]]:
    """The spans of one request in JSON, each with its origin; requests with metrics or logs have none.

    Each malformed span is refused. `Rejected` is raised where the request itself is malformed.
    """
    for message, origin in spans_of(_traces_in_json(line, refuse)[0]):
        try:
            _check_ids(message)
            yield to_span(message, origin.scope), origin
        except Rejected as rejected:
            refuse(rejected)


def parse_message(message: Any, body: bytes) -> Any:
    """Parse a protocol message of a class, within the limits of a request."""
    check_size(body, message, json=False)
    try:
        return message.FromString(body)
    except DecodeError as error:
        raise Rejected(MALFORMED_PROTOBUF, f"it is no protocol message: {error}") from None


def read(body: bytes, *, json: bool) -> SpanBatch:
    """The spans of a request; invalid text is repaired, and a malformed span is left out and counted.

    `Rejected` is raised where the request itself is truncated, malformed, or holds too much.

    Examples:
        >>> body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0","spanId":"0"}]}]}]}'
        >>> batch = read(body, json=True)
        >>> batch.spans, batch.external, batch.first
        (1, [], "traceId is 32 hex digits, not '0'")
    """
    batch = SpanBatch()
    if json:
        check_size(body, ExportTraceServiceRequest, json=True)
        request, batch.body = _traces_in_json(body, batch.refuse)
    else:
        try:
            request = parse_message(ExportTraceServiceRequest, body)
        except Rejected as rejected:
            if rejected.reason != MALFORMED_PROTOBUF:
                raise
            try:
                request = repaired_protobuf(body, batch.refuse)
            except DecodeError:
                raise Rejected(rejected.reason, str(rejected), spans_in(body)) from None
            batch.body = request.SerializeToString()
    for message, origin in spans_of(request):
        try:
            batch.add(message, origin)
        except Rejected as rejected:
            batch.refuse(rejected)
    return batch


class LogEvents(NamedTuple):
    """A request with traces, in protobuf, that holds the events of a request with logs, and the number of others."""

    body: bytes
    unread: int


def read_logs(body: bytes, *, as_json: bool) -> LogEvents:
    """The events of model calls in an `ExportLogsServiceRequest`; `Rejected` where it is none, or holds too much.

    Examples:
        >>> read_logs(b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, {}]}]}]}', as_json=True)
        LogEvents(body=b'', unread=2)
    """
    if as_json:
        logs = _logs_in_json(body)
    else:
        request = parse_message(ExportLogsServiceRequest, body)
        logs = (
            (part.resource, [r for scope in part.scope_logs for r in scope.log_records])
            for part in request.resource_logs
        )
    traces, events, unread = ExportTraceServiceRequest(), 0, 0
    for resource, records in logs:
        named = []
        for record in records:
            span_id = record.span_id
            if record.trace_id.strip(b"\0") and len(span_id) == _SPAN_ID_BYTES and span_id.strip(b"\0"):
                name = getattr(record, "event_name", "")  # messages of OpenTelemetry before 1.35 lack the field
                name = name or _texts(record.attributes).get("event.name", "")
                if name in MESSAGE_EVENTS:
                    named.append((record, name))
        unread += len(records) - len(named)
        events += len(named)
        if named:
            resource_spans = traces.resource_spans.add(resource=resource)
            scope_spans = resource_spans.scope_spans.add(scope={"name": LOG_SCOPE})
            for record, name in named:
                # Write the span that stands for an event.
                span = scope_spans.spans.add()
                time = record.time_unix_nano or record.observed_time_unix_nano
                span.trace_id, span.parent_span_id, span.name = record.trace_id, record.span_id, name
                span.span_id = sha256(record.SerializeToString(deterministic=True)).digest()[:_SPAN_ID_BYTES]
                span.start_time_unix_nano = span.end_time_unix_nano = time
                event = span.events.add(name=name, time_unix_nano=time)
                event.attributes.extend(pair for pair in record.attributes if on_event(name, pair.key))
                kind = record.body.WhichOneof("value")
                if kind == "kvlist_value":
                    event.attributes.extend(
                        pair for pair in record.body.kvlist_value.values if on_event(name, pair.key)
                    )
                elif kind == "string_value":
                    event.attributes.add(key="content", value=record.body)
    return LogEvents(traces.SerializeToString() if events else b"", unread)


_NO_RECORD: Final = LogRecord()


def _logs_in_json(body: bytes) -> Iterator[tuple[Resource, list[Any]]]:
    """The log records of each process, with its resource; an empty one for each that is malformed."""
    check_size(body, ExportLogsServiceRequest, json=True)
    try:
        export = _decode_export(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Rejected(constants.MALFORMED_JSON, "it holds no logs as OTLP writes them in JSON") from None
    for process in export.resource_logs or ():
        records = []
        for raw in (raw for scope_logs in process.scope_logs or () for raw in scope_logs.log_records or ()):
            try:
                records.append(_from_json(_decode_item(bytes(raw))[0], LogRecord))
            except Rejected:
                records.append(_NO_RECORD)
        yield _resource(process), records


def log_spans(line: bytes) -> Iterator[tuple[Span, SpanOrigin]]:
    """The spans that stand for the events in a line with logs, each with what made it."""
    if is_export(line, "Logs"):
        traces = ExportTraceServiceRequest.FromString(read_logs(line, as_json=True).body)
        for message, process in spans_of(traces):
            yield to_span(message, process.scope), process
