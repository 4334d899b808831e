"""Incidents: alarms of a pipeline that fire together, from when things went wrong until all of them are silent.

A function of the alarms' transitions: live traffic, a replay and a journal give the same incidents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from ragmon.alarms.pipelines import AlarmTransition

Severity = Literal["suspected", "confirmed"]
JOIN: Final = 1800.0
"""Seconds after an incident's newest alarm in which what begins belongs to it: slower alarms tell of the same fault."""


@dataclass
class Incident:
    """Alarms that fire together.

    Attributes:
        name: The pipeline and the time of the beginning: `support-20260131T0205`.
        began: The beginning of what its first alarm fired for, seconds since the epoch.
        severity: `confirmed` as soon as gold or a gate proves it, which is when an alarm pages.
        alarm: The alarm that tells most of it: the one that confirmed it, and until then its first one.
        metrics: The metrics of its alarms, in the order in which they fired.
        ended: The end of the minute since which all its alarms are silent; None while one fires.
    """

    name: str
    pipeline: str
    began: float
    alarm: str
    severity: Severity = "suspected"
    metrics: list[str] = field(default_factory=list)
    ended: float | None = None
    newest: float = 0.0
    firing: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class IncidentTransition:
    """An incident that began, was confirmed or ended.

    Attributes:
        ts: The end of the minute that decided it, seconds since the epoch.
        metrics: What it had moved by then.
    """

    ts: float
    incident: str
    pipeline: str
    severity: Severity
    metrics: tuple[str, ...]
    began: float
    state: Literal["firing", "resolved"]


class IncidentLog:
    """The incidents of all pipelines, in the order in which they began; sees transitions in the order of time."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []

    def see(self, transitions: Iterable[AlarmTransition]) -> Iterator[IncidentTransition]:
        """Follow alarms; yields the incidents that begin, are confirmed or end."""
        for edge in transitions:
            if edge.state == "resolved":
                yield from self._resolve(edge)
            elif edge.since is not None:  # an alarm on drift tells of a change, and of nothing that is wrong
                yield from self._fire(edge, edge.since)

    def _fire(self, edge: AlarmTransition, since: float) -> Iterator[IncidentTransition]:
        incident = self._newest(edge.pipeline)
        is_new = incident is None or incident.ended is not None or since > incident.newest + JOIN
        if incident is None or is_new:
            incident = Incident(self._name(edge.pipeline, since), edge.pipeline, since, edge.alert)
            self.incidents.append(incident)
        is_confirmed = edge.severity == "page" and incident.severity == "suspected"
        incident.firing.add(edge.alert)
        incident.newest = edge.ts
        if edge.metric not in incident.metrics:
            incident.metrics.append(edge.metric)
        if is_confirmed:
            incident.severity, incident.alarm = "confirmed", edge.alert
        if is_new or is_confirmed:
            yield self._transition(incident, edge.ts)

    def _resolve(self, edge: AlarmTransition) -> Iterator[IncidentTransition]:
        for incident in self.incidents:
            if incident.pipeline == edge.pipeline and edge.alert in incident.firing:
                incident.firing.remove(edge.alert)
                if not incident.firing:
                    incident.ended = edge.ts
                    yield self._transition(incident, edge.ts)

    def _newest(self, pipeline: str) -> Incident | None:
        return next((incident for incident in reversed(self.incidents) if incident.pipeline == pipeline), None)

    def _name(self, pipeline: str, since: float) -> str:
        name = f"{pipeline}-{datetime.fromtimestamp(since, UTC):%Y%m%dT%H%M}"
        taken = sum(incident.name.startswith(name) for incident in self.incidents)
        return f"{name}-{taken + 1}" if taken else name

    def _transition(self, incident: Incident, ts: float) -> IncidentTransition:
        state: Literal["firing", "resolved"] = "firing" if incident.ended is None else "resolved"
        known = incident.name, incident.pipeline, incident.severity, tuple(incident.metrics), incident.began
        return IncidentTransition(ts, *known, state)


def incidents_of(transitions: Iterable[AlarmTransition]) -> list[Incident]:
    """The incidents that transitions of alarms make, in the order in which they began."""
    log = IncidentLog()
    for _ in log.see(transitions):
        pass
    return log.incidents


def as_incident(incident: Incident) -> dict[str, Any]:
    """An incident in JSON."""
    return {
        "incident": incident.name,
        "pipeline": incident.pipeline,
        "severity": incident.severity,
        "metrics": incident.metrics,
        "began": incident.began,
        "ended": incident.ended,
        "alarm": incident.alarm,
        "alarms": sorted(incident.firing),
    }


def as_incident_line(edge: IncidentTransition) -> dict[str, Any]:
    """A transition as a line of an incidents file."""
    return {**vars(edge), "metrics": list(edge.metrics)}
