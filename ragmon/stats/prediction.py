"""The mean of a few labels, made more certain by a cheap score that every record has; the standard library only.

A label is dear (a person read the answer), a proxy costs nothing (a judge, a rule) and may be wrong. The mean of the
proxies is not the mean of the labels, and is never shown as such. But where the two rise and fall together, the labels
need only tell how far the proxy is off, and the proxies of all records tell the rest. That is right for any proxy, bad
ones included: what the labels do not confirm is not believed.

The labelled records must be a random draw from all of them (within a stratum, of the stratum's).

Labels and proxies of strata put together into a mean over all traffic; the standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Final, NamedTuple, Self

from ragmon.core.errors import RagmonError
from ragmon.stats.histograms import MICRO
from ragmon.stats.intervals import Z95, graded
from ragmon.stats.strata import Stratum, post_stratified

FEWEST: Final = 20
"""With fewer labels nobody knows what the proxy is worth: the labels speak alone."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What is known of labels and proxies, as exact sums: those of two places or hours add up in any order.

    Labels and proxies are scores in [0, 1], in micro-units. A record without a proxy counts with a proxy of 0, labelled
    or not: any rule will do that does not look at the label.

    Args:
        labels: Labelled records.
        y: Sum of their labels.
        yy: Sum of their squared labels.
        f: Sum of the proxies of the labelled records.
        ff: Sum of the squares of those.
        yf: Sum of label times proxy.
        records: All records, labelled or not. Whether a late label's record is among them makes no difference.
        proxies: Sum of their proxies.

    Raises:
        RagmonError: The numbers contradict each other.

    >>> Sums.of_record(800_000) + Sums.of_record(300_000) + Sums.of_label(1_000_000, 800_000) == Sums(
    ...     1, 1_000_000, 10**12, 800_000, 64 * 10**10, 8 * 10**11, records=2, proxies=1_100_000
    ... )
    True
    """

    labels: int = 0
    y: int = 0
    yy: int = 0
    f: int = 0
    ff: int = 0
    yf: int = 0
    records: int = 0
    proxies: int = 0

    def __post_init__(self) -> None:
        consistent = (
            0 <= self.y <= self.labels * MICRO
            and self.y**2 <= self.labels * self.yy <= self.labels * self.y * MICRO
            and 0 <= self.f <= self.labels * MICRO
            and self.f**2 <= self.labels * self.ff <= self.labels * self.f * MICRO
            and 0 <= self.yf <= MICRO * min(self.y, self.f)
            and self.covariance**2 <= self.variance * self.spread
            and (self.labels > 0 or self.yy == self.ff == 0)
        )
        if not consistent:
            raise RagmonError(f"labels do not add up: {self}", hint="labels and proxies lie in [0, 1], in micro-units")
        if not 0 <= self.proxies <= self.records * MICRO:
            numbers = f"proxies is {self.proxies}, records is {self.records}"
            raise RagmonError(f"proxies do not add up: {numbers}", hint="proxies lie in [0, 1], in micro-units")

    @classmethod
    def of_record(cls, proxy: int) -> Self:
        """One record, labelled or not."""
        return cls(records=1, proxies=proxy)

    @classmethod
    def of_label(cls, label: int, proxy: int) -> Self:
        """The label of one record; the record counts by `of_record`, too."""
        return cls(1, label, label**2, proxy, proxy**2, label * proxy)

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Sums)))

    @property
    def variance(self) -> int:
        """That of the labels, times the square of their number."""
        return self.labels * self.yy - self.y**2

    @property
    def spread(self) -> int:
        """The variance of the labelled records' proxies, times the square of their number."""
        return self.labels * self.ff - self.f**2

    @property
    def covariance(self) -> int:
        """That of label and proxy, times the square of their number."""
        return self.labels * self.yf - self.y * self.f


@dataclass(frozen=True, slots=True)
class Predicted:
    """A mean of labels.

    Attributes:
        value: The mean; None without a label, whatever the proxies say.
        lower: Lower bound.
        upper: Upper bound.
        n: Labels.
        n_eff: How many labels alone would tell as much: at least `n`, and never more than there are records.
        gain: `n_eff / n`: how many labels each label is worth; None without a label.
        se: The standard error of the value; None with fewer than two labels.
        rho: The correlation of label and proxy; None where the labels cannot tell: fewer than 20, or all of them or
            their proxies alike.
        weight: λ in [0, 1], how much of the proxies' difference is believed; 0 where the labels speak alone.
    """

    value: float | None
    lower: float
    upper: float
    n: int
    n_eff: float
    gain: float | None
    se: float | None
    rho: float | None
    weight: float


def predicted(sums: Sums, *, z: float = Z95) -> Predicted:
    """The mean of the labels all records would have, from the labels of some and the proxies of all.

        value = mean label + λ (mean proxy of all records - mean proxy of the labelled ones)

    λ is the slope of the label on the proxy, clipped to [0, 1]; λ = 0 is the estimate from labels alone, to the last
    bit. The labels speak alone where they are fewer than 20, all alike, do not rise with the proxy (their correlation
    is nought or negative, or the proxy is the same for all of them), and where no record is without a label. The value
    is clipped to [0, 1].

    The interval is that of a sample of `n_eff` labels with this mean. The error of a good proxy is rare, and often to
    one side: one that was right thirty times may be wrong once in ten. So what the labels leave open is never taken as
    it was found, but as Wilson's interval takes a share, with z² labels more that vary by 1/4, the most there is; and
    where next to no errors were seen, by so much more that it reaches as far as the rule of three, 3 / n. Thirty labels
    that a proxy meets without an error are worth some seventy, a hundred some seven hundred. Where a label would be
    worth less than one label, it counts as one and λ is smaller in proportion.

    Args:
        sums: Of labels and proxies.
        z: Normal quantile of the level.

    Source: Angelopoulos, Duchi and Zrnic, "PPI++" (arXiv 2311.01453). There only the N records without a label are
    compared with the labelled ones: the same estimate, by a λ that is smaller by 1 + n / N. Wilson, J. Am. Stat. Assoc.
    22 (1927), p. 209. Rule of three: Hanley and Lippman-Hand, J. Am. Med. Assoc. 249 (1983), p. 1743.

    >>> judge = Sums(100, 80 * MICRO, 80 * MICRO**2, 76 * MICRO, 76 * MICRO**2, 72 * MICRO**2, 10_000, 7_300 * MICRO)
    >>> found = predicted(judge)
    >>> [round(x, 3) for x in (found.value, found.lower, found.upper, found.rho, found.gain)]
    [0.782, 0.712, 0.838, 0.656, 1.637]
    """
    if not sums.labels:
        return Predicted(None, 0.0, 1.0, 0, 0.0, None, None, None, 0.0)
    sample = equivalent_sample(sums, z=z)
    lower, upper = graded(sample.n, sample.total, sample.squares, z)
    labels = sums.labels
    return Predicted(
        value=sample.value,
        lower=lower,
        upper=upper,
        n=labels,
        n_eff=sample.n,
        gain=sample.n / labels,
        se=math.sqrt(sums.variance / (labels * (labels - 1) * sample.n)) / MICRO if labels > 1 else None,
        rho=_rho(sums),
        weight=float(_believed(sums, z)[0]),
    )


class EffectiveSample(NamedTuple):
    """Labels alone that would tell as much as labels and proxies do.

    Attributes:
        value: Their mean.
        n: Their number; not whole.
        total: Their sum.
        squares: The sum of their squares.
    """

    value: float
    n: float
    total: float
    squares: float


def equivalent_sample(sums: Sums, *, z: float = Z95) -> EffectiveSample:
    """The sample of labels alone that has the mean and the interval of `predicted`.

    Args:
        sums: With at least one label.
        z: Normal quantile of the level.
    """
    labels, p = sums.labels, sums.y / (sums.labels * MICRO)
    slope, gain = _believed(sums, z)
    if not slope:
        return EffectiveSample(p, float(labels), sums.y / MICRO, sums.yy / MICRO**2)
    off = Fraction(sums.proxies, sums.records) - Fraction(sums.f, labels)
    value = float(min(max((Fraction(sums.y, labels) + slope * off) / MICRO, Fraction(0)), Fraction(1)))
    n = labels * gain
    # Labels between 0 and 1 vary less than 0 and 1 would with the same mean; at this mean in the same proportion.
    share = sums.variance / (sums.y * (labels * MICRO - sums.y))
    return EffectiveSample(value, n, value * n, value * n * (value + share * (1 - value)))


def _believed(sums: Sums, z: float) -> tuple[Fraction, float]:
    """λ, and the variance of the mean label over that of the value, at least 1; 0 and 1 where the labels speak alone.

    With V the variance of the labels and R that of what the proxy leaves open, the value's is
    R (1 / n - 1 / N) + V / N: the N records are a sample too.
    """
    labels, alone = sums.labels, (Fraction(0), 1.0)
    if labels < FEWEST or sums.records <= labels or not sums.spread or sums.covariance <= 0:
        return alone
    slope = min(Fraction(sums.covariance, sums.spread), Fraction(1))
    left = float(1 - slope * (2 * sums.covariance - slope * sums.spread) / sums.variance)
    variance = sums.variance / (labels * MICRO) ** 2
    left = (labels * left + _unseen(labels * left * variance, z) / variance) / (labels + z * z)
    known = labels / sums.records
    gain = 1 / (left * (1 - known) + known)
    return (slope, gain) if gain > 1 else (slope * Fraction(gain), 1.0)


def _unseen(errors: float, z: float) -> float:
    """What is added to the squared errors that were seen: z² / 4, and with no error what reaches -ln(α) / n.

    exp(-errors) is the chance to see none of as many as are expected: from three or four on, only the first remains.
    """
    wilson = z * z / 4
    three = (math.log(math.erfc(z / math.sqrt(2))) / z) ** 2
    return wilson + (three - wilson) * math.exp(-errors)


def _rho(sums: Sums) -> float | None:
    if sums.labels < FEWEST or not sums.variance or not sums.spread:
        return None
    found = sums.covariance / math.sqrt(sums.variance) / math.sqrt(sums.spread)
    return min(max(found, -1.0), 1.0)


@dataclass(frozen=True, slots=True)
class StratumSample:
    """What is known of the calls of one stratum.

    Args:
        name: The stratum's name.
        total: Calls in it, kept or not.
        assessed: Records of which it is known whether they belong in the denominator.
        sums: Labels and proxies of those that do; `sums.records` are all of them, labelled or not.
    """

    name: str
    total: float
    assessed: int
    sums: Sums


@dataclass(frozen=True, slots=True)
class Stratified:
    """A mean of labels over all traffic.

    Attributes:
        value: The mean over the strata that hold labels; None without a label.
        lower: Lower bound, whatever the strata without a label hold.
        upper: Upper bound, likewise.
        n: Labels.
        n_eff: How many labels of an unweighted sample would tell as much of the strata that hold labels.
        gain: How many times as many that are as without proxies; None without a label.
        unobserved: Share of the weight in strata without a label.
        missing: The names of those, sorted.
        strata: Each stratum on its own, by name: its correlation with the proxy, its gain.
    """

    value: float | None
    lower: float
    upper: float
    n: int
    n_eff: float
    gain: float | None
    unobserved: float
    missing: tuple[str, ...]
    strata: Mapping[str, Predicted]


def stratified(parts: Iterable[StratumSample], *, z: float = Z95) -> Stratified:
    """The mean over all traffic of the labels all records would have: `predicted` within strata, weighed as there.

    In a stratum with fewer than 20 labels they speak alone. A stratum without a label may hold anything, whatever its
    proxies say: it counts as unobserved in `post_stratified`. Without proxies this is `post_stratified` of the labels.

    Args:
        parts: All of the traffic, each call in one stratum; the order does not matter.
        z: Normal quantile of the level.

    Raises:
        RagmonError: The numbers of a stratum contradict each other.

    >>> judge = Sums.of_label(1_000_000, 900_000) + Sums.of_record(900_000)
    >>> found = stratified([StratumSample("rest", 800, 1, judge), StratumSample("slow", 200, 0, Sums())])
    >>> found.value, found.unobserved, found.missing
    (1.0, 0.2, ('slow',))
    """
    every = tuple(parts)
    found = post_stratified((_stratum(part, part.sums, z) for part in every), z=z)
    alone = post_stratified((_stratum(part, replace(part.sums, records=0, proxies=0), z) for part in every), z=z)
    return Stratified(
        value=found.value,
        lower=found.lower,
        upper=found.upper,
        n=sum(part.sums.labels for part in every),
        n_eff=found.n_eff,
        gain=found.n_eff / alone.n_eff if alone.n_eff else None,
        unobserved=found.unobserved,
        missing=found.missing,
        strata={part.name: predicted(part.sums, z=z) for part in every},
    )


def _stratum(part: StratumSample, sums: Sums, z: float) -> Stratum:
    """A stratum whose domain is that of the part and whose scores are these labels, with as many as they are worth."""
    domain = max(part.sums.records, part.sums.labels)
    if not sums.labels:
        return Stratum(part.name, part.total, part.assessed, domain, 0.0, 0.0, 0.0)
    sample = equivalent_sample(sums, z=z)
    return Stratum(part.name, part.total, part.assessed, domain, sample.total, sample.squares, sample.n)
