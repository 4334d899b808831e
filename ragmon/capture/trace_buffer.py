"""The in-process trace buffer: it collects the spans of each request and turns finished requests into records.

A request is the outermost span of this process and all spans below it. It is finished when all its spans have ended,
not only the outermost one: work that continues in the background belongs to it. On the application's threads spans are
only stored; sampling, conversion and export run in the worker's thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, final

import msgspec

from ragmon.capture.call import SPAN, SamplingDecision, random, threshold
from ragmon.capture.parent import read_span_context
from ragmon.capture.worker import QueuedRecord, Worker
from ragmon.core import constants
from ragmon.core.log import error_location, warn_once
from ragmon.core.paths import Path
from ragmon.core.record import Record, Sampling
from ragmon.ingest.spans import Merge, per_request, to_record
from ragmon.ingest.spans.model import Trace, from_sdk_span, resource

LATE: Final = "late"
ORPHAN: Final = "orphan"
TOO_MANY: Final = "too_many_spans"
FULL: Final = "too_many_requests"
"""Why a span is in no request's record."""
_MAX_LATE_IDS: Final = 10_000
"""Largest number of remembered span ids: spans still open when their request was finished, whose end counts as late."""


@dataclass(frozen=True)
class BufferLimits:
    """Limits of time and number of the buffer.

    Args:
        linger: Seconds after the last span ended in which another span may begin.
        after_root: Seconds after the outermost span ended until the request is finished with the spans it has.
        age: Seconds after the request began until it is finished with the spans it has.
        spans: Largest number of spans of one request.
        requests: Largest number of open requests.
    """

    linger: float = 0.2
    after_root: float = 30.0
    age: float = 600.0
    spans: int = 512
    requests: int = 2048


@final
class OpenRequest:
    """A request whose spans are being collected.

    Attributes:
        trace_id: Its trace.
        spans: Spans that have ended.
        ids: Ids of all its spans.
        open: Ids of spans that have not ended.
        began: When it began, by the buffer's clock.
        root_ended: When its outermost span ended; None before.
        changed: When the last span began or ended.
        claimed: A decorated call inside it makes the record of the request.
        complete: No span is missing.
    """

    __slots__ = ("began", "changed", "claimed", "complete", "ids", "open", "root", "root_ended", "spans", "trace_id")

    def __init__(self, trace_id: int, root: int, now: float) -> None:
        self.trace_id = trace_id
        self.root = root
        self.spans: list[Any] = []
        self.ids = [root]
        self.open = {root}
        self.began = self.changed = now
        self.root_ended: float | None = None
        self.claimed = False
        self.complete = True

    def is_due(self, now: float, limits: BufferLimits, *, hurried: bool) -> bool:
        """Whether the request is finished or timed out; if hurried, without the linger time."""
        if self.root_ended is not None and not self.open:
            return hurried or now - self.changed >= limits.linger
        late = self.root_ended is not None and now - self.root_ended >= limits.after_root
        return late or now - self.began >= limits.age


class SpanBuffer:
    """The open requests.

    Every step is one atomic operation on a dictionary, a set or a list, so threads need no lock.

    Args:
        limits: Limits of time and number.
        clock: Returns seconds; used for all timeouts.

    Attributes:
        dropped: Spans that are in no record, by reason.
    """

    def __init__(self, limits: BufferLimits | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.limits = limits or BufferLimits()
        self._clock = clock
        self._requests: dict[int, OpenRequest] = {}
        self._of: dict[int, OpenRequest] = {}
        self._gone: dict[int, None] = {}
        self.dropped = {LATE: 0, ORPHAN: 0, TOO_MANY: 0, FULL: 0}

    def begin_request(self, trace_id: int, span_id: int) -> bool:
        """An outermost span began; returns False if there are too many open requests."""
        if len(self._requests) >= self.limits.requests:
            self.dropped[FULL] += 1
            return False
        request = OpenRequest(trace_id, span_id, self._clock())
        self._requests[span_id] = self._of[span_id] = request
        return True

    def begin(self, span_id: int, parent_id: int) -> bool:
        """A span began below another; returns False if its parent is in no open request."""
        request = self._of.get(parent_id)
        if request is None:
            return False
        request.ids.append(span_id)
        request.open.add(span_id)
        request.changed = self._clock()
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
        now = self._clock()
        if len(request.spans) < self.limits.spans or span_id == request.root:
            request.spans.append(span)
        else:
            request.complete = False
            self.dropped[TOO_MANY] += 1
        request.changed = now
        if span_id == request.root:
            request.root_ended = now
        request.open.discard(span_id)

    def due(self, *, hurried: bool = False, all_of_them: bool = False) -> Iterator[OpenRequest]:
        """Requests that are finished or timed out; each is yielded once.

        Args:
            hurried: Do not linger after the last span.
            all_of_them: Include requests that still run.
        """
        now = self._clock()
        for root, request in list(self._requests.items()):
            if all_of_them or request.is_due(now, self.limits, hurried=hurried):
                del self._requests[root]
                request.complete = request.complete and not request.open
                self._remove(request)
                yield request

    def _remove(self, request: OpenRequest) -> None:
        for span_id in list(request.open):
            self._gone[span_id] = None
        while len(self._gone) > _MAX_LATE_IDS:
            self._gone.pop(next(iter(self._gone)))
        for span_id in request.ids:
            self._of.pop(span_id, None)


DECORATED: Final = "decorated"
"""Why spans around a decorated call make no record: the call's own record is the request's."""
_SPAN_SIZE: Final = 2048
"""Estimated bytes a span keeps alive."""


@dataclass(frozen=True)
class SpanSettings:
    """Sampling and conversion of requests without a decorated call.

    Args:
        rate: Share that is kept, by the randomness of the trace id.
        keep: Rates at which other requests are kept for their outcome, by stratum.
        slow_above: Seconds above which a request counts as slow.
        refusals: Casefolded refusal tokens.
        pipeline: The pipeline's name; None takes the workflow's name, then the service's.
        id_from: Path from a document to its id.
        merge: How several retrievals of one request are combined.
        limits: Limits of time and number of the buffer.
    """

    rate: float = 1.0
    keep: Mapping[str, float] = field(default_factory=dict)
    slow_above: float = float("inf")
    refusals: frozenset[str] = frozenset({constants.REFUSAL_TOKEN})
    pipeline: str | None = None
    id_from: Path | None = None
    merge: Merge = "concat"
    limits: BufferLimits = field(default_factory=BufferLimits)


class RequestAssembler:
    """Turns the spans of requests into records.

    Args:
        worker: Exports the records.
        asked: Settings of sampling and conversion.

    Attributes:
        gathering: The buffer of open requests.
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

    def sweep(self, asked: bool = False) -> None:
        """Convert and submit finished requests, in the worker's thread.

        Args:
            asked: A flush waits: do not linger.
        """
        for request in self.gathering.due(hurried=asked, all_of_them=self._closing):
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
        for trace in per_request(map(from_sdk_span, request.spans)):
            self._submit_record(trace, request)

    def _submit_record(self, trace: Trace, request: OpenRequest) -> None:
        resource_attributes = resource(request.spans[0]) if request.spans else {}
        result = to_record(
            trace,
            id_from=self._settings.id_from,
            merge=self._settings.merge,
            pipeline=self._settings.pipeline,
            service=_text(resource_attributes.get("service.name")),
            build=_text(resource_attributes.get("service.version")),
        )
        if result.record is None:
            self.ignored[result.reason] += 1
            return
        record = self._with_sampling(result.record, request)
        if record is not None:
            self._worker.submit(QueuedRecord(record, _SPAN_SIZE * len(request.spans)))

    def _with_sampling(self, record: Record, request: OpenRequest) -> Record | None:
        """The record with its sampling block; None if it is not kept."""
        odds = self._odds(request)
        stratum = self._stratum(record)
        keep = self._settings.keep.get(stratum, 0.0)
        if not odds.audit and random() >= keep:
            return None
        return msgspec.structs.replace(
            record,
            partial=record.partial or not request.complete,
            sampling=Sampling(audit=odds.audit, stratum=stratum, p_audit=odds.p_audit, p=odds.p(keep)),
        )

    def _odds(self, request: OpenRequest) -> SamplingDecision:
        """The sampling decision; if the application's sampler states its threshold, only sampled traces count."""
        if not request.spans:
            return SamplingDecision(request.trace_id % SPAN >= self._threshold, self._settings.rate)
        parent = read_span_context(request.spans[-1].context)
        respected = parent.sampled and parent.rejected is not None
        odds = parent.odds(self._settings.rate, self._threshold, respected=respected)
        return odds if odds is not None else SamplingDecision(audit=False, p_audit=0.0)

    def _stratum(self, record: Record) -> str:
        if not self._settings.keep:
            return constants.REST
        if record.error is not None:
            return "error"
        claim = record.answer_json.claim if record.answer_json is not None else None
        if claim is not None and claim.strip().casefold() in self._settings.refusals:
            return "refusal"
        total = record.latency_ms.total if record.latency_ms is not None else None
        return "slow" if total is not None and total > 1000 * self._settings.slow_above else constants.REST

    def flush(self, timeout: float) -> bool:
        """Deliver the records of finished requests within a timeout, in seconds; returns whether it was in time."""
        return self._worker.flush(timeout)

    def end(self) -> None:
        """From now on, finish every request at the next sweep."""
        self._closing = True


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
