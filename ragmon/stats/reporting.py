"""How much of what will be reported of a time has been reported: labels come days after the answers they are about."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Final

ENOUGH: Final = 20
"""Reports from which a delay has a distribution."""


class Delays:
    """How long reports take, as far as it can be known: what takes longer than anybody has waited is not seen.

    The share of reports that come within a delay is the product-limit estimate for data truncated on the right, which
    takes each delay among the reports that could have been as long (Lynden-Bell 1971; for reporting delays Lawless
    1994). It is of those reports that come within the longest time anybody waited.

    Args:
        reports: For each report how long it took, and how long it could have taken at most to be here now, in seconds.

    >>> Delays([(1.0, 9.0), (1.0, 9.0), (5.0, 9.0), (1.0, 2.0)]).share(1.0)
    0.6666666666666667
    """

    def __init__(self, reports: Sequence[tuple[float, float]]) -> None:
        self._reports = [(max(0.0, delay), max(delay, most, 0.0)) for delay, most in reports]
        self._delays, self._shares = _distribution(self._reports)

    def share(self, waited: float) -> float:
        """The share of reports that come within a time, in seconds; in (0, 1]."""
        place = bisect_right(self._delays, waited)
        return self._shares[place - 1] if place else self._shares[0]

    @property
    def maturity(self) -> float | None:
        """The share of all reports on these times that is here, in (0, 1]; None where there are too few to say.

        Each report that is here stands for as many as its time lets come.
        """
        if len(self._reports) < ENOUGH:
            return None
        return len(self._reports) / sum(1.0 / self.share(most) for _, most in self._reports)


def _distribution(reports: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """The delays, and the share of reports that come within each: from the longest, which all do, to the shortest."""
    times = Counter(delay for delay, _ in reports)
    delays = sorted(times)
    by_delay, by_most = sorted(delay for delay, _ in reports), sorted(most for _, most in reports)
    shares, share = [1.0] * len(delays), 1.0
    for place in range(len(delays) - 1, 0, -1):
        delay = delays[place]
        # At risk are reports that took no longer and could have taken as long: since delay <= most, none is short of
        # both.
        could = bisect_right(by_delay, delay) - bisect_left(by_most, delay)
        share *= 1.0 - times[delay] / could if could > times[delay] else 1.0
        shares[place - 1] = share
    return delays, shares
