"""The spans of one request, gathered while it runs; called on the application's threads, so it only remembers.

A request is the outermost span of this process and everything below it. It is over when all its spans have ended,
not when the outermost has: what runs on in the background belongs to it.

What becomes of the requests a span processor gathers: a draw, a record, and its way to the sink.
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
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.paths import Path
from ragmon.core.record import Record, Sampling
from ragmon.ingest.spans import Merge, per_request, to_record
from ragmon.ingest.spans.model import Trace, from_sdk_span, resource

LATE: Final = "late"
ORPHAN: Final = "orphan"
TOO_MANY: Final = "too_many_spans"
FULL: Final = "too_many_requests"
"""Why a span belongs to no request's record."""
_REMEMBERED: Final = 10_000
"""Spans that were open when their request was given up, to be known as late."""


@dataclass(frozen=True)
class BufferLimits:
    """How long and how much is waited for.

    Args:
        linger: Seconds after the last span ended in which another may begin.
        after_root: Seconds after the outermost span ended until the request is taken as it is.
        age: Seconds after it began until it is taken as it is.
        spans: Spans of one request.
        requests: Requests at once.
    """

    linger: float = 0.2
    after_root: float = 30.0
    age: float = 600.0
    spans: int = 512
    requests: int = 2048


@final
class OpenRequest:
    """One request.

    Attributes:
        trace_id: Its trace.
        spans: Those that have ended.
        ids: Of all its spans.
        open: Ids of those that have not ended.
        began: When it began, by the clock of the gathering.
        root_ended: When its outermost span ended; None before.
        changed: When a span began or ended last.
        claimed: A decorated call inside it is the request.
        complete: Nothing of it is missing.
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
        """Whether nothing more is to be waited for; in a hurry only for what is known to run."""
        if self.root_ended is not None and not self.open:
            return hurried or now - self.changed >= limits.linger
        late = self.root_ended is not None and now - self.root_ended >= limits.after_root
        return late or now - self.began >= limits.age


class SpanBuffer:
    """The requests that run.

    Every step is one operation on a dictionary, a set or a list, so threads need no lock.

    Args:
        limits: How long and how much is waited for.
        clock: Seconds, for lingering.

    Attributes:
        dropped: Spans that belong to no record, by reason.
    """

    def __init__(self, limits: BufferLimits | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.limits = limits or BufferLimits()
        self._clock = clock
        self._requests: dict[int, OpenRequest] = {}
        self._of: dict[int, OpenRequest] = {}
        self._gone: dict[int, None] = {}
        self.dropped = {LATE: 0, ORPHAN: 0, TOO_MANY: 0, FULL: 0}

    def begin_request(self, trace_id: int, span_id: int) -> bool:
        """An outermost span began; returns False where there are too many."""
        if len(self._requests) >= self.limits.requests:
            self.dropped[FULL] += 1
            return False
        found = OpenRequest(trace_id, span_id, self._clock())
        self._requests[span_id] = self._of[span_id] = found
        return True

    def begin(self, span_id: int, parent_id: int) -> bool:
        """A span began below another; returns False where that one is in no request."""
        found = self._of.get(parent_id)
        if found is None:
            return False
        found.ids.append(span_id)
        found.open.add(span_id)
        found.changed = self._clock()
        self._of[span_id] = found
        return True

    def claim(self, span_id: int) -> None:
        """A decorated call began in a span: its record is the request's."""
        found = self._of.get(span_id)
        if found is not None:
            found.claimed = True

    def end(self, span_id: int, span: Any) -> None:
        """A span ended."""
        found = self._of.get(span_id)
        if found is None:
            if self._gone.pop(span_id, 0) is None:
                self.dropped[LATE] += 1
            return
        now = self._clock()
        if len(found.spans) < self.limits.spans or span_id == found.root:
            found.spans.append(span)
        else:
            found.complete = False
            self.dropped[TOO_MANY] += 1
        found.changed = now
        if span_id == found.root:
            found.root_ended = now
        found.open.discard(span_id)

    def due(self, *, hurried: bool = False, all_of_them: bool = False) -> Iterator[OpenRequest]:
        """Requests nothing more is to be waited for; each is given once.

        Args:
            hurried: Do not linger after the last span.
            all_of_them: Give those as well that still run.
        """
        now = self._clock()
        for root, found in list(self._requests.items()):
            if all_of_them or found.is_due(now, self.limits, hurried=hurried):
                del self._requests[root]
                found.complete = found.complete and not found.open
                self._forget(found)
                yield found

    def _forget(self, found: OpenRequest) -> None:
        for span_id in list(found.open):
            self._gone[span_id] = None
        while len(self._gone) > _REMEMBERED:
            self._gone.pop(next(iter(self._gone)))
        for span_id in found.ids:
            self._of.pop(span_id, None)


DECORATED: Final = "decorated"
"""Why spans around a decorated call are no record: its own is."""
_SHARE: Final = 2048
"""Bytes a span keeps alive, roughly."""


@dataclass(frozen=True)
class SpanSettings:
    """What is asked of requests nobody decorated.

    Args:
        rate: Share that is kept, by the draw their trace id is.
        keep: Rates at which others are kept for their outcome.
        slow_above: Seconds above which a request counts as slow.
        refusals: Folded refusal tokens.
        pipeline: The pipeline's name; None takes the workflow's, then the service's.
        id_from: Path from a document to its id.
        merge: What several retrievals make.
        limits: How long and how much is waited for.
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
    """Turns gathered requests into records.

    Args:
        worker: Delivers them.
        asked: What is kept, and how it is read.

    Attributes:
        gathering: The requests that run.
        lowest: The smallest draw that is gathered.
        ignored: Requests that are no RAG, by reason.
    """

    def __init__(self, worker: Worker, asked: SpanSettings) -> None:
        self._worker = worker
        self._asked = asked
        self._threshold = threshold(asked.rate)
        self.lowest = 0 if any(asked.keep.values()) else self._threshold
        self._ending = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Begin anew in a forked child."""
        self.gathering = SpanBuffer(self._asked.limits)
        self.ignored: Counter[str] = Counter()

    def sweep(self, asked: bool = False) -> None:
        """Hand over requests nothing more is to be waited for, in the worker's thread.

        Args:
            asked: Somebody waits: do not linger.
        """
        for found in self.gathering.due(hurried=asked, all_of_them=self._ending):
            try:
                self._take(found)
            except Exception as error:  # noqa: BLE001 - attributes are foreign data
                self.ignored[constants.INVALID_SCHEMA] += 1
                warn_once(f"a request's spans could not be read: {whereabouts(error)}")

    def awaken(self) -> None:
        """See that what is gathered will be delivered: a fork does not copy the thread."""
        self._worker.start()

    def claim(self, span_id: int) -> None:
        """A decorated call began in a span; what lies around it is no request of its own."""
        self.gathering.claim(span_id)

    def _take(self, found: OpenRequest) -> None:
        if found.claimed:
            self.ignored[DECORATED] += 1
            return
        for request in per_request(map(from_sdk_span, found.spans)):
            self._make(request, found)

    def _make(self, request: Trace, found: OpenRequest) -> None:
        of_process = resource(found.spans[0]) if found.spans else {}
        mapped = to_record(
            request,
            id_from=self._asked.id_from,
            merge=self._asked.merge,
            pipeline=self._asked.pipeline,
            service=_text(of_process.get("service.name")),
            build=_text(of_process.get("service.version")),
        )
        if mapped.record is None:
            self.ignored[mapped.reason] += 1
            return
        record = self._sampled(mapped.record, found)
        if record is not None:
            self._worker.submit(QueuedRecord(record, _SHARE * len(found.spans)))

    def _sampled(self, record: Record, found: OpenRequest) -> Record | None:
        """The record with how it came to be kept; None where it is not."""
        odds = self._odds(found)
        stratum = self._stratum(record)
        keep = self._asked.keep.get(stratum, 0.0)
        if not odds.audit and random() >= keep:
            return None
        return msgspec.structs.replace(
            record,
            partial=record.partial or not found.complete,
            sampling=Sampling(audit=odds.audit, stratum=stratum, p_audit=odds.p_audit, p=odds.p(keep)),
        )

    def _odds(self, found: OpenRequest) -> SamplingDecision:
        """How the draw went; where the application's sampler tells its own rate, only what it let through is seen."""
        if not found.spans:
            return SamplingDecision(found.trace_id % SPAN >= self._threshold, self._asked.rate)
        parent = read_span_context(found.spans[-1].context)
        told = parent.sampled and parent.rejected is not None
        odds = parent.odds(self._asked.rate, self._threshold, respected=told)
        return odds if odds is not None else SamplingDecision(audit=False, p_audit=0.0)

    def _stratum(self, record: Record) -> str:
        if not self._asked.keep:
            return constants.REST
        if record.error is not None:
            return "error"
        claim = record.answer_json.claim if record.answer_json is not None else None
        if claim is not None and claim.strip().casefold() in self._asked.refusals:
            return "refusal"
        total = record.latency_ms.total if record.latency_ms is not None else None
        return "slow" if total is not None and total > 1000 * self._asked.slow_above else constants.REST

    def flush(self, timeout: float) -> bool:
        """Deliver the requests that are over, within some seconds; returns whether there was time."""
        return self._worker.flush(timeout)

    def end(self) -> None:
        """From now on take every request as it is."""
        self._ending = True


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
