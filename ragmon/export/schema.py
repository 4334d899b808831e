"""The report of a run: its data, its JSON form, the JSON Schema, and its reader.

Text, Markdown, pages and DataFrames are made from the JSON form (`ReportData`), so a report read from a file is shown
like a new one. Later versions may add members; unknown members are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from ragmon.alarms.plan import Detectability
from ragmon.core import constants
from ragmon.core.errors import InputError
from ragmon.core.json_schema import DRAFT, Schema, definitions, identifier
from ragmon.core.policy import Kind, Outcome, Verdict
from ragmon.gates.coverage import CaptureReport, match_counts
from ragmon.gates.evaluate import bounds
from ragmon.gates.history import GateHistory, GateKey
from ragmon.gates.releases import Comparison, Flip
from ragmon.scoring.buckets import METRIC, JudgeVersion
from ragmon.scoring.labels import Labelled, Prediction
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot
from ragmon.stats.histograms import MICRO, quantile

REPORT_VERSION: Final = 1
Figure = Annotated[float, Meta(ge=-1e12, le=1e12)]
"""A number that can be drawn."""
Count = Annotated[int, Meta(ge=0, le=1 << 53)]


def rounded(value: float | None, places: int = 6) -> float | None:
    """A number with as many decimal places as reports have."""
    return None if value is None else round(value, places)


def rounded_flips(comparison: Comparison) -> list[Flip]:
    """The gold items whose scores differ."""
    return [Flip(flip.qid, round(flip.before, 6), round(flip.after, 6)) for flip in comparison.flips]


class Data(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a report; a member that has its default is absent."""


class GoldSummary(Data, frozen=True, kw_only=True):
    """The coverage of a gold set; of several pipelines, the highest.

    Attributes:
        name: The gold set.
        version: Its version, 8 hex digits.
        items: How many items it has.
        traced: How many of them have at least one trace.
        unscorable: How many of those have no answer in any trace.
    """

    name: str
    version: str
    items: Count
    traced: Count
    unscorable: Count


class RecordCounts(Data, frozen=True, kw_only=True):
    """What became of the records.

    Attributes:
        read: How many were read.
        scored: How many were scored.
        unmatched: How many of the scored ones belong to no gold item.
        duplicate: How many repeat a gold question that the same pipeline had already answered.
        rejected: Lines that were no record, and dropped records, by reason.
        unknown: Records with an unknown field, by `field: reason`; absent where there are none.
    """

    read: Count
    scored: Count
    unmatched: Count
    duplicate: Count
    rejected: dict[str, Count]
    unknown: dict[str, Count] = {}


class Interval(Data, frozen=True, kw_only=True):
    """A 95 % interval.

    Attributes:
        lower: Its lower bound.
        upper: Its upper bound.
        n_eff: How many plain samples the sample is worth.
    """

    lower: Figure | None
    upper: Figure | None
    n_eff: Figure


class Weighted(Data, frozen=True, kw_only=True):
    """How a value was estimated over all calls, where their number is known.

    Attributes:
        n: Scored requests of all strata.
        n_eff: How many plain samples they are worth.
    """

    n: Count
    n_eff: Figure


class MetricSummary(Data, frozen=True, kw_only=True):
    """One metric of one series.

    Attributes:
        value: The mean of the scores, an estimate over all calls where their number is known; null without a score.
        lower: The lower bound of its 95 % interval.
        upper: The upper bound of its 95 % interval.
        n: How many requests were scored.
        sum: The sum of their scores.
        unassessed: Requests that belong here and could not be assessed, by reason.
        estimands: The intervals by estimand, `gold_set` and `questions_like_these`; only for a metric with gold.
        weighted: Only for a value that is an estimate over all calls.
    """

    value: Figure | None
    lower: Figure | None
    upper: Figure | None
    n: Count
    sum: float
    unassessed: dict[str, Count]
    estimands: dict[str, Interval] | None = None
    weighted: Weighted | None = None

    @property
    def samples(self) -> int:
        """How many requests the value is of: those of all strata where it is weighted."""
        return self.n if self.weighted is None else self.weighted.n


class SeriesSummary(Data, frozen=True, kw_only=True):
    """The metrics of one pipeline, source and gold set in one window.

    Attributes:
        pipeline: The pipeline.
        source: live, probe, match, label or replay.
        gold: The gold set; "" for all requests.
        gold_version: Its version; "" for all requests.
        window: The window; `all` is the whole run.
        end: The end of the window, seconds since the epoch; absent for the whole run.
        slice: The slice, `tag=value`; absent for all.
        of: Of user traffic: all calls, or exported traffic where the producer does not report call totals.
        metrics: By key, such as `recall@5`.
    """

    pipeline: str
    source: str
    gold: str
    gold_version: str
    window: str
    end: float | None = None
    slice: str = ""
    of: str = ""
    metrics: dict[str, MetricSummary]


class OfGate(Data, frozen=True, kw_only=True):
    """A part of a report that is about one gate."""

    pipeline: str
    gate: str

    @property
    def name(self) -> str:
        """The gate with its pipeline."""
        return f"{self.pipeline}/{self.gate}"


class GateSummary(OfGate, frozen=True, kw_only=True):
    """The verdict of one gate.

    Attributes:
        pipeline: The pipeline whose requests are judged.
        gate: The name of the gate.
        metric: The metric it judges.
        source: The source that was judged.
        gold: The gold set that was judged; "" without gold.
        estimand: What the value estimates; "" without gold.
        of: Of user traffic: all calls, or exported traffic; absent for others.
        threshold: What the value must keep.
        direction: at_least or at_most.
        value: The value; null without data.
        lower: The lower bound of its 95 % interval; null where there is none.
        upper: The upper bound of its 95 % interval; null where there is none.
        n: Requests in the denominator.
        n_eff: How many plain samples they are worth; null where the value is exact.
        needed: About how many would decide; null where that cannot be estimated.
        verdict: pass, fail or insufficient.
        reason: One line for a person.
    """

    metric: str
    source: str
    gold: str
    estimand: str
    of: str = ""
    threshold: Figure
    direction: Literal["at_least", "at_most"]
    value: Figure | None
    lower: Figure | None
    upper: Figure | None
    n: Count
    n_eff: Figure | None
    needed: Count | None
    verdict: Verdict
    reason: str

    def __post_init__(self) -> None:
        if self.kind == "threshold" and not 0 <= self.threshold <= 1:
            raise ValueError(f"the threshold {self.threshold} is not a share")

    @property
    def kind(self) -> Kind:
        """What the gate compares: latency and index hashes have kinds of their own."""
        return _KINDS.get(self.metric, "threshold")

    @property
    def at_least(self) -> bool:
        """Whether the threshold is a floor."""
        return self.direction == "at_least"

    @property
    def is_kept(self) -> bool:
        """Whether the value keeps the threshold."""
        return self.value is not None and (
            self.value >= self.threshold if self.at_least else self.value <= self.threshold
        )


_KINDS: Final[dict[str, Kind]] = {"latency": "quantile_ratio", "index_hash": "distinct"}


def gate_summary(outcome: Outcome) -> GateSummary:
    """The outcome of a gate as reports have it."""
    gate = outcome.gate
    return GateSummary(
        pipeline=gate.pipeline,
        gate=gate.name,
        metric=gate.metric,
        source=outcome.source,
        gold=outcome.gold,
        estimand=outcome.estimand,
        of=outcome.of,
        threshold=gate.threshold,
        direction=gate.direction,
        value=rounded(outcome.value),
        lower=rounded(outcome.lower),
        upper=rounded(outcome.upper),
        n=outcome.n,
        n_eff=rounded(outcome.n_eff, 1),
        needed=outcome.needed,
        verdict=outcome.verdict,
        reason=outcome.reason,
    )


class BaselineDrop(OfGate, frozen=True, kw_only=True):
    """The comparison of one gate with a baseline.

    Attributes:
        pipeline: The pipeline.
        gate: The gate.
        before: The value of the baseline.
        after: The value of this run.
        drop: How much worse it is; below zero where it is better.
        items: Gold items that both have; null where they are not known, as of a baseline that is a report.
        flips: The items whose scores differ.
    """

    before: Figure | None
    after: Figure | None
    drop: Figure | None
    items: Count | None
    flips: list[Flip]


class PredictionSummary(Data, frozen=True, kw_only=True):
    """An estimate from labels and a proxy together.

    Attributes:
        pipeline: The pipeline.
        metric: The metric that is estimated.
        proxy: The score that is the proxy.
        value: The estimate.
        lower: The lower bound of its 95 % interval.
        upper: The upper bound of its 95 % interval.
        n: Labels behind it.
        n_eff: How many labels alone would be as precise.
        gain: How many labels each label is worth beside the proxy.
    """

    pipeline: str
    metric: str
    proxy: str
    value: Figure | None
    lower: Figure | None
    upper: Figure | None
    n: Count
    n_eff: Figure | None
    gain: float | None


class DetectableChange(OfGate, frozen=True, kw_only=True):
    """What the live alarm of a gate can detect, and how soon, at the traffic of this run.

    Attributes:
        pipeline: The pipeline.
        gate: The gate.
        at: The level to which the metric has to change.
        observations: How many observations it takes; null where none suffice.
        per_minute: Observations a minute in this run.
        minutes: How many minutes it takes.
    """

    at: float | None
    observations: Count | None
    per_minute: float | None
    minutes: float | None


class IncidentSummary(Data, frozen=True, kw_only=True):
    """An incident that alarms on the run's traffic tell of.

    Attributes:
        incident: Its name.
        pipeline: The pipeline.
        severity: `confirmed` or `suspected`.
        metrics: The metrics that it moved.
        began: Seconds since the epoch.
        ended: Seconds since the epoch; null while it lasts.
        summary: What is wrong, in a sentence.
        proofs: What each of its alarms fired for, in words; absent where it tells of none.
    """

    incident: str
    pipeline: str
    severity: str
    metrics: list[str]
    began: float
    ended: float | None
    summary: str
    proofs: dict[str, str] = {}


class ReportData(Data, frozen=True, kw_only=True):
    """The results of a run.

    Attributes:
        version: The version of ragmon that wrote the report.
        gold: The gold sets.
        records: What became of the records.
        series: The metrics.
        latency_ms: Quantiles `p50`, `p95` and `p99` in milliseconds, by stage.
        captured: Which fields the records have, by pipeline and source.
        gates: The gates.
        matches: How user traffic matched gold items, by pipeline and way; absent without user traffic and gold.
        baseline: Comparisons with a baseline; absent without one.
        labels: Absent without labels.
        judges: Absent without versions of judges.
        predicted: Absent without labels and a proxy.
        detectable: Absent where the records have no times.
        incidents: Absent where alarms were not followed, or tell of none.
        verdict: The verdict of the whole run.
        digest: A fingerprint of the counts; equal runs have equal digests.
    """

    version: str
    gold: list[GoldSummary]
    records: RecordCounts
    series: list[SeriesSummary]
    latency_ms: dict[str, dict[str, Figure | None]]
    captured: list[CaptureReport]
    gates: list[GateSummary]
    matches: dict[str, dict[str, Count]] = {}
    baseline: list[BaselineDrop] = []
    labels: Labelled | None = None
    judges: list[JudgeVersion] = []
    predicted: list[PredictionSummary] = []
    detectable: list[DetectableChange] = []
    incidents: list[IncidentSummary] = []
    verdict: Verdict
    digest: str


QUANTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class QuestionReport:
    """The outcome of one gold question, in the terms of seed 002's report.

    Attributes:
        qid: The id of the question.
        answered: It was answered.
        hit: A gold id was cited.
        refused: It was refused.
        label: OK, REFUSAL_OK, OVER_REFUSAL, HALLUCINATION, ANS_NO_HIT or NO_ANSWER.
        times: How often the question had this outcome.
        pipeline: The pipeline that answered.
    """

    qid: str
    answered: bool
    hit: bool
    refused: bool
    label: str
    times: int = 1
    pipeline: str = ""


@dataclass(frozen=True)
class RunResults:
    """What a run found: the data of `ragmon.export.report.Report`.

    Attributes:
        version: The version of ragmon that wrote the report.
        snapshot: The metrics.
        outcomes: The gates.
        verdict: The verdict of the whole run.
        digest: Fingerprint of the counts; equal runs have equal digests.
        read: How many records were read.
        scored: How many of them were scored.
        unmatched: How many of them belong to no gold item.
        duplicate: How many repeat a gold question that the same pipeline had already answered.
        rejected: Lines that were no record, and dropped records, by reason.
        unknown: Records with an unknown field, by `field: reason`.
        unscorable: Items that were traced but had no answer in any trace, by gold set.
        questions: One entry per gold item and outcome.
        drops: Comparisons with a baseline.
        notes: Notes for the reader, one line each.
        reach: What live alarms on the gates would detect, and how soon, where the run has times.
        labelled: Statistics of the labels on the run's answers; None where there are no labels.
        predictions: Estimates from labels and a proxy together.
        judges: The versions of judges whose scores the records have.
        captured: What the records have, by pipeline and source.
        histories: The gates over the time of the records, for charts; empty without times, and where nobody asked.
        gates_of: Where the gates are from: a file, a preset, the policy given; "" where nobody asked.
        incidents: The incidents that alarms tell of; empty where nobody asked.
    """

    version: str
    snapshot: Snapshot
    outcomes: Sequence[Outcome]
    verdict: Verdict
    digest: str
    read: int
    scored: int
    unmatched: int
    duplicate: int
    rejected: Mapping[str, int]
    unscorable: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    questions: Sequence[QuestionReport] = ()
    drops: Sequence[Comparison] = ()
    notes: Sequence[str] = ()
    reach: Sequence[Detectability] = ()
    labelled: Labelled | None = None
    predictions: Sequence[Prediction] = ()
    judges: Sequence[JudgeVersion] = ()
    captured: Sequence[CaptureReport] = ()
    histories: Mapping[GateKey, GateHistory] = field(default_factory=dict)
    gates_of: str = ""
    incidents: Sequence[IncidentSummary] = ()

    @cached_property
    def document(self) -> ReportData:
        """What is written as JSON, and shown as text, as pages and in DataFrames."""
        traced: dict[tuple[str, str], int] = {}
        for series in whole_run(self.snapshot):
            key = series.gold, series.gold_version
            traced[key] = max(traced.get(key, 0), series.traced)
        return ReportData(
            version=self.version,
            gold=[
                GoldSummary(
                    name=gold.name,
                    version=gold.version,
                    items=gold.items,
                    traced=traced.get((gold.name, gold.version), 0),
                    unscorable=self.unscorable.get(gold.name, 0),
                )
                for gold in self.snapshot.golds
            ],
            records=RecordCounts(
                read=self.read,
                scored=self.scored,
                unmatched=self.unmatched,
                duplicate=self.duplicate,
                rejected=dict(sorted(self.rejected.items())),
                unknown=dict(sorted(self.unknown.items())),
            ),
            series=[_series(series) for series in self.snapshot.series],
            latency_ms=latency(self.snapshot),
            captured=list(self.captured),
            gates=[gate_summary(outcome) for outcome in self.outcomes],
            matches=match_counts(self.snapshot),
            baseline=[
                BaselineDrop(
                    pipeline=comparison.gate.pipeline,
                    gate=comparison.gate.name,
                    before=rounded(comparison.before.value),
                    after=rounded(comparison.after.value),
                    drop=rounded(comparison.drop),
                    items=comparison.items,
                    flips=rounded_flips(comparison),
                )
                for comparison in self.drops
            ],
            labels=self.labelled,
            judges=list(self.judges),
            predicted=[_predicted(prediction) for prediction in self.predictions],
            detectable=[
                DetectableChange(
                    pipeline=found.gate.pipeline,
                    gate=found.gate.name,
                    at=rounded(found.at),
                    observations=None if found.labels is None else round(found.labels),
                    per_minute=rounded(found.per_minute, 3),
                    minutes=rounded(found.minutes, 1),
                )
                for found in self.reach
            ],
            incidents=list(self.incidents),
            verdict=self.verdict,
            digest=self.digest,
        )


def whole_run(snapshot: Snapshot) -> Iterator[SeriesStats]:
    """The series over the whole run, slices excluded."""
    return (series for series in snapshot.series if series.window == ALL and not series.slice)


def _metric(series: SeriesStats, name: str) -> MetricSummary:
    stat, estimate = series.metrics[name], series.estimate(name)  # the estimate is of all calls where it can be
    estimands, weighted = None, None
    if name in series.clusters:
        estimands = {
            estimand: Interval(lower=rounded(found.lower), upper=rounded(found.upper), n_eff=round(found.n_eff, 1))
            for estimand, found in bounds(series, name).items()
        }
    if name in series.estimates:
        weighted = Weighted(n=estimate.n, n_eff=round(estimate.n_eff, 1))
    return MetricSummary(
        value=rounded(estimate.value),
        lower=None if estimate.value is None else rounded(estimate.lower),
        upper=None if estimate.value is None else rounded(estimate.upper),
        n=stat.n,
        sum=round(stat.sum / MICRO, 6),
        unassessed=dict(sorted(stat.unassessed.items())),
        estimands=estimands,
        weighted=weighted,
    )


def _series(series: SeriesStats) -> SeriesSummary:
    names = (name for name in SeriesSummary.__struct_fields__ if name != "metrics")
    about: dict[str, Any] = {name: getattr(series, name) for name in names}
    return SeriesSummary(**about, metrics={name: _metric(series, name) for name in series.metrics})


def _predicted(prediction: Prediction) -> PredictionSummary:
    names = ("value", "lower", "upper", "n_eff", "gain")
    numbers: dict[str, Any] = {name: rounded(getattr(prediction.estimate, name)) for name in names}
    return PredictionSummary(
        pipeline=prediction.pipeline, metric=METRIC, proxy=prediction.proxy, n=prediction.estimate.n, **numbers
    )


def latency(snapshot: Snapshot, pipeline: str | None = None) -> dict[str, dict[str, float | None]]:
    """Latency quantiles in milliseconds per stage over the whole run, of one pipeline or of all."""
    merged: dict[str, Counter[int]] = {}
    for series in whole_run(snapshot):
        # Requests that matched a gold item or were labelled are counted under `live` as well.
        if not series.gold and series.source not in constants.ALSO_LIVE_SOURCES and pipeline in (None, series.pipeline):
            for stage, histogram in series.latency.items():
                merged.setdefault(stage, Counter()).update(histogram)
    return {
        stage: {name: rounded(quantile(histogram, q), 1) for name, q in QUANTILES.items()}
        for stage, histogram in sorted(merged.items())
    }


Share = Annotated[float, Meta(ge=0, le=1)]
_Change = Annotated[float, Meta(ge=-1, le=1)]


class ComparedSample(Data, frozen=True):
    """The sample of one release: its mean, and its observations."""

    value: Share | None
    n: int


class ComparedIntervals(Data, frozen=True):
    """Lower and upper bounds of the means, and of how much worse the candidate is."""

    baseline: tuple[Share, Share]
    candidate: tuple[Share, Share]
    drop: tuple[_Change, _Change]


class ComparedGate(OfGate, frozen=True, kw_only=True):
    """The comparison of one gate's metric in two releases: `ragmon.gates.releases.Comparison` as it is sent."""

    metric: str
    source: str
    gold: str
    direction: Literal["at_least", "at_most"]
    baseline: ComparedSample
    candidate: ComparedSample
    drop: _Change | None
    intervals: ComparedIntervals | None = None
    items: int | None
    flips: list[Flip]
    verdict: Verdict
    reason: str

    @property
    def at_least(self) -> bool:
        """Whether more is better."""
        return self.direction == "at_least"

    @property
    def worse(self) -> int:
        """How many of the flips are drops."""
        return sum((flip.after < flip.before) == self.at_least for flip in self.flips)


def compared_gate(found: Comparison) -> ComparedGate:
    """The comparison of a gate as it is sent."""
    intervals = None
    if found.intervals is not None:
        intervals = ComparedIntervals(*((round(lower, 6), round(upper, 6)) for lower, upper in found.intervals))
    return ComparedGate(
        pipeline=found.gate.pipeline,
        gate=found.gate.name,
        metric=found.gate.metric,
        source=found.source,
        gold=found.gold,
        direction=found.gate.direction,
        baseline=ComparedSample(value=rounded(found.before.value), n=found.before.n),
        candidate=ComparedSample(value=rounded(found.after.value), n=found.after.n),
        drop=rounded(found.drop),
        intervals=intervals,
        items=found.items,
        flips=rounded_flips(found),
        verdict=found.verdict,
        reason=found.reason,
    )


def report_schema() -> Schema:
    """The JSON Schema of a report."""
    defs = definitions(ReportData)
    return {
        "$schema": DRAFT,
        "$id": identifier("report", REPORT_VERSION),
        "title": "A report of ragmon",
        "$ref": "#/$defs/ReportData",
        "$defs": {"ReportData": defs.pop("ReportData")} | defs,
    }


def load_report(data: Any, path: str) -> ReportData:
    """A report that was read from a file.

    Args:
        data: The plain JSON data.
        path: The file, for the message of an error.

    Raises:
        InputError: The data is no report.
    """
    try:
        return msgspec.convert(data, ReportData)
    except msgspec.ValidationError as error:
        hint = "`ragmon replay TRACES -o report.json` writes one"
        raise InputError(f"this is not a report of ragmon: {error}", path=path, hint=hint) from error
