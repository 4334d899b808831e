"""Spans of OpenTelemetry's SDK in ragmon's own form. Runs in the worker, never on the request path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmon.spans.model import Event, Span


def neutral(span: Any) -> Span:
    """A finished `opentelemetry.sdk.trace.ReadableSpan` in the form the mapping reads."""
    own, parent = span.context, span.parent
    return Span(
        trace_id=f"{own.trace_id:032x}",
        span_id=f"{own.span_id:016x}",
        parent_id=None if parent is None else f"{parent.span_id:016x}",
        name=span.name,
        start_ns=span.start_time or 0,
        end_ns=span.end_time or span.start_time or 0,
        attributes=span.attributes or {},
        events=[Event(event.name, event.attributes or {}) for event in span.events],
        failed=not span.status.is_ok and not span.status.is_unset,
        dropped=span.dropped_attributes,
        dropped_events=span.dropped_events,
        scope="" if span.instrumentation_scope is None else span.instrumentation_scope.name,
        sampled=bool(own.trace_flags.sampled),
    )


def resource(span: Any) -> Mapping[str, Any]:
    """What the process that recorded a span says of itself: `service.name`, `service.version`."""
    found = getattr(span, "resource", None)
    return {} if found is None else found.attributes
