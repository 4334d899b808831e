"""Which processes may tell of all their calls: so many that every scrape can add them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ragmon.core.record import Totals

PRODUCERS: Final = 5000
"""Pipelines, sources and strata of all processes whose totals are kept apart, from which on there is no new process."""
SILENT: Final = 86_400.0
"""Seconds after which a process may be gone."""
_FRESH: Final = 60.0
"""Seconds between two looks for those that are."""


@dataclass
class _Producer:
    """A process whose totals are taken.

    Attributes:
        last: When they came last, seconds since the epoch.
        series: Of which pipelines, sources and strata they are.
    """

    last: float
    series: set[tuple[str, str, str]] = field(default_factory=set)


class Processes:
    """Whose totals are taken.

    Attributes:
        full_until: Until when nobody looks for room again, seconds since the epoch.
    """

    def __init__(self) -> None:
        self.full_until = 0.0
        self._held: dict[tuple[str, float], _Producer] = {}
        self._told = 0

    def take(self, line: Totals, now: float) -> bool:
        """Whether a process' counts are taken: there are not too many.

        Args:
            line: The counts.
            now: When they came, seconds since the epoch.
        """
        held = self._held.get((line.instance, line.started))
        if held is None and not self._has_room(now):
            return False
        held = held or self._held.setdefault((line.instance, line.started), _Producer(now))
        series = (line.pipeline, line.source, line.stratum)
        if series not in held.series:
            if self._told >= 2 * PRODUCERS:  # a process that is known may tell of more, within bounds
                return False
            held.series.add(series)
            self._told += 1
        held.last = now
        return True

    def _has_room(self, now: float) -> bool:
        """Whether another process may tell its totals; those that were silent for a day make room."""
        if self._told >= PRODUCERS and now >= self.full_until:
            self.full_until = now + _FRESH
            self._held = {key: held for key, held in self._held.items() if held.last > now - SILENT}
            self._told = sum(len(held.series) for held in self._held.values())
        return self._told < PRODUCERS

    def dump(self) -> list[Any]:
        """Plain JSON data."""
        return [[*key, held.last, sorted(held.series)] for key, held in self._held.items()]

    def load(self, data: Sequence[Any], full_until: float) -> None:
        """Go on from what `dump` wrote."""
        self.full_until = full_until
        self._held = {
            (instance, started): _Producer(last, {(pipeline, source, stratum) for pipeline, source, stratum in told})
            for instance, started, last, *rest in data
            for told in rest or [[]]  # an older ragmon wrote no series
        }
        self._told = sum(len(held.series) for held in self._held.values())
