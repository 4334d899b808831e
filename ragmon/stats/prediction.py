"""What few labels tell: how fast an alarm detects a change, how complete labels are, and prediction-powered estimates.

A label is expensive (a person read the answer); a proxy costs nothing (a judge, a rule) and may be wrong. The mean of
the proxies is not the mean of the labels. But where the two rise and fall together, the labels are needed only to
estimate the error of the proxy, and the proxies of all records give the rest. This is right for bad proxies as well:
what the labels do not confirm has no weight. The labelled records must be a random sample of all records (within a
stratum, of the records of the stratum).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Final, NamedTuple, Self

from ragmon.stats.histograms import MICRO
from ragmon.stats.intervals import Z95, graded
from ragmon.stats.strata import Stratum, post_stratified

DROPS: Final = (0.01, 0.025, 0.05, 0.10, 0.175, 0.275, 0.40, 0.60)
"""The drops an alarm bets on, as shares of its gate."""


def kl(p: float, q: float) -> float:
    """The evidence of one label on average against a share q when the true share is p, in nats.

    It is the Kullback-Leibler divergence of two coins (Ann. Math. Stat. 22 (1951), p. 79), infinite where q excludes
    what p allows.
    """
    parts = ((p, q), (1 - p, 1 - q))
    if any(x > 0 and y <= 0 for x, y in parts):
        return math.inf
    return max(0.0, sum(x * math.log(x / y) for x, y in parts if x > 0))


def labels_to_detect(
    p: float, gate: float, threshold: float, *, at_least: bool = True, per_step: float | None = None
) -> float | None:
    """How many labels an alarm needs after a change to a share, by its best bet alone.

    None where no bet wins, because the share keeps the gate or lies too close to it. `threshold` is the evidence that
    raises the alarm: where an alarm looks once a minute, the minutes to one false alarm. `per_step` is how many labels
    come in a step, where that is known.

    The figure is cautious, because the other bets win as well. In simulations alarms needed .8 to 1.1 of it where the
    number of labels per step is known, and .55 to 1.1 where it is not: an alarm adds up bets started at every step, and
    smaller steps mean more starts.
    """
    if not at_least:
        p, gate = 1 - p, 1 - gate
    if gate >= 1:
        return 1 / (1 - p) if p < 1 else None  # the first bad label refutes it
    growth = max(p * math.log1p(-d) + (1 - p) * math.log1p(d * gate / (1 - gate)) for d in DROPS)
    if growth <= 0:
        return None
    stake = threshold * len(DROPS)
    # After n labels the wealth of all starts is e^(growth n) times the sum of a geometric series over the steps.
    return (math.log(stake) if per_step is None else math.log1p(stake * -math.expm1(-growth * per_step))) / growth


ENOUGH: Final = 20  # the fewest reports from which the distribution of delays is estimated


class Delays:
    """The distribution of reporting delays, from reports of which those with longer delays have not arrived yet.

    The share of reports that arrive within a delay is the product-limit estimate for right-truncated data, which
    compares each delay with the reports that could have taken as long (Lynden-Bell 1971; for reporting delays Lawless
    1994). It is relative to the reports that arrive within the longest possible delay among these reports.

    Args:
        reports: For each report its delay, and the longest delay with which it would have arrived by now, in seconds.
    """

    def __init__(self, reports: Sequence[tuple[float, float]]) -> None:
        self._reports = [(max(0.0, delay), max(delay, limit, 0.0)) for delay, limit in reports]
        # The delays in rising order, and for each the share of reports that arrive within it; 1 for the longest.
        times = Counter(delay for delay, _ in self._reports)
        self._delays = sorted(times)
        self._shares, share = [1.0] * len(self._delays), 1.0
        by_delay = sorted(delay for delay, _ in self._reports)
        by_limit = sorted(limit for _, limit in self._reports)
        for index in range(len(self._delays) - 1, 0, -1):
            delay = self._delays[index]
            # At risk are reports with at most this delay that could have had it. As delay <= limit, no report is
            # subtracted that was not counted.
            at_risk = bisect_right(by_delay, delay) - bisect_left(by_limit, delay)
            share *= 1.0 - times[delay] / at_risk if at_risk > times[delay] else 1.0
            self._shares[index - 1] = share

    def share(self, waited: float) -> float:
        """The share of reports that arrive within a time in seconds; in (0, 1]."""
        index = bisect_right(self._delays, waited)
        return self._shares[index - 1] if index else self._shares[0]

    @property
    def maturity(self) -> float | None:
        """The share of all reports about these times that has arrived, in (0, 1]; None with too few reports.

        Each report counts as the inverse of the share that arrives within its longest possible delay.
        """
        if len(self._reports) < ENOUGH:
            return None
        return len(self._reports) / math.fsum(1.0 / self.share(limit) for _, limit in self._reports)


FEWEST: Final = 20  # with fewer labels the quality of the proxy is unknown, and it is not used


@dataclass(frozen=True, slots=True)
class Sums:
    """Exact sums of labels and proxies; the sums of different servers or hours are added in any order.

    Labels and proxies are scores in [0, 1], in micro-units. A record without a proxy counts with a proxy of 0, labelled
    or not: any such rule is valid if it does not depend on the label.

    Args:
        labels: Number of labelled records.
        y, yy: Sum of their labels, and of the squared labels.
        f, ff, yf: Sum of their proxies, of the squared proxies, and of label times proxy.
        records, proxies: Number of all records, labelled or not, and the sum of their proxies. A record whose label
            came late may be among them or not.
    """

    labels: int = 0
    y: int = 0
    yy: int = 0
    f: int = 0
    ff: int = 0
    yf: int = 0
    records: int = 0
    proxies: int = 0

    @classmethod
    def of_record(cls, proxy: int) -> Self:
        """One record, labelled or not."""
        return cls(records=1, proxies=proxy)

    @classmethod
    def of_label(cls, label: int, proxy: int) -> Self:
        """The label of one record; the record itself is counted by `of_record`."""
        return cls(1, label, label**2, proxy, proxy**2, label * proxy)

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Sums)))

    @property
    def variance(self) -> int:
        """The variance of the labels, times the square of their number."""
        return self.labels * self.yy - self.y**2

    @property
    def spread(self) -> int:
        """The variance of the labelled records' proxies, times the square of their number."""
        return self.labels * self.ff - self.f**2

    @property
    def covariance(self) -> int:
        """The covariance of label and proxy, times the square of the number of labels."""
        return self.labels * self.yf - self.y * self.f


@dataclass(frozen=True, slots=True)
class Predicted:
    """The estimated mean of labels.

    Attributes:
        value: The mean; None without a label, whatever the proxies are.
        lower, upper: Bounds, whatever the labels of strata without a label would be.
        n: Number of labels.
        n_eff: How many labels without proxies would give the same precision: at least `n`, at most the number of
            records. Of several strata, how many labels of an unweighted sample.
        gain: How many labels each label is worth; None without a label.
        weight: λ in [0, 1], the weight of the proxies' difference; 0 where the proxies are not used, None over strata.
    """

    value: float | None
    lower: float
    upper: float
    n: int
    n_eff: float
    gain: float | None
    weight: float | None = None


def predicted(sums: Sums) -> Predicted:
    """The mean of the labels all records would have, from the labels of some and the proxies of all.

        value = mean label + λ (mean proxy of all records - mean proxy of the labelled ones)

    λ is the slope of the label on the proxy, clipped to [0, 1]; λ = 0 is the estimate from labels alone, to the last
    bit. The proxies are not used where there are fewer than 20 labels, where all labels are equal, where they do not
    rise with the proxy (their correlation is zero or negative, or the proxy is the same for all of them), and where no
    record is without a label. The value is clipped to [0, 1].

    The interval is that of a sample of `n_eff` labels with this mean. The error of a good proxy is rare, and often to
    one side: a proxy that was right thirty times may be wrong once in ten. So the variance that the proxy leaves open
    is not taken as observed, but as in Wilson's interval for a share, with z² more labels of variance 1/4, the largest
    possible; and where almost no errors were seen, with so much more that it reaches as far as the rule of three,
    3 / n. Thirty labels that a proxy predicts without an error are worth about seventy, a hundred about seven hundred.
    Where a label would be worth less than one label, it counts as one and λ is smaller in proportion.

    Source: Angelopoulos, Duchi and Zrnic, "PPI++" (arXiv 2311.01453). There only the N records without a label are
    compared with the labelled ones: the same estimate, by a λ that is smaller by 1 + n / N. Wilson, J. Am. Stat. Assoc.
    22 (1927), p. 209. Rule of three: Hanley and Lippman-Hand, J. Am. Med. Assoc. 249 (1983), p. 1743.

    >>> judge = Sums(100, 80 * MICRO, 80 * MICRO**2, 76 * MICRO, 76 * MICRO**2, 72 * MICRO**2, 10_000, 7_300 * MICRO)
    >>> found = predicted(judge)
    >>> [round(x, 3) for x in (found.value, found.lower, found.upper, found.gain)]
    [0.782, 0.712, 0.838, 1.637]
    """
    if not sums.labels:
        return Predicted(None, 0.0, 1.0, 0, 0.0, None, 0.0)
    sample = equivalent_sample(sums)
    lower, upper = graded(sample.n, sample.total, sample.squares)
    return Predicted(
        value=sample.value,
        lower=lower,
        upper=upper,
        n=sums.labels,
        n_eff=sample.n,
        gain=sample.n / sums.labels,
        weight=float(_slope_and_gain(sums)[0]),
    )


class EffectiveSample(NamedTuple):
    """A sample of labels alone that gives the same estimate and precision as labels and proxies together.

    Its size n is no integer.
    """

    value: float
    n: float
    total: float
    squares: float


def equivalent_sample(sums: Sums) -> EffectiveSample:
    """The sample of labels alone that has the mean and the interval of `predicted`."""
    labels, p = sums.labels, sums.y / (sums.labels * MICRO)
    slope, gain = _slope_and_gain(sums)
    if not slope:
        return EffectiveSample(p, float(labels), sums.y / MICRO, sums.yy / MICRO**2)
    proxy_difference = Fraction(sums.proxies, sums.records) - Fraction(sums.f, labels)
    value = float(min(max((Fraction(sums.y, labels) + slope * proxy_difference) / MICRO, Fraction(0)), Fraction(1)))
    n = labels * gain
    # Labels between 0 and 1 vary less than 0 and 1 would with the same mean; the ratio is kept at the new mean.
    ratio = sums.variance / (sums.y * (labels * MICRO - sums.y))
    return EffectiveSample(value, n, value * n, value * n * (value + ratio * (1 - value)))


def _slope_and_gain(sums: Sums) -> tuple[Fraction, float]:
    # λ, and the variance of the mean label over that of the value, at least 1; 0 and 1 where proxies are not used.
    #
    # With V the variance of the labels and R the variance that the proxy leaves open, that of the value is
    # R (1 / n - 1 / N) + V / N: the N records are a sample, too.
    labels, unused = sums.labels, (Fraction(0), 1.0)
    if labels < FEWEST or sums.records <= labels or not sums.spread or sums.covariance <= 0:
        return unused
    slope = min(Fraction(sums.covariance, sums.spread), Fraction(1))
    residual = float(1 - slope * (2 * sums.covariance - slope * sums.spread) / sums.variance)
    variance = sums.variance / (labels * MICRO) ** 2
    # What is added to the observed squared errors: z² / 4, and without any error enough to reach -ln(α) / n.
    # exp(-errors) is the probability to see no error when so many are expected: above three or four only the
    # first part remains.
    errors = labels * residual * variance
    wilson = Z95 * Z95 / 4
    rule_of_three = (math.log(math.erfc(Z95 / math.sqrt(2))) / Z95) ** 2
    residual = (labels * residual + (wilson + (rule_of_three - wilson) * math.exp(-errors)) / variance) / (
        labels + Z95 * Z95
    )
    labelled_share = labels / sums.records
    gain = 1 / (residual * (1 - labelled_share) + labelled_share)
    return (slope, gain) if gain > 1 else (slope * Fraction(gain), 1.0)


@dataclass(frozen=True, slots=True)
class StratumSample:
    """The labels and proxies of one stratum.

    Args:
        assessed: Records of which it is known whether they belong to the denominator.
        sums: Labels and proxies of the records in the denominator; `sums.records` counts all of them, labelled or not,
            or is the number of records that would tell their mean proxy as precisely.
        domain: Records in the denominator, labelled or not, with a proxy or without; None: `sums.records`, or the
            labels if they are more.
    """

    name: str
    total: float
    assessed: int
    sums: Sums
    domain: int | None = None


def stratified(parts: Iterable[StratumSample]) -> Predicted:
    """The mean over all traffic of the labels all records would have: `predicted` within strata, then weighted.

    In a stratum with fewer than 20 labels the proxies are not used. A stratum without a label could have any mean,
    whatever its proxies are: it counts as unobserved in `post_stratified`. Without proxies this is `post_stratified` of
    the labels.
    """
    samples = tuple(parts)
    estimate = post_stratified(_stratum(sample, sample.sums) for sample in samples)
    labels_only = post_stratified(_stratum(sample, replace(sample.sums, records=0, proxies=0)) for sample in samples)
    return Predicted(
        value=estimate.value,
        lower=estimate.lower,
        upper=estimate.upper,
        n=sum(sample.sums.labels for sample in samples),
        n_eff=estimate.n_eff,
        gain=estimate.n_eff / labels_only.n_eff if labels_only.n_eff else None,
    )


def _stratum(sample: StratumSample, sums: Sums) -> Stratum:
    # With the denominator of the sample, and with the equivalent sample of these labels as its scores.
    domain = max(sample.sums.records, sample.sums.labels) if sample.domain is None else sample.domain
    if not sums.labels:
        return Stratum(sample.name, sample.total, sample.assessed, domain, 0.0, 0.0, 0.0)
    labels = equivalent_sample(sums)
    return Stratum(sample.name, sample.total, sample.assessed, domain, labels.total, labels.squares, labels.n)
