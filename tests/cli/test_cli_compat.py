"""`ragmon replay --compat`: what the five published scorers print, byte for byte, with their own options."""

from __future__ import annotations

import json

import pytest

from ragmon.compat.seed_004 import STOP_WORDS
from tests.support.command_line import SMALL, lines, ragmon
from tests.support.oracle import seed_001, seed_003, seed_004

TRACES, GOLD = str(SMALL / "traces.jsonl"), str(SMALL / "gold.jsonl")


@pytest.mark.slow
def test_seed_000(data):
    expected = json.loads((data / "squad2/expected/wfgy_000.json").read_text())["small"]
    for option, k in (((), 5), (("--k", 3), 3)):
        done = ragmon("replay", TRACES, "--gold", GOLD, "--compat", "seed-000", *option)
        assert done.out == json.dumps(expected[f"k={k}"], indent=2) + "\n"
        assert (done.code, done.err) == (0, "")


@pytest.mark.slow
def test_seed_000_with_gates_of_its_own():
    gates = "precision=0.60,chr=0.75,under=0.20,over=0.20"
    report = ragmon("replay", TRACES, "--gold", GOLD, "--compat", "seed-000", "--gates", gates).json
    assert report["gates"] == dict(part.split("=") for part in gates.split(","))
    assert report["pass"] is True


@pytest.mark.slow
def test_seed_001(tmp_path):
    verdicts = ["yes", "no", "yes"]
    cases = lines(tmp_path / "c.jsonl", [{"retrieval_context": ["a", "b", "c"], "verdicts": verdicts, "reason": "r"}])
    for option, bar, strict in (((), 0.5, False), (("--threshold", 0.9), 0.9, False), (("--strict",), 0.5, True)):
        done = ragmon("replay", cases, "--compat", "seed-001", *option)
        assert done.out == json.dumps(seed_001.result(verdicts, 3, "r", bar, strict=strict)) + "\n"


@pytest.mark.slow
def test_seed_002(data, tmp_path):
    expected = (data / "squad2/expected/wfgy_002_report_small.md").read_bytes()
    files = SMALL / "traces_002.jsonl", "--gold", SMALL / "qaset.json"
    path = tmp_path / "report.md"
    assert ragmon("replay", *files, "--compat", "seed-002").out.encode() == expected
    assert ragmon("replay", *files, "--compat", "seed-002", "-o", path).code == 0
    assert path.read_bytes() == expected


@pytest.mark.slow
def test_seed_003(tmp_path):
    found, wanted = [["The apple.", "a pear"], ["nothing"]], [["apple", "plum"], ["pear"]]
    runs = lines(tmp_path / "t.jsonl", [{"qid": f"q{n}", "contexts": texts} for n, texts in enumerate(found)])
    right = lines(tmp_path / "g.jsonl", [{"qid": f"q{n}", "gold_contexts": texts} for n, texts in enumerate(wanted)])
    done = ragmon("replay", runs, "--gold", right, "--compat", "seed-003")
    assert done.out == json.dumps(seed_003.evaluate(found, wanted), indent=2) + "\n"


@pytest.fixture
def research(tmp_path):
    """Two queries; the relevant section is found first for one and second for the other."""
    folder = tmp_path / "benchmark"
    folder.mkdir()
    right = {"doc_id": "7.1v1", "section_id": 12}
    for name, content in (
        ("queries", {"q1": {"query": "One?"}, "q2": {"query": "Two?"}}),
        ("qrels", {"q1": right, "q2": right}),
        ("answers", {"q1": "x", "q2": "y"}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content))
    records = [
        {
            "query_id": "q1",
            "retrieved": ["7.1v1_12_0", "8_1_0"],
            "contexts": ["red apples"],
            "answer": "red apples",
        },
        {"query_id": "q2", "retrieved": ["8_1_0", "7.1v1_12_3"], "contexts": ["green"], "answer": "blue plums"},
    ]
    traced = [{"qid": r["query_id"], "retrieved_ids": r["retrieved"], **r} for r in records]
    queries = [{**record, "qrel": right} for record in records]
    return lines(tmp_path / "t.jsonl", traced), folder, queries


@pytest.mark.slow
def test_seed_004(research):
    path, folder, queries = research
    files = path, "--gold", folder, "--compat", "seed-004"
    for option, chosen, bar in (
        ((), queries, 0.1),
        (("--max-queries", 1), queries[:1], 0.1),
        (("--threshold", 1.0), queries, 1.0),
    ):
        figures = seed_004.metrics(chosen, STOP_WORDS, bar)
        named = list(figures.items())
        flat = {name: value if isinstance(value, int) else round(value, 4) for name, value in named[:5]}
        assert ragmon("replay", *files, *option).out == json.dumps(flat, indent=2) + "\n"
    details = ragmon("replay", *files, "--include-details").json
    assert [result["query_id"] for result in details["per_query_results"]] == ["q1", "q2"]
    without = ragmon("replay", *files, "--include-details", "--skip-generation").json["metrics"]
    assert (details["metrics"]["queries_with_groundedness"], without["queries_with_groundedness"]) == (2, 0)


def test_where_the_published_scorer_crashes_the_command_says_why(tmp_path):
    message, hint = ragmon("replay", TRACES, "--gold", tmp_path / "none.jsonl", "--compat", "seed-000").error
    assert "none.jsonl" in message
    assert hint


def test_reads_standard_input(data):
    expected = (data / "squad2/expected/wfgy_002_report_small.md").read_text()
    plain = (SMALL / "traces_002.jsonl").read_text()
    done = ragmon("replay", "-", "--gold", SMALL / "qaset.json", "--compat", "seed-002", say=plain)
    assert done.out == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--k", "5"], "--k does nothing without --compat"),
        (["--compat", "seed-002", "--threshold", "0.5"], "--threshold does nothing with --compat seed-002"),
        (["--compat", "seed-000", "--format", "md"], "--format does nothing with --compat seed-000"),
        (["--format", "md", "--windows"], "--windows does nothing with --format md"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(options, message):
    assert ragmon("replay", TRACES, "--gold", GOLD, *options).error == (message, "ragmon replay --help")
