"""What a metric is when all is well: learned from its own traffic, or given, then frozen.

The latency's baseline: first the p95, then the share of requests that take longer.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragmon.alarms.observations import NONE, Observations, observe
from ragmon.stats import MICRO, bucket, bucket_edge, buckets, quantile, wilson

DELAY: Final = 15
"""Minutes an observation waits before it is learned: what an alarm is about to call a fault must not become normal."""
CHRONIC: Final = 360
"""Minutes after which a gate that fires is how the pipeline lives, and keeps nobody from learning any more."""
SHOWN: Final = 8
"""Hex digits of a version."""
PAUSE: Final = 0.35
"""From this evidence on, of any of its detectors, a metric learns nothing."""
GOLD_ENOUGH: Final = 50
LIVE_ENOUGH: Final = 1_500
"""Observations from which a baseline is used."""
GOLD_FULL: Final = 1_000
LIVE_FULL: Final = 20_000
"""Observations at which it is frozen: its own error is small beside the margins, and drift must not be learned."""


class Baseline:
    """The mean of one metric, orientation as it is exported.

    Args:
        enough: Observations from which it is used.
        full: Observations at which it is frozen.
        learn: Minutes of traffic before it is used.

    Attributes:
        n, total: What was learned.
        given: It was taken from a file, and is not learned.
        since: The first minute with an observation; None before.
    """

    __slots__ = ("_learn", "_waiting", "enough", "full", "given", "n", "since", "total", "usable")

    def __init__(self, *, enough: int, full: int, learn: int) -> None:
        self.enough, self.full = enough, full
        self._learn = learn
        self.n = 0
        self.total = 0.0
        self.given = False
        self.since: int | None = None
        self.usable = False
        self._waiting: deque[tuple[int, int, float]] = deque()

    @property
    def frozen(self) -> bool:
        """It does not change any more."""
        return self.given or self.n >= self.full

    @property
    def state(self) -> str:
        """`given`, `learning`, `growing` or `frozen`."""
        if self.given or not self.usable:
            return "given" if self.given else "learning"
        return "frozen" if self.frozen else "growing"

    @property
    def version(self) -> str:
        """What tells one frozen baseline from another; "" while it still changes."""
        if not (self.frozen and self.usable):
            return ""
        return hashlib.sha256(f"{self.n} {self.total!r}".encode()).hexdigest()[:SHOWN]

    def give(self, n: int, total: float) -> None:
        """Take a baseline as it is."""
        self.n, self.total = n, total
        self.given = self.usable = True

    def level(self, z: float, margin: float, *, at_least: bool) -> float | None:
        """What the metric should be at least; for an upper bound, what one minus the metric should be.

        Args:
            z: Normal quantile: how much of the baseline's own error is allowed for.
            margin: How far beyond that a change matters.
            at_least: Guard against a fall; else against a rise.

        Returns:
            The level; None while the baseline is being learned.
        """
        if not self.usable:
            return None
        lower, upper = wilson(self.total, self.n, z)
        return (lower if at_least else 1.0 - upper) - margin

    def see(self, minute: int, seen: Observations) -> None:
        """Remember a step, to be learned when nothing has come of it."""
        if self.since is None:
            self.since = minute
        if not self.frozen:
            self._waiting.append((minute, seen.n, seen.total))

    def learn(self, minute: int) -> None:
        """Learn the steps that have waited long enough."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= minute - DELAY and not self.frozen:
            _, n, total = waiting.popleft()
            self.n += n
            self.total += total
        if self.frozen:
            waiting.clear()
        if self.n >= self.enough and self.since is not None and minute - self.since >= self._learn:
            self.usable = True

    def absorb(self, seen: Observations) -> None:
        """Learn a step at once."""
        self.n += seen.n
        self.total += seen.total

    def restart(self) -> None:
        """Forget what was learned or given: it is of another population."""
        self.n, self.total, self.since = 0, 0.0, None
        self.usable = self.given = False
        self._waiting.clear()

    def forget(self) -> None:
        """Drop what waits: it may belong to a fault."""
        self._waiting.clear()

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "n": self.n,
            "total": self.total,
            "given": self.given,
            "since": self.since,
            "usable": self.usable,
            "waiting": [list(step) for step in self._waiting],
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self.n, self.total = data["n"], data["total"]
        self.given, self.since, self.usable = data["given"], data["since"], data["usable"]
        self._waiting = deque((minute, n, total) for minute, n, total in data["waiting"])


SHARE: Final = 0.95


class LatencyBaseline:
    """What is slow, and how common that is.

    Args:
        learn: Minutes of traffic before it is used.

    Attributes:
        p95: Where slow begins, in milliseconds: the end of the bucket that holds the p95; None while it is learned.
        share: The baseline of the share above it.
    """

    def __init__(self, learn: int) -> None:
        self.share = Baseline(enough=LIVE_ENOUGH, full=LIVE_FULL, learn=learn)
        self.p95: float | None = None
        self._learn = learn
        self._since: int | None = None
        self._known: Counter[int] = Counter()
        self._waiting: deque[tuple[int, list[float]]] = deque()

    def give(self, p95: float, n: int, total: float) -> None:
        """Take a baseline as it is."""
        self.p95 = p95
        self.share.give(n, total)

    def of(self, clusters: Sequence[Sequence[float]], ratio: float = 1.0) -> Observations:
        """The share of slow requests in each cluster of a step, where it is known what slow is.

        Args:
            clusters: Latencies in milliseconds.
            ratio: How many times the p95 is slow.
        """
        if self.p95 is None:
            return NONE
        slow = ratio * self.p95
        return observe((len(held), sum(took >= slow for took in held) * MICRO) for held in clusters)

    def see(self, minute: int, clusters: Sequence[Sequence[float]]) -> None:
        """Remember a step, to be learned when nothing has come of it."""
        if self.p95 is not None:
            self.share.see(minute, self.of(clusters))
            return
        if self._since is None:
            self._since = minute
        self._waiting.append((minute, [took for held in clusters for took in held]))

    def learn(self, minute: int) -> None:
        """Learn the steps that have waited long enough."""
        if self.p95 is not None:
            self.share.learn(minute)
            return
        while self._waiting and self._waiting[0][0] <= minute - DELAY:
            self._known.update(buckets(self._waiting.popleft()[1]))
        if self._since is not None and minute - self._since >= self._learn:
            self.finalise()

    def _start(self, place: int, n: int) -> None:
        """From now on the share is learned, beginning with what is known."""
        self.p95 = bucket_edge(place)
        over = sum(count for index, count in self._known.items() if index > place)
        self.share.n, self.share.total, self.share.since = n, float(over), self._since
        self.share.usable = True
        self._known.clear()
        for minute, took in self._waiting:
            self.share.see(minute, self.of([[one] for one in took]))
        self._waiting.clear()

    def absorb(self, clusters: Sequence[Sequence[float]]) -> None:
        """Learn a step at once."""
        self._known.update(buckets([took for held in clusters for took in held]))

    def finalise(self) -> None:
        """Take what was absorbed as the baseline; without enough of it there is none."""
        n = self._known.total()
        above = quantile(self._known, SHARE) if n >= LIVE_ENOUGH else None
        if above is not None:
            self._start(bucket(above), n)

    def restart(self) -> None:
        """Forget what was learned or given: it is of another population."""
        self.share.restart()
        self.p95 = self._since = None
        self._known.clear()
        self._waiting.clear()

    def forget(self) -> None:
        """Drop what waits: it may belong to a fault."""
        self._waiting.clear()
        self.share.forget()

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "share": self.share.dump(),
            "p95": self.p95,
            "since": self._since,
            "known": {str(i): n for i, n in self._known.items()},
            "waiting": [list(step) for step in self._waiting],
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self.share.restore(data["share"])
        self.p95, self._since = data["p95"], data["since"]
        self._known = Counter({int(i): n for i, n in data["known"].items()})
        self._waiting = deque((minute, took) for minute, took in data["waiting"])
