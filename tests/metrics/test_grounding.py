"""Groundedness: the share of an answer's words that occur in the retrieved contexts."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.text import fold
from ragmon.metrics.builtin import (
    STOP_WORDS,
    Groundedness,
    GroundedRate,
    TokenCache,
    content_words,
    groundedness,
    words,
)
from ragmon.monitor.replay import replay

WORDS = ("ferry", "Ferry", "nine", "the", "leaves", "a", "7", "42", "Röntgen", "straße", "STRASSE", "東京", "of")
TEXTS = st.lists(st.sampled_from([*WORDS, ",", "-", "_", "x_7"]), max_size=12).map(" ".join)
CONTEXTS = st.lists(TEXTS, max_size=5)

# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("BM25 ranks, doesn't it?", ["bm25", "ranks", "doesn", "t", "it"]),
        ("snake_case 3.14", ["snake", "case", "3", "14"]),
        ("Röntgen's Straße", ["röntgen", "s", "strasse"]),
        ("Москва–Сочи", ["москва", "сочи"]),
        ("東京、大阪", ["東京", "大阪"]),
        ("ｎｕｌｌ", ["null"]),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_and_digits_of_every_script(text, found):
    assert words(text) == found


@given(st.text(st.characters(max_codepoint=127)))
def test_the_ascii_shortcut_finds_the_same_words(text):
    assert words(text) == re.findall("[a-z0-9]+", text.lower())


def test_stop_words_and_single_characters_carry_no_meaning():
    assert content_words("The cat is on a mat, at 7 or 42") == ["cat", "mat", "42"]


def test_stop_words_are_folded_words():
    assert all(words(word) == [word] for word in STOP_WORDS)


# --- the score --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "contexts", "score"),
    [
        ("The ferry leaves at nine", ["A ferry leaves daily."], Fraction(2, 3)),
        ("The ferry leaves at nine", ["A ferry leaves daily.", "At nine sharp"], 1),
        ("The ferry leaves at nine", ["nothing"], 0),
        ("The ferry leaves at nine", [], 0),
        ("ferry ferry ferry nine", ["ferry"], Fraction(3, 4)),  # the answer's repetitions count
        ("ferry nine", ["ferry ferry ferry"], Fraction(1, 2)),  # the context's do not
        ("ferry", ["ferryman"], 0),  # words, not parts of words
        ("RÖNTGEN STRASSE", ["Röntgen, Straße"], 1),
        ("Ro\u0308ntgen", ["Röntgen"], 1),
        ("東京、大阪", ["大阪"], Fraction(1, 2)),
        ("the of 7 a", ["the of 7 a"], None),
        ("…", ["…"], None),
        ("", ["ferry"], None),
    ],
)
def test_groundedness_by_hand(claim, contexts, score):
    found = groundedness(claim, contexts)
    assert found == (None if score is None else pytest.approx(float(score)))


@given(claim=TEXTS, contexts=CONTEXTS)
def test_groundedness_is_the_share_of_the_multiset(claim, contexts):
    """By its definition: answer tokens found in the contexts over answer tokens."""
    known = {word for text in contexts for word in re.findall(r"[^\W_]+", fold(text))}
    wanted = [w for w in re.findall(r"[^\W_]+", fold(claim)) if len(w) > 1 and w not in STOP_WORDS]
    expected = sum(word in known for word in wanted) / len(wanted) if wanted else None
    assert groundedness(claim, contexts) == expected


@given(claim=TEXTS, contexts=CONTEXTS, more=TEXTS)
def test_one_context_more_never_lowers_it(claim, contexts, more):
    before, after = groundedness(claim, contexts), groundedness(claim, [*contexts, more])
    assert (before is None) == (after is None)
    assert before is None or before <= after


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(claims=st.lists(st.tuples(TEXTS, CONTEXTS), max_size=8), capacity=st.integers(0, 60))
def test_a_cache_of_any_size_changes_nothing(claims, capacity):
    cache = TokenCache(capacity)
    assert [groundedness(*pair, cache) for pair in claims] == [groundedness(*pair, TokenCache(0)) for pair in claims]


@given(contexts=st.lists(st.text(max_size=30), max_size=60), capacity=st.integers(0, 100))
def test_the_cache_holds_no_more_text_than_it_may(contexts, capacity):
    cache = TokenCache(capacity)
    for context in contexts:
        cache.words(context)
        assert sum(map(len, cache._sets)) <= capacity


def test_contexts_seen_before_are_not_read_again():
    cache = TokenCache()
    again = "a ferry leaves, " * 2
    assert cache.words("a ferry leaves, a ferry leaves, ") is cache.words(again)


def test_the_newest_contexts_survive_when_the_cache_is_full():
    cache = TokenCache(100)
    kept = {number: cache.words(f"context {number:02}") for number in range(20)}  # 10 characters each
    assert cache.words("context 19") is kept[19]
    assert cache.words("context 00") is not kept[0]


def test_one_huge_context_does_not_empty_the_cache():
    cache = TokenCache(100)
    kept = cache.words("a ferry leaves")
    cache.words("x" * 1000)
    assert cache.words("a ferry leaves") is kept


# --- the metrics ------------------------------------------------------------------------------------------------------


def record(claim, contexts, **fields):
    return {"answer_json": {"claim": claim, "citations": []}, "contexts": contexts, **fields}


def test_the_metrics_are_means_over_shipped_answers_with_text():
    """Refusals are in no denominator; an answer whose contexts were not captured is unassessed, never 0."""
    report = replay(
        [
            record("ferry nine", ["ferry"]),
            record("ferry nine", ["ferry nine"]),
            record("ferry nine", []),
            record("not in context", ["ferry"]),
            record("ferry nine", None),
            record("the of", ["ferry"]),
            record("ferry", ["ferry"], error="timeout"),
        ]
    )
    stat = report.metric(Groundedness.name)
    assert (stat.value, stat.n, dict(stat.unassessed)) == (pytest.approx(0.5), 3, {"no_text": 2})
    rate = report.metric(GroundedRate.name)
    assert (rate.value, rate.n, dict(rate.unassessed)) == (pytest.approx(2 / 3), 3, {"no_text": 2})
