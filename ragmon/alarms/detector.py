"""The detector under every alarm: a sum of e-processes that may be looked at every minute for ever.

For a level g and observations x in [0, 1], `prod(1 + bet * (g - x))` is a fair game or a losing one as long as the
mean is at least g: whoever bets against the metric grows rich only if it dropped. The detector plays one such game from
every step on and adds them up (Shiryaev-Roberts), for eight sizes of a drop at once. As long as the mean holds, the
expected number of steps until the wealth passes a threshold A is at least A, whatever else is true of the traffic.

Source: Shin, Ramdas, Rinaldo, "E-detectors", New England J. Stat. Data Sci. 2 (2024), doi 10.51387/23-NEJSDS51; the
bets: Waudby-Smith, Ramdas, J. R. Stat. Soc. B 86 (2024).

One alarm: silent until its detector has proof, firing until there is proof of the contrary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, inf, log, log1p
from typing import Any, Final, Literal

from ragmon.alarms.observations import Observations
from ragmon.alarms.plan import AlarmRule
from ragmon.stats.detection import DROPS

HIGHEST: Final = 0.9999
"""Levels are cut here: of a mean of exactly 1 a single failure would be proof, and a label may be wrong."""
_ON_ONE: Final = tuple(log1p(-drop) for drop in DROPS)
_LARGEST: Final = 600.0
"""Exponents are cut here, far above any threshold and below what a double holds."""
_FEW: Final = 50
"""So many means between 0 and 1 are multiplied one by one; the product of more might not fit a double."""


class Detector:
    """Wealth against "the mean is at least the level".

    Args:
        wealth: One per drop, as `dump` gave it; default: nothing won yet.

    Attributes:
        wealth: What each game has won, all starting times together.

    Example:
        >>> detector = Detector()
        >>> for _ in range(100):
        ...     mean = detector.update(Observations(ones=7, zeros=3), level=0.8)
        >>> mean > 10_000
        True
    """

    __slots__ = ("_bets", "_cut", "_level", "_on_zero", "wealth")

    def __init__(self, wealth: Sequence[float] = ()) -> None:
        self.wealth = list(wealth) or [0.0] * len(DROPS)
        self._bet(0.0)

    def update(self, seen: Observations, level: float) -> float:
        """Take in one step.

        Args:
            seen: Its observations, at least one.
            level: What the mean should be at least, fixed before the step was seen.

        Returns:
            The mean wealth: evidence that the mean lies below the level.
        """
        if level != self._level:
            self._bet(level)
        ones, zeros, parts = seen
        wealth = [won + 1.0 for won in self.wealth]
        if len(parts) > _FEW or zeros * self._on_zero[-1] > _LARGEST:
            self.wealth = [exp(won) * held for held, won in zip(wealth, self._logs(seen), strict=True)]
            return sum(self.wealth) / len(DROPS)
        for x in parts:
            gap = self._cut - x
            wealth = [held * (1.0 + bet * gap) for held, bet in zip(wealth, self._bets, strict=True)]
        self.wealth = [
            exp(zeros * lost + ones * kept) * held
            for held, lost, kept in zip(wealth, self._on_zero, _ON_ONE, strict=True)
        ]
        return sum(self.wealth) / len(DROPS)

    def _bet(self, level: float) -> None:
        """What is put on each drop, and what a 0 brings; a 1 always costs the drop itself."""
        self._level, self._cut = level, min(level, HIGHEST)
        self._bets = tuple(drop / (1.0 - self._cut) for drop in DROPS)
        self._on_zero = tuple(log1p(bet * self._cut) for bet in self._bets)

    def _logs(self, seen: Observations) -> list[float]:
        """What the step brings, as logarithms, where it is much."""
        ones, zeros, parts = seen
        found = []
        for bet, lost, kept in zip(self._bets, self._on_zero, _ON_ONE, strict=True):
            between = sum(log1p(bet * (self._cut - x)) for x in parts)
            found.append(min(_LARGEST, zeros * lost + ones * kept + between))
        return found

    @property
    def mean(self) -> float:
        """The mean wealth."""
        return sum(self.wealth) / len(DROPS)

    @property
    def drop(self) -> float:
        """The drop that explains the observations best, relative to the level."""
        return DROPS[max(range(len(DROPS)), key=self.wealth.__getitem__)]

    def clear(self) -> None:
        """Start anew."""
        self.wealth = [0.0] * len(DROPS)


def evidence(mean: float, threshold: float) -> float:
    """How far the wealth is on its way to the threshold, in [0, 1], on a logarithmic scale.

    >>> evidence(1.0, 10_000), evidence(100.0, 10_000)
    (0.0, 0.5)
    """
    won = log(mean) if mean > 0 else -inf
    return min(1.0, max(0.0, won / log(threshold)))


RESOLVE: Final = 100.0
"""Wealth at which a recovery counts as proved; at 20 half of all weak faults would be called over while they last."""

Change = Literal["firing", "resolved"]


class Alarm:
    """The state of one watch.

    Args:
        watch: What is guarded, and how much proof it takes.

    Attributes:
        firing: Since which minute it fires; None while it is silent.
    """

    __slots__ = ("_back", "_recovery", "detector", "firing", "watch")

    def __init__(self, watch: AlarmRule) -> None:
        self.watch = watch
        self.detector = Detector()
        self.firing: int | None = None
        self._recovery = Detector()
        self._back = 0.0

    def step(self, minute: int, seen: Observations, level: float) -> Change | None:
        """Take in one step.

        Args:
            minute: Its minute since the epoch.
            seen: Its observations, oriented so that less is worse; at least one.
            level: What their mean should be at least.

        Returns:
            What changed.
        """
        if self.firing is not None:
            if self._recovery.update(seen.turned, 1.0 - self._back) < RESOLVE:
                return None
            self.clear()
            return "resolved"
        # Nothing can fall below a level of 0, and wealth would grow by waiting alone.
        if level <= 0 or self.detector.update(seen, level) < self.watch.threshold:
            return None
        self.firing = minute
        # Half-way between what should be and what best explains the fall: above that, it is over.
        self._back = level * (1.0 - self.detector.drop / 2.0)
        self.detector.clear()
        return "firing"

    def clear(self) -> None:
        """Start anew, silent."""
        self.firing = None
        self.detector.clear()
        self._recovery.clear()

    @property
    def evidence(self) -> float:
        """How far it is on its way to firing, in [0, 1]; 1 while it fires."""
        return 1.0 if self.firing is not None else evidence(self.detector.mean, self.watch.threshold)

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "wealth": self.detector.wealth,
            "firing": self.firing,
            "back": self._back,
            "recovery": self._recovery.wealth,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self.detector = Detector(data["wealth"])
        self.firing, self._back = data["firing"], data["back"]
        self._recovery = Detector(data["recovery"])
