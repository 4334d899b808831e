"""Counting one partition of a log, chunk by chunk: lines of a trace log, or OTLP requests keyed by trace.

Time is the log's: the running maximum of the times at which messages were put there. Which messages make a chunk is a
function of the log alone: a chunk ends where a period of arrival ends, and at every multiple of `MAX_OFFSETS`.

Spans of a trace wait for each other in the log's own time, as at a server (`ragmon.ingest.trace_buffer`). A chunk names
the traces that still wait, and from which message on they have to be read again, so that its next owner makes the same
records of them. Of answers only their offsets are remembered: the answer that a label rates is read again, as labels
are few.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Final

from msgspec.structs import replace

from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import CLOCK_AHEAD, LOG_DELETED
from ragmon.core.record import (
    Label,
    Line,
    Record,
    Totals,
    encode_entry,
)
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.lines import Rejected, decode
from ragmon.ingest.native import record_in
from ragmon.ingest.otlp import ExternalSpan, NativeSpan, SpanBatch, read
from ragmon.ingest.trace_buffer import DECORATED, LATE
from ragmon.monitor.partial_counts import PartialCounter
from ragmon.scoring.ratings import REJECTED
from ragmon.stream.accounts import BatchCounts, count
from ragmon.stream.assembler import (
    UNSAMPLED,
    Assembler,
    JournalledTraceBuffer,
    OpenTrace,
    is_sampled,
)
from ragmon.stream.chunk import PERIOD, TRACE_ID, Chunk, config_version

ReadMessages = Callable[[Sequence[int]], Sequence[bytes]]
"""Reads messages of a partition again, by their offsets; those that are not there any more are left out."""
LABEL_LINE: Final = b'{"kind":"label"'
"""How a label begins that ragmon sends."""
_TRACE_ID: Final = re.compile(rb'"trace_id"\s*:\s*"([^"\\]{1,1024})"')
_Offsets = int | tuple[int, ...]
MAX_OFFSETS: Final = 1 << 16
"""Offsets of a chunk at most."""
MEMORY: Final = 600.0
"""Seconds of arrival for which a message is remembered at least, so that one that comes again is a duplicate."""
GENERATIONS: Final = 3
"""Parts of what is remembered: the oldest is forgotten as a whole, half of the memory later."""
LabelPosition = tuple[int, int]
"""Where a label stands: the offset of its message, and its number among the labels there."""
LONGEST_ASSEMBLY: Final = 60.0
"""Seconds of CPU for one trace. No trace within the limits of spans takes so long; one that does must not end all."""
LINES: Final = b"{"
"""How a message of labels begins, a JSON object a line; a request in protobuf begins with a field of its own."""
_DECORATED: Final = b"decorated"


class TraceOffsets:
    """Where traces stand in a log, as far as it is remembered.

    It is kept in generations by the log's own time, as `Recent` keeps messages, and follows from the log alike.
    """

    def __init__(self, span: float, generations: int) -> None:
        self._span, self._most = span, generations
        self._generations: dict[int, dict[int, _Offsets]] = {}

    def see(self, trace_ids: Iterable[bytes], offset: int, now: float) -> None:
        """Remember the traces of a message."""
        current = int(now // self._span)
        generation = self._generations.get(current)
        if generation is None:
            generation = self._generations[current] = {}
            for number in [number for number in self._generations if number <= current - self._most]:
                del self._generations[number]
        for trace_id in trace_ids:
            key = hash(trace_id)
            known = generation.get(key)
            if known is None:
                generation[key] = offset
            elif offset not in (known := _several(known)):
                generation[key] = (*known, offset)

    def of(self, trace_id: bytes, now: float) -> list[int]:
        """The offsets of the messages of a trace, in order."""
        oldest, key = int(now // self._span) - self._most, hash(trace_id)
        found = (offsets.get(key, ()) for number, offsets in self._generations.items() if number > oldest)
        return sorted(offset for offsets in found for offset in _several(offsets))


def _several(offsets: _Offsets) -> tuple[int, ...]:
    return (offsets,) if isinstance(offsets, int) else offsets


def traces_in(message: bytes) -> list[bytes]:
    """The traces of the records in lines of a trace log, in lower case.

    >>> traces_in(b'{"v":1,"trace_id":"5A"}'), traces_in(b'{"kind":"label","trace_id":"5a"}')
    ([b'5a'], [])
    """
    lines = message.splitlines() if LABEL_LINE in message else (message,)
    return [found.lower() for line in lines if not line.startswith(LABEL_LINE) for found in _TRACE_ID.findall(line)]


def answer_in(bodies: Iterable[bytes], trace_id: str) -> Record | None:
    """The last record of a trace in messages of lines; None where there is none."""
    found = None
    for body in bodies:
        for line in body.splitlines():
            try:
                record = decode(line) if line else None
            except Rejected:
                continue
            if isinstance(record, Record) and (record.trace_id or "").lower() == trace_id:
                found = record
    return found


def labels_in(message: bytes) -> Iterator[Label]:
    """The labels in lines that were counted before; what cannot be read was accounted for."""
    for line in message.splitlines():
        try:
            label = decode(line) if line else None
        except Rejected:
            continue
        if isinstance(label, Label):
            yield label


@dataclass(frozen=True)
class CountingLimits:
    """How a partition is divided, and how long messages are remembered.

    Args:
        period: Seconds of arrival of a chunk.
        offsets: Offsets of a chunk at most.
        memory: Seconds for which a message is remembered at least.
        samples: How many whole records are drawn for a chunk; with 0 it holds none.
    """

    period: float = PERIOD
    offsets: int = MAX_OFFSETS
    memory: float = MEMORY
    samples: int = 0


class Recent:
    """Which messages came shortly before, by their hashes.

    They are kept in generations of half the memory by the log's own time; the last three are remembered, so a message
    is remembered for `memory` seconds at least, and what is remembered follows from the log.
    """

    def __init__(self, memory: float) -> None:
        self._span = memory / (GENERATIONS - 1)
        self._generations: dict[int, set[int]] = {}
        self._begins: dict[int, tuple[int, float]] = {}

    def see(self, key: bytes, offset: int, now: float) -> bool:
        """Remember something; returns whether it came before. What comes again is remembered anew."""
        current = self.turn(offset, now)
        # Python's own hash is another one in each process, and what is remembered never leaves this one.
        hashed, is_known = hash(key), False
        for generation in self._generations.values():
            if hashed in generation:
                is_known = True
                break
        self._generations[current].add(hashed)
        return is_known

    def __contains__(self, key: bytes) -> bool:
        """Whether something came shortly before."""
        hashed = hash(key)
        return any(hashed in generation for generation in self._generations.values())

    def turn(self, offset: int, now: float) -> int:
        """Begin the generation of a time, and forget those that are too old; returns its number."""
        current = int(now // self._span)
        if current not in self._generations:
            self._generations[current], self._begins[current] = set(), (offset, now)
            for number in [number for number in self._generations if number <= current - GENERATIONS]:
                del self._generations[number], self._begins[number]
        return current

    @property
    def begins(self) -> list[tuple[int, float]]:
        """Where the generations begin, and when: the next owner reads from the first on, to remember the same."""
        return sorted(self._begins.values())


class EarlyLabels:
    """Labels that came before their answers: they wait, so that the server that adds up gets both together."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._waiting: dict[str, list[tuple[Label, float, LabelPosition]]] = {}

    def put(self, label: Label, now: float, position: LabelPosition = (0, 0)) -> bool:
        """Let a label wait if its answer is not known; returns whether it waits."""
        if label.answer is None:
            self._waiting.setdefault(label.trace_id, []).append((label, now, position))
        return label.answer is None

    def take(self, answer: Record) -> list[Label]:
        """The labels that waited for an answer, with it."""
        if not self._waiting or answer.trace_id is None:
            return []
        return [replace(label, answer=answer) for label, *_ in self._waiting.pop(answer.trace_id, ())]

    def expire(self, now: float) -> list[tuple[Label, float]]:
        """The labels that wait no longer, with the times at which they came."""
        # They stand in the order in which they came, so the first that is not due ends the search.
        due = list(takewhile(lambda trace_id: self._waiting[trace_id][0][1] < now - self._memory, self._waiting))
        return [(label, came) for trace_id in due for label, came, _ in self._waiting.pop(trace_id)]

    def positions(self) -> list[LabelPosition]:
        """Where the waiting labels stand, in order."""
        return sorted(position for waiting in self._waiting.values() for *_, position in waiting)


class PartitionCounter:
    """Counts one partition, chunk by chunk.

    Args:
        part: Which partition.
        base: The offset of the first message that is counted.
        settings: The configuration.
        gold: Its gold sets.
        limits: How the partition is divided.
        now: Every message came at this time or later, seconds since the epoch: `until` of the last chunk.
        log: Tells the offsets of this log from the offsets of another log in its place.
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
        labels: Sequence[LabelPosition] = (),
        read: ReadMessages | None = None,
    ) -> None:
        self.part, self.base, self.upto, self.now = part, base, base, now
        self._warmed = self._edge = 0.0
        self._limits, self.log = limits or CountingLimits(), log
        self._config = config_version(settings, gold)
        self._counter = PartialCounter(settings, gold, self._limits.samples)
        self._recent = Recent(self._limits.memory)
        self._early = EarlyLabels(self._limits.memory)
        self._traces = TraceOffsets(self._limits.memory / (GENERATIONS - 1), GENERATIONS)
        self._waited, self._read, self._labels = frozenset(labels), read, 0
        self._arrived = BatchCounts()

    def warm_up(self, messages: Iterable[tuple[int, float, bytes]]) -> None:
        """Remember messages before the first one that is counted; they were counted in earlier chunks."""
        for offset, arrival, message in messages:
            self._warmed = max(self._warmed, arrival)
            self._recent.turn(offset, self._warmed)
            if message:
                self._recent.see(message, offset, self._warmed)
                self._see_traces(message, offset, self._warmed)
                self._wait_again(message, offset, self._warmed)

    def _see_traces(self, message: bytes, offset: int, now: float) -> None:
        if self._read is not None:
            self._traces.see(traces_in(message), offset, now)

    def _wait_again(self, message: bytes, offset: int, now: float) -> None:
        if any(waited == offset for waited, _ in self._waited):
            for number, label in enumerate(labels_in(message)):
                if (offset, number) in self._waited:
                    self._early.put(label, now, (offset, number))

    def take(
        self, offset: int, arrival: float, message: bytes, lines: Iterable[Line] = (), *, is_ahead: bool = False
    ) -> Iterator[Chunk]:
        """Count a message; gives the chunks that end before it."""
        yield from self.until(offset, arrival)
        self.upto = offset + 1
        if is_ahead or not message:
            self._recent.turn(offset, self.now)
        elif self._recent.see(message, offset, self.now):
            n = sum(isinstance(line, Record) for line in lines)
            self._arrived.received += n
            self._arrived.duplicate += n
            return
        if is_ahead:
            for line in lines:
                self.reject(CLOCK_AHEAD, int(isinstance(line, Record)))
                count(self._arrived.labels, CLOCK_AHEAD, int(isinstance(line, Label)))
            return
        self._see_traces(message, offset, self.now)
        self._labels = 0
        for line in lines:
            self._arrived.received += isinstance(line, Record)
            self._count(line)

    def until(self, offset: int, arrival: float) -> Iterator[Chunk]:
        """Let the time pass until a message; gives the chunk that ends before it, if one does."""
        is_same = offset // self._limits.offsets == self.base // self._limits.offsets
        if arrival < self._edge and self.upto > self.base and is_same:  # as nearly all messages
            self.now = max(self.now, arrival)
            return
        arrival, period = max(arrival, self.now), self._limits.period
        edge = arrival // period * period
        is_over = self.now < edge
        is_full = self.upto > self.base and offset // self._limits.offsets > self.base // self._limits.offsets
        if is_over:  # by the log's time alone, so that the next owner tells of the same labels
            for label, came in self._early.expire(edge):
                self._counter.label(label, came)
        if is_over or is_full:
            yield self.seal(edge if is_over else arrival)
        self.now = arrival
        self._edge = edge + period

    def reject(self, reason: str, n: int = 1) -> None:
        """Account for records of the current message that cannot be read."""
        self._arrived.received += n
        count(self._arrived.dropped, reason, n)

    def _count(self, line: Line) -> None:
        if isinstance(line, Totals):
            self._counter.report(line, self.now)
        elif isinstance(line, Label):
            position, self._labels = (self.upto - 1, self._labels), self._labels + 1
            label = line if line.answer is not None else replace(line, answer=self._answer(line.trace_id))
            if not self._early.put(label, self.now, position):
                self._counter.label(label, self.now)
        else:
            self._observe(line)

    def _observe(self, record: Record) -> None:
        self._counter.observe(record, self.now)
        for label in self._early.take(record):
            self._counter.label(label, self.now)

    def _answer(self, trace_id: str) -> Record | None:
        offsets = [] if self._read is None else self._traces.of(trace_id.encode(), self.now)
        return answer_in(self._read(offsets), trace_id) if self._read is not None and offsets else None

    def seal(self, until: float) -> Chunk:
        """End the chunk, and hand it out."""
        times = self._recent.begins
        chunk = Chunk(
            part=self.part,
            base=self.base,
            upto=self.upto,
            until=until,
            now=self.now,
            low=times[0][0] if times else self.upto,
            config=self._config,
            log=self.log,
            counts=self._counter.take(),
            arrived=self._arrived,
            labels=self._early.positions(),
            lines=b"".join(map(encode_entry, self._counter.take_lines())),
            times=times,
        )
        self._arrived = BatchCounts()
        self.base = self.upto
        return chunk

    def end(self) -> Chunk:
        """The last chunk of a log that was deleted: of it nothing more comes, so nothing waits any more."""
        for label, came in self._early.expire(inf):
            self._counter.label(label, came)
        return self.seal(self.now)

    def replaces(self, last: Chunk) -> None:
        """Account for the traces and labels that waited in the deleted log before this log."""
        count(self._arrived.dropped, LOG_DELETED, len(last.waiting) // TRACE_ID)
        count(self._arrived.labels, LOG_DELETED, len(last.labels))

    def gap(self, first: int) -> Chunk:
        """The chunk that says that the log has deleted what comes next; it is handed out before anything is counted."""
        lost, self.upto = first - self.upto, first
        chunk = self.seal(self.now)
        chunk.lost = lost
        return chunk


class TracePartitionCounter(PartitionCounter):
    """Counts one partition of `ExportTraceServiceRequest`s, keyed by trace."""

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
        labels: Sequence[LabelPosition] = (),
        read: ReadMessages | None = None,
    ) -> None:
        super().__init__(part, base, settings, gold, limits, now, log, labels=labels, read=read)
        self._buffer = JournalledTraceBuffer()
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
        """Count a request; gives the chunks that end before it."""
        self._drop_unfound()
        yield from self.until(offset, arrival)
        self._complete(self.now)
        self.upto = offset + 1
        self._recent.turn(offset, self.now)
        if message.startswith(LINES):
            if is_ahead:
                count(self._arrived.labels, CLOCK_AHEAD, len(message.splitlines()))
            elif not self._recent.see(message, offset, self.now):
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
            return
        try:
            batch = read(message, json=False) if message else None
        except Rejected as rejected:
            self.reject(rejected.reason, rejected.lost_spans)
            return
        if batch is None:
            return
        arrived, spans = self._arrived, batch.external
        for reason, n in batch.rejected.items():
            self.reject(reason, n)
        if is_ahead:  # of a foreign trace, the root is its record
            arrived.native += len(batch.native)
            self.reject(CLOCK_AHEAD, len(batch.native) + sum(span.is_root for span in spans))
            return
        self._see_spans([*batch.native, *spans], offset, self.now)
        for native in batch.native:
            arrived.received += 1
            if self._see_native(native.trace_id, native.span_id, offset, self.now):
                arrived.duplicate += 1
                continue
            arrived.native += 1
            found = record_in(native, arrived.unknown)
            if isinstance(found, Record):
                self._count(found)
            else:
                count(arrived.dropped, found)
        if spans:
            self._keep(spans, offset, len(message))

    def _see_spans(self, spans: Iterable[NativeSpan | ExternalSpan], offset: int, now: float) -> None:
        trace_ids = {span.trace_id for span in spans}
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

    def _keep(self, spans: Sequence[ExternalSpan], offset: int, size: int) -> None:
        """Let spans wait for the rest of their traces; spans of traces that are done are counted as late."""
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
        due = self._buffer.due(now, everything=everything)
        # Sorted, because the buffer of the next owner may hand out in another order the traces that are due at once.
        for trace_id, waiting in sorted(due, key=lambda found: (found[1].first, found[0])):
            self._held.discard(trace_id)
            is_decorated = _DECORATED + trace_id in self._recent
            assembled = self._assembler.assemble(trace_id, waiting, decorated=is_decorated)
            self._arrived.add(assembled.counts)
            self._buffer.release(waiting)
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
