"""Counting one partition of a log, chunk by chunk: records, totals and labels that are whole.

Time is the log's: the running maximum of the times at which messages were put there. Which messages make a chunk is a
function of the log alone: a chunk ends where a period of arrival ends, and at every multiple of `MAX_OFFSETS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from ragmon.config.settings import Settings
from ragmon.core.record import Label, Line, Record, Totals
from ragmon.gold import GoldSet
from ragmon.monitor.partial_counts import PartialCounter
from ragmon.stream.accounts import BatchCounts, count
from ragmon.stream.chunk import PERIOD, Chunk, config_version

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
    """

    period: float = PERIOD
    offsets: int = MAX_OFFSETS
    memory: float = MEMORY


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
        self._begins: dict[int, int] = {}

    def see(self, key: bytes, offset: int, now: float) -> bool:
        """Remember a message; returns whether it came before.

        Args:
            key: What makes it the same message.
            offset: Its offset.
            now: When it came, in the log's time.
        """
        current = self.turn(offset, now)
        hashed = int.from_bytes(blake2b(key, digest_size=8).digest(), "big")
        if any(hashed in generation for generation in self._generations.values()):
            return True
        self._generations[current].add(hashed)
        return False

    def turn(self, offset: int, now: float) -> int:
        """Begin the generation of a time, and forget those that are too old; returns its number."""
        current = int(now // self._span)
        if current not in self._generations:
            self._generations[current], self._begins[current] = set(), offset
            for number in [number for number in self._generations if number <= current - GENERATIONS]:
                del self._generations[number], self._begins[number]
        return current

    @property
    def low(self) -> int | None:
        """The offset from which whoever goes on reads to remember the same; None where nothing came."""
        return min(self._begins.values(), default=None)


class PartitionCounter:
    """Counts one partition, chunk by chunk.

    Args:
        part: Which partition.
        base: The offset of the first message that is counted.
        settings: The configuration.
        gold: Its gold sets.
        limits: How the partition is divided.
        now: All that comes came at this time or later, seconds since the epoch: `until` of the last chunk.
    """

    def __init__(
        self,
        part: str,
        base: int,
        settings: Settings,
        gold: Sequence[GoldSet],
        limits: CountingLimits | None = None,
        now: float = 0.0,
    ) -> None:
        self.part, self.base, self.upto, self.now = part, base, base, now
        self._limits = limits or CountingLimits()
        self._config = config_version(settings, gold)
        self._counter = PartialCounter(settings, gold)
        self._recent = Recent(self._limits.memory)
        self._arrived = BatchCounts()

    def warm_up(self, messages: Iterable[tuple[int, float, bytes]]) -> None:
        """Remember messages before the first one that is counted; they were counted in earlier chunks.

        Args:
            messages: Their offsets, arrival times and bytes, from the `low` of the last chunk on.
        """
        now = 0.0
        for offset, arrival, message in messages:
            now = max(now, arrival)
            self._recent.turn(offset, now)
            if message:
                self._recent.see(message, offset, now)

    def take(self, offset: int, arrival: float, message: bytes, lines: Iterable[Line] = ()) -> Iterator[Chunk]:
        """Count a message; gives the chunks that end before it.

        Args:
            offset: Its offset.
            arrival: When it was put into the log, seconds since the epoch.
            message: Its bytes, by which a repeat is known; an empty one only tells the time.
            lines: What is in it.
        """
        yield from self.until(offset, arrival)
        self.upto = offset + 1
        self._recent.turn(offset, self.now)
        if message and self._recent.see(message, offset, self.now):
            n = sum(isinstance(line, Record) for line in lines)
            self._arrived.received += n
            self._arrived.duplicate += n
            return
        for line in lines:
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
        if is_over or is_full:
            yield self.seal(edge if is_over else arrival)
        self.now = arrival

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
            self._counter.report(line)
        elif isinstance(line, Label):
            self._counter.label(line, self.now)
        else:
            self._arrived.received += 1
            self._counter.observe(line, self.now)

    def seal(self, until: float) -> Chunk:
        """End the chunk, and hand it out.

        Args:
            until: All that comes later in the partition came at this time or later, seconds since the epoch.
        """
        low = self._recent.low
        chunk = Chunk(
            part=self.part,
            base=self.base,
            upto=self.upto,
            until=until,
            now=self.now,
            low=self.upto if low is None else min(low, self.upto),
            config=self._config,
            counts=self._counter.take(),
            arrived=self._arrived,
        )
        self._arrived = BatchCounts()
        self.base = self.upto
        return chunk
