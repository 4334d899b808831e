"""The sums over all producers are what its reports say, in any order, however they were split, folded and saved.

The oracle keeps every report and walks all of them for each question.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core.constants import BUCKET_SECONDS, FOLDED_SECONDS
from ragmon.core.record import Totals
from ragmon.scoring.buckets import RECENT, CallKey, CallTotals, Count, CounterSeries, Producer
from ragmon.scoring.cardinality import Processes
from tests.support.examples import cases
from tests.support.saved import saved

START = 1_763_683_200
REST = CallKey("default", "live", "rest")
law = settings(max_examples=cases(120), deadline=None)
chances = st.integers(0, 2**32 - 1).map(Random)


def line(at, calls, kept=None, *, instance="one", started=0, stratum="rest"):
    return Totals(
        ts=float(START + at),
        instance=instance,
        started=float(START + started),
        pipeline="default",
        source="live",
        stratum=stratum,
        calls=calls,
        kept=calls // 10 if kept is None else kept,
    )


def seen(lines, recent=None):
    calls = CallTotals(recent)
    for one in lines:
        calls.see(one)
    return calls


# --- the oracle -------------------------------------------------------------------------------------------------------


def by_series(lines):
    """The reports `(step, count)` of each producer and key."""
    found = {}
    for one in lines:
        key = CallKey(one.pipeline, one.source, one.stratum)
        report = (int(one.ts) // BUCKET_SECONDS * BUCKET_SECONDS, (one.calls, one.kept))
        found.setdefault(Producer(one.instance, one.started), {}).setdefault(key, []).append(report)
    return found


def count_at(reports, end):
    """The largest counts reported before a time."""
    known = [count for step, count in reports if step < end]
    return max((calls for calls, _ in known), default=0), max((kept for _, kept in known), default=0)


def walked(lines, begin, end):
    """The calls of a window: the counts of each producer at its end without those at its start."""
    counts = {}
    for producer, keys in by_series(lines).items():
        first_step = min(step for reports in keys.values() for step, _ in reports)
        began_before = begin is None or producer.started < begin <= first_step
        for key, reports in keys.items():
            base = (0, 0) if begin is None else count_at(reports, begin)
            first = min(reports)
            if began_before and first[0] == first_step:
                base = first[1]
            more = [max(0, n - before) for n, before in zip(count_at(reports, end), base, strict=True)]
            counts[key] = Count(*more).plus(counts.get(key, Count()))
    return counts


def walked_totals(lines):
    counts = {}
    for keys in by_series(lines).values():
        for key, reports in keys.items():
            counts[key] = Count(*count_at(reports, float("inf"))).plus(counts.get(key, Count()))
    return counts


def walked_rows(lines, since):
    """The calls of every five minutes of all producers, without what they had counted before they reported."""
    steps, firsts = {}, {}
    for producer, keys in by_series(lines).items():
        first_step = min(step for reports in keys.values() for step, _ in reports)
        for key, reports in keys.items():
            counted, first = steps.setdefault(key, {}), firsts.setdefault(key, {})
            for slot in {step // FOLDED_SECONDS * FOLDED_SECONDS for step, _ in reports}:
                more = Count(*count_at(reports, slot + FOLDED_SECONDS)).minus(Count(*count_at(reports, slot)))
                counted[slot] = counted.get(slot, Count()).plus(more)
            step, count = min(reports)
            if step == first_step:
                start, slot = (int(at) // FOLDED_SECONDS * FOLDED_SECONDS for at in (min(producer.started, step), step))
                counted[slot] = counted[slot].minus(Count(*count))
                first[start, slot] = first.get((start, slot), Count()).plus(Count(*count))
    return [
        [
            *key,
            *total,
            [[slot, *count] for slot, count in sorted(steps[key].items()) if any(count) and slot >= since],
            [[*place, *count] for place, count in sorted(firsts[key].items()) if any(count) and place[0] >= since],
        ]
        for key, total in sorted(walked_totals(lines).items())
    ]


def agree(calls, lines, edges):
    """Compare every window between two edges, those that begin with the first reports, and the rows of the digest."""
    for begin in (None, *edges):
        for end in edges:
            if begin is None or begin < end:
                assert calls.since(begin, end) == walked(lines, begin, end)
    assert calls.totals() == walked_totals(lines)
    assert calls.to_rows(edges[0]) == walked_rows(lines, edges[0])


# --- any order, any parts ---------------------------------------------------------------------------------------------

any_lines = st.lists(
    st.builds(
        line,
        st.integers(0, 900),
        st.integers(1, 60),
        st.integers(0, 20),
        instance=st.sampled_from("ab"),
        started=st.sampled_from((-7200, -5, 205, 800)),
        stratum=st.sampled_from(("rest", "slow")),
    ),
    min_size=1,
    max_size=14,
)
"""Reports in any order, whose counts may shrink, of producers that started before, within and after them."""
EDGES = range(START - 20, START + 930, 90)


@law
@given(any_lines)
def test_every_window_is_what_all_reports_say(lines):
    agree(seen(lines), lines, EDGES)


@law
@given(any_lines, chances)
def test_it_may_be_asked_between_reports(lines, chance):
    """What was computed for one question is right for the next one."""
    calls = CallTotals()
    for n, one in enumerate(lines, 1):
        calls.see(one)
        if chance.random() < 0.5:
            agree(calls, lines[:n], sorted(chance.sample(EDGES, 3)))


def state_of(calls):
    """All that a state holds; dictionaries have no order."""
    return calls.producers, calls.sums


def all_series(calls):
    return [series for known in calls.producers.values() for series in known.series.values()]


@law
@given(any_lines, chances)
def test_parts_merge_to_the_whole_in_any_order_and_grouping(lines, chance):
    whole = seen(lines)
    parts = [[] for _ in range(chance.randint(1, 4))]
    for one in lines:
        chance.choice(parts).append(one)
    states = [seen(part) for part in parts]
    while len(states) > 1:
        one, other = (states.pop(chance.randrange(len(states))) for _ in range(2))
        one.merge(other)
        states.append(one)
    assert state_of(states[0]) == state_of(whole)
    agree(states[0], lines, EDGES[::3])


def merged(states):
    """The first state with the others added."""
    for other in states[1:]:
        states[0].merge(other)
    return states[0]


@law
@given(any_lines, st.lists(st.integers(0, 1200), max_size=3), chances)
def test_parts_that_were_folded_merge_to_the_whole_by_five_minutes(lines, folds, chance):
    parts = [[], [], []]
    for one in lines:
        chance.choice(parts).append(one)
    states = [seen(part) for part in parts]
    for at in folds:
        chance.choice(states).fold(START + at, None)
    wholes = [merged(copy.deepcopy(chance.sample(states, 3))) for _ in range(2)]
    agree(wholes[0], lines, range(START - 300, START + 1201, 300))
    assert wholes[0].sums == wholes[1].sums


# --- live traffic: few steps a series ---------------------------------------------------------------------------------

FEW = 8
"""Steps a series keeps in these tests, and reports by which one may be late."""


def growing(chance, rounds=30):
    """The reports of two processes and of one that starts in between, whose counts grow, some of them late."""
    lines, calls, now = [], {}, 0
    for number in range(rounds):
        now += chance.choice((10, 10, 40, 250))
        for instance, started in (("a", -7200), ("b", -5), *((("c", now - 7),) if number > rounds // 2 else ())):
            started = calls.setdefault(instance, started)  # noqa: PLW2901 - when it started does not change
            for stratum in ("rest", *(("slow",) if chance.random() < 0.4 else ())):
                key = instance, stratum
                calls[key] = calls.get(key, chance.choice((0, 100))) + chance.randrange(1, 30)
                lines.append(line(now, calls[key], instance=instance, started=started, stratum=stratum))
    places = sorted(range(len(lines)), key=lambda place: place + chance.random() * (FEW - 1))
    return [lines[place] for place in places]


@law
@given(chances)
def test_few_steps_are_enough_where_reports_are_hardly_late(chance):
    lines = growing(chance)
    calls = seen(lines, FEW)
    agree(calls, lines, sorted(int(one.ts) // BUCKET_SECONDS * BUCKET_SECONDS for one in chance.sample(lines, 5)))
    assert max(len(series.times) for series in all_series(calls)) <= FEW


@law
@given(chances, st.sampled_from((None, FEW)), st.booleans())
def test_folding_and_saving_at_any_time_change_no_window_that_is_kept(chance, recent, expires):
    """Windows of ten-second edges while they are fresh, of five-minute edges as long as they are kept."""
    calls, fresh, oldest = CallTotals(recent), START - 300, START - 300
    lines = growing(chance)
    for n, one in enumerate(lines, 1):
        calls.see(one)
        if chance.random() < 0.1:
            now = max(one.ts for one in lines[:n])
            fresh, oldest = now - 650, now - 2500 if expires else oldest
            calls.fold(fresh, oldest if expires else None)
        if chance.random() < 0.1:
            calls = saved(calls)
        if chance.random() < 0.1:
            first_fresh, first_kept = (int(edge // step + 1) * step for edge, step in ((fresh, 10), (oldest, 300)))
            agree(calls, lines[:n], range(first_kept, START + 4500, 900))
            agree(calls, lines[:n], [first_fresh + 10 * chance.randrange(60) for _ in range(2)])


@law
@given(chances)
def test_batches_that_were_counted_elsewhere_merge_into_live_traffic_as_if_seen_one_by_one(chance):
    lines = growing(chance)
    edges = sorted({0, len(lines), *(chance.randrange(len(lines)) for _ in range(10))})
    live, one_by_one = CallTotals(FEW), CallTotals(FEW)
    for begin, end in pairwise(edges):
        live.merge(seen(lines[begin:end][:FEW]))
        live.merge(seen(lines[begin:end][FEW:]))
        for one in lines[begin:end]:
            one_by_one.see(one)
        if chance.random() < 0.3:
            for calls in (live, one_by_one):
                calls.fold(lines[end - 1].ts - 650, lines[end - 1].ts - 2500)
    assert live == one_by_one


def test_an_hour_of_reports_leaves_a_bounded_number_of_steps():
    calls = seen((line(10 * n, n + 1) for n in range(360)), RECENT)
    assert [len(series.times) for series in all_series(calls)] == [RECENT]
    assert calls.since(START + 600, START + 1200) == {REST: Count(60, 6)}


def test_a_report_older_than_the_steps_that_are_kept_counts_nothing_twice():
    """A report of long ago that says less than is known; and one of a clock that was set back, which says more."""
    calls = seen((line(10 * n, 2 * n + 2) for n in range(100)), RECENT)
    before = copy.deepcopy(calls)
    calls.see(line(15, 3))
    calls.see(line(-10, 1))
    assert calls == before
    calls.see(line(20, 230))
    assert calls.totals()[REST].calls == 230
    calls.see(line(1000, 240))
    assert calls.since(START, START + 1010)[REST].calls == calls.totals()[REST].calls == 240


def test_producers_that_are_silent_for_long_are_given_up_and_their_calls_are_not():
    calls = seen([line(0, 10, instance="gone"), line(0, 5), line(290, 20, instance="gone"), line(4000, 50)], RECENT)
    before = calls.totals(), calls.to_rows(START + 2000), calls.since(None, START + 5000)
    calls.fold(START + 3000, START + 2000)
    assert calls.producers.keys() == {Producer("one", float(START))}
    assert (calls.totals(), calls.to_rows(START + 2000), calls.since(None, START + 5000)) == before
    assert saved(calls) == calls
    merged = CallTotals()
    merged.merge(calls)
    assert merged.totals() == before[0]


# --- parts ------------------------------------------------------------------------------------------------------------


def test_a_late_report_takes_its_calls_from_the_steps_after_it():
    """At 10 there were 5 calls, at 30 there were 9 more; then 8 are known at 20, and 20 at 20."""
    series = CounterSeries((10, Count(5, 0)), [10], [5], [0])
    assert series.put(30, Count(14, 2)) == [(30, (9, 2))]
    assert series.put(20, Count(8, 1)) == [(20, (3, 1)), (30, (-3, -1))]
    assert series.put(20, Count(20, 1)) == [(20, (12, 0)), (30, (-6, 0))]
    assert (series.times, series.calls, series.kept) == ([10, 20, 30], [5, 20, 20], [0, 1, 2])
    assert series.put(30, Count(19, 1)) == []


def test_steps_are_kept_apart_by_their_age_and_edges_never_move_back():
    calls = seen(line(at, 10 * n + 20, started=-20) for n, at in enumerate((-20, 590, 600, 990, 1000, 1010)))
    calls.fold(START + 1000.0, START + 310.0)
    assert [step - START for step in calls.sums[REST].steps] == [600, 900, 1000, 1010]
    calls.fold(0.0, None)
    assert (calls.fresh, calls.oldest) == (START + 1000.0, START + 600)
    assert calls.since(None, START + 2000) == {REST: Count(50, 5)}


def test_five_thousand_processes_of_four_strata_are_accepted_and_one_more_is_not():
    processes = Processes()
    strata = ("error", "refusal", "slow", "rest")
    lines = [line(0, 1, instance=f"p{n}", stratum=stratum) for n in range(5000) for stratum in strata]
    assert all(processes.take(one, START) for one in lines)
    assert not processes.take(line(0, 1, instance="one more"), START)
