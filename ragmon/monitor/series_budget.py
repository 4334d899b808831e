"""The number of Prometheus series that a configuration needs, and the budget left for unconfigured pipelines.

The constants are the numbers of series per metric, gate, alarm and so on.
"""

from __future__ import annotations

from typing import Final

from ragmon.alarms import plan
from ragmon.config.settings import GoldSpec, PipelineSettings, Settings
from ragmon.core import constants
from ragmon.scoring.cardinality import SeriesBudget
from ragmon.scoring.minutes import SHAPES

GAUGES: Final = 4
"""Value, lower, upper, samples."""
COUNTERS: Final = 3
"""Scores, scored, squares."""
GATE: Final = 9
"""Threshold, value, lower, upper, samples, three statuses, info."""
ALARM: Final = 2
"""Whether it fires, and its evidence."""
BASELINE: Final = 2
"""The level its metric is compared with, and the baseline's state."""
DRIFT: Final = 1 + len(SHAPES)
"""Drift alarms: the index, and every property whose distribution is monitored."""
SLICE: Final = 2
HISTOGRAMS: Final = 2 + len(constants.STAGES) - 1
"""Latency end to end, one per stage, retrieved documents."""
BUCKETS: Final = 12
"""A histogram's buckets, its sum and its count."""
MONITOR: Final = 60
"""Series about the monitor itself, independent of the configuration."""
REASONS: Final = 2
"""Usual number of reasons for which a metric is unassessed."""
RESULTS: Final = 3
"""Usual number of results by which a probe's calls are counted."""
CODES: Final = 32
"""Error types of a pipeline with a series of their own; all others share one."""
BUILDS: Final = 8
"""Builds and indexes of a pipeline that are exported: the latest ones."""
ESTIMANDS: Final = 6
"""Two bounds and the effective sample size, of both estimands."""
PREDICTED: Final = 4
"""Series of a prediction from labels and a proxy."""


def expected_series(settings: Settings) -> int:
    """An estimate of the number of Prometheus series, an upper bound for steady traffic.

    Per pipeline: every metric has 4 gauges per window, and 3 counters, for each source and gold set it can be seen
    under (live for those without gold; every use of every gold set of the pipeline for all; `label` for human labels);
    every gate 9, every alarm 2, or 4 with a baseline; every slice value, and the one for all others, 2 per gated metric
    and source; a request counter per source and stratum, an error counter, and histograms. Per gold set 2, per probe
    and judge one per outcome. In addition, the series about the monitor itself and, per metric, the usual reasons for
    unassessed requests.

    Args:
        settings: The configuration.
    """
    metrics = settings.build_metrics()
    return sum(
        _configured_pipeline(pipeline, settings, len(metrics)) for pipeline in settings.pipelines.values()
    ) + _without_pipeline(settings)


def budget(settings: Settings) -> SeriesBudget:
    """The part of `[serve] max_series` that unconfigured pipelines share, and the maximum each of them uses.

    Series of configured pipelines, of `__other__` and about the monitor itself are reserved first.
    """
    pipeline, sources = (
        _unconfigured_pipeline(settings),
        {source: _source(source, settings) for source in constants.SOURCES},
    )
    reserved = expected_series(settings) + pipeline + sources[constants.LIVE]
    return SeriesBudget(max(0, settings.serve.max_series - reserved), pipeline, sources)


def _without_pipeline(settings: Settings) -> int:
    """The number of series that belong to no pipeline."""
    metrics = settings.build_metrics()
    judges = {name for pipeline in settings.pipelines.values() for name in pipeline.judges}
    count = 2 * len(settings.gold) + RESULTS * len(settings.probes) + len(constants.JUDGE_RESULTS) * len(judges)
    return count + REASONS * len(metrics) + MONITOR


def _unconfigured_pipeline(settings: Settings) -> int:
    """The maximum number of series of an unconfigured pipeline, without those of its sources."""
    gates = settings.common.gates
    rules = plan(gates, settings.build_metrics())
    return (
        GATE * len(gates)
        + ALARM * (len(rules) + DRIFT)
        + BASELINE * sum(rule.kind != "gate" for rule in rules)
        + CODES
        + 1
        + BUILDS
        + (len(constants.MATCH_METHODS) if settings.gold else 0)
    )


def _source(source: str, settings: Settings) -> int:
    """The maximum number of series of one source of such a pipeline; gold exists for user requests and for probes."""
    metrics, windows = settings.build_metrics(), len(settings.windows)
    with_gold = [metric for metric in metrics.values() if metric.needs_gold]
    labelled = sum(metric.labelled for metric in metrics.values())
    per_metric = GAUGES * windows + COUNTERS
    gated = {gate.metric for gate in settings.common.gates}
    slice_values = sum(len(values) + 1 for values in settings.common.slices.values())
    gold_series = (
        len(with_gold) * per_metric + ESTIMANDS * windows * sum(metric.key in gated for metric in with_gold) + windows
    )
    if source == constants.LABEL:
        return gold_series + labelled * per_metric + PREDICTED * windows + SLICE * len(gated) * slice_values
    uses = [use for spec in settings.gold if spec.pipeline is None for use in spec.use]
    gold_sets = sum((constants.LIVE if use == constants.MATCH else use) == source for use in uses)
    without_gold = len(metrics) - len(with_gold) - labelled
    slice_series = SLICE * len(gated) * slice_values * (1 + gold_sets)
    return (
        without_gold * per_metric
        + gold_series * gold_sets
        + slice_series
        + len(constants.CALL_STRATA)
        + HISTOGRAMS * BUCKETS
    )


def _configured_pipeline(pipeline: PipelineSettings, settings: Settings, metrics: int) -> int:
    with_gold = sum(metric.needs_gold for metric in settings.build_metrics().values())
    labelled = sum(metric.labelled for metric in settings.build_metrics().values())
    without_gold = metrics - with_gold - labelled
    rules = plan(pipeline.gates, settings.build_metrics())
    uses = sum(len(spec.use) for spec in settings.gold if _judges(spec, pipeline.name))
    sources = 1 + uses
    metric_series = without_gold * sources + with_gold * uses + labelled
    gated = len({gate.metric for gate in pipeline.gates if gate.kind == "threshold"})
    slice_values = sum(len(values) + 1 for values in pipeline.slices.values())
    return (
        metric_series * (GAUGES * len(settings.windows) + COUNTERS)
        + GATE * len(pipeline.gates)
        + ALARM * (len(rules) + DRIFT)
        + BASELINE * sum(rule.kind != "gate" for rule in rules)
        + SLICE * gated * slice_values * sources
        + len(constants.STRATA) * sources
        + 1
        + HISTOGRAMS * BUCKETS
    )


def _judges(spec: GoldSpec, pipeline: str) -> bool:
    return spec.pipeline in (None, pipeline)
