"""Complete traces become records: mapped, redacted, and with how likely they were to be kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from ragmon.capture.call import SPAN, threshold
from ragmon.config.settings import Settings
from ragmon.core.constants import DEADLINE_EXCEEDED, DEFAULT_PIPELINE, INVALID_SCHEMA, QUARANTINED
from ragmon.core.record import LONGEST, Label, Record, Sampling, encode_entry
from ragmon.ingest.spans import Mapped, Span, incomplete, per_request, to_record
from ragmon.ingest.spans.fields import CORRECTNESS, evaluations
from ragmon.ingest.spans.model import Trace
from ragmon.monitor.build import Redactions, asked
from ragmon.monitor.log import complain
from ragmon.server.keeping.accepting import STEP_NS
from ragmon.server.keeping.clock import Deadline
from ragmon.server.keeping.counts import Counts, count
from ragmon.server.keeping.waiting import Waiting

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


class Made(NamedTuple):
    """A record.

    Attributes:
        key: What tells it from all others.
        record: The record, as it is journalled and scored.
        line: The same as the journal holds it.
    """

    key: tuple[int, bytes]
    record: Record
    line: bytes


class Assembled(NamedTuple):
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
    waiting: Waiting
    made: list[Made]
    counts: Counts
    labels: Sequence[Label] = ()
    aside: str = ""


def quarantined(trace_id: bytes, waiting: Waiting, step: str) -> Assembled:
    """A trace that nobody works on any more.

    Args:
        trace_id: The trace.
        waiting: Its spans.
        step: What was done with it when the process ended; "" where its spans are kept with another trace's.
    """
    return Assembled(trace_id, waiting, [], Counts(dropped={QUARANTINED: 1}), aside=step)


class _Process(NamedTuple):
    """What the first process of a trace that says so says of itself."""

    service: str | None
    build: str | None


class _DeadlineError(Exception):
    """A trace takes too long."""


def drawn(trace_id: bytes, lowest: int) -> bool:
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
        self._asked = asked(settings)
        told = settings.origins.get("sampling.rate", "default") != "default"
        self._rate = self._asked.rate if told else 1.0
        self.lowest = threshold(self._rate)
        self._redact = Redactions(settings)

    def assemble(self, trace_id: bytes, waiting: Waiting, *, decorated: bool = False) -> Assembled:
        """What becomes of a trace.

        Args:
            trace_id: The trace.
            waiting: All its spans.
            decorated: A whole record came of a decorated call in it.
        """
        counts, made = Counts(), list[Made]()
        if decorated:
            count(counts.ignored, DECORATED)
            return Assembled(trace_id, waiting, made, counts)
        deadline = Deadline(self._longest)
        try:
            spans = list(_read(waiting, deadline))
            requests, labels = per_request(spans), _labels(spans)
        except Exception as error:  # noqa: BLE001 - attributes are foreign data
            _drop(counts, error)
            return Assembled(trace_id, waiting, made, counts)
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
            for field, reason in mapped.missing.items():
                count(counts.unknown, f"{field}|{reason}")
        return Assembled(trace_id, waiting, made, counts, labels)

    def _map(
        self, request: Trace, process: _Process, waiting: Waiting, deadline: Deadline
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

    def _treated(self, record: Record, waiting: Waiting) -> Record:
        # The rate may have been another when the trace began.
        rate = self._rate if waiting.lowest == self.lowest else 1.0 - waiting.lowest / SPAN
        sampling = Sampling(p_audit=rate, p=rate)
        record.pipeline = record.pipeline or DEFAULT_PIPELINE
        kept = msgspec.structs.replace(record, sampling=sampling, partial=record.partial or not waiting.complete)
        return self._redact(kept)


def _process(waiting: Waiting) -> _Process:
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


def _made(trace_id: bytes, record: Record, place: int | None) -> Made:
    """The record of a trace, or the one at a place among those of a trace that several requests share."""
    # A key of its own for each, of another length than the key of a whole record (trace and span).
    unique = trace_id if place is None else b"%b/%d" % (trace_id, place)
    return Made((round((record.ts or 0.0) * 1e9) // STEP_NS, unique), record, encode_entry(record))


def _read(waiting: Waiting, deadline: Deadline) -> Iterator[Span]:
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


def _drop(counts: Counts, error: Exception) -> None:
    if isinstance(error, _DeadlineError):
        count(counts.dropped, DEADLINE_EXCEEDED)
        complain("a trace took too long to assemble", error)
    else:
        count(counts.dropped, INVALID_SCHEMA)
        complain("a trace's spans could not be read", error)
