"""The spans of one OTLP request: what is read of the messages of either encoding.

`ragmon.ingest.otlp.json` has messages with the fields of protobuf's, so all that follows the wire is here.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from opentelemetry.proto.trace.v1 import trace_pb2

from ragmon.core import constants, semconv
from ragmon.ingest.fields import Rejected, wrong_type
from ragmon.ingest.otlp.wire import MAX_ITEMS, too_many
from ragmon.ingest.spans.conventions import EVENT_KEYS, KEY_PREFIXES, KEYS, MESSAGE_EVENTS
from ragmon.ingest.spans.fields import MEMBERS
from ragmon.ingest.spans.model import HIT_EVENTS, OWN_SCOPE, Event, Span
from ragmon.ingest.spans.reasons import PLACES
from ragmon.ingest.spans.values import LISTS, Memo

_SERVICE: Final = "service.name"
"""The resource attribute with the name of the service."""
_BUILD: Final = "service.version"
"""The resource attribute with the version of the application."""
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
"""The parent ids of a root span."""
_FAILED: Final = trace_pb2.Status.STATUS_CODE_ERROR
_SAMPLED: Final = 1
"""The bit of a span's flags that says that its trace is sampled."""


class NativeSpan(msgspec.Struct, gc=False):
    """A span of ragmon that holds a whole record.

    Attributes:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        end_ns: The end time, nanoseconds since the epoch.
        line: The record, one line of the trace contract, not decoded yet.
    """

    trace_id: bytes
    span_id: bytes
    end_ns: int
    line: str


class ExternalSpan(msgspec.Struct, gc=False):
    """A span of another instrumentation.

    Attributes:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        is_root: Whether it has no parent.
        end_ns: The end time, nanoseconds since the epoch.
        failed: Whether its status is an error.
        service: The service of its process, `service.name`; None where that is unknown.
        build: The version of the application, `service.version`.
        scope: The name of the instrumentation.
        content: The span, from JSON; from protobuf its bytes, because a message keeps its whole request in memory.
    """

    trace_id: bytes
    span_id: bytes
    is_root: bool
    end_ns: int
    failed: bool
    service: str | None
    build: str | None
    scope: str
    content: bytes | Span

    def span(self) -> Span:
        """The span in the mapper's form, with only the attributes the mapper reads."""
        if isinstance(self.content, Span):
            return self.content
        return to_span(trace_pb2.Span.FromString(self.content), self.scope)


class SpanOrigin(NamedTuple):
    """The program that a span is of, and the instrumentation that made it.

    Attributes:
        service: Its service; None where that is unknown.
        build: Its version.
        scope: The name of the instrumentation.
    """

    service: str | None
    build: str | None
    scope: str


@dataclass(slots=True)
class SpanBatch:
    """The spans of one request.

    Attributes:
        spans: The number of all spans.
        native: The spans of ragmon that hold whole records.
        external: The spans of other instrumentations.
        stages: The number of child spans of ragmon; they add nothing to the record on their root.
        rejected: The number of rejected spans, by reason.
        first: The details of the first rejection; "" where there is none.
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

    def sort(self, message: Any, process: SpanOrigin) -> None:
        """Add a span to the list that it belongs to.

        Args:
            message: The span.
            process: What made it.

        Raises:
            Rejected: It is malformed.
        """
        trace_id, span_id, end_ns = message.trace_id, message.span_id, message.end_time_unix_nano
        check_ids(message)
        own, pairs = process.scope == OWN_SCOPE, message.attributes
        record = next(
            (p.value for p in (pairs if own else pairs[:_RECORD_SEARCH_LIMIT]) if p.key == semconv.RAGMON_RECORD), None
        )
        if record is not None:
            if record.WhichOneof("value") != "string_value":
                raise Rejected(constants.INVALID_SCHEMA, f"{semconv.RAGMON_RECORD} is text")
            self.native.append(NativeSpan(trace_id, span_id, end_ns, record.string_value))
        elif own:
            self.stages += 1
        else:
            is_root, failed = message.parent_span_id in _NO_PARENT, message.status.code == _FAILED
            content = (
                message.SerializeToString() if isinstance(message, trace_pb2.Span) else to_span(message, process.scope)
            )
            self.external.append(ExternalSpan(trace_id, span_id, is_root, end_ns, failed, *process, content))
        self.spans += 1


def spans_of(request: Any) -> Iterator[tuple[Any, SpanOrigin]]:
    """The spans of a request, each with what made it.

    Raises:
        Rejected: There are too many.
    """
    processes = request.resource_spans
    count = sum(len(scope_spans.spans) for resource_spans in processes for scope_spans in resource_spans.scope_spans)
    if count > MAX_ITEMS:
        raise too_many(count)
    for resource_spans in processes:
        texts = {pair.key: pair.value.string_value for pair in resource_spans.resource.attributes}
        service, build = texts.get(_SERVICE) or None, texts.get(_BUILD) or None
        for scope_spans in resource_spans.scope_spans:
            process = SpanOrigin(service, build, scope_spans.scope.name)
            for message in scope_spans.spans:
                yield message, process


def sorted_spans(batch: SpanBatch, request: Any) -> SpanBatch:
    """A batch with the spans of a request; malformed ones are left out and counted.

    Raises:
        Rejected: There are too many.
    """
    for message, process in spans_of(request):
        try:
            batch.sort(message, process)
        except Rejected as rejected:
            batch.refuse(rejected)
    return batch


def check_ids(message: Any) -> None:
    """Check the ids of a span.

    Raises:
        Rejected: One of them is none.
    """
    trace_id, span_id, parent = message.trace_id, message.span_id, message.parent_span_id
    if len(trace_id) != _TRACE_ID_BYTES or trace_id == _NO_TRACE:
        raise wrong_type("trace_id", f"{_TRACE_ID_BYTES} bytes, not all zero", trace_id)
    if len(span_id) != _SPAN_ID_BYTES or span_id == _NO_SPAN:
        raise wrong_type("span_id", f"{_SPAN_ID_BYTES} bytes, not all zero", span_id)
    if parent and len(parent) != _SPAN_ID_BYTES:
        raise wrong_type("parent_span_id", f"{_SPAN_ID_BYTES} bytes", parent)


_READ_KEYS: Final = frozenset(
    {
        semconv.RAGMON_RECORD,
        semconv.RAGMON_QID,
        semconv.RAGMON_CLAIM,
        semconv.RAGMON_CITATIONS,
        semconv.RAGMON_INTERNAL,
        semconv.OPERATION,
        semconv.WORKFLOW_NAME,
        semconv.INPUT_MESSAGES,
        semconv.OUTPUT_MESSAGES,
        semconv.QUERY_TEXT,
        semconv.DOCUMENTS,
        semconv.GENAI_TOOL_NAME,
        semconv.TOOL_RESULT,
        semconv.MCP_METHOD,
        semconv.ERROR_TYPE,
        semconv.CONVERSATION,
        semconv.SPAN_KIND,
        semconv.INPUT_VALUE,
        semconv.OUTPUT_VALUE,
        semconv.RERANKER_QUERY,
        semconv.LLM_MODEL,
        semconv.PROMPT_TEMPLATE,
        semconv.METADATA,
        semconv.SESSION,
        semconv.REQUEST_MODEL,
        semconv.RESPONSE_MODEL,
        semconv.USER,
        semconv.END_USER,
        semconv.TOOL_NAME,
        semconv.TRACELOOP_KIND,
        semconv.TRACELOOP_WORKFLOW,
        semconv.ENTITY_NAME,
        semconv.FUNCTION_NAME,
        semconv.ENTITY_INPUT,
        semconv.ENTITY_OUTPUT,
        semconv.TASK_STATUS,
        semconv.REQUEST_TYPE,
        semconv.VECTOR_TOP_K,
        semconv.CHROMA_RESULTS,
        semconv.TRULENS_KIND,
        semconv.TRULENS_INPUT,
        semconv.TRULENS_OUTPUT,
        semconv.TRULENS_ERROR,
        semconv.TRULENS_QUERY,
        semconv.TRULENS_CONTEXTS,
        semconv.TRULENS_RERANKED,
        semconv.TRULENS_INPUT_ID,
        semconv.TRULENS_CONVERSATION,
        *KEYS,
    }
)
"""The attributes of spans that the mapper reads: the others stay undecoded, which takes half as long."""
_READ_PREFIXES: Final = (*(f"{name}." for name in (*LISTS, semconv.ASSOCIATION)), *KEY_PREFIXES)
"""The prefixes of the keys of flattened lists and objects, of which every attribute is read."""


def _is_read(key: str) -> bool:
    return key in _READ_KEYS or key.startswith(_READ_PREFIXES) or bool(PLACES[key])


IS_READ: Final = Memo(_is_read)
"""Whether an attribute of a span is read, by its key; texts and names of models in any convention are, because the
reason for an unknown field depends on whether there are such."""


def on_event(event: str, key: str) -> bool:
    """Whether an attribute of an event is read.

    Args:
        event: The event's name.
        key: The attribute's key.

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
    """A span in the mapper's form, with only the attributes the mapper reads.

    Args:
        message: The span.
        scope: The name of the instrumentation.

    Raises:
        Rejected: A value is no number, or nested too deeply; only in JSON.
    """
    parent, flags = message.parent_span_id, message.flags
    return Span(
        message.trace_id.hex(),
        message.span_id.hex(),
        None if parent in _NO_PARENT else parent.hex(),
        message.name,
        message.start_time_unix_nano,
        message.end_time_unix_nano,
        {key: value(pair.value) for pair in message.attributes if IS_READ[key := pair.key]},
        [_event(event) for event in message.events],
        message.status.code == _FAILED,
        message.dropped_attributes_count,
        message.dropped_events_count,
        scope,
        bool(flags & _SAMPLED) if flags else None,
        [link.trace_id.hex() for link in message.links] if message.links else (),
    )


def _event(message: Any) -> Event:
    name = message.name
    return Event(name, {pair.key: value(pair.value) for pair in message.attributes if on_event(name, pair.key)})


def value(any_value: Any, depth: int = 0) -> Any:
    """The value of an attribute as a Python object; bytes become base64 text, as in JSON.

    Args:
        any_value: The message `AnyValue`.
        depth: The number of values around it.

    Raises:
        Rejected: It is nested too deeply, or no number; only in JSON.
    """
    kind = any_value.WhichOneof("value")
    if kind == "string_value":
        return any_value.string_value
    if kind == "array_value":
        return [value(member, depth + 1) for member in _members(any_value.array_value, depth)]
    if kind == "kvlist_value":
        return {pair.key: value(pair.value, depth + 1) for pair in _members(any_value.kvlist_value, depth)}
    if kind == "bytes_value":
        content = any_value.bytes_value
        return base64.b64encode(content).decode() if isinstance(content, bytes) else content
    return getattr(any_value, kind) if kind in _NUMBERS else None


_NUMBERS: Final = ("bool_value", "int_value", "double_value")
"""The other kinds of values that are set; an index into a string table, which traces do not have, is unset."""


def _members(values: Any, depth: int) -> Iterable[Any]:
    """The members of a list or an object.

    Raises:
        Rejected: It is nested too deeply.
    """
    if depth >= _MAX_DEPTH:
        raise Rejected(constants.DEPTH, "an attribute is nested too deeply")
    members: Iterable[Any] = values.values
    return members
