"""A gate on gold without a source judges the first source that ever had data: live, as its alarm and a replay do."""

from __future__ import annotations

import json

import pytest

import ragmon
from ragmon.config.load import load
from ragmon.core.record import Answer, Record
from ragmon.gates.history import gate_points
from ragmon.ingest.gold import load_gold
from ragmon.monitor.embedded import Monitor
from ragmon.scoring.scorer import ScorerFactory
from ragmon.scoring.snapshot import take_history
from ragmon.testing import FakeClock

START = 1_763_600_000.0
QUESTIONS = [f"what is the torque of pump {number}?" for number in range(40)]
GATE = "[gates.answer_precision]\nat_least = 0.8\n"
PROBED = '[probe.p]\ntarget = "tests.support.answering:answer"\nevery = "1m"\n'


@pytest.fixture
def settings(tmp_path):
    """Loads a ragmon.toml beside a gold set of forty questions."""
    items = [
        {"qid": f"q{n}", "question": text, "answerable": True, "gold_claim_substr": ["15 Nm"], "gold_citations": ["d1"]}
        for n, text in enumerate(QUESTIONS)
    ]
    (tmp_path / "gold.jsonl").write_text("\n".join(map(json.dumps, items)), encoding="utf-8")

    def read(text):
        (tmp_path / "ragmon.toml").write_text(f'[gold.g]\npath = "gold.jsonl"\n{text}', encoding="utf-8")
        return load(tmp_path / "ragmon.toml", environ={})

    return read


def asked(source, n, *, start=START, right=lambda place: place % 2 == 0):
    """Answers to gold questions, one every ten seconds."""
    for place in range(n):
        claim = "It is 15 Nm." if right(place) else "It is 99 Nm."
        yield Record(
            q=QUESTIONS[place % len(QUESTIONS)],
            source=source,
            retrieved_ids=["d1", "d2"],
            answer_json=Answer(claim, ["d1"]),
            ts=start + 10 * place,
        )


def watched(settings, records):
    """What a monitor says of records as they come: its only gate, and the alarms that fire."""
    clock = FakeClock(START)
    monitor = Monitor(settings, clock=clock)
    for record in sorted(records, key=lambda record: record.ts):
        clock.advance(max(0.0, record.ts - clock()))
        monitor.submit(record)
    current = monitor.snapshot()
    firing = [state.alert for state in current.alarms if state.firing is not None]
    return current.outcomes[0], firing


@pytest.mark.parametrize("source", ["probe", "live", "replay"])
@pytest.mark.parametrize("probed", ["", PROBED])
def test_a_pipeline_whose_alarm_pages_has_a_verdict_from_the_same_source_as_a_replay(settings, source, probed):
    """However the answers came, and whether ragmon's own prober is configured or one of the user's asks."""
    found, records = settings(GATE + probed), list(asked(source, 400))
    outcome, firing = watched(found, records)
    replayed = ragmon.replay(records, load_gold(found.gold), policy=found.policy()).outcomes[0]
    assert "answer_precision" in firing
    assert (outcome.verdict, outcome.source) == (replayed.verdict, replayed.source)
    assert (outcome.verdict, outcome.value) == ("fail", 0.5)
    assert outcome.source == ("match" if source == "live" else source)


def test_probes_come_before_questions_of_users_and_are_not_added_to_them(settings):
    records = [*asked("live", 360, right=lambda _: False), *asked("probe", 360, right=lambda _: True)]
    outcome, firing = watched(settings(GATE), records)
    assert (outcome.source, outcome.verdict, firing) == ("probe", "pass", [])


def test_probes_that_stopped_are_no_data_and_not_what_users_asked(settings):
    """As for the gate's alarm: else a dead prober would look like a pass."""
    records = [*asked("probe", 50), *asked("live", 400, start=START + 8000, right=lambda _: True)]
    outcome, _ = watched(settings(GATE), records)
    assert (outcome.source, outcome.verdict, outcome.reason) == ("probe", "insufficient", "no data")


@pytest.mark.parametrize(("probed", "awaited"), [("", "match"), (PROBED, "probe")])
def test_before_any_data_a_gate_waits_for_probes_where_there_are_some(settings, probed, awaited):
    found = settings(GATE + probed)
    outcome, _ = watched(found, [Record(q="something else", source="live", ts=START)])
    assert (outcome.source, outcome.reason) == (awaited, "no data")


def test_a_chart_is_of_one_source(settings):
    """Where probes come every ten minutes and users ask in between."""
    found = settings(GATE)
    scorer = ScorerFactory(found, load_gold(found.gold))()
    rare = (record for place, record in enumerate(asked("probe", 360)) if place % 60 == 0)
    for record in [*rare, *asked("live", 360)]:
        scorer.observe(record)
    ends = [int(START) // 300 * 300 + 300 * step for step in range(1, 13)]
    points = [
        gate_points(snapshot, [found.policy("default", live=True)])["default", "answer_precision"]
        for snapshot in take_history(
            scorer.state, scorer.table, ends=ends, step=300, golds=scorer.gold.infos(), gated=["answer_precision"]
        )
    ]
    assert {point.source for point in points} == {"probe"}
    assert {point.n for point in points} == {0, 1}
