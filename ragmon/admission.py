"""What becomes a series: names come from outside, and a mistake in one application must not fill the memory.

Nothing is refused: what comes past a cap is counted under `__other__`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from ragmon import names
from ragmon.contract import Record, Totals
from ragmon.names import OTHER

PIPELINES: Final = 200
"""Pipelines nobody configured."""
PAIRS: Final = 32
"""Builds with their indexes that are kept apart in a pipeline, and how many new ones it may bring in an hour."""
PRODUCERS: Final = 5000
"""Processes whose totals are kept apart."""
LONGEST: Final = 1 << 16
"""Characters of a pipeline's name."""
LONGEST_BUILD: Final = 1024
"""Characters of a build's and an index's."""
_HOUR: Final = 3600.0
_FRESH: Final = 60.0
"""Seconds in which names that were looked up are not looked up again."""
_SILENT: Final = 86_400.0

Pair = tuple[str, str]
"""A build and its index."""


class Admission:
    """Gives records the names they are counted under.

    Args:
        configured: Pipelines that are always admitted.

    Attributes:
        retired: `(pipeline, build, index_hash)` that made room for newer ones since somebody took them away.
    """

    def __init__(self, configured: Collection[str]) -> None:
        self.retired: list[tuple[str, str, str]] = []
        self._configured = frozenset(configured)
        self._pipelines: dict[str, None] = {}
        self._pairs: dict[str, dict[Pair, float]] = {}
        self._new: dict[str, list[float]] = {}
        self._producers: dict[tuple[str, float], float] = {}
        self._as_they_are: set[tuple[str | None, ...]] = set()
        self._until = 0.0
        self._full_until = 0.0

    def record(self, record: Record, now: float) -> Record:
        """The record under the names it is counted under; the same one where they are its own.

        Args:
            record: The record.
            now: When it came, seconds since the epoch.
        """
        sampling = record.sampling
        names_of = (record.pipeline, record.build, record.index_hash, None if sampling is None else sampling.stratum)
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
        """The record under the names it is counted under by now; nobody is admitted for it, and nobody makes room."""
        pipeline = record.pipeline or names.DEFAULT_PIPELINE
        if pipeline not in self._configured and pipeline not in self._pipelines:
            pipeline = OTHER
        pair = (record.build or "", record.index_hash or "")
        return _under(record, pipeline, pair if pair in self._pairs.get(pipeline, {}) else (OTHER, OTHER))

    def _renamed(self, record: Record, now: float) -> Record:
        pipeline, pair = self._pipeline(record.pipeline or names.DEFAULT_PIPELINE), (OTHER, OTHER)
        if record.build or record.index_hash:
            pair = self._pair(pipeline, (record.build or "", record.index_hash or ""), now)
        return _under(record, pipeline, pair)

    def totals(self, line: Totals, now: float) -> bool:
        """Whether a producer's counts are taken: its pipeline has a name of its own, and it is one of not too many."""
        known = line.pipeline == OTHER or self._pipeline(line.pipeline) == line.pipeline
        if not known or line.stratum not in names.CALL_STRATA or len(line.instance) > LONGEST_BUILD:
            return False
        key = (line.instance, line.started)
        if key not in self._producers and len(self._producers) >= PRODUCERS:
            if now < self._full_until:
                return False
            self._full_until = now + _FRESH
            self._producers = {held: last for held, last in self._producers.items() if last > now - _SILENT}
            if len(self._producers) >= PRODUCERS:
                return False
        self._producers[key] = now
        return True

    def _pipeline(self, name: str) -> str:
        if name in self._configured or name in self._pipelines:
            return name
        if len(self._pipelines) >= PIPELINES or len(name) > LONGEST:
            return OTHER
        self._pipelines[name] = None
        return name

    def _pair(self, pipeline: str, pair: Pair, now: float) -> Pair:
        known = self._pairs.setdefault(pipeline, {})
        if pair in known:
            known[pair] = now
            return pair
        lately = self._new[pipeline] = [at for at in self._new.get(pipeline, []) if at > now - _HOUR]
        if len(lately) >= PAIRS or max(map(len, pair)) > LONGEST_BUILD:
            return OTHER, OTHER
        lately.append(now)
        if len(known) >= PAIRS:
            oldest = min(known, key=known.__getitem__)
            del known[oldest]
            self._as_they_are.clear()
            self.retired.append((pipeline, *oldest))
        known[pair] = now
        return pair

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "pipelines": list(self._pipelines),
            "pairs": {name: [[*pair, at] for pair, at in pairs.items()] for name, pairs in self._pairs.items()},
            "new": self._new,
            "producers": [[*key, at] for key, at in self._producers.items()],
            "fresh": [self._until, self._full_until, [list(one) for one in self._as_they_are]],
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self._pipelines = dict.fromkeys(data["pipelines"])
        self._pairs = {name: {(b, i): at for b, i, at in pairs} for name, pairs in data["pairs"].items()}
        self._new = {name: list(found) for name, found in data["new"].items()}
        self._producers = {(instance, started): at for instance, started, at in data["producers"]}
        self._until, self._full_until, names_of = data["fresh"]
        self._as_they_are = {tuple(one) for one in names_of}


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
    if sampling is not None and sampling.stratum not in names.CALL_STRATA:
        unknown = msgspec.structs.replace(sampling, stratum=names.UNKNOWN_WEIGHT)
        record = msgspec.structs.replace(record, sampling=unknown)
    if (record.build or record.index_hash) and pair != (record.build or "", record.index_hash or ""):
        record = msgspec.structs.replace(record, build=pair[0], index_hash=pair[1])
    return record
