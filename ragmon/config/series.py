"""How many series Prometheus will hold for a configuration, before anything runs."""

from __future__ import annotations

from typing import Final

from ragmon import names
from ragmon.alarms import plan
from ragmon.alarms.steps import SHAPES
from ragmon.config.settings import GoldSpec, PipelineSettings, Settings
from ragmon.gates import LABELLED

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
HISTOGRAMS: Final = 2 + len(names.STAGES) - 1
"""Latency end to end, one per stage, retrieved documents."""
BUCKETS: Final = 18
"""A histogram's buckets, its sum and its count."""
MONITOR: Final = 60
"""What the monitor says about itself, whatever it watches."""
REASONS: Final = 2
"""Reasons for which a metric usually is unassessed."""
RESULTS: Final = 3
"""Outcomes a probe's calls are counted by."""


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
    per_pipeline = sum(_pipeline(one, settings, len(metrics)) for one in settings.pipelines.values())
    judges = {name for one in settings.pipelines.values() for name in one.judges}
    beside = 2 * len(settings.gold) + RESULTS * len(settings.probes) + len(names.JUDGE_RESULTS) * len(judges)
    return per_pipeline + beside + REASONS * len(metrics) + MONITOR


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
        + len(names.STRATA) * sources
        + 1
        + HISTOGRAMS * BUCKETS
    )


def _judges(spec: GoldSpec, pipeline: str) -> bool:
    return spec.pipeline in (None, pipeline)
