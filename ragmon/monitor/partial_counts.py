"""Partial counts: what records add up to before an `Engine` of another process adds and judges them.

They are a function of the records, of their order and of the configuration: no clock, no chance, no earlier records.

Beside the counts goes a sample of whole records, so that single requests can be shown where others counted: some are
drawn, and some fail a gate. Those whose trace ids have the smallest hashes are kept, so samples add up as counts do.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from ragmon.alarms.pipelines import AlarmEngine
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.record import FAILING_ENTRY, SAMPLED_ENTRY, Label, Record, Totals, encode
from ragmon.export.families import budget
from ragmon.gates.request import Failed, FailureDetector
from ragmon.ingest.gold import GoldSet
from ragmon.scoring.buckets import State
from ragmon.scoring.cardinality import CODES, CardinalityLimiter
from ragmon.scoring.labels import without_text
from ragmon.scoring.minutes import HASH_DIGITS, Minute, rank
from ragmon.scoring.scorer import ScorerFactory, retention_of
from ragmon.scoring.snapshot import Exemplar, Exemplars

PER_GATE: Final = 8
"""Failing requests of a pipeline and metric that are kept."""
LARGEST: Final = 64 << 10
"""Bytes of a record in a sample; a larger one is in none."""
MOST_BYTES: Final = 256 << 10
"""Bytes of all records of a sample; those with larger hashes are left out beyond it."""
MAX_BUILDS: Final = 32
"""The latest builds, with their indexes, that are reported."""
_Kept = tuple[int, str, int, Record]
"""The hash of a record's trace id, the id, the number of the record, and the record."""


class RecordSample:
    """Keeps a sample of records; with `most` 0 it keeps nothing."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._drawn: list[_Kept] = []
        self._failing: dict[tuple[str, str], list[_Kept]] = {}
        self._seen = 0

    def see(self, record: Record, failed: Sequence[Failed] = ()) -> None:
        """Keep a record, as it came, with the gates that it fails, if its hash is among the smallest."""
        trace_id = record.trace_id
        if not self._most or not trace_id:
            return
        self._seen += 1
        kept = (rank(trace_id[-HASH_DIGITS:]), trace_id, self._seen, record)
        _keep(self._drawn, kept, self._most)
        for failure in failed:
            for metric in failure.scores:
                _keep(self._failing.setdefault((failure.pipeline, metric), []), kept, PER_GATE)

    def take(self) -> list[Record]:
        """The kept records, each marked as drawn or else as failing, within `LARGEST` and `MOST_BYTES`."""
        drawn, failing = self._drawn, self._failing
        self._drawn, self._failing, self._seen = [], {}, 0
        numbers = {number for _, _, number, _ in drawn}
        rest = {kept[:3]: kept[3] for found in failing.values() for kept in found if kept[2] not in numbers}
        marked = [replace(kept[3], kind=SAMPLED_ENTRY) for kept in drawn]
        marked += [replace(rest[key], kind=FAILING_ENTRY) for key in sorted(rest)]
        size, taken = 0, []
        for record in marked:
            length = len(encode(record))
            if length <= LARGEST:
                size += length
                if size > MOST_BYTES:
                    break
                taken.append(record)
        return taken


def _keep(found: list[_Kept], kept: _Kept, most: int) -> None:
    if len(found) < most or kept[:3] < found[-1][:3]:
        insort(found, kept, key=lambda entry: entry[:3])
        del found[most:]


class PartialCounts(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The counts of some records.

    Attributes:
        errors: Requests of users that ended in an error, by pipeline, source and type.
        builds: Pipeline, source, build and index of those that answered, the latest last.
        overflow: How often a name was counted as `__other__`, by kind.
    """

    state: State
    steps: list[tuple[str, Minute]] = []
    errors: list[tuple[tuple[str, str, str], int]] = []
    builds: list[tuple[str, str, str, str]] = []
    overflow: dict[str, int] = {}
    exemplars: list[tuple[tuple[str, str], Exemplar]] = []
    totals: list[Totals] = []
    last_scored: float | None = None


class PartialCounter:
    """Counts records; names above the limits of cardinality are counted as `__other__`, so that its size is bounded.

    So many whole records are drawn as `samples` says; with 0 those that fail a gate are not kept either.
    """

    def __init__(self, settings: Settings, gold: Sequence[GoldSet], samples: int = 0) -> None:
        self._settings, self._budget = settings, budget(settings)
        self._now = 0.0
        plan = ScorerFactory(settings, tuple(gold))
        table = plan.table()
        self._minutes = AlarmEngine(settings, table).steps
        self._failing = FailureDetector(table, partial(settings.policy, live=True)) if samples else None
        self._sample = RecordSample(samples)
        self._scorer = plan(
            state=State(retention=retention_of(self._settings), is_live=True),
            clock=lambda: self._now,
            table=table,
            observers=[self._minutes] if self._failing is None else [self._minutes, self._failing],
            ages_by_clock=True,
        )
        self._labels: list[Label] = []
        self._begin()

    def _begin(self) -> None:
        self._limiter = CardinalityLimiter(self._settings.expected_pipelines, self._budget)
        self._errors: Counter[tuple[str, str, str]] = Counter()
        self._builds: dict[tuple[str, str, str, str], None] = {}
        self._exemplars = Exemplars()
        self._totals: dict[tuple[object, ...], Totals] = {}
        self._last_scored: float | None = None

    def observe(self, record: Record, now: float) -> bool:
        """Count a record."""
        self._now = now
        whole = record
        try:
            record = self._limiter.record(record, now)
            for retired in self._limiter.retired:
                self._scorer.state.retire(*retired)
                self._scorer.forget_streams()
            self._limiter.retired.clear()
            scored = self._scorer.observe(record)
        except Exception as error:  # noqa: BLE001 - a metric is third-party code and may raise anything
            return self._scorer.drop_failed(error)
        if not scored:
            return False
        if self._failing is not None:
            self._sample.see(whole, self._failing.take())
        self._last_scored = now
        self._exemplars.see(record, now)
        pipeline, source = record.pipeline or constants.DEFAULT_PIPELINE, record.source or constants.REPLAY
        if record.build or record.index_hash:
            key = (pipeline, source, record.build or "", record.index_hash or "")
            self._builds.pop(key, None)
            self._builds[key] = None
            if len(self._builds) > MAX_BUILDS:
                del self._builds[next(iter(self._builds))]
        if record.error is not None and source not in (constants.PROBE, constants.LABEL):
            known = (pipeline, source, record.error) in self._errors
            code = record.error if known or len(self._errors) < CODES else constants.OTHER
            self._errors[pipeline, source, code] += 1
        return True

    def report(self, line: Totals, now: float) -> None:
        """Keep the totals of a producer; of several in a step the last ones are kept, because counts only grow."""
        if not self._limiter.totals(line, now):
            return
        step = int(line.ts) // constants.BUCKET_SECONDS
        key = (line.instance, line.started, line.pipeline, line.source, line.stratum, step)
        known = self._totals.get(key)
        if known is None or line.calls >= known.calls:
            self._totals[key] = line

    def label(self, label: Label, now: float) -> None:
        """Pass a label on, with its answer where that is known: who adds counts up joins labels."""
        answer = None if label.answer is None else without_text(label.answer, self._scorer)
        self._labels.append(replace(label, answer=answer, arrived=now))

    def take_lines(self) -> list[Label | Record]:
        """Hand out the labels since the last time, in the order in which they arrived, and a sample of the records."""
        labels, self._labels = self._labels, []
        return [*labels, *self._sample.take()]

    def take(self) -> PartialCounts:
        """Hand out everything counted since the last time; parts of it are not copied."""
        scorer = self._scorer
        counts = PartialCounts(
            state=scorer.state,
            steps=self._minutes.take(),
            errors=list(self._errors.items()),
            builds=list(self._builds),
            overflow=self._limiter.state.overflow,
            exemplars=list(self._exemplars.newest().items()),
            totals=list(self._totals.values()),
            last_scored=self._last_scored,
        )
        scorer.restore(State())
        self._begin()
        return counts
