"""The state: buckets of counts by series and time step, the counts of gold items beside them, and what goes with them.

This is the only accumulator, and it is saved and sent as it is. Everything is addition of integers, so states merge in
any order, on any machine, to the same bits. Time is the records' own time; the caller passes `now`.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core.constants import (
    ALSO_LIVE_SOURCES,
    BUCKET_SECONDS,
    DROPPED_PIPELINES,
    FOLDED_SECONDS,
    FRESH,
    HOUR,
    LIVE,
    OTHER,
    UNKNOWN_WEIGHT,
)
from ragmon.metrics.facts import Key
from ragmon.scoring.calls import RECENT, CallTotals
from ragmon.scoring.captured import CapturedTable
from ragmon.scoring.cohorts import UNTIMED as UNTIMED  # noqa: PLC0414 - readers of buckets import it from here
from ragmon.scoring.cohorts import Cohorts, Sums, add_counts, add_sums, hour_of, slot, step_of

CELLS: Final = 4096
"""Distinct facts that a bucket keeps, those with the smallest hashes; the sums of the others go into the spill."""
ALONE: Final = -1
"""Stands for the group of requests of which each is a cluster of its own."""
MODEL_SLICE: Final = "(model)="
"""The start of the slices by model that are counted for `why` alone: no tag has such a name. They are not exported."""
DIGEST: Final = 3
"""The version of the digest: it changes when the same counts get another one."""
_KNOWN_FACTS: Final = 16_384

Groups = dict[int, int]
"""Requests by the random group of their cluster."""
Table = dict[str, dict[Key, int]]
"""Requests by gold item and facts."""
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

    def items(self, begin: float | None = None, end: float = inf, *, hours: bool = True) -> Iterator[Table]:
        """The tables of gold items of a window: exact steps, and all older hours that overlap it.

        Args:
            begin: Seconds since the epoch; None for everything.
            end: The end of the window, exclusive.
            hours: Whether the window is long enough to include tables that are no longer fresh.
        """
        for start, table in self.item_steps.items():
            if begin is None or begin <= start < end:
                yield table.facts
        for hour, table in self.item_hours.items():
            if begin is None or (hours and (hour + 1) * HOUR > begin and hour * HOUR < end):
                yield table.facts
        if begin is None:
            yield self.past_items.facts

    def timed_items(self) -> Iterator[tuple[int, int, Table]]:
        """Every table with the start and the end of its step or hour, seconds since the epoch; -1 where it has none."""
        yield from ((start, start + BUCKET_SECONDS, table.facts) for start, table in self.item_steps.items())
        for hour, table in self.item_hours.items():
            begin, end = (UNTIMED, UNTIMED) if hour == UNTIMED else (hour * HOUR, (hour + 1) * HOUR)
            yield begin, end, table.facts
        yield UNTIMED, UNTIMED, self.past_items.facts


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
        self.answers.pop(pipeline, None)
        for removed, how in [key for key in self.matched if key[0] == pipeline]:
            add_counts(self.matched, {(DROPPED_PIPELINES, how): self.matched.pop((removed, how))})
        self.captured.give_up(pipeline)
        self.cohorts.give_up(pipeline)

    def window(self, series: Series, span: int | None, now: float) -> Iterator[Bucket]:
        """The buckets of a window that ends at the first step edge after now; all for a span of None."""
        if span is None:
            yield from series.buckets()
            return
        step, _ = grid(span, now)
        begin, end = edges(span, now)
        yield from (bucket for start, bucket in series.fresh.items() if begin <= start // step * step < end)
        yield from (bucket for start, bucket in series.folded.items() if begin <= start < end)

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
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(key), digest_size=16).digest(), "big")


def grid(span: int, now: float) -> tuple[int, int]:
    """The step of a window's edges, and the first edge after now where it ends."""
    step = BUCKET_SECONDS if span <= HOUR else FOLDED_SECONDS
    return step, (int(now) // step + 1) * step


def edges(span: int, now: float) -> tuple[int, int]:
    """The start and the end of a window; records without a time lie in no window."""
    _, end = grid(span, now)
    return max(0, end - span), end
