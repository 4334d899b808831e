"""How often intervals from labels and proxies hold the truth, simulated and on real answers; and a second opinion.

The second implementation works on whole arrays with numpy; that it computes what ragmon computes is tested first.
"""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from ragmon.core.text import fold
from ragmon.ingest.gold import GoldSet
from ragmon.stats.histograms import MICRO
from ragmon.stats.prediction import Sums, predicted

Z = 1.959963984540054
RUNS = 20_000
RECORDS = 10_000

# --- the second implementation ----------------------------------------------------------------------------------------


def score(p, n, variance):
    centre = (p + Z * Z / n / 2) / (1 + Z * Z / n)
    half = np.sqrt(Z * Z * variance / n + Z**4 / n**2 / 4) / (1 + Z * Z / n)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


@np.errstate(divide="ignore", invalid="ignore")
def interval(p, n, share):
    """`share`: the variance of the labels in proportion to that of 0 and 1 with this mean."""
    most = p * (1 - p)
    share = np.where(n > 1, np.clip(share * n / (n - 1), 0, 1), 1)
    less, more = score(p, n, most * share), score(p, n / share, most)
    more = [np.where(share > 0, bound, p) for bound in more]
    plain = score(p, n, most)
    ends = (p <= 0) | (p >= 1)
    return (
        np.where(ends, plain[0], np.minimum(less[0], more[0])),
        np.where(ends, plain[1], np.maximum(less[1], more[1])),
    )


@np.errstate(divide="ignore", invalid="ignore")
def estimate(n, y, yy, f, ff, yf, records, proxies, *, naive=False):
    """Value, bounds, effective n and λ of many samples at once; `naive` takes the variance as it is found."""
    mean, vy, vf = y / n, yy / n - (y / n) ** 2, ff / n - (f / n) ** 2
    cov = yf / n - y * f / n**2
    ok = (n >= 20) & (records > n) & (vy > 1e-12) & (vf > 1e-12)
    slope = np.where(ok, np.clip(cov / vf, 0, 1), 0)
    left = np.where(ok, (vy - 2 * slope * cov + slope**2 * vf) / vy, 1)
    if not naive:
        unseen = Z * Z / 4 + ((math.log(0.05) / Z) ** 2 - Z * Z / 4) * np.exp(-n * left * vy)
        left = (n * left + unseen / vy) / (n + Z * Z)
    gain = vy / n / (vy * left * (1 / n - 1 / records) + vy / records)
    slope = np.where(slope > 0, slope * np.clip(gain, 0, 1), 0)
    gain = np.where(slope > 0, np.maximum(gain, 1), 1)
    value = np.clip(mean + slope * (proxies / np.maximum(records, 1) - f / n), 0, 1)
    share = np.where(mean * (1 - mean) > 0, vy / (mean * (1 - mean)), 1)
    return value, *interval(value, n * gain, share), n * gain, slope


# --- designs: what label and proxy are, and how often -----------------------------------------------------------------


def cells(good, rho, kind):
    """Label, proxy and share of each kind of record, with this correlation between label and proxy."""

    def table(x):
        if kind == "scale":  # a judge that says 0, 0.25, ... 1
            cuts = np.array([-np.inf, -1, -0.3, 0.3, 1, np.inf])
            right, wrong = np.diff(norm.cdf(cuts - x / 2)), np.diff(norm.cdf(cuts + x / 2))
            levels = np.linspace(0, 1, 5)
        else:
            misses = 0 if kind == "trusting" else x
            fooled = 0 if kind == "strict" else x
            right, wrong = np.array([misses, 1 - misses]), np.array([1 - fooled, fooled])
            levels = np.array([0.0, 1.0])
        return np.repeat([1.0, 0.0], len(levels)), np.tile(levels, 2), np.r_[good * right, (1 - good) * wrong]

    low, high = {"scale": (0, 40), "noisy": (1e-9, 0.5)}.get(kind, (1e-9, 1 - 1e-9))
    return table(brentq(lambda x: correlation(*table(x)) - rho, low, high))


def correlation(y, f, share):
    cov = share @ (y * f) - (share @ y) * (share @ f)
    return cov / np.sqrt((share @ y**2 - (share @ y) ** 2) * (share @ f**2 - (share @ f) ** 2))


def draw(table, n, records, *, runs=RUNS, apart=False, seed=1):
    """The sums of many samples; `apart`: the labelled records are not among those with counted proxies."""
    y, f, share = table
    rng = np.random.default_rng(seed)
    labelled = rng.multinomial(n, share, runs)
    rest = rng.multinomial(records - (0 if apart else n), share, runs)
    seen = rest if apart else rest + labelled
    sums = (labelled @ x for x in (y, y * y, f, f * f, y * f))
    return np.full(runs, float(n)), *sums, np.full(runs, float(records)), seen @ f


def exactly(sample):
    """The integer sums ragmon takes."""
    n, y, yy, f, ff, yf, records, proxies = (float(x) for x in sample)
    square = MICRO**2
    parts = (n, y * MICRO, yy * square, f * MICRO, ff * square, yf * square, records, proxies * MICRO)
    return Sums(*(round(x) for x in parts))


def coverage(found, truth):
    return np.mean((found[1] <= truth + 1e-12) & (truth - 1e-12 <= found[2]))


def width(found):
    return np.mean(found[2] - found[1])


def alone(sample):
    """What the labels say without the proxies."""
    return estimate(*sample[:6], np.zeros_like(sample[6]), np.zeros_like(sample[7]))


KINDS = ("noisy", "strict", "trusting", "scale")
"""A rule that errs both ways, one that finds fault with right answers, one that lets wrong ones pass, a judge."""
GRADED = {
    "halves": (
        np.array([0, 0, 0.5, 0.5, 0.5, 1, 1, 1.0]),
        np.array([0, 0.5, 0, 0.5, 1, 0, 0.5, 1]),
        np.array([0.06, 0.04, 0.03, 0.15, 0.02, 0.05, 0.15, 0.5]),
    ),
    # The proxy is the label, but for one record in twenty: there it is 0, far more than labels ever differ.
    "rarely far off": (
        np.array([0.4, 0.6, 0.8, 1, 0.4, 0.6, 0.8, 1]),
        np.array([0.4, 0.6, 0.8, 1, 0, 0, 0, 0]),
        np.array([0.02, 0.02, 0.1, 0.81, 0.001, 0.001, 0.005, 0.043]),
    ),
    "rarely far off in the middle": (
        np.array([0.4, 0.6, 0.4, 0.6]),
        np.array([0.4, 0.6, 0, 0]),
        np.array([0.475, 0.475, 0.025, 0.025]),
    ),
}
"""Labels between 0 and 1."""


@pytest.mark.slow
def test_the_second_implementation_agrees():
    for n in [1, 19, 20, 30, 100, 300]:
        for kind in [*KINDS, *GRADED]:
            for rho in (0.3, 0.9):
                table = GRADED[kind] if kind in GRADED else cells(0.8, rho, kind)
                for records in (n, n + 1, 10 * n, RECORDS):
                    sample = draw(table, n, records, runs=15)
                    expected = zip(*estimate(*sample), strict=True)
                    for one, (value, lower, upper, n_eff, slope) in zip(
                        zip(*sample, strict=True), expected, strict=True
                    ):
                        found = predicted(exactly(one))
                        assert (found.value, found.lower, found.upper) == pytest.approx(
                            (value, lower, upper), abs=1e-9
                        ), (n, kind)
                        assert (found.n_eff, found.weight) == pytest.approx((n_eff, slope), rel=1e-9), (n, kind)


# --- how often it is right --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_covers_and_is_narrower_the_better_the_proxy():
    for n in [30, 100, 300]:
        for rho in [0.3, 0.5, 0.7, 0.9]:
            for kind in KINDS:
                sample = draw(cells(0.8, rho, kind), n, RECORDS)
                found = estimate(*sample)
                assert coverage(found, 0.8) >= 0.93, (n, rho, kind)
                ratio = width(found) / width(alone(sample))
                assert ratio <= {0.3: 1.0, 0.5: 0.94, 0.7: 0.85, 0.9: 0.76}[rho], (n, rho, kind)
                if n >= 100:
                    assert ratio <= {0.3: 0.975, 0.5: 0.9, 0.7: 0.75, 0.9: 0.52}[rho], (n, rho, kind)


@pytest.mark.parametrize("n", [30, 100, 300])
def test_a_useless_proxy_costs_nothing(n):
    sample = draw(cells(0.8, 0.0001, "noisy"), n, RECORDS)
    found = estimate(*sample)
    assert coverage(found, 0.8) >= 0.93
    assert width(found) <= 1.001 * width(alone(sample))


@pytest.mark.slow
def test_it_covers_whatever_the_truth():
    for good in [0.02, 0.2, 0.5, 0.65, 0.95]:
        for n in [20, 25, 50, 100]:
            for kind in ("noisy", "strict", "trusting"):
                for rho in (0.5, 0.7, 0.85, 0.9, 0.95):
                    sample = draw(cells(good, rho, kind), n, RECORDS)
                    assert coverage(estimate(*sample), good) >= 0.93, (kind, rho)


def test_errors_that_are_rare_and_on_one_side_need_more_than_the_variance_as_it_is_found():
    """Thirty labels often show none of them; believed, the proxy is then taken for perfect: covered .64."""
    for kind in ("strict", "trusting"):
        sample = draw(cells(0.8, 0.9, kind), 30, RECORDS)
        assert coverage(estimate(*sample, naive=True), 0.8) < 0.70
        assert coverage(estimate(*sample), 0.8) >= 0.95


def test_a_proxy_that_is_far_off_does_no_harm():
    """It calls four of five right answers wrong: its own mean is .17, the truth .80."""
    y, f = np.array([1, 1, 0, 0.0]), np.array([1, 0, 1, 0.0])
    sample = draw((y, f, np.array([0.16, 0.64, 0.01, 0.19])), 100, RECORDS)
    found = estimate(*sample)
    assert np.mean(found[0]) == pytest.approx(0.8, abs=0.002)
    assert coverage(found, 0.8) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("records", [60, 200, 2000])
def test_it_covers_where_few_records_are_without_a_label(records):
    for kind in KINDS:
        sample = draw(cells(0.8, 0.8, kind), 50, records)
        assert coverage(estimate(*sample), 0.8) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("records", [200, 10_000])
def test_it_makes_no_difference_whether_labelled_records_are_counted_among_all(records):
    """A label that comes late belongs to a record of an earlier window."""
    for kind in KINDS:
        together = estimate(*draw(cells(0.8, 0.8, kind), 100, records))
        apart = estimate(*draw(cells(0.8, 0.8, kind), 100, records, apart=True))
        assert np.std(apart[0]) == pytest.approx(np.std(together[0]), rel=0.03)
        assert coverage(apart, 0.8) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 30, 100, 300])
@pytest.mark.parametrize("name", GRADED)
def test_labels_between_nought_and_one_are_covered(name, n):
    y, _, share = GRADED[name]
    sample = draw(GRADED[name], n, RECORDS)
    found = estimate(*sample)
    assert coverage(found, share @ y) >= 0.93
    assert width(found) <= 1.005 * width(alone(sample))
    if (name, n) == ("halves", 300):
        assert width(found) < 0.85 * width(alone(sample))


# --- real answers -----------------------------------------------------------------------------------------------------


def lines(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def answers(shared):
    """By system: what people said of each answer, and whether it contains a phrase of the gold answer."""
    items = {item.qid: item for item in GoldSet.load(shared / "qaeval" / "gold.jsonl").items}

    def read(system):
        told = {line["trace_id"]: line["human_correct"] for line in lines(shared / f"qaeval/truth/{system}.jsonl.gz")}
        pairs = [
            (told[line["trace_id"]], items[line["qid"]].contained_in(fold(line["answer_json"]["claim"])))
            for line in lines(shared / f"qaeval/traces/{system}.jsonl.gz")
            if line["trace_id"] in told
        ]
        return np.array(pairs, dtype=float).T

    return read


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 100, 300])
@pytest.mark.parametrize("system", ["chatgpt", "fid"])
def test_what_people_said_of_real_answers_is_covered_with_fewer_of_them(answers, system, n):
    """The truth is their mean over all answers; the phrases alone are .13 and .10 below it."""
    y, f = answers(system)
    rng = np.random.default_rng(n)
    runs = 400
    held, widths, plain = 0, 0.0, 0.0
    for _ in range(runs):
        some = rng.choice(len(y), n, replace=False)
        labels, proxies = y[some], f[some]
        sample = (n, labels.sum(), labels.sum(), proxies.sum(), proxies.sum(), labels @ proxies, len(f), f.sum())
        found, without = predicted(exactly(sample)), predicted(exactly((*sample[:6], 0, 0)))
        held += found.lower <= y.mean() <= found.upper
        widths, plain = widths + found.upper - found.lower, plain + without.upper - without.lower
    assert y.mean() - f.mean() > 0.09
    assert held / runs >= 0.93
    assert widths / plain <= 0.9
    assert math.isclose(without.n_eff, n)
