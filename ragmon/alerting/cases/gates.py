"""Cases of the alerts on gates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ragmon import stats
from ragmon.alarms.frozen import INDEX_ALERT
from ragmon.alerting import counted
from ragmon.alerting.burn import burn_of
from ragmon.alerting.cases.case import OTHER, TARGET, Case, scraped
from ragmon.alerting.promql import Z999, selector
from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.core.policy import Gate

_ALARM: Final = "0x4 1x10"
_QUIET: Final = "0x15"
_PER_MINUTE: Final = 60
_MOST: Final = 1e7
_ALERTS: Final = ("RagmonGateAlarm", "RagmonLook", "RagmonDrift", "RagmonIndexDrift")


def cases(settings: Settings) -> list[Case]:
    """Alarms once; burns once for a floor and once for a ceiling; windows for the first gate."""
    found = list(_alarms(settings))
    shares = counted.shares(settings)
    for direction in ("at_least", "at_most"):
        gate = next((gate for gate in shares if gate.direction == direction), None)
        if gate is not None:
            found += [*_burns(gate), *_at_risk(gate), *_insufficient(gate)]
    return [*found, *_counted_otherwise(settings)]


def _counted_otherwise(settings: Settings) -> Iterator[Case]:
    """The samples of a gate on indexes are builds: one is enough."""
    gate = next((gate for gate in counted.gates(settings) if gate.kind == "distinct"), None)
    if gate is not None:
        series = {scraped(series_names.GATE_SAMPLES, **counted.named(gate)): "1x150"}
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
    fires = {**counted.named(gate), "severity": "ticket"}
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
        found[_at(counted.score(gate), where)] = f"0+{per_minute * score / 2:.6g}x{minutes}"
        found[_at(counted.scored(gate), where)] = f"0+{per_minute / 2:.6g}x{minutes}"
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
    return {scraped(name, **counted.named(gate)): f"{number:g}x{length}" for name, number in told.items()}


def _at_risk(gate: Gate) -> Iterator[Case]:
    sign = -1 if gate.at_least else 1
    near, far = gate.threshold + sign * 0.01, gate.threshold + sign * 0.04
    enough, fires = 4 * gate.min_samples, [{**counted.named(gate), "severity": "info"}]
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
    fires = [{**counted.named(gate), "severity": "info"}]
    for n, labels in ((gate.min_samples - 1, fires), (gate.min_samples, [])):
        series = {scraped(series_names.GATE_SAMPLES, **counted.named(gate)): f"{n}x150"}
        yield Case("RagmonGateInsufficient", f"{gate.name} has {n} requests", series, "130m", labels)
    early = {scraped(series_names.GATE_SAMPLES, **counted.named(gate)): f"{gate.min_samples - 1}x150"}
    yield Case("RagmonGateInsufficient", f"{gate.name} has had few for half an hour only", early, "30m")
