"""Tests that stay valid however often one looks: evidence gathered by betting, computed from counts alone.

To test "the mean is at most m", stake a share d of a wealth on every observation: a score x turns the wealth w into
(1 - d + d x / m) w. If the hypothesis is true the odds are fair or worse, so the wealth is not expected to grow, and it
ever reaches k times the start with probability at most 1/k (Ville's inequality). So the wealth is evidence against the
hypothesis, an e-value, and it may be read after every observation. For a fixed mixture of shares d it depends on how
often each score occurred and not on the order: it is a pure function of counts, the same live, in a replay and after a
merge.

Scores lie in [0, 1] and are given as counts by score. The logarithm of the wealth is concave in a score, so replacing
scores by others with the same sum, spread further apart, never gives more evidence: `shares` makes ones and zeros of
graded scores of which only the sum is known, `coarse` makes few different scores of many.

Given all earlier observations, each observation must have the mean in question, as independent draws do. Requests that
fail together are no such draws, and neither is the beginning of a run through a list.

Source: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, J. R. Stat. Soc. B 86 (2024),
p. 1, arXiv 2010.09686.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from ragmon.core.errors import RagmonError

Scores = Mapping[float, float]  # how often each score occurs
Seen = Sequence[tuple[float, float]]  # the same as checked pairs of score and count, without counts of 0

ALPHA: Final = 0.05  # probability of ever giving a wrong verdict, both sides together
BETS: Final = (0.003, 0.01, 0.025, 0.05, 0.10, 0.175, 0.275, 0.40, 0.60, 0.80, 0.95)
"""Shares of the wealth that are staked; the initial wealth is divided equally among them.

A share d is best where the share of bad scores is smaller by a fraction d than the gate allows (for the other side, the
share of good scores): small d for many observations of a small change, large d for a flawless run.
"""
HALVINGS: Final = 50  # bisection steps of the unit interval, down to the precision of floating point
MAX_NEEDED: Final = 1 << 40  # the most observations `needed` returns; beyond it the result is None
MARKS: Final = 200  # equal parts of the unit interval; many different scores are moved to their ends


def shares(total: float, n: float) -> dict[float, float]:
    """Counts of ones and zeros with a given sum: exact for scores of 0 and 1, cautious for graded scores.

    >>> shares(8, 10)
    {1.0: 8, 0.0: 2}
    """
    return {1.0: total, 0.0: n - total}


def coarse(scores: Scores, marks: int = MARKS) -> Scores:
    """Scores rounded to marks, with the same sum: the count of a score between two marks is split between them.

    The wealth takes time for every different score, and the means of measured scores are all different.
    """
    if len(scores) <= marks:
        return scores
    counts = [0.0] * (marks + 2)
    for x, count in scores.items():
        below = math.floor(x * marks)
        above = x * marks - below
        counts[below] += count * (1 - above)
        counts[below + 1] += count * above
    return {mark / marks: count for mark, count in enumerate(counts) if count}


def log_above(scores: Scores, mean: float) -> float:
    """Evidence that the mean lies above a value: the logarithm of an e-value against "at most this value".

    0 without observations; infinite where a single score refutes "at most 0".
    """
    return wealth(checked(scores), checked_share("mean", mean))[0]


def log_below(scores: Scores, mean: float) -> float:
    """Evidence that the mean lies below a value: the logarithm of an e-value against "at least this value".

    0 without observations; infinite where a single score refutes "at least 1".
    """
    return wealth(mirrored(checked(scores)), 1 - checked_share("mean", mean))[0]


def verdict(scores: Scores, threshold: float, *, at_least: bool = True) -> Literal["pass", "fail"] | None:
    """Whether it is proven that the mean keeps or breaks a gate.

    `pass` or `fail`; None as long as neither is proven.
    """
    seen, bar = checked(scores), math.log(2 / ALPHA)
    if not at_least:
        seen, threshold = mirrored(seen), 1 - checked_share("threshold", threshold)
    if seen and threshold <= 0:
        return "pass"
    if wealth(seen, checked_share("threshold", threshold))[0] >= bar:
        return "pass"
    return "fail" if wealth(mirrored(seen), 1 - threshold)[0] >= bar else None


def confidence_sequence(scores: Scores, alpha: float = ALPHA) -> tuple[float, float]:
    """Bounds on the mean: over all looks together they contain it with probability 1 - alpha.

    Lower and upper bound, rounded outwards; (0, 1) without observations.
    """
    bar, seen = math.log(2 / alpha), checked(scores)
    return _lower_bound(seen, bar), 1 - _lower_bound(mirrored(seen), bar)


def needed(scores: Scores, threshold: float) -> int | None:
    """How many observations like these prove on which side of a gate their mean lies.

    The number; None where no number is enough, because the mean is too close to the gate for any bet to grow.
    """
    seen, gate = checked(scores), checked_share("threshold", threshold)
    n = sum(count for _, count in seen)
    sides = (seen, gate), (mirrored(seen), 1 - gate)
    growths = [[log / n for log, _ in _bets(scored, mean)] for scored, mean in sides if n]

    def decides(times: int) -> bool:
        return any(log_mean_exp([times * growth for growth in side]) >= math.log(2 / ALPHA) for side in growths)

    enough = 1
    while not decides(enough):
        enough *= 2
        if enough > MAX_NEEDED:
            return None
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if decides(middle) else (middle, enough)
    return enough


def checked(scores: Scores) -> Seen:
    """Valid scores as pairs of score and count."""
    for x, count in scores.items():
        checked_share("score", x)
        if not count >= 0:
            raise RagmonError(f"score {x!r} occurs {count!r} times", hint="counts are 0 or more")
    return [(x, count) for x, count in scores.items() if count]


def mirrored(seen: Seen) -> Seen:
    """The scores subtracted from 1: good scores become bad."""
    return [(1 - x, count) for x, count in seen]


def wealth(seen: Seen, mean: float) -> tuple[float, float]:
    """The logarithm of the wealth from bets that the mean is above a value, and its slope in that value."""
    bets = _bets(seen, mean)
    total = log_mean_exp([log for log, _ in bets])
    if math.isinf(total):
        return total, -math.inf
    slope = sum(math.exp(log - total) * slope for log, slope in bets) / len(bets)
    return total, slope / mean if slope else 0.0


def log_mean_exp(logs: Sequence[float]) -> float:
    """The logarithm of the mean of numbers that are given by their logarithms."""
    largest = max(logs)
    return largest if math.isinf(largest) else largest + math.log(sum(math.exp(x - largest) for x in logs) / len(logs))


def _bets(seen: Seen, mean: float) -> list[tuple[float, float]]:
    # For each bet the logarithm of the wealth, and its slope in the logarithm of the value.
    if mean <= 0 and any(x > 0 for x, _ in seen):
        return [(math.inf, -math.inf)] * len(BETS)
    bets = []
    for d in BETS:
        log = slope = 0.0
        for x, count in seen:
            payout = d * x / mean if x else 0.0
            log += count * math.log(1 - d + payout)
            slope -= count * payout / (1 - d + payout)
        bets.append((log, slope))
    return bets


def _lower_bound(seen: Seen, bar: float) -> float:
    # The value up to which every mean is refuted: evidence for "above m" falls as m rises.
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if wealth(seen, middle)[0] >= bar else (low, middle)
    return low


def checked_share(name: str, value: float) -> float:
    """The value, if it is a share."""
    if not 0 <= value <= 1:
        raise RagmonError(f"{name} {value!r} lies outside [0, 1]", hint="0.80 is 80 %")
    return value


# --- how far a mean fell: the tests of the next section, turned round ----------------------------------------------

# A drop lies below a value if it is proven that the mean fell by less. So a bound excludes what the test at the same
# error probability excludes, and holds however often one looks.

DROP_HALVINGS: Final = 12  # halvings of the range from -1 to 1: bounds are exact to 1/2048, on the safe side


def at_most(a: Scores, b: Scores, alpha: float) -> float:
    """An upper bound on the drop from one sample to another, independent one."""
    return _least(lambda margin: log_worse(b, a, -margin) >= -math.log(alpha))


def pairs_at_most(pairs: Pairs, alone: Unpaired, alpha: float) -> float:
    """An upper bound on the drop between two runs over items."""
    reverse = backwards(pairs), Unpaired(alone.now, alone.then)

    def proven(margin: float) -> bool:
        if margin <= 0:
            return worse(*reverse, alpha, by=-margin)
        return not_worse(pairs, margin, alone, alpha)

    return _least(proven)


def _least(proven: Callable[[float], bool]) -> float:
    # The least margin that a drop is proven to be below, or 1.
    low, high = -1.0, 1.0
    for _ in range(DROP_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if proven(middle) else (middle, high)
    return high


# --- two independent samples ---------------------------------------------------------------------------------------

# At the true mean of the first sample, evidence about it and evidence about the second are e-values, and so is their
# product, because the samples are independent. That mean is unknown: the least product over all possible means counts.
# Samples that rise and fall together, such as two runs over the same questions, only make it more cautious.


def log_worse(a: Scores, b: Scores, by: float = 0.0) -> float:
    """Evidence that the mean of b lies below that of a: the logarithm of an e-value against "at least as high"."""
    return _least_evidence(checked(a), mirrored(checked(b)), 1.0 + by)


def log_not_worse(a: Scores, b: Scores, margin: float) -> float:
    """Evidence that the mean of b lies above that of a minus a margin: against "lower by the margin or more"."""
    return _least_evidence(checked(b), mirrored(checked(a)), 1 - checked_margin(margin))


def checked_margin(margin: float) -> float:
    """Return a margin if it is in [0, 1)."""
    if not 0 <= margin < 1:
        raise RagmonError(
            f"margin {margin!r} is not a difference of shares", hint="from 0 to below 1: 0.02 is 2 points"
        )
    return margin


def _least_evidence(first: Seen, second: Seen, width: float) -> float:
    # The least evidence, over all q, that one mean lies above q and another above `width - q`; both are in [0, 1].
    #
    # The logarithm of `1 - d + d x / q` is `log((1 - d) q + d x) - log(q)`, whose second derivative in q is never
    # negative; mixtures and sums of such functions are convex as well. So the slope finds the only minimum, and a
    # tangent bounds the rounding error.
    low, high = max(0.0, width - 1), min(1.0, width)
    bound = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        (log_first, slope_first), (log_second, slope_second) = wealth(first, middle), wealth(second, width - middle)
        slope = slope_first - slope_second
        bound = log_first + log_second - abs(slope) * (high - low)
        low, high = (middle, high) if slope < 0 else (low, middle)
    return bound


# --- the same items answered twice ----------------------------------------------------------------------------------

# A metric has its own denominator: an item may be in it in the first run, in the second, in both or in neither (a
# precision counts only what was answered). The means compared are those over the items each run happened to answer, so
# an item that was answered in only one run counts too, by its distance from the earlier mean. That mean is known up to
# a confidence sequence, and the least evidence over it counts. Where both runs answered, only the difference of the two
# scores matters: of scores of 0 and 1 the flips; equal scores have no effect.
#
# Items that only one of the runs was asked are two independent samples; their evidence and that of the pairs are
# averaged, which gives evidence again. Two runs over the same items are no independent samples, because the item
# influences both scores. The tests stay valid while items are added, or asked again in rounds.
#
# Source: bets on the differences of an item's scores; a nuisance parameter by a union of errors, as in Berger and Boos,
# J. Am. Stat. Assoc. 89 (1994), p. 1012.

Pairs = Mapping[tuple[float | None, float | None], float]
"""Number of items by their scores in [0, 1] in the first and second run; None: the item was not in the denominator."""
MEAN_ALPHA_SHARE: Final = 0.1
"""Part of the error probability that is spent on the confidence sequence of the earlier mean."""
PAIR_WEIGHT: Final = 0.75
"""Weight of the evidence in pairs; the rest is the weight of items that only one run was asked."""


class Unpaired(NamedTuple):
    """Scores of the items that only one of the runs was asked: the first run (`then`) or the second (`now`)."""

    then: Scores
    now: Scores


_NONE: Final = Unpaired({}, {})


def backwards(pairs: Pairs) -> Pairs:
    """The pairs with the second run as the first."""
    return {(after, before): count for (before, after), count in pairs.items()}


def worse(pairs: Pairs, alone: Unpaired = _NONE, alpha: float = ALPHA / 2, *, by: float = 0.0) -> bool:
    """Whether it is proven that the mean fell."""
    in_pairs = _evidence(pairs, _earlier_mean(pairs, alone, alpha), by, falls=True)
    return _is_proven(in_pairs, log_worse(*alone, by), alpha)


def not_worse(pairs: Pairs, margin: float, alone: Unpaired = _NONE, alpha: float = ALPHA / 2) -> bool:
    """Whether it is proven that the mean fell by less than a margin."""
    lower, upper = _earlier_mean(pairs, alone, alpha)
    # A mean below the margin cannot fall by the margin.
    means = max(lower, checked_margin(margin)), max(upper, margin)
    return _is_proven(_evidence(pairs, means, margin, falls=False), log_not_worse(*alone, margin), alpha)


def _earlier_mean(pairs: Pairs, alone: Unpaired, alpha: float) -> tuple[float, float]:
    earlier = dict(alone.then)
    for (before, _), count in pairs.items():
        if before is not None:
            earlier[before] = earlier.get(before, 0) + count
    return confidence_sequence(earlier, MEAN_ALPHA_SHARE * alpha)


def _is_proven(in_pairs: float, in_others: float, alpha: float) -> bool:
    weighted = math.log(2 * PAIR_WEIGHT) + in_pairs, math.log(2 - 2 * PAIR_WEIGHT) + in_others
    return log_mean_exp(weighted) >= -math.log((1 - MEAN_ALPHA_SHARE) * alpha)


def _evidence(pairs: Pairs, means: tuple[float, float], margin: float, *, falls: bool) -> float:
    # The logarithm of the least evidence over all earlier means between two bounds. For a fixed stake it is concave in
    # that mean, so it is least at one of the bounds.
    def log_wealth(stake: float, mean: float) -> float:
        total = 0.0
        for (before, after), count in pairs.items():
            # The second score minus the mean that is allowed, minus the first score's distance from the earlier mean.
            rise = (0.0 if after is None else after - mean + margin) - (0.0 if before is None else before - mean)
            total += count * math.log1p(stake * rise)
        return total

    stakes = (-d / (1 + margin) if falls else d / (1 - margin) for d in BETS)
    return log_mean_exp([min(log_wealth(stake, mean) for mean in means) for stake in stakes])
