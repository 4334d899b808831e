"""Every alarm that is shown, by its name, as something that can be explained: a gate, or a metric's own past.

An alarm on a metric's past is written as a gate on that metric whose threshold is the level of the baseline, so that it
is explained from the same counts in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from ragmon.alarms.detector import Alarm, shown
from ragmon.alarms.drift import DriftSignal, JudgeShift, Shift, alert_name
from ragmon.alarms.pipelines import PipelineAlarms, minute_end
from ragmon.alarms.plan import AlarmRule
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError
from ragmon.core.policy import Gate, Outcome
from ragmon.gates.evaluate import evaluate
from ragmon.monitor.engine import Engine
from ragmon.scoring.snapshot import Snapshot

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
    """The gate or the alarm with a name, as pages, `/metrics` and alerts show it.

    Args:
        engine: Has the gates and the alarms.
        snapshot: The current counts.
        pipeline: Its pipeline.
        name: Its name: a gate's, or such as `hit_rate:baseline`.

    Raises:
        UnknownNameError: There is no such pipeline, gate or alarm.
    """
    outcomes = engine.judge(snapshot)
    pipelines = {outcome.gate.pipeline for outcome in outcomes}
    if pipeline not in pipelines | set(engine.alarms.pipelines):
        raise UnknownNameError("pipeline", pipeline, pipelines)
    gates = {outcome.gate.name: outcome for outcome in outcomes if outcome.gate.pipeline == pipeline}
    alarms = engine.alarms.pipelines.get(pipeline)
    signals = {} if alarms is None else {signal.alert: signal for signal in alarms.drift.signals}
    if name in gates:
        return _of_gate(gates[name], alarms, signals.get(name))
    if alarms is not None and name in alarms.rules:
        return _of_past(engine, snapshot, alarms, alarms.rules[name])
    if alarms is not None and name in signals:
        return _of_drift(engine, snapshot, alarms, signals[name])
    raise UnknownNameError("gate", name, [*gates, *([] if alarms is None else alarms.rules), *signals])


def _of_gate(outcome: Outcome, alarms: PipelineAlarms | None, signal: DriftSignal | None) -> ExplainedAlarm:
    rule = None if alarms is None else alarms.rules.get(outcome.gate.name)
    if alarms is None or rule is None:
        return ExplainedAlarm(outcome, None if signal is None else minute_end(signal.firing))
    alarm = alarms.state.alarms[rule.alert]
    return ExplainedAlarm(outcome, minute_end(alarm.firing), _seen(rule, alarm))


def _seen(rule: AlarmRule, alarm: Alarm) -> str:
    """What an alarm fired for; "" while it is silent."""
    return "" if alarm.proof is None else shown(alarm.proof, rule).text


def _of_past(engine: Engine, snapshot: Snapshot, alarms: PipelineAlarms, rule: AlarmRule) -> ExplainedAlarm:
    """An alarm on a metric's own past."""
    alarm, level = alarms.state.alarms[rule.alert], alarms.held_against(rule)
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
    text = _seen(rule, alarm) or _compared(alarms, rule, level)
    return ExplainedAlarm(_outcome(engine, snapshot, gate), minute_end(alarm.firing), text, derived=True)


def _compared(alarms: PipelineAlarms, rule: AlarmRule, level: float | None) -> str:
    """What a silent alarm compares its metric with."""
    baseline = alarms.baseline_of(rule)
    what = {"paired": "each gold item with its first answer"}.get(rule.kind, f"{rule.metric} with its own past")
    if level is None or baseline is None:
        seen = 0 if baseline is None else baseline.n
        return f"compares {what}, which is being learned ({seen} observations so far)"
    direction = "at least" if rule.at_least else "at most"
    learned = f"baseline {baseline.phase}, {baseline.n} observations"
    return f"compares {what}: {direction} {100 * level:.1f} % ({learned})"


def _of_drift(engine: Engine, snapshot: Snapshot, alarms: PipelineAlarms, signal: DriftSignal) -> ExplainedAlarm:
    """An alarm on a distribution, or on the number of indexes."""
    firing, source = minute_end(signal.firing), alarms.selector.user_source
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
    judge_shift = alarms.drift.judge_shift(signal.alert)
    shift = alarms.drift.shift(signal.alert)
    outcome = Outcome(
        gate, source, "", "", None, None, None, 0, None, "insufficient", "it says that, not what is worse"
    )
    is_judge = signal.metric.startswith(constants.JUDGE_PREFIX)
    text = _judge_moved(signal, judge_shift) if is_judge else _moved(signal, shift)
    moved = judge_shift or shift
    return ExplainedAlarm(outcome, firing, text, derived=True, shift=moved, is_drift=True)


def _judge_moved(signal: DriftSignal, shift: JudgeShift | None) -> str:
    """How the scores of a judge moved from its earlier blocks to the one that was compared last."""
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
    """How a distribution moved from its first hour to the block that was compared last."""
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
    """The outcome of a gate that stands for an alarm."""
    (outcome,) = evaluate(snapshot, replace(engine.policy(gate.pipeline), gates=(gate,)))
    return outcome
