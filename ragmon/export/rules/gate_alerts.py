"""Alerts on gates and the texts of their annotations.

Alarms of ragmon keep a budget of false pages, so the rules on them only pass them on. Rules on windows open tickets or
inform. An annotation shows the value with its interval, which builds answer, and where to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ragmon.alarms.baselines import INDEX_ALERT
from ragmon.config.services import LinksTable
from ragmon.core import constants, series_names
from ragmon.export.rules import recording
from ragmon.export.rules.file import Rule

RUNBOOK: Final = "docs/runbook.md#{alert}"
"""The runbook by default: in ragmon's own repository."""
DASHBOARD: Final = "ragmon-overview"
_OF_GATE: Final = "{pipeline=%q,gate=%q}"
_OF_PIPELINE: Final = "{pipeline=%q}"


@dataclass(frozen=True)
class Writer:
    """Writes the annotations of alerts.

    Args:
        links: The URLs of the runbook and the dashboards.
    """

    links: LinksTable

    def of(self, alert: str, summary: str, description: str, *, gated: bool = False) -> Mapping[str, str]:
        """The annotations of an alert.

        Args:
            alert: The name of the alert.
            summary: The summary, one line.
            description: What the alert means and what to do first.
            gated: Whether the alert has labels of a pipeline and a gate.
        """
        annotations = {"summary": summary, "description": description}
        annotations["runbook_url"] = str(self.links.runbook or RUNBOOK).replace("{alert}", alert.lower())
        if self.links.dashboard is not None:
            variables = "?var-pipeline={{ $labels.pipeline | urlquery }}" if gated else ""
            annotations["dashboard_url"] = f"{str(self.links.dashboard).rstrip('/')}/d/{DASHBOARD}{variables}"
        return annotations


def _first_result(query: str, labels: str, shown: str, otherwise: str) -> str:
    """A template for the first result of a query, which Prometheus runs when it writes the alert."""
    result = f"{{{{ . | first | value | {shown} }}}}"
    return f"{{{{ with printf `{query}` {labels} | query }}}}{result}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _share(series: str) -> str:
    """A template for a share of the gate in per cent; "unknown" where there is no value."""
    return _first_result(f"max({series}{_OF_GATE})", "$labels.pipeline $labels.gate", "humanizePercentage", "unknown")


def _number(series: str) -> str:
    return _first_result(f"max({series}{_OF_GATE})", "$labels.pipeline $labels.gate", 'printf "%.0f"', "unknown")


def _if_present(series: str, text: str, otherwise: str) -> str:
    """A template for one text where the gate has the series, else another: there may be no gate, or no recent probe."""
    condition = f"with printf `max({series}{_OF_GATE})` $labels.pipeline $labels.gate | query"
    return f"{{{{ {condition} }}}}{text}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _builds(query: str, otherwise: str) -> str:
    """A template for every build and index a query returns."""
    item = "{{ .Labels.build }} on index {{ .Labels.index_hash }}"
    items = f"{{{{ range $at, $found := . }}}}{{{{ if $at }}}}, {{{{ end }}}}{item}{{{{ end }}}}"
    condition = f"printf `{query}` {' '.join(['$labels.pipeline'] * query.count('%q'))} | query"
    return f"{{{{ with {condition} }}}}{items}{{{{ else }}}}{otherwise}{{{{ end }}}}"


_SEEN: Final = f"count by (build, index_hash) ({series_names.BUILD_SEEN}{_OF_PIPELINE}"
VALUE: Final = _share(recording.VALUE)
"""The gate's value in its window, over all replicas."""
INTERVAL: Final = f"95 % interval {_share(recording.VALUE_LOWER)} to {_share(recording.VALUE_UPPER)}"
SAMPLES: Final = f"n = {_number(recording.SAMPLES)}"
WINDOWED: Final = _if_present(
    recording.VALUE, f"In its whole window {VALUE} ({INTERVAL}, {SAMPLES})", "No gate of this name has a value"
)
"""The value in the gate's window; another text for an alarm on a metric without a gate."""
THRESHOLD: Final = _if_present(
    series_names.GATE_THRESHOLD, f"threshold {_share(series_names.GATE_THRESHOLD)}", "no gate of this name"
)
LATELY: Final = _if_present(
    recording.RECENT,
    f"{_share(recording.RECENT)} in {recording.LATELY} (95 % interval {_share(recording.RECENT_LOWER)} to "
    f"{_share(recording.RECENT_UPPER)}, n = {_number(recording.RECENT_SCORED)})",
    f"nothing scored in {recording.LATELY}",
)
"""The gate's metric in the last minutes, which the alarm is about."""
BASELINE: Final = _first_result(
    f"max({series_names.GATE_BASELINE}{_OF_GATE})", "$labels.pipeline $labels.alarm", "humanizePercentage", "none"
)
"""The baseline the alarm compares its metric with."""
BUILDS: Final = (
    f"New within the hour: {_builds(f'{_SEEN}) unless {_SEEN} offset 1h)', 'no build and no index')}. "
    f"Answered last: {_builds(f'{_SEEN})', 'no build is told')}."
)
"""The builds and indexes that answer, and which of them are new: the first question of an engineer on call."""


PAGE: Final = "page"
TICKET: Final = "ticket"
INFO: Final = "info"
"""How urgent an alert is: at once, this week, for information only."""
_INDEX: Final = f'{series_names.GATE_INFO}{{metric="{constants.INDEX_HASH}"}}'
_DRIFT: Final = ".+:drift"
_GATE_NAME: Final = "{{ $labels.pipeline }}/{{ $labels.gate }}"
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
        f"`ragmon why {_GATE_NAME}` says since when and what changed; "
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
    """Alerts on windows: slow burns over hours and days, gates at risk, and gates that cannot be judged."""
    return [
        _burn(writer, "6h", "30m", recording.PAGE, "the level worth a page", keep="3h"),
        _burn(writer, "3d", "6h", recording.BUDGET, "its threshold", keep="12h"),
        _at_risk(writer),
        _insufficient(writer),
    ]


def _burn(writer: Writer, long: str, short: str, level: str, beyond: str, *, keep: str) -> Rule:
    """A ticket for a gate that burns its budget slowly. The short window ends it, and `keep` stops it from flapping."""
    expr = (
        f"{recording.PROVEN.format(long)} > on (pipeline, gate) {level}\n"
        f"and on (pipeline, gate) {recording.RATIO.format(short)} > on (pipeline, gate) {level}\n"
        f"and on (pipeline, gate) {recording.SCORED.format(long)} >= on (pipeline, gate) {recording.MIN_SAMPLES}"
    )
    summary = f"{_GATE_NAME}: beyond {beyond} for {long}"
    description = (
        f"At least {{{{ $value | humanizePercentage }}}} of the requests of {long}, or of all Prometheus has, fail it "
        f"(lower 99.9 % bound, all replicas), and those of the last {short} do too. Now {VALUE}, {THRESHOLD} "
        f"({INTERVAL}, {SAMPLES}). {BUILDS}"
    )
    texts = writer.of("RagmonGateSlowBurn", summary, description, gated=True)
    return Rule(
        "RagmonGateSlowBurn",
        expr,
        {"severity": TICKET, "over": long},
        texts,
        pending="5m",
        keep_firing_for=keep,
        alert=True,
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
    summary = f"{_GATE_NAME} may not hold: {VALUE}, {THRESHOLD} ({INTERVAL}, {SAMPLES})"
    description = f"The value is on the wrong side of the threshold, and the interval does not prove it yet. {BUILDS}"
    texts = writer.of("RagmonGateAtRisk", summary, description, gated=True)
    return Rule("RagmonGateAtRisk", expr, {"severity": INFO}, texts, pending="15m", alert=True)


def _insufficient(writer: Writer) -> Rule:
    expr = f"{recording.SAMPLES} < on (pipeline, gate) {recording.MIN_SAMPLES}"
    summary = f"{_GATE_NAME} cannot be judged: {{{{ $value }}}} requests in its window"
    description = (
        "A gate without enough requests neither passes nor fails. More probes, a higher sampling rate, or a longer "
        "window give it more; `ragmon doctor` says how many it takes."
    )
    texts = writer.of("RagmonGateInsufficient", summary, description, gated=True)
    return Rule("RagmonGateInsufficient", expr, {"severity": INFO}, texts, pending="2h", alert=True)
