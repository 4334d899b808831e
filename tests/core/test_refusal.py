"""What counts as a refusal: the token exactly, other wordings by a matcher."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core import refusals
from ragmon.core.refusals import RefusalRule, languages
from ragmon.core.text import fold
from tests.support.examples import cases
from tests.support.refusal_report import read_list

REFUSALS = (
    "I don't have enough information to answer that question.",
    "I do not have any information about the warranty of that model.",
    "I don\u2019t have access to that document.",
    "I don't know.",
    "I do not know the answer based on the sources.",
    "Sorry, I don't know.",
    "I'm sorry, but I can't help with that.",
    "I am sorry, the manual says nothing about it.",
    "Unfortunately, I am unable to answer this from what I was given.",
    "Unfortunately, I cannot find the answer.",
    "My apologies, but nothing about this was retrieved.",
    "I apologize, but this is not something I can answer.",
    "I could not find any mention of a refund in the documents.",
    "I couldn\u2019t find that in the handbook.",
    "We did not find a matching document for your question.",
    "I can't answer that question with the context given.",
    "I cannot confirm whether the update was shipped.",
    "I\u2019m not able to determine the date from the passage.",
    "I'm not sure what the policy says about this.",
    "I am not aware of any such clause.",
    "The provided context does not mention the author's birthday.",
    "The documents don't explicitly state who signed the treaty.",
    "Based on the passages above, the text does not say.",
    "The search results do not contain an answer to this question.",
    "The context provided doesn\u2019t include the price.",
    "The context contains no information about penguins.",
    "The given sources make no mention of a second engine.",
    "The retrieved information is insufficient to answer.",
    "None of the documents discuss the 2019 merger.",
    "None of the provided passages answer the question.",
    "That is not covered in the provided documents.",
    "The answer isn't in the context.",
    "This question cannot be answered from the given text.",
    "The exact year can\u2019t be determined.",
    "The name of the architect is not mentioned.",
    "The release date was not specified.",
    "There is no information about opening hours.",
    "There\u2019s no mention of this in the article.",
    "There isn't enough information to say.",
    "No relevant information was found in the knowledge base.",
    "No documents were retrieved for this question.",
    "No answer found.",
    "Not mentioned in the text.",
    "Unanswerable.",
    "Unknown.",
    "N/A",
    "Insufficient context.",
    "It is unclear from the passage who won.",
    "It is not possible to determine this from the provided context.",
    "It's impossible to say without more context.",
    "Please provide more context so that I can help.",
    "I would need further details for that.",
    "Without additional context I would be guessing.",
    "Could you please clarify which model you mean?",
    "That question is outside the scope of this assistant.",
    "This goes beyond my knowledge.",
    "I'm afraid that is not something I can look up.",
    "I have no information on that.",
    "We lack the data to say.",
    "Information not available.",
    "There seems to be no mention of fees.",
    "This topic is not addressed.",
    "Not in context.",  # the token with a full stop: only the matcher finds it
)

ANSWERS = (
    "France",
    "The refund takes 14 days.",
    "No, the device is not waterproof.",
    "It does not support USB-C.",
    "The update does not include the new driver.",
    "You do not have to pay the fee.",
    "If you don't have a licence key, open the portal and request one.",
    "The pump is not available in Europe.",
    "It is not possible to charge two batteries at once.",
    "It is impossible to cross the river in winter.",
    "It is difficult to grow rice above 2,000 m.",
    "No, batteries are not included.",
    "There is no speed limit on this road.",
    "There is no evidence that it harms the engine.",
    "She said she was sorry and resigned in 1998.",
    'The song "Sorry Seems to Be the Hardest Word" was released in 1976.',
    "The company apologized in 2011.",
    "He was unable to attend the ceremony, so his son accepted the prize.",
    "Users who cannot log in should reset their password.",
    "The board could not agree on a successor.",
    "You need more memory for the larger model.",
    "More information is on page 12.",
    "Outside the city the limit is 100 km/h.",
    "Beyond the wall lies the old harbour.",
    "Not until 1920 did women vote in the United States.",
    "Nothing; the reaction is reversible.",
    "None of the above.",
    "None",
    "The Tomb of the Unknown Soldier",
    "As an AI language model, I do not have personal opinions, but the book sold two million copies.",
    "Knowledge of the context helps readers.",
    "The context switch takes about two microseconds.",
    "The document lists three requirements.",
    "The passage describes a storm at sea.",
    "According to the sources, the bridge opened in 1932.",
    "Further documents are filed every quarter.",
    "The answer is 42.",
    "The information desk is open from 9 to 5.",
    "Hard drives fail more often when they are hot.",
    "Lack of oxygen",
    "An insufficient supply of iron causes anaemia.",
    "The data could be read in 4 ms.",
    "He did not know that the door was open.",
    "We can say that the series converges.",
    "It's unclear writing that costs the most time, the style guide says.",
    "The clause was stated in the 1990 contract.",
    "Notes on the state of Virginia",
    "Can you hear the drums, Fernando?",
)

RULE = RefusalRule()


# --- the token --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claim", ["not in context", "  NOT IN CONTEXT \n", "\uff2eot in context", "Not\u00a0in context", "not in  context"]
)
def test_the_token_is_compared_after_folding(claim):
    assert RULE.kind(claim) == "token"


@pytest.mark.parametrize("claim", ["not in context.", "it is not in context", "", "in context"])
def test_anything_but_the_whole_token_is_none(claim):
    assert RULE.kind(claim) != "token"


def test_tokens_are_the_users_to_choose_and_folded_too():
    rule = RefusalRule(tokens=("Keine Angabe", " WEISS NICHT "))
    assert rule.kind("keine angabe") == rule.kind("wei\u00df nicht") == "token"
    assert rule.kind("not in context") == "wording"


# --- what wraps an answer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrapped",
    [
        *("{}", '"{}"', "\u201c{}\u201d", "'{}'", "**{}**", "_{}_", "`{}`", "[{}]", "({})"),
        *(
            "Answer: {}",
            "A: {}",
            "FINAL ANSWER: {}",
            "Assistant: {}",
            "**Answer:** {}",
            "Antwort: {}",
            "The answer: {}",
        ),
        *("Hmm, {}", "Uh... {}", "Well, {}", 'Answer: "{}"', "Answer:\n\n{}"),
        *('{{"answer": "{}"}}', '{{"answer": "{}", "citations": []}}', '["{}"]', '{{"result": {{"text": "{}"}}}}'),
        *('```json\n{{"answer": "{}"}}\n```', "```\n{}\n```"),
    ],
)
@pytest.mark.parametrize(("claim", "kind"), [("not in context", "token"), ("I don\u2019t know.", "wording")])
def test_a_refusal_is_looked_for_inside_what_wraps_the_answer(wrapped, claim, kind):
    assert RULE.kind(wrapped.format(claim)) == kind


@pytest.mark.parametrize(
    "answer",
    [
        "Well-known facts: it opened in 1932.",
        '{"answer": "At nine.", "note": "I don\'t know."}',
        '{"a": "x", "b": "I don\'t know."}',
    ],
)
def test_what_only_looks_like_a_wrapping_makes_no_refusal(answer):
    assert RULE.kind(answer) is None


# --- the matcher ------------------------------------------------------------------------------------------------------

SHIPPED_BY_FRAMEWORKS = (
    *("Empty Response", "Hmm, I'm not sure.", "I'm not sure.", "I dont know", "I don't know \U0001f615", "no_answer"),
    *(
        "[NO ANSWER]",
        "CANNOTANSWER",
        "Sorry! No relevant content was found in the knowledge base!",
        "I don't know.\nSOURCES:",
    ),
    "The answer you are looking for is not found in the knowledge base!",
    "We're sorry, we could not find an answer to your question.",
    "There is no relevant information in this workspace to answer your query.",
    "The requested information is not available in the retrieved data. Please try another query or topic.",
    "Sorry, I'm not able to provide an answer to that question.[no-context]",
    *(
        "知识库中未找到您要的答案！",
        "FINAL ANSWER: I don't know.\nSOURCES: N/A",
    ),
)
SCOPE = (
    *("I can only help with questions about billing.", "I only answer questions about our products.", "Out of scope."),
    *(
        "That is out of scope.",
        "This is outside my scope.",
        "Please contact support.",
        "Please contact our support team.",
    ),
    *("I'm only able to answer questions about the handbook.", "Your question is outside the scope of this assistant."),
)
POLICY = (
    *(
        "I cannot fulfill your request.",
        "I can't discuss that topic.",
        "I must decline to answer.",
        "I refuse to answer that.",
    ),
    *("I won't provide instructions for that.", "I'm not able to provide you with her home address."),
    *("It is not appropriate or ethical to share such data.", "I don't think it's appropriate to speculate about him."),
    "I apologize, but the question contains a harmful stereotype.",
)
NEGATIVE_FACTS = (
    "No, the files do not contain personal data.",
    "No, there is no information about salaries in the public files; it is kept by HR.",
    "No, none of the files contain passwords.",
    "None of the documents are required for EU citizens.",
    "It is not specified in advance; it is drawn by lot.",
    "The documentation does not cover Windows 7 because support ended in 2020.",
    "No, no hay datos personales en los documentos.",
    "いいえ、文書に個人情報は含まれていません。",
    "不,文件不包含个人数据。",
    "아니요, 문서에는 개인정보가 포함되어 있지 않습니다.",
    "I could not be happier to help: the office opens at 9.",
    "It is not appropriate to wear shoes in the temple.",
    "It is not safe to touch the wire.",
    "We cannot provide a refund after 30 days, so ask for store credit.",
    "We only provide breakfast until 10 am.",
    "Please contact support at 555-1234 between 9 and 5; a new card takes 3 days.",
)


def test_wordings_of_frameworks_and_of_scope_are_refusals():
    for claim in (*SHIPPED_BY_FRAMEWORKS, *SCOPE):
        assert RULE.kind(claim), claim


def test_a_refusal_because_of_a_policy_is_told_apart():
    for claim in POLICY:
        assert RULE.kind(claim) == "policy", claim
    for claim in (*REFUSALS, *SHIPPED_BY_FRAMEWORKS):
        assert RULE.kind(claim) in {"token", "wording", "policy"}, claim


def test_a_negative_fact_is_an_answer():
    for claim in NEGATIVE_FACTS:
        assert RULE.kind(claim) is None, claim


def test_behind_a_no_what_the_speaker_says_of_themselves_is_a_refusal():
    for claim in (
        "No, I don't have that information.",
        "No, sorry, I don't know.",
        "No, no tengo esa informaci\u00f3n.",
    ):
        assert RULE.kind(claim), claim


def test_refusals_in_other_words_are_found():
    for claim in REFUSALS:
        assert RULE.kind(claim), claim


def test_answers_are_no_refusals():
    for claim in ANSWERS:
        assert not RULE.kind(claim), claim


def test_only_the_window_is_read():
    claim = fold("Thank you for your question about the lake. " * 3 + "I don't know.")
    assert not RefusalRule(window=60).kind(claim)
    assert RefusalRule(window=len(claim)).kind(claim)


@pytest.mark.parametrize(
    ("claim", "refuses"),
    [
        ("I don't have live data.", True),
        ("I don't have live data. However, in 2021 the city had 545,000 inhabitants.", False),
        ("I don't have live data. However, you can check the city's website.", True),
        ("The documents do not say. They do mention a second bridge, however.", True),
        ("The lake is 40 m deep. The documents do not mention its age.", False),
        ("Thanks for asking. The documents do not mention its age.", True),
        ("The lake is 40 m deep, but the documents do not mention its age.", False),
        ("If the documents do not mention an age, enter 0.", False),
        ("Although I read all of it, the documents do not mention its age.", True),
        ('"I don\'t know" is "je ne sais pas" in French.', False),
    ],
)
def test_an_answer_before_or_behind_an_opening_a_condition_and_quotes_take_it_back(claim, refuses):
    assert (RULE.kind(claim) is not None) == refuses


def test_a_thread_of_the_application_hears_the_same_of_an_answer_as_it_was_given():
    for rule in [
        RefusalRule(**how)
        for how in ({}, {"window": 60}, {"patterns": ["^nope"]}, {"patterns": ["^nope"], "replace": True})
    ]:
        for claim in [*REFUSALS, *ANSWERS, "Das weiss ich leider nicht.", "\ud83d nope", "Nope", "わかりません。"]:
            for given_text in (claim, f"  {claim}\n"):
                assert rule.refuses(given_text) == (rule.kind(claim) is not None), (rule, claim)


def test_a_thread_of_the_application_hears_of_no_refusal_where_words_do_not_count():
    assert not any(RefusalRule(matcher_counts=False).refuses(claim) for claim in REFUSALS)


def test_no_patterns_in_place_of_the_shipped_ones_switch_the_matcher_off():
    rule = RefusalRule(replace=True)
    assert not any(map(rule.kind, REFUSALS))


@pytest.mark.parametrize("replace", [False, True])
def test_own_patterns_match_beside_the_shipped_wordings_or_in_their_place(replace):
    rule = RefusalRule(patterns=[r"\bkeine angaben?\b", r"^leider\b"], replace=replace)
    assert rule.kind("Dazu gibt es KEINE ANGABEN.") == "wording"
    assert rule.kind("Leider steht das nirgends.") == "wording"
    assert (rule.kind("I don't know.") is None) == replace


def test_a_custom_pattern_that_happens_to_hold_no_default_trigger_still_matches():
    assert RefusalRule(patterns=["zzz"]).kind("zzz") == "wording"


# --- the shortcut -----------------------------------------------------------------------------------------------------

WORDS = sorted(
    {word for claim in (*REFUSALS, *ANSWERS) for word in fold(claim).split()}
    | {"insufficient", "lacks", "silent", "without", "hardly", "n\u2019t", "can not", "additional", "rephrase", "none"}
)
ENGLISH = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)
CLAIMS = st.one_of(st.sampled_from(REFUSALS), st.sampled_from(ANSWERS), ENGLISH)


ALL_LANGUAGES = st.sampled_from(
    [answer.answer for name in ("handmade", "later") for answer in read_list(f"{name}.jsonl")]
)


@cache
def plain(language):
    """All openings of a language in one expression, to be searched everywhere."""
    if not language.is_spaced:
        return language.opening()
    found = language.openings
    at_start, anywhere = (
        "|".join(f"(?:{one})" for heads, one in found if ("^" in heads) == first) or "(?!)" for first in (True, False)
    )
    return re.compile(rf"\b(?=\w)(?:^(?:{at_start})|{anywhere})")


@pytest.mark.slow
@given(
    claim=st.one_of(CLAIMS, ALL_LANGUAGES),
    before=st.sampled_from(["", "Thanks. ", "Unfortunately, "]),
    change=st.sampled_from([str, str.upper, str.title, lambda text: text.replace("'", "\u2019")]),
    window=st.sampled_from([10, 40, 120]),
)
def test_looking_only_where_a_trigger_word_stands_never_changes_the_verdict(claim, before, change, window):
    """The matcher says what a search for all openings of all languages says, whatever the case and the window."""
    folded = fold(change(before + claim))
    start = folded[: window + refusals.REACH]
    every = any(language.refuses(plain(language).finditer(start, 0, window), start) for language in languages())
    assert (RefusalRule(window=window).kind(folded) is not None) == every


def openings():
    return st.sampled_from([(language, opening) for language in languages() for _, opening in language.openings])


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=cases(600))
def test_every_opening_is_found_at_one_of_its_heads_and_before_a_trigger(data):
    """Texts made from the patterns themselves, every alternative of them: the same spans as by a plain search."""
    language, opening = data.draw(openings())
    start = data.draw(st.from_regex(opening, alphabet=st.characters(categories=("L", "M", "N", "Zs", "Po"))))[
        : RULE.window
    ]
    expected = [match.span() for match in plain(language).finditer(start, 0, RULE.window)]
    if not language.is_spaced:
        assert not expected or any(trigger in start for trigger in language.triggers)
        return
    spaced = refusals.spaced_words(start)
    words = spaced.split()
    last = max((index for index, word in enumerate(words) if word in language.triggers), default=-1)
    found = language.find_openings(start, RULE.window, f" {spaced} ", words[: last + 1])
    assert [match.span() for match in found] == expected


@given(ENGLISH)
def test_both_apostrophes_mean_the_same(claim):
    assert RULE.kind(claim.replace("\u2019", "'")) == RULE.kind(claim.replace("'", "\u2019"))
