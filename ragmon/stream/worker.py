"""A worker: a member of a Kafka consumer group that counts its partitions, chunk by chunk, and writes the chunks.

A worker has no disk and no state but what it can read again. A chunk is written to the topic of chunks, and the last
chunk there says where the next owner begins: output and position are one message, so offsets that the group commits are
for graphs of lag alone. A partition in which nothing comes is told the time, so that it holds up no other.

Which messages make a chunk is a function of the log alone: a chunk ends where a period of arrival ends, and at every
multiple of `MAX_OFFSETS`. A chunk names the traces that still wait, and from which message on they have to be read
again. Of answers only the offsets are remembered: the answer that a label rates is read again, as labels are few.

The time of a log is the running maximum of its messages' times, without those that a producer's clock set too far
ahead. Such a message waits. A later message that is not ahead shows that its clock is wrong: it is dropped. Time did
pass, as over a night without messages and workers, if a tick of a worker agrees with a message that waits, or if very
many wait.
"""

from __future__ import annotations

import io
import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from math import inf
from statistics import median_low
from threading import Event
from time import monotonic, time
from typing import Any, Final, NamedTuple

from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import CLOCK_AHEAD, LOG_DELETED
from ragmon.core.errors import UnavailableError, UnknownNameError, printable
from ragmon.core.network import own_names
from ragmon.core.process import current_version
from ragmon.core.record import Label, Line, Record, Totals, encode
from ragmon.ingest.files import MAX_LINE, LineReader
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.lines import Rejected, decode
from ragmon.ingest.native import record_in, totals
from ragmon.ingest.otlp import ExternalSpan, NativeSpan, SpanBatch, read
from ragmon.ingest.trace_buffer import DECORATED, LATE
from ragmon.monitor.admin import HEADERS, check_origin
from ragmon.monitor.partial_counts import PartialCounter
from ragmon.scoring.ratings import REJECTED
from ragmon.scoring.scorer import FUTURE
from ragmon.stream.assembler import NOTHING, UNSAMPLED, Assembler, JournalledTraceBuffer, OpenTrace, is_sampled
from ragmon.stream.chunk import PERIOD, TRACE_ID, BatchCounts, Chunk, config_version, count
from ragmon.stream.kafka import (
    LOOK,
    METADATA_AGE,
    METADATA_TIMEOUT,
    ChunkTail,
    ChunkWriter,
    LogReader,
    PartitionEnds,
    confluent,
    consumer_of,
    find_topics,
    is_out_of_range,
    names_of,
)

MOST: Final = 4096
"""Messages that wait at most: so many in a row show that time did pass."""
MOST_BYTES: Final = 16 << 20
"""Their bytes at most, likewise."""
_COUNTERS: Final = {
    "read": "Messages that were read",
    "counted": "Messages that were counted",
    "remembered": "Messages read again, to know what came shortly before",
    "chunks": "Chunks that were written",
    "chunk_bytes": "Bytes of these chunks",
    "asked_again": "How often messages that a fetch left out were requested again",
    "passed_over": "Offsets at which there was no message after all",
    "ticks": "Empty messages that gave a quiet partition the time",
    "made_anew": "Partitions started again because their topic was deleted and created again",
    "cut_off": "How often a log ended before the last offset that was counted",
    "overwritten": "Messages at offsets that had been counted before their log was cut off; they are not counted",
    "assignments": "Partitions assigned to this worker",
}
"""What a worker counts of its own work, and the HELP text of its series."""
PREFIX: Final = "ragmon_worker_"
TOGETHER: Final = 2000
"""Messages that are taken at once."""
POLL: Final = 0.25
"""Seconds to wait for messages."""
QUIET: Final = 1.0
"""Seconds without a message after which a partition is told the time, once a period of its own is over."""
RESUME_EARLIER: Final = 5_000
"""Messages before those that are remembered from which it is read: a fetch that begins in the middle of a batch may
begin at the next one. What is older than what is remembered is forgotten again."""
TRIES: Final = 20
"""How often messages that a fetch left out are asked for again; after that they are not there."""
_log = logging.getLogger("ragmon.worker")
ReadMessages = Callable[[Sequence[int]], Sequence[bytes]]
"""Reads messages of a partition again, by their offsets; those that are not there any more are left out."""
LABEL_LINE: Final = b'{"kind":"label"'
"""How a label begins that ragmon sends."""
_TRACE_ID: Final = re.compile(rb'"trace_id"\s*:\s*"([^"\\]{1,1024})"')
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


class LogMessage(NamedTuple):
    """A message of a log: its offset, its time and its bytes; and whether its clock was ahead of the log's time."""

    offset: int
    time: float
    body: bytes
    is_ahead: bool = False


def traces_in(message: bytes) -> list[bytes]:
    """The traces of the records in lines of a trace log, in lower case.

    >>> traces_in(b'{"v":1,"trace_id":"5A"}'), traces_in(b'{"kind":"label","trace_id":"5a"}')
    ([b'5a'], [])
    """
    lines = message.splitlines() if LABEL_LINE in message else (message,)
    return [found.lower() for line in lines if not line.startswith(LABEL_LINE) for found in _TRACE_ID.findall(line)]


def readable(message: bytes) -> Iterator[Line]:
    """The lines of a message that was counted before; what cannot be read was accounted for."""
    for line in message.splitlines():
        with suppress(Rejected):
            if line:
                yield decode(line)


@dataclass(frozen=True)
class CountingLimits:
    """The seconds and offsets of a chunk, how long messages are remembered, and the whole records of a chunk."""

    period: float = PERIOD
    offsets: int = MAX_OFFSETS
    memory: float = MEMORY
    samples: int = 0


class Recent:
    """Which messages and traces came shortly before, by their hashes, and at which offsets traces stand.

    They are kept in generations of half the memory by the log's own time; the last three are remembered, so a message
    is remembered for `memory` seconds at least, and what is remembered follows from the log.
    """

    def __init__(self, memory: float) -> None:
        self._span = memory / (GENERATIONS - 1)
        self._seen: dict[int, dict[int, int]] = {}
        self._traces: dict[int, dict[int, int | tuple[int, ...]]] = {}
        self._begins: dict[int, tuple[int, float]] = {}

    def see(self, key: bytes, offset: int, now: float, ended: int = NOTHING) -> bool:
        """Remember something, and when it ended; returns whether it came before.

        What comes again is remembered anew.
        """
        current = self.turn(offset, now)
        is_known = key in self
        generation, hashed = self._seen[current], hash(key)
        generation[hashed] = max(ended, generation.get(hashed, NOTHING))
        return is_known

    def ended(self, key: bytes) -> int:
        """When the last that came of something ended, in nanoseconds."""
        hashed = hash(key)
        return max((generation.get(hashed, NOTHING) for generation in self._seen.values()), default=NOTHING)

    def __contains__(self, key: bytes) -> bool:
        """Whether something came shortly before."""
        # Python's own hash is another one in each process, and what is remembered never leaves this one.
        hashed = hash(key)
        return any(hashed in generation for generation in self._seen.values())

    def see_traces(self, trace_ids: Iterable[bytes], offset: int, now: float) -> None:
        """Remember where traces stand."""
        generation = self._traces[self.turn(offset, now)]
        for key in map(hash, trace_ids):
            known = generation.setdefault(key, offset)  # nearly every trace has one, and a tuple takes more memory
            if offset not in (offsets := (known,) if isinstance(known, int) else known):
                generation[key] = (*offsets, offset)

    def offsets(self, trace_id: bytes) -> list[int]:
        """The offsets of the messages of a trace, in order."""
        key = hash(trace_id)
        found = [generation.get(key, ()) for generation in self._traces.values()]
        return sorted(at for offsets in found for at in ((offsets,) if isinstance(offsets, int) else offsets))

    def turn(self, offset: int, now: float) -> int:
        """Begin the generation of a time, and forget those that are too old; returns its number."""
        current = int(now // self._span)
        if current not in self._seen:
            self._seen[current], self._traces[current], self._begins[current] = {}, {}, (offset, now)
            for number in [number for number in self._seen if number <= current - GENERATIONS]:
                del self._seen[number], self._traces[number], self._begins[number]
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
        base: The offset of the first message that is counted.
        now: Every message came at this time or later, seconds since the epoch; with a last chunk, its `until`.
        last: The last chunk: what waited at its end waits on.
        log: Tells the offsets of this log from the offsets of another log in its place.
        read: Reads messages of the partition again; without it labels join only answers that come after them.
    """

    def __init__(
        self,
        part: str,
        base: int,
        settings: Settings,
        gold: Sequence[GoldSet],
        limits: CountingLimits | None = None,
        *,
        now: float = 0.0,
        last: Chunk | None = None,
        log: str = "",
        read: ReadMessages | None = None,
    ) -> None:
        self.part, self.base, self.upto, self.now = part, base, base, now if last is None else last.until
        self._warmed = self._edge = 0.0
        self._limits, self.log = limits or CountingLimits(), log
        self._config = config_version(settings, gold)
        self._counter = PartialCounter(settings, gold, self._limits.samples)
        self._recent = Recent(self._limits.memory)
        self._early = EarlyLabels(self._limits.memory)
        self._waited, self._read, self._labels = frozenset(last.labels if last else ()), read, 0
        waiting = last.waiting if last else b""
        ids = [waiting[start : start + TRACE_ID] for start in range(0, len(waiting), TRACE_ID)]
        self._held = dict(zip(ids, (last and last.after) or len(ids) * [NOTHING], strict=True))
        self._lowest = last.lowest if last else {}
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
            self._recent.see_traces(traces_in(message), offset, now)

    def _wait_again(self, message: bytes, offset: int, now: float) -> None:
        if any(waited == offset for waited, _ in self._waited):
            labels = (line for line in readable(message) if isinstance(line, Label))
            for number, label in enumerate(labels):
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

    def miss(self, name: str) -> None:
        """Account for a field of a record of the current message that is unknown, by `field|reason`."""
        count(self._arrived.unknown, name)

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
        offsets = [] if self._read is None else self._recent.offsets(trace_id.encode())
        found = None
        for message in self._read(offsets) if self._read is not None and offsets else ():
            for line in readable(message):
                if isinstance(line, Record) and (line.trace_id or "").lower() == trace_id:
                    found = line
        return found

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
            lines=b"".join(map(encode, self._counter.take_lines())),
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
        self, part: str, base: int, settings: Settings, gold: Sequence[GoldSet], *rest: Any, **how: Any
    ) -> None:
        super().__init__(part, base, settings, gold, *rest, **how)
        self._buffer = JournalledTraceBuffer()
        self._assembler = Assembler(settings, LONGEST_ASSEMBLY)
        self._assembler.upstream.lowest.update(self._lowest)
        self._is_warm = not self._held

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
                    self._recent.see(trace_id, offset, now, span.end_ns)
            held = [span for span in spans if span.start_ns > self._held.get(span.trace_id, inf)]
            self._buffer.add(held, offset, now, len(message), self._assembler.lowest, self._held)

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
            self._recent.see_traces(trace_ids, offset, now)

    def _answer(self, trace_id: str) -> Record | None:
        """The answer of a trace that came shortly before; None where none did, or where it waits for more spans."""
        key = trace_bytes(trace_id)
        if self._read is None or key in self._held or key in self._buffer.traces:
            return None
        trace, native = OpenTrace(self.now, self.now, lowest=self._assembler.lowest), None
        for batch in map(_batch, self._read(self._recent.offsets(key))):
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
        """Let spans wait for the rest of their traces; spans of requests that are done are counted as late."""
        kept, arrived, lowest = [], self._arrived, self._assembler.lowest
        for span in spans:
            trace_id = span.trace_id
            is_open, is_known = trace_id in self._held, trace_id in self._recent
            is_own = is_known and not is_open and _DECORATED + trace_id in self._recent
            after = self._held[trace_id] if is_open else self._recent.ended(trace_id)
            if is_own or span.start_ns <= after:
                count(arrived.spans, DECORATED if is_own else LATE)
            elif not (is_open or is_known or is_sampled(trace_id, lowest)):
                arrived.received += span.is_root
                count(arrived.ignored, UNSAMPLED, int(span.is_root))
                continue
            else:
                arrived.received += not is_open
                self._held[trace_id] = after
                kept.append(span)
            self._recent.see(trace_id, offset, self.now, span.end_ns)
        counts = self._buffer.add(kept, offset, self.now, size, lowest, self._held)
        del counts["new"]
        for reason, n in counts.items():
            count(arrived.spans, reason, n)

    def _complete(self, now: float, *, everything: bool = False) -> None:
        due = self._buffer.due(now, everything=everything)
        # Sorted, because the buffer of the next owner may hand out in another order the traces that are due at once.
        for trace_id, waiting in sorted(due, key=lambda found: (found[1].first, found[0])):
            self._held.pop(trace_id, None)
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
        self._held = {trace_id: after for trace_id, after in self._held.items() if trace_id not in unfound}
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
        chunk.lowest = dict(self._assembler.upstream.lowest)
        chunk.after = [traces[trace_id].after for trace_id in sorted(traces)]
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


class LogClock:
    """Tells the time of one partition.

    Attributes:
        waiting: Messages that are ahead, and of which nothing after them tells yet whether time did pass.
    """

    def __init__(self, limits: CountingLimits, last: Chunk | None) -> None:
        self.now, self.waiting = -inf, list[LogMessage]()
        self._bytes, self._period = 0, limits.period
        # Where time passes by more, a new generation of what is remembered begins, and chunks tell where that is.
        self._ahead = max(FUTURE, limits.memory / (GENERATIONS - 1) + limits.period)
        self._known = deque(
            () if last is None else [*(last.times or [(last.low, last.until)]), (last.upto, last.until)]
        )

    def take(self, message: LogMessage) -> Iterator[LogMessage]:
        """Read a message; gives those of which it tells what they are, in order, each with the time of the log."""
        while self._known and self._known[0][0] <= message.offset:
            yield from self._drop()
            self.now = self._known.popleft()[1]
        unread = deque([message])
        while unread:
            message = unread.popleft()
            if message.time <= self.now + self._ahead:
                yield from self._drop()
                self.now = max(self.now, message.time)
                yield LogMessage(message.offset, self.now, message.body)
                continue
            self.waiting.append(message)
            self._bytes += len(message.body)
            if len(self.waiting) >= MOST or self._bytes >= MOST_BYTES:
                shown = median_low(waiting.time for waiting in self.waiting)
            elif not message.body and any(abs(message.time - other.time) <= self._ahead for other in self.waiting[:-1]):
                shown = message.time
            else:
                continue
            # The waiting messages show that time did pass: it is set, and they are read again.
            first = next(waiting.time for waiting in self.waiting if waiting.time <= shown + self._ahead)
            # The edge of a period, because a chunk ends there, and the next owner knows no other time.
            self.now = first // self._period * self._period
            unread.extendleft(reversed(self.waiting))
            self.waiting, self._bytes = [], 0

    def _drop(self) -> Iterator[LogMessage]:
        yield from (message._replace(time=self.now, is_ahead=True) for message in self.waiting)
        self.waiting, self._bytes = [], 0


class WorkerCollector(Collector):
    """The series of a worker."""

    def __init__(self, worker: StreamWorker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """All series of this moment."""
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"{PREFIX}{name}", text, self._worker.counts[name])
        owned = GaugeMetricFamily(f"{PREFIX}partition", "A partition that it counts; always 1", labels=("partition",))
        for part in self._worker.partitions:
            owned.add_metric((part,), 1)
        yield owned
        info = GaugeMetricFamily("ragmon_build_info", "This ragmon; always 1", labels=("version",))
        info.add_metric((current_version(),), 1)
        yield info


def worker_app(worker: StreamWorker, hosts: Collection[str]) -> ASGIApp:
    """The ASGI application of a worker's admin port."""
    registry = CollectorRegistry()
    registry.register(WorkerCollector(worker))

    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={**HEADERS, "Content-Type": content_type})

    def healthy(_: Request) -> Response:
        return PlainTextResponse("ok\n", headers=HEADERS)

    def ready(_: Request) -> Response:
        return PlainTextResponse(f"{worker.trouble or 'ok'}\n", 503 if worker.trouble else 200, HEADERS)

    routes = [Route("/metrics", metrics), Route("/healthz", healthy), Route("/readyz", ready)]
    return check_origin(Starlette(routes=routes), own_names(tuple(hosts)))


class _Partition:
    """A partition that this worker owns.

    Attributes:
        resume: The first offset that is counted; earlier ones are only remembered.
        following: The offset that is to be read next.
        asked: The batch in which it was asked for last.
        seen: When its last message was read, on the monotonic clock.
        ticked: When it was told the time last, on the same clock.
        cut: Where the log ended, when it was found to end before what was counted. The messages that come there up to
            `resume` have offsets that were counted before, and are not counted. None where it did not.
        overwritten: Messages since the last chunk that are not counted: their offsets were counted before.
    """

    def __init__(self, counter: PartitionCounter, clock: LogClock, resume: int, following: int) -> None:
        self.counter, self.clock, self.resume, self.following = counter, clock, resume, following
        self.tries, self.asked, self.seen, self.ticked = 0, -1, monotonic(), 0.0
        self.cut: int | None = None
        self.overwritten = 0


class StreamWorker:
    """Counts the partitions that its group gives it."""

    def __init__(self, settings: Settings, gold: Sequence[GoldSet]) -> None:
        self.counts: Counter[str] = Counter()
        self._error = ""
        self._settings, self._gold = settings, gold
        self._stream = settings.stream
        memory, samples = float(self._stream.memory), self._stream.samples
        self._limits = CountingLimits(float(self._stream.period), memory=memory, samples=samples)
        self._kafka = confluent()
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._outgoing: list[tuple[tuple[str, int], Chunk]] = []
        self._batch, self._next_look = 0, monotonic() + LOOK
        self._consumer = consumer_of(
            self._stream,
            "",
            topic__metadata__refresh__interval__ms=METADATA_AGE,
            partition__assignment__strategy="range",
            session__timeout__ms=10_000,
            max__poll__interval__ms=120_000,
        )
        self._writer = ChunkWriter(self._stream, self.counts)
        self._topics = find_topics(self._consumer, self._stream)
        self._reader = LogReader(self._stream)
        self._ends = PartitionEnds(self._stream)

    @property
    def partitions(self) -> list[str]:
        """The partitions that it owns."""
        return sorted(f"{topic}/{number}" for topic, number in list(self._partitions))

    @property
    def trouble(self) -> str:
        """Why it does not count, or not all, at the moment; "" where it does."""
        cut = (found for found in list(self._partitions.values()) if found.cut is not None)
        return self._error or next((_cut_off(found) for found in cut), "")

    def run(self, stopping: Event) -> None:
        """Count until it is told to stop."""
        self._consumer.subscribe(list(self._topics.inputs), on_assign=self._assigned, on_revoke=self._revoked)
        try:
            while not stopping.is_set():
                self._batch += 1
                for message in self._consumer.consume(TOGETHER, POLL):
                    self._take(message)
                self._write()
                # Put an empty message, a tick, into partitions in which nothing came of a period, or where messages
                # wait.
                now, quiet = time(), monotonic() - QUIET
                edge = now // self._limits.period * self._limits.period
                for (topic, number), partition in self._partitions.items():
                    is_quiet = partition.seen < quiet and partition.counter.now < edge
                    if is_quiet or (partition.clock.waiting and partition.ticked < quiet):
                        self._writer.tick(topic, number, now)
                        partition.seen = partition.ticked = monotonic()
                        self.counts["ticks"] += 1
        finally:
            self._consumer.close()
            self._reader.close()

    def _assigned(self, consumer: Any, assigned: Sequence[Any]) -> None:
        """Go on with partitions where their last chunks ended; what came shortly before is read again."""
        self._revoked(consumer, assigned)
        if assigned:
            self._find_topics()
            first, ids = self._ends.first(assigned), self._ends.log_ids(list(self._topics.inputs))
            tail = ChunkTail(self._stream, self._topics.chunks).last(names_of(assigned))
            for target in assigned:
                last = tail.get(f"{target.topic}/{target.partition}")
                self._begin(target, first[target.topic, target.partition], last, ids.get(target.topic, ""))
            self.counts["assignments"] += len(assigned)
            # Find logs that end before what was counted of them.
            resume = {key: partition.resume for key, partition in self._partitions.items()}
            cut = self._ends.beyond(resume)
            end = self._ends.end([self._kafka.TopicPartition(*key) for key in cut])
            for key in cut:
                self._note_cut(self._partitions[key], end[key])
        consumer.assign(list(assigned))
        _log.info("counts %s", ", ".join(map(printable, names_of(assigned))) or "nothing")

    def _find_topics(self) -> None:
        try:
            self._topics = find_topics(self._consumer, self._stream)
        except UnknownNameError as error:
            raise UnavailableError(str(error), hint="counting starts again when the topic exists") from error

    def _begin(self, target: Any, first: int, last: Chunk | None, log: str) -> None:
        key, part = (target.topic, target.partition), f"{target.topic}/{target.partition}"
        deleted: Chunk | None = None
        log = log or (last.log if last else "")
        if last is not None and last.log and last.log != log:
            _log.warning("%s was deleted and created again: it is counted from its beginning", printable(part))
            self.counts["made_anew"] += 1
            last, deleted = None, last
        base, low = (first, first) if last is None else (last.upto, max(first, last.low))
        is_traces = target.topic == self._stream.spans
        make = TracePartitionCounter if is_traces and self._stream.encoding == "otlp_proto" else PartitionCounter
        read = partial(self._reader.read, target.topic, target.partition) if is_traces else None
        counter = make(part, base, self._settings, self._gold, self._limits, last=last, log=log, read=read)
        if deleted is not None:
            counter.replaces(deleted)
        if base < first:
            self._put(key, counter.gap(first))
        target.offset = max(first, low - RESUME_EARLIER)
        self._partitions[key] = _Partition(counter, LogClock(self._limits, last), max(base, first), low)

    def _revoked(self, _: Any, __: Sequence[Any]) -> None:
        """Forget everything: the next owner of a partition counts the open chunk again."""
        self._partitions.clear()
        self._outgoing.clear()

    def _take(self, message: Any) -> None:
        key = (message.topic(), message.partition())
        partition = self._partitions.get(key)
        if message.error() is not None:
            self._note_error(message.error(), key)
            return
        if partition is None:
            return
        self._error, partition.seen = "", monotonic()
        if message.offset() < partition.following or self._left_out(partition, message):
            return
        if message.offset() > partition.following >= partition.resume:
            # Account for messages that the log has deleted before they were counted.
            target = self._kafka.TopicPartition(*key)
            first, _ = self._consumer.get_watermark_offsets(target, timeout=METADATA_TIMEOUT)
            if first > partition.following:
                gap = partition.counter.gap(message.offset())
                self._put(key, gap)
                partition.clock = LogClock(self._limits, gap)  # what waited is in the gap
        partition.following, partition.tries = message.offset() + 1, 0
        offset, arrival, value = message.offset(), message.timestamp()[1] / 1000, message.value() or b""
        if partition.cut is not None and offset >= partition.cut:
            if offset < partition.resume:
                partition.overwritten += bool(value)
                self.counts["overwritten"] += bool(value)
                return
            partition.cut = None
        self.counts["read"] += 1
        for timed in partition.clock.take(LogMessage(offset, arrival, value)):
            if timed.offset >= partition.counter.upto:
                for chunk in self._count(partition.counter, key[0], timed):
                    self._put(key, chunk)
                self.counts["counted"] += 1
            else:
                partition.counter.warm_up([(timed.offset, timed.time, b"" if timed.is_ahead else timed.body)])
                self.counts["remembered"] += 1

    def _note_error(self, error: Any, key: tuple[str, int]) -> None:
        """Note why nothing is read; a partition that has no such offset is read from where it begins or ends."""
        self._error, partition = str(error), self._partitions.get(key)
        if partition is None or not is_out_of_range(error):
            return
        target = self._kafka.TopicPartition(*key)
        first, end = self._consumer.get_watermark_offsets(target, timeout=METADATA_TIMEOUT)
        target.offset, self._error = first, ""
        if first <= partition.following and end < partition.following:
            self._note_cut(partition, end)
            target.offset = end
        self._consumer.seek(target)

    def _note_cut(self, partition: _Partition, end: int) -> None:
        partition.cut, partition.resume = end, max(partition.resume, partition.following)
        partition.following = min(partition.following, end)
        self.counts["cut_off"] += 1
        self._next_look = 0.0  # before anything more is read: it may be another log
        what = "a leader was elected that had not all of it, or the disk of the broker is an older one"
        _log.error("%s: %s", _cut_off(partition), what)

    def _left_out(self, partition: _Partition, message: Any) -> bool:
        """Ask again for messages before one that came too early; returns whether that is worth it.

        A batch may still hold messages of the assignment before this one, and a fetch may have left some out. Offsets
        without a message (of transactions, or of compacted messages) are passed over after some tries.
        """
        if partition.asked == self._batch:
            return True
        if message.offset() == partition.following:
            return False
        if partition.tries == TRIES:
            self.counts["passed_over"] += message.offset() - partition.following
            return False
        self.counts["asked_again"] += 1
        partition.tries, partition.asked = partition.tries + 1, self._batch
        self._consumer.seek(self._kafka.TopicPartition(message.topic(), message.partition(), partition.following))
        return True

    def _count(self, counter: PartitionCounter, topic: str, message: LogMessage) -> list[Chunk]:
        offset, arrival, value, is_ahead = message
        if isinstance(counter, TracePartitionCounter):
            return list(counter.take_request(offset, arrival, value, is_ahead=is_ahead))
        lines: list[Line] = []
        rejected: list[str] = []
        unknown: list[str] = []
        if value and topic == self._stream.metrics:
            try:
                lines = list(totals(value, json=False)[0])
            except Rejected as found:
                rejected.append(found.reason)
        elif value:
            # For a line that cannot be read the reason is counted, as for a line of a file.
            texts: Iterable[bytes] = (value,)
            if b"\n" in value or len(value) > MAX_LINE:
                texts = LineReader(io.BytesIO(value), lambda _, reason, __: rejected.append(reason))
            for text in texts:
                try:
                    lines.append(decode(text, lambda name, reason, _="": unknown.append(f"{name}|{reason}")))
                except Rejected as found:
                    rejected.append(found.reason)
        chunks = list(counter.take(offset, arrival, value, lines, is_ahead=is_ahead))
        for reason in rejected:
            counter.reject(reason)
        for name in unknown:
            counter.miss(name)
        return chunks

    def _put(self, key: tuple[str, int], chunk: Chunk) -> None:
        """Let a chunk wait for the next write."""
        partition = self._partitions.get(key)
        if partition is not None:
            chunk.lost += partition.overwritten
            partition.overwritten = 0
        self._outgoing.append((key, chunk))

    def _write(self) -> None:
        """Write the chunks that ended; the chunks of a topic that was made anew are the last of the old topic."""
        if not self._outgoing and monotonic() < self._next_look:
            return
        # What was read before this question is of the log that the answer names, unless it is another one by now.
        self._next_look = monotonic() + LOOK
        logs = {topic: found.counter.log for (topic, _), found in self._partitions.items() if found.counter.log}
        ids = self._ends.log_ids(list(logs)) if logs else {}
        anew = [key for key in self._partitions if key[0] in ids and ids[key[0]] != logs[key[0]]]
        if anew:
            self._find_topics()
            self._finish(anew)
        if self._outgoing:
            for (topic, _), chunk in self._outgoing:
                chunk.partitions = self._topics.inputs.get(topic, 0)
                self._writer.put(chunk, self._topics.chunks)
            self._writer.flush()
            # The group is told how far this is, for graphs of the lag.
            upto = [self._kafka.TopicPartition(*key, chunk.upto) for key, chunk in self._outgoing]
            try:
                self._consumer.commit(offsets=upto, asynchronous=True)
            except self._kafka.KafkaException as error:
                _log.debug("offsets are not committed: %s", error)
            self._outgoing.clear()
        if anew:
            inputs = self._topics.inputs
            there = [at for at in self._consumer.assignment() if at.partition < inputs.get(at.topic, 0)]
            self._assigned(self._consumer, there)

    def _finish(self, anew: Sequence[tuple[str, int]]) -> None:
        """End the partitions of a topic that was deleted; what may have come from the new one is not counted here."""
        inputs = self._topics.inputs
        there = [self._kafka.TopicPartition(*key) for key in anew if key[1] < inputs.get(key[0], 0)]
        end = self._ends.end(there)
        for key in anew:
            partition = self._partitions[key]
            if end.get(key, 0) <= partition.following:
                partition.overwritten += len(partition.clock.waiting)  # nothing tells their time any more
                self._put(key, partition.counter.end())
                continue
            self._outgoing = [outgoing for outgoing in self._outgoing if outgoing[0] != key]
            what = f"from offset {partition.counter.base} on is not counted"
            _log.warning(
                "%s was created again while it was read: what came %s", printable(partition.counter.part), what
            )


def _cut_off(partition: _Partition) -> str:
    part = printable(partition.counter.part)
    counted = f"{part} ends at offset {partition.cut}, and was counted up to {partition.resume}"
    return f"{counted}: what comes at the offsets between is not counted"
