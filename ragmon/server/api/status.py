"""What somebody wants to know first: what is wrong, since when, and why not to believe the numbers.

What the admin port shows of this moment: metrics and status. Never content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ragmon.alarms import AlarmState
from ragmon.core import constants
from ragmon.core.constants import STEP
from ragmon.core.errors import RagmonError
from ragmon.core.escaping import printable
from ragmon.core.policy import ORDER, Outcome
from ragmon.core.version import current
from ragmon.export.markdown import between, percent, value
from ragmon.export.state import MonitorSnapshot, ServerStats, StageCounters
from ragmon.gates import coverage
from ragmon.scoring.snapshot import Snapshot
from ragmon.server.journal import open_readonly
from ragmon.server.pipeline.writer import JournalWriter
from ragmon.server.reload import ConfigReloader

FEW: Final = 0.01
"""Share of records whose loss is no reason for doubt: some are always on their way."""
OLD: Final = 600.0
"""Seconds without a scored record after which the numbers are those of another time."""
SHOWN: Final = 20
"""Findings of a kind that are shown."""
_URGENT: Final = (constants.PAGE, constants.LOOK, constants.TICKET)


class StatusFinding(NamedTuple):
    """One thing somebody should know.

    Attributes:
        what: The thing, in one line.
        since: Since when, seconds since the epoch; None where nobody knows.
        hint: What to do about it.
    """

    what: str
    since: float | None = None
    hint: str = ""


def firing(states: Sequence[AlarmState]) -> list[AlarmState]:
    """The alarms that fire: the most urgent first, and of those the one that began it."""
    found = [state for state in states if state.firing is not None]
    return sorted(found, key=lambda state: (_URGENT.index(state.severity), state.firing, state.pipeline, state.alert))


def problems(reading: MonitorSnapshot) -> list[StatusFinding]:
    """The alarms that fire, then the gates that fail without one."""
    gates = {(one.gate.pipeline, one.gate.name): one for one in reading.outcomes}
    found = []
    for state in firing(reading.alarms):
        gate = gates.pop((state.pipeline, state.alert), None)
        name = printable(f"{state.pipeline}/{state.alert}")
        told = f"{name} fires ({state.severity})" + (f": {_stands(gate)}" if gate else "")
        found.append(StatusFinding(told, state.firing, f"ragmon why {name}" if gate else ""))
    for gate in gates.values():
        if gate.verdict == "fail":
            name = printable(f"{gate.gate.pipeline}/{gate.gate.name}")
            found.append(StatusFinding(f"{name} fails: {_stands(gate)}", hint=f"ragmon why {name}"))
    return _cut(found)


def _stands(outcome: Outcome) -> str:
    gate = outcome.gate
    asked = percent(gate.threshold) if gate.kind == "threshold" else f"{gate.threshold:g}"
    bounds = "" if outcome.lower is None else f" ({between(outcome)})"
    return f"{value(outcome)}{bounds} of {outcome.n}, asked for {'>=' if gate.at_least else '<='} {asked}"


def warnings(reading: MonitorSnapshot) -> list[StatusFinding]:
    """Why the numbers may not be what they seem, as far as the books tell."""
    return _cut([*_books(reading), *_lost(reading), *_age(reading)])


def _books(reading: MonitorSnapshot) -> Iterator[StatusFinding]:
    for stage, books in sorted(reading.books.items()):
        if books.residual:
            hint = "a bug in ragmon: ragmon verify says where"
            yield StatusFinding(f"{stage}: {books.residual} records are not accounted for", hint=hint)
        yield from _many(f"{stage}: {{}} of {books.received} records dropped", books.dropped, books.received)


def _lost(reading: MonitorSnapshot) -> Iterator[StatusFinding]:
    served = reading.served
    if served is None:
        return
    if served.resets:
        yield StatusFinding(f"the journal was damaged and begun anew: {served.resets}", hint="the log says where it is")
    received = sum(books.received for books in reading.books.values())
    if served.missing > FEW * received:
        hint = "a network, another server that takes some of them, or they are on their way"
        yield StatusFinding(f"{served.missing} records that producers sent have not come", hint=hint)
    yield from _many("producers lost {} records themselves", served.lost, received)


def _many(what: str, reasons: Mapping[str, int], of: int) -> Iterator[StatusFinding]:
    """A loss that is more than a few, by reason."""
    n = sum(reasons.values())
    if n > FEW * of:
        told = ", ".join(f"{printable(reason)} {count}" for reason, count in sorted(reasons.items()))
        yield StatusFinding(f"{what.format(n)}: {told}")


def _age(reading: MonitorSnapshot) -> Iterator[StatusFinding]:
    last, now = reading.last_scored, reading.snapshot.now
    if last is None:
        yield StatusFinding("nothing was scored yet")
    elif now - last > OLD:
        yield StatusFinding("nothing was scored lately: the numbers are old", last)


def _cut(found: list[StatusFinding]) -> list[StatusFinding]:
    more = len(found) - SHOWN
    return found if more <= 0 else [*found[:SHOWN], StatusFinding(f"and {more} more", hint="/metrics has them all")]


OTHERS: Final = 100
"""Gates of pipelines nobody configured that are shown, those that fail first."""


class StatusService:
    """Reads what the keeper keeps.

    Args:
        writer: Whose books are read.
        folder: Where its journal lies.
        reloading: Knows whether the configuration on disk is the one in force.
    """

    def __init__(self, writer: JournalWriter, folder: Path, reloading: ConfigReloader) -> None:
        self.writer = writer
        self.folder = folder
        self.stopping = False
        self._reloading = reloading
        self._began = writer.clock.now()

    def reading(self) -> MonitorSnapshot:
        """Everything Prometheus is told."""
        writer = self.writer
        with writer.lock:
            found = writer.server_state.reading(writer.clock.now(), writer.waiting.pending)
            captured = replace(found.captured, judged=self._reloading.probing.judged())
            return replace(found, served=self._served(), captured=captured)

    def moment(self) -> object:
        """What `reading` depends on: rows of the journal, edges of windows, minutes that ended, the server itself."""
        writer, reloading = self.writer, self._reloading
        with writer.lock:
            server_state, labels = writer.server_state, writer.server_state.engine.labels.book
            counted = (server_state, server_state.seq, server_state.engine.alarms.steps.closed, writer.waiting.pending)
            said = (labels.results.total(), labels.waiting)
            served = (dict(writer.refused), self.trouble(), writer.resets, writer.clock.jumps, reloading.broken)
            return int(writer.clock.now()) // STEP, counted, said, served, self._probed()

    def _probed(self) -> object:
        probing = self._reloading.probing
        return dict(probing.counts()), dict(probing.judged())

    def _served(self) -> ServerStats:
        writer, server_state = self.writer, self.writer.server_state
        counts = server_state.counts
        return ServerStats(
            refused=dict(writer.refused),
            size=_size(self.folder),
            trouble=self.trouble(),
            resets=writer.resets,
            jumps=writer.clock.jumps,
            reloaded=not self._reloading.broken,
            missing=server_state.producers.missing(counts.own),
            lost=dict(server_state.producers.dropped()),
            unknown={(field, reason): n for (field, _, reason), n in _split(counts.unknown)},
            probes=self._reloading.probing.counts(),
            probed=dict(counts.probed),
        )

    def trouble(self) -> str:
        """Why requests cannot be taken; "" where they can."""
        if self.stopping:
            return "the server is being stopped"
        if not self.writer.alive:
            return "the thread that writes the journal has ended"
        return f"the journal cannot be written ({self.writer.trouble})" if self.writer.trouble else ""

    def quarantine(self) -> str:
        """What is set aside, in a sentence; "" where nothing is."""
        n = self.writer.quarantined
        what = "1 request is" if n == 1 else f"{n} requests are"
        return f"{what} quarantined: twice the process ended or froze over each of them" if n else ""

    def status(self) -> dict[str, Any]:
        """What is wrong, since when, whether that can be believed, and then the gates and the books."""
        reading, trouble, reloading = self.reading(), self.trouble(), self._reloading
        served, settings = reading.served or ServerStats(), self.writer.server_state.engine.settings
        stuck = (
            [StatusFinding(trouble, self.writer.trouble_since, "requests are refused until it can")] if trouble else []
        )
        idle = [
            StatusFinding(f"probe {name} does not run: {error}", hint=error.hint)
            for name, error in reloading.probing.troubles.items()
        ]
        stale = [StatusFinding(reloading.broken, reloading.since, reloading.hint)] if reloading.broken else []
        quarantined = self._quarantined()
        since = quarantined[-1]["arrival"] if quarantined else None
        aside = [StatusFinding(told, since, "ragmon doctor names them")] if (told := self.quarantine()) else []
        return {
            "wrong": [found._asdict() for found in (*stuck, *problems(reading))],
            "doubts": [found._asdict() for found in (*stale, *aside, *idle, *warnings(reading))],
            "verdicts": {**dict.fromkeys(ORDER, 0), **Counter(outcome.verdict for outcome in reading.outcomes)},
            "version": current(),
            "started": self._began,
            "now": reading.snapshot.now,
            "last_scored": reading.last_scored,
            "trouble": trouble,
            "config": {"path": None if settings.path is None else str(settings.path), "broken": reloading.broken},
            "alarms": [alarm(state) for state in firing(reading.alarms)],
            "gates": gates(reading.outcomes, settings.pipelines, reading.alarms),
            "gold": gold(reading.snapshot, list(settings.windows)),
            "books": {stage: books(found) for stage, found in reading.books.items()},
            "spans_dropped": dict(reading.captured.spans),
            "unknown": {f"{field}: {reason}": n for (field, reason), n in served.unknown.items()},
            "producers": {"missing": served.missing, "dropped": dict(served.lost)},
            "refused": dict(served.refused),
            "quarantined": quarantined,
            "labels": {**reading.labels, "waiting": reading.labels_waiting},
            "journal": {"bytes": served.size, **self._journal(), "resets": served.resets},
            "builds": [list(found) for found in reading.builds],
        }

    def _quarantined(self) -> list[dict[str, Any]]:
        """What is set aside, without what it says."""
        if not self.writer.quarantined:
            return []
        told = ("arrival", "step", "trace_id", "size")
        try:
            with open_readonly(self.folder) as journal:
                return [{name: getattr(found, name) for name in told} for found in journal.quarantined()]
        except RagmonError:  # `trouble` says why
            return []

    def _journal(self) -> dict[str, Any]:
        """How much it may take, how far it goes back, and when a row was written last."""
        limit, row = self.writer.journal.limits.size, self.writer.server_state.seq
        try:
            with open_readonly(self.folder) as journal:
                first = next(journal.books(), None)
                newest = journal.last()[1] or None
        except RagmonError:  # `trouble` says why
            first = newest = None
        return {"limit": limit, "row": row, "oldest": None if first is None else first.arrival, "newest": newest}


def gates(
    outcomes: Sequence[Outcome], configured: Mapping[str, object], alarms: Sequence[AlarmState]
) -> list[dict[str, Any]]:
    """The gates as the status shows them, those of configured pipelines first.

    Args:
        outcomes: All of them.
        configured: The pipelines somebody configured.
        alarms: Every alarm.
    """
    since = {(state.pipeline, state.alert): state.firing for state in alarms}
    mine = [outcome for outcome in outcomes if outcome.gate.pipeline in configured]
    others = [outcome for outcome in outcomes if outcome.gate.pipeline not in configured]
    others.sort(key=lambda outcome: ORDER.index(outcome.verdict))
    shown = (*mine, *others[:OTHERS])
    return [{**gate(one), "firing": since.get((one.gate.pipeline, one.gate.name))} for one in shown]


def gate(outcome: Outcome) -> dict[str, Any]:
    """A gate as the status shows it."""
    told = ("source", "gold", "estimand", "value", "lower", "upper", "n", "verdict", "reason", "of")
    which = {"pipeline": outcome.gate.pipeline, "gate": outcome.gate.name, "metric": outcome.gate.metric}
    limit = {"threshold": outcome.gate.threshold, "direction": outcome.gate.direction, "window": outcome.gate.window}
    return {**which, **limit, **{name: getattr(outcome, name) for name in told}}


def gold(snapshot: Snapshot, windows: Sequence[str]) -> dict[str, Any]:
    """How much of the traffic the gold covers, and how much of the gold was asked.

    Args:
        snapshot: What was counted.
        windows: The windows shown, by name.
    """
    return {
        "sets": [found._asdict() for window in windows for found in coverage.covered(snapshot, window)],
        "traffic": [found._asdict() for window in windows for found in coverage.matched(snapshot, window)],
        "ways": coverage.ways(snapshot),
        "note": coverage.HEAD,
    }


def alarm(state: AlarmState) -> dict[str, Any]:
    """An alarm that fires."""
    told = ("pipeline", "alert", "metric", "severity", "firing", "level", "evidence")
    return {name: getattr(state, name) for name in told}


def books(found: StageCounters) -> dict[str, Any]:
    """The books of a stage, and what nobody can account for."""
    told = ("received", "scored", "duplicate", "pending", "residual")
    by_reason = {"ignored": dict(found.ignored), "dropped": dict(found.dropped)}
    return {**{name: getattr(found, name) for name in told}, **by_reason}


def _size(folder: Path) -> int:
    """Bytes a journal takes; a file of it may go while it is looked at."""
    total = 0
    for path in folder.glob("journal.db*"):
        with suppress(OSError):
            total += path.stat().st_size
    return total


def _split(counts: Mapping[str, int]) -> list[tuple[tuple[str, str, str], int]]:
    return [(told.partition("|"), n) for told, n in counts.items()]
