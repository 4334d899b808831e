"""The words of an answer in its contexts: the native core finds those that plain Python finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.text import READ
from ragmon.metrics.grounding import TokenCache, content_words, groundedness
from ragmon.native.overlap import words_found
from tests.support.both_paths import core
from tests.support.native_core import needs_native

pytestmark = needs_native
WORDS = st.sampled_from(["ferry", "FERRY", "nine", "ferryman", "7", "the", "Straße", "東京", "_", "\x00", "ﬁ", "İ"])
GAPS = st.sampled_from([" ", "", "_", "\n", ".", "'", "\x1c", "\x85", " "])
TEXTS = st.lists(st.tuples(WORDS, GAPS), max_size=12).map(lambda parts: "".join(map("".join, parts)))


def both(claim, contexts):
    """The share by plain Python and by the native core."""
    shares = []
    for on in (False, True):
        with core(on=on):
            shares.append(groundedness(claim, contexts, TokenCache(0)))
    return shares


@given(claim=TEXTS | st.text(max_size=30), contexts=st.lists(TEXTS | st.text(max_size=30), max_size=4))
def test_both_paths_find_the_same_share(claim, contexts):
    plain, native = both(claim, contexts)
    assert plain == native


@given(
    st.text(st.characters(max_codepoint=127), max_size=200),
    st.lists(st.text(st.characters(max_codepoint=127), max_size=200), max_size=3),
)
def test_ascii_texts_are_the_cores(claim, contexts):
    words = content_words(claim)
    known = {word for context in contexts for word in TokenCache(0).words(context)}
    assert words_found(words, contexts) == sum(word in known for word in words)


def test_a_text_in_another_script_is_pythons():
    assert words_found(["ferry"], ["a ferry", "café"]) is None


@pytest.mark.parametrize("rest", ["ferry", "nine"])
def test_what_a_cut_text_leaves_unread_is_unknown_on_both_paths(rest):
    assert both("ferry nine", ["nine", "x " * READ + rest]) == [None, None]
    assert both("nine nine", ["nine", "x " * READ + rest]) == [1.0, 1.0]


def test_an_answer_of_many_words_is_counted_without_squares():
    """Words that nobody finds cost as little as others, however many there are: twice 13,000 words meet here."""
    claim, context = (" ".join(f"{letter}{n}" for n in range(9000)) for letter in "ab")
    assert both(claim, [context]) == [0.0, 0.0]
