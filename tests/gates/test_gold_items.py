"""Gold items: what counts as right, which items are hardest, which flipped since when, and how many do so by chance."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.gold_item import ANSWERABLE, GOLD, HAS_GOLD_IDS
from ragmon.gates.history import item_findings, oldest
from ragmon.metrics.facts import CITATIONS_MISSING, HITS, OUTCOME_UNKNOWN, REFUSED, SHIPPED, Facts
from ragmon.scoring.snapshot import ItemPoint, is_right
from ragmon.stats.intervals import flip_chance, tail_chance

CAN = GOLD | ANSWERABLE | HAS_GOLD_IDS


@pytest.mark.parametrize(
    ("flags", "right"),
    [
        (CAN | SHIPPED | HITS, True),
        (CAN | SHIPPED, False),
        (CAN | REFUSED, False),
        (CAN, False),
        (GOLD | REFUSED, True),
        (GOLD | SHIPPED, False),
        (CAN | SHIPPED | CITATIONS_MISSING, None),
        (GOLD | ANSWERABLE | SHIPPED, None),
        (GOLD | ANSWERABLE | REFUSED, False),
        (CAN | OUTCOME_UNKNOWN, None),
    ],
)
def test_an_answer_is_right_wrong_or_not_known(flags, right):
    assert is_right(tuple(Facts(flags))) is right


def point(begin, right=0, wrong=0, unknown=0, length=10):
    return ItemPoint(begin, begin + length, right, wrong, unknown)


def test_the_hardest_items_come_first_and_of_equal_ones_the_most_asked():
    points = {
        "sure": [point(0, right=9)],
        "half": [point(0, right=2, wrong=2)],
        "never once": [point(0, wrong=1)],
        "never": [point(0, wrong=3), point(10, wrong=2)],
        "dark": [point(0, unknown=4)],
    }
    found = item_findings(points, 100, 2)
    assert [(item.qid, item.right, item.judged) for item in found.hardest] == [("never", 0, 5), ("never once", 0, 1)]
    assert (found.wrong, found.spread) == (3, (1, 1, 2, 1))
    assert found.spread.asked == len(points)


def test_an_item_flips_where_its_majority_turns_and_the_time_is_that_of_the_turn():
    points = {
        "broke": [point(0, 3), point(10, 2, 1), point(20, 0, 2), point(30, 1, 1), point(40, 0, 3)],
        "mended": [point(0, 0, 2), point(40, 2)],
        "noisy": [point(0, 3, 2), point(40, 2, 1)],
        "tied": [point(0, 2), point(40, 1, 1)],
        "only now": [point(40, 0, 3)],
    }
    found = item_findings(points, 30, 10)
    assert [(flip.qid, flip.broke, flip.since, flip.until) for flip in found.flips] == [
        ("broke", True, 20, 30),
        ("mended", False, 40, 50),
    ]
    assert (found.flipped, found.broke, found.compared) == (2, 1, 4)


def test_answers_of_several_series_in_one_step_are_one_point_and_answers_without_a_time_are_in_no_span():
    points = {"q": [point(40, 0, 1), point(0, 1), point(40, 0, 2), ItemPoint(-1, -1, 0, 7)]}
    (flip,) = item_findings(points, 30, 10).flips
    assert flip.points == [point(0, 1), point(40, 0, 3)]
    assert (flip.before.judged, flip.after.judged) == (1, 3)
    assert oldest(points.values()) == 0


def test_more_flips_than_are_wanted_are_counted_and_what_chance_explains_least_is_shown():
    points = {f"q{k}": [point(0, k), point(40, 0, 1 + k % 2)] for k in range(1, 31)}
    found = item_findings(points, 30, 20)
    assert (len(found.flips), found.flipped, found.broke) == (20, 30, 30)
    assert {flip.qid for flip in found.flips[:2]} == {"q29", "q27"}


def by_counting(right, n, later, holds):
    """The share of all choices of the later part for which something holds of its right answers."""
    answers = [True] * right + [False] * (n - right)
    found = [holds(sum(answers[k] for k in chosen)) for chosen in combinations(range(n), later)]
    return float(Fraction(sum(found), len(found)))


@given(st.data())
def test_the_chance_of_a_flip_is_that_of_all_choices_counted(data):
    n = data.draw(st.integers(2, 10))
    right, later = data.draw(st.integers(0, n)), data.draw(st.integers(1, n - 1))
    turned = by_counting(right, n, later, lambda k: (2 * k - later) * (2 * (right - k) - n + later) < 0)
    assert flip_chance(right, n, later) == pytest.approx(turned, abs=1e-9)
    seen = data.draw(st.integers(max(0, later - n + right), min(right, later)))
    falls = seen * n <= right * later
    tail = by_counting(right, n, later, lambda k: k <= seen if falls else k >= seen)
    assert tail_chance(right, n, later, seen) == pytest.approx(tail, abs=1e-9)


def test_as_many_items_flip_in_a_world_without_change_as_chance_says():
    rng = random.Random(7)
    points = {
        f"q{k}": [point(10 * step, right := int(rng.random() < 0.6), 1 - right) for step in range(12)]
        for k in range(3000)
    }
    found = item_findings(points, 80, 1)
    assert found.flipped == pytest.approx(found.by_chance, rel=0.1)
    assert found.flipped > 300
