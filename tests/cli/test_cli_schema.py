"""The JSON Schemas: valid ones, never stricter than ragmon itself, and they refuse what ragmon refuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon import GoldSet
from ragmon.cli.generate import SCHEMAS
from ragmon.core.constants import UNREADABLE
from ragmon.core.errors import GoldError
from ragmon.core.record import Label, Record, Totals, encode
from ragmon.ingest.gold_files import GOLD_ROW
from ragmon.ingest.lines import AnyShape, Rejected, decode
from tests.support.alarming import NOON, Traffic, write_config
from tests.support.command_line import SMALL, gold, lines, ragmon, traces

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
CHECKS = {name: jsonschema.validators.validator_for(make())(make()) for name, make in SCHEMAS.items()}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10**13)
    | st.floats(-2, 1e9)
    | st.sampled_from(["", " ", "a", "yes", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "verdict", "total", "claim", "citations", "p", "x"]), inner, max_size=3
        )
    ),
    max_leaves=5,
)
LINE = {
    "trace_id": "0" * 32,
    "rater": "r",
    "ts": 1.0,
    "instance": "i",
    "started": 1.0,
    "pipeline": "p",
    "source": "live",
}


def is_read(line):
    """Whether ragmon reads a line of a trace log, and every value in it."""
    unread = []
    try:
        decode(json.dumps(line).encode(), lambda field, reason, _="": unread.append((field, reason)))
    except Rejected:
        return False
    return all(reason != UNREADABLE for _, reason in unread)


def is_gold(row):
    """Whether ragmon reads a row of a gold file."""
    try:
        GoldSet.from_rows([row])
    except GoldError:
        return False
    return True


READS = {"trace": is_read, "gold": is_gold}


def problems(name, instance):
    return [f"{error.json_path}: {error.message}" for error in CHECKS[name].iter_errors(instance)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_is_a_schema_with_a_name_that_is_no_address(name):
    schema = SCHEMAS[name]()
    CHECKS[name].check_schema(schema)
    assert schema["$id"].startswith(f"urn:ragmon:schema:{name}:")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_the_command_prints_what_is_committed(name):
    done = ragmon("schema", name)
    assert (done.code, done.err) == (0, "")
    assert done.out == (ROOT / "docs" / "reference" / "schema" / f"{name}.schema.json").read_text(encoding="utf-8")


def test_another_name_is_refused_with_those_there_are():
    error, _ = ragmon("schema", "traces").error
    assert "'trace', 'gold', 'report', 'config'" in error


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_member_has_a_sentence(name):
    """Its own, or that of the table that it is."""
    schema = SCHEMAS[name]()
    defs = schema.get("$defs") or schema["definitions"]
    bare = [
        f"{place}.{member}"
        for place, schema in defs.items()
        for member, found in schema["properties"].items()
        if not found.get("description") and "const" not in found and "$ref" not in str(found)
    ]
    assert bare == []


# Never stricter than ragmon.


@pytest.mark.parametrize(
    "path", sorted(DATA.glob("squad2/**/*.jsonl*")) + sorted(DATA.glob("journals/*.jsonl")), ids=str
)
def test_real_lines_are_valid(path):
    read = gzip.open if path.suffix == ".gz" else open
    name = "gold" if "gold" in path.name else "trace"
    with read(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for _, line in zip(range(300), file, strict=False)]
    assert rows
    assert [found for row in rows for found in problems(name, row)] == []


@given(
    members=st.dictionaries(st.sampled_from([*AnyShape.__struct_fields__, "user_input", "response"]), JSON, max_size=5)
)
def test_a_record_that_ragmon_reads_is_valid(members):
    line = {"qid": "a", **members}
    assert not is_read(line) or problems("trace", line) == [], line


@given(
    st.sampled_from(["label", "totals"]),
    st.dictionaries(
        st.sampled_from([*LINE, "correct", "comment", "calls", "dropped", "latency_ms", "relevant_ids", "answer"]),
        JSON,
        max_size=3,
    ),
)
def test_a_label_or_totals_that_ragmon_reads_are_valid(kind, members):
    line = {**LINE, "correct": True, "kind": kind, **members}
    assert not is_read(line) or problems("trace", line) == [], line


@given(st.dictionaries(st.sampled_from([*GOLD_ROW, "reference", "user_input"]), JSON, max_size=6))
def test_a_row_of_gold_that_ragmon_reads_is_valid(members):
    row = {"qid": "a", "answerable": True, **members}
    assert not is_gold(row) or problems("gold", row) == [], row


def test_whatever_ragmon_itself_writes_is_valid():
    written = [
        Record(v=1, qid="a", retrieved_ids=["d1"], verdicts=[True], partial=True, tags={"a": "b"}),
        Totals(ts=1.0, instance="i", started=0.0, pipeline="p", source="live", latency_ms={-3: 1}),
        Label(trace_id="0" * 32, rater="r", correct=0.5),
    ]
    assert [problems("trace", json.loads(encode(line))) for line in written] == [[], [], []]


# What ragmon refuses.


def test_a_line_that_ragmon_refuses_is_invalid():
    for line in [
        {"v": 2, "qid": "a"},
        {"v": True, "qid": "a"},
        {"v": 1, "qid": True},
        {"v": 1, "qid": ["a"]},
        {"v": 1, "retrieved_ids": "d1"},
        {"v": 1, "retrieved_ids": [1.5]},
        {"v": 1, "answer_json": "yes"},
        {"v": 1, "answer_json": {"claim": ["yes"]}},
        {"v": 1, "ts": 1e300},
        {"v": 1, "ts": -1},
        {"v": 1, "source": "user"},
        {"v": 1, "partial": "false"},
        {"v": 1, "latency_ms": ["12"]},
        {"v": 1, "latency_ms": {"total": True}},
        {"v": 1, "sampling": {"p": 0}},
        {"v": 1, "sampling": {"p_audit": 1.5}},
        {"v": 1, "facts": {"refused": "no"}},
        {"v": 1, "verdicts": ["maybe"]},
        {"v": 1, "tags": ["a"]},
        {"v": 1, "measures": {"judge_tone": [1]}},
        {"kind": "other", "qid": "a"},
        {**LINE, "kind": "label"},
        {**LINE, "kind": "label", "correct": 2},
        {**LINE, "kind": "label", "correct": True, "rater": ""},
        {**LINE, "kind": "label", "correct": True, "comment": "x" * 10_001},
        {**LINE, "kind": "totals", "calls": -1},
        {**LINE, "kind": "totals", "calls": 10**14},
        {"kind": "totals", "calls": 1},
        ["a"],
    ]:
        assert not is_read(line), line
        assert problems("trace", line), line


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Why?", "answerable": True},
        {"qid": "a", "question": "Why?"},
        {"qid": " ", "answerable": True},
        {"qid": None, "answerable": True},
        {"qid": "a", "answerable": "true"},
        {"qid": "a", "answerable": True, "gold_claim_substr": "x"},
        {"qid": "a", "answerable": True, "gold_claim_substr": [""]},
        {"qid": "a", "answerable": True, "gold_citations": [1.5]},
        {"qid": "a", "answerable": True, "question": 1},
        {"qid": "a", "answerable": True, "tags": {"a": 1}},
    ],
    ids=lambda row: json.dumps(row)[:60],
)
def test_a_row_of_gold_that_ragmon_refuses_is_invalid(row):
    assert not is_gold(row)
    assert problems("gold", row)


# Reports.


def closed(schema):
    """A schema that allows no member which it does not name, so that it must name all that reports have."""
    for definition in schema["$defs"].values():
        definition["additionalProperties"] = False
    return jsonschema.Draft202012Validator(schema)


def test_the_schema_names_every_member_of_a_report(tmp_path):
    """Times, labels, a judge's versions, user traffic, latencies, weights and a baseline bring the optional members."""
    sampling = {"audit": True, "stratum": "rest", "p_audit": 0.5, "p": 0.5}
    live = [
        {
            **line,
            "v": 1,
            "trace_id": f"{n:032x}",
            "ts": 1e9 + 100 * n,
            "source": "live",
            "latency_ms": {"total": 5e3 * (n % 3)},
        }
        | {"measures": {"judge_tone": 0.5}, "judge_versions": {"judge_tone": "1"}, "sampling": sampling}
        for n, line in enumerate(traces())
    ]
    labels = [
        {"kind": "label", "trace_id": line["trace_id"], "rater": "r", "correct": n % 3 > 0, "ts": 2e9}
        for n, line in enumerate(live)
    ]
    told = {"kind": "totals", "v": 1, "ts": 1e9 + 5900, "instance": "i", "started": 1e9, "source": "live", "calls": 120}
    truth = lines(tmp_path / "gold.jsonl", gold())
    log = lines(tmp_path / "traces.jsonl", [*live, {**told, "pipeline": "default", "kept": 60}, *labels])
    before = lines(tmp_path / "before.jsonl", [{**line, "source": "live"} for line in traces(wrong=["a1"])])
    config = tmp_path / "ragmon.toml"
    config.write_text(
        '[gates.answer_precision]\nat_least = 0.8\nsource = "match"\n[judges.tone]\n[labels]\nproxy = "judge_tone"\n'
    )
    done = ragmon("gate", log, "--gold", truth, "--config", config, "--baseline", before, "--format", "json")
    report = done.json
    schema = SCHEMAS["report"]()
    assert [f"{e.json_path}: {e.message}" for e in closed(schema).iter_errors(report)] == []
    optional = set(schema["$defs"]["ReportData"]["properties"]) - set(schema["$defs"]["ReportData"]["required"])
    assert optional - report.keys() == {"incidents"}, done  # a replay that follows alarms has them


def test_the_schema_names_every_member_of_an_incident(tmp_path):
    traffic = Traffic(1)
    records = [r for n in range(75) for r in traffic.minute(NOON + n, **({"missed": 0.9} if n >= 45 else {}))]
    (tmp_path / "traces.jsonl").write_bytes(b"".join(map(encode, records)))
    config = write_config(tmp_path, '[gold.gold]\npath = "gold.jsonl"\n[alarms]\nbaseline = { learn = "30m" }\n')
    where = ("--config", config, "--incidents-out", tmp_path / "incidents.jsonl", "--format", "json")
    report = ragmon("replay", tmp_path / "traces.jsonl", *where).json
    assert report["incidents"]
    assert [f"{e.json_path}: {e.message}" for e in closed(SCHEMAS["report"]()).iter_errors(report)] == []


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("replay",), ("replay", "--windows"), ("gate",)], ids=" ".join)
def test_reports_of_real_data_are_valid(arguments):
    done = ragmon(*arguments, SMALL / "traces.jsonl", "--gold", SMALL / "gold.jsonl", "--format", "json")
    assert problems("report", done.json) == []


def test_the_golden_report_is_valid_and_half_of_one_is_not():
    report = json.loads((ROOT / "tests" / "golden" / "report_small.json").read_text(encoding="utf-8"))
    assert problems("report", report) == []
    del report["gates"]
    report["verdict"] = "maybe"
    assert len(problems("report", report)) == 2
