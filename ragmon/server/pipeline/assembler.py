"""Traces that wait for the rest of their spans, which come in any order, from any process, in any request.

A receiver is not told when a span begins, so it cannot count those that run. A trace is complete when its root has come
and nothing of it for a while; one whose root does not come, when nothing came for longer.

Complete traces become records: mapped, redacted, and with how likely they were to be kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol

import msgspec

from ragmon.capture.call import SPAN, threshold
from ragmon.config.settings import Settings
from ragmon.core.constants import DEADLINE_EXCEEDED, DEFAULT_PIPELINE, INVALID_SCHEMA, QUARANTINED
from ragmon.core.record import LONGEST, Label, Record, Sampling, encode_entry
from ragmon.ingest.spans import Mapped, Span, incomplete, per_request, to_record
from ragmon.ingest.spans.fields import CORRECTNESS, evaluations
from ragmon.ingest.spans.model import SPANS, TOO_MANY_SPANS, Trace
from ragmon.monitor.build import Redactions, span_settings
from ragmon.monitor.log import complain
from ragmon.server.pipeline.clock import Deadline
from ragmon.server.pipeline.decode import STEP_NS, BatchCounts, count

LATE: Final = "late"
TWICE: Final = "duplicate"
TOO_MANY: Final = TOO_MANY_SPANS
"""Why a span belongs to no record."""


class RawSpan(Protocol):
    """A span as it came, not read yet."""

    trace_id: bytes
    span_id: bytes
    is_root: bool
    service: str | None
    build: str | None

    def span(self) -> Span:
        """The span."""


@dataclass(frozen=True)
class AssemblyLimits:
    """How long and how much is waited for.

    Args:
        idle: Seconds without a span after which a trace that has its root is complete.
        rootless: Seconds without a span after which one without is taken as it is.
        age: Seconds after its first span after which it is taken whatever comes.
        spans: Spans of one trace.
        traces: Traces at once.
        size: Bytes of all that wait.
    """

    idle: float = 5.0
    rootless: float = 60.0
    age: float = 600.0
    spans: int = SPANS
    traces: int = 50_000
    size: int = 512 << 20


@dataclass
class OpenTrace:
    """A trace that may get more spans.

    Attributes:
        lowest: The smallest draw that was kept when it began.
        first, last: When its first and its last span came, seconds since the epoch.
        pieces: Its spans by their ids.
        requests: The journalled requests they came in.
        rooted: Its root is among them.
        complete: Nothing of it was left out, as far as anybody can know.
    """

    lowest: int
    first: float
    last: float
    pieces: dict[bytes, RawSpan] = field(default_factory=dict)
    requests: set[int] = field(default_factory=set)
    rooted: bool = False
    complete: bool = True


class TraceBuffer:
    """Where traces wait.

    Args:
        limits: How long and how much is waited for.

    Attributes:
        traces: Those that wait, the one that came first standing first.
        size: Bytes that the requests they came in take, as if each piece kept its whole request in memory.
    """

    def __init__(self, limits: AssemblyLimits | None = None) -> None:
        self.limits = limits or AssemblyLimits()
        self.traces: dict[bytes, OpenTrace] = {}
        self.size = 0
        self._order: list[tuple[float, bytes]] = []
        self._held: Counter[int] = Counter()
        self._waits: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}

    def add(self, pieces: Sequence[RawSpan], request: int, now: float, size: int, lowest: int = 0) -> Counter[str]:
        """Take the spans of one request.

        Args:
            pieces: Its spans.
            request: Its number in the journal.
            now: When it came.
            size: Bytes it takes in memory.
            lowest: The smallest draw that was kept when it came.

        Returns:
            How many traces began (`new`), and how many spans belong to no record, by reason.
        """
        found: Counter[str] = Counter()
        for piece in pieces:
            trace = self.traces.get(piece.trace_id)
            if trace is None:
                trace = self.traces[piece.trace_id] = OpenTrace(lowest, now, now)
                heappush(self._order, (now, piece.trace_id))
                found["new"] += 1
            if piece.span_id in trace.pieces:
                found[TWICE] += 1
            elif len(trace.pieces) >= self.limits.spans and (trace.rooted or not piece.is_root):
                found[TOO_MANY] += 1
                trace.complete = False
            else:
                self._keep(trace, piece, request, size)
            trace.last = now
        return found

    def _keep(self, trace: OpenTrace, piece: RawSpan, request: int, size: int) -> None:
        trace.pieces[piece.span_id] = piece
        if piece.is_root and not trace.rooted:
            trace.rooted = True
            heappush(self._order, (trace.last, piece.trace_id))  # it may be complete sooner than it was due
        if request not in trace.requests:
            trace.requests.add(request)
            self._held[request] += 1
            self._waits[request] += 1
            if request not in self._sizes:
                self._sizes[request] = size
                self.size += size

    @property
    def crowded(self) -> bool:
        """Whether more wait than there is room for."""
        return len(self.traces) > self.limits.traces or self.size > self.limits.size

    def due(self, now: float, *, everything: bool = False) -> Iterator[tuple[bytes, OpenTrace]]:
        """Hand out the traces nothing more is to be waited for, each once.

        Args:
            now: Seconds since the epoch.
            everything: Those as well that may get more spans.
        """
        while self._order:
            at, trace_id = self._order[0]
            trace = self.traces.get(trace_id)
            if trace is None:
                heappop(self._order)
            elif everything or self.crowded or (moment := self._moment(trace)) <= now:
                heappop(self._order)
                # Spans of it may still have come.
                trace.complete = trace.complete and trace.last + self._idle(trace) <= now
                yield trace_id, self.take(trace_id)
            elif at <= now:
                heappop(self._order)
                heappush(self._order, (moment, trace_id))
            else:
                return

    def _moment(self, trace: OpenTrace) -> float:
        """When a trace is complete, if nothing more of it comes."""
        return min(trace.last + self._idle(trace), trace.first + self.limits.age)

    def _idle(self, trace: OpenTrace) -> float:
        return self.limits.idle if trace.rooted else self.limits.rootless

    def hold(self, trace_id: bytes, request: int, now: float) -> None:
        """Have a trace wait for a journalled request whose spans are not read."""
        trace = self.traces.setdefault(trace_id, OpenTrace(0, now, now))
        trace.requests.add(request)
        self._held[request] += 1
        self._waits[request] += 1
        self._sizes.setdefault(request, 0)

    def take(self, trace_id: bytes) -> OpenTrace:
        """Take a trace out."""
        trace = self.traces.pop(trace_id)
        for request in trace.requests:
            self._waits[request] -= 1
            if not self._waits[request]:
                del self._waits[request]
                self.size -= self._sizes.pop(request)
        return trace

    def release(self, trace: OpenTrace) -> list[int]:
        """The journalled requests nothing waits for any more, now that a trace is done."""
        done = []
        for request in trace.requests:
            self._held[request] -= 1
            if not self._held[request]:
                del self._held[request]
                done.append(request)
        return done

    def holds(self, request: int) -> bool:
        """Whether a trace waits that has spans of a journalled request."""
        return request in self._held

    def forget_requests(self) -> None:
        """No journalled request is held any more."""
        self._held.clear()


UNSAMPLED: Final = "unsampled"
"""Why a trace is no record: it lost the draw."""
DECORATED: Final = "decorated"
"""Why a trace is no record: a whole one came of a decorated call in it."""
LONGEST_ASSEMBLY: Final = 5.0
"""Seconds of CPU that one trace may take: beyond them nothing more of it is read."""
OFTEN: Final = 16
"""Spans between two looks at the time, which cost as much as a short span."""
ANYBODY: Final = "human"
"""Who says what stands on a span that names nobody."""


class AssembledRecord(NamedTuple):
    """A record.

    Attributes:
        key: What tells it from all others.
        record: The record, as it is journalled and scored.
        line: The same as the journal holds it.
    """

    key: tuple[int, bytes]
    record: Record
    line: bytes


class AssembledTrace(NamedTuple):
    """What became of a trace.

    Attributes:
        trace_id: The trace.
        waiting: Its spans, until it is on disk what became of them.
        made: Its record; several where several requests share the trace, none where there is none.
        counts: What became of requests that are none, what spans do not tell, and how many requests there are besides
            the one that was counted when the trace began.
        labels: What people say on its spans, of its own request or of one that they link to.
        aside: What was done with it when the process ended twice: its spans are kept aside; "" where it did not, or
            where they are kept with another trace's.
    """

    trace_id: bytes
    waiting: OpenTrace
    made: list[AssembledRecord]
    counts: BatchCounts
    labels: Sequence[Label] = ()
    aside: str = ""


def quarantined_trace(trace_id: bytes, waiting: OpenTrace, step: str) -> AssembledTrace:
    """A trace that nobody works on any more.

    Args:
        trace_id: The trace.
        waiting: Its spans.
        step: What was done with it when the process ended; "" where its spans are kept with another trace's.
    """
    return AssembledTrace(trace_id, waiting, [], BatchCounts(dropped={QUARANTINED: 1}), aside=step)


class _Process(NamedTuple):
    """What the first process of a trace that says so says of itself."""

    service: str | None
    build: str | None


class _DeadlineError(Exception):
    """A trace takes too long."""


def is_sampled(trace_id: bytes, lowest: int) -> bool:
    """Whether a trace won the draw that its id is, before anything else of it is read.

    Args:
        trace_id: 16 bytes.
        lowest: The smallest draw that wins.
    """
    return int.from_bytes(trace_id, "big") % SPAN >= lowest


class Assembler:
    """Makes records of foreign traces.

    Args:
        settings: The configuration.
        longest: Seconds of CPU that one trace may take. They are looked at between its steps: its spans, its requests.

    Attributes:
        lowest: The smallest draw of a trace that is to be a record; 0 where nobody set a rate.
    """

    def __init__(self, settings: Settings, longest: float = LONGEST_ASSEMBLY) -> None:
        self._longest = longest
        self._asked = span_settings(settings)
        told = settings.origins.get("sampling.rate", "default") != "default"
        self._rate = self._asked.rate if told else 1.0
        self.lowest = threshold(self._rate)
        self._redact = Redactions(settings)

    def assemble(self, trace_id: bytes, waiting: OpenTrace, *, decorated: bool = False) -> AssembledTrace:
        """What becomes of a trace.

        Args:
            trace_id: The trace.
            waiting: All its spans.
            decorated: A whole record came of a decorated call in it.
        """
        counts, made = BatchCounts(), list[AssembledRecord]()
        if decorated:
            count(counts.ignored, DECORATED)
            return AssembledTrace(trace_id, waiting, made, counts)
        deadline = Deadline(self._longest)
        try:
            spans = list(_read(waiting, deadline))
            requests, labels = per_request(spans), _labels(spans)
        except Exception as error:  # noqa: BLE001 - attributes are foreign data
            _drop(counts, error)
            return AssembledTrace(trace_id, waiting, made, counts)
        counts.received = len(requests) - 1
        process = _process(waiting)
        for place, request in enumerate(requests):
            try:
                _check(deadline)
                mapped, record = self._map(request, process, waiting, deadline)
                if record is not None:
                    made.append(_made(trace_id, record, place if len(requests) > 1 else None))
            except Exception as error:  # noqa: BLE001 - as above, and redactors are foreign code
                _drop(counts, error)
                continue
            if record is None:
                count(counts.ignored, mapped.reason)
                continue
            for name, reason in mapped.missing.items():
                count(counts.unknown, f"{name}|{reason}")
        return AssembledTrace(trace_id, waiting, made, counts, labels)

    def _map(
        self, request: Trace, process: _Process, waiting: OpenTrace, deadline: Deadline
    ) -> tuple[Mapped, Record | None]:
        mapped = to_record(
            request,
            id_from=self._asked.id_from,
            merge=self._asked.merge,
            pipeline=self._asked.pipeline,
            service=process.service,
            build=process.build,
        )
        record = mapped.record
        if record is not None and not waiting.complete:
            mapped = incomplete(mapped)
            record = mapped.record
        _check(deadline)
        return mapped, record if record is None else self._treated(record, waiting)

    def _treated(self, record: Record, waiting: OpenTrace) -> Record:
        # The rate may have been another when the trace began.
        rate = self._rate if waiting.lowest == self.lowest else 1.0 - waiting.lowest / SPAN
        sampling = Sampling(p_audit=rate, p=rate)
        record.pipeline = record.pipeline or DEFAULT_PIPELINE
        kept = msgspec.structs.replace(record, sampling=sampling, partial=record.partial or not waiting.complete)
        return self._redact(kept)


def _process(waiting: OpenTrace) -> _Process:
    pieces = waiting.pieces.values()
    services, builds = (piece.service for piece in pieces), (piece.build for piece in pieces)
    return _Process(next(filter(None, services), None), next(filter(None, builds), None))


def _labels(spans: Sequence[Span]) -> list[Label]:
    """What people say on spans of whether an answer is right."""
    return [
        Label(trace_id=told.trace_id, rater=told.rater[:LONGEST] or ANYBODY, correct=told.score, ts=told.ts)
        for told in evaluations(spans)
        if told.human and told.name in CORRECTNESS
    ]


def _made(trace_id: bytes, record: Record, place: int | None) -> AssembledRecord:
    """The record of a trace, or the one at a place among those of a trace that several requests share."""
    # A key of its own for each, of another length than the key of a whole record (trace and span).
    unique = trace_id if place is None else b"%b/%d" % (trace_id, place)
    return AssembledRecord((round((record.ts or 0.0) * 1e9) // STEP_NS, unique), record, encode_entry(record))


def _read(waiting: OpenTrace, deadline: Deadline) -> Iterator[Span]:
    """The spans of a trace, as long as there is time."""
    for place, piece in enumerate(waiting.pieces.values()):
        if place % OFTEN == OFTEN - 1:
            _check(deadline)
        yield piece.span()


def _check(deadline: Deadline) -> None:
    """Nothing, before a time.

    Raises:
        _DeadlineError: It has passed.
    """
    if deadline.passed:
        raise _DeadlineError


def _drop(counts: BatchCounts, error: Exception) -> None:
    if isinstance(error, _DeadlineError):
        count(counts.dropped, DEADLINE_EXCEEDED)
        complain("a trace took too long to assemble", error)
    else:
        count(counts.dropped, INVALID_SCHEMA)
        complain("a trace's spans could not be read", error)
