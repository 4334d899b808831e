"""`ragmon baseline freeze`: a release run becomes what live traffic is held against, from the first minute."""

from __future__ import annotations

import json
import random
import re

import pytest

from ragmon.alarms.baselines import version
from ragmon.config.load import load
from ragmon.core.errors import ConfigError
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Latency, Record, encode
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.replay import AlarmReplay, Run
from ragmon.scoring.scorer import ScorerFactory
from tests.support.command_line import ragmon

START = 1_763_683_200.0
ITEMS = [
    GoldItem(f"q{i}", f"what is {i}?", answerable=True, claim_substrings=["right"], citations=["d1"]) for i in range(40)
]
GOLD = GoldSet("gold", tuple(ITEMS))


def traffic(minutes, *, share=1.0, slow=1.0, begin=START, seed=1):
    """Four probes and thirty users a minute; a share of the probes is answered right."""
    rng, found = random.Random(seed), []
    for minute in range(minutes):
        for place in range(34):
            ts, probe = begin + 60 * minute + place, place < 4
            claim = "right" if rng.random() < share else "wrong"
            found.append(
                Record(
                    v=1,
                    ts=ts,
                    trace_id=f"{minute:016x}{place:016x}",
                    source="probe" if probe else "live",
                    qid=rng.choice(ITEMS).qid if probe else None,
                    retrieved_ids=["d1"],
                    answer_json=Answer(claim if probe else "an answer", ["d1"]),
                    latency_ms=Latency(total=slow * rng.lognormvariate(6.6, 0.4)),
                )
            )
    return found


@pytest.fixture
def folder(tmp_path):
    lines = [
        json.dumps(
            {
                "qid": i.qid,
                "question": i.question,
                "answerable": True,
                "gold_claim_substr": ["right"],
                "gold_citations": ["d1"],
            }
        )
        for i in ITEMS
    ]
    (tmp_path / "gold.jsonl").write_text("\n".join(lines))
    (tmp_path / "release.jsonl").write_bytes(b"".join(map(encode, traffic(60, share=0.9))))
    return tmp_path


def freeze(folder):
    done = ragmon("baseline", "freeze", "release.jsonl", "--gold", "gold.jsonl", "-o", "baseline.json", cwd=folder)
    assert done.code == 0, done.err
    return json.loads((folder / "baseline.json").read_text()), done


@pytest.mark.slow
def test_the_file_holds_what_the_run_was(folder):
    file, done = freeze(folder)
    assert (file["kind"], file["v"]) == ("ragmon-baseline", 1)
    found = file["pipelines"]["default"]["metrics"]
    assert found["answer_precision"]["n"] == pytest.approx(240, abs=20)  # an item asked twice a minute counts once
    assert found["answer_precision"]["mean"] == pytest.approx(0.9, abs=0.06)
    assert found["coverage"] == {"n": 1800, "mean": 1.0, "total": 1800.0}
    assert 1100 < found["latency"]["p95"] < 1700
    assert found["latency"]["mean"] <= 0.05
    assert len(file["pipelines"]["default"]["first"]["answer_precision"]) == 40
    assert "default/coverage: 1.0000 over 1800" in done.err
    assert f"version {file['version']}" in done.err


@pytest.mark.slow
def test_equal_runs_have_equal_versions_and_a_changed_file_is_refused(folder):
    file, _ = freeze(folder)
    assert freeze(folder)[0] == file
    assert file["version"] == version(file["pipelines"])
    file["pipelines"]["default"]["metrics"]["coverage"]["total"] = 900.0
    (folder / "baseline.json").write_text(json.dumps(file))
    (folder / "ragmon.toml").write_text('[alarms]\nbaseline = { file = "baseline.json" }\n')
    done = ragmon("replay", "release.jsonl", "--gold", "gold.jsonl", "--alerts-out", "alerts.jsonl", cwd=folder)
    assert done.code == 3
    assert "the baseline was changed after it was frozen" in done.err


@pytest.mark.parametrize(
    ("pipelines", "what"),
    [
        ([], "Expected `object`"),
        ({"default": None}, "Expected `object`"),
        ({"default": {"metrics": {"mrr": None}}}, "Expected `object`"),
        ({"default": {"metrics": {"mrr": {"n": "5", "mean": 1.0, "total": 5.0}}}}, "Expected `int`"),
        ({"default": {"metrics": {"mrr": {"n": 10**30, "mean": 1.0, "total": 5.0}}}}, "n"),
        ({"default": {"metrics": {"mrr": {"n": 10, "mean": 1.0, "total": 20.0}}}}, "total 20.0 is more than n 10"),
        ({"default": {"metrics": {"latency": {"n": 10, "mean": 0.0, "total": 0.0}}}}, "the latency has no p95"),
        ({"default": {"metrics": {}, "golds": [1]}}, "Expected `object`"),
        ({"default": {"metrics": {}, "first": {"mrr": 3}}}, "Expected `object`"),
    ],
)
def test_a_file_that_no_run_can_have_left_is_refused_before_anything_is_judged(tmp_path, pipelines, what):
    file = {"kind": "ragmon-baseline", "v": 1, "version": version(pipelines), "pipelines": pipelines}
    (tmp_path / "baseline.json").write_text(json.dumps(file))
    (tmp_path / "ragmon.toml").write_text('[alarms]\nbaseline = { file = "baseline.json" }\n')
    with pytest.raises(ConfigError, match=re.escape(what)):
        AlarmReplay(ScorerFactory(load(tmp_path / "ragmon.toml", environ={}), ()))


@pytest.mark.slow
def test_nothing_is_frozen_of_which_too_little_was_seen(folder):
    """A metric seen once would be held against that once for ever; it is learned instead."""
    (folder / "release.jsonl").write_bytes(b"".join(map(encode, traffic(20))))
    assert "coverage" not in freeze(folder)[0]["pipelines"]["default"]["metrics"]  # 600 of the 1,500 it takes
    (folder / "release.jsonl").write_bytes(b"".join(map(encode, traffic(1))))
    done = ragmon("baseline", "freeze", "release.jsonl", "--gold", "gold.jsonl", cwd=folder)
    assert done.error[0] == "the traces are too few for a baseline of any metric"
    (folder / "release.jsonl").write_text('{"answer_json":{"claim":"x","citations":[]}}\n')
    done = ragmon("baseline", "freeze", "release.jsonl", cwd=folder)
    assert done.error[0] == "the traces are too few for a baseline of any metric; 1 record has no time"


def first_alarm(folder, toml, records, alert):
    """Minutes until an alarm fires on a production that was never healthy; None where it never does."""
    (folder / "ragmon.toml").write_text(toml)
    watching = AlarmReplay(ScorerFactory(load(folder / "ragmon.toml", environ={}), (GOLD,)))
    Run(watching.scorer).feed(watching.follow(records))
    times = [edge.ts for edge in watching.transitions if edge.alert == alert and edge.state == "firing"]
    return None if not times else (times[0] - START) / 60


@pytest.mark.slow
def test_a_fault_in_the_first_hour_is_found_against_a_release_and_learned_without_one(folder):
    freeze(folder)
    given = '[alarms]\nbaseline = { file = "baseline.json" }\n[gates.error_rate]\nat_most = 0.5\n'
    learned = "[gates.error_rate]\nat_most = 0.5\n"
    broken = traffic(90, share=0.6, seed=2)
    assert first_alarm(folder, given, broken, "answer_precision:baseline") < 60
    assert first_alarm(folder, learned, broken, "answer_precision:baseline") is None


@pytest.mark.slow
def test_slow_answers_are_found_against_the_releases_p95(folder):
    freeze(folder)
    given = '[alarms]\nbaseline = { file = "baseline.json" }\n'
    assert first_alarm(folder, given, traffic(30, share=0.9, slow=1.5, seed=3), "latency:look") <= 10


@pytest.mark.slow
def test_a_healthy_production_stays_silent_against_it(folder):
    freeze(folder)
    (folder / "ragmon.toml").write_text('[alarms]\nbaseline = { file = "baseline.json" }\n')
    watching = AlarmReplay(ScorerFactory(load(folder / "ragmon.toml", environ={}), (GOLD,)))
    Run(watching.scorer).feed(watching.follow(traffic(240, share=0.9, seed=4)))
    assert [edge.alert for edge in watching.transitions if edge.severity == "page"] == []
