"""What the detector promises, simulated: how often it is wrong in a month, and how soon it sees a real change.

Hundreds of months are simulated at once by a second implementation on whole arrays; that it computes what the detector
computes is tested first. Bounds are the promise plus three standard errors.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import betabinom

from ragmon.alarms.detector import Detector
from ragmon.alarms.observations import Observations
from ragmon.alarms.plan import plan
from ragmon.config.gates import PRESETS
from ragmon.metrics import build

pytestmark = pytest.mark.slow

DAY = 1440
MONTH = 30 * DAY
GATE = 0.80
RATES = [1, 10, 100]  # labels a minute
SEED = 20240613
COINS = np.array([0.0, 1.0])
SIZE, ICC = 5, 0.3
MEANS = np.arange(SIZE + 1) / SIZE  # of a cluster of five

BLOCK = 40
"""Steps that are worked out together: their numbers stay in the processor's cache."""

# --- the second implementation ----------------------------------------------------------------------------------------

FALLS = np.array([0.01, 0.025, 0.05, 0.10, 0.175, 0.275, 0.40, 0.60])[:, None]


class Fleet:
    """Many detectors side by side, one a column; one that passes its threshold starts anew."""

    def __init__(self, levels, scores, threshold=MONTH):
        bets = FALLS / (1 - np.asarray(levels))
        self.table = np.log1p(bets * (np.asarray(levels) - scores[:, None, None]))  # score, fall, column
        self.wealth = np.zeros(self.table.shape[1:])
        self.threshold = threshold

    def feed(self, counts):
        """Whether each detector passed its threshold, by step and column; counts by step, column and score."""
        begun = counts.sum(axis=2) > 0  # a minute without labels is no step
        passed = np.zeros(begun.shape, bool)
        for first in range(0, len(counts), BLOCK):
            some = slice(first, first + BLOCK)
            for step, factor in enumerate(self._factors(counts[some].astype(float)), first):
                passed[step] = self._step(begun[step], factor)
        return passed

    def _factors(self, counts):
        """What a step multiplies each wealth by."""
        found = np.zeros((len(counts), *self.wealth.shape))
        for place, logs in enumerate(self.table):
            found += counts[:, None, :, place] * logs
        return np.exp(found, out=found)

    def _step(self, begun, factor):
        """Feed one step: which detectors pass their threshold."""
        self.wealth += begun
        self.wealth *= factor
        if self.wealth.max() < self.threshold:  # no mean is larger than the largest
            return False
        passed = self.wealth.sum(axis=0) >= self.threshold * len(FALLS)
        self.wealth[:, passed] = 0.0
        return passed


def labels(rate, p, columns):
    """How many labels of each score a minute brings on average, in each of so many columns."""
    return np.tile([rate * (1 - p), rate * p], (columns, 1))


def clusters(rate, p, columns):
    """The same for clusters of five labels of one quality: how often each mean is seen."""
    strength = 1 / ICC - 1
    chances = betabinom.pmf(np.arange(SIZE + 1), SIZE, strength * p, strength * (1 - p))
    return np.tile(rate / SIZE * chances, (columns, 1))


def simulate(fleet, means, days=30, seed=SEED):
    """Alarms in all columns, and minutes that had labels."""
    rng = np.random.default_rng(seed)
    alarms = steps = 0
    for _ in range(days):
        counts = rng.poisson(means, (DAY, *means.shape))
        alarms += fleet.feed(counts).sum()
        steps += (counts.sum(axis=2) > 0).sum()
    return int(alarms), int(steps)


def most(budget, periods):
    """What a budget may come to in so many periods, by three standard errors of a Poisson count."""
    return budget * periods + 3 * math.sqrt(budget * periods)


def observations(counts, scores):
    """One step of one column as the detector takes it."""
    parts = [score for score, n in zip(scores[1:-1], counts[1:-1], strict=True) for _ in range(n)]
    return Observations(ones=int(counts[-1]), zeros=int(counts[0]), parts=tuple(parts))


def alarms_of(detector, counts, scores, level, threshold):
    """The minutes in which the detector itself passes its threshold, to start anew."""
    found = np.zeros(len(counts), bool)
    for minute in np.flatnonzero(counts.any(axis=1)):
        if detector.update(observations(counts[minute].tolist(), scores), level) >= threshold:
            found[minute] = True
            detector.clear()
    return found


@pytest.mark.parametrize("scores", [COINS, MEANS], ids=["labels", "graded"])
@pytest.mark.parametrize("threshold", [50, MONTH, 1e100])
def test_the_second_implementation_computes_what_the_detector_does(scores, threshold):
    rng = np.random.default_rng(SEED)
    levels = rng.uniform(0.05, 0.99, 40)
    means = 2.0 * rng.dirichlet(np.ones(len(scores)), len(levels))
    counts = rng.poisson(means, (300, *means.shape))
    fleet = Fleet(levels, scores, threshold)
    passed = fleet.feed(counts)
    for column, level in enumerate(levels):
        detector = Detector()
        assert np.array_equal(alarms_of(detector, counts[:, column], scores, level, threshold), passed[:, column])
        assert detector.wealth == pytest.approx(fleet.wealth[:, column], rel=1e-9)


@pytest.mark.parametrize(
    ("scores", "means"),
    [(COINS, labels(1, GATE, 4)), (COINS, labels(10, GATE, 4)), (MEANS, clusters(10, GATE, 2))],
    ids=["few labels", "labels", "clusters"],
)
def test_over_whole_months_the_detector_raises_the_same_alarms_in_the_same_minutes(scores, means):
    """So what is found below of hundreds of months holds for it. One false alarm a day is allowed, to see some."""
    counts = np.random.default_rng(SEED).poisson(means, (MONTH, *means.shape))
    expected = Fleet([GATE] * len(means), scores, DAY).feed(counts)
    found = [alarms_of(Detector(), months, scores, GATE, DAY) for months in np.moveaxis(counts, 1, 0)]
    assert np.array_equal(np.stack(found, axis=1), expected)
    steps = counts.any(axis=2).sum()
    assert 0.2 * steps / DAY <= expected.sum() <= most(1.0, steps / DAY)


# --- false alarms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
def test_on_the_gate_there_is_at_most_one_false_alarm_in_so_many_steps(rate):
    """The worst a pipeline can be without being bad. Steps are minutes with labels, so a month of them is longer."""
    months = 300
    alarms, steps = simulate(Fleet([GATE] * months, COINS), labels(rate, GATE, months))
    assert alarms <= most(1.0, steps / MONTH)
    assert alarms >= 0.2 * steps / MONTH  # nor is it silent because it is deaf


@pytest.mark.parametrize("rate", RATES)
def test_a_pipeline_above_its_gate_has_next_to_none(rate):
    months = 300
    alarms, _ = simulate(Fleet([GATE] * months, COINS), labels(rate, 0.86, months))
    assert alarms <= most(0.05, months)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(("p", "budget"), [(GATE, 1.0), (0.86, 0.1)])
def test_labels_that_come_in_clusters_keep_the_budget(rate, p, budget):
    """Five labels of one session share its quality (intraclass correlation 0.3); their mean is one observation."""
    months = 200
    alarms, _ = simulate(Fleet([GATE] * months, MEANS), clusters(rate, p, months))
    assert alarms <= most(budget, months)


def test_taken_for_independent_they_would_break_it():
    """Why an observation is a cluster's mean: label by label there are several false alarms a month, far above it."""
    months = 20
    means = clusters(10, 0.86, months)
    rng = np.random.default_rng(SEED)
    fleet, alarms = Fleet([GATE] * months, COINS), 0
    for _ in range(30):
        counts = rng.poisson(means, (DAY, *means.shape))
        ones = counts @ np.arange(SIZE + 1)
        alarms += fleet.feed(np.stack([counts.sum(axis=2) * SIZE - ones, ones], axis=2)).sum()
    assert alarms > 2 * months


@pytest.mark.parametrize("suspects", ["wealth", "bad minute", "good minute"])
def test_asking_more_on_suspicion_keeps_the_budget(suspects):
    """A burst of forty questions whenever the past says so, whatever it says, is no reason for a false alarm."""
    months, minutes = 150, 10 * DAY
    fleet, rng = Fleet([GATE] * months, COINS), np.random.default_rng(SEED)
    asked, alarms, bursts = np.full(months, 3), 0, 0
    for _ in range(minutes):
        ones = rng.binomial(asked, GATE)
        alarms += fleet.feed(np.stack([asked - ones, ones], axis=1)[None]).sum()
        suspicion = {
            "wealth": fleet.wealth.mean(axis=0) > MONTH**0.4,
            "bad minute": ones < GATE * asked,
            "good minute": ones > GATE * asked,
        }[suspects]
        bursts += suspicion.sum()
        asked = np.where(suspicion, 40, 3)
    assert alarms <= most(1.0, months * minutes / MONTH)
    assert bursts > 0.001 * months * minutes


def pages_and_looks(severity):
    """The watches of the default plan that share one budget, each with a level of its own."""
    watches = [w for w in plan(PRESETS["default"], build()) if w.severity == severity]
    learned = [w.kind != "gate" for w in watches]
    levels = np.array([w.level if w.at_least else 1 - w.level for w in watches], float)
    levels[learned] = np.linspace(0.5, 0.999, sum(learned))
    (threshold,) = {w.threshold for w in watches}
    return levels, threshold


@pytest.mark.parametrize(
    ("severity", "watches", "budget", "months"), [("page", 16, 1.0, 40), ("look", 19, 4.0 * 30, 4)]
)
def test_all_alarms_of_a_pipeline_keep_one_budget(severity, watches, budget, months):
    """One false page in 30 days, four looks a day, with every metric exactly on its gate or on what it was less margin.

    The metrics are independent here; their expected numbers add up whether they are or not.
    """
    levels, threshold = pages_and_looks(severity)
    assert len(levels) == watches
    everywhere = np.tile(levels, months)
    means = 10 * np.stack([1 - everywhere, everywhere], axis=1)
    alarms, _ = simulate(Fleet(everywhere, COINS, threshold), means)
    assert alarms <= most(budget, months)


# --- delay ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "minutes", "horizon"), [(1, 300, 1500), (10, 40, 300), (100, 6, 60)])
def test_a_fall_from_86_to_70_percent_is_found_within(rate, minutes, horizon):
    """The median of a thousand falls, each after a day on which all was well."""
    columns = 1_000
    rng = np.random.default_rng(SEED)
    fleet = Fleet([GATE] * columns, COINS)
    fleet.feed(rng.poisson(labels(rate, 0.86, columns), (DAY, columns, 2)))
    passed = fleet.feed(rng.poisson(labels(rate, 0.70, columns), (horizon, columns, 2)))
    assert passed.any(axis=0).all()
    assert np.median(passed.argmax(axis=0) + 1) <= minutes


# --- the usual rule ---------------------------------------------------------------------------------------------------

WINDOW, FOR = 15, 10


def episodes(counts):
    """How often the share of the last 15 minutes stays below the gate for 10 minutes, looked at once a minute."""
    before = np.zeros((1, *counts.shape[1:]), int)
    sums = np.concatenate([before, counts.cumsum(axis=0)])
    starts = np.maximum(np.arange(1, len(sums)) - WINDOW, 0)
    zeros, ones = np.moveaxis(sums[1:] - sums[starts], 2, 0)
    length = np.zeros(counts.shape[1], int)
    found = 0
    for below in (zeros + ones > 0) & (ones < GATE * (zeros + ones)):
        length = np.where(below, length + 1, 0)
        found += (length == FOR + 1).sum()
    return int(found)


def test_the_usual_rule_raises_a_hundred_times_as_many_false_alarms():
    """One label a minute at .86, nothing wrong: the share of a window is noise, and `for: 10m` is no cure for it."""
    months = 60
    rng = np.random.default_rng(SEED)
    counts = rng.poisson(labels(1, 0.86, months), (MONTH, months, 2))
    usual = episodes(counts)
    fleet = Fleet([GATE] * months, COINS)
    ours = sum(int(fleet.feed(day).sum()) for day in np.split(counts, 30))
    assert usual > 100 * months
    assert usual > 100 * (ours + 3 * math.sqrt(max(ours, 1)))
