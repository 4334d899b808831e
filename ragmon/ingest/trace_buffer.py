"""The trace buffer: spans wait in it until their trace is whole. The rule is the same wherever spans come from.

A trace is due `idle` after its last span, once its root has ended and no span of it is open; `rootless` after its last
span, while its root has not ended; `unended` after its root ended, while other spans are open; `age` after its first
span, unless all its spans are known to have ended; and at once where the buffer is crowded or everything is asked for.
Taken before it came to rest, or with open spans, it may miss spans: it is not complete, and its record is partial.

It keeps a limited number of spans, and its root in any case. Of spans that tell nothing but their time, a stream may
have thousands: once the trace has a quarter of its spans, these are left out, if no other is known to lie below them,
and nothing is missed. Once another span is left out, or one comes whose parent is, the trace is not complete. What has
ended is remembered for a while, so that a late span does not make a second record. Several requests may share a trace,
as the turns of a session do: spans that began when all that is done of it had ended are another request, unless they
are work left over (`ragmon.ingest.spans.mapper.begins_anew`).

The buffers of files, here, of the server (`JournalledTraceBuffer`) and of an application (`SpanBuffer`) differ in what
they can know:

| | files | server | application |
|---|---|---|---|
| clock | the spans' own end times | arrival | the process's |
| open spans | unknown | unknown | known, as spans begin there; no lock is taken for them |
| first taken | whose last span came first | what may be due first | whose first span began first |
| crowded | by spans | by traces and bytes | never: new requests are refused |
| late spans | by the time at which a record's trace ended | by the time at which its trace ended | by span |
| besides | all is complete: a file has no more | the journalled requests of a trace | claims; what contains requests |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Generic, TypeVar

from ragmon.core import semconv
from ragmon.ingest.spans.mapper import begins_anew, incomplete, per_request, to_record
from ragmon.ingest.spans.messages import NO_SPAN, with_log_events
from ragmon.ingest.spans.sampling import UpstreamSampling
from ragmon.ingest.spans.span import MAX_SPANS, NO_OPTIONS, Mapped, Span, SpanOptions, is_plain

LATE: Final = "late"
TWICE: Final = "duplicate"
TOO_MANY: Final = "too_many_spans"
"""Reasons why a span belongs to no record: its trace has ended, it came before, its trace has too many."""
DECORATED: Final = "decorated"
"""Reason why a trace makes no record: a decorated call in it makes a complete one."""


@dataclass(slots=True)
class BufferedTrace:
    """A trace that may get more spans: when, by the buffer's clock, its first and its last span came or began.

    Attributes:
        spans: Its spans that have ended.
        open: Spans that have begun and not ended; None where nothing tells that a span begins.
        complete: Whether no span is known to be missing that tells something.
        parents: The parents of its spans, as far as they are known.
        left_out: Its spans that tell nothing and were not kept.
    """

    first: float
    last: float
    spans: Sized
    root_ended: float | None = None
    open: Collection[int] | None = None
    complete: bool = True
    parents: set[Any] = field(default_factory=set)
    left_out: dict[Any, None] = field(default_factory=dict)


@dataclass(frozen=True)
class TraceLimits:
    """When a trace is due, and how much a buffer holds; times in units of the buffer's clock.

    Args:
        idle: Time after the last span in which another span may come, once the root has ended and no span is open.
        rootless: The same where the root has not come, or nobody sees it.
        unended: Time after the root ended until a trace with open spans is due.
        age: Time after the first span until a trace is due, unless all its spans are known to have ended.
        spans: Largest number of spans of one trace.
        traces: Largest number of open traces.
        size: Largest size of all open traces, in units of the buffer.
    """

    idle: float
    rootless: float = inf
    unended: float = inf
    age: float = inf
    spans: int = MAX_SPANS
    traces: float = inf
    size: float = inf

    def rest_and_due(self, trace: BufferedTrace, hurried: bool = False) -> tuple[float, float]:
        """When a trace comes to rest and when it is due, if no more spans of it come; if hurried, without waiting."""
        if trace.open:
            rest = inf if trace.root_ended is None else trace.root_ended + self.unended
        elif hurried:
            rest = -inf
        else:
            rest = trace.last + (self.rootless if trace.root_ended is None else self.idle)
        all_ended = trace.open is not None and not trace.open
        return rest, rest if all_ended else min(rest, trace.first + self.age)


Key = TypeVar("Key", bound=Hashable)
Open = TypeVar("Open", bound=BufferedTrace)


class TraceBuffer(Generic[Key, Open]):
    """The open traces, and their size."""

    def __init__(self, limits: TraceLimits) -> None:
        self.limits = limits
        self.traces: dict[Key, Open] = {}
        self.size = 0

    @property
    def crowded(self) -> bool:
        """Whether a limit is exceeded."""
        return len(self.traces) > self.limits.traces or self.size > self.limits.size

    def has_room(self, trace: Open, span: Any, ids: tuple[Any, Any], is_root: bool) -> bool:
        """Whether a span, with its id and its parent's, is kept with its trace."""
        n, most, (span_id, parent_id) = len(trace.spans), self.limits.spans, ids
        is_first = is_root and trace.root_ended is None
        if 4 * n >= most and not is_first and span_id not in trace.parents and is_plain(*self._told(span)):
            remember(trace.left_out, span_id, most)
            return False
        has_room = n < most or is_first
        trace.complete = trace.complete and has_room and parent_id not in trace.left_out
        return has_room

    def _told(self, span: Any) -> tuple[Mapping[str, Any], Sequence[Any], bool]:
        """What a span tells of its request: its attributes, its events, and whether it failed."""
        return span.attributes, span.events, span.failed

    def due(self, now: float, *, hurried: bool = False, everything: bool = False) -> Iterator[tuple[Key, Open]]:
        """Remove and yield the traces that are due; if hurried, without waiting for spans that may begin later."""
        for key in self._candidates(now):
            trace = self.traces[key]
            rest, due = self.limits.rest_and_due(trace, hurried)
            if everything or self.crowded or due <= now:
                trace.complete = trace.complete and not trace.open and rest <= now
                yield key, self.take(key)

    def postpone(self, seconds: float) -> None:
        """Let all open traces be due later, by the buffer's clock: for so long no span could come."""
        for trace in self.traces.values():
            trace.first += seconds
            trace.last += seconds
            if trace.root_ended is not None:
                trace.root_ended += seconds

    def _candidates(self, now: float) -> Iterator[Key]:
        """The open traces that may be due, in the order in which they are taken."""
        yield from list(self.traces)

    def take(self, key: Key) -> Open:
        """Remove and return a trace."""
        return self.traces.pop(key)


def remember(ended: dict[Key, Any], key: Key, most: int, value: Any = None) -> None:
    """Remember what has ended, to recognise what comes late; of more than `most` keys the oldest is forgotten."""
    ended[key] = value
    while len(ended) > most:
        with suppress(RuntimeError):  # another thread has just added one
            ended.pop(next(iter(ended)), None)


_MAX_REMEMBERED: Final = 200_000
_IDLE_NS: Final = 300 * 1_000_000_000 + 1
FILE_LIMITS: Final = TraceLimits(idle=_IDLE_NS, rootless=_IDLE_NS, size=100_000)
"""A trace of a file is complete more than 300 seconds after its last span; the size is the number of spans."""


@dataclass(slots=True)
class _FileTrace(BufferedTrace):
    """A trace of a file, with the service and the version of each span's process, by the span's id."""

    spans: list[Span]
    origins: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    after: int | None = None


class FileTraceBuffer(TraceBuffer[str, _FileTrace]):
    """Buffers the spans of files until their traces are complete; `left_out` counts those in no request, by reason."""

    def __init__(self, limits: TraceLimits | None = None, options: SpanOptions = NO_OPTIONS) -> None:
        super().__init__(limits or FILE_LIMITS)
        self.left_out: Counter[str] = Counter()
        self._done: dict[str, int] = {}
        self._upstream = UpstreamSampling()
        self._options = options
        self._newest = 0

    def add(self, span: Span, service: str | None = None, build: str | None = None) -> Iterator[Mapped]:
        """Add a span; yields the requests of traces that are complete by now."""
        end_ns, is_root = span.end_ns, span.parent_id is None
        trace = self.traces.get(span.trace_id)
        if trace is not None and span.start_ns > self.limits.rest_and_due(trace)[1]:
            yield from self._complete(span.trace_id)
        trace = self.traces.pop(span.trace_id, None)
        trace = trace or _FileTrace(end_ns, end_ns, [], after=self._done.get(span.trace_id))
        is_record = semconv.RAGMON_RECORD in span.attributes  # a whole request, whenever it comes
        if trace.after is not None and span.start_ns <= trace.after and not is_record:
            self.left_out[LATE] += 1
            if trace.spans:
                self.traces[span.trace_id] = trace
            return
        self.traces[span.trace_id] = trace  # traces are ordered by their last span, the oldest first
        if self.has_room(trace, span, (span.span_id, span.parent_id), is_root):
            trace.spans.append(span)
            trace.parents.add(span.parent_id)
            trace.origins.setdefault(span.span_id, (service, build))
            self.size += 1
        else:
            self.left_out[TOO_MANY] += 1
        trace.root_ended = end_ns if is_root else trace.root_ended
        trace.last = max(trace.last, end_ns)
        self._newest = max(self._newest, end_ns)
        while self.traces:
            oldest, trace = next(iter(self.traces.items()))
            if self.limits.rest_and_due(trace)[1] > self._newest and not self.crowded:
                break
            yield from self._complete(oldest)

    def _complete(self, trace_id: str) -> Iterator[Mapped]:
        trace = self.take(trace_id)
        self.size -= len(trace.spans)
        spans, _ = with_log_events(trace.spans)
        if not spans:
            yield Mapped(None, NO_SPAN)
            return
        for request in per_request(spans, self._options):
            if trace.after is not None and not begins_anew(request):
                self.left_out[LATE] += len(request.spans)
                continue
            service, build = trace.origins[request.owner(lambda span: trace.origins[span.span_id][0]).span_id]
            mapped = to_record(request, self._options, service=service, build=build)
            if (record := mapped.record) is not None:
                remember(self._done, trace_id, _MAX_REMEMBERED, int(trace.last))
                record.sampling = record.sampling or self._upstream.of(request, record.pipeline or "")
            yield mapped if trace.complete else incomplete(mapped, request)

    def end(self) -> Iterator[Mapped]:
        """The requests of all traces that are still open."""
        for trace_id in list(self.traces):
            yield from self._complete(trace_id)
