"""The engine: scorer, gates and alarms as one state machine. No thread, no lock, no clock.

The application's monitor, the server and a replay of its journal use it, and get the same counts and alarms. Times are
seconds since the epoch; `now` is when an entry arrived.

Below it, what pages show of a running monitor's past: gold items and raters, gates and series over time.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from functools import cache, partial
from time import monotonic, thread_time
from typing import Any, Final, TypeVar

import msgspec

from ragmon.alarms.pipelines import AcknowledgedAlarm, Acknowledgements, AlarmEngine, AlarmsState, AlarmTransition
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import DROPPED_PIPELINES, FRESH, HOUR
from ragmon.core.errors import UnknownNameError, error_location, printable, shorten, shown_name, warn_once
from ragmon.core.policy import Outcome
from ragmon.core.record import Ack, Entry, Label, Record, Totals
from ragmon.export.families import budget
from ragmon.export.status import MonitorSnapshot, SdkStats, StageCounters
from ragmon.gates.change import first_seen
from ragmon.gates.coverage import CaptureLog, CaptureReport, capture_reports
from ragmon.gates.history import (
    ChangeMark,
    GateHistory,
    GateKey,
    GatePoint,
    GoldFindings,
    TimeSpan,
    gate_points,
    item_findings,
    oldest,
)
from ragmon.gates.incidents import Incident, IncidentLog, IncidentTransition
from ragmon.ingest.gold import load_gold
from ragmon.monitor.diagnosis import LiveGates
from ragmon.monitor.partial_counts import PartialCounts
from ragmon.scoring.buckets import SeriesKey, State
from ragmon.scoring.cardinality import BUILDS, CODES, CardinalityLimiter, LimiterState
from ragmon.scoring.labels import LabelJoiner, LabelObserver, predictions
from ragmon.scoring.minutes import MINUTE
from ragmon.scoring.ratings import ORPHAN, TTL, LabelStore, raters_of
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.scorer import ScoreObserver, ScorerFactory, retention_of
from ragmon.scoring.snapshot import (
    Exemplars,
    ItemPoints,
    SetPipeline,
    Snapshot,
    add_points,
    item_tables,
    point_ends,
    retrieved_counts,
    set_pipelines,
    take_history,
)
from ragmon.stats.histograms import add_counts

_log = logging.getLogger(constants.ALARM_LOG)

MAX_TRANSITIONS: Final = 1000  # alarm transitions that are kept in memory


class EngineState(msgspec.Struct):
    """The saved form of an `Engine`; the server erases ratings from `labels` (`ragmon.server.erasure`)."""

    scorer: State
    alarms: AlarmsState
    limiter: LimiterState
    builds: list[tuple[str, str, str]]
    errors: list[tuple[tuple[str, str], int]]
    last_scored: float | None
    transitions: list[AlarmTransition]
    labels: LabelStore
    acknowledged: Acknowledgements
    incidents: list[Incident]
    told: list[IncidentTransition]
    reread: dict[str, float]


class Engine:
    """Scores records and judges gates and alarms.

    Args:
        max_transitions: How many alarm transitions are kept; None for all.
        answers: How many answers are kept for labels that come without their answer.
        table: The scores of the metrics, if observers use them as well; default: a new table.

    Attributes:
        alarms: The alarms, judged minute by minute.
        errors: Scored user requests that ended in an error, by pipeline and error type.
        last_scored: When a record was scored last; None before the first.
        incidents: The incidents that the alarms tell of.
        told: When incidents began, were confirmed and ended.

    Raises:
        GoldError: A gold file is broken.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        max_transitions: int | None = MAX_TRANSITIONS,
        answers: int = 0,
        table: ScoreTable | None = None,
        observers: Sequence[ScoreObserver] = (),
        label_observer: LabelObserver | None = None,
        logs_capture: bool = False,
    ) -> None:
        self.settings = settings
        self.failed: BaseException | None = None
        self.transitions: deque[AlarmTransition] = deque(maxlen=max_transitions)
        self.told: deque[IncidentTransition] = deque(maxlen=max_transitions)
        self.errors: Counter[tuple[str, str]] = Counter()
        self.last_scored: float | None = None
        self._now = self._arrival = self._judged = 0.0
        self._has_overflowed = False
        self._limiter = CardinalityLimiter(settings.expected_pipelines, budget(settings))
        self._builds: dict[tuple[str, str, str], None] = {}
        self._exemplars = Exemplars()
        self._capture_log = CaptureLog() if logs_capture else None
        state = State(retention=retention_of(settings), is_live=True)
        plan = ScorerFactory(settings, load_gold(settings.gold))
        table = plan.table() if table is None else table
        self.alarms = AlarmEngine(settings, table)
        self.acknowledged = Acknowledgements()
        observers = (*observers, self.alarms.steps)
        self.scorer = plan(state=state, clock=lambda: self._arrival, table=table, observers=observers)
        self.gates = LiveGates(settings, self.scorer, self.alarms)
        self.incidents = IncidentLog(self.gates.cause)
        self.labels = LabelJoiner(self.scorer, self._admit, answers=answers, observer=label_observer)

    def observe(self, record: Record, now: float) -> bool:
        """Score a record; returns whether it was scored. If not, the scorer's `dropped` counts the reason."""
        try:
            self._advance_to_arrival(now)
            record = self._admit(record, now)
            scored = self.scorer.observe(record)
        except Exception as error:  # noqa: BLE001 - a metric is third-party code and may raise anything
            if not self.scorer.repeats(error, record):
                self.failed = error
            return self.scorer.drop_failed(error)
        if scored:
            self.last_scored = now
            pipeline, log = record.pipeline or constants.DEFAULT_PIPELINE, self._capture_log
            if record.build or record.index_hash:
                self._keep_build((pipeline, record.build or "", record.index_hash or ""))
            self._exemplars.see(record, now)
            key = (pipeline, record.source or constants.REPLAY)
            if log is not None and log.is_due(key):
                for report in self.capture(only=key):
                    log.name(report)
            if record.error is not None and record.source not in (constants.PROBE, constants.LABEL):
                self._count_error(pipeline, record.error)
        try:
            self.labels.see(record, now)
        except Exception as error:  # noqa: BLE001 - as above
            self.failed = error
            warn_once(f"a label could not be scored: {error_location(error)}")
        return scored

    def apply(self, entry: Entry, now: float) -> None:
        """Process an entry of a journal."""
        if isinstance(entry, Record):
            self.observe(entry, now)
        elif isinstance(entry, Totals):
            self.report(entry, now)
        elif isinstance(entry, Label):
            self._advance_to_arrival(now)
            self.labels.take(entry, now)
        elif isinstance(entry, Ack):
            self._advance_to_arrival(now)
            self._acknowledge(entry, now, strict=False)  # the configuration may have changed, or no minute ended yet

    def report(self, line: Totals, now: float) -> bool:
        """Count a producer's totals of all its calls; returns whether they were counted.

        They are not for a pipeline without series of its own, or beyond the limit of producers.
        """
        self._advance_to_arrival(now)
        return self._count_totals(line, now)

    def _count_totals(self, line: Totals, now: float) -> bool:
        is_counted = self._limiter.totals(line, now)
        if is_counted:
            self.scorer.state.calls.see(line)
        return is_counted

    def add(self, counts: PartialCounts, now: float) -> list[Totals]:
        """Add the counts of another process, which this one owns from now on; `advance` judges the sum."""
        self._arrive(now)
        rename = cache(partial(self._limiter.names, now=now))
        state, counts.state.cut = self.scorer.state, self.scorer.table.cut
        counts.state.rename(rename)
        state.merge(counts.state)
        self._retire()
        for pipeline, minute in counts.steps:
            source = next((key.source for key in minute.facts), constants.LIVE)
            indexes, minute.indexes = minute.indexes, {}
            for index, n in sorted(indexes.items()):
                add_counts(minute.indexes, {rename(pipeline, source, *index)[1:]: n})
            self.alarms.steps.put(rename(pipeline, source, "", "")[0], minute)
        self.scorer.forget_streams()
        for (pipeline, source, code), n in counts.errors:
            self._count_error(rename(pipeline, source, "", "")[0], code, n)
        for names in counts.builds:
            self._keep_build(rename(*names))
        for (pipeline, source), exemplar in counts.exemplars:
            self._exemplars.add((rename(pipeline, source, "", "")[0], source), exemplar)
        add_counts(self._limiter.state.overflow, counts.overflow)
        times = [time for time in (self.last_scored, counts.last_scored) if time is not None]
        self.last_scored = max(times, default=None)
        return [line for line in counts.totals if self._count_totals(line, now)]

    def add_label(self, label: Label) -> None:
        """Add a label that another process took, at the time at which it arrived there."""
        self._arrival = arrival = label.arrived or 0.0
        if label.answer is None:
            self.labels.store.results[ORPHAN] += 1
        else:
            self.labels.take(label, arrival)

    def with_label_names(self, record: Record) -> Record:
        """A record under the names its label is counted under; a label never admits a new pipeline or build."""
        return self._limiter.with_label_names(record)

    def shows(self, pipeline: str) -> bool:
        """Whether a pipeline has series of its own: it is configured, or was admitted and not removed since."""
        return self._limiter.shows(pipeline)

    def within(self, captured: SdkStats) -> SdkStats:
        """SDK statistics of the pipelines that have series, and of new ones while the series budget lasts."""
        return captured.of(self._limiter.shown(captured.pipelines))

    def _advance_to_arrival(self, now: float) -> None:
        self.advance(now)
        self._arrive(now)

    def _arrive(self, now: float) -> None:
        # `advance` alone removes no pipeline: the counts depend only on what arrived, so a replay agrees.
        for pipeline in self._limiter.silent(now):
            self._follow(self.alarms.give_up(pipeline, now))
            self.scorer.state.give_up(pipeline)
            self.scorer.forget_streams()
            self._exemplars.forget(pipeline)
            if self._capture_log is not None:
                self._capture_log.forget(pipeline)
            self.gates.forget(pipeline)
            self._builds = {key: None for key in self._builds if key[0] != pipeline}
            self.errors = Counter({key: n for key, n in self.errors.items() if key[0] != pipeline})

    def _admit(self, record: Record, now: float) -> Record:
        # The record under the names it is counted under; builds that were retired for it are merged into `__other__`.
        pipeline = record.pipeline
        record = self._limiter.record(record, now)
        if record.pipeline == constants.OTHER != pipeline and not self._has_overflowed:
            self._has_overflowed = True  # one line, whatever the number of names
            rest = f"{constants.OTHER}, like every further pipeline: [serve] max_series leaves no room for their gates"
            warn_once(f"records of {shorten(pipeline)} are counted as {rest}, unless it is configured")
        self._retire()
        return record

    def _retire(self) -> None:
        if self._limiter.retired:
            for pipeline, build, index in self._limiter.retired:
                self.scorer.state.retire(pipeline, build, index)
            self._limiter.retired.clear()
            self.scorer.forget_streams()

    def advance(self, now: float) -> None:
        """Judge the minutes that ended, and log the alarm transitions."""
        self._arrival = now
        if now != self._now:
            self._now = now
            for end in self._ends(now):
                self._follow(self.alarms.advance(end))
                self.incidents.look(end)
            self._follow(self.alarms.advance(now))

    def _ends(self, now: float) -> Iterator[float]:
        """The ends of minutes up to a time at which an alarm or a cause may change.

        Each is taken by itself, so that ticks between two arrivals change nothing, and a replay without ticks agrees.
        """
        steps, newest = self.alarms.steps.state.open, now
        if now == math.inf:
            newest = (max(steps, default=-1) + 1) * MINUTE
        if self._judged + MINUTE > newest:
            return
        while True:
            lasts = any(incident.ended is None for incident in self.incidents.incidents)
            end = self._judged + MINUTE if lasts else float((min(steps, default=math.inf) + 1) * MINUTE)
            if end > newest:
                break
            self._judged = max(end, self._judged)
            yield end
        self._judged = max(self._judged, newest // MINUTE * MINUTE)

    def _follow(self, transitions: Sequence[AlarmTransition]) -> None:
        self.transitions += transitions
        self.acknowledged.see(transitions)
        for transition in transitions:
            name = _alarm_name(transition.pipeline, transition.alert)
            _log.info("alarm %s (%s): %s", name, transition.severity, transition.state)
        for edge in self.incidents.see(transitions):
            self.told.append(edge)
            level = logging.WARNING if (edge.severity, edge.state) == ("confirmed", "firing") else logging.INFO
            name = shorten(edge.incident)
            _log.log(level, "incident %s (%s): %s; %s", name, edge.severity, edge.state, ", ".join(edge.metrics))

    def acknowledge(self, ack: Ack, now: float) -> bool:
        """Silence an alarm that fires, restart its detector, and log who did it and why; returns whether it fired.

        Where `ack.alert` is the name of an incident, every alarm of it.

        Raises:
            UnknownNameError: There is no such alarm, or the pipeline has had no record.
        """
        fired = self._acknowledge(ack, now, strict=True)
        log_acknowledged(ack)
        return fired

    def _acknowledge(self, ack: Ack, now: float, *, strict: bool) -> bool:
        """Acknowledge an alarm, or every alarm of an incident that is named in its place."""
        fired = False
        for pipeline, alert in self.incidents.alarms_of(ack.pipeline, ack.alert) or [(ack.pipeline, ack.alert)]:
            transitions: list[AlarmTransition] = []
            with nullcontext() if strict else suppress(UnknownNameError):
                transitions = self.alarms.acknowledge(pipeline, alert)
            self._follow(transitions)
            fired = fired or bool(transitions)
            self.acknowledged.add(AcknowledgedAlarm(pipeline, alert, ack.by, ack.reason, now, bool(transitions)))
        return fired

    def restart_alarm(self, pipeline: str, alert: str, reason: str) -> None:
        """Silence an alarm and restart its detector because its rule is another one, and log that."""
        self._follow(self.alarms.acknowledge(pipeline, alert))
        log_acknowledged(Ack(pipeline=pipeline, alert=alert, reason=reason))

    def _keep_build(self, key: tuple[str, str, str]) -> None:
        pipeline, is_new = key[0], key not in self._builds
        self._builds.pop(key, None)
        self._builds[key] = None
        if is_new and len(builds := [other for other in self._builds if other[0] == pipeline]) > BUILDS:
            del self._builds[builds[0]]

    def _count_error(self, pipeline: str, code: str, n: int = 1) -> None:
        key = (pipeline, shown_name(code, constants.ERROR))
        if key not in self.errors and sum(name == pipeline for name, _ in self.errors) >= CODES:
            key = (pipeline, constants.OTHER)
            add_counts(self._limiter.state.overflow, {constants.CODE_NAMES: n})
        self.errors[key] += n

    def monitor_snapshot(
        self, now: float, stages: Mapping[str, StageCounters], captured: SdkStats | None = None
    ) -> MonitorSnapshot:
        """The current state: metrics of every window, gates, alarms and stage counters."""
        snapshot, captured = self.gates.snapshot(now), captured or SdkStats()
        outcomes, state, lacking = self.gates.judge(snapshot), self.scorer.state, self._limiter.lacking
        return MonitorSnapshot(
            snapshot=snapshot,
            outcomes=outcomes,
            stages=stages,
            captured=captured,
            retrieved=retrieved_counts(state),
            builds=tuple(self._builds),
            exemplars=self._exemplars.newest(),
            last_scored=self.last_scored,
            alarms=self.alarms.states(),
            labels=dict(Counter(self.labels.store.results) + Counter(captured.labels)),
            labels_waiting=self.labels.store.pending,
            predictions=predictions(state, self.settings.windows, now, lambda name: self.settings.of(name).proxy),
            judges=[judge for judge in state.cohorts.judges() if (judge.last or now) > now - 25 * HOUR],
            overflow=dict(self._limiter.state.overflow),
            needed_series=-(-(self.settings.serve.max_series + lacking) // 1000) * 1000 if lacking else None,
            capture=self.capture(outcomes),
            acknowledged=self.acknowledged.shown(now),
            incidents=[copy(incident) for incident in self.incidents.incidents],
            changed=self.gates.changed(outcomes, now),
        )

    def continue_capture_log(self, previous: Engine) -> None:
        """Log nothing again of pipelines whose first records the engine of another configuration has seen."""
        self._capture_log = previous._capture_log

    def capture(self, outcomes: Sequence[Outcome] = (), *, only: tuple[str, str] | None = None) -> list[CaptureReport]:
        """What was captured of each pipeline and source, or of one of them, and what the gates lack of it."""
        return capture_reports(self.scorer, lambda name: self.gates.policy(name).gates, outcomes, only=only)

    def alarm_spans(self, begin: float, end: float) -> dict[GateKey, list[tuple[float, float]]]:
        """When alarms fired within a span of time, by pipeline and alarm, as far as transitions are kept."""
        spans: dict[GateKey, list[tuple[float, float]]] = {}
        for transition in self.transitions:
            fired = spans.setdefault((transition.pipeline, transition.alert), [])
            if transition.state == "firing":
                fired.append((max(begin, transition.ts), end))
            elif fired:
                fired[-1] = (fired[-1][0], min(end, transition.ts))
        return {key: [span for span in fired if span[0] <= end and span[1] > begin] for key, fired in spans.items()}

    def dump(self) -> EngineState:
        """All counts and alarms in their saved form, without any text.

        Parts of it are not copied: encode it before anything else is counted.
        """
        return EngineState(
            scorer=self.scorer.state,
            alarms=self.alarms.state,
            limiter=self._limiter.state,
            builds=list(self._builds),
            errors=list(self.errors.items()),
            last_scored=self.last_scored,
            transitions=list(self.transitions),
            labels=self.labels.store,
            acknowledged=self.acknowledged,
            incidents=self.incidents.incidents,
            told=list(self.told),
            reread=self.gates.reread,
        )

    def restore(self, state: EngineState) -> None:
        """Replace everything by a saved state; windows and retention are those of the configuration in force."""
        self.scorer.restore(state.scorer)
        self.alarms.restore(state.alarms)
        self._limiter.restore(state.limiter)
        self._builds = dict.fromkeys(state.builds)
        self.errors = Counter()
        for (pipeline, code), n in state.errors:
            self.errors[pipeline, shown_name(code, constants.ERROR)] += n
        self.last_scored = state.last_scored
        self.transitions = deque(state.transitions, maxlen=self.transitions.maxlen)
        self.labels.store = state.labels
        self.acknowledged = state.acknowledged
        self.incidents.incidents = state.incidents
        self.told = deque(state.told, maxlen=self.told.maxlen)
        self.gates.reread = state.reread
        firing = {(alarm.pipeline, alarm.alert) for alarm in self.alarms.states() if alarm.firing is not None}
        self._judged = float((state.alarms.steps.closed + 1) * MINUTE)
        self.told += self.incidents.keep(firing, self._judged)


def log_acknowledged(ack: Ack) -> None:
    """Log an acknowledgement when it arrives; one read from a journal was logged then."""
    by = f" by {printable(ack.by)}" if ack.by else ""
    _log.info("alarm %s acknowledged%s: %s", _alarm_name(ack.pipeline, ack.alert), by, printable(ack.reason))


def _alarm_name(pipeline: str, alert: str) -> str:
    return f"{printable(pipeline)}/{printable(alert)}"


GOLD_SPANS: Final = (
    TimeSpan("10m", "last 10 min", 600, 10),
    TimeSpan("1h", "last hour", HOUR, 10),
    TimeSpan("6h", "last 6 h", 6 * HOUR, HOUR),
    TimeSpan("24h", "last 24 h", 24 * HOUR, HOUR),
)
"""The spans of gold findings; up to an hour they are cut at buckets of scoring, beyond it at hours."""
USUAL: Final = ("6h", "1h", "10m")
"""The first span is shown that the monitor has counted before for as long, else the last."""
SHOWN: Final = 20  # items of each kind that are shown of a set and pipeline
IDLE: Final = 50
"""Findings are shown again for so many times as long as reading them took, so pages take at most 2 % of a core."""
_DAYS: Final = round(TTL / (24 * HOUR))  # for which ratings are kept
ATTEMPTS: Final = 3  # how often reading is begun


class GoldReader:
    """Reads gold items and raters; `locked` holds the engine, with the time, while one table is read."""

    def __init__(self, locked: Callable[[], AbstractContextManager[tuple[Engine, float]]]) -> None:
        self._locked = locked
        self._found: dict[str, tuple[float, Engine, GoldFindings]] = {}

    def spans(self) -> list[TimeSpan]:
        """The spans before which counts are kept for at least as long."""
        with self._locked() as (engine, _):
            retention = engine.scorer.state.retention or FRESH
        return [span for span in GOLD_SPANS if 2 * span.seconds <= retention] or [GOLD_SPANS[0]]

    def findings(self, name: str = "") -> GoldFindings:
        """The findings, which may be as old as `IDLE` times the time it took to read them.

        Raises:
            UnknownNameError: There is no such span.
        """
        spans = {span.name: span for span in self.spans()}
        if name and name not in spans:
            raise UnknownNameError("span", name, spans)
        with self._locked() as (engine, _):
            expires, found_in, found = self._found.get(name, (0.0, None, None))
            if found is not None and found_in is engine and monotonic() < expires:
                return found
        started = thread_time()
        with self._locked() as (engine, now):
            state, ratings = engine.scorer.state, engine.labels.store
            versions = {(gold.name, gold.version) for gold in engine.scorer.gold.infos()}
            sets = sorted(found for found in set_pipelines(state) if (found.gold, found.version) in versions)
            rated, labellable = ratings.rated(now - TTL), state.cohorts.labellable(now - TTL)
        points = {gold: self._points(engine, gold) for gold in sets if gold.pipeline != DROPPED_PIPELINES}
        begin = min((since for items in points.values() if (since := oldest(items.values())) is not None), default=None)
        for candidate in [name] if name else [usual for usual in USUAL if usual in spans]:
            span = spans[candidate]
            # The cut is at the edge of a bucket or an hour, so that each bucket or hour lies on one side of it.
            cut = (int(now - span.seconds) // span.step + (1 if span.step < HOUR else 0)) * span.step
            if begin is not None and cut - begin >= span.seconds:
                break
        items = {gold: item_findings(answers, cut, SHOWN) for gold, answers in points.items()}
        found = GoldFindings(span, begin, cut, now, items, raters_of(rated), labellable, _DAYS)
        self._found[name] = (monotonic() + IDLE * (thread_time() - started), engine, found)
        return found

    def _points(self, engine: Engine, asked: SetPipeline) -> ItemPoints:
        # The lock is free between two tables, for the thread that counts. Buckets that are folded meanwhile, every five
        # minutes, make the reading begin anew.
        for _ in range(ATTEMPTS):
            points: ItemPoints = {}
            with self._locked():
                folded, tables = engine.scorer.state.fold_due, item_tables(engine.scorer.state, asked)
            for begin, end, table in tables:
                with self._locked():
                    add_points(points, begin, end, table)
            with self._locked():
                if engine.scorer.state.fold_due == folded:
                    break
        return points


SPANS: Final = {
    "10m": TimeSpan("10m", "last 10 min", 600, 10),
    "1h": TimeSpan("1h", "last hour", HOUR, 60),
    "6h": TimeSpan("6h", "last 6 h", 6 * HOUR, 300),
    "24h": TimeSpan("24h", "last 24 h", 24 * HOUR, HOUR // 2),
    "7d": TimeSpan("7d", "last 7 d", 168 * HOUR, 3 * HOUR),
}
"""The spans that a reader can choose; the retention of counts may be shorter."""
OVERVIEW: Final = (TimeSpan("24h", "last 24 h", 24 * HOUR, HOUR), SPANS["1h"], SPANS["10m"])
"""Unless the reader chooses, the first span of all gates is shown in which more than a few windows have a value."""
GATE: Final = (SPANS["6h"], SPANS["1h"], SPANS["10m"])
"""The same for a single gate."""
FEW: Final = 3  # windows with a value up to which a shorter span is shown
LATE: Final = 900.0
"""Seconds after which a window that is over is not read again: its point lacks records that come later."""
STILL_OPEN: Final = 60  # the open window is read again after this part of its length, on pages of all gates
BUDGET: Final = 0.02
"""Seconds of CPU in which past windows of all gates are computed for a page; the next page computes more of them."""
T = TypeVar("T")
_Windows = tuple[str, int, str | None]  # `gates` or `series`, the length in seconds, and the pipeline, or None for all


class MonitorHistory:
    """The past of a monitor. Windows that are over are computed once, the newest first."""

    def __init__(self, locked: Callable[[], AbstractContextManager[tuple[Engine, float]]]) -> None:
        self.gold = GoldReader(locked)
        self.unread = 0  # windows that the last overview lacks, because it was not to take longer
        self._locked = locked
        self._engine: Engine | None = None
        self._finished: dict[_Windows, dict[int, Any]] = {}
        self._open: dict[_Windows, tuple[float, dict[int, Any]]] = {}

    def overview(self, span: str = "") -> tuple[TimeSpan, dict[GateKey, GateHistory]]:
        """Every gate over a span of time; windows that were not read yet are missing.

        Args:
            span: Its name; "" for the last day, or less of a young monitor. This holds for the other methods as well.

        Raises:
            UnknownNameError: There is no such span.
        """
        return self._longest(_asked(span, OVERVIEW), None, BUDGET)

    def of_pipeline(
        self, pipeline: str, span: str = "", until: float = math.inf
    ) -> tuple[TimeSpan, dict[GateKey, GateHistory]]:
        """The gates of a pipeline over a span of time that ends now or earlier, all windows of it."""
        return self._longest(_asked(span, GATE), pipeline, None, until)

    def series_of(
        self, pipeline: str, span: str = "", until: float = math.inf
    ) -> tuple[TimeSpan, float, list[Snapshot]]:
        """The series of a pipeline over a span of time that ends now or earlier: the span, its end, the windows."""
        for candidate in _asked(span, OVERVIEW):
            now, ends = self._ends(candidate, until)
            read = partial(series_history, step=candidate.step, pipelines={pipeline})
            points = self._windows(("series", candidate.step, pipeline), ends, now, None, read)
            if sum(any(series.records for series in point.series) for point in points.values()) > FEW:
                break
        return candidate, now, [points[end] for end in ends]

    def transitions(self) -> list[AlarmTransition]:
        """The alarm transitions that are kept, in order of time."""
        with self._locked() as (engine, _):
            return list(engine.transitions)

    def _longest(
        self, spans: Sequence[TimeSpan], pipeline: str | None, budget: float | None, until: float = math.inf
    ) -> tuple[TimeSpan, dict[GateKey, GateHistory]]:
        started = thread_time()
        for span in spans:
            left = None if budget is None else budget - (thread_time() - started)
            now, ends = self._ends(span, until)
            with self._locked() as (engine, _):
                fired = engine.alarm_spans(now - span.seconds, now)
                named = {*engine.settings.pipelines, engine.settings.pipeline} if pipeline is None else {pipeline}
                marks = {
                    name: [mark for mark in changes(engine, name, now - span.seconds) if mark.ts <= now]
                    for name in named
                }

            def read(engine: Engine, end: int, step: int = span.step) -> dict[GateKey, GatePoint]:
                return gate_history(engine, end, step, pipeline)

            points_by_end = self._windows(("gates", span.step, pipeline), ends, now, left, read)
            if budget is not None:
                self.unread = len(ends) - len(points_by_end)
            histories: dict[GateKey, GateHistory] = {}
            for end in ends:
                for gate, point in points_by_end.get(end, {}).items():
                    empty = GateHistory(span, now, [], fired.get(gate, []), marks.get(gate[0], []))
                    history = histories.setdefault(gate, empty)
                    history.points.append(point)
            if max((len(history.values) for history in histories.values()), default=0) > FEW:
                break
        return span, histories

    def _ends(self, span: TimeSpan, until: float = math.inf) -> tuple[float, list[int]]:
        with self._locked() as (engine, now):
            if engine is not self._engine:
                self._engine, self._finished, self._open = engine, {}, {}
        now = min(now, until)
        return now, point_ends(now, span.seconds, span.step)

    def _windows(
        self, kind: _Windows, ends: Sequence[int], now: float, budget: float | None, read: Callable[[Engine, int], T]
    ) -> dict[int, T]:
        # The newest window is read first, each under the lock of the counts. After `budget` seconds of CPU no further
        # window is read, and the open one may be a little old; None reads all.
        finished = {end: points for end, points in self._finished.get(kind, {}).items() if end >= ends[0]}
        self._finished[kind] = finished
        windows, started, step = dict(finished), thread_time(), kind[1]
        opened_at, opened = self._open.get(kind, (-math.inf, {}))
        if budget is not None and now - opened_at < step / STILL_OPEN:
            windows |= {end: points for end, points in opened.items() if end == ends[-1]}
        for end in reversed(ends):
            in_budget = budget is None or end == ends[-1] or thread_time() - started < budget
            if end not in windows and in_budget:
                with self._locked() as (engine, _):
                    windows[end] = read(engine, end)
                if end + min(LATE, 2 * step) <= now:
                    finished[end] = windows[end]
                elif end == ends[-1]:
                    self._open[kind] = (now, {end: windows[end]})
        return windows


def _asked(span: str, usual: Sequence[TimeSpan]) -> Sequence[TimeSpan]:
    if not span:
        return usual
    if span not in SPANS:
        raise UnknownNameError("span", span, SPANS)
    return (SPANS[span],)


def series_history(engine: Engine, end: int, step: int, pipelines: Collection[str] | None = None) -> Snapshot:
    """The metrics of pipelines (None for all) in one window of `step` seconds, which ends where `point_ends` says."""
    scorer = engine.scorer
    (snapshot,) = take_history(
        scorer.state,
        scorer.table,
        ends=[end],
        step=step,
        golds=scorer.gold.infos(),
        gated=engine.gates.gated,
        pipelines=pipelines,
    )
    return snapshot


def gate_history(engine: Engine, end: int, step: int, pipeline: str | None = None) -> dict[GateKey, GatePoint]:
    """The value and the interval of every gate in one window; without a pipeline, of all that have records."""
    pipelines = None if pipeline is None else {pipeline}
    snapshot = series_history(engine, end, step, pipelines)
    names = pipelines or {series.pipeline for series in snapshot.series}
    return gate_points(snapshot, map(engine.gates.policy, sorted(names)))


def changes(engine: Engine, pipeline: str, begin: float) -> list[ChangeMark]:
    """The builds, indexes and versions of gold that a pipeline's records first had since a time.

    What was there when counting began is no change.
    """
    state = engine.scorer.state
    keys: dict[tuple[str, str], list[SeriesKey]] = {}
    for key in state.series:
        if key.pipeline == pipeline and not key.slice:
            names = (("build", key.build), ("index", key.index_hash), (f"gold {key.gold}", key.gold_version))
            for name in names:
                if name[1]:
                    keys.setdefault(name, []).append(key)
    seen = {name: first_seen(state, group) for name, group in keys.items()}
    oldest = min((ts for ts in seen.values() if ts is not None), default=0.0)
    marks = [ChangeMark(ts, *name) for name, ts in seen.items() if ts is not None and ts >= begin and ts > oldest]
    return sorted(marks)
