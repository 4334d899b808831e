"""Incidents: alarms of a pipeline that fire together, from when things went wrong until all of them are silent.

A function of the alarms' transitions and of the counts of their time: live traffic, a restart and a journal give the
same incidents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ragmon.alarms.pipelines import AlarmTransition
from ragmon.core import constants
from ragmon.core.errors import printable
from ragmon.core.policy import Outcome
from ragmon.gates.change import Side, Why

Severity = Literal["suspected", "confirmed"]
JOIN: Final = 1800.0
"""Seconds after an incident's newest alarm in which what begins belongs to it: slower alarms tell of the same fault."""
APART: Final = 120.0
"""Seconds by which two changes must lie apart, beyond their intervals, to be two faults."""
AGAIN: Final = 60.0
"""Seconds after which a cause is asked for again, at least."""
ASKED: Final = 50
"""Causes that are asked for in a minute: requests wait meanwhile, and an outage of a thousand pipelines needs fewer."""
MAX_INCIDENTS: Final = 100
LONGEST: Final = 96
"""Characters of a pipeline's name in the name of an incident."""
SUSPECTS: Final = 3
SLOWER: Final = "took longer"
"""The trait of requests where the latency became worse."""


class Cause(msgspec.Struct, frozen=True):
    """What diagnosis finds about an alarm of an incident.

    Attributes:
        began: When the alarm's metric became worse, seconds since the epoch; None where no change is significant.
        earliest, latest: The interval that holds the change.
        trait: The trait of failing requests that explains the change (`ragmon.gates.suspects`), or `SLOWER`; "" where
            none does.
        share_before, share: The share of requests before and since then that have the trait; where there is none, of
            those that fail.
        metric, before, after: What became worse, and its level before the change and since then.
        of_gold: The requests are those that match gold items.
        suspects: Dimension and name of what came with the change, such as `("index_hash", "b721")`; the best first.
    """

    began: float | None
    earliest: float
    latest: float
    trait: str
    share_before: float | None
    share: float | None
    metric: str
    before: float | None
    after: float | None
    of_gold: bool
    suspects: tuple[tuple[str, str], ...]


_OF_METRICS: Final = {
    "error_rate": "ended in an error",
    "latency": SLOWER,
    "answered_within": "took longer than allowed",
    "empty_retrieval_rate": "retrieved nothing",
    "hit_rate": "retrieved no gold document",
    "recall": "retrieved no gold document",
    "full_recall": "retrieved no gold document",
    "over_refusal_rate": "refused what can be answered",
    "under_refusal_rate": "answered what cannot be answered",
    "refusal_rate": "refused",
    "refusal_like_rate": "refused in its own words",
    "claim_containment": "said something else than the gold claim",
    "groundedness": "said what is not in the contexts",
    "citation_hit_rate": "cited no gold document",
    "citation_scope": "cited what was not retrieved",
    "coverage": "cited nothing that was retrieved",
    "compliance": "broke the answer format",
}
"""The trait of the requests that a metric counts as bad."""


def trait_of(incident: Incident) -> str:
    """What is wrong: the trait that explains the incident; where diagnosis finds none, the one its alarm counts."""
    if incident.cause is not None and incident.cause.trait:
        return incident.cause.trait
    return trait_counted_by(incident.alarm, *incident.metrics)


def trait_counted_by(*names: str) -> str:
    """The trait of the requests that the first known one of some metrics or alarms counts as bad; "" for others."""
    metrics = (name.partition(":")[0].partition("@")[0] for name in names)
    return next((_OF_METRICS[metric] for metric in metrics if metric in _OF_METRICS), "")


def cause_of(why: Why) -> Cause:
    """What a diagnosis says, as an incident keeps it."""
    change = why.change
    began = why.begin if change.began is None else change.began
    moved = next((trait for trait in why.traits if trait.name == why.mechanism), None)
    failing = _failing(why.before), _failing(why.after)
    share_before, share = failing if moved is None else (moved.before.value, moved.after.value)
    return Cause(
        began=change.began,
        earliest=change.earliest or began,
        latest=change.latest or began,
        trait=SLOWER if why.gate.kind == "quantile_ratio" else why.mechanism,
        share_before=share_before,
        share=share,
        metric=why.measure,
        before=None if why.before is None else why.before.value,
        after=why.after.value,
        of_gold=bool(why.gate.gold),
        suspects=tuple((suspect.dimension, suspect.name) for suspect in why.suspects[:SUSPECTS]),
    )


def _failing(side: Side | None) -> float | None:
    return None if side is None or side.failed is None or not side.scored else side.failed / side.scored


class ChangedGate(NamedTuple):
    """A gate without a verdict whose metric became worse, and what diagnosis finds."""

    outcome: Outcome
    cause: Cause


Diagnose = Callable[[str, str, float, float], Cause]
"""Takes a pipeline, the name of an alarm, a time, and since when the alarm has proof."""


class Incident(msgspec.Struct):
    """Alarms that fire together.

    Attributes:
        name: The pipeline and the time of the beginning: `support-20260131T0205`.
        began: The beginning of what its first alarm fired for, seconds since the epoch.
        severity: `confirmed` as soon as gold or a gate proves it, which is when an alarm pages.
        alarm: The alarm that shows most of it: the one that confirmed it, and until then its first one.
        metrics: The metrics of its alarms, in the order in which they fired.
        alarms: Its alarms, in the order in which they fired.
        proofs: What each of them fired for, in words; that of the last time where it fired again.
        firing: Those that fire.
        ended: The end of the minute since which all its alarms are silent; None while one fires.
        newest: When an alarm joined last, seconds since the epoch.
        cause: What its alarm tells of the cause; None where nobody asked.
        due: When the cause is asked for again, seconds since the epoch.
    """

    name: str
    pipeline: str
    began: float
    alarm: str
    severity: Severity = "suspected"
    metrics: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()
    proofs: dict[str, str] = {}
    firing: tuple[str, ...] = ()
    ended: float | None = None
    newest: float = 0.0
    cause: Cause | None = None
    due: float = 0.0

    @property
    def since(self) -> float:
        """When it broke: the change that diagnosis finds, or else the beginning of its first proof."""
        return self.began if self.cause is None or self.cause.began is None else self.cause.began


@dataclass(frozen=True)
class IncidentTransition:
    """An incident that began, was confirmed or ended: a line of an incidents file.

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
    """The incidents of all pipelines, in the order in which they began; sees transitions in the order of time.

    Args:
        diagnose: Tells the cause of an alarm. Without, an incident has none, and every alarm joins the newest incident.
        incidents: Those to go on with.
    """

    def __init__(self, diagnose: Diagnose | None = None, incidents: Iterable[Incident] = ()) -> None:
        self._diagnose = diagnose
        self.incidents = list(incidents)

    def see(self, transitions: Iterable[AlarmTransition]) -> Iterator[IncidentTransition]:
        """Follow alarms; yields the incidents that begin, are confirmed or end."""
        asked = Counter[float]()
        for edge in transitions:
            if edge.state == "resolved":
                yield from self._resolve(edge)
            elif edge.since is not None:  # an alarm on drift tells of a change, and of nothing that is wrong
                asked[edge.ts] += 1
                yield from self._fire(edge, edge.since, self._diagnose if asked[edge.ts] <= ASKED else None)

    def look(self, now: float) -> None:
        """Ask again for the cause of every incident that fires, the less often the longer no alarm joined it."""
        due = [incident for incident in self.incidents if incident.ended is None and incident.due <= now]
        for place, incident in enumerate(sorted(due, key=lambda incident: incident.cause is not None)):
            incident.due = now + (AGAIN if place >= ASKED else max(AGAIN, now - incident.newest))
            if place < ASKED:
                self._ask(incident, incident.firing, now)

    def look_back(self, now: float) -> None:
        """Ask again for the cause of every incident, as it was when the incident ended or is now."""
        for incident in self.incidents:
            self._ask(incident, incident.firing or incident.alarms, incident.ended or now)

    def _ask(self, incident: Incident, alarms: Iterable[str], at: float) -> None:
        if self._diagnose is None:
            return
        for alarm in sorted(alarms, key=lambda name: name != incident.alarm):
            incident.cause = _clearer(incident.cause, self._diagnose(incident.pipeline, alarm, at, incident.began))
            if incident.cause.began is not None:
                break

    def alarms_of(self, pipeline: str, name: str) -> list[tuple[str, str]]:
        """Pipeline and name of the alarms of an incident that fire; none where no incident has the name.

        The name of a pipeline, and so of its incident, may have a slash: `[PIPELINE/]ALARM` is split at the last one.
        """
        return [
            (incident.pipeline, alarm)
            for incident in self.incidents
            if incident.name in (name, f"{pipeline}/{name}")
            for alarm in incident.firing
        ]

    def _fire(self, edge: AlarmTransition, since: float, diagnose: Diagnose | None) -> Iterator[IncidentTransition]:
        cause = None if diagnose is None else diagnose(edge.pipeline, edge.alert, edge.ts, since)
        incident = self._joined(edge.pipeline, since, cause)
        is_new = incident is None
        if incident is None:
            incident = Incident(self._name(edge.pipeline, since), edge.pipeline, since, edge.alert, cause=cause)
            self.incidents.append(incident)
            self._forget()
        is_confirmed = edge.severity == constants.PAGE and incident.severity == "suspected"
        incident.newest = edge.ts
        incident.due = edge.ts + (AGAIN if is_new else 0.0)
        incident.firing = (*incident.firing, edge.alert)
        incident.alarms = tuple(dict.fromkeys((*incident.alarms, edge.alert)))
        incident.proofs = {**incident.proofs, edge.alert: edge.proof}
        incident.metrics = tuple(dict.fromkeys((*incident.metrics, edge.metric)))
        if is_confirmed:
            incident.severity, incident.alarm = "confirmed", edge.alert
        if cause is not None and (is_confirmed or (cause.trait and incident.cause and not incident.cause.trait)):
            incident.cause = _clearer(incident.cause, cause)
        if is_new or is_confirmed:
            yield self._transition(incident, edge.ts)

    def _joined(self, pipeline: str, since: float, cause: Cause | None) -> Incident | None:
        """The newest incident that an alarm can belong to; None where it begins one."""
        for incident in reversed(self.incidents):
            if (
                incident.pipeline == pipeline
                and incident.ended is None
                and since <= incident.newest + JOIN
                and not _is_another(incident.cause, cause)
            ):
                return incident
        return None

    def keep(self, firing: Container[tuple[str, str]], ts: float) -> Iterator[IncidentTransition]:
        """End what no alarm of a new configuration can end: alarms are named by pipeline and name."""
        for incident in self.incidents:
            incident.firing = tuple(name for name in incident.firing if (incident.pipeline, name) in firing)
            if incident.ended is None and not incident.firing:
                incident.ended = ts
                yield self._transition(incident, ts)

    def _resolve(self, edge: AlarmTransition) -> Iterator[IncidentTransition]:
        for incident in self.incidents:
            if incident.pipeline == edge.pipeline and edge.alert in incident.firing:
                incident.firing = tuple(name for name in incident.firing if name != edge.alert)
                if not incident.firing:
                    incident.ended = edge.ts
                    yield self._transition(incident, edge.ts)

    def _forget(self) -> None:
        ended = [incident for incident in self.incidents if incident.ended is not None]
        for incident in ended[: max(0, len(self.incidents) - MAX_INCIDENTS)]:
            self.incidents.remove(incident)

    def _name(self, pipeline: str, since: float) -> str:
        # It is a label, a part of an address and an argument: a pipeline may have any name.
        name = f"{printable(pipeline, LONGEST)}-{datetime.fromtimestamp(since, UTC):%Y%m%dT%H%M}"
        taken = {incident.name for incident in self.incidents}
        return next(free for n in count(1) if (free := f"{name}-{n}" if n > 1 else name) not in taken)

    def _transition(self, incident: Incident, ts: float) -> IncidentTransition:
        state: Literal["firing", "resolved"] = "firing" if incident.ended is None else "resolved"
        known = incident.name, incident.pipeline, incident.severity, incident.metrics, incident.began
        return IncidentTransition(ts, *known, state)


def _clearer(cause: Cause | None, later: Cause) -> Cause:
    """What was found first, unless the later look found more of the same change: a fault that ends is another one."""
    if cause is None or cause.began is None:
        return later
    is_same = later.began is not None and later.earliest <= cause.latest + APART
    return later if is_same and (later.trait or not cause.trait) else cause


def _is_another(cause: Cause | None, other: Cause | None) -> bool:
    """Whether two causes are two faults: they began at different times, and different things are wrong."""
    if cause is None or other is None or cause.trait == other.trait or "" in (cause.trait, other.trait):
        return False
    return _are_apart(cause, other)


def _are_apart(cause: Cause, other: Cause) -> bool:
    """Whether two causes are known to have begun at different times."""
    are_known = None not in (cause.began, other.began)
    return are_known and (cause.latest + APART < other.earliest or other.latest + APART < cause.earliest)


def tells_of(incident: Incident, changed: ChangedGate) -> bool:
    """Whether a change may be what an incident tells of: its metric or its trait is, or it began at the same time."""
    gate, cause = changed.outcome.gate, incident.cause
    is_same = gate.metric in incident.metrics or changed.cause.trait == trait_of(incident) != ""
    return incident.pipeline == gate.pipeline and (is_same or cause is None or not _are_apart(cause, changed.cause))


def as_incident(incident: Incident) -> dict[str, Any]:
    """An incident in JSON."""
    document: dict[str, Any] = msgspec.to_builtins(incident)
    shown = ("pipeline", "severity", "metrics", "began", "ended", "alarm", "alarms", "proofs", "firing", "cause")
    return {"incident": incident.name, **{name: document[name] for name in shown}}
