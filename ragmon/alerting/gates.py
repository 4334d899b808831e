"""Alerts on gates: alarms that keep a budget of false pages, and what needs no page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragmon.alarms.frozen import INDEX_ALERT
from ragmon.alerting import recording
from ragmon.alerting.annotations import BASELINE, BUILDS, INTERVAL, LATELY, SAMPLES, THRESHOLD, VALUE, WINDOWED, Writer
from ragmon.alerting.rulefile import Rule
from ragmon.core import constants, series_names

PAGE: Final = "page"
TICKET: Final = "ticket"
INFO: Final = "info"
"""How urgent an alert is: at once, this week, when somebody looks."""
_INDEX: Final = f'{series_names.GATE_INFO}{{metric="{constants.INDEX_HASH}"}}'
_DRIFT: Final = ".+:drift"
_NAMED: Final = "{{ $labels.pipeline }}/{{ $labels.gate }}"
_ALARM: Final = "{{ $labels.pipeline }}/{{ $labels.alarm }}"
_KEEP: Final = "2m"
"""A scrape or two that are missed do not end an alert."""


def alarms(writer: Writer) -> list[Rule]:
    """The alarms of ragmon, which have proof of their own: no rule waits for more."""
    return [_alarm(writer), _look(writer), _drift(writer), _index(writer)]


def _alarm(writer: Writer) -> Rule:
    chosen = (
        f'{series_names.GATE_ALARM}{{severity=~"page|ticket",gate!~"{_DRIFT}"}}\nunless on (pipeline, gate) {_INDEX}'
    )
    summary = f"{_ALARM} fires: {LATELY}, {THRESHOLD}"
    description = (
        f"{WINDOWED}; its own past, if that is what it guards: {BASELINE}. "
        f"{BUILDS} "
        f"`ragmon why {_NAMED}` says since when and what changed; "
        f"`ragmon ack {_ALARM} --reason TEXT` silences it and arms it again. It keeps a budget of false pages."
    )
    texts = writer.of("RagmonGateAlarm", summary, description, gated=True)
    return _raised("RagmonGateAlarm", chosen, {}, texts)


def _look(writer: Writer) -> Rule:
    summary = f"{_ALARM}: a little off its own past"
    description = f"Its past {BASELINE}; {LATELY}. {WINDOWED}. {BUILDS}"
    texts = writer.of("RagmonLook", summary, description, gated=True)
    return _raised("RagmonLook", f'{series_names.GATE_ALARM}{{severity="{constants.LOOK}"}}', {"severity": INFO}, texts)


def _drift(writer: Writer) -> Rule:
    summary = f"{_ALARM}: requests are distributed otherwise than before"
    description = f"That is a difference, not a fault. {BUILDS}"
    texts = writer.of("RagmonDrift", summary, description, gated=True)
    chosen = f'{series_names.GATE_ALARM}{{gate=~"{_DRIFT}",gate!="{INDEX_ALERT}"}}'
    return _raised("RagmonDrift", chosen, {"severity": TICKET}, texts)


def _index(writer: Writer) -> Rule:
    chosen = (
        f'{series_names.GATE_ALARM}{{gate="{INDEX_ALERT}"}}\n'
        f"or ({series_names.GATE_ALARM} and on (pipeline, gate) {_INDEX})"
    )
    summary = "{{ $labels.pipeline }}: one build answers from more than one index"
    description = f"Part of the answers come from another index than the rest. {BUILDS}"
    texts = writer.of("RagmonIndexDrift", summary, description, gated=True)
    return _raised("RagmonIndexDrift", chosen, {}, texts)


def _raised(name: str, chosen: str, labels: dict[str, str], texts: Mapping[str, str]) -> Rule:
    """An alert on alarms; one replica is enough.

    `alarm` keeps their full name, and `gate` is cut to the gate, so that what is about one gate goes together.
    """
    indented = chosen.replace("\n", "\n      ")
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
    return Rule(name, expr, labels, texts, keep=_KEEP, alert=True)


def windows(writer: Writer) -> list[Rule]:
    """What the windows say: burns over hours and days, what is at risk, and what cannot be judged."""
    return [
        _burn(writer, "6h", "30m", recording.PAGE, "the level worth a page", keep="3h"),
        _burn(writer, "3d", "6h", recording.BUDGET, "its threshold", keep="12h"),
        _at_risk(writer),
        _insufficient(writer),
    ]


def _burn(writer: Writer, long: str, short: str, level: str, beyond: str, *, keep: str) -> Rule:
    """A ticket that is opened once: the short window ends it, and it must not begin anew with every wave."""
    expr = (
        f"{recording.PROVEN.format(long)} > on (pipeline, gate) {level}\n"
        f"and on (pipeline, gate) {recording.RATIO.format(short)} > on (pipeline, gate) {level}\n"
        f"and on (pipeline, gate) {recording.SCORED.format(long)} >= on (pipeline, gate) {recording.MIN_SAMPLES}"
    )
    summary = f"{_NAMED}: beyond {beyond} for {long}"
    description = (
        f"At least {{{{ $value | humanizePercentage }}}} of the requests of {long}, or of all Prometheus has, fail it "
        f"(lower 99.9 % bound, all replicas), and those of the last {short} do too. Now {VALUE}, {THRESHOLD} "
        f"({INTERVAL}, {SAMPLES}). {BUILDS}"
    )
    texts = writer.of("RagmonGateSlowBurn", summary, description, gated=True)
    return Rule(
        "RagmonGateSlowBurn", expr, {"severity": TICKET, "over": long}, texts, pending="5m", keep=keep, alert=True
    )


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
    summary = f"{_NAMED} may not hold: {VALUE}, {THRESHOLD} ({INTERVAL}, {SAMPLES})"
    description = f"The value is on the wrong side of the threshold, and the interval does not prove it yet. {BUILDS}"
    texts = writer.of("RagmonGateAtRisk", summary, description, gated=True)
    return Rule("RagmonGateAtRisk", expr, {"severity": INFO}, texts, pending="15m", alert=True)


def _insufficient(writer: Writer) -> Rule:
    expr = f"{recording.SAMPLES} < on (pipeline, gate) {recording.MIN_SAMPLES}"
    summary = f"{_NAMED} cannot be judged: {{{{ $value }}}} requests in its window"
    description = (
        "A gate without enough requests neither passes nor fails. More probes, a higher sampling rate, or a longer "
        "window give it more; `ragmon doctor` says how many it takes."
    )
    texts = writer.of("RagmonGateInsufficient", summary, description, gated=True)
    return Rule("RagmonGateInsufficient", expr, {"severity": INFO}, texts, pending="2h", alert=True)
