"""What the gates of live traffic say, and what broke where one of them or another alarm fires.

An alarm on a metric's past is written as a gate on that metric whose threshold is the level of the baseline, so that it
is explained from the same counts in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import Final

from msgspec.structs import replace as replace_struct

from ragmon.alarms.detector import shown
from ragmon.alarms.drift import DriftSignal, JudgeShift, Shift, alert_name
from ragmon.alarms.pipelines import AlarmEngine, PipelineAlarms, minute_end
from ragmon.alarms.plan import AlarmRule
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError, shorten, warn_once
from ragmon.core.policy import Gate, Outcome, Policy
from ragmon.gates.change import Why
from ragmon.gates.evaluate import evaluate
from ragmon.gates.incidents import Cause, ChangedGate, cause_of
from ragmon.gates.suspects import MAIN
from ragmon.gates.why import explain, explain_drift, has_changed
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.snapshot import ALL, Snapshot

_WINDOW: Final = "1h"
_UNITS: Final = {"latency": " ms", "question_length": " characters", "answer_length": " characters"}
_NAMES: Final = {
    "latency": "the latency",
    "question_length": "the length of questions",
    "answer_length": "the length of answers",
    "top_score": "the best score of retrieval",
}
_MINUTE: Final = 60
_WHOLE: Final = 100
"""Numbers from here on are shown without decimals."""
_MIN_LEVEL: Final = 1e-6


@dataclass(frozen=True)
class ExplainedAlarm:
    """An alarm, or a gate without one, as it is explained.

    Attributes:
        outcome: The gate's outcome; for other alarms that of a gate that stands for it.
        text: What it compares, and what it has seen.
        derived: It is no gate.
    """

    outcome: Outcome
    firing: float | None
    text: str = ""
    derived: bool = False
    shift: Shift | JudgeShift | None = None
    is_drift: bool = False


class LiveGates:
    """The gates of live traffic, and why they or other alarms fire.

    Args:
        scorer: Holds the counts.
        alarms: The alarms on the same traffic.

    Attributes:
        reread: Since when records of a pipeline are read by other settings, seconds since the epoch.
    """

    def __init__(self, settings: Settings, scorer: Scorer, alarms: AlarmEngine) -> None:
        self._settings, self._scorer, self._alarms = settings, scorer, alarms
        self._windows = {**settings.windows, ALL: None}
        self._window = _WINDOW if _WINDOW in settings.windows else next(iter(settings.windows))
        self._policies: dict[str, Policy] = {}
        self._looked, self._changed = -1, list[ChangedGate]()
        self.reread: dict[str, float] = {}
        pipelines = (settings.unconfigured, *settings.pipelines.values())
        self.gated = sorted({gate.metric for pipeline in pipelines for gate in pipeline.resolved_gates})

    def policy(self, pipeline: str) -> Policy:
        """The gates of a pipeline."""
        policy = self._policies.get(pipeline)
        if policy is None:
            policy = self._policies[pipeline] = self._settings.policy(pipeline, live=True)
        return policy

    def forget(self, pipeline: str) -> None:
        """Forget a pipeline that is removed."""
        self._policies.pop(pipeline, None)
        self.reread.pop(pipeline, None)

    def snapshot(self, now: float) -> Snapshot:
        """The metrics of every window and over all time."""
        return self._scorer.snapshot(now=now, windows=self._windows, gated=self.gated)

    def _of_pipeline(self, now: float, pipeline: str, windows: Mapping[str, int | None]) -> Snapshot:
        """What the gates of one pipeline read, as quick with a thousand pipelines as with one."""
        return self._scorer.snapshot(now=now, windows=windows, gated=self.gated, pipelines={pipeline})

    def judge(self, snapshot: Snapshot) -> Sequence[Outcome]:
        """The gates of every pipeline that is configured or has records; an unconfigured one has the common gates."""
        with_records = sorted({series.pipeline for series in snapshot.series})
        pipelines = dict.fromkeys((*self._settings.pipelines, *with_records))
        for name in with_records:
            if not self.policy(name).gates:
                message = f"pipeline {shorten(name)} has records, but no gates and no rules"
                warn_once(f"{message}: [gates] or [pipelines.NAME.gates]")
        outcomes = [outcome for name in pipelines for outcome in evaluate(snapshot, self.policy(name))]
        return [self._of_reread(outcome, snapshot.now) for outcome in outcomes]

    def _of_reread(self, outcome: Outcome, now: float) -> Outcome:
        """A gate that unknown scores leave undecided, on the records that are read by the settings in force alone."""
        gate, since = outcome.gate, self.reread.get(outcome.gate.pipeline, -inf)
        window = self._settings.windows.get(gate.window, 0)
        if not outcome.unknown or outcome.verdict != "insufficient" or now - since >= window:
            return outcome
        return self._outcome(self._of_pipeline(now, gate.pipeline, {gate.window: max(1, int(now - since))}), gate)

    def explain(
        self, now: float, pipeline: str, name: str, since: float | None = None, proven: float | None = None
    ) -> tuple[ExplainedAlarm, Why]:
        """The diagnosis of a gate or another alarm.

        Args:
            now: Seconds since the epoch.
            pipeline: The pipeline.
            name: The name of the gate or alarm.
            since: The start of the time range, in seconds before `now`; None chooses it.
            proven: As for `ragmon.gates.why.explain`.

        Raises:
            UnknownNameError: There is no such pipeline, gate or alarm.
        """
        alarm = self._find(now, pipeline, name)
        counts = self._scorer.state, self._scorer.table, alarm.outcome
        firing, text = alarm.firing, alarm.text
        if alarm.is_drift:
            moved = None if alarm.shift is None or firing is None else 60.0 * alarm.shift.begin
            return alarm, explain_drift(*counts, now=now, since=moved, firing=firing, alarm=text)
        derived = alarm.derived
        why = explain(*counts, now=now, since=since, firing=firing, alarm=text, derived=derived, proven=proven)
        return alarm, why

    def cause(self, pipeline: str, name: str, now: float, proven: float) -> Cause:
        """What an alarm of an incident tells of its cause, where it has proof since a time."""
        why = self.explain(now, pipeline, name, proven=proven)[1]
        is_significant = not why.change.reason
        return cause_of(why) if is_significant else replace_struct(cause_of(why), began=None)

    def changed(self, outcomes: Sequence[Outcome], now: float) -> Sequence[ChangedGate]:
        """Gates of configured pipelines that are undecided and have become worse for certain, as found this minute.

        Where the usual latency is still learned, a latency that most requests had and have no more is one of them.
        """
        minute = int(now) // _MINUTE
        if minute != self._looked:
            counts = self._scorer.state, self._scorer.table
            self._looked = minute
            undecided = [
                outcome
                for outcome in outcomes
                if outcome.verdict == "insufficient" and outcome.applicable and outcome.gate.kind == "threshold"
                if outcome.gate.pipeline in self._settings.pipelines
            ]
            changed = [
                ChangedGate(outcome, cause_of(explain(*counts, outcome, now=now)))
                for outcome in (*undecided, *self._unlearned_latencies(now))
                if has_changed(*counts, outcome, now)
            ]
            self._changed = [
                found
                for found in changed
                if found.outcome.gate.kind == "threshold"
                or (found.cause.share_before or 0.0) < MAIN <= (found.cause.share or 0.0)
            ]
        return self._changed

    def _unlearned_latencies(self, now: float) -> Iterator[Outcome]:
        for name in self._settings.pipelines.keys() & self._alarms.pipelines.keys():
            alarms = self._alarms.pipelines[name]
            for rule in alarms.rules.values():
                if rule.metric == constants.LATENCY and alarms.held_against(rule) is None:
                    yield self._find(now, name, rule.alert).outcome

    def _find(self, now: float, pipeline: str, name: str) -> ExplainedAlarm:
        """The gate or the alarm with a name, as pages, `/metrics` and alerts show it."""
        pipelines = {*self._settings.pipelines, *self._alarms.pipelines}
        snapshot = self._of_pipeline(now, pipeline, self._windows)
        if pipeline not in pipelines and not snapshot.series:
            raise UnknownNameError("pipeline", pipeline, pipelines)
        outcomes = [self._of_reread(outcome, now) for outcome in evaluate(snapshot, self.policy(pipeline))]
        gates = {outcome.gate.name: outcome for outcome in outcomes}
        alarms = self._alarms.pipelines.get(pipeline)
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
                return self._of_drift(snapshot, alarms, signals[name])
            raise UnknownNameError("gate", name, {*gates, *alarms.rules, *signals})
        alarm = alarms.state.alarms[rule.alert]
        seen = "" if alarm.proof is None else shown(alarm.proof, rule).text
        if name in gates:
            return ExplainedAlarm(gates[name], minute_end(alarm.firing), seen)
        # An alarm on a metric's own past.
        level = alarms.held_against(rule)
        is_latency = rule.metric == constants.LATENCY
        # A paired rule detects items that became worse, whatever is better of its metric.
        better = "higher" if is_latency else self._scorer.table.metrics[rule.metric].better
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
            window=self._window,
            kind="quantile_ratio" if is_latency else "threshold",
        )
        text = seen or _compared(alarms, rule, level)
        return ExplainedAlarm(self._outcome(snapshot, gate), minute_end(alarm.firing), text, derived=True)

    def _of_drift(self, snapshot: Snapshot, alarms: PipelineAlarms, signal: DriftSignal) -> ExplainedAlarm:
        firing, source, drift = minute_end(signal.firing), alarms.selector.user_source, alarms.drift.state
        gate = Gate(
            name=signal.alert,
            metric=signal.metric,
            threshold=1.0,
            direction="at_most",
            pipeline=alarms.pipeline,
            source=source or None,
            window=self._window,
            kind="distinct",
        )
        if signal.metric == constants.INDEX_HASH:
            text = "compares the indexes that answer under one build: a second one raises a ticket"
            return ExplainedAlarm(self._outcome(snapshot, gate), firing, text, derived=True)
        judge, distribution = drift.judges.get(signal.alert), drift.distributions.get(signal.alert)
        judge_shift = None if judge is None else judge.shift()
        shift = None if distribution is None else distribution.shift()
        outcome = Outcome(
            gate,
            source,
            "",
            "",
            None,
            None,
            None,
            0,
            None,
            "insufficient",
            "it says that something changed, not that it is worse",
        )
        is_judge = signal.metric.startswith(constants.JUDGE_PREFIX)
        text = _judge_moved(signal, judge_shift) if is_judge else _moved(signal, shift)
        moved = judge_shift or shift
        return ExplainedAlarm(outcome, firing, text, derived=True, shift=moved, is_drift=True)

    def _outcome(self, snapshot: Snapshot, gate: Gate) -> Outcome:
        (outcome,) = evaluate(snapshot, replace(self.policy(gate.pipeline), gates=(gate,)))
        return outcome


def _compared(alarms: PipelineAlarms, rule: AlarmRule, level: float | None) -> str:
    baseline = alarms.baseline_of(rule)
    what = "each gold item with its first answer" if rule.kind == "paired" else f"{rule.metric} with its own past"
    if level is None or baseline is None:
        seen = 0 if baseline is None else baseline.n
        return f"compares {what}, which is being learned ({seen} observations so far)"
    direction = "at least" if rule.at_least else "at most"
    learned = f"baseline {baseline.phase}, {baseline.n} observations"
    return f"compares {what}: {direction} {100 * level:.1f} % ({learned})"


def _judge_moved(signal: DriftSignal, shift: JudgeShift | None) -> str:
    name = signal.metric
    if signal.alert == alert_name(signal.metric, labelled=True):
        name = f"label minus {name}"
    if shift is None:
        return f"compares the mean of {name} with its past under the same version; there is too little data yet"
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
    verb = "is no longer what it was in" if signal.firing is not None else "is as in"
    below = f"{shift.below:,.0f}" if shift.below >= _WHOLE else f"{shift.below:.3g}"
    then, later = f"{100 * shift.before:.1f} %", f"{100 * shift.after:.1f} %"
    return (
        f"{name} {verb} its first hour: {then} of requests were below {below}{_UNITS.get(signal.metric, '')} then, "
        f"{later} of {shift.n} from {begin:%Y-%m-%d %H:%M} to {end:%H:%M} UTC"
    )
