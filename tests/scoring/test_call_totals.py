"""The sums over all producers are what its reports say, in any order, however they were split, folded and saved.

The oracle keeps every report and walks all of them for each question.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core.constants import FOLDED, STEP
from ragmon.core.record import Totals
from ragmon.scoring.buckets import PRIME, moment, of_counts, place
from ragmon.scoring.call_sums import Resolution
from ragmon.scoring.calls import RECENT, CallTotals, SavedCalls, SavedSums
from ragmon.scoring.cardinality import Processes
from ragmon.scoring.counters import GONE, CallKey, Count, CounterSeries, Producer
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
        report = (int(one.ts) // STEP * STEP, (one.calls, one.kept))
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


def walked_fingerprints(lines):
    """The calls of every five minutes of each producer, and its first report."""
    sums = {}
    for producer, keys in by_series(lines).items():
        for key, reports in keys.items():
            own = 0
            for slot in {step // FOLDED * FOLDED for step, _ in reports}:
                (calls, kept), (calls_before, kept_before) = (count_at(reports, t) for t in (slot + FOLDED, slot))
                own += moment(slot) * of_counts({"calls": calls - calls_before, "kept": kept - kept_before})
            first_step, first = min(reports)
            own += moment(first_step) * of_counts({"first": [1, *first]})
            factor = place(f"{producer.started!r} {producer.instance}")
            sums[key] = (sums.get(key, 0) + factor * own) % PRIME
    return sums


def agree(calls, lines, edges):
    """Compare every window between two edges, and those that begin with the first reports."""
    for begin in (None, *edges):
        for end in edges:
            if begin is None or begin < end:
                assert calls.since(begin, end) == walked(lines, begin, end)
    assert calls.totals() == walked_totals(lines)
    assert calls.fingerprints() == walked_fingerprints(lines)


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
    """All that a state holds, without the order in which it came."""
    series = {(producer, key): (one.first, one.steps) for producer, key, one in calls}
    return series, dict(calls.dump_sums().sums)


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
    assert dict(wholes[0].dump_sums().sums) == dict(wholes[1].dump_sums().sums)


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
    agree(calls, lines, sorted(int(one.ts) // STEP * STEP for one in chance.sample(lines, 5)))
    assert max(len(series) for _, _, series in calls) <= FEW


def reloaded(calls, recent):
    """Saved and loaded in another process."""
    return CallTotals.load(
        saved(calls.dump(), list[SavedCalls]), sums=saved(calls.dump_sums(), SavedSums), recent=recent
    )


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
            calls = reloaded(calls, recent)
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
    assert live.dump_sums() == one_by_one.dump_sums()
    assert state_of(live) == state_of(one_by_one)


def test_an_hour_of_reports_leaves_a_bounded_number_of_steps():
    calls = seen((line(10 * n, n + 1) for n in range(360)), RECENT)
    assert [len(series) for _, _, series in calls] == [RECENT]
    assert calls.since(START + 600, START + 1200) == {REST: Count(60, 6)}


def test_a_report_older_than_the_steps_that_are_kept_counts_nothing_twice():
    """A report of long ago that says less than is known; and one of a clock that was set back, which says more."""
    calls = seen((line(10 * n, 2 * n + 2) for n in range(100)), RECENT)
    before = state_of(calls)
    calls.see(line(15, 3))
    calls.see(line(-10, 1))
    assert state_of(calls) == before
    calls.see(line(20, 230))
    assert calls.totals()[REST].calls == 230
    calls.see(line(1000, 240))
    assert calls.since(START, START + 1010)[REST].calls == calls.totals()[REST].calls == 240


def test_producers_that_are_silent_for_long_are_given_up_and_their_calls_are_not():
    calls = seen([line(0, 10, instance="gone"), line(0, 5), line(290, 20, instance="gone"), line(4000, 50)], RECENT)
    before = calls.totals(), calls.fingerprints(), calls.since(None, START + 5000)
    calls.fold(START + 3000, START + 2000)
    assert {producer for producer, _, _ in calls} == {Producer("one", float(START)), GONE}
    assert (calls.totals(), calls.fingerprints(), calls.since(None, START + 5000)) == before
    again = reloaded(calls, RECENT)
    assert (again.totals(), again.fingerprints(), again.since(None, START + 5000)) == before
    merged = CallTotals()
    merged.merge(calls)
    assert merged.totals() == before[0]


# --- states of older versions -----------------------------------------------------------------------------------------


def older_form(lines, oldest):
    """The series with the last count of every step, and of all steps before an edge; with the fingerprints of those."""
    series, expired = [], {}
    for producer, keys in by_series(lines).items():
        for key, reports in keys.items():
            steps = {}
            for step, count in reports:
                at = step if step // FOLDED * FOLDED >= oldest else -1
                steps[at] = Count(*map(max, steps.get(at, (0, 0)), count))
            first_step, first = min(reports)
            series.append((producer, key, (first_step, Count(*first)), steps))
            gone = [report for report in reports if report[0] // FOLDED * FOLDED < oldest]
            of_gone = 0
            for slot in {step // FOLDED * FOLDED for step, _ in gone}:
                now, before = (count_at(gone, t) for t in (slot + FOLDED, slot))
                of_gone += moment(slot) * of_counts({"calls": now[0] - before[0], "kept": now[1] - before[1]})
            factor = place(f"{producer.started!r} {producer.instance}")
            expired[key] = (expired.get(key, 0) + factor * of_gone) % PRIME
    return series, [(key, f"{n:x}") for key, n in expired.items()]


@law
@given(chances, st.sampled_from((None, FEW)), st.sampled_from((0, 600, 1500)), st.booleans())
def test_a_state_of_an_older_version_goes_on_as_if_all_had_been_seen(chance, recent, gone, knows_edges):
    """Whether its retention is the one it was folded by or not."""
    lines = growing(chance)
    cut = chance.randrange(20, len(lines))
    oldest = min(START + gone, *(int(one.ts) // FOLDED * FOLDED for one in lines[cut:]))  # no report comes later
    series, expired = older_form(lines[:cut], oldest)
    edges = (0.0, oldest if knows_edges else None)
    calls = CallTotals.load(saved(series, list[SavedCalls]), expired, edges=edges, recent=recent)
    first_kept = max(calls.dump_sums().oldest, oldest)
    agree(calls, lines[:cut], range(int(first_kept), START + 4500, 600))
    for one in lines[cut:]:
        calls.see(one)
    agree(calls, lines, range(int(first_kept), START + 4500, 600))


def test_a_producer_that_an_older_version_gave_up_counts_in_the_total_alone():
    calls = CallTotals.load([(GONE, REST, (-1, Count(7, 1)), {-1: Count(7, 1)})])
    calls.see(line(100, 5, started=90))
    assert calls.totals() == {REST: Count(12, 1)}
    assert calls.since(None, START + 200) == {REST: Count(0, 0)}
    assert calls.since(START, START + 200) == {REST: Count(5, 0)}


# --- parts ------------------------------------------------------------------------------------------------------------


def test_a_late_report_takes_its_calls_from_the_steps_after_it():
    """At 10 there were 5 calls, at 30 there were 9 more; then 8 are known at 20, and 20 at 20."""
    series = CounterSeries(10, Count(5, 0))
    assert series.put(30, Count(14, 2)) == ((30, 9, 2),)
    assert series.put(20, Count(8, 1)) == [(20, 3, 1), (30, -3, -1)]
    assert series.put(20, Count(20, 1)) == [(20, 12, 0), (30, -6, 0)]
    assert series.increments() == [(10, 5, 0), (20, 15, 1), (30, 0, 1)]
    assert series.put(30, Count(19, 1)) == []


def test_steps_are_kept_apart_by_their_age_and_edges_never_move_back():
    resolution = Resolution()
    resolution.advance(1000.0, 310.0)
    assert [resolution.of(step) for step in (590, 600, 990, 1000, 1010)] == [None, 600, 900, 1000, 1010]
    resolution.advance(0.0, None)
    assert (resolution.fresh, resolution.oldest) == (1000.0, 600)


def test_five_thousand_processes_of_four_strata_are_accepted_and_one_more_is_not():
    processes = Processes()
    strata = ("error", "refusal", "slow", "rest")
    lines = [line(0, 1, instance=f"p{n}", stratum=stratum) for n in range(5000) for stratum in strata]
    assert all(processes.take(one, START) for one in lines)
    assert not processes.take(line(0, 1, instance="one more"), START)
