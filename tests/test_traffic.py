"""All calls by time: cumulative counts of several producers, read as calls within a window."""

from __future__ import annotations

import json
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from ragmon.contract import Totals
from ragmon.traffic import CallKey, Calls, by_stratum

START = 1_763_683_200
KEY = CallKey("default", "live", "rest")


def line(calls, at, *, instance="one", started=0.0, stratum="rest"):
    return Totals(
        ts=float(START + at),
        instance=instance,
        started=float(START + started),
        pipeline="default",
        source="live",
        stratum=stratum,
        calls=calls,
    )


def seen(*lines):
    calls = Calls()
    for one in lines:
        calls.see(one)
    return calls


def test_a_window_has_the_calls_between_its_edges():
    calls = seen(line(100, 10), line(250, 20), line(400, 30))
    assert calls.within(START + 20, START + 40) == {KEY: 300}
    assert calls.within(None, inf) == {KEY: 400}


def test_producers_add_up_and_a_restarted_one_counts_from_nothing_again():
    calls = seen(line(100, 10), line(40, 10, instance="two"), line(7, 50, started=45))
    assert calls.within(START - 5, START + 60) == {KEY: 147}
    assert calls.within(START + 40, START + 60) == {KEY: 7}


def test_of_a_producer_first_heard_of_in_the_window_only_what_it_counted_since_is_known():
    """A server that starts beside an old application must not take its past for this minute's calls."""
    calls = seen(line(1_000_000, 100, started=-86_400), line(1_000_060, 110, started=-86_400))
    assert calls.within(START + 60, START + 120) == {KEY: 60}


def test_lines_about_losses_count_no_calls():
    assert seen(line(0, 10)).counts == {}


def test_strata_of_one_pipeline_and_source_are_told_apart():
    found = seen(line(5, 10), line(2, 10, stratum="slow"), line(9, 10, stratum="unknown_weight")).within(None, inf)
    assert by_stratum(found, "default", "live") == {"rest": 5, "slow": 2}
    assert by_stratum(found, "default", "probe") == {}


LINES = st.lists(
    st.builds(
        line,
        st.integers(0, 500),
        st.integers(0, 600),
        instance=st.sampled_from(["one", "two"]),
        stratum=st.sampled_from(["rest", "slow"]),
    ),
    max_size=20,
)


@given(LINES, LINES)
def test_parts_merge_in_any_order_to_what_one_would_have_counted(some, others):
    both = seen(*some, *others)
    forward, backward = seen(*some), seen(*others)
    forward.merge(seen(*others))
    backward.merge(seen(*some))
    assert forward.counts == backward.counts == both.counts


@given(LINES)
def test_what_was_dumped_is_loaded_again(lines):
    calls = seen(*lines)
    assert Calls.load(json.loads(json.dumps(calls.dump()))).counts == calls.counts


def test_old_counts_are_thinned_out_without_losing_a_call():
    """Five-minute edges stay exact; what is older than the retention is one number."""
    lines = [line(at // 10, at) for at in range(10, 7200, 10)]
    calls, all_of_them = seen(*lines), seen(*lines)
    calls.fold(START + 6600, START + 3600)
    assert len(next(iter(calls.counts.values()))[KEY]) < 75
    assert calls.within(None, inf) == all_of_them.within(None, inf)
    assert calls.within(START + 3900, START + 6000) == all_of_them.within(START + 3900, START + 6000)


def test_a_thousand_processes_that_came_and_went_take_the_room_of_one():
    """Their calls stay in the total; a process that still reports stays apart."""
    calls = seen(*(line(3, at, instance=f"worker {at}", started=at) for at in range(1000)))
    calls.see(line(40, 90_000, instance="alive"))
    calls.fold(START + 80_000, START + 50_000)
    assert len(calls.counts) == 2
    assert calls.within(None, inf) == {KEY: 3040}
    calls.see(line(50, 100_000, instance="alive"))
    assert calls.within(START + 95_000, START + 101_000) == {KEY: 10}
