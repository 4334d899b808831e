"""What the native core does for single requests is what plain Python does: words of an answer, the extent of a body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.text import READ
from ragmon.ingest.otlp import batch
from ragmon.ingest.otlp.batch import LOGS, POINTS, SPANS
from ragmon.metrics.grounding import TokenCache, content_words, groundedness
from ragmon.native.live import Extent, ExtentLimits, LayoutNumbers, extent_of, words_found
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


TAGS = st.integers(0, 15).map(lambda number: number << 3)
SIZES = st.sampled_from(
    [b"\x00", b"\x02", b"\x07", b"\x7f", b"\x80\x01", b"\xff" * 9 + b"\x7f", b"\xff" * 10, b"\x80" * 9 + b"\x01"]
)
PIECES = (
    st.builds(lambda tag, size: bytes([tag | 2]) + size, TAGS, SIZES)
    | st.builds(lambda tag, kind: bytes([tag | kind]), TAGS, st.sampled_from([0, 1, 3, 4, 5, 6, 7]))
    | st.binary(max_size=6)
)
LEAVES = st.lists(PIECES, max_size=6).map(b"".join)


def field(number, content):
    """A field that holds bytes."""
    size, told = len(content), b""
    while size >= 0x80:
        told, size = told + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([number << 3 | 2]) + told + bytes([size]) + content


BODIES = st.recursive(
    LEAVES,
    lambda inner: st.lists(st.builds(field, st.integers(1, 15), inner) | LEAVES, max_size=5).map(b"".join),
    max_leaves=25,
)


@given(body=BODIES, layout=st.sampled_from([SPANS, LOGS, POINTS]), most=st.sampled_from([1, 3, 50_000]))
def test_the_extent_of_any_bytes_is_pythons(body, layout, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "MAX_MESSAGES", most)
        extents = []
        for on in (False, True):
            with core(on=on):
                extents.append(batch._extent(body, layout))
    assert extents[0] == extents[1]


def test_messages_in_messages_are_followed_as_deep_as_in_python():
    body = b""
    for _ in range(400):
        body = field(5, field(1, body))
    body = field(1, field(2, field(2, field(9, field(2, body)))))
    with core(on=False):
        expected = batch._extent(body, SPANS)
    assert batch._extent(body, SPANS) == expected == Extent(1, exceeds=False)


def test_a_layout_that_makes_no_sense_is_named():
    with pytest.raises(ValueError, match=r"layout \[9, 0\]"):
        extent_of(b"", LayoutNumbers([9, 0]), ExtentLimits(1, 1, 1, 1))
