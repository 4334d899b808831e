"""What moved without anybody labelling it: distributions block by block, and the index under a build.

Drift without labels: tickets that say what is different, and never that it is worse.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Final

from ragmon.alarms.frozen import AlarmTerms
from ragmon.core import constants
from ragmon.scoring.minutes import SHAPES, Step
from ragmon.stats.histograms import decile_edges

HORIZON: Final = 60
"""Minutes in which two indexes under one build count as one too many."""
REFERENCE: Final = 3_000
BLOCK: Final = 300
"""Observations of the reference, and at least of a block that is compared with it."""
PERIOD: Final = 60
"""Minutes of a block at least, and of the reference."""
FLOOR: Final = 0.1
"""Smaller shifts are nobody's business, however certain."""
_CRITICAL: Final = (10.828, 13.816, 16.266, 18.467, 20.515, 22.458, 24.322, 26.124, 27.877)
"""The 99.9 % quantile of chi-squared with 1 to 9 degrees of freedom."""
_SMALL: Final = 0.5
"""Stands for an empty bin, whose logarithm is not."""


def psi(reference: Sequence[int], block: Sequence[int]) -> float:
    """The population stability index: how far a binned distribution moved from a reference.

    Args:
        reference: Counts by bin.
        block: The same of what is compared with it.

    Source: symmetrised Kullback-Leibler divergence (Jeffreys, Proc. R. Soc. A 186 (1946)) of two histograms.

    >>> round(psi([50, 50], [70, 30]), 3)
    0.169
    """
    m, n = sum(reference), sum(block)
    found = 0.0
    for old, new in zip(reference, block, strict=True):
        p, q = max(old, _SMALL) / m, max(new, _SMALL) / n
        found += (q - p) * log(q / p)
    return found


def moved(reference: Sequence[int], block: Sequence[int]) -> bool:
    """Whether a block drifted: further than chance would take it once in a thousand blocks, and than anyone cares.

    Source: where nothing moved, `psi * n * m / (n + m)` is about chi-squared with one degree less than bins.
    """
    m, n, index = sum(reference), sum(block), psi(reference, block)
    freedom = len(reference) - 1
    return freedom > 0 and index >= FLOOR and index * n * m / (n + m) > _CRITICAL[min(freedom, len(_CRITICAL)) - 1]


class DistributionMonitor:
    """One property of the traffic, block by block against its first hour.

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
        """Take in a minute's log-bucket counts; returns whether the alarm changed."""
        if self._begun is None:
            self._begun = minute
        elif minute - self._begun >= PERIOD and self._block.total() >= (BLOCK if self._edges else REFERENCE):
            return self._close(minute, counts)
        self._block.update(counts)
        return False

    def _close(self, minute: int, counts: Mapping[int, int]) -> bool:
        """End a block: the first becomes the reference, others are compared with it."""
        block, self._block, self._begun = self._block, Counter(counts), minute
        if self._edges is None:
            self._edges = decile_edges(block)
            self._reference = self._binned(block)
            return False
        before, self.firing = self.firing, moved(self._reference, self._binned(block))
        return before != self.firing

    def clear(self) -> None:
        """What comes now becomes the reference."""
        self.firing, self._edges, self._reference = False, None, []
        self._block, self._begun = Counter(), None

    def _binned(self, counts: Mapping[int, int]) -> list[int]:
        edges = self._edges or []
        found = [0] * (len(edges) + 1)
        for place, n in counts.items():
            found[bisect_left(edges, place)] += n
        return found

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "firing": self.firing,
            "edges": self._edges,
            "reference": self._reference,
            "block": {str(i): n for i, n in self._block.items()},
            "begun": self._begun,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self.firing, self._edges, self._reference = data["firing"], data["edges"], data["reference"]
        self._block = Counter({int(i): n for i, n in data["block"].items()})
        self._begun = data["begun"]


class Indexes:
    """How many indexes answered under each build lately.

    Args:
        limit: So many are right.

    Attributes:
        firing: There are more.
    """

    __slots__ = ("_limit", "_seen", "firing")

    def __init__(self, limit: int = 1) -> None:
        self.firing = False
        self._limit = limit
        self._seen: dict[tuple[str, str], int] = {}

    def step(self, minute: int, indexes: Iterable[tuple[str, str]]) -> bool:
        """Take in the `(build, index_hash)` of a minute; returns whether the alarm changed."""
        for key in indexes:
            self._seen[key] = minute
        for key in [key for key, last in self._seen.items() if last <= minute - HORIZON]:
            del self._seen[key]
        builds = Counter(build for build, _ in self._seen)
        before, self.firing = self.firing, any(n > self._limit for n in builds.values())
        return before != self.firing

    def clear(self) -> None:
        """What answered until now is forgotten."""
        self.firing = False
        self._seen.clear()

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"firing": self.firing, "seen": [[*key, last] for key, last in sorted(self._seen.items())]}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self.firing = data["firing"]
        self._seen = {(build, index): last for build, index, last in data["seen"]}


@dataclass
class DriftSignal:
    """How one drift alarm stands.

    Attributes:
        alert, metric, severity: Which.
        firing: Since which minute; None while it is silent.
    """

    alert: str
    metric: str
    severity: str
    firing: int | None = None


class Drift:
    """The drift alarms of a pipeline.

    Args:
        terms: How the alarms on indexes are called, and when they fire.
    """

    def __init__(self, terms: AlarmTerms) -> None:
        self._indexes = [
            (DriftSignal(one.alert, constants.INDEX_HASH, one.severity), Indexes(one.limit)) for one in terms.indexes
        ]
        self._shapes = {
            name: (DriftSignal(f"{name}:drift", name, constants.TICKET), DistributionMonitor()) for name in SHAPES
        }

    @property
    def signals(self) -> tuple[DriftSignal, ...]:
        """Every drift alarm."""
        return tuple(signal for signal, _ in self._all())

    def _all(self) -> list[tuple[DriftSignal, Indexes | DistributionMonitor]]:
        return [*self._indexes, *self._shapes.values()]

    def step(self, step: Step, source: str) -> list[DriftSignal]:
        """Take in one step; returns the alarms that changed.

        Args:
            step: The step.
            source: Where user traffic is counted.
        """
        changed = [signal for signal, indexes in self._indexes if indexes.step(step.minute, step.indexes)]
        for name, (signal, shape) in self._shapes.items():
            counts = step.shape(source, name)
            if counts and shape.step(step.minute, counts):
                changed.append(signal)
        for signal in changed:
            signal.firing = step.minute if signal.firing is None else None
        return changed

    def restart(self) -> list[DriftSignal]:
        """Forget how traffic was distributed: it comes from elsewhere now. Returns what fired."""
        fired = [signal for signal, _ in self._shapes.values() if signal.firing is not None]
        for signal, shape in self._shapes.values():
            signal.firing = None
            shape.clear()
        return fired

    def clear(self, alert: str) -> bool:
        """Silence the alarm of a name; returns whether it fired."""
        signal, holder = next(pair for pair in self._all() if pair[0].alert == alert)
        fired, signal.firing = signal.firing is not None, None
        holder.clear()
        return fired

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {signal.alert: {"firing": signal.firing, "seen": holder.dump()} for signal, holder in self._all()}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        for signal, holder in self._all():
            held = data.get(signal.alert)
            if held is not None:
                signal.firing = held["firing"]
                holder.restore(held["seen"])
