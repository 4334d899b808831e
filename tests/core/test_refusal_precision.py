"""How many refusals in plain words are found, and how few answers are taken for one.

The lists and their labels are explained in `tests.support.refusal_report`.
"""

from __future__ import annotations

import pytest

from tests.support.refusal_report import SYSTEMS, measure, read_list, read_system, report

HANDMADE, LATER = read_list("handmade.jsonl"), read_list("later.jsonl")
LANGUAGES = sorted({answer.language for answer in HANDMADE})
PRECISION, RECALL = 0.99, 0.90


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
    assert rows >= {*LANGUAGES, "handmade", "handmade, held-out third", "later"}
