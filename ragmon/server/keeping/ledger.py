"""Where the server stands: everything that was counted up to a row of the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from ragmon.config.settings import Settings
from ragmon.core.constants import DEFAULT_PIPELINE, QUARANTINED
from ragmon.core.record import LABEL_ENTRY, RECORD_ENTRY, Entry, Forgotten, Quarantined, Record, Totals
from ragmon.export.state import Books, Captured, Reading
from ragmon.gates.diagnosis import said
from ragmon.journal import Failure
from ragmon.journal.attempts import Attempts, row_key
from ragmon.journal.failures import SLICES
from ragmon.metrics.facts import Key
from ragmon.monitor.engine import EDGES, Live
from ragmon.monitor.log import complain
from ragmon.server.keeping.clock import SLICE, Deadline
from ragmon.server.keeping.counts import FORGOTTEN, Counts, count
from ragmon.server.keeping.failing import Failed, Failing
from ragmon.server.keeping.producers import Producers

TRAITS: Final = "traits"
"""What is wrong with a request, in the words of an explanation."""
STAGE: Final = "ingest"
VERSION: Final = 1
"""Of what a checkpoint holds."""


class Ledger:
    """Scores, alarms and books.

    Args:
        settings: The configuration.
        edges: How many beginnings and ends of alarms are remembered; None for all.

    Attributes:
        live: Scores and alarms.
        counts: What came in.
        producers: What producers say of all their calls.
        seq: The last row of the journal that is counted.
        failures: Requests that fail a gate and are not in the index yet.
        attempts: Where it is noted which line is being scored; None where nobody starts again after a crash.
    """

    def __init__(self, settings: Settings, *, edges: int | None = EDGES) -> None:
        self.live = Live(settings, edges=edges)
        self.counts = Counts()
        self.producers = Producers()
        self.seq = 0
        self.failures: list[Failure] = []
        self._unscored = 0
        self.attempts: Attempts | None = None
        self._failing = Failing(self.live.scorer.table, self.live.policy)
        self.live.scorer.watch = self._failing

    @property
    def keeps_text(self) -> bool:
        """Whether what users wrote may be kept as it is."""
        return self.live.settings.common.capture.content == "full"

    def take(
        self,
        seq: int,
        arrival: float,
        counts: Counts,
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
        self.live.labels.book.forget(trace_ids)

    def advance(self, now: float) -> None:
        """Judge the minutes that ended; what goes wrong there costs no row that is on disk."""
        try:
            self.live.advance(now)
        except Exception as error:  # noqa: BLE001 - see above; whoever listens to the log may raise as well
            complain("minutes could not be judged", error)

    def _post(self, entry: Entry, arrival: float, seq: int, place: int) -> None:
        """Count a line."""
        if isinstance(entry, Forgotten):
            count(self.counts.ignored, FORGOTTEN, int(entry.was == RECORD_ENTRY))
        elif isinstance(entry, Quarantined):
            count(self.counts.dropped, QUARANTINED, int(entry.was == RECORD_ENTRY))
            count(self.counts.labels, QUARANTINED, int(entry.was == LABEL_ENTRY))
        elif not isinstance(entry, Totals):
            self.live.take(entry, arrival)
        elif self.live.report(entry, arrival):
            self.producers.see(entry, arrival)
        if found := self._failing.found:
            self._failing.found = []
            self.failures += (_failure(seq, place, failed) for failed in found)

    def books(self, pending: int) -> Books:
        """What came in and what became of it.

        Args:
            pending: Requests that wait for the rest of their spans.
        """
        counts, scorer = self.counts, self.live.scorer
        dropped = dict(counts.dropped)
        for reason, n in scorer.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + n
        return Books(
            counts.received,
            scorer.scored,
            ignored=dict(counts.ignored),
            dropped=dropped,
            duplicate=counts.duplicate,
            pending=pending + self._unscored,
        )

    def reading(self, now: float, pending: int) -> Reading:
        """This moment, for whoever exports it.

        Args:
            now: Seconds since the epoch.
            pending: Requests that wait for the rest of their spans.
        """
        captured = Captured(
            calls={key: n for key, n in self.producers.calls().items() if self.live.shows(key[0])},
            latency={key: held for key, held in self.producers.latency().items() if self.live.shows(key[0])},
            errors=self.live.errors,
            spans=dict(self.counts.spans),
            labels=dict(self.counts.labels),
        )
        return self.live.reading(now, {STAGE: self.books(pending)}, captured)

    def dump(self) -> bytes:
        """A checkpoint: no text, no sessions, no questions."""
        told = {"v": VERSION, "live": self.live.dump(), "counts": self.counts, "seq": self.seq}
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
        self.live.load(told["live"])
        self.counts = msgspec.convert(told["counts"], Counts)
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
    return said(key)
