"""Adding up the chunks of all partitions, each stretch once, and the time until which all of them have spoken.

Chunks of one partition may come again, from an owner that was thought dead or from a producer that tried twice; they
are dropped by their place. A chunk that overlaps what was added is refused, and what lies between two chunks is lost,
and accounted for. So neither transactions nor an election are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ragmon.core.errors import shorten
from ragmon.core.record import Ack
from ragmon.stream.chunk import Chunk, ChunkError, ChunkStretch

ADDED, RETURNED, REPEATED, OVERLAPPING, MISSING, UNKNOWN, DAMAGED = (
    "added",
    "returned",
    "repeated",
    "overlapping",
    "missing",
    "unknown",
    "damaged",
)
"""What became of a chunk: counted; counted, of a log whose place another one had taken; counted before; partly counted
before, so refused; counted, after a gap; of a log that is forgotten; not readable."""
RESULTS: Final = (ADDED, RETURNED, REPEATED, OVERLAPPING, MISSING, UNKNOWN, DAMAGED)
LOGS: Final = 8
"""Logs of a partition whose positions are remembered: one is begun anew when a disk is lost, or a folder emptied."""
ACKS: Final = 100
"""Acknowledgements that are remembered, so that one that is read again is known."""
RETIRED: Final = 1_000
"""Names of still older logs that are remembered: what comes of them is refused, because it may be counted."""


class PartitionPosition(msgspec.Struct):
    """How far a partition was added.

    Attributes:
        upto: The offset of the message that comes next.
        low: The offset from which whoever goes on counting reads.
        until: All that comes later came at this time or later, seconds since the epoch.
        config: What its last chunk was counted by.
        log: Which log it is; the offsets of another one are its own.
        lost: Messages that were never counted, because the log had deleted them.
    """

    upto: int
    low: int = 0
    until: float = 0.0
    config: str = ""
    log: str = ""
    lost: int = 0


class AdderState(msgspec.Struct):
    """What a `ChunkAdder` knows of partitions, logs and acknowledgements.

    Attributes:
        positions: How far each partition was added, in the log that was added last.
        results: Chunks by what became of them.
        partitions: How many partitions each log has, as far as chunks say so.
        logs: Which log each of them was, when its partitions were told last.
        offsets: By partition of the topic of chunks, the offset of the chunk that comes next.
        replaced: By partition, how far its other logs were added; the one that was added last is the last.
        retired: By partition, its logs whose positions are forgotten.
        returned: By partition, until when it had spoken when a log came back whose place another one had taken.
        acks: Acknowledgements that came in the topic of chunks, the newest ones.
        waiting: Those of them whose time not every partition has spoken of.
        log: Which topic of chunks these offsets are of; "" where that is not known.
    """

    positions: dict[str, PartitionPosition] = {}
    results: dict[str, int] = {}
    partitions: dict[str, int] = {}
    logs: dict[str, str] = {}
    offsets: dict[int, int] = {}
    replaced: dict[str, list[PartitionPosition]] = {}
    retired: dict[str, list[str]] = {}
    returned: dict[str, float] = {}
    acks: list[Ack] = []
    waiting: list[Ack] = []
    log: str = ""


class ChunkAdder:
    """Decides which chunks are added, and knows how far the partitions are.

    Args:
        patience: Seconds of silence after which the others no longer wait for a partition; None: they wait. Its records
            count in a later minute of the alarms then.
        logs: The logs whose partitions are waited for; chunks say how many there are, and a partition is called
            LOG/NUMBER. Chunks of other logs, as of a topic that was renamed, are added, and nobody waits for more.

    Attributes:
        state: What it knows; a checkpoint holds it.
        refusal: Why a chunk was refused last; "" where none was.
    """

    def __init__(self, patience: float | None = None, logs: Iterable[str] | None = None) -> None:
        self.state = AdderState()
        self.refusal = ""
        self._patience = patience
        self._logs = None if logs is None else frozenset(logs)

    @property
    def parts(self) -> tuple[str, ...]:
        """The partitions that are waited for, as far as they are known."""
        known = sorted(self.state.partitions.items())
        awaited = [(log, number) for log, number in known if self._logs is None or log in self._logs]
        return tuple(f"{log}/{n}" for log, number in awaited for n in range(number))

    def position(self, part: str, log: str | None = None) -> PartitionPosition | None:
        """How far a log of a partition was added; None where nothing of it was.

        Args:
            part: The partition.
            log: The log; "" or None for the one that was added last.
        """
        last = self.state.positions.get(part)
        if last is None or not log or not last.log or last.log == log:
            return last
        return next((found for found in self.state.replaced.get(part, ()) if found.log == log), None)

    def take(self, chunk: Chunk) -> bool:
        """Whether a chunk is to be added now; its place is remembered then.

        The topic of chunks was read without a gap: what is missing before a chunk never comes. It is lost, and
        accounted for.

        Raises:
            ChunkError: It overlaps what was added, or is of a log that is forgotten.
        """
        self._see_partitions(chunk)
        position, lost = self.position(chunk.part, chunk.log), chunk.lost
        log = chunk.log or ("" if position is None else position.log)
        place = f"chunk {chunk.base}-{chunk.upto} of partition {shorten(chunk.part)}"
        if chunk.log in self.state.retired.get(chunk.part, ()):
            message = f"{place} is of a log, {shorten(chunk.log)}, that {LOGS} others have replaced"
            raise self._refused(UNKNOWN, message, "let one topic stand in its place")
        if position is not None and _comes_again(chunk, position):
            if chunk.upto > position.upto:
                message = f"{place} overlaps what was added up to {position.upto}"
                raise self._refused(OVERLAPPING, message, "two ragmon of different versions count this log")
            self._note(REPEATED)
            return False
        if position is not None and chunk.base > position.upto:
            self._note(MISSING)
            lost += chunk.base - position.upto
        until = chunk.until if position is None else max(chunk.until, position.until)
        self._put(chunk.part, PartitionPosition(chunk.upto, chunk.low, until, chunk.config, log, lost))
        return True

    def _put(self, part: str, position: PartitionPosition) -> None:
        """Remember how far a partition was added, and what was lost of it in all its logs."""
        last = self.state.positions.get(part)
        self.state.positions[part] = position
        position.lost += 0 if last is None else last.lost
        if last is None or not last.log or last.log == position.log:
            self._note(ADDED)
            return
        others = self.state.replaced.get(part, [])
        kept = [other for other in others if other.log != position.log]
        is_back = len(kept) < len(others)
        last.lost = 0
        kept.append(last)
        if len(kept) >= LOGS:
            self.state.retired[part] = [*self.state.retired.get(part, ()), kept.pop(0).log][-RETIRED:]
        self.state.replaced[part] = kept
        if is_back:
            self.state.returned[part] = self._until(part)
        self._note(RETURNED if is_back else ADDED)

    def hear(self, ack: Ack) -> None:
        """Let an acknowledgement of the topic of chunks wait for its time; one that is read again is known."""
        if ack not in self.state.acks:
            self.state.acks = [*self.state.acks, ack][-ACKS:]
            self.state.waiting.append(ack)

    def due_acks(self, watermark: float) -> list[Ack]:
        """The acknowledgements whose time has come, by their times; they wait no longer.

        Args:
            watermark: Until when every partition has spoken, seconds since the epoch.
        """
        due = [ack for ack in self.state.waiting if (ack.at or 0.0) <= watermark]
        if due:
            self.state.waiting = [ack for ack in self.state.waiting if ack not in due]
        return sorted(due, key=lambda ack: ack.at or 0.0)

    def expects(self, stretch: ChunkStretch, upto: int | None) -> bool:
        """Whether `take` will add a chunk.

        Args:
            stretch: What the chunk is of.
            upto: How far its partition will have been added by then; None: as far as it is now.
        """
        position = self.position(stretch.part, stretch.log)
        if upto is None:
            upto = None if position is None else position.upto
        is_known = stretch.log not in self.state.retired.get(stretch.part, ())
        return is_known and (upto is None or stretch.base >= upto)

    def _see_partitions(self, chunk: Chunk) -> None:
        """Remember how many partitions a log has: they may become more, and another log in its place may have fewer."""
        if not chunk.partitions:
            return
        log, _, number = chunk.part.rpartition("/")
        if self.state.logs.get(log, "") != chunk.log:
            self.state.logs[log], self.state.partitions[log] = chunk.log, 0
        self.state.partitions[log] = max(self.state.partitions.get(log, 0), chunk.partitions, int(number) + 1)

    def read(self, log: str, partition: int, offset: int) -> None:
        """Note that a chunk was read.

        Args:
            log: Which topic of chunks it is of; "" where that is not known.
            partition: The partition of that topic.
            offset: The offset of the message that comes next.
        """
        if log and self.state.log and log != self.state.log:
            self.state.offsets.clear()
        self.state.log = log or self.state.log
        self.state.offsets[partition] = offset

    def damaged(self, why: str) -> None:
        """Account for bytes that are no chunk."""
        self.refusal = why
        self._note(DAMAGED)

    def _note(self, result: str) -> None:
        self.state.results[result] = self.state.results.get(result, 0) + 1

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
        if part not in self.state.positions:
            return 0.0
        others = self.state.replaced.get(part, [])
        return max([self.state.positions[part].until, *(position.until for position in others)])

    def behind(self, now: float) -> dict[str, float]:
        """By partition, how many seconds ago it spoke last; if its time lies ahead, how far: it stands still as long.

        Args:
            now: Seconds since the epoch.
        """
        return {part: abs(now - self._until(part)) for part in self.parts}

    @property
    def lost(self) -> int:
        """Messages that nobody counted, because the log had deleted them."""
        return sum(position.lost for position in self.state.positions.values())

    @property
    def configs(self) -> frozenset[str]:
        """What the last chunks of the partitions were counted by: several while a change is rolled out."""
        awaited = set(self.parts)
        return frozenset(position.config for part, position in self.state.positions.items() if part in awaited)


def _comes_again(chunk: Chunk, position: PartitionPosition) -> bool:
    """Whether a chunk begins before what was added ends; one without messages has only the time to tell it by."""
    if chunk.base < position.upto:
        return True
    return chunk.base == chunk.upto == position.upto and chunk.until <= position.until
