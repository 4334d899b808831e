"""Recording rules: thresholds of ragmon.toml, sums of scores over replicas, and the names of others.

Shares are sums of scores by requests scored. An interval is the monitor's: it knows strata and clusters, and exports
its bounds. The rules of `compat_recordings` have the names of the WFGY page on live monitoring
(ProblemMap/ops/live_monitoring_rag.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ragmon.core import constants, series_names
from ragmon.core.policy import Gate
from ragmon.core.series_names import label
from ragmon.export.promql import equals, exact, one_of
from ragmon.export.rules.file import Rule
from ragmon.export.rules.scopes import Deployments, RuleScope
from ragmon.metrics.base import parse

STEP: Final = "5m"
"""The window of recorded sums; those of longer windows are made of them."""
SCORE: Final = f"pipeline_gate:ragmon_gate_score:increase{STEP}"
SCORED: Final = f"pipeline_gate:ragmon_gate_scored:increase{STEP}"
RATIO: Final = "pipeline_gate:ragmon_gate_score_per_scored:ratio_increase{}"
WINDOWS: Final = ("6h", "3d")
THRESHOLD: Final = "pipeline_gate:ragmon_gate_threshold:constant"
MIN_SAMPLES: Final = "pipeline_gate:ragmon_gate_min_samples:constant"
METRIC_SCORED: Final = "metric:rag_scored:increase1h"
METRIC_UNASSESSED: Final = "metric:ragmon_unassessed:increase1h"
EXPECTED: Final = (
    constants.NO_GOLD_CLAIM,
    constants.NO_GOLD_CITATIONS,
    constants.ERROR,
    constants.NO_IDS,
    constants.NO_CITATIONS,
    constants.NO_TEXT,
    constants.NO_ANSWER,
    constants.NO_LATENCY,
)
"""Reasons that are no fault in the data: the gold set does not specify it, the request failed, or the pipeline does not
capture it. That is a ticket of its own where a gate suffers from it."""
USUAL: Final = 3600
"""Seconds; sliding values are recorded from the window nearest to it."""


def rules(scopes: Sequence[RuleScope], of: Deployments, windows: Mapping[str, int]) -> list[Rule]:
    """All recording rules.

    Args:
        scopes: The pipelines.
        of: The deployments.
        windows: The lengths of the monitor's windows in seconds, by name.
    """
    return [*_of_gates(scopes, of), *_ratios(of), *_of_metrics(scopes, of), *compat_recordings(windows, of)]


def _of_gates(scopes: Sequence[RuleScope], of: Deployments) -> Iterator[Rule]:
    for scope in scopes:
        served = of.series(series_names.GATE_THRESHOLD, *scope.matchers)
        pipelines = f"0 * group by ({of.labels('pipeline')}) ({served})"
        for gate in scope.gates:
            name = {**scope.labels, "gate": label(gate.name)}
            yield Rule(THRESHOLD, f"{pipelines} + {exact(gate.threshold)}", name | {"direction": gate.direction})
            if gate.kind != "distinct":  # its samples are builds
                yield Rule(MIN_SAMPLES, f"{pipelines} + {gate.min_samples}", name)
            if gate.kind == "threshold":
                yield Rule(SCORE, _judged(gate, scope, of, series_names.SCORE, series_names.SLICE_SCORE), name)
                yield Rule(SCORED, _judged(gate, scope, of, series_names.SCORED, series_names.SLICE_SCORED), name)


def _judged(gate: Gate, scope: RuleScope, of: Deployments, ending: str, sliced: str) -> str:
    """The increase of a counter of the gate's metric, over all replicas, in what the gate is judged on.

    That is one gold set, the one the monitor says if the gate names none, in its version in force: a sum over sets
    would be a number about nothing.
    """
    metric, (name, _, k) = parse(gate.metric), gate.metric.partition("@")
    series, cut = f"{series_names.PREFIX}{name}{ending}", [equals("k", k)] if k else []
    if gate.where:
        series, cut = sliced, [equals("metric", gate.metric), equals("slice", gate.where)]
    gold = [] if metric.labelled else ['gold!=""' if metric.needs_gold else 'gold=""']
    if gate.gold is not None:
        gold = [equals("gold", gate.gold)]
    counter = of.series(series, *scope.matchers, *cut, equals("source", gate.source or constants.LIVE), *gold)
    if gate.source == constants.LABEL or not (metric.needs_gold or gate.gold):
        return of.total(counter, STEP, "pipeline")
    present = f'label_replace({of.series(series_names.GOLD_INFO)}, "gold_version", "$1", "version", "(.*)")'
    chosen = f"increase({counter}[{STEP}]) and on ({of.labels('gold', 'gold_version')}) {present}"
    if gate.gold is None:
        told = of.series(series_names.GATE_INFO, equals("gate", gate.name))
        chosen += f" and on ({of.labels('pipeline', 'gold')}) {told}"
    return f"sum by ({of.labels('pipeline')}) ({chosen})"


def over(series: str, window: str, of: Deployments) -> str:
    """A recorded sum over a longer window."""
    return f"sum_over_time({of.series(series)}[{window}:{STEP}])"


def _ratios(of: Deployments) -> list[Rule]:
    """Each gate's mean score over all replicas; no data, not zero, where nothing was scored."""
    return [
        Rule(RATIO.format(window), f"{over(SCORE, window, of)} / ({over(SCORED, window, of)} > 0)")
        for window in WINDOWS
    ]


def _of_metrics(scopes: Sequence[RuleScope], of: Deployments) -> Iterator[Rule]:
    """Per gated metric, the requests it scored and those it could not assess."""
    keys = sorted({gate.metric for scope in scopes for gate in scope.share_gates})
    for key in keys:
        name, _, k = key.partition("@")
        counter = of.series(f"{series_names.PREFIX}{name}{series_names.SCORED}", *([equals("k", k)] if k else []))
        yield Rule(METRIC_SCORED, of.total(counter, "1h"), {"metric": key})
    if keys:
        counter = of.series(series_names.UNASSESSED, one_of("metric", keys), one_of("reason", EXPECTED, others=True))
        yield Rule(METRIC_UNASSESSED, of.total(counter, "1h", "metric"))


def compat_recordings(windows: Mapping[str, int], of: Deployments) -> list[Rule]:
    """Rules with the names of the WFGY page, so that dashboards made for these names keep working.

    Args:
        windows: The lengths of the windows in seconds, by name.
        of: The deployments.
    """
    window = equals("window", min(windows, key=lambda name: abs(windows[name] - USUAL)))
    precision = of.series(f"{series_names.PREFIX}answer_precision", window)
    samples = of.series(f"{series_names.PREFIX}answer_precision{series_names.SAMPLES}", window)
    by_gold = f"sum by ({of.labels('pipeline', 'source', 'gold')})"
    by_pipeline = f"sum by ({of.labels('pipeline')})"
    refusals = of.series(f"{series_names.PREFIX}under_refusal_rate{series_names.SCORE}")
    empty = of.series(f"{series_names.DOCUMENTS}_bucket", 'le="0.0"')
    return [
        Rule("rag_precision_shipped", f"{by_gold} ({precision} * {samples}) / ({by_gold} ({samples}) > 0)"),
        Rule("rag_under_refusal_count_total", f"{by_gold} ({refusals})"),
        Rule("retriever_empty_result_count_total", f"{by_pipeline} ({empty})"),
        Rule("rag_error_count_total", f"{by_pipeline} ({of.series(series_names.ERRORS)})"),
        Rule("rag_request_count_total", f"{by_pipeline} ({of.series(series_names.REQUESTS)})"),
    ]
