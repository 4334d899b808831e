"""The requests taken apart: by build, index, gold version, slice and stratum, before and after the change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ragmon.scoring.score_table import Stat
from ragmon.scoring.windows import SeriesKey
from ragmon.why.levels import added, level
from ragmon.why.look import Look, first_seen
from ragmon.why.measures import Measure
from ragmon.why.model import Part, Split
from ragmon.why.sides import Half

BOTH: Final = "build and index_hash"
STRATUM: Final = "stratum"
GOLD_VERSION: Final = "gold_version"
BUILD: Final = "build"
INDEX: Final = "index_hash"
_PAIR: Final = " with "


@dataclass(frozen=True, eq=False)
class Group:
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


class Parting:
    """Takes the requests of a look apart.

    Args:
        look: What is looked at.
        measure: What is followed.
        before: Before the change; None without one.
        after: After it.
    """

    def __init__(self, look: Look, measure: Measure, before: Half | None, after: Half) -> None:
        self._look = look
        self._measure = measure
        self._before, self._after = before, after

    def groups(self) -> list[Group]:
        """The parts by every property that has more than one, and every slice; parts without a record are left out."""
        found = [
            *self._by(GOLD_VERSION),
            *self._by(BUILD),
            *self._by(INDEX),
            *self._tags(),
            *self._by(STRATUM),
        ]
        return list(_paired(found))

    def _by(self, dimension: str) -> list[Group]:
        parts: dict[str, list[SeriesKey]] = {}
        for key in self._look.keys:
            parts.setdefault(getattr(key, dimension), []).append(key)
        groups = [self._group(dimension, name, keys) for name, keys in sorted(parts.items())]
        present = [group for group in groups if group.records_before or group.records_after]
        return present if len(present) > 1 else []

    def _tags(self) -> list[Group]:
        """The slices; a gate on a slice has no others, for slices do not cross."""
        parts: dict[str, list[SeriesKey]] = {}
        if not self._look.reads.where:
            for key in self._look.every:
                if key.slice and key.drawn:
                    parts.setdefault(key.slice, []).append(key)
        groups = [self._group(*_tag(where), keys) for where, keys in sorted(parts.items())]
        return [group for group in groups if group.records_before or group.records_after]

    def _group(self, dimension: str, name: str, keys: Sequence[SeriesKey]) -> Group:
        before, records_before = self._half(keys, self._before)
        after, records_after = self._half(keys, self._after)
        seen = first_seen(self._look.state, self._traces_of(dimension, name, keys))
        return Group(dimension, name, frozenset(keys), before, after, records_before, records_after, seen)

    def _half(self, keys: Sequence[SeriesKey], half: Half | None) -> tuple[Stat, int]:
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


def splits(groups: Sequence[Group]) -> tuple[Split, ...]:
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


def _paired(groups: Sequence[Group]) -> Iterator[Group]:
    """A build and an index that always go together are one part beside the two."""
    indexes = {group.keys: group for group in groups if group.dimension == INDEX}
    for group in groups:
        yield group
        index = indexes.get(group.keys) if group.dimension == BUILD else None
        if index is not None:
            name = f"{group.name}{_PAIR}{index.name}"
            seen = [at for at in (group.first_seen, index.first_seen) if at is not None]
            yield Group(
                BOTH,
                name,
                group.keys,
                group.before,
                group.after,
                group.records_before,
                group.records_after,
                max(seen, default=None),
            )
