"""The state of a monitor for exporters (`MonitorSnapshot`), and its status at a glance as JSON data.

The content of requests is never shown. `ragmon.export.pages` makes pages of the status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from operator import add, sub
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ragmon.alarms.pipelines import AcknowledgedAlarm, AlarmState
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import printable, printable_line, shorten, shown_name
from ragmon.core.policy import ORDER, Outcome
from ragmon.core.process import current_version
from ragmon.export.schema import gate_summary
from ragmon.export.text import bounds_text, change_text, incident_text, percent, value
from ragmon.gates import coverage
from ragmon.gates.coverage import CaptureReport
from ragmon.gates.history import GateHistory, GateKey, TimeSpan
from ragmon.gates.incidents import ChangedGate, Incident, tells_of
from ragmon.ingest.spans.tools import sounds_like_retrieval
from ragmon.scoring.buckets import JudgeVersion
from ragmon.scoring.labels import Prediction
from ragmon.scoring.snapshot import Exemplar, Snapshot

_Counts = TypeVar("_Counts", "StageCounters", "SdkStats")
FEW: Final = 0.01
"""Share of records whose loss causes no warning: some are always in flight."""
OLD: Final = 600.0
"""Seconds without a scored record after which the numbers are reported as old."""
SHOWN: Final = 20
_URGENT: Final = (constants.PAGE, constants.LOOK, constants.TICKET)
OTHERS: Final = 100
"""Gates of unconfigured pipelines that are shown; where there are more, failing ones come first."""
_WINDOW_ALONE: Final = {"pass": "the gate passes", "insufficient": "undecided"}


@dataclass(frozen=True)
class StageCounters:
    """The record counters of one processing stage."""

    received: int = 0
    scored: int = 0
    ignored: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    duplicate: int = 0
    pending: int = 0

    @property
    def residual(self) -> int:
        """Received records minus all other counters; anything but 0 is a bug in ragmon."""
        lost = sum(self.ignored.values()) + sum(self.dropped.values())
        return self.received - self.scored - lost - self.duplicate - self.pending

    def plus(self, other: StageCounters) -> StageCounters:
        """The sum of both."""
        return _combined(self, other, add)

    def minus(self, other: StageCounters) -> StageCounters:
        """What was counted since other counters; what was pending then is received since."""
        since = _combined(self, replace(other, received=other.received - other.pending), sub)
        return replace(since, pending=self.pending)


@dataclass(frozen=True)
class SdkStats:
    """The statistics of capture in this process.

    Attributes:
        latency: Latency histograms: log buckets of milliseconds, by pipeline and source; empty where nothing was timed.
        orphans: Values that were recorded outside a traced call.
        withheld: Records exported without text because a redactor failed.
        spans: Spans of the application's tracer that belong to no record, by reason.
        scopes: Requests whose convention is not known, by the name of their instrumentation.
        tools: Requests without a retrieval, by the names of the tools called in them.
    """

    counters: StageCounters = field(default_factory=StageCounters)
    calls: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    latency: Mapping[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    orphans: int = 0
    unread: Mapping[tuple[str, str], int] = field(default_factory=dict)
    withheld: int = 0
    spans: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    judged: Mapping[tuple[str, str], int] = field(default_factory=dict)
    scopes: Mapping[str, int] = field(default_factory=dict)
    tools: Mapping[str, int] = field(default_factory=dict)

    @property
    def pipelines(self) -> set[str]:
        """The pipelines whose calls were counted."""
        return {key[0] for part in (self.calls, self.latency, self.errors) for key in part}

    def plus(self, other: SdkStats) -> SdkStats:
        """The sum of both."""
        return _combined(self, other, add)

    def minus(self, other: SdkStats) -> SdkStats:
        """What was counted since other statistics of the same process."""
        return replace(_combined(self, other, sub), counters=self.counters.minus(other.counters))

    def of(self, pipelines: Collection[str]) -> SdkStats:
        """The same statistics with the calls of some pipelines only."""
        return replace(
            self,
            calls={key: n for key, n in self.calls.items() if key[0] in pipelines},
            latency={key: histogram for key, histogram in self.latency.items() if key[0] in pipelines},
            errors={key: n for key, n in self.errors.items() if key[0] in pipelines},
        )


def _combined(own: _Counts, other: _Counts, combine: Callable[[int, int], int]) -> _Counts:
    names = [each.name for each in fields(own)]
    parts = {name: _each(getattr(own, name), getattr(other, name), combine) for name in names}
    return replace(own, **parts)


def _each(own: Any, other: Any, combine: Callable[[int, int], int]) -> Any:
    """Two numbers, mappings of numbers or data classes of them, combined number by number; zeros are left out."""
    if isinstance(own, int):
        return combine(own, other)
    if isinstance(own, Mapping):
        values = [*own.values(), *other.values()]
        nothing: Any = 0 if all(isinstance(value, int) for value in values) else Counter()
        pairs = {key: _each(own.get(key, nothing), other.get(key, nothing), combine) for key in {**own, **other}}
        return {key: value for key, value in pairs.items() if value}
    return _combined(own, other, combine)


@dataclass(frozen=True)
class StreamStats:
    """How far the partitions of a log were added up.

    Attributes:
        watermark: Until when all of them have spoken, seconds since the epoch; alarms are judged up to here.
        behind: By partition, how many seconds ago it spoke last.
        lost: Messages that nobody counted, because the log had deleted them.
        configs: By how many configurations the last chunks were counted.
    """

    watermark: float
    behind: Mapping[str, float]
    chunks: Mapping[str, int]
    lost: int
    configs: int


@dataclass(frozen=True)
class ServerStats:
    """The statistics of a server.

    Attributes:
        size: Bytes of the journal.
        trouble: Why the journal cannot be written; "" where it can.
        resets: How often a damaged journal was quarantined.
        missing: Records that producers sent and the server has not received.
        unknown: How often spans do not carry a field, by field and reason.
        scopes: Requests whose convention is not known, by the name of their instrumentation.
        tools: Requests without a retrieval, by the names of the tools called in them.
        stream: How far the partitions of a log were added up; None where the server counts itself.
    """

    refused: Mapping[str, int] = field(default_factory=dict)
    size: int = 0
    trouble: str = ""
    resets: int = 0
    jumps: int = 0
    reloaded: bool = True
    missing: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[tuple[str, str], int] = field(default_factory=dict)
    probes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    probed: Mapping[str, int] = field(default_factory=dict)
    bursts: Mapping[str, int] = field(default_factory=dict)
    scopes: Mapping[str, int] = field(default_factory=dict)
    tools: Mapping[str, int] = field(default_factory=dict)
    stream: StreamStats | None = None


@dataclass(frozen=True)
class MonitorSnapshot:
    """Everything an exporter needs, at one moment.

    Attributes:
        captured: The statistics of capture; empty where records come from elsewhere.
        retrieved: How many records retrieved how many documents, by pipeline and source.
        builds: The `(pipeline, build, index_hash)` that were seen last.
        exemplars: The newest trace that can be opened, by pipeline and source.
        last_scored: When the last record was scored, seconds since the epoch; None before the first.
        labels_waiting: Labels that wait for the record they rate.
        overflow: How often a name was counted as `__other__` because of a cardinality limit, by kind.
        needed_series: `[serve] max_series` with which all pipelines that came would have places; None where all have.
        reloaded: Whether the configuration in force is the one on disk, where there is no server.
        acknowledged: The last acknowledgement of each alarm, the newest first.
        incidents: The incidents that are kept, in the order in which they began.
        changed: Gates without a verdict that became worse.
    """

    snapshot: Snapshot
    outcomes: Sequence[Outcome] = ()
    stages: Mapping[str, StageCounters] = field(default_factory=dict)
    captured: SdkStats = field(default_factory=SdkStats)
    retrieved: Mapping[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    builds: Sequence[tuple[str, str, str]] = ()
    exemplars: Mapping[tuple[str, str], Exemplar] = field(default_factory=dict)
    last_scored: float | None = None
    alarms: Sequence[AlarmState] = ()
    served: ServerStats | None = None
    labels: Mapping[str, int] = field(default_factory=dict)
    labels_waiting: int = 0
    predictions: Sequence[Prediction] = ()
    judges: Sequence[JudgeVersion] = ()
    overflow: Mapping[str, int] = field(default_factory=dict)
    needed_series: int | None = None
    reloaded: bool = True
    capture: Sequence[CaptureReport] = ()
    acknowledged: Sequence[AcknowledgedAlarm] = ()
    incidents: Sequence[Incident] = ()
    changed: Sequence[ChangedGate] = ()


class StatusFinding(msgspec.Struct, frozen=True):
    """One problem or warning.

    Attributes:
        what: The problem, in one line.
        since: Since when, seconds since the epoch; None where that is unknown.
        severity: The severity of the alarm that fires; "" where it is no alarm.
        pipeline: The pipeline that it is about; "" where it is about none.
        gate: The gate that it is about; "" where it is about none.
        incident: The incident that it tells of; "" where it is another problem.
    """

    what: str
    since: float | None = None
    hint: str = ""
    severity: str = ""
    pipeline: str = ""
    gate: str = ""
    incident: str = ""


def firing(states: Sequence[AlarmState]) -> list[AlarmState]:
    """The alarms that fire, the most urgent first; among equals, the one that started first."""
    firing_alarms = [state for state in states if state.firing is not None]
    return sorted(
        firing_alarms, key=lambda state: (_URGENT.index(state.severity), state.firing, state.pipeline, state.alert)
    )


def problems(current: MonitorSnapshot) -> list[StatusFinding]:
    """The incidents that last, the gates that fail, those that changed, then the alarms that are no incident's."""

    def why_of(*names: str) -> str:  # it takes a server's journal
        return "" if current.served is None else f"ragmon why {printable('/'.join(names))}"

    now, gates = current.snapshot.now, {(outcome.gate.pipeline, outcome.gate.name) for outcome in current.outcomes}
    fires = {(state.pipeline, state.alert): state for state in firing(current.alarms)}
    told: set[tuple[str, str]] = set()
    findings = []
    last = lasting(current.incidents)
    of_pipeline = Counter(incident.pipeline for incident in last)
    for incident in last:
        told |= {(incident.pipeline, name) for name in (*incident.alarms, *incident.metrics)}
        about = incident.alarm.partition(":")[0]
        severity = constants.PAGE if incident.severity == "confirmed" else constants.LOOK
        shown = (incident.pipeline, about if (incident.pipeline, about) in gates else "")
        hint = why_of(incident.pipeline if of_pipeline[incident.pipeline] == 1 else incident.name)
        findings.append(StatusFinding(incident_text(incident, now), None, hint, severity, *shown, incident.name))
    failing = {(outcome.gate.pipeline, outcome.gate.name) for outcome in current.outcomes if outcome.verdict == "fail"}
    for outcome in current.outcomes:
        gate = outcome.gate
        shown = (gate.pipeline, gate.name)
        if shown in failing and not told & {shown, (gate.pipeline, gate.metric)}:
            alarm = fires.pop(shown, None)
            since, severity = (None, "") if alarm is None else (alarm.firing, alarm.severity)
            text = f"{printable('/'.join(shown))} fails: {_gate_text(outcome)}"
            findings.append(StatusFinding(text, since, why_of(*shown), severity, *shown))
    for changed in current.changed:
        gate = changed.outcome.gate
        if (gate.pipeline, gate.name) not in failing and not any(tells_of(incident, changed) for incident in last):
            text, hint = change_text(changed, now), why_of(gate.pipeline, gate.name)
            shown = (gate.pipeline, gate.name if (gate.pipeline, gate.name) in gates else "")
            findings.append(StatusFinding(text, None, hint, constants.LOOK, *shown))
    for key, state in fires.items():
        if key not in told:
            text = f"{printable('/'.join(key))} fires ({state.severity})"
            text += f": {state.proof.text}" if state.proof else ""
            findings.append(StatusFinding(text, state.firing, why_of(*key), state.severity, state.pipeline))
    return _truncated(findings)


def lasting(incidents: Iterable[Incident]) -> list[Incident]:
    """The incidents that last, confirmed ones first; among equals, the one that began first."""
    lasting_incidents = (incident for incident in incidents if incident.ended is None)
    return sorted(lasting_incidents, key=lambda incident: (incident.severity != "confirmed", incident.began))


def headline(current: MonitorSnapshot) -> str:
    """The state of everything in one sentence, the worst first."""
    found = problems(current)
    if found:
        return found[0].what + (f" (and {len(found) - 1} more)" if len(found) > 1 else "")
    judged = [outcome for outcome in current.outcomes if outcome.applicable]
    undecided = [outcome for outcome in judged if outcome.verdict == "insufficient"]
    passing = len(judged) - len(undecided)
    if not judged:
        return "Nothing to judge yet"
    if passing:
        rest = f", {len(undecided)} {'has' if len(undecided) == 1 else 'have'} too little data" if undecided else ""
        return f"All quiet: {passing} {'gate passes' if passing == 1 else 'gates pass'}{rest}"
    missing = [outcome.needed - outcome.n for outcome in undecided if outcome.needed and outcome.needed > outcome.n]
    nearest = f", the first about {min(missing)} more" if missing else ""
    needs = "gate needs" if len(undecided) == 1 else "gates need"
    return f"Too early to say: {len(undecided)} {needs} more requests{nearest}"


def _gate_text(outcome: Outcome) -> str:
    """A gate's value in its window, with its interval."""
    gate = outcome.gate
    limit = percent(gate.threshold) if gate.kind == "threshold" else f"{gate.threshold:g}"
    bounds = f" ({bounds_text(outcome.lower, outcome.upper)})" if outcome.lower is not None else ""
    asked = f"{'at least' if gate.at_least else 'at most'} {limit}"
    return f"{value(gate_summary(outcome))}{bounds} of {outcome.n:,}, should be {asked}"


def warnings(current: MonitorSnapshot) -> list[StatusFinding]:
    """Data-quality warnings: why the numbers may be incomplete or old."""
    findings = [
        *_lost_records(current),
        *_unread_requests(current),
        *(
            StatusFinding(
                f"pipeline {shorten(pipeline)} has records, but no gates and no rules",
                hint="[gates] at the top level of ragmon.toml, or [pipelines.NAME.gates]",
            )
            for pipeline in uncovered(current)
        ),
    ]
    names, last = current.overflow.get(constants.PIPELINE_NAMES, 0), current.last_scored
    if names:
        hint = f"raise it: [serve] {more_places(current.needed_series)}; a pipeline in [pipelines.NAME] always has room"
        text = f"records of pipelines without room, counted as {constants.OTHER}: {names}"
        findings.append(StatusFinding(text, hint=hint))
    if last is None:
        findings.append(StatusFinding("no record has been scored yet"))
    elif current.snapshot.now - last > OLD:
        findings.append(StatusFinding("no record was scored lately, so the numbers are old", last))
    for report in current.capture:
        gap = report.worst
        if gap is not None and gap.blocked:
            text = printable_line(f"{report.pipeline}, {report.source}: {gap.text}")
            findings.append(StatusFinding(text, hint=gap.remedy))
    return _truncated(findings)


def _lost_records(current: MonitorSnapshot) -> Iterator[StatusFinding]:
    def lost(template: str, reasons: Mapping[str, int], total: int) -> Iterator[StatusFinding]:
        n = sum(reasons.values())
        if n > FEW * total:
            by_reason = ", ".join(f"{printable(reason)} {count:,}" for reason, count in sorted(reasons.items()))
            yield StatusFinding(f"{template.format(n)}: {by_reason}")

    for stage, counters in sorted(current.stages.items()):
        if counters.residual:
            hint = "this is a bug in ragmon; `ragmon verify` says where"
            yield StatusFinding(f"{stage}: {counters.residual:,} records are not accounted for", hint=hint)
        template = f"{stage}: {{:,}} of {counters.received:,} records dropped"
        yield from lost(template, counters.dropped, counters.received)
    served = current.served
    if served is None:
        return
    if served.resets:
        hint = "the log says where they are"
        yield StatusFinding(f"damaged journals that were set aside: {served.resets}", hint=hint)
    received = sum(counters.received for counters in current.stages.values())
    if served.missing > FEW * received:
        hint = "they are on their way, the network lost them, or another server takes some of them"
        yield StatusFinding(f"{served.missing:,} records that producers sent have not arrived", hint=hint)
    yield from lost("producers lost {:,} records before sending them", served.lost, received)


def uncovered(current: MonitorSnapshot) -> list[str]:
    """The pipelines that have records and no gate."""
    with_records = {series.pipeline for series in current.snapshot.series}
    return sorted(with_records - {outcome.gate.pipeline for outcome in current.outcomes})


def _unread_requests(current: MonitorSnapshot) -> Iterator[StatusFinding]:
    for scope, n in sorted(unknown_conventions(current).items(), key=lambda item: (-item[1], item[0])):
        hint = "use an instrumentation of docs/integrations/instrumentations.md, or @ragmon.trace"
        requests = f"{n:,} requests of {printable(scope)}"
        text = f"{requests} call a model or a retriever under attributes that ragmon does not know"
        yield StatusFinding(text, hint=hint)

    tools = tools_without_documents(current)
    scored = max((counters.scored for counters in current.stages.values()), default=0)
    if max(tools.values(), default=0) > scored / 2:  # an agent need not retrieve for every question
        named = most_frequent(tools, SHOWN)
        text = f"{max(tools.values()):,} requests called tools, and no retrieval was seen: {named}"
        yield StatusFinding(text, hint=retriever_hint(tools))


def most_frequent(counts: Mapping[str, int], limit: int) -> str:
    """The most frequent names with their counts, and how many others there are.

    >>> most_frequent({"search": 3, "__other__": 7, "weather": 1}, 2)
    'other names (7), search (3) and 1 more'
    """
    names = sorted(counts, key=lambda name: (-counts[name], name))
    parts = [
        f"{'other names' if name == constants.OTHER else printable(name)} ({counts[name]:,})" for name in names[:limit]
    ]
    return ", ".join(parts) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def retriever_hint(tools: Mapping[str, int]) -> str:
    """The setting that makes a retriever of a tool: of one with such a name, and of those the one called most."""
    named = (name for name in tools if name != constants.OTHER)
    first = min(named, key=lambda name: (not sounds_like_retrieval(name), -tools[name]), default="NAME")
    return f'if one of them retrieves: [capture] retrievers = ["{printable(first)}"]'


def tools_without_documents(current: MonitorSnapshot) -> dict[str, int]:
    """The requests without a retrieval, by the names of the tools that were called in them."""
    return _by_name(current.captured.tools, {} if current.served is None else current.served.tools)


def unknown_conventions(current: MonitorSnapshot) -> dict[str, int]:
    """The requests whose convention is not known, by the name of their instrumentation."""
    return _by_name(current.captured.scopes, {} if current.served is None else current.served.scopes)


def _by_name(*parts: Mapping[str, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name, n in chain.from_iterable(part.items() for part in parts):
        counts[shown_name(name, constants.OTHER)] += n
    return dict(counts)


def _truncated(findings: list[StatusFinding]) -> list[StatusFinding]:
    more = len(findings) - SHOWN
    return (
        findings if more <= 0 else [*findings[:SHOWN], StatusFinding(f"and {more} more", hint="/metrics has them all")]
    )


def more_places(needed: int | None) -> str:
    """The setting that gives every pipeline a place, with its number where that is known."""
    return "max_series" if needed is None else f"max_series = {needed}"


class ServerFindings(NamedTuple):
    """What a server adds to the status of a monitor.

    Attributes:
        trouble: Why requests cannot be accepted; "" where they can.
        broken: Why the configuration on disk is not in force; "" where it is.
        quarantined: The quarantined requests, without their content, newest last.
        journal: The size and the age of the journal; None without one.
        of_files: Whether files are shown, and nothing more is counted.
    """

    problems: Sequence[StatusFinding] = ()
    warnings: Sequence[StatusFinding] = ()
    trouble: str = ""
    broken: str = ""
    quarantined: Sequence[Mapping[str, Any]] = ()
    journal: Mapping[str, Any] | None = None
    of_files: bool = False


def status(
    reading: MonitorSnapshot, settings: Settings, started: float, server: ServerFindings | None = None
) -> dict[str, Any]:
    """The whole status: problems, warnings, gates, alarms, gold and counts, as plain JSON data."""
    served, server = reading.served or ServerStats(), server or ServerFindings()
    return {
        "wrong": msgspec.to_builtins([*server.problems, *problems(reading)]),
        "doubts": msgspec.to_builtins([*server.warnings, *warnings(reading)]),
        "headline": headline(reading),
        "verdicts": {**dict.fromkeys(ORDER, 0), **Counter(outcome.verdict for outcome in reading.outcomes)},
        "version": current_version(),
        "started": started,
        "now": reading.snapshot.now,
        "last_scored": reading.last_scored,
        "trouble": server.trouble,
        "config": {"path": None if settings.path is None else str(settings.path), "broken": server.broken},
        "alarms": [alarm(state) for state in firing(reading.alarms)],
        "acknowledged": [msgspec.to_builtins(entry) for entry in reading.acknowledged],
        "gates": gates(reading.outcomes, settings.pipelines, reading.alarms),
        "uncovered": uncovered(reading),
        "gold": gold(reading.snapshot, list(settings.windows)),
        "captured": captured(reading.capture, settings.pipelines),
        "books": {stage: books(item) for stage, item in reading.stages.items()},
        "spans_dropped": dict(reading.captured.spans),
        "unknown": {f"{field}: {reason}": n for (field, reason), n in served.unknown.items()},
        "unknown_conventions": unknown_conventions(reading),
        "needed_series": reading.needed_series,
        "tools_without_documents": tools_without_documents(reading),
        "producers": {"missing": served.missing, "dropped": dict(served.lost)},
        "refused": dict(served.refused),
        "quarantined": list(server.quarantined),
        "labels": {**reading.labels, "waiting": reading.labels_waiting},
        "journal": server.journal,
        "of_files": server.of_files,
        "builds": [list(item) for item in reading.builds],
        "judges": [msgspec.to_builtins(judge) for judge in reading.judges],
    }


def gates(
    outcomes: Sequence[Outcome], configured: Mapping[str, object], alarms: Sequence[AlarmState]
) -> list[dict[str, Any]]:
    """The gates as the status shows them, those of configured pipelines first."""
    states = {(state.pipeline, state.alert): state for state in alarms}
    configured_outcomes = [outcome for outcome in outcomes if outcome.gate.pipeline in configured]
    others = [outcome for outcome in outcomes if outcome.gate.pipeline not in configured]
    if len(others) > OTHERS:
        others.sort(key=lambda outcome: ORDER.index(outcome.verdict))
    shown = (*configured_outcomes, *others[:OTHERS])
    return [gate(outcome, states.get((outcome.gate.pipeline, outcome.gate.name))) for outcome in shown]


def gate(outcome: Outcome, state: AlarmState | None = None) -> dict[str, Any]:
    """A gate as the status shows it.

    An alarm may fire for a stretch of time in which the gate is broken, while the window as a whole is undecided. Then
    the alarm's proof is shown, and no interval that seems to deny it.
    """
    fields = ("source", "gold", "estimand", "value", "lower", "upper", "n", "verdict", "reason", "of")
    labels = {"pipeline": outcome.gate.pipeline, "gate": outcome.gate.name, "metric": outcome.gate.metric}
    bounds = {"threshold": outcome.gate.threshold, "direction": outcome.gate.direction, "window": outcome.gate.window}
    data = {**labels, **bounds, **{name: getattr(outcome, name) for name in fields}}
    since, proof = (None, None) if state is None else (state.firing, state.proof)
    if since is not None and outcome.verdict != "fail":
        why = f": {proof.text}" if proof else ""
        window = outcome.reason if outcome.value is None else _WINDOW_ALONE[outcome.verdict]
        reason = f"its alarm fires{why}; over {outcome.gate.window}: {window}"
        data |= {"lower": None, "upper": None, "reason": reason}
    return {**data, "firing": since, "proof": None if proof is None else asdict(proof)}


def status_history(span: TimeSpan, histories: Mapping[GateKey, GateHistory]) -> dict[str, Any]:
    """How gates were over a span of time, as plain JSON data."""
    entries = [
        {"pipeline": pipeline, "gate": name, "points": entry.points, "alarms": entry.alarms}
        for (pipeline, name), entry in histories.items()
    ]
    data: dict[str, Any] = msgspec.to_builtins({"span": span, "gates": entries})
    return data


def gold(snapshot: Snapshot, windows: Sequence[str]) -> dict[str, Any]:
    """How much of the traffic the gold covers, and how much of the gold was asked, in each window."""
    return {
        "sets": [row._asdict() for window in windows for row in coverage.covered(snapshot, window)],
        "traffic": [row._asdict() for window in windows for row in coverage.matched(snapshot, window)],
        "ways": coverage.match_counts(snapshot),
        "note": constants.HEAD_NOTE,
    }


def captured(reports: Sequence[CaptureReport], configured: Mapping[str, object]) -> list[dict[str, Any]]:
    """What was captured of each pipeline and source as the status shows it, configured pipelines first."""
    own = [report for report in reports if report.pipeline in configured]
    others = [report for report in reports if report.pipeline not in configured]
    return [report.data() for report in (*own, *others[:OTHERS])]


def alarm(state: AlarmState) -> dict[str, Any]:
    """A firing alarm as the status shows it."""
    fields = ("pipeline", "alert", "metric", "severity", "firing", "level", "evidence")
    proof = None if state.proof is None else asdict(state.proof)
    return {**{name: getattr(state, name) for name in fields}, "proof": proof}


def books(counters: StageCounters) -> dict[str, Any]:
    """The counters of a stage, with the residual that is not accounted for."""
    fields = ("received", "scored", "duplicate", "pending", "residual")
    by_reason = {"ignored": dict(counters.ignored), "dropped": dict(counters.dropped)}
    return {**{name: getattr(counters, name) for name in fields}, **by_reason}
