"""The parts of the requests by build, index, gold version, model, slice and stratum, and which explains the change.

A suspect is a part that was new when the change began, that carries bad requests, or that alone became worse, and also
a stage that takes longer than before. Beside the suspects stand the traits of the bad requests, such as `retrieved
nothing`, in the order of the stages of a pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.core.constants import BUCKET_SECONDS
from ragmon.core.errors import Unassessed
from ragmon.gates.change import (
    ALPHA,
    LIKELY,
    OCTAVES,
    ChangePoint,
    How,
    Level,
    Measure,
    Moved,
    Part,
    SideReader,
    Split,
    Stage,
    Suspect,
    WindowSelection,
    Within,
    added,
    difference_in_change,
    first_seen,
    gain,
    level,
    moved_by,
    p_bound,
    share,
    without,
)
from ragmon.metrics.facts import DEPTH, Facts, Key
from ragmon.scoring.buckets import MODEL_SLICE, SeriesKey
from ragmon.scoring.score_table import Stat

CLEAR: Final = 3.0
"""Standard errors a trait must have risen by to be named as the mechanism."""
MAIN: Final = 0.5
OFTENER: Final = 1.64
"""Standard errors by which failing requests must have a trait more often than those that pass: 19 times in 20."""
NEARLY_ALL: Final = 0.9
"""Share of failing requests from which on those that pass are too few to tell what failing ones have in common."""
BUILD_AND_INDEX: Final = "build and index_hash"
STRATUM: Final = "stratum"
GOLD_VERSION: Final = "gold_version"
BUILD: Final = "build"
INDEX: Final = "index_hash"
MODEL: Final = "model"
_PAIR: Final = " with "
SLOWER: Final = 1.25
"""The factor by which the median or the p95 of a stage must grow to make it a suspect."""
TOTAL: Final = constants.STAGES[0]
_NO_REQUESTS: Final = Level(0, None)


def _gold_not_retrieved(facts: Facts) -> bool | None:
    if not facts.answerable:
        return None
    facts.require_documents()
    return facts.relevant(DEPTH) == 0


def _of_shipped(name: str) -> Callable[[Facts], bool | None]:
    return lambda facts: not getattr(facts, name) if facts.shipped else None


def _of_shipped_answerable(name: str) -> Callable[[Facts], bool | None]:
    return lambda facts: not getattr(facts, name) if facts.answerable and facts.shipped else None


TRAITS: Final[Mapping[str, Callable[[Facts], bool | None]]] = {
    "ended in an error": lambda facts: facts.error,
    "took longer than allowed": lambda facts: not facts.within if facts.bounded else None,
    "retrieved nothing": lambda facts: facts.empty,
    "retrieved no gold document": _gold_not_retrieved,
    "gave no answer": lambda facts: None if facts.error else not facts.answered,
    "refused what can be answered": lambda facts: facts.refused if facts.answerable else None,
    "answered what cannot be answered": lambda facts: facts.shipped if facts.matched and not facts.answerable else None,
    "refused": lambda facts: facts.refused,
    "refused in its own words": lambda facts: facts.refusal_like,
    "said something else than the gold claim": _of_shipped_answerable("contains_claim"),
    "said what is not in the contexts": _of_shipped("grounded"),
    "cited what was not retrieved": _of_shipped("cites_only_retrieved"),
    "cited nothing that was retrieved": _of_shipped("cites_retrieved"),
    "cited no gold document": _of_shipped_answerable("cites_gold"),
    "broke the answer format": lambda facts: None if facts.error else not facts.compliant,
}
"""Whether a request has a trait, by name, in the order of the pipeline; None where the trait does not apply."""


def has(name: str, key: Key) -> bool | None:
    """Whether a request has a trait; None where the trait does not apply or is unknown."""
    try:
        return TRAITS[name](Facts._make(key))
    except Unassessed:
        return None


def traits_of(key: Key) -> tuple[str, ...]:
    """The traits of one request, in the order of the pipeline.

    >>> from ragmon.metrics.facts import FactReader
    >>> from ragmon.testing import make_record
    >>> traits_of(FactReader().read(make_record(claim="not in context", citations=[]), None))
    ('refused',)
    """
    return tuple(name for name in TRAITS if has(name, key))


def compared(before: Mapping[Key, int], after: Mapping[Key, int], failing: Mapping[Key, int]) -> tuple[Moved, ...]:
    """Every trait that at least one request has, largest change first."""

    def trait_share(name: str, cells: Mapping[Key, int]) -> Stat:
        assessed = [(present, n) for key, n in cells.items() if (present := has(name, key)) is not None]
        return share(sum(n for present, n in assessed if present), sum(n for _, n in assessed))

    traits = []
    for name in TRAITS:
        a, b, bad = (trait_share(name, cells) for cells in (before, after, failing))
        if a.sum or b.sum:
            traits.append(Moved(name, level(a), level(b), moved_by(a, b), level(bad)))
    return tuple(sorted(traits, key=lambda moved: -abs(moved.by)))


def mechanism(traits: Iterable[Moved]) -> str:
    """The first trait, in the order of the pipeline, that explains failing requests and much of the rise of traits."""
    rises = {
        trait.name: (trait.after.n * ((trait.after.value or 0.0) - (trait.before.value or 0.0)))
        for trait in _explaining(list(traits))
        if trait.by >= CLEAR
    }
    largest = max(rises.values(), default=0.0)
    return next((name for name in TRAITS if rises.get(name, 0.0) > 0 and rises[name] >= MAIN * largest), "")


def _explaining(traits: Sequence[Moved]) -> Iterator[Moved]:
    """The traits that failing requests have more often than those that pass; all of them where none is known to fail.

    What is as common among requests that pass is another fault, or none.
    """
    failing_known = any(trait.failing is not None and trait.failing.n for trait in traits)
    for trait in traits:
        failing, after = (
            share(round(side.n * (side.value or 0.0)), side.n) for side in (trait.failing or _NO_REQUESTS, trait.after)
        )
        passing = without(after, failing)
        nearly_all = failing.n >= NEARLY_ALL * after.n and trait.of_failing >= (trait.after.value or 0.0)
        if not failing_known or nearly_all or moved_by(passing, failing) >= OFTENER:
            yield trait


@dataclass(frozen=True, eq=False)
class PartSeries:
    """The series of one part, with their statistics.

    Attributes:
        records_before, records_after: Audit members.
        first_seen: The time of its first record; None where it is older than the rows kept by time.
    """

    dimension: str
    name: str
    keys: frozenset[SeriesKey]
    before: Stat
    after: Stat
    records_before: int
    records_after: int
    first_seen: float | None

    @cached_property
    def part(self) -> Part:
        """The part as plain numbers."""
        before, after = level(self.before), level(self.after)
        return Part(self.name, before, after, self.records_before, self.records_after, self.first_seen)


class Splitter:
    """Splits the requests of a window selection into parts."""

    def __init__(
        self, selection: WindowSelection, measure: Measure, before: SideReader | None, after: SideReader
    ) -> None:
        self._selection = selection
        self._measure = measure
        self._before, self._after = before, after

    def groups(self) -> list[PartSeries]:
        """The parts by every property with more than one value, and every slice; parts without records are left out."""
        parts = [
            *self._by(GOLD_VERSION),
            *self._by(BUILD),
            *self._by(INDEX),
            *self._by_slice(),
            *self._by(STRATUM),
        ]
        return list(_paired(parts))

    def _by(self, dimension: str) -> list[PartSeries]:
        keys_by_name: dict[str, list[SeriesKey]] = {}
        for key in self._selection.keys:
            keys_by_name.setdefault(getattr(key, dimension), []).append(key)
        present = self._present((dimension, name, keys) for name, keys in sorted(keys_by_name.items()))
        return present if len(present) > 1 else []

    def _by_slice(self) -> list[PartSeries]:
        """The slices, and models if there are several; none for a gate on a slice, since slices are not nested."""
        keys_by_slice: dict[str, list[SeriesKey]] = {}
        if not self._selection.reads.where:
            for key in self._selection.every:
                if key.slice and key.drawn:
                    keys_by_slice.setdefault(key.slice, []).append(key)
        named = []
        for where, keys in sorted(keys_by_slice.items()):
            tag, _, value = where.partition("=")
            if where.startswith(MODEL_SLICE):
                tag, value = MODEL, where.removeprefix(MODEL_SLICE)
            named.append((tag, value, keys))
        present = self._present(named)
        several = sum(group.dimension == MODEL for group in present) > 1
        return [group for group in present if several or group.dimension != MODEL]

    def _present(self, parts: Iterable[tuple[str, str, list[SeriesKey]]]) -> list[PartSeries]:
        state, pipeline = self._selection.state, self._selection.reads.pipeline
        groups = []
        for dimension, name, keys in parts:
            before, records_before = self._measured(keys, self._before)
            after, records_after = self._measured(keys, self._after)
            if not records_before and not records_after:
                continue
            searched: Sequence[SeriesKey] = keys
            if dimension in (BUILD, INDEX):  # it may have been seen first in any source of the pipeline
                searched = [k for k in state.series if k.pipeline == pipeline and getattr(k, dimension) == name]
            seen = first_seen(state, searched)
            series = frozenset(keys)
            groups.append(PartSeries(dimension, name, series, before, after, records_before, records_after, seen))
        return groups

    def _measured(self, keys: Sequence[SeriesKey], side: SideReader | None) -> tuple[Stat, int]:
        if side is None:
            return Stat(), 0
        rows = {key: side.rows[key] for key in keys if key in side.rows} or self._selection.merged(
            keys, side.begin, side.end
        )
        return added(self._measure.of(key, row) for key, row in rows.items()), sum(row.count for row in rows.values())


def splits(groups: Sequence[PartSeries]) -> tuple[Split, ...]:
    """The parts by property, those with most requests after the change first."""

    def order(part: Part) -> tuple[int, int, str]:
        return -part.records_after, -part.records_before, part.name

    parts_by_dimension: dict[str, list[Part]] = {}
    for group in groups:
        parts_by_dimension.setdefault(group.dimension, []).append(group.part)
    return tuple(Split(name, tuple(sorted(parts, key=order))) for name, parts in parts_by_dimension.items())


def _paired(groups: Sequence[PartSeries]) -> Iterator[PartSeries]:
    """The parts, and a further one for a build and an index that always occur together."""
    indexes = {group.keys: group for group in groups if group.dimension == INDEX}
    for group in groups:
        yield group
        index = indexes.get(group.keys) if group.dimension == BUILD else None
        if index is not None:
            name = f"{group.name}{_PAIR}{index.name}"
            times = [time for time in (group.first_seen, index.first_seen) if time is not None]
            yield PartSeries(
                BUILD_AND_INDEX,
                name,
                group.keys,
                group.before,
                group.after,
                group.records_before,
                group.records_after,
                max(times, default=None),
            )


def slower(stages: Sequence[Stage], before: SideReader, after: SideReader) -> list[Suspect]:
    """The stages that became slower, those with most evidence first; the total is not a stage."""
    suspects = []
    for stage in stages:
        quantiles = ((stage.before.p50, stage.after.p50), (stage.before.p95, stage.after.p95))
        if stage.name != TOTAL and any(a is not None and b is not None and b >= SLOWER * a for a, b in quantiles):
            suspect = _suspect(stage.name, before, after, len(OCTAVES) * len(stages))
            if suspect.p <= ALPHA:
                suspects.append(suspect)
    return sorted(suspects, key=lambda suspect: -suspect.evidence)


def _suspect(stage: str, before: SideReader, after: SideReader, tries: int) -> Suspect:
    """The stage as a suspect, at the latency limit with most evidence."""
    limits = []
    for milliseconds in OCTAVES:
        measure = Within(milliseconds, stage)
        then, now = before.stat(measure), after.stat(measure)
        a, b = measure.sums(then), measure.sums(now)
        limits.append((gain(a, b) if a.n and b.n and a.mean > b.mean else 0.0, then, now))
    evidence, then, now = max(limits, key=lambda limit: limit[0])
    p = p_bound(evidence, tries)
    return Suspect(
        "stage", stage, "slower", evidence, p, level(then), level(now), _NO_REQUESTS, _NO_REQUESTS, 1.0, 1.0, None
    )


def seen_elsewhere(selection: WindowSelection, change: ChangePoint) -> Iterator[Suspect]:
    """The builds and indexes that other sources of the pipeline saw first when the change began.

    Only where the requests that became worse carry none: a prober seldom knows what answers it.
    """
    state, pipeline = selection.state, selection.reads.pipeline
    if change.earliest is None or change.latest is None:
        return
    for dimension in (BUILD, INDEX):
        if any(getattr(key, dimension) for key in selection.keys):
            continue
        times: dict[str, float] = {}
        for key in sorted(state.series):
            name = getattr(key, dimension)
            if key.pipeline == pipeline and name:
                times[name] = min(times.get(name, math.inf), first_seen(state, [key]) or 0.0)
        for name, seen in times.items():
            if min(times.values()) < seen and change.earliest - BUCKET_SECONDS <= seen <= change.latest:
                none = _NO_REQUESTS
                yield Suspect(dimension, name, "elsewhere", 0.0, 1.0, none, none, none, none, 0.0, 0.0, seen)


class _PartAndRest(NamedTuple):
    before: Stat
    after: Stat
    rest_before: Stat
    rest_after: Stat


class _Finding(NamedTuple):
    how: How
    evidence: float
    p: float


@dataclass(frozen=True, eq=False)
class CauseScorer:
    """Scores parts as causes of the change."""

    measure: Measure
    change: ChangePoint
    before: SideReader | None
    after: SideReader
    compared: int

    def suspect(self, group: PartSeries) -> Suspect | None:
        """The part as a suspect; None where it separates nothing significantly."""
        total = group.before if self.before is None else self.before.stat(self.measure)
        part_and_rest = _PartAndRest(
            group.before,
            group.after,
            without(total, group.before),
            without(self.after.stat(self.measure), group.after),
        )
        significant = [
            finding
            for finding in (*self._carries(group, part_and_rest), *self._inside(part_and_rest))
            if finding.p <= ALPHA
        ]
        if not significant:
            return None
        best = max(significant, key=lambda finding: finding.evidence)
        return Suspect(
            dimension=group.dimension,
            name=group.name,
            how=best.how,
            evidence=best.evidence,
            p=best.p,
            before=level(part_and_rest.before),
            after=level(part_and_rest.after),
            rest_before=level(part_and_rest.rest_before),
            rest_after=level(part_and_rest.rest_after),
            share_before=_share(group.records_before, self.before),
            share_after=_share(group.records_after, self.after),
            first_seen=group.first_seen,
        )

    def _carries(self, group: PartSeries, part_and_rest: _PartAndRest) -> Iterator[_Finding]:
        """The part is worse than the rest at any time, and its share grew.

        It must explain nearly as much as the cut in time: one that explains less answered well before the change.
        """
        a, b, c, d = map(self.measure.sums, part_and_rest)
        inside, rest = a.plus(b), c.plus(d)
        if not b.n or not rest.n or inside.mean >= rest.mean:
            return
        share_before, share_after = _share(group.records_before, self.before), _share(group.records_after, self.after)
        if self.before is not None and share_after <= share_before:
            return
        evidence = gain(inside, rest)
        p, first_seen, change = p_bound(evidence, self.compared), group.first_seen, self.change
        if change.earliest is None or change.latest is None:
            yield _Finding("carries", evidence, p)
        elif evidence >= change.evidence - LIKELY:
            new = first_seen is not None and change.earliest - BUCKET_SECONDS <= first_seen <= change.latest
            yield _Finding("appeared" if new else "carries", evidence, p)

    def _inside(self, part_and_rest: _PartAndRest) -> Iterator[_Finding]:
        """The part became worse, and by more than the rest."""
        a, b, *_ = map(self.measure.sums, part_and_rest)
        if not a.n or not b.n or b.mean >= a.mean:
            return
        z = difference_in_change(*part_and_rest) if self.measure.at_least else -difference_in_change(*part_and_rest)
        p_apart = self.compared * math.erfc(-z / math.sqrt(2)) / 2
        evidence = gain(a, b)
        yield _Finding("inside", evidence, max(p_apart, p_bound(evidence, self.compared)))


def candidates(groups: Sequence[PartSeries]) -> list[PartSeries]:
    """The parts that can be a cause: a build and an index that always occur together as one part.

    A stratum cannot be a cause because it is an outcome of a call.
    """
    together = {group.keys for group in groups if group.dimension == BUILD_AND_INDEX}
    return [
        group
        for group in groups
        if group.dimension != STRATUM and not (group.dimension in (BUILD, INDEX) and group.keys in together)
    ]


def ranked(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Suspects, best first: new ones, then another gold version, then by evidence."""

    def order(suspect: Suspect) -> tuple[bool, bool, float]:
        return suspect.how != "appeared", suspect.dimension != GOLD_VERSION, -suspect.evidence

    return tuple(sorted(suspects, key=order))


def _share(records: int, side: SideReader | None) -> float:
    return records / side.total.count if side is not None and side.total.count else 0.0
