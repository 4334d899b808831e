"""Alerts on gates.

Alarms of ragmon keep a budget of false pages, so the rules on them only pass them on. Rules on windows open tickets or
inform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragmon.alarms.baselines import INDEX_ALERT
from ragmon.core import constants, series_names
from ragmon.export.promql import selector
from ragmon.export.rules import recording
from ragmon.export.rules.annotations import (
    BASELINE,
    BUILDS,
    GATE_NAME,
    INFO,
    INTERVAL,
    LATELY,
    SAMPLES,
    THRESHOLD,
    TICKET,
    VALUE,
    WINDOWED,
    Writer,
)
from ragmon.export.rules.file import Rule

_INDEX: Final = f'{series_names.GATE_INFO}{{metric="{constants.INDEX_HASH}"}}'
_DRIFT: Final = ".+:drift"
_ALARM_NAME: Final = "{{ $labels.pipeline }}/{{ $labels.alarm }}"
_KEEP: Final = "2m"
"""One or two missed scrapes do not end an alert."""


def alarms(writer: Writer) -> list[Rule]:
    """Alerts on ragmon's alarms. An alarm is already statistically proven, so no rule waits before it fires."""
    return [_alarm(writer), _unexpected_level(writer), _drift(writer), _index(writer)]


def _alarm(writer: Writer) -> Rule:
    series = (
        f'{series_names.GATE_ALARM}{{severity=~"page|ticket",gate!~"{_DRIFT}"}}\nunless on (pipeline, gate) {_INDEX}'
    )
    summary = f"{_ALARM_NAME} fires: {LATELY}, {THRESHOLD}"
    description = (
        f"{WINDOWED}; its own past, if that is what it guards: {BASELINE}. "
        f"{BUILDS} "
        f"`ragmon why {GATE_NAME}` says since when and what changed; "
        f"`ragmon ack {_ALARM_NAME} --reason TEXT` silences it and arms it again. It keeps a budget of false pages."
    )
    texts = writer.of("RagmonGateAlarm", summary, description, gated=True)
    return _alarm_alert("RagmonGateAlarm", series, {}, texts)


def _unexpected_level(writer: Writer) -> Rule:
    summary = f"{_ALARM_NAME}: a little off its own past"
    description = f"Its past {BASELINE}; {LATELY}. {WINDOWED}. {BUILDS}"
    texts = writer.of("RagmonLook", summary, description, gated=True)
    return _alarm_alert(
        "RagmonLook", f'{series_names.GATE_ALARM}{{severity="{constants.LOOK}"}}', {"severity": INFO}, texts
    )


def _drift(writer: Writer) -> Rule:
    summary = f"{_ALARM_NAME}: requests are distributed otherwise than before"
    description = f"That is a difference, not a fault. {BUILDS}"
    texts = writer.of("RagmonDrift", summary, description, gated=True)
    series = f'{series_names.GATE_ALARM}{{gate=~"{_DRIFT}",gate!="{INDEX_ALERT}"}}'
    return _alarm_alert("RagmonDrift", series, {"severity": TICKET}, texts)


def _index(writer: Writer) -> Rule:
    series = (
        f'{series_names.GATE_ALARM}{{gate="{INDEX_ALERT}"}}\n'
        f"or ({series_names.GATE_ALARM} and on (pipeline, gate) {_INDEX})"
    )
    summary = "{{ $labels.pipeline }}: one build answers from more than one index"
    description = f"Part of the answers come from another index than the rest. {BUILDS}"
    texts = writer.of("RagmonIndexDrift", summary, description, gated=True)
    return _alarm_alert("RagmonIndexDrift", series, {}, texts)


def _alarm_alert(name: str, series: str, labels: dict[str, str], texts: Mapping[str, str]) -> Rule:
    """An alert that fires while an alarm fires in at least one replica.

    The label `alarm` has the alarm's full name, and `gate` only the gate's, so that alerts on one gate are grouped.
    """
    indented = series.replace("\n", "\n      ")
    expr = (
        "max by (pipeline, gate, alarm, severity) (\n"
        "  label_replace(\n"
        "    label_replace(\n"
        f"      {indented},\n"
        '      "alarm", "$1", "gate", "(.*)"\n'
        "    ),\n"
        '    "gate", "$1", "gate", "([^:]+):.*"\n'
        "  )\n"
        ") == 1"
    )
    return Rule(name, expr, labels, texts, keep_firing_for=_KEEP, alert=True)


def windows(writer: Writer) -> list[Rule]:
    """Alerts on windows: gates at risk, and gates that cannot be judged."""
    return [_at_risk(writer), _insufficient(writer)]


def _at_risk(writer: Writer) -> Rule:
    expr = (
        "(\n"
        f'  ({recording.VALUE} < on (pipeline, gate) {recording.THRESHOLD}{{direction="at_least"}}\n'
        f"    unless on (pipeline, gate) {recording.VALUE_UPPER} < on (pipeline, gate) {recording.THRESHOLD})\n"
        f'  or ({recording.VALUE} > on (pipeline, gate) {recording.THRESHOLD}{{direction="at_most"}}\n'
        f"    unless on (pipeline, gate) {recording.VALUE_LOWER} > on (pipeline, gate) {recording.THRESHOLD})\n"
        ")\n"
        f"and on (pipeline, gate) {recording.SAMPLES} >= on (pipeline, gate) {recording.MIN_SAMPLES}"
    )
    summary = f"{GATE_NAME} may not hold: {VALUE}, {THRESHOLD} ({INTERVAL}, {SAMPLES})"
    description = f"The value is on the wrong side of the threshold, and the interval does not prove it yet. {BUILDS}"
    texts = writer.of("RagmonGateAtRisk", summary, description, gated=True)
    return Rule("RagmonGateAtRisk", expr, {"severity": INFO}, texts, pending="15m", alert=True)


def _insufficient(writer: Writer) -> Rule:
    """Alert on gates with too few requests, but not on those that do not apply: these have none of the statuses."""
    undecided = selector(series_names.GATE_STATUS, {"status": "insufficient"})
    expr = (
        f"{recording.SAMPLES} < on (pipeline, gate) {recording.MIN_SAMPLES}\n"
        f"and on (pipeline, gate) max by (pipeline, gate) ({undecided}) == 1"
    )
    summary = f"{GATE_NAME} cannot be judged: {{{{ $value }}}} requests in its window"
    description = (
        "A gate without enough requests neither passes nor fails. More probes, a higher sampling rate, or a longer "
        "window give it more; `ragmon doctor` says how many it takes."
    )
    texts = writer.of("RagmonGateInsufficient", summary, description, gated=True)
    return Rule("RagmonGateInsufficient", expr, {"severity": INFO}, texts, pending="2h", alert=True)
