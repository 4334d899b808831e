"""Labels that come days after their answers, beside a judge that changes: worlds of 14 days, truth .80.

A thousand answers a day, all scored, a hundred of them labelled one or two days later. From day 3 on the judge is
stricter by .30, with a new version or without.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragmon.scoring.buckets import METRIC, Cohorts
from ragmon.scoring.labels import samples
from ragmon.stats.prediction import predicted
from tests.support.judged_world import BEGIN, DAY, JUDGE, TRUTH, JudgedWorld, estimates

pytestmark = pytest.mark.slow
WORLDS = 6
WORLD = JudgedWorld(answers=600, labels=90)


def lived(world):
    """The estimates of every day, over several worlds."""
    by_day = {}
    for seed in range(WORLDS):
        for day, told in estimates(replace(world, seed=seed)).items():
            by_day.setdefault(day, []).append(told.estimate)
    return by_day


def coverage(by_day, truth=TRUTH):
    found = [estimate.lower <= truth <= estimate.upper for estimates in by_day.values() for estimate in estimates]
    return sum(found) / len(found)


def backlog(rng, answered):
    """Labels of a week that come at once, in the night to the tenth day."""
    return max(answered + DAY, BEGIN + 9.5 * DAY) if answered < BEGIN + 9 * DAY else answered + DAY


@pytest.mark.parametrize("versions", [("", ""), ("prompt-1", "prompt-2")], ids=["unannounced", "announced"])
@pytest.mark.parametrize("arrival", [None, backlog], ids=["delayed", "at-once"])
def test_a_stricter_judge_moves_no_estimate(versions, arrival):
    """Put beside the answers of the window in which they came, labels said .64 on day 4, and never covered."""
    world = replace(WORLD, changed=3.3, versions=versions)
    by_day = lived(world if arrival is None else replace(world, arrival=arrival))
    assert coverage(by_day) >= 0.93
    for day, found in by_day.items():
        assert sum(e.lower <= TRUTH <= e.upper for e in found) >= len(found) - 2, day
        assert abs(sum(e.value for e in found) / len(found) - TRUTH) < 0.05, day


def test_a_judge_that_stays_is_worth_as_many_labels_as_when_time_is_not_looked_at():
    """The bound is 95 % of what all answers as one cohort would tell."""
    found = [estimate for day, estimates in lived(WORLD).items() if day >= 4 for estimate in estimates]
    gain = sum(estimate.gain for estimate in found) / len(found)
    assert gain >= 0.95 * 1.25


@pytest.mark.parametrize(("labels", "gain"), [(30, 1.5), (300, 3.0)])
def test_a_report_over_weeks_loses_little_by_its_cohorts(labels, gain):
    """Few labels over 336 hours: hours are put together, so that the mean proxy stays precise."""
    cohorts = Cohorts()
    for number in range(10_000):
        ts, right = BEGIN + 14 * DAY * number / 10_000, number % 5 != 0
        score = 1_000_000 if right != (number % 23 == 0) else 0
        cohorts.see("p", "rest", ts, 1, known=1, shipped=1)
        cohorts.see_scores("p", "rest", ts, {JUDGE: score}, {})
        if number % (10_000 // labels) == number // 401 % 7:
            cohorts.see_label("p", "rest", ts, ts, {METRIC: 1_000_000 * right, JUDGE: score}, {})
    (sample,) = samples(cohorts, "p", JUDGE, None)
    pooled = replace(sample.sums, records=10_000, proxies=sum(total for _, total in _all(cohorts)))
    assert predicted(sample.sums).gain >= max(gain, 0.95 * predicted(pooled).gain)


def _all(cohorts):
    return [counts for by_hour in cohorts.proxies.values() for counts in by_hour.values()]
