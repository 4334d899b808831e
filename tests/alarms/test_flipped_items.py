"""Gold items that were right and are wrong now page at once, however lately they were asked; one alone does not."""

from __future__ import annotations

import random
from statistics import median

import pytest

from ragmon.alarms.pipelines import AlarmEngine
from ragmon.config.load import defaults
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Record
from ragmon.ingest.gold import GoldSet
from ragmon.scoring.scorer import ScorerFactory
from tests.support.alarming import NOON

USUAL = 0.02
"""The share of wrong answers on a good day."""
WARM = 180
"""Minutes in which baselines are learned."""


class Users:
    """Users who ask questions that match gold items, none of them in a session."""

    def __init__(self, items, seed, *, popular=False):
        answerable = (
            GoldItem(f"a{n}", f"What is {n}?", True, claim_substrings=["right"], citations=["d1"])
            for n in range(items * 5 // 6)
        )
        self.gold = GoldSet(
            "gold", (*answerable, *(GoldItem(f"u{n}", f"Who is {n}?", answerable=False) for n in range(items // 6)))
        )
        self._rng, self._number = random.Random(seed), 0
        self._weights = [1 / (place + 1) if popular else 1 for place in range(len(self.gold.items))]
        plan = ScorerFactory(defaults(), (self.gold,))
        table = plan.table()
        self.alarms = AlarmEngine(defaults(), table)
        self._scorer = plan(table=table, observers=[self.alarms.steps])
        self.minute = 0

    def ask(self, rate, wrong=USUAL, *, only=None):
        """A minute of questions; the pages that follow, by alarm."""
        for place in range(rate):
            item = only or self._rng.choices(self.gold.items, self._weights)[0]
            share = wrong.get(item.qid, USUAL) if isinstance(wrong, dict) else wrong
            is_right, self._number = self._rng.random() >= share, self._number + 1
            says = Answer("that is right", ["d1"]) if is_right == item.answerable else Answer("not in context", [])
            ts = 60.0 * (NOON + self.minute) + 60 * place / rate
            trace = f"{self._number:032x}"
            ids = ["d1", "d2"]
            self._scorer.observe(
                Record(ts=ts, trace_id=trace, source="live", q=item.question, retrieved_ids=ids, answer_json=says)
            )
        self.minute += 1
        edges = self.alarms.advance(60.0 * (NOON + self.minute))
        return [edge.alert for edge in edges if (edge.severity, edge.state) == ("page", "firing")]


def delay(items, rate, wrong, seed, *, warm=WARM):
    """The minutes from a fault until the first page."""
    users = Users(items, seed)
    assert not [alert for _ in range(warm) for alert in users.ask(rate)]
    return next(minute for minute in range(1, 60) if users.ask(rate, wrong))


@pytest.mark.parametrize(("items", "rate", "most"), [(36, 10, 3), (200, 10, 3), (36, 160, 2)])
@pytest.mark.parametrize("since", [0, 4, 8])
def test_all_wrong_pages_within_minutes_whatever_was_asked_ten_minutes_ago(items, rate, most, since):
    assert delay(items, rate, 1.0, seed=since, warm=WARM + since) <= most


def test_all_wrong_pages_also_before_anything_is_learned():
    assert delay(36, 160, 1.0, seed=1, warm=3) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [0.2, 0.3])
def test_answers_that_are_right_by_chance_are_no_flip_before_that_is_learned(wrong):
    """The first answers were right by chance as well. Gates say that the pipeline is bad, alarms not that it broke."""
    for seed in range(20):
        users = Users(36, seed)
        assert not [a for _ in range(55) for a in users.ask(60, wrong) if a.endswith(":flipped")]


@pytest.mark.parametrize(("items", "most"), [(200, 10), (36, 20)])
def test_half_of_them_wrong_pages_within(items, most):
    assert median(delay(items, 10, 0.5, seed) for seed in range(5)) <= most


@pytest.mark.parametrize("rate", [1, 20])
def test_a_crowd_that_asks_one_broken_question_all_night_pages_nobody(rate):
    users = Users(36, 1)
    for _ in range(WARM):
        users.ask(10)
    (broken,) = (item for item in users.gold.items if item.qid == "a7")
    pages = [alert for _ in range(8 * 60) for alert in users.ask(rate, {"a7": 1.0}, only=broken)]
    assert "answer_precision:flipped" not in pages
    assert "over_refusal_rate:flipped" not in pages


@pytest.mark.slow
@pytest.mark.parametrize("popular", [False, True])
def test_healthy_days_with_a_night_page_nobody(popular):
    users = Users(36, 3, popular=popular)
    pages = [alert for minute in range(2 * 1440) for alert in users.ask(1 if minute % 1440 > 960 else 12)]
    assert pages == []
