"""How many refusals in plain words are found, and how few answers are taken for one.

The lists and their labels are explained in `tests.support.refusal_report`.
"""

from __future__ import annotations

import pytest

from ragmon.core.refusals import RefusalRule
from tests.support.refusal_report import SYSTEMS, is_refusal, measure, read_list, read_system, report

HANDMADE, LATER, HEDGED = read_list("handmade.jsonl"), read_list("later.jsonl"), read_list("hedged.jsonl")
LANGUAGES = sorted({answer.language for answer in HANDMADE})
PRECISION, RECALL = 0.99, 0.90
FACT = "the bridge was opened in 1932."
RULE = RefusalRule()


def test_the_list_is_of_ten_languages_and_half_refusals():
    assert len(HANDMADE) == 500
    assert {answer.language for answer in LATER} == set(LANGUAGES)
    for language in LANGUAGES:
        labels = [answer.refusal for answer in HANDMADE if answer.language == language]
        assert (len(labels), sum(labels)) == (50, 25), language
    assert len({answer.answer for answer in (*HANDMADE, *LATER)}) == len(HANDMADE) + len(LATER)


@pytest.mark.parametrize("language", LANGUAGES)
def test_refusals_of_a_language_are_found_and_its_answers_are_not(language):
    for answers in (HANDMADE, (*HANDMADE, *LATER)):
        counts = measure(answer for answer in answers if answer.language == language)
        assert counts.precision >= PRECISION
        assert counts.recall >= RECALL


def test_refusals_are_found_in_the_whole_list_and_in_the_third_that_was_held_out():
    held_out = [answer for answer in HANDMADE if answer.held_out]
    assert len(held_out) == 160
    for answers in (HANDMADE, held_out, LATER):
        counts = measure(answers)
        assert counts.precision >= PRECISION
        assert counts.recall >= RECALL


def test_refusals_and_negative_facts_of_nineteen_more_languages_are_told_apart():
    """The list was written when the patterns found all of `tests/data/styles`."""
    counts = measure(read_list("further.jsonl"))
    assert counts.answers + counts.found + counts.missed == 184
    assert counts.precision >= PRECISION
    assert counts.recall >= RECALL


def test_an_answer_that_hedges_is_an_answer_and_a_hedge_without_one_a_refusal():
    counts = measure(HEDGED)
    assert (counts.answers, counts.found + counts.missed) == (177, 45)
    assert counts.false <= 0.04 * counts.answers
    assert counts.recall >= 0.85


@pytest.mark.parametrize("language", LANGUAGES)
def test_hedges_of_every_language_are_heard(language):
    counts = measure(answer for answer in HEDGED if answer.language == language)
    assert counts.answers >= 8
    assert counts.false <= counts.answers / 16


@pytest.mark.slow
def test_right_answers_of_a_real_system_stay_answers_behind_every_hedge(shared):
    """Hedges before what people called right; nothing follows that would make it a refusal."""
    hedges = [answer.answer for answer in HEDGED if not answer.refusal and answer.answer.endswith(FACT)]
    answers = [answer.answer for answer in read_system(shared, "qaeval/traces/fid")][:200]
    flagged = sum(is_refusal(RULE, hedge.removesuffix(FACT) + answer) for hedge in hedges for answer in answers)
    assert len(hedges) >= 20
    assert flagged <= 0.1 * len(hedges) * len(answers)


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_real_answers_are_hardly_ever_taken_for_refusals(shared, system):
    """Recall on ChatGPT's answers without documents is lower: most of what is missed talks on after a disclaimer."""
    counts = measure(read_system(shared, system))
    assert counts.false <= counts.answers / 2000
    if counts.found + counts.missed:
        assert counts.precision >= PRECISION
        assert counts.recall >= (0.75 if system.endswith("chatgpt") else RECALL)


def test_the_report_has_a_row_for_every_language_and_list():
    rows = {row.split("  ")[0].strip() for row in report(None)}
    assert rows >= {*LANGUAGES, "handmade", "handmade, held-out third", "later", "hedged"}
