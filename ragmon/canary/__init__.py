"""Releases judged while their traffic comes in: one build against the gates, or against the build before it.

Every verdict here holds however often it is asked for: it rests on bets (`ragmon.stats.betting`), not on intervals for
a number of requests that was fixed beforehand. What is bet on are clusters of requests (`ragmon.canary.clusters`) and
gold items; a run through a gold set is waited for. A verdict is a pure function of what was counted.
"""

from ragmon.canary.clusters import Clusters
from ragmon.canary.parts import By, Release, part
from ragmon.canary.since import judge
from ragmon.canary.versus import Comparison, Sample, compare

__all__ = ["By", "Clusters", "Comparison", "Release", "Sample", "compare", "judge", "part"]
