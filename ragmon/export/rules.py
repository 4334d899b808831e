"""What rules are for: deployments told apart by their labels, and pipelines with the same gates.

The gates of the top level of ragmon.toml are those of every pipeline without gates of its own, also of pipelines that
no configuration names and that come with their first record. A list of names could not hold those, so their rules
select all pipelines but the ones that have rules of their own.

Rules, rule groups, and the rule file as YAML for Prometheus and for the Prometheus operator.

The texts of alerts: templates that Prometheus fills in, and the links to the runbook and to the dashboards.

An annotation shows the value with its interval, which builds answer, and where to look.

Recording rules: thresholds of ragmon.toml, sums of scores over replicas, and the names of others.

Shares are sums of scores by requests scored. An interval is the monitor's: it knows strata and clusters, and exports
its bounds. The rules of `compat_recordings` have the names of the WFGY page on live monitoring
(ProblemMap/ops/live_monitoring_rag.md).

Alerts on gates and on what users get.

Alarms of ragmon keep a budget of false pages, so the rules on them only pass them on. Everything else opens a ticket or
informs.

Alerts on ragmon itself: whether it is up, receives records, loses records and runs the current configuration.

Prometheus rules from ragmon.toml: recording rules and alerts.
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
from ragmon.export.families import (
    BUILD_SEEN,
    CHUNKS,
    DOCUMENTS,
    DROPPED,
    ERRORS,
    GATE_INFO,
    GATE_LOWER,
    GATE_SAMPLES,
    GATE_THRESHOLD,
    GATE_UPPER,
    GATE_VALUE,
    GOLD_INFO,
    JOURNAL_WRITABLE,
    LAST_SCORED,
    LATENCY,
    NAMES_OVERFLOW,
    PARTITION_BEHIND,
    PENDING,
    PREFIX,
    PRODUCER_DROPPED,
    RECEIVED,
    RELOADED,
    REQUESTS,
    RESIDUAL,
    SAMPLES,
    SCORE,
    SCORED,
    SLICE_SCORE,
    SLICE_SCORED,
    STREAM_CONFIGS,
    STREAM_LOST,
    UNASSESSED,
    equals,
    exact,
    label,
    one_of,
    selector,
)
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
        matchers: What every series must match, as PromQL; empty for all deployments.
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
    shared = tuple(name for name, own in settings.pipelines.items() if _gates(own, settings) == common)
    others = tuple(name for name in settings.pipelines if name not in shared)
    matchers = (one_of("pipeline", others, others=True),) if others else ()
    if configured_only:
        matchers = (one_of("pipeline", shared),)
    top = RuleScope(settings.unconfigured, common, shared, matchers, unnamed=not configured_only, shared=True)
    scopes = [top] if shared or not configured_only else []
    return scopes + [_own_scope(settings.pipelines[name], settings) for name in others]


def _own_scope(pipeline: PipelineSettings, settings: Settings) -> RuleScope:
    gates = tuple(replace(gate, pipeline=pipeline.name) for gate in _gates(pipeline, settings))
    matchers = (equals("pipeline", pipeline.name),)
    return RuleScope(pipeline, gates, (pipeline.name,), matchers, unnamed=False, shared=False)


def _gates(pipeline: PipelineSettings, settings: Settings) -> tuple[Gate, ...]:
    """The gates of a pipeline without its name; pipelines where they are equal share their rules."""
    alone = replace(settings, pipelines={pipeline.name: pipeline})
    return tuple(replace(gate, pipeline="") for gate in alone.policy(pipeline.name, live=True).gates)


def pipelines(scopes: Sequence[RuleScope], excluded: str) -> str:
    """A matcher for all pipelines that rules are for.

    Args:
        scopes: The scopes.
        excluded: A name that stands for no pipeline.
    """
    if any(scope.unnamed for scope in scopes):
        return one_of("pipeline", [excluded], others=True)
    return one_of("pipeline", [name for scope in scopes for name in scope.names])


Form = Literal["prometheus", "kubernetes"]
HEADER: Final = (
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
        alert: Whether the rule is an alert.
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
    """The text of a rule file.

    Args:
        groups: The rule groups.
        rule_format: A file for `rule_files`, or a PrometheusRule of the Prometheus operator.
    """
    spec = {"groups": [group.plain() for group in groups]}
    if rule_format == "prometheus":
        return HEADER.format(what="rules") + dump(spec)
    labels = {"app.kubernetes.io/name": "ragmon"}
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "ragmon", "labels": labels},
        "spec": spec,
    }
    return HEADER.format(what="rules --format kubernetes") + dump(resource)


class _Labels(dict[str, str]):
    """Labels of a rule, which are written in one line."""


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as blocks, and repeated values in full instead of as aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _labels(dumper: yaml.SafeDumper, labels: _Labels) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", labels, flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(_Labels, _labels)


def dump(data: Any) -> str:
    """Plain data as YAML; keys keep their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


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
        """An alert.

        Args:
            name: Its name.
            expr: When it fires.
            severity: How urgent it is; "" where its expression has a label for it.
            summary: One line.
            description: What it means and what to do first.
            pending: How long the expression must hold before.
            keep: How long it fires after the expression held last.
            labels: Further labels.
        """
        annotations = {"summary": summary, "description": description}
        annotations["runbook_url"] = self._runbook().replace("{alert}", name.lower())
        if self.links.dashboard is not None:
            variables = "?var-pipeline={{ $labels.pipeline | urlquery }}" if "$labels.pipeline" in summary else ""
            annotations["dashboard_url"] = f"{str(self.links.dashboard).rstrip('/')}/d/{DASHBOARD}{variables}"
        own = {**(labels or {}), **({"severity": severity} if severity else {})}
        return Rule(name, expr, own, annotations, pending=pending, keep_firing_for=keep, alert=True)

    def _runbook(self) -> str:
        """The address of the runbook, with `{alert}` for the alert's name in lower case."""
        if self.links.runbook is not None:
            return str(self.links.runbook)
        return _AT_INSTANCE if self.links.status is None else address(str(self.links.status), "{alert}")

    def found(self, query: str, shown: str, otherwise: str, *, alarm: bool = False) -> str:
        """A template for the value of a query about the alert's gate, which Prometheus runs when it writes the alert.

        Args:
            query: The query, with `SERIES{GATE}` for each series.
            shown: The template around `.`, the result.
            otherwise: The text where the query has no result.
            alarm: Whether it is about the alarm's full name, not the gate's.
        """
        labels = self.of.labels("pipeline", "gate")
        told = labels.replace("gate", "alarm", 1) if alarm else labels
        return _asked(query.replace("{GATE}", f"{{{_matchers(labels)}}}"), told, shown, otherwise)

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
        lower, upper = self.share(GATE_LOWER), self.share(GATE_UPPER)
        samples = self.found(f"sum({GATE_SAMPLES}{{GATE}})", _NUMBER, "0")
        shown = f"In its whole window {_PERCENT} (95 % interval {lower} to {upper}, n = {samples})"
        return self.found(f"max({GATE_VALUE}{{GATE}})", shown, "No gate of this name has a value")

    @property
    def threshold(self) -> str:
        """The gate's threshold."""
        return f"threshold {self.share(GATE_THRESHOLD, otherwise='of no gate')}"

    @property
    def lately(self) -> str:
        """The gate's metric in the last minutes, which an alarm is about: its window may hold more good requests."""
        shown = f"{_PERCENT} in {STEP} (n = {self.found(f'{SCORED_RECORD}{{GATE}}', _NUMBER, '0')})"
        return self.found(f"{SCORE_RECORD}{{GATE}} / ({SCORED_RECORD}{{GATE}} > 0)", shown, f"nothing scored in {STEP}")

    @property
    def builds(self) -> str:
        """The builds and indexes that answer, and which of them are new: the first question of an engineer on call."""
        seen = f"count by (build, index_hash) ({BUILD_SEEN}{{PIPELINE}}"
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
"""The window of recorded sums; those of longer windows are made of them."""
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
capture it. That is a ticket of its own where a gate suffers from it."""
USUAL: Final = 3600
"""Seconds; sliding values are recorded from the window nearest to it."""


def rules(scopes: Sequence[RuleScope], of: Deployments, windows: Mapping[str, int]) -> list[Rule]:
    """All recording rules.

    Args:
        scopes: The pipelines.
        of: The deployments.
        windows: The lengths of the monitor's windows in seconds, by name.
    """
    return [*_of_gates(scopes, of), *_ratios(of), *_of_metrics(scopes, of), *compat_recordings(windows, of)]


def _of_gates(scopes: Sequence[RuleScope], of: Deployments) -> Iterator[Rule]:
    for scope in scopes:
        served = of.series(GATE_THRESHOLD, *scope.matchers)
        pipelines = f"0 * group by ({of.labels('pipeline')}) ({served})"
        for gate in scope.gates:
            name = {**scope.labels, "gate": label(gate.name)}
            yield Rule(THRESHOLD, f"{pipelines} + {exact(gate.threshold)}", name | {"direction": gate.direction})
            if gate.kind != "distinct":  # its samples are builds
                yield Rule(MIN_SAMPLES_RECORD, f"{pipelines} + {gate.min_samples}", name)
            if gate.kind == "threshold":
                yield Rule(SCORE_RECORD, _judged(gate, scope, of, SCORE, SLICE_SCORE), name)
                yield Rule(SCORED_RECORD, _judged(gate, scope, of, SCORED, SLICE_SCORED), name)


def _judged(gate: Gate, scope: RuleScope, of: Deployments, ending: str, sliced: str) -> str:
    """The increase of a counter of the gate's metric, over all replicas, in what the gate is judged on.

    That is one gold set, the one the monitor says if the gate names none, in its version in force: a sum over sets
    would be a number about nothing.
    """
    metric, (name, _, k) = parse(gate.metric), gate.metric.partition("@")
    series, cut = f"{PREFIX}{name}{ending}", [equals("k", k)] if k else []
    if gate.where:
        series, cut = sliced, [equals("metric", gate.metric), equals("slice", gate.where)]
    gold = [] if metric.labelled else ['gold!=""' if metric.needs_gold else 'gold=""']
    if gate.gold is not None:
        gold = [equals("gold", gate.gold)]
    counter = of.series(series, *scope.matchers, *cut, equals("source", gate.source or constants.LIVE), *gold)
    if gate.source == constants.LABEL or not (metric.needs_gold or gate.gold):
        return of.total(counter, STEP, "pipeline")
    present = f'label_replace({of.series(GOLD_INFO)}, "gold_version", "$1", "version", "(.*)")'
    chosen = f"increase({counter}[{STEP}]) and on ({of.labels('gold', 'gold_version')}) {present}"
    if gate.gold is None:
        told = of.series(GATE_INFO, equals("gate", gate.name))
        chosen += f" and on ({of.labels('pipeline', 'gold')}) {told}"
    return f"sum by ({of.labels('pipeline')}) ({chosen})"


def over(series: str, window: str, of: Deployments) -> str:
    """A recorded sum over a longer window."""
    return f"sum_over_time({of.series(series)}[{window}:{STEP}])"


def _ratios(of: Deployments) -> list[Rule]:
    """Each gate's mean score over all replicas; no data, not zero, where nothing was scored."""
    return [
        Rule(RATIO.format(window), f"{over(SCORE_RECORD, window, of)} / ({over(SCORED_RECORD, window, of)} > 0)")
        for window in WINDOWS
    ]


def _of_metrics(scopes: Sequence[RuleScope], of: Deployments) -> Iterator[Rule]:
    """Per gated metric, the requests it scored and those it could not assess."""
    keys = sorted({gate.metric for scope in scopes for gate in scope.share_gates})
    for key in keys:
        name, _, k = key.partition("@")
        counter = of.series(f"{PREFIX}{name}{SCORED}", *([equals("k", k)] if k else []))
        yield Rule(METRIC_SCORED, of.total(counter, "1h"), {"metric": key})
    if keys:
        counter = of.series(UNASSESSED, one_of("metric", keys), one_of("reason", EXPECTED, others=True))
        yield Rule(METRIC_UNASSESSED, of.total(counter, "1h", "metric"))


def compat_recordings(windows: Mapping[str, int], of: Deployments) -> list[Rule]:
    """Rules with the names of the WFGY page, so that dashboards made for these names keep working.

    Args:
        windows: The lengths of the windows in seconds, by name.
        of: The deployments.
    """
    window = equals("window", min(windows, key=lambda name: abs(windows[name] - USUAL)))
    precision = of.series(f"{PREFIX}answer_precision", window)
    samples = of.series(f"{PREFIX}answer_precision{SAMPLES}", window)
    by_gold = f"sum by ({of.labels('pipeline', 'source', 'gold')})"
    by_pipeline = f"sum by ({of.labels('pipeline')})"
    refusals = of.series(f"{PREFIX}under_refusal_rate{SCORE}")
    empty = of.series(f"{DOCUMENTS}_bucket", 'le="0.0"')
    return [
        Rule("rag_precision_shipped", f"{by_gold} ({precision} * {samples}) / ({by_gold} ({samples}) > 0)"),
        Rule("rag_under_refusal_count_total", f"{by_gold} ({refusals})"),
        Rule("retriever_empty_result_count_total", f"{by_pipeline} ({empty})"),
        Rule("rag_error_count_total", f"{by_pipeline} ({of.series(ERRORS)})"),
        Rule("rag_request_count_total", f"{by_pipeline} ({of.series(REQUESTS)})"),
    ]


_DRIFT: Final = ".+:drift"
_ON_INDEXES: Final = f'metric="{constants.INDEX_HASH}"'
_ALARM_NAME: Final = "{{ $labels.pipeline }}/{{ $labels.alarm }}"
_Z9999: Final = 3.89
"""The normal quantile of a 99.99 % interval: a slow burn is looked at every minute, for ever."""
_USUAL: Final = 0.05
"""The share of errors, and of empty retrievals, above which a ticket is due where no gate sets a limit."""
_FIELDS: Final = (QUESTION, ANSWER, IDS, CONTEXTS, CITATIONS, coverage.LATENCY)
"""Fields that the application, or a setting, can bring into every record."""


def gate_alerts(scopes: Sequence[RuleScope], of: Deployments, writer: Writer) -> list[Rule]:
    """All alerts on gates and traffic; those on shares only where a gate is on one."""
    gates = [gate for scope in scopes for gate in scope.share_gates]
    # An alert while a gate's exported interval lies beyond the gate's threshold at a replica.
    by, on = f"by ({of.labels('pipeline', 'gate')})", f"on ({of.labels('pipeline', 'gate')})"
    floor, ceiling = (of.series(THRESHOLD, f'direction="{way}"') for way in ("at_least", "at_most"))
    upper, lower = of.series(families.GATE_UPPER), of.series(families.GATE_LOWER)
    enough = f"sum {by} ({of.series(families.GATE_SAMPLES)}) >= {on} {of.series(MIN_SAMPLES_RECORD)}"
    judged = [
        writer.alert(
            "RagmonGateBreach",
            f"(min {by} ({upper}) < {on} {floor} or max {by} ({lower}) > {on} {ceiling})\nand {on} {enough}",
            INFO,
            f"{GATE_NAME} does not hold: its 95 % bound is {{{{ $value | humanizePercentage }}}}, {writer.threshold}",
            f"{writer.value}. One window in forty shows that by chance: who pages is the alarm. {writer.builds}",
            pending="5m",
        ),
        _insufficient(of, writer),
    ]
    return [
        *_alarms(of, writer),
        *judged,
        *([_slow_burn(of, writer), _unassessed(of, writer), _capture_gap(scopes, gates, of, writer)] if gates else []),
        *(rule for scope in scopes for rule in _traffic(scope, of, writer)),
    ]


def _alarms(of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on ragmon's alarms. An alarm is already statistically proven, so no rule waits before it fires."""
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


def _insufficient(of: Deployments, writer: Writer) -> Rule:
    """Alert on gates with too few requests, but not on those that do not apply: these have none of the statuses."""
    by, on = f"by ({of.labels('pipeline', 'gate')})", f"on ({of.labels('pipeline', 'gate')})"
    undecided = of.series(families.GATE_STATUS, 'status="insufficient"')
    samples = of.series(families.GATE_SAMPLES)
    return writer.alert(
        "RagmonGateInsufficient",
        f"sum {by} ({samples}) < {on} {of.series(MIN_SAMPLES_RECORD)}\nand {on} max {by} ({undecided}) == 1",
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
    on, (short, long) = f"on ({of.labels('pipeline', 'gate')})", WINDOWS
    lasting, recent = (of.series(RATIO.format(window)) for window in (long, short))
    scored = over(SCORED_RECORD, long, of)
    sides = []
    for way, beyond, sign in (("at_least", "<", "-"), ("at_most", ">", "+")):
        level = of.series(THRESHOLD, f'direction="{way}"')
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


def _unassessed(of: Deployments, writer: Writer) -> Rule:
    lost, scored = of.series(METRIC_UNASSESSED), of.series(METRIC_SCORED)
    total = f"({lost} + ({scored} or 0 * {lost}))"
    return writer.alert(
        "RagmonTooManyUnassessed",
        f"{lost} / {total} > 0.05 and {total} >= {MIN_SAMPLES}",
        TICKET,
        "{{ $labels.metric }}: {{ $value | humanizePercentage }} of its requests could not be assessed",
        "What is left may be no fair sample of all. The reasons: "
        f"`sum by (metric, reason) (increase({families.UNASSESSED}[1h]))`.",
        pending="15m",
    )


def _capture_gap(scopes: Sequence[RuleScope], gates: Sequence[Gate], of: Deployments, writer: Writer) -> Rule:
    """One ticket for each pipeline whose gates cannot be judged for want of what its records lack, with the remedy.

    What is not captured pages nobody: it is unknown, not wrong. A gate on citations in a pipeline that never cites does
    not apply, has none of the statuses, and so is in no ticket.
    """
    by = f"by ({of.labels('pipeline', 'gate')})"
    unknown, known = (f"sum {by} ({of.series(name)})" for name in (families.GATE_UNKNOWN, families.GATE_SAMPLES))
    undecided = of.series(families.GATE_STATUS, 'status="insufficient"')
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
    question = of.series(families.CAPTURED_RATIO, f'field="{QUESTION}"', live, *scope.matchers)
    blocked = of.series(families.GATE_STATUS, 'status="insufficient"', one_of("gate", matched))
    totals = (families.REQUESTS, f"{families.LATENCY}_count")
    asked = " or ".join(f"sum {by} ({of.series(name, live)}) >= {FIRST}" for name in totals)
    gold = f"on ({of.labels()}) group by ({of.labels()}) ({of.series(families.GOLD_INFO)})"
    unasked = f"max {by} (1 - {question} > {HALF:g})"
    return [f"{unasked}\nand {on} (max {by} ({blocked}) == 1)\nand {on} ({asked}) and {gold}"]


def _lacks(gates: Sequence[Gate], writer: Writer) -> str:
    """A template for the fields that records lack and gates need, and what brings each of them into the records."""
    needed = {field for gate in gates for field in needs(parse(gate.metric))}
    fields = [field for field in _FIELDS if field in needed]
    ratio = f"{families.CAPTURED_RATIO}{{PIPELINE,{one_of('field', fields)}}}"
    # A pipeline that never cites lacks nothing: a citation there is none of.
    never = f'{families.CAPTURED_RATIO}{{field="{CITATIONS}"}} == 0'
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


def monitor_alerts(scopes: Sequence[RuleScope], of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on every fault that would silence the other alerts or make them wrong."""
    which = pipelines(scopes, constants.OTHER)
    up, by = of.series("up", JOB), of.labels()
    return [
        *[
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
        ],
        _no_data(which, of, writer),
        *_records(of, writer),
        *_state(of, writer),
        _rules_stale(which, of, writer),
        writer.alert(
            "RagmonWatchdog",
            "vector(1)",
            "none",
            "Alerts of ragmon get through",
            "It fires always. Send it to something that calls when it is missing: then Prometheus or Alertmanager is "
            "dead.",
        ),
    ]


def _no_data(which: str, of: Deployments, writer: Writer) -> Rule:
    """No traffic makes no metric zero, so it needs an alert of its own.

    ragmon serves the gates of a configured pipeline from its start, and those of any other from its first record until
    the pipeline gives its place back. The range is short and the wait an hour: a Prometheus that was started a moment
    ago has not seen an hour without a request.
    """
    calls = of.series(f"{LATENCY}_count", f'source="{constants.LIVE}"', which)
    seen, by = of.total(calls, "15m", "pipeline"), of.labels("pipeline")
    expected = f"0 * group by ({by}) ({of.series(GATE_THRESHOLD, which)})"
    return writer.alert(
        "RagmonNoData",
        f"({seen} or {expected}) == 0",
        TICKET,
        "{{ $labels.pipeline }}: no request of a user for an hour",
        "Nobody asks, or nobody tells ragmon: see what its producers say, and `ragmon doctor`.",
        pending="1h",
    )


def _records(of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on records that wait, that are lost, and that are nowhere."""
    by = of.labels("stage", "instance")
    recent = f"time() - {of.series(LAST_SCORED)} < 900"
    received = of.series(RECEIVED)
    dropped = of.total(of.series(DROPPED), "15m", "stage")
    lost = of.total(of.series(PRODUCER_DROPPED), "15m")
    all_sent = f"({lost} + {of.total(received, '15m')})"
    return [
        writer.alert(
            "RagmonScoringStale",
            f"max by ({by}) ({of.series(PENDING)}) > 0 unless on ({of.labels('instance')}) {recent}",
            TICKET,
            "{{ $value }} records wait at {{ $labels.instance }}, and none was scored for 15 minutes",
            "What gates and alarms say is old. See the server's log, and `ragmon verify`.",
            pending="15m",
        ),
        writer.alert(
            "RagmonAccountingMismatch",
            f"{of.series(RESIDUAL)} != 0",
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
            f"`sum by (stage, reason) (increase({DROPPED}[15m]))`, and for stage producer "
            f"`sum by (reason) (increase({PRODUCER_DROPPED}[15m]))`.",
            pending="5m",
        ),
    ]


def _state(of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on the disk, the configuration in force, and names that found no place."""
    overflow = of.total(of.series(NAMES_OVERFLOW), "1h", "instance", "kind")
    return [
        writer.alert(
            "RagmonJournalNotWritable",
            f"{of.series(JOURNAL_WRITABLE)} == 0",
            PAGE,
            "ragmon at {{ $labels.instance }} cannot write its journal",
            "It takes no records, and producers begin to lose them. Is the disk full, or read-only? /readyz says why.",
            pending="2m",
        ),
        writer.alert(
            "RagmonConfigReloadFailed",
            f"{of.series(RELOADED)} == 0",
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


def _rules_stale(which: str, of: Deployments, writer: Writer) -> Rule:
    """Alert when these rules were generated from another configuration than the one in force.

    A recorded threshold is there for every pipeline that has gates at all: a gate that ragmon serves no longer is
    missed by it.
    """
    labels = of.labels("pipeline", "gate")
    served = f"max by ({labels}) ({of.series(GATE_THRESHOLD, which)})"
    expected, on = of.series(THRESHOLD, which), f"on ({labels})"
    return writer.alert(
        "RagmonRulesStale",
        f"{served} != {on} {expected}\nor {served} unless {on} {expected}\nor {expected} unless {on} {served}",
        TICKET,
        f"{GATE_NAME}: the rules and ragmon were configured differently",
        "Run `ragmon generate rules` with the ragmon.toml the server has, and load the result.",
        pending="15m",
    )


def stream_alerts(of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on a log that several processes count."""
    behind = of.series(PARTITION_BEHIND)
    lost = of.total(of.series(STREAM_LOST), "1h", "instance")
    chunks = of.series(CHUNKS, 'result=~"overlapping|unknown|damaged|returned"')
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
            f"`{STREAM_LOST}` and `{CHUNKS}` by result say which.",
            pending="5m",
        ),
        writer.alert(
            "RagmonStreamConfigsDiffer",
            f"{of.series(STREAM_CONFIGS)} > 1",
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
        RuleGroup("ragmon.recorded", rules(scopes, deployments, settings.windows)),
        RuleGroup("ragmon.gates", gate_alerts(scopes, deployments, writer)),
        RuleGroup("ragmon.monitor", monitor_alerts(scopes, deployments, writer)),
        *([RuleGroup("ragmon.stream", stream_alerts(deployments, writer))] if settings.stream.model_fields_set else []),
    ]


__all__ = ["Rule", "RuleGroup", "render", "rule_groups"]
