"""What is done to text before it is compared."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.text import (
    ANYWHERE,
    claim_phrases,
    contains_phrase,
    fold,
    fold_lines,
    normalise_context,
    normalise_question,
)
from tests.support.oracle import own_facts as oracle

ASCII = st.text(st.characters(max_codepoint=127))
ANY = st.text(st.characters(exclude_categories=["Cs"]))

# --- folding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("الساعة ٧:١٥", "الساعة 7:15"),
        ("۱٬۲۵۰", "1,250"),
        ("१५ किमी", "15 किमी"),
        ("เวลา ๐๗:๑๕", "เวลา 07:15"),
        ("العَرَبِيَّة", "العربية"),
        ("ســـلام", "سلام"),
        ("שָׁלוֹם", "שלום"),
        ("צה״ל", 'צה"ל'),
        ("İstanbul IĞDIR", "istanbul ığdır"),
    ],
)
def test_digits_vowel_points_and_the_letters_of_turkish_make_no_difference(text, other):
    assert fold(text) == fold(other)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Röntgen", "röntgen"),
        ("Ro\u0308ntgen", "röntgen"),  # a mark after its letter
        ("STRASSE Straße", "strasse strasse"),
        ("\uff23\uff11\uff0e５", "c1.5"),  # full width
        ("ﬁve", "five"),  # a ligature
        ("ΣΊΣΥΦΟΣ σίσυφος", "σίσυφοσ σίσυφοσ"),
        ("½ m²", "1⁄2 m2"),
        ("ﾃｽﾄ", "テスト"),  # half width
        ("", ""),
    ],
)
def test_fold_makes_equal_what_reads_equal(text, folded):
    assert fold(text) == folded


@pytest.mark.parametrize(
    "written",
    [
        *("It’s 5 °C", "It‘s 5 °C", "It´s 5 °C", "It`s 5 °C", "Itʼs 5 °C", "IT'S\n5\t°C", "  It's  5 °C "),
        *("It\u00ad's 5\u202f°C", "\ufeffIt's\u200b 5 °C", "It's 5\u2060 °C\ufe0f", "\u202aIt's 5 °C\u202c"),
        *("**It's** 5 °C", "It's **5** °C", "_It's_ *5* °C", "~~It's~~ ***5 °C***", "`It's` 5 °C", "```It's 5 °C```"),
        *("[It's](https://example.org) 5 °C", 'It\'s [5 °C](/a_(b)_c "title")', "![It's](a.png) 5 °C", r"It\'s 5 °C"),
    ],
)
def test_typography_white_space_invisible_characters_and_markdown_make_no_difference(written):
    assert fold(written) == fold("It's 5 °C")


@pytest.mark.parametrize(
    ("written", "folded"),
    [
        ("2019–2020, 2019—2020, 2019−2020, 2019‑2020, 2019‒2020, 2019－2020", ", ".join(["2019-2020"] * 6)),
        ("“a” „a“ «a» 「a」 ″a″ ＂a＂", " ".join(['"a"'] * 6)),
        ("5*3*2 and 2**3**2", "5*3*2 and 2**3**2"),
        ("snake_case, __init__ and a * b * c", "snake_case, init and a * b * c"),
        ("* one\n* two", "* one * two"),
        ("**open", "**open"),
        ("**one\n\ntwo**", "**one two**"),  # emphasis ends with its paragraph
        ("这是**空**值，`null`值", "这是空值,null值"),
        ("[1](https://example.org) and [text][1]", "[1] and [text][1]"),  # a mark stays a mark
        (r"\[1\] costs \$5 \* 2", "[1] costs $5 * 2"),
    ],
)
def test_what_folding_keeps_apart(written, folded):
    assert fold(written) == folded


@given(st.text(st.characters(max_codepoint=0x2FF, exclude_characters="*_`~\\]\xad«»´ʹʻʼʽˮİı")))
def test_what_has_no_markdown_and_no_typography_is_folded_by_nfkc_and_casefold(text):
    assert fold(text).split() == unicodedata.normalize("NFKC", text).casefold().split()


@given(ANY)
def test_lines_fold_as_their_text_does(text):
    assert [fold(line) for line in text.splitlines() if fold(line)] == fold_lines(text).split("\n") * bool(
        fold_lines(text)
    )


@given(
    words=st.lists(st.text("abcé東 ", min_size=1, max_size=5).filter(str.strip), min_size=1, max_size=4), data=st.data()
)
def test_emphasis_around_words_makes_no_difference(words, data):
    marks = data.draw(
        st.lists(st.sampled_from(["*", "**", "***", "_", "`", "~~", ""]), min_size=len(words), max_size=len(words))
    )
    marked = " ".join(f"{mark}{word.strip()}{mark}" for mark, word in zip(marks, words, strict=True))
    assert fold(marked) == fold(" ".join(words))


# --- phrases in a claim -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "phrase"),
    [
        ("itv holds the rights", "itv"),
        ("the rights are with itv", "itv"),
        ("(itv)", "itv"),
        ("pre-itv era", "itv"),
        ("itv_plus", "itv"),  # an underscore belongs to no word
        ("in 12 days", "12"),
        ("12", "12"),
        ("us$50", "$50"),
        ("50%", "50%"),
        ("café au lait", "café"),
        ("situation, itu, itv", "itu"),  # the first place is inside a word, a later one is not
        ("aaaa aaa", "aaa"),
    ],
)
def test_a_short_phrase_is_found_where_it_stands_alone(claim, phrase):
    assert contains_phrase(fold(claim), fold(phrase))


@pytest.mark.parametrize(
    ("claim", "phrase"),
    [
        ("situation", "itu"),
        ("itvx", "itv"),
        ("xitv", "itv"),
        ("112", "12"),
        ("123", "12"),
        ("12th", "12"),
        ("x12", "12"),
        ("us$500", "$50"),
        ("cafés", "café"),
        ("Ärztekammer", "ärzt"),
        ("москва", "моск"),
        ("αβγδε", "αβγ"),
        ("रमा", "रम"),  # a vowel sign goes on with the word, though it is a mark and no letter
        ("q\u0307a", "q"),  # a letter whose mark has no composed form
        ("", "itv"),
        ("anything", ""),
    ],
)
def test_a_short_phrase_is_not_found_inside_a_longer_word(claim, phrase):
    assert not contains_phrase(fold(claim), fold(phrase))


@pytest.mark.parametrize(
    ("claim", "phrase"),
    [
        ("首都は東京です", "東京"),
        ("北京是中国的首都", "北京"),
        ("2008年8月に開催", "8月"),
        ("これはペンです", "ペン"),
        ("กรุงเทพเป็นเมืองหลวง", "เมือ"),
        ("ເມືອງຫຼວງ", "ເມືອ"),
        ("ရန်ကုန်မြို့", "ကုန်"),
        ("ភ្នំពេញ", "ពេញ"),
        ("itvは放送局", "itv"),  # the Latin word ends where the kana begin
        ("大きさ5cm", "5cm"),
        ("㐀㐁㐂", "㐁"),  # rare Han letters
        ("𠀀𠀁𠀂", "𠀁"),
        ("བོད་ཡིག", "བོད"),
        ("ꦗꦮ", "ꦮ"),
        ("ᥖᥭᥰ", "ᥭ"),
        ("ㄅㄆㄇ", "ㄆ"),
    ],
)
def test_scripts_without_spaces_have_no_boundaries(claim, phrase):
    assert len(fold(phrase)) < ANYWHERE
    assert contains_phrase(fold(claim), fold(phrase))


@pytest.mark.parametrize(
    ("claim", "phrase", "found"),
    [
        ("서울 시청", "서울", True),
        ("수도는 서울.", "서울", True),
        ("서울시청", "서울", False),
        ("한서울", "서울", False),
        ("수도는 서울입니다.", "서울", True),
        ("서울에서 떠난다", "서울", True),
        ("5:07에 출발합니다", "5:07", True),
        ("itv는 방송국", "itv", True),
        ("서울에서부산", "서울", False),
    ],
)
def test_korean_is_written_with_spaces_and_particles_join_its_words(claim, phrase, found):
    assert contains_phrase(fold(claim), fold(phrase)) is found


@pytest.mark.parametrize(
    ("claim", "phrase"),
    [
        *(("tighten it to 115 nm", "15 nm"), ("21,000", "1,000"), ("1,000,000", "1,000"), ("1,000,000", "000,000")),
        *(("12 hours", "2 hours"), ("410 eur", "10 eur"), ("v1.2.30", "v1.2.3"), ("v1.2.3.4", "v1.2.3")),
        *(
            ("119:30", "19:30"),
            ("52 weeks", "2 weeks"),
            ("0.5 percent", "5 percent"),
            ("12.5 km", "12"),
            ("12.50", "12.5"),
        ),
        *(
            ("rule 12.5", "rule 12"),
            ("٢١٥ نيوتن", "١٥ نيوتن"),
            ("第115条規定", "15条規定"),
            ("3.15 nm or 115 nm", "15 nm"),
        ),
    ],
)
def test_a_phrase_is_not_found_inside_a_longer_number(claim, phrase):
    assert not contains_phrase(fold(claim), fold(phrase))


@pytest.mark.parametrize(
    ("claim", "phrase"),
    [
        *(("tighten it to 15 nm.", "15 nm"), ("1,000, or more", "1,000"), ("in 2019, 2020 and 2021.", "2019")),
        *(("2 hours", "2 hour"), ("no.15 bolts", "15 bolts"), ("v1.2.3.", "v1.2.3"), ("2019-2020", "2019")),
        *(
            ("115 nm, then 15 nm", "15 nm"),
            ("at 19:30:45", "19:30"),
            ("第15条規定", "15条規定"),
            ("us$1,000", "$1,000"),
        ),
    ],
)
def test_a_number_is_found_where_it_stands_whole(claim, phrase):
    assert contains_phrase(fold(claim), fold(phrase))


@given(text=ANY, phrase=st.text(min_size=ANYWHERE, max_size=8))
def test_five_characters_without_a_digit_at_an_edge_match_where_python_finds_them(text, phrase):
    if not phrase[0].isdecimal() and not phrase[-1].isdecimal():
        assert contains_phrase(text, phrase) == (phrase in text)
        assert contains_phrase(text + phrase + text, phrase)


@given(text=st.text("12.,a ", max_size=12), phrase=st.text("12.,a ", min_size=1, max_size=7))
def test_a_phrase_of_any_length_is_found_where_the_oracle_finds_it(text, phrase):
    assert contains_phrase(text, phrase) == oracle.occurs(phrase, text)


@given(text=st.text("ab1 -é東", max_size=12), phrase=st.text("ab1 é東", min_size=1, max_size=4))
def test_a_short_phrase_is_a_find_of_python_with_boundaries(text, phrase):
    """The same by a regular expression: where an edge is of a spaced script, no such character may be beside it."""
    spaced = "[ab1é]"
    left = rf"(?<!{spaced})" if re.match(spaced, phrase[0]) else ""
    right = rf"(?!{spaced})" if re.match(spaced, phrase[-1]) else ""
    assert contains_phrase(text, phrase) == bool(re.search(f"{left}{re.escape(phrase)}{right}", text))


# --- phrases of a gold claim ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "phrases"),
    [
        ("X is a constrained mapping.", ("x is a constrained mapping",)),
        ("Denmark, Iceland & Norway (3 of 9)", ("denmark", "iceland", "norway", "3 of 9")),
        ("- state-of-the-art -", ("state-of-the-art -",)),
        ("two\nlines", ("two lines",)),
        ("a b c", ("a b c",)),
        ("ITV, BBC", ()),
        ("Röntgen's Straße", ("röntgen", "s strasse")),
        ("Москва", ("москва",)),
        ("北京是中国的首都", ("北京是中国的首都",)),
        ("हिन्दी भाषा", ("हिन्दी भाषा",)),
        ("snake_case", ("snake",)),
        ("...", ()),
        ("", ()),
    ],
)
def test_the_phrases_of_a_gold_claim_are_its_longest_runs(gold, phrases):
    assert claim_phrases(gold) == phrases


@given(ASCII)
def test_in_ascii_the_phrases_are_those_of_seed_002(text):
    runs = (run.strip() for run in re.findall(r"[a-z0-9][a-z0-9\-\s]{4,}", fold(text)))
    assert claim_phrases(text) == tuple(run for run in runs if len(run) >= 5)


@given(ANY)
def test_phrases_occur_in_their_own_gold_claim(text):
    for phrase in claim_phrases(text):
        assert contains_phrase(fold(text), phrase)


# --- questions as keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "key"),
    [
        ("What is X?", "what is x"),
        ("  what   IS\tx ", "what is x"),
        ("¿Qué es «X»?", "qué es x"),
        ("What is Röntgen's “unit”?", "what is röntgens unit"),
        ("What is Ro\u0308ntgen\u2019s unit…", "what is röntgens unit"),
        ("東京はどこですか？", "東京はどこですか"),
        ("C++ or C#", "c or c"),
        ("3 € – 5 €", "3 € 5 €"),
        ("?!", ""),
    ],
)
def test_questions_that_differ_in_case_punctuation_and_spaces_have_one_key(question, key):
    assert normalise_question(question) == key


@pytest.mark.slow
@given(ASCII)
def test_the_ascii_shortcut_makes_the_key_of_the_general_path(text):
    """A letter beyond ASCII forces the general path; the ASCII part of its key is the shortcut's."""
    assert normalise_question(f"é {text}") == f"é {normalise_question(text)}".strip()


@given(ANY)
def test_a_key_is_its_own_key(text):
    """Up to a second folding: some characters take two (the Greek iota subscript)."""
    key = normalise_question(text)
    assert normalise_question(normalise_question(key)) == normalise_question(key)


# --- contexts as seed 003 compares them -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "normalised"),
    [
        ("The A!!", ""),
        ("C++", "c"),
        ("C#", "c"),
        ("The C++  book, an old one", "c book old one"),
        ("Apple is founded before Google.", "apple is founded before google"),
        ("theatre, another", "theatre another"),
        ("the-end", "theend"),  # punctuation goes first, and with it the article's boundary
        ("“quoted”", "“quoted”"),  # only ASCII punctuation is dropped
        ("", ""),
    ],
)
def test_contexts_are_normalised_as_in_seed_003(context, normalised):
    assert normalise_context(context) == normalised


# --- combining marks --------------------------------------------------------------------------------------------------

ACUTE, DOT_BELOW, JOINER = "\u0301", "\u0323", "\u034f"


@given(
    st.text(
        st.sampled_from(
            ["a", "\u1e69", "\ufb01", "\u0958", ACUTE, DOT_BELOW, "\u0344", "\uff9e", "\U0001d165", "\u05d0"]
        ),
        max_size=90,
    )
)
def test_marks_are_compared_as_the_definition_says(text):
    """The oracle walks through the whole text; ragmon looks for long runs first."""
    assert fold(text) == oracle.fold(text)


def test_marks_that_look_alike_are_alike_up_to_thirty_in_a_row():
    assert fold("caf\u00e9") == fold(f"cafe{ACUTE}")
    assert fold("cafe") != fold("caf\u00e9")
    order = fold("e" + DOT_BELOW + ACUTE * 29)
    assert order == fold("e" + ACUTE * 29 + DOT_BELOW)
    assert fold("e" + ACUTE * 30 + DOT_BELOW) != fold("e" + DOT_BELOW + ACUTE * 30)


def test_a_joiner_stands_before_the_31st_mark_of_a_text_that_normalising_changes():
    assert fold("A" + ACUTE * 31) == "\u00e1" + ACUTE * 29 + JOINER + ACUTE
    assert fold("Q" + ACUTE * 31) == "q" + ACUTE * 31, "it has its normal form already"
