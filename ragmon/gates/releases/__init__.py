"""Releases judged while their traffic comes in: one build against the gates, or against the build before it.

Every verdict here holds however often it is computed: it rests on bets (`ragmon.stats.betting`), not on intervals for a
number of requests fixed beforehand. The observations are clusters of requests (`ragmon.gates.releases.release`) and
gold items; a run through a gold set is judged when it is nearly complete. A verdict is a pure function of the counts.
"""

from ragmon.gates.releases.comparison import Comparison, Flip, ReleaseIntervals, ReleaseSample
from ragmon.gates.releases.release import By, Clusters, Release, items_of, of_release
from ragmon.gates.releases.verdicts import EvaluatedRun, compare, compare_runs, judge

__all__ = [
    "By",
    "Clusters",
    "Comparison",
    "EvaluatedRun",
    "Flip",
    "Release",
    "ReleaseIntervals",
    "ReleaseSample",
    "compare",
    "compare_runs",
    "items_of",
    "judge",
    "of_release",
]
