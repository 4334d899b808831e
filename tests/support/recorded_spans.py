"""Spans for tests: recorded ones, those an OpenTelemetry SDK collected, and ones made up on the spot."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import count

from ragmon.ingest.spans.span import Event, Span

_ids = count(1)
TRACE = "0af7651916cd43dd8448eb211c80319c"
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def recorded(path):
    """The traces in a file of spans as the SDK writes them as JSON, in the order they ended."""
    traces = {}
    for told in json.loads(path.read_text(encoding="utf-8")):
        span = _from_json(told)
        traces.setdefault(span.trace_id, []).append(span)
    return list(traces.values())


def _from_json(told):
    return Span(
        trace_id=told["context"]["trace_id"].removeprefix("0x"),
        span_id=told["context"]["span_id"].removeprefix("0x"),
        parent_id=(told["parent_id"] or "").removeprefix("0x") or None,
        name=told["name"],
        start_ns=_nanoseconds(told["start_time"]),
        end_ns=_nanoseconds(told["end_time"]),
        attributes=told["attributes"],
        events=[Event(event["name"], event["attributes"]) for event in told["events"]],
        failed=told["status"]["status_code"] == "ERROR",
        scope=told["instrumentation_scope"],
    )


def _nanoseconds(text):
    moment = datetime.fromisoformat(text)
    return int(moment.timestamp()) * SECOND + moment.microsecond * 1000


def from_sdk(span):
    """A span of OpenTelemetry's SDK."""
    return Span(
        trace_id=format(span.context.trace_id, "032x"),
        span_id=format(span.context.span_id, "016x"),
        parent_id=None if span.parent is None else format(span.parent.span_id, "016x"),
        name=span.name,
        start_ns=span.start_time,
        end_ns=span.end_time,
        attributes=span.attributes,
        events=[Event(event.name, event.attributes) for event in span.events],
        failed=not span.status.is_ok,
        dropped=span.dropped_attributes,
        dropped_events=span.dropped_events,
        scope=span.instrumentation_scope.name,
        sampled=span.context.trace_flags.sampled,
    )


def made(attributes=None, *, parent=None, start=0.0, end=1.0, **fields):
    """A span with some attributes, in seconds after a fixed moment."""
    return Span(
        trace_id=TRACE,
        span_id=format(next(_ids), "016x"),
        parent_id=None if parent is None else parent.span_id,
        name=fields.pop("name", "a span"),
        start_ns=START + round(start * SECOND),
        end_ns=START + round(end * SECOND),
        attributes=attributes or {},
        **fields,
    )
