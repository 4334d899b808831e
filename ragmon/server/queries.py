"""What a server's admin port shows: its status, which requests fail a gate, what broke, whether a release is worse.

An alarm on a metric's past is written as a gate on that metric whose threshold is the level of the baseline, so that it
is explained from the same counts in the same way.

The content of requests is in the answer to `trace` alone, and `ragmon.server.admin` withholds it without a token: any
program of the machine may ask a loopback port, and a page or a model may make one ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Final, Protocol

from msgspec import to_builtins

from ragmon.alarms.detector import shown
from ragmon.alarms.drift import DriftSignal, JudgeShift, Shift, alert_name
from ragmon.alarms.pipelines import PipelineAlarms, minute_end
from ragmon.alarms.plan import AlarmRule
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import BUCKET_SECONDS, DEFAULT_PIPELINE, HOUR
from ragmon.core.errors import RagmonError, UnavailableError, UnknownNameError, shorten
from ragmon.core.policy import Gate, Outcome
from ragmon.core.record import FAILING_ENTRY, Line, Record
from ragmon.export.comparison import Canary, uncompared_gates
from ragmon.export.families import label
from ragmon.export.pages import GateFindings, RequestFilter
from ragmon.export.status import MonitorSnapshot, ServerFindings, ServerStats, StatusFinding, StreamStats, status
from ragmon.export.text import why_text
from ragmon.gates.change import Why
from ragmon.gates.evaluate import evaluate
from ragmon.gates.releases import By, compare
from ragmon.gates.request import RequestReport, report
from ragmon.gates.suspects import traits_of
from ragmon.gates.why import explain, explain_drift
from ragmon.monitor.engine import Engine
from ragmon.monitor.replay import ReleaseSplitter
from ragmon.scoring.scorer import Scorer, ScorerFactory
from ragmon.scoring.snapshot import Snapshot
from ragmon.server.chunks import StreamReader
from ragmon.server.failures import Failure, FailureQuery
from ragmon.server.reader import JournalReader, open_readonly
from ragmon.server.reload import ConfigReloader
from ragmon.server.state import LATENCY_MS, TRAITS, Clock, ServerState, entries, latency_fact
from ragmon.server.writer import UNCOUNTED, JournalWriter
from ragmon.stats.histograms import MICRO

_WINDOW: Final = "1h"
_UNITS: Final = {"latency": " ms", "question_length": " characters", "answer_length": " characters"}
_NAMES: Final = {
    "latency": "the latency",
    "question_length": "the length of questions",
    "answer_length": "the length of answers",
    "top_score": "the best score of retrieval",
}
_MINUTE: Final = 60
_MIN_LEVEL: Final = 1e-6
SHORTEST: Final = 8
"""The fewest hex digits by which a trace is searched."""
PATIENCE: Final = 20.0
"""Seconds in which a journal is searched for the beginning of an id."""
MAX_RECORDS: Final = 100
"""Records of one trace that are shown."""
ID_DIGITS: Final = 32
"""Hex digits of a whole trace id."""
_MANY: Final = 5
_BEGINNING: Final = re.compile(r"[0-9a-f]{8,31}", re.ASCII)
TO_OPEN: Final = 5
"""Failing traces that are listed with a diagnosis."""
ON_PAGE: Final = 20
"""Failing requests on the page of a gate."""
MAX_ASSESSED: Final = 20_000
"""Records that are looked at for requests that score badly in a metric without a gate."""
COMPARED: Final = 86_400.0
"""Seconds of records that two releases are compared on."""
MAX_DROP: Final = 0.02
"""How much worse a metric of a release may be."""


@dataclass(frozen=True)
class ExplainedAlarm:
    """An alarm, or a gate without one, as it is explained.

    Attributes:
        outcome: The gate's outcome; for other alarms that of a gate that stands for it.
        firing: Since when it fires, seconds since the epoch; None while it does not fire.
        text: What it compares, and what it has seen.
        derived: It is no gate.
        shift: What moved, for an alarm on a distribution.
        is_drift: It is an alarm on a distribution.
    """

    outcome: Outcome
    firing: float | None
    text: str = ""
    derived: bool = False
    shift: Shift | JudgeShift | None = None
    is_drift: bool = False


def find_alarm(engine: Engine, snapshot: Snapshot, pipeline: str, name: str) -> ExplainedAlarm:
    """The gate or the alarm with a name, as pages, `/metrics` and alerts show it."""
    outcomes = engine.judge(snapshot)
    pipelines = {outcome.gate.pipeline for outcome in outcomes}
    if pipeline not in pipelines | set(engine.alarms.pipelines):
        raise UnknownNameError("pipeline", pipeline, pipelines)
    gates = {outcome.gate.name: outcome for outcome in outcomes if outcome.gate.pipeline == pipeline}
    alarms = engine.alarms.pipelines.get(pipeline)
    if alarms is None:
        if name in gates:
            return ExplainedAlarm(gates[name], None)
        raise UnknownNameError("gate", name, [*gates])
    rule = alarms.rules.get(name)
    if rule is None:
        signals = {signal.alert: signal for signal in alarms.drift.signals}
        if name in gates:
            return ExplainedAlarm(gates[name], minute_end(signals[name].firing) if name in signals else None)
        if name in signals:
            return _of_drift(engine, snapshot, alarms, signals[name])
        raise UnknownNameError("gate", name, [*gates, *alarms.rules, *signals])
    alarm = alarms.state.alarms[rule.alert]
    seen = "" if alarm.proof is None else shown(alarm.proof, rule).text
    if name in gates:
        return ExplainedAlarm(gates[name], minute_end(alarm.firing), seen)
    # An alarm on a metric's own past.
    level = alarms.held_against(rule)
    is_latency = rule.metric == constants.LATENCY
    # A paired rule detects items that became worse, whatever is better of its metric.
    better = "higher" if is_latency else engine.scorer.table.metrics[rule.metric].better
    at_least = better == "higher" if rule.kind == "paired" else rule.at_least
    share = 0.5 if level is None or rule.kind == "paired" else min(1.0 - _MIN_LEVEL, max(_MIN_LEVEL, level))
    gate = Gate(
        name=rule.alert,
        metric=rule.metric,
        threshold=rule.ratio if is_latency else share,
        direction="at_most" if is_latency or not at_least else "at_least",
        pipeline=alarms.pipeline,
        source=rule.source or alarms.selector.state.sources.get(rule.needs_gold),
        gold=rule.gold,
        where=rule.where,
        window=_window(engine),
        kind="quantile_ratio" if is_latency else "threshold",
    )
    text = seen or _compared(alarms, rule, level)
    return ExplainedAlarm(_outcome(engine, snapshot, gate), minute_end(alarm.firing), text, derived=True)


def _compared(alarms: PipelineAlarms, rule: AlarmRule, level: float | None) -> str:
    baseline = alarms.baseline_of(rule)
    what = "each gold item with its first answer" if rule.kind == "paired" else f"{rule.metric} with its own past"
    if level is None or baseline is None:
        seen = 0 if baseline is None else baseline.n
        return f"compares {what}, which is being learned ({seen} observations so far)"
    direction = "at least" if rule.at_least else "at most"
    learned = f"baseline {baseline.phase}, {baseline.n} observations"
    return f"compares {what}: {direction} {100 * level:.1f} % ({learned})"


def _of_drift(engine: Engine, snapshot: Snapshot, alarms: PipelineAlarms, signal: DriftSignal) -> ExplainedAlarm:
    firing, source, drift = minute_end(signal.firing), alarms.selector.user_source, alarms.drift.state
    gate = Gate(
        name=signal.alert,
        metric=signal.metric,
        threshold=1.0,
        direction="at_most",
        pipeline=alarms.pipeline,
        source=source or None,
        window=_window(engine),
        kind="distinct",
    )
    if signal.metric == constants.INDEX_HASH:
        text = "compares the indexes that answer under one build: a second one is a ticket"
        return ExplainedAlarm(_outcome(engine, snapshot, gate), firing, text, derived=True)
    judge, distribution = drift.judges.get(signal.alert), drift.distributions.get(signal.alert)
    judge_shift = None if judge is None else judge.shift()
    shift = None if distribution is None else distribution.shift()
    outcome = Outcome(
        gate, source, "", "", None, None, None, 0, None, "insufficient", "it says that, not what is worse"
    )
    is_judge = signal.metric.startswith(constants.JUDGE_PREFIX)
    text = _judge_moved(signal, judge_shift) if is_judge else _moved(signal, shift)
    moved = judge_shift or shift
    return ExplainedAlarm(outcome, firing, text, derived=True, shift=moved, is_drift=True)


def _judge_moved(signal: DriftSignal, shift: JudgeShift | None) -> str:
    name = signal.metric
    if signal.alert == alert_name(signal.metric, labelled=True):
        name = f"label minus {name}"
    if shift is None:
        return f"compares the mean of {name} with its past under the same version; there is too little to compare yet"
    begin, end = (datetime.fromtimestamp(minute * _MINUTE, UTC) for minute in (shift.begin, shift.end))
    version = f" under version {shift.version}" if shift.version else ""
    return (
        f"the mean of {name}{version} was {shift.before:.3f}, and is {shift.after:.3f} of {shift.n} from "
        f"{begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC: the judge changed, or the answers did"
    )


def _moved(signal: DriftSignal, shift: Shift | None) -> str:
    name = _NAMES.get(signal.metric, signal.metric)
    if shift is None:
        return f"compares {name} with its first hour; no later block is full yet"
    begin, end = (datetime.fromtimestamp(minute * _MINUTE, UTC) for minute in (shift.begin, shift.end))
    verb = "is no longer" if signal.firing is not None else "is as in"
    unit = _UNITS.get(signal.metric, "")
    return (
        f"{name} {verb} {'what it was in ' if signal.firing is not None else ''}its first hour: below "
        f"{shift.below:.3g}{unit} {shift.before:.1%} of requests then, {shift.after:.1%} of {shift.n} from "
        f"{begin:%Y-%m-%d %H:%M} to {end:%H:%M} UTC"
    )


def _window(engine: Engine) -> str:
    windows: Sequence[str] = list(engine.settings.windows)
    return _WINDOW if _WINDOW in windows else windows[0]


def _outcome(engine: Engine, snapshot: Snapshot, gate: Gate) -> Outcome:
    (outcome,) = evaluate(snapshot, replace(engine.policy(gate.pipeline), gates=(gate,)))
    return outcome


class UnknownTraceError(RagmonError):
    """There is no record of a trace; the hint says what is kept, and where else to look."""


class AmbiguousTraceError(RagmonError):
    """Several traces begin as was asked, or too many records would have to be searched."""


def in_journal(journal: JournalReader, asked: str, settings: Settings) -> list[Record]:
    """The records of a trace in a journal; requests that share a trace are a record each."""
    trace_id = asked.strip().lower()
    if len(trace_id) != ID_DIGITS and not _BEGINNING.fullmatch(trace_id):
        hint = f"32 hex digits, or the first {SHORTEST} and more of them"
        raise AmbiguousTraceError(f"{shorten(asked)} is no trace id", hint=hint)
    if len(trace_id) < ID_DIGITS:
        trace_id = _only(trace_id, _ids_in(journal, trace_id)) or trace_id
    records = journal.records_of(trace_id, MAX_RECORDS)
    if not records:
        oldest = journal.oldest()
        since = "" if oldest is None else f" since {datetime.fromtimestamp(oldest, UTC):%Y-%m-%d %H:%M} UTC"
        days = float(settings.serve.retention) / 86_400
        rate = settings.unconfigured.sampling.rate
        kept = (
            f"the journal has what was kept{since} (retention {days:g} days, then `[serve] max_size`); "
            f"`[sampling] rate` of an application keeps a part of its calls ({rate:g} here), and a trace is a record "
            "once its spans are there"
        )
        raise _unknown(asked, settings, kept)
    return records


def in_files(lines: Iterable[Line], asked: str, settings: Settings) -> list[Record]:
    """The records of a trace in trace files, whose ids may be any text."""
    found: dict[str, list[Record]] = {}
    n = 0
    for line in lines:
        if isinstance(line, Record):
            n += 1
            name = line.trace_id or line.qid or ""
            if name == asked or (len(asked) >= SHORTEST and name.lower().startswith(asked.lower())):
                found.setdefault(name, []).append(line)
    name = asked if asked in found else _only(asked, found) or ""
    if name not in found:
        raise _unknown(asked, settings, f"{n} records were read, and none has this id")
    return found[name][-MAX_RECORDS:]


def described(record: Record, scorer: Scorer, settings: Settings, *, from_file: bool = False) -> RequestReport:
    """The report of a request."""
    pipeline = settings.of(record.pipeline or constants.DEFAULT_PIPELINE)
    capture = pipeline.capture
    content = capture.probe_content if record.source == constants.PROBE else capture.content
    return report(
        record,
        scorer.assess(record),
        scorer.table.metrics,
        settings.policy(record.pipeline or constants.DEFAULT_PIPELINE, live=not from_file).gates,
        content="" if from_file else content,
        within_ms=pipeline.metrics.answered_within_ms,
        link=None if pipeline.links.trace is None else str(pipeline.links.trace),
    )


def _ids_in(journal: JournalReader, beginning: str) -> Iterator[str]:
    """The trace ids of a journal's records that begin so."""
    pattern = re.compile(rb'"trace_id":"(%b[0-9a-f]*)"' % beginning.encode())
    ends = monotonic() + PATIENCE
    for row in journal.rows():
        for match in pattern.finditer(row.lines):
            yield match[1].decode()
        if monotonic() > ends:
            hint = "all 32 digits are found at once"
            raise AmbiguousTraceError(f"the journal is too large to search for {beginning}", hint=hint)


def _only(asked: str, names: Iterable[str]) -> str | None:
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) > _MANY:
            break
    if len(found) > 1:
        some = ", ".join([*list(found)[:_MANY], *(["…"] if len(found) > _MANY else [])])
        raise AmbiguousTraceError(f"several traces begin with {shorten(asked)}", hint=f"one of: {some}")
    return next(iter(found), None)


def _unknown(asked: str, settings: Settings, kept: str) -> UnknownTraceError:
    link = settings.unconfigured.links.trace
    where = f"; the tracing backend may have it: {str(link).replace('{trace_id}', asked)}" if link else ""
    return UnknownTraceError(f"there is no record of trace {shorten(asked)}", hint=f"{kept}{where}")


class StatusService:
    """Reads the state of the journal writer."""

    def __init__(
        self,
        writer: JournalWriter,
        folder: Path,
        reloading: ConfigReloader,
        reader: StreamReader | None = None,
    ) -> None:
        self.writer = writer
        self.folder = folder
        self.stopping = False
        self._reloading = reloading
        self._reader = reader
        self._began = writer.clock.now()

    def monitor_snapshot(self) -> MonitorSnapshot:
        """Everything that is exported to Prometheus."""
        writer = self.writer
        with writer.lock:
            snapshot = writer.server_state.monitor_snapshot(writer.clock.now(), writer.open_traces.pending)
            captured = replace(snapshot.captured, judged=self._reloading.probing.judged())
            return replace(snapshot, served=self._served(), captured=captured)

    def moment(self) -> object:
        """A key of all that `monitor_snapshot` depends on: journal rows, window edges, closed minutes, the server."""
        writer, reloading = self.writer, self._reloading
        with writer.lock:
            server_state, labels = writer.server_state, writer.server_state.engine.labels.store
            scoring = (
                server_state,
                server_state.seq,
                server_state.engine.alarms.steps.state.closed,
                writer.open_traces.pending,
            )
            label_counts = (sum(labels.results.values()), labels.pending)
            server = (dict(writer.refused), self.trouble(), writer.resets, writer.clock.jumps, reloading.broken)
            probes = (dict(reloading.probing.counts()), dict(reloading.probing.judged()))
            return int(writer.clock.now()) // BUCKET_SECONDS, scoring, label_counts, server, probes

    def _served(self) -> ServerStats:
        writer, server_state = self.writer, self.writer.server_state
        counts, adder, now = server_state.counts, server_state.adder, writer.clock.now()
        size = 0
        for path in self.folder.glob("journal.db*"):
            with suppress(OSError):  # a file may disappear while it is read
                size += path.stat().st_size
        unknown = {}
        for key, n in counts.unknown.items():
            field, _, reason = key.partition("|")
            unknown[field, reason] = n
        stream = None  # where this server counts itself
        if adder is not None:
            results = dict(adder.state.results)
            stream = StreamStats(adder.watermark(now), adder.behind(now), results, adder.lost, len(adder.configs))
        return ServerStats(
            refused=dict(writer.refused),
            size=size,
            trouble=self.trouble(),
            resets=writer.resets,
            jumps=writer.clock.jumps,
            reloaded=not self._reloading.broken,
            missing=server_state.producers.missing(counts.native),
            lost=dict(server_state.producers.dropped()),
            unknown=unknown,
            probes=self._reloading.probing.counts(),
            probed=dict(counts.probed),
            scopes=dict(counts.scopes),
            tools=dict(counts.tools),
            stream=stream,
        )

    def trouble(self) -> str:
        """Why requests cannot be accepted; "" where they can."""
        if self.stopping:
            return "the server is being stopped"
        if not self.writer.alive:
            return "the thread that writes the journal has ended"
        if self.writer.trouble == UNCOUNTED:
            return "an error left rows on disk uncounted, and they are counted again"
        return f"the journal cannot be written ({self.writer.trouble})" if self.writer.trouble else ""

    def quarantine(self) -> str:
        """The number of quarantined requests, in a sentence; "" where there are none."""
        n = self.writer.quarantined
        subject = "1 request is" if n == 1 else f"{n} requests are"
        return f"{subject} quarantined: twice the process ended or froze over each of them" if n else ""

    def note(self) -> str:
        """What to know besides where requests are accepted; "" where nothing is."""
        n = self.writer.unaccounted
        residual = f"records that the journal does not account for: {n}, see `ragmon verify`" if n else ""
        return "\n".join(filter(None, (self.quarantine(), residual)))

    def failure(self) -> str:
        """Why the server must be restarted; "" where it need not be."""
        return "" if self.writer.alive else self.trouble()

    def status(self, current: MonitorSnapshot) -> dict[str, Any]:
        """The whole status, as plain JSON data."""
        trouble, reloading = self.trouble(), self._reloading
        served = current.served or ServerStats()
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
        away = [
            StatusFinding(
                f"{url} gives no chunks: {why}", hint="alarms stand still until it does, or `[stream] patience`"
            )
            for url, why in sorted((self._reader.troubles() if self._reader else {}).items())
        ]
        adder, now = self.writer.server_state.adder, self.writer.clock.now()
        alternating = [
            StatusFinding(f"{part}: logs take turns in this place", at, "let one topic stand in it")
            for part, at in sorted({} if adder is None else adder.state.returned.items())
            if now - at < HOUR
        ]
        findings = ServerFindings(
            problems=(*not_writing, *away, *alternating),
            warnings=(*stale_config, *set_aside, *idle_probes),
            trouble=trouble,
            broken=reloading.broken,
            quarantined=quarantined,
            journal={"bytes": served.size, **self._journal(), "resets": served.resets},
        )
        return status(current, self.writer.server_state.engine.settings, self._began, findings)

    def settings(self) -> Settings:
        """The configuration in force."""
        return self.writer.server_state.engine.settings

    def configured(self) -> Sequence[float]:
        """When another configuration came into force, seconds since the epoch."""
        return tuple(self._reloading.times)

    @contextmanager
    def locked(self) -> Iterator[tuple[Engine, float]]:
        """The engine and the time, while nothing is counted."""
        with self.writer.lock:
            yield self.writer.server_state.engine, self.writer.clock.now()

    def _quarantined(self) -> list[dict[str, Any]]:
        if not self.writer.quarantined:
            return []
        fields = ("arrival", "step", "trace_id", "size")
        try:
            with open_readonly(self.folder) as journal:
                return [{name: getattr(item, name) for name in fields} for item in journal.quarantined()]
        except RagmonError:  # `trouble` says why
            return []

    def _journal(self) -> dict[str, Any]:
        limit, row = self.writer.journal.limits.size, self.writer.server_state.seq
        try:
            with open_readonly(self.folder) as journal:
                oldest, saved = journal.oldest(), journal.last_checkpoint()
                newest = journal.last()[1] or None
        except RagmonError:  # `trouble` says why
            oldest = newest = saved = None
        checkpoint = None if saved is None else {"row": saved[0], "at": saved[1]}
        return {"limit": limit, "row": row, "oldest": oldest, "newest": newest, "checkpoint": checkpoint}


class CountedState(Protocol):
    """The counts of a journal: the journal writer of a server, or a view without a server."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """What the state is locked by."""

    @property
    def server_state(self) -> ServerState:
        """The state."""

    @property
    def clock(self) -> Clock:
        """The time."""


class BusyError(UnavailableError):
    """A slow query was rejected because another one is running."""


class QueryService:
    """Answers queries about the state and the journal."""

    def __init__(self, counted: CountedState, folder: Path) -> None:
        self._counted = counted
        self._folder = folder
        self._comparing, self._searching = Lock(), Lock()

    @property
    def _settings(self) -> Settings:
        return self._counted.server_state.engine.settings

    @property
    def default_pipeline(self) -> str:
        """The default pipeline of a query."""
        return self._settings.pipeline

    def now(self) -> float:
        """The time of the server, seconds since the epoch."""
        return self._counted.clock.now()

    def pipeline_name(self, pipeline: str) -> str:
        """The name of a pipeline that is configured or has records; the argument is its name or its series label."""
        with self._counted.lock:
            engine = self._counted.server_state.engine
            with_records = {key.pipeline for key in engine.scorer.state.series} - {constants.DROPPED_PIPELINES}
            pipelines = {*engine.settings.pipelines, *with_records}
        match = next((name for name in pipelines if pipeline in (name, label(name))), None)
        if match is None:
            raise UnknownNameError("pipeline", pipeline, pipelines)
        return match

    def records(self, query: FailureQuery) -> dict[str, Any]:
        """A page of requests that fail a gate, newest first."""
        with open_readonly(self._folder) as journal:
            page = journal.failures(query)
        return {"records": [self._failure(failure) for failure in page.failures], "cursor": page.cursor}

    def _failure(self, failure: Failure) -> dict[str, Any]:
        link = self._settings.of(failure.pipeline).links.trace
        fields = ("ts", "pipeline", "source", "trace_id", "build", "index_hash")
        record = {name: getattr(failure, name) for name in fields}
        record["scores"], record[TRAITS] = dict(failure.scores), list(failure.facts.get(TRAITS, ()))
        record[LATENCY_MS] = failure.facts.get(LATENCY_MS)
        if link is not None and failure.trace_id:
            record["link"] = str(link).replace("{trace_id}", failure.trace_id)
        return record

    def metric(self, name: str) -> str:
        """Check that a metric is counted, and return its name."""
        metrics = self._counted.server_state.engine.scorer.table.metrics
        if name not in metrics:
            raise UnknownNameError("metric", name, metrics)
        return name

    def judged(self, pipeline: str, gate: str) -> FailureQuery:
        """The query for the requests that fail a gate."""
        pipeline = self.pipeline_name(pipeline)
        gates = {candidate.name: candidate for candidate in self._settings.of(pipeline).resolved_gates}
        if gate not in gates:
            raise UnknownNameError("gate", gate, gates)
        if gates[gate].kind != "threshold":
            message = f"no request alone fails {gate}"
            raise RagmonError(message, hint=f"it compares {gates[gate].metric} of a whole window: /api/why says more")
        target = gates[gate]
        return FailureQuery(
            pipeline=pipeline, metric=target.metric, sources=_sources(target.source), where=target.where
        )

    def why(self, pipeline: str, gate: str, since: float | None) -> dict[str, Any]:
        """The diagnosis of a gate or of another alarm, with a few failing traces."""
        diagnosis, traces = self._diagnosis(pipeline, gate, since)
        return {**to_builtins(diagnosis), "traces": traces}

    def _diagnosis(self, pipeline: str, gate: str, since: float | None) -> tuple[Why, list[dict[str, Any]]]:
        counted, pipeline = self._counted, self.pipeline_name(pipeline)
        with counted.lock:
            engine, now = counted.server_state.engine, counted.clock.now()
            alarm = find_alarm(engine, engine.snapshot(now), pipeline, gate)
            counts = engine.scorer.state, engine.scorer.table, alarm.outcome
            if alarm.is_drift:
                moved = None if alarm.shift is None or alarm.firing is None else 60.0 * alarm.shift.begin
                diagnosis = explain_drift(*counts, now=now, since=moved, firing=alarm.firing, alarm=alarm.text)
            else:
                derived = alarm.derived
                diagnosis = explain(
                    *counts, now=now, since=since, firing=alarm.firing, alarm=alarm.text, derived=derived
                )
            gated = {entry.metric for entry in engine.policy(pipeline).gates if entry.kind == "threshold"}
        outcome = alarm.outcome
        begin = diagnosis.begin if diagnosis.change.began is None else diagnosis.change.began
        if alarm.derived and outcome.gate.metric not in gated:  # the index holds what fails a gate
            return diagnosis, self._worst(outcome, begin, diagnosis.end)
        query = FailureQuery(
            pipeline=pipeline,
            metric=outcome.gate.metric,
            sources=_sources(outcome.source),
            where=outcome.gate.where,
            since=begin,
            until=diagnosis.end,
            limit=TO_OPEN,
        )
        return diagnosis, self.records(query)["records"]

    def diagnose(self, pipeline: str, gate: str, is_broken: bool, shown: RequestFilter) -> GateFindings:
        """What the page of a gate says of why it is broken, and the requests that fail it."""
        text, note, requests = "", "", dict[str, Any](records=None, cursor=None)
        try:
            if is_broken:
                text = why_text(self._diagnosis(pipeline, gate, None)[0])
            failing = self.judged(pipeline, gate)
            query = replace(
                failing,
                build=shown.build or None,
                index_hash=shown.index_hash or None,
                where=shown.where or failing.where,
                cursor=shown.cursor or None,
                limit=ON_PAGE,
            )
            requests = self.records(query)
        except RagmonError as error:
            note = f"{error}. {error.hint}."
        return GateFindings(text, requests["records"], note, requests["cursor"])

    def _worst(self, outcome: Outcome, begin: float, end: float) -> list[dict[str, Any]]:
        """The first requests since a time that score badly in a metric without a gate."""
        gate, found = outcome.gate, list[dict[str, Any]]()
        scorer = self._counted.server_state.engine.scorer
        if gate.kind != "threshold" or gate.metric not in scorer.table.metrics:
            return found
        sources = _sources(constants.LIVE if outcome.source == constants.MATCH else outcome.source)
        for record in islice(self._records_since(gate.pipeline, begin), MAX_ASSESSED):
            if not begin <= (record.ts or 0.0) < end or (sources and record.source not in sources):
                continue
            with self._counted.lock:
                assessed = scorer.assess(record)
            score = assessed.scores[gate.metric]
            if isinstance(score, int) and not gate.holds(score / MICRO):
                failure = Failure(
                    seq=0,
                    line=0,
                    ts=record.ts or 0.0,
                    pipeline=record.pipeline or DEFAULT_PIPELINE,
                    source=record.source or constants.REPLAY,
                    scores={gate.metric: score / MICRO},
                    trace_id=record.trace_id,
                    build=record.build,
                    index_hash=record.index_hash,
                    facts={TRAITS: traits_of(assessed.facts), **latency_fact(record)},
                )
                found.append(self._failure(failure))
            if len(found) == TO_OPEN:
                break
        return found

    def trace(self, asked: str) -> list[RequestReport]:
        """The requests of a trace, with their content."""
        busy = nullcontext() if len(asked) == ID_DIGITS else self._exclusive(self._searching, "search for a trace")
        with busy, open_readonly(self._folder) as journal:
            records = in_journal(journal, asked, self._settings)
        with self._counted.lock:
            scorer, settings = self._counted.server_state.engine.scorer, self._settings
            return [described(record, scorer, settings) for record in records]

    def compare(
        self, pipeline: str, by: By, pair: tuple[str, str], max_drop: float, *, intervals: bool = False
    ) -> dict[str, Any]:
        """Compare two releases on the records of the last day."""
        baseline, candidate = pair
        if baseline == candidate:
            raise RagmonError(f"baseline and candidate are the same: {baseline!r}", hint="name two releases")
        engine = self._counted.server_state.engine
        pipeline = self.pipeline_name(pipeline)
        policy = engine.settings.policy(pipeline)
        notes = uncompared_gates(policy)
        # Use the gold in force: its files may have changed since, and be broken.
        releases = ReleaseSplitter(ScorerFactory(engine.settings, engine.scorer.gold.sets), by, pair, policy.gates)
        with self._exclusive(self._comparing, "comparison"):
            for record in self._records_since(pipeline, self.now() - COMPARED):
                if record.kind != FAILING_ENTRY:  # kept for its score, where others are drawn
                    releases.scorer.observe(record)
        scorer = releases.scorer
        both_releases, golds = (releases.release(baseline), releases.release(candidate)), scorer.gold.infos()
        comparison = compare(*both_releases, scorer.table, policy, golds=golds, max_drop=max_drop, intervals=intervals)
        notes = [*releases.notes(), *notes]
        answer: dict[str, Any] = to_builtins(Canary.of(by, baseline, candidate, max_drop, comparison, notes))
        return answer

    @contextmanager
    def _exclusive(self, lock: Lock, what: str) -> Iterator[None]:
        """Allow one comparison, or one search of the whole journal, at a time: each takes a core."""
        if not lock.acquire(blocking=False):
            raise BusyError(f"another {what} is being made", hint="ask again when it is done")
        try:
            yield
        finally:
            lock.release()

    def _records_since(self, pipeline: str, since: float) -> Iterator[Record]:
        with open_readonly(self._folder) as journal:
            for row in journal.rows(after=journal.last_before(since)):
                for entry in entries(row.lines):
                    if isinstance(entry, Record) and (entry.pipeline or DEFAULT_PIPELINE) == pipeline:
                        yield entry


def _sources(source: str | None) -> tuple[str, ...]:
    """The sources under which the requests that a gate judges are listed; an empty tuple stands for all."""
    if not source:
        return ()
    # A live request whose question is in the gold is listed as a match, and is judged as live traffic as well.
    return (constants.LIVE, constants.MATCH) if source == constants.LIVE else (source,)
