"""The server state: everything that was counted up to a row of the journal, its clock, recovery and replay.

The state holds scores, alarms, counts, what producers report, and the requests that fail a gate, so that their traces
can be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace as replaced
from functools import lru_cache, partial
from time import CLOCK_BOOTTIME, clock_gettime, time
from typing import Final

import msgspec
from msgspec.structs import replace

from ragmon.config.settings import Settings
from ragmon.core.constants import QUARANTINED
from ragmon.core.errors import log_error
from ragmon.core.process import Deadline
from ragmon.core.record import (
    LABEL_ENTRY,
    RECORD_ENTRY,
    SAMPLES,
    Ack,
    ChunkEntry,
    Entry,
    ErasedTraces,
    Label,
    QuarantineEntry,
    Record,
    Tombstone,
    Totals,
    decode_entry,
)
from ragmon.export.status import MonitorSnapshot, SdkStats, StageCounters
from ragmon.gates.request import FailureDetector
from ragmon.gates.suspects import traits_of
from ragmon.metrics.facts import VERSION
from ragmon.monitor.engine import MAX_TRANSITIONS, Engine, EngineState, log_acknowledged
from ragmon.monitor.producers import ProducerTotals
from ragmon.scoring.buckets import DIGEST, State
from ragmon.scoring.labels import FinalLabels, LabelObserver
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.scorer import Scorer, ScorerFactory
from ragmon.server.process import Attempts, row_key
from ragmon.server.store import Checkpoint, Failure, JournalReaderBase, JournalRow, translate_read_errors
from ragmon.stream.chunk import ERASED, AdderState, BatchCounts, Chunk, ChunkAdder, ChunkError, count

JUMP: Final = 2.0
"""Seconds by which the system clock may differ from the elapsed time before this counts as a jump."""
BELIEVED: Final = 60.0
"""Seconds after which a jump that persists is accepted: the clock was corrected."""
CALM: Final = 900.0
"""Seconds after a jump in which no data is deleted for its age: the jump may be undone."""
SLICE: Final = 0.05
"""Seconds of CPU that the writer thread may work before it lets other threads run."""
_elapsed: Final = partial(clock_gettime, CLOCK_BOOTTIME)
"""Elapsed seconds, including time in which the machine sleeps."""
STAGE: Final = "ingest"
_ACK: Final = b'{"kind":"ack"'
"""With what an acknowledgement begins in the topic of chunks; a chunk is compressed."""
_encode: Final = msgspec.msgpack.Encoder().encode
_traits: Final = lru_cache(maxsize=4096)(traits_of)
"""Cached, as many failures share their facts."""


class Clock:
    """The clock of the server.

    >>> clock = Clock(wall=lambda: 100.0, passed=lambda: 5.0)
    >>> clock.go_on_from(130.0)
    >>> clock.now(), clock.arrival()
    (100.0, 130.0)
    """

    def __init__(self, wall: Callable[[], float] = time, passed: Callable[[], float] = _elapsed) -> None:
        self.jumps = 0
        self._wall = wall
        self._elapsed = passed
        self._reference = (wall(), passed())
        self._jump: tuple[float, float] | None = None
        self._calm_at = 0.0
        self._arrival = self._reference

    def go_on_from(self, last: float) -> None:
        """Start arrival times no earlier than the last arrival before this process started."""
        self._arrival = (max(last, self._arrival[0]), self._arrival[1])

    def now(self) -> float:
        """The time in seconds since the epoch; a jump of the system clock is not followed at once."""
        wall, passed = self._wall(), self._elapsed()
        expected = self._reference[0] + passed - self._reference[1]
        drift = wall - expected
        if abs(drift) <= JUMP:
            self._reference, self._jump = (wall, passed), None
            return wall
        if self._jump is None or abs(drift - self._jump[0]) > JUMP:
            self.jumps += 1
            self._jump = (drift, passed)
            self._calm_at = passed + CALM
        elif passed - self._jump[1] >= BELIEVED:
            self._reference, self._jump = (wall, passed), None
            return wall
        return expected

    @property
    def calm(self) -> bool:
        """Whether the system clock has not jumped recently."""
        self.now()
        return self._elapsed() >= self._calm_at

    def arrival(self) -> float:
        """The arrival time of new data; never goes back, and runs at half speed while it is ahead of the clock."""
        now, (last_arrival, elapsed_then) = self.now(), self._arrival
        elapsed_now = self._elapsed()
        self._arrival = (max(now, last_arrival + (elapsed_now - elapsed_then) / 2), elapsed_now)
        return self._arrival[0]


class CheckpointVersion(msgspec.Struct, frozen=True):
    """The versions of a checkpoint: that of its form, that of the facts that were counted, and that of the digest."""

    v: int
    facts: int
    digest: int


CURRENT: Final = CheckpointVersion(1, VERSION, DIGEST)
"""The versions of the checkpoints that are written and read."""


class SavedServerState(msgspec.Struct):
    """A checkpoint."""

    version: CheckpointVersion
    engine: EngineState
    counts: BatchCounts
    seq: int
    producers: ProducerTotals
    chunks: AdderState | None


class _Head(msgspec.Struct):
    version: CheckpointVersion


_decode: Final = msgspec.msgpack.Decoder(SavedServerState).decode
_decode_head: Final = msgspec.msgpack.Decoder(_Head).decode


class ServerState:
    """Scores, alarms and counts.

    Attributes:
        failures: Requests that fail a gate and are not indexed yet.
        adder: Adds up the counts of workers; None where this server counts for itself.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        edges: int | None = MAX_TRANSITIONS,
        attempts: Attempts | None = None,
        label_observer: LabelObserver | None = None,
    ) -> None:
        table = ScoreTable(settings.build_metrics())
        self._failing = FailureDetector(table, partial(settings.policy, live=True))
        self.engine = Engine(
            settings,
            max_transitions=edges,
            table=table,
            observers=[self._failing],
            label_observer=label_observer,
            logs_capture=attempts is not None,
        )
        self.counts = BatchCounts()
        self.producers = ProducerTotals()
        self.seq = 0
        self.failures: list[Failure] = []
        self.adder: ChunkAdder | None = None
        if settings.serve.reads_stream:
            patience = settings.stream.patience
            awaited = (settings.stream.spans, settings.stream.metrics)
            self.adder = ChunkAdder(None if patience is None else float(patience), awaited)
        self._added_before: AdderState | None = None  # kept where a server counts for itself for a while
        self._unscored = 0
        self._attempts = attempts
        self._adds_lines = False
        self._sampled: Scorer | None = None

    @property
    def keeps_text(self) -> bool:
        """Whether users' text may be stored unchanged."""
        return self.engine.settings.unconfigured.capture.content == "full"

    def apply(
        self,
        seq: int,
        arrival: float,
        counts: BatchCounts,
        entries: Sequence[Entry],
        forgotten: Iterable[str] = (),
        pause: Callable[[], object] | None = None,
    ) -> None:
        """Count a row of the journal."""
        self.erase(forgotten)
        self.counts.add(counts)
        self.advance(arrival)
        attempts = self._attempts if entries else None
        with nullcontext() if attempts is None else attempts.attempt(row_key(seq, arrival)):
            slice_end = Deadline(SLICE)
            for line, entry in enumerate(entries):
                if pause is not None and slice_end.passed:
                    self._unscored = sum(isinstance(rest, Record) for rest in entries[line:])
                    pause()
                    self._unscored = 0
                    slice_end = Deadline(SLICE)
                if attempts is not None:
                    attempts.at(line)
                try:
                    self._apply(entry, arrival, seq, line)
                except Exception as error:  # noqa: BLE001 - one bad line must not affect others, here and in replay
                    log_error("a line of the journal could not be counted", error)
                    if not isinstance(error, ChunkError):  # nothing of a refused chunk was added
                        self.engine.failed = error
        self.seq = seq

    def erase(self, trace_ids: Iterable[str]) -> None:
        """Remove the ratings of erased traces, given in lower case, and examples of ids; counts stay."""
        if erased := list(trace_ids):
            self.engine.labels.store.erase(erased)
            self.engine.scorer.state.captured.forget_examples()

    def advance(self, now: float) -> None:
        """Evaluate alarms for the minutes that ended; an error there loses no row that is on disk."""
        try:
            time = self._time(now)
            for ack in [] if self.adder is None else self.adder.due_acks(time):
                self.engine.apply(ack, ack.at or time)
                if self._attempts is not None:
                    log_acknowledged(ack)
            self.engine.advance(time)
        except Exception as error:  # noqa: BLE001 - see above; a log handler may raise as well
            log_error("minutes could not be judged", error)
            self.engine.failed = error

    def _time(self, now: float) -> float:
        """Until when everything that arrived was counted: where others count, when all of them had spoken."""
        return now if self.adder is None else self.adder.watermark(now)

    def _apply(self, entry: Entry, arrival: float, seq: int, line: int) -> None:
        if isinstance(entry, Tombstone):
            count(self.counts.ignored, ERASED, int(entry.was == RECORD_ENTRY))
        elif isinstance(entry, QuarantineEntry):
            count(self.counts.dropped, QUARANTINED, int(entry.was == RECORD_ENTRY))
            count(self.counts.labels, QUARANTINED, int(entry.was == LABEL_ENTRY))
        elif isinstance(entry, ChunkEntry):
            self._adds_lines = False
            self._adds_lines = self._add_chunk(entry)
        elif isinstance(entry, ErasedTraces):
            self.erase(entry.trace_ids)
        elif isinstance(entry, Label) and entry.arrived is not None:  # of a chunk, as the sampled records
            if self._adds_lines:
                self.engine.add_label(entry)
        elif isinstance(entry, Record) and entry.kind in SAMPLES:
            if self._adds_lines:
                # Find the gates that a record fails that was counted elsewhere; it is not counted again.
                if self._sampled is None:
                    factory = ScorerFactory(self.engine.settings, tuple(self.engine.scorer.gold.sets))
                    self._sampled = factory(table=self.engine.scorer.table, observers=[self._failing])
                self._sampled.observe(self.engine.with_label_names(replace(entry, kind=None)))
                self._sampled.restore(State())
        elif not isinstance(entry, Totals):
            self.engine.apply(entry, self._time(arrival))
        elif self.engine.report(entry, arrival):
            self.producers.see(entry, arrival)
        for failed in self._failing.take():
            traits = _traits(failed.key)
            failure = Failure.of(failed.record, failed.source, failed.scores, traits, failed.slices, seq, line)
            self.failures.append(failure)

    def _add_chunk(self, entry: ChunkEntry) -> bool:
        """Add the counts of another process if they are new; a refused chunk is noted, and comes again."""
        if self.adder is None:
            return False
        self.adder.read(entry.log, entry.partition, entry.offset + 1)
        if entry.body.startswith(_ACK):
            self.adder.hear(msgspec.json.decode(entry.body, type=Ack))
            return False
        try:
            chunk = Chunk.load(entry.body)
        except ChunkError as error:
            self.adder.damaged(str(error))
            raise
        is_new = self.adder.take(chunk)
        if is_new:
            self.counts.add(chunk.arrived)
            for line in self.engine.add(chunk.counts, chunk.now):
                self.producers.see(line, chunk.now)
        return is_new

    def counters(self, pending: int) -> StageCounters:
        """The counters of the ingest stage."""
        counts, scorer = self.counts, self.engine.scorer
        dropped = dict(counts.dropped)
        for reason, n in scorer.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + n
        counters = StageCounters(
            counts.received,
            scorer.scored,
            ignored=dict(counts.ignored),
            dropped=dropped,
            duplicate=counts.duplicate,
            pending=pending + self._unscored,
        )
        # What others received and have not counted waits there; whether their books close is for them to say.
        return counters if self.adder is None else replaced(counters, pending=max(0, counters.residual))

    def monitor_snapshot(self, now: float, pending: int) -> MonitorSnapshot:
        """A snapshot for exporters."""
        captured = SdkStats(
            calls={key: n for key, n in self.producers.calls().items() if self.engine.shows(key[0])},
            latency={
                key: histogram for key, histogram in self.producers.latency().items() if self.engine.shows(key[0])
            },
            errors=self.engine.errors,
            spans=dict(self.counts.spans),
            labels=dict(self.counts.labels),
        )
        return self.engine.monitor_snapshot(now, {STAGE: self.counters(pending)}, captured)

    def dump(self) -> bytes:
        """A checkpoint; it holds no text, session or question."""
        chunks = self._added_before if self.adder is None else self.adder.state
        return _encode(SavedServerState(CURRENT, self.engine.dump(), self.counts, self.seq, self.producers, chunks))

    def continue_from(self, previous: ServerState, data: bytes) -> None:
        """Continue with the counts and the unsaved failures of a state of another configuration."""
        self.load(data)
        self.failures, self._attempts = previous.failures, previous._attempts
        self.engine.continue_capture_log(previous.engine)

    def load(self, data: bytes) -> None:
        """Go on from a checkpoint."""
        version = _decode_head(data).version
        if version != CURRENT:
            raise ValueError(f"{version}, in place of {CURRENT}")
        checkpoint = _decode(data)
        self.engine.restore(checkpoint.engine)
        self.counts = checkpoint.counts
        self.producers = checkpoint.producers
        self.seq = checkpoint.seq
        self._added_before = checkpoint.chunks
        if self.adder is not None and checkpoint.chunks is not None:
            self.adder.state = checkpoint.chunks


def recover(settings: Settings, journal: JournalReaderBase, attempts: Attempts | None = None) -> ServerState:
    """The server state after every row of a journal, starting from the newest checkpoint.

    If that has another version, of what it is, of the facts or of the digest, all rows that are kept are counted anew.
    """
    empty_state = partial(ServerState, settings, attempts=attempts)
    server_state = _from_checkpoint(empty_state, [journal.checkpoint(), journal.base()])
    for row in journal.rows(after=server_state.seq):
        _apply_row(server_state, row, journal)
    server_state.engine.failed = None  # what fails here fails in every replay
    return server_state


def replay(settings: Settings, journal: JournalReaderBase, labels: FinalLabels | None = None) -> ServerState:
    """Score every row of a journal again, as the server did: the same counts and alarms, to the last bit."""
    label_observer = None if labels is None else labels.add
    empty_state = partial(ServerState, settings, edges=None, label_observer=label_observer)
    server_state = _from_checkpoint(empty_state, [journal.base()])
    for row in journal.rows(after=server_state.seq):
        _apply_row(server_state, row, journal)
        server_state.failures.clear()
    server_state.engine.advance(float("inf"))
    if labels is not None:
        labels.rename(server_state.engine.with_label_names)
    return server_state


def _apply_row(server_state: ServerState, row: JournalRow, journal: JournalReaderBase) -> None:
    with translate_read_errors(journal.path):
        counts = BatchCounts.load(row.counts)
        decoded = entries(row.lines)
    server_state.apply(row.seq, row.arrival, counts, decoded)


def _from_checkpoint(empty_state: Callable[[], ServerState], checkpoints: Iterable[Checkpoint | None]) -> ServerState:
    for checkpoint in checkpoints:
        if checkpoint is None:
            continue
        server_state = empty_state()
        try:
            server_state.load(checkpoint.data)
        except (ValueError, LookupError, TypeError, AttributeError, msgspec.MsgspecError) as error:
            log_error("a checkpoint cannot be read and is skipped", error)
            continue
        return server_state
    return empty_state()


def entries(lines: bytes) -> list[Entry]:
    """Decode the lines of a row; the answer that only the first of several labels stores is set on all of them."""
    decoded = [decode_entry(line) for line in lines.split(b"\n") if line]
    answers: dict[str, Record] = {}
    for entry in decoded:
        if isinstance(entry, Label):
            if entry.answer is not None:
                answers[entry.trace_id] = entry.answer
            entry.answer = answers.get(entry.trace_id)
    return decoded
