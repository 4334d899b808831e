"""Requests with traces as protobuf writes them, parsed so that nobody need touch attributes one by one.

Protobuf writes a list of messages just as it writes a list of bytes, or one message that comes in pieces, which a
parser puts together. So OTLP's own definitions, changed where they say what the attributes of a span are, read the
same request in other ways.

Source: OpenTelemetry, `trace.proto` and `common.proto`; Protocol Buffers, encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

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
