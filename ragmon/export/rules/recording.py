"""Recording rules on gates: sums over replicas, failure shares with bounds, and the thresholds of ragmon.toml.

Error budgets follow from the gates, and a gate whose page level is impossible to reach is refused. The burn rate
factors of availability targets (14.4, 6) cannot be reached by shares of quality: a gate of 0.80 leaves a budget of
0.20, and nothing burns faster than 5 times (1 / 0.20). Here the user configures the level worth a page.

The rules of `compat_recordings` have the names of the WFGY page on live monitoring
(ProblemMap/ops/live_monitoring_rag.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ragmon.alarms.plan import worth_a_page
from ragmon.core import constants, series_names
from ragmon.core.errors import RagmonError
from ragmon.core.policy import Gate
from ragmon.core.series_names import label
from ragmon.export.promql import (
    GATE,
    Z95,
    Z999,
    bounds_over_replicas,
    correlated_over_replicas,
    equals,
    exact,
    graded,
    increase,
    one_of,
    selector,
    wilson,
)
from ragmon.export.rules.file import Rule
from ragmon.export.rules.scopes import RuleScope, configured_names
from ragmon.metrics.base import parse


@dataclass(frozen=True)
class Burn:
    """A gate as an error budget.

    Attributes:
        budget: The share of failures the gate allows.
        page: The share of failures worth a page.
    """

    budget: float
    page: float

    @property
    def factor(self) -> float | None:
        """How many times faster than allowed the budget burns at the level worth a page; None for a budget of 0.

        >>> Burn(budget=0.2, page=0.3).factor
        1.5
        """
        return round(self.page / self.budget, 6) if self.budget else None


def burn_of(gate: Gate) -> Burn:
    """The error budget of a gate.

    Args:
        gate: A gate on a share.

    Raises:
        RagmonError: The level worth a page is impossible to reach, or lies within the budget.

    >>> burn_of(Gate("precision", "answer_precision", 0.8, "at_least"))
    Burn(budget=0.2, page=0.3)
    """
    level = worth_a_page(gate)
    budget, page = (1 - gate.threshold, 1 - level) if gate.at_least else (gate.threshold, level)
    burn = Burn(round(budget, 9), round(page, 9))
    key = "page_below" if gate.at_least else "page_above"
    name = f"{gate.pipeline}/{gate.name}" if gate.pipeline else gate.name
    if burn.page >= 1:
        side = "below 0" if gate.at_least else "above 1"
        raise RagmonError(
            f"gate {name}: {key} is {level:g}, and no share is {side}: a slow burn is never seen",
            hint=f"{key} = {_between(gate):g}, a level between the threshold and what is possible",
        )
    if burn.page < burn.budget:
        raise RagmonError(
            f"gate {name}: {key} = {level:g} is within the threshold {gate.threshold:g}",
            hint=f"{key} = {_between(gate):g}, a level beyond the threshold",
        )
    return burn


def _between(gate: Gate) -> float:
    return round(gate.threshold / 2 if gate.at_least else (1 + gate.threshold) / 2, 4)


USUAL: int = 3600
"""Seconds; sliding values are recorded from the window nearest to it."""


def compat_recordings(windows: Mapping[str, int]) -> list[Rule]:
    """Rules with the names of the WFGY page, so that dashboards made for these names keep working.

    Args:
        windows: The lengths of the windows in seconds, by name.
    """
    window = {"window": min(windows, key=lambda name: abs(windows[name] - USUAL))}
    precision = selector(f"{series_names.PREFIX}answer_precision", window)
    samples = selector(f"{series_names.PREFIX}answer_precision{series_names.SAMPLES}", window)
    by = "sum by (pipeline, source, gold)"
    refusals = f"{series_names.PREFIX}under_refusal_rate{series_names.SCORE}"
    empty = selector(f"{series_names.DOCUMENTS}_bucket", {"le": "0.0"})
    return [
        Rule("rag_precision_shipped", f"{by} ({precision} * {samples}) / ({by} ({samples}) > 0)"),
        Rule("rag_under_refusal_count_total", f"{by} ({refusals})"),
        Rule("retriever_empty_result_count_total", f"sum by (pipeline) ({empty})"),
        Rule("rag_error_count_total", f"sum by (pipeline) ({series_names.ERRORS})"),
        Rule("rag_request_count_total", f"sum by (pipeline) ({series_names.REQUESTS})"),
    ]


def named(gate: Gate) -> dict[str, str]:
    """The labels of every series about a gate of a pipeline."""
    return {"pipeline": label(gate.pipeline), "gate": label(gate.name)}


def score(gate: Gate, matchers: Sequence[str]) -> str:
    """A selector for the sum of scores of the gate's metric, in the pipelines that the matchers select."""
    return _counter(gate, matchers, series_names.SCORE, series_names.SLICE_SCORE)


def scored(gate: Gate, matchers: Sequence[str]) -> str:
    """A selector for the number of requests the gate's metric scored, in the pipelines that the matchers select."""
    return _counter(gate, matchers, series_names.SCORED, series_names.SLICE_SCORED)


def squares(gate: Gate, matchers: Sequence[str]) -> str:
    """A selector for the sum of squared scores of the gate's metric, which graded metrics have."""
    return _counter(gate, matchers, series_names.SQUARES, series_names.SLICE_SQUARES)


def scored_by(keys: Sequence[str]) -> dict[str, str]:
    """Selectors for the number of requests each metric scored, over all pipelines."""
    selectors = {}
    for key in keys:
        name, _, k = key.partition("@")
        selectors[key] = selector(f"{series_names.PREFIX}{name}{series_names.SCORED}", {"k": k} if k else {})
    return selectors


def _counter(gate: Gate, matchers: Sequence[str], ending: str, sliced: str) -> str:
    name, _, k = gate.metric.partition("@")
    series, more = f"{series_names.PREFIX}{name}{ending}", list(matchers)
    if gate.where:
        series = sliced
        more += [equals("metric", gate.metric), equals("slice", gate.where)]
    elif k:
        more.append(equals("k", k))
    return selector(series, None, *more, equals("source", gate.source or constants.LIVE), *_gold(gate))


def _gold(gate: Gate) -> list[str]:
    """A matcher for the gold set: the one the gate names, else any."""
    if gate.gold is not None:
        return [equals("gold", gate.gold)]
    metric = parse(gate.metric)
    return [] if metric.labelled else ['gold!=""' if metric.needs_gold else 'gold=""']


GOLD: Final = "pipeline_gate:ragmon_gate_gold:samples"
"""The gold set each gate is judged on: that with the most requests over all replicas."""
_PRESENT: Final = f'label_replace({series_names.GOLD_INFO}, "gold_version", "$1", "version", "(.*)")'
"""The versions of gold sets that are in force."""


def _judged_increase(gate: Gate, counter: str, window: str) -> str:
    """The increase of a counter of the gate's metric, over all replicas, in what the gate is judged on.

    That is one gold set, the largest if the gate names none, in its version in force: a sum over sets would be a
    number about nothing.
    """
    metric = parse(gate.metric)
    if gate.source == constants.LABEL or not (metric.needs_gold or gate.gold):
        return increase(counter, window, "pipeline")
    series = f"increase({counter}[{window}])"
    if gate.gold is None:
        series += f"\n  and on (pipeline, gold) {selector(GOLD, {'gate': label(gate.name)})}"
    return f"sum by (pipeline) (\n  {series}\n  and on (gold, gold_version) {_PRESENT}\n)"


WINDOWS: Final = ("15m", "30m", "1h", "6h", "3d")
"""The windows of the recorded shares: those of slow burns, and the last hour."""
LATELY: Final = "5m"
"""The window of values in a page: the gate's own window may still be full of requests from before the fault."""
RECENT: Final = f"pipeline_gate:ragmon_gate_score_per_scored:ratio_increase{LATELY}"
RECENT_SQUARES: Final = f"pipeline_gate:ragmon_gate_score_squares:increase{LATELY}"
RECENT_SPREAD: Final = f"pipeline_gate:ragmon_gate_score_per_scored:variance_ratio{LATELY}"
RECENT_LOWER: Final = f"pipeline_gate:ragmon_gate_score_per_scored:wilson_lower95_{LATELY}"
RECENT_UPPER: Final = f"pipeline_gate:ragmon_gate_score_per_scored:wilson_upper95_{LATELY}"
RECENT_SCORE: Final = f"pipeline_gate:ragmon_gate_score:increase{LATELY}"
RECENT_SCORED: Final = f"pipeline_gate:ragmon_gate_scored:increase{LATELY}"
FAILURES: Final = "pipeline_gate:ragmon_gate_failures:increase{}"
SCORED: Final = "pipeline_gate:ragmon_gate_scored:increase{}"
SQUARES: Final = "pipeline_gate:ragmon_gate_failure_squares:increase{}"
"""The sum of the squared failures of a graded metric, each from 0 to 1."""
SPREAD: Final = "pipeline_gate:ragmon_gate_failures_per_scored:variance_ratio{}"
"""The variance of a graded metric as a part of that of a share; a share has none of these."""
RATIO: Final = "pipeline_gate:ragmon_gate_failures_per_scored:ratio_increase{}"
BURN: Final = "pipeline_gate:ragmon_gate_burn:ratio_increase{}"
PROVEN: Final = "pipeline_gate:ragmon_gate_failures_per_scored:wilson_lower999_{}"
LOWER: Final = "pipeline_gate:ragmon_gate_failures_per_scored:wilson_lower95_{}"
UPPER: Final = "pipeline_gate:ragmon_gate_failures_per_scored:wilson_upper95_{}"

VALUE: Final = "pipeline_gate:ragmon_gate_value:mean"
VALUE_LOWER: Final = "pipeline_gate:ragmon_gate_value:lower"
VALUE_UPPER: Final = "pipeline_gate:ragmon_gate_value:upper"
SAMPLES: Final = "pipeline_gate:ragmon_gate_samples:sum"

PIPELINES: Final = "pipeline:ragmon_gate:group"
"""1 for each pipeline that has gates."""
THRESHOLD: Final = "pipeline_gate:ragmon_gate_threshold:constant"
MIN_SAMPLES: Final = "pipeline_gate:ragmon_gate_min_samples:constant"
BUDGET: Final = "pipeline_gate:ragmon_gate_budget:constant"
PAGE: Final = "pipeline_gate:ragmon_gate_page:constant"

_BY_ITEM: Final = selector(series_names.GATE_INFO, {"estimand": constants.QUESTIONS_LIKE_THESE})
_NOT_SHARES: Final = f'{series_names.GATE_INFO}{{metric=~"index_hash|latency"}}'


def pipeline_recordings(scopes: Sequence[RuleScope]) -> list[Rule]:
    """The pipelines that have gates: those that are configured, and any other that ragmon judges."""
    names = configured_names(scopes)
    rules = [Rule(PIPELINES, "vector(1)", {"pipeline": label(name)}) for name in names]
    if any(scope.unnamed for scope in scopes):
        others = (one_of("pipeline", names, others=True),) if names else ()
        rules.append(Rule(PIPELINES, f"group by (pipeline) ({selector(series_names.GATE_THRESHOLD, None, *others)})"))
    return rules


def threshold_recordings(scopes: Sequence[RuleScope]) -> list[Rule]:
    """The thresholds of ragmon.toml as series of each pipeline, for the graphs and the alerts."""
    rules = []
    for scope in scopes:
        pipelines = selector(PIPELINES, None, *scope.matchers)
        for gate in scope.gates:
            name = {**scope.labels, "gate": label(gate.name)}
            rules.append(Rule(THRESHOLD, _constant(pipelines, gate.threshold), name | {"direction": gate.direction}))
            if gate.kind != "distinct":  # its samples are builds
                rules.append(Rule(MIN_SAMPLES, _constant(pipelines, gate.min_samples), name))
            if gate.kind == "threshold":
                burn = burn_of(gate)
                rules.append(Rule(BUDGET, _constant(pipelines, burn.budget), name))
                rules.append(Rule(PAGE, _constant(pipelines, burn.page), name))
    return rules


def _constant(pipelines: str, number: float) -> str:
    """A number for each pipeline."""
    return f"0 * {pipelines} + {exact(number)}"


def gold_recordings() -> list[Rule]:
    """The gold set of each gate, and how many of the gate's requests it has.

    A gate whose window has no request keeps the set it had: longer windows still hold its requests.
    """
    judged = selector(series_names.GATE_INFO, None, 'gold!=""')
    details = "metric, source, gold, direction, window, estimand"
    samples = f"{judged} * ignoring ({details}) group_left () {series_names.GATE_SAMPLES}"
    of_set = f"sum by (pipeline, gate, gold) ({samples})"
    before = f"{GOLD} and on (pipeline, gate) {series_names.GATE_INFO}"
    return [Rule(GOLD, f"topk by (pipeline, gate) (1, {of_set} > 0)\nor on (pipeline, gate) ({before})")]


def over_replicas() -> list[Rule]:
    """Each gate's value, bounds and samples over all replicas.

    Bounds are those of `promql.bounds_over_replicas`; where the gold items are the observations, all replicas ask the
    same ones, and they are those of `promql.correlated_over_replicas`. Of one replica they are its own.
    """
    weight = f"sum by (pipeline, gate) ({series_names.GATE_SAMPLES})"
    bounds = zip(
        correlated_over_replicas(GATE, "pipeline, gate"), bounds_over_replicas(GATE, "pipeline, gate"), strict=True
    )
    lower, upper = (
        f"(\n  {correlated}\n  and on (pipeline, gate) {_BY_ITEM}\n)\nor {independent}"
        for correlated, independent in bounds
    )
    return [
        Rule(SAMPLES, weight),
        Rule(
            VALUE,
            f"(\n"
            f"  sum by (pipeline, gate) ({series_names.GATE_VALUE} * {series_names.GATE_SAMPLES}) / ({SAMPLES} > 0)\n"
            f"  unless on (pipeline, gate) {_NOT_SHARES}\n"
            f")\n"
            f"or max by (pipeline, gate) ({series_names.GATE_VALUE})",
        ),
        Rule(VALUE_LOWER, lower),
        Rule(VALUE_UPPER, upper),
    ]


def failure_sums(scopes: Sequence[RuleScope]) -> list[Rule]:
    """Failures and scored requests of each gate, summed over replicas; no data, not zero, where nothing was scored."""
    rules = []
    for scope, gate in _share_gates(scopes):
        name = {**scope.labels, "gate": label(gate.name)}
        for window in WINDOWS:
            good = _judged_increase(gate, score(gate, scope.matchers), window)
            total = _judged_increase(gate, scored(gate, scope.matchers), window)
            rules.append(Rule(FAILURES.format(window), f"{total} - {good}" if gate.at_least else good, name))
            rules.append(Rule(SCORED.format(window), total, name))
            if not parse(gate.metric).binary:
                squared = _judged_increase(gate, squares(gate, scope.matchers), window)
                of_failures = f"{total} - 2 * {good} + {squared}" if gate.at_least else squared
                rules.append(Rule(SQUARES.format(window), of_failures, name))
    return rules


def recent_values(scopes: Sequence[RuleScope]) -> list[Rule]:
    """Each gate's metric in the last minutes, which a page shows."""
    rules = []
    for scope, gate in _share_gates(scopes):
        name = {**scope.labels, "gate": label(gate.name)}
        rules.append(Rule(RECENT_SCORE, _judged_increase(gate, score(gate, scope.matchers), LATELY), name))
        rules.append(Rule(RECENT_SCORED, _judged_increase(gate, scored(gate, scope.matchers), LATELY), name))
        if not parse(gate.metric).binary:
            rules.append(Rule(RECENT_SQUARES, _judged_increase(gate, squares(gate, scope.matchers), LATELY), name))
    samples = f"({RECENT_SCORED} > 0)"
    return [
        *rules,
        Rule(RECENT, f"clamp({RECENT_SCORE} / {samples}, 0, 1)"),
        Rule(RECENT_SPREAD, _spread(RECENT, RECENT_SQUARES, RECENT_SCORED)),
        Rule(RECENT_LOWER, mean_bound(RECENT, RECENT_SPREAD, samples, Z95)),
        Rule(RECENT_UPPER, mean_bound(RECENT, RECENT_SPREAD, samples, Z95, upper=True)),
    ]


def _spread(ratio: str, squared: str, samples: str) -> str:
    """The sample variance of graded scores as a part of that of a share; no series where it is not known."""
    variance = f"({squared} / ({samples} > 1) - {ratio} ^ 2) * {samples} / ({samples} - 1)"
    return f"clamp({variance} / ({ratio} * (1 - {ratio}) > 0), 0, 1)"


def mean_bound(ratio: str, spread: str, samples: str, z: float, *, upper: bool = False) -> str:
    """A bound of the interval of a mean: by the variance of its scores where they are graded, else Wilson's.

    Args:
        ratio: The mean.
        spread: The series of `promql.graded`, which shares do not have.
        samples: The number of observations.
        z: The normal quantile of the interval.
        upper: The upper bound; else the lower one.
    """
    return f"{graded(ratio, spread, samples, z, upper=upper)}\nor {wilson(ratio, samples, z, upper=upper)}"


def _share_gates(scopes: Sequence[RuleScope]) -> Iterator[tuple[RuleScope, Gate]]:
    return ((scope, gate) for scope in scopes for gate in scope.share_gates)


def failure_shares() -> list[Rule]:
    """Shares of failures with bounds, which need only sums and so hold over all replicas."""
    rules = []
    for window in WINDOWS:
        share, spread, samples = RATIO.format(window), SPREAD.format(window), f"({SCORED.format(window)} > 0)"
        ratio = f"clamp({FAILURES.format(window)} / {samples}, 0, 1)"
        rules += [
            Rule(share, ratio),
            Rule(spread, _spread(share, SQUARES.format(window), SCORED.format(window))),
            Rule(BURN.format(window), f"{share} / ({BUDGET} > 0)"),
            Rule(PROVEN.format(window), mean_bound(share, spread, samples, Z999)),
        ]
    share, spread, samples = RATIO.format("1h"), SPREAD.format("1h"), f"({SCORED.format('1h')} > 0)"
    return [
        *rules,
        Rule(LOWER.format("1h"), mean_bound(share, spread, samples, Z95)),
        Rule(UPPER.format("1h"), mean_bound(share, spread, samples, Z95, upper=True)),
    ]
