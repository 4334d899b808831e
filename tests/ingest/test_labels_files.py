"""Files of labels: what a sheet says, in whatever columns and words, or why it is refused."""

from __future__ import annotations

import csv
import io
import json

import pandas as pd
import pytest
from msgspec.structs import replace

from ragmon.config.load import defaults
from ragmon.core.errors import InputError, RagmonError
from ragmon.core.record import check_trace_id
from ragmon.ingest.labels import LabelSpelling, read_labels, template
from ragmon.monitor.engine import Engine
from ragmon.scoring.labels import FinalLabels
from ragmon.scoring.scorer import Scorer
from ragmon.testing import make_record

A, B = "a" * 32, "b" * 32


@pytest.fixture
def read(tmp_path):
    """Reads a file of this content."""

    def read(text, name="labels.csv", **words):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_labels(path, LabelSpelling(**words))

    return read


def test_a_sheet_says_what_its_columns_say(read):
    told = "trace_id,correct,answerable,relevant_ids,rater,ts,comment\n"
    (label,) = read(told + f'{A},yes,true,"doc#1, doc#2; doc#3",ada,2026-11-22T10:00:00+01:00,"fine, mostly"\n')
    assert (label.trace_id, label.rater, label.correct, label.answerable) == (A, "ada", True, True)
    assert (label.relevant_ids, label.comment) == (["doc#1", "doc#2", "doc#3"], "fine, mostly")
    assert label.ts == 1_795_338_000.0


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_spreadsheets_save_with_a_mark_and_whatever_delimiter_their_country_has(read, delimiter):
    head, row = (delimiter.join(cells) for cells in (("Trace_ID", " Correct", "rater"), (A, "0.5", "ada")))
    (label,) = read(b"\xef\xbb\xbf" + f"{head}\r\n{row}\r\n".encode())
    assert label.correct == 0.5


def test_columns_and_words_are_what_the_configuration_says(read):
    columns = {"trace_id": "Trace", "correct": "Richtig?", "rater": "Wer"}
    words = {"columns": columns, "true": ["ja"], "false": ["nein"]}
    labels = read(f"Trace,Richtig?,Wer\n{A},Ja,eva\n{B},NEIN,eva\n", **words)
    assert [label.correct for label in labels] == [True, False]


def test_rows_that_nobody_has_filled_in_say_nothing(read):
    assert read(f"trace_id,correct,rater\n{A},,\n{B},1,ada\n")[0].trace_id == B


def test_a_rater_may_be_named_for_all_rows(read):
    assert read(f"trace_id,correct\n{A},1\n", rater="ada")[0].rater == "ada"


def test_json_lines_say_the_same(read):
    (label,) = read(f'{{"trace_id": "{A.upper()}", "correct": 0.25, "rater": "ada", "ts": 5}}\n', "labels.jsonl")
    assert (label.trace_id, label.correct, label.ts) == (A, 0.25, 5.0)


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        (f"trace_id,correct,rater\n{A},maybe,ada\n", 2, "correct is 'maybe'", "labels"),
        (f"trace_id,correct,rater\n{A},1,ada\n{B},7,ada\n{B},8,ada\n", 3, "from 0 to 1, not 7", "line 4"),
        (f"trace_id,correct\n{A},1\n", 2, "does not say who labelled it", "labels"),
        (f"Trace,correct\n{A},1\n", None, "no column of this name: 'trace_id'", "its columns: Trace, correct"),
        (f"trace_id,correct,rater,ts\n{A},1,ada,yesterday\n", 2, "ts is 'yesterday'", "labels"),
        ("", None, "no column", "none"),
        (f'trace_id,correct,rater\n"{A},1,ada\n', 2, "it is not a table", "CSV"),
    ],
)
def test_a_sheet_that_is_wrong_is_refused_whole_with_its_lines(read, text, line, message, hint):
    with pytest.raises(InputError, match=message) as refused:
        read(text)
    assert refused.value.line == line
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{broken\n", "this is not JSON"),
        ("[1]\n", "not an object"),
        ("[{\n", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        ("{}\n[]\n", "not an object"),
    ],
)
def test_what_is_no_file_of_labels_is_said(read, text, message):
    with pytest.raises(InputError, match=message):
        read(text, "labels.jsonl")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.csv: it cannot be read"):
        read_labels(tmp_path / "gone.csv", LabelSpelling())


def test_a_queue_is_a_sheet_to_fill_in_and_is_read_again(read):
    words = LabelSpelling({**LabelSpelling().columns, "trace_id": "Trace", "correct": "OK?"})
    sheet = template([{"trace_id": A, "link": "https://x/a"}, {"trace_id": B, "link": "https://x/b"}], words)
    rows = list(csv.DictReader(io.StringIO(sheet)))
    assert [row["Trace"] for row in rows] == [A, B]
    assert read(sheet, columns=words.columns) == []
    filled = sheet.replace(f"{A},https://x/a,", f"{A},https://x/a,yes").replace("yes,", "yes,", 1)
    assert [label.correct for label in read(filled, columns=words.columns, rater="ada")] == [True]


def test_nothing_to_label_is_an_error_with_a_hint():
    with pytest.raises(RagmonError, match="nothing to label"):
        template([], LabelSpelling())


UUID = "5a1c0000-1111-2222-3333-44445555666b"
HEX = UUID.replace("-", "")


@pytest.mark.parametrize(
    "written",
    [
        UUID,
        UUID.upper(),
        f"{{{UUID}}}",
        f"urn:uuid:{UUID}",
        HEX,
        HEX.upper(),
        f"0x{HEX}",
        f" {HEX} ",
        str(int(HEX, 16)),
    ],
)
@pytest.mark.parametrize("logged", [HEX, UUID, HEX.upper(), str(int(HEX, 16))])
def test_a_label_finds_its_answer_in_every_usual_form_of_a_trace_id(read, written, logged):
    (label,) = read(f'trace_id,correct,rater\n"{written}",1,ada\n')
    assert check_trace_id(replace(label)).trace_id == HEX
    labels = FinalLabels()
    labels.add(label)
    labels.meet([make_record(trace_id=logged)])
    assert labels.finalise(Scorer()).orphans == 0


@pytest.mark.parametrize("logged", ["run 7", "17", HEX[:-1], "a" * 16])
def test_any_other_id_of_a_log_is_compared_as_it_is_without_case(read, logged):
    (label,) = read(f"trace_id,correct,rater\n{logged.upper()},1,ada\n")
    labels = FinalLabels()
    labels.add(label)
    labels.meet([make_record(trace_id=logged)])
    assert labels.finalise(Scorer()).orphans == 0


ROWS = [
    {"trace_id": A, "correct": True, "rater": "ada", "comment": None},
    {"trace_id": UUID, "correct": False, "rater": "ada", "comment": "wrong"},
    {"trace_id": B, "correct": None, "rater": "ada", "comment": None},
]


@pytest.mark.parametrize("name", ["labels.json", "labels.jsonl", "labels.csv", "labels.xlsx", "labels.parquet"])
def test_a_sheet_is_read_in_every_format_and_nan_in_a_cell_is_absent(tmp_path, name):
    frame, path = pd.DataFrame(ROWS), tmp_path / name
    write = {
        "json": lambda: path.write_text(json.dumps([{**row, "ts": float("nan")} for row in ROWS])),
        "jsonl": lambda: path.write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
        "csv": lambda: frame.to_csv(path, index=False, na_rep="nan"),
        "xlsx": lambda: frame.to_excel(path, index=False),
        "parquet": lambda: frame.to_parquet(path, index=False),
    }
    write[path.suffix[1:]]()
    labels = read_labels(path, LabelSpelling())
    assert [(label.correct, label.comment) for label in labels] == [(True, None), (False, "wrong")]


def test_a_word_that_means_false_is_not_absent(read):
    (label,) = read(f"trace_id,correct,rater,comment\n{A},-,ada,-\n", true=["x"], false=["-"])
    assert label.correct is False


@pytest.mark.parametrize("ts", ["20.11.2025 09:00", "Thu, 20 Nov 2025 09:00:00 GMT", "1763629200000"])
def test_when_a_label_was_given_is_read_in_every_usual_form(read, ts):
    (label,) = read(f'trace_id,correct,rater,ts\n{A},1,ada,"{ts}"\n')
    assert label.ts == 1_763_629_200


def test_a_header_that_is_repeated_is_no_label(read):
    text = f"trace_id,correct,rater\n{A},1,ada\n"
    assert len(read(text + text)) == 2


# --- several ratings of one answer ------------------------------------------------------------------------------------

ANSWER = make_record(trace_id=A, ts=1_795_338_000.0, source="live", claim="an answer")


@pytest.mark.parametrize(
    ("one", "other"), [("1,,", "0,,"), ("0.5,,", "0.25,,"), (",true,", ",false,"), (",,d1", ",,d2"), ("1,,d1", "0,,d2")]
)
def test_of_two_rows_of_one_rater_and_one_time_the_same_counts_in_either_order(read, one, other):
    def reported(*rows):
        said = "".join(f"{A},{row},ada,1795338060\n" for row in rows)
        settled, scorer = FinalLabels(), Scorer()
        for label in read(f"trace_id,correct,answerable,relevant_ids,rater,ts\n{said}"):
            settled.add(label)
        settled.meet([ANSWER])
        settled.finalise(scorer)
        return scorer.state.digest()

    assert reported(one, other) == reported(other, one)
    assert reported(one) != reported(other)


@pytest.mark.parametrize("second", ["1,ada", "0,ada", "1,bob", "0,bob"])
def test_every_answer_of_a_sheet_counts_once_in_the_windows_however_often_it_was_rated(read, second):
    """They show the first rating; the report has the last ones."""
    live = Engine(defaults(), answers=1)
    live.observe(ANSWER, ANSWER.ts)
    for label in read(f"trace_id,correct,rater\n{A},1,ada\n{A},{second}\n"):
        live.apply(label, ANSWER.ts + 60.0)
    stat = live.scorer.snapshot().find("default", "label").metrics["answer_correct"]
    assert (stat.n, stat.value) == (1, 1.0)
