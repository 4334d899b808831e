"""Which counters a gate is read off: those of its metric, source, gold set and slice."""

from __future__ import annotations

from collections.abc import Sequence

from ragmon.alerting.promql import selector
from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.core.policy import LABELLED, Gate
from ragmon.core.series_names import label
from ragmon.metrics.base import parse
from ragmon.promql import equals


def gates(settings: Settings) -> tuple[Gate, ...]:
    """Every gate of every pipeline, with the source it is judged on live."""
    return tuple(gate for name in settings.pipelines for gate in settings.policy(name, live=True).gates)


def shares(settings: Settings) -> tuple[Gate, ...]:
    """The gates whose values are shares, which have counters."""
    return tuple(gate for gate in gates(settings) if gate.kind == "threshold")


def named(gate: Gate) -> dict[str, str]:
    """The labels every series about a gate has."""
    return {"pipeline": label(gate.pipeline), "gate": label(gate.name)}


def score(gate: Gate) -> str:
    """Selects what the gate's metric scored in all."""
    return _counter(gate, series_names.SCORE, series_names.SLICE_SCORE)


def scored(gate: Gate) -> str:
    """Selects how many requests it scored."""
    return _counter(gate, series_names.SCORED, series_names.SLICE_SCORED)


def scored_by(keys: Sequence[str]) -> dict[str, str]:
    """Selects how many requests each metric scored, whatever the pipeline."""
    found = {}
    for key in keys:
        name, _, k = key.partition("@")
        found[key] = selector(f"{series_names.PREFIX}{name}{series_names.SCORED}", {"k": k} if k else {})
    return found


def _counter(gate: Gate, ending: str, sliced: str) -> str:
    matchers = {"pipeline": label(gate.pipeline)}
    name, _, k = gate.metric.partition("@")
    series = f"{series_names.PREFIX}{name}{ending}"
    if gate.where:
        series = sliced
        matchers |= {"metric": gate.metric, "slice": label(gate.where)}
    elif k:
        matchers["k"] = k
    matchers["source"] = gate.source or constants.LIVE
    return selector(series, matchers, *_gold(gate))


def _gold(gate: Gate) -> list[str]:
    """Which gold set: the one the gate names, or whichever there is."""
    if gate.gold is not None:
        return [equals("gold", gate.gold)]
    if gate.metric in LABELLED:
        return []
    return ['gold!=""' if parse(gate.metric).needs_gold else 'gold=""']
