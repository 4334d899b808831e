"""OTLP as JSON, one export request a line, as collectors write traces to files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from ragmon.ingest.otlp.messages import SpanMessage, export, integer, plain
from ragmon.ingest.rejected import Rejected, misfit
from ragmon.spans import Event, Span

_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{32}\Z")
_SPAN_ID: Final = re.compile(r"[0-9a-fA-F]{16}\Z")
_REQUEST: Final = re.compile(rb'\s*\{\s*"resource(?:Spans|Metrics|Logs)"')
_NOBODY: Final = "0" * 16
"""The parent of a span that has none."""
SAMPLED: Final = 1
"""The bit of a span's flags that says its trace is kept."""
_FAILED: Final = (2, "2", "STATUS_CODE_ERROR")

Resource = dict[str, Any]
"""What the process says of itself."""


def is_export(line: bytes) -> bool:
    """Whether a line looks like an OTLP request.

    >>> is_export(b'{"resourceSpans":[]}'), is_export(b'{"qid":"a"}')
    (True, False)
    """
    return _REQUEST.match(line) is not None


def spans(line: bytes, refuse: Callable[[Rejected], None]) -> Iterator[tuple[Span, Resource]]:
    """The spans of one request, each with what its process says of itself; metrics and logs have none.

    Args:
        line: One request.
        refuse: Told of every span that is none; the others are read.

    Raises:
        Rejected: It is no request.
    """
    for process in export(line, refuse)[0].resource_spans:
        try:
            resource = plain(process.resource.attributes)
        except Rejected as rejected:
            lost = sum(len(scope.spans) for scope in process.scope_spans)
            refuse(Rejected(rejected.reason, str(rejected), lost))
            continue
        for scope in process.scope_spans:
            for told in scope.spans:
                try:
                    found = span(told, scope.scope.name)
                except Rejected as rejected:
                    refuse(rejected)
                else:
                    yield found, resource


def span(told: SpanMessage, scope: str) -> Span:
    """A span as the mapper reads it.

    Args:
        told: The message.
        scope: The name of the instrumentation.

    Raises:
        Rejected: It is none.
    """
    parent = told.parent_span_id.lower() or _NOBODY
    if not _TRACE_ID.match(told.trace_id):
        raise misfit("traceId", "32 hex digits", told.trace_id)
    for name, found in (("spanId", told.span_id), ("parentSpanId", parent)):
        if not _SPAN_ID.match(found):
            raise misfit(name, "16 hex digits", found)
    for name, found in (("traceId", told.trace_id), ("spanId", told.span_id)):
        if not found.strip("0"):
            raise misfit(name, "an id that is not all zero", found)
    return Span(
        trace_id=told.trace_id.lower(),
        span_id=told.span_id.lower(),
        parent_id=None if parent == _NOBODY else parent,
        name=told.name,
        start_ns=integer("startTimeUnixNano", told.start_time_unix_nano, 0),
        end_ns=integer("endTimeUnixNano", told.end_time_unix_nano, 0),
        attributes=plain(told.attributes),
        events=[Event(event.name, plain(event.attributes)) for event in told.events],
        failed=told.status.code in _FAILED,
        dropped=told.dropped_attributes_count,
        dropped_events=told.dropped_events_count,
        scope=scope,
        sampled=None if told.flags is None else bool(told.flags & SAMPLED),
        links=[link.trace_id.lower() for link in told.links] if told.links else (),
    )
