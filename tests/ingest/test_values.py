"""Times and numbers as people write them: what one text may mean, and the one form of a column of a table."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from ragmon.core.errors import InputError
from ragmon.ingest import files
from ragmon.ingest.files import ReadSummary, read_files, read_table
from ragmon.ingest.tables import TableOptions, frame_table
from ragmon.ingest.values import EPOCH, ColumnForms, milliseconds, time_format, times

MORNING = 1_763_629_200.0
"""9:00 on 20 November 2025, UTC."""
MIDNIGHT = MORNING - 9 * 3600
DAY_FIRST, MONTH_FIRST = "day/month/year", "month/day/year"


@pytest.mark.parametrize(
    "text",
    [
        "2025-11-20T09:00:00Z",
        "2025-11-20T09:00:00",
        "2025-11-20 09:00",
        "2025-11-20 9:00",
        "2025-11-20T09:00:00,000",
        "2025-11-20T10:00:00.0000000+01:00",
        "2025-11-20 09:00:00 UTC",
        "2025-11-20 09:00:00.000000 UTC",
        "2025-11-20 09:00:00 +0000 UTC",
        "2025-11-20 04:00:00 EST",
        "2025-11-20T10:00:00+01:00[Europe/Berlin]",
        "2025/11/20 09:00",
        "20251120T090000Z",
        "20251120090000",
        "20.11.2025 09:00",
        "20.11.25 09:00:00",
        "20. 11. 2025, 9:00",
        "2025.11.20 09:00",
        "2025年11月20日 09:00",
        "Thu, 20 Nov 2025 09:00:00 GMT",
        "Thu, 20 Nov 2025 10:00:00 +0100",
        "20 Nov 2025 14:30 +0530",
        "Thu Nov 20 09:00:00 2025",
        "Thu Nov 20 09:00:00 UTC 2025",
        "Thu Nov 20 2025 10:00:00 GMT+0100 (Central European Standard Time)",
        "Nov 20, 2025 @ 09:00:00.000",
        "Nov 20, 2025, 9:00:00\u202fAM",
        "Thursday, November 20, 2025 9:00 a.m.",
        "20th of November 2025 09:00",
        "20-Nov-2025 09:00",
        "20/Nov/2025:09:00:00 +0000",
    ],
)
def test_a_time_of_one_meaning_is_read_in_every_usual_form(text):
    assert times(text) == {"": MORNING}


@pytest.mark.parametrize(
    ("written", "readings"),
    [
        ("20251120", {"": MIDNIGHT}),
        ("11/20/2025 9:00 AM", {MONTH_FIRST: MORNING}),
        ("20/11/2025 09:00", {DAY_FIRST: MORNING}),
        ("11-20-2025", {MONTH_FIRST: MIDNIGHT}),
        ("11/11/2025", {"": MIDNIGHT - 9 * 86_400}),
        (1_763_629_200, {EPOCH: MORNING}),
        ("1763629200.25", {EPOCH: MORNING + 0.25}),
        (1_763_629_200_000, {EPOCH: MORNING}),
        ("1763629200000000", {EPOCH: MORNING}),
        (1_763_629_200_000_000_000, {EPOCH: MORNING}),
        (45_981.375, {EPOCH: 45_981.375, "excel": MORNING}),
    ],
)
def test_numbers_are_times_by_their_size_and_dates_of_numbers_by_their_order(written, readings):
    assert times(written) == pytest.approx(readings)


@pytest.mark.parametrize("text", ["03/04/2025", "3-4-2025 9:00", "01/12/25"])
def test_the_order_of_day_and_month_may_be_open(text):
    assert {DAY_FIRST, MONTH_FIRST} <= times(text).keys()


@pytest.mark.parametrize(
    "written",
    [
        *("", "yesterday", "09:00", "13/13/2025", "31.02.2025", "2025-13-01", "20 Foo 2025", "-5", "1e300", "35:12.3"),
        *("2025-11-20 25:00", "2025-11-20 09:00 Mars/Crater", "13:00 PM 20 Nov 2025", "9" * 200, -1, True, None, [1]),
    ],
)
def test_what_is_no_time_has_no_reading(written):
    assert times(written) == {}


@pytest.mark.parametrize(
    ("written", "readings"),
    [
        ("812", {"": 812}),
        ("812 ms", {"": 812}),
        ("812ms", {"": 812}),
        ("0.8 s", {".": 800}),
        ("0,8 sec", {",": 800}),
        ("2 min", {"": 120_000}),
        ("250 µs", {"": 0.25}),
        ("812,5", {",": 812.5}),
        ("1.234,5", {",": 1234.5}),
        ("1,234.5", {".": 1234.5}),
        ("1 234,5", {",": 1234.5}),
        ("1'234.5", {".": 1234.5}),
        ("1.234.567", {",": 1_234_567}),
        ("0,123", {",": 0.123}),
        ("1,234", {".": 1234, ",": 1.234}),
        ("1.234", {".": 1.234, ",": 1234}),
        ("00:00:00.812", {"": 812}),
        ("0 days 00:01:00", {"": 60_000}),
        (8, {"": 8}),
    ],
)
def test_a_number_has_a_unit_and_the_readings_of_its_decimal_mark(written, readings):
    assert milliseconds(written) == pytest.approx(readings)


@pytest.mark.parametrize("written", ["812 parsecs", "fast", "", "1,23,456", "~800", "12 34", True, None, "1" * 99])
def test_what_is_no_number_has_no_reading(written):
    assert milliseconds(written) == {}


def test_a_value_that_contradicts_its_column_changes_nothing():
    column = ColumnForms()
    for text in ("03/04/2025", "20/11/2025", "11/20/2025"):
        column.see(times(text))
    assert column.forms == {DAY_FIRST}
    assert column.read(times("11/20/2025")) is None


@pytest.mark.parametrize(
    ("text", "form", "found"),
    [
        ("03/04/2025 09:00:01", DAY_FIRST, "%d/%m/%Y %H:%M:%S"),
        ("3-4-2025 9:00 PM", MONTH_FIRST, "%m-%d-%Y %I:%M %p"),
        ("03/04/25", "year/month/day", "%y/%m/%d"),
    ],
)
def test_the_format_that_is_asked_for_reads_the_text(text, form, found):
    assert time_format(text, form) == found
    assert files.formatted_time(text, found) == {"": times(text)[form]}


# --- columns ----------------------------------------------------------------------------------------------------------


def table(tmp_path, cells, column="created_at", **options):
    """The times or latencies of a table of one such column, and what was said."""
    frame = pd.DataFrame({"question": [f"Q{n}?" for n in range(len(cells))], "answer": "A.", column: cells})
    frame.to_csv(tmp_path / "log.csv", index=False)
    return take(tmp_path / "log.csv", column, **options)


def take(path, column="created_at", **options):
    intake = ReadSummary()
    records = list(read_files([str(path)], intake, options=TableOptions(**options)))
    assert intake.rejected == {}
    if column == "created_at":
        return [record.ts for record in records], intake.sentences(examples=True)
    return [record.latency_ms and record.latency_ms.total for record in records], intake.sentences(examples=True)


@pytest.mark.parametrize(
    "cell",
    [
        "20.11.2025 09:00",
        "11/20/2025 9:00 AM",
        "2025-11-20 09:00:00 UTC",
        "2025-11-20T09:00:00,000",
        "1763629200000",
        "45981.375",
        "Thu, 20 Nov 2025 09:00:00 GMT",
        "Nov 20, 2025 @ 09:00:00.000",
    ],
)
def test_a_column_of_one_time_is_read(tmp_path, cell):
    assert table(tmp_path, [cell] * 3) == ([MORNING] * 3, [])


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        (["03/04/2025", "20/11/2025"], [1_743_638_400, MIDNIGHT]),
        (["03/04/2025", "11/20/2025"], [1_741_046_400, MIDNIGHT]),
        (["20/11/2025", "03/04/2025", None], [MIDNIGHT, 1_743_638_400, None]),
        (["45981.375", "46000"], [MORNING, 1_765_238_400]),
        (["45981.375", "1763629200"], [45_981.375, MORNING]),
        (["45981.375", "2025-11-20T09:00:00Z"], [MORNING, MORNING]),
        (["NaT", "2025-11-20T09:00:00Z", ""], [None, MORNING, None]),
    ],
)
def test_the_whole_column_decides_what_one_cell_leaves_open(tmp_path, cells, seconds):
    assert table(tmp_path, cells) == (seconds, [])


def test_where_no_row_decides_the_format_is_asked_for_and_then_read(tmp_path):
    cells = ["03/04/2025 9:00 AM", "05/06/2025 10:00 AM"]
    with pytest.raises(InputError, match="column `created_at` may be day/month/year or month/day/year") as asked:
        table(tmp_path, cells)
    assert "--time-format '%d/%m/%Y %I:%M %p' or --time-format '%m/%d/%Y %I:%M %p'" in asked.value.hint
    assert table(tmp_path, cells, time_format="%d/%m/%Y %I:%M %p")[0][0] == 1_743_670_800
    assert table(tmp_path, cells, time_format="%m/%d/%Y %I:%M %p")[0][0] == 1_741_078_800
    assert table(tmp_path, cells, columns={"ts": ""}) == ([None, None], [])


def test_of_a_long_column_the_first_rows_decide(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_HELD", 3)
    with pytest.raises(InputError, match="may be day"):
        table(tmp_path, ["03/04/2025"] * 3 + ["20/11/2025"])
    found, said = table(tmp_path, ["1,234"] * 3 + ["812,5", "1,234"], "latency_ms")
    assert found == [None, None, None, 812.5, 1.234]
    assert said[0].startswith("latency_ms: 3 values could not be read")


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["812,5", "1,234", "1.234,5"], [812.5, 1.234, 1234.5]),
        (["1,234", "812.5"], [1234, 812.5]),
        (["1.234", "812,5"], [1234, 812.5]),
        (["1.234", "2.345"], [1.234, 2.345]),
        (["812 ms", "0.8 s", "-"], [812, 800, None]),
    ],
)
def test_the_decimal_mark_is_that_of_the_column(tmp_path, cells, numbers):
    assert table(tmp_path, cells, "latency_ms") == (numbers, [])


def test_a_cell_that_cannot_be_read_is_unknown_told_once_and_its_row_stays(tmp_path):
    found, (said,) = table(tmp_path, ["812", *["812 parsecs"] * 12], "latency_ms")
    assert found == [812, *[None] * 12]
    path = tmp_path / "log.csv"
    assert said == (
        f"latency_ms: 12 values could not be read, e.g. at {path}:3: latency_ms is not a number: '812 parsecs'"
    )


@pytest.mark.parametrize("column", ["ts", "created_at", "timestamp"])
def test_the_note_names_the_field_and_the_option_that_helps(tmp_path, column):
    (tmp_path / "log.csv").write_text(f"question,answer,{column}\nQ?,A.,soon\n")
    (said,) = take(tmp_path / "log.csv")[1]
    assert said.endswith("ts is not a time: 'soon'; --time-format says how times are written")


def test_a_data_frame_is_read_as_its_file_is(tmp_path):
    frame = pd.DataFrame({"question": ["Q?", "R?"], "answer": "A.", "ts": ["03/04/2025", "20/11/2025"]})
    records = list(read_table(frame_table(frame), "records", ReadSummary(), TableOptions()))
    assert [record.ts for record in records] == [1_743_638_400, MIDNIGHT]
    frame["ts"] = pd.to_datetime(frame["ts"], dayfirst=True)
    records = list(read_table(frame_table(frame), "records", ReadSummary(), TableOptions()))
    assert [record.ts for record in records] == [1_743_638_400, MIDNIGHT]


def test_a_header_that_is_repeated_is_no_row(tmp_path):
    (tmp_path / "log.csv").write_text("question,answer\nQ?,A.\nquestion, answer\nR?,B.\n")
    assert len(take(tmp_path / "log.csv")[0]) == 2


@pytest.mark.parametrize("name", ["log.json", "log.jsonl"])
def test_nan_in_json_is_absent_in_lines_and_in_an_array(tmp_path, name):
    rows = [{"question": f"Q{n}?", "answer": "A.", "faithfulness": float("nan"), "ts": float("nan")} for n in range(3)]
    text = json.dumps(rows) if name == "log.json" else "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / name).write_text(text)
    assert take(tmp_path / name) == ([None] * 3, [])


def test_of_several_processes_a_field_is_told_once_with_its_line(tmp_path):
    lines = ['{"question":"Q?","answer":"A."}\n', '{"question":"Q?","answer":"A.","ts":"soon"}\n']
    first, second = ReadSummary(), ReadSummary()
    for part, intake in zip(lines, (first, second), strict=True):
        (tmp_path / "log.jsonl").write_text(part)
        list(read_files([str(tmp_path / "log.jsonl")], intake))
    first.merge(second, lines_before=1)
    (said,) = first.sentences(examples=True)
    assert f"at {tmp_path}/log.jsonl:2: ts is a time since 1970, not 'soon'" in said
    assert first.sentences(examples=False) == [
        f"ts: 1 value could not be read in {tmp_path}/log.jsonl; --time-format says how times are written"
    ]
