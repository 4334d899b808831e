"""Single gold items: which are the hardest, and which have changed sides since when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.gates.gold_items import RECENT, GoldItems, ItemCount, ItemStretch, add, flips

NOW = 100 * 3600.0
counts = st.integers(0, 20).flatmap(lambda asked: st.builds(ItemCount, st.just(asked), st.integers(0, asked)))


def stretch(hours_ago, **items):
    return ItemStretch(NOW - 3600.0 * hours_ago, {qid: ItemCount(*count) for qid, count in items.items()})


def test_an_item_that_began_to_fail_has_flipped_since_its_first_failing_stretch():
    over_time = [
        stretch(0.25, a=(4, 4)),
        stretch(5, a=(10, 0), b=(3, 0)),
        stretch(0.75, a=(4, 3)),
        stretch(0.5, a=(2, 0)),
        stretch(0.1, b=(1, 0)),
    ]
    (flip,) = flips(over_time, NOW)
    assert (flip.qid, flip.fails, flip.before, flip.after) == ("a", True, ItemCount(10, 0), ItemCount(10, 7))
    assert flip.since == NOW - 900, "the stretch before it was answered"


def test_what_fails_now_comes_before_what_is_answered_again():
    over_time = [stretch(3, a=(2, 2), b=(2, 0), c=(2, 0)), stretch(0.5, a=(2, 0), c=(2, 2)), stretch(0.2, b=(2, 2))]
    assert [(flip.qid, flip.fails) for flip in flips(over_time, NOW)] == [("b", True), ("c", True), ("a", False)]


def test_an_item_that_was_not_asked_in_both_spans_has_not_flipped():
    assert flips([stretch(3, a=(2, 2)), stretch(0.5, b=(2, 0))], NOW) == []


@pytest.mark.parametrize("hours_ago", [RECENT / 3600 + 0.1, RECENT / 3600 - 0.1])
def test_the_last_hour_is_compared_with_everything_before(hours_ago):
    found = flips([stretch(30, a=(9, 0)), stretch(hours_ago, a=(4, 4)), stretch(0.01, a=(1, 1))], NOW)
    assert [flip.after for flip in found] == [ItemCount(1, 1) if hours_ago > 1 else ItemCount(5, 5)]


items_asked = st.dictionaries(st.text(max_size=3), counts.filter(lambda count: count.asked > 0), max_size=30)


@given(items_asked, st.integers(0, 9))
def test_the_hardest_items_have_the_highest_shares_and_have_failed(items, most):
    hardest = GoldItems("p", "probe", "main", "v", items).hardest(most)
    shares = [count.failed / count.asked for _, count in hardest]
    assert shares == sorted(shares, reverse=True)
    assert all(count.failed for _, count in hardest)
    left = [count.failed / count.asked for qid, count in items.items() if qid not in dict(hardest)]
    assert len(hardest) == min(most, sum(count.failed > 0 for count in items.values()))
    assert not shares or max(left, default=0.0) <= shares[-1] or len(hardest) < most


@given(st.lists(st.dictionaries(st.sampled_from("abc"), counts), max_size=5))
def test_stretches_add_up_in_any_order(parts):
    assert add(parts) == add(reversed(parts))
    assert sum(count.asked for count in add(parts).values()) == sum(c.asked for part in parts for c in part.values())
