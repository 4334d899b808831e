"""The chunks of a server's journal, for the server that adds up several of them (`[serve] of`).

A chunk is counted from the rows on disk, so it is the same whoever asks, however often, and whatever happened to this
process in between. The counting goes on where the last answer ended; an answer that was lost is made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from ragmon.core.errors import RagmonError
from ragmon.core.pacing import Deadline
from ragmon.core.record import Entry
from ragmon.monitor.engine import Engine
from ragmon.server.journal import JournalReader, open_readonly
from ragmon.server.pipeline.recovery import entries
from ragmon.server.pipeline.writer import JournalWriter
from ragmon.stream.accounts import BatchCounts
from ragmon.stream.chunk import Chunk, config_version
from ragmon.stream.counting import CountingLimits, PartitionCounter

RECORDS: Final = 20_000
"""Records of one answer, about: counting them takes a second, in which this server does little else."""
LONGEST: Final = 5.0
"""Seconds of CPU for one answer: the server that asks does not wait for ever."""
HEADS: Final = 4
"""Counters that are kept: one for each server that asks."""
_LABEL: Final = b'"kind":"label"'
FIRST: Final = 1
"""The number of a journal's first row."""
BETWEEN_ROWS: Final = 30.0
"""Seconds to wait for the end of the row that is being written."""


class ChunkPlace(NamedTuple):
    """From where chunks are asked for.

    Attributes:
        part: The name under which they are added up.
        log: Which journal the rows are of; "" at the beginning.
        base: The first row.
        low: The row from which rows before it are remembered: `low` of the last chunk.
        until: `until` of the last chunk, seconds since the epoch.
    """

    part: str
    log: str = ""
    base: int = FIRST
    low: int = FIRST
    until: float = 0.0


class ChunkAnswer(NamedTuple):
    """The answer to a request for chunks.

    Attributes:
        chunks: The chunks, as they are sent.
        more: Whether there are more rows, so that it is worth asking at once.
    """

    chunks: list[bytes]
    more: bool


def _before(journal: JournalReader, place: ChunkPlace) -> Iterator[tuple[int, float, list[Entry]]]:
    """The rows that are remembered; only where a label may wait for its answer they are read."""
    has_label = False
    for row in journal.rows(after=place.low - 1, upto=place.base - 1):
        has_label = has_label or _LABEL in row.lines
        yield row.seq, row.arrival, entries(row.lines) if has_label else []


class JournalChunks:
    """Makes chunks of a journal.

    Args:
        writer: The journal writer.
        folder: The folder of the journal.
    """

    def __init__(self, writer: JournalWriter, folder: Path) -> None:
        self._writer = writer
        self._folder = folder
        self._lock = Lock()
        self._counters: dict[tuple[str, str, int, float, str], PartitionCounter] = {}

    def since(self, place: ChunkPlace) -> ChunkAnswer:
        """The chunks that are complete, from a row on; from the first one if the rows are of another journal.

        Raises:
            RagmonError: The server is being stopped, or the journal cannot be read.
        """
        with self._lock, open_readonly(self._folder) as journal:
            if place.log != self._writer.journal.log_id:
                place = ChunkPlace(place.part, self._writer.journal.log_id)
            engine = self._writer.server_state.engine
            config = config_version(engine.settings, engine.scorer.gold.sets)
            counter, answer = self._counter_at(journal, place, engine, config), ChunkAnswer([], more=False)
            until = place.until
            for chunk in self._count(counter, journal):
                answer.chunks.append(chunk.dump())
                until = chunk.until
            # Heads that ask for the same row may have been told of different times: a chunk without rows tells a time.
            self._counters[place.part, place.log, counter.base, until, config] = counter
            while len(self._counters) > HEADS:
                del self._counters[next(iter(self._counters))]
            return answer._replace(more=counter.upto <= journal.last()[0])

    def _counter_at(self, journal: JournalReader, place: ChunkPlace, engine: Engine, config: str) -> PartitionCounter:
        """The counter that goes on at a row: one at hand, or a new one. It is taken: if it fails, it is made anew."""
        known = self._counters.pop((place.part, place.log, place.base, place.until, config), None)
        if known is not None:
            return known
        stream = engine.settings.stream
        limits = CountingLimits(float(stream.period), memory=float(stream.memory))
        counter = PartitionCounter(
            place.part, place.base, engine.settings, engine.scorer.gold.sets, limits, place.until, place.log
        )
        counter.warm_up_rows(_before(journal, place))
        return counter

    def _count(self, counter: PartitionCounter, journal: JournalReader) -> Iterator[Chunk]:
        """Count rows, at most so many that other work is not held up for long, and end what is complete."""
        last, now = self._writer.run_between_rows(self._position).result(timeout=BETWEEN_ROWS)
        if counter.base > last + 1:
            message = f"the journal ends at row {last}, and chunks were counted up to {counter.base}"
            raise RagmonError(message, hint="an older copy of its state is in use; begin with an empty state_dir")
        records, deadline, is_read = 0, Deadline(LONGEST), False
        for row in journal.rows(after=counter.upto - 1):
            if counter.upto < row.seq:
                yield counter.gap(row.seq)
            yield from counter.take_row(row.seq, row.arrival, BatchCounts.load(row.counts), entries(row.lines))
            records, is_read = records + row.n, True
            if records >= RECORDS or row.seq >= last or deadline.passed:
                break
        if not is_read and counter.upto <= last:
            yield counter.gap(last + 1)
        if counter.upto > last:
            yield from counter.until(counter.upto, now)

    def _position(self) -> tuple[int, float]:
        """The newest row, and a time that none of the later ones comes before."""
        return self._writer.journal.newest, self._writer.clock.arrival()
