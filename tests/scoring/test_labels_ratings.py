"""What several people say of one answer, in whatever order their words arrive."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.record import Label
from ragmon.scoring.ratings import (
    CHANGED,
    CONFLICT,
    DUPLICATE,
    EVICTED,
    JOINED,
    LARGEST_ANSWER,
    LATE,
    MAX_ANSWERS,
    MAX_BYTES,
    ORPHAN,
    TOO_MANY_RATINGS,
    TTL,
    Consensus,
    LabelStore,
    Raters,
    Rating,
    consensus,
    raters_of,
)
from tests.support.saved import saved

TRACE = "5a" * 16
LARGE = 100_000
"""Bytes that a large label takes at least, as it is saved."""


def label(rater="ada", trace_id=TRACE, **said):
    return Label(trace_id=trace_id, rater=rater, **said)


def large(number, rater="ada"):
    """A label on an answer of its own that names a thousand documents."""
    return label(rater, f"{number:032x}", relevant_ids=[f"{n:0100}" for n in range(LARGE // 100)], ts=0.0)


labels = st.builds(
    label,
    rater=st.sampled_from(["ada", "bob", "eve"]),
    ts=st.integers(0, 3).map(float),
    correct=st.none() | st.booleans() | st.sampled_from([0.25, 0.5]),
    answerable=st.none() | st.booleans(),
    relevant_ids=st.none() | st.lists(st.sampled_from("abc"), max_size=3),
)


def verdict(said):
    raters = {}
    for one in said:
        if (one.correct, one.answerable, one.relevant_ids) != (None, None, None):
            raters.setdefault(one.rater, Rating()).apply(one, one.ts)
    return consensus(raters.values())


@given(st.lists(labels, max_size=8), st.randoms(use_true_random=False))
def test_the_order_in_which_labels_arrive_plays_no_part_and_neither_does_hearing_them_twice(said, chance):
    shuffled = [*said, *said[: len(said) // 2]]
    chance.shuffle(shuffled)
    assert verdict(shuffled) == verdict(said)


@given(st.lists(labels, max_size=8))
def test_the_last_word_of_each_rater_counts_and_each_has_one_vote(said):
    """An oracle that sorts all words, where `Rating` keeps the last."""
    last = {}
    for one in sorted(said, key=lambda one: (one.ts, float(one.correct or 0))):
        if one.correct is not None:
            last[one.rater] = float(one.correct)
    expected = sum(last.values()) / len(last) if last else None
    assert verdict(said).correct == (None if expected is None else pytest.approx(expected))


def test_two_raters_who_say_the_opposite_make_half_an_answer_and_no_question():
    said = [label("ada", correct=True, answerable=True, ts=1.0), label("bob", correct=False, answerable=False, ts=1.0)]
    assert verdict(said) == Consensus(correct=0.5, answerable=None, relevant_ids=None)


def test_a_document_is_relevant_where_at_least_half_of_those_who_name_any_say_so():
    said = [
        label(name, relevant_ids=ids, ts=0.0) for name, ids in (("ada", ["a", "b"]), ("bob", ["b"]), ("eve", ["c"]))
    ]
    assert verdict(said).relevant_ids == ("b",)
    assert verdict(said[:2]).relevant_ids == ("a", "b")


class TestBook:
    """Every label is counted under exactly one result."""

    def test_the_first_word_on_an_answer_is_told_and_later_ones_are_not(self):
        book = LabelStore()
        assert book.apply(label(correct=True), 100.0) == Consensus(correct=1.0)
        assert book.apply(label("bob", correct=True), 101.0) is None
        assert book.results == {JOINED: 2}

    @pytest.mark.parametrize(
        ("before", "then", "result"),
        [
            (label(correct=True, ts=5.0), label(correct=True, ts=6.0), DUPLICATE),
            (label(correct=True, ts=5.0), label(correct=False, ts=6.0), CHANGED),
            (label(correct=True, ts=5.0), label(correct=False, ts=4.0), LATE),
            (label(correct=True, ts=5.0), label(answerable=True, ts=4.0), JOINED),
            (label(correct=True, ts=5.0), label("bob", correct=False, ts=6.0), CONFLICT),
            (label(correct=True, ts=5.0), label("bob", correct=True, ts=6.0), JOINED),
            (label(correct=1.0, ts=5.0), label(correct=True, ts=5.0), DUPLICATE),
        ],
    )
    def test_what_becomes_of_a_second_label_depends_on_the_first(self, before, then, result):
        book = LabelStore()
        book.apply(before, 10.0)
        book.apply(then, 10.0)
        assert book.results[result] == (2 if result == JOINED else 1)
        assert book.results.total() == 2

    @pytest.mark.parametrize("ahead", [9e9, 75.0])
    def test_a_clock_that_is_ahead_does_not_have_the_last_word_for_ever(self, ahead):
        book = LabelStore()
        book.apply(label(correct=True, ts=ahead), 10.0)
        book.apply(label(correct=False), 11.0)
        assert book.results == {JOINED: 1, CHANGED: 1}

    def test_a_clock_that_is_a_little_ahead_is_believed(self):
        """Two labels that come together keep their order."""
        book = LabelStore()
        book.apply(label(correct=True, ts=15.0), 10.0)
        book.apply(label(correct=False, ts=14.0), 10.0)
        assert book.results == {JOINED: 1, LATE: 1}

    def test_a_label_waits_for_its_trace_and_is_an_orphan_when_that_never_comes(self):
        book = LabelStore()
        book.add_pending(label(correct=True), 0.0)
        book.add_pending(label(trace_id="b" * 32, correct=True), 30.0)
        book.expire(TTL + 1.0)
        assert (book.results[ORPHAN], book.pending) == (1, 1)
        assert [one.trace_id for one in book.take("b" * 32)] == ["b" * 32]
        assert book.pending == 0

    @pytest.mark.slow
    def test_labels_without_traces_cannot_fill_the_memory(self):
        book = LabelStore()
        for n in range(MAX_ANSWERS + 10):
            book.add_pending(label(trace_id=f"{n:032x}", correct=True), 0.0)
        assert (book.results, book.pending) == ({EVICTED: 10}, MAX_ANSWERS)

    def test_large_labels_without_traces_cannot_fill_the_memory_either(self):
        book, n = LabelStore(), MAX_BYTES // LARGE
        for number in range(n):
            book.add_pending(large(number), 0.0)
        assert 0 < book.results[EVICTED] == n - book.pending
        assert MAX_BYTES / 2 < len(msgspec.msgpack.encode(book)) < MAX_BYTES

    @pytest.mark.slow
    def test_many_large_words_are_not_all_remembered_and_each_label_has_a_result(self):
        book, n = LabelStore(), 2 * MAX_BYTES // LARGE
        for number in range(n):
            assert book.apply(large(number), 0.0) is not None
        assert book.results == {JOINED: n}
        assert len(msgspec.msgpack.encode(book)) < MAX_BYTES
        book.apply(large(n - 1), 1.0)
        book.apply(large(0), 1.0)
        assert book.results == {JOINED: n + 1, DUPLICATE: 1}, "the oldest was forgotten, the newest was not"

    def test_on_one_answer_only_so_much_is_said(self):
        book = LabelStore()
        for number in range(20):
            book.apply(large(0, f"rater {number}"), 0.0)
        heard = book.results[JOINED]
        assert 1 < heard <= LARGEST_ANSWER // LARGE
        assert book.results == {JOINED: heard, TOO_MANY_RATINGS: 20 - heard}
        book.apply(large(0, "rater 0"), 0.0)
        assert book.results[DUPLICATE] == 1

    @pytest.mark.slow
    def test_room_is_given_back(self):
        book = LabelStore()
        for week in range(3):
            at = week * (TTL + 1.0)
            book.expire(at)
            for number in range(MAX_BYTES // LARGE // 2):
                book.add_pending(large(number), at)
                book.apply(large(-1 - number), at)
            for number in range(MAX_BYTES // LARGE // 2):
                assert len(book.take(large(number).trace_id)) == 1
            book = saved(book)
        assert not book.results[EVICTED]

    def test_what_was_said_long_ago_is_forgotten(self):
        book = LabelStore()
        book.apply(label(correct=True), 0.0)
        book.expire(TTL + 1.0)
        assert book.apply(label(correct=True), TTL + 2.0) == Consensus(correct=1.0)

    def test_a_book_goes_on_where_it_was_and_keeps_nobodys_comment(self):
        book = LabelStore()
        book.apply(label(correct=True, ts=5.0, comment="rude words"), 10.0)
        book.add_pending(label(trace_id="b" * 32, correct=False, comment="rude words"), 10.0)
        again = saved(book)
        assert "rude" not in str(again)
        again.apply(label(correct=True, ts=6.0), 20.0)
        assert again.results == {JOINED: 1, DUPLICATE: 1}
        assert again.pending == 1


def test_raters_are_counted_with_the_answers_they_share_and_how_far_they_agree():
    store = LabelStore()
    said = [
        ("1", "ada", {"correct": True, "answerable": True}),
        ("1", "bob", {"correct": True}),
        ("2", "ada", {"correct": True, "relevant_ids": ["a", "b"]}),
        ("2", "bob", {"correct": False, "relevant_ids": ["b", "a"]}),
        ("3", "eve", {"answerable": False}),
    ]
    for trace_id, rater, judgement in said:
        store.apply(label(rater, trace_id, **judgement), 100.0)
    store.apply(label("ada", "4", correct=True), 50.0)
    assert raters_of(store.rated(since=100.0)) == Raters(3, 3, 2, 1, {"correct": (2, 1), "relevant_ids": (1, 1)})
    assert raters_of(LabelStore().rated(0.0)) == Raters()


def test_a_rater_who_changes_their_mind_disagrees_no_longer():
    store = LabelStore()
    for rater, correct, ts in (("ada", True, 1.0), ("bob", False, 2.0), ("bob", True, 3.0)):
        store.apply(label(rater, correct=correct, ts=ts), 10.0)
    assert raters_of(store.rated(0.0)) == Raters(1, 2, 1, 0, {"correct": (1, 1)})
