"""The status service of the admin port: current problems, reasons to doubt the numbers, gates, metrics and counts.

It never shows the content of requests.
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
from ragmon.core.net import current_version
from ragmon.core.policy import ORDER, Outcome
from ragmon.export.markdown import between, percent, value
from ragmon.export.state import MonitorSnapshot, ServerStats, StageCounters
from ragmon.gates import coverage
from ragmon.scoring.snapshot import Snapshot
from ragmon.server.journal import open_readonly
from ragmon.server.pipeline.writer import JournalWriter
from ragmon.server.reload import ConfigReloader

FEW: Final = 0.01
"""Share of records whose loss causes no warning: some are always in flight."""
OLD: Final = 600.0
"""Seconds without a scored record after which the numbers are reported as old."""
SHOWN: Final = 20
"""Findings of one kind that are shown."""
_URGENT: Final = (constants.PAGE, constants.LOOK, constants.TICKET)


class StatusFinding(NamedTuple):
    """One problem or warning.

    Attributes:
        what: The problem, in one line.
        since: Since when, seconds since the epoch; None where that is unknown.
        hint: What to do about it.
    """

    what: str
    since: float | None = None
    hint: str = ""


def firing(states: Sequence[AlarmState]) -> list[AlarmState]:
    """The alarms that fire, the most urgent first; among equals, the one that started first."""
    firing_alarms = [state for state in states if state.firing is not None]
    return sorted(
        firing_alarms, key=lambda state: (_URGENT.index(state.severity), state.firing, state.pipeline, state.alert)
    )


def problems(reading: MonitorSnapshot) -> list[StatusFinding]:
    """The alarms that fire, then the gates that fail without an alarm."""
    gates = {(outcome.gate.pipeline, outcome.gate.name): outcome for outcome in reading.outcomes}
    findings = []
    for state in firing(reading.alarms):
        gate = gates.pop((state.pipeline, state.alert), None)
        name = printable(f"{state.pipeline}/{state.alert}")
        text = f"{name} fires ({state.severity})" + (f": {_gate_text(gate)}" if gate else "")
        findings.append(StatusFinding(text, state.firing, f"ragmon why {name}" if gate else ""))
    for gate in gates.values():
        if gate.verdict == "fail":
            name = printable(f"{gate.gate.pipeline}/{gate.gate.name}")
            findings.append(StatusFinding(f"{name} fails: {_gate_text(gate)}", hint=f"ragmon why {name}"))
    return _truncated(findings)


def _gate_text(outcome: Outcome) -> str:
    gate = outcome.gate
    limit = percent(gate.threshold) if gate.kind == "threshold" else f"{gate.threshold:g}"
    bounds = "" if outcome.lower is None else f" ({between(outcome)})"
    return f"{value(outcome)}{bounds} of {outcome.n}, asked for {'>=' if gate.at_least else '<='} {limit}"


def warnings(reading: MonitorSnapshot) -> list[StatusFinding]:
    """Data-quality warnings: why the numbers may be incomplete or old."""
    return _truncated([*_stage_warnings(reading), *_loss_warnings(reading), *_age_warnings(reading)])


def _stage_warnings(reading: MonitorSnapshot) -> Iterator[StatusFinding]:
    for stage, counters in sorted(reading.books.items()):
        if counters.residual:
            hint = "a bug in ragmon: ragmon verify says where"
            yield StatusFinding(f"{stage}: {counters.residual} records are not accounted for", hint=hint)
        yield from _loss_warning(
            f"{stage}: {{}} of {counters.received} records dropped", counters.dropped, counters.received
        )


def _loss_warnings(reading: MonitorSnapshot) -> Iterator[StatusFinding]:
    served = reading.served
    if served is None:
        return
    if served.resets:
        yield StatusFinding(f"the journal was damaged and begun anew: {served.resets}", hint="the log says where it is")
    received = sum(counters.received for counters in reading.books.values())
    if served.missing > FEW * received:
        hint = "a network, another server that takes some of them, or they are on their way"
        yield StatusFinding(f"{served.missing} records that producers sent have not come", hint=hint)
    yield from _loss_warning("producers lost {} records themselves", served.lost, received)


def _loss_warning(template: str, reasons: Mapping[str, int], total: int) -> Iterator[StatusFinding]:
    """A warning about a loss that is more than a few records, by reason."""
    lost = sum(reasons.values())
    if lost > FEW * total:
        by_reason = ", ".join(f"{printable(reason)} {count}" for reason, count in sorted(reasons.items()))
        yield StatusFinding(f"{template.format(lost)}: {by_reason}")


def _age_warnings(reading: MonitorSnapshot) -> Iterator[StatusFinding]:
    last, now = reading.last_scored, reading.snapshot.now
    if last is None:
        yield StatusFinding("nothing was scored yet")
    elif now - last > OLD:
        yield StatusFinding("nothing was scored lately: the numbers are old", last)


def _truncated(findings: list[StatusFinding]) -> list[StatusFinding]:
    more = len(findings) - SHOWN
    return (
        findings if more <= 0 else [*findings[:SHOWN], StatusFinding(f"and {more} more", hint="/metrics has them all")]
    )


OTHERS: Final = 100
"""Gates of unconfigured pipelines that are shown, failing ones first."""


class StatusService:
    """Reads the state of the journal writer.

    Args:
        writer: The journal writer.
        folder: The folder of the journal.
        reloading: Reports whether the configuration on disk is in force.
    """

    def __init__(self, writer: JournalWriter, folder: Path, reloading: ConfigReloader) -> None:
        self.writer = writer
        self.folder = folder
        self.stopping = False
        self._reloading = reloading
        self._began = writer.clock.now()

    def reading(self) -> MonitorSnapshot:
        """Everything that is exported to Prometheus."""
        writer = self.writer
        with writer.lock:
            snapshot = writer.server_state.reading(writer.clock.now(), writer.waiting.pending)
            captured = replace(snapshot.captured, judged=self._reloading.probing.judged())
            return replace(snapshot, served=self._served(), captured=captured)

    def moment(self) -> object:
        """A key of everything `reading` depends on: journal rows, window edges, closed minutes, the server itself."""
        writer, reloading = self.writer, self._reloading
        with writer.lock:
            server_state, labels = writer.server_state, writer.server_state.engine.labels.book
            scoring = (server_state, server_state.seq, server_state.engine.alarms.steps.closed, writer.waiting.pending)
            label_counts = (labels.results.total(), labels.waiting)
            server = (dict(writer.refused), self.trouble(), writer.resets, writer.clock.jumps, reloading.broken)
            return int(writer.clock.now()) // STEP, scoring, label_counts, server, self._probe_counts()

    def _probe_counts(self) -> object:
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
        """Why requests cannot be accepted; "" where they can."""
        if self.stopping:
            return "the server is being stopped"
        if not self.writer.alive:
            return "the thread that writes the journal has ended"
        return f"the journal cannot be written ({self.writer.trouble})" if self.writer.trouble else ""

    def quarantine(self) -> str:
        """What is quarantined, in a sentence; "" where nothing is."""
        n = self.writer.quarantined
        subject = "1 request is" if n == 1 else f"{n} requests are"
        return f"{subject} quarantined: twice the process ended or froze over each of them" if n else ""

    def status(self) -> dict[str, Any]:
        """The whole status: problems, warnings, gates, alarms, gold and counts, as plain JSON data."""
        reading, trouble, reloading = self.reading(), self.trouble(), self._reloading
        served, settings = reading.served or ServerStats(), self.writer.server_state.engine.settings
        not_writing = (
            [StatusFinding(trouble, self.writer.trouble_since, "requests are refused until it can")] if trouble else []
        )
        idle_probes = [
            StatusFinding(f"probe {name} does not run: {error}", hint=error.hint)
            for name, error in reloading.probing.troubles.items()
        ]
        stale_config = [StatusFinding(reloading.broken, reloading.since, reloading.hint)] if reloading.broken else []
        quarantined = self._quarantined()
        since = quarantined[-1]["arrival"] if quarantined else None
        set_aside = [StatusFinding(text, since, "ragmon doctor names them")] if (text := self.quarantine()) else []
        return {
            "wrong": [item._asdict() for item in (*not_writing, *problems(reading))],
            "doubts": [item._asdict() for item in (*stale_config, *set_aside, *idle_probes, *warnings(reading))],
            "verdicts": {**dict.fromkeys(ORDER, 0), **Counter(outcome.verdict for outcome in reading.outcomes)},
            "version": current_version(),
            "started": self._began,
            "now": reading.snapshot.now,
            "last_scored": reading.last_scored,
            "trouble": trouble,
            "config": {"path": None if settings.path is None else str(settings.path), "broken": reloading.broken},
            "alarms": [alarm(state) for state in firing(reading.alarms)],
            "gates": gates(reading.outcomes, settings.pipelines, reading.alarms),
            "gold": gold(reading.snapshot, list(settings.windows)),
            "books": {stage: books(item) for stage, item in reading.books.items()},
            "spans_dropped": dict(reading.captured.spans),
            "unknown": {f"{field}: {reason}": n for (field, reason), n in served.unknown.items()},
            "producers": {"missing": served.missing, "dropped": dict(served.lost)},
            "refused": dict(served.refused),
            "quarantined": quarantined,
            "labels": {**reading.labels, "waiting": reading.labels_waiting},
            "journal": {"bytes": served.size, **self._journal(), "resets": served.resets},
            "builds": [list(item) for item in reading.builds],
        }

    def _quarantined(self) -> list[dict[str, Any]]:
        """The quarantined requests, without their content."""
        if not self.writer.quarantined:
            return []
        fields = ("arrival", "step", "trace_id", "size")
        try:
            with open_readonly(self.folder) as journal:
                return [{name: getattr(item, name) for name in fields} for item in journal.quarantined()]
        except RagmonError:  # `trouble` says why
            return []

    def _journal(self) -> dict[str, Any]:
        """The size limit of the journal, its oldest row, and when the newest row was written."""
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
        outcomes: The outcomes of all gates.
        configured: The configured pipelines.
        alarms: All alarms.
    """
    since = {(state.pipeline, state.alert): state.firing for state in alarms}
    configured_outcomes = [outcome for outcome in outcomes if outcome.gate.pipeline in configured]
    others = [outcome for outcome in outcomes if outcome.gate.pipeline not in configured]
    others.sort(key=lambda outcome: ORDER.index(outcome.verdict))
    shown = (*configured_outcomes, *others[:OTHERS])
    return [{**gate(outcome), "firing": since.get((outcome.gate.pipeline, outcome.gate.name))} for outcome in shown]


def gate(outcome: Outcome) -> dict[str, Any]:
    """A gate as the status shows it."""
    fields = ("source", "gold", "estimand", "value", "lower", "upper", "n", "verdict", "reason", "of")
    labels = {"pipeline": outcome.gate.pipeline, "gate": outcome.gate.name, "metric": outcome.gate.metric}
    bounds = {"threshold": outcome.gate.threshold, "direction": outcome.gate.direction, "window": outcome.gate.window}
    return {**labels, **bounds, **{name: getattr(outcome, name) for name in fields}}


def gold(snapshot: Snapshot, windows: Sequence[str]) -> dict[str, Any]:
    """How much of the traffic the gold covers, and how much of the gold was asked.

    Args:
        snapshot: The current snapshot.
        windows: The names of the windows to show.
    """
    return {
        "sets": [row._asdict() for window in windows for row in coverage.covered(snapshot, window)],
        "traffic": [row._asdict() for window in windows for row in coverage.matched(snapshot, window)],
        "ways": coverage.match_counts(snapshot),
        "note": constants.HEAD_NOTE,
    }


def alarm(state: AlarmState) -> dict[str, Any]:
    """A firing alarm as the status shows it."""
    fields = ("pipeline", "alert", "metric", "severity", "firing", "level", "evidence")
    return {name: getattr(state, name) for name in fields}


def books(found: StageCounters) -> dict[str, Any]:
    """The counters of a stage, with the residual that is not accounted for."""
    fields = ("received", "scored", "duplicate", "pending", "residual")
    by_reason = {"ignored": dict(found.ignored), "dropped": dict(found.dropped)}
    return {**{name: getattr(found, name) for name in fields}, **by_reason}


def _size(folder: Path) -> int:
    """The size of a journal in bytes; a file may disappear while it is read."""
    total = 0
    for path in folder.glob("journal.db*"):
        with suppress(OSError):
            total += path.stat().st_size
    return total


def _split(counts: Mapping[str, int]) -> list[tuple[tuple[str, str, str], int]]:
    return [(key.partition("|"), n) for key, n in counts.items()]
