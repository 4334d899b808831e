"""The detector under every alarm: a sum of e-processes that may be looked at every minute for ever.

For a level g and observations x in [0, 1], `prod(1 + bet * (g - x))` is a fair game or a losing one as long as the
mean is at least g: whoever bets against the metric grows rich only if it fell. The detector plays one such game from
every step on and adds them up (Shiryaev-Roberts), for eight sizes of a fall at once. As long as the mean holds, the
expected number of steps until the wealth passes a threshold A is at least A, whatever else is true of the traffic.

Source: Shin, Ramdas, Rinaldo, "E-detectors", New England J. Stat. Data Sci. 2 (2024), doi 10.51387/23-NEJSDS51; the
bets: Waudby-Smith, Ramdas, J. R. Stat. Soc. B 86 (2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log, log1p
from typing import Final

from ragmon.alarms.observations import Observations
from ragmon.stats.detection import DROPS

HIGHEST: Final = 0.9999
"""Levels are cut here: of a mean of exactly 1 a single failure would be proof, and a label may be wrong."""
_ON_ONE: Final = tuple(log1p(-fall) for fall in DROPS)
_LARGEST: Final = 600.0
"""Exponents are cut here, far above any threshold and below what a double holds."""


class Detector:
    """Wealth against "the mean is at least the level".

    Args:
        wealth: One per fall, as `dump` gave it; default: nothing won yet.

    Attributes:
        wealth: What each game has won, all starting times together.

    Example:
        >>> detector = Detector()
        >>> for _ in range(100):
        ...     mean = detector.update(Observations(ones=7, zeros=3), level=0.8)
        >>> mean > 10_000
        True
    """

    __slots__ = ("_level", "_on_zero", "wealth")

    def __init__(self, wealth: Sequence[float] = ()) -> None:
        self.wealth = list(wealth) or [0.0] * len(DROPS)
        self._level = -1.0
        self._on_zero = _ON_ONE

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
        if parts or zeros * self._on_zero[-1] > _LARGEST:
            logs = self._logs(seen)
            self.wealth = [exp(won) * (w + 1.0) for w, won in zip(self.wealth, logs, strict=True)]
        else:
            self.wealth = [
                exp(zeros * lost + ones * held) * (w + 1.0)
                for w, lost, held in zip(self.wealth, self._on_zero, _ON_ONE, strict=True)
            ]
        return sum(self.wealth) / len(DROPS)

    def _bet(self, level: float) -> None:
        """What a 0 brings, for each fall; a 1 always costs the fall itself."""
        self._level = level
        odds = odds_of(level)
        self._on_zero = tuple(log1p(fall * odds) for fall in DROPS)

    def _logs(self, seen: Observations) -> list[float]:
        """What the step brings, as logarithms, with means between 0 and 1."""
        ones, zeros, parts = seen
        level = min(self._level, HIGHEST)
        found = []
        for fall, lost, held in zip(DROPS, self._on_zero, _ON_ONE, strict=True):
            bet = fall / (1.0 - level)
            between = sum(log1p(bet * (level - x)) for x in parts)
            found.append(min(_LARGEST, zeros * lost + ones * held + between))
        return found

    @property
    def mean(self) -> float:
        """The mean wealth."""
        return sum(self.wealth) / len(DROPS)

    @property
    def fall(self) -> float:
        """The fall that explains the observations best."""
        return DROPS[max(range(len(DROPS)), key=self.wealth.__getitem__)]

    def clear(self) -> None:
        """Start anew."""
        self.wealth = [0.0] * len(DROPS)


def odds_of(level: float) -> float:
    """The odds of a share; 0 where nothing could fall below it."""
    level = min(max(level, 0.0), HIGHEST)
    return level / (1.0 - level)


def evidence(mean: float, threshold: float) -> float:
    """How far the wealth is on its way to the threshold, in [0, 1], on a logarithmic scale.

    >>> evidence(1.0, 10_000), evidence(100.0, 10_000)
    (0.0, 0.5)
    """
    won = log(mean) if mean > 0 else -inf
    return min(1.0, max(0.0, won / log(threshold)))
