"""Labels and proxies of strata put together into a mean over all traffic; the standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ragmon.stats.intervals import Z95
from ragmon.stats.prediction import Predicted, Sums, alike, predicted
from ragmon.stats.strata import Stratum, post_stratified


@dataclass(frozen=True, slots=True)
class Part:
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


def stratified(parts: Iterable[Part], *, z: float = Z95) -> Stratified:
    """The mean over all traffic of the labels all records would have: `predicted` within strata, weighed as there.

    In a stratum with fewer than 20 labels they speak alone. A stratum without a label may hold anything, whatever its
    proxies say: it counts as unobserved in `post_stratified`. Without proxies this is `post_stratified` of the labels.

    Args:
        parts: All of the traffic, each call in one stratum; the order does not matter.
        z: Normal quantile of the level.

    Raises:
        RagmonError: The numbers of a stratum contradict each other.

    >>> judge = Sums.of_label(1_000_000, 900_000) + Sums.of_record(900_000)
    >>> found = stratified([Part("rest", 800, 1, judge), Part("slow", 200, 0, Sums())])
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


def _stratum(part: Part, sums: Sums, z: float) -> Stratum:
    """A stratum whose domain is that of the part and whose scores are these labels, with as many as they are worth."""
    domain = max(part.sums.records, part.sums.labels)
    if not sums.labels:
        return Stratum(part.name, part.total, part.assessed, domain, 0.0, 0.0, 0.0)
    sample = alike(sums, z=z)
    return Stratum(part.name, part.total, part.assessed, domain, sample.total, sample.squares, sample.n)
