"""What arrives, decoded before it is queued (the part of the work that needs no order), and the batch that is written.

Requests and complete traces become `WriteBatch`, one row of the journal, with `BatchCounts`: what arrived and what
became of it. The counts are journalled with the row that they belong to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from ragmon.core.errors import log_error
from ragmon.core.http_server import RejectedError
from ragmon.core.record import ChunkEntry, Entry, Record, check_trace_id, encode_entry, parse_label
from ragmon.ingest.lines import Rejected
from ragmon.ingest.native import NativeRecord, native_record, totals
from ragmon.ingest.otlp import ExternalSpan, read
from ragmon.ingest.otlp_wire import TOO_MANY
from ragmon.ingest.receiver import Encoding, ExportResult
from ragmon.scoring.ratings import REJECTED
from ragmon.server.journal.reader import PendingRequest
from ragmon.server.pipeline.chunk_lines import ChunkLines, take_apart
from ragmon.server.pipeline.probe_replies import PendingProbeRecord
from ragmon.stream.accounts import BatchCounts, count

BAD_REQUEST: Final = 400
TOO_LARGE: Final = 413


@dataclass
class QueuedRequest:
    """A decoded request that waits to be journalled.

    Attributes:
        future: Resolved when the request is on disk.
        size: Its size in bytes.
        native: The native records in it.
        external: Third-party spans, which wait for the rest of their traces.
        entries: Totals, labels and acknowledgements.
        counts: Counts of everything else in it.
        result: The response to its sender.
        body: Its body as it arrived, kept while spans of it wait.
        encoding: The encoding of the body.
        chunk: The lines that come with the chunk among the entries.
    """

    future: Future[Any] = field(default_factory=Future)
    size: int = 0
    native: list[NativeRecord] = field(default_factory=list)
    external: list[ExternalSpan] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    counts: BatchCounts = field(default_factory=BatchCounts)
    result: ExportResult = field(default_factory=ExportResult)
    body: bytes = b""
    encoding: Encoding = Encoding.PROTOBUF
    chunk: ChunkLines | None = None


class UnreadableError(RejectedError):
    """A request that cannot be decoded, with its counts."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(TOO_LARGE if rejected.reason == TOO_MANY else BAD_REQUEST, rejected.reason, str(rejected))
        self.counts = BatchCounts(received=rejected.lost_spans, dropped={rejected.reason: rejected.lost_spans})


def decode_traces(body: bytes, encoding: Encoding) -> QueuedRequest:
    """Decode an `ExportTraceServiceRequest`.

    Raises:
        UnreadableError: The body is invalid, or holds too many spans.
    """
    try:
        batch = read(body, json=encoding is Encoding.JSON)
    except Rejected as error:
        raise UnreadableError(error) from None
    rejected, first_error, unknown = Counter(batch.rejected), batch.first, dict[str, int]()
    records = []
    for native in batch.native:
        result = native_record(native, unknown)
        if isinstance(result, NativeRecord):
            records.append(result)
        else:
            rejected[result] += 1
            first_error = first_error or f"a span's {result}: its record cannot be read"
    bad = rejected.total()
    return QueuedRequest(
        size=len(body),
        native=records,
        external=batch.external,
        counts=BatchCounts(received=bad, dropped=dict(rejected), unknown=unknown),
        result=ExportResult(bad, first_error if bad else ""),
        body=(batch.body or body) if batch.external else b"",
        encoding=encoding,
    )


def spans_of(body: PendingRequest) -> list[ExternalSpan] | None:
    """The spans of a journalled request; None where it cannot be read any more."""
    try:
        return read(body.body, json=body.encoding == Encoding.JSON.value).external
    except Rejected as rejected:
        log_error(f"a journalled request cannot be read any more ({rejected.reason})", rejected)
        return None


def decode_metrics(body: bytes, encoding: Encoding) -> QueuedRequest:
    """Decode the producers' totals in an `ExportMetricsServiceRequest`.

    Raises:
        UnreadableError: The body is invalid, or holds too many points.
    """
    try:
        lines, rejected, first_error = totals(body, json=encoding is Encoding.JSON)
    except Rejected as error:
        raise UnreadableError(error) from None
    return QueuedRequest(size=len(body), entries=list(lines), result=ExportResult(rejected, first_error))


def decode_labels(labels: Sequence[Any], *, comments: bool = False) -> QueuedRequest:
    """Decode labels; an invalid label is left out and counted.

    Args:
        labels: The labels as they were sent.
        comments: Keep the raters' comments.
    """
    request, first_error = QueuedRequest(), ""
    for place, data in enumerate(labels, 1):
        try:
            label = check_trace_id(parse_label(data))
        except ValueError as error:
            count(request.counts.labels, REJECTED)
            first_error = first_error or f"label {place} of {len(labels)}: {error}"
        else:
            label.comment = label.comment if comments else None
            request.entries.append(label)
    bad = request.counts.labels.get(REJECTED, 0)
    request.size = sum(len(encode_entry(entry)) for entry in request.entries)
    request.result = ExportResult(bad, first_error)
    return request


def decode_chunk(entry: ChunkEntry) -> QueuedRequest:
    """A chunk, with its lines apart."""
    apart = take_apart(entry)
    return QueuedRequest(size=len(entry.body), entries=[apart.entry], chunk=apart.lines)


@dataclass
class WriteBatch:
    """A batch under construction: one row of the journal.

    Attributes:
        arrival: Its arrival, seconds since the epoch.
        seq: Its row number in the journal.
        counts: What arrived and what became of it.
        entries: Its lines, decoded, as they are scored.
        lines: The same lines as they are journalled.
        body: All of them together.
        waiting_spans: Spans that wait, with the request that they came in and its number.
        native_traces: Traces with native records in this batch.
        begun: Traces that begin with this batch.
        ignored_traces: Traces that are ignored because a decorated call in them sent a native record.
        probe_traces: Traces whose native records are probes.
        labelled: Traces whose answers are stored in the line of a label.
        answered: Traces of probe replies that this batch settles.
        early_probe_records: Probe records that wait for their replies, by trace.
        replies: Probe replies that wait, by trace, with their numbers in the journal.
        overdue: Traces whose records no longer wait for a reply.
        forgotten: Traces that were erased since the previous row.
        brought: The answers of labels that came with chunks, by trace.
    """

    arrival: float
    seq: int = 0
    counts: BatchCounts = field(default_factory=BatchCounts)
    entries: list[Entry] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    body: bytes = b""
    waiting_spans: list[tuple[QueuedRequest, list[ExternalSpan], int]] = field(default_factory=list)
    native_traces: list[bytes] = field(default_factory=list)
    begun: set[bytes] = field(default_factory=set)
    ignored_traces: set[bytes] = field(default_factory=set)
    probe_traces: set[bytes] = field(default_factory=set)
    labelled: set[str] = field(default_factory=set)
    answered: set[bytes] = field(default_factory=set)
    early_probe_records: dict[bytes, PendingProbeRecord] = field(default_factory=dict)
    replies: dict[bytes, int] = field(default_factory=dict)
    overdue: list[bytes] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    brought: dict[str, Record] = field(default_factory=dict)

    def put(self, entry: Entry, line: bytes) -> None:
        """Add a line."""
        self.entries.append(entry)
        self.lines.append(line)
