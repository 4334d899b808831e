"""Prometheus rules from ragmon.toml: recording rules and alerts, as YAML for Prometheus or for its operator.

The gates of the top level of ragmon.toml are those of every pipeline without gates of its own, also of pipelines that
come with their first record: their rules select all pipelines but the ones that have rules of their own.

Shares are sums of scores by requests scored. Intervals are the monitor's, which knows strata and clusters and exports
its bounds. Alarms keep a budget of false pages, so the rules on alarms only pass them on; everything else opens a
ticket or informs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

import yaml

from ragmon.alarms.baselines import INDEX_ALERT
from ragmon.config.services import LinksTable
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.policy import MIN_SAMPLES, Gate
from ragmon.export import families
from ragmon.export.families import equals, exact, label, one_of, selector
from ragmon.export.pages import address
from ragmon.gates import coverage
from ragmon.gates.coverage import ANSWER, CITATIONS, CONTEXTS, FEW, HALF, IDS, QUESTION, Gap, needs, remedy
from ragmon.metrics.base import parse
from ragmon.scoring.captured import FIRST

_MATCHER: Final = r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*'


@dataclass(frozen=True)
class Deployments:
    """The deployments of ragmon that rules are for.

    Args:
        by: The labels that tell them apart: every aggregation keeps them.
        matchers: PromQL that every series must match; empty for all deployments.
    """

    by: tuple[str, ...] = ()
    matchers: str = ""

    @classmethod
    def of(cls, by: Sequence[str], matchers: str) -> Self:
        """Deployments of some matchers; the labels that these name are kept, so that recorded series match as well.

        >>> Deployments.of(["env"], 'cluster=~"a|b"')
        Deployments(by=('env', 'cluster'), matchers='cluster=~"a|b"')
        """
        if matchers and not re.fullmatch(f"{_MATCHER}(?:,{_MATCHER})*,?", matchers):
            raise RagmonError(f"--selector is no list of matchers: {matchers}", hint="""--selector 'env="prod"'""")
        named = [match[1] for match in re.finditer(_MATCHER, matchers)]
        return cls(tuple(dict.fromkeys((*by, *named))), matchers.strip().removesuffix(","))

    def series(self, name: str, *matchers: str) -> str:
        """A selector for a series of the deployments."""
        return selector(name, None, *matchers, *([self.matchers] if self.matchers else []))

    def labels(self, *names: str) -> str:
        """Some labels and those that tell deployments apart, for `by (…)` and `on (…)`."""
        return ", ".join(dict.fromkeys((*names, *self.by)))

    def total(self, series: str, window: str, *labels: str) -> str:
        """The increase of a counter, summed over replicas and all labels but these."""
        return f"sum by ({self.labels(*labels)}) (increase({series}[{window}]))"


@dataclass(frozen=True)
class RuleScope:
    """Pipelines that share their rules.

    Attributes:
        settings: The settings they share.
        gates: Their gates, with the source they are judged on live; those of several pipelines name none.
        names: The configured ones among them.
        matchers: Select their series; empty for all pipelines.
        unnamed: Whether pipelines that no configuration names are among them.
        shared: Whether they are the pipelines with the gates of the top level; else it is one with its own.
    """

    settings: PipelineSettings
    gates: tuple[Gate, ...]
    names: tuple[str, ...]
    matchers: tuple[str, ...]
    unnamed: bool
    shared: bool

    @property
    def labels(self) -> dict[str, str]:
        """The labels that tell the rules of a pipeline with gates of its own from those by pattern."""
        return {} if self.shared else {"pipeline": label(self.settings.name)}

    @property
    def share_gates(self) -> tuple[Gate, ...]:
        """The gates on shares, which have counters."""
        return tuple(gate for gate in self.gates if gate.kind == "threshold")


def rule_scopes(settings: Settings, configured_only: bool = False) -> list[RuleScope]:
    """The scopes of a configuration; that of the top level is the first.

    Args:
        settings: The configuration.
        configured_only: Without rules for pipelines that the configuration does not name.

    Raises:
        RagmonError: The configuration names no pipeline, and only such are asked for.
    """
    if configured_only and not settings.pipelines:
        hint = "[pipeline] name, or [pipelines.NAME]; else leave --configured-only out"
        raise RagmonError("the configuration names no pipeline that rules could be for", hint=hint)
    common = _gates(settings.unconfigured, settings)
    own_gates = {name: _gates(pipeline, settings) for name, pipeline in settings.pipelines.items()}
    shared = tuple(name for name, gates in own_gates.items() if gates == common)
    others = tuple(name for name in settings.pipelines if name not in shared)
    matchers = (one_of("pipeline", others, others=True),) if others else ()
    if configured_only:
        matchers = (one_of("pipeline", shared),)
    scopes = []
    if shared or not configured_only:
        unnamed = not configured_only
        scopes.append(RuleScope(settings.unconfigured, common, shared, matchers, unnamed=unnamed, shared=True))
    for name in others:
        gates = tuple(replace(gate, pipeline=name) for gate in own_gates[name])
        own = (equals("pipeline", name),)
        scopes.append(RuleScope(settings.pipelines[name], gates, (name,), own, unnamed=False, shared=False))
    return scopes


def _gates(pipeline: PipelineSettings, settings: Settings) -> tuple[Gate, ...]:
    """The gates of a pipeline without its name; pipelines where they are equal share their rules."""
    alone = replace(settings, pipelines={pipeline.name: pipeline})
    return tuple(replace(gate, pipeline="") for gate in alone.policy(pipeline.name, live=True).gates)


Form = Literal["prometheus", "kubernetes"]
_HEADER: Final = (
    "# Generated by `ragmon generate {what}` from ragmon.toml. Change that file, and generate this one again.\n"
)


@dataclass(frozen=True)
class Rule:
    """A recording rule or an alert.

    Args:
        name: The name of the recorded series (it has a colon, or is a name used by other tools), or of the alert.
        expr: The PromQL expression.
        labels: Labels added to the result.
        annotations: The texts of an alert for people.
        pending: How long the expression must hold before the alert fires; "" for at once.
        keep_firing_for: How long the alert keeps firing after the expression stopped holding.
    """

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pending: str = ""
    keep_firing_for: str = ""
    alert: bool = False

    def plain(self) -> dict[str, Any]:
        """The rule as Prometheus reads it."""
        document: dict[str, Any] = {"alert" if self.alert else "record": self.name, "expr": self.expr}
        if self.pending:
            document["for"] = self.pending
        if self.keep_firing_for:
            document["keep_firing_for"] = self.keep_firing_for
        if self.labels:
            labels = sorted(self.labels.items())
            document["labels"] = _Labels(
                (name, text.replace("{{", '{{"{{"}}') if self.alert else text) for name, text in labels
            )
        if self.annotations:
            document["annotations"] = dict(self.annotations)
        return document


@dataclass(frozen=True)
class RuleGroup:
    """Rules that are evaluated one after the other.

    Args:
        name: Unique in the file.
        rules: The rules.
        interval: The evaluation interval; "" for that of Prometheus.
    """

    name: str
    rules: Sequence[Rule]
    interval: str = ""

    def plain(self) -> dict[str, Any]:
        """The group as Prometheus reads it."""
        timed = {"interval": self.interval} if self.interval else {}
        return {"name": self.name, **timed, "rules": [rule.plain() for rule in self.rules]}


def render(groups: Sequence[RuleGroup], rule_format: Form = "prometheus") -> str:
    """The text of a rule file: one for `rule_files`, or a PrometheusRule of the Prometheus operator."""
    spec: dict[str, Any] = {"groups": [group.plain() for group in groups]}
    what, document = "rules", spec
    if rule_format == "kubernetes":
        what = "rules --format kubernetes"
        document = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "ragmon", "labels": {"app.kubernetes.io/name": "ragmon"}},
            "spec": spec,
        }
    return _HEADER.format(what=what) + yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000
    )


class _Labels(dict[str, str]):
    """Labels of a rule, which are written in one line."""


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as blocks, and repeated values in full instead of as aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)
_Dumper.add_representer(
    _Labels, lambda dumper, labels: dumper.represent_mapping("tag:yaml.org,2002:map", labels, flow_style=True)
)


PAGE: Final = "page"
TICKET: Final = "ticket"
INFO: Final = "info"
"""How urgent an alert is: at once, this week, for information only."""
JOB: Final = 'job="ragmon"'
"""The scrape job."""
_FILE: Final = "docs/runbook.md#{alert}"
"""The runbook where no ragmon is up that could show it: in the repository."""
_AT_INSTANCE: Final = (
    f"{{{{ with query `up{{{JOB}}} == 1` | sortByLabel `instance` }}}}"
    f"{address('http://{{ . | first | label `instance` }}', '{alert}')}"
    f"{{{{ else }}}}{_FILE}{{{{ end }}}}"
)
"""A template for the runbook at a ragmon that Prometheus reaches, whatever labels the alert has."""
DASHBOARD: Final = "ragmon-overview"
_PERCENT: Final = "{{ . | first | value | humanizePercentage }}"
_NUMBER: Final = '{{ . | first | value | printf "%.0f" }}'
"""The first result of a query, as a template writes it."""
GATE_NAME: Final = "{{ $labels.pipeline }}/{{ $labels.gate }}"


@dataclass(frozen=True)
class Writer:
    """Writes alerts with their texts.

    Args:
        links: The URLs of the runbook and the dashboards.
        of: The deployments.
    """

    links: LinksTable
    of: Deployments

    def alert(
        self,
        name: str,
        expr: str,
        severity: str,
        summary: str,
        description: str,
        *,
        pending: str = "",
        keep: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Rule:
        """An alert with its links; severity "" leaves it to a label of the expression."""
        if self.links.runbook is not None:
            runbook = str(self.links.runbook)
        elif self.links.status is not None:
            runbook = address(str(self.links.status), "{alert}")
        else:
            runbook = _AT_INSTANCE
        annotations = {
            "summary": summary,
            "description": description,
            "runbook_url": runbook.replace("{alert}", name.lower()),
        }
        if self.links.dashboard is not None:
            variables = "?var-pipeline={{ $labels.pipeline | urlquery }}" if "$labels.pipeline" in summary else ""
            annotations["dashboard_url"] = f"{str(self.links.dashboard).rstrip('/')}/d/{DASHBOARD}{variables}"
        own = {**(labels or {}), **({"severity": severity} if severity else {})}
        return Rule(name, expr, own, annotations, pending=pending, keep_firing_for=keep, alert=True)

    def found(self, query: str, shown: str, otherwise: str, *, alarm: bool = False) -> str:
        """A template for the value of a query about the alert's gate, which Prometheus runs when it writes the alert.

        Args:
            query: The query, with `SERIES{GATE}` for each series.
            shown: The template around `.`, the result.
            otherwise: The text where the query has no result.
            alarm: Whether it is about the alarm's full name, not the gate's.
        """
        labels = self.of.labels("pipeline", "gate")
        values = labels.replace("gate", "alarm", 1) if alarm else labels
        return _asked(query.replace("{GATE}", f"{{{_matchers(labels)}}}"), values, shown, otherwise)

    def of_pipeline(self, query: str, item: str, otherwise: str) -> str:
        """A template for every result of a query about the alert's pipeline.

        Args:
            query: The query, with `PIPELINE` for the matchers of each series.
            item: The template of a result.
            otherwise: The text where the query has no result.
        """
        labels = self.of.labels("pipeline")
        shown = f"{{{{ range $at, $found := . }}}}{{{{ if $at }}}}, {{{{ end }}}}{item}{{{{ end }}}}"
        return _asked(query.replace("PIPELINE", _matchers(labels)), labels, shown, otherwise)

    def share(self, series: str, *, alarm: bool = False, otherwise: str = "unknown") -> str:
        """A template for a share of the gate in per cent."""
        return self.found(f"max({series}{{GATE}})", _PERCENT, otherwise, alarm=alarm)

    @property
    def value(self) -> str:
        """The gate's value in its window with the gate's interval; another text for an alarm on a metric without gate.

        The interval may still hold the threshold: an alarm proves more than one window shows.
        """
        lower, upper = self.share(families.GATE_LOWER), self.share(families.GATE_UPPER)
        samples = self.found(f"sum({families.GATE_SAMPLES}{{GATE}})", _NUMBER, "0")
        shown = f"In its whole window {_PERCENT} (95 % interval {lower} to {upper}, n = {samples})"
        return self.found(f"max({families.GATE_VALUE}{{GATE}})", shown, "No gate of this name has a value")

    @property
    def threshold(self) -> str:
        """The gate's threshold."""
        return f"threshold {self.share(families.GATE_THRESHOLD, otherwise='of no gate')}"

    @property
    def lately(self) -> str:
        """The gate's metric in the last minutes, which an alarm is about: its window may hold more good requests."""
        shown = f"{_PERCENT} in {STEP} (n = {self.found(f'{SCORED_RECORD}{{GATE}}', _NUMBER, '0')})"
        return self.found(f"{SCORE_RECORD}{{GATE}} / ({SCORED_RECORD}{{GATE}} > 0)", shown, f"nothing scored in {STEP}")

    @property
    def builds(self) -> str:
        """The builds and indexes that answer, and which of them are new: the first question of an engineer on call."""
        seen = f"count by (build, index_hash) ({families.BUILD_SEEN}{{PIPELINE}}"
        item = "{{ .Labels.build }} on index {{ .Labels.index_hash }}"
        new = self.of_pipeline(f"{seen}) unless {seen} offset 1h)", item, "no build and no index")
        return f"New within the hour: {new}. Answered last: {self.of_pipeline(f'{seen})', item, 'no build is told')}."


def _matchers(labels: str) -> str:
    """Matchers for the values of some labels, with `%q` for each."""
    return ",".join(f"{name}=%q" for name in labels.split(", "))


def _asked(query: str, labels: str, shown: str, otherwise: str) -> str:
    """A template for a query that has `%q` for the values of an alert's labels, one after the other and again."""
    names = labels.split(", ")
    arguments = " ".join(f"$labels.{name}" for name in names * (query.count("%q") // len(names)))
    return f"{{{{ with printf `{query}` {arguments} | query }}}}{shown}{{{{ else }}}}{otherwise}{{{{ end }}}}"


STEP: Final = "5m"
"""The window of recorded sums; sums of longer windows are made of them."""
SCORE_RECORD: Final = f"pipeline_gate:ragmon_gate_score:increase{STEP}"
SCORED_RECORD: Final = f"pipeline_gate:ragmon_gate_scored:increase{STEP}"
RATIO: Final = "pipeline_gate:ragmon_gate_score_per_scored:ratio_increase{}"
WINDOWS: Final = ("6h", "3d")
THRESHOLD: Final = "pipeline_gate:ragmon_gate_threshold:constant"
MIN_SAMPLES_RECORD: Final = "pipeline_gate:ragmon_gate_min_samples:constant"
METRIC_SCORED: Final = "metric:rag_scored:increase1h"
METRIC_UNASSESSED: Final = "metric:ragmon_unassessed:increase1h"
EXPECTED: Final = (
    constants.NO_GOLD_CLAIM,
    constants.NO_GOLD_CITATIONS,
    constants.ERROR,
    constants.NO_IDS,
    constants.NO_CITATIONS,
    constants.NO_TEXT,
    constants.NO_ANSWER,
    constants.NO_LATENCY,
)
"""Reasons that are no fault in the data: the gold set does not specify it, the request failed, or the pipeline does not
capture it, which has a ticket of its own where a gate suffers from it."""
_RECORDED_WINDOW: Final = 3600
"""Seconds; sliding values are recorded from the window nearest to it."""


def recording_rules(scopes: Sequence[RuleScope], of: Deployments, windows: Mapping[str, int]) -> Iterator[Rule]:
    """All recording rules; `windows` are the lengths of the monitor's windows in seconds, by name."""
    for scope in scopes:
        served = of.series(families.GATE_THRESHOLD, *scope.matchers)
        pipelines = f"0 * group by ({of.labels('pipeline')}) ({served})"
        for gate in scope.gates:
            name = {**scope.labels, "gate": label(gate.name)}
            yield Rule(THRESHOLD, f"{pipelines} + {exact(gate.threshold)}", name | {"direction": gate.direction})
            if gate.kind != "distinct":  # its samples are builds
                yield Rule(MIN_SAMPLES_RECORD, f"{pipelines} + {gate.min_samples}", name)
            if gate.kind == "threshold":
                score = _judged(gate, scope, of, families.SCORE, families.SLICE_SCORE)
                scored = _judged(gate, scope, of, families.SCORED, families.SLICE_SCORED)
                yield Rule(SCORE_RECORD, score, name)
                yield Rule(SCORED_RECORD, scored, name)
    for window in WINDOWS:  # no data, not zero, where nothing was scored
        score, scored = _over(SCORE_RECORD, window, of), _over(SCORED_RECORD, window, of)
        yield Rule(RATIO.format(window), f"{score} / ({scored} > 0)")
    keys = sorted({gate.metric for scope in scopes for gate in scope.share_gates})
    for key in keys:
        metric, _, k = key.partition("@")
        counter = of.series(f"{families.PREFIX}{metric}{families.SCORED}", *([equals("k", k)] if k else []))
        yield Rule(METRIC_SCORED, of.total(counter, "1h"), {"metric": key})
    if keys:
        counter = of.series(families.UNASSESSED, one_of("metric", keys), one_of("reason", EXPECTED, others=True))
        yield Rule(METRIC_UNASSESSED, of.total(counter, "1h", "metric"))
    yield from compat_recordings(windows, of)


def _judged(gate: Gate, scope: RuleScope, of: Deployments, ending: str, sliced: str) -> str:
    """The increase of a counter of the gate's metric, over all replicas, in what the gate is judged on.

    That is one gold set, the one the monitor says if the gate names none, in its version in force: a sum over sets
    would be a number about nothing.
    """
    metric, (name, _, k) = parse(gate.metric), gate.metric.partition("@")
    series, cut = f"{families.PREFIX}{name}{ending}", [equals("k", k)] if k else []
    if gate.where:
        series, cut = sliced, [equals("metric", gate.metric), equals("slice", gate.where)]
    gold = [] if metric.labelled else ['gold!=""' if metric.needs_gold else 'gold=""']
    if gate.gold is not None:
        gold = [equals("gold", gate.gold)]
    counter = of.series(series, *scope.matchers, *cut, equals("source", gate.source or constants.LIVE), *gold)
    if gate.source == constants.LABEL or not (metric.needs_gold or gate.gold):
        return of.total(counter, STEP, "pipeline")
    present = f'label_replace({of.series(families.GOLD_INFO)}, "gold_version", "$1", "version", "(.*)")'
    chosen = f"increase({counter}[{STEP}]) and on ({of.labels('gold', 'gold_version')}) {present}"
    if gate.gold is None:
        info = of.series(families.GATE_INFO, equals("gate", gate.name))
        chosen += f" and on ({of.labels('pipeline', 'gold')}) {info}"
    return f"sum by ({of.labels('pipeline')}) ({chosen})"


def _over(series: str, window: str, of: Deployments) -> str:
    return f"sum_over_time({of.series(series)}[{window}:{STEP}])"


def compat_recordings(windows: Mapping[str, int], of: Deployments) -> list[Rule]:
    """Rules with the names of the WFGY page (ProblemMap/ops/live_monitoring_rag.md), for dashboards made for these."""
    window = equals("window", min(windows, key=lambda name: abs(windows[name] - _RECORDED_WINDOW)))
    precision = of.series(f"{families.PREFIX}answer_precision", window)
    samples = of.series(f"{families.PREFIX}answer_precision{families.SAMPLES}", window)
    by_gold = f"sum by ({of.labels('pipeline', 'source', 'gold')})"
    by_pipeline = f"sum by ({of.labels('pipeline')})"
    refusals = of.series(f"{families.PREFIX}under_refusal_rate{families.SCORE}")
    empty = of.series(f"{families.DOCUMENTS}_bucket", 'le="0.0"')
    return [
        Rule("rag_precision_shipped", f"{by_gold} ({precision} * {samples}) / ({by_gold} ({samples}) > 0)"),
        Rule("rag_under_refusal_count_total", f"{by_gold} ({refusals})"),
        Rule("retriever_empty_result_count_total", f"{by_pipeline} ({empty})"),
        Rule("rag_error_count_total", f"{by_pipeline} ({of.series(families.ERRORS)})"),
        Rule("rag_request_count_total", f"{by_pipeline} ({of.series(families.REQUESTS)})"),
    ]


_DRIFT: Final = ".+:drift"
_ON_INDEXES: Final = f'metric="{constants.INDEX_HASH}"'
_ALARM_NAME: Final = "{{ $labels.pipeline }}/{{ $labels.alarm }}"
_Z9999: Final = 3.89
"""The normal quantile of a 99.99 % interval: a slow burn is looked at every minute, for ever."""
_USUAL_LIMIT: Final = 0.05
"""The share of errors, and of empty retrievals, above which a ticket is due where no gate sets a limit."""
_FIELDS: Final = (QUESTION, ANSWER, IDS, CONTEXTS, CITATIONS, coverage.LATENCY)
"""Fields that the application, or a setting, can bring into every record."""


def gate_alerts(scopes: Sequence[RuleScope], writer: Writer) -> list[Rule]:
    """All alerts on gates and traffic; those on shares only where a gate is on one."""
    of = writer.of
    by, on = f"by ({of.labels('pipeline', 'gate')})", f"on ({of.labels('pipeline', 'gate')})"
    # An alert while a gate's exported interval lies beyond the gate's threshold at a replica.
    floor, ceiling = (of.series(THRESHOLD, f'direction="{direction}"') for direction in ("at_least", "at_most"))
    upper, lower = of.series(families.GATE_UPPER), of.series(families.GATE_LOWER)
    samples, needed = f"sum {by} ({of.series(families.GATE_SAMPLES)})", f"{on} {of.series(MIN_SAMPLES_RECORD)}"
    breach = writer.alert(
        "RagmonGateBreach",
        f"(min {by} ({upper}) < {on} {floor} or max {by} ({lower}) > {on} {ceiling})\nand {on} {samples} >= {needed}",
        INFO,
        f"{GATE_NAME} does not hold: its 95 % bound is {{{{ $value | humanizePercentage }}}}, {writer.threshold}",
        f"{writer.value}. One window in forty shows that by chance: who pages is the alarm. {writer.builds}",
        pending="5m",
    )
    # Gates that do not apply have none of the statuses.
    undecided = of.series(families.GATE_STATUS, 'status="insufficient"')
    insufficient = writer.alert(
        "RagmonGateInsufficient",
        f"{samples} < {needed}\nand {on} max {by} ({undecided}) == 1",
        INFO,
        f"{GATE_NAME} cannot be judged: {{{{ $value }}}} requests in its window",
        "A gate without enough requests neither passes nor fails. More probes, a higher sampling rate, or a longer "
        "window give it more; `ragmon doctor` says how many it takes.",
        pending="2h",
    )
    alerts = [*_alarms(writer), breach, insufficient]
    if any(scope.share_gates for scope in scopes):
        lost, scored = of.series(METRIC_UNASSESSED), of.series(METRIC_SCORED)
        total = f"({lost} + ({scored} or 0 * {lost}))"
        unassessed = writer.alert(
            "RagmonTooManyUnassessed",
            f"{lost} / {total} > 0.05 and {total} >= {MIN_SAMPLES}",
            TICKET,
            "{{ $labels.metric }}: {{ $value | humanizePercentage }} of its requests could not be assessed",
            "What is left may be no fair sample of all. The reasons: "
            f"`sum by (metric, reason) (increase({families.UNASSESSED}[1h]))`.",
            pending="15m",
        )
        alerts += [_slow_burn(writer), unassessed, _capture_gap(scopes, writer)]
    return alerts + [rule for scope in scopes for rule in _traffic(scope, writer)]


def _alarms(writer: Writer) -> list[Rule]:
    """Alerts on ragmon's alarms. An alarm is already statistically proven, so no rule waits before it fires."""
    of = writer.of

    def alarm(name: str, series: str, severity: str, summary: str, description: str) -> Rule:
        # It fires while the alarm does in at least one replica. The label `alarm` has the alarm's full name, and `gate`
        # only the gate's, so that alerts on one gate are grouped. One or two scrapes may be missed.
        named = f'label_replace({series}, "alarm", "$1", "gate", "(.*)")'
        grouped = f'label_replace({named}, "gate", "$1", "gate", "([^:]+):.*")'
        expr = f"max by ({of.labels('pipeline', 'gate', 'alarm', 'severity')}) ({grouped}) == 1"
        return writer.alert(name, expr, severity, summary, description, keep="2m")

    index = f"on ({of.labels('pipeline', 'gate')}) {of.series(families.GATE_INFO, _ON_INDEXES)}"
    urgent = of.series(families.GATE_ALARM, f'severity=~"page|ticket",gate!~"{_DRIFT}"')
    looks = of.series(families.GATE_ALARM, f'severity="{constants.LOOK}"')
    drifts = of.series(families.GATE_ALARM, f'gate=~"{_DRIFT}",gate!="{INDEX_ALERT}"')
    indexes = of.series(families.GATE_ALARM, f'gate="{INDEX_ALERT}"')
    indexes = f"{indexes} or ({of.series(families.GATE_ALARM)} and {index})"
    past = writer.share(families.GATE_BASELINE, alarm=True, otherwise="none")
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
        alarm("RagmonGateAlarm", f"{urgent} unless {index}", "", fires, f"{about} {commands}"),
        alarm("RagmonLook", looks, INFO, f"{_ALARM_NAME}: a little off its own past", about),
        alarm("RagmonDrift", drifts, TICKET, differs, f"A difference, not a fault. {writer.builds}"),
        alarm("RagmonIndexDrift", indexes, "", several, part),
    ]


def _slow_burn(writer: Writer) -> Rule:
    """A ticket on a gate that fails over days, by chance hardly ever, and still does.

    The windows are those of the SRE workbook's ticket ("Alerting on SLOs"): the long one proves that the gate fails,
    the short one ends the ticket when the failures end.
    """
    of, (short, long) = writer.of, WINDOWS
    on = f"on ({of.labels('pipeline', 'gate')})"
    lasting, recent = (of.series(RATIO.format(window)) for window in (long, short))
    scored = _over(SCORED_RECORD, long, of)
    sides = []
    for direction, beyond, sign in (("at_least", "<", "-"), ("at_most", ">", "+")):
        level = of.series(THRESHOLD, f'direction="{direction}"')
        chance = f"{_Z9999} * sqrt({level} * (1 - {level}) / {on} {scored})"
        sides.append(f"{lasting} {beyond} {on} ({level} {sign} {on} {chance}) and {on} {recent} {beyond} {on} {level}")
    applies = f"max by ({of.labels('pipeline', 'gate')}) ({of.series(families.GATE_STATUS)}) == 1"
    enough = f"{scored} >= {on} {of.series(MIN_SAMPLES_RECORD)}"
    return writer.alert(
        "RagmonGateSlowBurn",
        f"({sides[0]}\nor {sides[1]})\nand {on} {enough} and {on} {applies}",
        TICKET,
        f"{GATE_NAME}: {{{{ $value | humanizePercentage }}}} over the last {long}, {writer.threshold}",
        f"Of the requests of {long} that Prometheus has, over all replicas; those of the last {short} miss it as well: "
        f"{writer.share(RATIO.format(short))}. {writer.value}. {writer.builds}",
        pending="10m",
        keep="10m",
    )


def _capture_gap(scopes: Sequence[RuleScope], writer: Writer) -> Rule:
    """One ticket for each pipeline whose gates cannot be judged for want of what its records lack, with the remedy.

    What is not captured pages nobody: it is unknown, not wrong. A gate on citations in a pipeline that never cites does
    not apply, has none of the statuses, and so is in no ticket.
    """
    of, by = writer.of, f"by ({writer.of.labels('pipeline', 'gate')})"
    unknown, known = (f"sum {by} ({of.series(name)})" for name in (families.GATE_UNKNOWN, families.GATE_SAMPLES))
    undecided = of.series(families.GATE_STATUS, 'status="insufficient"')
    lacking = (
        f"max by ({of.labels('pipeline')}) (\n  {unknown} / ({unknown} + {known}) > {FEW:g}\n"
        f"  and {unknown} + {known} >= {MIN_SAMPLES} and max {by} ({undecided}) == 1\n)"
    )
    clauses = [lacking, *(clause for scope in scopes if (clause := _unasked(scope, of)))]
    # The fields that records lack and gates need, each with what brings it into the records. A pipeline that never
    # cites lacks nothing: it has no citation to capture.
    needed = {field for scope in scopes for gate in scope.share_gates for field in needs(parse(gate.metric))}
    fields = [field for field in _FIELDS if field in needed]
    ratio = f"{families.CAPTURED_RATIO}{{PIPELINE,{one_of('field', fields)}}}"
    never = f'{families.CAPTURED_RATIO}{{field="{CITATIONS}"}} == 0'
    remedies = "".join(
        f"{{{{ if eq .Labels.field `{field}` }}}}{remedy(Gap(field, 0, 0))}{{{{ end }}}}" for field in fields
    )
    lacks = writer.of_pipeline(
        f"min by (field) ({ratio} unless {never}) < {1 - FEW:g}",
        f"{{{{ .Value | humanizePercentage }}}} have {{{{ .Labels.field }}}} ({remedies})",
        "those of this hour have every field",
    )
    return writer.alert(
        "RagmonCaptureGap",
        "\nor ".join(clauses),
        TICKET,
        "{{ $labels.pipeline }}: gates cannot be judged, {{ $value | humanizePercentage }} of requests lack something",
        f"Of its records {lacks}. `ragmon doctor` and the table Captured on the status page name the "
        "setting for records of other origins. What is not captured counts as neither right nor wrong.",
        pending="30m",
        keep="10m",
    )


def _unasked(scope: RuleScope, of: Deployments) -> str:
    """Without a question no request of a user matches gold: gates on gold then have no requests, not unknown ones."""
    on_gold = (gate for gate in scope.share_gates if parse(gate.metric).needs_gold)
    matched = [gate.name for gate in on_gold if gate.source == constants.MATCH]
    if not matched:
        return ""
    by, on = f"by ({of.labels('pipeline')})", f"on ({of.labels('pipeline')})"
    live = f'source="{constants.LIVE}"'
    question = of.series(families.CAPTURED_RATIO, f'field="{QUESTION}"', live, *scope.matchers)
    blocked = of.series(families.GATE_STATUS, 'status="insufficient"', one_of("gate", matched))
    totals = (families.REQUESTS, f"{families.LATENCY}_count")
    asked = " or ".join(f"sum {by} ({of.series(name, live)}) >= {FIRST}" for name in totals)
    gold = f"on ({of.labels()}) group by ({of.labels()}) ({of.series(families.GOLD_INFO)})"
    unasked = f"max {by} (1 - {question} > {HALF:g})"
    return f"{unasked}\nand {on} (max {by} ({blocked}) == 1)\nand {on} ({asked}) and {gold}"


def _traffic(scope: RuleScope, writer: Writer) -> list[Rule]:
    of = writer.of

    def total(name: str, *matchers: str) -> str:
        return of.total(of.series(name, *scope.matchers, *matchers), "15m", "pipeline")

    def alert(name: str, metric: str, part: str, whole: str, problem: str) -> Rule:
        limits = [gate.threshold for gate in scope.gates if gate.metric == metric and not (gate.where or gate.at_least)]
        limit = limits[0] if limits else _USUAL_LIMIT
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

    live, documents = f'source="{constants.LIVE}"', families.DOCUMENTS
    # Spans of other instrumentations come without call totals.
    calls = f"({total(families.REQUESTS)} or {total(f'{families.LATENCY}_count', live)})"
    return [
        alert("RagmonErrors", "error_rate", total(families.ERRORS), calls, "the calls fail"),
        alert(
            "RagmonEmptyRetrieval",
            "empty_retrieval_rate",
            total(f"{documents}_bucket", live, 'le="0.0"'),
            total(f"{documents}_count", live),
            "the retrievals find nothing",
        ),
    ]


LOST: Final = 0.01
"""Share of lost records above which a ticket is due."""


def monitor_alerts(scopes: Sequence[RuleScope], writer: Writer) -> list[Rule]:
    """Alerts on every fault that would silence the other alerts or make them wrong."""
    of = writer.of
    if any(scope.unnamed for scope in scopes):
        selected = one_of("pipeline", [constants.OTHER], others=True)
    else:
        selected = one_of("pipeline", [name for scope in scopes for name in scope.names])
    up, by, by_pipeline = of.series("up", JOB), of.labels(), of.labels("pipeline")
    # No traffic makes no metric zero, so it needs an alert of its own. ragmon serves the gates of a configured pipeline
    # from its start, and those of any other from its first record until the pipeline is evicted. The range is short and
    # the wait an hour: a Prometheus that was started a moment ago has not seen an hour without a request.
    calls = of.total(of.series(f"{families.LATENCY}_count", f'source="{constants.LIVE}"', selected), "15m", "pipeline")
    expected = f"0 * group by ({by_pipeline}) ({of.series(families.GATE_THRESHOLD, selected)})"
    # A recorded threshold is there for every pipeline that has gates at all: it misses a gate that is served no longer.
    labels = of.labels("pipeline", "gate")
    served = f"max by ({labels}) ({of.series(families.GATE_THRESHOLD, selected)})"
    recorded, on = of.series(THRESHOLD, selected), f"on ({labels})"
    return [
        writer.alert(
            "RagmonDown",
            f"max by ({by}) ({up}) == 0 or group by ({by}) (absent({up}))",
            PAGE,
            "Prometheus has not reached ragmon for five minutes",
            "No gate is judged and no alarm can fire until then. Producers keep what they can and count the rest.",
            pending="5m",
        ),
        writer.alert(
            "RagmonReplicaDown",
            f"{up} == 0 and on ({by}) {up} == 1",
            TICKET,
            "Prometheus has not reached ragmon at {{ $labels.instance }} for ten minutes",
            "The others go on; what this one was told is missing from every number until it is back.",
            pending="10m",
        ),
        writer.alert(
            "RagmonNoData",
            f"({calls} or {expected}) == 0",
            TICKET,
            "{{ $labels.pipeline }}: no request of a user for an hour",
            "Nobody asks, or nobody tells ragmon: see what its producers say, and `ragmon doctor`.",
            pending="1h",
        ),
        *_records(writer),
        *_state(writer),
        writer.alert(
            "RagmonRulesStale",
            f"{served} != {on} {recorded}\nor {served} unless {on} {recorded}\nor {recorded} unless {on} {served}",
            TICKET,
            f"{GATE_NAME}: the rules and ragmon were configured differently",
            "Run `ragmon generate rules` with the ragmon.toml the server has, and load the result.",
            pending="15m",
        ),
        writer.alert(
            "RagmonWatchdog",
            "vector(1)",
            "none",
            "Alerts of ragmon get through",
            "It fires always. Send it to something that calls when it is missing: then Prometheus or Alertmanager is "
            "dead.",
        ),
    ]


def _records(writer: Writer) -> list[Rule]:
    of, by = writer.of, writer.of.labels("stage", "instance")
    recent = f"time() - {of.series(families.LAST_SCORED)} < 900"
    received = of.series(families.RECEIVED)
    dropped = of.total(of.series(families.DROPPED), "15m", "stage")
    lost = of.total(of.series(families.PRODUCER_DROPPED), "15m")
    all_sent = f"({lost} + {of.total(received, '15m')})"
    return [
        writer.alert(
            "RagmonScoringStale",
            f"max by ({by}) ({of.series(families.PENDING)}) > 0 unless on ({of.labels('instance')}) {recent}",
            TICKET,
            "{{ $value }} records wait at {{ $labels.instance }}, and none was scored for 15 minutes",
            "What gates and alarms say is old. See the server's log, and `ragmon verify`.",
            pending="15m",
        ),
        writer.alert(
            "RagmonAccountingMismatch",
            f"{of.series(families.RESIDUAL)} != 0",
            TICKET,
            "{{ $value }} records of stage {{ $labels.stage }} are unaccounted for at {{ $labels.instance }}",
            "That is a bug in ragmon: received is not scored + ignored + dropped + duplicate + pending.",
            pending="15m",
        ),
        writer.alert(
            "RagmonRecordsDropped",
            f"{dropped} / {of.total(received, '15m', 'stage')} > {LOST:g}\n"
            f'or label_replace({lost} / {all_sent} > {LOST:g}, "stage", "producer", "", "")',
            TICKET,
            "{{ $value | humanizePercentage }} of the records of stage {{ $labels.stage }} are lost",
            "What is left may be no fair sample. The reasons: "
            f"`sum by (stage, reason) (increase({families.DROPPED}[15m]))`, and for stage producer "
            f"`sum by (reason) (increase({families.PRODUCER_DROPPED}[15m]))`.",
            pending="5m",
        ),
    ]


def _state(writer: Writer) -> list[Rule]:
    of = writer.of
    overflow = of.total(of.series(families.NAMES_OVERFLOW), "1h", "instance", "kind")
    return [
        writer.alert(
            "RagmonJournalNotWritable",
            f"{of.series(families.JOURNAL_WRITABLE)} == 0",
            PAGE,
            "ragmon at {{ $labels.instance }} cannot write its journal",
            "It takes no records, and producers begin to lose them. Is the disk full, or read-only? /readyz says why.",
            pending="2m",
        ),
        writer.alert(
            "RagmonConfigReloadFailed",
            f"{of.series(families.RELOADED)} == 0",
            TICKET,
            "ragmon at {{ $labels.instance }} runs on an older configuration than the one on disk",
            "`ragmon config check` names what is wrong with it. What ran before goes on.",
            pending="5m",
        ),
        writer.alert(
            "RagmonNamesOverflow",
            f"{overflow} > 0",
            TICKET,
            "{{ $labels.instance }}: {{ $value | humanize }} names of kind {{ $labels.kind }} had no place in an hour",
            "What came under it is counted together with others, as `__other__`. Does something put ids into names, or "
            "is `[serve] max_series` too small for the pipelines there are?",
            pending="15m",
        ),
    ]


def stream_alerts(writer: Writer) -> list[Rule]:
    """Alerts on a log that several processes count."""
    of = writer.of
    behind = of.series(families.PARTITION_BEHIND)
    lost = of.total(of.series(families.STREAM_LOST), "1h", "instance")
    chunks = of.series(families.CHUNKS, 'result=~"overlapping|unknown|damaged|returned"')
    return [
        writer.alert(
            "RagmonPartitionBehind",
            f"max by ({of.labels('partition')}) ({behind}) > 60",
            PAGE,
            "{{ $labels.partition }} has said nothing for {{ $value | humanizeDuration }}",
            "Alarms wait for it: until it speaks again, or `[stream] patience` is over, none of any pipeline can fire. "
            "Is there a worker for every partition?",
            pending="1m",
        ),
        writer.alert(
            "RagmonStreamIncomplete",
            f"{lost} > 0 or {of.total(chunks, '1h', 'instance')} > 0",
            TICKET,
            "{{ $value | humanize }} messages were never counted, or chunks were refused, in an hour",
            "A log was deleted before it was counted, or two versions of ragmon divide it in different ways: "
            f"`{families.STREAM_LOST}` and `{families.CHUNKS}` by result say which.",
            pending="5m",
        ),
        writer.alert(
            "RagmonStreamConfigsDiffer",
            f"{of.series(families.STREAM_CONFIGS)} > 1",
            TICKET,
            "Partitions are counted by {{ $value }} configurations at once",
            "While a change is rolled out that is so. When it lasts, a worker or a server has another ragmon.toml, "
            "other gold, or another version of ragmon.",
            pending="1h",
        ),
    ]


def rule_groups(settings: Settings, *, configured_only: bool = False, selector: str = "") -> list[RuleGroup]:
    """All rules of a configuration; recording rules come before the alerts that use them.

    Args:
        settings: The configuration.
        configured_only: Without rules for pipelines that the configuration does not name.
        selector: Matchers of the deployments that the rules are for, as PromQL: `env="prod"`; empty for all.

    Raises:
        RagmonError: The selector is no list of matchers.
    """
    deployments, scopes = Deployments.of(settings.rules.by, selector), rule_scopes(settings, configured_only)
    writer = Writer(settings.unconfigured.links, deployments)
    return [
        RuleGroup("ragmon.recorded", list(recording_rules(scopes, deployments, settings.windows))),
        RuleGroup("ragmon.gates", gate_alerts(scopes, writer)),
        RuleGroup("ragmon.monitor", monitor_alerts(scopes, writer)),
        *([RuleGroup("ragmon.stream", stream_alerts(writer))] if settings.stream.model_fields_set else []),
    ]


__all__ = ["Rule", "RuleGroup", "render", "rule_groups"]
