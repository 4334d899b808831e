"""Requests in OTLP's protobuf encoding, and `read` for a request with traces in either encoding.

Source: OpenTelemetry, OTLP specification 1.5, and its protocol definitions.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp.batch import SpanBatch, sorted_spans
from ragmon.ingest.otlp.json import read_json
from ragmon.ingest.otlp.wire import MALFORMED_PROTOBUF, check_size, repaired, spans_in


def parse_message(message: Any, body: bytes) -> Any:
    """Parse a request.

    Args:
        message: Its class.
        body: The bytes.

    Raises:
        Rejected: The body is no such message, or holds too many.
    """
    check_size(body, message, json=False)
    try:
        return message.FromString(body)
    except DecodeError as error:
        raise Rejected(MALFORMED_PROTOBUF, f"it is no protocol message: {error}") from None


def _read_protobuf(body: bytes) -> SpanBatch:
    batch = SpanBatch()
    try:
        request = parse_message(ExportTraceServiceRequest, body)
    except Rejected as rejected:
        if rejected.reason != MALFORMED_PROTOBUF:
            raise
        try:
            request = repaired(body, batch.refuse)
        except DecodeError:
            raise Rejected(rejected.reason, str(rejected), spans_in(body)) from None
        batch.body = request.SerializeToString()
    return sorted_spans(batch, request)


def read(body: bytes, *, json: bool) -> SpanBatch:
    """The spans of a request; invalid text is repaired, and a malformed span is left out and counted.

    Args:
        body: The decompressed body.
        json: Whether the body is JSON with hexadecimal ids; otherwise it is protobuf.

    Raises:
        Rejected: The request itself is truncated, malformed, or holds too much.

    Examples:
        >>> body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0","spanId":"0"}]}]}]}'
        >>> batch = read(body, json=True)
        >>> batch.spans, batch.external, batch.first
        (1, [], "traceId is 32 hex digits, not '0'")
    """
    return read_json(body) if json else _read_protobuf(body)
