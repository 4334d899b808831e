"""The observations that an alarm rests on: since when, how many, and their mean.

The detector sums its evidence over all starting times and names none of them. Beside it, every size of a drop is
followed by one bet that starts again when it has lost what it won (Page, Biometrika 41 (1954)). The bet that won most
names the stretch. Its mean lies below the level, as the alarm says: what a bet gains on it, the sum of
`log(1 + bet * (level - x))`, is above 0, and it is never more than `bet` times the sum of `level - x`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from ragmon.alarms.observations import Observations
from ragmon.alarms.plan import AlarmRule, duration
from ragmon.core import constants

_MINUTE: Final = 60.0
_MOST_DECIMALS: Final = 12


class Stretch(msgspec.Struct, array_like=True):
    """The steps since one bet started.

    Attributes:
        begin: The minute of the first step.
        n, total: The observations of these steps and the sum of their scores.
        gain: The logarithm of what the bet made of its stake.
    """

    begin: int
    n: int = 0
    total: float = 0.0
    gain: float = 0.0


class Proof(msgspec.Struct, frozen=True):
    """The stretch that an alarm fired for; oriented so that less is worse, as the detector sees it.

    Attributes:
        begin, end: Its first and its last minute.
        n, total: The observations and the sum of their scores.
        level: What the alarm compared their mean with; the mean is lower.
    """

    begin: int
    end: int
    n: int
    total: float
    level: float


def follow(stretches: dict[int, Stretch], minute: int, seen: Observations, growth: Sequence[float]) -> None:
    """Add a step to the stretch of every bet; a bet that has won nothing starts again.

    Args:
        stretches: By the number of the bet; changed.
        minute: The minute of the step.
        seen: The observations of the step.
        growth: What each bet gains in this step, as a logarithm.
    """
    n, total = seen.n, seen.total
    for bet, gain in enumerate(growth):
        stretch = stretches.get(bet)
        if stretch is None:
            if gain > 0:
                stretches[bet] = Stretch(minute, n, total, gain)
        elif stretch.gain + gain > 0:
            stretch.n += n
            stretch.total += total
            stretch.gain += gain
        else:
            del stretches[bet]


def proven(stretches: dict[int, Stretch], minute: int, level: float) -> Proof | None:
    """The stretch of the bet that won most; None where no bet won, or a moving level was above the mean only before.

    Args:
        stretches: By the number of the bet.
        minute: The minute in which the alarm fires.
        level: The level in that minute.
    """
    best = max(stretches.values(), key=lambda stretch: stretch.gain, default=None)
    if best is None or not best.total < level * best.n:
        return None
    return Proof(best.begin, minute, best.n, best.total, level)


@dataclass(frozen=True)
class ShownProof:
    """A proof as it is shown, oriented as the metric is exported.

    Attributes:
        since, until: The beginning and the end of the stretch, seconds since the epoch.
        n: Its observations: requests, sessions or gold items.
        value: Their mean.
        level: What the alarm compares it with.
        at_least: Whether the mean should be at least the level.
        text: All of this as one line. It has no interval: the alarm does not rest on one.
    """

    since: float
    until: float
    n: int
    value: float
    level: float
    at_least: bool
    text: str


def shown(proof: Proof, rule: AlarmRule) -> ShownProof:
    """A proof of an alarm as it is shown.

    Args:
        proof: The proof.
        rule: The rule of the alarm.
    """
    value = proof.total / proof.n if rule.at_least else 1.0 - proof.total / proof.n
    level = proof.level if rule.at_least else 1.0 - proof.level
    since = proof.begin * _MINUTE
    apart_value, apart_level = _apart(value, level)
    direction = "at least" if rule.at_least else "at most"
    text = (
        f"{apart_value} of {proof.n}{_what(rule)} since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M} UTC, "
        f"{'its own past asks' if rule.kind == 'baseline' else 'asked'} for {direction} {apart_level}; "
        f"by chance at most once in {duration(rule.threshold)}"
    )
    return ShownProof(since, (proof.end + 1) * _MINUTE, proof.n, value, level, rule.at_least, text)


def _what(rule: AlarmRule) -> str:
    """What is counted, where it is not the metric itself."""
    if rule.metric == constants.LATENCY:
        return f" slower than {rule.ratio:g} x the usual p95"
    return " in gold items as good as at first" if rule.kind == "paired" else ""


def _apart(value: float, level: float) -> tuple[str, str]:
    """Two shares in per cent, with as many decimals as it takes to tell them apart."""
    for decimals in range(1, _MOST_DECIMALS + 1):
        texts = f"{100 * value:.{decimals}f} %", f"{100 * level:.{decimals}f} %"
        if texts[0] != texts[1]:
            break
    return texts
