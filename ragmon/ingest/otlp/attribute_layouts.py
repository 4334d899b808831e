"""Fast decoding of span attributes in protobuf: only the attributes that `ragmon.ingest.spans` reads, many at a time.

To convert one attribute of a protocol message to a Python object takes longer than parsing thirty. So other attributes
stay undecoded, and all text values of a span are read in one step, from a request parsed with changed definitions.

That step loses which value belongs to which key. Spans of one instrumentation mostly have the same keys with the same
kinds of values in the same order, so this layout is computed once and used for all spans that match it.

Protobuf encodes a repeated message like a repeated bytes field, or like one message in several parts, which a parser
merges. So OTLP's own definitions, with another type for the attributes of a span, read the same request in other ways.

Source: OpenTelemetry, `trace.proto` and `common.proto`; Protocol Buffers, encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import getitem
from struct import Struct
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragmon.core import semconv
from ragmon.ingest.otlp.batch import value
from ragmon.ingest.spans.conventions import EVENT_KEYS, KEY_PREFIXES, KEYS, MESSAGE_EVENTS
from ragmon.ingest.spans.fields import MEMBERS
from ragmon.ingest.spans.model import HIT_EVENTS
from ragmon.ingest.spans.reasons import PLACES
from ragmon.ingest.spans.values import ABSENT, CELLS, LISTS, Cell, FlattenedList, GroupedAttributes, Memo, table

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


_KEY_TAG: Final = b"\x0a"
"""The tag of an attribute's key: field 1, length-delimited."""
_VALUE_TAG: Final = b"\x12"
"""The tag of an attribute's value: field 2, length-delimited."""
_STRING_TAG: Final = b"\x0a"
"""The tag of a string value: field 1."""
_DOUBLE_VALUE: Final = b"\x12\x09\x21"
"""The tag and the length, nine bytes, of a value that is a double, and the tag of the double: field 4."""
_CONTINUATION_BIT: Final = 0x80
"""The bit of a varint's byte that says that another byte follows."""
_double = Struct("<d").unpack_from


class Layout:
    """The attributes of a span: their keys, the kinds of their values, and the index of each value.

    Args:
        pairs: The attributes, messages `KeyValue`.

    Raises:
        LookupError: An attribute does not start with its key, or its key has more than 127 bytes.
    """

    def __init__(self, pairs: Sequence[bytes]) -> None:
        self._prefixes: list[bytes] = []
        texts: list[int] = []
        doubles: list[int] = []
        self._others: list[tuple[int, int, bool]] = []
        keys: list[str | None] = []
        for position, pair in enumerate(pairs):
            prefix = pair[: pair[1] + 2]
            keys.append(_KEYS[prefix])
            if pair.startswith(_DOUBLE_VALUE, len(prefix)):
                prefix += _DOUBLE_VALUE
                doubles.append(position)
            elif _is_text(pair, len(prefix)):
                texts.append(position)
            else:
                self._others.append((position, len(prefix), keys[position] is not None))
            self._prefixes.append(prefix)
        self._slices = [slice(len(prefix)) for prefix in self._prefixes]
        self._texts = len(texts)
        self._doubles = len(doubles)
        order = [*texts, *doubles, *[position for position, _, _ in self._others]]
        self._assign({position: index for index, position in enumerate(order)}, keys)

    def _assign(self, indexes: Mapping[int, int], keys: Sequence[str | None]) -> None:
        """Compute the index of each value that is read.

        Args:
            indexes: The index of each attribute's value when the values are read by kind.
            keys: The keys of the attributes; None for one that is not read.
        """
        self._single: list[tuple[str, int]] = []
        cells: dict[str, list[tuple[Cell, int]]] = {}
        for position, key in enumerate(keys):
            cell = None if key is None else CELLS[key]
            if cell is not None:
                cells.setdefault(cell.name, []).append((cell, indexes[position]))
            elif key is not None:
                self._single.append((key, indexes[position]))
        self._lists = [(name, table(indexed)) for name, indexed in cells.items()]

    def read(self, values_by_kind: Any, pairs: Sequence[bytes]) -> GroupedAttributes | None:
        """The attributes of a span that are read; None where the span does not match this layout.

        Args:
            values_by_kind: The attributes' values by kind.
            pairs: As many attributes as this layout has.
        """
        values = [*values_by_kind.string_value]
        if len(values) != self._texts or list(map(getitem, pairs, self._slices)) != self._prefixes:
            return None
        if self._doubles:
            values += values_by_kind.double_value
            if len(values) != self._texts + self._doubles:
                return None
        for position, key_end, is_read in self._others:
            if _is_text(pairs[position], key_end):
                return None
            values.append(value(KeyValue.FromString(pairs[position]).value) if is_read else None)
        single = {key: values[index] for key, index in self._single}
        return GroupedAttributes(single, {name: _with_values(indexes, values) for name, indexes in self._lists})


def _with_values(indexes: FlattenedList, values: Sequence[Any]) -> FlattenedList:
    """A list with the values in place of their indexes."""
    columns = {
        member: [ABSENT if index is ABSENT else values[index] for index in column]
        for member, column in indexes.columns.items()
    }
    return FlattenedList(indexes.size, indexes.is_complete, columns)


def _is_text(pair: bytes, at: int) -> bool:
    """Whether the value of an attribute is a string.

    Args:
        pair: The attribute.
        at: The end of its key.
    """
    if pair[at : at + 1] != _VALUE_TAG:
        return False
    at += 1
    while pair[at] >= _CONTINUATION_BIT:
        at += 1
    return pair[at + 1 : at + 2] == _STRING_TAG


def _key_of(prefix: bytes) -> str | None:
    """The key an attribute starts with; None where the attribute is not read.

    Raises:
        LookupError: It does not start with its key.
    """
    if prefix[:1] != _KEY_TAG or prefix[1] >= _CONTINUATION_BIT or len(prefix) != prefix[1] + 2:
        raise LookupError(prefix)
    key = prefix[2:].decode()
    return key if IS_READ[key] else None


_KEYS: Final = Memo(_key_of)


MAX_ATTRIBUTES: Final = 256
"""The maximum number of attributes of a span whose layout is kept; OpenTelemetry's SDKs allow 128 per span."""
MAX_KEPT_KINDS: Final = 256
"""The maximum number of pairs of instrumentation and number of attributes for which layouts are kept."""
MAX_LAYOUTS: Final = 4
"""The number of layouts that are kept for each pair."""
MAX_MISSES: Final = 8
"""After more spans in a row without a matching layout, the next spans are decoded one attribute at a time, because
computing a layout takes longer."""
SKIPPED_SPANS: Final = 200
"""The number of those next spans."""


class RecentLayouts:
    """Layouts of spans of one instrumentation with the same number of attributes, the newest first."""

    def __init__(self) -> None:
        self._layouts: list[Layout] = []
        self._misses_in_row = 0
        self._spans_to_skip = 0

    def read(self, values_by_kind: Any, pairs: Sequence[bytes]) -> Mapping[str, Any] | None:
        """The attributes of a span; None where they should be decoded one at a time."""
        if self._spans_to_skip:
            self._spans_to_skip -= 1
            return None
        for layout in self._layouts:
            attributes = layout.read(values_by_kind, pairs)
            if attributes is not None:
                self._misses_in_row = 0
                return attributes
        self._misses_in_row += 1
        if self._misses_in_row > MAX_MISSES:
            self._misses_in_row, self._spans_to_skip = 0, SKIPPED_SPANS
        try:
            layout = Layout(pairs)
        except LookupError:  # a valid encoding that no exporter uses
            return None
        self._layouts = [layout, *self._layouts[: MAX_LAYOUTS - 1]]
        return layout.read(values_by_kind, pairs)


_kinds: Final[dict[tuple[str, int], RecentLayouts]] = {}


def attributes(scope: str, values_by_kind: Any, raw: Any) -> Mapping[str, Any]:
    """The attributes of a span that are read.

    Args:
        scope: The name of the instrumentation.
        values_by_kind: The attributes' values by kind: one message `AnyValue` whose fields are lists.
        raw: The span with its attributes in bytes.
    """
    pairs = raw.attributes[:]
    recent = _kinds.get((scope, len(pairs)))
    if recent is None:
        recent = RecentLayouts()
        if len(pairs) <= MAX_ATTRIBUTES:
            _add_recent(recent, scope, len(pairs))
    grouped = recent.read(values_by_kind, pairs)
    return one_by_one(raw) if grouped is None else grouped


def _add_recent(recent: RecentLayouts, scope: str, size: int) -> None:
    if len(_kinds) >= MAX_KEPT_KINDS:
        del _kinds[next(iter(_kinds))]
    _kinds[scope, size] = recent


def one_by_one(raw: Any) -> dict[str, Any]:
    """The attributes of a span that are read, decoded one at a time without a layout.

    Args:
        raw: The span, with its attributes in bytes or not.

    >>> span = Span(attributes=[{"key": "input.value", "value": {"string_value": "Is it?"}}])
    >>> one_by_one(span)
    {'input.value': 'Is it?'}
    """
    pairs = Span.FromString(raw.SerializeToString()).attributes
    return {key: value(pair.value) for pair in pairs if IS_READ[key := pair.key]}


_SPAN: Final = "Span"
_ATTRIBUTES: Final = "attributes"
_SCOPE: Final = "ScopeSpans"
_SPANS: Final = "spans"
_REQUEST: Final = "TracesData"
"""The message that holds traces outside of requests; it has the same encoding as an export request."""


def _request_class(change: Callable[[Any, Any], None]) -> Any:
    """The class of requests with a changed definition of a span's attributes."""
    pool = DescriptorPool()
    for module in (common_pb2, resource_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    file = FileDescriptorProto.FromString(trace_pb2.DESCRIPTOR.serialized_pb)
    change(file, _field(file, _SPAN, _ATTRIBUTES))
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{_REQUEST}"))


def _field(file: Any, message: str, name: str) -> Any:
    """The definition of a field."""
    definition = next(candidate for candidate in file.message_type if candidate.name == message)
    return next(field for field in definition.field if field.name == name)


def _in_bytes(_file: Any, attributes: Any) -> None:
    attributes.type = FieldDescriptorProto.TYPE_BYTES
    attributes.ClearField("type_name")


def _by_kind(file: Any, attributes: Any) -> None:
    """Define the attributes as one `KeyValue` whose fields are lists, with one such `AnyValue` in it."""
    for message in (common_pb2.KeyValue, common_pb2.AnyValue):
        columns = file.message_type.add()
        message.DESCRIPTOR.CopyToProto(columns)
        columns.ClearField("oneof_decl")
        for field in columns.field:
            field.ClearField("oneof_index")
            field.label = FieldDescriptorProto.LABEL_REPEATED
            if field.type_name.endswith(".AnyValue"):
                _make_single(field, file.package, "AnyValue")
    _make_single(attributes, file.package, "KeyValue")


def _make_single(field: Any, package: str, message: str) -> None:
    field.label = FieldDescriptorProto.LABEL_OPTIONAL
    field.type_name = f".{package}.{message}"


def _pool_without_strings(texts: set[tuple[str, str]], *, spans: bool) -> DescriptorPool:
    """The definitions of requests with bytes in place of strings, because a parser accepts any bytes.

    Args:
        texts: Receives the message and field names of the strings.
        spans: Whether each span becomes bytes as well, so that a malformed one does not matter.
    """
    pool = DescriptorPool()
    for module in (common_pb2, resource_pb2, trace_pb2):
        file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        messages = list(file.message_type)
        while messages:
            message = messages.pop()
            messages += message.nested_type
            for field in message.field:
                if field.type == FieldDescriptorProto.TYPE_STRING:
                    texts.add((message.name, field.name))
                    field.type = FieldDescriptorProto.TYPE_BYTES
        if spans and module is trace_pb2:
            _in_bytes(file, _field(file, _SCOPE, _SPANS))
        pool.AddSerializedFile(file.SerializeToString())
    return pool


class BytesClasses(NamedTuple):
    """The classes for requests whose strings may be invalid UTF-8.

    Attributes:
        request: The class of requests, with spans in bytes.
        span: The class of spans.
        texts: The message and field names of the strings.
    """

    request: Any
    span: Any
    texts: frozenset[tuple[str, str]]


@cache
def bytes_classes() -> BytesClasses:
    """The classes that read requests with invalid UTF-8; created for the first request that needs them."""
    texts: set[tuple[str, str]] = set()
    package = trace_pb2.DESCRIPTOR.package
    request, span = (
        GetMessageClass(_pool_without_strings(texts, spans=spans).FindMessageTypeByName(f"{package}.{name}"))
        for spans, name in ((True, _REQUEST), (False, _SPAN))
    )
    return BytesClasses(request, span, frozenset(texts))


InBytes: Final = _request_class(_in_bytes)
"""A request whose spans have their attributes as a list of bytes, each the message `KeyValue`."""
ByKind: Final = _request_class(_by_kind)
"""A request whose spans have their attributes by kind of value: `attributes.value.string_value` is all strings, in
order."""
OneByKind: Final = GetMessageClass(ByKind.DESCRIPTOR.file.message_types_by_name[_SPAN])
"""A span of such a request."""
