"""The requests taken apart: by build, index, gold version, slice and stratum, before and after the change.

Stages that take longer than before the change.

Which part explains the change: one that was new when it began, that carries it, or in which alone it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.core.constants import STEP
from ragmon.gates.diagnosis.change import ALPHA, LIKELY, added, apart, chance, gain, level, without
from ragmon.gates.diagnosis.model import ChangePoint, How, Level, Part, Split, Stage, Suspect, Times
from ragmon.gates.diagnosis.reads import OCTAVES, Measure, SideReader, WindowSelection, Within, first_seen
from ragmon.scoring.score_table import Stat
from ragmon.scoring.windows import SeriesKey

BOTH: Final = "build and index_hash"
STRATUM: Final = "stratum"
GOLD_VERSION: Final = "gold_version"
BUILD: Final = "build"
INDEX: Final = "index_hash"
_PAIR: Final = " with "


@dataclass(frozen=True, eq=False)
class PartSeries:
    """The series of one part, with what they counted.

    Attributes:
        dimension, name: Which part.
        keys: Its series.
        before, after: The measure in it.
        records_before, records_after: Audit members.
        first_seen: When it had a record first; None where it is older than what is kept by time.
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
        """The same in plain numbers."""
        before, after = level(self.before), level(self.after)
        return Part(self.name, before, after, self.records_before, self.records_after, self.first_seen)


class Splitter:
    """Takes the requests of a look apart.

    Args:
        look: What is looked at.
        measure: What is followed.
        before: Before the change; None without one.
        after: After it.
    """

    def __init__(self, look: WindowSelection, measure: Measure, before: SideReader | None, after: SideReader) -> None:
        self._look = look
        self._measure = measure
        self._before, self._after = before, after

    def groups(self) -> list[PartSeries]:
        """The parts by every property that has more than one, and every slice; parts without a record are left out."""
        found = [
            *self._by(GOLD_VERSION),
            *self._by(BUILD),
            *self._by(INDEX),
            *self._tags(),
            *self._by(STRATUM),
        ]
        return list(_paired(found))

    def _by(self, dimension: str) -> list[PartSeries]:
        parts: dict[str, list[SeriesKey]] = {}
        for key in self._look.keys:
            parts.setdefault(getattr(key, dimension), []).append(key)
        groups = [self._group(dimension, name, keys) for name, keys in sorted(parts.items())]
        present = [group for group in groups if group.records_before or group.records_after]
        return present if len(present) > 1 else []

    def _tags(self) -> list[PartSeries]:
        """The slices; a gate on a slice has no others, for slices do not cross."""
        parts: dict[str, list[SeriesKey]] = {}
        if not self._look.reads.where:
            for key in self._look.every:
                if key.slice and key.drawn:
                    parts.setdefault(key.slice, []).append(key)
        groups = [self._group(*_tag(where), keys) for where, keys in sorted(parts.items())]
        return [group for group in groups if group.records_before or group.records_after]

    def _group(self, dimension: str, name: str, keys: Sequence[SeriesKey]) -> PartSeries:
        before, records_before = self._half(keys, self._before)
        after, records_after = self._half(keys, self._after)
        seen = first_seen(self._look.state, self._traces_of(dimension, name, keys))
        return PartSeries(dimension, name, frozenset(keys), before, after, records_before, records_after, seen)

    def _half(self, keys: Sequence[SeriesKey], half: SideReader | None) -> tuple[Stat, int]:
        if half is None:
            return Stat(), 0
        rows = {key: half.rows[key] for key in keys if key in half.rows} or self._look.merged(
            keys, half.begin, half.end
        )
        return added(self._measure.of(key, row) for key, row in rows.items()), sum(row.count for row in rows.values())

    def _traces_of(self, dimension: str, name: str, keys: Sequence[SeriesKey]) -> Sequence[SeriesKey]:
        """Where a part leaves traces: a build or an index in every source of the pipeline."""
        if dimension not in (BUILD, INDEX):
            return keys
        pipeline = self._look.reads.pipeline
        return [k for k in self._look.state.series if k.pipeline == pipeline and getattr(k, dimension) == name]


def splits(groups: Sequence[PartSeries]) -> tuple[Split, ...]:
    """The parts by property, those with most requests after the change first."""
    found: dict[str, list[Part]] = {}
    for group in groups:
        found.setdefault(group.dimension, []).append(group.part)
    return tuple(Split(name, tuple(sorted(parts, key=_size))) for name, parts in found.items())


def _size(part: Part) -> tuple[int, int, str]:
    return -part.records_after, -part.records_before, part.name


def _tag(where: str) -> tuple[str, str]:
    tag, _, value = where.partition("=")
    return tag, value


def _paired(groups: Sequence[PartSeries]) -> Iterator[PartSeries]:
    """A build and an index that always go together are one part beside the two."""
    indexes = {group.keys: group for group in groups if group.dimension == INDEX}
    for group in groups:
        yield group
        index = indexes.get(group.keys) if group.dimension == BUILD else None
        if index is not None:
            name = f"{group.name}{_PAIR}{index.name}"
            seen = [at for at in (group.first_seen, index.first_seen) if at is not None]
            yield PartSeries(
                BOTH,
                name,
                group.keys,
                group.before,
                group.after,
                group.records_before,
                group.records_after,
                max(seen, default=None),
            )


SLOWER: Final = 1.25
"""How many times as long a stage must take at its median or its p95 to be worth a word."""
TOTAL: Final = constants.STAGES[0]
_NOBODY: Final = Level(0, None)


def slower(stages: Sequence[Stage], before: SideReader, after: SideReader) -> list[Suspect]:
    """The stages that became slower, those with most evidence first; the total is no stage.

    Args:
        stages: How long they took.
        before: Before the change.
        after: After it.
    """
    parts = [stage for stage in stages if stage.name != TOTAL and _longer(stage)]
    found = [_suspect(stage.name, before, after, len(OCTAVES) * len(stages)) for stage in parts]
    return sorted((one for one in found if one.p <= ALPHA), key=lambda one: -one.evidence)


def _longer(stage: Stage) -> bool:
    return any(a is not None and b is not None and b >= SLOWER * a for a, b in _quantiles(stage.before, stage.after))


def _quantiles(before: Times, after: Times) -> Iterator[tuple[float | None, float | None]]:
    yield before.p50, after.p50
    yield before.p95, after.p95


def _suspect(stage: str, before: SideReader, after: SideReader, tries: int) -> Suspect:
    """The stage at the number of milliseconds that tells most."""
    cuts = [(_gained(then, now), then, now) for then, now in _cuts(stage, before, after)]
    evidence, then, now = max(cuts, key=lambda cut: cut[0])
    p = chance(evidence, tries)
    return Suspect("stage", stage, "slower", evidence, p, level(then), level(now), _NOBODY, _NOBODY, 1.0, 1.0, None)


def _cuts(stage: str, before: SideReader, after: SideReader) -> Iterator[tuple[Stat, Stat]]:
    for milliseconds in OCTAVES:
        measure = Within(milliseconds, stage)
        yield before.stat(measure), after.stat(measure)


def _gained(then: Stat, now: Stat) -> float:
    """The evidence that fewer are within a time than before."""
    measure = Within(OCTAVES[0])
    a, b = measure.sums(then), measure.sums(now)
    return gain(a, b) if a.n and b.n and a.mean > b.mean else 0.0


MOST: Final = 0.5
"""Share of the requests after the change that a part must hold to be named because it came shortly before."""


class _Four(NamedTuple):
    """A part and the rest, before and after."""

    before: Stat
    after: Stat
    rest_before: Stat
    rest_after: Stat


class _Found(NamedTuple):
    """What speaks against a part."""

    how: How
    evidence: float
    p: float


@dataclass(frozen=True, eq=False)
class CauseScorer:
    """Weighs parts against the change as a whole.

    Args:
        look: What is looked at.
        measure: What is followed.
        change: When it became worse.
        before: Before the change; None without one.
        after: After it.
        compared: How many parts are weighed.
    """

    look: WindowSelection
    measure: Measure
    change: ChangePoint
    before: SideReader | None
    after: SideReader
    compared: int

    def suspect(self, group: PartSeries) -> Suspect | None:
        """What a part explains; None where it separates nothing that is more than chance."""
        whole = group.before if self.before is None else self.before.stat(self.measure)
        four = _Four(
            group.before,
            group.after,
            without(whole, group.before),
            without(self.after.stat(self.measure), group.after),
        )
        found = [one for one in (*self._carries(group, four), *self._inside(four)) if one.p <= ALPHA]
        if not found:
            return None
        best = min(found, key=lambda one: (one.how == "preceded", -one.evidence))
        return Suspect(
            dimension=group.dimension,
            name=group.name,
            how=best.how,
            evidence=best.evidence,
            p=best.p,
            before=level(four.before),
            after=level(four.after),
            rest_before=level(four.rest_before),
            rest_after=level(four.rest_after),
            share_before=_share(group.records_before, self.before),
            share_after=_share(group.records_after, self.after),
            first_seen=group.first_seen,
        )

    def _carries(self, group: PartSeries, four: _Four) -> Iterator[_Found]:
        """What is in the part is worse than the rest at any time, and there is more of it than before.

        It must explain nearly as much as the cut in time does. One that came before the change and explains less may
        have taken a while to break.
        """
        a, b, c, d = map(self.measure.sums, four)
        inner, outer = a.plus(b), c.plus(d)
        if not b.n or not outer.n or inner.mean >= outer.mean:
            return
        share = _share(group.records_after, self.after)
        if self.before is not None and share <= _share(group.records_before, self.before):
            return
        evidence = gain(inner, outer)
        p, seen, change = chance(evidence, self.compared), group.first_seen, self.change
        if change.earliest is None or change.latest is None:
            yield _Found("carries", evidence, p)
        elif evidence >= change.evidence - LIKELY:
            new = seen is not None and change.earliest - STEP <= seen <= change.latest
            yield _Found("appeared" if new else "carries", evidence, p)
        elif seen is not None and min(self.look.steps) < seen < change.earliest and share >= MOST:
            yield _Found("preceded", evidence, p)

    def _inside(self, four: _Four) -> Iterator[_Found]:
        """The part became worse, and by more than the rest."""
        a, b, *_ = map(self.measure.sums, four)
        if not a.n or not b.n or b.mean >= a.mean:
            return
        z = apart(*four) if self.measure.at_least else -apart(*four)
        further = self.compared * math.erfc(-z / math.sqrt(2)) / 2
        evidence = gain(a, b)
        yield _Found("inside", evidence, max(further, chance(evidence, self.compared)))


def causes(groups: Sequence[PartSeries]) -> list[PartSeries]:
    """The parts that can be a cause: a stratum is what became of a call. A build and an index that go together are one.

    Args:
        groups: All parts.
    """
    together = {group.keys for group in groups if group.dimension == BOTH}
    return [
        group
        for group in groups
        if group.dimension != STRATUM and not (group.dimension in (BUILD, INDEX) and group.keys in together)
    ]


def ranked(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Best first: what was new when the change began, another gold version before all else; then by evidence."""

    def place(one: Suspect) -> tuple[bool, bool, bool, float]:
        return one.how != "appeared", one.dimension != GOLD_VERSION, one.how == "preceded", -one.evidence

    return tuple(sorted(suspects, key=place))


def _share(records: int, half: SideReader | None) -> float:
    return records / half.whole.count if half is not None and half.whole.count else 0.0
