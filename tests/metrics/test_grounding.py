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
        ("東京都庁", ["東京", "京都", "都庁"]),
        ("서울에서 3번", ["서울", "울에", "에서", "3", "번"]),
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


# --- scripts without spaces -------------------------------------------------------------------------------------------

LANGUAGES = {
    "Japanese": (
        "用紙は305番です。",
        "手続き5の用紙は305番です。写真を持参してください。",
        "写真は白黒ではなく天然色に限る。",
    ),
    "Chinese": ("渡轮九点出发。", "夏季渡轮九点出发，冬季十点出发。", "儿童半价，狗免费乘坐。"),
    "Thai": ("เรือออกเก้าโมง", "ในฤดูร้อนเรือออกเก้าโมง", "ตั๋วขายที่ท่าเรือเหนือ"),
    "Khmer": ("សំបុត្រលក់នៅច្រាំង", "សំបុត្រលក់នៅច្រាំងខាងជើង", "កុមារបានពាក់កណ្តាលតម្លៃ"),
    "Burmese": ("လှေက ကိုးနာရီထွက်သည်", "နွေရာသီမှာ လှေက ကိုးနာရီထွက်သည်", "ကလေးများ တစ်ဝက်ဈေး"),
    "Korean": ("여객선은 아홉 시에 출발합니다.", "여름에는 여객선이 아홉 시에 출발합니다.", "어린이는 반값이다."),
    "mixed": ("フェリーはpier 7から9時に出る", "夏のフェリーはpier 7から9時に出る。", "切符は北の桟橋で売る。"),
}


@pytest.mark.parametrize(("claim", "context", "other"), LANGUAGES.values(), ids=LANGUAGES)
def test_an_answer_taken_from_its_context_is_grounded_in_every_script(claim, context, other):
    """Korean loses what joins a word to another particle."""
    assert groundedness(claim, [context]) >= 0.85
    assert groundedness(claim, [other]) <= 0.3


def test_of_inflected_languages_words_in_another_form_are_not_found():
    """The docs say so: Finnish here, where two of three words of the answer stand in the context as they are."""
    assert groundedness("Lautta lähtee laiturista", ["Lautta lähtee kello yhdeksän laiturilta."]) == pytest.approx(
        2 / 3
    )


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
