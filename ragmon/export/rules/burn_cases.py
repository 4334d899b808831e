"""Promtool's unit tests of slow burns: one ticket a gate, which ends soon after the failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ragmon import stats
from ragmon.core import series_names
from ragmon.core.policy import Gate
from ragmon.export.promql import Z9999, equals
from ragmon.export.rules import recording, slow_burn
from ragmon.export.rules.promtool import OTHER, TARGET, Case, judged_on_gold, scraped, scraped_as, served
from ragmon.export.rules.recording import burn_of

_PER_MINUTE: Final = 60
_MAX_RATE: Final = 1e7


def burn_cases(gate: Gate) -> Iterator[Case]:
    """Failures beyond the page level, or beyond the threshold: proven, and over soon after they end."""
    burn = burn_of(gate)
    severe, moderate = (burn.page + 1) / 2, (burn.budget + burn.page) / 2
    fires = [{**recording.named(gate), "severity": "ticket"}]
    alert = slow_burn.ALERT
    for share, level in ((severe, burn.page), (moderate, burn.budget)):
        rate = _enough(gate, share, level)
        if rate is not None:
            name = f"{gate.name}, {share:.4g} of its requests fail, all along: one ticket"
            yield Case(alert, name, failing(gate, rate, (60, share)), "60m", fires)
    yield Case(alert, f"{gate.name} within its budget", failing(gate, _PER_MINUTE, (60, burn.budget / 2)), "60m")
    unused = failing(gate, _PER_MINUTE, (60, 1.0), applies=False)
    yield Case(alert, f"{gate.name}, all fail, but it does not apply yet", unused, "60m")
    few = (max(1, gate.min_samples - 5)) / 60
    yield Case(alert, f"{gate.name}, all fail, but they are few", failing(gate, few, (60, 1.0)), "60m")
    rate = _enough(gate, severe, burn.page) or _PER_MINUTE
    for minutes in (9, 60):
        ended = failing(gate, rate, (minutes, 1.0), (60, 0.0))
        yield Case(alert, f"{gate.name} failed for {minutes} minutes until 30 ago", ended, f"{minutes + 30}m")
    yield Case(alert, f"{gate.name} failed for 60 minutes until 5 ago", ended, "65m", fires)
    stopped = failing(gate, rate, (60, 1.0), (60, None))
    yield Case(alert, f"{gate.name} failed until nobody asked, 30 minutes ago", stopped, "90m")


def _enough(gate: Gate, share: float, level: float) -> float | None:
    """The requests per minute that prove, within an hour, a share of failures above a level; None: no rate does."""
    rate = max(_PER_MINUTE, gate.min_samples / 30)
    while rate < _MAX_RATE:
        if stats.wilson(share * rate * 40, rate * 40, Z9999)[0] > level:
            return rate
        rate *= 4
    return None


def failing(
    gate: Gate, per_minute: float, *phases: tuple[int, float | None], applies: bool = True
) -> Mapping[str, str]:
    """Counters of two replicas with half of the requests each.

    Args:
        gate: The gate.
        per_minute: Requests a minute.
        phases: Minutes, and the share of failures in them; None: nobody asks.
        applies: Whether the gate has a verdict.
    """
    length = sum(minutes for minutes, _ in phases)
    which = [equals("pipeline", gate.pipeline)]
    series = {**served(gate, length), **judged_on_gold(gate, length)}
    if applies:
        series[scraped(series_names.GATE_STATUS, **recording.named(gate), status="fail")] = f"1x{length}"
    for target in (TARGET, OTHER):
        scores, counts = _Counter(), _Counter()
        for minutes, share in phases:
            rate = 0.0 if share is None else per_minute / 2
            counts.grow(rate, minutes)
            scores.grow(rate * ((1 - (share or 0)) if gate.at_least else (share or 0)), minutes)
        series[scraped_as(recording.score(gate, which), target)] = scores.values
        series[scraped_as(recording.scored(gate, which), target)] = counts.values
    return series


class _Counter:
    """A counter in promtool's short form."""

    def __init__(self) -> None:
        self._last = 0.0
        self._parts: list[str] = []

    def grow(self, step: float, minutes: int) -> None:
        """Let it grow by a step each minute."""
        begin = self._last + (step if self._parts else 0)  # the first value of a part is a minute after the last one's
        self._parts.append(f"{begin:.12g}+{step:.12g}x{minutes if not self._parts else minutes - 1}")
        self._last += step * minutes

    @property
    def values(self) -> str:
        """Its values, minute by minute."""
        return " ".join(self._parts)
