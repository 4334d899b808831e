"""Alerts on gates and on what users get.

Alarms of ragmon keep a budget of false pages, so the rules on them only pass them on. Everything else opens a ticket or
informs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragmon.alarms.baselines import INDEX_ALERT
from ragmon.core import constants, series_names
from ragmon.core.policy import MIN_SAMPLES, Gate
from ragmon.export.promql import exact, one_of
from ragmon.export.rules import recording
from ragmon.export.rules.annotations import GATE_NAME, INFO, TICKET, Writer
from ragmon.export.rules.file import Rule
from ragmon.export.rules.scopes import Deployments, RuleScope
from ragmon.gates.coverage import ANSWER, CITATIONS, CONTEXTS, FEW, HALF, IDS, LATENCY, QUESTION, Gap, needs, remedy
from ragmon.metrics.base import parse
from ragmon.scoring.captured import FIRST

_DRIFT: Final = ".+:drift"
_ON_INDEXES: Final = f'metric="{constants.INDEX_HASH}"'
_ALARM_NAME: Final = "{{ $labels.pipeline }}/{{ $labels.alarm }}"
_Z9999: Final = 3.89
"""The normal quantile of a 99.99 % interval: a slow burn is looked at every minute, for ever."""
_USUAL: Final = 0.05
"""The share of errors, and of empty retrievals, above which a ticket is due where no gate sets a limit."""
_FIELDS: Final = (QUESTION, ANSWER, IDS, CONTEXTS, CITATIONS, LATENCY)
"""Fields that the application, or a setting, can bring into every record."""


def alerts(scopes: Sequence[RuleScope], of: Deployments, writer: Writer) -> list[Rule]:
    """All alerts on gates and traffic; those on shares only where a gate is on one."""
    gates = [gate for scope in scopes for gate in scope.share_gates]
    judged = [_breach(of, writer), _insufficient(of, writer)]
    return [
        *_alarms(of, writer),
        *judged,
        *([_slow_burn(of, writer), _unassessed(of, writer), _capture_gap(scopes, gates, of, writer)] if gates else []),
        *(rule for scope in scopes for rule in _traffic(scope, of, writer)),
    ]


def _alarms(of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on ragmon's alarms. An alarm is already statistically proven, so no rule waits before it fires."""
    index = f"on ({of.labels('pipeline', 'gate')}) {of.series(series_names.GATE_INFO, _ON_INDEXES)}"
    urgent = of.series(series_names.GATE_ALARM, f'severity=~"page|ticket",gate!~"{_DRIFT}"')
    looks = of.series(series_names.GATE_ALARM, f'severity="{constants.LOOK}"')
    drifts = of.series(series_names.GATE_ALARM, f'gate=~"{_DRIFT}",gate!="{INDEX_ALERT}"')
    indexes = of.series(series_names.GATE_ALARM, f'gate="{INDEX_ALERT}"')
    indexes = f"{indexes} or ({of.series(series_names.GATE_ALARM)} and {index})"
    past = writer.share(series_names.GATE_BASELINE, alarm=True, otherwise="none")
    about = f"{writer.value}; its own past, if that is what it guards: {past}. {writer.builds}"
    commands = (
        f"`ragmon why {GATE_NAME}` says since when and what changed; "
        f"`ragmon ack {_ALARM_NAME} --reason TEXT` silences it and arms it again. It keeps a budget of false pages."
    )
    fires = f"{_ALARM_NAME} fires: {writer.lately}, {writer.threshold}"
    differs = f"{_ALARM_NAME}: requests are distributed otherwise than before"
    several = "{{ $labels.pipeline }}: one build answers from more than one index"
    part = f"Part of the answers come from another index than the rest. {writer.builds}"
    return [
        _alarm("RagmonGateAlarm", f"{urgent} unless {index}", "", fires, f"{about} {commands}", writer),
        _alarm("RagmonLook", looks, INFO, f"{_ALARM_NAME}: a little off its own past", about, writer),
        _alarm("RagmonDrift", drifts, TICKET, differs, f"A difference, not a fault. {writer.builds}", writer),
        _alarm("RagmonIndexDrift", indexes, "", several, part, writer),
    ]


def _alarm(name: str, series: str, severity: str, summary: str, description: str, writer: Writer) -> Rule:
    """An alert that fires while an alarm fires in at least one replica.

    The label `alarm` has the alarm's full name, and `gate` only the gate's, so that alerts on one gate are grouped.
    """
    named = f'label_replace({series}, "alarm", "$1", "gate", "(.*)")'
    grouped = f'label_replace({named}, "gate", "$1", "gate", "([^:]+):.*")'
    expr = f"max by ({writer.of.labels('pipeline', 'gate', 'alarm', 'severity')}) ({grouped}) == 1"
    return writer.alert(name, expr, severity, summary, description, keep="2m")  # one or two scrapes may be missed


def _breach(of: Deployments, writer: Writer) -> Rule:
    """An alert while a gate's exported interval lies beyond the gate's threshold at a replica."""
    by, on = f"by ({of.labels('pipeline', 'gate')})", f"on ({of.labels('pipeline', 'gate')})"
    floor, ceiling = (of.series(recording.THRESHOLD, f'direction="{way}"') for way in ("at_least", "at_most"))
    upper, lower = of.series(series_names.GATE_UPPER), of.series(series_names.GATE_LOWER)
    enough = f"sum {by} ({of.series(series_names.GATE_SAMPLES)}) >= {on} {of.series(recording.MIN_SAMPLES)}"
    return writer.alert(
        "RagmonGateBreach",
        f"(min {by} ({upper}) < {on} {floor} or max {by} ({lower}) > {on} {ceiling})\nand {on} {enough}",
        INFO,
        f"{GATE_NAME} does not hold: its 95 % bound is {{{{ $value | humanizePercentage }}}}, {writer.threshold}",
        f"{writer.value}. One window in forty shows that by chance: who pages is the alarm. {writer.builds}",
        pending="5m",
    )


def _insufficient(of: Deployments, writer: Writer) -> Rule:
    """Alert on gates with too few requests, but not on those that do not apply: these have none of the statuses."""
    by, on = f"by ({of.labels('pipeline', 'gate')})", f"on ({of.labels('pipeline', 'gate')})"
    undecided = of.series(series_names.GATE_STATUS, 'status="insufficient"')
    samples = of.series(series_names.GATE_SAMPLES)
    return writer.alert(
        "RagmonGateInsufficient",
        f"sum {by} ({samples}) < {on} {of.series(recording.MIN_SAMPLES)}\nand {on} max {by} ({undecided}) == 1",
        INFO,
        f"{GATE_NAME} cannot be judged: {{{{ $value }}}} requests in its window",
        "A gate without enough requests neither passes nor fails. More probes, a higher sampling rate, or a longer "
        "window give it more; `ragmon doctor` says how many it takes.",
        pending="2h",
    )


def _slow_burn(of: Deployments, writer: Writer) -> Rule:
    """A ticket on a gate that fails over days, by chance hardly ever, and still does.

    The windows are those of the SRE workbook's ticket ("Alerting on SLOs"): the long one proves that the gate fails,
    the short one ends the ticket when the failures end.
    """
    on, (short, long) = f"on ({of.labels('pipeline', 'gate')})", recording.WINDOWS
    lasting, recent = (of.series(recording.RATIO.format(window)) for window in (long, short))
    scored = recording.over(recording.SCORED, long, of)
    sides = []
    for way, beyond, sign in (("at_least", "<", "-"), ("at_most", ">", "+")):
        level = of.series(recording.THRESHOLD, f'direction="{way}"')
        chance = f"{_Z9999} * sqrt({level} * (1 - {level}) / {on} {scored})"
        sides.append(f"{lasting} {beyond} {on} ({level} {sign} {on} {chance}) and {on} {recent} {beyond} {on} {level}")
    applies = f"max by ({of.labels('pipeline', 'gate')}) ({of.series(series_names.GATE_STATUS)}) == 1"
    enough = f"{scored} >= {on} {of.series(recording.MIN_SAMPLES)}"
    return writer.alert(
        "RagmonGateSlowBurn",
        f"({sides[0]}\nor {sides[1]})\nand {on} {enough} and {on} {applies}",
        TICKET,
        f"{GATE_NAME}: {{{{ $value | humanizePercentage }}}} over the last {long}, {writer.threshold}",
        f"Of the requests of {long} that Prometheus has, over all replicas; those of the last {short} miss it as well: "
        f"{writer.share(recording.RATIO.format(short))}. {writer.value}. {writer.builds}",
        pending="10m",
        keep="10m",
    )


def _unassessed(of: Deployments, writer: Writer) -> Rule:
    lost, scored = of.series(recording.METRIC_UNASSESSED), of.series(recording.METRIC_SCORED)
    total = f"({lost} + ({scored} or 0 * {lost}))"
    return writer.alert(
        "RagmonTooManyUnassessed",
        f"{lost} / {total} > 0.05 and {total} >= {MIN_SAMPLES}",
        TICKET,
        "{{ $labels.metric }}: {{ $value | humanizePercentage }} of its requests could not be assessed",
        "What is left may be no fair sample of all. The reasons: "
        f"`sum by (metric, reason) (increase({series_names.UNASSESSED}[1h]))`.",
        pending="15m",
    )


def _capture_gap(scopes: Sequence[RuleScope], gates: Sequence[Gate], of: Deployments, writer: Writer) -> Rule:
    """One ticket for each pipeline whose gates cannot be judged for want of what its records lack, with the remedy.

    What is not captured pages nobody: it is unknown, not wrong. A gate on citations in a pipeline that never cites does
    not apply, has none of the statuses, and so is in no ticket.
    """
    by = f"by ({of.labels('pipeline', 'gate')})"
    unknown, known = (
        f"sum {by} ({of.series(name)})" for name in (series_names.GATE_UNKNOWN, series_names.GATE_SAMPLES)
    )
    undecided = of.series(series_names.GATE_STATUS, 'status="insufficient"')
    lacking = (
        f"max by ({of.labels('pipeline')}) (\n  {unknown} / ({unknown} + {known}) > {FEW:g}\n"
        f"  and {unknown} + {known} >= {MIN_SAMPLES} and max {by} ({undecided}) == 1\n)"
    )
    return writer.alert(
        "RagmonCaptureGap",
        "\nor ".join([lacking, *(clause for scope in scopes for clause in _unasked(scope, of))]),
        TICKET,
        "{{ $labels.pipeline }}: gates cannot be judged, {{ $value | humanizePercentage }} of requests lack something",
        f"Of its records {_lacks(gates, writer)}. `ragmon doctor` and the table Captured on the status page name the "
        "setting for records of other origins. What is not captured counts as neither right nor wrong.",
        pending="30m",
        keep="10m",
    )


def _unasked(scope: RuleScope, of: Deployments) -> list[str]:
    """Without a question no request of a user matches gold: gates on gold then have no requests, not unknown ones."""
    on_gold = (gate for gate in scope.share_gates if parse(gate.metric).needs_gold)
    matched = [gate.name for gate in on_gold if gate.source == constants.MATCH]
    if not matched:
        return []
    by, on = f"by ({of.labels('pipeline')})", f"on ({of.labels('pipeline')})"
    live = f'source="{constants.LIVE}"'
    question = of.series(series_names.CAPTURED_RATIO, f'field="{QUESTION}"', live, *scope.matchers)
    blocked = of.series(series_names.GATE_STATUS, 'status="insufficient"', one_of("gate", matched))
    totals = (series_names.REQUESTS, f"{series_names.LATENCY}_count")
    asked = " or ".join(f"sum {by} ({of.series(name, live)}) >= {FIRST}" for name in totals)
    gold = f"on ({of.labels()}) group by ({of.labels()}) ({of.series(series_names.GOLD_INFO)})"
    unasked = f"max {by} (1 - {question} > {HALF:g})"
    return [f"{unasked}\nand {on} (max {by} ({blocked}) == 1)\nand {on} ({asked}) and {gold}"]


def _lacks(gates: Sequence[Gate], writer: Writer) -> str:
    """A template for the fields that records lack and gates need, and what brings each of them into the records."""
    needed = {field for gate in gates for field in needs(parse(gate.metric))}
    fields = [field for field in _FIELDS if field in needed]
    ratio = f"{series_names.CAPTURED_RATIO}{{PIPELINE,{one_of('field', fields)}}}"
    # A pipeline that never cites lacks nothing: a citation there is none of.
    never = f'{series_names.CAPTURED_RATIO}{{field="{CITATIONS}"}} == 0'
    query = f"min by (field) ({ratio} unless {never}) < {1 - FEW:g}"
    remedies = "".join(
        f"{{{{ if eq .Labels.field `{field}` }}}}{remedy(Gap(field, 0, 0))}{{{{ end }}}}" for field in fields
    )
    item = f"{{{{ .Value | humanizePercentage }}}} have {{{{ .Labels.field }}}} ({remedies})"
    return writer.of_pipeline(query, item, "those of this hour have every field")


def _traffic(scope: RuleScope, of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on errors and on empty retrievals, as plain shares of a quarter of an hour."""

    def total(name: str, *matchers: str) -> str:
        return of.total(of.series(name, *scope.matchers, *matchers), "15m", "pipeline")

    def alert(name: str, metric: str, part: str, whole: str, problem: str) -> Rule:
        limits = [gate.threshold for gate in scope.gates if gate.metric == metric and not (gate.where or gate.at_least)]
        limit = limits[0] if limits else _USUAL
        return writer.alert(
            name,
            f"{part} / {whole} > {exact(limit)}\nand {whole} >= {MIN_SAMPLES}",
            TICKET,
            f"{{{{ $labels.pipeline }}}}: {{{{ $value | humanizePercentage }}}} of {problem}, above {100 * limit:.3g}%",
            f"Over 15m. {writer.builds}",
            pending="2m",
            keep="10m",
            labels=scope.labels,
        )

    live, documents = f'source="{constants.LIVE}"', series_names.DOCUMENTS
    # Spans of other instrumentations come without call totals.
    calls = f"({total(series_names.REQUESTS)} or {total(f'{series_names.LATENCY}_count', live)})"
    return [
        alert("RagmonErrors", "error_rate", total(series_names.ERRORS), calls, "the calls fail"),
        alert(
            "RagmonEmptyRetrieval",
            "empty_retrieval_rate",
            total(f"{documents}_bucket", live, 'le="0.0"'),
            total(f"{documents}_count", live),
            "the retrievals find nothing",
        ),
    ]
