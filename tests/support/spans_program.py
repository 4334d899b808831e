"""Makes spans anew through OpenTelemetry, with the ids and times they had, under `ragmon.install(provider=...)`.

Reads groups of spans from stdin, as JSON; what ragmon makes of them stands in the trace log of the folder.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

import ragmon


class Given(IdGenerator):
    """The ids of the span that is made next."""

    trace, span = 0, 0

    def generate_trace_id(self) -> int:
        """Of its trace."""
        return self.trace

    def generate_span_id(self) -> int:
        """Its own."""
        return self.span


ids = Given()
provider = TracerProvider(
    id_generator=ids,
    span_limits=SpanLimits(max_span_attributes=SpanLimits.UNSET, max_events=SpanLimits.UNSET),
    shutdown_on_exit=False,
)


def begin(span: dict[str, Any], started: dict[str, Any]) -> Any:
    """Start a span below its parent, which is another process's where it is not in the group."""
    ids.trace, ids.span = int(span["trace_id"], 16), int(span["span_id"], 16)
    context = None
    if span["parent_id"] in started:
        context = set_span_in_context(started[span["parent_id"]])
    elif span["parent_id"]:
        remote = SpanContext(ids.trace, int(span["parent_id"], 16), is_remote=True, trace_flags=TraceFlags(1))
        context = set_span_in_context(NonRecordingSpan(remote))
    name, _, version = span["scope"].partition("@")
    tracer = provider.get_tracer(name, version or None)
    kind, at = SpanKind[span.get("kind", "INTERNAL")], span["start_ns"]
    return tracer.start_span(span["name"], context, kind, span["attributes"], start_time=at)


def end(span: dict[str, Any], made: Any) -> None:
    """End a span as it ended."""
    for name, attributes in span["events"]:
        made.add_event(name, attributes, span["end_ns"])
    if span["failed"]:
        made.set_status(Status(StatusCode.ERROR))
    made.end(span["end_ns"])


def depth(span: dict[str, Any], spans: dict[str, Any]) -> int:
    """How many spans of the group are above a span."""
    return 0 if span["parent_id"] not in spans else 1 + depth(spans[span["parent_id"]], spans)


if __name__ == "__main__":
    installed = ragmon.install(provider=provider)
    for group in json.load(sys.stdin):
        spans, started = {span["span_id"]: span for span in group}, {}
        order = [(span["start_ns"], 0, depth(span, spans), span) for span in group]
        order += [(span["end_ns"], 1, -depth(span, spans), span) for span in group]
        for _, ended, _, span in sorted(order, key=lambda step: step[:3]):
            if ended:
                end(span, started[span["span_id"]])
            else:
                started[span["span_id"]] = begin(span, started)
        installed.flush()
    installed.shutdown()
