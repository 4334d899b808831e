"""What waits, without the spans of some traces, or with those of one alone: OTLP requests, and records of probes."""

from __future__ import annotations

import json
from collections.abc import Container
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

PROTOBUF: Final = "protobuf"
JSON: Final = "json"
RECORD: Final = "record"
"""One record, as a line of the journal."""
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What a request raises that is not what it says it is."""


class Left(NamedTuple):
    """What is left of a request.

    Attributes:
        body: The request; None where nothing is left.
        removed: How many spans were taken out.
    """

    body: bytes | None
    removed: int


def without(form: str, body: bytes, traces: AbstractSet[str]) -> Left:
    """A request without the spans of some traces.

    One that cannot be read but names such a trace is left out as a whole.

    Args:
        form: How it is written: `protobuf`, `json`, or `record`.
        body: The request.
        traces: The traces' ids, 32 lower-case hex digits.

    >>> told = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab"},{"traceId":"cd"}]}]}]}'
    >>> without("json", told, {"ab"}).body
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"cd"}]}]}]}'
    """
    try:
        return _HOW[form](body, traces)
    except _UNREADABLE:
        folded = body.lower()
        named = any(trace.encode() in folded or _binary(trace) in body for trace in traces)
        return Left(None, 1) if named else Left(body, 0)


def only(form: str, body: bytes, trace: str) -> bytes:
    """What of a request is of one trace; all of it where it cannot be read.

    Args:
        form: How it is written: `protobuf`, `json`, or `record`.
        body: The request.
        trace: The trace's id, 32 lower-case hex digits.

    >>> told = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab"},{"traceId":"cd"}]}]}]}'
    >>> only("json", told, "ab")
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab"}]}]}]}'
    """
    try:
        return _HOW[form](body, _AllBut(trace)).body or b""
    except _UNREADABLE:
        return body


class _AllBut(Container[str]):
    """All traces but one.

    Args:
        trace: The one.
    """

    def __init__(self, trace: str) -> None:
        self._trace = trace

    def __contains__(self, trace: object) -> bool:
        return trace != self._trace


def _binary(trace: str) -> bytes:
    try:
        return bytes.fromhex(trace)
    except ValueError:
        return trace.encode()


def _protobuf(body: bytes, traces: Container[str]) -> Left:
    # Heavy, and needed where somebody forgets.
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: PLC0415

    try:
        request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    removed = 0
    for process in request.resource_spans:
        for scope in process.scope_spans:
            kept = [span for span in scope.spans if span.trace_id.hex() not in traces]
            removed += len(scope.spans) - len(kept)
            _set(scope.spans, kept)
        _set(process.scope_spans, [scope for scope in process.scope_spans if scope.spans])
    if not removed:
        return Left(body, 0)
    _set(request.resource_spans, [process for process in request.resource_spans if process.scope_spans])
    return Left(request.SerializeToString() if request.resource_spans else None, removed)


def _set(field: Any, kept: list[Any]) -> None:
    """Put messages into a repeated field in place of those that are there."""
    if len(kept) < len(field):
        copies = [type(message).FromString(message.SerializeToString()) for message in kept]
        del field[:]
        field.extend(copies)


def _json(body: bytes, traces: Container[str]) -> Left:
    request = json.loads(body)
    removed = 0
    for process in request.get("resourceSpans") or []:
        for scope in process.get("scopeSpans") or []:
            spans = scope.get("spans") or []
            scope["spans"] = [span for span in spans if span["traceId"].lower() not in traces]
            removed += len(spans) - len(scope["spans"])
        process["scopeSpans"] = [scope for scope in process.get("scopeSpans") or [] if scope["spans"]]
    if not removed:
        return Left(body, 0)
    request["resourceSpans"] = [process for process in request["resourceSpans"] if process["scopeSpans"]]
    text = json.dumps(request, separators=(",", ":"), ensure_ascii=False)
    return Left(text.encode("utf-8", "surrogatepass") if request["resourceSpans"] else None, removed)


def _record(body: bytes, traces: Container[str]) -> Left:
    is_wanted = json.loads(body)["trace_id"].lower() in traces
    return Left(None, 1) if is_wanted else Left(body, 0)


_HOW: Final = {PROTOBUF: _protobuf, JSON: _json, RECORD: _record}
