"""The detector against its definition written out, what its promise rests on, and the alarm around it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ragmon.alarms.detector import HIGHEST, Alarm, Detector, evidence
from ragmon.alarms.observations import NONE, Observations, observe
from ragmon.alarms.plan import AlarmRule
from ragmon.stats.histograms import MICRO, micro
from tests.support.examples import cases
from tests.support.saved import saved

FALLS = (0.01, 0.025, 0.05, 0.10, 0.175, 0.275, 0.40, 0.60)
LEVELS = st.one_of(st.floats(0.01, 0.999), st.sampled_from([0.0, 0.5, 0.8, 0.95, HIGHEST, 1.0]))
SCORES = st.one_of(st.sampled_from([0.0, 1.0]), st.integers(1, 99).map(lambda i: i / 100))
STEPS = st.lists(st.tuples(LEVELS, st.lists(SCORES, min_size=1, max_size=5)), min_size=1, max_size=7)


def seen(scores):
    """A step in which every score is that of a cluster of one."""
    return observe((1, micro(score)) for score in scores)


def games(steps):
    """What each fall has won, by definition: one game from every step on, and their sum."""
    found = []
    for fall in FALLS:
        factors = [
            math.prod(1 + fall / (1 - min(level, HIGHEST)) * (min(level, HIGHEST) - x) for x in scores)
            for level, scores in steps
        ]
        found.append(sum(math.prod(factors[start:]) for start in range(len(steps))))
    return found


def mean(values):
    return sum(values) / len(values)


# --- the detector is what it is called --------------------------------------------------------------------------------


@pytest.mark.slow
@given(STEPS)
def test_the_wealth_is_the_sum_over_all_starts_of_what_the_bets_bring(steps):
    """Also where the level moves from step to step, as it does while a baseline grows."""
    detector = Detector()
    for upto, (level, scores) in enumerate(steps, start=1):
        expected = games(steps[:upto])
        assert detector.update(seen(scores), level) == pytest.approx(mean(expected), rel=1e-9)
        assert detector.wealth == pytest.approx(expected, rel=1e-9)
        assert detector.mean == mean(detector.wealth)


@pytest.mark.slow
@given(STEPS, st.randoms())
def test_the_order_of_observations_within_a_step_does_not_matter(steps, rng):
    """Not even in the last digit: live and replay see the same minute in different orders."""
    mine, yours = Detector(), Detector()
    for level, scores in steps:
        mine.update(seen(scores), level)
        yours.update(seen(rng.sample(scores, len(scores))), level)
    assert mine.wealth == yours.wealth


@pytest.mark.slow
@given(STEPS)
def test_the_best_explanation_is_the_game_that_won_most(steps):
    detector = Detector()
    for level, scores in steps:
        detector.update(seen(scores), level)
    assert games(steps)[FALLS.index(detector.drop)] == pytest.approx(max(games(steps)), rel=1e-9)


@pytest.mark.slow
@given(STEPS, st.integers(0, 7))
def test_a_detector_goes_on_from_the_wealth_of_another(steps, cut):
    whole, first = Detector(), Detector()
    for level, scores in steps[:cut]:
        whole.update(seen(scores), level)
        first.update(seen(scores), level)
    second = Detector(first.wealth)
    for level, scores in steps[cut:]:
        assert second.update(seen(scores), level) == whole.update(seen(scores), level)


# --- what the budget rests on -----------------------------------------------------------------------------------------


def growth(chances, level):
    """What one step brings on average, for each game, over all `(chance, observations)`."""
    found = [0.0] * len(FALLS)
    for chance, observations in chances:
        detector = Detector()  # nothing is won yet: the wealth after one step is what the step brings
        detector.update(observations, level)
        found = [so_far + chance * won for so_far, won in zip(found, detector.wealth, strict=True)]
    return found


def coins(n, p):
    """Every outcome of n labels that are 1 with chance p."""
    return [(math.comb(n, k) * p**k * (1 - p) ** (n - k), Observations(ones=k, zeros=n - k)) for k in range(n + 1)]


def test_at_the_level_no_game_wins_or_loses_on_average():
    for n in [1, 2, 7, 40]:
        for level in [0.05, 0.5, 0.8, 0.98, HIGHEST]:
            assert growth(coins(n, level), level) == pytest.approx([1.0] * len(FALLS), rel=1e-9), (n, level)


@given(level=st.floats(0, 1), excess=st.floats(0, 1), n=st.integers(1, 12))
def test_above_the_level_every_game_loses_on_average(level, excess, n):
    p = level + excess * (1 - level)
    assert max(growth(coins(n, p), level)) <= 1 + 1e-9


@pytest.mark.slow
@given(
    weights=st.lists(st.tuples(SCORES, st.integers(1, 20)), min_size=1, max_size=4),
    below=st.floats(0, 1),
    n=st.integers(1, 3),
)
def test_graded_scores_are_no_better_to_bet_on(weights, below, n):
    """Whatever the distribution: with its mean on the level or above it, no step is worth more than it costs."""
    total = sum(weight for _, weight in weights)
    level = below * sum(score * weight for score, weight in weights) / total
    outcomes = [
        (math.prod(weight / total for _, weight in drawn), seen([score for score, _ in drawn]))
        for drawn in product(weights, repeat=n)
    ]
    assert max(growth(outcomes, level)) <= 1 + 1e-9


def test_a_fall_that_is_bet_on_is_found_as_fast_as_any_rule_could():
    """The logarithm of the wealth grows by the Kullback-Leibler divergence with every label."""
    for level in [0.5, 0.8, 0.95]:
        for place in range(len(FALLS)):
            p = level * (1 - FALLS[place])
            won = []
            for x in (Observations(ones=1), Observations(zeros=1)):
                detector = Detector()
                detector.update(x, level)
                won.append(math.log(detector.wealth[place]))
            divergence = p * math.log(p / level) + (1 - p) * math.log((1 - p) / (1 - level))
            assert p * won[0] + (1 - p) * won[1] == pytest.approx(divergence, rel=1e-9), (level, place)


# --- the ends of the scale --------------------------------------------------------------------------------------------


@given(st.lists(SCORES, min_size=1, max_size=6), st.floats(HIGHEST, 2))
def test_a_level_of_nearly_one_or_more_is_cut(scores, level):
    cut, highest = Detector(), Detector()
    assert cut.update(seen(scores), level) == pytest.approx(highest.update(seen(scores), HIGHEST), rel=1e-12)


def test_one_failure_among_a_mean_of_one_is_no_proof_and_two_in_a_minute_are():
    """A label may be wrong."""
    assert Detector().update(Observations(zeros=1), 1.0) < 2_500
    assert Detector().update(Observations(zeros=2), 1.0) > 604_800


@pytest.mark.parametrize("level", [0.05, 0.8, 1.0])
@pytest.mark.parametrize("parts", [(), (0.25, 0.5)])
def test_a_step_of_a_hundred_thousand_failures_is_a_number(level, parts):
    wealth = Detector().update(Observations(zeros=100_000, parts=parts), level)
    assert math.isfinite(wealth)
    assert wealth > 1e200


def test_scores_near_zero_by_the_hundred_are_a_number_however_they_are_multiplied():
    for level in [0.05, 0.5, 0.8, 0.95, HIGHEST]:
        for zeros in [0, 60, 600]:
            for n in [49, 50, 51, 5_000]:
                detector = Detector([1e6] * len(FALLS))
                wealth = detector.update(Observations(zeros=zeros, parts=(0.001,) * n), level)
                assert 1e6 < wealth < math.inf, (level, zeros, n)


@pytest.mark.parametrize("parts", [(), (0.25, 0.5)])
def test_a_step_of_a_hundred_thousand_successes_leaves_nothing(parts):
    detector = Detector([1e6] * len(FALLS))
    assert 0 <= detector.update(Observations(ones=100_000, parts=parts), 0.8) < 1e-300


def test_failures_and_successes_by_the_hundred_thousand_are_weighed_against_each_other():
    """The sum of both decides, not the first that is too large for a double."""
    assert Detector().update(Observations(ones=90_000, zeros=10_000), 0.8) < 1e-100
    assert Detector().update(Observations(ones=70_000, zeros=30_000), 0.8) > 1e200


def test_it_starts_anew_when_it_is_cleared():
    detector, new = Detector(), Detector()
    detector.update(Observations(zeros=9), 0.7)
    detector.clear()
    assert detector.mean == 0.0
    assert detector.update(Observations(zeros=3), 0.9) == new.update(Observations(zeros=3), 0.9)


@given(st.floats(0, allow_nan=False), st.floats(1.5, 1e12))
def test_evidence_is_a_share_of_the_way(wealth, threshold):
    found = evidence(wealth, threshold)
    assert 0.0 <= found <= 1.0
    assert (found == 0.0) == (wealth <= 1.0)
    if wealth >= threshold:
        assert found == 1.0


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.floats(1.5, 1e12))
def test_more_wealth_is_no_less_evidence(one, other, threshold):
    less, more = sorted((one, other))
    assert evidence(less, threshold) <= evidence(more, threshold)


# --- observations -----------------------------------------------------------------------------------------------------

CLUSTERS = st.lists(st.lists(st.integers(0, MICRO) | st.sampled_from([0, MICRO]), max_size=4), max_size=8)


@given(CLUSTERS)
def test_a_cluster_is_one_observation_its_mean(clusters):
    found = observe((len(scores), sum(scores)) for scores in clusters)
    means = [Fraction(sum(scores), len(scores) * MICRO) for scores in clusters if scores]
    assert (found.ones, found.zeros, found.n) == (means.count(1), means.count(0), len(means))
    assert found.parts == pytest.approx([float(m) for m in sorted(means) if 0 < m < 1], rel=1e-15)
    assert found.total == pytest.approx(float(sum(means)), rel=1e-12)


@given(CLUSTERS, st.randoms())
def test_the_order_of_clusters_does_not_matter(clusters, rng):
    sums = [(len(scores), sum(scores)) for scores in clusters]
    assert observe(sums) == observe(rng.sample(sums, len(sums)))


def test_a_hundred_requests_of_one_session_are_one_observation():
    assert observe([(100, 0)]) == Observations(zeros=1)
    assert observe([(100, 40 * MICRO)]) == Observations(parts=(0.4,))


def test_without_requests_there_is_nothing_to_observe():
    assert observe([]) == observe([(0, 0)]) == NONE
    assert NONE.n == 0


@given(CLUSTERS)
def test_turned_twice_they_are_what_they_were(clusters):
    found = observe((len(scores), sum(scores)) for scores in clusters)
    turned = found.turned
    assert turned.n == found.n
    assert turned.total == pytest.approx(found.n - found.total)
    again = turned.turned
    assert (again.ones, again.zeros) == (found.ones, found.zeros)
    assert again.parts == pytest.approx(found.parts, abs=1e-15)
    assert list(turned.parts) == sorted(turned.parts)


# --- the alarm --------------------------------------------------------------------------------------------------------

WATCH = AlarmRule("precision", "answer_precision", "page", at_least=True, kind="gate", threshold=50.0)
LEVEL = 0.6
BAD, GOOD, FINE = (0.0,) * 4, (1.0,) * 10, (1.0,) * 3 + (0.0,) * 2
MINUTES = st.lists(
    st.one_of(st.sampled_from([BAD, GOOD, FINE]), st.lists(SCORES, min_size=1, max_size=5)), min_size=1, max_size=20
)


def changes(alarm, minutes, level=LEVEL, rule=WATCH):
    return [alarm.step(rule, minute, seen(scores), level) for minute, scores in enumerate(minutes)]


def defined(minutes):
    """What an alarm says of every minute, from the definition alone."""
    found, since, back, fired = [], 0, None, 0
    for minute in range(len(minutes)):
        held = minutes[since : minute + 1]
        change = None
        if back is None:
            won = games([(LEVEL, scores) for scores in held])
            if mean(won) >= WATCH.threshold:
                change, since, back = "firing", minute + 1, LEVEL * (1 - min(FALLS[won.index(max(won))], 0.175) / 2)
        else:
            fired += 1
            proof = 900 + 7 * fired
            if mean(games([(1 - back, [1 - x for x in scores]) for scores in held])) >= proof:
                change, since, back = "resolved", minute + 1, None
        found.append(change)
    return found


@pytest.mark.slow
@given(MINUTES)
@example([BAD] * 6 + [GOOD] * 6 + [FINE] * 3 + [BAD] * 5)
@example([BAD] * 10 + [FINE] * 10)
@settings(max_examples=cases(200))
def test_it_fires_on_proof_and_resolves_on_proof_of_the_contrary(minutes):
    """Silent, it weighs against the level; firing, it weighs against half-way back to it, and against nothing else."""
    assert changes(Alarm(), minutes) == defined(minutes)


def test_it_fires_in_the_minute_its_wealth_reaches_the_threshold():
    detector = Detector()
    third = [detector.update(seen(BAD), LEVEL) for _ in range(3)][-1]
    assert changes(Alarm(), [BAD] * 3, rule=replace(WATCH, threshold=third)) == [None, None, "firing"]
    assert changes(Alarm(), [BAD] * 3, rule=replace(WATCH, threshold=third * 1.001)) == [None, None, None]


def test_it_does_not_fire_again_while_it_fires():
    alarm = Alarm()
    found = changes(alarm, [BAD] * 200)
    assert [change for change in found if change is not None] == ["firing"]
    assert alarm.firing == found.index("firing")
    assert alarm.evidence(WATCH) == 1.0


def test_it_resolves_when_the_mirrored_wealth_is_900_and_7_for_every_step_of_the_incident():
    alarm, mirrored = Alarm(), Detector()
    while alarm.firing is None:
        alarm.step(WATCH, 0, seen(BAD), LEVEL)
    back = LEVEL * (1 - 0.175 / 2)  # a total failure is no reason to call half of it a recovery
    proof, steps = 0.0, 0
    while proof < 900 + 7 * steps:
        proof, steps = mirrored.update(seen([1.0]).turned, 1 - back), steps + 1
        assert alarm.step(WATCH, steps, seen([1.0]), LEVEL) == ("resolved" if proof >= 900 + 7 * steps else None)
    assert alarm.firing is None


@pytest.mark.parametrize(("later", "goes_on"), [(720, True), (721, False)])
def test_an_alarm_that_fires_again_within_half_a_day_goes_on_with_its_incident(later, goes_on):
    """What asks for more proof of recovery is how long the incident lasts, not how long since it fired last."""
    alarm = Alarm()
    changes(alarm, [BAD] * 100 + [GOOD] * 100)
    resolved, steps = alarm.resolved, alarm.steps
    assert alarm.firing is None
    assert steps > 80
    while alarm.firing is None:
        alarm.step(WATCH, resolved + later, seen(BAD), LEVEL)
    assert alarm.steps == (steps if goes_on else 0)


def test_an_acknowledged_alarm_begins_a_new_incident():
    alarm = Alarm()
    changes(alarm, [BAD] * 100 + [GOOD] * 100)
    alarm.clear()
    assert (alarm.steps, alarm.resolved) == (0, None)


def test_a_fault_that_goes_on_is_not_called_over():
    """Mean .30 against a level of .60 that is lost by half: the recovery is weighed against what lies between."""
    alarm = Alarm()
    found = changes(alarm, [(0.0,) * 7 + (1.0,) * 3] * 2_000)
    assert [change for change in found if change is not None] == ["firing"]


@pytest.mark.parametrize("level", [0.0, -0.005])
def test_what_cannot_fall_raises_no_alarm(level):
    """A pipeline that never refuses has a refusal rate of 0, and its baseline less a margin lies below that."""
    alarm = Alarm()
    assert set(changes(alarm, [(0.0,)] * 1_000, level)) == {None}
    assert alarm.evidence(WATCH) == 0.0


@pytest.mark.slow
@given(MINUTES)
def test_after_it_resolved_it_is_as_good_as_new(minutes):
    alarm = Alarm()
    assert changes(alarm, [BAD] * 10 + [GOOD] * 10)[-10:].count("resolved") == 1
    alarm.clear()  # what the good minutes after the recovery have brought
    assert alarm.evidence(WATCH) == 0.0
    assert changes(alarm, minutes) == changes(Alarm(), minutes)


def test_it_starts_from_nothing_when_it_resolves():
    alarm = Alarm()
    changes(alarm, [BAD] * 10)
    while alarm.firing is not None:
        alarm.step(WATCH, 10, seen(GOOD), LEVEL)
    assert alarm.firing is None
    assert (alarm.detector, alarm.recovery) == (Detector(), Detector())


@pytest.mark.slow
@given(MINUTES, MINUTES)
def test_it_goes_on_from_a_checkpoint_as_if_nothing_had_happened(before, after):
    alarm = Alarm()
    changes(alarm, before)
    restored = saved(alarm)
    assert restored.evidence(WATCH) == alarm.evidence(WATCH)
    assert restored.firing == alarm.firing
    assert changes(restored, after) == changes(alarm, after)
    assert restored == alarm


def test_a_flood_of_failures_fires_once_and_can_still_resolve():
    alarm = Alarm()
    flood, calm = Observations(zeros=100_000), Observations(ones=100_000)
    found = [alarm.step(WATCH, minute, flood, LEVEL) for minute in range(5)]
    found += [alarm.step(WATCH, minute, calm, LEVEL) for minute in range(5, 10)]
    assert [change for change in found if change is not None] == ["firing", "resolved"]
    assert found[0] == "firing"
    assert math.isfinite(alarm.detector.mean)
