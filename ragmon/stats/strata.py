"""Post-stratified means: a mean over all traffic from samples taken at different rates in different strata.

Every call is counted in its stratum, and some are kept and scored. The weight of a stratum is its share of all traffic,
not its share of the sample: without the weights, keeping every suspicious call turns a precision of 0.86 into 0.34.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from ragmon.stats.intervals import Z95, clopper_pearson, graded, wilson

SMALL: Final = 20  # A stratum with fewer records in the denominator is small
MANY: Final = 6
"""If more strata than this are small, they get exact intervals: the sum of Wilson's distances would be too small."""
EMPTY: Final = 0.75
"""Where no assessed record was in the denominator: the share that is assumed of it, by its upper bound."""
SHARED: Final = 2.5
"""From so many equal contributions to the variance, the interval is at least as wide as Wilson's at the effective n."""
_exact: Final = lru_cache(maxsize=4096)(clopper_pearson)  # small strata have the same few counts again and again


@dataclass(frozen=True, slots=True)
class Stratum:
    """The counts and scores of one stratum.

    Args:
        name: The name of the stratum.
        total: Calls in it, kept or not; if a late counter is below `assessed`, `assessed` is used.
        assessed: Records of which it is known whether they belong to the denominator of the metric.
        domain: Records that do belong to it.
        sum: Sum of their scores, each in [0, 1].
        squares: Sum of the squared scores; equal to `sum` where every score is 0 or 1.
        scores: The number of scores, possibly an effective number, behind `sum` and `squares`; None: equal to `domain`.
        unknown: Further records that may belong to the denominator, whose score is unknown for a reason that may depend
            on the score.
        estimated: Whether the calls were not counted: each assessed record stands for as many of them.
    """

    name: str
    total: float
    assessed: int
    domain: int
    sum: float
    squares: float
    scores: float | None = None
    unknown: int = 0
    estimated: bool = False

    def with_unknown_as(self, score: float) -> Stratum:
        """The stratum if every unknown score were this score, 0 or 1."""
        if not self.unknown:
            return self
        domain, more = self.domain + self.unknown, score * self.unknown
        scores = None if self.scores is None else self.scores + self.unknown
        assessed = self.assessed + self.unknown
        sums = self.sum + more, self.squares + more
        return Stratum(self.name, self.total, assessed, domain, *sums, scores, estimated=self.estimated)

    @property
    def calls(self) -> float:
        """Calls in it, at least the assessed ones."""
        return max(self.total, self.assessed)

    @property
    def counted(self) -> float:
        """The number of calls or records that tell how many calls it has."""
        return self.assessed if self.estimated else self.calls

    @property
    def population(self) -> float:
        """Calls in the denominator, estimated from the assessed records."""
        return self.calls * self.domain / self.assessed if self.assessed else 0.0

    @property
    def n(self) -> float:
        """The number of scores behind its mean."""
        return self.domain if self.scores is None else self.scores

    @property
    def hidden(self) -> float:
        """Calls that belong, or may belong, to the denominator, if no score of the stratum is known."""
        if not self.assessed:
            return self.total
        return 0.0 if self.n else self.population

    @property
    def mean(self) -> float:
        """Mean score of the records in the denominator; at least one score must be known."""
        return min(1.0, self.sum / self.n)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over all traffic.

    Attributes:
        value: The mean over the observed strata; None where no record is in the denominator.
        lower, upper: Bounds, whatever the scores of the unobserved strata are.
        n: Records in the denominator.
        n_eff: The size of an unweighted sample with the same precision for the observed strata; at most the scores.
        unobserved: Share of the weight in strata without a score. Where no record was assessed, all calls count as part
            of the denominator.
        population: Estimated calls in the denominator over the observed strata.
        missing: The names of the strata without a score, sorted.
        unknown: Share of the weight of the observed strata whose scores are unknown.
    """

    value: float | None
    lower: float
    upper: float
    n: int
    n_eff: float
    unobserved: float
    population: float
    missing: tuple[str, ...]
    unknown: float = 0.0


def post_stratified(strata: Iterable[Stratum], *, z: float = Z95) -> Estimate:
    """The mean over all traffic, with an interval that includes all uncertainty of the sample.

    The estimate; value None and bounds (0, 1) where no record is in the denominator.

    The mean of each stratum is weighted by its calls in the denominator. The interval adds up the squares of the
    distances of each stratum (Wilson's, or `graded`), of the uncertainty of the weights, and of what strata may contain
    in which no assessed record was in the denominator. A single stratum gives Wilson's interval. A stratum without a
    score could have any mean: its whole weight is uncertain. So is every unknown score: the lower bound takes it as 0,
    the upper bound as 1.

    The interval is for the process behind the traffic, not for the calls of this window: where every call is scored it
    is as wide as that of a simple random sample of that size. A stratum that cannot contain a record of the denominator
    (refused calls, where refused ones do not count) should be left out.

    Source: estimator and its variance: Cochran, Sampling Techniques, 3rd ed., 1977, chapter 5A (stratification after
    selection, means over subpopulations). Square-and-add: Newcombe, Stat. Med. 17 (1998), p. 873, and Zou and Donner,
    Stat. Med. 27 (2008), p. 1693. Strata not observed: the worst case, Manski, Am. Econ. Rev. 80 (1990), p. 319.

    >>> suspicious = Stratum("suspicious", total=1500, assessed=1500, domain=1500, sum=450, squares=450)
    >>> rest = Stratum("rest", total=8500, assessed=85, domain=85, sum=82, squares=82)
    >>> found = post_stratified([suspicious, rest])
    >>> [round(x, 3) for x in (found.value, found.lower, found.upper)]
    [0.865, 0.811, 0.886]
    """
    all_strata = tuple(strata)
    if any(s.unknown for s in all_strata):
        known = post_stratified((replace(s, unknown=0) for s in all_strata), z=z)
        at_worst = post_stratified((s.with_unknown_as(0.0) for s in all_strata), z=z)
        at_best = post_stratified((s.with_unknown_as(1.0) for s in all_strata), z=z)
        lower, upper = min(known.lower, at_worst.lower), max(known.upper, at_best.upper)
        return replace(known, lower=lower, upper=upper, unknown=(at_best.value or 0.0) - (at_worst.value or 0.0))
    observed = tuple(s for s in all_strata if s.n)
    unscored = tuple(s for s in all_strata if s.hidden)
    hidden, missing = math.fsum(s.hidden for s in unscored), tuple(sorted(s.name for s in unscored))
    population = math.fsum(s.population for s in observed)
    unobserved = hidden / (hidden + population) if hidden else 0.0
    if not observed:
        return Estimate(None, 0.0, 1.0, 0, 0.0, unobserved, 0.0, missing)
    mix = _Mix(observed, population, math.fsum(s.population * s.mean for s in observed) / population)
    # A stratum in which no assessed record was in the denominator has no weight in the value. Its share of the
    # denominator need not be zero, and at a low sampling rate that can be many calls: the share is taken as three
    # quarters of Wilson's upper bound for 0 of `assessed`.
    empty = [s.calls * EMPTY * z * z / (s.assessed + z * z) for s in all_strata if s.assessed and not s.domain]
    empty_share = math.fsum((n / (population + n)) ** 2 for n in empty)
    n_eff = mix.n_eff(z)
    lower, upper = mix.bounds(empty_share, n_eff, z)
    return Estimate(
        value=mix.value,
        lower=max(0.0, (1 - unobserved) * lower),
        upper=min(1.0, (1 - unobserved) * upper + unobserved),
        n=sum(s.domain for s in observed),
        n_eff=n_eff,
        unobserved=unobserved,
        population=population,
        missing=missing,
    )


def shifts(strata: Iterable[Stratum]) -> dict[str, tuple[float, float]]:
    """What the scores and the records of each stratum move the mean by.

    By name of an observed stratum, its weight; and what one more record in it adds to the mean, beside its score
    and relative to the weight of a score: its distance from the mean, times the root of the share of its variance
    that is left where calls are counted and the domain is known of the assessed records alone.
    """
    observed = [s for s in strata if s.n]
    population = math.fsum(s.population for s in observed)
    if not population:
        return {}
    mix = _Mix(tuple(observed), population, math.fsum(s.population * s.mean for s in observed) / population)
    return {s.name: (mix.share(s), (s.mean - mix.value) * math.sqrt(s.n * _weight_variance(s))) for s in observed}


def _weight_variance(stratum: Stratum) -> float:
    # Relative. A domain that is known only for the assessed records is an estimate, and the number of calls in a
    # stratum is random, too: another hour of the same traffic would have other totals.
    return (1 - stratum.domain / stratum.assessed) / stratum.domain + 1 / stratum.counted


@dataclass(frozen=True, slots=True)
class _Mix:
    """The strata with records in the denominator."""

    parts: tuple[Stratum, ...]
    population: float
    value: float

    def share(self, stratum: Stratum) -> float:
        return stratum.population / self.population

    def bounds(self, empty: float, n_eff: float, z: float) -> tuple[float, float]:
        # Every source of error adds its squared distance, downwards and upwards.
        exact = sum(s.n < SMALL for s in self.parts) > MANY
        down, up = [empty * self.value**2], [empty * (1 - self.value) ** 2]
        for s in self.parts:
            is_exact = exact and s.n < SMALL
            lower, upper = _exact(s.sum, s.n, z) if is_exact else graded(s.n, s.sum, s.squares, z)
            weight, (domain_down, domain_up, weight_error) = self.share(s), self.domain_error(s, z)
            below, above = s.mean - lower, upper - s.mean
            # The weight and the mean of the stratum may both be wrong, which adds the product of their errors (the
            # variance of a product: Goodman, J. Am. Stat. Assoc. 55 (1960), p. 708).
            down += [(weight * below) ** 2, domain_down**2, (weight_error * below) ** 2]
            up += [(weight * above) ** 2, domain_up**2, (weight_error * above) ** 2]
            totals = (z * weight * (s.mean - self.value)) ** 2 / s.counted
            down.append(totals)
            up.append(totals)
        bounds = self.value - math.sqrt(math.fsum(down)), self.value + math.sqrt(math.fsum(up))
        if self.sharing() < SHARED:
            return bounds
        squares = math.fsum(self.share(s) * s.squares / s.n for s in self.parts)
        pooled = graded(n_eff, n_eff * self.value, n_eff * squares, z)
        return min(bounds[0], pooled[0]), max(bounds[1], pooled[1])

    def domain_error(self, stratum: Stratum, z: float) -> tuple[float, float, float]:
        # What a domain known only on the assessed records leaves open: how far the mean of all strata may lie below and
        # above, for another weight of this stratum, and how far the weight itself may be off. The share of a few
        # records has a skew distribution: the bounds are those of Wilson's interval for it, and the linearised error is
        # the least they may give.
        rest = self.population - stratum.population
        if stratum.domain >= stratum.assessed or rest <= 0:
            return 0.0, 0.0, 0.0
        weight, distance = self.share(stratum), stratum.mean - self.value
        sizes = (stratum.calls * bound for bound in wilson(stratum.domain, stratum.assessed, z))
        changes = [size / (rest + size) - weight for size in sizes]
        moves = [change * distance / (1 - weight) for change in changes]
        linear = z * weight * abs(distance) * math.sqrt((1 - stratum.domain / stratum.assessed) / stratum.domain)
        return max(linear, -min(moves)), max(linear, *moves), max(map(abs, changes))

    def n_eff(self, z: float) -> float:
        # The size of an unweighted sample with this variance. Both variances are computed with z²/2 scores of 0 and of
        # 1 added to each stratum (Agresti and Coull, Am. Stat. 52 (1998), p. 119): if the few records of a stratum
        # agree, its variance is still not zero.
        n = math.fsum(s.n for s in self.parts)
        if self.value in (0.0, 1.0):
            return 1 / math.fsum(self.share(s) ** 2 / s.n for s in self.parts)  # Kish
        from_weights = ((self.share(s) * (s.mean - self.value)) ** 2 * _weight_variance(s) for s in self.parts)
        spread, variance = [], [math.fsum(from_weights)]
        for s in self.parts:
            weight, more = self.share(s), s.n + z * z
            within = (s.squares + z * z / 2) / more - ((s.sum + z * z / 2) / more) ** 2
            spread.append(weight * (within + (s.mean - self.value) ** 2))
            variance.append(weight**2 * within / s.n)
        return min(n, math.fsum(spread) / math.fsum(variance))

    def sharing(self) -> float:
        # The number of strata that the variance comes from, as a number of equal contributions.
        terms = [self.share(s) ** 2 / s.n for s in self.parts]
        return math.fsum(terms) ** 2 / math.fsum(term * term for term in terms)
