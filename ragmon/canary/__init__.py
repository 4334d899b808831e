"""Releases judged while their traffic comes in: one build against the gates, or against the build before it.

Every verdict here holds however often it is asked for: it rests on bets (`ragmon.stats.betting`), not on intervals for
a number of requests that was fixed beforehand. It is a pure function of what was counted.
"""

from ragmon.canary.parts import By, part
from ragmon.canary.since import judge
from ragmon.canary.versus import Comparison, Sample, compare

__all__ = ["By", "Comparison", "Sample", "compare", "judge", "part"]
