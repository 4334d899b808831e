"""Labels in reports: whenever, however often and in whatever order they come, the report is the same."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Label, encode
from ragmon.core.refusals import RefusalRule
from ragmon.gates.evaluate import MIN_MATURITY
from ragmon.ingest.lines import decode
from ragmon.ingest.receiver import Encoding
from ragmon.metrics.facts import FactReader
from ragmon.monitor.replay import Run
from ragmon.scoring.cardinality import FEW_PAIRS
from ragmon.scoring.labels import FinalLabels
from ragmon.scoring.scorer import ReductionRules, Scorer
from ragmon.server.pending import decode_labels, decode_traces
from ragmon.server.state import replay
from ragmon.server.store import JournalReader
from ragmon.testing import make_record
from tests.support.command_line import ragmon
from tests.support.manual_writer import ManualWriter
from tests.support.serving import whole

QAEVAL = Path(__file__).parents[3] / "shared" / "data" / "qaeval"
NOW = 1_763_683_200.0


def trace(number):
    return f"{number + 1:032x}"


def answers(n):
    """Answers one minute after the other; every fifth is a refusal."""
    return [
        make_record(
            f"q{number}",
            v=1,
            trace_id=trace(number),
            ts=NOW + 60.0 * number,
            source="live",
            pipeline="support",
            claim="not in context" if number % 5 == 0 else "an answer",
        )
        for number in range(n)
    ]


def said(n, rng):
    """What two raters say of answers, some of it twice, some of it taken back later."""
    labels = []
    for number in range(n):
        given = NOW + 60.0 * number + rng.uniform(60, 3600)
        labels.append(Label(trace_id=trace(number), rater="ada", correct=rng.random() < 0.8, ts=given))
        if rng.random() < 0.3:
            labels.append(Label(trace_id=trace(number), rater="bob", correct=rng.random() < 0.8, ts=given + 5))
        if rng.random() < 0.2:
            labels.append(Label(trace_id=trace(number), rater="ada", correct=rng.random() < 0.8, ts=given + 60))
        if rng.random() < 0.2:
            ids = ["d1"] if rng.random() < 0.5 else ["d9"]
            labels.append(Label(trace_id=trace(number), rater="bob", relevant_ids=ids, ts=given + 9))
    return labels


def disturbed(labels, rng):
    """The same labels late, out of order, and a third of them twice."""
    labels = [*labels, *rng.sample(labels, len(labels) // 3)]
    rng.shuffle(labels)
    return labels


def of_file(folder, name, records, labels, *options):
    path = folder / f"{name}.jsonl"
    path.write_bytes(b"".join(encode(line) for line in (*records, *labels)))
    done = ragmon("replay", path, *options)
    assert done.code == 0, done.err
    return done.json


def without_counts(report):
    """A report without how many labels there were: some came twice."""
    return {**report, "labels": {**report["labels"], "labels": None}}


def settled_on(records, *labels):
    """A scorer that counted the answers, and what was said of them in the end."""
    settled, run = FinalLabels(), Run(Scorer())
    for label in labels:
        settled.add(label)
    run.feed(records)
    settled.meet(records)
    run.finalise(settled, lambda _: "groundedness")
    return run.scorer


def test_in_a_report_a_label_counts_at_the_time_of_its_answer_however_late_it_was_given():
    records = answers(3)
    late = Label(trace_id=trace(1), rater="ada", correct=True, ts=records[1].ts + 86_400.0)
    scorer = settled_on(records, late)
    seen = {
        at: scorer.snapshot(now=at, windows={"5m": 300}).find("support", "label", window="5m")
        for at in (records[1].ts, late.ts)
    }
    assert seen[late.ts] is None
    assert seen[records[1].ts].metrics["answer_correct"].n == 1


@pytest.mark.parametrize(
    ("said", "answerable"),
    [
        ({"relevant_ids": []}, False),
        ({"relevant_ids": ["d1"]}, True),
        ({"relevant_ids": [], "answerable": True}, True),
        ({"relevant_ids": ["d1"], "answerable": False}, False),
    ],
)
def test_a_question_is_answerable_where_a_document_is_relevant_unless_raters_say_otherwise(said, answerable):
    scorer = settled_on(answers(2), Label(trace_id=trace(1), rater="ada", ts=NOW, **said))
    metrics = scorer.snapshot().find("support", "label", gold=None).metrics
    counted = {name: metrics[name].n for name in ("over_refusal_rate", "under_refusal_rate")}
    assert counted == {"over_refusal_rate": answerable, "under_refusal_rate": not answerable}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_labels_late_twice_out_of_order_and_in_conflict_give_the_report_of_labels_at_once(tmp_path, seed):
    rng = random.Random(seed)
    records, labels = answers(60), said(60, rng)
    at_once = of_file(tmp_path, "once", records, labels)
    one_job = of_file(tmp_path, "late", disturbed(labels, rng), [*records, *disturbed(labels, rng)])
    assert without_counts(one_job) == without_counts(at_once)
    assert at_once["labels"]["conflicts"] > 0
    assert at_once["labels"]["answers"] == 60


@pytest.mark.slow
def test_several_jobs_report_what_one_reports(tmp_path):
    rng = random.Random(3)
    records, labels = answers(60), said(60, rng)
    assert of_file(tmp_path, "one", records, labels) == of_file(tmp_path, "one", records, labels, "--jobs", 2)


@pytest.mark.slow
def test_the_report_of_a_server_is_the_one_of_the_trace_log(tmp_path):
    """Live windows heard the first word, as it came; the report has the last one, at the time of the answer."""
    rng = random.Random(4)
    records, labels = answers(40), said(40, rng)
    (tmp_path / "server").mkdir()
    with ManualWriter(tmp_path / "server") as writer:
        writer.time.now = NOW + 3 * 3600.0
        told = [json.loads(encode(label)) for label in disturbed(labels, rng)]
        for place in range(4):
            writer.take(decode_labels(told[place::4]))
            writer.take(decode_traces(whole(records[place::4]), Encoding.PROTOBUF))
            writer.time.now += 1200.0
        digest = writer.server_state.engine.scorer.state.digest()
    done = ragmon("replay", "--journal", tmp_path / "server/state", "--config", tmp_path / "server/ragmon.toml")
    served, logged = done.json, of_file(tmp_path, "log", records, labels)
    assert served["digest"] == digest
    assert labelled(served) == labelled(logged)
    assert without_counts(served)["labels"] == without_counts(logged)["labels"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["log", "journal"])
def test_a_label_from_the_future_has_not_the_last_word(tmp_path, place):
    """A tool that writes a wrong year: what its rater says later counts, and its time says nothing of delays."""
    wrong = Label(trace_id=trace(1), rater="ada", correct=False, ts=NOW + 40 * 365 * 86_400.0)
    right = Label(trace_id=trace(1), rater="ada", correct=True, ts=NOW + 3600.0)
    if place == "log":
        report = of_file(tmp_path, "future", answers(3), [wrong, right])
    else:
        with ManualWriter(tmp_path) as writer:
            writer.time.now = NOW + 600.0
            writer.take(decode_traces(whole(answers(3)), Encoding.PROTOBUF))
            writer.take(decode_labels([json.loads(encode(wrong))]))
            writer.time.now = NOW + 3600.0
            writer.take(decode_labels([json.loads(encode(right))]))
        report = ragmon("replay", "--journal", tmp_path / "state", "--config", tmp_path / "ragmon.toml").json
    assert labelled(report)[0]["metrics"]["answer_correct"]["value"] == 1.0


def labelled(report):
    return [series for series in report["series"] if series["source"] == "label"]


@pytest.mark.slow
def test_a_server_report_has_labels_under_the_names_their_answers_were_counted_under(tmp_path):
    """More builds of a pipeline in an hour than are kept apart, and more pipelines than there is room for."""
    records = [
        make_record(v=1, trace_id=trace(n), ts=NOW + n, source="live", claim="an answer", **told)
        for n, told in enumerate(
            [{"pipeline": f"p{n}"} for n in range(40)]
            + [{"pipeline": "p0", "build": f"b{n}"} for n in range(FEW_PAIRS + 20)]
        )
    ]
    labels = [{"trace_id": record.trace_id, "rater": "ada", "correct": True} for record in records]
    with ManualWriter(tmp_path) as writer:
        writer.time.now = NOW + 3600.0
        for start in range(0, len(records), 50):
            writer.take(decode_traces(whole(records[start : start + 50]), Encoding.PROTOBUF))
        writer.take(decode_labels(labels))
        writer.take(decode_labels([{**label, "rater": "bob"} for label in labels]))
        live = writer.server_state.engine.scorer.state.series
        counted = {(key.pipeline, key.build, key.index_hash) for key in live if key.source == "label"}
    report = ragmon("replay", "--journal", tmp_path / "state", "--config", tmp_path / "ragmon.toml").json
    assert {one["pipeline"] for one in labelled(report)} == {pipeline for pipeline, *_ in counted}
    assert sum(one["metrics"]["answer_correct"]["n"] for one in labelled(report)) == len(records)
    with JournalReader(tmp_path / "state") as journal:
        said = FinalLabels()
        server_state = replay(writer.settings, journal, said)
        said.finalise(server_state.engine.scorer)
    series = server_state.engine.scorer.state.series
    assert {(key.pipeline, key.build, key.index_hash) for key in series if key.source == "label"} == counted


def test_refusals_are_in_no_denominator_of_what_people_call_correct(tmp_path):
    labels = [Label(trace_id=trace(number), rater="ada", correct=True, ts=NOW) for number in range(10)]
    report = of_file(tmp_path, "refused", answers(10), labels)
    (series,) = labelled(report)
    assert series["metrics"]["answer_correct"]["n"] == 8


@pytest.mark.slow
def test_labels_of_a_sheet_are_joined_to_a_trace_log(tmp_path):
    sheet = tmp_path / "sheet.csv"
    sheet.write_text("trace_id,correct,rater\n" + "".join(f"{trace(n)},{n % 2},ada\n" for n in range(1, 5)))
    report = of_file(tmp_path, "log", answers(6), [], "--labels", sheet)
    assert labelled(report)[0]["metrics"]["answer_correct"]["value"] == 0.5
    assert report["labels"] == {
        "labels": 4, "answers": 4, "raters": 1, "conflicts": 0, "orphans": 0, "probes": 0, "maturity": None
    }  # fmt: skip


@pytest.mark.slow
def test_a_gate_on_labels_waits_until_most_of_them_are_here(tmp_path):
    """Labels take half a day, and half of the answers are of today."""
    rng = random.Random(5)
    config = tmp_path / "ragmon.toml"
    config.write_text('[gates.right]\nmetric = "answer_correct"\nat_least = 0.5\nmin_samples = 30\n')
    records = [make_record(v=1, trace_id=trace(n), ts=NOW + 60 * n, source="live") for n in range(2000)]
    when = [(record, record.ts + rng.expovariate(1 / 43_200)) for record in records]
    now = NOW + 60 * 2000
    labels = [
        Label(trace_id=record.trace_id, rater="ada", correct=rng.random() < 0.9, ts=at) for record, at in when
    ]  # fmt: skip
    log = tmp_path / "log.jsonl"
    verdicts = {}
    for name, until in (("early", now), ("late", now + 7 * 86_400)):
        log.write_bytes(b"".join(encode(line) for line in (*records, *(one for one in labels if one.ts <= until))))
        done = ragmon("gate", log, "--config", config, "--format", "json")
        (verdicts[name],) = done.json["gates"]
    assert verdicts["early"]["verdict"] == "insufficient"
    assert "of the expected labels have arrived; a verdict needs at least 80 %" in verdicts["early"]["reason"]
    assert verdicts["late"]["verdict"] == "pass"


def test_a_pipeline_that_is_labelled_fast_does_not_vouch_for_one_that_is_labelled_slowly():
    """Thumbs come within minutes, what experts say within a day: together 82 % are here, of the experts' a part."""
    rng = random.Random(7)
    settled, run, records = FinalLabels(), Run(Scorer()), []
    for number in range(4000):
        fast = number % 4 != 0
        asked = NOW + 30.0 * number
        record = make_record(
            trace_id=trace(number), ts=asked, pipeline="fast" if fast else "slow", source="live", claim="an answer"
        )
        records.append(record)
        at = asked + rng.expovariate(1 / (120 if fast else 86_400))
        if at <= NOW + 30.0 * 4000:
            settled.add(Label(trace_id=trace(number), rater="ada", correct=True, ts=at))
    run.feed(records)
    settled.meet(records)
    run.finalise(settled, lambda _: "groundedness")
    here = {pipeline: round(share, 1) for pipeline, share in settled.maturity.items()}
    assert here == {"fast": 1.0, "slow": pytest.approx(0.5, abs=0.2)}
    assert run.labelled.maturity > MIN_MATURITY
    verdicts = {
        pipeline: run.report(Policy([Gate("right", "answer_correct", 0.5, "at_least", pipeline)])).outcomes[0]
        for pipeline in ("fast", "slow")
    }
    assert (verdicts["fast"].verdict, verdicts["slow"].verdict) == ("pass", "insufficient")
    assert "of the expected labels have arrived" in verdicts["slow"].reason


@pytest.mark.slow
@pytest.mark.skipif(not QAEVAL.is_dir(), reason="the data of human labels is not here")
def test_people_who_judged_real_answers_are_heard_in_any_order():
    """The mean of the labels is the share of answers people called right, whenever and however often they come."""
    rng = random.Random(6)
    for path in sorted((QAEVAL / "traces").glob("*.jsonl*")):
        records, truth = real(path)
        for number, record in enumerate(records):
            record.trace_id, record.ts = trace(number), NOW + number
        labels = [
            Label(trace_id=record.trace_id, rater="people", correct=truth[record.qid], ts=NOW + rng.uniform(0, 9e4))
            for record in records
        ]
        wrong = [Label(trace_id=one.trace_id, rater="people", correct=not one.correct, ts=one.ts - 1) for one in labels]
        rules = ReductionRules(FactReader(RefusalRule(matcher_counts=False)))
        settled, scorer = FinalLabels(), Scorer(rules=rules)
        for label in disturbed([*labels, *wrong], rng):
            settled.add(label)
        settled.meet(records)
        settled.finalise(scorer)
        stat = scorer.snapshot().find("default", "label").metrics["answer_correct"]
        shipped = [record for record in records if record.answer_json.claim.strip()]
        assert stat.n == len(shipped)
        assert stat.value == pytest.approx(sum(truth[record.qid] for record in shipped) / len(shipped))


def real(path):
    """A system's answers, and what people said of each."""
    import gzip  # noqa: PLC0415 - one test's

    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as lines:
        records = [decode(line) for line in lines]
    with opened(QAEVAL / "truth" / path.name, "rb") as lines:
        truth = {str(row["qid"]): row for row in map(json.loads, lines)}
    return records, {qid: next(v for k, v in row.items() if isinstance(v, bool)) for qid, row in truth.items()}
