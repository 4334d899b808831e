"""Counting one partition of OTLP requests, chunk by chunk: spans of a trace wait for each other in the log's own time.

What a trace waits for, and when it is whole, are those of a server (`ragmon.ingest.trace_buffer`), with the time at
which messages were put into the log in place of a clock. A chunk names the traces that still wait, and from which
message on they have to be read again, so that its next owner makes the same records of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import CLOCK_AHEAD, LOG_DELETED
from ragmon.core.record import Label, Record
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.lines import Rejected, decode
from ragmon.ingest.native import record_in
from ragmon.ingest.otlp import ExternalSpan, NativeSpan, SpanBatch, read
from ragmon.ingest.trace_buffer import DECORATED, LATE
from ragmon.scoring.ratings import REJECTED
from ragmon.stream.accounts import count
from ragmon.stream.answers import ReadMessages
from ragmon.stream.assembler import (
    UNSAMPLED,
    AssembledTrace,
    Assembler,
    AssemblyLimits,
    JournalledTraceBuffer,
    OpenTrace,
    is_sampled,
)
from ragmon.stream.chunk import TRACE_ID, Chunk
from ragmon.stream.counting import CountingLimits, PartitionCounter, Place

LONGEST_ASSEMBLY: Final = 60.0
"""Seconds of CPU for one trace. No trace within the limits of spans takes so long; one that does must not end all."""
LINES: Final = b"{"
"""How a message of labels begins, a JSON object a line; a request in protobuf begins with a field of its own."""
_DECORATED: Final = b"decorated"


class TracePartitionCounter(PartitionCounter):
    """Counts one partition of `ExportTraceServiceRequest`s, keyed by trace.

    Args:
        part: Which partition.
        base: The offset of the first message that is counted.
        settings: The configuration.
        gold: Its gold sets.
        limits: How the partition is divided.
        now: All that comes came at this time or later, seconds since the epoch: `until` of the last chunk.
        log: What tells the offsets of this log from those of another one in its place.
        waiting: The traces that waited at the end of the last chunk, 16 bytes each.
        assembly: How long traces wait for their spans.
        labels: The labels that waited at the end of the last chunk.
        read: Reads messages of the partition again; without it labels join only answers that come after them.
    """

    def __init__(
        self,
        part: str,
        base: int,
        settings: Settings,
        gold: Sequence[GoldSet],
        limits: CountingLimits | None = None,
        now: float = 0.0,
        log: str = "",
        *,
        waiting: bytes = b"",
        assembly: AssemblyLimits | None = None,
        labels: Sequence[Place] = (),
        read: ReadMessages | None = None,
    ) -> None:
        super().__init__(part, base, settings, gold, limits, now, log, labels=labels, read=read)
        self._buffer = JournalledTraceBuffer(assembly)
        self._assembler = Assembler(settings, LONGEST_ASSEMBLY)
        self._held = {waiting[start : start + TRACE_ID] for start in range(0, len(waiting), TRACE_ID)}
        self._is_warm = not waiting

    def warm_up(self, messages: Iterable[tuple[int, float, bytes]]) -> None:
        """Remember messages before the first one that is counted, and let the traces that waited wait again."""
        for offset, arrival, message in messages:
            now = self._warmed = max(self._warmed, arrival)
            self._recent.turn(offset, now)
            if message.startswith(LINES):
                self._recent.see(message, offset, now)
                self._wait_again(message, offset, now)
                continue
            batch = _batch(message)
            for native in batch.native if batch else ():
                self._see_native(native.trace_id, native.span_id, offset, now)
            spans = batch.external if batch else []
            self._see_spans([*(batch.native if batch else ()), *spans], offset, now)
            for span in spans:
                trace_id = span.trace_id
                if trace_id in self._held or trace_id in self._recent or is_sampled(trace_id, self._assembler.lowest):
                    self._recent.see(trace_id, offset, now)
            held = [span for span in spans if span.trace_id in self._held]
            self._buffer.add(held, offset, now, len(message), self._assembler.lowest)

    def take_request(self, offset: int, arrival: float, message: bytes, *, is_ahead: bool = False) -> Iterator[Chunk]:
        """Count a request; gives the chunks that end before it.

        Args:
            offset: Its offset.
            arrival: When it was put into the log, seconds since the epoch.
            message: The request in protobuf; an empty one only tells the time.
            is_ahead: The clock of its producer was ahead: it is accounted for, and neither counted nor remembered.
        """
        self._drop_unfound()
        if self._is_quick(offset, arrival):
            self.now = max(self.now, arrival)
        else:
            yield from self.until(offset, arrival)
        self._complete(self.now)
        self.upto = offset + 1
        self._recent.turn(offset, self.now)
        if message.startswith(LINES):
            if is_ahead:
                count(self._arrived.labels, CLOCK_AHEAD, len(message.splitlines()))
            else:
                self._take_labels(message, offset)
            return
        try:
            batch = read(message, json=False) if message else None
        except Rejected as rejected:
            self.reject(rejected.reason, rejected.lost_spans)
            return
        if batch is not None:
            spans = batch.external
            for reason, n in batch.rejected.items():
                self.reject(reason, n)
            if is_ahead:  # of a foreign trace, the root is its record
                self._arrived.native += len(batch.native)
                self.reject(CLOCK_AHEAD, len(batch.native) + sum(span.is_root for span in spans))
                return
            self._see_spans([*batch.native, *spans], offset, self.now)
            for native in batch.native:
                self._count_native(native, offset)
            if batch.external:
                self._keep(spans, offset, len(message))

    def _take_labels(self, message: bytes, offset: int) -> None:
        """Count a message of labels, unless it came before."""
        if self._recent.see(message, offset, self.now):
            return
        self._labels = 0
        for line in message.splitlines():
            try:
                label = decode(line)
            except Rejected:
                label = None
            if isinstance(label, Label):
                self._count(label)
            else:
                count(self._arrived.labels, REJECTED)

    def _see_spans(self, spans: Iterable[NativeSpan | ExternalSpan], offset: int, now: float) -> None:
        """Remember where the traces of a request stand."""
        self._remember_traces({span.trace_id for span in spans}, offset, now)

    def _remember_traces(self, trace_ids: set[bytes], offset: int, now: float) -> None:
        if self._read is not None:
            self._traces.see(trace_ids, offset, now)

    def _answer(self, trace_id: str) -> Record | None:
        """The answer of a trace that came shortly before; None where none did, or where it waits for more spans."""
        key = trace_bytes(trace_id)
        if self._read is None or key in self._held or key in self._buffer.traces:
            return None
        trace, native = OpenTrace(self.now, self.now, lowest=self._assembler.lowest), None
        for batch in map(_batch, self._read(self._traces.of(key, self.now))):
            for span in batch.native if batch is not None else ():
                found = record_in(span, {}) if span.trace_id == key else None
                native = found if isinstance(found, Record) else native
            for piece in batch.external if batch is not None else ():
                if piece.trace_id == key:
                    trace.spans.setdefault(piece.span_id, piece)
        if native is not None or not trace.spans or not is_sampled(key, self._assembler.lowest):
            return native
        records = [made.record for made in self._assembler.assemble(key, trace).made]
        return next((record for record in reversed(records) if record.trace_id == trace_id), None)

    def _see_native(self, trace_id: bytes, span_id: bytes, offset: int, now: float) -> bool:
        """Remember a native record, and that its trace has one; returns whether it came before."""
        self._recent.see(_DECORATED + trace_id, offset, now)
        return self._recent.see(trace_id + span_id, offset, now)

    def _count_native(self, native: NativeSpan, offset: int) -> None:
        """Count a native record."""
        self._arrived.received += 1
        self._arrived.native += 1
        if self._see_native(native.trace_id, native.span_id, offset, self.now):
            self._arrived.duplicate += 1
            self._arrived.native -= 1
            return
        found = record_in(native, self._arrived.unknown)
        if isinstance(found, Record):
            self._count(found)
        else:
            count(self._arrived.dropped, found)

    def _keep(self, spans: Sequence[ExternalSpan], offset: int, size: int) -> None:
        """Let spans wait for the rest of their traces; those whose traces are done are counted as late."""
        kept, arrived, lowest = [], self._arrived, self._assembler.lowest
        for span in spans:
            trace_id = span.trace_id
            is_decorated = _DECORATED + trace_id in self._recent
            if trace_id in self._buffer.traces or trace_id in self._held:
                self._recent.see(trace_id, offset, self.now)
                kept.append(span)
            elif trace_id in self._recent:
                self._recent.see(trace_id, offset, self.now)
                count(arrived.spans, DECORATED if is_decorated else LATE)
            elif not is_sampled(trace_id, lowest):
                arrived.received += span.is_root
                count(arrived.ignored, UNSAMPLED, int(span.is_root))
            else:
                self._recent.see(trace_id, offset, self.now)
                arrived.received += 1
                self._held.add(trace_id)
                kept.append(span)
        counts = self._buffer.add(kept, offset, self.now, size, lowest)
        del counts["new"]
        for reason, n in counts.items():
            count(arrived.spans, reason, n)

    def _complete(self, now: float, *, everything: bool = False) -> None:
        """Count the traces that nothing more is waited for, or all of them."""
        due = self._buffer.due(now, everything=everything)
        # Sorted, because the buffer of whoever goes on may hand out in another order those that are due at once.
        for trace_id, waiting in sorted(due, key=lambda found: (found[1].first, found[0])):
            self._held.discard(trace_id)
            is_decorated = _DECORATED + trace_id in self._recent
            assembled = self._assembler.assemble(trace_id, waiting, decorated=is_decorated)
            self._arrived.add(assembled.counts)
            self._buffer.release(waiting)
            self._count_assembled(assembled)

    def _count_assembled(self, assembled: AssembledTrace) -> None:
        answers: dict[str, Record] = {}
        for made in assembled.made:
            record = made.record
            record.source = record.source or constants.LIVE
            self._observe(record)
            if record.trace_id is not None:
                answers[record.trace_id] = record
        for label in assembled.labels:
            self._counter.label(replace(label, answer=answers.get(label.trace_id)), self.now)

    def _drop_unfound(self) -> None:
        """Account for traces that waited at the end of the last chunk, and whose spans the log no longer has."""
        if self._is_warm:
            return
        self._is_warm = True
        unfound = self._held - self._buffer.traces.keys()
        self._held -= unfound
        count(self._arrived.dropped, LOG_DELETED, len(unfound))

    def end(self) -> Chunk:
        """The last chunk of a log that was deleted: the traces that wait get no more spans."""
        self._drop_unfound()
        self._complete(self.now, everything=True)
        return super().end()

    def gap(self, first: int) -> Chunk:
        """As of every partition; the traces that waited in what was deleted are dropped."""
        self._drop_unfound()
        return super().gap(first)

    def seal(self, until: float) -> Chunk:
        """End the chunk with the traces that are whole by then, and hand it out."""
        self._complete(max(until, self.now))
        chunk = super().seal(until)
        traces = self._buffer.traces
        chunk.waiting = b"".join(sorted(traces))
        first, began = min(((min(trace.requests), trace.first) for trace in traces.values()), default=(chunk.low, 0.0))
        if first < chunk.low:
            chunk.low, chunk.times = first, [(first, began), *chunk.times]
        return chunk


def trace_bytes(trace_id: str) -> bytes:
    """The 16 bytes of a trace id; none where it is no such id."""
    try:
        return bytes.fromhex(trace_id)
    except ValueError:
        return b""


def _batch(message: bytes) -> SpanBatch | None:
    """The spans of a request that was counted before; None where there are none, or it cannot be read."""
    try:
        return read(message, json=False) if message else None
    except Rejected:
        return None
