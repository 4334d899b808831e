"""Registering a metric: what is refused, and how far a new one goes without another line."""

from __future__ import annotations

import json

import pytest

from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Answer, Record
from ragmon.export.text import report_markdown
from ragmon.metrics import Metric, base, families, register
from ragmon.monitor.replay import Run, replay
from ragmon.scoring.scorer import Scorer

NOON = 1_763_683_200.0


@pytest.fixture
def registry(monkeypatch):
    """The registry, put back after the test."""
    monkeypatch.setattr(base, "_families", families())
    return register


def metric_named(name):
    return type("Mine", (Metric,), {"name": name, "score": lambda self, facts: 1.0, "__doc__": "One."})


@pytest.mark.parametrize("name", ["", "Upper", "9lives", "with-dash", "with space", "recall@5", "trailing\n", "größe"])
def test_a_name_prometheus_could_not_use_is_refused(registry, name):
    with pytest.raises(RagmonError, match="not usable") as refused:
        registry(metric_named(name))
    assert "lower-case" in refused.value.hint


@pytest.mark.parametrize("ending", constants.RESERVED_ENDINGS)
def test_a_name_with_a_reserved_ending_is_refused(registry, ending):
    with pytest.raises(RagmonError, match=f"ends in '{ending}'"):
        registry(metric_named(f"mine{ending}"))
    assert registry(metric_named(f"mine{ending}_of_it"))


@pytest.mark.parametrize("name", constants.RESERVED_NAMES)
def test_a_name_that_another_series_has_is_refused(registry, name):
    with pytest.raises(RagmonError, match="is taken"):
        registry(metric_named(name))


def test_a_class_without_a_name_is_refused(registry):
    with pytest.raises(RagmonError, match="not usable"):
        registry(type("Nameless", (Metric,), {}))


def test_a_name_that_is_taken_is_refused(registry):
    """A metric's rule never changes under its name."""
    with pytest.raises(RagmonError, match="registered already"):
        registry(metric_named("mrr"))
    assert families()["mrr"].__name__ == "Mrr"


def test_a_class_that_scores_nothing_is_refused(registry):
    with pytest.raises(RagmonError, match="neither score nor measure"):
        registry(type("Idle", (Metric,), {"name": "idle_rate"}))


@pytest.mark.parametrize("key", ["mrr@5", "recall@0", "recall@x", "recall@", "recal@5", "recall@-1"])
def test_a_key_that_names_no_metric_is_refused_with_a_suggestion(key):
    with pytest.raises(UnknownNameError) as refused:
        base.parse(key)
    assert refused.value.hint


def test_a_cut_that_was_not_configured_can_still_be_asked_for():
    assert base.parse("recall@7").k == 7


RECORDS = [
    Record(ts=NOON, answer_json=Answer("yes", ["d1"]), retrieved_ids=["d1"]),
    Record(ts=NOON + 3, answer_json=Answer("a longer answer", []), retrieved_ids=["d1"]),
    Record(ts=NOON - 7200, answer_json=Answer("not in context", []), retrieved_ids=["d1"]),
]


@pytest.fixture
def third_party(registry):
    """One metric of each kind, as a user would write them."""

    class CitesNothing(Metric):
        """Share of shipped answers without a single retrieved citation."""

        name = "cites_nothing_rate"
        better = "lower"

        def score(self, facts):
            return float(not facts.cites_retrieved) if facts.shipped else None

    class Brevity(Metric):
        """Mean brevity of answers: 1 at no word, 0 at ten and more."""

        name = "brevity"

        def measure(self, record, item):
            answer = record.answer_json
            return None if answer is None or answer.claim is None else 1 - min(10, len(answer.claim.split())) / 10

        def applies(self, facts):
            return facts.shipped

    return registry(CitesNothing), registry(Brevity)


@pytest.mark.usefixtures("third_party")
def test_a_third_party_metric_is_counted_in_every_window():
    scorer = Scorer()
    assert all(scorer.observe(record) for record in RECORDS)
    snapshot = scorer.snapshot(now=NOON + 5, windows={"1h": 3600, "24h": 86_400})
    hour, day = (snapshot.find("default", "replay", window=window).metrics for window in ("1h", "24h"))
    assert (hour["cites_nothing_rate"].n, hour["cites_nothing_rate"].value) == (2, 0.5)
    assert (hour["brevity"].n, hour["brevity"].value) == (2, pytest.approx(0.8))
    assert hour["brevity"].squares == 900_000**2 + 700_000**2
    assert (day["brevity"].sum, day["brevity"].squares) == (hour["brevity"].sum, hour["brevity"].squares)
    assert day["compliance"].n == 3


@pytest.mark.usefixtures("third_party")
def test_a_third_party_metric_is_reported_and_gated():
    gates = tuple(Gate(name, name, 0.1, "at_least", min_samples=1) for name in ("cites_nothing_rate", "brevity"))
    report = replay(RECORDS, policy=Policy(gates=gates, mode="point"))
    series = json.loads(report.json())["series"][0]["metrics"]
    assert (series["brevity"]["value"], series["brevity"]["n"]) == (0.8, 2)
    assert series["cites_nothing_rate"]["value"] == 0.5
    assert [outcome.verdict for outcome in report.outcomes] == ["pass", "pass"]
    assert "| brevity | 80.0 % |" in report_markdown(report)


def test_a_metric_registered_today_scores_what_was_counted_yesterday(registry):
    """Facts were counted, not metrics: the state of an older scorer is read with a newer metric."""
    yesterday = Run(Scorer())
    yesterday.feed(RECORDS)
    registry(metric_named("always_one"))
    today = Scorer(state=yesterday.scorer.state)
    assert today.snapshot().find("default", "replay").metrics["always_one"].n == 3


def test_a_metric_that_brings_a_gate_is_judged_by_default(registry):
    mine = metric_named("always_right")
    mine.default_gate = ("at_least", 0.9)
    registry(mine)
    judged = {outcome.gate.name: outcome for outcome in replay([Record()]).outcomes}
    assert (judged["always_right"].gate.threshold, judged["always_right"].value) == (0.9, 1.0)
