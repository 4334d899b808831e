"""Requests of OTLP in either encoding, read as spans: limits, repair, traces, and log records of model calls.

Two bytes can be a whole span, so the messages of a large request are counted before they are parsed. A parser refuses
a request for one invalid byte in a text, or for one malformed span. Programs truncate text inside a character: in UTF-8
an incomplete sequence of bytes is left, in UTF-16 half of a surrogate pair, which JSON writes as an escape. Both become
a question mark, as in `ragmon.core.text.clean`, and malformed spans are left out.

The messages of the JSON encoding have the fields of protobuf's, so the spans of both are read by the same code. In JSON
ids are hexadecimal, 64-bit integers may be strings, and unknown fields are ignored.

Log records are read where they are events of a model call: its messages, written beside its span instead of on it,
or an evaluation of it (`gen_ai.evaluation.result`).
Older releases of OpenTelemetry's instrumentations write one event per message (`gen_ai.user.message`, `gen_ai.choice`),
later ones `gen_ai.client.inference.operation.details` with all messages. Each becomes a span that stands for it
(`ragmon.ingest.spans.messages`). All other log records are not read.

Source: OpenTelemetry, OTLP specification 1.5 with its JSON Protobuf encoding, and its protocol definitions; semantic
conventions for generative AI, events, 1.28 to 1.37.
"""

from __future__ import annotations

import base64
import json as lenient
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

from ragmon.core import constants, semconv, shapes
from ragmon.ingest.lines import Rejected, is_export, wrong_type
from ragmon.ingest.spans.conventions import EVENT_KEYS, KEYS, MESSAGE_EVENTS
from ragmon.ingest.spans.mapper import MEMBERS
from ragmon.ingest.spans.messages import LOG_SCOPE
from ragmon.ingest.spans.sampling import KEYS as SAMPLING_KEYS
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
                refuse(Rejected(MALFORMED_PROTOBUF, f"a span is not a protocol message: {error}"))
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
        raise Rejected(constants.MALFORMED_JSON, f"a span is not JSON: {error}") from None
    return decoded


_RECORD_SEARCH_LIMIT: Final = 2
"""In a span of ragmon that another program forwards under its own scope name, the record is looked for among this many
first attributes: to search all attributes of every span would take too long. The mapper finds a later one."""
_MAX_DEPTH: Final = 50
"""The maximum depth of nested values; protobuf's parser follows about as many."""
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
    """A span of another instrumentation.

    Attributes:
        parent_id: Its parent; b"" where it is a root.
        content: The span, from JSON; from protobuf its bytes, because a message keeps its whole request in memory.
    """

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    start_ns: int
    end_ns: int
    service: str | None
    build: str | None
    scope: str
    content: bytes | Span

    @property
    def is_root(self) -> bool:
        """Whether it has no parent."""
        return not self.parent_id

    def span(self) -> Span:
        """The span in the mapper's form, with only the attributes the mapper reads."""
        if isinstance(self.content, Span):
            return self.content
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
            parent_id, start_ns = message.parent_span_id, message.start_time_unix_nano
            parent_id = b"" if parent_id in _NO_PARENT else parent_id
            is_message = isinstance(message, trace_pb2.Span)
            content = message.SerializeToString() if is_message else to_span(message, origin.scope)
            self.external.append(ExternalSpan(trace_id, span_id, parent_id, start_ns, end_ns, *origin, content))
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
        *(semconv.RAGMON_RECORD, semconv.RAGMON_QID, semconv.RAGMON_QUESTION, semconv.RAGMON_CLAIM),
        *(semconv.RAGMON_CITATIONS, semconv.RAGMON_INTERNAL, semconv.ERROR_TYPE),
        *(*semconv.HTTP_STATUS, *semconv.OF_SERVERS, *shapes.QUESTION_KEYS, semconv.RETURN),
        # OpenTelemetry's GenAI conventions and MCP
        *(semconv.OPERATION, semconv.WORKFLOW_NAME, semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES),
        *(semconv.QUERY_TEXT, semconv.DOCUMENTS, semconv.GENAI_TOOL_NAME, semconv.TOOL_RESULT, semconv.MCP_METHOD),
        *(semconv.FINAL_RESULT, semconv.OUTPUT_TYPE),
        *(semconv.TOOL_TYPE, semconv.MEMORY_QUERY, semconv.MEMORY_RECORDS),
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
        *(semconv.TRULENS_CONVERSATION, semconv.TRULENS_APP, semconv.TRULENS_APP_VERSION),
        semconv.TRULENS_RETURNED,
        *KEYS,
        *SAMPLING_KEYS,
    }
)
"""The attributes of spans that the mapper reads: the others stay undecoded, which takes half as long."""
_READ_PREFIXES: Final = (*(f"{name}." for name in LISTS), *semconv.METADATA_PREFIXES)


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
        or key in EVENT_KEYS.get(event, ())
        or (event in MESSAGE_EVENTS and bool(MEANINGS[key]))  # a text in a place that is not read
        or (event == semconv.EXCEPTION and key in (semconv.EXCEPTION_TYPE, semconv.EXCEPTION_MESSAGE))
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
        message.trace_state,
    )


def _value(any_value: Any, depth: int = 0) -> Any:
    """The value of an attribute as a Python object; bytes become base64 text, as in JSON."""
    kind = any_value.WhichOneof("value")
    if kind == "string_value":
        return any_value.string_value
    if kind in ("array_value", "kvlist_value"):
        if depth >= _MAX_DEPTH:
            raise Rejected(constants.DEPTH, "an attribute is nested too deeply")
        if kind == "array_value":
            return [_value(member, depth + 1) for member in any_value.array_value.values]
        return {pair.key: _value(pair.value, depth + 1) for pair in any_value.kvlist_value.values}
    if kind == "bytes_value":
        content = any_value.bytes_value
        return base64.b64encode(content).decode() if isinstance(content, bytes) else content
    # An index into a string table, which traces do not have, is unset.
    return getattr(any_value, kind) if kind in ("bool_value", "int_value", "double_value") else None


_START_TIME: Final = b'"startTimeUnixNano"'
"""A key that is once in every span; quoted inside a string it has a backslash before its second quotation mark."""
_Integer = int | float | str


class _Message(msgspec.Struct, rename="camel", gc=False):
    """A message; its unknown fields are ignored."""


class _AttributeValue(_Message):
    string_value: str | None = None
    bool_value: bool | None = None
    int_text: _Integer | None = msgspec.field(default=None, name="intValue")
    double_text: float | str | None = msgspec.field(default=None, name="doubleValue")
    array_value: _Array | None = None
    kvlist_value: _Pairs | None = None
    bytes_value: str | None = None

    def WhichOneof(self, _: str) -> str | None:  # noqa: N802 - protobuf's name
        return next((kind for kind, name in _KINDS if getattr(self, name) is not None), None)

    @property
    def int_value(self) -> int:
        return _integer("intValue", self.int_text or 0)

    @property
    def double_value(self) -> float:
        try:
            return float(self.double_text or 0)  # NaN and infinities are strings in JSON
        except ValueError:
            raise wrong_type("doubleValue", "a number", self.double_text) from None


_KINDS: Final = (
    ("string_value", "string_value"),
    ("array_value", "array_value"),
    ("kvlist_value", "kvlist_value"),
    ("int_value", "int_text"),
    ("double_value", "double_text"),
    ("bool_value", "bool_value"),
    ("bytes_value", "bytes_value"),
)


class _Array(_Message):
    values: list[_AttributeValue] = []


class _Pair(_Message):
    key: str = ""
    value: _AttributeValue = msgspec.field(default_factory=_AttributeValue)


class _Pairs(_Message):
    values: list[_Pair] = []


class _Event(_Message):
    name: str = ""
    attributes: list[_Pair] = []


class _Link(_Message):
    trace_hex: str = msgspec.field(default="", name="traceId")

    @property
    def trace_id(self) -> bytes:
        return _id_bytes("traceId", self.trace_hex, 32)


class _Status(_Message):
    code_text: int | str = msgspec.field(default=0, name="code")

    @property
    def code(self) -> int:
        return Status.STATUS_CODE_ERROR if self.code_text in (2, "2", "STATUS_CODE_ERROR") else 0


class _Span(_Message):
    trace_hex: str = msgspec.field(default="", name="traceId")
    span_hex: str = msgspec.field(default="", name="spanId")
    parent_hex: str = msgspec.field(default="", name="parentSpanId")
    trace_state: str = ""
    name: str = ""
    start_time: _Integer = msgspec.field(default=0, name="startTimeUnixNano")
    end_time: _Integer = msgspec.field(default=0, name="endTimeUnixNano")
    attributes: list[_Pair] = []
    dropped_attributes_count: int = 0
    events: list[_Event] = []
    dropped_events_count: int = 0
    links: list[_Link] = []
    status: _Status = msgspec.field(default_factory=_Status)
    flags: int | None = None

    @property
    def trace_id(self) -> bytes:
        return _id_bytes("traceId", self.trace_hex, 32)

    @property
    def span_id(self) -> bytes:
        return _id_bytes("spanId", self.span_hex, 16)

    @property
    def parent_span_id(self) -> bytes:
        return _id_bytes("parentSpanId", self.parent_hex, 16) if self.parent_hex else b""

    @property
    def start_time_unix_nano(self) -> int:
        return _integer("startTimeUnixNano", self.start_time, 0)

    @property
    def end_time_unix_nano(self) -> int:
        return _integer("endTimeUnixNano", self.end_time, 0)


def _id_bytes(name: str, digits: str, size: int) -> bytes:
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    if not 2 * len(found) == len(digits) == size:
        raise wrong_type(name, f"{size} hex digits", digits)
    return found


def _integer(name: str, value: _Integer, least: int = -(2**63)) -> int:
    try:
        number = int(value)
    except (ValueError, OverflowError):
        raise wrong_type(name, "an integer", value) from None
    if isinstance(value, float) and number != value:
        raise wrong_type(name, "an integer", value)
    if not least <= number < 2**64:
        raise wrong_type(name, f"an integer of 64 bits from {least} on", value)
    return number


class _Scope(_Message):
    name: str = ""


class _ScopeSpans(_Message):
    scope: _Scope = msgspec.field(default_factory=_Scope)
    spans: list[_Span] = []


class _Resource(_Message):
    attributes: list[_Pair] = []


class _ResourceSpans(_Message):
    resource: _Resource = msgspec.field(default_factory=_Resource)
    scope_spans: list[_ScopeSpans] = []


class _ExportRequest(_Message):
    resource_spans: list[_ResourceSpans] = []


_decode_export = msgspec.json.Decoder(_ExportRequest).decode


def _export(line: bytes, refuse: Callable[[Rejected], None]) -> tuple[_ExportRequest, bytes]:
    """Decode a request in JSON; invalid UTF-8 and half surrogate pairs are repaired, and malformed spans are refused.

    Returns:
        The request, and its encoding after repairs and without refused spans; b"" where it was read unchanged.
    """
    rejections: list[Rejected] = []
    is_whole = False
    try:
        request = _decode_request(line, rejections)
        is_whole = not rejections
    except Rejected as rejected:
        if rejected.reason == TOO_MANY:
            raise
        rejections.clear()
        repaired = _repaired(repaired_json(line), rejections)
        if repaired is None:
            raise Rejected(rejected.reason, str(rejected), max(1, line.count(_START_TIME))) from None
        request = repaired
    body = b""
    if not is_whole:
        # Decoded again, numbers that are not finite are null.
        with suppress(msgspec.MsgspecError, OverflowError, RecursionError):  # a count too large for an integer
            encoded = msgspec.json.encode(request)
            request, body = _decode_export(encoded), encoded
    for rejection in rejections:
        refuse(rejection)
    return request, body


def _repaired(line: bytes, rejections: list[Rejected]) -> _ExportRequest | None:
    """Decode a repaired request, if necessary without the spans that are no JSON; None where that fails too."""
    try:
        return _decode_request(line, rejections)
    except Rejected as rejected:
        if rejected.reason == TOO_MANY:
            raise
        rejections.clear()
    split = split_request(line)
    if split is None:
        return None
    try:
        envelope, raw_spans = split
        if len(raw_spans) > MAX_ITEMS:
            raise too_many(len(raw_spans))
        request, remaining = msgspec.json.decode(envelope), len(raw_spans)
        for scope_spans in _scopes(request):
            if indexes := _list_member(scope_spans, "spans"):
                remaining -= len(indexes)
                scope_spans["spans"] = decoded = []
                for index in indexes:
                    try:
                        decoded.append(decode_span(raw_spans[index]))
                    except Rejected as rejected:
                        rejections.append(Rejected(rejected.reason, str(rejected)))  # a raised one keeps its traceback
        return None if remaining else _convert_leniently(_without_nulls(request), rejections)
    except (msgspec.DecodeError, LookupError, TypeError, RecursionError):
        return None


def _decode_request(line: bytes, rejections: list[Rejected]) -> _ExportRequest:
    try:
        try:
            return _decode_export(line)
        except msgspec.ValidationError:
            return _convert_leniently(_without_nulls(msgspec.json.decode(line)), rejections)
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = constants.INVALID_SCHEMA if isinstance(error, msgspec.ValidationError) else constants.MALFORMED_JSON
        raise Rejected(reason, str(error)) from None


def _convert_leniently(request: Any, rejections: list[Rejected]) -> _ExportRequest:
    """Convert a request by protobuf's looser rules: numbers may be strings, and a malformed span is left out."""
    scopes = list(_scopes(request))
    count = sum(len(_list_member(scope_spans, "spans")) for scope_spans in scopes)
    if count > MAX_ITEMS:
        raise too_many(count)
    for scope_spans in scopes:
        if spans := _list_member(scope_spans, "spans"):
            scope_spans["spans"] = fitting = []
            for span in spans:
                try:
                    msgspec.convert(span, _Span, strict=False)
                    fitting.append(span)
                except msgspec.ValidationError as error:
                    rejections.append(Rejected(constants.INVALID_SCHEMA, str(error)))
    return msgspec.convert(request, _ExportRequest, strict=False)


def _scopes(request: Any) -> Iterator[Any]:
    for resource_spans in _list_member(request, "resourceSpans"):
        yield from _list_member(resource_spans, "scopeSpans")


def _list_member(message: Any, name: str) -> list[Any]:
    member = message.get(name) if isinstance(message, dict) else None
    return member if isinstance(member, list) else []


def _without_nulls(decoded: Any) -> Any:
    """JSON without members that are null: in protobuf's JSON encoding, null means not set."""
    if isinstance(decoded, dict):
        return {name: _without_nulls(value) for name, value in decoded.items() if value is not None}
    return [_without_nulls(value) for value in decoded] if isinstance(decoded, list) else decoded


def spans(line: bytes, refuse: Callable[[Rejected], None]) -> Iterator[tuple[Span, SpanOrigin]]:
    """The spans of one request in JSON, each with its origin; requests with metrics or logs have none.

    Each malformed span is refused. `Rejected` is raised where the request itself is malformed.
    """
    for message, origin in spans_of(_export(line, refuse)[0]):
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
        raise Rejected(MALFORMED_PROTOBUF, f"it is not a protocol message: {error}") from None


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
        request, batch.body = _export(body, batch.refuse)
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
        logs = _read_json(body)
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
                if name in MESSAGE_EVENTS or name == semconv.EVALUATION:
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


class _ScopeLogs(msgspec.Struct, rename="camel"):
    log_records: list[msgspec.Raw] | None = None


class _ResourceLogs(msgspec.Struct, rename="camel"):
    resource: dict[str, Any] | None = None
    scope_logs: list[_ScopeLogs] | None = None


class _ExportLogs(msgspec.Struct, rename="camel"):
    resource_logs: list[_ResourceLogs] | None = None


_decode_logs: Final = msgspec.json.Decoder(_ExportLogs).decode
_UNREADABLE: Final = (msgspec.MsgspecError, ParseError, UnicodeDecodeError, RecursionError, ValueError, TypeError)
_NO_RECORD: Final = LogRecord()


def _read_json(body: bytes) -> Iterator[tuple[Any, list[Any]]]:
    """The log records of each process, with its resource; an empty one for each that is malformed."""
    check_size(body, ExportLogsServiceRequest, json=True)
    try:
        request = _decode_logs(body)
        resources = [
            ParseDict(resource_logs.resource or {}, Resource(), ignore_unknown_fields=True)
            for resource_logs in request.resource_logs or ()
        ]
    except _UNREADABLE:
        raise Rejected(constants.MALFORMED_JSON, "it holds no logs as OTLP writes them in JSON") from None
    for resource, resource_logs in zip(resources, request.resource_logs or (), strict=True):
        raw = [record for scope_logs in resource_logs.scope_logs or () for record in scope_logs.log_records or ()]
        yield resource, [_json_record(record) for record in raw]


def _json_record(raw: msgspec.Raw) -> Any:
    try:
        record = msgspec.json.decode(raw)
        for name in ("traceId", "spanId"):  # hexadecimal in OTLP, base64 in protobuf's JSON
            record[name] = base64.b64encode(bytes.fromhex(record[name])).decode()
        return ParseDict(record, LogRecord(), ignore_unknown_fields=True)
    except (LookupError, *_UNREADABLE):
        return _NO_RECORD


def log_spans(line: bytes) -> Iterator[tuple[Span, SpanOrigin]]:
    """The spans that stand for the events in a line with logs, each with what made it."""
    if is_export(line, "Logs"):
        traces = ExportTraceServiceRequest.FromString(read_logs(line, as_json=True).body)
        for message, process in spans_of(traces):
            yield to_span(message, process.scope), process
