"""Requests with traces as protobuf writes them, parsed so that nobody need touch attributes one by one.

Protobuf writes a list of messages just as it writes a list of bytes, or one message that comes in pieces, which a
parser puts together. So OTLP's own definitions, changed where they say what the attributes of a span are, read the
same request in other ways.

Source: OpenTelemetry, `trace.proto` and `common.proto`; Protocol Buffers, encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

_SPAN: Final = "Span"
_ATTRIBUTES: Final = "attributes"
_REQUEST: Final = "TracesData"
"""What traces are held in wherever they are not sent; it is written like the request of an exporter."""


def _parsed(change: Callable[[Any, Any], None]) -> Any:
    """The class of requests, with the definition of a span's attributes changed."""
    pool = DescriptorPool()
    for known in (common_pb2, resource_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = FileDescriptorProto.FromString(trace_pb2.DESCRIPTOR.serialized_pb)
    span = next(message for message in file.message_type if message.name == _SPAN)
    change(file, next(field for field in span.field if field.name == _ATTRIBUTES))
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{_REQUEST}"))


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


InBytes: Final = _parsed(_in_bytes)
"""A request whose spans have their attributes as a list of bytes, each the message `KeyValue`."""
ByKind: Final = _parsed(_by_kind)
"""A request whose spans have their attributes by kind: `attributes.value.string_value` are all texts, in order."""
