"""Baselines: the mean of a metric while nothing is wrong, learned from its traffic or taken from a file, then frozen.

The latency's baseline has two parts: first the p95, then the share of requests above it. A baseline file holds the
baselines of a release run, which are used as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from ragmon.alarms.observations import NONE, Observations, observe
from ragmon.alarms.plan import AlarmRule
from ragmon.core import constants
from ragmon.core.errors import ConfigError
from ragmon.core.policy import Gate
from ragmon.stats.histograms import MICRO, add_counts, bucket, bucket_edge, buckets, quantile
from ragmon.stats.intervals import wilson

DELAY: Final = 15
"""Minutes before an observation is learned: a fault that an alarm is about to detect must not enter the baseline."""
CHRONIC_MINUTES: Final = 360
"""Minutes after which a firing gate counts as the normal state, and no longer stops learning."""
SHOWN: Final = 8
PAUSE_EVIDENCE: Final = 0.35
"""A metric's baseline learns nothing while the evidence of any of its detectors is above this."""
P95: Final = 0.95
VERSION: Final = 1
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
LEARN: Final = 60  # minutes of traffic before a baseline is used
INDEX_ALERT: Final = f"{constants.INDEX_HASH}:drift"
KIND: Final = "ragmon-baseline"  # the `kind` of a baseline file
_HINT: Final = "write it with `ragmon baseline freeze TRACES --output FILE`"


class Enough(NamedTuple):
    """Observations from which a baseline is used, and at which it is frozen.

    When it is full its own error is small beside the margins, and drift must not be learned.
    """

    used: int
    full: int


GOLD: Final = Enough(50, 1_000)
LIVE: Final = Enough(1_500, 20_000)


class Baseline(msgspec.Struct):
    """The mean of one metric, oriented as it is exported.

    Attributes:
        n, total: The number of learned observations and the sum of their scores.
        since: The first minute with an observation; None before.
        waiting: Minute, number and sum of the observations that are learned after `DELAY`.
    """

    n: int = 0
    total: float = 0.0
    since: int | None = None
    given: bool = False
    usable: bool = False
    frozen: bool = False
    waiting: list[tuple[int, int, float]] = []

    @property
    def phase(self) -> str:
        """`given`, `learning`, `growing` or `frozen`."""
        if self.given or not self.usable:
            return "given" if self.given else "learning"
        return "frozen" if self.frozen else "growing"

    @property
    def version(self) -> str:
        """The version of a frozen baseline; "" while it still changes."""
        if not (self.frozen and self.usable):
            return ""
        return hashlib.sha256(f"{self.n} {self.total!r}".encode()).hexdigest()[:SHOWN]

    def give(self, n: int, total: float) -> None:
        """Set the baseline to given values."""
        self.n, self.total = n, total
        self.given = self.usable = self.frozen = True

    def level(self, z: float, margin: float, *, at_least: bool) -> float | None:
        """The lower bound for the metric; for an upper bound, the lower bound for one minus the metric.

        The level; None while the baseline is being learned.
        """
        if not self.usable:
            return None
        lower, upper = wilson(self.total, self.n, z)
        return (lower if at_least else 1.0 - upper) - margin

    def see(self, minute: int, seen: Observations) -> None:
        """Queue a step, to be learned after `DELAY` unless an alarm fires."""
        if self.since is None:
            self.since = minute
        if not self.frozen:
            self.waiting.append((minute, seen.n, seen.total))

    def learn(self, minute: int, enough: Enough, period: int) -> None:
        """Learn the queued steps that are older than `DELAY`."""
        while self.waiting and self.waiting[0][0] <= minute - DELAY and not self.frozen:
            _, n, total = self.waiting.pop(0)
            self.n += n
            self.total += total
            self.frozen = self.n >= enough.full
        if self.frozen:
            self.waiting.clear()
        if self.n >= enough.used and self.since is not None and minute - self.since >= period:
            self.usable = True

    def absorb(self, seen: Observations) -> None:
        """Learn a step at once."""
        self.n += seen.n
        self.total += seen.total

    def forget(self) -> None:
        """Drop the queued steps: they may belong to a fault."""
        self.waiting.clear()


class LatencyBaseline(msgspec.Struct):
    """The baseline of the latency: the p95, and the share of requests above it.

    Attributes:
        p95: In milliseconds, the upper edge of the bucket that holds the p95; None while it is learned.
        since: The first minute with an observation; None before.
        counts: The latencies from which the p95 is learned, in log buckets of milliseconds.
        waiting: Minute and latencies in milliseconds that are learned after `DELAY`.
    """

    p95: float | None = None
    share: Baseline = msgspec.field(default_factory=Baseline)
    since: int | None = None
    counts: dict[int, int] = {}
    waiting: list[tuple[int, list[float]]] = []

    def give(self, p95: float, n: int, total: float) -> None:
        """Set the baseline to given values."""
        self.p95 = p95
        self.share.give(n, total)

    def of(self, clusters: Sequence[Sequence[float]], ratio: float = 1.0) -> Observations:
        """The share of slow requests in each cluster of a step; no observations while the p95 is unknown."""
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
        if self.since is None:
            self.since = minute
        self.waiting.append((minute, [latency for latencies in clusters for latency in latencies]))

    def learn(self, minute: int, period: int) -> None:
        """Learn the queued steps that are older than `DELAY`; both parts need so many minutes of traffic."""
        if self.p95 is not None:
            self.share.learn(minute, LIVE, period)
            return
        while self.waiting and self.waiting[0][0] <= minute - DELAY:
            add_counts(self.counts, buckets(self.waiting.pop(0)[1]))
        if self.since is not None and minute - self.since >= period:
            self.finalise()

    def absorb(self, clusters: Sequence[Sequence[float]]) -> None:
        """Learn a step at once."""
        add_counts(self.counts, buckets([latency for latencies in clusters for latency in latencies]))

    def finalise(self) -> None:
        """Fix the p95 if there are enough observations, and begin to learn the share with those counted so far."""
        n = sum(self.counts.values())
        p95 = quantile(self.counts, P95) if n >= LIVE.used else None
        if p95 is None:
            return
        p95_bucket = bucket(p95)
        self.p95 = bucket_edge(p95_bucket)
        slow = sum(count for index, count in self.counts.items() if index > p95_bucket)
        self.share = Baseline(n, float(slow), self.since, usable=True, frozen=n >= LIVE.full)
        self.counts.clear()
        for minute, latencies in self.waiting:
            self.share.see(minute, self.of([[latency] for latency in latencies]))
        self.waiting.clear()

    def forget(self) -> None:
        """Drop the queued steps: they may belong to a fault."""
        self.waiting.clear()
        self.share.forget()


class FrozenMetric(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The baseline of one metric.

    Attributes:
        total: The sum of the scores, in [0, n].
        p95: For the latency: the limit above which a request is slow, in milliseconds.
    """

    n: Natural
    mean: Share
    total: Annotated[float, msgspec.Meta(ge=0)]
    p95: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if not self.total <= self.n:
            raise ValueError(f"total {self.total} is more than n {self.n}")

    @classmethod
    def of(cls, baseline: Baseline, p95: float | None = None) -> FrozenMetric:
        """What was learned."""
        return cls(baseline.n, round(baseline.total / baseline.n, 6), baseline.total, p95)


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


def version(pipelines: object) -> str:
    """The version of a baseline file: a hash of its content."""
    canonical = json.dumps(pipelines, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:SHOWN]


@dataclass(frozen=True)
class IndexLimit:
    """An alarm on the number of indexes under one build."""

    limit: int = 1
    alert: str = INDEX_ALERT
    severity: str = constants.TICKET


@dataclass(frozen=True)
class AlarmSettings:
    """The alarm settings of one pipeline.

    Args:
        given: The baselines of a release run; None: everything is learned.
        citations_required: Whether every answer must cite; otherwise what is about citations waits for the first one.
    """

    rules: Sequence[AlarmRule]
    learn: int = LEARN
    given: FrozenPipeline | None = None
    indexes: Sequence[IndexLimit] = (IndexLimit(),)
    citations_required: bool = False


def index_limits(gates: Sequence[Gate]) -> tuple[IndexLimit, ...]:
    """The index alarms of declared gates on distinct indexes; without one, a second index is a ticket."""
    declared = [gate for gate in gates if gate.kind == "distinct"]
    return tuple(IndexLimit(int(gate.threshold), gate.name, gate.severity) for gate in declared) or (IndexLimit(),)


def frozen_file(pipelines: dict[str, FrozenPipeline]) -> dict[str, Any]:
    """A baseline file's content, given the frozen baselines by pipeline name."""
    frozen = msgspec.to_builtins(pipelines)
    return {"kind": KIND, "v": VERSION, "version": version(frozen), "pipelines": frozen}


def read_frozen(path: Path) -> dict[str, FrozenPipeline]:
    """The pipelines of a baseline file.

    Raises:
        ConfigError: It cannot be read, is no baseline file, or was changed by hand.
    """
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"the baseline cannot be read ({error.strerror})", path=str(path), hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("the baseline is not JSON", path=str(path), hint=_HINT) from error
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("v") != VERSION:
        raise ConfigError("this is not a baseline file", path=str(path), hint=_HINT)
    if data.get("version") != version(data.get("pipelines")):
        stated = data.get("version")
        raise ConfigError("the baseline was changed after it was frozen", path=str(path), value=stated, hint=_HINT)
    try:
        return msgspec.convert(data["pipelines"], dict[str, FrozenPipeline])
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise ConfigError(f"the baseline holds what none can ({error})", path=str(path), hint=_HINT) from error
