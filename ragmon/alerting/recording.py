"""What is recorded of gates: sums over replicas, shares of them, bounds, and what ragmon.toml says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragmon.alerting.burn import burn_of
from ragmon.alerting.counted import named, score, scored
from ragmon.alerting.promql import Z95, Z999, exact, increase, wilson
from ragmon.alerting.rulefile import Rule
from ragmon.core import series_names
from ragmon.core.policy import Gate

WINDOWS: Final = ("30m", "1h", "6h", "3d")
"""Spans of the recorded shares: of a slow burn, and of the last hour."""
LATELY: Final = "5m"
"""What an alarm is about: the window of its gate may still be full of better times."""
RECENT: Final = f"pipeline_gate:ragmon_gate_score_per_scored:ratio_increase{LATELY}"
RECENT_LOWER: Final = f"pipeline_gate:ragmon_gate_score_per_scored:wilson_lower95_{LATELY}"
RECENT_UPPER: Final = f"pipeline_gate:ragmon_gate_score_per_scored:wilson_upper95_{LATELY}"
RECENT_SCORE: Final = f"pipeline_gate:ragmon_gate_score:increase{LATELY}"
RECENT_SCORED: Final = f"pipeline_gate:ragmon_gate_scored:increase{LATELY}"
FAILURES: Final = "pipeline_gate:ragmon_gate_failures:increase{}"
SCORED: Final = "pipeline_gate:ragmon_gate_scored:increase{}"
RATIO: Final = "pipeline_gate:ragmon_gate_failures_per_scored:ratio_increase{}"
BURN: Final = "pipeline_gate:ragmon_gate_burn:ratio_increase{}"
PROVEN: Final = "pipeline_gate:ragmon_gate_failures_per_scored:wilson_lower999_{}"
LOWER: Final = "pipeline_gate:ragmon_gate_failures_per_scored:wilson_lower95_{}"
UPPER: Final = "pipeline_gate:ragmon_gate_failures_per_scored:wilson_upper95_{}"

VALUE: Final = "pipeline_gate:ragmon_gate_value:mean"
VALUE_LOWER: Final = "pipeline_gate:ragmon_gate_value:lower"
VALUE_UPPER: Final = "pipeline_gate:ragmon_gate_value:upper"
SAMPLES: Final = "pipeline_gate:ragmon_gate_samples:sum"

THRESHOLD: Final = "pipeline_gate:ragmon_gate_threshold:constant"
MIN_SAMPLES: Final = "pipeline_gate:ragmon_gate_min_samples:constant"
BUDGET: Final = "pipeline_gate:ragmon_gate_budget:constant"
PAGE: Final = "pipeline_gate:ragmon_gate_page:constant"

_NO_SHARE: Final = f'{series_names.GATE_INFO}{{metric=~"index_hash|latency"}}'


def constants(gates: Sequence[Gate]) -> list[Rule]:
    """What ragmon.toml says of each gate, so that a threshold is on the graph and in the alert alike."""
    rules = []
    for gate in gates:
        labels = named(gate) | {"direction": gate.direction}
        rules.append(Rule(THRESHOLD, f"vector({exact(gate.threshold)})", labels))
        if gate.kind != "distinct":  # whose samples are builds
            rules.append(Rule(MIN_SAMPLES, f"vector({gate.min_samples})", named(gate)))
        if gate.kind == "threshold":
            found = burn_of(gate)
            rules.append(Rule(BUDGET, f"vector({exact(found.budget)})", named(gate)))
            rules.append(Rule(PAGE, f"vector({exact(found.page)})", named(gate)))
    return rules


def over_replicas() -> list[Rule]:
    """Each gate's value, bounds and samples over all replicas.

    Values are weighted with their samples. Bounds are squared and added, as for strata (MOVER: Zou and Donner 2008):
    for one replica they are its own.
    """
    weight = f"sum by (pipeline, gate) ({series_names.GATE_SAMPLES})"
    return [
        Rule(SAMPLES, weight),
        Rule(
            VALUE,
            f"(\n"
            f"  sum by (pipeline, gate) ({series_names.GATE_VALUE} * {series_names.GATE_SAMPLES}) / ({SAMPLES} > 0)\n"
            f"  unless on (pipeline, gate) {_NO_SHARE}\n"
            f")\n"
            f"or max by (pipeline, gate) ({series_names.GATE_VALUE})",
        ),
        Rule(VALUE_LOWER, _squared_and_added("-", f"{series_names.GATE_VALUE} - {series_names.GATE_LOWER}")),
        Rule(VALUE_UPPER, _squared_and_added("+", f"{series_names.GATE_UPPER} - {series_names.GATE_VALUE}")),
    ]


def _squared_and_added(sign: str, distance: str) -> str:
    squares = f"sum by (pipeline, gate) (({series_names.GATE_SAMPLES} * ({distance})) ^ 2)"
    return f"{VALUE} {sign} sqrt({squares}) / ({SAMPLES} > 0)"


def summed(gates: Sequence[Gate]) -> list[Rule]:
    """Failures and scored requests of each gate, summed over replicas. Nothing scored is no data, never a zero."""
    rules = []
    for gate in gates:
        for window in WINDOWS:
            good, all_ = increase(score(gate), window), increase(scored(gate), window)
            rules.append(Rule(FAILURES.format(window), f"{all_} - {good}" if gate.at_least else good, named(gate)))
            rules.append(Rule(SCORED.format(window), all_, named(gate)))
    return rules


def lately(gates: Sequence[Gate]) -> list[Rule]:
    """Each gate's metric in the last minutes, which is what a page shows."""
    rules = []
    for gate in gates:
        rules.append(Rule(RECENT_SCORE, increase(score(gate), LATELY), named(gate)))
        rules.append(Rule(RECENT_SCORED, increase(scored(gate), LATELY), named(gate)))
    samples = f"({RECENT_SCORED} > 0)"
    return [
        *rules,
        Rule(RECENT, f"clamp({RECENT_SCORE} / {samples}, 0, 1)"),
        Rule(RECENT_LOWER, wilson(RECENT, samples, Z95)),
        Rule(RECENT_UPPER, wilson(RECENT, samples, Z95, upper=True)),
    ]


def divided() -> list[Rule]:
    """Shares of failures and their bounds: Wilson intervals need the sums alone, so they hold over all replicas."""
    rules = []
    for window in WINDOWS:
        share, samples = RATIO.format(window), f"({SCORED.format(window)} > 0)"
        ratio = f"clamp({FAILURES.format(window)} / {samples}, 0, 1)"
        rules += [
            Rule(share, ratio),
            Rule(BURN.format(window), f"{share} / ({BUDGET} > 0)"),
            Rule(PROVEN.format(window), wilson(share, samples, Z999)),
        ]
    share, samples = RATIO.format("1h"), f"({SCORED.format('1h')} > 0)"
    return [
        *rules,
        Rule(LOWER.format("1h"), wilson(share, samples, Z95)),
        Rule(UPPER.format("1h"), wilson(share, samples, Z95, upper=True)),
    ]
