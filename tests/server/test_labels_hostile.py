"""Labels that somebody sends by mistake or to do harm: they cost what they are worth, and leak nowhere."""

from __future__ import annotations

import pytest

from ragmon.config.load import load
from ragmon.core.constants import LABELS
from ragmon.core.policy import Policy
from ragmon.core.record import Label, Latency, decode_entry, parse_label
from ragmon.export.prometheus import latency
from ragmon.gates.change import Reads
from ragmon.ingest.labels import LabelSpelling, read_labels
from ragmon.ingest.receiver import Encoding
from ragmon.monitor.engine import Engine
from ragmon.monitor.replay import Run
from ragmon.scoring.buckets import SeriesKey, State
from ragmon.scoring.labels import FinalLabels, labelled_record
from ragmon.scoring.minutes import MinuteBatches
from ragmon.scoring.ratings import DUPLICATE, JOINED, ORPHAN, RATERS, TOO_MANY_RATINGS, Consensus, LabelStore
from ragmon.scoring.scorer import Scorer
from ragmon.server.erasure import erase
from ragmon.server.pending import decode_labels, decode_traces
from ragmon.server.store import JournalReader
from ragmon.testing import make_record
from tests.support.manual_writer import ManualWriter
from tests.support.serving import asked, configuration, replayed, whole

NOW = 1_763_683_200.0
PROTOBUF = Encoding.PROTOBUF


def trace(number):
    return f"{number + 1:032x}"


def answer(number, **fields):
    return make_record(
        f"q{number}", trace_id=trace(number), source="live", pipeline="p", claim="a", **({"ts": NOW + number} | fields)
    )


def said(number, rater="ada", **fields):
    return Label(trace_id=trace(number), rater=rater, **({"correct": True, "ts": NOW + 3600.0} | fields))


def settled(records, labels, scorer=None):
    """A run with its labels."""
    run, joined = Run(scorer or Scorer()), FinalLabels()
    run.feed(records)
    for one in labels:
        joined.add(one)
    joined.meet(records)
    run.finalise(joined, lambda _: "groundedness")
    return run


# --- what belongs to user traffic alone -------------------------------------------------------------------------------


def test_labelled_answers_take_no_part_in_the_latency_of_a_report_or_of_a_stage():
    records = [answer(n, latency_ms=Latency(total=10.0 + n, generate=5.0 + n)) for n in range(40)]
    alone = settled(records, [])
    with_labels = settled(records, [said(n) for n in range(30, 40)])
    policy = Policy(gates=())
    assert with_labels.report(policy).data()["latency_ms"] == alone.report(policy).data()["latency_ms"]
    shown = [one for family in latency(with_labels.scorer.snapshot(), {}, {}) for one in family.samples]
    assert {one.labels["source"] for one in shown} == {"live"}


def test_a_label_on_an_old_answer_brings_back_neither_its_index_nor_its_latency_for_alarms():
    steps = MinuteBatches()
    scorer = Scorer(observers=[steps])
    scorer.observe(answer(0, build="b", index_hash="new"))
    old = answer(1, build="b", index_hash="old", latency_ms=Latency(total=9e5))
    scorer.observe_label(labelled_record(old, Consensus(correct=1.0), NOW), None, NOW)
    ((_, step),) = steps.close(float("inf"))
    assert step.indexes == {("b", "new"): 1}
    assert step.latency == {}
    assert {place.source for place in step.facts} == {"live", "label"}


def test_why_pages_of_no_source_count_each_request_once():
    reads = Reads("p", "", None, "")
    found = {source: reads.takes(SeriesKey("p", source, "", "", "", True, "rest", "", "")) for source in
             ("live", "probe", "replay", "match", "label")}  # fmt: skip
    assert found == {"live": True, "probe": True, "replay": True, "match": False, "label": False}


def test_labelled_answers_are_no_questions_of_a_gold_set():
    run = settled([answer(n) for n in range(3)], [said(n, answerable=True) for n in range(3)])
    assert run.scorer.snapshot().find("p", "label", gold=LABELS).records == 3
    report = run.report(Policy(gates=()))
    assert (list(report.questions), report.unscorable, report.duplicate) == ([], {}, 0)


# --- what a report hears ----------------------------------------------------------------------------------------------


def test_a_report_counts_labels_on_answers_that_are_older_than_any_window():
    records = [answer(0), answer(1, ts=NOW + 90_000.0)]
    run = settled(
        records, [said(0, ts=NOW + 95_000.0, correct=False)], Scorer(state=State(retention=7200.0, is_live=True))
    )
    assert run.scorer.snapshot().find("p", "label").metrics["answer_correct"].n == 1


# --- much of it -------------------------------------------------------------------------------------------------------


def test_an_answer_hears_so_many_raters_and_each_label_has_a_result():
    book = LabelStore()
    for n in range(RATERS + 5):
        book.apply(said(0, f"rater {n}"), NOW)
    book.apply(said(0, "rater 0"), NOW)
    assert book.results == {JOINED: RATERS, TOO_MANY_RATINGS: 5, DUPLICATE: 1}


def test_labels_whose_trace_never_comes_are_orphans_although_nobody_labels_any_more(tmp_path):
    live = Engine(load(configuration(tmp_path), environ={}))
    live.apply(said(0), NOW)
    live.observe(answer(1, ts=None), NOW + 8 * 86_400.0)
    assert (live.labels.store.results, live.labels.store.pending) == ({ORPHAN: 1}, 0)


@pytest.mark.slow
def test_of_many_labels_on_an_answer_one_line_of_the_journal_holds_it_and_a_replay_is_the_same(tmp_path):
    text = "what a user asked " * 5000
    told = [{"trace_id": trace(0), "rater": f"r{n}", "correct": n % 2 == 0} for n in range(50)]
    with ManualWriter(tmp_path, '[capture]\ncontent = "full"\n') as writer:
        writer.take(decode_traces(whole([asked(0, q=text, ts=writer.time.now)]), PROTOBUF))
        writer.take(decode_labels(told))
        counted = writer.server_state.engine.scorer.state.digest()
        results = writer.server_state.engine.labels.store.results
    with JournalReader(tmp_path / "state") as journal:
        *_, row = journal.rows()
    assert len(row.lines) < 2 * len(text)
    held = [one.answer for line in row.lines.splitlines() if isinstance(one := decode_entry(line), Label)]
    assert [one is not None for one in held] == [True] + 49 * [False]
    assert results.total() == 50
    assert replayed(tmp_path) == counted


# --- what is no text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [{"trace_id": "\ud800"}, {"rater": "\ud800"}, {"comment": "\ud800"}])
def test_half_a_character_is_no_label(told):
    with pytest.raises(ValueError, match="half of a character"):
        parse_label({"trace_id": trace(0), "rater": "ada", "correct": True, **told})


def test_separators_of_unicode_end_no_line_of_a_file(tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text(f'{{"trace_id":"{trace(0)}","rater":"ada","correct":true,"comment":"a\u2028b"}}\n', "utf-8")
    assert [one.comment for one in read_labels(path, LabelSpelling())] == ["a\u2028b"]


def test_ids_that_are_no_array_are_a_wrong_row(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(f"trace_id,rater,relevant_ids\n{trace(0)},ada,{'[' * 100_000}\n")
    with pytest.raises(Exception, match="not a JSON array"):
        read_labels(path, LabelSpelling())


# --- what is forgotten ------------------------------------------------------------------------------------------------


def test_forgetting_by_a_tag_finds_the_answer_in_a_label_whose_own_row_has_expired(tmp_path):
    with ManualWriter(tmp_path, '[capture]\ncontent = "full"\n') as writer:
        record = asked(0, q="only one user asks this", tags={"user": "17"}, ts=writer.time.now)
        writer.take(decode_traces(whole([record]), PROTOBUF))
        writer.take(decode_labels([{"trace_id": trace(0), "rater": "ada", "correct": True}]))
        writer.writer.journal._connection.execute("DELETE FROM rows WHERE seq = 1")
    assert erase(tmp_path / "state", tag=("user", "17")).labels == 1
    with JournalReader(tmp_path / "state") as journal:
        assert all(b"only one user" not in row.lines for row in journal.rows())
