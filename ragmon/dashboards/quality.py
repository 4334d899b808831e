"""Panels of quality: one for each gate, one for each metric, in the metrics' own words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grafana_foundation_sdk.builders import timeseries

from ragmon import metrics
from ragmon.config.settings import Settings
from ragmon.core import series_names
from ragmon.core.policy import Gate
from ragmon.core.series_names import label
from ragmon.dashboards.panels import NUMBER, SHARE, Query, lines
from ragmon.dashboards.promql import GATE, PIPELINE, SOURCE, WINDOW, at, pooled, windowed, worst
from ragmon.metrics.base import judged
from ragmon.promql import equals

_POOLED = "Replicas are put together by their requests; dots: 95 % interval."


def families(settings: Settings) -> dict[str, type[metrics.Metric]]:
    """Every metric class that is counted: registered ones, those of plugins, and the judges', by name."""
    shared = (settings.common, *settings.pipelines.values())
    judges = (judged(name) for name in sorted({name for one in shared for name in one.judges}))
    return {**metrics.families(), **{family.name: family for family in judges}}


def gates(settings: Settings) -> dict[str, list[Gate]]:
    """The gates of all pipelines by their name, in the order they are reported."""
    found: dict[str, list[Gate]] = {}
    for pipeline in settings.pipelines.values():
        for gate in pipeline.gates:
            found.setdefault(gate.name, []).append(gate)
    return found


def plain(found: Sequence[Gate]) -> bool:
    """Whether the gates of a name judge shares, which add up over replicas; counts and ratios of times do not."""
    return all(gate.kind == "threshold" for gate in found)


def gate_panel(name: str, found: Sequence[Gate], settings: Settings) -> timeseries.Panel:
    """The value of a gate, its interval and its threshold.

    Args:
        name: The gate's.
        found: The gates of this name, of every pipeline.
        settings: The configuration.
    """
    matchers = (PIPELINE, equals("gate", name))
    threshold = Query(worst(series_names.GATE_THRESHOLD, "pipeline", *matchers), "threshold {{pipeline}}")
    metric = found[0].metric
    title = name if name == metric else f"{name} ({metric})"
    if not plain(found):
        says = f"What the gate judges ({metric}); of several replicas the largest. Dashes: what it must keep."
        value = Query(worst(series_names.GATE_VALUE, "pipeline", *matchers), "{{pipeline}}")
        return lines(title, says, [value, threshold], NUMBER, width=12)
    says = f"{_help(metric, settings)} Over the gate's window. {_POOLED} Dashes: what the gate must keep."
    told = pooled(GATE, "pipeline", *matchers)
    queries = [
        Query(told.value, "{{pipeline}}"),
        Query(told.lower, "{{pipeline}} lower"),
        Query(told.upper, "{{pipeline}} upper"),
        threshold,
    ]
    bands = [(f"{name} upper", f"{name} lower") for name in (label(gate.pipeline) for gate in found)]
    return lines(title, says, queries, SHARE, floor=None, bands=bands)


def metric_panel(family: type[metrics.Metric], settings: Settings) -> timeseries.Panel:
    """A metric over the chosen window, by what makes its denominators; a metric with cuts has one line for each."""
    by = ["pipeline", "source", *(["gold"] if family.needs_gold else []), *(["k"] if family.at_k else [])]
    told = pooled(windowed(family.name), ", ".join(by), PIPELINE, SOURCE, WINDOW)
    told_apart = ("pipeline", "source", "gold") if len(settings.gold) > 1 else ("pipeline", "source")
    legend = " ".join(f"{{{{{part}}}}}" for part in by if part in told_apart)
    better = "More is better." if family.better == "higher" else "Less is better."
    says = f"{family().help} {better} Over the window chosen above. {_POOLED}"
    if family.at_k:
        cut = f'label_replace({told.value}, "k", "all", "k", "")'
        says = (
            f"{family().help} {better} One line for each cut, `all` for the whole list. Over the window chosen above."
        )
        return lines(family.name, says, [Query(cut, f"{legend} @{{{{k}}}}")], SHARE, ceiling=1, many=True)
    queries = [
        Query(told.value, legend),
        Query(told.lower, f"{legend} lower"),
        Query(told.upper, f"{legend} upper"),
        *_thresholds(family.name, settings),
    ]
    return lines(family.name, says, queries, SHARE, floor=None)


def _thresholds(metric: str, settings: Settings) -> Iterator[Query]:
    """What the gates on a metric must keep."""
    for name, found in gates(settings).items():
        if plain(found) and found[0].metric == metric:
            expr = at(series_names.GATE_THRESHOLD, PIPELINE, equals("gate", name))
            yield Query(f"max by (pipeline, gate) ({expr})", "threshold {{pipeline}} {{gate}}")


def _help(key: str, settings: Settings) -> str:
    """What a metric says of itself."""
    family = families(settings).get(key.partition("@")[0])
    return key if family is None else family().help
