"""Whole requests of an application's own spans: they wait here, and become records in the worker's thread.

A request is the outermost span of this process and all spans below it. It is finished when all its spans have ended,
not only the outermost one: work that continues in the background belongs to it. How long it waits stands in
`ragmon.ingest.trace_buffer`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, final

import msgspec

from ragmon.capture.call import (
    SPAN,
    SamplingDecision,
    random,
    read_span_context,
    threshold,
)
from ragmon.capture.worker import QueuedRecord, Worker
from ragmon.core import constants
from ragmon.core.errors import error_location, warn_once
from ragmon.core.record import Record, Sampling
from ragmon.core.text import Path
from ragmon.ingest.spans.mapper import per_request, to_record
from ragmon.ingest.spans.span import UNKNOWN_CONVENTION, Merge, count_scope, count_tools, from_sdk_span, resource
from ragmon.ingest.trace_buffer import DECORATED, LATE, TOO_MANY, BufferedTrace, TraceBuffer, TraceLimits, remember

ORPHAN: Final = "orphan"
FULL: Final = "too_many_requests"
"""More reasons why a span is in no record: no open request has its parent, or too many requests are open."""
_MAX_LATE_IDS: Final = 10_000


@dataclass(frozen=True)
class BufferLimits(TraceLimits):
    """The limits of the requests of one process; times in seconds."""

    idle: float = 0.2
    unended: float = 30.0
    age: float = 600.0
    spans: int = 512
    requests: int = 2048


@final
class OpenRequest(BufferedTrace):
    """A request whose spans are being collected.

    Attributes:
        claimed: A decorated call inside it makes the record of the request.
    """

    __slots__ = ("claimed", "ids", "root", "trace_id")
    spans: list[Any]
    open: set[int]

    def __init__(self, trace_id: int, root: int, now: float) -> None:
        super().__init__(now, now, [], None, {root})
        self.trace_id = trace_id
        self.root = root
        self.ids = [root]
        self.claimed = False


@final
class SpanBuffer(TraceBuffer[int, OpenRequest]):
    """The open requests of this process, by the id of their outermost span.

    Every step is one atomic operation on a dictionary, a set or a list, so threads need no lock.

    Attributes:
        dropped: Spans that are in no record, by reason.
    """

    limits: BufferLimits

    def __init__(self, limits: BufferLimits | None = None, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(limits or BufferLimits())
        self.clock = clock
        self._of: dict[int, OpenRequest] = {}
        self._gone: dict[int, None] = {}
        self.dropped = {LATE: 0, ORPHAN: 0, TOO_MANY: 0, FULL: 0}

    def begin_request(self, trace_id: int, span_id: int) -> bool:
        """An outermost span began; returns False if there are too many open requests."""
        if len(self.traces) >= self.limits.requests:
            self.dropped[FULL] += 1
            return False
        request = OpenRequest(trace_id, span_id, self.clock())
        self.traces[span_id] = self._of[span_id] = request
        return True

    def begin(self, span_id: int, parent_id: int) -> bool:
        """A span began below another; returns False if its parent is in no open request."""
        request = self._of.get(parent_id)
        if request is None:
            return False
        request.ids.append(span_id)
        request.open.add(span_id)
        request.last = self.clock()
        self._of[span_id] = request
        return True

    def claim(self, span_id: int) -> None:
        """A decorated call began in a span: its record is the record of the request."""
        request = self._of.get(span_id)
        if request is not None:
            request.claimed = True

    def end(self, span_id: int, span: Any) -> None:
        """A span ended."""
        request = self._of.get(span_id)
        if request is None:
            if self._gone.pop(span_id, 0) is None:
                self.dropped[LATE] += 1
            return
        is_root = span_id == request.root
        if self.has_room(request, is_root):
            request.spans.append(span)
        else:
            self.dropped[TOO_MANY] += 1
        request.last = self.clock()
        if is_root:
            request.root_ended = request.last
        request.open.discard(span_id)

    def take(self, key: int) -> OpenRequest:
        """Remove and return a request; spans of it that are still open will be late."""
        request = super().take(key)
        for span_id in list(request.open):
            remember(self._gone, span_id, _MAX_LATE_IDS)
        for span_id in request.ids:
            self._of.pop(span_id, None)
        return request


_SPAN_SIZE: Final = 2048


@dataclass(frozen=True)
class SpanSettings:
    """Sampling and conversion of requests without a decorated call."""

    rate: float = 1.0
    keep: Mapping[str, float] = field(default_factory=dict)
    slow_above: float = float("inf")
    refusals: frozenset[str] = frozenset({constants.REFUSAL_TOKEN})
    refuses: Callable[[str], bool] | None = None
    pipeline: str | None = None
    id_from: Path | None = None
    merge: Merge = "concat"
    retrievers: tuple[str, ...] = ()
    limits: BufferLimits = field(default_factory=BufferLimits)


class RequestAssembler:
    """Turns the spans of requests into records.

    Attributes:
        lowest: The smallest randomness of a trace that is collected.
        ignored: Requests that made no record, by reason.
    """

    def __init__(self, worker: Worker, asked: SpanSettings) -> None:
        self._worker = worker
        self._settings = asked
        self._threshold = threshold(asked.rate)
        self.lowest = 0 if any(asked.keep.values()) else self._threshold
        self._closing = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Reset in a forked child."""
        self.gathering = SpanBuffer(self._settings.limits)
        self.ignored: Counter[str] = Counter()
        self.scopes: dict[str, int] = {}
        self.tools: dict[str, int] = {}

    def sweep(self, asked: bool = False) -> None:
        """Convert and submit finished requests, in the worker's thread; without lingering if a flush waits."""
        buffer, hurried = self.gathering, asked or self._closing
        for _, request in buffer.due(buffer.clock(), hurried=hurried, everything=self._closing):
            try:
                self._convert(request)
            except Exception as error:  # noqa: BLE001 - attributes are third-party data
                self.ignored[constants.INVALID_SCHEMA] += 1
                warn_once(f"a request's spans could not be read: {error_location(error)}")

    def awaken(self) -> None:
        """Start the worker's thread if needed: a fork does not copy it."""
        self._worker.start()

    def claim(self, span_id: int) -> None:
        """A decorated call began in a span; the spans around it make no record of their own."""
        self.gathering.claim(span_id)

    def _convert(self, request: OpenRequest) -> None:
        if request.claimed:
            self.ignored[DECORATED] += 1
            return
        settings = self._settings
        attributes = resource(request.spans[0]) if request.spans else {}
        for trace in per_request(map(from_sdk_span, request.spans), settings.retrievers, settings.id_from):
            result = to_record(
                trace,
                id_from=settings.id_from,
                merge=settings.merge,
                retrievers=settings.retrievers,
                pipeline=settings.pipeline,
                service=_text(attributes.get("service.name")),
                build=_text(attributes.get("service.version")),
            )
            record = result.record
            if record is None:
                self.ignored[result.reason] += 1
                if result.reason == UNKNOWN_CONVENTION:
                    count_scope(self.scopes, result.scope)
                continue
            count_tools(self.tools, result.tools)
            decision, stratum = self._decision(request), self._stratum(record)
            keep = settings.keep.get(stratum, 0.0)
            if not decision.audit and random() >= keep:
                continue
            audit, p_audit, p = decision.audit, decision.p_audit, decision.p(keep)
            record = msgspec.structs.replace(
                record,
                partial=record.partial or not request.complete,
                sampling=Sampling(audit=audit, stratum=stratum, p_audit=p_audit, p=p),
            )
            self._worker.submit(QueuedRecord(record, _SPAN_SIZE * len(request.spans)))

    def _decision(self, request: OpenRequest) -> SamplingDecision:
        # If the application's sampler states its threshold, only sampled traces count.
        if not request.spans:
            return SamplingDecision(request.trace_id % SPAN >= self._threshold, self._settings.rate)
        parent = read_span_context(request.spans[-1].context)
        respected = parent.sampled and parent.rejected is not None
        decision = parent.decision(self._settings.rate, self._threshold, respected=respected)
        return decision if decision is not None else SamplingDecision(audit=False, p_audit=0.0)

    def _stratum(self, record: Record) -> str:
        if not self._settings.keep:
            return constants.REST
        if record.error is not None:
            return "error"
        claim = record.answer_json.claim if record.answer_json is not None else None
        settings = self._settings
        if claim is not None and (
            claim.strip().casefold() in settings.refusals or (settings.refuses is not None and settings.refuses(claim))
        ):
            return "refusal"
        total = record.latency_ms.total if record.latency_ms is not None else None
        return "slow" if total is not None and total > 1000 * settings.slow_above else constants.REST

    def flush(self, timeout: float) -> bool:
        """Deliver the records of finished requests within a timeout, in seconds; returns whether it was in time."""
        return self._worker.flush(timeout)

    def end(self) -> None:
        """From now on, finish every request at the next sweep."""
        self._closing = True


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
