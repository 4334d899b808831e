"""One alarm: silent until its detector has proof, firing until there is proof of the contrary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from ragmon.alarms.detector import Detector, evidence
from ragmon.alarms.observations import Observations
from ragmon.alarms.watches import Watch

RESOLVE: Final = 100.0
"""Wealth at which a recovery counts as proved; at 20 half of all weak faults would be called over while they last."""

Change = Literal["firing", "resolved"]


class Alarm:
    """The state of one watch.

    Args:
        watch: What is guarded, and how much proof it takes.

    Attributes:
        firing: Since which minute it fires; None while it is silent.
    """

    __slots__ = ("_back", "_recovery", "detector", "firing", "watch")

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.detector = Detector()
        self.firing: int | None = None
        self._recovery = Detector()
        self._back = 0.0

    def step(self, minute: int, seen: Observations, level: float) -> Change | None:
        """Take in one step.

        Args:
            minute: Its minute since the epoch.
            seen: Its observations, oriented so that less is worse; at least one.
            level: What their mean should be at least.

        Returns:
            What changed.
        """
        if self.firing is not None:
            if self._recovery.update(seen.turned, 1.0 - self._back) < RESOLVE:
                return None
            self.clear()
            return "resolved"
        # Nothing can fall below a level of 0, and wealth would grow by waiting alone.
        if level <= 0 or self.detector.update(seen, level) < self.watch.threshold:
            return None
        self.firing = minute
        # Half-way between what should be and what best explains the fall: above that, it is over.
        self._back = level * (1.0 - self.detector.drop / 2.0)
        self.detector.clear()
        return "firing"

    def clear(self) -> None:
        """Start anew, silent."""
        self.firing = None
        self.detector.clear()
        self._recovery.clear()

    @property
    def evidence(self) -> float:
        """How far it is on its way to firing, in [0, 1]; 1 while it fires."""
        return 1.0 if self.firing is not None else evidence(self.detector.mean, self.watch.threshold)

    def dump(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "wealth": self.detector.wealth,
            "firing": self.firing,
            "back": self._back,
            "recovery": self._recovery.wealth,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote."""
        self.detector = Detector(data["wealth"])
        self.firing, self._back = data["firing"], data["back"]
        self._recovery = Detector(data["recovery"])
