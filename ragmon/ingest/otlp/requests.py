"""The body of a request with traces, in either of OTLP's encodings, as spans that are read when they are needed."""

from __future__ import annotations

from typing import Any

from ragmon.core import constants, semconv
from ragmon.ingest.otlp import lines, protobuf
from ragmon.ingest.otlp.batch import BUILD, FIRST, SERVICE, Batch, Foreign, Own
from ragmon.ingest.otlp.messages import Pair, ScopeSpans, SpanMessage, export, plain, see_number
from ragmon.ingest.otlp.repair import MALFORMED_PROTOBUF
from ragmon.ingest.rejected import Rejected
from ragmon.spans import Span
from ragmon.spans.model import OWN_SCOPE

__all__ = ["MALFORMED_PROTOBUF", "Batch", "Foreign", "Own", "read"]


def read(body: bytes, *, json: bool) -> Batch:
    """The spans of a request.

    Args:
        body: What was received, inflated.
        json: It is JSON with hexadecimal ids; else it is protobuf.

    Raises:
        Rejected: It is no request: broken off, or of another shape. A span that is none is counted and left out.

    Example:
        >>> body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0","spanId":"0"}]}]}]}'
        >>> batch = read(body, json=True)
        >>> batch.spans, batch.foreign, batch.first
        (1, [], "traceId is 32 hex digits, not '0'")
    """
    return _read_json(body) if json else protobuf.read(body)


def _read_json(body: bytes) -> Batch:
    batch = Batch()
    found, batch.body = export(body, batch.refuse)
    see_number(sum(len(scope.spans) for process in found.resource_spans for scope in process.scope_spans))
    batch.spans = batch.rejected.total()
    for process in found.resource_spans:
        try:
            resource = plain(process.resource.attributes)
        except Rejected as rejected:
            lost = sum(len(scope.spans) for scope in process.scope_spans)
            batch.spans += lost
            batch.refuse(Rejected(rejected.reason, str(rejected), lost))
            continue
        service, build = (_text(resource.get(key)) for key in (SERVICE, BUILD))
        for scope in process.scope_spans:
            _read_scope(batch, scope, service, build)
    return batch


def _read_scope(batch: Batch, scope: ScopeSpans, service: str | None, build: str | None) -> None:
    batch.spans += len(scope.spans)
    for told in scope.spans:
        try:
            _sort(batch, told, lines.span(told, scope.scope.name), service, build)
        except Rejected as rejected:
            batch.refuse(rejected)


def _sort(batch: Batch, told: SpanMessage, span: Span, service: str | None, build: str | None) -> None:
    """Put a span where it belongs.

    Raises:
        Rejected: It holds a record that is no text.
    """
    own, end_ns = span.scope == OWN_SCOPE, span.end_ns
    trace_id, span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
    line = _line(told.attributes if own else told.attributes[:FIRST])
    if line is not None:
        batch.own.append(Own(trace_id, span_id, end_ns, line))
    elif own:
        batch.stages += 1
    else:
        is_root = span.parent_id is None
        batch.foreign.append(
            Foreign(trace_id, span_id, is_root, end_ns, span.failed, service, build, span, span.scope, _itself)
        )


def _line(attributes: list[Pair]) -> str | None:
    """The record among a span's attributes.

    Raises:
        Rejected: It is no text.
    """
    pair = next((pair for pair in attributes if pair.key == semconv.RAGMON_RECORD), None)
    if pair is not None and pair.value.string_value is None:
        raise Rejected(constants.INVALID_SCHEMA, f"{semconv.RAGMON_RECORD} is text")
    return None if pair is None else pair.value.string_value


def _itself(span: Span, _scope: str) -> Span:
    return span


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
