"""`ragmon.replay`: records or plain dicts in, a report out."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

import ragmon
from ragmon.core.errors import InputError
from ragmon.monitor.replay import Run
from ragmon.scoring.scorer import Scorer
from ragmon.testing import make_gold, make_record
from tests.support.runs import DEFAULT

GOLD = make_gold(("a", True), ("b", False))
TRACE = {"qid": "a", "retrieved_ids": ["d1"], "answer_json": {"claim": "an answer", "citations": ["d1"]}}


def test_dicts_and_records_of_the_same_content_count_alike():
    record = make_record("a", retrieved=["d1"])
    assert ragmon.replay([TRACE], GOLD).digest == ragmon.replay([record], GOLD).digest


@pytest.mark.parametrize(
    "shape",
    [
        {"q_id": "a", "retrieved_ids": ["d1"], "answer_json": {"claim": "an answer", "citations": ["d1"]}},
        {"question": "question a", "chunks": [{"id": "d1"}], "answer": "an answer\n- citations: [d1]"},
    ],
    ids=["seed 000", "seed 002"],
)
def test_every_trace_shape_that_files_may_have_is_read(shape):
    assert ragmon.replay([shape], GOLD).metric("answer_precision").value == 1.0


@pytest.mark.parametrize("bad", [{"qid": True}, {"v": 2, "qid": "a"}, {"qid": object()}])
def test_a_dict_that_is_no_trace_is_named_by_its_place(bad):
    with pytest.raises(InputError, match="record 2 is not a trace"):
        ragmon.replay([TRACE, bad])


@pytest.mark.parametrize("records", [None, 3])
def test_what_holds_no_records_is_refused_with_what_is_accepted(records):
    with pytest.raises(InputError, match=f"these are no traces: {records}") as caught:
        ragmon.replay(records)
    assert "a DataFrame" in caught.value.hint


@pytest.mark.parametrize("odd", [{"ts": "soon"}, {"latency_ms": "812 parsecs"}, {"qid": [1]}])
def test_a_value_of_a_dict_that_cannot_be_read_is_unknown_and_told_without_it(odd):
    report = ragmon.replay([TRACE, {"q": "Is it?", "answer_json": {"claim": "Yes."}, **odd}])
    (field,) = odd
    assert (report.scored, report.unknown) == (2, {f"{field}: unreadable": 1})
    (note,) = report.notes
    assert note.startswith(f"{field}: 1 value could not be read in records")


def test_gold_may_be_a_path(tmp_path):
    path = tmp_path / "gold.jsonl"
    path.write_text('{"qid":"a","question":"?","answerable":true,"gold_citations":["d1"]}\n', encoding="utf-8")
    assert ragmon.replay([TRACE], path).metric("citation_hit_rate").value == 1.0


def test_nothing_to_score_is_insufficient_and_never_a_pass():
    report = ragmon.replay([], GOLD)
    assert report.verdict == "insufficient"
    assert report.metric("answer_precision").value is None


def timed():
    return [TRACE | {"ts": 1_763_683_200.0 + 300 * k} for k in range(40)]


def test_a_report_has_its_gates_over_the_time_of_the_records():
    report = ragmon.replay(timed(), GOLD)
    history = report.histories["default", "citation_scope"]
    assert sum(point.n for point in history.points) == 40
    assert set(history.values) == {1.0}
    assert ragmon.replay([TRACE], GOLD).histories == {}


@pytest.mark.slow
def test_a_report_does_not_keep_the_records_counts():
    """Counts of a large run are large; a notebook may keep many reports."""
    run = Run(Scorer(GOLD))
    run.feed(make_record("a", ts=1_763_683_200.0 + 300 * k) for k in range(40))
    report = run.report(DEFAULT)
    assert report.histories == {}  # a command that needs none does not wait for them
    report = replace(report, histories=run.history(report))
    scorer = weakref.ref(run.scorer)
    del run
    gc.collect()
    assert scorer() is None
    assert len(report.histories) > 1
    assert report._repr_html_()
