"""A run of the demo waits for its traffic, within a limit, and says what kept the machine from showing the incident."""

from __future__ import annotations

import time

import pytest

from ragmon.demo.pacing import LONGEST_GAP, PATIENCE, Pacing
from ragmon.demo.show import RunEvents, _verdict

PLANNED = 0.2
"""Seconds of a whole run; a half of it has about seven calls."""


def wait(pacing, seconds):
    until = pacing.now + seconds
    while pacing.now < until:
        time.sleep(0.005)
        assert pacing.advance() is None


def test_a_half_without_enough_calls_and_without_a_verdict_waits_for_them():
    calls = 0
    pacing = Pacing(PLANNED, lambda: calls)
    wait(pacing, PLANNED / 2)
    assert pacing.is_due
    assert not pacing.is_over(decided=False)
    assert pacing.is_over(decided=True)
    calls = pacing.expected_calls
    assert pacing.is_over(decided=False)


def test_a_half_is_not_over_before_its_time_whatever_it_shows():
    pacing = Pacing(3600, lambda: 10**6)
    assert not pacing.is_over(decided=True)


def test_it_waits_within_a_limit():
    pacing = Pacing(PLANNED, lambda: 0)
    wait(pacing, PATIENCE * PLANNED / 2)
    assert pacing.is_over(decided=False)


def test_the_second_half_counts_its_own_time_and_calls():
    calls = 50
    pacing = Pacing(PLANNED, lambda: calls)
    wait(pacing, PLANNED / 2)
    pacing.begin_second_half()
    assert (pacing.calls, pacing.is_due) == (0, False)
    calls += 3
    assert pacing.calls == 3


def test_too_little_traffic_is_said_where_no_gate_turned_red():
    pacing = Pacing(PLANNED, lambda: 2)
    story = RunEvents(PLANNED, "latency", broken=0.1)
    assert _verdict(story, pacing) == [
        "",
        "latency at 0.1 s turned red: no gate.",
        (
            "The incident had too little traffic: 2 calls, where about 7 were planned. "
            "Try again when this machine is less busy."
        ),
    ]
    story.reds["answered_within"] = 0.3
    assert _verdict(story, pacing) == ["", "latency at 0.1 s turned red: answered_within after 0.2 s."]


@pytest.mark.slow
def test_a_gap_between_two_looks_is_a_pause_and_stops_the_clock():
    pacing = Pacing(60, lambda: 0)
    time.sleep(LONGEST_GAP + 0.1)
    pause = pacing.advance()
    assert pause.seconds > LONGEST_GAP
    assert pacing.now == LONGEST_GAP
    assert pacing.pauses == [pause]
