"""Which requests fail a gate: what somebody will want to open at three in the morning.

What producers say of all their calls, beside what weighs in windows: losses, latency, and what they sent.

Where the server stands: everything that was counted up to a row of the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from ragmon import stats
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import DEFAULT_PIPELINE, QUARANTINED
from ragmon.core.policy import Policy
from ragmon.core.record import LABEL_ENTRY, RECORD_ENTRY, Entry, QuarantineEntry, Record, Tombstone, Totals
from ragmon.export.state import MonitorSnapshot, SdkStats, StageCounters
from ragmon.gates.diagnosis import traits_of
from ragmon.metrics.facts import Key
from ragmon.monitor.engine import EDGES, Engine
from ragmon.monitor.log import complain
from ragmon.scoring.counts import add_counts
from ragmon.scoring.score_table import ScoreTable
from ragmon.server.journal import Failure
from ragmon.server.journal.failures import SLICES
from ragmon.server.journal.quarantine import Attempts, row_key
from ragmon.server.pipeline.clock import SLICE, Deadline
from ragmon.server.pipeline.decode import FORGOTTEN, BatchCounts, count

MEMORY: Final = 16_384
"""Facts whose verdict is remembered."""


class Failed(NamedTuple):
    """A request that fails.

    Attributes:
        pipeline, source: Where it was counted.
        record: The request.
        key: Its facts.
        scores: What the metrics say that fail it, by metric.
    """

    pipeline: str
    source: str
    record: Record
    key: Key
    scores: dict[str, float]
    slices: Sequence[str]


class FailureDetector:
    """Finds the requests that alone would not keep a gate's threshold.

    Args:
        table: The metrics.
        policy: The gates of a pipeline.

    Attributes:
        found: Those found since somebody took them away.
    """

    def __init__(self, table: ScoreTable, policy: Callable[[str], Policy]) -> None:
        self.found: list[Failed] = []
        self._table = table
        self._policy = policy
        self._places = {name: place for place, name in enumerate(table.metrics)}
        self._known: dict[tuple[str, str, Key], dict[str, float]] = {}
        self._gates: dict[tuple[str, str], list[tuple[str, int, bool, float]]] = {}

    def __call__(  # what a scorer knows of a request
        self,
        pipeline: str,
        source: str,
        record: Record,
        key: Key,
        measured: Mapping[str, int],
        slices: Sequence[str],
    ) -> None:
        """Look at a request that was counted; one that counts as user traffic and as a gold draw is found once."""
        failed = self._known.get((pipeline, source, key))
        if failed is None or measured:
            failed = self._judge(pipeline, source, key, measured)
        if failed and self.found and self.found[-1].record is record:
            self.found[-1] = Failed(pipeline, source, record, key, {**self.found[-1].scores, **failed}, slices)
        elif failed:
            self.found.append(Failed(pipeline, source, record, key, failed, slices))

    def _judge(self, pipeline: str, source: str, key: Key, measured: Mapping[str, int]) -> dict[str, float]:
        """What fails a request; of facts alone it is remembered, since many requests have the same."""
        gates = self._gates.get((pipeline, source))
        if gates is None:
            gates = self._gates[pipeline, source] = self._of(pipeline, source)
        scores = self._table.scores(key)
        failed: dict[str, float] = {}
        for metric, place, at_least, threshold in gates:
            score = scores[place]
            if isinstance(score, int) and self._table.metrics[metric].measured:
                score = measured.get(metric)
            if isinstance(score, int) and (score < threshold if at_least else score > threshold):
                failed[metric] = score / stats.MICRO
        if not measured:
            if len(self._known) >= MEMORY:
                self._known.clear()
            self._known[pipeline, source, key] = failed
        return failed

    def _of(self, pipeline: str, source: str) -> list[tuple[str, int, bool, float]]:
        """The gates a request is held against, one for each metric and direction; thresholds in micro-units."""
        told = [
            (gate.metric, self._places[gate.metric], gate.at_least, gate.threshold * stats.MICRO)
            for gate in self._policy(pipeline).gates
            if gate.kind == "threshold" and gate.metric in self._places and gate.source in (None, source)
        ]
        return sorted(set(told))


SILENT: Final = 86_400.0
"""Seconds after which a producer that says nothing may be gone."""
MOST: Final = 20_000
"""Series beyond which those that may be gone are added up: should one of them come back, it would count twice."""
GONE: Final = "gone"
_REASONS: Final = frozenset(value for value in vars(constants).values() if isinstance(value, str))
"""Reasons for losses are among the names that everything is called by."""


class ProducerSeries(NamedTuple):
    """Of what a producer counts."""

    instance: str
    started: float
    pipeline: str
    source: str
    stratum: str


class LastTotals(msgspec.Struct):
    """What a producer said last.

    Attributes:
        at: When that came, seconds since the epoch.
        calls: Calls in all.
        kept: Those of them that became records.
        dropped: Records it lost, by reason.
        latency: Calls in log buckets of milliseconds.
    """

    at: float
    calls: int
    kept: int
    dropped: dict[str, int]
    latency: dict[int, int]


class ProducerTotals:
    """The last word of every producer."""

    def __init__(self) -> None:
        self._last: dict[ProducerSeries, LastTotals] = {}
        self._due = 0.0

    def see(self, line: Totals, now: float) -> None:
        """Take in what a producer says; counts only grow, so of two words the larger one is the later.

        Args:
            line: What it says; its own clock may be wrong.
            now: When that came, seconds since the epoch.
        """
        key = ProducerSeries(line.instance, line.started, line.pipeline, line.source, line.stratum)
        held = self._last.get(key)
        if held is None or line.calls >= held.calls:
            self._last[key] = LastTotals(now, line.calls, line.kept, _known(line.dropped), line.latency_ms)
        if len(self._last) > MOST and now > self._due:
            self._bury(now - SILENT)
            self._due = now + SILENT / 24

    def _bury(self, before: float) -> None:
        for key in [key for key, last in self._last.items() if last.at < before and key.instance != GONE]:
            last = self._last.pop(key)
            sum_of = self._last.setdefault(key._replace(instance=GONE, started=0.0), LastTotals(0.0, 0, 0, {}, {}))
            sum_of.calls += last.calls
            sum_of.kept += last.kept
            add_counts(sum_of.dropped, last.dropped)
            add_counts(sum_of.latency, last.latency)

    def calls(self) -> dict[tuple[str, str, str], int]:
        """All calls by pipeline, source and stratum."""
        found: Counter[tuple[str, str, str]] = Counter()
        for key, last in self:
            found[key.pipeline, key.source, key.stratum] += last.calls
        return dict(found)

    def latency(self) -> dict[tuple[str, str], dict[int, int]]:
        """Calls in log buckets of milliseconds, by pipeline and source."""
        found: dict[tuple[str, str], dict[int, int]] = {}
        for key, last in self:
            if last.latency:
                add_counts(found.setdefault((key.pipeline, key.source), {}), last.latency)
        return found

    def dropped(self) -> Counter[str]:
        """Records that producers lost and know of, by reason."""
        found: Counter[str] = Counter()
        for _, last in self:
            for reason, n in last.dropped.items():
                found[reason] += n
        return found

    def missing(self, came: int) -> int:
        """Records that producers sent, did not lose, and that have not come; what is on its way counts among them.

        Args:
            came: Whole records that came.
        """
        kept = sum(last.kept for _, last in self)
        return max(0, kept - self.dropped().total() - came)

    def __iter__(self) -> Iterator[tuple[ProducerSeries, LastTotals]]:
        return iter(self._last.items())

    def dump(self) -> list[Any]:
        """Plain data."""
        return [[list(key), last] for key, last in self._last.items()]

    def load(self, data: Any) -> None:
        """Go on from what `dump` wrote."""
        told = msgspec.convert(data, list[tuple[ProducerSeries, LastTotals]], strict=False)
        self._last = dict(told)


def _known(dropped: Mapping[str, int]) -> dict[str, int]:
    """Losses by the reasons there are; what a producer calls otherwise is another."""
    found: dict[str, int] = {}
    for reason, n in dropped.items():
        known = reason if reason in _REASONS else constants.OTHER
        found[known] = found.get(known, 0) + n
    return found


TRAITS: Final = "traits"
"""What is wrong with a request, in the words of an explanation."""
STAGE: Final = "ingest"
VERSION: Final = 1
"""Of what a checkpoint holds."""


class ServerState:
    """Scores, alarms and books.

    Args:
        settings: The configuration.
        edges: How many beginnings and ends of alarms are remembered; None for all.

    Attributes:
        engine: Scores and alarms.
        counts: What came in.
        producers: What producers say of all their calls.
        seq: The last row of the journal that is counted.
        failures: Requests that fail a gate and are not in the index yet.
        attempts: Where it is noted which line is being scored; None where nobody starts again after a crash.
    """

    def __init__(self, settings: Settings, *, edges: int | None = EDGES) -> None:
        self.engine = Engine(settings, edges=edges)
        self.counts = BatchCounts()
        self.producers = ProducerTotals()
        self.seq = 0
        self.failures: list[Failure] = []
        self._unscored = 0
        self.attempts: Attempts | None = None
        self._failing = FailureDetector(self.engine.scorer.table, self.engine.policy)
        self.engine.scorer.watch = self._failing

    @property
    def keeps_text(self) -> bool:
        """Whether what users wrote may be kept as it is."""
        return self.engine.settings.common.capture.content == "full"

    def take(
        self,
        seq: int,
        arrival: float,
        counts: BatchCounts,
        entries: Sequence[Entry],
        forgotten: Iterable[str] = (),
        pause: Callable[[], object] | None = None,
    ) -> None:
        """Take in a row of the journal.

        Args:
            seq: Its number.
            arrival: When it came, seconds since the epoch.
            counts: What became of what came with it.
            entries: Its lines.
            forgotten: Traces that somebody had forgotten before it came, in lower case.
            pause: Lets others read in the middle of a long row; its records that are not counted yet are pending.
        """
        self.forget(forgotten)
        self.counts.add(counts)
        self.advance(arrival)
        if self.attempts is None or not entries:
            self._post_all(entries, arrival, seq, pause)
        else:
            with self.attempts.attempt(row_key(seq, arrival)):
                self._post_all(entries, arrival, seq, pause)
        self.seq = seq

    def _post_all(self, entries: Sequence[Entry], arrival: float, seq: int, pause: Callable[[], object] | None) -> None:
        """Count the lines of a row."""
        turn = Deadline(SLICE)
        for place, entry in enumerate(entries):
            if pause is not None and turn.passed:
                self._unscored = sum(isinstance(left, Record) for left in entries[place:])
                pause()
                self._unscored = 0
                turn = Deadline(SLICE)
            if self.attempts is not None:
                self.attempts.at(place)
            try:
                self._post(entry, arrival, seq, place)
            except Exception as error:  # noqa: BLE001 - one bad line spoils no other, here and in every replay
                complain("a line of the journal could not be counted", error)

    def forget(self, trace_ids: Iterable[str]) -> None:
        """Forget what people said of traces, in lower case; counts stay."""
        self.engine.labels.book.forget(trace_ids)

    def advance(self, now: float) -> None:
        """Judge the minutes that ended; what goes wrong there costs no row that is on disk."""
        try:
            self.engine.advance(now)
        except Exception as error:  # noqa: BLE001 - see above; whoever listens to the log may raise as well
            complain("minutes could not be judged", error)

    def _post(self, entry: Entry, arrival: float, seq: int, place: int) -> None:
        """Count a line."""
        if isinstance(entry, Tombstone):
            count(self.counts.ignored, FORGOTTEN, int(entry.was == RECORD_ENTRY))
        elif isinstance(entry, QuarantineEntry):
            count(self.counts.dropped, QUARANTINED, int(entry.was == RECORD_ENTRY))
            count(self.counts.labels, QUARANTINED, int(entry.was == LABEL_ENTRY))
        elif not isinstance(entry, Totals):
            self.engine.take(entry, arrival)
        elif self.engine.report(entry, arrival):
            self.producers.see(entry, arrival)
        if found := self._failing.found:
            self._failing.found = []
            self.failures += (_failure(seq, place, failed) for failed in found)

    def books(self, pending: int) -> StageCounters:
        """What came in and what became of it.

        Args:
            pending: Requests that wait for the rest of their spans.
        """
        counts, scorer = self.counts, self.engine.scorer
        dropped = dict(counts.dropped)
        for reason, n in scorer.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + n
        return StageCounters(
            counts.received,
            scorer.scored,
            ignored=dict(counts.ignored),
            dropped=dropped,
            duplicate=counts.duplicate,
            pending=pending + self._unscored,
        )

    def reading(self, now: float, pending: int) -> MonitorSnapshot:
        """This moment, for whoever exports it.

        Args:
            now: Seconds since the epoch.
            pending: Requests that wait for the rest of their spans.
        """
        captured = SdkStats(
            calls={key: n for key, n in self.producers.calls().items() if self.engine.shows(key[0])},
            latency={key: held for key, held in self.producers.latency().items() if self.engine.shows(key[0])},
            errors=self.engine.errors,
            spans=dict(self.counts.spans),
            labels=dict(self.counts.labels),
        )
        return self.engine.reading(now, {STAGE: self.books(pending)}, captured)

    def dump(self) -> bytes:
        """A checkpoint: no text, no sessions, no questions."""
        told = {"v": VERSION, "live": self.engine.dump(), "counts": self.counts, "seq": self.seq}
        told["producers"] = self.producers.dump()
        return msgspec.json.encode(told)

    def load(self, data: bytes) -> None:
        """Go on from a checkpoint.

        Raises:
            ValueError: It is of another version.
        """
        told: dict[str, Any] = msgspec.json.decode(data)
        if told["v"] != VERSION:
            raise ValueError(f"a checkpoint of version {told['v']}")
        self.engine.load(told["live"])
        self.counts = msgspec.convert(told["counts"], BatchCounts)
        self.producers.load(told["producers"])
        self.seq = told["seq"]


def _failure(seq: int, place: int, failed: Failed) -> Failure:
    record = failed.record
    return Failure(
        seq=seq,
        place=place,
        ts=record.ts or 0.0,
        pipeline=record.pipeline or DEFAULT_PIPELINE,
        source=failed.source,
        trace_id=record.trace_id,
        build=record.build,
        index_hash=record.index_hash,
        scores=failed.scores,
        facts={TRAITS: _traits(failed.key), **({SLICES: failed.slices} if failed.slices else {})},
    )


@lru_cache(maxsize=4096)
def _traits(key: Key) -> tuple[str, ...]:
    """What is wrong with requests of these facts: many fail alike."""
    return traits_of(key)
