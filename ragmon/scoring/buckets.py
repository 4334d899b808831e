"""The state: buckets of counts by series and time step, gold items beside them, all calls, and labels by hour.

This is the only accumulator, and it is saved and sent as it is. Everything is addition of integers, so states merge in
any order, on any machine, to the same bits. Time is the records' own time; the caller passes `now`.

A producer says how many calls it has counted since it started. What is kept of each producer only serves to tell how
many more calls a report makes, and when; windows are read from sums over all producers. What a producer had counted
before its first report lies in the windows within which the producer started.

A label comes days after its answer. It is compared with the proxies of all answers of its own hour and judge version,
so that neither a change of the judge nor of the traffic comes between them (`ragmon.scoring.labels` estimates).
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ragmon.core.constants import (
    ALSO_LIVE_SOURCES,
    BUCKET_SECONDS,
    DROPPED_PIPELINES,
    FOLDED_SECONDS,
    FRESH,
    HOUR,
    JUDGE_PREFIX,
    LIVE,
    OTHER,
    UNKNOWN_WEIGHT,
)
from ragmon.core.record import Totals
from ragmon.core.sampling import calls_per_record
from ragmon.metrics.builtin import AnswerCorrect
from ragmon.metrics.facts import (
    CITED_OTHERWISE,
    USUAL,
    CitationCounts,
    CitationForm,
    Key,
    all_read_as,
    read_as,
)
from ragmon.scoring.captured import CapturedTable
from ragmon.scoring.ratings import TTL
from ragmon.stats.histograms import Sums, add_counts, add_sums

T = TypeVar("T")
UNTIMED: Final = -1  # the step and the hour of records without a time: they are in the totals, but in no window


def step_of(ts: float | None) -> int:
    """The start of the step of an event time; `UNTIMED` without a time."""
    return UNTIMED if ts is None else int(ts) // BUCKET_SECONDS * BUCKET_SECONDS


def slot(step: int) -> int:
    """The start of the five minutes that a step belongs to."""
    return step // FOLDED_SECONDS * FOLDED_SECONDS


def hour_of(ts: float | None) -> int:
    """The hour of an event time since the epoch; `UNTIMED` without a time."""
    return UNTIMED if ts is None else int(ts) // HOUR


CELLS: Final = 4096
"""Distinct facts that a bucket keeps, those with the smallest hashes; the sums of the others go into the spill."""
ALONE: Final = -1  # stands for the group of requests of which each is a cluster of its own
MODEL_SLICE: Final = "(model)="
"""The start of the slices by model that are counted for `why` alone: no tag has such a name. They are not exported."""
DIGEST: Final = 3  # the version of the digest: it changes when the same counts get another one
_KNOWN_FACTS: Final = 16_384

Groups = dict[int, int]  # requests by the random group of their cluster
Table = dict[str, dict[Key, int]]  # requests by gold item and facts
Rename = Callable[[str, str, str, str], tuple[str, str, str]]
"""Gets pipeline, source, build and index; gives pipeline, build and index as they are counted."""


class SeriesKey(NamedTuple):
    """The key of a series. Buckets of different keys are added only where a reader does so explicitly."""

    pipeline: str
    source: str
    gold: str = ""
    gold_version: str = ""
    slice: str = ""
    audit: bool = True
    stratum: str = "rest"
    build: str = ""
    index_hash: str = ""

    @property
    def drawn(self) -> bool:
        """Whether its records were kept by the uniform sampler, at a known rate."""
        return self.audit and self.stratum != UNKNOWN_WEIGHT


class Bucket(msgspec.Struct, omit_defaults=True):
    """The counts of one time step of one series; buckets can be added in any order.

    Attributes:
        groups: Requests by facts and the random group of their cluster, of those that have one.
        measures: By metric, facts and group (`ALONE` without one), the sums of a score that was measured on text.
        spill: Sums of requests above the limit on cells, by metric key, and their counts by reason where unassessed.
    """

    cells: dict[Key, int] = {}
    groups: dict[Key, Groups] = {}
    measures: dict[str, dict[Key, dict[int, Sums]]] = {}
    latency: dict[str, dict[int, int]] = {}
    spill: dict[str, Sums] = {}
    spilled: int = 0

    @property
    def count(self) -> int:
        """How many requests the bucket holds."""
        return sum(self.cells.values()) + self.spilled

    def add(self, key: Key, n: int, group: int | None) -> None:
        """Add requests with some facts, whose clusters fall into a group, if there is one."""
        self.cells[key] = self.cells.get(key, 0) + n
        if group is not None:
            groups = self.groups.setdefault(key, {})
            groups[group] = groups.get(group, 0) + n

    def merge(self, other: Bucket) -> None:
        """Add another bucket's counts to this one."""
        add_counts(self.cells, other.cells)
        for key, groups in other.groups.items():
            add_counts(self.groups.setdefault(key, {}), groups)
        for name, by_facts in other.measures.items():
            own_facts = self.measures.setdefault(name, {})
            for key, by_group in by_facts.items():
                own_sums = own_facts.setdefault(key, {})
                for group, sums in by_group.items():
                    add_sums(own_sums, group, sums)
        self.add_latency(other.latency)
        for metric, sums in other.spill.items():
            add_sums(self.spill, metric, sums)
        self.spilled += other.spilled

    def add_latency(self, histograms: Mapping[str, Mapping[int, int]]) -> None:
        """Add histograms of latencies by stage."""
        for stage, histogram in histograms.items():
            add_counts(self.latency.setdefault(stage, {}), histogram)

    def measured(self, name: str, key: Key) -> Sums:
        """The sums of a measured score over the requests with some facts."""
        total = [0, 0, 0, 0]
        for sums in self.measures.get(name, {}).get(key, {}).values():
            total = [own + more for own, more in zip(total, sums, strict=True)]
        return total

    def read_citations(self, form: CitationForm) -> None:
        """Read the citations of its requests in a form."""
        if not any(key[0] & CITED_OTHERWISE for key in self.cells):
            return
        whole = Bucket(latency=self.latency, spill=self.spill, spilled=self.spilled)
        for key, n in self.cells.items():
            part, read = Bucket(cells={}), read_as(key, form)
            part.cells[read] = n
            if key in self.groups:
                part.groups[read] = self.groups[key]
            for name, by_facts in self.measures.items():
                if key in by_facts:
                    part.measures[name] = {read: by_facts[key]}
            whole.merge(part)
        self.cells, self.groups, self.measures = whole.cells, whole.groups, whole.measures

    def drop(self, key: Key) -> int:
        """Remove the requests with some facts; returns their number."""
        self.groups.pop(key, None)
        for by_facts in self.measures.values():
            by_facts.pop(key, None)
        return self.cells.pop(key)


Cut = Callable[[Bucket], object]


class ItemTable(msgspec.Struct):
    """The facts of gold items in one step or hour.

    Attributes:
        n: The number of requests, by which readers see that it changed.
    """

    n: int = 0
    facts: Table = {}

    def add(self, qid: str, key: Key, n: int) -> None:
        """Add requests of a gold item."""
        self.n += n
        facts = self.facts.setdefault(qid, {})
        facts[key] = facts.get(key, 0) + n

    def merge(self, other: ItemTable) -> None:
        """Add another table."""
        self.n += other.n
        add_table(self.facts, other.facts)


class Series(msgspec.Struct, omit_defaults=True):
    """The buckets of one series, and its gold items.

    Attributes:
        fresh: Buckets of `BUCKET_SECONDS` seconds by their start.
        folded: Buckets of `FOLDED_SECONDS` seconds by their start, and the one of requests without a time.
        past: The sum of buckets older than the retention; counters must never fall.
        item_steps: Gold items by the start of their step, while buckets of that age are fresh.
        item_hours: Gold items by hour since the epoch, and of requests without a time.
        changed, old_changed: The change number of its state at the last change of the series, and of its folded or
            older buckets.
    """

    fresh: dict[int, Bucket] = {}
    folded: dict[int, Bucket] = {}
    past: Bucket = msgspec.field(default_factory=Bucket)
    item_steps: dict[int, ItemTable] = {}
    item_hours: dict[int, ItemTable] = {}
    past_items: ItemTable = msgspec.field(default_factory=ItemTable)
    changed: int = 0
    old_changed: int = 0

    def merge(self, other: Series, cut: Cut) -> None:
        """Add the counts of another series."""
        for own_buckets, other_buckets in ((self.fresh, other.fresh), (self.folded, other.folded)):
            for start, bucket in other_buckets.items():
                _merge_at(own_buckets, start, bucket, cut)
        self.past.merge(other.past)
        cut(self.past)
        for own_tables, other_tables in ((self.item_steps, other.item_steps), (self.item_hours, other.item_hours)):
            for start, table in other_tables.items():
                own_tables.setdefault(start, ItemTable()).merge(table)
        self.past_items.merge(other.past_items)

    def fold(self, before: float, cut: Cut) -> None:
        """Fold the buckets that started before a time, and the tables of gold items."""
        for start in [s for s in self.fresh if s < before]:
            _merge_at(self.folded, slot(start), self.fresh.pop(start), cut)
        for start in [s for s in self.item_steps if s < before]:
            self.item_hours.setdefault(start // HOUR, ItemTable()).merge(self.item_steps.pop(start))

    def expire(self, before: float, cut: Cut) -> None:
        """Move the buckets that ended before a time into the past."""
        for start in [s for s in self.folded if s != UNTIMED and s + FOLDED_SECONDS < before]:
            self.past.merge(self.folded.pop(start))
            cut(self.past)

    def expire_items(self, before: float) -> None:
        """Move the hours of gold items that ended before a time into the past."""
        for hour in [h for h in self.item_hours if h != UNTIMED and (h + 1) * HOUR < before]:
            self.past_items.merge(self.item_hours.pop(hour))

    def buckets(self) -> Iterator[Bucket]:
        """Every bucket."""
        yield self.past
        yield from self.folded.values()
        yield from self.fresh.values()

    def items(self) -> Iterator[Table]:
        """Every table of gold items."""
        yield from (table.facts for table in (*self.item_steps.values(), *self.item_hours.values(), self.past_items))

    def timed_items(self) -> Iterator[tuple[int, int, Table]]:
        """Every table with the start and the end of its step or hour, seconds since the epoch; -1 where it has none."""
        yield from ((start, start + BUCKET_SECONDS, table.facts) for start, table in self.item_steps.items())
        for hour, table in self.item_hours.items():
            begin, end = (UNTIMED, UNTIMED) if hour == UNTIMED else (hour * HOUR, (hour + 1) * HOUR)
            yield begin, end, table.facts
        yield UNTIMED, UNTIMED, self.past_items.facts


# --- all calls, sampled or not, as producers report them ------------------------------------------------------------

RECENT: Final = 32
"""Steps that live traffic keeps of a series: reports that are later than that, five minutes and more, are rare."""


class Producer(NamedTuple):
    """A process that counts its calls; its counts only grow."""

    instance: str
    started: float


class CallKey(NamedTuple):
    """The key of a call counter."""

    pipeline: str
    source: str
    stratum: str


class Count(NamedTuple):
    """Calls, and how many of them became records."""

    calls: int = 0
    kept: int = 0

    def plus(self, other: Count) -> Count:
        """The sum of both counts."""
        return Count(self.calls + other.calls, self.kept + other.kept)

    def minus(self, other: Count) -> Count:
        """The difference of both counts."""
        return Count(self.calls - other.calls, self.kept - other.kept)


NOTHING: Final = Count()


class CounterSeries(msgspec.Struct):
    """The counts of one producer and one key: the reported steps, with the largest count up to each of them.

    A report that arrives out of order changes exactly the increments that it would have changed in order. The steps
    are lists of numbers: with a tuple a step, a hundred thousand steps would cost twice the memory.
    """

    first: tuple[int, Count]
    times: list[int]
    calls: list[int]
    kept: list[int]

    @property
    def total(self) -> Count:
        """The count after the newest step."""
        return Count(self.calls[-1], self.kept[-1])

    @property
    def is_settled(self) -> bool:
        """Whether the steps begin later than the reports, because older ones were dropped."""
        return self.times[0] > self.first[0]

    def put(self, step: int, count: Count) -> list[tuple[int, Count]]:
        """Add a count, whatever it says of the first one; returns the steps whose increments change, and by how much.

        A step older than the kept ones is taken for the oldest of these, whose count it hardly ever exceeds.
        """
        if self.is_settled:
            step = max(step, self.times[0])
        index = bisect_left(self.times, step)
        if index == len(self.times) or self.times[index] != step:
            self.times.insert(index, step)
            for counts in (self.calls, self.kept):
                counts.insert(index, counts[index - 1] if index else 0)
        # What the increment of a step gains, the following steps lose until it is used up.
        changes, gained = [], NOTHING
        for at in range(index, len(self.times)):
            more = Count(max(0, count.calls - self.calls[at]), max(0, count.kept - self.kept[at]))
            if not (any(more) or any(gained)):
                break
            self.calls[at] += more.calls
            self.kept[at] += more.kept
            changes.append((self.times[at], more.minus(gained)))
            gained = more
        return changes

    def keep(self, n: int) -> None:
        """Drop all but the newest steps."""
        for numbers in (self.times, self.calls, self.kept):
            del numbers[:-n]

    def thin(self, fresh: float, oldest: float) -> None:
        """Keep the last step of each five minutes of those before `fresh`, and of those before `oldest` one."""
        self.keep(len(self.times) - max(0, bisect_left(self.times, oldest) - 1))
        old = bisect_left(self.times, fresh)
        last = {slot(step): index for index, step in enumerate(self.times[:old])}
        for counts in (self.calls, self.kept):
            counts[:old] = [counts[index] for index in last.values()]
        self.times[:old] = last


class ProducerCalls(msgspec.Struct):
    """What is kept of a producer."""

    start: int
    first: int
    series: dict[CallKey, CounterSeries] = {}


class CallSums(msgspec.Struct):
    """The calls of a key over all producers.

    Attributes:
        past: The calls of steps that are not kept apart.
        firsts: The calls before first reports, by the steps of the producers' start and of that report.
    """

    total: Count = NOTHING
    past: Count = NOTHING
    steps: dict[int, Count] = {}
    firsts: dict[tuple[int, int], Count] = {}


class CallTotals(msgspec.Struct):
    """Cumulative call counts of producers; merging two takes the larger count of each.

    Attributes:
        recent: The steps that are kept of a series. Reports older than those count, but change no other step. None
            keeps all, so that states merge to the same whatever their parts are.
        fresh, oldest: Which steps are kept apart, as `fold` says.
    """

    recent: int | None = None
    fresh: float = 0.0
    oldest: int = 0
    producers: dict[Producer, ProducerCalls] = {}
    sums: dict[CallKey, CallSums] = {}

    def see(self, line: Totals) -> None:
        """Add totals of a producer; a line that only reports losses counts no calls."""
        if line.calls:
            key = CallKey(line.pipeline, line.source, line.stratum)
            count = Count(line.calls, line.kept)
            self._report(Producer(line.instance, line.started), key, step_of(line.ts), count)

    def _report(self, producer: Producer, key: CallKey, step: int, count: Count) -> None:
        known = self.producers.get(producer)
        if known is None:
            known = self.producers[producer] = ProducerCalls(step_of(producer.started), step)
        series, first = known.series.get(key), (step, count)
        is_first = series is None or (first < series.first and not series.is_settled)
        if series is None:
            series = CounterSeries(first, [step], [0], [0])
        self._put(key, series, step, count)
        if not is_first:
            return
        # It may be the first report of the producer as well.
        names = set(known.series) if step < known.first else {key} & known.series.keys()
        for name in names:
            self._set_apart(known, name, -1)
        known.start, known.first = min(known.start, step), min(known.first, step)
        known.series[key], series.first = series, first
        for name in names | {key}:
            self._set_apart(known, name, 1)

    def _put(self, key: CallKey, series: CounterSeries, step: int, count: Count) -> None:
        sums = self.sums.setdefault(key, CallSums())
        for changed, more in series.put(step, count):
            sums.total = sums.total.plus(more)
            self._add(sums, changed, more)
        if self.recent is not None:
            series.keep(self.recent)

    def _set_apart(self, producer: ProducerCalls, key: CallKey, sign: int) -> None:
        # What a producer had counted until its first report is taken out of that step, or put back if `sign` is -1.
        step, (calls, kept) = producer.series[key].first
        if step == producer.first:
            sums, count = self.sums.setdefault(key, CallSums()), Count(sign * calls, sign * kept)
            self._add(sums, step, NOTHING.minus(count))
            self._add_first(sums, producer.start, step, count)

    def _add(self, sums: CallSums, step: int, count: Count) -> None:
        kept_at = self._kept_at(step)
        if kept_at is None:
            sums.past = sums.past.plus(count)
        else:
            _add_to(sums.steps, kept_at, count)

    def _add_first(self, sums: CallSums, start: int, first: int, count: Count) -> None:
        started, reported = self._kept_at(start), self._kept_at(first)
        if started is not None and reported is not None:  # no window that is kept begins before the start
            _add_to(sums.firsts, (started, reported), count)

    def _kept_at(self, step: int) -> int | None:
        if step < self.oldest:
            return None
        return step if step >= self.fresh else slot(step)

    def since(self, begin: float | None, end: float) -> dict[CallKey, Count]:
        """The calls of a window, with the resolution of ten seconds between two reports.

        Without a begin, they are the calls since the first reports. A key that a producer did not report before the
        window had no calls then, if the producer had reported anything. For a producer that had run long before its
        first report, only the calls since that report are known.
        """
        found = {}
        for key, sums in self.sums.items():
            if begin is None:
                counts = [sums.past, *(count for step, count in sums.steps.items() if step < end)]
            else:
                counts = [count for step, count in sums.steps.items() if begin <= step < end]
                counts += (count for (start, first), count in sums.firsts.items() if begin <= start and first < end)
            found[key] = Count(sum(calls for calls, _ in counts), sum(kept for _, kept in counts))
        return found

    def totals(self) -> dict[CallKey, Count]:
        """All calls of every producer since it started."""
        return {key: sums.total for key, sums in self.sums.items()}

    def fold(self, fresh: float, oldest: float | None) -> None:
        """Thin out old counts; both edges only move forward.

        Steps older than `fresh` are added up by five minutes; what begins before `oldest` is not kept apart.
        """
        self.fresh = max(self.fresh, fresh)
        self.oldest = max(self.oldest, ceil((oldest or 0.0) / FOLDED_SECONDS) * FOLDED_SECONDS)
        for sums in self.sums.values():
            steps, firsts, sums.steps, sums.firsts = sums.steps, sums.firsts, {}, {}
            for step, count in steps.items():
                self._add(sums, step, count)
            for (start, first), count in firsts.items():
                self._add_first(sums, start, first, count)
        # Processes come and go, and memory must stay bounded. The calls of those that are gone stay in the sums.
        for producer, known in list(self.producers.items()):
            if max(series.times[-1] for series in known.series.values()) < self.oldest:
                del self.producers[producer]
            for series in known.series.values():
                series.thin(self.fresh, self.oldest)

    def merge(self, other: CallTotals) -> None:
        """Add the totals of another instance.

        It is the same as seeing its reports, as far as it keeps them apart. Of steps that it dropped, and of producers
        that it gave up, only the number of calls is known.
        """
        if other.fresh > self.fresh:
            self.fold(other.fresh, None)
        gone = other.totals()
        for producer, known in other.producers.items():
            for key, series in known.series.items():
                gone[key] = gone[key].minus(series.total)
                self._report(producer, key, *series.first)
                own = self.producers[producer].series[key]
                for step, calls, kept in zip(series.times, series.calls, series.kept, strict=True):
                    self._put(key, own, step, Count(calls, kept))
        for key, count in gone.items():
            sums = self.sums.setdefault(key, CallSums())
            sums.total = sums.total.plus(count)

    def to_rows(self, since: float) -> list[list[Any]]:
        """What was counted, in canonical order, whatever is kept of it.

        For each key that has calls: the key, all calls and how many of them became records; the same of each five
        minutes since a time, by their start; and of what producers had counted before their first reports, by the five
        minutes in which they started and those of the report.
        """
        rows = []
        for key, sums in sorted(self.sums.items()):
            steps: dict[int, Count] = {}
            firsts: dict[tuple[int, int], Count] = {}
            for step, count in sums.steps.items():
                _add_to(steps, slot(step), count)
            for (start, first), count in sums.firsts.items():
                _add_to(firsts, (slot(start), slot(first)), count)
            timed = [[step, *count] for step, count in sorted(steps.items()) if step >= since]
            timed_firsts = [[*edges, *count] for edges, count in sorted(firsts.items()) if edges[0] >= since]
            rows.append([*key, *sums.total, timed, timed_firsts])
        return rows


def _add_to(counts: dict[T, Count], key: T, count: Count) -> None:
    # A zero count is the same as none.
    total = counts.get(key, NOTHING).plus(count)
    if any(total):
        counts[key] = total
    else:
        counts.pop(key, None)


def by_stratum(calls: Mapping[CallKey, Count], pipeline: str, source: str) -> dict[str, Count]:
    """The calls of one pipeline and source by stratum, without those of unknown weight."""
    return {
        key.stratum: count
        for key, count in calls.items()
        if (key.pipeline, key.source) == (pipeline, source) and key.stratum != UNKNOWN_WEIGHT and count.calls
    }


def sampled_calls(buckets: Mapping[str, Bucket]) -> dict[str, Count]:
    """The calls for which records stand that a sampler in front kept, by stratum."""
    rates = {stratum: rate for stratum in buckets if (rate := calls_per_record(stratum))}
    return {name: Count(round(buckets[name].count * rate), buckets[name].count) for name, rate in rates.items()}


# --- labels and proxies by the hour of the answer -------------------------------------------------------------------

METRIC: Final = AnswerCorrect.name  # the metric whose estimates are made more precise
MAX_VERSIONS: Final = 64
"""Versions of a judge that are kept apart; further ones are counted as `OTHER`, whose scores are not used."""
VERSION_CHARS: Final = 64
MODULUS: Final = 1 << 63
"""Sums over all time are kept modulo this: the squares of ten million labels are more than MessagePack can say."""
NO_LABELS: Final = (0, 0, 0, 0, 0, 0)


class Judged(NamedTuple):
    """Answers with a score of one judge version."""

    pipeline: str
    stratum: str
    proxy: str
    version: str


@dataclass(frozen=True)
class JudgeVersion:
    """A version of a judge that scored answers.

    Attributes:
        pipeline: The pipeline of the answers.
        judge: The judge's metric.
        version: Its version; "" where the records name none.
        answers: How many answers it scored.
        first: The start of the hour of the first one, seconds since the epoch; None without a time.
        last: The start of the hour of the last one, likewise.
    """

    pipeline: str
    judge: str
    version: str
    answers: int
    first: int | None
    last: int | None


class Cohorts(msgspec.Struct):
    """Labels and proxies by the hour of the answer; user traffic that the uniform sampler kept.

    Attributes:
        answers: By pipeline, stratum and hour, the number of answers, and of those with a known outcome.
        proxies: By judge version and hour, `[n, sum]` of the scores of all answers.
        labels: By judge version, hour of the answer, and start of the step in which the label counts,
            `[n, y, y², f, f², y f]` of label y and proxy f.
        past: By judge version, the sums of expired hours and steps: `[n, sum]` of proxies, then those of labels.
        versions: By pipeline, proxy and version: the first hour, the last hour, and the number of scored answers.
    """

    answers: dict[tuple[str, str, int], Sums] = {}
    proxies: dict[Judged, dict[int, Sums]] = {}
    labels: dict[Judged, dict[int, dict[int, Sums]]] = {}
    past: dict[Judged, Sums] = {}
    versions: dict[tuple[str, str, str], Sums] = {}

    def see(self, pipeline: str, stratum: str, ts: float | None, answers: int, *, known: int, shipped: int) -> None:
        """Count the answers of an hour: all, those with a known outcome, and those that a label may rate."""
        add_sums(self.answers, (pipeline, stratum, hour_of(ts)), (answers, known, shipped))

    def see_scores(
        self, pipeline: str, stratum: str, ts: float | None, scores: Mapping[str, int], versions: Mapping[str, str]
    ) -> None:
        """Count the proxies that an answer has, in micro-units, with the versions of their judges."""
        hour = hour_of(ts)
        for proxy, score in scores.items():
            version = versions.get(proxy, "")[:VERSION_CHARS]
            seen = self.versions.get((pipeline, proxy, version))
            if seen is None:
                if sum(key[:2] == (pipeline, proxy) for key in self.versions) >= MAX_VERSIONS:
                    version = OTHER
                seen = self.versions.setdefault((pipeline, proxy, version), [hour, hour, 0])
            seen[:] = [min(seen[0], hour), max(seen[1], hour), seen[2] + 1]
            add_sums(self.proxies.setdefault(Judged(pipeline, stratum, proxy, version), {}), hour, (1, score))

    def see_label(
        self,
        pipeline: str,
        stratum: str,
        answered: float | None,
        ts: float | None,
        measured: Mapping[str, int],
        versions: Mapping[str, str],
    ) -> None:
        """Count the label of an answer with each proxy that the answer has, in micro-units.

        `answered` is when the answer was given, `ts` when the label counts in windows.
        """
        label = measured.get(METRIC)
        if label is None:
            return
        hour, step = hour_of(answered), step_of(ts)
        for proxy, score in measured.items():
            if proxy != METRIC:
                version = versions.get(proxy, "")[:VERSION_CHARS]
                version = version if (pipeline, proxy, version) in self.versions else OTHER
                hours = self.labels.setdefault(Judged(pipeline, stratum, proxy, version), {})
                sums = (1, label, label * label, score, score * score, label * score)
                add_sums(hours.setdefault(hour, {}), step, sums)

    def arrived(self, judged: Judged, begin: float | None, end: float) -> dict[int, Sums]:
        """The sums of labels by the hour of their answers: of labels that count from `begin` to `end`; None for all."""
        sums: dict[int, Sums] = {}
        for hour, steps in self.labels.get(judged, {}).items():
            for step, counts in steps.items():
                if begin is None or begin <= step < end:
                    add_sums(sums, hour, counts)
        return sums

    def labellable(self, since: float) -> dict[str, int]:
        """By pipeline, the answers to users in the uniform sample that a label may rate, from the hour of a time on."""
        found: dict[str, int] = {}
        for (pipeline, _, hour), (_, _, shipped) in self.answers.items():
            if hour >= since // HOUR:
                found[pipeline] = found.get(pipeline, 0) + shipped
        return found

    def judges(self) -> list[JudgeVersion]:
        """The versions of every judge, the newest last."""
        return [
            JudgeVersion(*key, n, None if first < 0 else first * HOUR, None if last < 0 else last * HOUR)
            for key, (first, last, n) in sorted(
                self.versions.items(), key=lambda entry: (*entry[0][:2], entry[1][1], entry[0])
            )
            if key[1].startswith(JUDGE_PREFIX)
        ]

    def fold(self, now: float, retention: float | None) -> None:
        """Fold steps that are no longer fresh, and drop labels and answers that no window can reach.

        Labels are kept for the retention in seconds, answers as much longer as a label may take; None keeps all.
        """
        for hours in self.labels.values():
            for steps in hours.values():
                for step in [
                    step for step in steps if step != UNTIMED and step % FOLDED_SECONDS and step < now - FRESH
                ]:
                    add_sums(steps, slot(step), steps.pop(step))
        if retention is None:
            return
        oldest = now - retention
        for judged, hours in self.labels.items():
            for hour, steps in list(hours.items()):
                for step in [step for step in steps if UNTIMED < step < oldest - FOLDED_SECONDS]:
                    self._add_past(judged, (0, 0, *steps.pop(step)))
                if not steps:
                    del hours[hour]
        before = int(oldest - TTL) // HOUR
        self.answers = {key: counts for key, counts in self.answers.items() if not 0 <= key[2] < before}
        for judged, by_hour in self.proxies.items():
            for hour in [hour for hour in by_hour if 0 <= hour < before]:
                self._add_past(judged, (*by_hour.pop(hour), *NO_LABELS))

    def _add_past(self, judged: Judged, counts: Iterable[int]) -> None:
        add_sums(self.past, judged, counts)
        self.past[judged] = [n % MODULUS for n in self.past[judged]]

    def merge(self, other: Cohorts) -> None:
        """Add other cohorts; the order of merging does not matter."""
        for key, counts in other.answers.items():
            add_sums(self.answers, key, counts)
        for judged, by_hour in other.proxies.items():
            for hour, counts in by_hour.items():
                add_sums(self.proxies.setdefault(judged, {}), hour, counts)
        for judged, hours in other.labels.items():
            for hour, steps in hours.items():
                for step, counts in steps.items():
                    add_sums(self.labels.setdefault(judged, {}).setdefault(hour, {}), step, counts)
        for judged, counts in other.past.items():
            self._add_past(judged, counts)
        for version, (first, last, n) in other.versions.items():
            own = self.versions.setdefault(version, [first, last, 0])
            own[:] = [min(own[0], first), max(own[1], last), own[2] + n]

    def rename(self, pipeline_of: Callable[[str], str]) -> None:
        """Move everything to the pipelines it is to be counted under."""
        for pipeline in sorted({key[0] for table in self._tables() for key in table}):
            name = pipeline_of(pipeline)
            if name != pipeline:
                self.merge(Cohorts(*(_moved(table, pipeline, name) for table in self._tables())))

    def give_up(self, pipeline: str) -> None:
        """Remove a pipeline."""
        for table in self._tables():
            _moved(table, pipeline, "")

    def _tables(self) -> tuple[dict[Any, Any], ...]:
        return self.answers, self.proxies, self.labels, self.past, self.versions

    def reset_labels(self) -> None:
        """Remove every label, so that a report counts them anew."""
        self.labels.clear()

    def to_rows(self) -> list[Any]:
        """The sums over all time of every judge version, in canonical order."""
        sums = {judged: list(counts) for judged, counts in self.past.items()}
        for judged, by_hour in self.proxies.items():
            for counts in by_hour.values():
                add_sums(sums, judged, (*counts, *NO_LABELS))
        for judged, hours in self.labels.items():
            for steps in hours.values():
                for counts in steps.values():
                    add_sums(sums, judged, (0, 0, *counts))
        return [[*judged, *(n % MODULUS for n in sums[judged])] for judged in sorted(sums)]


def _moved(table: dict[Any, Any], pipeline: str, name: str) -> dict[Any, Any]:
    return {
        key._replace(pipeline=name) if isinstance(key, Judged) else (name, *key[1:]): table.pop(key)
        for key in [key for key in table if key[0] == pipeline]
    }


# --- the state of a scorer ------------------------------------------------------------------------------------------


class State(msgspec.Struct, dict=True):
    """All buckets of a scorer, and all calls that producers report.

    Args:
        retention: Seconds for which buckets and hours of gold items are kept apart; None keeps all.
        is_live: Whether what is older moves out of the windows, and gold items are kept by step; a replay keeps all
            buckets, and needs the retention for the digest alone.

    Attributes:
        scored, unmatched: Records that were scored, and those among them without a gold item.
        dropped: Records that were not, by reason.
        matched: Audit members of live traffic that have a gold item, by pipeline and kind of match.
        answers: By pipeline, the number of its answers and of those that cite something.
        citations: By pipeline, the numbers of `CitationCounts`.
        forms: By pipeline, the form in which its facts hold the citations, where that is not the usual one; None where
            facts in several forms were merged.
        changes: The number of changes, by which readers see what changed.
    """

    retention: float | None = None
    is_live: bool = False
    scored: int = 0
    unmatched: int = 0
    dropped: dict[str, int] = {}
    newest: float = 0.0
    fold_due: float = 0.0
    series: dict[SeriesKey, Series] = {}
    calls: CallTotals = msgspec.field(default_factory=CallTotals)
    matched: dict[tuple[str, str], int] = {}
    answers: dict[str, list[int]] = {}
    citations: dict[str, list[int]] = {}
    forms: dict[str, CitationForm | None] = {}
    captured: CapturedTable = msgspec.field(default_factory=CapturedTable)
    cohorts: Cohorts = msgspec.field(default_factory=Cohorts)
    changes: int = 0

    def __post_init__(self) -> None:
        self.calls.recent = RECENT if self.is_live else None

    @property
    def cut(self) -> Cut:
        """Cuts merged buckets (`ragmon.scoring.score_table.ScoreTable.cut`): set by the scorer, and not saved."""
        cut: Cut = self.__dict__.get("cut", id)
        return cut

    @cut.setter
    def cut(self, cut: Cut) -> None:
        self.__dict__["cut"] = cut

    def continue_as(self, other: State) -> None:
        """Go on with the settings of another state, after this one was restored."""
        self.retention, self.is_live, self.cut = other.retention, other.is_live, other.cut
        self.calls.recent = other.calls.recent

    def citation_form(self, pipeline: str) -> CitationForm:
        """The form in which the citations of a pipeline are read, by everything that it ever cited."""
        return CitationCounts(*self.citations.get(pipeline, ())).form

    def read_citations(self) -> bool:
        """Read the citations of every pipeline in its form; returns whether facts changed."""
        changed = False
        for pipeline in self.citations:
            form = self.citation_form(pipeline)
            if self.forms.get(pipeline, USUAL) == form:
                continue
            changed, self.forms[pipeline] = True, form
            for series in [series for key, series in self.series.items() if key.pipeline == pipeline]:
                for bucket in series.buckets():
                    bucket.read_citations(form)
                for table in series.items():
                    for qid, facts in table.items():
                        table[qid] = all_read_as(facts, form)
                self._change(series)
        self.forms = {pipeline: form for pipeline, form in self.forms.items() if form != USUAL}
        return changed

    def at(self, key: SeriesKey) -> Series:
        """The series of a key, created if it is new."""
        series = self.series.get(key)
        if series is None:
            series = self.series[key] = Series()
        return series

    def is_fresh(self, ts: float | None) -> bool:
        """Whether the bucket of an event time, None for a record without one, is kept apart from others."""
        return ts is not None and ts >= self.newest - FRESH

    def bucket(self, series: Series, ts: float | None, *, is_fresh: bool) -> Bucket:
        """The bucket of an event time, None for a record without one, which was fresh or not when the record came."""
        self.changes = series.changed = self.changes + 1
        if is_fresh and ts is not None:
            buckets, start = series.fresh, step_of(ts)
        else:
            series.old_changed = self.changes
            buckets, start = series.folded, UNTIMED if ts is None else slot(int(ts))
        bucket = buckets.get(start)
        if bucket is None:
            bucket = buckets[start] = Bucket()
        return bucket

    def item_table(self, series: Series, ts: float | None, *, is_fresh: bool) -> ItemTable:
        """The table of gold items of an event time, as `bucket`."""
        # A replay asks for no window of items, so their steps are not kept apart.
        if is_fresh and self.is_live and ts is not None:
            return series.item_steps.setdefault(step_of(ts), ItemTable())
        return series.item_hours.setdefault(hour_of(ts), ItemTable())

    def _change(self, series: Series) -> None:
        self.changes = series.changed = series.old_changed = self.changes + 1

    def fold(self, now: float) -> None:
        """Fold buckets that are no longer fresh, and move those past the retention out of the windows."""
        self.fold_due = now + FOLDED_SECONDS
        expired = None if self.retention is None else now - self.retention
        self.calls.fold(now - FRESH, expired if self.is_live else None)
        self.cohorts.fold(now, self.retention if self.is_live else None)
        for series in self.series.values():
            self._change(series)
            series.fold(now - FRESH, self.cut)
            if expired is not None:
                series.expire_items(expired)
                if self.is_live:
                    series.expire(expired, self.cut)

    def merge(self, other: State) -> None:
        """Add another state; the order of merging does not matter."""
        for key, series in other.series.items():
            self.at(key).merge(series, self.cut)
            self._change(self.at(key))
        self.scored += other.scored
        self.unmatched += other.unmatched
        add_counts(self.dropped, other.dropped)
        self.calls.merge(other.calls)
        add_counts(self.matched, other.matched)
        for pipeline, answers in other.answers.items():
            add_sums(self.answers, pipeline, answers)
        for pipeline, counts in other.citations.items():
            add_sums(self.citations, pipeline, counts)
        for pipeline in self.forms.keys() | other.forms.keys():
            if self.forms.get(pipeline, USUAL) != other.forms.get(pipeline, USUAL):
                self.forms[pipeline] = None
        self.captured.merge(other.captured)
        self.cohorts.merge(other.cohorts)
        self.newest = max(self.newest, other.newest)
        if self.newest > self.fold_due:
            self.fold(self.newest)

    def starts(self) -> list[int]:
        """The starts of all buckets of requests that have a time."""
        return [
            start for series in self.series.values() for start in (*series.fresh, *series.folded) if start != UNTIMED
        ]

    @property
    def untimed(self) -> int:
        """How many requests have no time; those that match gold or were labelled are counted once."""
        return sum(
            series.folded[UNTIMED].count
            for key, series in self.series.items()
            if UNTIMED in series.folded and not key.slice and key.source not in ALSO_LIVE_SOURCES
        )

    def rename(self, rename: Rename) -> None:
        """Move everything to the names it is to be counted under; nothing changes where they are the same."""
        sources = {key.pipeline: key.source for key in sorted(self.series, reverse=True)}
        for key in sorted(self.series):
            renamed = rename(key.pipeline, key.source, key.build, key.index_hash)
            if renamed != (key.pipeline, key.build, key.index_hash):
                pipeline, build, index_hash = renamed
                other = self.at(key._replace(pipeline=pipeline, build=build, index_hash=index_hash))
                other.merge(self.series.pop(key), self.cut)

        def pipeline_of(name: str, source: str | None = None) -> str:
            return rename(name, source or sources.get(name, LIVE), "", "")[0]

        matched, answers, self.matched, self.answers = self.matched, self.answers, {}, {}
        for (name, how), n in matched.items():
            add_counts(self.matched, {(pipeline_of(name), how): n})
        for name, counts in answers.items():
            add_sums(self.answers, pipeline_of(name), counts)
        citations, forms, self.citations, self.forms = self.citations, self.forms, {}, {}
        for name, counts in citations.items():
            add_sums(self.citations, pipeline_of(name), counts)
            self.forms[pipeline_of(name)] = forms.get(name, USUAL) if pipeline_of(name) == name else None
        self.captured.rename(pipeline_of)
        self.cohorts.rename(pipeline_of)

    def retire(self, pipeline: str, build: str, index_hash: str) -> None:
        """Merge the series of a build and its index into those of `other`."""
        retired = (pipeline, build, index_hash)
        for key in [key for key in self.series if (key.pipeline, key.build, key.index_hash) == retired]:
            other_series = self.at(key._replace(build=OTHER, index_hash=OTHER))
            other_series.merge(self.series.pop(key), self.cut)
            self._change(other_series)

    def give_up(self, pipeline: str) -> None:
        """Merge all counts of a pipeline into the sums of removed pipelines, without their times.

        Slices are dropped: their requests are counted in the other series as well.
        """
        for key in [key for key in self.series if key.pipeline == pipeline]:
            series = self.series.pop(key)
            if not key.slice:
                sums = self.at(key._replace(pipeline=DROPPED_PIPELINES, build="", index_hash=""))
                for bucket in series.buckets():
                    sums.past.merge(bucket)
                    self.cut(sums.past)
                self._change(sums)
        for counts in (self.answers, self.citations, self.forms):
            counts.pop(pipeline, None)
        for removed, how in [key for key in self.matched if key[0] == pipeline]:
            add_counts(self.matched, {(DROPPED_PIPELINES, how): self.matched.pop((removed, how))})
        self.captured.give_up(pipeline)
        self.cohorts.give_up(pipeline)

    def digest(self) -> str:
        """The digest of everything counted, by which live and replay are compared: 64 hexadecimal digits.

        It is the SHA-256 of sums over all time by series, and of gold items; and of what lies within the retention by
        five minutes, and gold items by hour. So expiry does not change it, nor do order, merging and restarts. Which
        models have a slice of their own depends on the order of records: their slices are taken together, and only
        over all time.
        """
        since = -inf if self.retention is None else self.newest - self.retention
        sums: dict[SeriesKey, list[Bucket]] = defaultdict(list)
        items: dict[SeriesKey, list[Table]] = defaultdict(list)
        buckets: dict[tuple[SeriesKey, int], list[Bucket]] = defaultdict(list)
        hours: dict[tuple[SeriesKey, int], list[Table]] = defaultdict(list)
        for key, series in self.series.items():
            is_model = key.slice.startswith(MODEL_SLICE)
            if is_model:
                key = key._replace(slice=MODEL_SLICE)  # noqa: PLW2901 - the name it is counted under here
            sums[key].extend(series.buckets())
            items[key].extend(series.items())
            for start, bucket in () if is_model else (*series.folded.items(), *series.fresh.items()):
                folded = start if start == UNTIMED else slot(start)
                if folded == UNTIMED or folded + FOLDED_SECONDS >= since:
                    buckets[key, folded].append(bucket)
            for start, table in series.item_steps.items():
                hours[key, start // HOUR].append(table.facts)
            for hour, table in series.item_hours.items():
                if hour == UNTIMED or (hour + 1) * HOUR >= since:
                    hours[key, hour].append(table.facts)
        captured = {key: series.compared() for key, series in self.captured}
        digest = hashlib.sha256(b"[%d" % DIGEST)
        parts: tuple[Iterable[Any], ...] = (
            _rows(sums, self._sum_of),
            _rows(items, _table_of),
            _rows(buckets, self._sum_of),
            _rows(hours, _table_of),
            *(_canonical(counts) for counts in (self.matched, self.answers, captured)),
            self.calls.to_rows(since),
            self.cohorts.to_rows(),
        )
        for rows in parts:  # row by row: together they would take more memory than the counts
            digest.update(b",[")
            comma = ""
            for row in rows:
                digest.update(f"{comma}{_as_json(row)}".encode())
                comma = ","
            digest.update(b"]")
        digest.update(b"]")
        return digest.hexdigest()

    def _sum_of(self, buckets: Sequence[Bucket]) -> Bucket:
        total = merged(buckets)
        self.cut(total)
        return total


def merged(buckets: Sequence[Bucket]) -> Bucket:
    """The sum of buckets. It is for reading alone: where there is one bucket, it is that one and no copy."""
    if len(buckets) == 1:
        return buckets[0]
    total = Bucket()
    for bucket in buckets:
        total.merge(bucket)
    return total


def _table_of(tables: Sequence[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    total: Table = {}
    for table in tables:
        add_table(total, table)
    return total


def _rows(parts: Mapping[Any, list[Any]], sum_of: Callable[[list[Any]], Any]) -> Iterator[tuple[Any, Any]]:
    for key in sorted(parts):
        if counts := _canonical(sum_of(parts[key])):
            yield key, counts


_as_json = json.JSONEncoder(separators=(",", ":")).encode


def _canonical(counts: Any) -> Any:
    # An order that does not depend on how the counts came about.
    if isinstance(counts, Bucket):
        counts = msgspec.structs.asdict(counts)
    if not isinstance(counts, dict):
        return counts
    if isinstance(next(iter(counts.values()), 0), int):  # most are small tables of numbers
        return sorted(counts.items())
    return sorted((key, inner) for key, value in counts.items() if (inner := _canonical(value)))


def _merge_at(buckets: dict[int, Bucket], start: int, bucket: Bucket, cut: Cut) -> None:
    own = buckets.get(start)
    if own is None:
        own = buckets[start] = Bucket()
    own.merge(bucket)
    cut(own)


def add_table(mine: Table, other: Mapping[str, Mapping[Key, int]]) -> None:
    """Add requests by gold item and facts."""
    for qid, facts in other.items():
        add_counts(mine.setdefault(qid, {}), facts)


@lru_cache(_KNOWN_FACTS)
def rank(key: Key) -> int:
    """The hash of facts, by which a full bucket keeps them: the same in every process, whatever came first."""
    key = read_as(key, USUAL)  # in whichever form it is read
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(key), digest_size=16).digest(), "big")


def grid(span: int, now: float) -> tuple[int, int]:
    """The step of a window's edges, and the first edge after now where it ends."""
    step = BUCKET_SECONDS if span <= HOUR else FOLDED_SECONDS
    return step, (int(now) // step + 1) * step


def edges(span: int, now: float) -> tuple[int, int]:
    """The start and the end of a window; records without a time lie in no window."""
    _, end = grid(span, now)
    return max(0, end - span), end
