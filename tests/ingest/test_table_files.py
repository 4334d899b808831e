"""Files of tables: CSV of every origin as a stream, bad rows alone, and the extra that other formats need."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from ragmon.core.errors import InputError
from ragmon.ingest import tables
from ragmon.ingest.tables import TableOptions, csv_table, is_header


def read(data, *, encoding=None):
    """Rows and rejections of CSV bytes."""
    rejected = []
    table = csv_table(io.BytesIO(data), "t.csv", TableOptions(encoding=encoding), lambda *row: rejected.append(row))
    return list(table.rows), rejected


GOOD = {"question": "Why?", "answer": "So; it is"}


@pytest.mark.parametrize(
    "data",
    [
        b"question,answer\nWhy?,So; it is\n",
        b"question,answer\r\nWhy?,So; it is",
        b"question,answer,\nWhy?,So; it is,\n",
        b'question;answer\nWhy?;"So; it is"\n',
        b"question\tanswer\nWhy?\tSo; it is\n",
        b"question|answer\nWhy?|So; it is\n",
        b'\xef\xbb\xbf"question","answer"\n"Why?","So; it is"\n',
        b'sep=;\nquestion;answer\nWhy?;"So; it is"\n',
        b"\n\nquestion,answer\n\nWhy?,So; it is\n,\n",
    ],
)
def test_csv_of_every_origin_is_one_table(data):
    rows, rejected = read(data)
    assert [{name: cell for name, cell in row.items() if name} for _, row in rows] == [GOOD]
    assert rejected == []


def test_a_cell_may_hold_line_breaks_and_rows_keep_the_line_they_start_on():
    rows, _ = read(b'question,answer\n"Why\nnot?",a\nHow?,b\n')
    assert [(line, row["question"]) for line, row in rows] == [(2, "Why\nnot?"), (4, "How?")]


def test_a_header_may_hold_line_breaks():
    rows, _ = read(b'question,"answer\n(bot)"\nWhy?,a\n')
    assert rows == [(3, {"question": "Why?", "answer\n(bot)": "a"})]


def test_a_row_with_a_wrong_number_of_cells_is_rejected_alone():
    rows, rejected = read(b"question,answer\nWhy?\nHow?,a\nWho,where?,b\n")
    assert [line for line, _ in rows] == [3]
    assert [(line, reason) for line, reason, *_ in rejected] == [(2, "malformed_row"), (4, "malformed_row")]
    assert rejected[0][2] == "it has 1 cells, and there are 2 columns"


def test_a_quote_that_is_never_closed_counts_the_lines_it_takes():
    rows, rejected = read(b'question,answer\nWhy?,a\nHow?,"b\nWho?,c\nWhen?,d\n')
    assert [line for line, _ in rows] == [2]
    assert [(line, lost) for line, _, _, lost in rejected] == [(3, 3)]


def test_text_after_a_closing_quote_is_rejected_and_the_next_row_is_read():
    rows, rejected = read(b'question,answer\n"Why" not?,a\nHow?,b\n')
    assert [line for line, _ in rows] == [3]
    assert [line for line, *_ in rejected] == [2]


@pytest.mark.parametrize(
    ("rows", "questions"),
    [
        (rb'"He said \"hi\", ok",x', ['He said "hi", ok']),
        (rb'"a \", b",x', ['a ", b']),
        (b'"ends \\"",x\n"next \\"",y', ['ends "', 'next "']),
        (b'"first \\"q\\"\nline two",x\nplain,y', ['first "q"\nline two', "plain"]),
        (rb'"{\"q\": \"a \\\"b\\\"\"}",x', [r'{"q": "a \"b\""}']),
        (rb'"\frac{1}{2} \"half\"",x', [r'\frac{1}{2} "half"']),
        (b'"C:\\dir\\",x\n"he ""says"" so",y', ["C:\\dir\\", 'he "says" so']),
    ],
)
def test_quotes_are_escaped_as_spark_writes_them_or_doubled(rows, questions):
    read_rows, rejected = read(b"question,answer\n" + rows + b"\n")
    assert [row["question"] for _, row in read_rows] == questions
    assert rejected == []


def test_a_broken_row_with_a_backslash_does_not_change_how_the_others_are_read():
    rows, rejected = read(b'question,answer\n"C:\\",x\n"bad" \\"row,y\n"he ""says"" so",z\n')
    assert [row["question"] for _, row in rows] == ["C:\\", 'he "says" so']
    assert [line for line, *_ in rejected] == [3]


def test_a_row_that_is_too_long_is_skipped_to_its_end_over_many_lines_as_well(monkeypatch):
    monkeypatch.setattr(tables, "MAX_ROW", 1000)
    long = b"x" * 5000
    rows, rejected = read(b"question,answer\nWhy?," + long + b'\nHow?,"' + b"y\n" * 900 + b'"\nWho?,a\n')
    assert rows == [(904, {"question": "Who?", "answer": "a"})]
    assert [(line, reason) for line, reason, *_ in rejected] == [(2, "oversize"), (3, "oversize")]


def test_a_cell_may_be_longer_than_the_limit_of_the_csv_module():
    rows, rejected = read(b"question,answer\nWhy?," + b"x" * 200_000 + b"\n")
    assert (len(rows[0][1]["answer"]), rejected) == (200_000, [])


def test_another_encoding_is_an_error_that_names_the_flag_and_the_flag_works():
    data = "question,answer\nWarum?,Schön\n".encode("cp1252")
    with pytest.raises(InputError) as caught:
        read(data)
    assert "not UTF-8" in str(caught.value)
    assert "--encoding cp1252" in caught.value.hint
    assert read(data, encoding="cp1252")[0] == [(2, {"question": "Warum?", "answer": "Schön"})]
    assert read("question\tanswer\nWhy?\tSo\n".encode("utf-16"), encoding="utf-16")[0][0][1]["answer"] == "So"
    with pytest.raises(InputError, match="unknown encoding: 'utf-9'"):
        read(data, encoding="utf-9")


def test_an_empty_file_is_an_error():
    with pytest.raises(InputError, match="it is empty"):
        read(b"")


@pytest.mark.parametrize(
    ("line", "header"),
    [
        (b"question,answer", True),
        (b"Frage;response", True),
        (b'{"question": "a,b"}', False),
        (b"301 Q0 FR940202-2-00150 104 2.129133 STANDARD", False),
        (b"nothing,known", False),
        (b"question", False),
        (b"", False),
    ],
)
def test_a_header_is_known_by_its_names_whatever_the_file_is_called(line, header):
    assert is_header(line, TableOptions()) is header


@pytest.mark.parametrize(("name", "package"), [("t.parquet", "pyarrow"), ("t.xlsx", "openpyxl")])
def test_a_missing_extra_is_named(tmp_path, name, package):
    (tmp_path / name).write_bytes(b"PK")
    script = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from ragmon.core.errors import RagmonError\nfrom ragmon.ingest.files import read_files\n"
        "from ragmon.ingest.files import ReadSummary\n"
        f"try:\n    list(read_files([{str(tmp_path / name)!r}], ReadSummary()))\n"
        "except RagmonError as error:\n    print(error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "pip install 'ragmon[table]'"


@pytest.mark.parametrize("name", ["t.parquet", "t.xlsx"])
def test_a_broken_binary_file_is_an_error(tmp_path, name):
    (tmp_path / name).write_bytes(b"no such thing")
    with pytest.raises(InputError, match="cannot be read"):
        tables.binary_table(str(tmp_path / name), name.partition(".")[2], TableOptions())
