"""What a gold number is a number of: this gold set, or questions like these. Two intervals around one value."""

from __future__ import annotations

from typing import NamedTuple

from ragmon import stats
from ragmon.core.constants import GOLD_SET, QUESTIONS_LIKE_THESE
from ragmon.scoring.snapshot import SeriesStats


class Bounds(NamedTuple):
    """A 95 % interval, and how many plain observations it is worth."""

    lower: float
    upper: float
    n_eff: float


def bounds(series: SeriesStats, metric: str) -> dict[str, Bounds]:
    """The intervals of a metric over a gold set, by estimand.

    `gold_set` is about these very items: every answer tells something of it. `questions_like_these` is about the
    questions the items stand for: the items are the observations, however often each one was asked.

    Args:
        series: The metrics over a gold set.
        metric: Which.

    Returns:
        Nothing where the metric was not assessed or the series is of no gold set; of metrics whose scores are not kept
        item by item, the first alone.
    """
    stat = series.metrics.get(metric)
    if not series.gold or stat is None or not stat.n:
        return {}
    plain = stat.estimate
    found = {GOLD_SET: Bounds(plain.lower, plain.upper, plain.n_eff)}
    if clusters := series.clusters.get(metric):
        found[QUESTIONS_LIKE_THESE] = Bounds(*stats.clustered(clusters))
    return found
