"""Gold items in windows: their scores give what adding them one by one gives."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.constants import IGNORABLE
from ragmon.metrics.base import Metric, build
from ragmon.scoring.buckets import ItemTable, Series, SeriesKey
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import ItemWindows, Window
from ragmon.stats.histograms import MICRO

TABLE = ScoreTable(build())
KEYS = st.tuples(
    st.integers(0, 2**30),
    st.integers(1, 3),
    st.integers(1, 12),
    st.lists(st.integers(1, 12), max_size=4, unique=True).map(tuple),
    *[st.just(())] * 3,
)
ITEMS = st.dictionaries(st.sampled_from("abcd"), st.dictionaries(KEYS, st.integers(1, 9), min_size=1), max_size=4)
EVERYTHING = Window("all", None, 0.0)


def one_by_one(table, items, metric):
    """The oracle: plain sums of the scores of each item, and how many items have the same."""
    place, found = list(table.metrics).index(metric), Counter()
    for facts in items.values():
        scores = [(table.scores(key)[place], n) for key, n in facts.items()]
        known = [(score, n) for score, n in scores if isinstance(score, int)]
        unknown = sum(n for score, n in scores if isinstance(score, str) and score not in IGNORABLE)
        if known or unknown:
            total = sum(score * n for score, n in known)
            found[sum(n for _, n in known), total / MICRO, unknown] += 1
    return dict(found)


def read(windows, items):
    series = Series()
    series.past_items = ItemTable(sum(sum(facts.values()) for facts in items.values()), items)
    windows.read({SeriesKey("p", "probe", "gold", "1"): series}, [EVERYTHING])
    return windows.clusters((0, "all"))


@given(items=ITEMS)
def test_every_metric_has_the_sums_of_its_scores(items):
    gated = [name for name, metric in TABLE.metrics.items() if not metric.measured]
    found = read(ItemWindows(TABLE, gated), items)
    assert found == {name: one_by_one(TABLE, items, name) for name in gated}


class OutOfRange(Metric):
    """A registered metric that breaks the law: its scores lie outside of [0, 1]."""

    name = "out_of_range"
    factor = 1.0

    def score(self, facts):
        return self.factor * (facts.retrieved - 3)


@pytest.mark.parametrize("factor", [1.0, -2.5, 1e9, -1e30, 1e300])
def test_a_metric_that_breaks_the_law_is_added_up_without_harm_to_others(factor):
    table = ScoreTable({**build(), "out_of_range": type("Scaled", (OutOfRange,), {"factor": factor})()})
    flags = 1 << 22
    items = {
        qid: {(flags, 0, n, (), (), (), ()): n, (flags, 1, n + 1, (1,), (), (), ()): 2}
        for n, qid in enumerate("abc", 1)
    }
    gated = ["out_of_range", "coverage", "recall@5"]
    found = read(ItemWindows(table, gated), items)
    assert found == {name: one_by_one(table, items, name) for name in gated}
