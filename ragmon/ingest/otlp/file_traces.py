"""Spans that come one after the other become whole requests: a trace is complete when nothing of it came for long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ragmon.core.record import Record
from ragmon.ingest.fields import Rejected
from ragmon.ingest.spans import Mapped, Span, incomplete, per_request, to_record
from ragmon.ingest.spans.model import NOT_RAG, SPANS

IDLE: Final = 300
"""Seconds, by the spans' own times, after which a trace that got no more spans is complete."""
OPEN: Final = 100_000
"""Spans that are held at once; beyond them the trace that waited longest is taken as complete."""
_SECOND: Final = 1_000_000_000


@dataclass
class _Open:
    """A trace that may get more spans.

    Attributes:
        spans: What came so far.
        newest: When the last of them ended, nanoseconds since the epoch.
        resource: What the process of the first one says of itself.
        rooted: Its root is among them.
        complete: Nothing of it was left out.
    """

    spans: list[Span] = field(default_factory=list)
    newest: int = 0
    resource: dict[str, Any] = field(default_factory=dict)
    rooted: bool = False
    complete: bool = True


class Assembly:
    """Holds traces until they are complete.

    Attributes:
        left_out: Spans that belong to no record, for their traces have too many.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._traces: dict[str, _Open] = {}
        self._held = 0
        self._newest = 0

    def add(self, span: Span, resource: dict[str, Any]) -> Iterator[Mapped]:
        """Take a span; gives the requests of traces that are complete by now."""
        trace = self._traces.pop(span.trace_id, None) or _Open(resource=resource)
        self._traces[span.trace_id] = trace  # the one that waits longest stands first
        is_root = span.parent_id is None
        if len(trace.spans) < SPANS or (is_root and not trace.rooted):
            trace.spans.append(span)
            self._held += 1
        else:
            trace.complete = False
            self.left_out += 1
        trace.rooted = trace.rooted or is_root
        trace.newest = max(trace.newest, span.end_ns)
        self._newest = max(self._newest, span.end_ns)
        while self._held > OPEN or self._first().newest < self._newest - IDLE * _SECOND:
            yield from self._complete(next(iter(self._traces)))

    def _first(self) -> _Open:
        return next(iter(self._traces.values()))

    def _complete(self, trace_id: str) -> Iterator[Mapped]:
        trace = self._traces.pop(trace_id)
        self._held -= len(trace.spans)
        service, build = (trace.resource.get(key) for key in ("service.name", "service.version"))
        for request in per_request(trace.spans):
            mapped = to_record(
                request,
                service=service if isinstance(service, str) else None,
                build=build if isinstance(build, str) else None,
            )
            yield mapped if trace.complete else incomplete(mapped)

    def end(self) -> Iterator[Mapped]:
        """The requests of all traces that are still held."""
        for trace_id in list(self._traces):
            yield from self._complete(trace_id)


def record_of(mapped: Mapped) -> Record:
    """The record of a request.

    Raises:
        Rejected: It is none, with the reason.
    """
    if mapped.record is None:
        told = "nothing in it retrieves or asks a model" if mapped.reason == NOT_RAG else "its record cannot be read"
        raise Rejected(mapped.reason, f"a trace is no record: {told}")
    return mapped.record
