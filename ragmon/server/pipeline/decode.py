"""What came in and what became of it: counts that are journalled with the rows they belong to.

What arrives, taken apart before it is queued: the part of the work that needs no order.

One row of the journal: what several requests and complete traces put there together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core import constants
from ragmon.core.bounds import bounded
from ragmon.core.record import Entry, Record, encode_entry, has_trace_id, parse_label
from ragmon.gold.labels.ratings import REJECTED
from ragmon.ingest.decode import decode
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp import batch as extent
from ragmon.ingest.otlp.batch import TOO_MANY, ExternalSpan, NativeSpan
from ragmon.ingest.otlp.metrics import totals
from ragmon.ingest.otlp.request import read, span_bytes
from ragmon.ingest.spans import own_record
from ragmon.metrics.answers import AnswerCorrect
from ragmon.monitor.log import complain
from ragmon.scoring.counts import add_counts
from ragmon.server.journal.reader import PendingRequest
from ragmon.server.pipeline.probe_replies import PendingProbeRecord
from ragmon.server.receiver.interface import Encoding, ExportResult, RejectedError

FORGOTTEN: Final = "forgotten"
"""Why a request is not scored: somebody asked to forget it."""


class BatchCounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How often each thing happened.

    Attributes:
        received: Requests of users that came in: a whole record, or the first span of a trace.
        duplicate: Those that were there already.
        ignored: Those that are no RAG, by reason.
        dropped: Those that were lost, by reason.
        spans: Spans that belong to no record, by reason.
        unknown: Fields that a request's spans do not tell, by `field|reason`.
        labels: What became of labels.
        probed: What became of applications' own records of probes that this server sent.
        own: Whole records that producers sent; what they say they kept is held against it.
    """

    received: int = 0
    duplicate: int = 0
    ignored: dict[str, int] = {}
    dropped: dict[str, int] = {}
    spans: dict[str, int] = {}
    unknown: dict[str, int] = {}
    labels: dict[str, int] = {}
    probed: dict[str, int] = {}
    own: int = 0

    def add(self, other: BatchCounts) -> None:
        """Add other counts."""
        self.received += other.received
        self.duplicate += other.duplicate
        self.own += other.own
        for mine, theirs in zip(self._parts(), other._parts(), strict=True):
            add_counts(mine, theirs)

    def _parts(self) -> tuple[dict[str, int], ...]:
        return self.ignored, self.dropped, self.spans, self.unknown, self.labels, self.probed

    def __bool__(self) -> bool:
        return bool(self.received or self.duplicate or any(self._parts()))

    def dump(self) -> bytes:
        """JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def load(cls, data: bytes) -> BatchCounts:
        """What `dump` wrote."""
        return msgspec.json.decode(data, type=cls)


def count(into: dict[str, int], key: str, n: int = 1) -> None:
    """Add to one count.

    >>> found = {"late": 1}; count(found, "late"); found
    {'late': 2}
    """
    if n:
        into[key] = into.get(key, 0) + n


STEP_NS: Final = 10_000_000_000
"""Nanoseconds of a step of event time: what lies in one is looked up together."""
BAD_REQUEST: Final = 400
TOO_LARGE: Final = 413


class NativeRecord(NamedTuple):
    """A request that came as one span.

    Attributes:
        key: What tells it from all others: its step of event time, its trace and its span.
        ended: When its span ended, seconds since the epoch.
        trace_id: Its trace.
        record: The record.
        line: The same as the journal holds it.
    """

    key: tuple[int, bytes]
    ended: float
    trace_id: bytes
    record: Record
    line: bytes


@dataclass
class QueuedRequest:
    """A request that waits to be journalled.

    Attributes:
        done: Told when it is on disk.
        size: Bytes it takes.
        whole: Requests of users that came as one span.
        foreign: Spans that wait for the rest of their traces.
        entries: Totals, labels and acknowledgements.
        counts: What became of the rest of it.
        taken: What its sender is answered.
        body: As it came, for as long as spans of it wait.
        form: How it is written.
    """

    done: Future[Any] = field(default_factory=Future)
    size: int = 0
    whole: list[NativeRecord] = field(default_factory=list)
    foreign: list[ExternalSpan] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    counts: BatchCounts = field(default_factory=BatchCounts)
    taken: ExportResult = field(default_factory=ExportResult)
    body: bytes = b""
    form: Encoding = Encoding.PROTOBUF


class UnreadableError(RejectedError):
    """A request that is none, and what it is counted as."""

    def __init__(self, rejected: Rejected, status: int = BAD_REQUEST) -> None:
        super().__init__(status, rejected.reason, str(rejected))
        self.counts = BatchCounts(received=rejected.lost, dropped={rejected.reason: rejected.lost})


def decode_traces(body: bytes, form: Encoding) -> QueuedRequest:
    """The spans of an `ExportTraceServiceRequest`.

    Raises:
        UnreadableError: It is none, or holds too many.
    """
    _see_extent(body, extent.SPANS, form)
    try:
        batch = read(body, json=form is Encoding.JSON)
    except Rejected as error:
        raise UnreadableError(error, TOO_LARGE if error.reason == TOO_MANY else BAD_REQUEST) from None
    rejected, first, unknown = Counter(batch.rejected), batch.first, dict[str, int]()
    whole = []
    for own in batch.own:
        found = _whole(own, unknown)
        if isinstance(found, NativeRecord):
            whole.append(found)
        else:
            rejected[found] += 1
            first = first or f"a span's {found}: its record cannot be read"
    bad = rejected.total()
    return QueuedRequest(
        size=len(body),
        whole=whole,
        foreign=[span_bytes(one) for one in batch.foreign],
        counts=BatchCounts(received=bad, dropped=dict(rejected), unknown=unknown),
        taken=ExportResult(bad, first if bad else ""),
        body=(batch.body or body) if batch.foreign else b"",
        form=form,
    )


def spans_of(body: PendingRequest) -> list[ExternalSpan] | None:
    """The spans of a journalled request; None where it cannot be read any more."""
    try:
        return [span_bytes(one) for one in read(body.body, json=body.form == Encoding.JSON.value).foreign]
    except Rejected as rejected:
        complain(f"a journalled request cannot be read any more ({rejected.reason})", rejected)
        return None


def _see_extent(body: bytes, layout: extent.MessageLayout, form: Encoding) -> None:
    if extent.is_crowded(body, layout, json=form is Encoding.JSON):
        told = f"it holds more than {extent.MOST} messages, or too much in them; send them in several requests"
        raise UnreadableError(Rejected(TOO_MANY, told), TOO_LARGE)


def _whole(own: NativeSpan, unknown: dict[str, int]) -> NativeRecord | str:
    """The request a span holds, or why it cannot be read.

    Args:
        own: The span.
        unknown: Counts what of the record is out of range.
    """
    record = own_record(own.line, own.trace_id.hex(), own.end_ns)
    if isinstance(record, str):
        return _why(own.line, record)
    if record.source == constants.LABEL:  # people's words come as labels, which are told apart and counted once
        return constants.INVALID_SCHEMA
    record, odd = bounded(record)
    for field_name, reason in odd.items():
        count(unknown, f"{field_name}|{reason}")
    if record.measures is not None:
        record.measures.pop(AnswerCorrect.name, None)
    if record.source is None:
        record.source = constants.LIVE
    key = (own.end_ns // STEP_NS, own.trace_id + own.span_id)
    return NativeRecord(key, own.end_ns / 1e9, own.trace_id, record, encode_entry(record))


def _why(line: str, found: str) -> str:
    """Why a line is no record, by the reasons that lines of trace files have."""
    try:
        decode(line.encode("utf-8", "surrogatepass"))
    except Rejected as error:
        return error.reason
    return found


def decode_metrics(body: bytes, form: Encoding) -> QueuedRequest:
    """The producers' totals of an `ExportMetricsServiceRequest`.

    Raises:
        UnreadableError: It is none, or holds too many points.
    """
    _see_extent(body, extent.POINTS, form)
    try:
        found, rejected, first = totals(body, json=form is Encoding.JSON)
    except Rejected as error:
        raise UnreadableError(error) from None
    return QueuedRequest(size=len(body), entries=list(found), taken=ExportResult(rejected, first))


def decode_labels(labels: Sequence[Any], *, comments: bool = False) -> QueuedRequest:
    """Labels people gave; one that is none is left out and counted.

    Args:
        labels: What was sent.
        comments: Keep what raters wrote in their own words.
    """
    request, first = QueuedRequest(), ""
    for place, told in enumerate(labels, 1):
        try:
            label = has_trace_id(parse_label(told))
        except ValueError as error:
            count(request.counts.labels, REJECTED)
            first = first or f"label {place} of {len(labels)}: {error}"
        else:
            label.comment = label.comment if comments else None
            request.entries.append(label)
    bad = request.counts.labels.get(REJECTED, 0)
    request.size = sum(len(encode_entry(entry)) for entry in request.entries)
    request.taken = ExportResult(bad, first)
    return request


@dataclass
class WriteBatch:
    """What is written.

    Attributes:
        arrival: When it came, seconds since the epoch.
        seq: Its number in the journal.
        counts: What became of what came.
        entries: Its lines, as they are scored.
        lines: The same as the journal holds them.
        held: Spans that wait, with the request they came in and its number.
        own: Traces of which whole records came.
        begun: Traces of which spans wait for the first time.
        passed: Traces that are passed over, since whole records came of decorated calls in them.
        probed: Traces whose whole records are probes.
        labelled: Traces whose answers stand in the line of a label.
        answered: Probes' replies of which it is known now what becomes.
        early: Records of probes that wait for their replies, by trace.
        replies: Replies that wait, by trace, and their numbers.
        overdue: Traces whose records wait for a reply no longer.
        forgotten: Traces that somebody had forgotten since the row before.
    """

    arrival: float
    seq: int = 0
    counts: BatchCounts = field(default_factory=BatchCounts)
    entries: list[Entry] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    held: list[tuple[QueuedRequest, list[ExternalSpan], int]] = field(default_factory=list)
    own: list[bytes] = field(default_factory=list)
    begun: set[bytes] = field(default_factory=set)
    passed: set[bytes] = field(default_factory=set)
    probed: set[bytes] = field(default_factory=set)
    labelled: set[str] = field(default_factory=set)
    answered: set[bytes] = field(default_factory=set)
    early: dict[bytes, PendingProbeRecord] = field(default_factory=dict)
    replies: dict[bytes, int] = field(default_factory=dict)
    overdue: list[bytes] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def put(self, entry: Entry, line: bytes) -> None:
        """Add a line."""
        self.entries.append(entry)
        self.lines.append(line)
