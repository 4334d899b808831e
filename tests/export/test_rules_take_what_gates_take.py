"""Rules are about what the gates are about: one gold set in its version in force, graded scores by their variance.

Promtool evaluates the rules on made series; a real Prometheus scrapes real monitors, and says what they say.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from contextlib import ExitStack

import pytest
import yaml

from ragmon import stats
from ragmon.core import series_names
from ragmon.export.promql import Z95, selector
from ragmon.export.rules import RuleGroup, recording, render, rule_groups
from ragmon.monitor.embedded import Monitor
from ragmon.testing import make_record
from tests.support.servers import prometheus

NAMES = {"pipeline": "p", "gate": "g"}


def scraped(name, target=None, /, **labels):
    """A series with the labels it has after a scrape."""
    return selector(name, {**labels, **(target or {"instance": "ragmon:9464", "job": "ragmon"})})


def differences(real, folder, groups, series, expected, at="3m"):
    """What promtool says of recorded values that are not the expected ones, to nine digits; "" where all are."""
    (folder / "rules.yml").write_text(render(groups))
    checks = [
        {
            "expr": f"abs({name} - {number!r}) < bool 1e-9",
            "eval_time": at,
            "exp_samples": [{"labels": labels, "value": 1}],
        }
        for name, labels, number in expected
    ]
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": checks,
    }
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]}
    tests["group_eval_order"] = [group.name for group in groups]
    (folder / "tests.yml").write_text(yaml.safe_dump(tests))
    command = [real("promtool"), "test", "rules", folder / "tests.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


GRADED = {
    "like a share": (400, 300.0, 300.0),
    "hardly any spread": (400, 200.0, 101.0),
    "none at all": (400, 200.0, 100.0),
    "near the end": (60, 58.5, 57.3),
    "all right": (60, 60.0, 60.0),
    "all wrong": (60, 0.0, 0.0),
    "two": (2, 1.2, 0.8),
    "one": (1, 0.5, 0.25),
}
"""The number of graded scores, their sum and the sum of their squares."""


@pytest.mark.parametrize("counts", GRADED.values(), ids=GRADED)
def test_the_interval_of_a_graded_metric_is_the_one_of_its_gate(real, tmp_path, counts):
    n, total, squares = counts
    sums = {recording.SCORED: n, recording.FAILURES: n - total, recording.SQUARES: n - 2 * total + squares}
    series = {f'{name.format("1h")}{{pipeline="p",gate="g"}}': f"{number!r}x5" for name, number in sums.items()}
    lower, upper = stats.graded(n, total, squares, Z95)
    label = '{pipeline="p", gate="g"}'
    expected = [(recording.LOWER.format("1h"), label, 1 - upper), (recording.UPPER.format("1h"), label, 1 - lower)]
    group = RuleGroup("ragmon.burn", recording.failure_shares())
    assert differences(real, tmp_path, [group], series, expected) == ""


def settings(folder, text):
    from ragmon.config.load import load  # noqa: PLC0415 - skipped tests need no configuration

    (folder / "ragmon.toml").write_text(text)
    return load(folder / "ragmon.toml", environ={})


GOLD_GATE = """
[gold.large]
path = "large.jsonl"
[gold.small]
path = "small.jsonl"
[gates.answer_precision]
at_least = 0.8
source = "probe"
[gates."recall@5"]
at_least = 0.5
page_below = 0.3
source = "probe"
[gates.compliance]
at_least = 0.5
"""
ITEMS = {"large": range(40), "small": range(40, 50)}


def gold_files(folder):
    """Two sets; half of the documents of a question are found of each item."""
    for name, numbers in ITEMS.items():
        items = [
            {"qid": f"q{n}", "question": f"Question {n}?", "answerable": True, "gold_citations": [f"d{n}", f"e{n}"]}
            | {"gold_claim_substr": ["answer"]}
            for n in numbers
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, items)))


def test_a_rule_reads_one_gold_set_in_its_version_in_force(real, tmp_path):
    """Two sets, and the large one was swapped: the gate judges what the version in force says of the large one."""
    gold_files(tmp_path)
    groups = rule_groups(settings(tmp_path, GOLD_GATE))
    gate = {"pipeline": "p", "gate": "answer_precision"}
    details = {"source": "probe", "window": "1h", "direction": "at_least", "estimand": "gold_set"}
    info = {**gate, **details, "metric": "answer_precision"}
    series = {
        scraped(series_names.GATE_THRESHOLD, **gate): "0.8x9",
        scraped(series_names.GATE_INFO, **info, gold="large"): "1x9",
        scraped(series_names.GATE_SAMPLES, **gate): "500x9",
        scraped(series_names.GOLD_INFO, gold="large", version="v2"): "1x9",
        scraped(series_names.GOLD_INFO, gold="small", version="v1"): "1x9",
    }
    for gold, version, good in (("large", "v2", 90), ("large", "v1", 50), ("small", "v1", 10)):
        labels = {"pipeline": "p", "source": "probe", "gold": gold, "gold_version": version}
        series[scraped("rag_answer_precision_score_total", **labels)] = f"0+{good}x9"
        series[scraped("rag_answer_precision_scored_total", **labels)] = "0+100x9"
    label = '{pipeline="p", gate="answer_precision"}'
    expected = [(recording.RATIO.format("1h"), label, 0.1), (recording.RECENT, label, 0.9)]
    assert differences(real, tmp_path, groups, series, expected, at="8m") == ""


def test_bounds_over_replicas_that_asked_the_same_items_are_no_narrower_than_of_one(real, tmp_path):
    """Two replicas with the same fifty items know fifty items, not a hundred."""
    series = {}
    for place in range(2):
        target = {"instance": f"ragmon-{place}:9464", "job": "ragmon"}
        numbers = {
            series_names.GATE_SAMPLES: 400,
            series_names.GATE_VALUE: 0.8,
            series_names.GATE_LOWER: 0.7,
            series_names.GATE_UPPER: 0.88,
        }
        series |= {scraped(name, target, **NAMES): f"{number}x5" for name, number in numbers.items()}
        series[scraped(series_names.GATE_INFO, target, **NAMES, estimand="questions_like_these")] = "1x5"
    label = '{pipeline="p", gate="g"}'
    expected = [(recording.VALUE_LOWER, label, 0.7), (recording.VALUE_UPPER, label, 0.88)]
    group = RuleGroup("ragmon.gates", recording.over_replicas())
    assert differences(real, tmp_path, [group], series, expected) == ""


# --- a real Prometheus, which scrapes real monitors -------------------------------------------------------------------


def answers(n, seed):
    """Users, and probes: the large set has .9 right and half or all documents found, the small one .1."""
    chance = random.Random(seed)
    now = time.time()
    for number in range(n):
        if number % 4 == 0:
            claim = "an answer" if chance.random() < 0.8 else "The documents do not say."
            yield make_record(None, source="live", claim=claim, citations=["d1"], retrieved=["d1"], ts=now)
            continue
        name = "large" if number % 4 < 3 else "small"
        item = chance.choice(ITEMS[name])
        right = chance.random() < (0.9 if name == "large" else 0.1)
        found = [f"d{item}", f"e{item}"] if chance.random() < 0.2 else [f"d{item}"]
        yield make_record(
            f"q{item}",
            source="probe",
            claim="an answer" if right else "something else",
            citations=[f"d{item}"],
            retrieved=[*found, "x"],
            ts=now,
        )


GATES = ("answer_precision", "recall@5", "compliance")
KINDS = {"answer_precision": "gold", "recall@5": "graded", "compliance": "binary"}
FIRST, LATER = 200, 1600


@pytest.fixture(scope="module", params=[1, 2], ids=["one replica", "two replicas"])
def world(request, real, tmp_path_factory):
    """Prometheus with the rules, the replicas it scrapes, and a monitor that got all records after the first scrape."""
    folder = tmp_path_factory.mktemp("live")
    gold_files(folder)
    configuration = settings(folder, GOLD_GATE)
    rules = folder / "ragmon.rules.yml"
    rules.write_text(render(rule_groups(configuration)).replace("interval: 1m", "interval: 1s"))
    with ExitStack() as stack:
        replicas = [stack.enter_context(Monitor(configuration).start("127.0.0.1:0")) for _ in range(request.param)]
        later = stack.enter_context(Monitor(configuration))
        addresses = [monitor.address for monitor in replicas]
        found = stack.enter_context(prometheus(real("prometheus"), folder, addresses, [rules]))
        total = 0
        for n, seed in ((FIRST, 1), (LATER, 2)):
            for place, record in enumerate(answers(n, seed)):
                replicas[place // 4 % len(replicas)].submit(record)
                if n == LATER:
                    later.submit(record)
            total += n
            found.wait_for('sum(ragmon_records_scored_total{stage="score"})', total)
        for gate in GATES:
            samples = sum(judged(monitor, gate).n for monitor in replicas)
            found.wait_for(f'pipeline_gate:ragmon_gate_samples:sum{{gate="{gate}"}}', samples)
            share = recording.RATIO.format("1h")
            wrong = 1 - judged(later, gate).value
            found.wait_for(f'abs({share}{{gate="{gate}"}} - {wrong!r}) < bool 0.02', 1.0)
        yield found, replicas, later


def judged(monitor, gate):
    """What a monitor says of a gate."""
    return next(outcome for outcome in monitor.outcomes() if outcome.gate.name == gate)


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES, ids=KINDS.get)
def test_failures_and_their_interval_in_promql_are_those_of_the_gate(world, gate):
    """`increase` extrapolates over the seconds of this test, so the number of requests is off by a tenth or two."""
    found, _, later = world
    live = judged(later, gate)
    assert 0.4 < live.value < 0.95
    value, lower, upper = (
        f'{name.format("1h")}{{gate="{gate}"}}' for name in (recording.RATIO, recording.LOWER, recording.UPPER)
    )
    assert 1 - found.value(value) == pytest.approx(live.value, abs=0.02)
    found.wait_for(f"abs(({upper} - {lower}) / {live.upper - live.lower!r} - 1) < bool 0.3", 1.0)
    by_share = stats.wilson(live.value * live.n, live.n)
    if KINDS[gate] == "graded":
        assert by_share[1] - by_share[0] > 1.6 * (live.upper - live.lower), "else Wilson's would do as well"


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES, ids=KINDS.get)
def test_the_interval_a_page_quotes_is_the_one_of_the_gate(world, gate):
    found, replicas, _ = world
    parts = [judged(monitor, gate) for monitor in replicas]
    for edge in ("lower", "upper"):
        quoted = found.value(f'pipeline_gate:ragmon_gate_value:{edge}{{gate="{gate}"}}')
        if len(parts) == 1:
            assert quoted == pytest.approx(getattr(parts[0], edge), abs=1e-12)
        else:
            value = sum(part.n * part.value for part in parts) / sum(part.n for part in parts)
            distances = [part.n / sum(each.n for each in parts) * (getattr(part, edge) - part.value) for part in parts]
            assert abs(quoted - value) == pytest.approx(sum(d * d for d in distances) ** 0.5, rel=0.02)
