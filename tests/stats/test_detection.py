"""What is detectable in what time: the closed forms, against scipy and against a simulated alarm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr

from ragmon.stats.prediction import DROPS, kl, labels_to_detect

MONTH = 43_200
"""Minutes to one false alarm."""
INSIDE = st.integers(1, 99).map(lambda i: i / 100)


SHARES = st.floats(0, 1, allow_subnormal=False)


@given(p=SHARES, q=SHARES)
def test_evidence_a_label_is_scipys_relative_entropy(p, q):
    expected = rel_entr(p, q) + rel_entr(1 - p, 1 - q)
    assert kl(p, q) == pytest.approx(max(0.0, float(expected)), rel=1e-9, abs=1e-12)
    assert kl(p, p) == 0.0


def information_floor(p, gate):
    """Labels that the best possible bet, which knows the share, needs (Lorden, Ann. Math. Stat. 42 (1971), p. 1897)."""
    return math.log(MONTH) / kl(p, gate)


@given(p=INSIDE, gate=INSIDE)
def test_no_bet_grows_faster_than_the_floor_allows(p, gate):
    labels = labels_to_detect(p, gate, MONTH)
    if p >= gate:
        assert labels is None
    elif labels is not None:
        assert labels >= information_floor(p, gate) * (1 - 1e-9)


@given(gate=INSIDE, drop=st.sampled_from(DROPS))
def test_the_bet_on_just_this_drop_is_the_best_there_is(gate, drop):
    """Among eight it needs the evidence for eight."""
    p = gate * (1 - drop)
    floor = information_floor(p, gate)
    assert labels_to_detect(p, gate, MONTH) == pytest.approx(floor * math.log(8 * MONTH) / math.log(MONTH), rel=1e-9)


@given(p=INSIDE, gate=INSIDE)
def test_a_ceiling_is_a_floor_from_the_other_side(p, gate):
    mirrored = labels_to_detect(1 - p, 1 - gate, MONTH, at_least=False)
    assert labels_to_detect(p, gate, MONTH) == (None if mirrored is None else pytest.approx(mirrored, rel=1e-6))


def test_what_lies_too_close_to_the_gate_is_never_detected():
    """Half of the smallest drop that is bet on."""
    assert labels_to_detect(0.80 * 0.9951, 0.80, MONTH) is None
    assert labels_to_detect(0.80 * 0.9949, 0.80, MONTH) > 1_000_000


def test_gates_at_the_ends():
    assert labels_to_detect(0.99, 1.0, MONTH) == pytest.approx(100)
    assert labels_to_detect(1.0, 1.0, MONTH) is None
    assert labels_to_detect(0.0, 0.0, MONTH) is None
    assert labels_to_detect(0.0, 0.8, MONTH) < 20


def simulated(p0, p, gate, per_minute, *, runs=200, before=1500):
    """Mean labels from the change to the alarm, of an alarm that adds up all starts and looks once a minute."""
    rng, drops = np.random.default_rng(43), np.array(DROPS)
    good, bad = np.log1p(-drops), np.log1p(drops * gate / (1 - gate))
    held, labels = np.full((runs, len(drops)), -np.inf), np.zeros(runs)
    waiting = np.ones(runs, bool)
    minute = 0
    while waiting.any():
        changed = minute >= before
        n = rng.poisson(per_minute, runs)
        right = rng.binomial(n, p if changed else p0)
        step = right[:, None] * good + (n - right)[:, None] * bad
        held = np.where(n[:, None] > 0, step + np.logaddexp(held, 0), held)
        if changed:
            labels += n * waiting
            waiting &= np.logaddexp.reduce(held, axis=1) - math.log(len(drops)) < math.log(MONTH)
        minute += 1
    return labels.mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("p0", "p", "gate", "per_minute"),
    [(0.86, 0.70, 0.80, 1), (0.86, 0.70, 0.80, 10), (0.95, 0.80, 0.90, 10), (0.99, 0.95, 0.98, 10)],
)
def test_a_simulated_alarm_takes_half_to_all_of_the_labels_it_is_said_to_take(p0, p, gate, per_minute):
    assert 0.5 <= simulated(p0, p, gate, per_minute) / labels_to_detect(p, gate, MONTH) <= 1.0
