"""The number of Prometheus series that a configuration needs, and the budget left for unconfigured pipelines.

How many series a metric, a gate or an alarm has follows from the declared families (`ragmon.core.series_names`).
"""

from __future__ import annotations

from typing import Final

from ragmon.alarms.baselines import AlarmTerms, index_terms
from ragmon.alarms.drift import Drift
from ragmon.alarms.plan import plan
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core import constants
from ragmon.core.series_names import SeriesScope, series_of
from ragmon.scoring.cardinality import BUILDS, CODES, SeriesBudget

_SERIES: Final = {scope: series_of(scope) for scope in SeriesScope}
"""Series of one thing of a scope."""

_JUDGE_ALARMS: Final = 2
"""Alarms of a judge: on its scores, and on labels beside them."""


def expected_series(settings: Settings) -> int:
    """An estimate of the number of Prometheus series, an upper bound for steady traffic.

    Per pipeline: every metric has its gauges per window and its counters, for each source and gold set it can be seen
    under (live for those without gold; every use of every gold set of the pipeline for all; `label` for human labels);
    every gate and alarm has its own series; every slice value, and the one for all others, those of a slice per gated
    metric and source; a request counter per source and stratum, an error counter, and histograms. In addition, the
    series of gold sets, probes and judges, those about the monitor itself and, per metric, the usual reasons for
    unassessed requests.

    Args:
        settings: The configuration.
    """
    pipelines = sum(_configured_pipeline(settings.of(name), settings) for name in settings.expected_pipelines)
    return pipelines + _without_pipeline(settings)


def budget(settings: Settings) -> SeriesBudget:
    """The part of `[serve] max_series` that unconfigured pipelines share, and the maximum each of them uses.

    Series of configured pipelines, of `__other__` and about the monitor itself are reserved first.
    """
    pipeline = _unconfigured_pipeline(settings)
    sources = {source: _source(source, settings) for source in constants.SOURCES}
    reserved = expected_series(settings) + pipeline + sources[constants.LIVE]
    return SeriesBudget(max(0, settings.serve.max_series - reserved), pipeline, sources)


def _without_pipeline(settings: Settings) -> int:
    """The number of series that belong to no pipeline."""
    judges = {name for pipeline in settings.pipelines.values() for name in pipeline.judges}
    return (
        _SERIES[SeriesScope.GOLD] * len(settings.gold)
        + _SERIES[SeriesScope.PROBE] * len(settings.probes)
        + _SERIES[SeriesScope.JUDGE] * len(judges)
        + _SERIES[SeriesScope.METRIC] * len(settings.build_metrics())
        + _SERIES[SeriesScope.MONITOR]
    )


def _gates_and_alarms(pipeline: PipelineSettings, settings: Settings) -> int:
    """The number of series of the gates and alarms of a pipeline."""
    rules = plan(pipeline.resolved_gates, settings.build_metrics())
    drift = Drift(AlarmTerms(rules, indexes=index_terms(pipeline.resolved_gates)))
    return (
        _SERIES[SeriesScope.GATE] * len(pipeline.resolved_gates)
        + _SERIES[SeriesScope.ALARM] * (len(rules) + len(drift.signals) + _JUDGE_ALARMS * len(pipeline.judges))
        + _SERIES[SeriesScope.BASELINE] * sum(rule.kind != "gate" for rule in rules)
    )


def _unconfigured_pipeline(settings: Settings) -> int:
    """The maximum number of series of an unconfigured pipeline, without those of its sources."""
    return (
        _gates_and_alarms(settings.unconfigured, settings)
        + _SERIES[SeriesScope.ERROR] * (CODES + 1)
        + _SERIES[SeriesScope.BUILD] * BUILDS
        + (_SERIES[SeriesScope.MATCHING] if settings.gold else 0)
    )


def _source(source: str, settings: Settings) -> int:
    """The maximum number of series of one source of such a pipeline; gold exists for user requests and for probes."""
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


def _configured_pipeline(pipeline: PipelineSettings, settings: Settings) -> int:
    """The expected number of series of a configured pipeline."""
    metrics = settings.build_metrics()
    with_gold = sum(metric.needs_gold for metric in metrics.values())
    labelled = sum(metric.labelled for metric in metrics.values())
    without_gold = len(metrics) - with_gold - labelled
    uses = sum(len(spec.use) for spec in settings.gold if spec.pipeline in (None, pipeline.name))
    sources = 1 + uses
    metric_series = without_gold * sources + with_gold * uses + labelled
    gated = len({gate.metric for gate in pipeline.resolved_gates if gate.kind == "threshold"})
    return (
        metric_series * _per_metric(len(settings.windows))
        + _gates_and_alarms(pipeline, settings)
        + _SERIES[SeriesScope.SLICE] * gated * _slice_values(pipeline) * sources
        + _SERIES[SeriesScope.STRATUM] * len(constants.STRATA) * sources
        + _SERIES[SeriesScope.ERROR]
        + _SERIES[SeriesScope.SOURCE]
    )


def _per_metric(windows: int) -> int:
    """The number of series of a metric of one source and gold set, with so many windows."""
    return _SERIES[SeriesScope.METRIC_WINDOW] * windows + _SERIES[SeriesScope.METRIC_TOTAL]


def _slice_values(pipeline: PipelineSettings) -> int:
    """The number of slices of a pipeline: every configured value, and for each tag the one for all others."""
    return sum(len(values) + 1 for values in pipeline.slices.values())
