"""How small a change the alarm of a gate finds, and how soon, at the rate of observations that there is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final

from ragmon.alarms.plan import Detectability, budget_divisor, detectability
from ragmon.config.settings import Settings
from ragmon.core.constants import STEP
from ragmon.core.policy import Outcome, Policy
from ragmon.scoring.scorer import Scorer

MIN_MINUTES: Final = 60.0
"""Minimum span of a run in minutes before its rate is used as that of live traffic."""


def detectable_in_run(scorer: Scorer, policy: Policy, outcomes: Sequence[Outcome]) -> list[Detectability]:
    """What live alarms on these gates would detect, at the rate of this run; nothing where the run has no times."""
    starts = scorer.state.starts()
    minutes = (max(starts) - min(starts) + STEP) / 60 if starts else 0.0
    if minutes < MIN_MINUTES:
        return []
    detectable = []
    places = count(1)
    for pipeline in dict.fromkeys(outcome.gate.pipeline for outcome in outcomes):
        place = 0 if pipeline in policy.configured else next(places)
        observations = {outcome.gate: outcome.audited for outcome in outcomes if outcome.gate.pipeline == pipeline}
        gates = [gate for gate, n in observations.items() if n]
        detectable += detectability(
            gates,
            scorer.table.metrics,
            {gate.name: observations[gate] / minutes for gate in gates},
            false_pages_per_30d=policy.false_pages_per_30d,
            looks_per_day=policy.looks_per_day,
            divisor=budget_divisor(len(policy.configured), place),
        )
    return detectable


def detectable_now(settings: Settings, outcomes: Sequence[Outcome], outcome: Outcome) -> Detectability | None:
    """What the alarm of a live gate detects at the rate of its window.

    Args:
        settings: The configuration in force.
        outcomes: The outcomes of all gates.
        outcome: That of the gate.

    Returns:
        None where the gate has no alarm, or nothing to observe.
    """
    gate, minutes = outcome.gate, settings.windows.get(outcome.gate.window, 0) / 60
    if not minutes or not outcome.audited:
        return None
    pipeline = settings.of(gate.pipeline)
    others = dict.fromkeys(o.gate.pipeline for o in outcomes if o.gate.pipeline not in settings.pipelines)
    place = 0 if gate.pipeline in settings.pipelines else 1 + list(others).index(gate.pipeline)
    rates = {gate.name: outcome.audited / minutes}
    reach = detectability(
        pipeline.resolved_gates,
        settings.build_metrics(),
        rates,
        false_pages_per_30d=pipeline.alarms.false_pages_per_30d,
        looks_per_day=pipeline.alarms.looks_per_day,
        divisor=budget_divisor(len(settings.pipelines), place),
    )
    return next((each for each in reach if each.gate.name == gate.name), None)
