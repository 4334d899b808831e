"""How many series Prometheus will hold for a configuration, before anything runs, and what is left for strangers."""

from __future__ import annotations

from typing import Final

from ragmon.alarms import plan
from ragmon.config.settings import GoldSpec, PipelineSettings, Settings
from ragmon.core import constants
from ragmon.core.policy import LABELLED
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
"""What it holds its metric against, and where that comes from."""
DRIFT: Final = 1 + len(SHAPES)
"""Drift alarms: the index, and every property whose distribution is watched."""
SLICE: Final = 2
HISTOGRAMS: Final = 2 + len(constants.STAGES) - 1
"""Latency end to end, one per stage, retrieved documents."""
BUCKETS: Final = 12
"""A histogram's buckets, its sum and its count."""
MONITOR: Final = 60
"""What the monitor says about itself, whatever it watches."""
REASONS: Final = 2
"""Reasons for which a metric usually is unassessed."""
RESULTS: Final = 3
"""Outcomes a probe's calls are counted by."""
CODES: Final = 32
"""Kinds of errors of a pipeline that are kept apart; others are one more."""
BUILDS: Final = 8
"""Builds and indexes of a pipeline that are shown: those seen last."""
ESTIMANDS: Final = 6
"""Two bounds and how much it is worth, of both estimands."""
PREDICTED: Final = 4
"""What labels and a proxy say together."""


def expected_series(settings: Settings) -> int:
    """An estimate of the number of Prometheus series, an upper bound for steady traffic.

    Per pipeline: every metric has 4 gauges per window, and 3 counters, for each source and gold set it can be seen
    under (live for those without gold; every use of every gold set of the pipeline for all; `label` for human labels);
    every gate 9, every alarm 2, or 4 with a baseline; every slice value, and the one for all others, 2 per gated metric
    and source; a request counter per source and stratum, an error counter, and histograms. Per gold set 2, per probe
    and judge one per outcome. Beside them what the monitor says about itself and, per metric, the usual reasons for not
    assessing.

    Args:
        settings: The configuration.
    """
    metrics = settings.build_metrics()
    return sum(_pipeline(one, settings, len(metrics)) for one in settings.pipelines.values()) + _beside(settings)


def budget(settings: Settings) -> SeriesBudget:
    """What pipelines nobody configured may share of `[serve] max_series`, and what each takes of it at most.

    Configured pipelines, `__other__` and what the monitor says of itself have their place before all others.
    """
    pipeline, sources = _stranger(settings), {source: _source(source, settings) for source in constants.SOURCES}
    reserved = expected_series(settings) + pipeline + sources[constants.LIVE]
    return SeriesBudget(max(0, settings.serve.max_series - reserved), pipeline, sources)


def _beside(settings: Settings) -> int:
    """Series that belong to no pipeline."""
    metrics = settings.build_metrics()
    judges = {name for one in settings.pipelines.values() for name in one.judges}
    beside = 2 * len(settings.gold) + RESULTS * len(settings.probes) + len(constants.JUDGE_RESULTS) * len(judges)
    return beside + REASONS * len(metrics) + MONITOR


def _stranger(settings: Settings) -> int:
    """What a pipeline nobody configured takes at most, whatever its sources."""
    gates = settings.common.gates
    watches = plan(gates, settings.build_metrics())
    return (
        GATE * len(gates)
        + ALARM * (len(watches) + DRIFT)
        + BASELINE * sum(watch.kind != "gate" for watch in watches)
        + CODES
        + 1
        + BUILDS
        + (len(constants.WAYS) if settings.gold else 0)
    )


def _source(source: str, settings: Settings) -> int:
    """What one source of such a pipeline takes at most; gold is found for users' requests and for probes."""
    metrics, windows = settings.build_metrics(), len(settings.windows)
    needing = [metric for metric in metrics.values() if metric.needs_gold]
    shown = GAUGES * windows + COUNTERS
    gated = {gate.metric for gate in settings.common.gates}
    sliced = sum(len(values) + 1 for values in settings.common.slices.values())
    golden = len(needing) * shown + ESTIMANDS * windows * sum(metric.key in gated for metric in needing) + windows
    if source == constants.LABEL:
        return golden + len(LABELLED) * shown + PREDICTED * windows + SLICE * len(gated) * sliced
    uses = [use for spec in settings.gold if spec.pipeline is None for use in spec.use]
    sets = sum((constants.LIVE if use == constants.MATCH else use) == source for use in uses)
    plain = len(metrics) - len(needing) - len(LABELLED)
    slices = SLICE * len(gated) * sliced * (1 + sets)
    return plain * shown + golden * sets + slices + len(constants.CALL_STRATA) + HISTOGRAMS * BUCKETS


def _pipeline(one: PipelineSettings, settings: Settings, metrics: int) -> int:
    golden = sum(metric.needs_gold for metric in settings.build_metrics().values())
    plain = metrics - golden - len(LABELLED)
    watches = plan(one.gates, settings.build_metrics())
    uses = sum(len(spec.use) for spec in settings.gold if _judges(spec, one.name))
    sources = 1 + uses
    seen = plain * sources + golden * uses + len(LABELLED)
    gated = len({gate.metric for gate in one.gates if gate.kind == "threshold"})
    sliced = sum(len(values) + 1 for values in one.slices.values())
    return (
        seen * (GAUGES * len(settings.windows) + COUNTERS)
        + GATE * len(one.gates)
        + ALARM * (len(watches) + DRIFT)
        + BASELINE * sum(watch.kind != "gate" for watch in watches)
        + SLICE * gated * sliced * sources
        + len(constants.STRATA) * sources
        + 1
        + HISTOGRAMS * BUCKETS
    )


def _judges(spec: GoldSpec, pipeline: str) -> bool:
    return spec.pipeline in (None, pipeline)
