"""Live metrics over all calls: records kept for their outcome count, weighed by what their stratum holds of traffic."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import ragmon
from ragmon.capture.call import Runtime
from ragmon.capture.convert import call_to_record
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Answer, Record, Sampling, Totals
from ragmon.export.text import report_markdown
from ragmon.gates.evaluate import evaluate
from ragmon.monitor.replay import Run
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.snapshot import ALL
from ragmon.stats.intervals import needed_to_decide
from tests.support.capturing import capturing

START = 1_763_683_200.0
SCOPE = Gate("scope", "citation_scope", 0.90, "at_least")


def record(good, stratum, *, audit, ts=START):
    answer = Answer("an answer", ["d1"] if good else ["elsewhere"])
    sampling = Sampling(audit=audit, stratum=stratum, p_audit=0.01, p=1.0 if stratum == "slow" else 0.01)
    return Record(ts=ts, source="live", retrieved_ids=["d1"], answer_json=answer, sampling=sampling)


def totals(stratum, calls, kept, *, ts=START + 5, instance="one", started=START - 60):
    return Totals(
        ts=ts,
        instance=instance,
        started=started,
        pipeline="default",
        source="live",
        stratum=stratum,
        calls=calls,
        kept=kept,
    )


def logged(records, **calls):
    """The records, and what their producer told at the end: all calls by stratum, and how many of them it kept."""
    kept = Counter(one.sampling.stratum for one in records)
    return [*records, *(totals(stratum, n, kept[stratum]) for stratum, n in calls.items())]


def sample(rng, calls=3000, slow=0.15):
    """An hour's traffic: slow answers are bad more often and all kept, of the rest one in a hundred is."""
    counts, kept = {"slow": 0, "rest": 0}, []
    for _ in range(calls):
        stratum = "slow" if rng.random() < slow else "rest"
        counts[stratum] += 1
        good, audit = rng.random() < (0.30 if stratum == "slow" else 0.96), rng.random() < 0.01
        if audit or stratum == "slow":
            kept.append(record(good, stratum, audit=audit))
    return logged(kept, **counts)


def scored(lines):
    run = Run(Scorer())
    run.feed(lines)
    return run


def live(run, window=ALL, **asked):
    return run.scorer.snapshot(**asked).find("default", "live", window=window)


TRUTH = 0.15 * 0.30 + 0.85 * 0.96


@pytest.mark.slow
def test_the_estimate_is_of_all_calls_whatever_was_kept():
    """Over 300 samples: unweighted the kept records say .34, weighted they say what is true, and cover it."""
    rng = random.Random(2025)
    raw, values, covered = [], [], 0
    for _ in range(300):
        lines = sample(rng)
        records = [line for line in lines if isinstance(line, Record)]
        raw.append(sum(line.answer_json.citations == ["d1"] for line in records) / len(records))
        found = live(scored(lines)).estimates["citation_scope"]
        values.append(found.value)
        covered += found.lower <= TRUTH <= found.upper
    assert sum(raw) / 300 < 0.40
    assert sum(values) / 300 == pytest.approx(TRUTH, abs=0.01)
    assert covered / 300 >= 0.95 - 3 * (0.95 * 0.05 / 300) ** 0.5


def test_an_estimate_reads_every_record_of_a_stratum_and_counters_read_audit_members_alone():
    records = [
        *(record(good=False, stratum="slow", audit=False) for _ in range(10)),
        *(record(good=True, stratum="rest", audit=True) for _ in range(30)),
    ]
    run = scored(logged(records, slow=10, rest=990))
    series = live(run)
    assert series.estimates["citation_scope"].value == pytest.approx(0.99)
    assert series.estimates["citation_scope"].n == 40
    assert series.metrics["citation_scope"].n == 30


def test_a_gate_is_judged_on_all_calls():
    lines = [
        *(record(good=False, stratum="slow", audit=False) for _ in range(200)),
        *(record(good=True, stratum="rest", audit=True) for _ in range(400)),
    ]
    weighted = scored(logged(lines, slow=200, rest=400))
    (outcome,) = evaluate(weighted.scorer.snapshot(), Policy((SCOPE,)), whole_run=True)
    assert (outcome.verdict, round(outcome.value, 3), outcome.n) == ("fail", 0.667, 600)
    (outcome,) = evaluate(scored(lines).scorer.snapshot(), Policy((SCOPE,)), whole_run=True)
    assert (outcome.verdict, outcome.value, outcome.n) == ("pass", 1.0, 400)


def test_a_stratum_nobody_looked_into_leaves_the_verdict_open():
    """Three percent of the calls were slow and none of them was kept: they may all be bad."""
    lines = [record(good=True, stratum="rest", audit=True) for _ in range(1000)]
    run = scored(logged(lines, slow=30, rest=970))
    (outcome,) = evaluate(run.scorer.snapshot(), Policy((SCOPE,)), whole_run=True)
    assert outcome.verdict == "insufficient"
    assert outcome.reason == "no call of stratum slow was scored: 3 % of all calls"
    assert outcome.lower < 0.97 < outcome.upper
    run = scored(logged(lines, slow=10, rest=990))
    assert evaluate(run.scorer.snapshot(), Policy((SCOPE,)), whole_run=True)[0].verdict == "pass"


def test_without_totals_the_audit_members_alone_are_read():
    """Nobody knows what the strata weigh; the uniform draw needs no weights."""
    run = scored(
        [
            *(record(good=False, stratum="slow", audit=False) for _ in range(10)),
            *(record(good=True, stratum="rest", audit=True) for _ in range(30)),
        ]
    )
    assert live(run).estimates == {}
    assert live(run).estimate("citation_scope").value == 1.0


def test_a_number_says_what_it_is_of():
    """Of all calls, where somebody counted them; of exported traffic, where a record is all there is."""
    records = [record(good=True, stratum="rest", audit=True) for _ in range(30)]
    for lines, of in ((records, "exported traffic"), (logged(records, rest=600), "all calls")):
        report = scored(lines).report(Policy((SCOPE,)))
        assert [series["of"] for series in report.data()["series"]] == [of]
        assert report.data()["gates"][0]["of"] == of
        assert f"source live, of {of}" in report_markdown(report)


def test_a_weighted_verdict_says_what_its_sample_is_worth():
    """Two hundred slow answers, all of them kept, say little about the twenty-nine in thirty others."""
    records = [
        *(record(good=True, stratum="slow", audit=False) for _ in range(200)),
        *(record(good=True, stratum="rest", audit=True) for _ in range(400)),
    ]
    run = scored(logged(records, slow=200, rest=20_000))
    (outcome,) = evaluate(run.scorer.snapshot(), Policy((SCOPE,)), whole_run=True)
    assert (outcome.verdict, outcome.n) == ("pass", 600)
    assert 390 < outcome.n_eff < 420
    assert (
        outcome.reason
        == f"the whole interval is within the limit; 600 weighted samples count as {outcome.n_eff:.0f} independent ones"
    )


def test_calls_of_unknown_weight_stand_for_nothing():
    """Their parent was sampled nobody knows how."""
    records = [
        *(record(good=False, stratum="unknown_weight", audit=False) for _ in range(50)),
        *(record(good=False, stratum="slow", audit=False) for _ in range(10)),
        *(record(good=True, stratum="rest", audit=True) for _ in range(30)),
    ]
    run = scored(logged(records, unknown_weight=5000, slow=100, rest=900))
    assert live(run).estimates["citation_scope"].value == pytest.approx(0.9)


def test_a_window_weighs_with_its_own_totals():
    """In the first five minutes half of the calls were slow, in the next five none."""
    lines = [
        *(record(good=False, stratum="slow", audit=True, ts=START + 10) for _ in range(10)),
        *(record(good=True, stratum="rest", audit=True, ts=START + 10) for _ in range(10)),
        totals("slow", 500, 10, ts=START + 290, started=START),
        totals("rest", 500, 10, ts=START + 290, started=START),
        *(record(good=True, stratum="rest", audit=True, ts=START + 400) for _ in range(10)),
        record(good=False, stratum="slow", audit=True, ts=START + 400),
        totals("slow", 501, 11, ts=START + 590, started=START),
        totals("rest", 1500, 20, ts=START + 590, started=START),
    ]
    run, windows = scored(lines), {"5m": 300, "10m": 600}
    first = live(run, "5m", now=START + 299, windows=windows).estimates["citation_scope"].value
    second = live(run, "5m", now=START + 599, windows=windows).estimates["citation_scope"].value
    both = live(run, "10m", now=START + 599, windows=windows).estimates["citation_scope"].value
    assert (round(first, 3), round(second, 3), round(both, 3)) == (0.5, 0.999, 0.75)


def test_a_trace_log_written_by_capture_says_how_common_each_outcome_is():
    """Errors and refusals kept in full beside an audit share of 5 %: their rates come out right, not as 100 %."""

    @ragmon.trace
    def answer(question):
        if question == "raise":
            raise LookupError(question)
        return {"claim": question, "citations": ["d1"], "retrieved": ["d1"]}

    rng = random.Random(4)
    questions = rng.choices(["raise", "not in context", "an answer"], [2, 8, 90], k=3000)
    with capturing(0.05, keep={"error": 1.0, "refusal": 1.0}) as (found, kept):
        for question in questions:
            try:
                answer(question)
            except LookupError:
                continue
    records = [call_to_record(call) for call in kept]
    run = scored([*records, *told(found, records)])
    (series,) = (s for s in run.scorer.snapshot().series if s.source == "live")
    errors = questions.count("raise") / len(questions)
    assert series.estimates["error_rate"].value == pytest.approx(errors, abs=1e-9)
    refused = questions.count("not in context") / (len(questions) - questions.count("raise"))
    assert series.estimates["refusal_rate"].lower < refused < series.estimates["refusal_rate"].upper
    assert series.metrics["error_rate"].n < 300  # the counters hold the audit share


def told(found: Runtime, records):
    """All calls of a runtime, as its process would tell them."""
    calls = {stratum: n for (_, _, stratum), n in found.totals().items() if n}
    kept = Counter(one.sampling.stratum for one in records)
    ts = max(one.ts for one in records)
    return [totals(stratum, n, kept[stratum], ts=ts, started=ts - 60) for stratum, n in calls.items()]


def test_a_log_that_was_cut_counts_the_calls_of_its_own_time_alone():
    """Three hours of slow answers were logged elsewhere; what the producer counts since it started is not this hour."""
    records = [record(good=True, stratum="rest", audit=True, ts=START + place) for place in range(600)]
    lines = [
        totals("slow", 4000, 4000, ts=START, started=START - 10_800),
        totals("rest", 6000, 60, ts=START, started=START - 10_800),
        *records,
        record(good=False, stratum="slow", audit=True, ts=START + 600),
        totals("slow", 4060, 4060, ts=START + 600, started=START - 10_800),
        totals("rest", 12_000, 660, ts=START + 600, started=START - 10_800),
    ]
    found = live(scored(lines)).estimates["citation_scope"]
    assert found.value == pytest.approx(6000 / 6060)


def test_beside_a_producer_that_tells_no_totals_nothing_is_weighed():
    """Half of the records come from a program whose calls nobody counted: they stand for themselves."""
    silent = [record(good=False, stratum="rest", audit=True) for _ in range(500)]
    lines = logged([record(good=True, stratum="rest", audit=True) for _ in range(500)], rest=10_000, slow=50)
    series = live(scored([*lines, *silent]))
    assert (series.of, series.estimates) == ("exported traffic", {})


def test_records_that_no_audit_member_stands_beside_are_judged_all_the_same():
    """With a sample rate of 0 only errors are kept; how common they are is known from the totals."""
    errors = [Record(ts=START, source="live", error="boom", sampling=Sampling(audit=False, stratum="error"))] * 60
    run = scored(logged(errors, error=60, rest=5940))
    gate = Gate("errors", "error_rate", 0.05, "at_most")
    (outcome,) = evaluate(run.scorer.snapshot(), Policy((gate,)), whole_run=True)
    assert (outcome.source, outcome.verdict) == ("live", "insufficient")
    assert outcome.reason == "no call of stratum rest was scored: 99 % of all calls"


def test_what_is_needed_is_said_in_samples_of_the_same_kind():
    """A weighted sample of 240 that is worth 60 plain ones must grow four times as much."""
    records = [
        *(record(good=place < 170, stratum="slow", audit=False) for place in range(180)),
        *(record(good=place < 56, stratum="rest", audit=True) for place in range(60)),
    ]
    run = scored(logged(records, slow=180, rest=20_000))
    (outcome,) = evaluate(run.scorer.snapshot(), Policy((SCOPE,)), whole_run=True)
    assert outcome.verdict == "insufficient"
    assert outcome.n == 240
    assert 55 < outcome.n_eff < 65
    plain = needed_to_decide(outcome.value, 0.90)
    assert outcome.needed == pytest.approx(plain * 240 / outcome.n_eff, abs=1)
    assert "240 weighted samples count as" in outcome.reason


def test_a_run_in_parts_weighs_like_a_run_at_once():
    """Whoever folds when: every window of every part that is merged has the estimates of one pass."""
    rng, lines, calls = random.Random(11), [], Counter()
    for second in range(0, 15_000, 10):
        for _ in range(20):
            stratum = "slow" if rng.random() < (0.3 if 6000 < second < 8000 else 0.05) else "rest"
            calls[stratum] += 1
            calls[stratum, "kept"] += stratum == "slow" or second % 50 == 0
            if stratum == "slow" or second % 50 == 0:
                lines.append(record(rng.random() < 0.9, stratum, audit=second % 50 == 0, ts=START + second))
        for stratum in ("slow", "rest"):
            told_at = {"ts": START + second + 9, "started": START - 86_400}
            lines.append(totals(stratum, calls[stratum], calls[stratum, "kept"], **told_at))
    lines = lines[4000:]  # and the log was cut
    once, parts = scored(lines), [scored(lines[begin : begin + 1500]) for begin in range(0, len(lines), 1500)]
    merged = parts.pop(rng.randrange(len(parts)))
    for part in parts:
        merged.merge(part.counted())
    ours, theirs = (run.report(Policy((SCOPE,)), windows=True).snapshot.series for run in (once, merged))
    assert len(ours) > 50
    assert {(s.window, s.end): s.estimates for s in ours} == {(s.window, s.end): s.estimates for s in theirs}


def test_audit_members_of_unknown_weight_are_in_no_number():
    """Another program may mark them so; their rate is as unknown as ever."""
    records = [
        *(record(good=False, stratum="unknown_weight", audit=True) for _ in range(50)),
        *(record(good=True, stratum="rest", audit=True) for _ in range(30)),
    ]
    assert live(scored(records)).metrics["citation_scope"].n == 30
