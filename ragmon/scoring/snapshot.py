"""What readers read: the metrics of every series and window at one moment, immutable.

From a state to a snapshot: its series are read group by group, and nothing is read again that did not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from ragmon import stats
from ragmon.core.constants import AGAIN, ALL_CALLS, EXPORTED_TRAFFIC, GONE, LIVE, UNKNOWN_WEIGHT
from ragmon.gold.sets import GoldInfo
from ragmon.metrics.facts import IDS, Key
from ragmon.scoring.calls import CallKey, Count, by_stratum
from ragmon.scoring.counts import Table, WindowBucket, add_table
from ragmon.scoring.score_table import ScoreTable, Stat, weighted
from ragmon.scoring.windows import (
    Rows,
    SeriesKey,
    State,
    Sums,
    Window,
    folded_sums,
    kind_of,
    rows_of_window,
    with_fresh_rows,
)
from ragmon.stats.strata import Estimate

ALL: Final = "all"
"""The window that holds everything counted so far."""


@dataclass(frozen=True)
class SeriesStats:
    """One series over one window.

    Attributes:
        pipeline, source, slice: Which requests.
        gold, gold_version: Which gold set; "" for all requests.
        window: Its name, `all` for everything.
        metrics: By metric key.
        latency: By stage, log-bucket counts of milliseconds.
        clusters: For gated metrics of a gold set, `(n, sum of scores)` of every gold item; those that are measured on
            the text are not kept item by item.
        traced: How many distinct gold items were seen.
        records: How many records were counted.
        end: Where the window ends, seconds since the epoch, when windows at several moments stand side by side.
        estimates: For user traffic whose calls were all counted, the metrics over all of them, weighted by stratum;
            elsewhere empty. `metrics` counts audit members alone.
        of: For user traffic, what its numbers are of: all calls, or exported traffic where nobody counted all.
    """

    pipeline: str
    source: str
    gold: str
    gold_version: str
    window: str
    slice: str
    metrics: Mapping[str, Stat]
    latency: Mapping[str, Mapping[int, int]]
    clusters: Mapping[str, Sequence[tuple[int, float]]]
    traced: int
    records: int
    end: int | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    of: str = ""

    def estimate(self, metric: str) -> Estimate:
        """A metric with its interval: over all calls where they are known, else over the audit members."""
        weighted = self.estimates.get(metric)
        return weighted if weighted is not None else self.metrics[metric].estimate


@dataclass(frozen=True)
class Snapshot:
    """Everything readers may ask at one moment.

    Attributes:
        now: When it was taken, seconds since the epoch.
        series: All series in all windows.
        golds: The gold sets in use.
        builds: `(pipeline, build, index_hash)` seen, in the order of their names.
        gold_metrics: The metrics that need a gold item.
        maturity: Of labels by the time of their answers, by pipeline: the share of those to come that is here, where
            it is known.
        matched: Audit members of user traffic that have a gold item, by pipeline and how it was found.
        gone: Over all time, the series of pipelines that were given up, together: for sums that name no pipeline.
    """

    now: float
    series: tuple[SeriesStats, ...]
    golds: tuple[GoldInfo, ...] = ()
    builds: tuple[tuple[str, str, str], ...] = ()
    gold_metrics: frozenset[str] = frozenset()
    maturity: Mapping[str, float] = field(default_factory=dict)
    matched: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gone: tuple[SeriesStats, ...] = ()

    def find(
        self, pipeline: str, source: str, *, window: str = ALL, gold: str | None = "", where: str = ""
    ) -> SeriesStats | None:
        """The series with these labels.

        Args:
            pipeline: Whose requests.
            source: Of which source.
            window: The window's name.
            gold: The gold set; "" for all requests, None for the gold set that has the most records.
            where: The slice.

        Returns:
            The series, None where there is none; of a gold set that is in use only its present version.
        """
        versions = {gold.name: gold.version for gold in self.golds}
        found = [
            s
            for s in self._places.get((pipeline, source, window, where), ())
            if (s.gold == gold if gold is not None else s.gold != "")
            and s.gold_version == versions.get(s.gold, s.gold_version)
        ]
        return max(found, key=lambda s: s.records, default=None)

    @cached_property
    def _places(self) -> Mapping[tuple[str, str, str, str], Sequence[SeriesStats]]:
        """The series by pipeline, source, window and slice."""
        found: dict[tuple[str, str, str, str], list[SeriesStats]] = {}
        for one in self.series:
            found.setdefault((one.pipeline, one.source, one.window, one.slice), []).append(one)
        return found


def item_sums(table: ScoreTable, facts: Mapping[Key, int], place: int) -> tuple[int, int]:
    """How often an item is in a metric's denominator, and the sum of its scores there, in micro-units.

    Args:
        table: The metrics.
        facts: What was seen of the item.
        place: The metric's place in the table.
    """
    scored = [(score, n) for key, n in facts.items() if isinstance(score := table.scores(key)[place], int)]
    return sum(n for _, n in scored), sum(score * n for score, n in scored)


SLACK: Final = 1.25
FEW: Final = 20
"""Records and what their producers say they kept may differ by a quarter and twenty: reports are ten seconds late."""


def take_snapshot(
    state: State,
    table: ScoreTable,
    *,
    now: float,
    windows: Mapping[str, int | None],
    golds: Sequence[GoldInfo] = (),
    gated: Collection[str] = (),
) -> Snapshot:
    """Read a state.

    Args:
        state: What was counted.
        table: The metrics.
        now: Seconds since the epoch.
        windows: Spans in seconds by name; None is everything.
        golds: The gold sets in use.
        gated: Metric keys whose per-item sums gates need.
    """
    reader = _reader(state, table, tuple(gated))
    places = [Window(name, span, now) for name, span in windows.items()]
    totals = [_totals(state, span, now) for span in windows.values()]
    found: list[SeriesStats] = []
    gone: list[SeriesStats] = []
    for group, keys in reader.groups.items():
        read = gone if group.pipeline == GONE else found
        read += reader.read(group, keys, places, totals)
    builds = sorted({(k.pipeline, k.build, k.index_hash) for k in state.series if k.build or k.index_hash})
    needs_gold = frozenset(name for name, metric in table.metrics.items() if metric.needs_gold)
    matched = {(pipeline, how): n for (pipeline, how), n in state.matched.items() if pipeline != GONE}
    return Snapshot(now, tuple(found), tuple(golds), tuple(builds), needs_gold, matched=matched, gone=tuple(gone))


class _Group(NamedTuple):
    """Series that are read together: those of all gold sets, builds and strata."""

    pipeline: str
    source: str
    slice: str


@dataclass
class _Part:
    """What was counted for one gold set of a group, or without any."""

    row: WindowBucket = field(default_factory=WindowBucket)
    items: Table = field(default_factory=dict)


def _reader(state: State, table: ScoreTable, gated: tuple[str, ...]) -> _Reader:
    """What reads a state, and remembers what it read."""
    asked = (id(table), gated)
    held = state.remembered.get(_Reader)
    if held is None or held[0] != asked:
        held = state.remembered[_Reader] = (asked, _Reader(state, table, gated))
    reader: _Reader = held[1]
    reader.look()
    return reader


_Totals = tuple[Mapping[CallKey, Count], Mapping[CallKey, Count]]
"""All calls of a window, and of everything those since each first report as well."""


class _Reader:
    """Reads the groups of a state; what did not change since is not read again.

    Args:
        state: What was counted.
        table: The metrics.
        gated: Metric keys whose per-item sums gates need.

    Attributes:
        groups: The series that are read together.
    """

    def __init__(self, state: State, table: ScoreTable, gated: tuple[str, ...]) -> None:
        self.groups: dict[_Group, list[SeriesKey]] = {}
        self._keys: frozenset[SeriesKey] = frozenset()
        self._state = state
        self._table = table
        self._gated = gated
        self._read: dict[_Group, list[tuple[object, list[SeriesStats]]]] = {}
        self._old: dict[_Group, tuple[object, Sums]] = {}

    def look(self) -> None:
        """Find out which series there are; what was read of those that are gone is forgotten."""
        if self._keys == self._state.series.keys():
            return
        self._keys = frozenset(self._state.series)
        self.groups = {}
        for key in sorted(self._keys):
            self.groups.setdefault(_Group(key.pipeline, key.source, key.slice), []).append(key)
        self._read = {group: held for group, held in self._read.items() if group in self.groups}
        self._old = {group: held for group, held in self._old.items() if group in self.groups}

    def read(
        self, group: _Group, keys: Sequence[SeriesKey], windows: Sequence[Window], totals: Sequence[_Totals]
    ) -> list[SeriesStats]:
        """The series of a group in every window, by what all calls of each window are."""
        changed = max(self._state.series[key].changed for key in keys)
        held = self._read.get(group, [])
        found: list[tuple[object, list[SeriesStats]]] = []
        sums: Sums | None = None
        for place, (window, told) in enumerate(zip(windows, totals, strict=True)):
            calls, since = (_by_stratum(part, group) for part in told)
            seen = (changed, window.name, window.begin, window.end, calls, since)
            if place < len(held) and held[place][0] == seen:
                found.append(held[place])
                continue
            if sums is None:
                sums = self._sums(group, keys, windows)
            parts, strata = self._parts(group, keys, window, rows_of_window(sums, place))
            traffic = _traffic(group, strata, calls, since, self._table)
            found.append((seen, list(_read(parts, self._table, group, window.name, self._gated, traffic))))
        self._read[group] = found
        return [series for _, read in found for series in read]

    def _parts(
        self, group: _Group, keys: Sequence[SeriesKey], window: Window, rows: Rows
    ) -> tuple[dict[tuple[str, str], _Part], dict[str, WindowBucket]]:
        """What one window holds, by gold set and version, and by stratum.

        Parts are of audit members alone: a call kept for its outcome says nothing about how common the outcome is.
        """
        parts, strata = {("", ""): _Part()}, dict[str, WindowBucket]()
        for kind in dict.fromkeys(map(kind_of, keys)):
            row = rows.get(kind)
            if kind.drawn:
                part = parts.setdefault((kind.gold, kind.gold_version), _Part())
                if row is not None:
                    part.row.merge(row)
            if row is not None and group.source == LIVE:
                strata.setdefault(kind.stratum, WindowBucket()).merge(row)
        for key in keys:
            if key.drawn and key.gold:
                for items in self._state.items(self._state.series[key], window.span, window.now):
                    add_table(parts[key.gold, key.gold_version].items, items)
        return parts, strata

    def _sums(self, group: _Group, keys: Sequence[SeriesKey], windows: Sequence[Window]) -> Sums:
        """The rows of a group, each added once, by the windows it is in and its kind.

        What is no longer fresh was added up before, as long as it is the same and windows have the same edges.
        """
        series = [(kind_of(key), self._state.series[key]) for key in keys]
        seen = (max(one.old_changed for _, one in series), [(window.begin, window.end) for window in windows])
        held = self._old.get(group)
        if held is None or held[0] != seen:
            held = self._old[group] = (seen, folded_sums(series, windows))
        return with_fresh_rows(held[1], series, windows)


class _Traffic(NamedTuple):
    """What is known of the calls behind a group's records."""

    of: str = ""
    estimates: Mapping[str, Estimate] = MappingProxyType({})


def _traffic(
    group: _Group,
    rows: Mapping[str, WindowBucket],
    calls: Mapping[str, Count],
    since: Mapping[str, Count],
    table: ScoreTable,
) -> _Traffic:
    """What is known of all calls of user traffic: no estimates where nobody counted them, or all were drawn alike.

    A trace log that was cut holds fewer records than its producers kept by then: what they counted before its first
    report belongs to an earlier one.

    Args:
        group: Whose records.
        rows: They, by stratum.
        calls: All calls behind them, by stratum.
        since: Those since the first report of each producer; of a window they are the same.
        table: The metrics.
    """
    if group.source != LIVE:
        return _Traffic()
    records = sum(row.count for stratum, row in rows.items() if stratum != UNKNOWN_WEIGHT)
    if not group.slice and sum(count.kept for count in calls.values()) > SLACK * records + FEW:
        calls = since
    kept = sum(count.kept for count in calls.values())
    if not calls or records > SLACK * kept + FEW:  # the rest comes from producers that tell nothing
        return _Traffic(EXPORTED_TRAFFIC)
    if group.slice or len({*calls, *rows}) == 1:
        return _Traffic(ALL_CALLS)
    return _Traffic(ALL_CALLS, weighted(rows, {stratum: count.calls for stratum, count in calls.items()}, table))


def _by_stratum(calls: Mapping[CallKey, Count], group: _Group) -> Mapping[str, Count]:
    """The calls behind the records of users; nobody counts others."""
    return by_stratum(calls, group.pipeline, group.source) if group.source == LIVE else {}


def _totals(state: State, span: int | None, now: float) -> _Totals:
    """All calls of a window, and of everything those since each producer's first report as well."""
    if span is None:
        return state.calls.whole(), state.calls.since(None, inf)
    found = state.totals(span, now)
    return found, found


def _read(
    parts: Mapping[tuple[str, str], _Part],
    table: ScoreTable,
    group: _Group,
    window: str,
    gated: Collection[str],
    traffic: _Traffic,
) -> Iterator[SeriesStats]:
    """The series of a group: one over every request, and one per gold set version over its requests alone."""
    whole = WindowBucket()
    for part in parts.values():
        whole.merge(part.row)
    for (gold, version), part in sorted(parts.items()):
        row = part.row if gold else whole
        if row.count or (traffic.estimates and not gold):
            yield SeriesStats(
                pipeline=group.pipeline,
                source=group.source,
                gold=gold,
                gold_version=version,
                window=window,
                slice=group.slice,
                metrics=MappingProxyType(table.of(row) if gold else _over_all(whole, part.row, table)),
                latency=MappingProxyType(row.latency),
                clusters=MappingProxyType(_clusters(table, part.items, gated) if gold else {}),
                traced=len(part.items),
                records=row.count,
                estimates={} if gold else traffic.estimates,
                of=traffic.of,
            )


def _over_all(whole: WindowBucket, without_gold: WindowBucket, table: ScoreTable) -> dict[str, Stat]:
    """The metrics over all requests. Gold sets are never pooled: what needs gold counts those without a gold item."""
    everything, rest = table.of(whole), table.of(without_gold)
    return {name: rest[name] if metric.needs_gold else everything[name] for name, metric in table.metrics.items()}


def _clusters(
    table: ScoreTable, items: Mapping[str, Mapping[Key, int]], gated: Collection[str]
) -> dict[str, list[tuple[int, float]]]:
    """Per gated metric, `(n, sum of scores)` of every item that is in its denominator."""
    wanted = [(i, m.key) for i, m in enumerate(table.metrics.values()) if m.key in gated and not m.measured]
    found: dict[str, list[tuple[int, float]]] = {name: [] for _, name in wanted}
    for facts in items.values():
        for place, name in wanted:
            n, total = item_sums(table, facts, place)
            if n:
                found[name].append((n, total / stats.MICRO))
    return found


def retrieved_counts(state: State) -> dict[tuple[str, str], Counter[int]]:
    """How many audit members retrieved how many documents; matched and labelled ones are user traffic already."""
    found: dict[tuple[str, str], Counter[int]] = {}
    for key, series in state.series.items():
        if key.slice or not key.audit or key.source in AGAIN or key.pipeline == GONE:
            continue
        counts = found.setdefault((key.pipeline, key.source), Counter())
        for row in state.window(series, None, 0):
            for facts, n in row.cells.items():
                flags, _, length, *_ = facts
                if flags & IDS:
                    counts[length] += n
    return found
