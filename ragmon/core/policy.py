"""Gates and policies: the thresholds that a pipeline must keep, and the outcome of a judged gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from ragmon.core import constants
from ragmon.core.errors import RagmonError

Verdict = Literal["pass", "fail", "insufficient"]
Mode = Literal["interval", "point"]
Estimand = Literal["gold_set", "questions_like_these"]
Kind = Literal["threshold", "quantile_ratio", "distinct"]

ORDER: Final[tuple[Verdict, ...]] = ("fail", "insufficient", "pass")
"""The worst first: a failed gate fails the whole policy."""
MIN_SAMPLES: Final = 30

GOLD_SOURCES: Final = (constants.PROBE, constants.MATCH, constants.REPLAY, constants.LABEL)
"""The sources of a gate on a gold metric without a named source; the first with data is judged."""
FREE_SOURCES: Final = (constants.LIVE, constants.REPLAY, constants.PROBE, constants.MATCH, constants.LABEL)
"""The same for a metric that needs no gold."""


@dataclass(frozen=True)
class Gate:
    """A threshold a metric must keep.

    Args:
        name: The name of the gate.
        metric: The metric key it judges (`kind` quantile_ratio: `latency`; distinct: `index_hash`).
        threshold: In [0, 1] (quantile_ratio: a multiple of the baseline).
        direction: `at_least` or `at_most`.
        pipeline: The pipeline whose requests are judged.
        source: The source of the records; None takes the first with data of those for the metric.
        awaits: Without a source: the source it is said to wait for while none has data; "" for the first.
        gold: The gold set; None takes the only one.
        where: A slice, `tag=value`; "" for all.
        window: The name of the window.
        estimand: The population a gold estimate is about; None takes the default of the source.
        min_samples: Fewer samples make the verdict insufficient.
        page_beyond: The level that is worth a page; None: 0.10 beyond the threshold.
        severity: `page` or `ticket`.
        kind: What is compared.

    Raises:
        RagmonError: The direction is unknown, or the threshold of a share lies outside [0, 1].
    """

    name: str
    metric: str
    threshold: float
    direction: Literal["at_least", "at_most"]
    pipeline: str = constants.DEFAULT_PIPELINE
    source: str | None = None
    gold: str | None = None
    where: str = ""
    window: str = "1h"
    estimand: Estimand | None = None
    min_samples: int = MIN_SAMPLES
    page_beyond: float | None = None
    severity: Literal["page", "ticket"] = "page"
    kind: Kind = "threshold"
    awaits: str = ""

    def __post_init__(self) -> None:
        if self.direction not in ("at_least", "at_most"):
            raise RagmonError(f"gate {self.name}: unknown direction {self.direction!r}", hint="at_least or at_most")
        if self.kind == "threshold" and not 0 <= self.threshold <= 1:
            raise RagmonError(f"gate {self.name}: threshold {self.threshold} is not a share", hint="0.80 is 80 %")

    @property
    def at_least(self) -> bool:
        """Whether the threshold is a floor."""
        return self.direction == "at_least"

    def holds(self, value: float) -> bool:
        """Whether a value keeps the threshold."""
        return value >= self.threshold if self.at_least else value <= self.threshold


@dataclass(frozen=True)
class Policy:
    """The gates and how they are judged.

    Args:
        gates: In the order they are reported.
        mode: `interval` judges by the 95 % interval; `point` by the bare value, as the published documents do.
        on_insufficient: How an insufficient verdict counts in the verdict of the policy: as `pass`, as `fail`, or as
            itself (`hold`).
        windows: Lengths in seconds by name.
        baseline_p95_ms: The p95 latency in milliseconds that gates of the kind quantile_ratio compare with, by
            pipeline.
        false_pages_per_30d: How many false alarms of severity page may be expected in 30 days.
        looks_per_day: How many false alarms of less urgent severity may be expected a day.
        configured: The pipelines that the configuration names; all others share one part of the budgets.
        published: The pipelines that follow a published template: what they lack of it is a fault, and judged.

    Examples:
        >>> import ragmon
        >>> from ragmon.core.policy import Gate
        >>> policy = ragmon.Policy((Gate("in_scope", "citation_scope", 0.95, "at_least"),))
        >>> records = [ragmon.testing.make_record() for _ in range(200)]
        >>> ragmon.replay(records, policy=policy).verdict
        'pass'
    """

    gates: tuple[Gate, ...] = ()
    mode: Mode = "interval"
    on_insufficient: Literal["hold", "pass", "fail"] = "hold"
    windows: Mapping[str, int] = field(default_factory=lambda: {"5m": 300, "1h": 3600, "24h": 86_400})
    baseline_p95_ms: Mapping[str, float] = field(default_factory=dict)
    false_pages_per_30d: float = 1.0
    looks_per_day: float = 4.0
    configured: tuple[str, ...] = ()
    published: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """The verdict of a gate and the figures behind it.

    Attributes:
        gate: The gate.
        source: The source that was judged, after defaults.
        gold: The gold set that was judged, after defaults; "" without gold.
        estimand: What the value estimates, after defaults; "" without gold.
        value: The estimate; None without data.
        lower: The lower bound of its 95 % interval. Where the value is exact, it is that of the estimand
            questions_like_these; None where there is no interval.
        upper: The upper bound, by the same rules.
        n: Requests in the denominator (kind `distinct`: builds).
        needed: About how many in all would decide, in gold items where the estimand is questions_like_these, else in
            requests, and in clusters where a release is judged; None where it cannot be estimated.
        margin: The distance of the value from the threshold; negative where the threshold is broken.
        verdict: pass, fail or insufficient.
        reason: One line for a person.
        items: Distinct gold items in the sample.
        n_eff: The size of a simple random sample with the same precision; None where the value is exact or is no mean.
        of: For user traffic: all calls, or exported traffic where the producer does not report call totals.
        audited: Audit members in the denominator; alarms read only these.
        applicable: Whether the pipeline has ever shown what the gate is about; else it is insufficient, and alerts
            nobody.
        unknown: Requests beside the n whose score is unknown, for a reason that may depend on it; for a weighted value,
            as many as have their share of all calls.
    """

    gate: Gate
    source: str
    gold: str
    estimand: str
    value: float | None
    lower: float | None
    upper: float | None
    n: int
    needed: int | None
    verdict: Verdict
    reason: str
    items: int = 0
    n_eff: float | None = None
    of: str = ""
    audited: int = 0
    applicable: bool = True
    unknown: float = 0

    @property
    def margin(self) -> float | None:
        """The distance of the value from the threshold; negative where the threshold is broken."""
        if self.value is None:
            return None
        distance = self.value - self.gate.threshold
        return distance if self.gate.at_least else -distance


def verdict_of(outcomes: Sequence[Outcome], policy: Policy) -> Verdict:
    """The verdict of a policy: fail before insufficient before pass; a policy without gates passes."""
    insufficient: Verdict = "insufficient" if policy.on_insufficient == "hold" else policy.on_insufficient
    verdicts = (insufficient if outcome.verdict == "insufficient" else outcome.verdict for outcome in outcomes)
    return min(verdicts, key=ORDER.index, default="pass")
