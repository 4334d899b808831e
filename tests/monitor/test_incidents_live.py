"""Incidents of an engine: with the cause of their alarms, the same after a restart, none of a removed gate."""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import replace

import msgspec
import pytest

from ragmon.config.load import load
from ragmon.core.record import Record
from ragmon.export import status
from ragmon.gates.incidents import Incident
from ragmon.monitor.engine import Engine, EngineState
from ragmon.scoring.snapshot import SeriesReader
from tests.support.alarming import GOLD, NOON, Traffic, said

CONFIG = '[gold.gold]\npath = "gold.jsonl"\n[alarms]\nbaseline = { learn = "60m" }\n'
HEALTHY, BROKEN = 90, 30
"""Minutes."""


@pytest.fixture
def settings(tmp_path):
    def made(more=""):
        rows = [
            {
                "qid": item.qid,
                "question": item.question,
                "answerable": item.answerable,
                "gold_claim_substr": list(item.claim_substrings or ()),
                "gold_citations": list(item.citations or ()),
            }
            for item in GOLD.items
        ]
        (tmp_path / "gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        (tmp_path / "ragmon.toml").write_text(CONFIG + more, encoding="utf-8")
        return load(tmp_path / "ragmon.toml", environ={})

    return made


def feed(engine, traffic, minutes, **fault):
    """Some minutes of traffic, each as soon as it is there."""
    for minute in minutes:
        for record in traffic.minute(NOON + minute, **fault):
            engine.observe(record, record.ts)


def restarted(engine, settings):
    """An engine that goes on from what another one has saved."""
    saved = msgspec.msgpack.encode(engine.dump())
    again = Engine(settings)
    again.restore(msgspec.msgpack.decode(saved, type=EngineState))
    return again


def test_a_fault_is_one_incident_with_its_cause_and_a_restart_changes_nothing(settings):
    engine, traffic = Engine(settings()), Traffic(3)
    feed(engine, traffic, range(HEALTHY))
    assert engine.incidents.incidents == []
    feed(engine, traffic, range(HEALTHY, HEALTHY + 10), over=0.8)
    again = restarted(engine, settings())
    later = list(range(HEALTHY + 10, HEALTHY + BROKEN))
    records = [record for minute in later for record in traffic.minute(NOON + minute, over=0.8)]
    for each in (engine, again):
        for record in records:
            each.observe(record, record.ts)
    (incident,) = engine.incidents.incidents
    assert (incident.severity, incident.ended) == ("confirmed", None)
    assert incident.cause.trait == "refused what can be answered"
    assert abs(incident.cause.began - 60.0 * (NOON + HEALTHY)) <= 60
    assert again.incidents.incidents == engine.incidents.incidents
    assert again.told == engine.told


def test_alarms_that_a_new_configuration_lacks_keep_no_incident_open(settings):
    engine, traffic = Engine(settings()), Traffic(3)
    feed(engine, traffic, range(HEALTHY))
    feed(engine, traffic, range(HEALTHY, HEALTHY + 3), error=0.5)
    (incident,) = engine.incidents.incidents
    assert incident.ended is None
    assert "error_rate" in incident.firing
    again = restarted(engine, settings("[gates]\ncoverage.at_least = 0.7\n"))
    (incident,) = again.incidents.incidents
    assert set(incident.firing) == {state.alert for state in again.alarms.states() if state.firing is not None}
    assert "error_rate" not in incident.firing


def test_what_changed_for_certain_is_told_before_a_verdict(settings):
    """All answers to matched questions are wrong since a minute: the gate still straddles, and no alarm has proof."""
    engine, crowd = Engine(settings('[pipeline]\nname = "default"\n')), random.Random(5)
    items = [item for item in GOLD.items if item.answerable]

    def ask(minute, answer):
        for place in range(120):
            ts = 60.0 * (NOON + minute) + place / 2
            trace = f"{int(ts * 2):032x}"
            engine.observe(Record(ts=ts, trace_id=trace, source="live", q=crowd.choice(items).question, **answer), ts)

    for minute in range(4):
        ask(minute, said("that is right", ["d1"]))
    ask(4, said("quite something else", ["d1"]))
    shown = status.problems(engine.monitor_snapshot(60.0 * (NOON + 5) - 1, {}))
    assert [(found.severity, found.gate) for found in shown] == [("look", "answer_precision")]
    when = time.strftime("%H:%M", time.gmtime(60.0 * (NOON + 4)))
    said_why = f"default: since {when} UTC answers differ from the gold answers, 100 % of gold questions; "
    assert shown[0].what == f"{said_why}answer_precision has too little data for a verdict"
    again = engine.monitor_snapshot(60.0 * (NOON + 5) - 1, {})
    (changed,) = again.changed
    for earlier, metrics, trait, is_told in (
        (600.0, ("error_rate",), "ended in an error", True),
        (0.0, ("error_rate",), "ended in an error", False),  # it began at the same time
        (600.0, ("answer_precision",), "", False),
        (600.0, ("claim_containment",), changed.cause.trait, False),
    ):
        began = changed.cause.began - earlier
        cause = msgspec.structs.replace(changed.cause, began=began, earliest=began, latest=began, trait=trait)
        incident = Incident("i", "default", began, f"{metrics[0]}:look", metrics=metrics, cause=cause)
        told = status.problems(replace(again, incidents=[incident]))
        assert (shown[0] in told) is is_told  # an incident hides what it tells of itself, and no other fault
    failed = [replace(outcome, verdict="fail") for outcome in again.outcomes if outcome.gate.name == "answer_precision"]
    (found,) = status.problems(replace(again, outcomes=failed))
    assert found.what.startswith("default/answer_precision fails: ")  # once it is judged, only the verdict is told


def test_a_slow_model_is_told_of_before_the_usual_latency_is_learned(settings):
    """Four times as long since a minute, three minutes after the first request; until then nothing is told."""
    engine, traffic = Engine(settings('[pipeline]\nname = "default"\n')), Traffic(3)
    feed(engine, traffic, range(3))
    assert status.problems(engine.monitor_snapshot(60.0 * (NOON + 3) - 1, {})) == []
    feed(engine, traffic, range(3, 4), slow=4.0)
    (found,) = status.problems(engine.monitor_snapshot(60.0 * (NOON + 4) - 1, {}))
    when = time.strftime("%H:%M", time.gmtime(60.0 * (NOON + 3)))
    assert re.fullmatch(
        rf"default: since {when} UTC requests are slower, \d+ % of requests.*; ragmon is still learning what is usual",
        found.what,
    )
    assert (found.severity, found.gate) == ("look", "")


def test_ticks_between_arrivals_change_no_cause(settings):
    """A server judges each second what a replay of its journal judges when the next record arrives."""
    engine, replayed, traffic = Engine(settings()), Engine(settings()), Traffic(3)
    feed(engine, traffic, range(HEALTHY))
    feed(replayed, Traffic(3), range(HEALTHY))
    for minute in range(HEALTHY, HEALTHY + 2 * BROKEN, 5):  # a minute of requests, then four without
        for tick in range(0, 240, 10):
            engine.advance(60.0 * (NOON + minute - 4) + tick)
        for record in traffic.minute(NOON + minute, over=0.4, wrong=0.3):
            for each in (engine, replayed):
                each.observe(record, record.ts)
        assert replayed.incidents.incidents == engine.incidents.incidents
    assert engine.incidents.incidents
    assert replayed.told == engine.told


def test_a_diagnosis_reads_the_counts_of_its_pipeline_alone(settings, monkeypatch):
    """An outage of a thousand pipelines is as many diagnoses, while requests wait for the lock."""
    engine = Engine(settings())
    for name in ("support", "sales", "search"):
        feed(engine, Traffic(3, pipeline=name), range(3))
    engine.advance(60.0 * (NOON + 3))
    read, original = [], SeriesReader.read
    monkeypatch.setattr(
        SeriesReader, "read", lambda self, group, *rest: read.append(group) or original(self, group, *rest)
    )
    _, why = engine.gates.explain(60.0 * (NOON + 3), "sales", "citation_hit_rate")
    assert why.after.records == 30
    assert {group.pipeline for group in read} == {"sales"}
