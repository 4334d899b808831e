"""What readers read: the metrics of every series and window at one moment, immutable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from ragmon.gold.sets import GoldInfo
from ragmon.metrics.facts import Key
from ragmon.scores import ScoreTable, Stat
from ragmon.stats.strata import Estimate

ALL: Final = "all"
"""The window that holds everything counted so far."""


@dataclass(frozen=True)
class SeriesStats:
    """One series over one window.

    Attributes:
        pipeline, source, slice: Which requests.
        gold, gold_version: Which gold set; "" for all requests.
        window: Its name, `all` for everything.
        metrics: By metric key.
        latency: By stage, log-bucket counts of milliseconds.
        clusters: For gated metrics of a gold set, `(n, sum of scores)` of every gold item; those that are measured on
            the text are not kept item by item.
        traced: How many distinct gold items were seen.
        records: How many records were counted.
        end: Where the window ends, seconds since the epoch, when windows at several moments stand side by side.
        estimates: For user traffic whose calls were all counted, the metrics over all of them, weighted by stratum;
            elsewhere empty. `metrics` counts audit members alone.
        of: For user traffic, what its numbers are of: all calls, or exported traffic where nobody counted all.
    """

    pipeline: str
    source: str
    gold: str
    gold_version: str
    window: str
    slice: str
    metrics: Mapping[str, Stat]
    latency: Mapping[str, Mapping[int, int]]
    clusters: Mapping[str, Sequence[tuple[int, float]]]
    traced: int
    records: int
    end: int | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    of: str = ""

    def estimate(self, metric: str) -> Estimate:
        """A metric with its interval: over all calls where they are known, else over the audit members."""
        weighted = self.estimates.get(metric)
        return weighted if weighted is not None else self.metrics[metric].estimate


@dataclass(frozen=True)
class Snapshot:
    """Everything readers may ask at one moment.

    Attributes:
        now: When it was taken, seconds since the epoch.
        series: All series in all windows.
        golds: The gold sets in use.
        builds: `(pipeline, build, index_hash)` seen, in the order of their names.
        gold_metrics: The metrics that need a gold item.
        maturity: Of labels by the time of their answers, by pipeline: the share of those to come that is here, where
            it is known.
        matched: Audit members of user traffic that have a gold item, by pipeline and how it was found.
        gone: Over all time, the series of pipelines that were given up, together: for sums that name no pipeline.
    """

    now: float
    series: tuple[SeriesStats, ...]
    golds: tuple[GoldInfo, ...] = ()
    builds: tuple[tuple[str, str, str], ...] = ()
    gold_metrics: frozenset[str] = frozenset()
    maturity: Mapping[str, float] = field(default_factory=dict)
    matched: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gone: tuple[SeriesStats, ...] = ()

    def find(
        self, pipeline: str, source: str, *, window: str = ALL, gold: str | None = "", where: str = ""
    ) -> SeriesStats | None:
        """The series with these labels.

        Args:
            pipeline: Whose requests.
            source: Of which source.
            window: The window's name.
            gold: The gold set; "" for all requests, None for the gold set that has the most records.
            where: The slice.

        Returns:
            The series, None where there is none; of a gold set that is in use only its present version.
        """
        versions = {gold.name: gold.version for gold in self.golds}
        found = [
            s
            for s in self._places.get((pipeline, source, window, where), ())
            if (s.gold == gold if gold is not None else s.gold != "")
            and s.gold_version == versions.get(s.gold, s.gold_version)
        ]
        return max(found, key=lambda s: s.records, default=None)

    @cached_property
    def _places(self) -> Mapping[tuple[str, str, str, str], Sequence[SeriesStats]]:
        """The series by pipeline, source, window and slice."""
        found: dict[tuple[str, str, str, str], list[SeriesStats]] = {}
        for one in self.series:
            found.setdefault((one.pipeline, one.source, one.window, one.slice), []).append(one)
        return found


def item_sums(table: ScoreTable, facts: Mapping[Key, int], place: int) -> tuple[int, int]:
    """How often an item is in a metric's denominator, and the sum of its scores there, in micro-units.

    Args:
        table: The metrics.
        facts: What was seen of the item.
        place: The metric's place in the table.
    """
    scored = [(score, n) for key, n in facts.items() if isinstance(score := table.scores(key)[place], int)]
    return sum(n for _, n in scored), sum(score * n for score, n in scored)
