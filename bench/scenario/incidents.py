"""What can go wrong, when it does in each preset, and which metrics must show it."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

HOUR: Final = 3600.0
CYCLE: Final = 12
"""Hours after which the quiet preset starts over."""

_RETRIEVED: Final = ("recall", "full_recall", "hit_rate", "mrr")

EXPECT: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "index_drift": ("answer_precision", "citation_hit_rate", *_RETRIEVED),
        "id_shift": ("citation_hit_rate", *_RETRIEVED, "answer_precision"),
        "refusal_wave": ("over_refusal_rate", "refusal_rate"),
        "hallucination": ("under_refusal_rate", "answer_precision", "refusal_rate"),
        "citation_break": ("citation_hit_rate", "compliance", "answer_precision", "citation_scope", "coverage"),
        "citation_scope": ("citation_hit_rate", "compliance", "citation_scope", "coverage"),
        "empty_retrieval": ("empty_retrieval_rate", *_RETRIEVED, "citation_hit_rate", "coverage"),
        "refusal_paraphrase": ("compliance", "refusal_like_rate"),
        "latency": ("latency", "answered_within"),
        "errors": ("error_rate",),
    }
)
"""By kind of incident, the metrics of which one must raise the alarm."""

BURST: Final = "traffic_burst"
TOPIC: Final = "topic_shift"
UNANSWERABLE: Final = "unanswerable_mix"
LATENCY: Final = "latency"
BENIGN: Final = (BURST, TOPIC, UNANSWERABLE)
"""Users behave differently, the pipeline answers as before: an alarm is a false one."""


@dataclass(frozen=True)
class Incident:
    """Something that happens to a stream.

    Args:
        id: Its place in the stream, from 0.
        kind: A key of `EXPECT`, or one of `BENIGN`.
        start: Seconds since the epoch; included.
        end: Seconds since the epoch; not included.
        severity: Share of the answers it breaks, in [0, 1]; for latency and traffic_burst, how many times the usual.
        ramp: Whether it grows from nothing to its severity instead of being there at once.
    """

    id: int
    kind: str
    start: float
    end: float
    severity: float
    ramp: bool

    @property
    def benign(self) -> bool:
        """Nothing is wrong with the pipeline."""
        return self.kind in BENIGN

    @property
    def expect(self) -> tuple[str, ...]:
        """The metrics of which one must raise the alarm."""
        return EXPECT.get(self.kind, ())

    def share(self, ts: float) -> float:
        """The share of answers it breaks at a moment within it."""
        return self.severity * self._grown(ts)

    def factor(self, ts: float) -> float:
        """How many times the usual it makes of a rate or a duration at a moment within it."""
        return 1 + (self.severity - 1) * self._grown(ts)

    def _grown(self, ts: float) -> float:
        return (ts - self.start) / (self.end - self.start) if self.ramp else 1.0


class _Planned(NamedTuple):
    """An incident before it has a date: hours from the start of the stream."""

    kind: str
    start: float
    end: float
    severity: float
    ramp: bool = False


_STANDARD: Final = (
    _Planned(BURST, 1.5, 2.0, 4),
    _Planned("index_drift", 2.5, 3.25, 0.6),
    _Planned("refusal_wave", 4.0, 4.5, 0.5),
    _Planned(TOPIC, 5.25, 5.75, 1),
    _Planned("citation_break", 6.25, 6.75, 0.8),
    _Planned(LATENCY, 7.5, 8.25, 3),
    _Planned("hallucination", 9.0, 9.5, 0.7),
    _Planned("id_shift", 10.25, 11.25, 0.5, ramp=True),
)
_SUBTLE: Final = (
    _Planned("index_drift", 2, 4, 0.15),
    _Planned("refusal_wave", 5, 6.5, 0.15),
    _Planned(UNANSWERABLE, 7, 7.5, 1),
    _Planned("hallucination", 8, 9.5, 0.25),
    _Planned("citation_break", 10.25, 11.5, 0.15),
)
_QUIET: Final = (
    _Planned(BURST, 2, 2.5, 4),
    _Planned(TOPIC, 5, 5.5, 1),
    _Planned(UNANSWERABLE, 8, 8.5, 1),
)

_SINGLE: Final = (
    _Planned("refusal_wave", 2.5, 3, 0.5),
    _Planned("index_drift", 2.5, 3, 0.6),
    _Planned("hallucination", 2.5, 3, 0.7),
    _Planned("id_shift", 2.5, 3, 0.5),
)

PRESETS: Final = ("quiet", "standard", "subtle", "random", "single")
"""quiet: benign events only; standard: plain incidents; subtle: mild, long ones; random: any kind, length, severity;
single: one plain incident, which one by the seed."""


def schedule(preset: str, *, seed: int, hours: float, start: float) -> tuple[Incident, ...]:
    """The incidents of a stream, in time order; those that would outlast it are left out.

    Args:
        preset: One of `PRESETS`.
        seed: Seed of the random preset, and the place of the single one; the others have fixed times.
        hours: Length of the stream.
        start: Its first second, since the epoch.

    >>> [incident.kind for incident in schedule("quiet", seed=1, hours=6, start=0)]
    ['traffic_burst', 'topic_shift']
    """
    planned = [p for p in _planned(preset, seed, hours) if p.end <= hours]
    return tuple(
        Incident(place, p.kind, start + p.start * HOUR, start + p.end * HOUR, p.severity, p.ramp)
        for place, p in enumerate(planned)
    )


def _planned(preset: str, seed: int, hours: float) -> Sequence[_Planned]:
    if preset == "random":
        return _drawn(random.Random(f"incidents {seed}"), hours)
    if preset == "quiet":
        cycles = (CYCLE * cycle for cycle in range(math.ceil(hours / CYCLE)))
        return [p._replace(start=p.start + at, end=p.end + at) for at in cycles for p in _QUIET]
    if preset == "single":
        return [_SINGLE[seed % len(_SINGLE)]]
    return _STANDARD if preset == "standard" else _SUBTLE


def _drawn(rng: random.Random, hours: float) -> list[_Planned]:
    """One incident after the other, at least three quarters of an hour apart."""
    kinds = [*sorted(EXPECT), *sorted(BENIGN)]
    found: list[_Planned] = []
    at = rng.uniform(1, 2)
    while at < hours - 1:
        kind, lasts, strength = rng.choice(kinds), rng.choice((0.05, 0.25, 0.5, 1.0)), rng.choice((0.15, 0.3, 0.6, 1.0))
        severity = {LATENCY: 1 + 3 * strength, BURST: 1 + 5 * strength}.get(kind, strength)
        found.append(_Planned(kind, at, at + lasts, severity, ramp=rng.random() < 0.25))
        at += lasts + rng.uniform(0.75, 2)
    return found
