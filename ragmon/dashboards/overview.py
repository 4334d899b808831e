"""What somebody needs to know at three in the morning: which gates hold, what fires, what answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.dashboards.frame import Frame
from ragmon.dashboards.panels import FIRING, NUMBER, SECONDS, SHARE, STALE, VERDICTS, Query, lines, number, timeline
from ragmon.dashboards.promql import FIRES, GATE, PIPELINE, at, of_gate, pooled, status, worst
from ragmon.dashboards.quality import gate_panel, gates, plain
from ragmon.dashboards.tables import Label, Value, table
from ragmon.promql import among, equals

_BY = "pipeline, gate"


def overview(settings: Settings) -> Frame:
    """The dashboard."""
    frame = Frame(
        "overview",
        "ragmon: overview",
        "Which gates hold, by how much and on how many requests; which alarms fire; which builds answer.",
        settings,
        ("pipeline",),
    )
    frame.row("Now", [*_numbers(), *_gates(settings)])
    frame.row("Alarms", [*_alarms(), *_seen()])
    for severity, title in ((constants.PAGE, "Gates worth a page"), (constants.TICKET, "Gates worth a ticket")):
        found = [(name, some) for name, some in gates(settings).items() if some[0].severity == severity]
        frame.row(title, [gate_panel(name, some, settings) for name, some in found])
    return frame


def _numbers() -> Iterator[Any]:
    """How many gates fail, how many alarms fire, how fresh it all is."""
    of = {
        "fail": ("Gates that fail", f"sum({worst(series_names.GATE_STATUS, _BY, PIPELINE, equals('status', 'fail'))})"),
        "insufficient": (
            "Gates undecided",
            f"sum(min by ({_BY}) ({at(series_names.GATE_STATUS, PIPELINE, equals('status', 'insufficient'))}))",
        ),
    }
    title, expr = of["fail"]
    yield number(title, "A gate fails where a replica proves that it does not hold.", Query(expr, ""), NUMBER, limit=1)
    title, expr = of["insufficient"]
    yield number(title, "Gates for whose verdict no replica has enough data.", Query(expr, ""), NUMBER)
    for severity, name in ((constants.PAGE, "Pages"), (constants.TICKET, "Tickets"), (constants.LOOK, "Looks")):
        alarm = worst(series_names.GATE_ALARM, _BY, PIPELINE, equals("severity", severity))
        says = f"Alarms of severity {severity} that fire; each keeps the false-alarm budget of `[alarms]`."
        yield number(f"{name} firing", says, Query(f"sum({alarm})", ""), NUMBER, limit=1)
    age = f"time() - max({at(series_names.LAST_SCORED)})"
    says = "How long ago a record was scored last. Quiet is no data: gates keep what they know of their window."
    yield number("Last scored", says, Query(age, ""), SECONDS, limit=STALE)


def _gates(settings: Settings) -> Iterator[Any]:
    """Every gate with all that its verdict rests on."""
    others = [name for name, found in gates(settings).items() if not plain(found)]
    matchers = (PIPELINE, among("gate", others, others=True)) if others else (PIPELINE,)
    told = pooled(GATE, _BY, *matchers)
    says = (
        "The verdict (fail where a replica fails, else pass where one passes), the value with its 95 % interval over "
        "all replicas, the threshold, requests behind it, and how far the gate's alarms are on their way to firing."
    )
    figures = (
        Value(told.value, "value", SHARE, 1, width=85),
        Value(told.lower, "lower", SHARE, 1, width=85),
        Value(told.upper, "upper", SHARE, 1, width=85),
    )
    height = 2 + sum(plain(found) for found in gates(settings).values())
    yield table(
        "Gates",
        says,
        _columns(figures, told.samples, SHARE, matchers),
        height=height,
        empty="no gates yet",
        first="verdict",
    )
    if others:
        matchers = (PIPELINE, among("gate", others))
        value = (Value(worst(series_names.GATE_VALUE, _BY, *matchers), "value", NUMBER, 2, width=85),)
        samples = worst(series_names.GATE_SAMPLES, _BY, *matchers)
        says = "Counts and ratios of times do not add up: of several replicas the largest is shown."
        columns = _columns(value, samples, NUMBER, matchers)
        yield table("Gates on counts and times", says, columns, height=3 + len(others), empty="no gates yet")


def _columns(figures: tuple[Value, ...], samples: str, unit: str, matchers: tuple[str, ...]) -> list[Label | Value]:
    return [
        Label("pipeline", "pipeline"),
        Label("gate", "gate"),
        Value(status(*matchers), "verdict", look=VERDICTS, width=105),
        *figures,
        Label("direction", "must be", 85),
        Value(worst(series_names.GATE_THRESHOLD, _BY, *matchers), "threshold", unit, 1, width=90),
        Value(samples, "n", decimals=0, width=75),
        Value(of_gate(at(series_names.GATE_ALARM, *matchers[:1])) + _only(matchers), "alarm", look=FIRING, width=85),
        Value(
            of_gate(at(series_names.GATE_EVIDENCE, *matchers[:1])) + _only(matchers),
            "evidence",
            SHARE,
            0,
            gauge=True,
            width=120,
        ),
        Label("metric", "metric"),
        Label("source", "source", 75),
        Label("window", "window", 75),
        Value(worst(series_names.GATE_INFO, f"{_BY}, direction, metric, source, window", *matchers), ""),
    ]


def _only(matchers: tuple[str, ...]) -> str:
    """Alarms are called after gates, and after metrics without one: those alone that are in this table."""
    return f" and on ({_BY}) {at(series_names.GATE_THRESHOLD, *matchers)}"


def _alarms() -> Iterator[Any]:
    """What fires, since when, and what is on its way."""
    firing = f"max by (pipeline, gate, severity) ({at(series_names.GATE_ALARM, PIPELINE)} == 1)"
    says = "When which alarm fired: gates by their name, a metric against its own past as `metric:what`."
    legend = "{{pipeline}} {{gate}} ({{severity}})"
    yield timeline("Alarms that fired", says, Query(firing, legend), {"1": ("firing", "red")})
    near = f"{worst(series_names.GATE_EVIDENCE, _BY, PIPELINE)} > 0.2"
    says = "How far alarms are on their way to firing, 0 to 1, logarithmic; those above 0.2."
    yield lines("Evidence", says, [Query(near, "{{pipeline}} {{gate}}")], SHARE, ceiling=1, many=True)
    columns: list[Label | Value] = [
        Value(f"max by (alertname, severity, pipeline, gate, alarm) ({FIRES})", ""),
        *(Label(name, name) for name in ("alertname", "severity", "pipeline", "gate", "alarm")),
    ]
    yield table("Alerts that fire", "What the alert rules say in Prometheus.", columns, empty="no alert fires")


def _seen() -> Iterator[Any]:
    """Which builds, indexes and gold sets are in use."""
    columns: list[Label | Value] = [
        Value(worst(series_names.BUILD_SEEN, "pipeline, build, index_hash", PIPELINE), ""),
        *(Label(name, name) for name in ("pipeline", "build", "index_hash")),
    ]
    yield table("Builds and indexes", "Which answered last; at most eight of each pipeline.", columns, width=12)
    sets: list[Label | Value] = [
        Label("gold", "gold"),
        Label("version", "version"),
        Value(worst(series_names.GOLD_ITEMS, "gold"), "items", decimals=0),
        Value(worst(series_names.GOLD_INFO, "gold, version"), ""),
    ]
    yield table("Gold sets", "The gold sets in use, and how many items each has.", sets, width=12)
