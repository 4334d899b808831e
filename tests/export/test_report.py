"""The report: JSON by the documented schema, every record accounted for, labels as in seed 002."""

from __future__ import annotations

import json

import pytest

from ragmon.core.errors import UnknownNameError
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Latency, Sampling, encode
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.monitor.replay import Run, replay
from ragmon.scoring.scorer import ReductionRules, Scorer
from ragmon.testing import make_gold, make_record
from tests.support.oracle import seed_002
from tests.support.runs import DEFAULT, GOLD, SMALL, run_file, small_report


@pytest.fixture(scope="module")
def report():
    return small_report()


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMA = {
    "": {"version", "gold", "records", "series", "latency_ms", "captured", "gates", "verdict", "digest"},
    "captured": {"pipeline", "source", "records", "since", "fields", "gaps"},
    "gold": {"name", "version", "items", "traced", "unscorable"},
    "records": {"read", "scored", "unmatched", "duplicate", "rejected"},
    "series": {"pipeline", "source", "gold", "gold_version", "window", "metrics"},
    "metric": {"value", "lower", "upper", "n", "sum", "unassessed"},
    "latency": {"p50", "p95", "p99"},
    "gates": {"pipeline", "gate", "metric", "source", "gold", "estimand", "threshold", "direction", "value", "lower"}
    | {"upper", "n", "n_eff", "needed", "verdict", "reason"},
}


def check_schema(found):
    assert set(found) == SCHEMA[""]
    assert set(found["records"]) == SCHEMA["records"]
    for gold in found["gold"]:
        assert set(gold) == SCHEMA["gold"]
    for series in found["series"]:
        assert set(series) == SCHEMA["series"]
        for metric in series["metrics"].values():
            assert set(metric) - {"estimands"} == SCHEMA["metric"]  # both intervals, of gated gold metrics
    for stage in found["latency_ms"].values():
        assert set(stage) == SCHEMA["latency"]
    for captured in found["captured"]:
        assert set(captured) == SCHEMA["captured"]
    for gate in found["gates"]:
        assert set(gate) == SCHEMA["gates"]


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


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


def test_a_gated_gold_metric_has_its_estimands_also_where_nothing_was_scored():
    """A program that reads `estimands` finds the member in every metric with gold, empty where there is no interval."""
    found = replay([make_record("a", error="timeout", claim=None, citations=None)], GOLD).data()
    (series,) = (series for series in found["series"] if series["gold"])
    assert series["metrics"]["answer_precision"]["estimands"] == {}


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


def mixed(**options):
    run = Run(Scorer(GOLD), **options)
    run.feed(MIXED)
    return run


def test_every_record_is_accounted_for(tmp_path):
    """Read is scored plus rejected; unmatched and repeated ones, and those with an unreadable field, are scored."""
    lines = [b"{broken", *map(encode, MIXED), b'{"qid":"a","latency_ms":{"total":NaN}}', b'{"retrieved_ids":3}']
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"\n".join(line.strip() for line in lines))
    intake = ReadSummary()
    run = Run(Scorer(GOLD), intake)
    run.feed(read_files([str(path)], intake))
    records = run.report(DEFAULT).data()["records"]
    assert records["read"] == len(MIXED) + 3
    assert records["scored"] == len(MIXED) + 1
    assert sum(records["rejected"].values()) == 2
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
    run = Run(Scorer(GOLD, rules=ReductionRules(slices={"lang": ["de"]})))
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
    run = Run(Scorer(gold, rules=ReductionRules(slices={"lang": ["de"]})))
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
    assert replay([], GOLD).metric("recall@5").n == 0


def test_a_metric_that_does_not_exist_is_an_error_with_the_nearest_name(report):
    with pytest.raises(UnknownNameError, match="unknown metric") as caught:
        report.metric("answer_precison")
    assert caught.value.hint.startswith("did you mean answer_precision")


@pytest.mark.parametrize(
    ("name", "text"), [("answer_precision", "<Stat 0.7624 (0.6707 to 0.8348) of 101"), ("mrr", "<Stat")]
)
def test_a_metric_is_printed_in_one_short_line(report, name, text):
    shown = str(report.metric(name))
    assert shown.startswith(text)
    assert len(shown) < 120
    assert "\n" not in shown


def test_a_metric_without_data_says_so_and_why():
    broken = replay([make_record("a", error="timeout", claim=None, citations=None)], GOLD)
    assert str(broken.metric("answer_precision")) == "<Stat no data of 0, 1 error>"


# --- seed 002's labels ------------------------------------------------------------------------------------------------


def published(text):
    """The rows of a report of Example 08: qid -> (answered, hit, refusal, label)."""
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    return {row[0]: tuple(row[1:]) for row in rows if row[0] != "qid"}


def rows_of(questions):
    flags = {q.qid: (q.answered, q.hit, q.refused) for q in questions}
    return {q.qid: (*(str(flag).lower() for flag in flags[q.qid]), q.label) for q in questions}


@pytest.mark.parametrize(("traces", "gold"), [("traces.jsonl", "gold.jsonl"), ("traces_002.jsonl", "qaset.json")])
def test_the_labels_are_those_the_published_scorer_printed(data, traces, gold):
    """All 200 rows: joined by qid, and, in the second shape, by question."""
    expected = published((data / "squad2/expected/wfgy_002_report_small.md").read_text(encoding="utf-8"))
    found = run_file(SMALL / traces, SMALL / gold).report(DEFAULT)
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
