"""Cells: what is absent, and lists that are written in one cell."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.ingest.cells import CellError, is_absent
from ragmon.ingest.tables import as_error, as_flag, as_ids, as_phrases, as_texts, plain


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
    with pytest.raises(CellError, match="without id"):
        as_ids([{"text": "Cats"}], None)


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
