"""How many calls there were, sampled or not: what producers tell of all their calls, by time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ragmon import names
from ragmon.contract import Totals
from ragmon.tables import STEP

FOLDED: Final = 300
"""Seconds between two counts that are kept for long."""


class Producer(NamedTuple):
    """A process that counts its calls: its counts only grow."""

    instance: str
    started: float


GONE: Final = Producer("", 0.0)
"""Stands for all producers that are gone."""


class CallKey(NamedTuple):
    """Which calls."""

    pipeline: str
    source: str
    stratum: str


class Calls:
    """Cumulative counts of calls, by producer and time step; two of them merge by taking the larger count.

    Attributes:
        counts: By producer and key, the largest count told in each step of ten seconds.
    """

    def __init__(self) -> None:
        self.counts: dict[Producer, dict[CallKey, dict[int, int]]] = {}

    def see(self, line: Totals) -> None:
        """Take in what a producer tells; a line about losses alone counts no calls."""
        if line.calls:
            key = CallKey(line.pipeline, line.source, line.stratum)
            self._put(Producer(line.instance, line.started), key, int(line.ts) // STEP * STEP, line.calls)

    def _put(self, producer: Producer, key: CallKey, step: int, calls: int) -> None:
        steps = self.counts.setdefault(producer, {}).setdefault(key, {})
        steps[step] = max(calls, steps.get(step, 0))

    def within(self, begin: float | None, end: float) -> dict[CallKey, int]:
        """The calls of a window, to the ten seconds between two reports.

        Args:
            begin: Where it begins, seconds since the epoch; None counts from each producer's start.
            end: Where it ends, exclusive.
        """
        found: dict[CallKey, int] = {}
        for producer, keys in self.counts.items():
            for key, steps in keys.items():
                calls = _at(steps, end) - (0 if begin is None else _before(steps, begin, producer.started))
                if calls > 0:
                    found[key] = found.get(key, 0) + calls
        return found

    def fold(self, fresh: float, oldest: float | None) -> None:
        """Thin out old counts.

        Args:
            fresh: Of what is older, the last count of every five minutes is kept.
            oldest: Of what is older, the last count; None keeps all.
        """
        for keys in self.counts.values():
            for key, steps in keys.items():
                kept: dict[int, int] = {}
                for step in sorted(steps):
                    place = step if step >= fresh else step // FOLDED * FOLDED
                    kept[place if oldest is None or step >= oldest else 0] = steps[step]
                keys[key] = kept
        if oldest is not None:
            self._bury(oldest)

    def _bury(self, oldest: float) -> None:
        """Add up the producers that have told nothing for long: processes come and go, memory is bounded."""
        silent = [p for p, keys in self.counts.items() if all(max(steps) < oldest for steps in keys.values())]
        for producer in silent:
            if producer != GONE:
                for key, steps in self.counts.pop(producer).items():
                    held = self.counts.setdefault(GONE, {}).setdefault(key, {0: 0})
                    held[0] += max(steps.values())

    def merge(self, other: Calls) -> None:
        """Add what was told elsewhere."""
        for producer, keys in other.counts.items():
            for key, steps in keys.items():
                for step, calls in steps.items():
                    self._put(producer, key, step, calls)

    def dump(self) -> list[Any]:
        """Plain JSON data."""
        return [
            [*producer, *key, {str(step): calls for step, calls in steps.items()}]
            for producer, keys in self.counts.items()
            for key, steps in keys.items()
        ]

    @classmethod
    def load(cls, data: list[Any]) -> Calls:
        """What `dump` wrote."""
        calls = cls()
        for instance, started, pipeline, source, stratum, steps in data:
            keys = calls.counts.setdefault(Producer(instance, started), {})
            keys[CallKey(pipeline, source, stratum)] = {int(step): n for step, n in steps.items()}
        return calls


def _at(steps: Mapping[int, int], end: float) -> int:
    """The count at a time: counts only grow, so the largest before it is the last."""
    return max((calls for step, calls in steps.items() if step < end), default=0)


def _before(steps: Mapping[int, int], begin: float, started: float) -> int:
    """The count when a window began; of a producer that was heard of later, what it had counted by then is unknown."""
    known = _at(steps, begin)
    return known if known or started >= begin else steps[min(steps)]


def by_stratum(calls: Mapping[CallKey, int], pipeline: str, source: str) -> dict[str, int]:
    """The calls of each stratum of one pipeline and source; calls of unknown weight stand for nothing."""
    return {
        key.stratum: n
        for key, n in calls.items()
        if (key.pipeline, key.source) == (pipeline, source) and key.stratum != names.UNKNOWN_WEIGHT
    }
