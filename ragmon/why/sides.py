"""What the requests before a change and those after it came to."""

from __future__ import annotations

from collections.abc import Mapping

from ragmon import stats
from ragmon.core import constants
from ragmon.core.policy import Outcome
from ragmon.metrics.facts import Key
from ragmon.scoring.calls import by_stratum
from ragmon.scoring.counts import Row, Table, add_counts, add_table
from ragmon.scoring.score_table import ScoreTable, Stat, weighted
from ragmon.scoring.snapshot import FEW, SLACK, item_sums
from ragmon.scoring.windows import SeriesKey
from ragmon.stats.strata import Estimate
from ragmon.why.levels import added
from ragmon.why.look import Look
from ragmon.why.measures import Measure, Metric
from ragmon.why.model import Side, Stage, Times

REQUESTS = "requests"
GOLD_ITEMS = "gold items"


class Half:
    """The rows on one side of a cut.

    Args:
        look: What is looked at.
        begin, end: The stretch of time, seconds since the epoch.

    Attributes:
        rows: What each series of audit members counted.
        whole: All of them together.
    """

    def __init__(self, look: Look, begin: float, end: float) -> None:
        self.look = look
        self.begin, self.end = begin, end
        self.rows: dict[SeriesKey, Row] = look.merged(look.keys, begin, end)
        self.whole = Row()
        for row in self.rows.values():
            self.whole.merge(row)
        self._stats: dict[Measure, Stat] = {}

    def stat(self, measure: Measure) -> Stat:
        """A measure over all requests of this side."""
        if measure not in self._stats:
            self._stats[measure] = added(measure.of(key, row) for key, row in self.rows.items())
        return self._stats[measure]

    def failing(self, measure: Measure) -> dict[Key, int]:
        """The requests that break the gate, by facts; empty where their scores are not known one by one."""
        if not isinstance(measure, Metric) or measure.metric.measured:
            return {}
        scores = ((key, n, measure.score(key)) for key, n in self.whole.cells.items())
        return {key: n for key, n, score in scores if score is not None and not measure.keeps(score)}

    def side(self, measure: Measure, outcome: Outcome, table: ScoreTable) -> Side:
        """What is said of this side."""
        stat, steps = self.stat(measure), [s for s in self.look.steps.items() if self.begin <= s[0] < self.end]
        begin, end = min(steps, default=(self.begin, 0))[0], max((s[1] for s in steps), default=self.end)
        unassessed = self._unassessed(measure)
        found, of, calls = self._estimate(measure, outcome, table, stat)
        one_by_one = [measure.passed(key, row) for key, row in self.rows.items()]
        known = [pair for pair in one_by_one if pair is not None]
        complete = len(known) == len(one_by_one)
        return Side(
            begin=float(begin),
            end=float(end),
            value=found.value,
            lower=found.lower if found.value is not None else None,
            upper=found.upper if found.value is not None else None,
            n=found.n,
            of=of,
            records=self.whole.count,
            scored=stat.n,
            passed=sum(good for good, _ in known) if complete else None,
            failed=sum(bad for _, bad in known) if complete else None,
            unassessed=unassessed,
            outside=self.whole.count - stat.n - sum(unassessed.values()),
            per_minute=60 * (calls or self.whole.count) / max(1.0, end - begin),
        )

    def _unassessed(self, measure: Measure) -> dict[str, int]:
        found: dict[str, int] = {}
        for key, row in self.rows.items():
            add_counts(found, measure.of(key, row).unassessed)
        return found

    def _estimate(self, measure: Measure, outcome: Outcome, table: ScoreTable, stat: Stat) -> tuple[Estimate, str, int]:
        """The value as the gate has it, what its interval is for, and how many calls there were where that is known."""
        if outcome.source == constants.LIVE and not outcome.gate.where and self.look.reads.gold is None:
            calls, rows = self._calls()
            total = sum(calls.values())
            if total and len({*calls, *rows}) > 1 and isinstance(measure, Metric):
                only = ScoreTable({measure.name: table.metrics[measure.name]})
                return weighted(rows, calls, only)[measure.name], constants.ALL_CALLS, total
            return stat.estimate, REQUESTS, total
        if outcome.estimand == constants.QUESTIONS_LIKE_THESE and isinstance(measure, Metric):
            clusters = self._clusters(table, measure.name)
            if sum(n for n, _ in clusters) == stat.n > 0:
                lower, upper, n_eff = stats.clustered(clusters)
                return Estimate(stat.value, lower, upper, stat.n, n_eff, 0.0, float(stat.n), ()), GOLD_ITEMS, 0
        return stat.estimate, REQUESTS, 0

    def _calls(self) -> tuple[Mapping[str, int], Mapping[str, Row]]:
        """All calls of user traffic by stratum, none where some producer tells nothing, and what was kept of them."""
        rows: dict[str, Row] = {}
        kept = [key for key in self.look.every if not key.slice and key.stratum != constants.UNKNOWN_WEIGHT]
        for key, row in self.look.merged(kept, self.begin, self.end).items():
            rows.setdefault(key.stratum, Row()).merge(row)
        calls = by_stratum(
            self.look.state.calls.since(self.begin, self.end), self.look.reads.pipeline, self.look.reads.source
        )
        if sum(row.count for row in rows.values()) > SLACK * sum(count.kept for count in calls.values()) + FEW:
            return {}, rows
        return {stratum: count.calls for stratum, count in calls.items()}, rows

    def _clusters(self, table: ScoreTable, metric: str) -> list[tuple[int, float]]:
        """`(n, sum of scores)` of every gold item, as far as its steps are still fresh."""
        items: Table = {}
        for key in self.look.keys:
            for found in self.look.state.series[key].items.window(self.begin, self.end, hours=False):
                add_table(items, found)
        place = list(table.metrics).index(metric)
        sums = (item_sums(table, facts, place) for facts in items.values())
        return [(n, total / stats.MICRO) for n, total in sums if n]


def stages(before: Half | None, after: Half) -> tuple[Stage, ...]:
    """How long every stage took on both sides."""
    return tuple(
        Stage(name, _times(before, name), _times(after, name))
        for name in constants.STAGES
        if after.whole.latency.get(name)
    )


def _times(half: Half | None, stage: str) -> Times:
    histogram = {} if half is None else half.whole.latency.get(stage, {})
    return Times(sum(histogram.values()), stats.quantile(histogram, 0.5), stats.quantile(histogram, 0.95))
