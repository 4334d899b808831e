"""Drift without labels: tickets that say what is different, and never that it is worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragmon.alarms.shapes import Indexes, Shape
from ragmon.alarms.terms import AlarmTerms
from ragmon.core import constants
from ragmon.scoring.minutes import SHAPES, Step


@dataclass
class Signal:
    """How one drift alarm stands.

    Attributes:
        alert, metric, severity: Which.
        firing: Since which minute; None while it is silent.
    """

    alert: str
    metric: str
    severity: str
    firing: int | None = None


class Drift:
    """The drift alarms of a pipeline.

    Args:
        terms: How the alarms on indexes are called, and when they fire.
    """

    def __init__(self, terms: AlarmTerms) -> None:
        self._indexes = [
            (Signal(one.alert, constants.INDEX_HASH, one.severity), Indexes(one.limit)) for one in terms.indexes
        ]
        self._shapes = {name: (Signal(f"{name}:drift", name, constants.TICKET), Shape()) for name in SHAPES}

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Every drift alarm."""
        return tuple(signal for signal, _ in self._all())

    def _all(self) -> list[tuple[Signal, Indexes | Shape]]:
        return [*self._indexes, *self._shapes.values()]

    def step(self, step: Step, source: str) -> list[Signal]:
        """Take in one step; returns the alarms that changed.

        Args:
            step: The step.
            source: Where user traffic is counted.
        """
        changed = [signal for signal, indexes in self._indexes if indexes.step(step.minute, step.indexes)]
        for name, (signal, shape) in self._shapes.items():
            counts = step.shape(source, name)
            if counts and shape.step(step.minute, counts):
                changed.append(signal)
        for signal in changed:
            signal.firing = step.minute if signal.firing is None else None
        return changed

    def restart(self) -> list[Signal]:
        """Forget how traffic was distributed: it comes from elsewhere now. Returns what fired."""
        fired = [signal for signal, _ in self._shapes.values() if signal.firing is not None]
        for signal, shape in self._shapes.values():
            signal.firing = None
            shape.clear()
        return fired

    def clear(self, alert: str) -> bool:
        """Silence the alarm of a name; returns whether it fired."""
        signal, holder = next(pair for pair in self._all() if pair[0].alert == alert)
        fired, signal.firing = signal.firing is not None, None
        holder.clear()
        return fired

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {signal.alert: {"firing": signal.firing, "seen": holder.dump()} for signal, holder in self._all()}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        for signal, holder in self._all():
            held = data.get(signal.alert)
            if held is not None:
                signal.firing = held["firing"]
                holder.restore(held["seen"])
