"""The buffer of incomplete third-party traces, and the assembler that makes records of complete ones.

Spans of a trace come in any order, from any process, in any request; when it is complete stands in
`ragmon.ingest.trace_buffer`. A receiver is not told when a span begins, so it cannot count open spans: a span has ended
when it arrives. A complete trace is mapped to records, which are redacted and carry their sampling probability.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from ragmon.capture.call import threshold
from ragmon.config.settings import Settings
from ragmon.core.constants import DEADLINE_EXCEEDED, DEFAULT_PIPELINE, INVALID_SCHEMA, QUARANTINED
from ragmon.core.errors import log_error
from ragmon.core.process import Deadline
from ragmon.core.record import MAX_ID_CHARS, Label, Record, Sampling, encode
from ragmon.core.sampling import SPAN
from ragmon.ingest.native import BUCKET_NS
from ragmon.ingest.otlp import ExternalSpan
from ragmon.ingest.spans.mapper import CORRECTNESS, begins_anew, evaluations, incomplete, per_request, to_record
from ragmon.ingest.spans.messages import NO_SPAN, with_log_events
from ragmon.ingest.spans.sampling import UpstreamSampling
from ragmon.ingest.spans.span import UNKNOWN_CONVENTION, Span, count_scope, count_tools
from ragmon.ingest.trace_buffer import DECORATED, LATE, TOO_MANY, TWICE, BufferedTrace, TraceBuffer, TraceLimits
from ragmon.monitor.capture_settings import Redactions, file_span_options
from ragmon.stream.chunk import BatchCounts, count

NOTHING: Final = -1
"""When a trace had ended of which nothing is done: before any time."""
UNSAMPLED: Final = "unsampled"
"""Reason why a trace makes no record: the sampler dropped it."""
LONGEST_ASSEMBLY: Final = 5.0
"""Seconds of CPU that one trace may take; after that, the rest of it is not read."""
OFTEN: Final = 16
"""Spans between two checks of the deadline; a check costs as much as a short span."""
DEFAULT_RATER: Final = "human"
"""The rater of an evaluation on a span that names none."""


@dataclass(frozen=True)
class AssemblyLimits(TraceLimits):
    """The limits of third-party traces: times in seconds, and the size in bytes."""

    idle: float = 5.0
    rootless: float = 60.0
    age: float = 600.0
    traces: float = 50_000
    size: float = 512 << 20


@dataclass(slots=True)
class OpenTrace(BufferedTrace):
    """A third-party trace that may get more spans.

    Attributes:
        lowest: The sampling threshold when the trace began: the smallest random value that was kept.
        requests: The journalled requests that its spans came in.
        after: When the requests of the same trace that are done had ended, in nanoseconds: it began later.
        ended: When its last span ended, in nanoseconds.
    """

    spans: dict[bytes, ExternalSpan] = field(default_factory=dict)
    lowest: int = 0
    requests: set[int] = field(default_factory=set)
    after: int = NOTHING
    ended: int = NOTHING


class JournalledTraceBuffer(TraceBuffer[bytes, OpenTrace]):
    """The buffer of open traces; it knows which requests in the journal they need.

    The size is the bytes of the requests that open traces came in, as if each span kept its whole request in memory.
    """

    def __init__(self, limits: AssemblyLimits | None = None) -> None:
        super().__init__(limits or AssemblyLimits())
        self._due_heap: list[tuple[float, bytes]] = []
        self._held: Counter[int] = Counter()
        self._open_held: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}

    def add(
        self,
        pieces: Sequence[ExternalSpan],
        request: int,
        now: float,
        size: int,
        lowest: int = 0,
        done: Mapping[bytes, int] = MappingProxyType({}),
    ) -> Counter[str]:
        """Add the spans of one request; `done` says when what is done of their traces ended."""
        counts: Counter[str] = Counter()
        for span in pieces:
            open_trace = self.traces.get(span.trace_id)
            if open_trace is None:
                open_trace = self.traces[span.trace_id] = OpenTrace(now, now, lowest=lowest)
                open_trace.after = done.get(span.trace_id, NOTHING)
                heappush(self._due_heap, (now, span.trace_id))
                counts["new"] += 1
            if span.span_id in open_trace.spans:
                counts[TWICE] += 1
            elif self.has_room(open_trace, span.is_root):
                open_trace.spans[span.span_id] = span
                if span.is_root and open_trace.root_ended is None:
                    open_trace.root_ended = now
                    heappush(self._due_heap, (open_trace.last, span.trace_id))  # with a root it is due sooner
                if request not in open_trace.requests:
                    self._refer(open_trace, request, size)
            else:
                counts[TOO_MANY] += 1
            open_trace.last, open_trace.ended = now, max(open_trace.ended, span.end_ns)
        return counts

    def _refer(self, open_trace: OpenTrace, request: int, size: int) -> None:
        open_trace.requests.add(request)
        self._held[request] += 1
        self._open_held[request] += 1
        if request not in self._sizes:
            self._sizes[request] = size
            self.size += size

    def _candidates(self, now: float) -> Iterator[bytes]:
        """The traces in the order in which they may be due; the heap holds times before which they are not."""
        while self._due_heap:
            not_before, trace_id = self._due_heap[0]
            if trace_id not in self.traces:
                heappop(self._due_heap)
                continue
            yield trace_id
            trace = self.traces.get(trace_id)
            if trace is not None:
                if not_before > now:
                    return
                _, due = self.limits.rest_and_due(trace)
                heapreplace(self._due_heap, (due, trace_id))

    def hold(self, trace_id: bytes, request: int, now: float, after: int) -> None:
        """Make a trace wait for a journalled request whose spans were not read."""
        self._refer(self.traces.setdefault(trace_id, OpenTrace(now, now, after=after)), request, 0)

    def take(self, key: bytes) -> OpenTrace:
        """Remove and return a trace."""
        trace = super().take(key)
        for request in trace.requests:
            self._open_held[request] -= 1
            if not self._open_held[request]:
                del self._open_held[request]
                self.size -= self._sizes.pop(request)
        return trace

    def release(self, trace: OpenTrace) -> list[int]:
        """The journalled requests that no trace needs any more, now that this trace is done."""
        done = []
        for request in trace.requests:
            self._held[request] -= 1
            if not self._held[request]:
                del self._held[request]
                done.append(request)
        return done

    def holds(self, request: int) -> bool:
        """Whether an open trace has spans of a journalled request."""
        return request in self._held

    def forget_requests(self) -> None:
        """Drop all references to journalled requests."""
        self._held.clear()


class AssembledRecord(NamedTuple):
    """A record made of a trace."""

    key: tuple[int, bytes]
    record: Record
    line: bytes


class AssembledTrace(NamedTuple):
    """The result of assembling a trace.

    Attributes:
        waiting: Its spans, kept until the result is on disk.
        made: Its records: several where several requests share the trace, none where it makes no record.
        counts: Requests that make no record, fields missing in spans, and requests besides the one that was counted
            when the trace began.
        labels: Ratings on its spans, for its own request or for one that they link to.
        aside: The step at which the process ended twice, where its spans are quarantined; "" otherwise, and where they
            are quarantined with another trace.
    """

    trace_id: bytes
    waiting: OpenTrace
    made: list[AssembledRecord]
    counts: BatchCounts
    labels: Sequence[Label] = ()
    aside: str = ""


def quarantined_trace(trace_id: bytes, waiting: OpenTrace, step: str) -> AssembledTrace:
    """The result for a quarantined trace, which is not assembled."""
    return AssembledTrace(trace_id, waiting, [], BatchCounts(dropped={QUARANTINED: 1}), aside=step)


class _DeadlineError(Exception):
    """Assembling a trace takes too long."""


def is_sampled(trace_id: bytes, lowest: int) -> bool:
    """Whether the sampler keeps a trace; decided by its id alone, before any span is decoded."""
    return int.from_bytes(trace_id, "big") % SPAN >= lowest


class Assembler:
    """Makes records of third-party traces."""

    def __init__(self, settings: Settings, longest: float = LONGEST_ASSEMBLY) -> None:
        self._cpu_limit = longest
        self._options = file_span_options(settings)
        has_rate = settings.origins.get("sampling.rate", "default") != "default"
        self._rate = settings.of(settings.pipeline).sampling.rate if has_rate else 1.0
        self.lowest = threshold(self._rate)
        self._redact = Redactions(settings)
        self.upstream = UpstreamSampling()

    def assemble(self, trace_id: bytes, waiting: OpenTrace, *, decorated: bool = False) -> AssembledTrace:
        """Make the records of a trace."""
        counts, records = BatchCounts(), list[AssembledRecord]()
        if decorated:
            count(counts.ignored, DECORATED)
            return AssembledTrace(trace_id, waiting, records, counts)
        deadline = Deadline(self._cpu_limit)
        try:
            spans, missing = with_log_events(_decoded_spans(waiting, deadline))
            count(counts.spans, NO_SPAN, missing)
            if not spans:
                count(counts.ignored, NO_SPAN if waiting.after == NOTHING else LATE)
                return AssembledTrace(trace_id, waiting, records, counts)
            requests = per_request(spans, self._options)
            if waiting.after > NOTHING:
                begun = [request for request in requests if begins_anew(request)]
                count(counts.spans, LATE, len(spans) - sum(len(request.spans) for request in begun))
                count(counts.ignored, LATE, int(not begun))
                requests = begun
            labels = [
                Label(
                    trace_id=evaluation.trace_id,
                    rater=evaluation.rater[:MAX_ID_CHARS] or DEFAULT_RATER,
                    correct=evaluation.score,
                    ts=evaluation.ts,
                )
                for evaluation in evaluations(spans, self._options.ranges)
                if evaluation.human and evaluation.score is not None and evaluation.name in CORRECTNESS
            ]
        except Exception as error:  # noqa: BLE001 - attributes are untrusted data
            _drop(counts, error)
            return AssembledTrace(trace_id, waiting, records, counts)
        counts.received = max(0, len(requests) - 1)

        def origin(span: Span) -> ExternalSpan:
            return waiting.spans[bytes.fromhex(span.span_id)]

        for request in requests:
            try:
                _check_deadline(deadline)
                first = origin(request.first)
                own = origin(request.owner(lambda span: origin(span).service))
                mapped = to_record(request, self._options, service=own.service, build=own.build)
                if mapped.record is not None and not waiting.complete:
                    mapped = incomplete(mapped)
                _check_deadline(deadline)
                record = mapped.record
                if record is not None:
                    # The rate may have changed since the trace began.
                    rate = self._rate if waiting.lowest == self.lowest else 1.0 - waiting.lowest / SPAN
                    record.pipeline = record.pipeline or DEFAULT_PIPELINE
                    sampling = self.upstream.of(request, record.pipeline, rate) or Sampling(p_audit=rate, p=rate)
                    partial, why = record.partial or not waiting.complete, dict(mapped.missing) or None
                    changed = msgspec.structs.replace(record, sampling=sampling, partial=partial, why_unknown=why)
                    record = self._redact(changed)
                    # Each record has its own key, of another length than a native record's key (trace and span).
                    is_alone = len(requests) == 1 and waiting.after == NOTHING
                    unique = trace_id if is_alone else b"%b/%b" % (trace_id, first.span_id)
                    key = round((record.ts or 0.0) * 1e9) // BUCKET_NS, unique
                    records.append(AssembledRecord(key, record, encode(record)))
            except Exception as error:  # noqa: BLE001 - as above, and redactors are third-party code
                _drop(counts, error)
                continue
            if record is None:
                count(counts.ignored, mapped.reason)
                if mapped.reason == UNKNOWN_CONVENTION:
                    count_scope(counts.scopes, mapped.scope)
                continue
            count_tools(counts.tools, mapped.tools)
            for name, reason in mapped.missing.items():
                count(counts.unknown, f"{name}|{reason}")
        return AssembledTrace(trace_id, waiting, records, counts, labels)


def _decoded_spans(waiting: OpenTrace, deadline: Deadline) -> Iterator[Span]:
    for index, raw_span in enumerate(waiting.spans.values()):
        if index % OFTEN == OFTEN - 1:
            _check_deadline(deadline)
        yield raw_span.span()


def _check_deadline(deadline: Deadline) -> None:
    if deadline.passed:
        raise _DeadlineError


def _drop(counts: BatchCounts, error: Exception) -> None:
    if isinstance(error, _DeadlineError):
        count(counts.dropped, DEADLINE_EXCEEDED)
        log_error("a trace took too long to assemble", error)
    else:
        count(counts.dropped, INVALID_SCHEMA)
        log_error("a trace's spans could not be read", error)
