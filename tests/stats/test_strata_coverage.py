"""How often the intervals of stratified and graded samples hold the truth: simulations by a second implementation.

The second implementation works on whole arrays with numpy and scipy; that it computes what ragmon computes is tested
first, on thousands of random inputs. It can leave terms out, to show what each of them is for.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy.stats import beta, binom

from ragmon.stats import intervals
from ragmon.stats.strata import Stratum, post_stratified

Z = 1.959963984540054
RUNS = 20_000
ERROR = 3 * math.sqrt(0.95 * 0.05 / RUNS)  # three standard errors of a coverage of 0.95

# --- the second implementation ----------------------------------------------------------------------------------------


def score(p, n, variance):
    centre = (p + Z * Z / n / 2) / (1 + Z * Z / n)
    half = np.sqrt(Z * Z * variance / n + Z**4 / n**2 / 4) / (1 + Z * Z / n)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


@np.errstate(divide="ignore", invalid="ignore")
def graded(n, total, squares):
    p = total / n
    most = p * (1 - p)
    s2 = np.clip((squares / n - p * p) * n / (n - 1), 0, most)
    plain = (n <= 1) | (squares >= total) | (total >= n)
    wilson, less, more = score(p, n, most), score(p, n, s2), score(p, n * most / s2, most)
    more = [np.where(s2 > 0, bound, p) for bound in more]
    lower, upper = np.minimum(less[0], more[0]), np.maximum(less[1], more[1])
    return np.where(plain, wilson[0], lower), np.where(plain, wilson[1], upper)


def exact(total, n):
    lower = np.where(total > 0, beta.ppf(0.025, np.maximum(total, 1e-9), n - total + 1), 0)
    return lower, np.where(total < n, beta.ppf(0.975, total + 1, np.maximum(n - total, 1e-9)), 1)


def estimate(calls, assessed, n, total, squares=None, without=()):
    """Value, bounds, effective n and unobserved share for many samples at once: one row each, one column a stratum."""
    squares = total if squares is None else squares
    calls, seen, some = np.maximum(calls, assessed).astype(float), np.maximum(assessed, 1), np.maximum(n, 1)
    weight = calls * n / seen
    all_of_it = weight.sum(1, keepdims=True)
    w = weight / np.where(all_of_it > 0, all_of_it, 1)
    p = np.where(n > 0, total / some, 0)
    value = (w * p).sum(1, keepdims=True)
    lower, upper = graded(some.astype(float), total, squares)
    small = (n > 0) & (n < 20)
    small &= small.sum(1, keepdims=True) > 6
    if small.any() and "exact" not in without:
        lower[small], upper[small] = exact(total[small], n[small])
    off = (w * (p - value)) ** 2 * (n > 0)
    down, up, drift = (w * (p - lower)) ** 2, (w * (upper - p)) ** 2, np.zeros_like(w)
    if "domain" not in without:
        drift += off * (1 / some - 1 / seen)
        rest, part = all_of_it - weight, (n > 0) & (n < seen) & (weight < all_of_it)
        sizes = [calls * bound for bound in score(n / seen, seen, n / seen * (1 - n / seen))]
        values = [(value * all_of_it - weight * p + size * p) / np.maximum(rest + size, 1e-9) for size in sizes]
        linear, wrong = Z * np.sqrt(drift), [abs(size / np.maximum(rest + size, 1e-9) - w) for size in sizes]
        product = np.where("product" not in without, np.maximum(*wrong), 0)
        lowest, highest = value - np.minimum(*values), np.maximum(*values) - value
        down += np.where(part, np.maximum(linear, lowest) ** 2 + (product * (p - lower)) ** 2, 0)
        up += np.where(part, np.maximum(linear, highest) ** 2 + (product * (upper - p)) ** 2, 0)
    if "totals" not in without:
        drift += off / np.maximum(calls, 1e-9)
        down, up = (side + Z * Z * off / np.maximum(calls, 1e-9) for side in (down, up))
    held = np.where((assessed > 0) & (n == 0) & ("empty" not in without), calls * 0.75 * Z * Z / (assessed + Z * Z), 0)
    empty = (held / np.maximum(all_of_it + held, 1e-9)) ** 2
    low = value[:, 0] - np.sqrt((down + empty * value**2).sum(1))
    high = value[:, 0] + np.sqrt((up + empty * (1 - value) ** 2).sum(1))

    none = all_of_it[:, 0] == 0
    share = w**2 / some
    within = (squares + Z * Z / 2) / (some + Z * Z) - ((total + Z * Z / 2) / (some + Z * Z)) ** 2
    ratio = (w * within + w * (p - value) ** 2).sum(1) / np.where(none, 1, (share * within + drift).sum(1))
    n_eff = np.minimum(np.maximum(ratio, 1), n.sum(1))
    alike = (value[:, 0] < 1e-12) | (value[:, 0] > 1 - 1e-12)
    n_eff = np.where(alike, 1 / np.where(none, 1, share.sum(1)), n_eff)
    if "shared" not in without:
        pooled = graded(n_eff, n_eff * value[:, 0], n_eff * (w * np.where(n > 0, squares / some, 0)).sum(1))
        shared = share.sum(1) ** 2 >= 2.5 * (share**2).sum(1)
        low, high = (
            np.where(shared, np.minimum(low, pooled[0]), low),
            np.where(shared, np.maximum(high, pooled[1]), high),
        )

    dark = (calls * (assessed == 0)).sum(1)
    u = dark / np.maximum(dark + all_of_it[:, 0], 1e-9)
    low, high = (1 - u) * np.clip(low, 0, 1), (1 - u) * np.clip(high, 0, 1) + u
    return np.where(none, np.nan, value[:, 0]), np.where(none, 0, low), np.where(none, 1, high), n_eff, u


def random_strata(rng, *, whole):
    strata = []
    for i in range(rng.choice([1, 2, 3, 5, 8, 12])):
        calls = rng.choice([0, 5, 30, 300, 10_000])
        assessed = min(rng.choice([0, 1, 5, 15, 60, 400]), calls + rng.choice([0, 0, 3]))
        n = rng.choice([0, assessed, rng.randint(0, assessed)])
        good = rng.random()
        scores = [float(rng.random() < good) if whole else rng.random() ** 0.3 for _ in range(n)]
        strata.append(Stratum(f"s{i}", calls, assessed, n, sum(scores), sum(x * x for x in scores)))
    return strata


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_the_second_implementation_computes_what_ragmon_computes(whole):
    rng = random.Random(7)
    for _ in range(2500):
        strata = random_strata(rng, whole=whole)
        found = post_stratified(strata)
        columns = ([getattr(s, name) for s in strata] for name in ("total", "assessed", "domain", "sum", "squares"))
        value, lower, upper, n_eff, unobserved = (x[0] for x in estimate(*(np.array([c]) for c in columns)))
        assert (found.lower, found.upper, found.unobserved) == pytest.approx((lower, upper, unobserved), abs=1e-9)
        assert (found.value is None) == math.isnan(value)
        if found.value is not None:
            assert (found.value, found.n_eff) == pytest.approx((value, n_eff), rel=1e-9, abs=1e-12)


# --- designs ----------------------------------------------------------------------------------------------------------


def sample(calls, mix, kept, good, domain=1.0, seed=1):
    """Samples of one design, and the truth: `calls` fall into strata by `mix` and are kept at the rates `kept`."""
    rng = np.random.default_rng(seed)
    mix, domain, good = np.array(mix), np.broadcast_to(domain, len(mix)), np.array(good)
    totals = rng.multinomial(calls, mix, RUNS)
    assessed = rng.binomial(totals, kept)
    n = rng.binomial(assessed, domain)
    return (totals, assessed, n, rng.binomial(n, good)), (mix * domain * good).sum() / (mix * domain).sum()


def coverage(found, truth):
    return np.mean((found[1] <= truth + 1e-12) & (truth - 1e-12 <= found[2]))


ROWS = {
    "ordinary": (10_000, (0.15, 0.85), (1, 0.01), (0.30, 0.96)),
    "little traffic": (3_000, (0.15, 0.85), (1, 0.01), (0.30, 0.96)),
    "much traffic": (30_000, (0.05, 0.95), (1, 0.01), (0.20, 0.90)),
    "a higher rate": (10_000, (0.15, 0.85), (1, 0.05), (0.30, 0.96)),
    "almost everything is right": (10_000, (0.02, 0.98), (1, 0.01), (0.10, 0.99)),
}
"""Suspicious calls are all kept, the rest at a low rate."""


@pytest.mark.parametrize("row", ROWS)
def test_it_covers_what_it_promises_where_suspicious_calls_are_all_kept(row):
    drawn, truth = sample(*ROWS[row])
    assert 0.935 - ERROR <= coverage(estimate(*drawn), truth) <= 0.975 + ERROR


def test_weights_undo_what_keeping_suspicious_calls_does():
    """The sample's own mean is 0.34 where the truth is 0.86, and Wilson's interval around it never holds the truth."""
    drawn, truth = sample(*ROWS["ordinary"])
    value, lower, upper, n_eff, _ = estimate(*drawn)
    assert abs(value.mean() - truth) < 0.005 + 3 * value.std() / math.sqrt(RUNS)
    assert np.mean(upper - lower) <= 0.08
    n = drawn[2].sum(1)
    raw = drawn[3].sum(1) / n
    assert raw.mean() - truth == pytest.approx(-0.525, abs=0.005)
    assert coverage((raw, *score(raw, n, raw * (1 - raw))), truth) == 0
    # Right in the middle, but as if the sample were one of all traffic: far too narrow.
    assert coverage((value, *score(value, n, value * (1 - value))), truth) < 0.65
    assert np.mean(n_eff) < 0.25 * np.mean(n)


DOMAINS = {
    "suspicious calls shipped twice as often": (2_000, (0.15, 0.85), (1, 0.1), (0.10, 0.90), (0.6, 0.3)),
    "suspicious calls shipped half as often": (20_000, (0.5, 0.5), (1, 0.02), (0.10, 0.90), (0.2, 0.4)),
    "two low rates": (20_000, (0.15, 0.85), (0.3, 0.05), (0.20, 0.95), (0.6, 0.3)),
    "one rate for three strata": (5_000, (0.2, 0.3, 0.5), (0.1, 0.1, 0.1), (0.30, 0.70, 0.95), (0.5, 0.3, 0.7)),
    "half of the traffic is suspicious": (10_000, (0.5, 0.5), (1, 0.02), (0.20, 0.95), (0.5, 0.2)),
}
"""What belongs in the denominator is known of the assessed records alone; `domain` is its share of the stratum."""


@pytest.mark.parametrize("design", DOMAINS)
def test_a_domain_known_only_on_the_sample_is_part_of_the_uncertainty(design):
    """Taken as known, the same weights cover 0.62 to 0.91."""
    drawn, truth = sample(*DOMAINS[design])
    assert 0.935 - ERROR <= coverage(estimate(*drawn), truth) <= 0.965 + ERROR
    assert coverage(estimate(*drawn, without=("domain", "totals")), truth) < 0.92


SPARSE = [
    (calls, mix, rate, good, domain)
    for calls, mix, rate, share in (
        (10_000, (0.15, 0.85), 0.01, 0.04),
        (10_000, (0.15, 0.85), 0.05, 0.01),
        (2_000, (0.5, 0.5), 0.01, 0.3),
        (10_000, (0.05, 0.95), 0.01, 0.04),
        (2_000, (0.1, 0.3, 0.6), 0.01, 0.3),
        (10_000, (0.02, 0.08, 0.9), 0.01, 0.04),
    )
    for good in ((0.1, 0.9), (0.9, 0.5), (0.3, 0.96), (0.5, 0.9), (0.2, 0.7), (0.8, 0.8))
    for domain in ((1.0,) * (len(mix) - 1) + (share,), (share,) * len(mix))
]
"""Three or four records of the large stratum are in the denominator; in half of the designs few of the others are."""


@pytest.mark.parametrize("place", [0, 1, 26, *(pytest.param(i, marks=pytest.mark.slow) for i in range(len(SPARSE)))])
def test_three_records_of_a_domain_cover(place):
    """Linearised, and without the product of the errors of weight and mean, they cover 0.88 to 0.95."""
    calls, mix, rate, good, domain = SPARSE[place]
    kept, good = (1,) * (len(mix) - 1) + (rate,), (good[0],) * (len(mix) - 1) + good[1:]
    drawn, truth = sample(calls, mix, kept, good, domain, seed=place)
    assert 2.5 <= np.mean(drawn[2][:, -1]) <= 4.5
    assert coverage(estimate(*drawn), truth) >= 0.935 - ERROR


@pytest.mark.parametrize("domain", [(1.0, 1.0), (0.5, 0.7)])
def test_where_every_call_is_scored_the_totals_are_still_a_sample_of_the_traffic(domain):
    """The next hour has other totals. Taken as fixed, the interval covers 0.86."""
    drawn, truth = sample(1_000, (0.15, 0.85), (1, 1), (0.30, 0.96), domain)
    found = estimate(*drawn)
    assert 0.935 - ERROR <= coverage(found, truth) <= 0.965 + ERROR
    assert np.allclose(found[3], drawn[2].sum(1))
    assert coverage(estimate(*drawn, without=("domain", "totals")), truth) < 0.88


@pytest.mark.parametrize(("share", "good"), [(0.02, (0.5, 0.9)), (0.01, (0.5, 0.9)), (0.01, (0.9, 0.1))])
def test_a_stratum_whose_sample_missed_the_domain_may_still_hold_some(share, good):
    """A hundred records of nine thousand calls, none in the denominator: the stratum weighs 0 and could weigh most."""
    drawn, truth = sample(10_000, (0.05, 0.95), (1, 0.01), good, (0.8, share))
    assert np.mean((drawn[2] == 0).any(1)) > 0.1
    assert coverage(estimate(*drawn), truth) >= 0.935 - ERROR
    assert coverage(estimate(*drawn, without=("empty",)), truth) < 0.85


def test_a_stratum_that_holds_none_of_the_domain_hardly_widens_the_interval():
    drawn, _ = sample(10_000, (0.15, 0.85), (0.01, 0.01), (0.5, 0.93), (0, 0.8))
    found, plain = estimate(*drawn), estimate(*drawn, without=("empty",))
    assert 1 < np.mean(found[2] - found[1]) / np.mean(plain[2] - plain[1]) < 1.05


# --- many strata ------------------------------------------------------------------------------------------------------


def even(strata, n, good):
    """Samples of `n` from each of so many equal strata of much traffic."""
    assessed = np.full((RUNS, strata), n)
    drawn = np.random.default_rng(strata * n).binomial(assessed, good)
    return (np.full_like(assessed, 10**7), assessed, assessed, drawn), np.mean(good)


@pytest.mark.slow
@pytest.mark.parametrize("good", [0.5, 0.7, 0.86, 0.9, 0.95, 0.97, np.linspace(0.7, 0.99, 10)])
def test_ten_strata_of_ten_records_cover(good):
    """Wilson's distances alone cover 0.87 to 0.92 here, Clopper and Pearson's alone 0.92 to 0.96."""
    drawn, truth = even(10, 10, good)
    assert coverage(estimate(*drawn), truth) >= 0.94 - ERROR
    assert coverage(estimate(*drawn, without=("exact", "shared")), truth) < 0.93


@pytest.mark.parametrize(("strata", "n"), [(4, 20), (10, 30), (20, 50)])
def test_strata_that_share_the_variance_cover_however_many_records_they_have(strata, n):
    """At 0.95, distances towards 1 are short: their squares add up to too little although no stratum is small."""
    drawn, truth = even(strata, n, 0.95)
    assert coverage(estimate(*drawn), truth) >= 0.94 - ERROR
    assert coverage(estimate(*drawn, without=("shared",)), truth) < 0.92


@pytest.mark.parametrize("hidden_good", [0.0, 0.5, 1.0])
def test_an_unobserved_stratum_may_hold_anything(hidden_good):
    (totals, assessed, n, good), _ = sample(10_000, (0.1, 0.7, 0.2), (1, 0.02, 0), (0.4, 0.95, hidden_good))
    *_, unobserved = found = estimate(totals, assessed, n, good)
    assert coverage(found, 0.1 * 0.4 + 0.7 * 0.95 + 0.2 * hidden_good) >= 0.95 - ERROR
    assert unobserved.mean() == pytest.approx(0.2, abs=0.001)


# --- graded scores ----------------------------------------------------------------------------------------------------


def valued(values, chances):
    return lambda rng, size: rng.choice(values, p=chances, size=size), float(np.dot(values, chances))


def or_uniform(share):
    return lambda rng, size: np.where(rng.random(size) < share, 1.0, rng.random(size)), share + (1 - share) / 2


SCORES = {
    "uniform": (lambda rng, size: rng.random(size), 0.5),
    "beta(18, 2)": (lambda rng, size: rng.beta(18, 2, size), 0.9),
    "beta(2, 0.1)": (lambda rng, size: rng.beta(2, 0.1, size), 2 / 2.1),
    "beta(0.5, 0.5)": (lambda rng, size: rng.beta(0.5, 0.5, size), 0.5),
    "three values": valued([0, 0.5, 1], [0.1, 0.2, 0.7]),
    "three values, nearly all 1": valued([0, 0.5, 1], [0.01, 0.01, 0.98]),
    "1 or 0.9, and rarely 0": valued([0, 0.9, 1], [0.05, 0.05, 0.9]),
    "one over the rank": valued([0, 1 / 4, 1 / 3, 1 / 2, 1], [0.1, 0.07, 0.08, 0.15, 0.6]),
    "mostly 1": or_uniform(0.9),
    "nearly all 1": or_uniform(0.97),
}


def graded_runs(name, n, runs):
    draw, truth = SCORES[name]
    scores = draw(np.random.default_rng(n), (runs, n))
    return np.full(runs, float(n)), scores.sum(1), (scores**2).sum(1), truth


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_graded_scores_are_covered_from_thirty_on(name):
    for n, runs in ((30, RUNS), (100, 10_000), (1000, 2000)):
        counts, total, squares, truth = graded_runs(name, n, runs)
        found = coverage((None, *graded(counts, total, squares)), truth)
        assert found >= 0.935 - 3 * math.sqrt(0.95 * 0.05 / runs), n


@pytest.mark.parametrize("name", SCORES)
def test_ten_graded_scores_are_covered_no_worse_than_ten_of_nought_and_one(name):
    counts, total, squares, truth = graded_runs(name, 10, RUNS)
    bounds = [intervals.wilson(k, 10) for k in range(11)]
    binary = sum(binom.pmf(k, 10, truth) for k, (lower, upper) in enumerate(bounds) if lower <= truth <= upper)
    assert coverage((None, *graded(counts, total, squares)), truth) >= min(0.95, binary) - ERROR


def test_graded_scores_cover_in_strata_too():
    """Right, half right or wrong, suspicious calls all kept: covered, and closer than if 0.5 were as good as 0 or 1."""
    (totals, assessed, n, _), _ = sample(*ROWS["a higher rate"])
    right, half, _ = np.random.default_rng(5).multinomial(n, [[0.2, 0.4, 0.4], [0.8, 0.15, 0.05]]).transpose(2, 0, 1)
    total, squares = right + half / 2, right + half / 4
    found, rough = estimate(totals, assessed, n, total, squares), estimate(totals, assessed, n, total)
    assert coverage(found, 0.15 * 0.4 + 0.85 * 0.875) >= 0.935 - ERROR
    assert np.mean(found[2] - found[1]) < 0.85 * np.mean(rough[2] - rough[1])
