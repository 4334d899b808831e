"""Baselines: the mean of a metric while nothing is wrong, learned from its traffic or taken from a file, then frozen.

The latency's baseline has two parts: first the p95, then the share of requests above it. A baseline file holds the
baselines of a release run; they are used as they are instead of being learned in production. `AlarmTerms` holds the
alarm settings of one pipeline: its rules, the learning time, and how many indexes are allowed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from ragmon.alarms.observations import NONE, Observations, ObservationSelector, observe
from ragmon.alarms.plan import AlarmRule
from ragmon.core import constants
from ragmon.core.policy import Gate
from ragmon.scoring.counts import add_counts
from ragmon.scoring.membership import CLUSTER
from ragmon.stats import MICRO, bucket, bucket_edge, buckets, quantile, wilson

DELAY: Final = 15
"""Minutes before an observation is learned: a fault that an alarm is about to detect must not enter the baseline."""
CHRONIC_MINUTES: Final = 360
"""Minutes after which a firing gate counts as the normal state, and no longer stops learning."""
SHOWN: Final = 8
"""Hex digits of a version."""
PAUSE_EVIDENCE: Final = 0.35
"""A metric's baseline learns nothing while the evidence of any of its detectors is above this."""
GOLD_ENOUGH: Final = 50
LIVE_ENOUGH: Final = 1_500
"""Observations from which a baseline is used."""
GOLD_FULL: Final = 1_000
LIVE_FULL: Final = 20_000
"""Observations at which it is frozen: its own error is small beside the margins, and drift must not be learned."""


class BaselineState(msgspec.Struct):
    """What a `Baseline` has learned.

    Attributes:
        n, total: The number of learned observations and the sum of their scores.
        given: It was taken from a file, and is not learned.
        since: The first minute with an observation; None before.
        usable: It was learned for long enough, or given.
        waiting: Minute, number and sum of the observations that are learned after `DELAY`.
    """

    n: int = 0
    total: float = 0.0
    given: bool = False
    since: int | None = None
    usable: bool = False
    waiting: list[tuple[int, int, float]] = []


class Baseline:
    """The mean of one metric, oriented as it is exported.

    Args:
        enough: Observations from which it is used.
        full: Observations at which it is frozen.
        learn: Minutes of traffic before it is used.
        learned: What it has learned, where it continues.
    """

    __slots__ = ("_learn", "enough", "full", "learned")

    def __init__(self, *, enough: int, full: int, learn: int, learned: BaselineState | None = None) -> None:
        self.enough, self.full = enough, full
        self.learned = learned or BaselineState()
        self._learn = learn

    @property
    def frozen(self) -> bool:
        """Whether it does not change any more."""
        return self.learned.given or self.learned.n >= self.full

    @property
    def state(self) -> str:
        """`given`, `learning`, `growing` or `frozen`."""
        if self.learned.given or not self.learned.usable:
            return "given" if self.learned.given else "learning"
        return "frozen" if self.frozen else "growing"

    @property
    def version(self) -> str:
        """The version of a frozen baseline; "" while it still changes."""
        learned = self.learned
        if not (self.frozen and learned.usable):
            return ""
        return hashlib.sha256(f"{learned.n} {learned.total!r}".encode()).hexdigest()[:SHOWN]

    def give(self, n: int, total: float) -> None:
        """Set the baseline to given values."""
        self.learned.n, self.learned.total = n, total
        self.learned.given = self.learned.usable = True

    def level(self, z: float, margin: float, *, at_least: bool) -> float | None:
        """The lower bound for the metric; for an upper bound, the lower bound for one minus the metric.

        Args:
            z: Normal quantile that allows for the baseline's own error.
            margin: The distance beyond that bound at which a change matters.
            at_least: Detect a fall; else a rise.

        Returns:
            The level; None while the baseline is being learned.
        """
        if not self.learned.usable:
            return None
        lower, upper = wilson(self.learned.total, self.learned.n, z)
        return (lower if at_least else 1.0 - upper) - margin

    def see(self, minute: int, seen: Observations) -> None:
        """Queue a step, to be learned after `DELAY` unless an alarm fires."""
        if self.learned.since is None:
            self.learned.since = minute
        if not self.frozen:
            self.learned.waiting.append((minute, seen.n, seen.total))

    def learn(self, minute: int) -> None:
        """Learn the queued steps that are older than `DELAY`."""
        learned, waiting = self.learned, self.learned.waiting
        while waiting and waiting[0][0] <= minute - DELAY and not self.frozen:
            _, n, total = waiting.pop(0)
            learned.n += n
            learned.total += total
        if self.frozen:
            waiting.clear()
        if learned.n >= self.enough and learned.since is not None and minute - learned.since >= self._learn:
            learned.usable = True

    def absorb(self, seen: Observations) -> None:
        """Learn a step at once."""
        self.learned.n += seen.n
        self.learned.total += seen.total

    def begin_with(self, n: int, total: float, since: int | None) -> None:
        """Start with what was counted before; it is usable at once.

        Args:
            n: The number of observations.
            total: The sum of their scores.
            since: The first minute with an observation.
        """
        self.learned = BaselineState(n, total, since=since, usable=True, waiting=self.learned.waiting)

    def restart(self) -> None:
        """Reset the baseline: the population is another one."""
        self.learned = BaselineState()

    def forget(self) -> None:
        """Drop the queued steps: they may belong to a fault."""
        self.learned.waiting.clear()


P95: Final = 0.95


class P95State(msgspec.Struct):
    """What a `LatencyBaseline` has learned of the p95.

    Attributes:
        value: In milliseconds, the upper edge of the bucket that holds the p95; None while it is learned.
        since: The first minute with an observation; None before.
        counts: The learned latencies in log buckets of milliseconds.
        waiting: Minute and latencies in milliseconds that are learned after `DELAY`.
    """

    value: float | None = None
    since: int | None = None
    counts: dict[int, int] = {}
    waiting: list[tuple[int, list[float]]] = []


class LatencyState(msgspec.Struct):
    """What a `LatencyBaseline` has learned: the p95, and the share of requests above it."""

    p95: P95State = msgspec.field(default_factory=P95State)
    share: BaselineState = msgspec.field(default_factory=BaselineState)


class LatencyBaseline:
    """The baseline of the latency: the p95, and the share of requests above it.

    Args:
        learn: Minutes of traffic before it is used.
        learned: What it has learned, where it continues.

    Attributes:
        share: The baseline of the share above the p95.
    """

    def __init__(self, learn: int, learned: LatencyState | None = None) -> None:
        learned = learned or LatencyState()
        self.share = Baseline(enough=LIVE_ENOUGH, full=LIVE_FULL, learn=learn, learned=learned.share)
        self._p95 = learned.p95
        self._learn = learn

    @property
    def p95(self) -> float | None:
        """In milliseconds, the upper edge of the bucket that holds the p95; None while it is learned."""
        return self._p95.value

    @property
    def learned(self) -> LatencyState:
        """What it has learned."""
        return LatencyState(self._p95, self.share.learned)

    def give(self, p95: float, n: int, total: float) -> None:
        """Set the baseline to given values."""
        self._p95.value = p95
        self.share.give(n, total)

    def of(self, clusters: Sequence[Sequence[float]], ratio: float = 1.0) -> Observations:
        """The share of slow requests in each cluster of a step; no observations while the p95 is unknown.

        Args:
            clusters: Latencies in milliseconds.
            ratio: The multiple of the p95 that counts as slow.
        """
        if self.p95 is None:
            return NONE
        limit = ratio * self.p95
        return observe(
            (len(latencies), sum(latency >= limit for latency in latencies) * MICRO) for latencies in clusters
        )

    def see(self, minute: int, clusters: Sequence[Sequence[float]]) -> None:
        """Queue a step, to be learned after `DELAY` unless an alarm fires."""
        if self.p95 is not None:
            self.share.see(minute, self.of(clusters))
            return
        if self._p95.since is None:
            self._p95.since = minute
        self._p95.waiting.append((minute, [latency for latencies in clusters for latency in latencies]))

    def learn(self, minute: int) -> None:
        """Learn the queued steps that are older than `DELAY`."""
        if self.p95 is not None:
            self.share.learn(minute)
            return
        learned, waiting = self._p95, self._p95.waiting
        while waiting and waiting[0][0] <= minute - DELAY:
            add_counts(learned.counts, buckets(waiting.pop(0)[1]))
        if learned.since is not None and minute - learned.since >= self._learn:
            self.finalise()

    def _fix_p95(self, p95_bucket: int, n: int) -> None:
        """Fix the p95 and start learning the share, beginning with the latencies counted so far."""
        learned = self._p95
        learned.value = bucket_edge(p95_bucket)
        slow = sum(count for index, count in learned.counts.items() if index > p95_bucket)
        self.share.begin_with(n, float(slow), learned.since)
        learned.counts.clear()
        for minute, latencies in learned.waiting:
            self.share.see(minute, self.of([[latency] for latency in latencies]))
        learned.waiting.clear()

    def absorb(self, clusters: Sequence[Sequence[float]]) -> None:
        """Learn a step at once."""
        add_counts(self._p95.counts, buckets([latency for latencies in clusters for latency in latencies]))

    def finalise(self) -> None:
        """Compute the p95 from the absorbed steps; without enough observations there is no baseline."""
        counts = self._p95.counts
        n = sum(counts.values())
        p95 = quantile(counts, P95) if n >= LIVE_ENOUGH else None
        if p95 is not None:
            self._fix_p95(bucket(p95), n)

    def restart(self) -> None:
        """Reset the baseline: the population is another one."""
        self.share.restart()
        self._p95 = P95State()

    def forget(self) -> None:
        """Drop the queued steps: they may belong to a fault."""
        self._p95.waiting.clear()
        self.share.forget()


VERSION: Final = 1
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class FrozenMetric(msgspec.Struct, forbid_unknown_fields=True):
    """The baseline of one metric.

    Attributes:
        n: The number of observations.
        mean: Their mean, for human readers.
        total: The sum of their scores, in [0, n].
        p95: For the latency: the limit above which a request is slow, in milliseconds.
    """

    n: Natural
    mean: Share
    total: Annotated[float, msgspec.Meta(ge=0)]
    p95: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if not self.total <= self.n:
            raise ValueError(f"total {self.total} is more than n {self.n}")


class FrozenPipeline(msgspec.Struct, forbid_unknown_fields=True):
    """The baselines of one pipeline.

    Attributes:
        metrics: By baseline name.
        golds: The version of each gold set, by source.
        first: By metric and gold item, its first score in micro-units.
    """

    metrics: dict[str, FrozenMetric]
    golds: dict[str, dict[str, str]] = {}
    first: dict[str, dict[str, Natural]] = {}

    def __post_init__(self) -> None:
        latency = self.metrics.get(constants.LATENCY)
        if latency is not None and latency.p95 is None:
            raise ValueError("the latency has no p95")


def freeze(
    baselines: Mapping[str, Baseline], latency: LatencyBaseline, selector: ObservationSelector
) -> dict[str, Any]:
    """The baselines of a pipeline as plain JSON data.

    Args:
        baselines: By name; those with too few observations are left out, and will be learned.
        latency: The baseline of the latency.
        selector: Holds the first score of every gold item.
    """
    metrics: dict[str, Any] = {
        name: _metric(baseline.learned)
        for name, baseline in sorted(baselines.items())
        if baseline.learned.n >= baseline.enough
    }
    if latency.p95 is not None:
        metrics[constants.LATENCY] = {**_metric(latency.share.learned), "p95": latency.p95}
    return {
        "metrics": metrics,
        "golds": selector.state.golds,
        "first": {name: scores for name, scores in selector.state.first.items() if scores},
    }


def _metric(learned: BaselineState) -> dict[str, Any]:
    n, total = learned.n, learned.total
    return {"n": n, "mean": round(total / n, 6), "total": total}


def restore_baseline(
    frozen: FrozenPipeline, baselines: Mapping[str, Baseline], latency: LatencyBaseline | None
) -> None:
    """Replace baselines by those that `freeze` wrote; the others are learned."""
    for name, metric in frozen.metrics.items():
        if name == constants.LATENCY and latency is not None and metric.p95 is not None:
            latency.give(metric.p95, metric.n, metric.total)
        elif name in baselines and metric.n:
            baselines[name].give(metric.n, metric.total)


def fingerprint(frozen: FrozenPipeline | None) -> str:
    """The version of a frozen baseline; "" where there is none."""
    return "" if frozen is None else version(msgspec.to_builtins(frozen))


def version(pipelines: object) -> str:
    """The version of a baseline file: a hash of its content.

    >>> version({})
    '44136fa3'
    """
    canonical = json.dumps(pipelines, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:SHOWN]


LEARN: Final = 60
"""Minutes of traffic before a baseline is used."""
INDEX_ALERT: Final = f"{constants.INDEX_HASH}:drift"


@dataclass(frozen=True)
class IndexTerms:
    """An alarm on the number of indexes under one build.

    Args:
        limit: The number of indexes that is allowed.
        alert, severity: The name and severity of the alarm.
    """

    limit: int = 1
    alert: str = INDEX_ALERT
    severity: str = constants.TICKET


@dataclass(frozen=True)
class AlarmTerms:
    """The alarm settings of one pipeline.

    Args:
        rules: The alarm rules.
        learn: Minutes of traffic before a baseline is used.
        given: The baselines of a release run; None: everything is learned.
        cluster: The fields whose value groups several requests into one observation.
        indexes: The alarms on the number of indexes under one build.
        citations_required: Whether every answer must cite; otherwise what is about citations waits for the first one.
    """

    rules: Sequence[AlarmRule]
    learn: int = LEARN
    given: FrozenPipeline | None = None
    cluster: Collection[str] = CLUSTER
    indexes: Sequence[IndexTerms] = (IndexTerms(),)
    citations_required: bool = False


def index_terms(gates: Sequence[Gate]) -> tuple[IndexTerms, ...]:
    """The index alarms of declared gates on distinct indexes; without one, a second index is a ticket."""
    declared = [gate for gate in gates if gate.kind == "distinct"]
    return tuple(IndexTerms(int(gate.threshold), gate.name, gate.severity) for gate in declared) or (IndexTerms(),)
