"""Limits of cardinality: which names become series, and which processes may report totals.

Names come from outside, and a mistake in one application must not exhaust the memory. Nothing is rejected: a name above
a limit is counted under `__other__`, and the overflow is counted as well. Which names are admitted depends only on what
arrived and when, so that a replay admits the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final
from zlib import crc32

import msgspec

from ragmon.core import constants
from ragmon.core.constants import DROPPED_PIPELINES, OTHER
from ragmon.core.record import Record, Totals
from ragmon.core.sampling import calls_per_record
from ragmon.stats.histograms import add_counts

PRODUCERS: Final = 20_000
"""Limit of (pipeline, source, stratum) counters over all processes, above which no new process is admitted.

These are 5,000 processes with four strata. They take about 100 MB.
"""
SILENT: Final = 86_400.0  # seconds without a report after which a process may be gone
_FRESH: Final = 60.0


class AcceptedProcess(msgspec.Struct):
    """A process whose totals are accepted."""

    last: float
    series: dict[tuple[str, str, str], None] = {}


class Processes(msgspec.Struct):
    """The processes whose totals are accepted.

    Attributes:
        full_until: Until when no search for free space is made, seconds since the epoch.
    """

    full_until: float = 0.0
    held: dict[tuple[str, float], AcceptedProcess] = {}
    series: int = 0

    def take(self, line: Totals, now: float) -> bool:
        """Whether a process' totals that arrived now are accepted."""
        process = self.held.get((line.instance, line.started))
        if process is None:
            if self.series >= PRODUCERS and now >= self.full_until:  # those that were silent for a day give room back
                self.full_until = now + _FRESH
                self.held = {key: process for key, process in self.held.items() if process.last > now - SILENT}
                self.series = sum(len(process.series) for process in self.held.values())
            if self.series >= PRODUCERS:
                return False
        process = process or self.held.setdefault((line.instance, line.started), AcceptedProcess(now))
        series = (line.pipeline, line.source, line.stratum)
        if series not in process.series:
            if self.series >= 2 * PRODUCERS:  # a known process may report more series, within a limit
                return False
            process.series[series] = None
            self.series += 1
        process.last = now
        return True


PAIRS: Final = 32
"""Builds with their indexes that a configured pipeline may have, and how many any pipeline may add per hour."""
REFUSED: Final = 1000
BUILDS: Final = 8  # builds and indexes of a pipeline that are exported: the latest ones
FEW_PAIRS: Final = BUILDS
"""Builds with their indexes that an unconfigured pipeline may have: as many as are exported."""
CODES: Final = 32  # error types of a pipeline with a series of their own; all others share one
LONGEST: Final = 1 << 16
LONGEST_BUILD: Final = 1024
_HOUR: Final = 3600.0
_USUAL: Final = (constants.LIVE, constants.MATCH, constants.LABEL, constants.PROBE)
"""Sources for which a configured pipeline always has series."""

Pair = tuple[str, str]  # A build and its index


@dataclass(frozen=True)
class SeriesBudget:
    """How many Prometheus series unconfigured pipelines may have."""

    room: int
    pipeline: int
    sources: Mapping[str, int]


class AdmittedPipeline(msgspec.Struct):
    """A pipeline that has its own series.

    Attributes:
        last: When its last record arrived, seconds since the epoch, to the minute.
    """

    last: float
    sources: list[str] = []


Names = tuple[str | None, ...]  # pipeline, source, build, index and stratum of a record


class LimiterState(msgspec.Struct):
    """What a `CardinalityLimiter` has admitted.

    Attributes:
        overflow: How often a name was not admitted, by kind (`ragmon.core.constants.NAME_KINDS`).
        refused: The series that names would have that found no place, by a checksum of the name; at most `REFUSED`.
        pairs: The builds and indexes of each pipeline, with the time of their last record.
        unchanged_until: Until when names that were unchanged stay so, seconds since the epoch.
    """

    pipelines: dict[str, AdmittedPipeline] = {}
    overflow: dict[str, int] = {}
    refused: dict[int, int] = {}
    pairs: dict[str, dict[Pair, float]] = {}
    recent_pairs: dict[str, list[float]] = {}
    processes: Processes = msgspec.field(default_factory=Processes)
    unchanged_until: float = 0.0
    unchanged_names: dict[Names, None] = {}


class CardinalityLimiter:
    """Gives records the names they are counted under.

    Attributes:
        retired: `(pipeline, build, index_hash)` that were replaced by newer ones since the list was last taken.
        state: What it has admitted; to be replaced by `restore` alone.
    """

    def __init__(self, configured: Collection[str], budget: SeriesBudget) -> None:
        self.retired: list[tuple[str, str, str]] = []
        self.state = LimiterState()
        self._configured = frozenset(configured)
        self._budget = budget
        self._used = 0
        self._due = inf

    def record(self, record: Record, now: float) -> Record:
        """The record under the names it is counted under; the same object where they do not change."""
        sampling = record.sampling
        stratum = None if sampling is None else sampling.stratum
        names, state = (record.pipeline, record.source, record.build, record.index_hash, stratum), self.state
        if names in state.unchanged_names and now < state.unchanged_until:
            return record
        source, pair = record.source or constants.REPLAY, (OTHER, OTHER)
        pipeline = self._pipeline(record.pipeline or constants.DEFAULT_PIPELINE, source, now)
        if record.build or record.index_hash:
            pair = self._pair(pipeline, (record.build or "", record.index_hash or ""), now)
        renamed = _renamed_to(record, pipeline, pair)
        if now >= state.unchanged_until:
            state.unchanged_names.clear()
            state.unchanged_until = now + _FRESH
        if renamed is record:
            state.unchanged_names[names] = None
        return renamed

    def names(self, pipeline: str, source: str, build: str, index_hash: str, now: float) -> tuple[str, str, str]:
        """The pipeline, build and index that records with these names are counted under; "" where they have none."""
        name = self._pipeline(pipeline, source, now)
        return (name, *(self._pair(name, (build, index_hash), now) if build or index_hash else ("", "")))

    def with_label_names(self, record: Record) -> Record:
        """An answer under the names that a label on it is counted under now; this admits and retires nothing."""
        pipeline = record.pipeline or constants.DEFAULT_PIPELINE
        admitted = self.state.pipelines.get(pipeline)
        if pipeline not in self._configured and (admitted is None or constants.LABEL not in admitted.sources):
            pipeline = OTHER
        pair = (record.build or "", record.index_hash or "")
        return _renamed_to(record, pipeline, pair if pair in self.state.pairs.get(pipeline, {}) else (OTHER, OTHER))

    def totals(self, line: Totals, now: float) -> bool:
        """Whether a producer's totals are accepted: its pipeline is admitted, and so is the process."""
        is_valid = line.source in constants.SOURCES and line.stratum in constants.CALL_STRATA
        if not is_valid or len(line.instance) > LONGEST_BUILD:
            return False
        if self._pipeline(line.pipeline, line.source, now) != line.pipeline:
            return False
        is_admitted = self.state.processes.take(line, now)
        if not is_admitted:
            add_counts(self.state.overflow, {constants.PRODUCER_NAMES: 1})
        return is_admitted

    def silent(self, now: float) -> list[str]:
        """Remove unconfigured pipelines without data for a day; returns their names."""
        if now < self._due:
            return []
        silent_names = [name for name, admitted in self.state.pipelines.items() if self._due_at(name, admitted) <= now]
        for name in silent_names:
            del self.state.pipelines[name]
            self.state.pairs.pop(name, None)
            self.state.recent_pairs.pop(name, None)
        self._count()
        if silent_names:
            self.state.unchanged_names.clear()
        return silent_names

    @property
    def lacking(self) -> int:
        """The series beyond `[serve] max_series` that the names that found no place would reserve."""
        return max(0, self._used + sum(self.state.refused.values()) - self._budget.room)

    def shows(self, pipeline: str) -> bool:
        """Whether a pipeline has its own series: it is configured, or admitted and not removed."""
        return pipeline in self.state.pipelines or self._is_permanent(pipeline)

    def shown(self, pipelines: Iterable[str]) -> set[str]:
        """The pipelines that have series, and as many of the others as the budget allows."""
        names = sorted(set(pipelines))
        free = (self._budget.room - self._used) // (self._budget.pipeline + self._budget.sources[constants.LIVE])
        others = [name for name in names if not self.shows(name)]
        return {name for name in names if self.shows(name)} | set(others[: max(0, free)])

    def _pipeline(self, name: str, source: str, now: float) -> str:
        name = OTHER if name == DROPPED_PIPELINES else name
        admitted = self.state.pipelines.get(name)
        if admitted is None or source not in admitted.sources:
            cost = self._cost(name, source, new=admitted is None)
            checksum = crc32(f"{name}/{source}".encode(errors="replace"))
            if cost and name != OTHER and (self._used + cost > self._budget.room or len(name) > LONGEST):
                kind = constants.PIPELINE_NAMES if admitted is None else constants.SOURCE_NAMES
                add_counts(self.state.overflow, {kind: 1})
                if len(name) <= LONGEST and len(self.state.refused) < REFUSED:
                    self.state.refused[checksum] = cost
                return self._pipeline(OTHER, source, now)
            admitted = self.state.pipelines.setdefault(name, AdmittedPipeline(now))
            admitted.sources.append(source)
            self.state.refused.pop(checksum, None)
            self._used += cost
            self._due = min(self._due, self._due_at(name, admitted))
        admitted.last = now
        return name

    def _cost(self, name: str, source: str, *, new: bool) -> int:
        reserved = (constants.LIVE,) if name == OTHER else _USUAL
        is_permanent = self._is_permanent(name)
        if is_permanent and source in reserved:
            return 0
        return self._budget.sources.get(source, 0) + (self._budget.pipeline if new and not is_permanent else 0)

    def _is_permanent(self, name: str) -> bool:
        return name == OTHER or name in self._configured

    def _due_at(self, name: str, admitted: AdmittedPipeline) -> float:
        return inf if self._is_permanent(name) else admitted.last + SILENT

    def _count(self) -> None:
        self._used, self._due = 0, inf
        for name, admitted in self.state.pipelines.items():
            for index, source in enumerate(sorted(admitted.sources)):
                self._used += self._cost(name, source, new=index == 0)
            self._due = min(self._due, self._due_at(name, admitted))

    def _pair(self, pipeline: str, pair: Pair, now: float) -> Pair:
        if pair == (OTHER, OTHER):
            return pair
        pairs = self.state.pairs.setdefault(pipeline, {})
        if pair in pairs:
            pairs[pair] = now
            return pair
        recent = [at for at in self.state.recent_pairs.get(pipeline, []) if at > now - _HOUR]
        self.state.recent_pairs[pipeline] = recent
        if len(recent) >= PAIRS or max(map(len, pair)) > LONGEST_BUILD:
            add_counts(self.state.overflow, {constants.BUILD_NAMES: 1})
            return OTHER, OTHER
        recent.append(now)
        if len(pairs) >= (PAIRS if pipeline in self._configured else FEW_PAIRS):
            oldest = min(pairs, key=pairs.__getitem__)
            del pairs[oldest]
            self.state.unchanged_names.clear()
            self.retired.append((pipeline, *oldest))
        pairs[pair] = now
        return pair

    def restore(self, state: LimiterState) -> None:
        """Replace everything by a saved state."""
        self.state = state
        self._count()


def _renamed_to(record: Record, pipeline: str, pair: Pair) -> Record:
    sampling = record.sampling
    if record.pipeline is not None and pipeline != record.pipeline:
        record = msgspec.structs.replace(record, pipeline=pipeline)
    known = (*constants.CALL_STRATA, constants.SAMPLED)
    if sampling is not None and sampling.stratum not in known and calls_per_record(sampling.stratum) is None:
        unknown = msgspec.structs.replace(sampling, stratum=constants.UNKNOWN_WEIGHT)
        record = msgspec.structs.replace(record, sampling=unknown)
    if (record.build or record.index_hash) and pair != (record.build or "", record.index_hash or ""):
        record = msgspec.structs.replace(record, build=pair[0], index_hash=pair[1])
    return record
