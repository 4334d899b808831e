"""Traces assembled from the spans of files; a trace is complete when it has received no span for a while."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ragmon.core.record import Record
from ragmon.ingest.fields import Rejected
from ragmon.ingest.spans import Mapped, Span, incomplete, per_request, to_record
from ragmon.ingest.spans.model import MAX_SPANS, NOT_RAG

IDLE_SECONDS: Final = 300
"""A trace is complete when it has received no span for this many seconds, by the spans' own times."""
MAX_BUFFERED_SPANS: Final = 100_000
"""The maximum number of buffered spans; above it, the trace that has waited longest is taken as complete."""
_SECOND: Final = 1_000_000_000


@dataclass
class _OpenTrace:
    """A trace that may receive more spans.

    Attributes:
        spans: The spans so far.
        newest: The latest end time of a span, nanoseconds since the epoch.
        resource: The resource attributes of the first span's process.
        rooted: Whether its root has been received.
        complete: Whether no span of it was left out.
    """

    spans: list[Span] = field(default_factory=list)
    newest: int = 0
    resource: dict[str, Any] = field(default_factory=dict)
    rooted: bool = False
    complete: bool = True


class FileTraceBuffer:
    """Buffers the spans of traces until the traces are complete.

    Attributes:
        left_out: The number of spans that belong to no record, because their traces have too many.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._traces: dict[str, _OpenTrace] = {}
        self._span_count = 0
        self._newest = 0

    def add(self, span: Span, resource: dict[str, Any]) -> Iterator[Mapped]:
        """Add a span; yields the requests of traces that are complete by now."""
        trace = self._traces.pop(span.trace_id, None) or _OpenTrace(resource=resource)
        self._traces[span.trace_id] = trace  # traces are ordered by their last span, the oldest first
        is_root = span.parent_id is None
        if len(trace.spans) < MAX_SPANS or (is_root and not trace.rooted):
            trace.spans.append(span)
            self._span_count += 1
        else:
            trace.complete = False
            self.left_out += 1
        trace.rooted = trace.rooted or is_root
        trace.newest = max(trace.newest, span.end_ns)
        self._newest = max(self._newest, span.end_ns)
        while self._span_count > MAX_BUFFERED_SPANS or self._oldest().newest < self._newest - IDLE_SECONDS * _SECOND:
            yield from self._complete(next(iter(self._traces)))

    def _oldest(self) -> _OpenTrace:
        return next(iter(self._traces.values()))

    def _complete(self, trace_id: str) -> Iterator[Mapped]:
        trace = self._traces.pop(trace_id)
        self._span_count -= len(trace.spans)
        service, build = (trace.resource.get(key) for key in ("service.name", "service.version"))
        for request in per_request(trace.spans):
            mapped = to_record(
                request,
                service=service if isinstance(service, str) else None,
                build=build if isinstance(build, str) else None,
            )
            yield mapped if trace.complete else incomplete(mapped)

    def end(self) -> Iterator[Mapped]:
        """The requests of all traces that are still open."""
        for trace_id in list(self._traces):
            yield from self._complete(trace_id)


def record_of(mapped: Mapped) -> Record:
    """The record of a request.

    Raises:
        Rejected: The request has none, with the reason.
    """
    if mapped.record is None:
        detail = "nothing in it retrieves or asks a model" if mapped.reason == NOT_RAG else "its record cannot be read"
        raise Rejected(mapped.reason, f"a trace is no record: {detail}")
    return mapped.record
