"""The detector of every alarm: a sum of e-processes that may be evaluated every minute for ever; and the alarm's state.

For a level g and observations x in [0, 1], `prod(1 + bet * (g - x))` is a nonnegative supermartingale as long as the
mean is at least g: the wealth of a bet against the metric grows only if the mean dropped. The detector starts one such
process at every step and adds them up (Shiryaev-Roberts), for eight sizes of a drop at once. As long as the mean holds,
the expected number of steps until the wealth passes a threshold A is at least A, whatever else is true of the traffic.

Source: Shin, Ramdas, Rinaldo, "E-detectors", New England J. Stat. Data Sci. 2 (2024), doi 10.51387/23-NEJSDS51; the
bets: Waudby-Smith, Ramdas, J. R. Stat. Soc. B 86 (2024).

The detector sums its evidence over all starting times and names none of them. Beside it, every size of a drop is
followed by one bet that starts again when it has lost what it won (Page, Biometrika 41 (1954)). The bet that won most
names the stretch; its mean lies below the level, as a bet gains at most `bet` times the sum of `level - x`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from math import exp, inf, log, log1p
from typing import Final, Literal, NamedTuple

import msgspec

from ragmon.alarms.observations import Observations
from ragmon.alarms.plan import AlarmRule, duration
from ragmon.core import constants
from ragmon.stats.prediction import DROPS

HIGHEST: Final = 0.9999
"""Maximum level: against a mean of exactly 1 a single failure would be proof, and a label may be wrong."""
_MAX_EXPONENT: Final = 600.0  # maximum exponent: far above any threshold and below the range of a double
_MAX_FACTORS: Final = 50
"""Up to this number, means between 0 and 1 are multiplied one by one; the product of more could overflow a double."""


_Bet = tuple[float, float, float, float]
"""The bet on one drop at one level, a plain tuple because that is the fastest to take apart:

* the score that would lose the whole stake; it is above 1, so no score is,
* the logarithm of the bet,
* the logarithm of what a score of 0 multiplies the wealth by,
* and that of a score of 1.
"""
SAME_INCIDENT: Final = 720  # minutes after its end in which an alarm that fires again goes on with its incident
ESTIMATED: Final = 240
"""Steps of an incident after which the size of its drop is estimated again."""
_MINUTE: Final = 60.0
_MOST_DECIMALS: Final = 12
Change = Literal["firing", "resolved"]


@lru_cache(1024)
def _bets(level: float) -> tuple[_Bet, ...]:
    capped_level = min(level, HIGHEST)
    bets = [drop / (1.0 - capped_level) for drop in DROPS]
    return tuple(
        (capped_level + 1.0 / bet, log(bet), log1p(bet * capped_level), log1p(-drop))
        for bet, drop in zip(bets, DROPS, strict=True)
    )


class Detector(msgspec.Struct):
    """Evidence (wealth) against the hypothesis that the mean is at least the level.

    Args:
        wealth: The wealth for each drop, summed over all starting times; default: zero.
    """

    wealth: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(DROPS))

    def update(self, seen: Observations, level: float) -> float:
        """Process one step."""
        (ones, zeros, parts), bets = seen, _bets(level)
        n = len(parts)
        largest_gain = bets[-1][2]
        many = n > _MAX_FACTORS or (zeros + n) * largest_gain > _MAX_EXPONENT
        wealth = []
        for before, (ruin, log_bet, on_zero, on_one) in zip(self.wealth, bets, strict=True):
            if many:
                between = sum(log_bet + log(ruin - part) for part in parts)
                gain = min(_MAX_EXPONENT, zeros * on_zero + ones * on_one + between)
                wealth.append(exp(gain) * (before + 1.0))
                continue
            value = before + 1.0
            # A score x multiplies by `1 + bet * (level - x)`, which is `bet * (ruin - x)`: one operation less.
            for part in parts:
                value *= ruin - part
            wealth.append(exp(zeros * on_zero + ones * on_one + n * log_bet) * value)
        self.wealth = wealth
        return self.mean

    @property
    def mean(self) -> float:
        """The mean wealth."""
        return sum(self.wealth) / len(DROPS)

    @property
    def drop(self) -> float:
        """The drop that explains the observations best, relative to the level."""
        return DROPS[max(range(len(DROPS)), key=self.wealth.__getitem__)]

    def clear(self) -> None:
        """Reset the wealth."""
        self.wealth = [0.0] * len(DROPS)


def evidence(mean: float, threshold: float) -> float:
    """How close the wealth is to the threshold, in [0, 1], on a logarithmic scale."""
    log_wealth = log(mean) if mean > 0 else -inf
    return min(1.0, max(0.0, log_wealth / log(threshold)))


class RecoveryProof(NamedTuple):
    """How much evidence of recovery ends an alarm.

    The wealth of a mean that has not recovered passes a threshold A at most once in A steps. A threshold that grows
    with the incident, `first + growth * t` after t steps, is passed ln(1 + t * growth / first) / growth times at most.

    Attributes:
        first: The wealth asked for in the first step of an incident.
        growth: How much more each further step asks for.
        drop: Maximum drop below the level that a recovery is measured from.
    """

    first: float
    growth: float
    drop: float


PAGE_PROOF: Final = RecoveryProof(900.0, 7.0, 0.175)
"""Passed by chance 0.8 times at most in a fault of 30 days, where a fixed 900 is passed up to 48 times. A drop that
chance made larger is cut: half of it would be no recovery."""
LOOK_PROOF: Final = RecoveryProof(100.0, 0.5, 1.0)
"""A look wakes nobody; it ends sooner, so that it is ready for the next change."""


class Stretch(msgspec.Struct, array_like=True):
    """The steps since one bet started.

    Attributes:
        begin: The minute of the first step.
        n, total: The observations of these steps and the sum of their scores.
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
    """Add a step to the stretch of every bet; a bet that has won nothing starts again."""
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
    """The stretch of the bet that won most; None where no bet won, or a moving level was above the mean only before."""
    best = max(stretches.values(), key=lambda stretch: stretch.gain, default=None)
    if best is None or not best.total < level * best.n:
        return None
    return Proof(best.begin, minute, best.n, best.total, level)


def _recovered_level(level: float, drop: float) -> float:
    """The middle between a level and the mean after a drop."""
    return level * (1.0 - drop / 2.0)


class Alarm(msgspec.Struct):
    """What the alarm of a rule has seen.

    Attributes:
        recovered_level: The level that a mean which has recovered is above.
        level: The level that the alarm fired against.
        n, total: The observations since then and the sum of their scores.
        firing: The minute since which the alarm fires; None while it is silent.
        resolved: The minute in which it was resolved last; None if it never was.
        stretches: What the evidence of a fault rests on, by the number of the bet.
        proof: What the alarm fired for; None while it is silent.
    """

    detector: Detector = msgspec.field(default_factory=Detector)
    recovery: Detector = msgspec.field(default_factory=Detector)
    recovered_level: float = 0.0
    level: float = 0.0
    n: int = 0
    total: float = 0.0
    firing: int | None = None
    steps: int = 0
    resolved: int | None = None
    stretches: dict[int, Stretch] = {}
    proof: Proof | None = None

    def step(self, rule: AlarmRule, minute: int, seen: Observations, level: float) -> Change | None:
        """Process one step."""
        needed = PAGE_PROOF if rule.severity == "page" else LOOK_PROOF
        if self.firing is not None:
            self.steps += 1
            self.n += seen.n
            self.total += seen.total
            if self.steps % ESTIMATED == 0:  # it fired while chance was against the metric; by now its mean is known
                drop = 1.0 - self.total / self.n / self.level
                self.recovered_level = _recovered_level(self.level, min(max(drop, 0.0), needed.drop))
            if (
                self.recovery.update(seen.turned, 1.0 - self.recovered_level)
                < needed.first + needed.growth * self.steps
            ):
                return None
            self._silence()
            self.resolved = minute
            return "resolved"
        # Nothing can fall below a level of 0, and the wealth would grow with every step anyway.
        if level <= 0:
            return None
        before = self.detector.wealth
        mean = self.detector.update(seen, level)
        follow(
            self.stretches,
            minute,
            seen,
            [log(new / (old + 1.0)) if new else -inf for old, new in zip(before, self.detector.wealth, strict=True)],
        )
        if mean < rule.threshold:
            return None
        if self.resolved is None or minute - self.resolved > SAME_INCIDENT:
            self.steps = 0
        self.firing, self.proof = minute, proven(self.stretches, minute, level)
        self.stretches.clear()
        self.level, self.n, self.total = level, 0, 0.0
        self.recovered_level = _recovered_level(level, min(self.detector.drop, needed.drop))
        self.detector.clear()
        return "firing"

    def clear(self) -> None:
        """Silence the alarm, reset its detectors and forget its incident."""
        self._silence()
        self.steps, self.resolved = 0, None

    def _silence(self) -> None:
        self.firing = self.proof = None
        self.stretches.clear()
        self.detector.clear()
        self.recovery.clear()

    def evidence(self, rule: AlarmRule) -> float:
        """How close it is to firing, in [0, 1]; 1 while it fires."""
        return 1.0 if self.firing is not None else evidence(self.detector.mean, rule.threshold)


@dataclass(frozen=True)
class ShownProof:
    """A proof as it is shown, oriented as the metric is exported.

    Attributes:
        since, until: The beginning and the end of the stretch, seconds since the epoch.
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
    """A proof of an alarm as it is shown."""
    value = proof.total / proof.n if rule.at_least else 1.0 - proof.total / proof.n
    level = proof.level if rule.at_least else 1.0 - proof.level
    since = proof.begin * _MINUTE
    value_text = level_text = ""
    for decimals in range(1, _MOST_DECIMALS + 1):  # as many as it takes to tell them apart
        value_text, level_text = f"{100 * value:.{decimals}f} %", f"{100 * level:.{decimals}f} %"
        if value_text != level_text:
            break
    counted = " gold items as good as in their first answers" if rule.kind == "paired" else ""
    if rule.metric == constants.LATENCY:
        counted = f" slower than {rule.ratio:g} x the usual p95"
    text = (
        f"{value_text} of {proof.n:,}{counted} since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M} UTC, "
        f"{'its own past says' if rule.kind == 'baseline' else 'should be'} "
        f"{'at least' if rule.at_least else 'at most'} {level_text}; "
        f"by chance at most once in {duration(rule.threshold)}"
    )
    return ShownProof(since, (proof.end + 1) * _MINUTE, proof.n, value, level, rule.at_least, text)
