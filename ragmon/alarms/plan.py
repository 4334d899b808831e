"""The alarm rules of a pipeline, and how small a change the alarm of a gate finds, and how soon.

The thresholds are chosen so that all rules together keep the false-alarm budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, Literal, NamedTuple

from ragmon.config.settings import AlarmsTable, Settings
from ragmon.core import constants
from ragmon.core.constants import BUCKET_SECONDS
from ragmon.core.policy import Gate, Outcome, Policy
from ragmon.metrics.base import Metric
from ragmon.scoring.scorer import Scorer
from ragmon.stats.prediction import labels_to_detect

Kind = Literal["gate", "baseline", "paired"]

PAGE_STEPS: Final = 30 * 24 * 60  # minutes in the period of the page budget
LOOK_STEPS: Final = 24 * 60  # minutes in the period of the look budget
MIN_THRESHOLD: Final = 20.0  # minimum threshold: wealth below this proves nothing, however large the budget
SLOW_SHARE: Final = 0.05  # share of requests above the p95

GOLD_METRICS: Final = ("answer_precision", "citation_hit_rate", "under_refusal_rate", "over_refusal_rate", "hit_rate")
"""Gold metrics that are compared with their own baseline."""
FLIPPED_METRICS: Final = ("answer_precision", "over_refusal_rate", "under_refusal_rate")
"""Gold metrics that page where items that were right are wrong now: each answer to an item is in one of them."""
LIVE_METRICS: Final = (
    "refusal_like_rate",
    "compliance",
    "citation_scope",
    "coverage",
    "empty_retrieval_rate",
    "error_rate",
)
"""Label-free metrics that are compared with their baseline on the bad side; the refusal rate on both sides."""
PAGE_MARGIN: Final = 0.10
"""The distance beyond its threshold that is worth a page, for a gate without `page_beyond`."""
MIN_MINUTES: Final = 60.0  # minimum span of a run in minutes before its rate is used as that of live traffic


@dataclass(frozen=True)
class AlarmRule:
    """One alarm rule.

    Args:
        alert: The alert name, unique in its pipeline.
        metric: The metric key, or `latency`.
        severity: `page`, `look` or `ticket`.
        at_least: The rule detects a fall; else a rise. A paired rule detects items that become worse.
        kind: Compares with a gate, with the metric's own baseline, or each gold item with its first answer.
        level: The gate's threshold.
        z: Normal quantile of the baseline's bound.
        margin: The distance beyond that bound at which a change matters.
        source, gold, where: Given by a gate; None selects the first source and gold set that has data.
        needs_gold: The metric is computed on gold items.
        repeats: A paired rule counts a gold item in every minute, however lately it was asked.
        ratio: For latency: the multiple of the baseline's p95 that counts as slow.
        threshold: The wealth at which the alarm fires.
    """

    alert: str
    metric: str
    severity: str
    at_least: bool
    kind: Kind
    level: float = 0.0
    z: float = 0.0
    margin: float = 0.0
    source: str | None = None
    gold: str | None = None
    where: str = ""
    needs_gold: bool = False
    repeats: bool = False
    ratio: float = 1.0
    threshold: float = 0.0


class AlarmBudget(NamedTuple):
    """How often alarms may be wrong: of severity page, and of all lower ones.

    Attributes:
        divisor: By how much both are divided for one pipeline, so that no other pipeline ever changes its thresholds.
    """

    false_pages_per_30d: float = 1.0
    looks_per_day: float = 4.0
    divisor: int = 1

    @classmethod
    def of(cls, whole: Policy | AlarmsTable, configured: int, place: int = 0) -> AlarmBudget:
        """The part of one pipeline, given the number of configured ones, and its place from 1 where it is none of them.

        Every configured pipeline has one part, and all others together have one part as well. Of that part, the k-th
        place has 1 / (k (k + 1)): however many places are taken, they use no more than the part.

        >>> [AlarmBudget.of(Policy(()), *of).divisor for of in ((2, 0), (2, 1), (2, 2), (0, 1))]
        [3, 6, 18, 2]
        """
        divisor = (configured + 1) * (place * (place + 1) if place else 1)
        return cls(whole.false_pages_per_30d, whole.looks_per_day, divisor)


WHOLE: Final = AlarmBudget()


def plan(gates: Sequence[Gate], metrics: Mapping[str, Metric], budget: AlarmBudget = WHOLE) -> tuple[AlarmRule, ...]:
    """The alarm rules of a pipeline.

    Pages: every declared gate, and gold metrics far below their baseline. Looks: gold metrics a little below it, also
    item by item, and label-free metrics that differ from their baseline.
    """
    gate_names = {gate.name for gate in gates}
    own_past = [
        replace(rule, alert=f"{rule.alert}:own") if rule.alert in gate_names else rule
        for rule in _baseline_rules(metrics)
    ]
    rules = [*_gate_rules(gates, metrics), *own_past]
    pages = sum(rule.severity == constants.PAGE for rule in rules) * budget.divisor
    looks = len(rules) * budget.divisor - pages
    page_threshold = max(MIN_THRESHOLD, pages * PAGE_STEPS / budget.false_pages_per_30d)
    look_threshold = max(MIN_THRESHOLD, looks * LOOK_STEPS / budget.looks_per_day)
    return tuple(
        replace(rule, threshold=page_threshold if rule.severity == constants.PAGE else look_threshold) for rule in rules
    )


def _gate_rules(gates: Sequence[Gate], metrics: Mapping[str, Metric]) -> Iterator[AlarmRule]:
    for gate in gates:
        # Drift alarms cover indexes; the latency of a slice is judged in windows only.
        if gate.kind == "quantile_ratio" and not (gate.where or gate.gold):
            yield AlarmRule(
                gate.name,
                gate.metric,
                gate.severity,
                at_least=False,
                kind="gate",
                level=SLOW_SHARE,
                source=gate.source,
                ratio=gate.threshold,
            )
        elif gate.kind == "threshold" and gate.metric in metrics:
            metric = metrics[gate.metric]
            yield AlarmRule(
                gate.name,
                gate.metric,
                gate.severity,
                gate.at_least,
                "gate",
                level=gate.threshold,
                source=gate.source or (constants.LABEL if metric.labelled else None),
                gold=gate.gold,
                where=gate.where,
                needs_gold=metric.needs_gold or gate.gold is not None,
            )


def _baseline_rules(metrics: Mapping[str, Metric]) -> Iterator[AlarmRule]:
    for name in GOLD_METRICS:
        if name in metrics:
            up = metrics[name].better == "higher"
            page = AlarmRule(
                f"{name}:baseline", name, constants.PAGE, up, "baseline", z=2.6, margin=0.03, needs_gold=True
            )
            look = replace(page, alert=f"{name}:look", severity=constants.LOOK, z=1.64, margin=0.005)
            yield from (page, look, replace(look, alert=f"{name}:paired", kind="paired", at_least=True))
            if name in FLIPPED_METRICS:
                yield replace(page, alert=f"{name}:flipped", kind="paired", at_least=True, repeats=True)
    rule = AlarmRule("", "", constants.LOOK, at_least=False, kind="baseline", z=2.3, margin=0.01)
    for name in LIVE_METRICS:
        if name in metrics:
            at_least = name in ("compliance", "citation_scope", "coverage")
            yield replace(rule, alert=f"{name}:look", metric=name, at_least=at_least)
    if "refusal_rate" in metrics:
        yield replace(rule, alert="refusal_rate:look", metric="refusal_rate")
        yield replace(rule, alert="refusal_rate:look-low", metric="refusal_rate", at_least=True)
    yield replace(rule, alert=f"{constants.LATENCY}:look", metric=constants.LATENCY)


@dataclass(frozen=True)
class Detectability:
    """What the alarm of one gate detects.

    Attributes:
        labels: The approximate number of observations until detection of a change to the level `at`, which is
            worth a page; None where it is never detected.
        minutes: The time this takes at the present rate; None where the rate is unknown or nothing is ever detected.
        per_minute: That rate, in observations a minute; None where it is unknown.
    """

    gate: Gate
    at: float
    labels: float | None
    minutes: float | None
    per_minute: float | None


def detectability(
    gates: Sequence[Gate],
    metrics: Mapping[str, Metric],
    rates: Mapping[str, float],
    budget: AlarmBudget = WHOLE,
) -> list[Detectability]:
    """What the alarms of one pipeline's gates detect, gate by gate.

    Source: `ragmon.stats.prediction.labels_to_detect`.
    """
    rules = plan(gates, metrics, budget)
    thresholds = {rule.alert: rule.threshold for rule in rules if rule.kind == "gate"}
    detectable = []
    for gate in gates:
        if gate.kind == "threshold" and gate.name in thresholds:
            at, per_minute = worth_a_page(gate), rates.get(gate.name)
            per_step = None if per_minute is None else max(1.0, per_minute)
            labels = labels_to_detect(
                at, gate.threshold, thresholds[gate.name], at_least=gate.at_least, per_step=per_step
            )
            minutes = labels / per_minute if labels is not None and per_minute else None
            detectable.append(Detectability(gate, at, labels, minutes, per_minute))
    return detectable


def worth_a_page(gate: Gate) -> float:
    """The level worth a page: `page_beyond` of the gate, else 0.10 beyond its threshold."""
    if gate.page_beyond is not None:
        return gate.page_beyond
    return max(0.0, gate.threshold - PAGE_MARGIN) if gate.at_least else min(1.0, gate.threshold + PAGE_MARGIN)


def describe(detectability: Detectability) -> str:
    """One line for a human reader.

    >>> describe(Detectability(Gate("precision", "answer_precision", 0.80, "at_least"), 0.70, 469.0, 156.0, 3.0))
    'a drop to 70 % is found in about 2.6 h (469 observations at 3 a minute)'
    """
    verb = "drop" if detectability.gate.at_least else "rise"
    change = f"a {verb} to {100 * detectability.at:.3g} %"
    if detectability.labels is None:
        return f"{change} is never found: it is too close to the limit"
    count = f"{detectability.labels:,.0f} observations"
    if detectability.minutes is None or detectability.per_minute is None:
        return f"{change} takes about {count}"
    rate = rate_text(detectability.per_minute)
    return f"{change} is found in about {duration(detectability.minutes)} ({count} at {rate} a minute)"


def rate_text(per_minute: float) -> str:
    """A rate as people write it.

    >>> [rate_text(rate) for rate in (0.05, 3.0, 5.94, 1200.4)]
    ['0.05', '3', '5.9', '1,200']
    """
    return f"{per_minute:,.0f}" if per_minute >= 10 else f"{per_minute:.2g}"


def duration(minutes: float) -> str:
    """A readable duration."""
    if minutes < 90:
        return f"{max(1, round(minutes))} min"
    hours, days = minutes / 60, minutes / 1440
    return f"{hours:.1f} h" if days < 2 else f"{days:.1f} days" if days < 10 else f"{days:,.0f} days"


def detectable_in_run(scorer: Scorer, policy: Policy, outcomes: Sequence[Outcome]) -> list[Detectability]:
    """What live alarms on these gates would detect, at the rate of this run; nothing where the run has no times."""
    starts = scorer.state.starts()
    minutes = (max(starts) - min(starts) + BUCKET_SECONDS) / 60 if starts else 0.0
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
            AlarmBudget.of(policy, len(policy.configured), place),
        )
    return detectable


def detectable_now(settings: Settings, outcomes: Sequence[Outcome], outcome: Outcome) -> Detectability | None:
    """What the alarm of a live gate detects at the rate of its window; None without alarm or observations."""
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
        AlarmBudget.of(pipeline.alarms, len(settings.pipelines), place),
    )
    return next((each for each in reach if each.gate.name == gate.name), None)
