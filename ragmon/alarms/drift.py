"""Drift without labels: tickets that say what is different, and never that it is worse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragmon import names
from ragmon.alarms.shapes import Indexes, Shape
from ragmon.alarms.steps import SHAPES, Step
from ragmon.alarms.terms import AlarmTerms
from ragmon.stats import buckets


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
        terms: How the alarm on indexes is called, and when it fires.
    """

    def __init__(self, terms: AlarmTerms) -> None:
        self._indexes = Indexes(terms.indexes)
        self._shapes = {name: Shape() for name in SHAPES}
        self._index = Signal(terms.index_alert, names.INDEX_HASH, terms.index_severity)
        self._drifts = {name: Signal(f"{name}:drift", name, names.TICKET) for name in SHAPES}

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Every drift alarm."""
        return self._index, *self._drifts.values()

    def step(self, step: Step, source: str) -> list[Signal]:
        """Take in one step; returns the alarms that changed.

        Args:
            step: The step.
            source: Where user traffic is counted.
        """
        changed = [self._index] if self._indexes.step(step.minute, step.indexes) else []
        for name, shape in self._shapes.items():
            values = step.shapes.get((source, name))
            if values and shape.step(step.minute, buckets(values)):
                changed.append(self._drifts[name])
        for signal in changed:
            signal.firing = step.minute if signal.firing is None else None
        return changed

    def clear(self, alert: str) -> bool:
        """Silence the alarm of a name; returns whether it fired."""
        holders: dict[str, tuple[Signal, Indexes | Shape]] = {self._index.alert: (self._index, self._indexes)}
        holders |= {signal.alert: (signal, self._shapes[name]) for name, signal in self._drifts.items()}
        signal, holder = holders[alert]
        fired, signal.firing = signal.firing is not None, None
        holder.clear()
        return fired

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "indexes": self._indexes.dump(),
            "shapes": {name: shape.dump() for name, shape in self._shapes.items()},
            "firing": [signal.firing for signal in self.signals],
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self._indexes.restore(data["indexes"])
        for name, shape in self._shapes.items():
            shape.restore(data["shapes"][name])
        for signal, firing in zip(self.signals, data["firing"], strict=True):
            signal.firing = firing
