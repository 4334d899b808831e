"""`ragmon.replay` in a notebook: paths, lists and DataFrames for records and for gold."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragmon
from ragmon.core.errors import GoldError, InputError
from tests.support.command_line import gold, lines, traces

ROWS = [
    {"user_question": "Does X support null keys?", "bot_answer": "X rejects null keys.", "docs": ["p1#1", "p1#2"]},
    {"user_question": "Who painted Z?", "bot_answer": None, "docs": ["p2#1"]},
]
TRUTH = [
    {"question": "Does X support null keys?", "ground_truth": "rejects null keys", "reference_context_ids": ["p1#2"]},
    {"question": "Who painted Z?", "ground_truth": "Ada", "reference_context_ids": ["p2#7"]},
]
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "lazy": pl.LazyFrame, "arrow": pa.Table.from_pylist}


@pytest.mark.parametrize("package", FRAMES)
def test_a_data_frame_is_records_and_another_is_gold(package):
    frame = FRAMES[package]
    report = ragmon.replay(frame(ROWS), frame(TRUTH))
    assert (report.read, report.scored) == (2, 2)
    assert report.metric("recall").value == 0.5
    assert report.metric("claim_containment").unassessed == {"no_answer": 1}
    assert report.digest == ragmon.replay(ROWS, TRUTH).digest


def test_a_path_and_a_list_of_paths_are_files(tmp_path):
    runs, items = lines(tmp_path / "t.jsonl", traces()), lines(tmp_path / "g.jsonl", gold())
    alone = ragmon.replay(runs, items)
    assert (alone.scored, alone.verdict) == (60, "pass")
    assert ragmon.replay(tmp_path / "t.jsonl", [items]).digest == alone.digest
    assert ragmon.replay([runs, runs], items).scored == 120


def test_lists_of_dictionaries_are_records_and_gold():
    report = ragmon.replay(list(traces()), list(gold()))
    assert (report.verdict, report.golds()[0]["traced"]) == ("pass", 60)


def test_columns_map_other_names():
    frame = pd.DataFrame({"Frage": ["Why?"], "Antwort": ["So."]})
    report = ragmon.replay(frame, columns={"question": "Frage", "answer": "Antwort"})
    assert report.metric("refusal_rate").n == 1


def test_a_trace_log_that_pandas_read_is_the_log(tmp_path):
    """Members of objects that some rows lack are NaN there."""
    records = [dict(record, v=1, ts=1_763_683_200.0 + n) for n, record in enumerate(traces(3, 2))]
    records[0] |= {"latency_ms": {"total": 5.0}, "tags": {"lang": "de"}, "partial": False}
    path = lines(tmp_path / "t.jsonl", records)
    frame = pd.DataFrame(records)
    assert ragmon.replay(frame).digest == ragmon.replay(path).digest
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert ragmon.replay(tmp_path / "t.csv").digest == ragmon.replay(path).digest


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ("absent.jsonl", "absent.jsonl: cannot be read"),
        (pd.DataFrame({"a": [1]}), "its columns: a"),
        (pd.DataFrame(TRUTH), "this is gold"),
        (list(gold()), "this is gold"),
        ([{"a": 1}], "record 1 is not a trace"),
        (pd.DataFrame({"question": [], "answer": []}), "there is no record in it"),
    ],
)
def test_nothing_readable_is_an_error(records, message):
    with pytest.raises(InputError) as caught:
        ragmon.replay(records)
    assert message in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("truth", [ROWS, pd.DataFrame(ROWS)])
def test_traces_as_gold_are_an_error(truth):
    with pytest.raises(GoldError, match="these are traces"):
        ragmon.replay(ROWS, truth)


def test_a_gold_set_of_a_data_frame_takes_columns_and_empty_references():
    frame = pd.DataFrame({"question": ["Why?", "Who?"], "truth": ["so it is", None]})
    items = ragmon.GoldSet.from_rows(frame, columns={"gold_claim": "truth"}, empty_reference="unanswerable").items
    assert [(item.gold_claim, item.answerable) for item in items] == [("so it is", True), (None, False)]


def test_importing_ragmon_and_replaying_dictionaries_loads_no_package_of_tables():
    script = (
        "import ragmon, sys; ragmon.replay([{'question': 'a', 'answer': 'b'}])\n"
        "print(*[m for m in ('pandas', 'polars', 'pyarrow', 'openpyxl') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
IDS = st.lists(st.text("abc#1,;|' \"\n[]", min_size=1).filter(lambda text: text == text.strip()), max_size=3)
ROW = st.fixed_dictionaries(
    {"question": TEXT, "answer": TEXT},
    optional={
        "retrieved_ids": IDS,
        "citations": IDS,
        "contexts": st.lists(TEXT, max_size=2),
        "qid": st.sampled_from(["a0", "a1", "u0"]),
        "ts": st.floats(1.6e9, 1.8e9),
        "latency_ms": st.floats(0, 1e5),
        "session": st.sampled_from(["s1", "s2"]),
        "error": st.sampled_from(["timeout", "refused by peer"]),
    },
)
GOLD = ragmon.GoldSet.from_rows(list(gold(2, 1)))


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=5))
def test_json_lines_and_the_csv_made_of_them_have_one_digest(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("same")
    path = lines(folder / "t.jsonl", rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with (folder / "t.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for row in rows:
            writer.writerow({k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()})
    lines_report, table_report = ragmon.replay(path, GOLD), ragmon.replay(folder / "t.csv", GOLD)
    assert table_report.scored == len(rows)
    assert table_report.digest == lines_report.digest
