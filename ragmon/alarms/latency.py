"""The latency's baseline: first the p95, then the share of requests that take longer."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragmon.alarms.baselines import DELAY, LIVE_ENOUGH, LIVE_FULL, Baseline
from ragmon.alarms.observations import NONE, Observations, observe
from ragmon.stats import MICRO, bucket, bucket_edge, buckets, quantile

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
            self.settle()

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

    def settle(self) -> None:
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
