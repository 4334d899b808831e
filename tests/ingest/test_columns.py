"""Names of columns: what is known, what is ambiguous, what the user maps."""

from __future__ import annotations

import pytest

from ragmon.core.errors import InputError, UnknownNameError
from ragmon.ingest.tables import GOLD, TRACE, assign, parse_map, suggestion

SHAPES = {
    "ragas": "user_input response retrieved_contexts retrieved_context_ids",
    "older ragas": "question answer contexts",
    "deepeval": "input actual_output retrieval_context",
    "langsmith": "inputs.question outputs.answer",
    "phoenix": "attributes.input.value attributes.output.value",
    "langfuse": "input output",
    "camel case": "userInput actualOutput",
    "words with spaces": "User Question|Bot Answer|Docs",
    "plain words": "user_question bot_answer sources",
}


def columns_of(text):
    return text.split("|") if "|" in text else text.split()


@pytest.mark.parametrize("name", SHAPES)
def test_question_and_answer_are_known_in_every_shape(name):
    columns = columns_of(SHAPES[name])
    assigned = assign(columns, TRACE, {})
    assert (assigned["question"], assigned["answer"]) == (columns[0], columns[1])
    assert set(assigned.values()) == set(columns)


@pytest.mark.parametrize(
    ("columns", "field", "column"),
    [
        ("user_input reference", "gold_claim", "reference"),
        ("question ground_truth", "gold_claim", "ground_truth"),
        ("question ground_truths", "gold_claim", "ground_truths"),
        ("input expected_output context", "gold_contexts", "context"),
        ("user_input reference_context_ids", "gold_ids", "reference_context_ids"),
        ("user_input reference_contexts", "gold_contexts", "reference_contexts"),
    ],
)
def test_what_is_right_is_known_by_the_names_of_ragas_and_deepeval(columns, field, column):
    assert assign(columns.split(), GOLD, {})[field] == column


def test_two_columns_of_one_field_are_an_error_that_names_both_and_the_flag():
    with pytest.raises(InputError) as caught:
        assign(["question", "response", "bot_answer"], TRACE, {})
    assert "`response` and `bot_answer`" in str(caught.value)
    assert "--map answer=response" in caught.value.hint


def test_a_mapping_settles_which_of_two_it_is():
    assert assign(["question", "response", "bot_answer"], TRACE, {"answer": "bot_answer"})["answer"] == "bot_answer"


def test_a_column_that_is_there_twice_is_ambiguous_only_where_it_is_needed():
    assert assign(["question", "note", "note", "answer"], TRACE, {}) == {"question": "question", "answer": "answer"}
    with pytest.raises(InputError, match="several columns are called 'answer'"):
        assign(["answer", "answer"], TRACE, {})


def test_a_general_word_yields_to_a_name_that_means_one_thing():
    """`input` and `output` are also numbers of tokens; `context` is also a channel."""
    assigned = assign(["question", "input", "response", "output", "retrieved_contexts", "context"], TRACE, {})
    assert assigned == {"question": "question", "answer": "response", "contexts": "retrieved_contexts"}


def test_the_context_of_deepeval_is_gold_and_not_what_was_retrieved():
    assert "contexts" not in assign(["input", "actual_output", "context"], TRACE, {})


def test_tags_are_columns_with_their_prefix():
    assert assign(["answer", "tags.lang"], TRACE, {"tags.team": "answer"}) == {
        "tags.team": "answer",
        "tags.lang": "tags.lang",
    }


def test_an_empty_column_leaves_a_field_unread():
    assert assign(["answer", "timestamp"], TRACE, {"ts": ""}) == {"answer": "answer"}


def test_a_mapped_column_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(InputError) as caught:
        assign(["a", "b"], TRACE, {"answer": "c"})
    assert str(caught.value) == "there is no column for answer: 'c'"
    assert caught.value.hint == "its columns: a, b"


@pytest.mark.parametrize("text", ["answer", "answer=a,,question=q", "answer=a,answer=b"])
def test_a_mapping_is_pairs_each_field_once(text):
    with pytest.raises(InputError):
        parse_map(text, TRACE)


def test_a_field_that_does_not_exist_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError) as caught:
        parse_map("anwser=a", TRACE)
    assert caught.value.hint == "did you mean answer?"


def test_the_suggested_mapping_names_columns_that_look_like_the_field():
    assert suggestion(["Frage", "final_answer", "n"], TRACE, ("question", "answer")) == (
        "--map question=COLUMN,answer=final_answer"
    )
