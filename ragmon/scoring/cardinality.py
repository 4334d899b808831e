"""Which processes may tell of all their calls: so many that every scrape can add them up.

What becomes a series: names come from outside, and a mistake in one application must not fill the memory.

Nothing is refused: what comes past a cap is counted under `__other__`, and how often that happened is counted as well.
Which names are kept apart follows from what came and when, and from nothing else: a replay keeps the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import msgspec

from ragmon.core import constants
from ragmon.core.constants import GONE, OTHER
from ragmon.core.record import Record, Totals

PRODUCERS: Final = 5000
"""Pipelines, sources and strata of all processes whose totals are kept apart, from which on there is no new process."""
SILENT: Final = 86_400.0
"""Seconds after which a process may be gone."""
_FRESH: Final = 60.0
"""Seconds between two looks for those that are."""


@dataclass
class _Producer:
    """A process whose totals are taken.

    Attributes:
        last: When they came last, seconds since the epoch.
        series: Of which pipelines, sources and strata they are.
    """

    last: float
    series: set[tuple[str, str, str]] = field(default_factory=set)


class Processes:
    """Whose totals are taken.

    Attributes:
        full_until: Until when nobody looks for room again, seconds since the epoch.
    """

    def __init__(self) -> None:
        self.full_until = 0.0
        self._held: dict[tuple[str, float], _Producer] = {}
        self._told = 0

    def take(self, line: Totals, now: float) -> bool:
        """Whether a process' counts are taken: there are not too many.

        Args:
            line: The counts.
            now: When they came, seconds since the epoch.
        """
        held = self._held.get((line.instance, line.started))
        if held is None and not self._has_room(now):
            return False
        held = held or self._held.setdefault((line.instance, line.started), _Producer(now))
        series = (line.pipeline, line.source, line.stratum)
        if series not in held.series:
            if self._told >= 2 * PRODUCERS:  # a process that is known may tell of more, within bounds
                return False
            held.series.add(series)
            self._told += 1
        held.last = now
        return True

    def _has_room(self, now: float) -> bool:
        """Whether another process may tell its totals; those that were silent for a day make room."""
        if self._told >= PRODUCERS and now >= self.full_until:
            self.full_until = now + _FRESH
            self._held = {key: held for key, held in self._held.items() if held.last > now - SILENT}
            self._told = sum(len(held.series) for held in self._held.values())
        return self._told < PRODUCERS

    def dump(self) -> list[Any]:
        """Plain JSON data."""
        return [[*key, held.last, sorted(held.series)] for key, held in self._held.items()]

    def load(self, data: Sequence[Any], full_until: float) -> None:
        """Go on from what `dump` wrote."""
        self.full_until = full_until
        self._held = {
            (instance, started): _Producer(last, {(pipeline, source, stratum) for pipeline, source, stratum in told})
            for instance, started, last, *rest in data
            for told in rest or [[]]  # an older ragmon wrote no series
        }
        self._told = sum(len(held.series) for held in self._held.values())


PAIRS: Final = 32
"""Builds with their indexes that are kept apart in a pipeline, and how many new ones it may bring in an hour."""
FEW_PAIRS: Final = 8
"""Those that are kept apart in a pipeline nobody configured: as many as are shown."""
LONGEST: Final = 1 << 16
"""Characters of a pipeline's name."""
LONGEST_BUILD: Final = 1024
"""Characters of a build's and an index's."""
_HOUR: Final = 3600.0
_USUAL: Final = (constants.LIVE, constants.MATCH, constants.LABEL, constants.PROBE)
"""Sources under which a configured pipeline always has its series."""

Pair = tuple[str, str]
"""A build and its index."""


@dataclass(frozen=True)
class SeriesBudget:
    """How many Prometheus series there may be of what nobody configured.

    Attributes:
        room: What is left beside the pipelines that are configured, and `__other__`.
        pipeline: What a pipeline takes, whatever its sources.
        sources: What each source of a pipeline takes beside that.
    """

    room: int
    pipeline: int
    sources: Mapping[str, int]


@dataclass
class _Held:
    """A pipeline that has series of its own.

    Attributes:
        last: When it was heard of last, to the minute, seconds since the epoch.
        sources: Those it has series for.
    """

    last: float
    sources: set[str] = field(default_factory=set)


class CardinalityLimiter:
    """Gives records the names they are counted under.

    Args:
        configured: Pipelines that are always admitted.
        budget: What all others share.

    Attributes:
        retired: `(pipeline, build, index_hash)` that made room for newer ones since somebody took them away.
        overflow: How often a name came that is not kept apart, by kind (`ragmon.core.constants.NAME_KINDS`).
    """

    def __init__(self, configured: Collection[str], budget: SeriesBudget) -> None:
        self.retired: list[tuple[str, str, str]] = []
        self.overflow: Counter[str] = Counter()
        self._configured = frozenset(configured)
        self._budget = budget
        self._used = 0
        self._due = inf
        self._pipelines: dict[str, _Held] = {}
        self._pairs: dict[str, dict[Pair, float]] = {}
        self._new: dict[str, list[float]] = {}
        self._processes = Processes()
        self._as_they_are: set[tuple[str | None, ...]] = set()
        self._until = 0.0

    def record(self, record: Record, now: float) -> Record:
        """The record under the names it is counted under; the same one where they are its own.

        Args:
            record: The record.
            now: When it came, seconds since the epoch.
        """
        sampling = record.sampling
        stratum = None if sampling is None else sampling.stratum
        names_of = (record.pipeline, record.source, record.build, record.index_hash, stratum)
        if names_of in self._as_they_are and now < self._until:
            return record
        found = self._renamed(record, now)
        if now >= self._until:
            self._as_they_are.clear()
            self._until = now + _FRESH
        if found is record:
            self._as_they_are.add(names_of)
        return found

    def known(self, record: Record) -> Record:
        """An answer under the names a label on it is counted under by now; nobody is admitted for it, or makes room."""
        pipeline = record.pipeline or constants.DEFAULT_PIPELINE
        held = self._pipelines.get(pipeline)
        if pipeline not in self._configured and (held is None or constants.LABEL not in held.sources):
            pipeline = OTHER
        pair = (record.build or "", record.index_hash or "")
        return _under(record, pipeline, pair if pair in self._pairs.get(pipeline, {}) else (OTHER, OTHER))

    def _renamed(self, record: Record, now: float) -> Record:
        source = record.source or constants.REPLAY
        pipeline, pair = self._pipeline(record.pipeline or constants.DEFAULT_PIPELINE, source, now), (OTHER, OTHER)
        if record.build or record.index_hash:
            pair = self._pair(pipeline, (record.build or "", record.index_hash or ""), now)
        return _under(record, pipeline, pair)

    def totals(self, line: Totals, now: float) -> bool:
        """Whether a producer's counts are taken: its pipeline has a name of its own, and it is one of not too many."""
        told = line.source in constants.SOURCES and line.stratum in constants.CALL_STRATA
        if not told or len(line.instance) > LONGEST_BUILD:
            return False
        if self._pipeline(line.pipeline, line.source, now) != line.pipeline:
            return False
        taken = self._processes.take(line, now)
        self.overflow[constants.PRODUCER_NAMES] += not taken
        return taken

    def silent(self, now: float) -> list[str]:
        """Take away the places of pipelines nobody configured and nobody heard of for a day; returns their names.

        Args:
            now: When something came, seconds since the epoch.
        """
        if now < self._due:
            return []
        gone = [name for name, held in self._pipelines.items() if self._due_at(name, held) <= now]
        for name in gone:
            del self._pipelines[name]
            self._pairs.pop(name, None)
            self._new.pop(name, None)
        self._count()
        if gone:
            self._as_they_are.clear()
        return gone

    def shows(self, pipeline: str) -> bool:
        """Whether a pipeline has series of its own: it is configured, or was heard of and not given up."""
        return pipeline in self._pipelines or self._stays(pipeline)

    def shown(self, pipelines: Iterable[str]) -> set[str]:
        """Of some pipelines those that have series, and of those that were never heard of as many as there is room for.

        Args:
            pipelines: Their names.
        """
        asked = sorted(set(pipelines))
        free = (self._budget.room - self._used) // (self._budget.pipeline + self._budget.sources[constants.LIVE])
        new = [name for name in asked if not self.shows(name)]
        return {name for name in asked if self.shows(name)} | set(new[: max(0, free)])

    def _pipeline(self, name: str, source: str, now: float) -> str:
        """The name a pipeline is counted under; it has its place from now on, where there is one."""
        name = OTHER if name == GONE else name
        held = self._pipelines.get(name)
        if held is None or source not in held.sources:
            cost = self._cost(name, source, new=held is None)
            if cost and name != OTHER and (self._used + cost > self._budget.room or len(name) > LONGEST):
                self.overflow[constants.PIPELINE_NAMES if held is None else constants.SOURCE_NAMES] += 1
                return self._pipeline(OTHER, source, now)
            held = self._pipelines.setdefault(name, _Held(now))
            held.sources.add(source)
            self._used += cost
            self._due = min(self._due, self._due_at(name, held))
        held.last = now
        return name

    def _cost(self, name: str, source: str, *, new: bool) -> int:
        """How many series a source of a pipeline takes from what all share."""
        reserved = (constants.LIVE,) if name == OTHER else _USUAL
        stays = self._stays(name)
        if stays and source in reserved:
            return 0
        return self._budget.sources.get(source, 0) + (self._budget.pipeline if new and not stays else 0)

    def _stays(self, name: str) -> bool:
        """Whether a pipeline has its place whatever happens."""
        return name == OTHER or name in self._configured

    def _due_at(self, name: str, held: _Held) -> float:
        """When a pipeline gives its place back if nothing comes of it."""
        return inf if self._stays(name) else held.last + SILENT

    def _count(self) -> None:
        """What is taken of the budget, and when the first place may be given back."""
        self._used, self._due = 0, inf
        for name, held in self._pipelines.items():
            for place, source in enumerate(sorted(held.sources)):
                self._used += self._cost(name, source, new=place == 0)
            self._due = min(self._due, self._due_at(name, held))

    def _pair(self, pipeline: str, pair: Pair, now: float) -> Pair:
        known = self._pairs.setdefault(pipeline, {})
        if pair in known:
            known[pair] = now
            return pair
        lately = self._new[pipeline] = [at for at in self._new.get(pipeline, []) if at > now - _HOUR]
        if len(lately) >= PAIRS or max(map(len, pair)) > LONGEST_BUILD:
            self.overflow[constants.BUILD_NAMES] += 1
            return OTHER, OTHER
        lately.append(now)
        if len(known) >= (PAIRS if pipeline in self._configured else FEW_PAIRS):
            oldest = min(known, key=known.__getitem__)
            del known[oldest]
            self._as_they_are.clear()
            self.retired.append((pipeline, *oldest))
        known[pair] = now
        return pair

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "pipelines": {name: [held.last, sorted(held.sources)] for name, held in self._pipelines.items()},
            "overflow": self.overflow,
            "pairs": {name: [[*pair, at] for pair, at in pairs.items()] for name, pairs in self._pairs.items()},
            "new": self._new,
            "producers": self._processes.dump(),
            "fresh": [self._until, self._processes.full_until, [list(one) for one in self._as_they_are]],
        }

    def load(self, data: Mapping[str, Any], heard: float) -> None:
        """Go on from what `dump` wrote.

        Args:
            data: What it wrote.
            heard: When a record came last, seconds since the epoch: an older ragmon did not say it of each pipeline.
        """
        self.overflow = Counter(data.get("overflow", {}))
        self._pairs = {name: {(b, i): at for b, i, at in pairs} for name, pairs in data["pairs"].items()}
        self._new = {name: list(found) for name, found in data["new"].items()}
        self._until, full_until, names_of = data["fresh"]
        self._processes.load(data["producers"], full_until)
        self._as_they_are = {tuple(one) for one in names_of}
        told = data["pipelines"]
        if not isinstance(told, dict):  # an older ragmon wrote their names alone
            told = {name: [heard, [constants.LIVE]] for name in told}
        self._pipelines = {name: _Held(last, set(sources)) for name, (last, sources) in told.items()}
        self._count()


def _under(record: Record, pipeline: str, pair: Pair) -> Record:
    """A record under other names, and in a stratum there is; the same one where they are its own.

    Args:
        record: The record.
        pipeline: That of its pipeline.
        pair: That of its build and its index, where it names any.
    """
    sampling = record.sampling
    if record.pipeline is not None and pipeline != record.pipeline:
        record = msgspec.structs.replace(record, pipeline=pipeline)
    if sampling is not None and sampling.stratum not in constants.CALL_STRATA:
        unknown = msgspec.structs.replace(sampling, stratum=constants.UNKNOWN_WEIGHT)
        record = msgspec.structs.replace(record, sampling=unknown)
    if (record.build or record.index_hash) and pair != (record.build or "", record.index_hash or ""):
        record = msgspec.structs.replace(record, build=pair[0], index_hash=pair[1])
    return record
