"""The design effect of clustered observations, from sums over random groups of clusters.

Requests of a conversation, or with the same question, share their fate: a hundred of them tell less than a hundred
independent requests. Every cluster falls into one of 64 random groups, and how much the sums of the groups vary tells
how much less. Sums of groups add up over rows, replicas and processes; a table of clusters would not stay bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from ragmon.stats.intervals import Z95, beta_quantile

GROUPS: Final = 64
"""Random groups. With 32, requests that are all alone would look clustered in 1 of 100 windows instead of 1 of
2,000 (χ² of 31 and of 63 degrees of freedom, beyond `ALONE` times its mean)."""
ALONE: Final = 1.7  # up to this mean size of a cluster (weighted by size) requests count as independent
PRIOR: Final = 3.0  # degrees of freedom that a correlation of 1 within clusters has before anything was seen


@dataclass(frozen=True, slots=True)
class GroupedSample:
    """A sample of one stratum, with its sums by group.

    Attributes:
        weight: The weight of the stratum in the mean; 1 for a sample without strata.
        n: Scores.
        total: Their sum.
        squares: The sum of their squares.
        counts: The scores of each group; records without a cluster are in none.
        totals: The sums of the scores of each group.
        shift: What one more record in the stratum moves the mean by, in units of the weight of a score: its distance
            from the mean of all strata, times the share of its uncertainty that is left.
    """

    weight: float
    n: float
    total: float
    squares: float
    counts: Sequence[int] = ()
    totals: Sequence[float] = ()
    shift: float = 0.0

    @property
    def mean(self) -> float:
        """The mean score."""
        return self.total / self.n

    @property
    def spread(self) -> float:
        """The variance of a score, with z²/2 scores of 0 and of 1 added: where all agree it is still not zero."""
        more = Z95 * Z95
        return (self.squares + more / 2) / (self.n + more) - ((self.total + more / 2) / (self.n + more)) ** 2


class DesignEffect(NamedTuple):
    """How much clusters widen an interval.

    Attributes:
        ratio: The variance of the mean, relative to that of as many independent scores; at least 1.
        df: Degrees of freedom of the estimate of the variance; infinite where the ratio is 1.
    """

    ratio: float = 1.0
    df: float = math.inf

    @property
    def z(self) -> float:
        """The quantile that gives the 95 % interval of n / ratio scores when it is put into a formula with n."""
        return student_quantile(self.df) * math.sqrt(self.ratio) if self.ratio > 1 else Z95


NONE: Final = DesignEffect()


def design_effect(strata: Iterable[GroupedSample]) -> DesignEffect:
    """The design effect of a mean, or of a weighted mean of strata.

    The linearised residuals (score minus mean of its stratum, plus what the size of the stratum moves) are summed by
    group. Their variance between groups, relative to the variance of independent scores, is the estimate; it lies
    between 1 and what a correlation of 1 within clusters would give. The less it rests on (few groups, or few that hold
    both a high and a low score), the nearer it is put to the upper limit: five sessions without an error say nothing of
    how errors cluster. Where hardly any two scores share a cluster, the effect is 1.

    Args:
        strata: The samples; those without a score are left out.

    Source: linearisation of a ratio and the dependent random groups of clusters: Wolter, Introduction to Variance
    Estimation, 2nd ed., 2007, sections 2.4 and 6.3. Effective size: Kish, Survey Sampling, 1965, section 8.2. Degrees
    of freedom: Satterthwaite, Biometrics Bull. 2 (1946), p. 110.
    """
    parts = [sample for sample in strata if sample.n and sample.weight]
    if not any(part.counts for part in parts):
        return NONE
    independent = [_Part(part) for part in parts]
    spread = math.fsum(part.spread * part.sample.n for part in independent)
    if spread <= 0:
        return NONE
    alone = math.fsum(part.spread * part.alone for part in independent)
    largest = (_between(part.deviations() for part in independent) + alone) / spread
    if largest <= ALONE:
        return NONE
    variance = math.fsum(part.variance * part.sample.n for part in independent)
    by_group = [math.fsum(column) for column in zip(*(part.expected() for part in independent), strict=True)]
    df = max(1.0, spread * spread / math.fsum(x * x for x in by_group) - 1)
    evidence = min(df, math.fsum(part.spread * part.sample.n * part.mixed for part in independent) / spread)
    ratio = largest
    if variance > 0:
        alone = math.fsum(part.variance * part.alone for part in independent)
        # m groups underrate the variance around their own mean by m / (m - 1), beside that of all groups.
        occupied = sum(x > 0 for x in by_group)
        few_groups = occupied / max(1, occupied - 1) * (GROUPS - 1) / GROUPS
        ratio = (few_groups * _between(part.residuals() for part in independent) + alone) / variance
    ratio = (evidence * ratio + PRIOR * largest) / (evidence + PRIOR)
    return DesignEffect(min(ratio, largest), df) if ratio > 1 else NONE


class _Part:
    """A stratum's contributions to the variance.

    Attributes:
        sample: The sample.
        scale: The weight of one score.
        variance: What one independent score adds to the variance of the mean.
        spread: The same, with the smoothed variance of a score.
    """

    def __init__(self, sample: GroupedSample) -> None:
        self.sample = sample
        self.scale = sample.weight / sample.n
        moved = sample.shift * sample.shift
        within = max(0.0, sample.squares / sample.n - sample.mean * sample.mean)
        self.variance = self.scale * self.scale * (within + moved)
        self.spread = self.scale * self.scale * (sample.spread + moved)

    def residuals(self) -> list[float]:
        # The sum of the linearised residuals of each group.
        mean = self.sample.mean - self.sample.shift
        pairs = zip(self.sample.counts, self.sample.totals, strict=True)
        return [self.scale * (total - mean * n) for n, total in pairs] or [0.0] * GROUPS

    def deviations(self) -> list[float]:
        # The same, if all scores of a cluster deviated alike.
        deviation = math.sqrt(self.spread)
        return [deviation * n for n in self.sample.counts] or [0.0] * GROUPS

    def expected(self) -> list[float]:
        # The variance of each group, if scores were independent.
        return [self.spread * n for n in self.sample.counts] or [0.0] * GROUPS

    @property
    def alone(self) -> float:
        return self.sample.n - sum(self.sample.counts)

    @property
    def mixed(self) -> int:
        # In how many groups the rarer kind of score, below 1 or above 0, occurs: what tells how it clusters.
        pairs = list(zip(self.sample.counts, self.sample.totals, strict=True))
        return min(sum(total < n for n, total in pairs), sum(total > 0 for _, total in pairs))


def _between(columns: Iterable[Sequence[float]]) -> float:
    # The squared distances of the groups from their mean; a column has what each group holds of a stratum.
    strata = list(columns)
    sums = strata[0] if len(strata) == 1 else [math.fsum(column) for column in zip(*strata, strict=True)]
    mean = math.fsum(sums) / GROUPS
    return math.fsum((x - mean) ** 2 for x in sums) * GROUPS / (GROUPS - 1)


@lru_cache(4096)
def student_quantile(df: float) -> float:
    """The 97.5 % quantile of Student's t.

    Args:
        df: Degrees of freedom, at least 1; need not be an integer.

    Source: NIST Digital Library of Mathematical Functions (DLMF), 8.17: the tail of t is an incomplete beta function of
    df / (df + t²).
    """
    x = beta_quantile(0.05, df / 2, 0.5)
    return math.sqrt(df * (1 - x) / x)
