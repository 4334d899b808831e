"""One unit test of a rule file, and how promtool reads it.

Cases of the alerts on gates.

Cases of the alerts on ragmon itself.

Cases of the alerts on requests, and on what metrics rest on.

The cases of all alerts a configuration has.

Promtool's unit tests of the rules: for every alert what must fire it and what must not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ragmon import stats
from ragmon.alarms.frozen import INDEX_ALERT
from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.core.policy import Gate
from ragmon.core.series_names import label
from ragmon.export.prometheus_quality import LATENCY_BOUNDS
from ragmon.export.promql import Z999, exact, selector
from ragmon.export.rules import recording, traffic_alerts
from ragmon.export.rules import recording as counted
from ragmon.export.rules.file import HEADER, RuleGroup, dump
from ragmon.export.rules.recording import burn_of

RULES: Final = "ragmon.rules.yml"
"""The rule file, beside its tests."""
TARGET: Final = {"instance": "ragmon:9464", "job": "ragmon"}
"""The labels Prometheus gives what it scrapes."""
OTHER: Final = {"instance": "ragmon-2:9464", "job": "ragmon"}
"""The same for a second replica."""
_EVERY: Final = "1m"
_EVALUATED: Final = "2m"
"""Half as often as values come: rules over hours are what takes the time."""


@dataclass(frozen=True)
class Case:
    """What is put in, and which alerts must fire then.

    Args:
        alert: Which alert is looked at.
        name: What happens.
        series: Values minute by minute, in promtool's short form, by series.
        at: When it is looked at.
        fires: The labels of every alert of this name that must fire; none: it must be silent.
        among: Only alerts with these labels are looked at: others of this name are about something else.
    """

    alert: str
    name: str
    series: Mapping[str, str]
    at: str
    fires: Sequence[Mapping[str, str]] = field(default=())
    among: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The case as promtool reads it."""
        firing = {"alertname": self.alert, "alertstate": "firing"}
        alerts = [selector("ALERTS", dict(sorted({**firing, **labels}.items()))) for labels in self.fires]
        expected = [{"labels": labels, "value": 1} for labels in alerts]
        asked: dict[str, Any] = {"expr": selector("ALERTS", {**firing, **self.among}), "eval_time": self.at}
        if expected:
            asked["exp_samples"] = expected
        verb = "fires" if expected else "is silent"
        return {
            "interval": _EVERY,
            "name": f"{self.alert} {verb}: {self.name}",
            "input_series": [{"series": series, "values": values} for series, values in self.series.items()],
            "promql_expr_test": [asked],
        }


def scraped(name: str, target: Mapping[str, str] = TARGET, /, **labels: str) -> str:
    """A series as it is after a scrape."""
    return selector(name, {**labels, **target})


def render_tests(cases: Sequence[Case], groups: Sequence[RuleGroup]) -> str:
    """The text of a file for `promtool test rules`.

    Args:
        cases: The tests.
        groups: The rules they are about: evaluated in this order, or results would depend on chance.
    """
    return HEADER.format(what="tests") + dump(
        {
            "rule_files": [RULES],
            "evaluation_interval": _EVALUATED,
            "group_eval_order": [group.name for group in groups],
            "tests": [case.plain() for case in cases],
        }
    )


_ALARM: Final = "0x4 1x10"
_QUIET: Final = "0x15"
_PER_MINUTE: Final = 60
_MOST: Final = 1e7
_ALERTS: Final = ("RagmonGateAlarm", "RagmonLook", "RagmonDrift", "RagmonIndexDrift")


def gate_cases(settings: Settings) -> list[Case]:
    """Alarms once; burns once for a floor and once for a ceiling; windows for the first gate."""
    found = list(_alarms(settings))
    shares = recording.share_gates(settings)
    for direction in ("at_least", "at_most"):
        gate = next((gate for gate in shares if gate.direction == direction), None)
        if gate is not None:
            found += [*_burns(gate), *_at_risk(gate), *_insufficient(gate)]
    return [*found, *_counted_otherwise(settings)]


def _counted_otherwise(settings: Settings) -> Iterator[Case]:
    """The samples of a gate on indexes are builds: one is enough."""
    gate = next((gate for gate in recording.gates(settings) if gate.kind == "distinct"), None)
    if gate is not None:
        series = {scraped(series_names.GATE_SAMPLES, **recording.named(gate)): "1x150"}
        yield Case("RagmonGateInsufficient", f"{gate.name} has seen one build", series, "130m")


def _alarms(settings: Settings) -> Iterator[Case]:
    pipeline = next(iter(settings.pipelines))
    for alert, gate, severity, told in (
        ("RagmonGateAlarm", "a_gate", "page", "page"),
        ("RagmonGateAlarm", "a_gate", "ticket", "ticket"),
        ("RagmonGateAlarm", "a_metric:baseline", "page", "page"),
        ("RagmonLook", "a_metric:look", "look", "info"),
        ("RagmonDrift", "latency:drift", "ticket", "ticket"),
        ("RagmonIndexDrift", INDEX_ALERT, "ticket", "ticket"),
    ):
        labels = {"pipeline": pipeline, "gate": gate, "severity": severity}
        one, other = (scraped(series_names.GATE_ALARM, where, **labels) for where in (TARGET, OTHER))
        expected = {"pipeline": pipeline, "alarm": gate, "gate": gate.split(":")[0], "severity": told}
        say = f"{gate} ({severity})"
        yield Case(alert, f"{say} fires at one of two replicas", {one: _ALARM, other: _QUIET}, "6m", [expected])
        yield Case(alert, f"{say} has not fired", {one: _QUIET, other: _QUIET}, "6m")
        for elsewhere in _ALERTS:
            if elsewhere == alert:
                continue
            yield Case(elsewhere, f"{say} is {alert}", {one: _ALARM}, "6m")
    index = {"pipeline": pipeline, "gate": "an_index"}
    alarm = scraped(series_names.GATE_ALARM, **index, severity="page")
    info = scraped(series_names.GATE_INFO, **index, metric=constants.INDEX_HASH)
    expected = {**index, "alarm": "an_index", "severity": "page"}
    yield Case("RagmonIndexDrift", "a declared gate on indexes fires", {alarm: _ALARM, info: "1x15"}, "6m", [expected])
    yield Case("RagmonGateAlarm", "a declared gate on indexes is RagmonIndexDrift", {alarm: _ALARM, info: "1x15"}, "6m")


def _burns(gate: Gate) -> Iterator[Case]:
    """Beyond the level worth a page for six hours, or beyond the threshold for three days: proven, and still so."""
    found = burn_of(gate)
    worse, bad = (found.page + 1) / 2, (found.budget + found.page) / 2
    fires = {**recording.named(gate), "severity": "ticket"}
    long, longer = ({**fires, "over": over} for over in ("6h", "3d"))
    for failing, level, labels in ((worse, found.page, [long, longer]), (bad, found.budget, [longer])):
        rate = _enough(gate, failing, level)
        if rate is not None:
            say = f"{gate.name}, {failing:.4g} of its requests fail, all along"
            yield Case("RagmonGateSlowBurn", say, _failing(gate, failing, rate, 60), "60m", labels)
    alright = _failing(gate, found.budget / 2, _PER_MINUTE, 60)
    yield Case("RagmonGateSlowBurn", f"{gate.name} within its budget", alright, "60m")
    few = (max(1, gate.min_samples - 5)) / 60
    yield Case("RagmonGateSlowBurn", f"{gate.name}, all fail, but they are few", _failing(gate, 1.0, few, 60), "60m")
    failed = _failing(gate, worse, _enough(gate, worse, found.page) or _PER_MINUTE, 60)
    ended = {series: f"{values} {_end(values):g}x240" for series, values in failed.items()}
    yield Case("RagmonGateSlowBurn", f"{gate.name} failed, but not in the last hours", ended, "280m", [longer])


def _enough(gate: Gate, failing: float, level: float) -> float | None:
    """Requests a minute that prove a share of failures beyond a level within the hour; None: no number does."""
    rate = max(_PER_MINUTE, gate.min_samples / 30)
    while rate < _MOST:
        if stats.wilson(failing * rate * 50, rate * 50, Z999)[0] > level:
            return rate
        rate *= 4
    return None


def _end(values: str) -> float:
    """The last value of `0+STEPxN`."""
    step, count = re.fullmatch(r"0\+(\S+)x(\d+)", values).groups()  # type: ignore[union-attr]
    return float(step) * int(count)


def _failing(gate: Gate, share: float, per_minute: float, minutes: int) -> Mapping[str, str]:
    """Counters of two replicas, half of the requests each."""
    score = 1 - share if gate.at_least else share
    found = {}
    for where in (TARGET, OTHER):
        found[_at(recording.score(gate), where)] = f"0+{per_minute * score / 2:.6g}x{minutes}"
        found[_at(recording.scored(gate), where)] = f"0+{per_minute / 2:.6g}x{minutes}"
    return found


def _at(selected: str, where: Mapping[str, str]) -> str:
    """A series the selector selects."""
    name, _, matchers = selected.partition("{")
    inside = matchers[:-1].replace('gold!=""', 'gold="any"')
    return f"{name}{{{inside},{selector('', where)[1:-1]}}}"


def _windowed(gate: Gate, value: float, lower: float, upper: float, n: int, length: int) -> Mapping[str, str]:
    """The gate's gauges at one replica."""
    told = {
        series_names.GATE_VALUE: value,
        series_names.GATE_LOWER: lower,
        series_names.GATE_UPPER: upper,
        series_names.GATE_SAMPLES: n,
        series_names.GATE_THRESHOLD: gate.threshold,
    }
    return {scraped(name, **recording.named(gate)): f"{number:g}x{length}" for name, number in told.items()}


def _at_risk(gate: Gate) -> Iterator[Case]:
    sign = -1 if gate.at_least else 1
    near, far = gate.threshold + sign * 0.01, gate.threshold + sign * 0.04
    enough, fires = 4 * gate.min_samples, [{**recording.named(gate), "severity": "info"}]
    say = f"{gate.name} is {near:g}, and could be {gate.threshold:g}"
    unsure = _windowed(gate, near, near - 0.02, near + 0.02, enough, 30)
    yield Case("RagmonGateAtRisk", say, unsure, "20m", fires)
    proven = _windowed(gate, far, far - 0.02, far + 0.02, enough, 30)
    yield Case("RagmonGateAtRisk", f"{gate.name} is proven to fail, which the alarm tells", proven, "20m")
    good = gate.threshold - sign * 0.01
    holds = _windowed(gate, good, good - 0.02, good + 0.02, enough, 30)
    yield Case("RagmonGateAtRisk", f"{gate.name} holds", holds, "20m")
    few = _windowed(gate, near, 0, 1, gate.min_samples - 1, 30)
    yield Case("RagmonGateAtRisk", f"{gate.name} has too few requests", few, "20m")


def _insufficient(gate: Gate) -> Iterator[Case]:
    fires = [{**recording.named(gate), "severity": "info"}]
    for n, labels in ((gate.min_samples - 1, fires), (gate.min_samples, [])):
        series = {scraped(series_names.GATE_SAMPLES, **recording.named(gate)): f"{n}x150"}
        yield Case("RagmonGateInsufficient", f"{gate.name} has {n} requests", series, "130m", labels)
    early = {scraped(series_names.GATE_SAMPLES, **recording.named(gate)): f"{gate.min_samples - 1}x150"}
    yield Case("RagmonGateInsufficient", f"{gate.name} has had few for half an hour only", early, "30m")


_UP: Final = {scraped("up"): "1x600"}
_HERE: Final = {"stage": "ingest"}
_INSTANCE: Final = {"instance": TARGET["instance"]}


def monitor_cases(settings: Settings) -> list[Case]:
    """What makes ragmon blind, lossy or wrong."""
    pipeline = next(iter(settings.pipelines))
    return [
        *_down(),
        *_no_data(pipeline),
        *_stale(),
        *_books(),
        *_dropped(),
        *_flags(),
        *_names(),
        *_rules(settings),
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


def _no_data(pipeline: str) -> Iterator[Case]:
    here = {"pipeline": label(pipeline)}
    calls = scraped(f"{series_names.LATENCY}_count", **here, source=constants.LIVE)
    yield Case("RagmonNoData", "nobody asks", {**_UP, calls: "7x200"}, "120m", _ticket(**here), here)
    yield Case("RagmonNoData", "nobody ever asked", _UP, "120m", _ticket(**here), here)
    yield Case("RagmonNoData", "now and then somebody asks", {**_UP, calls: "0x40 1x40 2x40 3x80"}, "150m", among=here)
    yield Case("RagmonNoData", "ragmon is down, which is another alert", {calls: "7x200"}, "120m", among=here)


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
        say = f"producers lose {share:.1%}"
        yield Case("RagmonRecordsDropped", say, series, "30m", _ticket(stage="producer") if fires else [])


def _flags() -> Iterator[Case]:
    """Series that are 1 while all is well."""
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


def _rules(settings: Settings) -> Iterator[Case]:
    gates = counted.gates(settings)
    if not gates:
        return
    served = {
        scraped(series_names.GATE_THRESHOLD, **counted.named(gate)): f"{exact(gate.threshold)}x40" for gate in gates
    }
    yield Case("RagmonRulesStale", "every threshold is the configured one", {**_UP, **served}, "30m")
    first, gate = next(iter(served)), gates[0]
    fires = _ticket(**counted.named(gate))
    other = {**_UP, **served, first: f"{gate.threshold + 0.01:g}x40"}
    yield Case("RagmonRulesStale", f"{gate.name} has another threshold", other, "30m", fires)
    missing = {**_UP, **{series: values for series, values in served.items() if series != first}}
    gone = _ticket(**counted.named(gate), direction=gate.direction)
    yield Case("RagmonRulesStale", f"{gate.name} is not served", missing, "30m", gone)
    extra = scraped(series_names.GATE_THRESHOLD, pipeline=label(gate.pipeline), gate="a_new_gate")
    new = _ticket(pipeline=label(gate.pipeline), gate="a_new_gate")
    more = {**_UP, **served, extra: "0.5x40"}
    yield Case("RagmonRulesStale", "a gate is served that was not configured", more, "30m", new)
    elsewhere = {f'{recording.THRESHOLD}{{pipeline="of other rules",gate="a_gate"}}': "0.5x40"}
    yield Case("RagmonRulesStale", "other rules have other pipelines", {**_UP, **served, **elsewhere}, "30m")


def traffic_cases(settings: Settings) -> list[Case]:
    """Those of the first pipeline: every other has the same alerts."""
    one = next(iter(settings.pipelines.values()))
    found = [*_errors(one.name), *_empty(one.name), *_unassessed(settings), *_gold(settings)]
    bound = one.metrics.answered_within
    if bound is not None and bound < LATENCY_BOUNDS[-1]:
        found += _slow(one.name, float(bound))
    return found


def _pipeline_ticket(pipeline: str, **more: str) -> list[Mapping[str, str]]:
    return [{"pipeline": label(pipeline), "severity": "ticket", **more}]


def _slow(pipeline: str, bound: float) -> Iterator[Case]:
    """Nine of ten calls take long, or none does."""
    for share, fires in ((0.9, _pipeline_ticket(pipeline)), (0.0, [])):
        series = {}
        for limit in (*map(str, map(float, LATENCY_BOUNDS)), "+Inf"):
            slow = limit == "+Inf" or float(limit) >= LATENCY_BOUNDS[-1]
            grows = 60 if slow or (float(limit) >= bound and share == 0) else 60 * (1 - share)
            labels = {"pipeline": label(pipeline), "source": constants.LIVE, "le": limit}
            series[scraped(f"{series_names.LATENCY}_bucket", **labels)] = f"0+{grows:g}x30"
        quick = {key: values if share else values.replace("0+60", "0+60") for key, values in series.items()}
        yield Case("RagmonLatencyP95", f"{share:.0%} of the calls take longer than {bound:g} s", quick, "20m", fires)


def _errors(pipeline: str) -> Iterator[Case]:
    """Half of the calls fail; one in a hundred; half of very few."""
    for share, calls, fires in ((0.5, 60.0, _pipeline_ticket(pipeline)), (0.01, 60.0, []), (0.5, 0.2, [])):
        here = {"pipeline": label(pipeline)}
        series = {
            scraped(series_names.ERRORS, **here, code="TimeoutError"): f"0+{calls * share:g}x30",
            scraped(series_names.REQUESTS, **here, source=constants.LIVE, stratum="error"): f"0+{calls * share:g}x30",
            scraped(
                series_names.REQUESTS, **here, source=constants.LIVE, stratum="rest"
            ): f"0+{calls * (1 - share):g}x30",
        }
        yield Case("RagmonErrors", f"{share:.0%} of {calls:g} calls a minute fail", series, "20m", fires)


def _empty(pipeline: str) -> Iterator[Case]:
    for share, calls, fires in ((0.5, 60.0, _pipeline_ticket(pipeline)), (0.01, 60.0, []), (0.5, 0.2, [])):
        here = {"pipeline": label(pipeline), "source": constants.LIVE}
        series = {
            scraped(f"{series_names.DOCUMENTS}_bucket", **here, le="0.0"): f"0+{calls * share:g}x30",
            scraped(f"{series_names.DOCUMENTS}_count", **here): f"0+{calls:g}x30",
        }
        say = f"{share:.0%} of {calls:g} retrievals a minute bring nothing"
        yield Case("RagmonEmptyRetrieval", say, series, "20m", fires)


def _unassessed(settings: Settings) -> Iterator[Case]:
    gate = next(iter(recording.share_gates(settings)), None)
    if gate is None:
        return
    whose = scraped_scored(gate.metric)
    fires = [{"metric": gate.metric, "severity": "ticket"}]
    for reason, share, labels in (
        (constants.NO_TEXT, 0.2, fires),
        (constants.NO_TEXT, 0.01, []),
        (traffic_alerts.EXPECTED[0], 0.2, []),
    ):
        unknown = scraped(series_names.UNASSESSED, metric=gate.metric, reason=reason)
        series = {whose: f"0+{60 * (1 - share):g}x120", unknown: f"0+{60 * share:g}x120"}
        yield Case("RagmonTooManyUnassessed", f"{share:.0%} for the reason {reason}", series, "90m", labels)
    none = {scraped(series_names.UNASSESSED, metric=gate.metric, reason=constants.NO_TEXT): "0+1x120"}
    yield Case("RagmonTooManyUnassessed", "nothing at all is assessed", none, "90m", fires)


def scraped_scored(metric: str) -> str:
    """How many requests a metric scored, as it is after a scrape."""
    ((_, series),) = recording.scored_by([metric]).items()
    name, _, cut = series.partition("{")
    k = {"k": cut.removeprefix('k="').removesuffix('"}')} if cut else {}
    return scraped(name, **k)


def _gold(settings: Settings) -> Iterator[Case]:
    gate = next((gate for gate in recording.share_gates(settings) if gate.source == constants.PROBE), None)
    if gate is None:
        return
    minutes = int(traffic_alerts.span(settings, gate)[:-1])
    where = ",".join(f'{key}="{value}"' for key, value in TARGET.items())
    counter = recording.scored(gate).replace('gold!=""', 'gold="any"')[:-1] + f",{where}}}"
    fires = _pipeline_ticket(gate.pipeline, gold=label(gate.gold or ""))
    among = {"pipeline": label(gate.pipeline), "gold": label(gate.gold or "")}
    long = 3 * minutes
    stood = {**_UP, scraped("up"): f"1x{long}", counter: f"0+5x30 150x{long}"}
    yield Case("RagmonGoldStale", "probes stopped", stood, f"{2 * minutes + 60}m", fires, among)
    never = {scraped("up"): f"1x{long}"}
    yield Case("RagmonGoldStale", "nobody ever probed", never, f"{minutes + 30}m", fires, among)
    asked = {scraped("up"): f"1x{long}", counter: f"0+5x{long}"}
    yield Case("RagmonGoldStale", "probes go on", asked, f"{2 * minutes + 60}m", among=among)
    new = {scraped("up"): f"1x{long}", counter: f"_x5 360x{long}"}
    yield Case("RagmonGoldStale", "a first round is over, the second is not yet due", new, f"{minutes}m", among=among)


def every_case(settings: Settings) -> list[Case]:
    """For every alert of a configuration, what must fire it and what must not.

    Args:
        settings: The configuration.
    """
    return [*gate_cases(settings), *traffic_cases(settings), *monitor_cases(settings)]
