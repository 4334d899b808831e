"""Means over all traffic from records kept at different rates: every stratum weighs what it holds of all calls."""

from __future__ import annotations

from collections.abc import Mapping

from ragmon import stats
from ragmon.core import constants
from ragmon.metrics.base import Metric
from ragmon.rows import Row
from ragmon.scores import ScoreTable, Stat
from ragmon.stats.strata import Estimate, Stratum, post_stratified


def weighted(rows: Mapping[str, Row], calls: Mapping[str, int], table: ScoreTable) -> dict[str, Estimate]:
    """Every metric over all calls.

    Args:
        rows: By stratum, what was kept of it, for whatever reason: within a stratum both draws are random.
        calls: By stratum, all calls.
        table: The metrics.
    """
    rows = {name: row for name, row in rows.items() if name != constants.UNKNOWN_WEIGHT}
    known = {name: (table.of(row), row.count) for name, row in rows.items()}
    strata = sorted({*rows, *calls})
    return {
        key: post_stratified([_stratum(name, key, metric, known.get(name), calls.get(name, 0)) for name in strata])
        for key, metric in table.metrics.items()
    }


def _stratum(name: str, key: str, metric: Metric, known: tuple[Mapping[str, Stat], int] | None, calls: int) -> Stratum:
    """What is known of one metric in one stratum."""
    if known is None:
        return Stratum(name, calls, 0, 0, 0.0, 0.0)
    found, count = known
    stat = found[key]
    # Of a score that is measured on text it is not known which of the other records would have had one.
    assessed = stat.n if metric.measured else count - sum(stat.unassessed.values())
    return Stratum(name, calls, assessed, stat.n, stat.sum / stats.MICRO, stat.squares / stats.MICRO**2)
