"""What all is well looks like: when it is learned, when it is not, and when it is taken as it is given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.alarms.baselines import CHRONIC_MINUTES, DELAY, GOLD, LIVE, Baseline, LatencyBaseline
from ragmon.alarms.observations import Observations
from ragmon.core.record import Record
from ragmon.stats.intervals import wilson
from tests.support.alarming import GOOD, Traffic, World, said
from tests.support.saved import saved

LEARN = 60


def minutes(baseline, seen, first, last, *, enough=GOLD, learn=LEARN):
    """The baseline after minutes that are alike."""
    for minute in range(first, last + 1):
        baseline.see(minute, seen)
        baseline.learn(minute, enough, learn)
    return baseline


# --- when it is used --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enough", "learn", "a_minute", "usable_after"),
    [
        (GOLD, LEARN, 10, 60),
        (GOLD, LEARN, 1, 64),  # 50 observations that are fifteen minutes old
        (LIVE, LEARN, 1_000, 60),
        (LIVE, LEARN, 25, 74),
        (GOLD, 20, 10, 20),
        (LIVE, 20, 60, 39),
    ],
)
def test_it_is_used_after_the_time_to_learn_and_with_enough_observations(enough, learn, a_minute, usable_after):
    baseline = Baseline()
    seen = Observations(ones=a_minute)
    minutes(baseline, seen, 100, 100 + usable_after - 1, enough=enough, learn=learn)
    assert baseline.level(2.6, 0.03, at_least=True) is None
    minutes(baseline, seen, 100 + usable_after, 100 + usable_after, enough=enough, learn=learn)
    assert baseline.level(2.6, 0.03, at_least=True) is not None


def test_what_is_younger_than_a_quarter_of_an_hour_is_not_learned():
    baseline = minutes(Baseline(), Observations(ones=1), 1, 40)
    assert (baseline.n, DELAY) == (40 - 15, 15)
    baseline.forget()
    minutes(baseline, Observations(zeros=1), 41, 41 + 14)
    assert (baseline.n, baseline.total) == (25, 25.0)
    minutes(baseline, Observations(zeros=1), 56, 56)
    assert (baseline.n, baseline.total) == (26, 25.0)


def test_a_gap_in_the_traffic_counts_as_time():
    baseline = minutes(Baseline(), Observations(ones=100), 1, 1)
    minutes(baseline, Observations(ones=100), 200, 200)
    assert (baseline.usable, baseline.n) == (True, 100)


@pytest.mark.parametrize(("enough", "a_minute", "full"), [(GOLD, 30, 1_000), (LIVE, 700, 20_000)])
def test_it_is_frozen_when_it_is_full(enough, a_minute, full):
    """And what still waits is not learned either."""
    baseline = minutes(Baseline(), Observations(ones=a_minute), 0, 90, enough=enough)
    assert (baseline.phase, full <= baseline.n < full + a_minute) == ("frozen", True)
    before = saved(baseline)
    minutes(baseline, Observations(zeros=a_minute), 91, 300, enough=enough)
    assert baseline == before
    assert before.waiting == []


@given(st.integers(1, 3_000), st.integers(1, 120), st.integers(1, 200))
def test_it_is_called_learning_as_long_as_nothing_is_held_against_it(a_minute, learn, last):
    """Busy traffic fills it before its time has come; until then nobody may believe that it is in use."""
    baseline = minutes(Baseline(), Observations(ones=a_minute), 0, last, enough=LIVE, learn=learn)
    assert (baseline.phase == "learning") == (baseline.level(2.3, 0.01, at_least=True) is None)


@pytest.mark.slow
@given(st.floats(0.5, 3), st.floats(0.001, 0.1), st.lists(st.booleans(), min_size=50, max_size=400))
def test_the_level_is_wilsons_bound_less_a_margin(z, margin, scores):
    baseline = Baseline()
    baseline.give(len(scores), float(sum(scores)))
    lower, upper = wilson(sum(scores), len(scores), z)
    assert baseline.level(z, margin, at_least=True) == pytest.approx(lower - margin)
    assert 1 - baseline.level(z, margin, at_least=False) == pytest.approx(upper + margin)


# --- when nothing is learned ------------------------------------------------------------------------------------------


def learned(world, name):
    baseline = world.alarms.of("default").state.baselines[name]
    return baseline.n, baseline.total, len(baseline.waiting)


def test_while_anything_fires_nothing_is_learned_and_what_waits_is_dropped():
    """Of any metric: nobody knows what else the fault touches, nor since when."""
    world = World()
    world.run(40)
    before = {name: learned(world, name) for name in ("answer_precision", "error_rate", "answer_precision:paired")}
    world.run(5, error=0.5)
    assert "error_rate" in world.firing
    for name, (n, total, waiting) in before.items():
        now = learned(world, name)
        assert waiting >= DELAY
        assert (now[0] < n * 1.2, now[1] <= total * 1.2, now[2]) == (True, True, 0)
    stopped = {name: learned(world, name) for name in before}
    world.run(20, error=0.5)
    assert {name: learned(world, name) for name in before} == stopped
    world.run(60)
    assert not world.firing
    assert all(learned(world, name)[0] > n for name, (n, *_) in stopped.items())


@pytest.mark.slow
def test_a_gate_nobody_ever_kept_stops_learning_for_six_hours_and_not_for_ever():
    """A product that lives with many foreign citations still wants to hear when it begins to cite nothing at all."""
    world = World(traffic=Traffic(live=30, gold=4))
    world.run(355, foreign=0.3)
    assert "citation_scope" in world.firing
    assert world.state("coverage:look").baseline == "learning"
    world.run(120, foreign=0.3)
    assert "citation_scope" in world.firing, "it is still broken"
    assert world.state("coverage:look").baseline == "growing"
    assert world.state("citation_scope:look").baseline == "growing", "its own past is what it is"
    before = world.firing
    world.run(20, foreign=0.3, uncited=0.3)
    assert {"coverage:look"} <= world.firing - before


def errors(world, failed, n):
    """A minute of n requests, some of which failed."""
    ts = 60.0 * world.minute
    answers = [{"error": "timeout"}] * failed + [GOOD] * (n - failed)
    return [Record(ts=ts, source="live", q=f"{ts} {number}", **answer) for number, answer in enumerate(answers)]


def test_what_fires_against_its_own_past_is_never_learned_however_long_it_fires(configured):
    """A gate says what is well and may be wrong; a past that was well is none that the fault may replace."""
    world = World(configured('gates.preset = "wfgy-live"\n'))
    for _ in range(75):
        world.feed(errors(world, 0, 30))
    while not world.firing:
        world.feed(errors(world, 10, 30))
    assert world.firing == {"error_rate:look"}
    before = learned(world, "error_rate"), learned(world, "compliance")
    for _ in range(20):
        world.minute += CHRONIC_MINUTES // 10
        world.feed(errors(world, 10, 30))
        assert world.firing == {"error_rate:look"}
    assert (learned(world, "error_rate"), learned(world, "compliance")) == before


def test_a_metric_learns_nothing_while_any_of_its_detectors_is_suspicious():
    """Its gate is one of them: a first hour just beyond it must not become what all is well looks like."""
    world = World()
    while world.feed(errors(world, 1, 10)) == []:
        before = learned(world, "error_rate")
        if world.state("error_rate").evidence > 0.35:
            break
    assert 0.35 < world.state("error_rate").evidence < 0.5
    assert before[0] > 0
    stopped = learned(world, "error_rate")[:2]
    while "error_rate" not in world.firing:
        assert learned(world, "error_rate")[:2] == stopped
        world.feed(errors(world, 1, 10))
    assert learned(world, "compliance")[0] > stopped[0], "other metrics go on"


def test_a_baseline_is_paused_by_the_evidence_of_a_look():
    """It must not follow a slow fall down; the evidence of the page above it is less."""
    world = World(traffic=Traffic(live=0, gold=10))
    world.run(75)
    paused = growing = 0
    before = learned(world, "answer_precision")[0]
    for _ in range(150):
        world.run(1, wrong=0.09)
        if "answer_precision:look" in world.firing:
            break
        suspicious = world.state("answer_precision:look").evidence > 0.35
        now = learned(world, "answer_precision")[0]
        assert now == before or not suspicious
        paused, growing, before = paused + suspicious, growing + (now > before), now
    assert paused >= 5
    assert growing >= 5


# --- one baseline for all ---------------------------------------------------------------------------------------------


def test_tiers_and_directions_share_one_baseline():
    """Only the bound and the margin differ: no benign shift can look like one to one of them alone."""
    world = World()
    world.run(100)
    n, total, _ = learned(world, "answer_precision")
    page, look = world.state("answer_precision:baseline"), world.state("answer_precision:look")
    assert page.level == pytest.approx(wilson(total, n, 2.6)[0] - 0.03)
    assert look.level == pytest.approx(wilson(total, n, 1.64)[0] - 0.005)
    n, total, _ = learned(world, "refusal_rate")
    low, high = world.state("refusal_rate:look-low"), world.state("refusal_rate:look")
    assert low.level == pytest.approx(wilson(total, n, 2.3)[0] - 0.01)
    assert high.level == pytest.approx(wilson(total, n, 2.3)[1] + 0.01)
    assert (page.baseline, low.baseline, world.state("answer_precision").baseline) == ("growing", "growing", "")


def test_of_a_baseline_of_exactly_one_a_failure_is_no_proof_and_many_are():
    world = World(traffic=Traffic(live=0))
    never = {"wrong": 0.0, "missed": 0.0, "over": 0.0, "under": 0.0}
    world.run(120, **never)
    n, total, _ = learned(world, "citation_hit_rate")
    assert n == total > 300
    assert world.state("citation_hit_rate:look").level < 1
    ts = 60.0 * world.minute
    failed = Record(ts=ts, source="probe", qid="a0", **said("that is right", ["d2"], retrieved=["d2"]))
    assert world.feed([failed, *Traffic(2, live=0).minute(world.minute, **never)]) == []
    assert world.run(30, **never) == []
    world.run(10, **{**never, "missed": 0.3})
    assert {"citation_hit_rate:look", "citation_hit_rate:baseline"} <= world.firing


# --- latency ----------------------------------------------------------------------------------------------------------


def test_latency_learns_what_is_slow_first_and_then_how_common_that_is():
    latency = LatencyBaseline()
    minute = [[float(ms)] for ms in range(1, 101)]
    for number in range(60):
        latency.see(number, minute)
        latency.learn(number, LEARN)
        assert (latency.p95, latency.of(minute).n, latency.share.level(2.3, 0.01, at_least=False)) == (None, 0, None)
    latency.see(60, minute)
    latency.learn(60, LEARN)
    assert latency.p95 == pytest.approx(95, rel=0.02)
    assert latency.share.total / latency.share.n == pytest.approx(0.05, abs=0.011)
    assert latency.of([[200.0], [1.0, 200.0], [1.0]]) == Observations(ones=1, zeros=1, parts=(0.5,))
    assert (latency.of([[120.0]]).ones, latency.of([[120.0]], ratio=1.5).ones) == (1, 0)
    known = latency.share.n
    for number in range(61, 90):
        latency.see(number, minute)
        latency.learn(number, LEARN)
    assert latency.share.n == known + 29 * 100, "what waited when the p95 was known is not lost"


def test_a_latency_is_slow_above_the_p95_and_not_where_it_cannot_be_told_from_it():
    """Neither among those that were learned nor later: of a call that takes the same time always, none is slow."""
    latency, minute = LatencyBaseline(), [[10.0]] * 100
    for number in range(62):
        latency.see(number, minute)
        latency.learn(number, LEARN)
    assert (latency.share.n > 0, latency.share.total) == (True, 0.0)
    assert latency.of(minute) == Observations(zeros=100)


def test_too_little_latency_is_no_baseline():
    latency = LatencyBaseline()
    for number in range(200):
        latency.see(number, [[10.0]] * 8)
        latency.learn(number, LEARN)
        assert (latency.p95 is None) == (8 * (number - DELAY + 1) < 1_500)
