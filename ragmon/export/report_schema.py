"""The JSON Schema of a report: what `ragmon replay` and `ragmon gate` write as JSON.

The classes here say what `ragmon.export.report.Report.data` makes; a test compares them with reports. Later versions
may add members. Annotations are not postponed here: `TypedDict` could not tell which members may be absent.
"""

from typing import Final, Literal, NotRequired, TypedDict

from ragmon.core.json_schema import DRAFT, Schema, definitions, identifier
from ragmon.core.policy import Verdict
from ragmon.gates.captured import CaptureReport

REPORT_VERSION: Final = 1


class GoldSummary(TypedDict):
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
    items: int
    traced: int
    unscorable: int


class RecordCounts(TypedDict):
    """What became of the records.

    Attributes:
        read: How many were read.
        scored: How many were scored.
        unmatched: How many of the scored ones belong to no gold item.
        duplicate: How many repeat a gold question that the same pipeline had already answered.
        rejected: Lines that were no record, and dropped records, by reason.
        unknown: Records with an unknown field, by `field: reason`; absent where there are none.
    """

    read: int
    scored: int
    unmatched: int
    duplicate: int
    rejected: dict[str, int]
    unknown: NotRequired[dict[str, int]]


class Interval(TypedDict):
    """A 95 % interval.

    Attributes:
        lower: Its lower bound.
        upper: Its upper bound.
        n_eff: How many plain samples the sample is worth.
    """

    lower: float | None
    upper: float | None
    n_eff: float


class Weighted(TypedDict):
    """How a value was estimated over all calls, where their number is known.

    Attributes:
        n: Scored requests of all strata.
        n_eff: How many plain samples they are worth.
    """

    n: int
    n_eff: float


class MetricSummary(TypedDict):
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

    value: float | None
    lower: float | None
    upper: float | None
    n: int
    sum: float
    unassessed: dict[str, int]
    estimands: NotRequired[dict[str, Interval]]
    weighted: NotRequired[Weighted]


class SeriesSummary(TypedDict):
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
    end: NotRequired[float]
    slice: NotRequired[str]
    of: NotRequired[str]
    metrics: dict[str, MetricSummary]


class GateSummary(TypedDict):
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

    pipeline: str
    gate: str
    metric: str
    source: str
    gold: str
    estimand: str
    of: NotRequired[str]
    threshold: float
    direction: Literal["at_least", "at_most"]
    value: float | None
    lower: float | None
    upper: float | None
    n: int
    n_eff: float | None
    needed: int | None
    verdict: Verdict
    reason: str


class ItemFlip(TypedDict):
    """A gold item whose score differs from the baseline.

    Attributes:
        qid: The item.
        before: Its score in the baseline.
        after: Its score in this run.
    """

    qid: str
    before: float | None
    after: float | None


class BaselineDrop(TypedDict):
    """The comparison of one gate with a baseline.

    Attributes:
        pipeline: The pipeline.
        gate: The gate.
        before: The value of the baseline.
        after: The value of this run.
        drop: How much worse it is; below zero where it is better.
        items: Gold items that both have; 0 where the baseline is a report, which has no items.
        flips: The items whose scores differ.
    """

    pipeline: str
    gate: str
    before: float | None
    after: float | None
    drop: float | None
    items: int
    flips: list[ItemFlip]


class LabelCounts(TypedDict):
    """The labels on the answers of the run.

    Attributes:
        labels: How many labels.
        answers: How many answers have labels.
        raters: How many people gave them.
        conflicts: Answers on which raters disagree.
        orphans: Labelled answers that are missing.
        probes: Labelled answers to probes, which the gold already judges.
        maturity: The share of the expected labels that has arrived; null where it cannot be estimated.
    """

    labels: int
    answers: int
    raters: int
    conflicts: int
    orphans: int
    probes: int
    maturity: float | None


class JudgeSummary(TypedDict):
    """A version of a judge that scored answers of the run.

    Attributes:
        pipeline: The pipeline of the answers.
        judge: The judge's metric.
        version: Its version.
        answers: How many answers it scored.
        first: The start of the hour of the first one, seconds since the epoch; null without a time.
        last: The start of the hour of the last one, likewise.
    """

    pipeline: str
    judge: str
    version: str
    answers: int
    first: int | None
    last: int | None


class PredictionSummary(TypedDict):
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
    value: float | None
    lower: float | None
    upper: float | None
    n: int
    n_eff: float | None
    gain: float | None


class DetectableChange(TypedDict):
    """What the live alarm of a gate can detect, and how soon, at the traffic of this run.

    Attributes:
        pipeline: The pipeline.
        gate: The gate.
        at: The level to which the metric has to change.
        observations: How many observations it takes; null where none suffice.
        per_minute: Observations a minute in this run.
        minutes: How many minutes it takes.
    """

    pipeline: str
    gate: str
    at: float | None
    observations: int | None
    per_minute: float | None
    minutes: float | None


class ReportData(TypedDict):
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
        verdict: The verdict of the whole run.
        digest: A fingerprint of the counts; equal runs have equal digests.
    """

    version: str
    gold: list[GoldSummary]
    records: RecordCounts
    series: list[SeriesSummary]
    latency_ms: dict[str, dict[str, float | None]]
    captured: list[CaptureReport]
    gates: list[GateSummary]
    matches: NotRequired[dict[str, dict[str, int]]]
    baseline: NotRequired[list[BaselineDrop]]
    labels: NotRequired[LabelCounts]
    judges: NotRequired[list[JudgeSummary]]
    predicted: NotRequired[list[PredictionSummary]]
    detectable: NotRequired[list[DetectableChange]]
    verdict: Verdict
    digest: str


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
