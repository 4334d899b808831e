"""Lines and values of files that cannot be read: no verdict passes that they could turn."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from ragmon import replay as score
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import encode
from ragmon.gates.evaluate import evaluate
from ragmon.ingest.files import ReadSummary
from ragmon.scoring.snapshot import ALL, Lost, Snapshot
from ragmon.stats.histograms import quantile
from ragmon.testing import make_record
from tests.support.command_line import ragmon
from tests.support.one_gate import FLOOR, GOLD_METRICS, PRECISION, SET, gold_run, series

OF_400 = Lost(requests=100, lines=400)
SCOPE = Gate("scope", "citation_scope", 0.95, "at_least")


def logged(path, *, lost, of=400, odd=b"{broken\n"):
    """A log of right answers, of whose lines every so many are something else."""
    every = of // lost if lost else of + 1
    lines = (odd if n % every == 0 else encode(make_record(f"q{n}")) for n in range(of))
    path.write_bytes(b"".join(lines))
    return str(path)


@pytest.mark.parametrize("odd", [b"{broken\n", b'{"v":2}\n', b'{"level":"info"}\n', b'{"q":"\xff"}\n', b"[]\n"])
def test_a_gate_does_not_pass_where_a_quarter_of_the_lines_cannot_be_read(tmp_path, odd):
    report = score(logged(tmp_path / "log.jsonl", lost=100, odd=odd), policy=Policy((SCOPE,)), config=os.devnull)
    (outcome,) = report.outcomes
    assert (report.verdict, outcome.value, outcome.n, outcome.unknown) == ("insufficient", 1.0, 300, 100)
    assert outcome.lower < 0.75 < outcome.upper == 1.0
    assert outcome.reason == "100 of 400 lines could not be read"


@pytest.mark.parametrize(("lost", "verdict"), [(0, "pass"), (2, "pass"), (20, "insufficient"), (200, "insufficient")])
def test_it_passes_where_it_would_whatever_they_say(tmp_path, lost, verdict):
    report = score(logged(tmp_path / "log.jsonl", lost=lost), policy=Policy((SCOPE,)), config=os.devnull)
    assert report.verdict == verdict


def test_a_gate_that_is_broken_whatever_they_say_fails(tmp_path):
    gate = Gate("empty", "citation_scope", 0.2, "at_most")
    report = score(logged(tmp_path / "log.jsonl", lost=100), policy=Policy((gate,)), config=os.devnull)
    assert report.verdict == "fail"


@pytest.mark.parametrize("mode", ["interval", "point"])
@pytest.mark.parametrize(
    ("gate", "found", "golds"),
    [
        (FLOOR, series(right=300, n=300, window=ALL, source="live"), ()),
        (PRECISION, gold_run(100, 100, traced=100), (SET,)),
        (replace(PRECISION, estimand="questions_like_these"), gold_run(100, 100, traced=100), (SET,)),
    ],
)
def test_every_kind_of_verdict_takes_them_for_unknown(mode, gate, found, golds):
    snapshot = Snapshot(0.0, (found,), golds, gold_metrics=GOLD_METRICS)
    for lost, verdict in ((Lost(), "pass"), (OF_400, "insufficient")):
        (outcome,) = evaluate(replace(snapshot, lost=lost), Policy((gate,), mode=mode), whole_run=True)
        assert outcome.verdict == verdict, outcome.reason
    assert "100 of 400 lines could not be read" in outcome.reason


def test_latencies_that_cannot_be_read_may_be_the_slowest():
    gate = Gate("p95", "latency_p95", 1.2, "at_most", kind="quantile_ratio", min_samples=10)
    found = series(n=300, window=ALL, latency={"total": {0: 200, 100: 100}})
    base = quantile({0: 200, 100: 100}, 0.95)
    for lost, verdict in ((Lost(), "pass"), (Lost(0, 400, 100), "insufficient"), (OF_400, "insufficient")):
        snapshot = Snapshot(0.0, (found,), lost=lost)
        policy = Policy((gate,), baseline_p95_ms={"default": base})
        assert evaluate(snapshot, policy, whole_run=True)[0].verdict == verdict


def test_an_index_may_be_in_the_lines_that_cannot_be_read():
    gate = Gate("indexes", "index_hash", 1, "at_most", kind="distinct")
    for lost, verdict in ((Lost(1, 400), "pass"), (OF_400, "insufficient")):
        snapshot = Snapshot(0.0, (), builds=(("default", "b1", "i1"),), lost=lost)
        assert evaluate(snapshot, Policy((gate,)), whole_run=True)[0].verdict == verdict


def test_traces_of_spans_that_are_no_requests_are_no_loss():
    intake = ReadSummary()
    for reason in ("not_rag", "no_span", "unknown_convention", "malformed_json"):
        intake.reject("spans.jsonl", 1, reason)
    assert (intake.rejections, intake.lost) == (4, 1)


@pytest.mark.slow
def test_the_commands_that_compare_prove_nothing_where_much_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = logged(tmp_path / "good.jsonl", lost=0)
    poor = logged(tmp_path / "poor.jsonl", lost=40)
    (tmp_path / "ragmon.toml").write_text("[gates]\ncitation_scope = { at_least = 0.5 }\n")
    assert ragmon("gate", good, "--baseline", good).code == 0
    done = ragmon("gate", poor, "--baseline", good)
    assert (done.code, "40 of 400 lines could not be read" in done.out) == (2, True)
    builds = [encode(make_record(f"{build}{n}", build=build)) for n in range(400) for build in "ab"]
    (tmp_path / "builds.jsonl").write_bytes(b"".join(builds))
    compare = ("compare", "builds.jsonl", "--by", "build", "--baseline", "a", "--candidate", "b", "--max-drop", "0.2")
    assert ragmon(*compare).code == 0
    assert ragmon("gate", "builds.jsonl", "--since-build", "b").code == 0
    (tmp_path / "builds.jsonl").write_bytes(b"".join(builds) + b"{broken\n" * 100)
    done = ragmon(*compare)
    assert (done.code, "100 of 900 lines could not be read" in done.out) == (2, True)
    assert ragmon("gate", "builds.jsonl", "--since-build", "b").code == 2


@pytest.mark.parametrize("citations", [[{"odd": "page-0"}], [True], [{"odd": {"id": "page-0"}}]], ids=str)
def test_citations_that_cannot_be_read_are_unknown_and_do_not_pass_either(tmp_path, citations):
    rows = (
        {
            "question": f"Q{n}?",
            "answer": "A.",
            "retrieved_ids": ["page-0"],
            "citations": ["page-0"] if n % 4 else citations,
        }
        for n in range(400)
    )
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = score(tmp_path / "log.jsonl", policy=Policy((SCOPE,)), config=os.devnull)
    assert (report.verdict, report.scored, report.outcomes[0].n, report.outcomes[0].unknown) == (
        "insufficient",
        400,
        300,
        100,
    )
    assert report.unknown == {"citations: unreadable": 100}
    assert [note for note in report.notes if note.startswith("citations: 100 values could not be read in ")]
