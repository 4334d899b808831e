"""The Prometheus families (name, HELP text, labels, what each has series for), label values, and PromQL over replicas.

The exporter, the rules and the dashboards read them here, and the budget of series is computed from them. A quality
metric is called after its class, `rag_<metric>`, with the endings below.

In PromQL ratios are never averaged: a value of a window is weighted with its number of requests, counters are summed,
then divided. An interval is the monitor's, of several replicas the one that holds all.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple, Self

from ragmon.alarms.baselines import AlarmSettings, index_limits
from ragmon.alarms.drift import Drift
from ragmon.alarms.plan import plan
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core import constants
from ragmon.core.errors import printable
from ragmon.core.policy import ORDER
from ragmon.scoring.cardinality import BUILDS, CODES, SeriesBudget

LONGEST: Final = 128
"""Characters of a label value; Prometheus rejects the whole scrape if one value exceeds its limit."""
_DIGITS: Final = 8


@lru_cache(maxsize=4096)
def label(text: str) -> str:
    """A label value: printable, at most 128 characters. A value that had to be changed ends in a hash, to stay unique.

    >>> label("support"), len(label("x" * 10_000))
    ('support', 128)
    """
    safe = printable(text, LONGEST)
    if safe == text:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    return f"{safe[: LONGEST - _DIGITS - 1]}~{hashlib.sha256(raw).hexdigest()[:_DIGITS]}"


class SeriesScope(Enum):
    """The kind of thing that a family has series for. Families of one scope have series for the same things."""

    MONITOR = auto()
    METRIC = auto()
    """A metric, whatever its pipeline."""
    METRIC_TOTAL = auto()
    """A metric of one source and gold set, over all time."""
    METRIC_WINDOW = auto()
    """The same in one window."""
    GATED_WINDOW = auto()
    """A gated metric of one source and gold set in one window."""
    GOLD_WINDOW = auto()
    """A source and gold set in one window."""
    PREDICTION = auto()
    """A pipeline with labels and a proxy, in one window."""
    SLICE = auto()
    STRATUM = auto()
    ERROR = auto()
    SOURCE = auto()
    BUILD = auto()
    """A build of a pipeline and its index."""
    PIPELINE = auto()
    GATE = auto()
    ALARM = auto()
    BASELINE = auto()
    """An alarm that compares with a baseline."""
    GOLD = auto()
    MATCHING = auto()
    """A pipeline whose traffic is matched with gold sets."""
    JUDGE = auto()
    PROBE = auto()


class Family(str):
    """The name of a family, and what is declared of it.

    Args:
        name: The name; for a quality metric its ending, which follows the metric's name.
        text: The HELP text; in an ending, `{name}` is the name of the metric's series and `{help}` its HELP text.
        scope: What it has series for.
        labels: The names of its labels.
        series: How many series each thing of the scope has: the values of the other labels; where these have no fixed
            values, the usual number.
        bounds: The upper bounds of a histogram's buckets; empty for other kinds.
    """

    __slots__ = ("bounds", "labels", "scope", "series", "text")
    text: str
    scope: SeriesScope
    labels: tuple[str, ...]
    series: int
    bounds: tuple[float, ...]

    def __new__(
        cls,
        name: str,
        text: str,
        scope: SeriesScope,
        labels: tuple[str, ...] = (),
        *,
        series: int = 1,
        bounds: tuple[float, ...] = (),
    ) -> Self:
        """Declare a family."""
        family = super().__new__(cls, name)
        family.text, family.scope, family.labels, family.bounds = text, scope, labels, bounds
        buckets_sum_count = len(bounds) + 3 if bounds else 1  # one bucket more than bounds: +Inf
        family.series = series * buckets_sum_count
        return family

    def of(self, series_name: str, metric_text: str = "", cut: tuple[str, ...] = ()) -> Family:
        """The family of one quality metric."""
        text = self.text.format(name=series_name, help=metric_text)
        return Family(f"{series_name}{self}", text, self.scope, (*self.labels, *cut))


_WINDOW: Final = ("pipeline", "source", "gold", "window")
_TOTAL: Final = ("pipeline", "source", "gold", "gold_version")
_ESTIMAND: Final = ("pipeline", "metric", "source", "gold", "window", "estimand")
_SLICE: Final = ("pipeline", "metric", "source", "slice", "gold", "gold_version")
_SOURCE: Final = ("pipeline", "source")
_GATE: Final = ("pipeline", "gate")
_ESTIMAND_NOTE: Final = "; with gold, for exactly this gold set"


def _monitor(name: str, text: str, labels: tuple[str, ...] = (), *, series: int = 1) -> Family:
    return Family(name, text, SeriesScope.MONITOR, labels, series=series)


def _gate(name: str, text: str, labels: tuple[str, ...] = (), *, series: int = 1) -> Family:
    return Family(name, text, SeriesScope.GATE, (*_GATE, *labels), series=series)


def _predicted(name: str, what: str) -> Family:
    text = f"{what} of {{name}} from labels and a proxy (prediction-powered)"
    return Family(name, text, SeriesScope.PREDICTION, _WINDOW)


def _of_estimands(name: str, what: str) -> Family:
    about = "gold_set: of exactly these items; questions_like_these: of the questions that they stand for"
    return Family(name, f"{what} ({about})", SeriesScope.GATED_WINDOW, _ESTIMAND, series=2)


PREFIX: Final = "rag_"
VALUE: Final = Family("", "{help}", SeriesScope.METRIC_WINDOW, _WINDOW)
LOWER: Final = Family("_lower", f"Lower 95 % bound of {{name}}{_ESTIMAND_NOTE}", SeriesScope.METRIC_WINDOW, _WINDOW)
UPPER: Final = Family("_upper", f"Upper 95 % bound of {{name}}{_ESTIMAND_NOTE}", SeriesScope.METRIC_WINDOW, _WINDOW)
SAMPLES: Final = Family("_samples", "Scored requests in {name}", SeriesScope.METRIC_WINDOW, _WINDOW)
SCORE: Final = Family("_score_total", "Sum of the scores of {name}", SeriesScope.METRIC_TOTAL, _TOTAL)
SCORED: Final = Family("_scored_total", "Requests scored by {name}", SeriesScope.METRIC_TOTAL, _TOTAL)
SQUARES: Final = Family("_score_squares_total", "Sum of the squared scores of {name}", SeriesScope.METRIC_TOTAL, _TOTAL)
"""Endings of a metric: value, bounds and samples in a window; counters that add up over replicas and time. There are no
squares where every score is 0 or 1."""
PPI: Final = _predicted("_ppi", "Estimate")
PPI_LOWER: Final = _predicted("_ppi_lower", "Lower 95 % bound")
PPI_UPPER: Final = _predicted("_ppi_upper", "Upper 95 % bound")
PROXY_GAIN: Final = Family(
    "ragmon_proxy_gain",
    "How many labels each label is worth beside this proxy",
    SeriesScope.PREDICTION,
    ("pipeline", "window", "proxy"),
)

LATENCY_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper bounds in seconds of the exported latency buckets."""
DOCUMENT_BOUNDS: Final = (0, 1, 2, 3, 5, 10, 20, 50, 100)
REQUESTS: Final = Family("rag_requests_total", "All calls, sampled or not", SeriesScope.STRATUM, (*_SOURCE, "stratum"))
ERRORS: Final = Family("rag_errors_total", "Calls that ended in an error", SeriesScope.ERROR, ("pipeline", "code"))
LATENCY: Final = Family(
    "rag_e2e_latency_seconds", "Latency of calls", SeriesScope.SOURCE, _SOURCE, bounds=LATENCY_BOUNDS
)
STAGE_LATENCY: Final = Family(
    "rag_stage_latency_seconds",
    "Latency of a stage of a call",
    SeriesScope.SOURCE,
    (*_SOURCE, "stage"),
    series=len(constants.STAGES) - 1,
    bounds=LATENCY_BOUNDS,
)
DOCUMENTS: Final = Family(
    "rag_retrieved_documents", "Documents that retrieval returned", SeriesScope.SOURCE, _SOURCE, bounds=DOCUMENT_BOUNDS
)
CAPTURED_RATIO: Final = Family(
    "ragmon_captured_ratio",
    "Share of the newest records that have a field, of those that could have it",
    SeriesScope.SOURCE,
    (*_SOURCE, "field"),
    series=10,
)
SLICE_SCORE: Final = Family("rag_slice_score_total", "Sum of a metric's scores in a slice", SeriesScope.SLICE, _SLICE)
SLICE_SCORED: Final = Family("rag_slice_scored_total", "Requests a metric scored in a slice", SeriesScope.SLICE, _SLICE)
SLICE_SQUARES: Final = Family(
    "rag_slice_score_squares_total", "Sum of the squares of a metric's scores in a slice", SeriesScope.SLICE, _SLICE
)

GATE_THRESHOLD: Final = _gate("ragmon_gate_threshold", "Threshold of the gate")
GATE_VALUE: Final = _gate("ragmon_gate_value", "Value that the gate judges")
GATE_LOWER: Final = _gate("ragmon_gate_lower", "Lower 95 % bound of the gate's value")
GATE_UPPER: Final = _gate("ragmon_gate_upper", "Upper 95 % bound of the gate's value")
GATE_SAMPLES: Final = _gate("ragmon_gate_samples", "Requests behind the gate's value")
GATE_UNKNOWN: Final = _gate(
    "ragmon_gate_unknown", "Further requests whose score is unknown, for a reason that may depend on the score"
)
GATE_STATUS: Final = _gate(
    "ragmon_gate_status", "Verdict of the gate: 1 for the one it has, else 0", ("status",), series=len(ORDER)
)
GATE_INFO: Final = _gate(
    "ragmon_gate_info",
    "What the gate judges; always 1",
    ("metric", "source", "gold", "direction", "window", "estimand"),
)
GATE_ALARM: Final = Family(
    "ragmon_gate_alarm",
    "1 while the alarm fires; it keeps its false-alarm budget",
    SeriesScope.ALARM,
    (*_GATE, "severity"),
)
GATE_EVIDENCE: Final = Family(
    "ragmon_gate_evidence",
    "How near the alarm is to firing, from 0 to 1, on a logarithmic scale",
    SeriesScope.ALARM,
    _GATE,
)
INCIDENT: Final = Family(
    "ragmon_incident",
    "1 while the incident lasts; severity page if gold or a gate proves it, else ticket",
    SeriesScope.PIPELINE,
    ("pipeline", "incident", "severity"),
    series=2,
)
INCIDENT_INFO: Final = Family(
    "ragmon_incident_info",
    "What is wrong in an incident, in a sentence, and the alarm that shows most of it; always 1",
    SeriesScope.PIPELINE,
    ("pipeline", "incident", "alarm", "summary"),
    series=2,
)
GATE_BASELINE: Final = Family(
    "ragmon_gate_baseline",
    "Level that the alarm compares its metric with; absent while it is learned",
    SeriesScope.BASELINE,
    _GATE,
)
GATE_BASELINE_INFO: Final = Family(
    "ragmon_gate_baseline_info",
    "Where the alarm's baseline comes from: learning, growing, frozen, given; always 1",
    SeriesScope.BASELINE,
    (*_GATE, "state", "version"),
)

GOLD_LOWER: Final = _of_estimands("ragmon_gold_lower", "Lower 95 % bound of a gold metric")
GOLD_UPPER: Final = _of_estimands("ragmon_gold_upper", "Upper 95 % bound of a gold metric")
GOLD_N_EFF: Final = _of_estimands("ragmon_gold_n_eff", "Effective sample size of a gold metric")
GOLD_INFO: Final = Family("ragmon_gold_info", "Gold sets in use; always 1", SeriesScope.GOLD, ("gold", "version"))
GOLD_ITEMS: Final = Family("ragmon_gold_items", "Items of a gold set", SeriesScope.GOLD, ("gold",))
GOLD_ITEMS_SEEN: Final = Family(
    "ragmon_gold_items_seen",
    "Distinct items of the gold set in force that were asked in the window",
    SeriesScope.GOLD_WINDOW,
    _WINDOW,
)
GOLD_MATCH: Final = Family(
    "ragmon_gold_match_total",
    f"Audit records of user traffic by how their gold item was found; {constants.HEAD_NOTE}",
    SeriesScope.MATCHING,
    ("pipeline", "how"),
    series=len(constants.MATCH_METHODS),
)
UNASSESSED: Final = Family(
    "ragmon_unassessed_total", "Requests that could not be assessed", SeriesScope.METRIC, ("metric", "reason"), series=2
)
BUILD_SEEN: Final = Family(
    "ragmon_build_seen_info",
    "Builds and indexes that answered last; always 1",
    SeriesScope.BUILD,
    ("pipeline", "build", "index_hash"),
)
JUDGE_INFO: Final = Family(
    "ragmon_judge_info",
    "A version of a judge whose scores arrived in the last day; always 1",
    SeriesScope.JUDGE,
    ("pipeline", "judge", "version"),
    series=2,
)
JUDGE_CALLS: Final = Family(
    "ragmon_judge_calls_total",
    "Requests that were due to be judged, by what became of them",
    SeriesScope.JUDGE,
    ("judge", "result"),
    series=len(constants.JUDGE_RESULTS),
)
BURSTS: Final = Family(
    "ragmon_probe_bursts_total",
    "Bursts of gold questions asked because an incident is suspected",
    SeriesScope.PROBE,
    ("probe",),
)
PROBES: Final = Family(
    "ragmon_probe_requests_total",
    "Gold questions that were due, by what became of them",
    SeriesScope.PROBE,
    ("probe", "result"),
    series=3,
)

_STAGES: Final = 2
"""Stages that count records: capture and score in an application; a server has one."""
RECEIVED: Final = _monitor("ragmon_records_received_total", "Records received", ("stage",), series=_STAGES)
RECORDS_SCORED: Final = _monitor("ragmon_records_scored_total", "Records scored", ("stage",), series=_STAGES)
IGNORED: Final = _monitor(
    "ragmon_records_ignored_total", "Records ignored, because they are not RAG", ("stage", "reason"), series=2 * _STAGES
)
DROPPED: Final = _monitor(
    "ragmon_records_dropped_total", "Records dropped: no number has them", ("stage", "reason"), series=2 * _STAGES
)
DUPLICATE: Final = _monitor(
    "ragmon_records_duplicate_total", "Records that had been received before", ("stage",), series=_STAGES
)
PENDING: Final = _monitor(
    "ragmon_records_pending", "Records pending: received and not scored yet", ("stage",), series=_STAGES
)
RESIDUAL: Final = _monitor(
    "ragmon_accounting_residual", "Records unaccounted for; any value but 0 is a bug", ("stage",), series=_STAGES
)
ORPHANS: Final = _monitor("ragmon_orphan_records_total", "Calls of ragmon.record() outside a traced call")
UNREAD: Final = _monitor(
    "ragmon_unread_fields_total", "Fields of calls that could not be read", ("field", "reason"), series=5
)
SPANS_DROPPED: Final = _monitor("ragmon_spans_dropped_total", "Spans that belong to no record", ("reason",), series=5)
REDACTION_FAILURES: Final = _monitor(
    "ragmon_redaction_failures_total", "Records sent without text because a redactor failed"
)
LABELS: Final = _monitor("ragmon_labels_total", "Labels, by what became of them", ("result",), series=4)
LABELS_WAITING: Final = _monitor("ragmon_labels_waiting", "Labels that wait for their answers")
RELOADED: Final = _monitor(
    "ragmon_config_last_reload_successful", "Whether the configuration in force is the one on disk"
)
LAST_SCORED: Final = _monitor("ragmon_last_scored_timestamp_seconds", "When the last record was scored")
BUILD_INFO: Final = _monitor("ragmon_build_info", "This ragmon; always 1", ("version",))
SERIES: Final = _monitor("ragmon_series", "Prometheus series of this scrape")
NAMES_OVERFLOW: Final = _monitor(
    "ragmon_names_overflow_total",
    "Names that were counted together as __other__, because there was no room",
    ("kind",),
    series=len(constants.NAME_KINDS),
)

REFUSED: Final = _monitor("ragmon_requests_refused_total", "Requests refused", ("reason",), series=4)
PRODUCER_DROPPED: Final = _monitor(
    "ragmon_producer_records_dropped_total", "Records that producers lost before sending them", ("reason",), series=4
)
PRODUCER_MISSING: Final = _monitor(
    "ragmon_producer_records_missing", "Records that producers sent and that have not arrived"
)
FIELDS_UNKNOWN: Final = _monitor(
    "ragmon_fields_unknown_total",
    "Fields that spans of other instrumentations do not carry",
    ("field", "reason"),
    series=7,
)
PROBE_RECORDS: Final = _monitor(
    "ragmon_probe_records_total",
    "Applications' own records of probes, and whether the reply arrived too",
    ("result",),
    series=2,
)
STATE_RESETS: Final = _monitor("ragmon_state_reset_total", "Damaged journals that were set aside")
CLOCK_JUMPS: Final = _monitor("ragmon_clock_jumps_total", "Jumps of the system's clock")
JOURNAL_BYTES: Final = _monitor("ragmon_journal_bytes", "Bytes of the journal")
JOURNAL_WRITABLE: Final = _monitor("ragmon_journal_writable", "Whether the journal can be written")

WATERMARK: Final = _monitor(
    "ragmon_stream_watermark_timestamp_seconds",
    "Time up to which every partition has reported; alarms are judged up to here",
)
PARTITION_BEHIND: Final = _monitor(
    "ragmon_stream_partition_behind_seconds", "Seconds since a partition last reported", ("partition",), series=0
)
CHUNKS: Final = _monitor("ragmon_stream_chunks_total", "Chunks by what became of them", ("result",), series=0)
STREAM_LOST: Final = _monitor(
    "ragmon_stream_lost_messages_total", "Messages that a log deleted before they were counted"
)
STREAM_CONFIGS: Final = _monitor(
    "ragmon_stream_configs", "Configurations by which partitions are counted; 1 except during a rollout"
)

FAMILIES: Final = tuple(declared for declared in list(vars().values()) if isinstance(declared, Family))


def series_of(scope: SeriesScope) -> int:
    """How many series all families together have for one thing of a scope."""
    return sum(family.series for family in FAMILIES if family.scope is scope)


_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")


def quoted(text: str) -> str:
    """A PromQL string literal; PromQL knows all of JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)


def equals(name: str, value: str) -> str:
    r"""A matcher for one value.

    >>> print(equals("gate", 'a "b"'))
    gate="a \"b\""
    """
    return f"{name}={quoted(label(value))}"


def one_of(name: str, values: Iterable[str], *, others: bool = False) -> str:
    r"""A matcher for several values, or for all others.

    >>> print(one_of("gate", ["a", "b.c"]))
    gate=~"a|b\\.c"
    """
    pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", label(value)) for value in values)
    return f"{name}{'!~' if others else '=~'}{quoted(pattern)}"


def selector(name: str, matchers: Mapping[str, str] | None = None, *more: str) -> str:
    r"""A series selector.

    >>> selector("up", {"job": "ragmon"}), selector("up", {"job": 'a"b'}, 'gold!=""')
    ('up{job="ragmon"}', 'up{job="a\\"b",gold!=""}')
    """
    parts = [f"{label}={quoted(value)}" for label, value in (matchers or {}).items()] + list(more)
    return f"{name}{{{','.join(parts)}}}" if parts else name


def exact(value: float) -> str:
    """A number with all its digits, as the exporter writes it, because rules compare it for equality.

    >>> exact(1.0), exact(0.333333333333)
    ('1', '0.333333333333')
    """
    return repr(float(value)).removesuffix(".0")


PIPELINE: Final = 'pipeline=~"$pipeline"'
SOURCE: Final = 'source=~"$source"'
WINDOW: Final = 'window="$window"'
EVERY: Final = "$__rate_interval"
SHOWN: Final = "$__range"
FIRES: Final = 'ALERTS{alertname=~"Ragmon.*",alertname!="RagmonWatchdog",alertstate="firing"}'
"""Firing alerts of ragmon's rules. Their labels come from the rules, so job and instance are not matched."""
_TARGET: Final = ('job=~"$job"', 'instance=~"$instance"')


def at(name: str, *matchers: str) -> str:
    """A selector for the jobs and instances chosen in the dashboard.

    >>> at("ragmon_series")
    'ragmon_series{job=~"$job",instance=~"$instance"}'
    """
    return f"{name}{{{','.join((*_TARGET, *matchers))}}}"


class EstimateQuery(NamedTuple):
    """A value, its bounds and its sample count: names of series, or queries over replicas."""

    value: str
    lower: str
    upper: str
    samples: str


def pooled(series: EstimateQuery, by: str, *matchers: str) -> EstimateQuery:
    """A value over all replicas, and an interval that holds those of all: for one replica its own."""
    value, lower, upper, samples = (at(name, *matchers) for name in series)
    total = f"sum by ({by}) ({samples})"
    mean = f"sum by ({by}) ({value} * {samples}) / {total}"
    return EstimateQuery(mean, f"min by ({by}) ({lower})", f"max by ({by}) ({upper})", total)


def windowed(metric: str) -> EstimateQuery:
    """The names of a metric's series over windows."""
    name = f"{PREFIX}{metric}"
    endings = (VALUE, LOWER, UPPER, SAMPLES)
    return EstimateQuery(*(f"{name}{ending}" for ending in endings))


GATE: Final = EstimateQuery(
    GATE_VALUE,
    GATE_LOWER,
    GATE_UPPER,
    GATE_SAMPLES,
)


def worst(name: str, by: str, *matchers: str) -> str:
    """The largest value over replicas."""
    return f"max by ({by}) ({at(name, *matchers)})"


def rate(name: str, by: str, *matchers: str) -> str:
    """The increase of a counter per second, summed over replicas; `by=""` sums over all labels."""
    return f"sum{f' by ({by})' if by else ''} (rate({at(name, *matchers)}[{EVERY}]))"


def per_minute(name: str, by: str, *matchers: str) -> str:
    """The increase of a counter per minute, for rare events."""
    return f"60 * {rate(name, by, *matchers)}"


def increase_in_range(name: str, by: str, *matchers: str) -> str:
    """The increase of a counter over the dashboard's time range, summed over replicas."""
    return f"sum by ({by}) (increase({at(name, *matchers)}[{SHOWN}]))"


def quantile(q: float, histogram: str, by: str, *matchers: str) -> str:
    """A quantile of a histogram, over replicas."""
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', f'le, {by}', *matchers)})"


def status(*matchers: str) -> str:
    """A gate's verdict over replicas: 2 if one fails, else 0 if one passes, else 1.

    A gate that does not apply to its pipeline has no verdict: all of its statuses are 0.
    """
    failed = worst(GATE_STATUS, "pipeline, gate", *matchers, equals("status", "fail"))
    passed = worst(GATE_STATUS, "pipeline, gate", *matchers, equals("status", "pass"))
    unknown = worst(GATE_STATUS, "pipeline, gate", *matchers, equals("status", "insufficient"))
    return f"2 * {failed} > 0 or 0 * ({passed} > 0) or {unknown} > 0"


def of_gate(expression: str) -> str:
    """The largest value over all alarms of a gate: `answer_precision:look` belongs to `answer_precision`.

    The part before the colon is first written into a label of its own, so that two alarms do not become one series.
    """
    with_gate = f'max by (pipeline, of) (label_replace({expression}, "of", "$1", "gate", "([^:]+).*"))'
    return f'max by (pipeline, gate) (label_replace({with_gate}, "gate", "$1", "of", "(.+)"))'


_SERIES: Final = {scope: series_of(scope) for scope in SeriesScope}
_JUDGE_ALARMS: Final = 2
"""Alarms of a judge: on its scores, and on labels beside them."""


def expected_series(settings: Settings) -> int:
    """An estimate of the number of Prometheus series of a configuration, an upper bound for steady traffic.

    Per pipeline: every metric has its gauges per window and its counters, for each source and gold set it can be seen
    under (live for those without gold; every use of every gold set of the pipeline for all; `label` for human labels);
    every gate and alarm has its own series; every slice value, and the one for all others, those of a slice per gated
    metric and source; a request counter per source and stratum, an error counter, and histograms. In addition, the
    series of gold sets, probes and judges, those about the monitor itself and, per metric, the usual reasons for
    unassessed requests.
    """
    metrics = settings.build_metrics()
    with_gold = sum(metric.needs_gold for metric in metrics.values())
    labelled = sum(metric.labelled for metric in metrics.values())
    without_gold = len(metrics) - with_gold - labelled
    judges = {name for pipeline in settings.pipelines.values() for name in pipeline.judges}
    expected = (
        _SERIES[SeriesScope.GOLD] * len(settings.gold)
        + _SERIES[SeriesScope.PROBE] * len(settings.probes)
        + _SERIES[SeriesScope.JUDGE] * len(judges)
        + _SERIES[SeriesScope.METRIC] * len(metrics)
        + _SERIES[SeriesScope.MONITOR]
    )
    for name in settings.expected_pipelines:
        pipeline = settings.of(name)
        uses = sum(len(spec.use) for spec in settings.gold if spec.pipeline in (None, pipeline.name))
        sources = 1 + uses
        gated = len({gate.metric for gate in pipeline.resolved_gates if gate.kind == "threshold"})
        expected += (
            (without_gold * sources + with_gold * uses + labelled) * _per_metric(len(settings.windows))
            + _gates_and_alarms(pipeline, settings)
            + _SERIES[SeriesScope.SLICE] * gated * _slice_values(pipeline) * sources
            + _SERIES[SeriesScope.STRATUM] * len(constants.STRATA) * sources
            + _SERIES[SeriesScope.ERROR]
            + _SERIES[SeriesScope.SOURCE]
        )
    return expected


def budget(settings: Settings) -> SeriesBudget:
    """The part of `[serve] max_series` that unconfigured pipelines share, and the maximum each of them uses.

    Series of configured pipelines, of `__other__` and about the monitor itself are reserved first.
    """
    pipeline = (
        _gates_and_alarms(settings.unconfigured, settings)
        + _SERIES[SeriesScope.ERROR] * (CODES + 1)
        + _SERIES[SeriesScope.BUILD] * BUILDS
        + (_SERIES[SeriesScope.MATCHING] if settings.gold else 0)
    )
    sources = {source: _unconfigured_source(source, settings) for source in constants.SOURCES}
    reserved = expected_series(settings) + pipeline + sources[constants.LIVE]
    return SeriesBudget(settings.serve.max_series - reserved, pipeline, sources)


def _gates_and_alarms(pipeline: PipelineSettings, settings: Settings) -> int:
    rules = plan(pipeline.resolved_gates, settings.build_metrics())
    drift = Drift(AlarmSettings(rules, indexes=index_limits(pipeline.resolved_gates)))
    return (
        _SERIES[SeriesScope.PIPELINE]
        + _SERIES[SeriesScope.GATE] * len(pipeline.resolved_gates)
        + _SERIES[SeriesScope.ALARM] * (len(rules) + len(drift.signals) + _JUDGE_ALARMS * len(pipeline.judges))
        + _SERIES[SeriesScope.BASELINE] * sum(rule.kind != "gate" for rule in rules)
    )


def _unconfigured_source(source: str, settings: Settings) -> int:
    """The maximum number of series of one source of an unconfigured pipeline."""
    metrics, windows = settings.build_metrics(), len(settings.windows)
    with_gold = [metric for metric in metrics.values() if metric.needs_gold]
    labelled = sum(metric.labelled for metric in metrics.values())
    gated = {gate.metric for gate in settings.unconfigured.resolved_gates}
    gated_with_gold = sum(metric.key in gated for metric in with_gold)
    per_metric = _per_metric(windows)
    gold_series = (
        len(with_gold) * per_metric
        + windows * _SERIES[SeriesScope.GATED_WINDOW] * gated_with_gold
        + windows * _SERIES[SeriesScope.GOLD_WINDOW]
    )
    slices = _SERIES[SeriesScope.SLICE] * len(gated) * _slice_values(settings.unconfigured)
    if source == constants.LABEL:
        return gold_series + labelled * per_metric + windows * _SERIES[SeriesScope.PREDICTION] + slices
    uses = [use for spec in settings.gold if spec.pipeline is None for use in spec.use]
    gold_sets = sum((constants.LIVE if use == constants.MATCH else use) == source for use in uses)
    without_gold = len(metrics) - len(with_gold) - labelled
    return (
        without_gold * per_metric
        + gold_series * gold_sets
        + slices * (1 + gold_sets)
        + _SERIES[SeriesScope.STRATUM] * len(constants.CALL_STRATA)
        + _SERIES[SeriesScope.SOURCE]
    )


def _per_metric(windows: int) -> int:
    return _SERIES[SeriesScope.METRIC_WINDOW] * windows + _SERIES[SeriesScope.METRIC_TOTAL]


def _slice_values(pipeline: PipelineSettings) -> int:
    return sum(len(values) + 1 for values in pipeline.slices.values())
