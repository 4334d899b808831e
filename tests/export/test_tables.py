"""Tables of text: columns stand under each other whatever is in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.errors import printable_line
from ragmon.export.text import escape, markdown_table, text_table

CELLS = st.text(st.characters(), max_size=12)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=6))
def test_every_cell_of_a_column_begins_at_the_same_place_and_no_line_breaks(rows):
    lines = text_table(rows, gap=1)
    second = max(len(printable_line(row[0])) for row in rows) + 1
    third = second + max(len(printable_line(row[1])) for row in rows) + 1
    for line, row in zip(lines, rows, strict=True):
        a, b, c = map(printable_line, row)
        assert line == f"{f'{a:{second}}{b}':{third}}{c}".rstrip()
        assert len(line.splitlines()) <= 1


def test_numbers_stand_on_the_right_and_a_longer_cell_moves_only_its_own_line():
    assert text_table([("stage", "n"), ("ingest", "12")], right=[1]) == ["stage    n", "ingest  12"]
    rows = [("key", "a long value", "file:1"), ("other", "b", "file:2")]
    assert text_table(rows, widths={1: 4}) == ["key    a long value  file:1", "other  b     file:2"]


def test_a_table_without_rows_has_its_head_in_markdown_and_no_line_on_a_terminal():
    assert text_table([]) == []
    assert markdown_table(["gate", "n"], []) == ["| gate | n |", "| --- | --- |"]
    assert markdown_table(["gate"], [[escape("a|b")]])[2] == "| a\\|b |"
