"""A run against an earlier one: drops beyond what is allowed, and the gold items that flipped."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.errors import InputError
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Latency, Sampling, encode
from ragmon.export.text import render_gates, text
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.monitor.replay import BaselineRun, Run, report_of
from ragmon.scoring.scorer import ReductionRules, Scorer
from ragmon.testing import make_gold, make_record

RIGHT, WRONG, REFUSED = "an answer", "a guess", "not in context"
ITEMS = 20
GOLD = make_gold(*((f"q{i:02}", True) for i in range(ITEMS)))
PRECISION = Gate("precision", "answer_precision", 0.5, "at_least")
REFUSAL = Gate("refusal", "over_refusal_rate", 0.9, "at_most")
COMPLIANCE = Gate("compliance", "compliance", 0.5, "at_least")
POLICY = Policy((PRECISION, REFUSAL, COMPLIANCE))


def answers(right=0, wrong=0, refused=0, **fields):
    """Records of the first gold items, in this order: right ones, wrong ones, refused ones."""
    claims = [RIGHT] * right + [WRONG] * wrong + [REFUSED] * refused
    return [make_record(f"q{i:02}", claim=claim, **fields) for i, claim in enumerate(claims)]


def scored(records, gold=GOLD, rules=None):
    run = Run(Scorer(gold, rules=rules))
    run.feed(records)
    return run


class Bench:
    """Compares records with a baseline file, as `ragmon gate --baseline` does."""

    def __init__(self, folder, policy=POLICY, gold=GOLD, rules=None):
        self.folder, self.policy, self.gold, self.rules = folder, policy, gold, rules

    def score(self, paths):
        intake = ReadSummary()
        run = Run(Scorer(self.gold, rules=self.rules), intake)
        run.feed(read_files(list(paths), intake))
        return run

    def traces(self, records):
        path = self.folder / "earlier.jsonl"
        path.write_bytes(b"".join(map(encode, records)))
        return str(path)

    def report(self, records, **changes):
        path = self.folder / "earlier.json"
        earlier = scored(records, self.gold, self.rules).report(self.policy).data()
        path.write_text(json.dumps({**earlier, **changes}), encoding="utf-8")
        return str(path)

    def compare(self, records, baseline, max_drop=0.02):
        run = scored(records, self.gold, self.rules)
        earlier = BaselineRun.read(baseline, self.score)
        return report_of(run, self.policy, earlier, max_drop=max_drop)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def verdicts(report):
    return {outcome.gate.name: outcome.verdict for outcome in report.outcomes}


def drops(report):
    return {drop.gate.name: drop for drop in report.drops}


# --- item by item -----------------------------------------------------------------------------------------------------


def test_a_drop_beyond_the_allowed_one_fails_a_gate_that_holds(bench):
    report = bench.compare(answers(right=17, wrong=3), bench.traces(answers(right=20)))
    assert verdicts(report) == {"precision": "fail", "refusal": "pass", "compliance": "pass"}
    assert report.verdict == "fail"
    (precision, *_) = report.outcomes
    assert precision.reason == "15.0 points worse than the baseline, 2.0 are allowed"
    assert precision.value == pytest.approx(0.85)


def test_the_items_that_flipped_are_listed_with_their_scores(bench):
    report = bench.compare(answers(right=18, wrong=2), bench.traces(answers(right=20)))
    drop = drops(report)["precision"]
    assert (drop.before.value, drop.after.value, drop.items) == (1.0, 0.9, 20)
    assert [(flip.qid, flip.before, flip.after) for flip in drop.flips] == [("q18", 1.0, 0.0), ("q19", 1.0, 0.0)]


def test_flips_in_both_directions_are_listed_though_the_value_stays(bench):
    """A mean that did not move may hide questions that did."""
    earlier = [make_record("q00", claim=RIGHT), make_record("q01", claim=WRONG)]
    later = [make_record("q00", claim=WRONG), make_record("q01", claim=RIGHT)]
    drop = drops(bench.compare(later, bench.traces(earlier)))["precision"]
    assert drop.drop == 0
    assert [(flip.qid, flip.before, flip.after) for flip in drop.flips] == [("q00", 1.0, 0.0), ("q01", 0.0, 1.0)]


def test_better_is_no_drop(bench):
    report = bench.compare(answers(right=20), bench.traces(answers(right=10, wrong=10)))
    assert report.verdict == "pass"
    assert drops(report)["precision"].drop == pytest.approx(-0.5)


def test_a_ceiling_drops_when_its_rate_rises(bench):
    report = bench.compare(answers(right=17, refused=3), bench.traces(answers(right=20)))
    assert verdicts(report)["refusal"] == "fail"
    assert drops(report)["refusal"].drop == pytest.approx(0.15)
    assert bench.compare(answers(right=20), bench.traces(answers(right=17, refused=3))).verdict == "pass"


@pytest.mark.parametrize(("max_drop", "verdict"), [(0.049, "fail"), (0.05, "pass"), (0.06, "pass")])
@pytest.mark.parametrize("kind", ["traces", "report"])
def test_a_drop_of_just_what_is_allowed_passes(bench, kind, max_drop, verdict):
    """0.95 - 1.00 is not exactly 0.05 in binary, and a report holds six places."""
    baseline = getattr(bench, kind)(answers(right=20))
    assert bench.compare(answers(right=19, wrong=1), baseline, max_drop).verdict == verdict


def test_only_items_of_both_runs_are_compared(bench):
    """The five easiest items are missing now; over the fifteen both have, nothing changed."""
    earlier = answers(right=10, wrong=10)
    report = bench.compare(earlier[5:], bench.traces(earlier))
    drop = drops(report)["precision"]
    assert (drop.before.value, drop.after.value) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert (drop.items, drop.flips) == (15, ())
    assert verdicts(report)["precision"] == "insufficient", "a quarter of the set has no trace"


def test_an_item_that_is_refused_now_left_the_denominator_and_is_no_flip(bench):
    """It counts where it is counted: in the refusal rate."""
    report = bench.compare(answers(right=19, refused=1), bench.traces(answers(right=20)), 0.5)
    assert (drops(report)["precision"].items, drops(report)["precision"].flips) == (19, ())
    assert [flip.qid for flip in drops(report)["refusal"].flips] == ["q19"]


def test_an_item_asked_often_is_compared_by_its_mean(bench):
    earlier = answers(right=2) * 4
    later = [*answers(right=2) * 3, *answers(wrong=2)]
    drop = drops(bench.compare(later, bench.traces(earlier)))["precision"]
    assert [(flip.qid, flip.before, flip.after) for flip in drop.flips] == [("q00", 1.0, 0.75), ("q01", 1.0, 0.75)]


def test_an_item_counts_once_however_often_each_run_asked_it(bench):
    """No answer changed: that the wrong one was asked for more often now is no drop."""
    right, wrong = make_record("q00", claim=RIGHT), make_record("q01", claim=WRONG)
    drop = drops(bench.compare([right, *[wrong] * 4], bench.traces([*[right] * 4, wrong])))["precision"]
    assert (drop.before.value, drop.after.value, drop.items, drop.flips) == (0.5, 0.5, 2, ())


def test_runs_without_a_common_item_are_compared_by_their_values(bench):
    earlier, later = answers(right=15, wrong=5)[:10], answers(right=10, wrong=10)[10:]
    drop = drops(bench.compare(later, bench.traces(earlier)))["precision"]
    assert (drop.before.value, drop.after.value, drop.items, drop.verdict) == (1.0, 0.0, None, "fail")


def test_runs_of_different_sources_are_compared_but_never_pooled(bench):
    """A gate is judged on the probes of the run; the user questions beside them do not count."""
    probes, users = answers(right=20, source="probe"), answers(wrong=20, source="live")
    report = bench.compare([*probes, *users], bench.traces(answers(right=20)))
    drop = drops(report)["precision"]
    assert (drop.after.value, drop.items, drop.flips) == (1.0, 20, ())


def test_calls_kept_for_their_outcome_alone_are_not_compared(bench):
    kept = Sampling(audit=False, stratum="error", p_audit=0.05, p=1.0)
    later = [*answers(right=20), *answers(wrong=20, sampling=kept)]
    assert drops(bench.compare(later, bench.traces(answers(right=20))))["precision"].after.value == 1.0


def test_pipelines_with_the_same_questions_are_kept_apart(tmp_path):
    gates = tuple(dataclasses.replace(PRECISION, pipeline=name) for name in ("p", "q"))
    bench = Bench(tmp_path, Policy(gates))
    earlier = [*answers(right=20, pipeline="p"), *answers(right=20, pipeline="q")]
    later = [*answers(right=20, pipeline="p"), *answers(wrong=20, pipeline="q")]
    report = bench.compare(later, bench.traces(earlier))
    assert [(o.gate.pipeline, o.verdict) for o in report.outcomes] == [("p", "pass"), ("q", "fail")]


def test_a_slice_is_compared_with_the_same_slice(tmp_path):
    gold = make_gold(
        *(
            GoldItem(f"q{i:02}", "", True, ["answer"], None, ["d1"], tags={"lang": "de" if i < 5 else "en"})
            for i in range(ITEMS)
        )
    )
    gates = tuple(dataclasses.replace(PRECISION, name=lang, where=f"lang={lang}") for lang in ("de", "en"))
    bench = Bench(tmp_path, Policy(gates), gold, ReductionRules(slices={"lang": ["de", "en"]}))
    report = bench.compare(answers(right=15, wrong=5), bench.traces(answers(right=20)))
    assert verdicts(report) == {"de": "pass", "en": "fail"}
    assert (drops(report)["de"].items, drops(report)["en"].items) == (5, 15)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from([RIGHT, WRONG, REFUSED]), st.sampled_from([RIGHT, WRONG, REFUSED])),
        min_size=1,
        max_size=ITEMS,
    )
)
def test_a_run_against_itself_drops_nothing_and_a_swap_changes_the_sign(tmp_path_factory, pairs):
    policy = dataclasses.replace(POLICY, on_insufficient="pass")
    bench = Bench(tmp_path_factory.mktemp("runs"), policy)
    first = [make_record(f"q{i:02}", claim=claim) for i, (claim, _) in enumerate(pairs)]
    second = [make_record(f"q{i:02}", claim=claim) for i, (_, claim) in enumerate(pairs)]
    there, back = bench.compare(second, bench.traces(first), 1.0), bench.compare(first, bench.traces(second), 1.0)
    for name, drop in drops(there).items():
        assert drops(back)[name].drop == pytest.approx(-drop.drop)
        assert len(drops(back)[name].flips) == len(drop.flips) <= drop.items
    same = bench.compare(first, bench.traces(first), 0.0)
    assert all(drop.drop == 0 and not drop.flips for drop in same.drops)


# --- value by value ---------------------------------------------------------------------------------------------------


def test_a_report_is_compared_by_its_values(bench):
    report = bench.compare(answers(right=17, wrong=3), bench.report(answers(right=20)))
    drop = drops(report)["precision"]
    assert (drop.before.value, drop.after.value, drop.items, drop.flips) == (1.0, pytest.approx(0.85), None, ())
    assert verdicts(report) == {"precision": "fail", "refusal": "pass", "compliance": "pass"}


def test_gates_the_earlier_report_did_not_judge_are_left_out(bench):
    """Another metric under the same name is another gate; so is another pipeline's."""
    earlier = scored(answers(right=20)).report(POLICY).data()["gates"]
    earlier[0]["metric"] = "mrr"
    earlier[1]["pipeline"] = "other"
    report = bench.compare(answers(right=10, refused=10), bench.report(answers(right=20), gates=earlier))
    assert list(drops(report)) == ["compliance"]


def test_a_baseline_that_is_json_and_no_report_is_refused_with_the_place(bench):
    with pytest.raises(InputError, match=r"this is not a report of ragmon: .*`\$\.gates\[0\]`"):
        bench.compare(answers(right=20), bench.report(answers(right=20), gates=["junk"]))


def test_another_gold_version_is_said(bench):
    old = [{"name": "gold", "version": "00000000", "items": 20, "traced": 20, "unscorable": 0}]
    report = bench.compare(answers(right=20), bench.report(answers(right=20), gold=old))
    (note,) = report.notes
    assert note.startswith("gold gold is not the baseline's: version ")
    assert note in text(report)
    assert "not the baseline's" in render_gates(report)
    assert bench.compare(answers(right=20), bench.report(answers(right=20))).notes == []


@pytest.mark.parametrize("baseline", ["traces", "report"])
def test_a_baseline_with_nothing_to_compare_is_refused(bench, baseline):
    """Passing because nothing could be compared would look like passing because nothing dropped."""
    path = getattr(bench, baseline)([make_record("stranger", claim=None, citations=None, pipeline="other")])
    with pytest.raises(InputError, match="nothing to compare with") as error:
        bench.compare(answers(right=20), path)
    assert error.value.path == path


def test_a_baseline_that_is_not_there_is_refused(bench, tmp_path):
    with pytest.raises(InputError, match=r"missing\.json: the baseline cannot be read \(No such file"):
        bench.compare(answers(right=20), str(tmp_path / "missing.json"))


def test_a_file_that_is_no_report_is_read_as_traces(bench, tmp_path):
    """One trace in a `.json` file is a trace."""
    path = tmp_path / "one.json"
    path.write_bytes(encode(make_record("q00", claim=RIGHT)))
    drop = drops(bench.compare(answers(wrong=1), str(path)))["precision"]
    assert (drop.items, drop.before.value, drop.after.value) == (1, 1.0, 0.0)


# --- what people and programs see -------------------------------------------------------------------------------------


def test_the_comparison_is_shown_in_text_markdown_and_json(bench):
    report = bench.compare(answers(right=18, wrong=2), bench.traces(answers(right=20)))
    shown = text(report).splitlines()
    assert "default/precision: 100.0 % -> 90.0 % against the baseline, 2 of 20 items flipped" in shown
    assert "  q18: 100.0 % -> 0.0 %" in shown
    assert "| default/precision | 100.0 % | 90.0 % | -10.0 points | 2 of 20 |" in render_gates(report).splitlines()
    assert "| default/precision | q18 | 100.0 % | 0.0 % |" in render_gates(report).splitlines()
    entry = report.data()["baseline"][0]
    assert (entry["gate"], entry["before"], entry["after"], entry["drop"], entry["items"]) == (
        *("precision", 1.0, 0.9, 0.1),
        20,
    )
    assert entry["flips"][0] == {"qid": "q18", "before": 1.0, "after": 0.0}


def test_without_a_baseline_nothing_is_said_of_one():
    report = scored(answers(right=20)).report(POLICY)
    assert "baseline" not in report.data()
    assert "baseline" not in text(report) + render_gates(report)


@pytest.mark.parametrize("kind", ["report", "traces"])
def test_the_baseline_gives_latency_gates_their_p95(tmp_path, kind):
    """A report knows one p95 for the run; traces know it per pipeline."""
    gate = Gate("slower", "latency", 1.3, "at_most", kind="quantile_ratio", min_samples=10)
    bench = Bench(tmp_path, policy=Policy((gate,)))
    then = [make_record("a1", latency_ms=Latency(total=100.0)) for _ in range(20)]
    path = bench.report(then) if kind == "report" else bench.traces(then)
    policy = dataclasses.replace(bench.policy, baseline_p95_ms=BaselineRun.read(path, bench.score).p95_ms({"default"}))
    for now, verdict in ((120.0, "pass"), (150.0, "fail")):
        run = scored([make_record("a1", latency_ms=Latency(total=now)) for _ in range(20)])
        assert run.report(policy).verdict == verdict
