"""What may leave the process: no text by default, and what the text said all the same."""

from __future__ import annotations

import json

import pytest
from capturing import pipeline

import ragmon
from ragmon import offline
from ragmon.capture.said import probe
from ragmon.ingest.files import Intake, read_files
from ragmon.installation import Installation
from ragmon.metrics import Metric, base
from ragmon.testing import Collected, make_gold

GOLD = '{"qid": "q1", "question": "Where is it?", "answerable": true, "gold_claim_substr": ["harbour"]}\n'
SECRET = ("Where is it?", "At the harbour", "a passage on the harbour")


@pytest.fixture
def logged(configured, tmp_path):
    """The lines of the trace log under a configuration; in it users and a probe ask two pipelines."""

    def run(text, claim="At the harbour"):
        (tmp_path / "gold.jsonl").write_text(GOLD)
        installed = Installation(configured(text + '\n[export]\njsonl = "trace.jsonl"'), Collected(), keep_all=True)
        installed.start()
        for name in ("support", "public"):
            ask = ragmon.trace(name=name)(answering(claim))
            ask(SECRET[0])
            with probe("q1"):
                ask(SECRET[0])
        assert installed.shutdown()
        assert installed.books().dropped == {}
        found = map(json.loads, (tmp_path / "trace.jsonl").read_text().splitlines())
        return [line for line in found if line.get("kind") != "totals"]

    return run


def answering(claim):
    def answer(question):
        assert question
        return {"answer": claim, "citations": ["d1"], "documents": [{"id": "d1", "text": SECRET[2], "score": 0.5}]}

    return answer


def shows(line):
    """Whether a line shows its text, all of it."""
    shown = {text in json.dumps(line) for text in SECRET}
    assert len(shown) == 1, "all or nothing"
    return shown.pop()


def test_by_default_no_text_of_users_leaves_and_that_of_probes_does(logged):
    lines = logged("")
    assert [(line["source"], shows(line)) for line in lines] == [("live", False), ("probe", True)] * 2
    assert lines[0]["retrieved_ids"] == lines[0]["answer_json"]["citations"] == ["d1"]
    assert lines[0]["scores"] == [0.5]
    assert lines[0]["facts"] == {"answered": True, "refused": False, "refusal_like": False, "grounded": True}


def test_every_pipeline_has_a_say_of_its_own(logged):
    """A common "full" must not let text of a pipeline out that keeps its own back, nor the other way round."""
    lines = logged('[capture]\ncontent = "full"\n[pipelines.support.capture]\ncontent = "none"\nprobe_content = "none"')
    assert [(line["pipeline"], shows(line)) for line in lines] == [
        ("support", False),
        ("support", False),
        ("public", True),
        ("public", True),
    ]


@pytest.mark.parametrize("content", ["hash", "redacted", "none"])
def test_where_less_than_the_whole_text_may_leave_none_of_it_does(logged, content):
    lines = logged(f'[capture]\ncontent = "{content}"\nprobe_content = "{content}"')
    assert not any(shows(line) for line in lines)


@pytest.mark.parametrize("where", ['[gold.gold]\npath = "gold.jsonl"', '[capture]\ngold = "gold.jsonl"'])
def test_with_the_gold_at_hand_the_log_says_what_the_claim_contained(logged, where):
    """The question does not travel, so the record names the gold item instead."""
    live = logged(where + ("" if "capture" in where else "\n[capture]") + '\nprobe_content = "none"')[0]
    assert not shows(live)
    assert live["qid"] == "q1"
    assert live["facts"]["contains_claim"] is True
    assert live["facts"]["gold_version"]


def test_another_gold_version_is_told_apart_in_a_replay(logged, tmp_path):
    """What the claim contained was decided against other phrases."""
    logged('[capture]\ngold = "gold.jsonl"\nprobe_content = "none"')
    report = offline.replay(read_files([str(tmp_path / "trace.jsonl")], Intake()), make_gold(("q1", True)))
    precision = report.metric("answer_precision", source="probe", pipeline="public")
    assert (precision.n, precision.unassessed) == (0, {"gold_version": 1})


def test_an_answer_is_grounded_by_the_threshold_of_its_pipeline(logged):
    """Half of the claim's words occur in the passage."""
    config = '[capture]\nprobe_content = "none"\n[pipelines.support.metrics]\ngrounded_threshold = 0.9'
    lines = logged(config, claim="harbour lighthouse")
    assert [(line["pipeline"], line["facts"]["grounded"]) for line in lines[::2]] == [
        ("support", False),
        ("public", True),
    ]
    assert {line["measures"]["groundedness"] for line in lines} == {0.5}


@pytest.fixture
def length():
    """A metric that reads text, registered for one test."""

    @ragmon.register
    class Brevity(Metric):
        """Mean share of a hundred characters that answers leave free."""

        name = "brevity"

        def measure(self, record, item):
            claim = record.answer_json.claim if record.answer_json is not None else None
            return None if claim is None else max(0.0, 1 - len(claim) / 100)

    yield
    del base._families["brevity"]


@pytest.mark.usefixtures("length")
def test_a_metric_that_reads_text_is_measured_before_the_text_is_dropped(logged, tmp_path):
    lines = logged('[capture]\nprobe_content = "none"')
    assert {line["measures"]["brevity"] for line in lines} == {0.86}
    report = offline.replay(read_files([str(tmp_path / "trace.jsonl")], Intake()))
    assert report.metric("brevity", source="live").value == 0.86


def test_an_error_is_named_and_not_quoted(configured, tmp_path):
    settings = configured('[export]\njsonl = "trace.jsonl"')
    installed = Installation(settings, Collected(), keep_all=True)
    installed.start()
    with pytest.raises(LookupError):
        ragmon.trace(pipeline)("raise")
    assert installed.shutdown()
    line, *totals = (tmp_path / "trace.jsonl").read_text().splitlines()
    assert all(json.loads(line)["kind"] == "totals" for line in totals)
    assert json.loads(line)["error"] == "BrokenError"
    assert '"raise"' not in line
