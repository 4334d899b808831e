"""Counting one partition of a log, chunk by chunk: records, totals and labels that are whole.

Time is the log's: the running maximum of the times at which messages were put there. Which messages make a chunk is a
function of the log alone: a chunk ends where a period of arrival ends, and at every multiple of `MAX_OFFSETS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Final

from msgspec.structs import replace

from ragmon.config.settings import Settings
from ragmon.core.constants import CLOCK_AHEAD, LOG_DELETED
from ragmon.core.record import (
    Label,
    Line,
    Record,
    Totals,
    encode_entry,
)
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.partial_counts import PartialCounter
from ragmon.stream.accounts import BatchCounts, count
from ragmon.stream.answers import ReadMessages, TraceOffsets, answer_in, labels_in, traces_in
from ragmon.stream.chunk import PERIOD, TRACE_ID, Chunk, config_version

MAX_OFFSETS: Final = 1 << 16
"""Offsets of a chunk at most."""
MEMORY: Final = 600.0
"""Seconds of arrival for which a message is remembered at least, so that one that comes again is a duplicate."""
GENERATIONS: Final = 3
"""Parts of what is remembered: the oldest is forgotten as a whole, half of the memory later."""


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

    Args:
        memory: Seconds.
    """

    def __init__(self, memory: float) -> None:
        self._span = memory / (GENERATIONS - 1)
        self._generations: dict[int, set[int]] = {}
        self._begins: dict[int, tuple[int, float]] = {}

    def see(self, key: bytes, offset: int, now: float) -> bool:
        """Remember something; returns whether it came before. What comes again is remembered anew.

        Args:
            key: What makes it the same.
            offset: The offset of its message.
            now: When that came, in the log's time.
        """
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
        """Where the generations begin, and when: whoever goes on reads from the first one on to remember the same."""
        return sorted(self._begins.values())


Place = tuple[int, int]
"""Where a label stands: the offset of its message, and its place among the labels there."""


class EarlyLabels:
    """Labels that came before their answers: they wait, so that who adds counts up gets both together.

    Args:
        memory: Seconds for which they wait.
    """

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._waiting: dict[str, list[tuple[Label, float, Place]]] = {}

    def put(self, label: Label, now: float, place: Place = (0, 0)) -> bool:
        """Let a label wait if its answer is not known; returns whether it waits."""
        if label.answer is None:
            self._waiting.setdefault(label.trace_id, []).append((label, now, place))
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

    def places(self) -> list[Place]:
        """Where those that wait stand, in order."""
        return sorted(place for waiting in self._waiting.values() for *_, place in waiting)


class PartitionCounter:
    """Counts one partition, chunk by chunk.

    Args:
        part: Which partition.
        base: The offset of the first message that is counted.
        settings: The configuration.
        gold: Its gold sets.
        limits: How the partition is divided.
        now: All that comes came at this time or later, seconds since the epoch: `until` of the last chunk.
        log: What tells the offsets of this log from those of another one in its place.
        labels: The labels that waited at the end of the last chunk.
        read: Reads messages of the partition again; without it labels join only answers that come after them.

    Attributes:
        part, log: As above.
        base: The offset of the first message of the open chunk.
        upto: The offset after the last message.
        now: The time of the log, seconds since the epoch.
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
        labels: Sequence[Place] = (),
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
        """Remember messages before the first one that is counted; they were counted in earlier chunks.

        Args:
            messages: Their offsets, arrival times and bytes, from the `low` of the last chunk on.
        """
        for offset, arrival, message in messages:
            self._warmed = max(self._warmed, arrival)
            self._recent.turn(offset, self._warmed)
            if message:
                self._recent.see(message, offset, self._warmed)
                self._see_traces(message, offset, self._warmed)
                self._wait_again(message, offset, self._warmed)

    def _see_traces(self, message: bytes, offset: int, now: float) -> None:
        """Remember where the traces of a message stand."""
        if self._read is not None:
            self._traces.see(traces_in(message), offset, now)

    def _wait_again(self, message: bytes, offset: int, now: float) -> None:
        """Let labels of a message before the first one that is counted wait as they did."""
        if any(waited == offset for waited, _ in self._waited):
            for number, label in enumerate(labels_in(message)):
                if (offset, number) in self._waited:
                    self._early.put(label, now, (offset, number))

    def take(
        self, offset: int, arrival: float, message: bytes, lines: Iterable[Line] = (), *, is_ahead: bool = False
    ) -> Iterator[Chunk]:
        """Count a message; gives the chunks that end before it.

        Args:
            offset: Its offset.
            arrival: When it was put into the log, seconds since the epoch.
            message: Its bytes, by which a repeat is known; an empty one only tells the time.
            lines: What is in it.
            is_ahead: The clock of its producer was ahead: it is accounted for, and neither counted nor remembered.
        """
        if self._is_quick(offset, arrival):
            self.now = max(self.now, arrival)
        else:
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
        """Let the time pass until a message; gives the chunk that ends before it, if one does.

        Args:
            offset: The offset of the message.
            arrival: When it was put into the log, seconds since the epoch.
        """
        arrival, period = max(arrival, self.now), self._limits.period
        edge = arrival // period * period
        is_over = self.now < edge
        is_full = self.upto > self.base and offset // self._limits.offsets > self.base // self._limits.offsets
        if is_over:  # by the log's time alone, so that whoever goes on tells of the same labels
            for label, came in self._early.expire(edge):
                self._counter.label(label, came)
        if is_over or is_full:
            yield self.seal(edge if is_over else arrival)
        self.now = arrival
        self._edge = edge + period

    def _is_quick(self, offset: int, arrival: float) -> bool:
        """Whether a message is in the middle of a chunk, as nearly all are."""
        return (
            arrival < self._edge
            and self.upto > self.base
            and offset // self._limits.offsets == self.base // self._limits.offsets
        )

    def reject(self, reason: str, n: int = 1) -> None:
        """Account for records of the current message that cannot be read.

        Args:
            reason: Why.
            n: How many.
        """
        self._arrived.received += n
        count(self._arrived.dropped, reason, n)

    def _count(self, line: Line) -> None:
        if isinstance(line, Totals):
            self._counter.report(line, self.now)
        elif isinstance(line, Label):
            place, self._labels = (self.upto - 1, self._labels), self._labels + 1
            label = line if line.answer is not None else replace(line, answer=self._answer(line.trace_id))
            if not self._early.put(label, self.now, place):
                self._counter.label(label, self.now)
        else:
            self._observe(line)

    def _observe(self, record: Record) -> None:
        """Count a record, and join the labels that waited for it."""
        self._counter.observe(record, self.now)
        for label in self._early.take(record):
            self._counter.label(label, self.now)

    def _answer(self, trace_id: str) -> Record | None:
        """The answer of a trace that came shortly before; None where none did."""
        offsets = [] if self._read is None else self._traces.of(trace_id.encode(), self.now)
        return answer_in(self._read(offsets), trace_id) if self._read is not None and offsets else None

    def seal(self, until: float) -> Chunk:
        """End the chunk, and hand it out.

        Args:
            until: All that comes later in the partition came at this time or later, seconds since the epoch.
        """
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
            labels=self._early.places(),
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
        """Account for what waited in the log that was in the place of this one: it was deleted.

        Args:
            last: The last chunk of that log.
        """
        count(self._arrived.dropped, LOG_DELETED, len(last.waiting) // TRACE_ID)
        count(self._arrived.labels, LOG_DELETED, len(last.labels))

    def gap(self, first: int) -> Chunk:
        """The chunk that says that the log has deleted what comes next; it is handed out before anything is counted.

        Args:
            first: The first offset that is left.
        """
        lost, self.upto = first - self.upto, first
        chunk = self.seal(self.now)
        chunk.lost = lost
        return chunk
