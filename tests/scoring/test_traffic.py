"""All calls by time: cumulative counts of several producers, read as calls within a window."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.record import Totals
from ragmon.scoring.buckets import CallKey, CallTotals, Count, CounterSeries, by_stratum
from tests.support.saved import saved

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
        kept=calls // 10,
    )


def seen(*lines):
    calls = CallTotals()
    for one in lines:
        calls.see(one)
    return calls


def calls_of(found):
    return {key: count.calls for key, count in found.items()}


def test_a_window_has_the_calls_between_its_edges():
    calls = seen(line(100, 10), line(250, 20), line(400, 30))
    assert calls_of(calls.since(START + 20, START + 40)) == {KEY: 300}
    assert calls_of(calls.totals()) == {KEY: 400}


def test_producers_add_up_and_a_restarted_one_counts_from_nothing_again():
    calls = seen(line(100, 10), line(40, 10, instance="two"), line(7, 50, started=45))
    assert calls_of(calls.since(START - 5, START + 60)) == {KEY: 147}
    assert calls_of(calls.since(START + 40, START + 60)) == {KEY: 7}


def test_of_a_producer_first_heard_of_in_the_window_only_what_it_counted_since_is_known():
    """A server that starts beside an old application must not take its past for this minute's calls."""
    calls = seen(line(1_000_000, 100, started=-86_400), line(1_000_060, 110, started=-86_400))
    assert calls_of(calls.since(START + 60, START + 120)) == {KEY: 60}


def test_lines_about_losses_count_no_calls():
    assert seen(line(0, 10)) == CallTotals()


def test_strata_of_one_pipeline_and_source_are_told_apart():
    found = seen(line(5, 10), line(2, 10, stratum="slow"), line(9, 10, stratum="unknown_weight")).totals()
    assert by_stratum(found, "default", "live") == {"rest": Count(5, 0), "slow": Count(2, 0)}
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
    assert forward == backward == both


@given(LINES)
def test_what_was_saved_is_read_again(lines):
    calls = seen(*lines)
    assert saved(calls) == calls


def test_old_counts_are_thinned_out_without_losing_a_call():
    """Five-minute edges stay exact; what is older than the retention is one number."""
    lines = [line(at // 10, at) for at in range(10, 7200, 10)]
    calls, all_of_them = seen(*lines), seen(*lines)
    calls.fold(START + 6600, START + 3600)
    (known,) = calls.producers.values()
    assert len(known.series[KEY].times) < 75
    assert calls.totals() == all_of_them.totals()
    assert calls.since(START + 3900, START + 6000) == all_of_them.since(START + 3900, START + 6000)


def test_a_count_that_comes_late_never_lowers_one_that_is_known():
    calls = seen(line(100, 590))
    calls.fold(START + 6600, None)
    calls.see(line(50, 450))
    calls.fold(START + 6600, None)
    assert calls_of(calls.totals()) == {KEY: 100}


def test_a_stratum_that_was_never_told_of_before_had_no_calls():
    """A process of a day tells of its first refusals: all of them are of this window, also when it is read later."""
    calls = seen(line(9000, 10, started=-86_400), line(9600, 300, started=-86_400))
    calls.see(line(240, 300, started=-86_400, stratum="refusal"))
    refusals = CallKey("default", "live", "refusal")
    for _ in range(2):
        assert calls_of(calls.since(START + 100, START + 400)) == {KEY: 600, refusals: 240}
        calls.fold(START + 4000, None)


def test_from_the_first_report_on_is_what_a_log_that_was_cut_can_tell():
    calls = seen(line(9000, 10, started=-86_400), line(9600, 300, started=-86_400))
    assert calls_of(calls.since(None, inf)) == {KEY: 600}


def test_a_thousand_processes_that_came_and_went_take_the_room_of_one():
    """Their calls stay in the total; a process that still reports stays apart."""
    calls = seen(*(line(3, at, instance=f"worker {at}", started=at) for at in range(1000)))
    calls.see(line(40, 90_000, instance="alive"))
    calls.fold(START + 80_000, START + 50_000)
    assert [producer.instance for producer in calls.producers] == ["alive"]
    assert calls_of(calls.totals()) == {KEY: 3040}
    calls.see(line(50, 100_000, instance="alive"))
    assert calls_of(calls.since(START + 95_000, START + 101_000)) == {KEY: 10}


reports = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 50), st.booleans()), min_size=1, max_size=40)


@given(reports)
def test_a_count_is_the_largest_of_all_steps_before_a_time_whenever_it_is_read(said):
    """Reports come in and out of order, and the count is read between them: the sorted steps are kept up."""
    series, steps = None, {}
    for step, calls, reads in said:
        count = Count(calls, calls // 2)
        if series is None:
            series = CounterSeries((10 * step, count), [10 * step], [count.calls], [count.kept])
        else:
            series.put(10 * step, count)
        steps[10 * step] = max(count, steps.get(10 * step, count))
        for end in (0, 105, 155, 400) if reads else (400,):
            before = [known for at, known in steps.items() if at < end]
            largest = Count(max((c.calls for c in before), default=0), max((c.kept for c in before), default=0))
            known = [n for n in zip(series.times, series.calls, series.kept, strict=True) if n[0] < end]
            assert (known[-1][1:] if known else (0, 0)) == largest
