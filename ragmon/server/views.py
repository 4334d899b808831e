"""What the admin port shows of this moment: metrics and status. Never content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragmon.alarms import AlarmState
from ragmon.gates import Outcome
from ragmon.reading import Books, Reading, Served
from ragmon.server.keeper import Keeper
from ragmon.version import current


class Views:
    """Reads what the keeper keeps.

    Args:
        keeper: Whose books are read.
        folder: Where its journal lies.
        broken: Why the configuration on disk is not the one in force; "" where it is.
    """

    def __init__(self, keeper: Keeper, folder: Path, broken: Callable[[], str]) -> None:
        self.keeper = keeper
        self.folder = folder
        self._broken = broken
        self._began = keeper.clock.now()

    def reading(self) -> Reading:
        """Everything Prometheus is told."""
        keeper = self.keeper
        with keeper.lock:
            found = keeper.standing.reading(keeper.clock.now(), keeper.waiting.pending)
            return replace(found, served=self._served())

    def _served(self) -> Served:
        keeper, standing = self.keeper, self.keeper.standing
        counts = standing.counts
        return Served(
            refused=dict(keeper.refused),
            size=sum(path.stat().st_size for path in self.folder.glob("journal.db*") if path.is_file()),
            trouble=keeper.trouble,
            resets=keeper.resets,
            jumps=keeper.clock.jumps,
            reloaded=not self._broken(),
            missing=standing.producers.missing(sum(counts.own.values())),
            lost=dict(standing.producers.dropped()),
            unknown={(field, reason): n for (field, _, reason), n in _split(counts.unknown)},
            labels=dict(counts.labels),
        )

    def trouble(self) -> str:
        """Why requests cannot be taken; "" where they can."""
        if not self.keeper.alive:
            return "the thread that writes the journal has ended"
        return f"the journal cannot be written ({self.keeper.trouble})" if self.keeper.trouble else ""

    def status(self) -> dict[str, Any]:
        """The gates, what fires, and whether every record is accounted for."""
        reading, settings = self.reading(), self.keeper.standing.live.settings
        served = reading.served or Served()
        return {
            "version": current(),
            "started": self._began,
            "now": reading.snapshot.now,
            "trouble": self.trouble(),
            "config": {"path": None if settings.path is None else str(settings.path), "broken": self._broken()},
            "gates": [gate(outcome) for outcome in reading.outcomes],
            "alarms": [alarm(state) for state in reading.alarms if state.firing is not None],
            "last_scored": reading.last_scored,
            "books": {stage: books(found) for stage, found in reading.books.items()},
            "spans_dropped": dict(reading.captured.spans),
            "unknown": {f"{field}: {reason}": n for (field, reason), n in served.unknown.items()},
            "producers": {"missing": served.missing, "dropped": dict(served.lost)},
            "refused": dict(served.refused),
            "journal": {"bytes": served.size, "row": self.keeper.standing.seq, "resets": served.resets},
            "builds": [list(found) for found in reading.builds],
        }


def gate(outcome: Outcome) -> dict[str, Any]:
    """A gate as the status shows it."""
    told = ("source", "gold", "value", "lower", "upper", "n", "verdict", "reason", "of")
    which = {"pipeline": outcome.gate.pipeline, "gate": outcome.gate.name, "metric": outcome.gate.metric}
    limit = {"threshold": outcome.gate.threshold, "direction": outcome.gate.direction, "window": outcome.gate.window}
    return {**which, **limit, **{name: getattr(outcome, name) for name in told}}


def alarm(state: AlarmState) -> dict[str, Any]:
    """An alarm that fires."""
    told = ("pipeline", "alert", "metric", "severity", "firing", "level", "evidence")
    return {name: getattr(state, name) for name in told}


def books(found: Books) -> dict[str, Any]:
    """The books of a stage, and what nobody can account for."""
    told = ("received", "scored", "duplicate", "pending", "residual")
    by_reason = {"ignored": dict(found.ignored), "dropped": dict(found.dropped)}
    return {**{name: getattr(found, name) for name in told}, **by_reason}


def _split(counts: Mapping[str, int]) -> list[tuple[tuple[str, str, str], int]]:
    return [(told.partition("|"), n) for told, n in counts.items()]
