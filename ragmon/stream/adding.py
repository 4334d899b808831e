"""Adding up the chunks of all partitions, each stretch once, and the time until which all of them have spoken.

Chunks of one partition may come again, from an owner that was thought dead or from a producer that tried twice; they
are dropped by their place. A chunk that overlaps what was added, or that leaves a gap, is refused: who reads the log
reads it again. So neither transactions nor an election are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from ragmon.core.errors import shorten
from ragmon.stream.chunk import Chunk, ChunkError

ADDED, REPEATED, OVERLAPPING, MISSING, UNKNOWN, DAMAGED = (
    "added",
    "repeated",
    "overlapping",
    "missing",
    "unknown",
    "damaged",
)
"""What became of a chunk: counted; counted before; partly counted before, or after a gap, so refused; of a partition
that nobody asked for; not readable."""
FORMER: Final = 8
"""Logs in the place of another one that are remembered: chunks of them may still come from an old owner."""
RESULTS: Final = (ADDED, REPEATED, OVERLAPPING, MISSING, UNKNOWN, DAMAGED)


class PartitionPosition(msgspec.Struct):
    """How far a partition was added.

    Attributes:
        upto: The offset of the message that comes next.
        low: The offset from which whoever goes on counting reads.
        until: All that comes later came at this time or later, seconds since the epoch.
        config: What its last chunk was counted by.
        log: Which log it is; the offsets of another one begin anew.
        lost: Messages that were never counted, because the log had deleted them.
        former: How far other logs in its place were added, by what tells them apart.
    """

    upto: int
    low: int = 0
    until: float = 0.0
    config: str = ""
    log: str = ""
    lost: int = 0
    former: dict[str, int] = {}


class AdderState(msgspec.Struct):
    """The saved form of a `ChunkAdder`.

    Attributes:
        positions: How far each partition was added.
        results: Chunks by what became of them.
        partitions: How many partitions each log has, as far as chunks say so.
        logs: Which log each of them was, when its partitions were told last.
        offsets: By partition of the topic of chunks, the offset of the chunk that comes next.
        log: Which topic of chunks these offsets are of; "" where that is not known.
    """

    positions: dict[str, PartitionPosition] = {}
    results: dict[str, int] = {}
    partitions: dict[str, int] = {}
    logs: dict[str, str] = {}
    offsets: dict[int, int] = {}
    log: str = ""


class ChunkAdder:
    """Decides which chunks are added, and knows how far the partitions are.

    Args:
        parts: The partitions; None where the chunks say how many there are; they are called LOG/NUMBER then.
        patience: Seconds of silence after which the others no longer wait for a partition; None: they wait. Its records
            count in a later minute of the alarms then.
        logs: Where the chunks say how many partitions there are: the logs that are waited for. Chunks of others, as of
            a topic that was renamed, are added, and nobody waits for more of them.

    Attributes:
        refusal: Why a chunk was refused last; "" where none was.
    """

    def __init__(
        self, parts: Iterable[str] | None, patience: float | None = None, logs: Iterable[str] | None = None
    ) -> None:
        self._state = AdderState()
        self.refusal = ""
        self._patience = patience
        self._parts = None if parts is None else tuple(parts)
        self._logs = None if logs is None else frozenset(logs)

    @property
    def parts(self) -> tuple[str, ...]:
        """The partitions that are waited for, as far as they are known."""
        if self._parts is not None:
            return self._parts
        known = sorted(self._state.partitions.items())
        awaited = [(log, number) for log, number in known if self._logs is None or log in self._logs]
        return tuple(f"{log}/{n}" for log, number in awaited for n in range(number))

    @property
    def positions(self) -> dict[str, PartitionPosition]:
        """How far each partition was added; one of which nothing came is missing."""
        return self._state.positions

    @property
    def offsets(self) -> dict[int, int]:
        """By partition of the topic of chunks, the offset of the chunk that comes next."""
        return self._state.offsets

    @property
    def results(self) -> dict[str, int]:
        """How many chunks came, by what became of them."""
        return self._state.results

    def take(self, chunk: Chunk, *, is_ordered: bool = False) -> bool:
        """Whether a chunk is to be added now; its place is remembered then.

        Args:
            chunk: The chunk.
            is_ordered: It comes from a log that was read without a gap, so what is missing before it never comes: it
                is lost, and accounted for.

        Raises:
            ChunkError: It overlaps what was added, or leaves a gap, or nobody asked for its partition.
        """
        self._see_partitions(chunk)
        position, former = self._position(chunk)
        lost = chunk.lost + (self.positions[chunk.part].lost if chunk.part in self.positions else 0)
        place = f"chunk {chunk.base}-{chunk.upto} of partition {shorten(chunk.part)}"
        if self._parts is not None and chunk.part not in self._parts:
            raise self._refused(UNKNOWN, f"{place}: there is no such partition", f"partitions: {', '.join(self.parts)}")
        if position is not None and chunk.base < position.upto:
            if chunk.upto > position.upto:
                message = f"{place} overlaps what was added up to {position.upto}"
                raise self._refused(OVERLAPPING, message, "two ragmon of different versions count this log")
            self._note(REPEATED)
            return False
        if position is not None and chunk.base > position.upto and is_ordered:
            self._note(MISSING)
            lost += chunk.base - position.upto
        elif position is not None and chunk.base > position.upto:
            message = f"{place} leaves out {position.upto}-{chunk.base}"
            raise self._refused(MISSING, message, f"read the chunks again from {position.upto}")
        until = max(chunk.until, self._until(chunk.part))
        log = chunk.log or ("" if position is None else position.log)
        added = PartitionPosition(chunk.upto, chunk.low, until, chunk.config, log, lost, former)
        self.positions[chunk.part] = added
        self._note(ADDED)
        return True

    def _see_partitions(self, chunk: Chunk) -> None:
        """Remember how many partitions a log has: they may become more, and another log in its place may have fewer."""
        if not chunk.partitions:
            return
        log, _, number = chunk.part.rpartition("/")
        if self._state.logs.get(log, "") != chunk.log:
            self._state.logs[log], self._state.partitions[log] = chunk.log, 0
        self._state.partitions[log] = max(self._state.partitions.get(log, 0), chunk.partitions, int(number) + 1)

    def _position(self, chunk: Chunk) -> tuple[PartitionPosition | None, dict[str, int]]:
        """How far the log of a chunk was added, and how far other logs in its place; a new log begins anew."""
        position = self.positions.get(chunk.part)
        if position is None:
            return None, {}
        if not position.log or not chunk.log or position.log == chunk.log:
            return position, position.former
        former = {**position.former, position.log: position.upto}
        upto = former.pop(chunk.log, None)
        while len(former) > FORMER:
            del former[next(iter(former))]
        if upto is None:
            return None, former
        position = replace(position, upto=upto, low=0, log=chunk.log, former=former)
        self.positions[chunk.part] = position
        return position, former

    def read(self, log: str, partition: int, offset: int) -> None:
        """Note that a chunk was read.

        Args:
            log: Which topic of chunks it is of; "" where that is not known.
            partition: The partition of that topic.
            offset: The offset of the message that comes next.
        """
        if log and self._state.log and log != self._state.log:
            self._state.offsets.clear()
        self._state.log = log or self._state.log
        self._state.offsets[partition] = offset

    @property
    def chunks_log(self) -> str:
        """Which topic of chunks the offsets are of; "" where that is not known."""
        return self._state.log

    def damaged(self, why: str) -> None:
        """Account for bytes that are no chunk."""
        self.refusal = why
        self._note(DAMAGED)

    def _note(self, result: str) -> None:
        self.results[result] = self.results.get(result, 0) + 1

    def _refused(self, result: str, message: str, hint: str) -> ChunkError:
        self._note(result)
        self.refusal = message
        return ChunkError(message, hint=hint)

    def watermark(self, now: float) -> float:
        """Until when every partition has spoken, seconds since the epoch; 0 as long as one has said nothing.

        Args:
            now: Seconds since the epoch; with patience, partitions that were silent for longer are not waited for.
        """
        untils = [self._until(part) for part in self.parts]
        if self._patience is not None:
            untils = [max(until, now - self._patience) for until in untils]
        return min(untils, default=0.0)

    def _until(self, part: str) -> float:
        return self.positions[part].until if part in self.positions else 0.0

    def behind(self, now: float) -> dict[str, float]:
        """By partition, how many seconds ago it spoke last.

        Args:
            now: Seconds since the epoch.
        """
        return {part: max(0.0, now - self._until(part)) for part in self.parts}

    @property
    def lost(self) -> int:
        """Messages that nobody counted, because the log had deleted them."""
        return sum(position.lost for position in self.positions.values())

    @property
    def configs(self) -> frozenset[str]:
        """What the last chunks of the partitions were counted by: several while a change is rolled out."""
        awaited = set(self.parts)
        return frozenset(position.config for part, position in self.positions.items() if part in awaited)

    def dump(self) -> AdderState:
        """The saved form; it is not copied."""
        return self._state

    def restore(self, state: AdderState) -> None:
        """Go on from a saved form."""
        self._state = state
