"""`ragmon show` on trace files, and what it sends to whom."""

from __future__ import annotations

import json
import re

import pytest

from ragmon.cli.client import parse_server_url
from ragmon.cli.query import _is_private
from tests.support.command_line import gold, lines, ragmon, traces
from tests.support.stub_server import serving

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202eesrever\u2028next \ud800"


@pytest.fixture
def folder(tmp_path):
    """Traces of a gold set without trace ids, one of them wrong."""
    lines(tmp_path / "traces.jsonl", traces(3, 2, wrong=["a1", "u0"]))
    lines(tmp_path / "gold.jsonl", gold(3, 2))
    return tmp_path


def show(folder, trace, *arguments):
    return ragmon("show", trace, folder / "traces.jsonl", "--gold", folder / "gold.jsonl", *arguments)


def test_a_record_without_a_trace_id_is_found_by_its_gold_question(folder):
    out = show(folder, "a1").out
    assert "answer    quite something else\n" in out
    assert re.search(r"1  d1 +gold, cited\n", out)
    assert "answer_precision 0 (gate answer_precision): no gold phrase is in the answer; it cites d1, " in out


def test_an_answer_that_gold_calls_impossible_says_so(folder):
    out = show(folder, "u0").out
    assert "unanswerable: the right answer is a refusal" in out
    assert "it was answered, and gold calls the question unanswerable" in out
    assert "under_refusal_rate 1 (gate under_refusal_rate): it was answered" in out


@pytest.mark.slow
def test_every_metric_of_the_report_has_its_score_and_a_reason(folder):
    """The mean over all requests of what `show` says is what `replay` reports."""
    report = ragmon("replay", folder / "traces.jsonl", "--gold", folder / "gold.jsonl", "--format", "json").json
    counted = next(series["metrics"] for series in report["series"] if series["gold"])
    shown = {}
    for qid in ("a0", "a1", "a2", "u0", "u1"):
        (request,) = show(folder, qid, "--format", "json").json["requests"]
        for metric in request["metrics"]:
            shown.setdefault(metric["metric"], []).append(metric["score"])
            assert metric["why"], metric
    for name, stat in counted.items():
        scores = [score for score in shown[name] if score is not None]
        assert len(scores) == stat["n"], name
        assert sum(scores) == pytest.approx(stat["sum"]), name


@pytest.mark.slow
@pytest.mark.parametrize("field", ["q", "claim", "context", "id", "tag", "session", "error"])
def test_no_text_of_a_request_steers_a_terminal(tmp_path, field):
    told = {"q": HOSTILE} if field == "q" else {"session": HOSTILE} if field == "session" else {}
    told |= {"tags": {HOSTILE: HOSTILE}} if field == "tag" else {"error": HOSTILE} if field == "error" else {}
    record = {
        "v": 1,
        "trace_id": "ab" * 16,
        "retrieved_ids": [HOSTILE if field == "id" else "d1"],
        "contexts": [HOSTILE if field == "context" else "text"],
        "answer_json": {"claim": HOSTILE if field == "claim" else "yes", "citations": [HOSTILE]},
        **told,
    }
    (tmp_path / "t.jsonl").write_text(json.dumps(record).replace("\\ud800", "?") + "\n")
    for form in ("text", "json"):
        done = ragmon("show", "ab" * 16, tmp_path / "t.jsonl", "--format", form)
        assert done.code == 0, done.err
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]", done.out)


def test_a_long_text_is_cut_and_says_so_unless_all_is_asked_for(tmp_path):
    record = {"v": 1, "trace_id": "ab" * 16, "retrieved_ids": ["d1"], "contexts": ["word " * 500]}
    lines(tmp_path / "t.jsonl", [record])
    cut = ragmon("show", "abababab", tmp_path / "t.jsonl").out
    assert "… (2,500 characters; --full shows all)" in cut
    assert "word " * 499 in ragmon("show", "abababab", tmp_path / "t.jsonl", "--full").out


@pytest.mark.slow
@pytest.mark.parametrize(("field", "most"), [("q", 4000), ("claim", 4000)])
def test_a_question_or_an_answer_of_a_megabyte_is_cut_too(tmp_path, field, most):
    text = "x" * 1_000_000
    told = {"q": text} if field == "q" else {"answer_json": {"claim": text, "citations": []}}
    lines(tmp_path / "t.jsonl", [{"v": 1, "trace_id": "ab" * 16, **told}])
    cut = ragmon("show", "abababab", tmp_path / "t.jsonl").out
    assert "… (1,000,000 characters; --full shows all)" in cut
    assert most <= cut.count("x") < most + 500
    assert ragmon("show", "abababab", tmp_path / "t.jsonl", "--full").out.count("x") > 90_000


@pytest.mark.parametrize(
    ("content", "error"),
    [("", "there is no record in it"), ("no json\n[1]\n", "no record could be read, 2 rejected; the first: ")],
)
def test_a_file_in_which_nothing_can_be_read_is_named_as_the_reason(tmp_path, content, error):
    (tmp_path / "t.jsonl").write_text(content)
    done = ragmon("show", "abababab", tmp_path / "t.jsonl")
    assert done.code == 3
    assert error in done.error[0]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["traces.jsonl"], ["--state-dir", "."], ["--url", "http://127.0.0.1:9"]])
@pytest.mark.parametrize("trace", ["", " "])
def test_an_empty_trace_is_no_trace_id_wherever_it_is_looked_for(folder, trace, arguments):
    done = ragmon("show", trace, *arguments, cwd=folder)
    assert done.code == 3
    assert f"TRACE is {trace!r}, which is not a trace id" in done.error[0]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"sampling": {"audit": False}}, "the call was kept for its outcome; `[sampling] detail = true` keeps more"),
        ({"ended": "abandoned"}, "the line does not have it"),
        ({}, "the line does not have it"),
    ],
)
def test_why_documents_of_a_partial_record_are_missing(tmp_path, told, why):
    lines(tmp_path / "t.jsonl", [{"v": 1, "trace_id": "ab" * 16, "q": "one?", "partial": True, **told}])
    assert f"(not captured: {why})" in ragmon("show", "abababab", tmp_path / "t.jsonl").out


def test_requests_that_share_a_trace_are_all_shown(tmp_path):
    told = {"v": 1, "trace_id": "ab" * 16}
    lines(tmp_path / "t.jsonl", [{**told, "q": "one?"}, {**told, "q": "two?"}])
    assert ragmon("show", "abababab", tmp_path / "t.jsonl").out.count("\nquestion ") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["ab" * 16, "traces.jsonl"], "there is no record of trace"),
        (["a", "traces.jsonl"], "there is no record of trace 'a'"),
        (["a1", "nothing.jsonl"], "nothing.jsonl: cannot be read"),
        (["a1", "traces.jsonl", "--url", "x"], "FILES, --url and --state-dir are three places: name one of them"),
        (["a1", "--state-dir", "."], "there is no journal"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(folder, arguments, error):
    done = ragmon("show", *arguments, cwd=folder)
    assert error in done.error[0]


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("http://127.0.0.1:9464", True),
        ("http://localhost:9464", True),
        ("http://[::1]:9464", True),
        ("https://ragmon.example", True),
        ("http://ragmon.example:9464", False),
        ("10.0.0.7:9464", False),
    ],
)
def test_the_token_goes_over_tls_or_stays_on_this_machine(url, private):
    assert _is_private(parse_server_url(url)) is private


def test_it_is_sent_to_a_server_on_this_machine(tmp_path):
    (tmp_path / "token").write_text("s3cret-of-16-bytes\n")
    (tmp_path / "ragmon.toml").write_text(f'[serve]\ntoken_file = "{tmp_path}/token"\nstate_dir = "nowhere"\n')
    body = b'{"error": "there is no record", "hint": "retention"}'
    with serving(lambda *_: (404, body)) as (address, asked):
        done = ragmon("show", "../x", "--url", f"http://{address}", cwd=tmp_path)
    assert done.error == ("there is no record", "retention")
    assert [(path, headers["Authorization"]) for path, _, headers in asked] == [
        ("/api/traces/..%2Fx", "Bearer s3cret-of-16-bytes")
    ]
