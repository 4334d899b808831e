"""Promtool's unit tests of the rules: for every alert, what must fire it and what must not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ragmon.alarms.baselines import INDEX_ALERT
from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.core.policy import ORDER, Gate
from ragmon.core.series_names import label
from ragmon.export.promql import equals, exact
from ragmon.export.rules import capture_alerts, recording, traffic_alerts
from ragmon.export.rules.burn_cases import burn_cases
from ragmon.export.rules.promtool import OTHER, TARGET, Case, scraped, scraped_as, served
from ragmon.export.rules.scopes import RuleScope, configured_names, rule_scopes

NEW: Final = "a pipeline of which no configuration knows"
"""The pipeline that rules by pattern are tested with."""
_ALARM: Final = "0x4 1x10"
_QUIET: Final = "0x15"
_ALERTS: Final = ("RagmonGateAlarm", "RagmonLook", "RagmonDrift", "RagmonIndexDrift")


def subject(scope: RuleScope) -> str:
    """The pipeline that the rules of a scope are tested with: one that no configuration names, if it has such."""
    return NEW if scope.unnamed else scope.names[0]


def _tested(scopes: Sequence[RuleScope]) -> list[RuleScope]:
    """The scope of the top level and that of one pipeline with gates of its own; further ones have the same rules."""
    return list(scopes[:2])


def _gates_of(scope: RuleScope, pipeline: str) -> list[Gate]:
    """The gates of a scope, in one of its pipelines."""
    return [replace(gate, pipeline=pipeline) for gate in scope.gates]


def gate_cases(scopes: Sequence[RuleScope]) -> list[Case]:
    """Cases for alarms, for burns of one lower and one upper threshold, and for windows of the same gates."""
    cases = list(_alarms(subject(scopes[0])))
    for scope in _tested(scopes):
        gates = _gates_of(scope, subject(scope))
        for direction in ("at_least", "at_most"):
            gate = next((gate for gate in gates if gate.kind == "threshold" and gate.direction == direction), None)
            if gate is not None:
                burns = (
                    burn_cases(gate) if scope is scopes[0] else ()
                )  # hours of evaluation: they take most of the time
                cases += [*burns, *_at_risk(gate), *_insufficient(gate)]
        cases += _distinct(gates)
    return cases


def _distinct(gates: Sequence[Gate]) -> Iterator[Case]:
    """A gate on indexes needs one sample only, because its samples are builds."""
    gate = next((gate for gate in gates if gate.kind == "distinct"), None)
    if gate is not None:
        yield Case(
            "RagmonGateInsufficient", f"{gate.name} has seen one build", _judged(gate, 1, "insufficient"), "130m"
        )


def _alarms(pipeline: str) -> Iterator[Case]:
    for alert, gate, severity, alert_severity in (
        ("RagmonGateAlarm", "a_gate", "page", "page"),
        ("RagmonGateAlarm", "a_gate", "ticket", "ticket"),
        ("RagmonGateAlarm", "a_metric:baseline", "page", "page"),
        ("RagmonLook", "a_metric:look", "look", "info"),
        ("RagmonDrift", "latency:drift", "ticket", "ticket"),
        ("RagmonIndexDrift", INDEX_ALERT, "ticket", "ticket"),
    ):
        labels = {"pipeline": pipeline, "gate": gate, "severity": severity}
        first, second = (scraped(series_names.GATE_ALARM, target, **labels) for target in (TARGET, OTHER))
        expected = {"pipeline": pipeline, "alarm": gate, "gate": gate.split(":")[0], "severity": alert_severity}
        name = f"{gate} ({severity})"
        yield Case(alert, f"{name} fires at one of two replicas", {first: _ALARM, second: _QUIET}, "6m", [expected])
        yield Case(alert, f"{name} has not fired", {first: _QUIET, second: _QUIET}, "6m")
        for other_alert in _ALERTS:
            if other_alert == alert:
                continue
            yield Case(other_alert, f"{name} is {alert}", {first: _ALARM}, "6m")
    index = {"pipeline": pipeline, "gate": "an_index"}
    alarm = scraped(series_names.GATE_ALARM, **index, severity="page")
    info = scraped(series_names.GATE_INFO, **index, metric=constants.INDEX_HASH)
    expected = {**index, "alarm": "an_index", "severity": "page"}
    yield Case("RagmonIndexDrift", "a declared gate on indexes fires", {alarm: _ALARM, info: "1x15"}, "6m", [expected])
    yield Case("RagmonGateAlarm", "a declared gate on indexes is RagmonIndexDrift", {alarm: _ALARM, info: "1x15"}, "6m")


def _windowed(gate: Gate, value: float, lower: float, upper: float, n: int, length: int) -> Mapping[str, str]:
    """The gate's gauges of one replica."""
    values = {
        series_names.GATE_VALUE: value,
        series_names.GATE_LOWER: lower,
        series_names.GATE_UPPER: upper,
        series_names.GATE_SAMPLES: n,
        series_names.GATE_THRESHOLD: gate.threshold,
    }
    return {scraped(name, **recording.named(gate)): f"{number:g}x{length}" for name, number in values.items()}


def _at_risk(gate: Gate) -> Iterator[Case]:
    sign = -1 if gate.at_least else 1
    unproven, proven_value = gate.threshold + sign * 0.01, gate.threshold + sign * 0.04
    enough, fires = 4 * gate.min_samples, [{**recording.named(gate), "severity": "info"}]
    name = f"{gate.name} is {unproven:g}, and could be {gate.threshold:g}"
    unsure = _windowed(gate, unproven, unproven - 0.02, unproven + 0.02, enough, 30)
    yield Case("RagmonGateAtRisk", name, unsure, "20m", fires)
    proven = _windowed(gate, proven_value, proven_value - 0.02, proven_value + 0.02, enough, 30)
    yield Case("RagmonGateAtRisk", f"{gate.name} is proven to fail, which the alarm tells", proven, "20m")
    good = gate.threshold - sign * 0.01
    holds = _windowed(gate, good, good - 0.02, good + 0.02, enough, 30)
    yield Case("RagmonGateAtRisk", f"{gate.name} holds", holds, "20m")
    few = _windowed(gate, unproven, 0, 1, gate.min_samples - 1, 30)
    yield Case("RagmonGateAtRisk", f"{gate.name} has too few requests", few, "20m")


def _insufficient(gate: Gate) -> Iterator[Case]:
    fires = [{**recording.named(gate), "severity": "info"}]
    few = gate.min_samples - 1
    for n, labels in ((few, fires), (gate.min_samples, [])):
        series = _judged(gate, n, "insufficient")
        yield Case("RagmonGateInsufficient", f"{gate.name} has {n} requests", series, "130m", labels)
    early = _judged(gate, few, "insufficient")
    yield Case("RagmonGateInsufficient", f"{gate.name} has had few for half an hour only", early, "30m")
    for verdict, name in (("", "does not apply to its pipeline"), ("pass", "is judged by its point estimate")):
        yield Case("RagmonGateInsufficient", f"{gate.name} {name}", _judged(gate, few, verdict), "130m")


def _judged(gate: Gate, n: int, verdict: str) -> Mapping[str, str]:
    """So many samples of a gate, and its statuses; a gate without a verdict does not apply."""
    names = recording.named(gate)
    statuses = {
        scraped(series_names.GATE_STATUS, **names, status=status): f"{int(status == verdict)}x150"
        for status in sorted(ORDER)
    }
    return {scraped(series_names.GATE_SAMPLES, **names): f"{n}x150", **statuses, **served(gate, 150)}


_UP: Final = {scraped("up"): "1x600"}
_HERE: Final = {"stage": "ingest"}
_INSTANCE: Final = {"instance": TARGET["instance"]}


def monitor_cases(scopes: Sequence[RuleScope]) -> list[Case]:
    """Cases in which ragmon is down, loses records or runs another configuration than the rules."""
    return [
        *_down(),
        *_no_data(scopes),
        *_stale(),
        *_books(),
        *_dropped(),
        *_flags(),
        *_names(),
        *_stream(),
        *_rules(scopes),
        Case("RagmonWatchdog", "always", {}, "1m", [{"severity": "none"}]),
    ]


def _ticket(**labels: str) -> list[Mapping[str, str]]:
    return [{"severity": "ticket", **labels}]


def _down() -> Iterator[Case]:
    page = [{"severity": "page"}]
    yield Case("RagmonDown", "it cannot be reached", {scraped("up"): "1x5 0x20"}, "15m", page)
    yield Case("RagmonDown", "Prometheus does not know it", {}, "10m", page)
    yield Case("RagmonDown", "it was restarted", {scraped("up"): "1x5 0x2 1x20"}, "9m")
    other = {scraped("up"): "0x20", scraped("up", {"instance": "ragmon-2:9464", "job": "ragmon"}): "1x20"}
    yield Case("RagmonDown", "one of two replicas is there", other, "15m")
    yield Case("RagmonReplicaDown", "one of two replicas is there", other, "15m", _ticket(**TARGET))
    yield Case("RagmonReplicaDown", "it was restarted", {scraped("up"): "1x5 0x6 1x20"}, "15m")


def _no_data(scopes: Sequence[RuleScope]) -> Iterator[Case]:
    expected = configured_names(scopes)[:1]
    for pipeline in (*expected, *([NEW] if any(scope.unnamed for scope in scopes) else [])):
        labels = {"pipeline": label(pipeline)}
        calls = scraped(f"{series_names.LATENCY}_count", **labels, source=constants.LIVE)
        fires = _ticket(**labels)
        yield Case("RagmonNoData", f"{pipeline}: nobody asks", {**_UP, calls: "7x200"}, "120m", fires, labels)
        began = "Prometheus has watched for half an hour"
        yield Case("RagmonNoData", f"{pipeline}: {began}", {**_UP, calls: "7x200"}, "30m", among=labels)
        ever = fires if pipeline in expected else []
        yield Case("RagmonNoData", f"{pipeline}: nobody ever asked", _UP, "120m", ever, labels)
        some = {**_UP, calls: "0x40 1x40 2x40 3x80"}
        yield Case("RagmonNoData", f"{pipeline}: now and then somebody asks", some, "150m", among=labels)
        down = {calls: "7x200"}
        yield Case("RagmonNoData", f"{pipeline}: ragmon is down, another alert", down, "120m", among=labels)
    if NEW not in expected:
        others = scraped(f"{series_names.LATENCY}_count", pipeline=constants.OTHER, source=constants.LIVE)
        among = {"pipeline": constants.OTHER}
        yield Case("RagmonNoData", "no more names without a place", {**_UP, others: "7x200"}, "120m", among=among)


def _stale() -> Iterator[Case]:
    wait = scraped(series_names.PENDING, **_HERE)
    last = scraped(series_names.LAST_SCORED)
    fires = _ticket(**_HERE, **_INSTANCE)
    stuck = {wait: "5x90", last: "60x90"}
    yield Case("RagmonScoringStale", "records wait, the last was scored long ago", stuck, "40m", fires)
    yield Case("RagmonScoringStale", "records wait, none was ever scored", {wait: "5x90"}, "40m", fires)
    yield Case("RagmonScoringStale", "records wait and are scored", {wait: "5x90", last: "0+60x90"}, "40m")
    yield Case("RagmonScoringStale", "nothing waits", {wait: "0x90", last: "60x90"}, "40m")


def _books() -> Iterator[Case]:
    residual = scraped(series_names.RESIDUAL, **_HERE)
    fires = _ticket(**_HERE, **TARGET)
    yield Case("RagmonBooksDoNotClose", "two records are nowhere", {residual: "2x30"}, "20m", fires)
    yield Case("RagmonBooksDoNotClose", "two records are twice", {residual: "-2x30"}, "20m", fires)
    yield Case("RagmonBooksDoNotClose", "every record is somewhere", {residual: "0x30"}, "20m")


def _dropped() -> Iterator[Case]:
    received = scraped(series_names.RECEIVED, **_HERE)
    dropped = scraped(series_names.DROPPED, **_HERE, reason=constants.QUEUE_FULL)
    lost = scraped(series_names.PRODUCER_DROPPED, reason=constants.EXPORT_FAILED)
    for share, fires in ((0.05, True), (0.001, False)):
        series = {received: "0+1000x40", dropped: f"0+{1000 * share:g}x40"}
        yield Case("RagmonRecordsDropped", f"{share:.1%} dropped", series, "30m", _ticket(**_HERE) if fires else [])
        series = {received: "0+1000x40", lost: f"0+{1000 * share:g}x40"}
        name = f"producers lose {share:.1%}"
        yield Case("RagmonRecordsDropped", name, series, "30m", _ticket(stage="producer") if fires else [])


def _flags() -> Iterator[Case]:
    """Gauges that are 1 while there is no fault."""
    for alert, name, severity, minutes in (
        ("RagmonJournalNotWritable", series_names.JOURNAL_WRITABLE, "page", 2),
        ("RagmonConfigReloadFailed", series_names.RELOADED, "ticket", 5),
    ):
        series = scraped(name)
        fires = [{"severity": severity, **TARGET}]
        yield Case(alert, f"{name} is 0", {series: "1x5 0x30"}, f"{8 + minutes}m", fires)
        yield Case(alert, f"{name} was 0 for a moment", {series: "1x5 0 1x30"}, f"{8 + minutes}m")
        yield Case(alert, f"{name} is 1", {series: "1x30"}, "20m")


def _names() -> Iterator[Case]:
    overflow = scraped(series_names.NAMES_OVERFLOW, kind=constants.PIPELINE_NAMES)
    fires = _ticket(kind=constants.PIPELINE_NAMES, **_INSTANCE)
    yield Case("RagmonNamesOverflow", "pods are called as pipelines", {overflow: "0+10x90"}, "40m", fires)
    yield Case("RagmonNamesOverflow", "every name has its place", {overflow: "0x90"}, "40m")
    yield Case("RagmonNamesOverflow", "it is over for an hour", {overflow: "0+10x20 200x120"}, "110m")


def _stream() -> Iterator[Case]:
    behind = scraped(series_names.PARTITION_BEHIND, partition="0")
    fires = [{"severity": "page", "partition": "0"}]
    yield Case("RagmonPartitionBehind", "a partition is silent", {behind: "5 5 30+60x20"}, "6m", fires)
    yield Case("RagmonPartitionBehind", "every partition speaks", {behind: "8x20"}, "10m")
    lost, refused = scraped(series_names.STREAM_LOST), scraped(series_names.CHUNKS, result="overlapping")
    one_ticket = _ticket(**_INSTANCE)
    yield Case("RagmonStreamIncomplete", "a log was deleted", {lost: "0x5 40x60"}, "20m", one_ticket)
    yield Case("RagmonStreamIncomplete", "chunks overlap", {lost: "0x65", refused: "0x5 3x60"}, "20m", one_ticket)
    yield Case("RagmonStreamIncomplete", "everything was counted", {lost: "0x65", refused: "0x65"}, "60m")
    configs = scraped(series_names.STREAM_CONFIGS)
    differing = _ticket(**TARGET)
    yield Case("RagmonStreamConfigsDiffer", "a rollout stopped half-way", {configs: "2x90"}, "80m", differing)
    yield Case("RagmonStreamConfigsDiffer", "a rollout ends", {configs: "2x20 1x60"}, "80m")


def _rules(scopes: Sequence[RuleScope]) -> Iterator[Case]:
    pipelines = [(scope, (*scope.names, *([NEW] if scope.unnamed else []))) for scope in scopes]
    gates = [gate for scope, names in pipelines for name in names for gate in _gates_of(scope, name)]
    if not gates:
        return
    served = {
        scraped(series_names.GATE_THRESHOLD, **recording.named(gate)): f"{exact(gate.threshold)}x40" for gate in gates
    }
    yield Case("RagmonRulesStale", "every threshold is the configured one", {**_UP, **served}, "30m")
    first, gate = next(iter(served)), gates[0]
    fires = _ticket(**recording.named(gate))
    changed = {**_UP, **served, first: f"{gate.threshold + 0.01:g}x40"}
    yield Case("RagmonRulesStale", f"{gate.name} has another threshold", changed, "30m", fires)
    if gate.pipeline != NEW or len(scopes[0].gates) > 1:  # without any gate a pipeline that nobody named is none
        missing = {**_UP, **{series: values for series, values in served.items() if series != first}}
        removed_ticket = _ticket(**recording.named(gate), direction=gate.direction)
        yield Case("RagmonRulesStale", f"{gate.name} is not served", missing, "30m", removed_ticket)
    added_series = scraped(series_names.GATE_THRESHOLD, pipeline=label(gate.pipeline), gate="a_new_gate")
    added_ticket = _ticket(pipeline=label(gate.pipeline), gate="a_new_gate")
    added = {**_UP, **served, added_series: "0.5x40"}
    yield Case("RagmonRulesStale", "a gate is served that was not configured", added, "30m", added_ticket)
    other_pipeline = {f'{recording.THRESHOLD}{{pipeline="of other rules",gate="a_gate"}}': "0.5x40"}
    yield Case("RagmonRulesStale", "other rules have other pipelines", {**_UP, **served, **other_pipeline}, "30m")


def traffic_cases(scopes: Sequence[RuleScope]) -> list[Case]:
    """Cases for a pipeline of each tested scope; all others have the same alerts."""
    cases = [*_unassessed(scopes), *_captured(scopes), *_gold(scopes)]
    for scope in _tested(scopes):
        pipeline, bound = subject(scope), scope.settings.metrics.answered_within
        cases += [*_errors(pipeline), *_empty(pipeline)]
        if bound is not None and bound < series_names.LATENCY_BOUNDS[-1]:
            cases += _slow(pipeline, float(bound))
    return cases


def _pipeline_ticket(pipeline: str, **more: str) -> list[Mapping[str, str]]:
    return [{"pipeline": label(pipeline), "severity": "ticket", **more}]


def _slow(pipeline: str, bound: float) -> Iterator[Case]:
    """90 % of the calls take long, or none does."""
    for share, fires in ((0.9, _pipeline_ticket(pipeline)), (0.0, [])):
        series = {}
        for limit in (*map(str, map(float, series_names.LATENCY_BOUNDS)), "+Inf"):
            slow = limit == "+Inf" or float(limit) >= series_names.LATENCY_BOUNDS[-1]
            grows = 60 if slow or (float(limit) >= bound and share == 0) else 60 * (1 - share)
            labels = {"pipeline": label(pipeline), "source": constants.LIVE, "le": limit}
            series[scraped(f"{series_names.LATENCY}_bucket", **labels)] = f"0+{grows:g}x30"
        yield Case("RagmonLatencyP95", f"{share:.0%} of the calls take longer than {bound:g} s", series, "20m", fires)


def _errors(pipeline: str) -> Iterator[Case]:
    """Half of the calls fail; 1 % of them; half of very few calls."""
    for share, calls, fires in ((0.5, 60.0, _pipeline_ticket(pipeline)), (0.01, 60.0, []), (0.5, 0.2, [])):
        labels = {"pipeline": label(pipeline)}
        series = {
            scraped(series_names.ERRORS, **labels, code="TimeoutError"): f"0+{calls * share:g}x30",
            scraped(series_names.REQUESTS, **labels, source=constants.LIVE, stratum="error"): f"0+{calls * share:g}x30",
            scraped(
                series_names.REQUESTS, **labels, source=constants.LIVE, stratum="rest"
            ): f"0+{calls * (1 - share):g}x30",
        }
        yield Case("RagmonErrors", f"{share:.0%} of {calls:g} calls a minute fail", series, "20m", fires)


def _empty(pipeline: str) -> Iterator[Case]:
    for share, calls, fires in ((0.5, 60.0, _pipeline_ticket(pipeline)), (0.01, 60.0, []), (0.5, 0.2, [])):
        labels = {"pipeline": label(pipeline), "source": constants.LIVE}
        series = {
            scraped(f"{series_names.DOCUMENTS}_bucket", **labels, le="0.0"): f"0+{calls * share:g}x30",
            scraped(f"{series_names.DOCUMENTS}_count", **labels): f"0+{calls:g}x30",
        }
        name = f"{share:.0%} of {calls:g} retrievals a minute bring nothing"
        yield Case("RagmonEmptyRetrieval", name, series, "20m", fires)


def _unassessed(scopes: Sequence[RuleScope]) -> Iterator[Case]:
    gate = next((gate for scope in scopes for gate in scope.share_gates), None)
    if gate is None:
        return
    scored = scraped_scored(gate.metric)
    fires = [{"metric": gate.metric, "severity": "ticket"}]
    for reason, share, labels in (
        (constants.GOLD_VERSION, 0.2, fires),
        (constants.GOLD_VERSION, 0.01, []),
        (traffic_alerts.EXPECTED[0], 0.2, []),
        (constants.NO_IDS, 0.2, []),
    ):
        unassessed = scraped(series_names.UNASSESSED, metric=gate.metric, reason=reason)
        series = {scored: f"0+{60 * (1 - share):g}x120", unassessed: f"0+{60 * share:g}x120"}
        yield Case("RagmonTooManyUnassessed", f"{share:.0%} for the reason {reason}", series, "90m", labels)
    none = {scraped(series_names.UNASSESSED, metric=gate.metric, reason=constants.GOLD_VERSION): "0+1x120"}
    yield Case("RagmonTooManyUnassessed", "nothing at all is assessed", none, "90m", fires)


def _captured(scopes: Sequence[RuleScope]) -> Iterator[Case]:
    """Two gates of a pipeline lack a field, and have one ticket; a third of another lacks some, and is judged."""
    scope = next((scope for scope in scopes if scope.share_gates), None)
    if scope is None:
        return
    alert, pipeline = capture_alerts.ALERT, subject(scope)
    gates = [replace(gate, pipeline=pipeline) for gate in scope.share_gates]
    fires = _pipeline_ticket(pipeline)
    for known, unknown, verdict, name, labels in (
        (0, 60, "insufficient", "all requests lack something, for some gates", fires),
        (40, 20, "insufficient", "a third of the requests lack something, and gates cannot be judged for it", fires),
        (40, 20, "pass", "a third of the requests lack something, and gates are judged all the same", []),
        (60, 1, "insufficient", "gates cannot be judged, and hardly a request lacks anything", []),
        (0, 60, "", "gates do not apply: it never cites", []),
        (0, 3, "insufficient", "there are few requests yet", []),
    ):
        series: dict[str, str] = {}
        for gate in gates[:2]:
            series |= _judged(gate, known, verdict)
            series[scraped(series_names.GATE_UNKNOWN, **recording.named(gate))] = f"{unknown}x150"
        yield Case(alert, name, series, "60m", labels)
    yield from _unasked(scopes)


def _unasked(scopes: Sequence[RuleScope]) -> Iterator[Case]:
    """Records without a question: no gold gate has a request."""
    found = next(((scope, gate) for scope in scopes for gate in capture_alerts.matched_gates(scope)), None)
    if found is None:
        return
    scope, gate = found
    pipeline = subject(scope)
    labels = {"pipeline": label(pipeline), "source": constants.LIVE}
    of_gate = _judged(replace(gate, pipeline=pipeline), 0, "insufficient")
    for ratio, calls, fires in ((0.0, 60, _pipeline_ticket(pipeline)), (1.0, 60, []), (0.0, 3, [])):
        series = {
            **of_gate,
            scraped(series_names.CAPTURED_RATIO, **labels, field="question"): f"{ratio:g}x150",
            scraped(series_names.REQUESTS, **labels, stratum="rest"): f"{calls}x150",
            scraped(series_names.GOLD_INFO, gold="a", version="b"): "1x150",
        }
        yield Case(capture_alerts.ALERT, f"{ratio:.0%} of {calls} requests have a question", series, "60m", fires)


def scraped_scored(metric: str) -> str:
    """The counter of the requests a metric scored, with the labels it has after a scrape."""
    ((_, series),) = recording.scored_by([metric]).items()
    name, _, cut = series.partition("{")
    k = {"k": cut.removeprefix('k="').removesuffix('"}')} if cut else {}
    return scraped(name, **k)


def _gold(scopes: Sequence[RuleScope]) -> Iterator[Case]:
    scope = next((scope for scope in scopes if traffic_alerts.probed_gates(scope)), None)
    if scope is None:
        return
    gate, pipeline = traffic_alerts.probed_gates(scope)[0], subject(scope)
    minutes = int(scope.span[:-1])
    counter = scraped_as(recording.scored(gate, [equals("pipeline", pipeline)]), TARGET)
    gold = label(gate.gold or "")
    among = {"pipeline": label(pipeline), "gold": gold}
    length = 3 * minutes
    stopped = {**_UP, scraped("up"): f"1x{length}", counter: f"0+5x30 150x{length}"}
    fires = _pipeline_ticket(pipeline, gold=gold)
    yield Case("RagmonGoldStale", "probes stopped", stopped, f"{2 * minutes + 60}m", fires, among)
    no_counter = {scraped("up"): f"1x{length}"}
    unasked = [{"pipeline": label(name), "gold": gold, "severity": "ticket"} for name in scope.names]
    if scope.settings.has_probe and not unasked:
        unasked = [{"gold": gold, "severity": "ticket"}]
    yield Case("RagmonGoldStale", "nobody ever probed", no_counter, f"{minutes + 30}m", unasked, {"gold": gold})
    ongoing = {scraped("up"): f"1x{length}", counter: f"0+5x{length}"}
    yield Case("RagmonGoldStale", "probes go on", ongoing, f"{2 * minutes + 60}m", among=among)
    first_round = {scraped("up"): f"1x{length}", counter: f"_x5 360x{length}"}
    yield Case(
        "RagmonGoldStale", "a first round is over, the second is not yet due", first_round, f"{minutes}m", among=among
    )


def every_case(settings: Settings, *, configured_only: bool = False) -> list[Case]:
    """The unit tests of every alert of a configuration.

    Args:
        settings: The configuration.
        configured_only: Without rules for pipelines that the configuration does not name.
    """
    scopes = rule_scopes(settings, configured_only=configured_only)
    return [*gate_cases(scopes), *traffic_cases(scopes), *monitor_cases(scopes)]
