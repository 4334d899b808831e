"""Verdicts that hold however often one looks: evidence gathered by betting, from counts alone.

Whoever doubts that a mean is at most m stakes a share d of his wealth on every observation, at odds that are fair or
worse if it is: a score x turns his wealth w into (1 - d + d x / m) w. Then his wealth is not expected to grow, and
it ever reaches k times the start with probability 1/k at most (Ville's inequality). So wealth is evidence, and it may
be looked at after every observation. For a fixed mixture of shares it depends on how often each score occurred and
not on the order: it is a pure function of counts, the same live, in a replay and after a merge.

Scores lie in [0, 1] and come as how often each occurs. The logarithm of the wealth is concave in a score, so scores
that are taken apart into others of the same sum never give more evidence than they would themselves: `shares` makes
ones and zeros of graded scores whose sum alone is known, `coarse` makes few scores of many.

Each observation must have the mean in question whatever came before it: independent draws do. Requests that share their
fate are no such draws, and neither is the beginning of a run through a list: `ragmon.gates.releases` says what it
counts.

Source: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, J. R. Stat. Soc. B 86 (2024),
p. 1, arXiv 2010.09686.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from ragmon.core.errors import RagmonError

Scores = Mapping[float, float]
"""How often each score occurs."""
Seen = Sequence[tuple[float, float]]
"""The same as pairs, checked, without those that never occur."""

ALPHA: Final = 0.05
"""Chance of ever giving a wrong verdict, both sides together."""
BETS: Final = (0.003, 0.01, 0.025, 0.05, 0.10, 0.175, 0.275, 0.40, 0.60, 0.80, 0.95)
"""Shares of the wealth that are staked, side by side in equal parts.

d does best where the share of bad scores lies a fraction d below what the gate allows (for the other side: of good
ones): small ones for a long look at a small change, large ones for a flawless run.
"""
HALVINGS: Final = 50
"""Of the unit interval, down to what floating point can tell apart."""
MOST: Final = 1 << 40
"""More observations than this are no answer to how many it takes."""
MARKS: Final = 200
"""Equal parts of the unit interval whose ends many different scores are moved to."""


def shares(total: float, n: float) -> dict[float, float]:
    """Counts of ones and zeros with a given sum: exact for shares, cautious for graded scores.

    Args:
        total: Sum of the scores, between 0 and n.
        n: Number of observations.

    >>> shares(8, 10)
    {1.0: 8, 0.0: 2}
    """
    return {1.0: total, 0.0: n - total}


def coarse(scores: Scores, marks: int = MARKS) -> Scores:
    """Scores at marks, with the same sum: one between two marks counts in parts as either.

    What bets come to takes time for every different score, and means of measured scores are all different.

    Args:
        scores: How often each occurs; as many as there are marks, or fewer, stay as they are.
        marks: How many parts the unit interval has.

    >>> coarse({0.125: 1, 0.5: 2, 0.875: 1}, marks=2)
    {0.0: 0.75, 0.5: 2.5, 1.0: 0.75}
    """
    if len(scores) <= marks:
        return scores
    held = [0.0] * (marks + 2)
    for x, count in scores.items():
        below = math.floor(x * marks)
        above = x * marks - below
        held[below] += count * (1 - above)
        held[below + 1] += count * above
    return {place / marks: count for place, count in enumerate(held) if count}


def log_above(scores: Scores, mean: float) -> float:
    """Evidence that the mean lies above a value: the logarithm of an e-value against "at most so much".

    Args:
        scores: What was seen.
        mean: The value, in [0, 1].

    Returns:
        0 without observations; infinite where a score refutes "at most 0" all by itself.

    Raises:
        RagmonError: The value or a score lies outside [0, 1], or a count is negative.

    >>> round(log_above(shares(95, 100), 0.80), 2)
    7.38
    """
    return wealth(checked(scores), _share("mean", mean))[0]


def log_below(scores: Scores, mean: float) -> float:
    """Evidence that the mean lies below a value: the logarithm of an e-value against "at least so much".

    Args:
        scores: What was seen.
        mean: The value, in [0, 1].

    Returns:
        0 without observations; infinite where a score refutes "at least 1" all by itself.

    Raises:
        RagmonError: The value or a score lies outside [0, 1], or a count is negative.

    >>> round(log_below(shares(60, 100), 0.80), 2)
    8.45
    """
    return wealth(mirrored(checked(scores)), 1 - _share("mean", mean))[0]


def verdict(
    scores: Scores, threshold: float, *, at_least: bool = True, alpha: float = ALPHA
) -> Literal["pass", "fail"] | None:
    """Whether a gate is proven kept or broken.

    Args:
        scores: What was seen.
        threshold: The gate, in [0, 1].
        at_least: True for a floor, False for a ceiling.
        alpha: Chance that one of all verdicts ever asked for is wrong; half of it for a mean off the gate.

    Returns:
        None as long as neither is proven.

    >>> verdict(shares(60, 100), 0.80), verdict(shares(85, 100), 0.80), verdict(shares(95, 100), 0.80)
    ('fail', None, 'pass')
    """
    seen, bar = checked(scores), math.log(2 / alpha)
    if not at_least:
        seen, threshold = mirrored(seen), 1 - _share("threshold", threshold)
    if seen and threshold <= 0:
        return "pass"
    if wealth(seen, _share("threshold", threshold))[0] >= bar:
        return "pass"
    return "fail" if wealth(mirrored(seen), 1 - threshold)[0] >= bar else None


def confidence_sequence(scores: Scores, alpha: float = ALPHA) -> tuple[float, float]:
    """The means that are not refuted: over all looks together they hold the true one with probability 1 - alpha.

    Args:
        scores: What was seen.
        alpha: Chance of ever missing the mean.

    Returns:
        Lower and upper bound, rounded outwards; (0, 1) without observations.

    >>> [round(x, 3) for x in confidence_sequence(shares(80, 100))]
    [0.649, 0.909]
    """
    bar, seen = math.log(2 / alpha), checked(scores)
    return _refuted_up_to(seen, bar), 1 - _refuted_up_to(mirrored(seen), bar)


def needed(scores: Scores, threshold: float, alpha: float = ALPHA) -> int | None:
    """How many observations like these prove on which side of a gate their mean lies.

    Args:
        scores: What was seen, taken to stay as it is; `{1.0: 1}` is a flawless run.
        threshold: The gate, in [0, 1].
        alpha: Chance of a wrong verdict, both sides together.

    Returns:
        The n; None where no number is enough, because the mean is too close to the gate for any bet to grow.

    >>> needed({1.0: 1}, 0.80), needed({0.0: 1}, 0.05), needed(shares(86, 100), 0.80), needed(shares(8, 10), 0.80)
    (27, 115, 446, None)
    """
    seen, gate = checked(scores), _share("threshold", threshold)
    n = sum(count for _, count in seen)
    sides = (seen, gate), (mirrored(seen), 1 - gate)
    growths = [[log / n for log, _ in _bets(scored, mean)] for scored, mean in sides if n]

    def decides(times: int) -> bool:
        return any(log_mean_exp([times * growth for growth in side]) >= math.log(2 / alpha) for side in growths)

    enough = 1
    while not decides(enough):
        enough *= 2
        if enough > MOST:
            return None
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if decides(middle) else (middle, enough)
    return enough


def checked(scores: Scores) -> Seen:
    """Scores that are some, as pairs.

    Raises:
        RagmonError: A score lies outside [0, 1], or a count is negative.
    """
    for x, count in scores.items():
        _share("score", x)
        if not count >= 0:
            raise RagmonError(f"score {x!r} occurs {count!r} times", hint="counts are 0 or more")
    return [(x, count) for x, count in scores.items() if count]


def mirrored(seen: Seen) -> Seen:
    """The scores from the other side: what was good is bad."""
    return [(1 - x, count) for x, count in seen]


def wealth(seen: Seen, mean: float) -> tuple[float, float]:
    """The logarithm of the wealth of those who bet on a mean above a value, and its slope in that value.

    Args:
        seen: What was seen.
        mean: The value, in [0, 1].
    """
    bets = _bets(seen, mean)
    total = log_mean_exp([log for log, _ in bets])
    if math.isinf(total):
        return total, -math.inf
    slope = sum(math.exp(log - total) * slope for log, slope in bets) / len(bets)
    return total, slope / mean if slope else 0.0


def log_mean_exp(logs: Sequence[float]) -> float:
    """The logarithm of the mean of numbers whose logarithms are given.

    >>> round(log_mean_exp([1000.0, 0.0]), 3)
    999.307
    """
    most = max(logs)
    return most if math.isinf(most) else most + math.log(sum(math.exp(x - most) for x in logs) / len(logs))


def _bets(seen: Seen, mean: float) -> list[tuple[float, float]]:
    """Per bet, the logarithm of the wealth, and its slope in the logarithm of the value."""
    if mean <= 0 and any(x > 0 for x, _ in seen):
        return [(math.inf, -math.inf)] * len(BETS)
    found = []
    for d in BETS:
        log = slope = 0.0
        for x, count in seen:
            paid = d * x / mean if x else 0.0
            log += count * math.log(1 - d + paid)
            slope -= count * paid / (1 - d + paid)
        found.append((log, slope))
    return found


def _refuted_up_to(seen: Seen, bar: float) -> float:
    """The value up to which every mean is refuted: evidence for "above m" falls as m rises."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if wealth(seen, middle)[0] >= bar else (low, middle)
    return low


def _share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise RagmonError(f"{name} {value!r} lies outside [0, 1]", hint="0.80 is 80 %")
    return value
