"""Drift alarms that need no labels: distributions of the traffic, block by block, and the indexes under each build.

They are tickets: they report that something changed, never that it is worse.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Final

from ragmon.alarms.baselines import AlarmTerms
from ragmon.core import constants
from ragmon.scoring.minutes import SHAPES, Step
from ragmon.stats.histograms import decile_edges

INDEX_WINDOW: Final = 60
"""Minutes within which several indexes under one build are counted together."""
REFERENCE: Final = 3_000
BLOCK: Final = 300
"""Observations of the reference; and the minimum of a block that is compared with it."""
PERIOD: Final = 60
"""Minimum length in minutes of a block and of the reference."""
MIN_PSI: Final = 0.1
"""Shifts below this population stability index are irrelevant, however certain."""
_CRITICAL: Final = (10.828, 13.816, 16.266, 18.467, 20.515, 22.458, 24.322, 26.124, 27.877)
"""The 99.9 % quantile of chi-squared with 1 to 9 degrees of freedom."""
_SMALL: Final = 0.5
"""The count used for an empty bin, because log(0) is undefined."""


def psi(reference: Sequence[int], block: Sequence[int]) -> float:
    """The population stability index: how far a binned distribution moved from a reference.

    Args:
        reference: Counts by bin.
        block: Counts by bin of the distribution that is compared with it.

    Source: symmetrised Kullback-Leibler divergence (Jeffreys, Proc. R. Soc. A 186 (1946)) of two histograms.

    >>> round(psi([50, 50], [70, 30]), 3)
    0.169
    """
    m, n = sum(reference), sum(block)
    index = 0.0
    for old, new in zip(reference, block, strict=True):
        p, q = max(old, _SMALL) / m, max(new, _SMALL) / n
        index += (q - p) * log(q / p)
    return index


def has_drifted(reference: Sequence[int], block: Sequence[int]) -> bool:
    """Whether a block drifted: by more than chance explains in 99.9 % of blocks, and by at least `MIN_PSI`.

    Source: without drift, `psi * n * m / (n + m)` is about chi-squared with one degree of freedom less than bins.
    """
    m, n, index = sum(reference), sum(block), psi(reference, block)
    freedom = len(reference) - 1
    return freedom > 0 and index >= MIN_PSI and index * n * m / (n + m) > _CRITICAL[min(freedom, len(_CRITICAL)) - 1]


class DistributionMonitor:
    """Compares one property of the traffic, block by block, with its first block of at least an hour.

    Attributes:
        firing: The last block drifted.
    """

    __slots__ = ("_begun", "_block", "_edges", "_reference", "firing")

    def __init__(self) -> None:
        self.firing = False
        self._edges: list[int] | None = None
        self._reference: list[int] = []
        self._block: Counter[int] = Counter()
        self._begun: int | None = None

    def step(self, minute: int, counts: Mapping[int, int]) -> bool:
        """Process a minute's log-bucket counts; returns whether the alarm changed."""
        if self._begun is None:
            self._begun = minute
        elif minute - self._begun >= PERIOD and self._block.total() >= (BLOCK if self._edges else REFERENCE):
            return self._close(minute, counts)
        self._block.update(counts)
        return False

    def _close(self, minute: int, counts: Mapping[int, int]) -> bool:
        """End a block: the first becomes the reference, later ones are compared with it."""
        block, self._block, self._begun = self._block, Counter(counts), minute
        if self._edges is None:
            self._edges = decile_edges(block)
            self._reference = self._binned(block)
            return False
        before, self.firing = self.firing, has_drifted(self._reference, self._binned(block))
        return before != self.firing

    def clear(self) -> None:
        """Reset: the next block becomes the reference."""
        self.firing, self._edges, self._reference = False, None, []
        self._block, self._begun = Counter(), None

    def _binned(self, counts: Mapping[int, int]) -> list[int]:
        edges = self._edges or []
        bins = [0] * (len(edges) + 1)
        for bucket, n in counts.items():
            bins[bisect_left(edges, bucket)] += n
        return bins

    def dump(self) -> dict[str, Any]:
        """The state as plain JSON data."""
        return {
            "firing": self.firing,
            "edges": self._edges,
            "reference": self._reference,
            "block": {str(i): n for i, n in self._block.items()},
            "begun": self._begun,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Restore what `dump` wrote."""
        self.firing, self._edges, self._reference = data["firing"], data["edges"], data["reference"]
        self._block = Counter({int(i): n for i, n in data["block"].items()})
        self._begun = data["begun"]


class IndexMonitor:
    """Counts the indexes that answered under each build within `INDEX_WINDOW` minutes.

    Args:
        limit: The number of indexes that is allowed.

    Attributes:
        firing: A build has more.
    """

    __slots__ = ("_limit", "_seen", "firing")

    def __init__(self, limit: int = 1) -> None:
        self.firing = False
        self._limit = limit
        self._seen: dict[tuple[str, str], int] = {}

    def step(self, minute: int, indexes: Iterable[tuple[str, str]]) -> bool:
        """Process the `(build, index_hash)` pairs of a minute; returns whether the alarm changed."""
        for key in indexes:
            self._seen[key] = minute
        for key in [key for key, last in self._seen.items() if last <= minute - INDEX_WINDOW]:
            del self._seen[key]
        builds = Counter(build for build, _ in self._seen)
        before, self.firing = self.firing, any(n > self._limit for n in builds.values())
        return before != self.firing

    def clear(self) -> None:
        """Forget all indexes."""
        self.firing = False
        self._seen.clear()

    def dump(self) -> dict[str, Any]:
        """The state as plain JSON data."""
        return {"firing": self.firing, "seen": [[*key, last] for key, last in sorted(self._seen.items())]}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Restore what `dump` wrote."""
        self.firing = data["firing"]
        self._seen = {(build, index): last for build, index, last in data["seen"]}


@dataclass
class DriftSignal:
    """The state of one drift alarm.

    Attributes:
        alert, metric, severity: Which alarm.
        firing: The minute since which it fires; None while it is silent.
    """

    alert: str
    metric: str
    severity: str
    firing: int | None = None


class Drift:
    """The drift alarms of a pipeline.

    Args:
        terms: Names, severities and limits of the index alarms.
    """

    def __init__(self, terms: AlarmTerms) -> None:
        self._indexes = [
            (DriftSignal(term.alert, constants.INDEX_HASH, term.severity), IndexMonitor(term.limit))
            for term in terms.indexes
        ]
        self._distributions = {
            name: (DriftSignal(f"{name}:drift", name, constants.TICKET), DistributionMonitor()) for name in SHAPES
        }

    @property
    def signals(self) -> tuple[DriftSignal, ...]:
        """Every drift alarm."""
        return tuple(signal for signal, _ in self._all())

    def _all(self) -> list[tuple[DriftSignal, IndexMonitor | DistributionMonitor]]:
        return [*self._indexes, *self._distributions.values()]

    def step(self, step: Step, source: str) -> list[DriftSignal]:
        """Process one step; returns the alarms that changed.

        Args:
            step: The step.
            source: The source of user traffic.
        """
        changed = [signal for signal, indexes in self._indexes if indexes.step(step.minute, step.indexes)]
        for name, (signal, monitor) in self._distributions.items():
            counts = step.shape(source, name)
            if counts and monitor.step(step.minute, counts):
                changed.append(signal)
        for signal in changed:
            signal.firing = step.minute if signal.firing is None else None
        return changed

    def restart(self) -> list[DriftSignal]:
        """Forget the distributions, because the traffic has another source now. Returns the alarms that fired."""
        fired = [signal for signal, _ in self._distributions.values() if signal.firing is not None]
        for signal, monitor in self._distributions.values():
            signal.firing = None
            monitor.clear()
        return fired

    def clear(self, alert: str) -> bool:
        """Silence the alarm with a name; returns whether it fired."""
        signal, monitor = next(pair for pair in self._all() if pair[0].alert == alert)
        fired, signal.firing = signal.firing is not None, None
        monitor.clear()
        return fired

    def dump(self) -> dict[str, Any]:
        """The state as plain JSON data."""
        return {signal.alert: {"firing": signal.firing, "seen": monitor.dump()} for signal, monitor in self._all()}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Restore what `dump` wrote."""
        for signal, monitor in self._all():
            state = data.get(signal.alert)
            if state is not None:
                signal.firing = state["firing"]
                monitor.restore(state["seen"])
