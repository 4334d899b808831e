"""Sessions over minutes, retry storms, crawlers, questions everybody asks, probe rounds: what bets, and how often.

The rule is simulated twice: `ClusterMemory` itself on streams of some days, and, for months of every cell, arrays that
are first shown to pick the same observations.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from statistics import median

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.alarms.detector import Alarm
from ragmon.alarms.observations import CROWD, IDLE, LIFE, LULL, MOST, REPEAT, ClusterMemory, observe
from ragmon.alarms.plan import AlarmRule
from ragmon.core.record import Record
from ragmon.scoring.minutes import CountedRecord, Membership, Minute
from ragmon.scoring.windows import ItemSums
from ragmon.stats.histograms import MICRO
from tests.support.alarming import GOOD, World
from tests.support.examples import cases
from tests.support.saved import saved

SEED = 20261124
DAY = 1440
MONTH = 30 * DAY
BUDGET = 0.07  # false pages a month of one detector of 13
LIVE = CountedRecord("live")
CELLS = [
    (gate, truth, icc, size, length)
    for gate, truths in ((0.80, (0.80, 0.83)), (0.95, (0.95, 0.97)))
    for truth in truths
    for icc in (0.3, 0.6)
    for size in (5, 10, 20)
    for length in (1, 10, 30)
]
FEW = [cell for cell in CELLS if cell[0] == cell[1] and cell[3:] == (10, 10)]


def observed(memory, minute, requests):
    """What a metric sees in a minute of `(membership, right)` pairs: the sums of the clusters that count."""
    step, sums = Minute(minute), {}
    for member, right in requests:
        n, total, _ = sums.get(member, ItemSums())
        sums[member] = ItemSums(n + 1, total + MICRO * bool(right))
    step.facts[LIVE] = {member: {(): sums[member].n} for member in sums}
    found = list(memory.open(step).fold("live", "precision", sums, sums.__getitem__))
    memory.close()
    return found


def pages_of(gate, minutes, detectors=13):
    """The minutes in which one of so many page alarms fires; it is acknowledged at once."""
    rule = AlarmRule("a", "a", "page", at_least=True, kind="gate", threshold=detectors * MONTH)
    alarm, memory, found = Alarm(), ClusterMemory(), []
    for minute, requests in enumerate(minutes):
        seen = observe((n, total) for n, total, _ in observed(memory, minute, requests))
        if seen.n and alarm.step(rule, minute, seen, gate) == "firing":
            found.append(minute)
            alarm.clear()
    return found


# --- sessions over minutes --------------------------------------------------------------------------------------------


def sessions(rng, days, truth, icc, size, length, rate=1.0):
    """Beginnings of sessions in minutes, when their requests come after it, and which are right; one row a session."""
    number = rng.poisson(rate * days * DAY)
    begin = rng.uniform(0, days * DAY, number)
    after = rng.uniform(0, length, (number, size))
    after[:, 0] = 0
    strength = 1 / icc - 1
    quality = rng.beta(strength * truth, strength * (1 - truth), number)
    return begin, after, rng.random((number, size)) < quality[:, None]


def first_minutes(begin, after, right):
    """The minute in which each session counts, and its mean there."""
    first = np.floor(begin[:, None] + after) == np.floor(begin)[:, None]
    return np.floor(begin).astype(int), (right & first).sum(axis=1) / first.sum(axis=1)


def every_minute(begin, after, right):
    """What an observation a session and minute would be."""
    minutes = np.floor(begin[:, None] + after).astype(int)
    keys = np.arange(len(begin))[:, None] * 10**7 + minutes
    found, place = np.unique(keys, return_inverse=True)
    place = place.reshape(-1)
    return found % 10**7, np.bincount(place, right.reshape(-1)) / np.bincount(place)


def alarms(columns, days, threshold=MONTH / BUDGET):
    """The number of alarms in each column of `(gate, minutes, means)`; the second implementation of the detector."""
    falls = np.array([0.01, 0.025, 0.05, 0.10, 0.175, 0.275, 0.40, 0.60])
    growth = np.zeros((len(falls), len(columns), days * DAY))
    begun = np.zeros((len(columns), days * DAY), bool)
    for column, (gate, at, seen) in enumerate(columns):
        minutes, means = at[at < days * DAY], seen[at < days * DAY]
        begun[column, minutes] = True
        for fall, bet in enumerate(falls / (1 - gate)):
            growth[fall, column] = np.bincount(minutes, np.log1p(bet * (gate - means)), days * DAY)
    wealth, found = np.zeros(growth.shape[:2]), np.zeros(len(columns), int)
    for factor, new in zip(np.moveaxis(np.exp(growth), 2, 0).copy(), begun.T, strict=True):
        wealth = (wealth + new) * factor
        passed = wealth.mean(axis=0) >= threshold
        if passed.any():
            found += passed
            wealth[:, passed] = 0.0
    return found


@pytest.mark.parametrize(("size", "length"), [(5, 1), (20, 10), (10, 30)])
def test_a_session_counts_in_its_first_minute_alone(size, length):
    """The arrays of the simulations below pick what the memory picks."""
    rng = np.random.default_rng(SEED)
    begin, after, right = sessions(rng, 0.25, 0.8, 0.3, size, length)
    minutes = [[] for _ in range(DAY)]
    for number, (at, row) in enumerate(zip(begin[:, None] + after, right, strict=True)):
        for moment, ok in zip(at, row, strict=True):
            minutes[int(moment)].append((Membership(f"{number:016x}", f"{rng.integers(2**62):016x}"), ok))
    memory = ClusterMemory()
    found = [
        (minute, sums.total / sums.n / MICRO)
        for minute, requests in enumerate(minutes)
        for sums in observed(memory, minute, requests)
    ]
    expected = sorted(zip(*first_minutes(begin, after, right), strict=True))
    assert np.allclose(sorted(found), expected)


@pytest.mark.parametrize("cell", FEW)
def test_bad_sessions_keep_the_budget_that_a_bet_every_minute_breaks(cell):
    """Twelve pages and more in 30 days; their first minutes: none."""
    gate, *world = cell
    drawn = sessions(np.random.default_rng(SEED), 30, *world)
    once, again = alarms([(gate, *first_minutes(*drawn)), (gate, *every_minute(*drawn))], 30)
    assert once == 0
    assert again >= 10


@pytest.mark.slow
def test_sessions_keep_the_budget_in_every_cell():
    """Two months of each: gates, truth at the gate and above it, ICC, sizes and lengths of sessions."""
    found = np.zeros(len(CELLS), int)
    for seed in range(2 * len(CELLS) // 24):
        some = [number % len(CELLS) for number in range(24 * seed, 24 * seed + 24)]  # as many as fit into memory
        drawn = [sessions(np.random.default_rng([SEED, seed, cell]), 30, *CELLS[cell][1:]) for cell in some]
        found[some] += alarms([(CELLS[cell][0], *first_minutes(*d)) for cell, d in zip(some, drawn, strict=True)], 30)
    months = 2 * len(CELLS)
    assert found.sum() <= BUDGET * months + 3 * math.sqrt(BUDGET * months)
    assert found.max() <= 1
    assert not any(n for n, cell in zip(found, CELLS, strict=True) if cell[0] < cell[1])


# --- storms, crawlers, questions everybody asks -----------------------------------------------------------------------

LASTS = 30


def burst(kind, number, count):
    """A minute of it: always wrong, all of one question under new sessions, or of one session with new questions."""
    for request in range(20):
        new = f"{kind}{number:07x}{count:04x}{request:03x}"
        yield (Membership(new, f"q{number:015x}") if kind == "q" else Membership(f"s{number:015x}", new)), False


def with_bursts(rng, kind, bursts, rate, truth):
    """A burst of half an hour every six hours, beside sessions of one question."""
    for minute in range(bursts * DAY // 4):
        number, at = divmod(minute, DAY // 4)
        usual = [
            (Membership(f"{rng.getrandbits(64):016x}", f"{rng.getrandbits(64):016x}"), rng.random() < truth)
            for _ in range(rng.choice((0, rate, 2 * rate)))
        ]
        yield usual + (list(burst(kind, number, at - 300)) if 300 <= at < 300 + LASTS else [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["q", "s"])
@pytest.mark.parametrize(("gate", "truth"), [(0.80, 0.90), (0.95, 0.98)])
def test_a_storm_of_retries_and_a_crawler_wake_nobody(kind, gate, truth):
    """One minute, one observation of it: 42 bursts of 20 wrong answers a minute, one other question a minute."""
    assert pages_of(gate, with_bursts(random.Random(SEED), kind, 42, 1, truth)) == []


def faq(rng, minutes, truth):
    """Twenty questions, sixty new sessions a minute, each with one of them."""
    for _ in range(minutes):
        yield [
            (Membership(f"{rng.getrandbits(64):016x}", f"{rng.randrange(20):016x}"), rng.random() < truth)
            for _ in range(60)
        ]


@pytest.mark.slow
@pytest.mark.parametrize(("gate", "fallen", "minutes"), [(0.80, 0.50, 40), (0.95, 0.70, 40)])
def test_twenty_questions_that_everybody_asks_still_show_a_real_drop(gate, fallen, minutes):
    """The median of nine; all requests of a question in a minute are one observation, and it counts in ten minutes."""
    found = []
    for seed in range(9):
        rng = random.Random(SEED + seed)
        pages = pages_of(gate, [*faq(rng, 240, gate + 0.03), *faq(rng, 3 * minutes, fallen)])
        assert pages
        assert pages[0] >= 240
        found.append(pages[0] - 240 + 1)
    assert median(found) <= minutes


def rounds(rng, minutes, rate, failing, items):
    """Probe rounds in random order; some items always fail."""
    waiting = []
    for _ in range(minutes):
        asked = []
        for _ in range(rate):
            waiting = waiting or rng.sample(range(items), items)
            item = waiting.pop()
            asked.append((Membership(alone=f"a{item}"), item >= failing))
        yield asked


def test_probe_rounds_are_observed_every_time():
    """Five items every minute are five observations every minute, and their fall is found as soon as ever."""
    rng, memory = random.Random(SEED), ClusterMemory()
    assert {len(observed(memory, minute, asked)) for minute, asked in enumerate(rounds(rng, 60, 5, 1, 5))} == {5}
    assert memory.questions == memory.sessions == {}
    assert pages_of(0.8, rounds(rng, 20, 5, 3, 5))[0] < 15


@pytest.mark.slow
@pytest.mark.parametrize(("items", "rate"), [(10, 10), (50, 5), (100, 3)])
def test_probe_rounds_of_items_that_always_fail_keep_the_budget_at_the_gate(items, rate):
    """A fifth of the items fail at every round; a round is never worse than the gate."""
    assert pages_of(0.8, rounds(random.Random(SEED), 10 * DAY, rate, items // 5, items), detectors=1) == []


# --- from records to alarms -------------------------------------------------------------------------------------------


def users(minute, pairs, **answer):
    return [Record(ts=60.0 * minute, source="live", session=s, q=q, **answer) for s, q in pairs]


@pytest.mark.parametrize("kind", ["storm", "crawler"])
def test_records_of_a_storm_do_not_fire_and_a_fault_for_all_does(configured, kind):
    world = World(configured("[gates.error_rate]\nat_most = 0.05\n"))
    for at in range(40):
        bad = [("one", f"{at} {n}") if kind == "crawler" else (f"{at} {n}", "Why?") for n in range(20)]
        good = users(world.minute, [(f"good {at}", f"What is {at}?")], **GOOD)
        world.feed([*users(world.minute, bad, error="timeout"), *good])
    assert world.firing == set()
    for at in range(10):
        world.feed(users(world.minute, [(f"all {at} {n}", f"Who is {at} {n}?") for n in range(3)], error="timeout"))
    assert world.firing == {"error_rate"}


def test_a_pipeline_can_leave_sessions_out(configured):
    """All requests under one name, each its own question: it never was a session."""
    world = World(configured('[metrics]\ncluster = ["question"]\n[gates.error_rate]\nat_most = 0.05\n'))
    for at in range(10):
        world.feed(users(world.minute, [("batch", f"{at} {n}") for n in range(3)], error="timeout"))
    assert world.firing == {"error_rate"}


# --- what the memory is -----------------------------------------------------------------------------------------------

MINUTES = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 2, 3, IDLE, IDLE + 1, 100]),
        st.lists(st.tuples(st.sampled_from(["", "s", "t", "u"]), st.sampled_from(["", "p", "q", "r"])), max_size=8),
    ),
    max_size=12,
)


def plainly(history, minute, members):
    """The rule by its definition; `history` has the members of each earlier minute, and those that counted."""
    sessions = lifetimes(history, minute, 0, IDLE, LIFE)
    questions = lifetimes(history, minute, 1, LULL, REPEAT)
    asked = Counter(q for _, q in members)
    return {(s, q) for s, q in members if s not in sessions and (q not in questions or asked[q] < CROWD)}


def lifetimes(history, minute, place, idle, life):
    """The sessions (place 0) or questions (1) that live in a minute, with the first and last minute of each."""
    lives = {}

    def end(at):
        for name in [n for n, (first, last) in lives.items() if at - last > idle or at - first >= life]:
            del lives[name]

    for at, present, counted in history:
        end(at)
        lives |= {pair[place]: (lives[pair[place]][0], at) for pair in present if pair[place] in lives}
        for pair in counted:
            if pair[place]:
                lives.setdefault(pair[place], (at, at))
    end(minute)
    return lives


@settings(max_examples=cases(200), deadline=None)
@given(MINUTES, st.randoms())
def test_what_counts_is_what_the_definition_says_in_any_order_and_after_any_restart(minutes, rng):
    memory, at, history = ClusterMemory(), 0, []
    for gap, pairs in minutes:
        at += gap
        members = {pair for pair in pairs if any(pair)}
        if not members:
            continue
        expected = plainly(history, at, members)
        counts, step = (
            [],
            Minute(at, {LIVE: {Membership(*pair): {} for pair in rng.sample(sorted(members), len(members))}}),
        )
        memory = saved(memory)
        clusters = memory.open(step)
        counts = clusters.new("live", "precision", step.facts[LIVE])
        found = list(clusters.fold("live", "precision", step.facts[LIVE], lambda _: ItemSums(1, MICRO)))
        memory.close()
        assert {(member.session, member.question) for member in counts} == expected
        assert sum(sums.n for sums in found) == len(expected)
        history.append((at, members, expected))


def test_a_request_is_of_the_coarser_of_its_session_and_its_question():
    storm = [(Membership(f"s{n}", "same"), False) for n in range(5)]
    crawl = [(Membership("crawler", f"q{n}"), False) for n in range(5)]
    both = [(Membership("crawler", "same"), True), (Membership("", "other"), True), (Membership("alone", ""), True)]
    found = observed(ClusterMemory(), 0, [*storm, *crawl, *both])
    assert sorted(sums.n for sums in found) == [1, 1, 5, 6]


def test_a_session_counts_for_a_metric_when_the_metric_can_score_it_first():
    """Its greeting had no answer to judge; the second request has."""
    memory, member = ClusterMemory(), Membership("s", "q")
    for minute, (sums, n) in enumerate([(ItemSums(), 0), (ItemSums(1, MICRO), 1), (ItemSums(1, MICRO), 0)]):
        clusters = memory.open(Minute(minute, {LIVE: {member: {}}}))
        other = list(clusters.fold("live", "other", [member], lambda _: ItemSums(1, 0)))
        seen = list(clusters.fold("live", "precision", [member], lambda _, sums=sums: sums))
        memory.close()
        assert (len(seen), len(other)) == (n, minute == 0)


def test_more_sessions_than_are_remembered_are_a_sample_that_counts_once():
    """The state stays below a megabyte; what is observed was never observed before."""
    memory, seen = ClusterMemory(), []
    members = [Membership(f"{n:016x}", f"{n + 10**6:016x}") for n in range(4 * MOST)]
    for minute in range(3):
        seen.append(len(observed(memory, minute, [(member, True) for member in members])))
        assert max(len(memory.sessions), len(memory.questions)) <= MOST
        assert len(msgspec.msgpack.encode(memory)) < 1_000_000
    assert seen == [4 * MOST, 0, 0]
    assert memory.halvings >= 2
    fresh = [(Membership(f"a{n:015x}", f"b{n:015x}"), True) for n in range(4 * MOST)]
    assert MOST / 8 < len(observed(memory, 3, fresh)) < 2 * MOST
    for minute in range(100, 110):
        observed(memory, minute, [(Membership("s", "q"), True)])
    assert memory.halvings == 0


def test_a_session_may_count_for_more_uses_than_a_number_has_bits():
    """Metrics times sources; each counts once, after a restart too."""
    memory, member = ClusterMemory(), Membership("s", "q")
    for minute in range(2):
        clusters = memory.open(Minute(minute, {LIVE: {member: {}}}))
        counted = [list(clusters.fold("live", f"m{n}", [member], lambda _: ItemSums(1, 0))) for n in range(100)]
        memory.close()
        assert counted == [[ItemSums(1, 0)] if minute == 0 else []] * 100
        memory = saved(memory)
