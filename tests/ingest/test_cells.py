"""Cells: what is absent, and lists that are written in one cell."""

from __future__ import annotations

import datetime as dt
import decimal
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.ingest.cells import CellError, is_absent
from ragmon.ingest.tables import (
    USUAL,
    as_answer,
    as_error,
    as_flag,
    as_ids,
    as_names,
    as_phrases,
    as_question,
    as_texts,
    plain,
    value_of,
)


@pytest.mark.parametrize(
    ("cell", "ids"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("['a', 'b']", ["a", "b"]),
        ("['a' 'b']", ["a", "b"]),  # as numpy prints an array
        ("['a'\n 'b']", ["a", "b"]),
        ("[a, b]", ["a", "b"]),
        ("a|b", ["a", "b"]),
        ("a; b;", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("a, b", ["a", "b"]),
        ("a#1,  b#2, c", ["a#1", "b#2", "c"]),
        ("a,b", ["a,b"]),
        ("Smith, J. 2020.pdf", ["Smith, J. 2020.pdf"]),
        ("Smith,2020; Ng,2021", ["Smith,2020", "Ng,2021"]),
        ("one id", ["one id"]),
        ("[]", []),
        ("[1, 2]", ["1", "2"]),
        (7.0, ["7"]),
        (["a", 3], ["a", "3"]),
    ],
)
def test_ids_of_a_cell(cell, ids):
    assert as_ids(cell, None) == ids


@pytest.mark.parametrize(
    "cell",
    [
        "('a', 'b')",
        "(u'a', 'b')",
        "{'a', 'b'}",
        "['a', nan, 'b']",
        "['a' nan 'b']",
        "[<NA>, 'a', 'b']",
        '["a", null, "b"]',
        "array(['a', 'b'], dtype=object)",
        "Index(['a', 'b'], dtype='object')",
        "deque(['a', 'b'], maxlen=3)",
        "[np.str_('a'), np.str_('b')]",
        "[['a', 'b']]",
        "{a,b}",
        '{"a","b",NULL}',
        '{"a",b}',
        "- a\n- b",
        "* a\n* b\n",
        "• a\n• b",
        "1. a\n2. b",
        "0) a\n1) b",
        "[1] a\n[2] b",
        "'a', 'b'",
        '"a","b"',
        '{"0": "a", "1": "b"}',
    ],
)
def test_a_list_is_read_as_the_program_wrote_it_that_filled_the_cell(cell):
    assert as_ids(cell, None) == ["a", "b"]


@pytest.mark.parametrize(
    ("cell", "ids"),
    [
        ("('a',)", ["a"]),
        ("{}", []),
        ("set()", []),
        ("- a", ["a"]),
        ("[my file.pdf, b.pdf]", ["my file.pdf", "b.pdf"]),
        ('{"a\\"b","c d"}', ['a"b', "c d"]),
        ("[1], [2]", ["[1]", "[2]"]),
        ("[1][2]", ["[1]", "[2]"]),
        ("1. Introduction", ["1. Introduction"]),
        ("[draft] a.md", ["[draft] a.md"]),
        ("(Smith 2020)", ["(Smith 2020)"]),
        ("Report(2020)", ["Report(2020)"]),
    ],
)
def test_one_entry_and_no_list_are_told_apart(cell, ids):
    assert as_ids(cell, None) == ids


@pytest.mark.parametrize(
    "cell",
    [
        '{"b": 0.1, "a": 0.9}',
        "{'b': 0.1, 'a': 0.9, 'c': nan}",
        "[('a', 0.9), ('b', 0.1)]",
        "OrderedDict([('a', 0.9), ('b', 0.1)])",
        "[Document(id='a', score=0.9), Document(id='b', score=0.1)]",
        "[NodeWithScore(node=TextNode(id_='a'), score=0.9), NodeWithScore(node=TextNode(id_='b'), score=0.1)]",
    ],
)
def test_ids_with_scores_are_documents_in_the_order_of_their_scores(cell):
    assert as_ids(cell, None) == [{"id": "a", "score": 0.9}, {"id": "b", "score": 0.1}]


@pytest.mark.parametrize(
    "cell",
    [
        "['a' 'b' ... 'z']",
        "['a', 'b', ...]",
        "['a', 'b",
        "[<Document object at 0x7f12>, <Document object at 0x7f13>]",
        "(a, b)",
        "{{a,b},{c,d}}",
        "{'a': [1]}",
    ],
)
def test_a_list_that_cannot_be_read_is_refused_with_its_field_and_never_cut(cell):
    with pytest.raises(CellError, match=r"^retrieved_ids (is a list that cannot be read|has a document without id)"):
        value_of("retrieved_ids", cell, USUAL)


def test_a_separator_that_the_user_names_cuts_also_what_looks_like_a_list():
    assert as_ids("(a/ b/", "/") == ["(a", "b"]
    assert as_ids("['a', 'b']", "/") == ["a", "b"]


@pytest.mark.parametrize(
    ("cell", "texts"),
    [
        ("('Cats purr.', 'Dogs bark.')", ["Cats purr.", "Dogs bark."]),
        ("array(['Cats purr.', nan], dtype=object)", ["Cats purr."]),
        ('{"Cats purr.","Dogs bark."}', ["Cats purr.", "Dogs bark."]),
        ("[Document(metadata={}, page_content='Cats purr.')]", ["Cats purr."]),
        ("(see page 3)", ["(see page 3)"]),
        ('{"price": 3}', ['{"price": 3}']),
        ("- one\n- two", ["- one\n- two"]),
    ],
)
def test_contexts_are_lists_or_one_text(cell, texts):
    assert as_texts(cell, None) == texts


MESSAGES = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]


@pytest.mark.parametrize(
    "cell",
    [
        MESSAGES,
        json.dumps(MESSAGES),
        repr(MESSAGES),
        json.dumps({"messages": MESSAGES}),
        "[HumanMessage(content='Why?', id='1'), AIMessage(content='So.')]",
    ],
)
def test_messages_in_a_cell_hold_the_last_question_and_answer(cell):
    assert as_question(cell) == "Why?"
    assert as_answer(cell) == "So."


@pytest.mark.parametrize(
    ("cell", "question", "answer"),
    [
        ('"So."', "So.", "So."),
        ('{"question": "Why?"}', "Why?", None),
        ('{"query": "Why?", "k": 3}', "Why?", None),
        ('{"answer": "So."}', None, "So."),
        ('{"choices": [{"message": {"role": "assistant", "content": "So."}}]}', None, "So."),
        ('{"answer": "So.", "citations": ["a"]}', None, {"claim": "So.", "citations": ["a"]}),
        ('{"price": 3}', None, None),
        ('"Yes" or "no"', None, None),
        ("[1] says so", None, None),
    ],
)
def test_json_in_a_cell_is_looked_into_and_other_text_stands_as_it_is(cell, question, answer):
    assert as_question(cell) == (question or cell)
    assert as_answer(cell) == (answer or cell)


def test_a_separator_that_is_given_is_the_only_one():
    assert as_ids("a,b;c", ",") == ["a", "b;c"]
    assert as_texts("One; two.---Three.", "---") == ["One; two.", "Three."]


def test_a_text_is_never_cut():
    text = "First, a line;\nsecond | line"
    assert as_texts(text, None) == [text]
    assert as_phrases("Denmark, Iceland; Norway", None) == ["Denmark, Iceland", "Norway"]


def test_documents_keep_id_text_and_score():
    cell = "[{'id': 'a', 'page_content': 'Cats', 'score': 0.5}, {'metadata': {'chunk_id': 7}}]"
    assert as_ids(cell, None) == [{"id": "a", "text": "Cats", "score": 0.5}, {"id": "7"}]
    assert as_ids([{"text": "Cats"}], None) == [{"text": "Cats"}]
    for read, documents in ((as_ids, [{"page": "three"}]), (as_names, [{"text": "Cats"}])):
        with pytest.raises(CellError, match="without id"):
            read(documents, None)


@pytest.mark.parametrize("value", [None, "", float("nan"), np.float64("nan"), pd.NA, pd.NaT])
def test_missing_values_are_absent(value):
    assert is_absent(plain(value))


@pytest.mark.parametrize("value", [0, False, [], " ", "nan"])
def test_other_values_are_not(value):
    assert not is_absent(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.array(["a", "b"]), ["a", "b"]),
        (decimal.Decimal("1.5"), 1.5),
        (dt.timedelta(seconds=2), 2000.0),
        (pd.Timestamp("2026-11-22 09:30"), "2026-11-22T09:30:00+00:00"),
        (dt.datetime(2026, 11, 22, 9, tzinfo=dt.timezone(dt.timedelta(hours=2))), "2026-11-22T09:00:00+02:00"),
    ],
)
def test_values_of_packages_become_plain(value, expected):
    assert plain(value) == expected


@pytest.mark.parametrize(("cell", "error"), [("False", None), ("0", None), (False, None), ("timeout", "timeout")])
def test_a_column_of_flags_says_no_error(cell, error):
    assert as_error(cell) == error


@pytest.mark.parametrize("cell", ["perhaps", 2, [True]])
def test_a_flag_is_yes_or_no(cell):
    with pytest.raises(CellError):
        as_flag(cell)


@given(st.lists(st.text(min_size=1).filter(lambda text: text == text.strip()), min_size=1))
def test_a_list_as_python_writes_it_is_read_back(ids):
    """So lists get into CSV with pandas."""
    assert as_ids(repr(ids), None) == ids


@given(st.text())
def test_no_text_in_a_cell_is_more_than_a_refusal(text):
    try:
        ids = as_ids(text, None)
    except CellError:
        return
    assert isinstance(ids, list)
