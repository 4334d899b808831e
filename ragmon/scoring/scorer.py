"""The scorer: counts each record in its series, from the record, its gold item and the metrics.

This is the only place where record, gold item, metrics and windows meet: one call per record, live and offline alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core import constants
from ragmon.core.constants import HOUR
from ragmon.core.errors import error_location, warn_once
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record, Sampling
from ragmon.ingest.gold import GoldIndex, GoldSet, Items, hash_keys
from ragmon.metrics.base import Metric, build
from ragmon.metrics.builtin import DEFAULT_THRESHOLD, Groundedness
from ragmon.metrics.facts import OUTCOME_UNKNOWN, SHIPPED, CitationCounts, FactReader, Facts, Key, read_as
from ragmon.scoring.buckets import ALONE, CELLS, MODEL_SLICE, UNTIMED, Bucket, ItemTable, SeriesKey, State, step_of
from ragmon.scoring.captured import CITES, MARKED, NO_BUILD, CapturedSeries, ids_in_gold
from ragmon.scoring.minutes import CLUSTER, CountedRequest, group_of
from ragmon.scoring.score_table import Score, ScoreTable
from ragmon.scoring.snapshot import ALL, SeriesReader, Snapshot, take_snapshot, vanished_ids
from ragmon.stats import histograms
from ragmon.stats.histograms import MICRO, Sums, add_counts, add_sums, micro, sums_of


@dataclass(frozen=True)
class ReductionRules:
    """How the records of a pipeline are reduced to facts.

    Args:
        slices: Tags that become series: allowed values by tag name.
        shows_text: Whether texts may be kept as examples, and those of probes.
    """

    facts: FactReader = field(default_factory=FactReader)
    grounded_threshold: float = DEFAULT_THRESHOLD
    slices: Mapping[str, Collection[str]] = field(default_factory=dict)
    cluster: Collection[str] = CLUSTER
    shows_text: tuple[bool, bool] = (False, False)


class Assessment(NamedTuple):
    """One record as it is counted.

    Attributes:
        how: How the item was found (`ragmon.core.constants.MATCH_METHODS`); "" without one.
        scores: By metric: micro-units, the reason why it is unassessed, or None where it is not in the denominator.
    """

    item: GoldItem | None
    how: str
    facts: Facts
    scores: Mapping[str, Score]
    slices: tuple[str, ...]


Names = tuple[str | None, str | None, str | None, str | None, str | None, tuple[bool, str] | None]
Location = tuple[str, str, str]  # where a request is counted: source, gold set and its version
Slices = tuple[str, ...]
Counted = tuple[GoldItem | None, int | None, int | None, Slices, Key]
"""What a request is counted under: its gold item, the random group of its cluster, the bits of what it lacks, its
slices, and its facts. The bits are None for a match, whose live half has them, and for a label, whose answer has."""


class OpenBucket:
    """The requests of one step at one location of a stream: each is counted once, and added up when the step is over.

    Attributes:
        step: The start of the step; `UNTIMED` for requests without a time.
        latest: The newest time of one of them, seconds since the epoch; None where they have none.
        is_fresh: Whether the bucket of the step was fresh when they came.
        measures: By metric, the scores that were measured on their texts.
        latency: By slices and stage, a log-bucket histogram of their milliseconds.
    """

    __slots__ = ("counts", "is_fresh", "latency", "latest", "measures", "step")

    def __init__(self) -> None:
        self.step, self.is_fresh = UNTIMED, False
        self.latest: float | None = None
        self.counts: dict[Counted, int] = {}
        self.measures: dict[Counted, dict[str, Sums]] = {}
        self.latency: dict[Slices, dict[str, dict[int, int]]] = {}


@dataclass
class Stream:
    """What follows from the names and the sampling of a record, and the buckets of records that share them.

    Attributes:
        model: The slice of its model; "" without one, or where models are slices of the configuration.
    """

    names: Names
    pipeline: str
    source: str
    build: str
    index_hash: str
    sampling: Sampling
    model: str
    rules: ReductionRules
    items: Items
    captured: CapturedSeries
    lacks: int
    shows_text: bool
    open: dict[Location, OpenBucket] = field(default_factory=dict)


_stages = attrgetter(*constants.STAGES)
MODELS: Final = 16  # models of a pipeline that are counted apart; further ones together, as `OTHER`
LONGEST_MODEL: Final = 200
MODEL_TAG: Final = "model"
SHOWN: Final = ("full", "redacted")
"""Values of `[capture] content` with which texts of answers may be shown."""
_KEPT_ALL = Sampling()
_NOTHING: Mapping[str, int] = MappingProxyType({})
_NO_VERSIONS: Mapping[str, str] = MappingProxyType({})
FUTURE = 300.0  # seconds that a record's time may be ahead of the clock
STREAMS = 4096


class ScoreObserver(Protocol):
    """Follows the requests that a scorer counts: for alarms, for failures of gates, for the clusters of a release."""

    def collect(self, request: CountedRequest) -> None:
        """Follow a request, once for each source it is counted under."""


class Scorer:
    """Scores records and counts the scores.

    Args:
        gold: The gold items that records are matched with; with None, only metrics that need no gold are scored.
        metrics: By key, or the table of their scores; default: every registered metric with k = 1, 3, 5, 10.
        rules: How records are reduced.
        by_pipeline: Other rules for single pipelines.
        state: The state to count in; default: a new state that keeps everything.
        clock: Seconds since the epoch, to drop records from the future; None trusts their time (replay).
        ages_by_clock: Whether a record is too old by the clock, so that the records before it have no part in it. By
            default it is too old by the newest record: arrivals lie ahead after a clock was wrong and is right again.

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
        self._state = state if state is not None else State()
        self._state.cut = self.table.cut
        self._rules = rules or ReductionRules()
        self._by_pipeline = dict(by_pipeline or {})
        self._clock = clock
        self._ages_by_clock = ages_by_clock
        self.observers = tuple(observers)
        self._measured = [m for m in self.table.metrics.values() if m.measured]
        # Whether an answer is grounded is a fact, whichever metrics are asked for.
        self._fact_metrics = () if Groundedness.name in self.table.metrics else (Groundedness(),)
        self._always = any(metric.reads not in ("contexts", "measures") for metric in self._measured)
        self._streams: dict[Names, Stream] = {}
        self._latest: Stream | None = None
        self._open: dict[OpenBucket, tuple[Stream, Location]] = {}
        self._models: dict[str, set[str]] = {}
        self._last_reader: SeriesReader | None = None

    def observe(self, record: Record) -> bool:
        """Score one record; returns False where it was dropped, which `dropped` counts by reason."""
        ts, names, stream = record.ts, _names_of(record), self._latest
        if stream is None or stream.names != names:  # to hash the names takes longer, and they rarely change
            stream = self._latest = self._streams.get(names) or self._stream(record, names)
        if ts is not None and (self._state.is_live or self._clock is not None):  # a replay takes records of any time
            newest, retention = self._state.newest, self._state.retention
            if self._clock is not None:
                now = self._clock()
                if ts > now + FUTURE:
                    return self._drop(constants.TOO_FUTURE)
                newest = now if self._ages_by_clock else newest
            if self._state.is_live and retention is not None and ts < newest - retention:
                return self._drop(constants.TOO_OLD)
        item = stream.items.by_qid.get(record.qid)
        if item is None and (record.q is not None or record.facts is not None):
            item = stream.items.by_text(record)
        facts = record.facts
        measured, grounded = _NOTHING, facts.grounded if facts is not None else None
        if record.contexts is not None or record.measures is not None or self._always:
            measured, grounded = self._measure(record, item, stream.rules.grounded_threshold)
        key = stream.rules.facts.read(record, item, grounded)
        # A matched live request counts twice: as live traffic without its gold item, and as a match.
        is_match = item is not None and stream.source == constants.LIVE
        own_key = stream.rules.facts.read(record, None, grounded) if is_match else key
        self.table.scores(key)  # a metric that raises must do so before anything is counted
        if is_match:
            self.table.scores(own_key)
        if ts is not None and ts > self._state.newest:
            self._advance(ts)
        lacks = stream.captured.lacks(record, item, key, stream.items, stream.lacks, shows_text=stream.shows_text)
        self._count(stream, stream.source, record, None if is_match else item, own_key, lacks, measured)
        if is_match:
            self._count(stream, constants.MATCH, record, item, key, None, measured)
            if stream.sampling.drawn:
                add_counts(self._state.matched, {(stream.pipeline, stream.items.how(record)): 1})
        self._state.scored += 1
        if item is None:
            self._state.unmatched += 1
        return True

    @property
    def scored(self) -> int:
        """How many records were scored."""
        return self._state.scored

    @property
    def dropped(self) -> dict[str, int]:
        """How many records were dropped, by reason."""
        return self._state.dropped

    @property
    def state(self) -> State:
        """Everything that was counted, with the citations of every pipeline read in its form."""
        self._close_all()
        if self._state.read_citations():
            self._last_reader = None
        return self._state

    def observe_label(self, record: Record, item: GoldItem | None, answered: float | None) -> None:
        """Score a labelled answer with the gold item that the label implies.

        The answer was already counted as a request when it arrived: `answered`, in seconds since the epoch.
        """
        names = _names_of(record)
        stream = self._streams.get(names) or self._stream(record, names)
        measured, grounded = self._measure(record, item, stream.rules.grounded_threshold)
        key = stream.rules.facts.read(record, item, grounded)
        self.table.scores(key)
        if record.ts is not None and record.ts > self._state.newest:
            self._advance(record.ts)
        self._count(stream, constants.LABEL, record, item, key, None, measured)
        self._close_all()
        sampling = stream.sampling
        if measured and sampling.drawn:
            pairs, versions = self.table.applying(key, measured), record.judge_versions or _NO_VERSIONS
            self._state.cohorts.see_label(stream.pipeline, sampling.stratum, answered, record.ts, pairs, versions)

    def assess(self, record: Record) -> Assessment:
        """The facts and scores of one record, as they are counted; nothing is counted."""
        rules = self.rules_of(record.pipeline or constants.DEFAULT_PIPELINE)
        items = self.gold.items_for(record.pipeline, record.source)
        item = items.match(record)
        measured, grounded = self._measure(record, item, rules.grounded_threshold)
        key = rules.facts.read(record, item, grounded)
        key = read_as(key, self._state.citation_form(record.pipeline or constants.DEFAULT_PIPELINE))
        table_scores = zip(self.table.metrics.items(), self.table.scores(key), strict=True)
        scores: dict[str, Score] = {
            name: measured.get(name) if metric.measured and isinstance(score, int) else score
            for (name, metric), score in table_scores
        }
        slices = _slices_of(record, item, rules.slices) if rules.slices else ()
        return Assessment(item, "" if item is None else items.how(record), Facts._make(key), scores, slices)

    def scores(self, record: Record) -> dict[str, float]:
        """The score of each metric for one record; nothing is counted."""
        scores = self.assess(record).scores.items()
        return {name: score / MICRO for name, score in scores if isinstance(score, int)}

    def _stream(self, record: Record, names: Names) -> Stream:
        pipeline, source = record.pipeline or constants.DEFAULT_PIPELINE, record.source or constants.REPLAY
        rules = self.rules_of(pipeline)
        if len(self._streams) >= STREAMS:
            self.forget_streams()
        model = "" if MODEL_TAG in rules.slices else record.model or ""
        if model:  # it has a slice of its own as long as the pipeline has few models
            own, others = f"{MODEL_SLICE}{model}", f"{MODEL_SLICE}{constants.OTHER}"
            slices = self._models.get(pipeline)
            if slices is None:
                counted = {key.slice for key in self._state.series if key.pipeline == pipeline} - {others}
                slices = self._models[pipeline] = {name for name in counted if name.startswith(MODEL_SLICE)}
            has_room = len(slices) < MODELS and len(model) <= LONGEST_MODEL
            model = own if own in slices or own == others or has_room else others
            slices |= {model} - {others}
        stream = self._streams[names] = Stream(
            names=names,
            pipeline=pipeline,
            source=source,
            build=record.build or "",
            index_hash=record.index_hash or "",
            sampling=record.sampling or _KEPT_ALL,
            model=model,
            rules=rules,
            items=self.gold.items_for(record.pipeline, record.source),
            captured=self._state.captured.at(pipeline, source),
            lacks=0 if record.build else NO_BUILD,
            shows_text=rules.shows_text[source == constants.PROBE],
        )
        return stream

    def _advance(self, ts: float) -> None:
        self._state.newest = ts
        if ts > self._state.fold_due:
            self._close_all()
            self._state.fold(ts)

    def forget_streams(self) -> None:
        """Clear the streams, because series were merged or removed."""
        self._close_all()
        self._streams.clear()
        self._latest = None
        self._models.clear()

    def restore(self, state: State) -> None:
        """Go on with other counts, saved or empty; the retention stays."""
        self.forget_streams()
        state.continue_as(self._state)
        self._state = state

    def reset_labels(self) -> None:
        """Delete the counts of labels, so that a report counts them anew: nothing expires, and no observer follows."""
        self.forget_streams()
        for key in [key for key in self._state.series if key.source == constants.LABEL]:
            del self._state.series[key]
        self._state.cohorts.reset_labels()
        if self._state.is_live:
            self._state.retention = None
        self.observers = ()

    def repeats(self, error: Exception, record: Record) -> bool:
        """Whether a record raises this error whenever it is assessed, which is before anything of it is counted."""
        try:
            self.assess(record)
        except Exception as again:  # noqa: BLE001 - a metric is third-party code and may raise anything
            return error_location(again) == error_location(error)
        return False

    def drop_failed(self, error: Exception) -> bool:
        """Account for a record over which something raised; returns False, as `observe` does of what it drops."""
        warn_once(f"a record could not be scored and is dropped: {error_location(error)}")
        return self._drop(constants.SCORER_ERROR)

    def _drop(self, reason: str) -> bool:
        add_counts(self._state.dropped, {reason: 1})
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
        # A score that the record carries was measured where the text was, and is used as it is. Text that redaction
        # changed is not measured.
        carried, facts = record.measures or {}, record.facts
        measured: dict[str, int] = {}
        grounded = facts.grounded if facts is not None else None
        is_redacted = facts is not None and facts.redacted
        for metric in (*self._measured, *self._fact_metrics):
            score = carried.get(metric.key) if is_redacted or metric.key in carried else metric.measure(record, item)
            if score is None or not math.isfinite(score):
                continue
            measured[metric.key] = micro(min(1.0, max(0.0, score)))
            if metric.key == Groundedness.name:
                grounded = score >= threshold
        for metric in self._fact_metrics:
            measured.pop(metric.key, None)
        return measured, grounded

    def _count(
        self,
        stream: Stream,
        source: str,
        record: Record,
        item: GoldItem | None,
        key: Key,
        lacks: int | None,
        measured: Mapping[str, int],
    ) -> None:
        rules, ts = stream.rules, record.ts
        if (form := self._state.forms.get(stream.pipeline)) is not None:
            key = read_as(key, form)
        slices = _slices_of(record, item, rules.slices) if rules.slices else ()
        location = (source, "", "") if item is None else (source, item.set_name, item.set_version)
        bucket = stream.open.get(location)
        if bucket is None:
            bucket = stream.open[location] = OpenBucket()
        step = step_of(ts)
        is_fresh = self._state.is_fresh(ts)
        if step != bucket.step or is_fresh != bucket.is_fresh or len(bucket.counts) >= CELLS or not bucket.counts:
            if bucket.counts:
                self._close(stream, location, bucket)
            bucket.step, bucket.is_fresh, bucket.latest = step, is_fresh, ts
            self._open[bucket] = stream, location
        elif ts is not None:
            bucket.latest = max(ts, bucket.latest or ts)
        counts, counted = bucket.counts, (item, group_of(record, item, source, rules.cluster), lacks, slices, key)
        counts[counted] = counts.get(counted, 0) + 1
        if record.latency_ms is not None:
            latency = bucket.latency.setdefault(slices, {})
            for stage, ms in zip(constants.STAGES, _stages(record.latency_ms), strict=True):
                if ms is not None:
                    histogram, range_of_ms = latency.setdefault(stage, {}), histograms.bucket(ms)
                    histogram[range_of_ms] = histogram.get(range_of_ms, 0) + 1
        applying: Mapping[str, int] = _NOTHING
        if measured:
            sums = bucket.measures.setdefault(counted, {})
            for name, score in measured.items():
                add_sums(sums, name, sums_of(1, score))
            applying = self.table.applying(key, measured)
            if source == constants.LIVE and stream.sampling.drawn:
                versions = record.judge_versions or _NO_VERSIONS
                self._state.cohorts.see_scores(stream.pipeline, stream.sampling.stratum, ts, applying, versions)
        if self.observers and (arrival := ts if self._clock is None else self._clock()) is not None:
            in_gold = None if item is None else ids_in_gold(record, key, stream.items)
            request = CountedRequest(stream.pipeline, arrival, source, record, item, key, applying, slices, in_gold)
            for observer in self.observers:
                observer.collect(request)

    def _close_all(self) -> None:
        for bucket, (stream, location) in self._open.items():
            if bucket.counts:
                self._close(stream, location, bucket)
        self._open.clear()

    def _close(self, stream: Stream, location: Location, bucket: OpenBucket) -> None:
        state, shared, source = self._state, self.table.shared, location[0]
        # The buckets to add to, and by the slices of a request, which of them and which gold items.
        has_items = any(item is not None for item, *_ in bucket.counts)
        by_slice: dict[str, tuple[Bucket, ItemTable | None]] = {}
        parts: dict[Slices, list[tuple[Bucket, ItemTable | None]]] = {}
        for slices in dict.fromkeys(slices for *_, slices, _ in bucket.counts):
            for name in ("", *slices, stream.model) if stream.model else ("", *slices):
                if name not in by_slice:
                    names = (stream.pipeline, *location, name, stream.sampling.audit, stream.sampling.stratum)
                    series = state.at(SeriesKey(*names, stream.build, stream.index_hash))
                    into = state.bucket(series, bucket.latest, is_fresh=bucket.is_fresh)
                    table = None
                    if has_items and not name.startswith(MODEL_SLICE):
                        table = state.item_table(series, bucket.latest, is_fresh=bucket.is_fresh)
                    by_slice[name] = into, table
                parts.setdefault(slices, []).append(by_slice[name])
        alike: dict[tuple[int, int | None], int] = {}
        for (item, group, lacks, slices, facts), n in bucket.counts.items():
            key = shared(facts)
            for into, table in parts[slices]:
                into.add(key, n, group)
                if item is not None and table is not None:
                    table.add(item.qid, key, n)
            alike[key[0], lacks] = alike.get((key[0], lacks), 0) + n
        masks: dict[int, int] = {}
        citing = known = shipped = 0
        for (flags, lacks), n in alike.items():
            if lacks is not None:
                masks[lacks] = masks.get(lacks, 0) + n
            known += 0 if flags & OUTCOME_UNKNOWN else n
            if source not in constants.ALSO_LIVE_SOURCES and (cited := CitationCounts.of(flags, n)) is not None:
                add_sums(state.citations, stream.pipeline, cited)
            if flags & SHIPPED:
                shipped += n
                citing += n if (lacks or 0) & (CITES | MARKED) or stream.rules.facts.citations_required else 0
        for (_, group, _, slices, facts), measured in bucket.measures.items():
            for name, sums in measured.items():
                for into, _ in parts[slices]:
                    by_group = into.measures.setdefault(name, {}).setdefault(shared(facts), {})
                    add_sums(by_group, ALONE if group is None else group, sums)
        for slices, latency in bucket.latency.items():
            for into, _ in parts[slices]:
                into.add_latency(latency)
        for into, _ in by_slice.values():
            self.table.cut(into)
        if shipped and source not in constants.ALSO_LIVE_SOURCES:
            add_sums(state.answers, stream.pipeline, (shipped, citing))
        if source == constants.LIVE and stream.sampling.drawn:
            stratum, total = stream.sampling.stratum, sum(bucket.counts.values())
            state.cohorts.see(stream.pipeline, stratum, bucket.latest, total, known=known, shipped=shipped)
        stream.captured.add(bucket.latest, masks)
        bucket.counts, bucket.measures, bucket.latency = {}, {}, {}

    def snapshot(
        self,
        *,
        now: float | None = None,
        windows: Mapping[str, int | None] | None = None,
        gated: Sequence[str] = (),
        pipelines: Collection[str] | None = None,
    ) -> Snapshot:
        """An immutable snapshot of the counts.

        Args:
            now: The end of the windows, seconds since the epoch; default: the newest record.
            windows: Spans in seconds by name; default: everything as one window.
            gated: Gold metrics whose sums per item are needed by gates.
            pipelines: Those that are read; None for all.
        """
        state, reader, gated = self.state, self._last_reader, tuple(gated)
        if reader is None or reader.state is not state or reader.gated != gated:
            reader = self._last_reader = SeriesReader(state, self.table, gated)
        snapshot = take_snapshot(
            state,
            self.table,
            now=state.newest if now is None else now,
            windows=windows if windows is not None else {ALL: None},
            golds=self.gold.infos(),
            gated=gated,
            pipelines=pipelines,
            reader=reader,
        )
        vanished = {
            (pipeline, gold.name): ids
            for gold in self.gold.sets
            for pipeline in {key.pipeline for key in state.series if key.gold == gold.name}
            if pipelines is None or pipeline in pipelines
            if (ids := vanished_ids(state, pipeline, gold.name, gold.short_version, gold)) is not None
        }
        return replace(snapshot, vanished=vanished) if vanished else snapshot


def _names_of(record: Record) -> Names:
    sampling = record.sampling
    drawn = None if sampling is None else (sampling.audit, sampling.stratum)
    return record.pipeline, record.source, record.build, record.index_hash, record.model, drawn


def _slices_of(record: Record, item: GoldItem | None, slices: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    model = {} if record.model is None else {MODEL_TAG: record.model}
    tags = {**(item.tags if item is not None else {}), **model, **(record.tags or {})}
    return tuple(
        f"{tag}={tags[tag] if tags[tag] in allowed else constants.OTHER}"
        for tag, allowed in slices.items()
        if tag in tags
    )


def retention_of(settings: Settings) -> float:
    """Seconds for which buckets are kept apart: the longest window, and an hour for what comes late."""
    return max(settings.windows.values(), default=HOUR) + HOUR


def reduction_rules(pipeline: PipelineSettings) -> ReductionRules:
    """How the records of one pipeline are reduced to facts."""
    return ReductionRules(
        facts=FactReader(
            pipeline.refusal.rule(),
            pipeline.metrics.answered_within_ms,
            citations_required=bool(pipeline.metrics.citations_required),
            citations=pipeline.citations.base,
        ),
        grounded_threshold=pipeline.metrics.grounded_threshold,
        slices=pipeline.slices,
        cluster=pipeline.metrics.cluster,
        shows_text=(pipeline.capture.content in SHOWN, pipeline.capture.probe_content in SHOWN),
    )


@dataclass(frozen=True)
class ScorerFactory:
    """Creates the same scorer in every process that reads the same ragmon.toml."""

    settings: Settings
    gold: tuple[GoldSet, ...]

    def table(self) -> ScoreTable:
        """A new table of the configured metrics' scores, for a scorer and its observers."""
        return ScoreTable(self.settings.build_metrics())

    def __call__(
        self,
        *,
        state: State | None = None,
        clock: Callable[[], float] | None = None,
        table: ScoreTable | None = None,
        observers: Sequence[ScoreObserver] = (),
        ages_by_clock: bool = False,
    ) -> Scorer:
        """A new scorer, in a state that keeps everything (for a replay) unless a state is given; else as `Scorer`."""
        settings = self.settings
        common = reduction_rules(settings.unconfigured)
        by_pipeline = {
            name: own_rules
            for name, pipeline in settings.pipelines.items()
            if (own_rules := reduction_rules(pipeline)) != common
        }
        return Scorer(
            GoldIndex(self.gold, hash_keys(settings)),
            metrics=self.table() if table is None else table,
            rules=common,
            by_pipeline=by_pipeline,
            state=State(retention=retention_of(settings)) if state is None else state,
            clock=clock,
            observers=observers,
            ages_by_clock=ages_by_clock,
        )
