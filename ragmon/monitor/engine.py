"""What a monitor holds while it runs: scorer, gates, alarms, and what was seen lately. No thread, no lock, no clock.

The application's monitor, the server and a replay of its journal stand on it, and come to the same counts and alarms.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from ragmon.alarms import AlarmTransition
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import HOUR
from ragmon.core.errors import UnknownNameError
from ragmon.core.escaping import printable
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.policy import Outcome, Policy
from ragmon.core.record import Ack, Entry, Label, Record, Totals
from ragmon.export.state import MonitorSnapshot, SdkStats, StageCounters
from ragmon.gates.evaluate import evaluate
from ragmon.monitor.build import ScorerPlan, build_alarms, load_gold
from ragmon.monitor.series_budget import BUILDS, CODES, budget
from ragmon.scoring.calls import Exemplars
from ragmon.scoring.cardinality import CardinalityLimiter
from ragmon.scoring.labels import LabelJoiner
from ragmon.scoring.predictions import Prediction, predictions
from ragmon.scoring.snapshot import ALL, Snapshot, retrieved_counts
from ragmon.scoring.windows import State

_log = logging.getLogger(constants.ALARM_LOG)

EDGES: Final = 1000
"""Beginnings and ends of alarms that are remembered."""


class Engine:
    """Records in, gates judged.

    Args:
        settings: The configuration.
        edges: How many beginnings and ends of alarms are remembered; None for all.
        answers: How many answers are remembered for labels that come without theirs.

    Attributes:
        settings: The configuration in force.
        scorer: Counts records.
        alarms: Judge them minute by minute.
        edges: The alarms that began or ended lately, in the order of time.
        errors: Requests of users that ended in an error, by pipeline and kind: those that were scored.
        last_scored: When a record was scored last, seconds since the epoch; None before the first.
        labels: What people said of which answers.

    Raises:
        GoldError: A gold file is broken.
    """

    def __init__(self, settings: Settings, *, edges: int | None = EDGES, answers: int = 0) -> None:
        self.settings = settings
        self.edges: deque[AlarmTransition] = deque(maxlen=edges)
        self.errors: Counter[tuple[str, str]] = Counter()
        self.last_scored: float | None = None
        self._now = 0.0
        self._limiter = CardinalityLimiter(settings.pipelines, budget(settings))
        self._windows = {**settings.windows, ALL: None}
        self._policies = {name: settings.policy(name, live=True) for name in settings.pipelines}
        shared = (settings.common, *settings.pipelines.values())
        self._gated = sorted({gate.metric for one in shared for gate in one.gates})
        self._builds: dict[tuple[str, str, str], None] = {}
        self._exemplars = Exemplars()
        retention = max(settings.windows.values(), default=HOUR) + HOUR
        state = State(retention=retention, timed_items=True)
        self.scorer = ScorerPlan(settings, load_gold(settings.gold))(state=state, clock=lambda: self._now)
        self.alarms = build_alarms(settings, self.scorer.table)
        self.scorer.steps = self.alarms.steps
        self.labels = LabelJoiner(self.scorer, self._admit, answers=answers)

    def observe(self, record: Record, now: float) -> bool:
        """Score a record.

        Args:
            record: The record.
            now: When it came, seconds since the epoch.

        Returns:
            Whether it was scored; where not, the scorer's `dropped` says why.
        """
        try:
            self._come(now)
            record = self._admit(record, now)
            scored = self.scorer.observe(record)
        except Exception as error:  # noqa: BLE001 - a metric is foreign code and may raise anything
            dropped = self.scorer.dropped
            dropped[constants.SCORER_ERROR] = dropped.get(constants.SCORER_ERROR, 0) + 1
            warn_once(f"a record could not be scored and is dropped: {whereabouts(error)}")
            return False
        if scored:
            self.last_scored = now
            self._see(record)
            self._exemplars.see(record, now)
            if record.error is not None and record.source not in (constants.PROBE, constants.LABEL):
                self._erred(record.pipeline or constants.DEFAULT_PIPELINE, record.error)
        try:
            self.labels.see(record, now)
        except Exception as error:  # noqa: BLE001 - as above
            warn_once(f"a label could not be scored: {whereabouts(error)}")
        return scored

    def take(self, entry: Entry, now: float) -> None:
        """Take in a line of a journal, which came at a time in seconds since the epoch."""
        if isinstance(entry, Record):
            self.observe(entry, now)
        elif isinstance(entry, Totals):
            self.report(entry, now)
        elif isinstance(entry, Label):
            self._come(now)
            self.labels.take(entry, now)
        elif isinstance(entry, Ack):
            self._come(now)
            with suppress(UnknownNameError):  # the configuration may have changed since
                self.edges += self.alarms.acknowledge(entry.pipeline, entry.alert)

    def report(self, line: Totals, now: float) -> bool:
        """Take a producer's counts of all its calls, which came at a time in seconds since the epoch.

        Returns:
            Whether they were taken; there may be too many producers.
        """
        self._come(now)
        taken = self._limiter.totals(line, now)
        if taken:
            self.scorer.state.calls.see(line)
        return taken

    def known(self, record: Record) -> Record:
        """An answer under the names a label on it is counted under: those of others where there were too many."""
        return self._limiter.known(record)

    def shows(self, pipeline: str) -> bool:
        """Whether a pipeline has series of its own: none of those that found no place, or gave theirs back."""
        return self._limiter.shows(pipeline)

    def within(self, captured: SdkStats) -> SdkStats:
        """What capture counted of the pipelines that have series, and of new ones as far as there is room for them."""
        return captured.of(self._limiter.shown(captured.pipelines))

    def _come(self, now: float) -> None:
        """Let time pass until something came, and let pipelines go that were silent for a day by then.

        A look at the clock alone lets nobody go: what was counted follows from what came, and a replay agrees.
        """
        self.advance(now)
        for pipeline in self._limiter.silent(now):
            self._tell(self.alarms.give_up(pipeline, now))
            self.scorer.state.give_up(pipeline)
            self.scorer.forget_streams()
            self._exemplars.forget(pipeline)
            self._policies.pop(pipeline, None)
            self._builds = {key: None for key in self._builds if key[0] != pipeline}
            self.errors = Counter({key: n for key, n in self.errors.items() if key[0] != pipeline})

    def _admit(self, record: Record, now: float) -> Record:
        """A record under the names it is counted under; builds that made room for its own are added to the others."""
        record = self._limiter.record(record, now)
        if self._limiter.retired:
            for pipeline, build, index in self._limiter.retired:
                self.scorer.state.retire(pipeline, build, index)
            self._limiter.retired.clear()
            self.scorer.forget_streams()
        return record

    def advance(self, now: float) -> None:
        """Judge the minutes that ended, and say so where somebody should wake up."""
        if now != self._now:
            self._now = now
            self._tell(self.alarms.advance(now))

    def _tell(self, edges: Sequence[AlarmTransition]) -> None:
        """Remember and log that alarms began or ended."""
        self.edges += edges
        for edge in edges:
            _log_edge(edge)

    def acknowledge(self, pipeline: str, alert: str, reason: str) -> bool:
        """Silence an alarm that fires, and arm it again, and log who said why; returns whether it fired.

        Raises:
            UnknownNameError: There is no such alarm, or the pipeline has had no record.
        """
        edges = self.alarms.acknowledge(pipeline, alert)
        self.edges += edges
        log_acknowledged(pipeline, alert, reason)
        return bool(edges)

    def _see(self, record: Record) -> None:
        """Remember the build that answered."""
        if not (record.build or record.index_hash):
            return
        pipeline = record.pipeline or constants.DEFAULT_PIPELINE
        key = (pipeline, record.build or "", record.index_hash or "")
        new = key not in self._builds
        self._builds.pop(key, None)
        self._builds[key] = None
        if new and len(mine := [found for found in self._builds if found[0] == pipeline]) > BUILDS:
            del self._builds[mine[0]]

    def _erred(self, pipeline: str, code: str) -> None:
        """Count an error by its kind."""
        key = (pipeline, code)
        if key not in self.errors and sum(held == pipeline for held, _ in self.errors) >= CODES:
            key = (pipeline, constants.OTHER)
            self._limiter.overflow[constants.CODE_NAMES] += 1
        self.errors[key] += 1

    def snapshot(self, now: float) -> Snapshot:
        """The metrics of every window and over all time."""
        return self.scorer.snapshot(now=now, windows=self._windows, gated=self._gated)

    def reading(
        self, now: float, books: Mapping[str, StageCounters], captured: SdkStats | None = None
    ) -> MonitorSnapshot:
        """This moment: metrics of every window, gates, and the books."""
        snapshot, captured = self.snapshot(now), captured or SdkStats()
        return MonitorSnapshot(
            snapshot=snapshot,
            outcomes=self.judge(snapshot),
            books=books,
            captured=captured,
            retrieved=retrieved_counts(self.scorer.state),
            builds=tuple(self._builds),
            exemplars=self._exemplars.newest(),
            last_scored=self.last_scored,
            alarms=self.alarms.states(),
            labels=dict(self.labels.book.results + Counter(captured.labels)),
            labels_waiting=self.labels.book.waiting,
            predictions=self._predictions(now),
            overflow=dict(self._limiter.overflow),
        )

    def _predictions(self, now: float) -> Sequence[Prediction]:
        """What labels and proxies say together in every window."""
        scorer, windows = self.scorer, self.settings.windows
        return predictions(scorer.state, scorer.table, windows, now, lambda name: self.settings.of(name).proxy)

    def judge(self, snapshot: Snapshot) -> Sequence[Outcome]:
        """The gates of every pipeline that is configured or was seen; one nobody configured has the common gates.

        Where pipelines have names, the one without is shown once something came from it.
        """
        seen = sorted({series.pipeline for series in snapshot.series})
        named = [name for name in self.settings.pipelines if name != constants.DEFAULT_PIPELINE]
        pipelines = dict.fromkeys((*(named or self.settings.pipelines), *seen))
        return [outcome for name in pipelines for outcome in evaluate(snapshot, self.policy(name))]

    def policy(self, pipeline: str) -> Policy:
        """The gates of a pipeline."""
        policy = self._policies.get(pipeline)
        if policy is None:
            policy = self._policies[pipeline] = self.settings.policy(pipeline, live=True)
        return policy

    def dump(self) -> dict[str, Any]:
        """Everything that was counted and every alarm, as plain JSON data without any text.

        Parts of it are the state itself: to be written before anything else is counted.
        """
        scorer = self.scorer
        return {
            "state": scorer.state.dump(),
            "alarms": self.alarms.view(),
            "scored": scorer.scored,
            "unmatched": scorer.unmatched,
            "dropped": dict(scorer.dropped),
            "builds": [list(key) for key in self._builds],
            "admission": self._limiter.dump(),
            "errors": [[pipeline, code, n] for (pipeline, code), n in self.errors.items()],
            "last_scored": self.last_scored,
            "edges": [msgspec.to_builtins(edge) for edge in self.edges],
            "labels": self.labels.book.dump(),
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Go on from what `dump` wrote; windows and retention are those of the configuration in force."""
        scorer = self.scorer
        retention = scorer.state.retention
        scorer.state = State.load(data["state"])
        scorer.state.retention = retention
        self.alarms.load(data["alarms"])
        scorer.scored, scorer.unmatched = data["scored"], data["unmatched"]
        scorer.dropped = dict(data["dropped"])
        self._builds = dict.fromkeys((pipeline, build, index) for pipeline, build, index in data["builds"])
        self._limiter.load(data["admission"], data["last_scored"] or 0.0)
        self.errors = Counter({(pipeline, code): n for pipeline, code, n in data.get("errors", ())})
        self.last_scored = data["last_scored"]
        self.edges = deque((msgspec.convert(edge, AlarmTransition) for edge in data["edges"]), maxlen=self.edges.maxlen)
        if "labels" in data:
            self.labels.book.load(data["labels"])


def _log_edge(edge: AlarmTransition) -> None:
    """Log that an alarm began or ended: a page that begins is a warning."""
    level = logging.WARNING if (edge.severity, edge.state) == (constants.PAGE, "firing") else logging.INFO
    _log.log(level, "alarm %s (%s): %s", _named(edge.pipeline, edge.alert), edge.severity, edge.state)


def log_acknowledged(pipeline: str, alert: str, reason: str) -> None:
    """Log an acknowledgement when it comes; one that is read from a journal was logged then."""
    _log.info("alarm %s acknowledged: %s", _named(pipeline, alert), printable(reason))


def _named(pipeline: str, alert: str) -> str:
    return f"{printable(pipeline)}/{printable(alert)}"
