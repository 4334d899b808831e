"""Which attributes say something about a request: only those are read off a span.

Turning one attribute of a protocol message into Python's objects takes longer than parsing thirty; what no reader in
`ragmon.ingest.spans` asks for stays unread.

Which attributes a span has: those of one instrumentation mostly have the same ones, in the same order.

To turn attributes into Python's objects one by one takes longer than all the rest of reading a span; all texts of a
span are one step for the parser. Where a span has the keys and the kinds of values that one before it had, what was
found out about that one says which text is what.

Source: OpenTelemetry, `common.proto`; Protocol Buffers, encoding.

The attributes of a span that are wanted, read by the layouts of spans before it.

Requests with traces as protobuf writes them, parsed so that nobody need touch attributes one by one.

Protobuf writes a list of messages just as it writes a list of bytes, or one message that comes in pieces, which a
parser puts together. So OTLP's own definitions, changed where they say what the attributes of a span are, read the
same request in other ways.

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
from ragmon.ingest.spans.fields import MEMBERS
from ragmon.ingest.spans.values import ABSENT, CELLS, LISTS, Cell, FlattenedList, GroupedAttributes, Memo, table

_SINGLE: Final = frozenset(
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
        semconv.TRACELOOP_KIND,
        semconv.TRACELOOP_WORKFLOW,
        semconv.ENTITY_NAME,
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
    }
)
_BELOW: Final = tuple(f"{name}." for name in (*LISTS, semconv.ASSOCIATION))
"""How the keys of flattened lists and objects begin: those are read whole."""
_HITS: Final = (semconv.QUERY_RESULT, semconv.SEARCH_RESULT)


def _on_span(key: str) -> bool:
    return key in _SINGLE or key.startswith(_BELOW)


ON_SPAN: Final = Memo(_on_span)
"""Whether an attribute of a span is read, by its key."""


def on_event(event: str, key: str) -> bool:
    """Whether an attribute of an event is read.

    Args:
        event: The event's name.
        key: The attribute's.

    >>> on_event("exception", "exception.type"), on_event("exception", "exception.stacktrace")
    (True, False)
    """
    return (
        event in _HITS
        or (event == semconv.EXCEPTION and key == semconv.EXCEPTION_TYPE)
        or (event == semconv.EVALUATION and key in MEMBERS)
    )


_KEY: Final = b"\x0a"
"""Says that an attribute's key follows: field 1, its length first."""
_VALUE: Final = b"\x12"
"""Says that its value follows: field 2, its length first."""
_TEXT: Final = b"\x0a"
"""Says that a value is text: field 1."""
_DOUBLE: Final = b"\x12\x09\x21"
"""Says that a value follows, that it has nine bytes, and that it is a double: field 4."""
_MORE: Final = 0x80
"""The bit of a length's byte that says that another one follows."""
_double = Struct("<d").unpack_from


class Layout:
    """The attributes of a span: their keys, the kinds of their values, and where those belong.

    Args:
        pairs: The attributes, messages `KeyValue`.

    Raises:
        LookupError: One of them does not begin with its key, or that has more than 127 bytes.
    """

    def __init__(self, pairs: Sequence[bytes]) -> None:
        self._heads: list[bytes] = []
        texts: list[int] = []
        doubles: list[int] = []
        self._others: list[tuple[int, int, bool]] = []
        wanted: list[str | None] = []
        for at, pair in enumerate(pairs):
            head = pair[: pair[1] + 2]
            wanted.append(_KEYS[head])
            if pair.startswith(_DOUBLE, len(head)):
                head += _DOUBLE
                doubles.append(at)
            elif _is_text(pair, len(head)):
                texts.append(at)
            else:
                self._others.append((at, len(head), wanted[at] is not None))
            self._heads.append(head)
        self._slices = [slice(len(head)) for head in self._heads]
        self._texts = len(texts)
        self._doubles = len(doubles)
        order = [*texts, *doubles, *[at for at, _, _ in self._others]]
        self._place({at: index for index, at in enumerate(order)}, wanted)

    def _place(self, indexes: Mapping[int, int], wanted: Sequence[str | None]) -> None:
        """Find out where values belong.

        Args:
            indexes: Where the value of each attribute stands when they are read by kind.
            wanted: Their keys; None for one nobody asks for.
        """
        self._alone: list[tuple[str, int]] = []
        cells: dict[str, list[tuple[Cell, int]]] = {}
        for at, key in enumerate(wanted):
            cell = None if key is None else CELLS[key]
            if cell is not None:
                cells.setdefault(cell.name, []).append((cell, indexes[at]))
            elif key is not None:
                self._alone.append((key, indexes[at]))
        self._lists = [(name, table(found)) for name, found in cells.items()]

    def read(self, told: Any, pairs: Sequence[bytes]) -> GroupedAttributes | None:
        """The attributes of a span that are wanted; None where it has others.

        Args:
            told: Their values by kind.
            pairs: As many attributes as this layout has.
        """
        values = [*told.string_value]
        if len(values) != self._texts or list(map(getitem, pairs, self._slices)) != self._heads:
            return None
        if self._doubles:
            values += told.double_value
            if len(values) != self._texts + self._doubles:
                return None
        for at, end, wanted in self._others:
            if _is_text(pairs[at], end):
                return None
            values.append(value(KeyValue.FromString(pairs[at]).value) if wanted else None)
        alone = {key: values[index] for key, index in self._alone}
        return GroupedAttributes(alone, {name: _filled(indexes, values) for name, indexes in self._lists})


def _filled(indexes: FlattenedList, values: Sequence[Any]) -> FlattenedList:
    """A list with values in place of their indexes."""
    columns = {
        member: [ABSENT if index is ABSENT else values[index] for index in column]
        for member, column in indexes.columns.items()
    }
    return FlattenedList(indexes.size, indexes.whole, columns)


def _is_text(pair: bytes, at: int) -> bool:
    """Whether an attribute's value is text.

    Args:
        pair: The attribute.
        at: Where its key ends.
    """
    if pair[at : at + 1] != _VALUE:
        return False
    at += 1
    while pair[at] >= _MORE:
        at += 1
    return pair[at + 1 : at + 2] == _TEXT


def _wanted(head: bytes) -> str | None:
    """The key an attribute begins with; None where nobody asks for it.

    Raises:
        LookupError: It does not begin with its key.
    """
    if head[:1] != _KEY or head[1] >= _MORE or len(head) != head[1] + 2:
        raise LookupError(head)
    key = head[2:].decode()
    return key if ON_SPAN[key] else None


_KEYS: Final = Memo(_wanted)


MOST: Final = 256
"""Attributes of a span whose layout is remembered; OpenTelemetry's SDKs keep 128 of a span."""
KINDS: Final = 256
"""Instrumentations and numbers of attributes for which layouts are remembered."""
RECENT: Final = 4
"""Layouts for each of those."""
MAX_MISSES: Final = 8
"""Spans in a row with layouts of their own after which the next ones are read one by one: to learn takes longer."""
REST: Final = 200
"""How many of them."""


class Recent:
    """Layouts of spans of one instrumentation with the same number of attributes, the last one first."""

    def __init__(self) -> None:
        self._layouts: list[Layout] = []
        self._missed = 0
        self._rest = 0

    def read(self, told: Any, pairs: Sequence[bytes]) -> Mapping[str, Any] | None:
        """The attributes of a span; None where they had better be read one by one."""
        if self._rest:
            self._rest -= 1
            return None
        for layout in self._layouts:
            found = layout.read(told, pairs)
            if found is not None:
                self._missed = 0
                return found
        self._missed += 1
        if self._missed > MAX_MISSES:
            self._missed, self._rest = 0, REST
        try:
            layout = Layout(pairs)
        except LookupError:  # they are written as no exporter does, but may be
            return None
        self._layouts = [layout, *self._layouts[: RECENT - 1]]
        return layout.read(told, pairs)


_kinds: Final[dict[tuple[str, int], Recent]] = {}


def attributes(scope: str, told: Any, raw: Any) -> Mapping[str, Any]:
    """The attributes of a span.

    Args:
        scope: The name of the instrumentation.
        told: Their values by kind: one message `AnyValue` whose fields are lists.
        raw: The span with its attributes in bytes.
    """
    pairs = raw.attributes[:]
    recent = _kinds.get((scope, len(pairs)))
    if recent is None:
        recent = Recent()
        if len(pairs) <= MOST:
            _remember(recent, scope, len(pairs))
    found = recent.read(told, pairs)
    return one_by_one(raw) if found is None else found


def _remember(recent: Recent, scope: str, size: int) -> None:
    if len(_kinds) >= KINDS:
        del _kinds[next(iter(_kinds))]
    _kinds[scope, size] = recent


def one_by_one(raw: Any) -> dict[str, Any]:
    """The same, without a layout.

    Args:
        raw: The span, be its attributes in bytes or not.

    >>> span = Span(attributes=[{"key": "input.value", "value": {"string_value": "Is it?"}}])
    >>> one_by_one(span)
    {'input.value': 'Is it?'}
    """
    pairs = Span.FromString(raw.SerializeToString()).attributes
    return {key: value(pair.value) for pair in pairs if ON_SPAN[key := pair.key]}


_SPAN: Final = "Span"
_ATTRIBUTES: Final = "attributes"
_SCOPE: Final = "ScopeSpans"
_SPANS: Final = "spans"
_REQUEST: Final = "TracesData"
"""What traces are held in wherever they are not sent; it is written like the request of an exporter."""


def _parsed(change: Callable[[Any, Any], None]) -> Any:
    """The class of requests, with the definition of a span's attributes changed."""
    pool = DescriptorPool()
    for known in (common_pb2, resource_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = FileDescriptorProto.FromString(trace_pb2.DESCRIPTOR.serialized_pb)
    change(file, _field(file, _SPAN, _ATTRIBUTES))
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{_REQUEST}"))


def _field(file: Any, message: str, name: str) -> Any:
    """The definition of a field."""
    found = next(one for one in file.message_type if one.name == message)
    return next(field for field in found.field if field.name == name)


def _in_bytes(_file: Any, attributes: Any) -> None:
    attributes.type = FieldDescriptorProto.TYPE_BYTES
    attributes.ClearField("type_name")


def _by_kind(file: Any, attributes: Any) -> None:
    """One `KeyValue` in pieces, all whose fields are lists; and in it one such `AnyValue`."""
    for message in (common_pb2.KeyValue, common_pb2.AnyValue):
        columns = file.message_type.add()
        message.DESCRIPTOR.CopyToProto(columns)
        columns.ClearField("oneof_decl")
        for field in columns.field:
            field.ClearField("oneof_index")
            field.label = FieldDescriptorProto.LABEL_REPEATED
            if field.type_name.endswith(".AnyValue"):
                _once(field, file.package, "AnyValue")
    _once(attributes, file.package, "KeyValue")


def _once(field: Any, package: str, message: str) -> None:
    field.label = FieldDescriptorProto.LABEL_OPTIONAL
    field.type_name = f".{package}.{message}"


def _without_texts(texts: set[tuple[str, str]], *, spans: bool) -> DescriptorPool:
    """The definitions of requests with bytes in place of texts, which a parser takes whatever they hold.

    Args:
        texts: Where the names of messages and their fields are put that are texts.
        spans: Each span is one text as well, be it readable or not.
    """
    pool = DescriptorPool()
    for known in (common_pb2, resource_pb2, trace_pb2):
        file = FileDescriptorProto.FromString(known.DESCRIPTOR.serialized_pb)
        messages = list(file.message_type)
        while messages:
            message = messages.pop()
            messages += message.nested_type
            for field in message.field:
                if field.type == FieldDescriptorProto.TYPE_STRING:
                    texts.add((message.name, field.name))
                    field.type = FieldDescriptorProto.TYPE_BYTES
        if spans and known is trace_pb2:
            _in_bytes(file, _field(file, _SCOPE, _SPANS))
        pool.AddSerializedFile(file.SerializeToString())
    return pool


class Loose(NamedTuple):
    """Requests whose texts need not be UTF-8.

    Attributes:
        request: The class of requests whose spans are bytes.
        span: The class of spans.
        texts: The names of messages and their fields that are texts.
    """

    request: Any
    span: Any
    texts: frozenset[tuple[str, str]]


@cache
def loose() -> Loose:
    """The classes that read what no other reads; made when the first request needs them."""
    texts: set[tuple[str, str]] = set()
    package = trace_pb2.DESCRIPTOR.package
    request, span = (
        GetMessageClass(_without_texts(texts, spans=spans).FindMessageTypeByName(f"{package}.{name}"))
        for spans, name in ((True, _REQUEST), (False, _SPAN))
    )
    return Loose(request, span, frozenset(texts))


InBytes: Final = _parsed(_in_bytes)
"""A request whose spans have their attributes as a list of bytes, each the message `KeyValue`."""
ByKind: Final = _parsed(_by_kind)
"""A request whose spans have their attributes by kind: `attributes.value.string_value` are all texts, in order."""
OneByKind: Final = GetMessageClass(ByKind.DESCRIPTOR.file.message_types_by_name[_SPAN])
"""A span of such a request."""
