"""What an alarm says that it fired for: a stretch of its own observations, which agrees with it however it came."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.alarms.detector import Alarm, shown
from ragmon.alarms.observations import observe
from ragmon.alarms.pipelines import AlarmState
from ragmon.alarms.plan import AlarmRule
from ragmon.config.load import defaults
from ragmon.core.policy import Gate, Outcome
from ragmon.export.pages import SpanChoice, overview_page
from ragmon.export.status import MonitorSnapshot, problems, status
from ragmon.export.status import gate as shown_gate
from ragmon.monitor.engine import SPANS
from ragmon.scoring.snapshot import Snapshot
from ragmon.stats.histograms import micro
from tests.support.saved import saved

SCORES = st.one_of(st.sampled_from([0.0, 1.0]), st.integers(1, 99).map(lambda n: n / 100))
GOOD = st.lists(st.sampled_from([1.0, 1.0, 1.0, 1.0, 0.0]), max_size=40)
STEPS = st.lists(st.lists(SCORES, min_size=1, max_size=12), min_size=1, max_size=12)
LEVELS = st.floats(0.05, 0.99)
RULE = AlarmRule("g", "recall", "page", at_least=True, kind="gate", threshold=500.0)
INTERVAL = re.compile(r"\d+(\.\d+)? (–|to) \d+(\.\d+)? ?%?")


def fired(level, good, steps):
    """An alarm that saw good steps, then those, then only failures until it fired; returns it and all it saw."""
    alarm, seen = Alarm(), []
    for minute, scores in enumerate([[score] for score in good] + steps + [[0.0] * 5] * 200, start=1000):
        seen.append((minute, scores))
        if alarm.step(RULE, minute, observe((1, micro(score)) for score in scores), level) == "firing":
            return alarm, seen
    return None, seen


@given(LEVELS, GOOD, STEPS)
def test_the_stretch_is_its_own_and_its_mean_is_below_the_level(level, good, steps):
    alarm, seen = fired(level, good, steps)
    if alarm is None:  # only near a level of 0, where failures prove nothing
        assert level < 0.2
        return
    proof = alarm.proof
    own = [score for minute, scores in seen if proof.begin <= minute <= proof.end for score in scores]
    assert proof.end == seen[-1][0] == alarm.firing
    assert proof.n == len(own)
    assert proof.total == pytest.approx(sum(own))
    assert proof.total / proof.n < level == proof.level


@given(LEVELS, GOOD, STEPS, st.booleans())
def test_the_text_shows_a_value_on_the_wrong_side_and_no_interval(level, good, steps, at_least):
    alarm, _ = fired(level, good, steps)
    if alarm is None:
        return
    rule = replace(RULE, at_least=at_least)
    proof = shown(alarm.proof, rule)
    value, asked = (float(number) for number in re.findall(r"([\d.]+) %", proof.text))
    assert (value < asked) if at_least else (value > asked)
    assert (proof.value < proof.level) if at_least else (proof.value > proof.level)
    assert not INTERVAL.search(proof.text)


OUTCOMES = st.tuples(LEVELS, st.booleans(), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)).map(
    lambda drawn: (drawn[0], drawn[1], *sorted(drawn[2:]))
)


def outcome(threshold, at_least, lower, value, upper):
    """A gate's outcome in its window, judged as gates are."""
    gate = Gate("g", "recall", threshold, "at_least" if at_least else "at_most", pipeline="support")
    holds = gate.holds(lower), gate.holds(upper)
    verdict = "pass" if all(holds) else "insufficient" if any(holds) else "fail"
    return Outcome(
        gate, "probe", "gold", "", value, lower, upper, 90, None, verdict, "the interval reaches across the limit"
    )


@given(OUTCOMES, GOOD, STEPS, st.booleans())
def test_no_text_of_a_firing_page_has_an_interval_that_includes_the_gate(drawn, good, steps, proven):
    """The window may be undecided or well again while its alarm fires: about another stretch of time."""
    in_window = outcome(*drawn)
    gate = in_window.gate
    alarm, _ = fired(max(0.3, gate.threshold if gate.at_least else 1 - gate.threshold), good, steps)
    proof = shown(alarm.proof, replace(RULE, at_least=gate.at_least)) if proven else None
    state = AlarmState("support", "g", "recall", "page", 5000.0, 1.0, gate.threshold, proof=proof)
    reading = MonitorSnapshot(
        Snapshot(5000.0, (), (), (), frozenset()), outcomes=[in_window], alarms=[state], last_scored=5000.0
    )
    (finding,) = problems(reading)
    if INTERVAL.search(finding.what):
        assert in_window.verdict == "fail"  # the whole interval lies on the wrong side
    row = shown_gate(in_window, state)
    if row["lower"] is not None:
        assert not gate.holds(row["lower"])
        assert not gate.holds(row["upper"])
    data = status(reading, defaults(), 0.0)
    assert data["alarms"][0]["proof"] == (None if proof is None else asdict(proof))
    cells = re.findall(r">(\d\.\d{3}) to (\d\.\d{3})<", overview_page(data, {}, SpanChoice(SPANS["24h"], (), "")))
    assert not [pair for pair in cells if float(pair[0]) < gate.threshold < float(pair[1])]


def test_the_proof_goes_with_the_saved_state_and_ends_with_the_alarm():
    alarm, _ = fired(0.8, [1.0] * 20, [])
    assert saved(alarm).proof == alarm.proof is not None
    halfway, _ = fired(0.8, [1.0] * 20, [[0.0, 1.0]])
    halfway.clear()
    assert (halfway.proof, halfway.stretches) == (None, {})


def test_the_stretch_begins_with_the_fault_and_not_with_the_traffic():
    alarm, _ = fired(0.8, [1.0, 1.0, 1.0, 1.0, 0.0] * 8, [])
    assert 1000 + 40 - 5 <= alarm.proof.begin <= 1000 + 40
