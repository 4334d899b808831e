"""The scorer: counts each record in its series, from the record, its gold item and the metrics.

This is the only place where record, gold item, metrics and windows meet: one call per record, live and offline alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import msgspec

from ragmon import stats
from ragmon.core import constants
from ragmon.core.gold_item import GoldItem
from ragmon.core.log import error_location, warn_once
from ragmon.core.record import Record, Sampling
from ragmon.gold import GoldIndex, GoldSet
from ragmon.gold.sets import Items
from ragmon.metrics.base import Metric, build
from ragmon.metrics.facts import OUTCOME_UNKNOWN, SHIPPED, FactReader, Facts, Key
from ragmon.metrics.grounding import DEFAULT_THRESHOLD, Groundedness
from ragmon.scoring.captured import NO_BUILD, CapturedSeries, ids_in_gold
from ragmon.scoring.groups import group_of
from ragmon.scoring.membership import CLUSTER
from ragmon.scoring.score_table import Score, ScoreTable
from ragmon.scoring.series import SeriesKey, WindowSeries
from ragmon.scoring.snapshot import ALL, Snapshot, take_snapshot
from ragmon.scoring.windows import MODEL_SLICE, State, WindowsState


@dataclass(frozen=True)
class ReductionRules:
    """How the records of a pipeline are reduced to facts.

    Args:
        facts: The refusal rule and the latency bound.
        grounded_threshold: The groundedness from which an answer counts as grounded.
        slices: Tags that become series: allowed values by tag name.
        cluster: What makes a cluster of requests that share their fate: `session`, `question`.
    """

    facts: FactReader = field(default_factory=FactReader)
    grounded_threshold: float = DEFAULT_THRESHOLD
    slices: Mapping[str, Collection[str]] = field(default_factory=dict)
    cluster: Collection[str] = CLUSTER


class Assessment(NamedTuple):
    """One record as it is counted.

    Attributes:
        item: Its gold item; None where it has none.
        how: How the item was found (`ragmon.core.constants.MATCH_METHODS`); "" without one.
        facts: Its facts.
        scores: By metric: micro-units, the reason why it is unassessed, or None where it is not in the denominator.
        slices: The slices it belongs to.
    """

    item: GoldItem | None
    how: str
    facts: Facts
    scores: Mapping[str, Score]
    slices: tuple[str, ...]


Names = tuple[str | None, str | None, str | None, str | None]


@dataclass
class StreamCache:
    """What follows from the pipeline, source, build and index of a record; cached for all records that share them.

    Attributes:
        names: The same as the record has them.
        captured: What was captured of the pipeline and source.
        lacks: The bits of what all of its records lack.
        series: By source, gold version, slice, audit and stratum.
    """

    names: Names
    pipeline: str
    source: str
    build: str
    index_hash: str
    rules: ReductionRules
    items: Items
    captured: CapturedSeries
    lacks: int
    series: dict[tuple[str, str, str, bool, str], WindowSeries] = field(default_factory=dict)


MODELS: Final = 16
"""Models of a pipeline that are counted apart; further ones together, as `OTHER`."""
LONGEST_MODEL: Final = 200
"""Maximum characters of the name of a model that is counted apart."""
MODEL_TAG: Final = "model"
_KEPT_ALL = Sampling()
_NOTHING: Mapping[str, int] = MappingProxyType({})
_NO_VERSIONS: Mapping[str, str] = MappingProxyType({})
FUTURE = 300.0
"""Seconds that a record's time may be ahead of the clock."""
STREAMS = 4096
"""Stream caches that are kept; builds and indexes change over time."""


class ScoreObserver(Protocol):
    """Follows the requests that a scorer counts: for alarms, for failures of gates, for the clusters of a release."""

    def collect(
        self,
        pipeline: str,
        arrival: float,
        source: str,
        record: Record,
        item: GoldItem | None,
        key: Key,
        measured: Mapping[str, int],
        slices: Sequence[str],
        in_gold: bool | None,
    ) -> None:
        """Follow a request, once for each source it is counted under.

        Args:
            pipeline: Its pipeline.
            arrival: When it arrived, seconds since the epoch.
            source: The source it is counted under.
            record: The request.
            item: Its gold item.
            key: Its facts.
            measured: Its measured scores in micro-units, of metrics that apply to it.
            slices: The slices it belongs to.
            in_gold: Whether its retrieved ids occur in gold; None where there are none to compare.
        """


class ScorerState(msgspec.Struct):
    """The saved form of a scorer's counts."""

    windows: WindowsState
    scored: int
    unmatched: int
    dropped: dict[str, int]


class Scorer:
    """Scores records and counts the scores.

    Args:
        gold: The gold items that records are matched with; with None, only metrics that need no gold are scored.
        metrics: By key, or the table of their scores; default: every registered metric with k = 1, 3, 5, 10.
        rules: How records are reduced.
        by_pipeline: Other rules for single pipelines.
        state: The state to count in; default: a new state that keeps everything.
        clock: Seconds since the epoch, to drop records from the future; None trusts their time (replay).
        observers: Follow every counted request. A request without a time reaches them only where there is a clock.
        ages_by_clock: Whether a record is too old by the clock, so that the records before it have no part in it. By
            default it is too old by the newest record: arrivals lie ahead after a clock was wrong and is right again.

    Attributes:
        observers: Those that follow.

    Examples:
        >>> from ragmon.core.record import Answer, Record
        >>> scorer = Scorer()
        >>> scorer.observe(Record(qid="a", answer_json=Answer(claim="not in context", citations=[])))
        True
        >>> scorer.snapshot().find("default", "replay").metrics["refusal_rate"].value
        1.0
    """

    def __init__(
        self,
        gold: GoldIndex | GoldSet | None = None,
        *,
        metrics: Mapping[str, Metric] | ScoreTable | None = None,
        rules: ReductionRules | None = None,
        by_pipeline: Mapping[str, ReductionRules] | None = None,
        state: State | None = None,
        clock: Callable[[], float] | None = None,
        observers: Sequence[ScoreObserver] = (),
        ages_by_clock: bool = False,
    ) -> None:
        self.gold = gold if isinstance(gold, GoldIndex) else GoldIndex(gold or ())
        self.table = metrics if isinstance(metrics, ScoreTable) else ScoreTable(build() if metrics is None else metrics)
        self.state = state if state is not None else State()
        self.state.cut = self.table.cut
        self.dropped: dict[str, int] = {}
        self.scored = 0
        self.unmatched = 0
        self._rules = rules or ReductionRules()
        self._by_pipeline = dict(by_pipeline or {})
        self._clock = clock
        self._ages_by_clock = ages_by_clock
        self.observers = tuple(observers)
        self._measured = [m for m in self.table.metrics.values() if m.measured]
        # Whether an answer is grounded is a fact, whichever metrics are asked for.
        self._fact_metrics = () if Groundedness.name in self.table.metrics else (Groundedness(),)
        self._always = any(metric.reads not in ("contexts", "measures") for metric in self._measured)
        self._streams: dict[Names, StreamCache] = {}
        self._latest: StreamCache | None = None
        self._models: dict[str, set[str]] = {}

    def observe(self, record: Record) -> bool:
        """Score one record.

        Args:
            record: One request.

        Returns:
            True when it was scored; False when it was dropped, which `dropped` counts by reason.
        """
        names = (record.pipeline, record.source, record.build, record.index_hash)
        stream = self._latest
        if stream is None or stream.names != names:  # to hash the names takes longer, and they rarely change
            stream = self._latest = self._streams.get(names) or self._stream(record)
        ts = record.ts
        if ts is not None and (reason := self._out_of_time(ts)):
            return self._drop(reason)
        item = stream.items.by_qid.get(record.qid)
        if item is None and (record.q is not None or record.facts is not None):
            item = stream.items.by_text(record)
        facts = record.facts
        measured, grounded = _NOTHING, facts.grounded if facts is not None else None
        if record.contexts is not None or record.measures is not None or self._always:
            measured, grounded = self._measure(record, item, stream.rules.grounded_threshold)
        key = stream.rules.facts.read(record, item, grounded)
        if stream.source == constants.LIVE and item is not None:
            # A matched live request counts twice: as live traffic without its gold item, and as a match.
            key_without_gold = stream.rules.facts.read(record, None, grounded)
            self._count(stream, constants.LIVE, record, None, key_without_gold, measured)
            self._count(stream, constants.MATCH, record, item, key, measured)
            if record.sampling is None or record.sampling.drawn:
                self.state.matched[stream.pipeline, stream.items.how(record)] += 1
        else:
            self._count(stream, stream.source, record, item, key, measured)
        stream.captured.see(record, item, key, stream.items, stream.lacks)
        self.scored += 1
        if item is None:
            self.unmatched += 1
        return True

    def _out_of_time(self, ts: float) -> str:
        """Why a record of a time is not counted; "" where it is."""
        newest, retention = self.state.newest, self.state.retention
        if self._clock is not None:
            now = self._clock()
            if ts > now + FUTURE:
                return constants.TOO_FUTURE
            if self._ages_by_clock:
                newest = now
        return constants.TOO_OLD if retention is not None and ts < newest - retention else ""

    def observe_label(self, record: Record, item: GoldItem | None, answered: float | None) -> None:
        """Score a labelled answer; the answer was already counted as a request when it arrived.

        Args:
            record: The answer with its label, of source `label`.
            item: The gold item that the label implies.
            answered: When the answer was given, seconds since the epoch.
        """
        stream = self._stream(record)
        measured, grounded = self._measure(record, item, stream.rules.grounded_threshold)
        key = stream.rules.facts.read(record, item, grounded)
        self._count(stream, constants.LABEL, record, item, key, measured)
        sampling = record.sampling or _KEPT_ALL
        if measured and sampling.drawn:
            pairs, versions = self.table.applying(key, measured), record.judge_versions or _NO_VERSIONS
            self.state.cohorts.see_label(stream.pipeline, sampling.stratum, answered, record.ts, pairs, versions)

    def assess(self, record: Record) -> Assessment:
        """The facts and scores of one record, as they are counted; nothing is counted."""
        rules = self._by_pipeline.get(record.pipeline or constants.DEFAULT_PIPELINE, self._rules)
        items = self.gold.items_for(record.pipeline, record.source)
        item = items.match(record)
        measured, grounded = self._measure(record, item, rules.grounded_threshold)
        key = rules.facts.read(record, item, grounded)
        table_scores = zip(self.table.metrics.items(), self.table.scores(key), strict=True)
        scores: dict[str, Score] = {
            name: measured.get(name) if metric.measured and isinstance(score, int) else score
            for (name, metric), score in table_scores
        }
        slices = _slices_of(record, item, rules.slices) if rules.slices else []
        return Assessment(item, "" if item is None else items.how(record), Facts._make(key), scores, tuple(slices))

    def scores(self, record: Record) -> dict[str, float]:
        """The score of each metric for one record; nothing is counted."""
        scores = self.assess(record).scores.items()
        return {name: score / stats.MICRO for name, score in scores if isinstance(score, int)}

    def _stream(self, record: Record) -> StreamCache:
        """A new stream cache for a record."""
        pipeline, source = record.pipeline or constants.DEFAULT_PIPELINE, record.source or constants.REPLAY
        rules = self._by_pipeline.get(pipeline, self._rules)
        stream = StreamCache(
            names=(record.pipeline, record.source, record.build, record.index_hash),
            pipeline=pipeline,
            source=source,
            build=record.build or "",
            index_hash=record.index_hash or "",
            rules=rules,
            items=self.gold.items_for(record.pipeline, record.source),
            captured=self.state.captured.at(pipeline, source),
            lacks=0 if record.build else NO_BUILD,
        )
        if len(self._streams) >= STREAMS:
            self._streams.clear()
        self._streams[stream.names] = stream
        return stream

    def forget_streams(self) -> None:
        """Clear the stream caches, because series were merged or removed."""
        self._streams.clear()
        self._latest = None
        self._models.clear()

    def replace_state(self, state: State) -> None:
        """Count in another state from here on."""
        self.state = state
        self.state.cut = self.table.cut
        self.forget_streams()

    def dump(self) -> ScorerState:
        """The counts in their saved form; parts of them are not copied."""
        return ScorerState(self.state.dump(), self.scored, self.unmatched, self.dropped)

    def restore(self, state: ScorerState) -> None:
        """Replace all counts by saved ones; the retention of the state stays."""
        self.state.restore(state.windows)
        self.scored, self.unmatched, self.dropped = state.scored, state.unmatched, state.dropped
        self.forget_streams()

    def reset_labels(self) -> None:
        """Delete the counts of labels, so that a report counts them anew: no row expires, and no observer follows."""
        for key in [key for key in self.state.series if key.source == constants.LABEL]:
            del self.state.series[key]
        self.state.cohorts.reset_labels()
        self.state.retention = None
        self.observers = ()
        self.forget_streams()

    def repeats(self, error: Exception, record: Record) -> bool:
        """Whether a record raises this error whenever it is assessed, which is before anything of it is counted."""
        try:
            self.assess(record)
        except Exception as again:  # noqa: BLE001 - a metric is third-party code and may raise anything
            return error_location(again) == error_location(error)
        return False

    def drop_failed(self, error: Exception) -> bool:
        """Account for a record over which something raised; returns False, as `observe` does of what it drops.

        Args:
            error: What was raised; a metric is third-party code and may raise anything.
        """
        warn_once(f"a record could not be scored and is dropped: {error_location(error)}")
        return self._drop(constants.SCORER_ERROR)

    def _drop(self, reason: str) -> bool:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        return False

    def rules_of(self, pipeline: str) -> ReductionRules:
        """How records of a pipeline are reduced to facts."""
        return self._by_pipeline.get(pipeline, self._rules)

    def measured(self, record: Record) -> tuple[Mapping[str, int], bool | None]:
        """The measured scores of a record in micro-units, and whether its answer is grounded; nothing is counted."""
        rules = self.rules_of(record.pipeline or constants.DEFAULT_PIPELINE)
        return self._measure(record, None, rules.grounded_threshold)

    def _measure(
        self, record: Record, item: GoldItem | None, threshold: float
    ) -> tuple[Mapping[str, int], bool | None]:
        """The measured scores in micro-units, and whether the answer is grounded, where text was captured.

        A score that the record carries was measured where the text was, and is used as it is. Text that redaction
        changed is not measured.
        """
        carried, facts = record.measures or {}, record.facts
        measured: dict[str, int] = {}
        grounded = facts.grounded if facts is not None else None
        is_redacted = facts is not None and facts.redacted
        for metric in (*self._measured, *self._fact_metrics):
            score = carried.get(metric.key) if is_redacted or metric.key in carried else metric.measure(record, item)
            if score is None or not math.isfinite(score):
                continue
            measured[metric.key] = stats.micro(min(1.0, max(0.0, score)))
            if metric.key == Groundedness.name:
                grounded = score >= threshold
        for metric in self._fact_metrics:
            measured.pop(metric.key, None)
        return measured, grounded

    def _count(
        self,
        stream: StreamCache,
        source: str,
        record: Record,
        item: GoldItem | None,
        key: Key,
        measured: Mapping[str, int],
    ) -> None:
        """Count a request in its series and in each of its slices."""
        self.table.scores(key)  # a metric that raises must do so before anything is counted
        group = group_of(record, item, source, stream.rules.cluster)
        self._add(stream, source, "", record, item, key, measured, group)
        if key[0] & SHIPPED and source not in constants.ALSO_LIVE_SOURCES:
            self.state.count_answers(stream.pipeline, 1, record.cites or stream.rules.facts.citations_required)
        slices = stream.rules.slices
        request_slices = _slices_of(record, item, slices) if slices else []
        for request_slice in request_slices:
            self._add(stream, source, request_slice, record, item, key, measured, group)
        if record.model and MODEL_TAG not in slices:
            model_slice = self.model_slice(stream.pipeline, record.model)
            self._add(stream, source, model_slice, record, item, key, measured, group)
        applying = self.table.applying(key, measured)
        if source == constants.LIVE and (record.sampling is None or record.sampling.drawn):
            stratum, versions = (record.sampling or _KEPT_ALL).stratum, record.judge_versions or _NO_VERSIONS
            known, shipped = not key[0] & OUTCOME_UNKNOWN, bool(key[0] & SHIPPED)
            cohorts = self.state.cohorts
            cohorts.see(stream.pipeline, stratum, record.ts, applying, versions, known=known, shipped=shipped)
        if self.observers:
            arrival = record.ts if self._clock is None else self._clock()
            if arrival is not None:
                in_gold = None if item is None else ids_in_gold(record, key, stream.items)
                for observer in self.observers:
                    observer.collect(
                        stream.pipeline, arrival, source, record, item, key, applying, request_slices, in_gold
                    )

    def _add(  # everything that a request adds to a series
        self,
        stream: StreamCache,
        source: str,
        where: str,
        record: Record,
        item: GoldItem | None,
        key: Key,
        measured: Mapping[str, int],
        group: int | None,
    ) -> None:
        """Count a request in one series."""
        sampling, ts = record.sampling or _KEPT_ALL, record.ts
        version = "" if item is None else item.set_version
        series = stream.series.get((source, version, where, sampling.audit, sampling.stratum))
        if series is None:
            series = self._series(stream, source, item, where, sampling)
        row = self.state.row(series, ts)
        cells = row.cells
        cell_count = cells.get(key)
        if cell_count is not None:
            cells[key] = cell_count + 1
        elif self.table.has_room(row, key):
            # Rows and item tables hold the same few facts: sharing the tuples halves the memory.
            key = self.table.shared(key)
            cells[key] = 1
        else:
            self.table.spill(row, key, measured)
            measured, group = _NOTHING, None
        if measured:
            for name, score in measured.items():
                row.measure(name, key, score)
        if group is not None:
            row.group(group, key, measured)
        if record.latency_ms is not None:
            row.add_latency(record.latency_ms)
        if item is not None and not where.startswith(MODEL_SLICE):
            self.state.count_item(series, ts, item.qid, key)

    def model_slice(self, pipeline: str, model: str) -> str:
        """The slice of a model: its own, as long as the pipeline has few models."""
        own, others = f"{MODEL_SLICE}{model}", f"{MODEL_SLICE}{constants.OTHER}"
        slices = self._models.get(pipeline)
        if slices is None:
            counted = {key.slice for key in self.state.series if key.pipeline == pipeline} - {others}
            slices = self._models[pipeline] = {name for name in counted if name.startswith(MODEL_SLICE)}
        if own not in slices and own != others:
            if len(slices) >= MODELS or len(model) > LONGEST_MODEL:
                return others
            slices.add(own)
        return own

    def _series(
        self, stream: StreamCache, source: str, item: GoldItem | None, where: str, sampling: Sampling
    ) -> WindowSeries:
        """The series that a record is counted in; cached in the stream."""
        name, version = ("", "") if item is None else (item.set_name, item.set_version)
        audit, stratum = sampling.audit, sampling.stratum
        series = self.state.at(
            SeriesKey(stream.pipeline, source, name, version, where, audit, stratum, stream.build, stream.index_hash)
        )
        stream.series[(source, version, where, audit, stratum)] = series
        return series

    def snapshot(
        self,
        *,
        now: float | None = None,
        windows: Mapping[str, int | None] | None = None,
        gated: Sequence[str] = (),
    ) -> Snapshot:
        """An immutable snapshot of the counts.

        Args:
            now: The end of the windows, seconds since the epoch; default: the newest record.
            windows: Spans in seconds by name; default: everything as one window.
            gated: Gold metrics whose sums per item are needed by gates.
        """
        return take_snapshot(
            self.state,
            self.table,
            now=self.state.newest if now is None else now,
            windows=windows if windows is not None else {ALL: None},
            golds=self.gold.infos(),
            gated=gated,
        )


def _slices_of(record: Record, item: GoldItem | None, slices: Mapping[str, Collection[str]]) -> list[str]:
    """The slices of a record, from its own tags, its model, and the tags of its gold item."""
    model = {} if record.model is None else {MODEL_TAG: record.model}
    tags = {**(item.tags if item is not None else {}), **model, **(record.tags or {})}
    return [
        f"{tag}={tags[tag] if tags[tag] in allowed else constants.OTHER}"
        for tag, allowed in slices.items()
        if tag in tags
    ]
