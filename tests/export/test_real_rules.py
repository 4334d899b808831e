"""A real Prometheus evaluates the generated rules over two replicas: what it records is what one would say of all."""

from __future__ import annotations

import json
from contextlib import ExitStack
from itertools import count

import pytest

import ragmon
from ragmon.core.policy import Gate, Policy
from ragmon.core.text import READ
from ragmon.export.rules import render, rule_groups
from ragmon.export.status import SdkStats
from ragmon.monitor.embedded import Monitor
from ragmon.testing import make_record
from tests.export.test_real_prometheus import CONFIG, GOLD, RECORDS, records
from tests.support.servers import prometheus

PERMISSIVE = """
[gates.shipped_cited]
metric = "citation_hit_rate"
at_most = 0.5
page_above = 0.9
source = "probe"
[gates."recall@5"]
at_least = 0.3
source = "probe"
[gates.english]
metric = "compliance"
at_least = 0.2
slice = { lang = "en" }
[gates.error_rate]
at_most = 0.9
page_above = 0.95
"""
GATES = {"answer_precision": "answer_precision", "shipped_cited": "citation_hit_rate", "recall@5": "recall@5"}
"""Gates on gold and their metrics."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    from ragmon.config.load import load  # noqa: PLC0415 - skipped tests need no configuration

    folder = tmp_path_factory.mktemp("ruled")
    (folder / "gold.jsonl").write_text("\n".join(map(json.dumps, GOLD)))
    (folder / "ragmon.toml").write_text(CONFIG + PERMISSIVE)
    return load(folder / "ragmon.toml", environ={})


@pytest.fixture(scope="module")
def seen():
    """Those of the other tests, now and then a probe nobody told the documents of, and one too long to be read."""

    def given(place, record):
        if place % 10 == 0:
            return make_record("q1", source="probe", retrieved=None, ts=record.ts)
        if place % 100 == 5:
            return make_record("q1", source="probe", claim="word " * (READ // 5 + 1), ts=record.ts)
        return record

    return [given(place, record) for place, record in enumerate(records())]


@pytest.fixture(scope="module")
def server(real, settings, seen, tmp_path_factory):
    """A Prometheus with the generated rules, of two replicas that got one third and two thirds of the records.

    The second third comes after the first was scraped: counters must be seen to grow.
    """
    folder = tmp_path_factory.mktemp("rules")
    rules = folder / "ragmon.rules.yml"
    rules.write_text(render(rule_groups(settings)).replace(":5m]", ":1s]"))
    with ExitStack() as stack:
        one, other = (stack.enter_context(Monitor(settings).start("127.0.0.1:0")) for _ in range(2))
        for monitor in (one, other):
            calls = count(1000)
            monitor.captured = lambda calls=calls: more_and_more(next(calls))
        found = stack.enter_context(prometheus(real("prometheus"), folder, [one.address, other.address], [rules]))
        for batch, total in ((seen[: RECORDS // 2], RECORDS // 2), (seen[RECORDS // 2 :], RECORDS)):
            for place, record in enumerate(batch):
                (other if place % 5 > 1 else one).submit(record)
            found.wait_for('sum(ragmon_records_scored_total{stage="score"})', total)
        found.wait_for("count(pipeline_gate:ragmon_gate_scored:increase5m > 0)", len(rules_on_counters(settings)))
        for outcome in report(settings, seen).outcomes:
            found.wait_for(f'sum(ragmon_gate_samples{{gate="{outcome.gate.name}"}})', outcome.n)
        yield found, (one, other)


def more_and_more(calls):
    """What capture says of so many calls, of which one in a hundred failed."""
    return SdkStats(calls={("default", "live", "rest"): calls}, errors={("default", "TimeoutError"): calls // 100})


def rules_on_counters(settings):
    """The gates that are recorded from counters."""
    return {
        rule.labels["gate"]
        for group in rule_groups(settings)
        for rule in group.rules
        if "scored:increase5m" in rule.name and rule.labels.get("gate")
    }


def report(settings, seen):
    """A replay of all records, whichever replica got them."""
    gold = ragmon.GoldSet.load(settings.path.parent / "gold.jsonl")
    gates = tuple(Gate(name, metric, 0.5, "at_least", source="probe") for name, metric in GATES.items())
    return ragmon.replay(seen, gold, policy=Policy(gates))


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
def test_a_gate_over_two_replicas_is_that_of_a_replay_of_all_records(server, settings, seen, gate):
    found, _ = server
    whole = next(one for one in report(settings, seen).outcomes if one.gate.name == gate)
    assert whole.value is not None
    scores, scored = (f'ragmon_gate_{name}{{gate="{gate}"}}' for name in ("value", "samples"))
    assert found.value(f"sum({scored})") == whole.n
    assert found.value(f"sum({scores} * {scored}) / sum({scored})") == pytest.approx(whole.value, abs=1e-9)


def test_a_ratio_of_counters_over_two_replicas_is_that_of_a_replay_of_all_records(server, settings, seen):
    found, _ = server
    for outcome in report(settings, seen).outcomes:
        name, _, k = outcome.gate.metric.partition("@")
        labels = f'{{source="probe",gold!="",k="{k}"}}'
        ratio = found.value(
            f"sum(last_over_time(rag_{name}_score_total{labels}[1m]))"
            f" / sum(last_over_time(rag_{name}_scored_total{labels}[1m]))"
        )
        assert ratio == pytest.approx(outcome.value, abs=1e-9), outcome.gate.name


def test_every_recorded_rule_has_a_value_and_none_failed(server, settings):
    """Every counter a rule reads is one the exporter has, with the labels the rule asks for."""
    found, _ = server
    groups = found.ask("rules")["groups"]
    failed = [
        (rule["name"], rule["lastError"]) for group in groups for rule in group["rules"] if rule["health"] != "ok"
    ]
    assert failed == []
    for group in rule_groups(settings):
        for rule in group.rules:
            if not rule.alert:
                chosen = ",".join(f'{label}="{value}"' for label, value in rule.labels.items())
                found.wait_for(f"count({rule.name}{{{chosen}}}) > bool 0", 1.0)  # scrapes may come late
