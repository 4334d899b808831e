"""The report: JSON by the documented schema, Markdown that nobody's text can break, labels as in seed 002."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from oracle import seed_002

from ragmon.contract import Latency, Sampling, encode
from ragmon.export.gates import text
from ragmon.export.markdown import escape, one_line, render, render_gates
from ragmon.export.report import Question
from ragmon.gates import Gate, Policy
from ragmon.gold import GoldSet
from ragmon.ingest.files import Intake, read_files
from ragmon.item import GoldItem
from ragmon.offline import Run, replay
from ragmon.presets import PRESETS
from ragmon.scorer import Rules, Scorer
from ragmon.testing import make_gold, make_record

DEFAULT = Policy(PRESETS["default"])


def run_file(traces, gold, **options):
    intake = Intake()
    run = Run(Scorer(GoldSet.load(gold)), intake, **options)
    run.feed(read_files([str(traces)], intake))
    return run


@pytest.fixture(scope="module")
def small(data):
    return data / "squad2" / "small"


@pytest.fixture(scope="module")
def report(small):
    return run_file(small / "traces.jsonl", small / "gold.jsonl").report(DEFAULT)


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMA = {
    "": {"version", "gold", "records", "series", "latency_ms", "gates", "verdict", "digest"},
    "gold": {"name", "version", "items", "traced", "unscorable"},
    "records": {"read", "scored", "unmatched", "duplicate", "rejected"},
    "series": {"pipeline", "source", "gold", "gold_version", "window", "metrics"},
    "metric": {"value", "lower", "upper", "n", "sum", "unassessed"},
    "latency": {"p50", "p95", "p99"},
    "gates": {"pipeline", "gate", "metric", "source", "gold", "estimand", "threshold", "direction", "value", "lower"}
    | {"upper", "n", "needed", "verdict", "reason"},
}


def check_schema(found):
    assert set(found) == SCHEMA[""]
    assert set(found["records"]) == SCHEMA["records"]
    for gold in found["gold"]:
        assert set(gold) == SCHEMA["gold"]
    for series in found["series"]:
        assert set(series) == SCHEMA["series"]
        for metric in series["metrics"].values():
            assert set(metric) == SCHEMA["metric"]
    for stage in found["latency_ms"].values():
        assert set(stage) == SCHEMA["latency"]
    for gate in found["gates"]:
        assert set(gate) == SCHEMA["gates"]


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def test_the_json_has_the_documented_keys_and_no_others(report):
    found = json.loads(report.json(), parse_constant=refuse)
    check_schema(found)
    assert found == json.loads(json.dumps(report.data()))
    assert len(found["gates"]) == len(DEFAULT.gates)


def test_a_report_on_nothing_has_null_values_and_no_nan():
    """No trace at all, and traces without anything to assess: never 0, never 1, never NaN."""
    for records in ([], [make_record("a", claim=None, citations=None, retrieved=None)]):
        found = json.loads(replay(records, make_gold(("a", True))).json(), parse_constant=refuse)
        check_schema(found)
        for series in found["series"]:
            for metric in series["metrics"].values():
                assert (metric["value"] is None) == (metric["lower"] is None) == (metric["n"] == 0)
        assert all(gate["value"] is None for gate in found["gates"] if gate["n"] == 0)
        assert found["verdict"] != "pass"


def test_values_sums_and_bounds_belong_together(report):
    for series in report.data()["series"]:
        for name, metric in series["metrics"].items():
            if metric["n"]:
                assert 0 <= metric["sum"] <= metric["n"], name
                assert metric["value"] == pytest.approx(metric["sum"] / metric["n"], abs=1e-6), name
                assert metric["lower"] <= metric["value"] <= metric["upper"], name
                numbers = (metric["value"], metric["lower"], metric["upper"])
                assert all(number == round(number, 6) for number in numbers), name


def test_known_values_of_the_small_set(report):
    """Counted by hand from the two files: 101 shipped of which 77 are right, 15 of 100 unanswerable shipped."""
    assert report.metric("answer_precision").value == pytest.approx(77 / 101)
    assert report.metric("under_refusal_rate").value == pytest.approx(15 / 100)
    assert report.metric("over_refusal_rate").value == pytest.approx(14 / 100)
    assert report.metric("compliance").n == 200


MIXED = [
    make_record("a", pipeline="p", ts=1000.0, latency_ms=Latency(total=100.0)),
    make_record("a", pipeline="p", ts=1400.0),
    make_record("a", pipeline="q", ts=1400.0),
    make_record("b", pipeline="p", claim="not in context", citations=[]),
    make_record("c", pipeline="p", error="timeout", claim=None, citations=None),
    make_record(None, pipeline="p", source="live", q="question a?", latency_ms=Latency(total=900.0)),
    make_record(None, pipeline="p", source="live", q="nobody knows", ts=2000.0),
    make_record("nobody", pipeline="q"),
]
GOLD = make_gold(("a", True), ("b", False), ("c", True), ("d", True))


def mixed(**options):
    run = Run(Scorer(GOLD), **options)
    run.feed(MIXED)
    return run


def test_every_record_is_accounted_for(tmp_path):
    """Read is scored plus rejected; unmatched and repeated ones are scored."""
    lines = [b"{broken", *map(encode, MIXED), b'{"qid":"a","latency_ms":{"total":NaN}}', b'{"retrieved_ids":3}']
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"\n".join(line.strip() for line in lines))
    intake = Intake()
    run = Run(Scorer(GOLD), intake)
    run.feed(read_files([str(path)], intake))
    records = run.report(DEFAULT).data()["records"]
    assert records["read"] == len(MIXED) + 3
    assert records["scored"] == len(MIXED)
    assert sum(records["rejected"].values()) == 3
    assert records["unmatched"] == 2
    assert records["duplicate"] == 1


def test_records_add_up_over_series():
    """Over all requests every record stands once; a matched user question stands under its gold as well."""
    found = mixed().report(DEFAULT)
    over_all = [s for s in found.snapshot.series if not s.gold and s.source != "match"]
    assert sum(s.records for s in over_all) == found.scored == len(MIXED)
    for series in over_all:
        assert series.metrics["error_rate"].n == series.records
    with_gold = [s for s in found.snapshot.series if s.gold]
    assert sum(s.records for s in with_gold) == len(MIXED) - found.unmatched


def test_a_question_two_pipelines_answer_repeats_nothing():
    assert mixed().report(DEFAULT).duplicate == 1
    assert {(q.pipeline, q.qid) for q in mixed().report(DEFAULT).questions if q.qid == "a"} == {("p", "a"), ("q", "a")}


@pytest.mark.parametrize(("duplicates", "value"), [("all", 0.5), ("first", 1.0), ("last", 0.0)])
def test_which_record_of_a_repeated_question_counts(duplicates, value):
    """`last` and `first` leave records out, for each pipeline by itself, and count what they leave out."""
    right, wrong = make_record("a", claim="an answer"), make_record("a", claim="no")
    other = make_record("a", pipeline="q")
    run = Run(Scorer(GOLD), duplicates=duplicates)
    run.feed([right, other, wrong])
    found = run.report(DEFAULT)
    assert found.metric("answer_precision", pipeline="default").value == value
    assert found.metric("answer_precision", pipeline="q").value == 1.0
    assert (found.read, found.duplicate) == (3, 1)
    assert found.scored == (3 if duplicates == "all" else 2)


def test_a_call_kept_for_its_outcome_alone_is_in_no_estimate():
    """Only members of the uniform draw say how common something is; the others are examples."""
    kept = Sampling(audit=False, stratum="error", p_audit=0.05, p=1.0)
    records = [
        make_record("a"),
        make_record("b", claim="not in context", sampling=kept),
        make_record("a", sampling=kept),
    ]
    found = replay(records, GOLD)
    assert found.scored == 3
    assert found.metric("refusal_rate").n == found.metric("answer_precision").n == 1
    assert [(q.qid, q.times) for q in found.questions] == [("a", 1)]
    assert (found.golds()[0]["traced"], found.duplicate) == (1, 0)


def test_slices_repeat_no_question():
    """Records of a slice are counted in it once more, but happened once."""
    run = Run(Scorer(GOLD, rules=Rules(slices={"lang": ["de"]})))
    run.feed([make_record("a", tags={"lang": "de"}), make_record("b", tags={"lang": "fr"})])
    found = run.report(DEFAULT)
    assert found.duplicate == 0
    assert [(q.qid, q.times) for q in found.questions] == [("a", 1), ("b", 1)]


def test_gold_coverage_counts_items_not_records():
    (gold,) = mixed().report(DEFAULT).data()["gold"]
    assert (gold["items"], gold["traced"], gold["unscorable"]) == (4, 3, 1)


def test_slices_do_not_change_the_coverage_of_the_gold_set():
    """A slice holds fewer items than the set; the set's coverage is not the slice's."""
    gold = make_gold(
        *(GoldItem(str(i), f"q{i}", True, citations=["d1"], tags={"lang": "de"}) for i in range(2)), ("z", True)
    )
    run = Run(Scorer(gold, rules=Rules(slices={"lang": ["de"]})))
    run.feed([make_record("0"), make_record("1"), make_record("z")])
    found = run.report(DEFAULT).data()
    assert found["gold"][0]["traced"] == 3
    assert [s["slice"] for s in found["series"] if "slice" in s] == ["lang=de"] * 2


def test_latency_counts_a_matched_user_question_once():
    found = mixed().report(DEFAULT).data()["latency_ms"]
    assert list(found) == ["total"]
    assert found["total"]["p50"] == pytest.approx(100, rel=0.01)
    assert found["total"]["p99"] == pytest.approx(900, rel=0.01)


def test_windows_add_a_series_per_span_and_step_end():
    """Each step of five minutes with records ends every window once; the whole run stays as it was."""
    run = mixed()
    plain, found = run.report(DEFAULT), run.report(DEFAULT, windows=True)
    added = found.data()["series"][len(plain.data()["series"]) :]
    assert plain.data()["series"] == found.data()["series"][: len(plain.data()["series"])]
    assert {(series["window"], series["end"]) for series in added} == {
        *(("5m", 1200), ("5m", 1500), ("5m", 2100)),
        *((window, end) for window in ("1h", "24h") for end in (1200, 1500, 2100)),
    }
    assert found.outcomes == plain.outcomes


def test_half_a_surrogate_pair_in_a_trace_is_escaped_in_json():
    found = replay([make_record("a", pipeline="\ud800 \U0001f600")])
    raw = found.json().encode("utf-8")
    assert json.loads(raw)["series"][0]["pipeline"] == "\ud800 \U0001f600"


def test_a_metric_nobody_has_is_an_empty_statistic(report):
    assert report.metric("answer_precision", pipeline="nobody").value is None
    assert report.metric("no_such_metric").n == 0


# --- seed 002's labels ------------------------------------------------------------------------------------------------


def published(text):
    """The rows of a report of Example 08: qid -> (answered, hit, refusal, label)."""
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    return {row[0]: tuple(row[1:]) for row in rows if row[0] != "qid"}


def rows_of(questions):
    flags = {q.qid: (q.answered, q.hit, q.refused) for q in questions}
    return {q.qid: (*(str(flag).lower() for flag in flags[q.qid]), q.label) for q in questions}


@pytest.mark.parametrize(("traces", "gold"), [("traces.jsonl", "gold.jsonl"), ("traces_002.jsonl", "qaset.json")])
def test_the_labels_are_those_the_published_scorer_printed(data, small, traces, gold):
    """All 200 rows: joined by qid, and, in the second shape, by question."""
    expected = published((data / "squad2/expected/wfgy_002_report_small.md").read_text(encoding="utf-8"))
    found = run_file(small / traces, small / gold).report(DEFAULT)
    assert len(expected) == 200
    assert rows_of(found.questions) == expected


SHARED = "Who won?"
DISPUTED = [
    {"qid": "first", "q": SHARED, "answerable": True, "gold_ids": ["d1"]},
    {"qid": "second", "q": SHARED, "answerable": False, "gold_ids": []},
    {"qid": "silent", "q": "Where?", "answerable": True, "gold_ids": ["d1"]},
    {"qid": "broken", "q": "When?", "answerable": False, "gold_ids": []},
    {"qid": "spelt", "q": "What is X?", "answerable": True, "gold_ids": ["d1"]},
    {"qid": "dotted", "q": "Why?", "answerable": False, "gold_ids": []},
]
PREDICTIONS = [
    {"qid": "first", "q": SHARED, "answer": "Spain citations: [d1]"},
    {"qid": "silent", "q": "Where?", "answer": ""},
    {"qid": "broken", "q": "When?", "answer": "1912 citations: [d1]", "ok": False},
    {"qid": "spelt", "q": "what is x", "answer": "A mapping citations: [d1]"},
    {"qid": "dotted", "q": "Why?", "answer": "\uff4eot in context"},
]


def test_where_labels_differ_from_seed_002_and_why(tmp_path):
    """Seed 002 joins by the exact question, knows neither empty answers nor errors, and folds the token less."""
    gold, traces = tmp_path / "qaset.json", tmp_path / "traces.jsonl"
    gold.write_text(json.dumps(DISPUTED), encoding="utf-8")
    traces.write_text("\n".join(map(json.dumps, PREDICTIONS)), encoding="utf-8")
    theirs = {qid: row[-1] for qid, row in published(seed_002.report(DISPUTED, PREDICTIONS)).items()}
    ours = {q.qid: q.label for q in run_file(traces, gold).report(DEFAULT).questions}
    assert theirs == {
        "second": "HALLUCINATION",  # the last gold item with this question takes the other one's answer
        "silent": "ANS_NO_HIT",  # nothing said counts as answered
        "broken": "HALLUCINATION",  # `ok: false` is not read
        "dotted": "HALLUCINATION",  # full-width letters are not the token
    }
    assert ours == {
        "first": "OK",
        "silent": "NO_ANSWER",
        "broken": "NO_ANSWER",
        "spelt": "OK",  # case and punctuation do not matter, and the qid says so anyway
        "dotted": "REFUSAL_OK",
    }


def test_what_happened_twice_to_a_question_is_one_row():
    found = replay([make_record("a"), make_record("a"), make_record("a", build="v2")], GOLD)
    assert [(q.qid, q.label, q.times) for q in found.questions] == [("a", "OK", 3)]


# --- Markdown ---------------------------------------------------------------------------------------------------------

HOSTILE = (
    "a|b",
    "a\\|b\\",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "`code` ``",
    "two\nlines\r\n\nand a table | x |",
    "sep\u2028ar\u2029ated\x85",
    "\u202eesrever",
    "\ud800 alone",
    "# heading",
    "- item",
    "1. one",
    "=== ---",
    "*star* _under_ __dunder__ ~~gone~~ snake_case_",
    "[link](http://evil.example) ![image](x)",
    "http://evil.example www.evil.example someone@evil.example",
    "&lt;b&gt; &amp;",
    "\x1b[31mred\x07\x00",
    "x" * 1000,
    "",
    " ",
)
ANYTHING = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), max_size=40))

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def cells(markdown):
    """The tables of a Markdown text as a parser reads them: rows of plain texts."""
    rows, tokens = [], MARKDOWN.parse(markdown)
    for token, content in pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("td_open", "th_open"):
            rows[-1].append("".join(child.content for child in content.children))
    return rows


def kinds(markdown):
    """All kinds of tokens in a Markdown text."""
    return {inner.type for token in MARKDOWN.parse(markdown) for inner in (token, *(token.children or ()))}


@given(ANYTHING)
def test_an_escaped_text_is_read_as_it_was_written(hostile):
    """A parser finds one paragraph of plain text: no markup, no HTML, no second line, no other cell."""
    table = f"| a | b |\n| --- | --- |\n| {escape(hostile)} | end |\n"
    shown = " ".join(one_line(hostile).split())
    assert [" ".join(cell.split()) for cell in cells(table)[1]] == [shown, "end"]
    in_cell = {"table_open", "thead_open", "tr_open", "th_open", "inline", "text", "text_special", "th_close"}
    in_cell |= {"tr_close", "thead_close", "tbody_open", "td_open", "td_close", "tbody_close", "table_close"}
    assert kinds(table) <= in_cell
    blocks = [token.type for token in MARKDOWN.parse(f"- {escape(hostile)}")]
    paragraph = ["paragraph_open", "inline", "paragraph_close"] if shown else []
    assert blocks == ["bullet_list_open", "list_item_open", *paragraph, "list_item_close", "bullet_list_close"]


def test_addresses_do_not_become_links_by_themselves():
    """GitHub makes links of bare addresses and mentions; a backslash in the middle keeps them text."""
    shown = escape("http://evil.example WWW.evil.example someone@evil.example")
    assert shown == "http\\://evil.example WWW\\.evil.example someone\\@evil.example"


@given(ANYTHING)
def test_one_line_fits_on_a_line_of_a_terminal_or_a_file(hostile):
    line = one_line(hostile)
    assert len(line.splitlines()) <= 1
    assert len(line) <= 200
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e]", line)
    line.encode("utf-8")


@pytest.mark.parametrize("plain", ["answer_precision", "normans#17", "5 of 30 (2.5 %)", "3.14", "a-b+c", "it's 'so'!"])
def test_ordinary_names_stay_readable_in_the_source(plain):
    assert escape(plain).replace("\\#", "#") == plain


def hostile_report(name):
    """A report in which everything an outsider may name is named so."""
    printable = name.encode("utf-8", "replace").decode("utf-8") or "x"
    gold = make_gold(GoldItem(printable, "q", True, citations=["d1"]), name=printable)
    gate = Gate(name, "compliance", 0.98, "at_least", pipeline=name or "default")
    records = [
        make_record(printable, pipeline=name, build=name, index_hash=name),
        make_record(printable, pipeline="other"),
        make_record(None, pipeline=name, error=name),
    ]
    distinct = Gate("index", "index_hash", 1, "at_most", pipeline=name or "default", kind="distinct")
    found = replay(records, gold, Policy((gate, distinct)))
    extra = Question(name, answered=True, hit=False, refused=False, label="OK", times=2)
    return replace(found, questions=[*found.questions, extra], notes=[name], rejected={name: 1})


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_the_markdown_report(name):
    """No raw HTML or link, every row as wide as its head, every line of the source in UTF-8."""
    found = hostile_report(name)
    for shown in (render(found), render_gates(found)):
        shown.encode("utf-8")
        assert "<script" not in shown
        assert "<img" not in shown
        assert not kinds(shown) & {"html_block", "html_inline", "link_open", "image", "code_block", "fence", "hr"}
        width = 0
        for line in shown.split("\n"):
            row = re.sub(r"\\.", "", line)
            if line.startswith("| "):
                width = width or row.count("|")
                assert row.count("|") == width, line
            elif not line.startswith("| ---"):
                width = 0 if not line.startswith("|") else width


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_the_text_report(name):
    """One line a gate and the verdict last, and nothing a terminal would obey."""
    shown = text(hostile_report(name))
    lines = shown.splitlines()
    assert lines[-1].startswith("verdict: ")
    assert len(lines) == 1 + 2 + 1 + 1
    assert "\x1b" not in shown
    shown.encode("utf-8")


def test_markdown_has_every_part(report):
    shown = render(report, questions=None)
    heads = ["# RAG quality report", "## Gates", "## pipeline default, source replay", "## Per-question"]
    assert all(head in shown.split("\n") for head in heads)
    assert shown.count("| **REFUSAL_OK** |") == 85
    assert "… and" not in shown


def test_long_question_tables_are_cut_and_say_so(report):
    shown = render(report, questions=3)
    assert "… and 197 more (`--questions all` shows them)" in shown
    assert shown.count("| **") == 3


def test_a_metric_without_data_is_a_dash_not_a_zero():
    shown = render(replay([make_record("a", claim=None, citations=None, retrieved=None)], GOLD))
    assert ["empty_retrieval_rate", "–", "–", "0", "1 no_ids"] in cells(shown)


def test_the_text_report_says_what_each_gate_rests_on(report):
    lines = text(report).splitlines()
    assert re.match(
        r"default/answer_precision +76\.2 % +67\.0 – 83\.5 % +>= 0\.8 +101 +fail +exact over 200 gold items; ", lines[1]
    )
    assert lines[-1] == "verdict: fail"


def test_kinds_of_gates_show_their_own_kind_of_value():
    policy = Policy(PRESETS["wfgy-live"], baseline_p95_ms={"default": 100.0})
    records = [make_record(str(i), index_hash="aa", build="v1", latency_ms=Latency(total=120.0)) for i in range(300)]
    lines = {line.split()[0]: line.split() for line in text(replay(records, None, policy)).splitlines()[1:-1]}
    ratio, unit = lines["default/latency_p95"][1:3]
    assert (float(ratio), unit) == (pytest.approx(1.2, rel=0.01), "x")
    assert lines["default/index_hash"][1] == "1"
