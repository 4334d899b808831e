"""The overview dashboard (gates, alarms, builds in use) and the health dashboard of the monitor itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.export.dashboards.panels import (
    FIRING,
    NUMBER,
    PER_MINUTE,
    PER_SECOND,
    SECONDS,
    SHARE,
    STALE,
    VERDICTS,
    DashboardBuilder,
    LabelColumn,
    PanelQuery,
    ValueColumn,
    lines,
    number,
    table,
    timeline,
)
from ragmon.export.dashboards.quality import all_shares, gate_panel, gates
from ragmon.export.promql import (
    FIRES,
    GATE,
    PIPELINE,
    at,
    equals,
    of_gate,
    one_of,
    per_minute,
    pooled,
    rate,
    status,
    worst,
)

_YES = {"0": ("no", "red"), "1": ("yes", "green")}
_BYTES = "bytes"


def health(settings: Settings) -> DashboardBuilder:
    """The dashboard on the health of the monitor."""
    frame = DashboardBuilder(
        "health",
        "ragmon: health",
        "Is every record accounted for, what could not be judged, and does the monitor itself fare well?",
        settings,
        (),
    )
    frame.row("Now", [*_health_numbers()])
    frame.row("Accounting", [*_accounting()])
    frame.row("What could not be judged", [*_losses()])
    frame.row("Probes, judges, labels", [*_probes_judges_labels()])
    frame.row("The server", [*_server()])
    return frame


def _health_numbers() -> Iterator[Any]:
    residual = f"sum(abs({at(series_names.RESIDUAL)}))"
    description = (
        "Records nobody can account for: received less scored, ignored, dropped, duplicate and pending. 0, or a bug."
    )
    yield number("Unaccounted records", description, PanelQuery(residual, ""), NUMBER, limit=1)
    age = f"time() - min by (instance) ({at(series_names.LAST_SCORED)})"
    yield number(
        "Last scored", "How long ago a record was scored last.", PanelQuery(age, "{{instance}}"), SECONDS, limit=STALE
    )
    reloaded = PanelQuery(f"min({at(series_names.RELOADED)})", "")
    description = "Whether the configuration in force is the one on disk, everywhere."
    yield number("Configuration loaded", description, reloaded, NUMBER, appearance=_YES)
    writable = PanelQuery(f"min({at(series_names.JOURNAL_WRITABLE)})", "")
    yield number("Journal writable", "Records are refused where it is not.", writable, NUMBER, appearance=_YES)
    series = PanelQuery(f"sum({at(series_names.SERIES)})", "")
    yield number("Series", "Prometheus series of all replicas in one scrape.", series, NUMBER)
    yield number("Replicas", "How many answer.", PanelQuery(f"count({at(series_names.BUILD_INFO)})", ""), NUMBER)


def _accounting() -> Iterator[Any]:
    flows = (
        (series_names.RECEIVED, "received"),
        (series_names.RECORDS_SCORED, "scored"),
        (series_names.DUPLICATE, "duplicate"),
    )
    queries = [PanelQuery(rate(name, "stage"), f"{{{{stage}}}} {outcome}") for name, outcome in flows]
    description = "Records that came in, were counted, or were there already, a second, by stage."
    yield lines("Records", description, queries, PER_SECOND, many=True)
    queries = [
        PanelQuery(rate(name, "stage, reason"), f"{{{{stage}}}} {outcome}: {{{{reason}}}}")
        for name, outcome in ((series_names.IGNORED, "ignored"), (series_names.DROPPED, "dropped"))
    ]
    yield lines(
        "Ignored and dropped", "Records that are not RAG, and that were lost.", queries, PER_SECOND, stacked=True
    )
    pending = PanelQuery(f"sum by (stage) ({at(series_names.PENDING)})", "{{stage}}")
    yield lines("Pending", "Records that wait.", [pending], NUMBER, ceiling=1)
    residual = PanelQuery(f"sum by (stage, instance) ({at(series_names.RESIDUAL)})", "{{stage}} {{instance}}")
    description = "0; anything else is a bug in ragmon."
    yield lines("Unaccounted records by stage", description, [residual], NUMBER, floor=None, ceiling=1)


def _losses() -> Iterator[Any]:
    query = PanelQuery(
        per_minute(series_names.UNASSESSED, "metric, reason", 'metric!~".+@.+"'), "{{metric}}: {{reason}}"
    )
    description = (
        "Requests a metric is about that lack something it needs, by the reason, a minute. They are in no number. "
        "Metrics with a cut lack what they lack without it."
    )
    yield lines("Unassessed", description, [query], PER_MINUTE, width=24, many=True)
    queries = [
        PanelQuery(per_minute(series_names.PRODUCER_DROPPED, "reason"), "lost by producers: {{reason}}"),
        PanelQuery(per_minute(series_names.REFUSED, "reason"), "refused: {{reason}}"),
        PanelQuery(per_minute(series_names.SPANS_DROPPED, "reason"), "spans: {{reason}}"),
        PanelQuery(per_minute(series_names.ORPHANS, ""), "said outside of a call"),
        PanelQuery(per_minute(series_names.REDACTION_FAILURES, ""), "text withheld: a redactor failed"),
    ]
    description = "What never became a record, or came without its text, a minute."
    yield lines("Lost on the way", description, queries, PER_MINUTE, ceiling=1)
    fields = PanelQuery(per_minute(series_names.FIELDS_UNKNOWN, "field, reason"), "{{field}}: {{reason}}")
    description = "Fields that spans of other instrumentations do not tell; `ragmon doctor` names the switch. A minute."
    yield lines("Fields unknown", description, [fields], PER_MINUTE)


def _probes_judges_labels() -> Iterator[Any]:
    probes = PanelQuery(per_minute(series_names.PROBES, "probe, result"), "{{probe}}: {{result}}")
    yield lines(
        "Probes", "Gold questions that were due, by what became of them, a minute.", [probes], PER_MINUTE, stacked=True
    )
    judges = PanelQuery(per_minute(series_names.JUDGE_CALLS, "judge, result"), "{{judge}}: {{result}}")
    yield lines(
        "Judge calls", "Requests before a judge, by what became of them, a minute.", [judges], PER_MINUTE, stacked=True
    )
    labels = PanelQuery(per_minute(series_names.LABELS, "result"), "{{result}}")
    yield lines("Labels", "Labels people gave, by what became of them, a minute.", [labels], PER_MINUTE, stacked=True)
    waiting = PanelQuery(f"sum({at(series_names.LABELS_WAITING)})", "waiting")
    yield lines("Labels that wait", "Labels whose answers have not come.", [waiting], NUMBER, ceiling=1)


def _server() -> Iterator[Any]:
    size = PanelQuery(worst(series_names.JOURNAL_BYTES, "instance"), "{{instance}}")
    yield lines("Journal", "Bytes of the journal; `[serve] max_size` bounds it.", [size], _BYTES)
    missing = PanelQuery(f"sum({at(series_names.PRODUCER_MISSING)})", "missing")
    description = "Records that producers sent and that have not come."
    yield lines("Records missing", description, [missing], NUMBER, ceiling=1)
    queries = [
        PanelQuery(per_minute(series_names.STATE_RESETS, "instance"), "{{instance}} journals set aside"),
        PanelQuery(per_minute(series_names.CLOCK_JUMPS, "instance"), "{{instance}} jumps of the clock"),
    ]
    description = "Damaged journals that were set aside, jumps of the system's clock, a minute."
    yield lines("Accidents", description, queries, PER_MINUTE, ceiling=1)
    columns: list[LabelColumn | ValueColumn] = [
        LabelColumn("instance", "instance"),
        LabelColumn("version", "version"),
        ValueColumn(worst(series_names.SERIES, "instance"), "series", NUMBER, 0),
        ValueColumn(worst(series_names.BUILD_INFO, "instance, version"), ""),
    ]
    yield table("Replicas and versions", "Who answers, in which version, with how many series.", columns, width=12)


_BY = "pipeline, gate"


def overview(settings: Settings) -> DashboardBuilder:
    """The overview dashboard."""
    frame = DashboardBuilder(
        "overview",
        "ragmon: overview",
        "Which gates hold, by how much and on how many requests; which alarms fire; which builds answer.",
        settings,
        ("pipeline",),
    )
    frame.row("Now", [*_overview_numbers(), *_gates(settings)])
    frame.row("Alarms", [*_alarms(), *_seen()])
    for severity, title in ((constants.PAGE, "Gates worth a page"), (constants.TICKET, "Gates worth a ticket")):
        by_name = [
            (name, same_name) for name, same_name in gates(settings).items() if same_name[0].severity == severity
        ]
        frame.row(title, [gate_panel(name, same_name, settings) for name, same_name in by_name])
    return frame


def _overview_numbers() -> Iterator[Any]:
    """How many gates fail, how many alarms fire, and when a record was scored last."""
    panels = {
        "fail": ("Gates that fail", f"sum({worst(series_names.GATE_STATUS, _BY, PIPELINE, equals('status', 'fail'))})"),
        "insufficient": (
            "Gates undecided",
            f"sum(min by ({_BY}) ({at(series_names.GATE_STATUS, PIPELINE, equals('status', 'insufficient'))}))",
        ),
    }
    title, expr = panels["fail"]
    yield number(
        title, "A gate fails where a replica proves that it does not hold.", PanelQuery(expr, ""), NUMBER, limit=1
    )
    title, expr = panels["insufficient"]
    yield number(title, "Gates for whose verdict no replica has enough data.", PanelQuery(expr, ""), NUMBER)
    for severity, name in ((constants.PAGE, "Pages"), (constants.TICKET, "Tickets"), (constants.LOOK, "Looks")):
        alarm = worst(series_names.GATE_ALARM, _BY, PIPELINE, equals("severity", severity))
        description = f"Alarms of severity {severity} that fire; each keeps the false-alarm budget of `[alarms]`."
        yield number(f"{name} firing", description, PanelQuery(f"sum({alarm})", ""), NUMBER, limit=1)
    age = f"time() - max({at(series_names.LAST_SCORED)})"
    description = "How long ago a record was scored last. Quiet is no data: gates keep what they know of their window."
    yield number("Last scored", description, PanelQuery(age, ""), SECONDS, limit=STALE)


def _gates(settings: Settings) -> Iterator[Any]:
    """Every gate with the numbers its verdict rests on."""
    others = [name for name, same_name in gates(settings).items() if not all_shares(same_name)]
    matchers = (PIPELINE, one_of("gate", others, others=True)) if others else (PIPELINE,)
    estimate = pooled(GATE, _BY, *matchers)
    description = (
        "The verdict (fail where a replica fails, else pass where one passes), the value with its 95 % interval over "
        "all replicas, the threshold, requests behind it, and how far the gate's alarms are on their way to firing."
    )
    figures = (
        ValueColumn(estimate.value, "value", SHARE, 1, width=85),
        ValueColumn(estimate.lower, "lower", SHARE, 1, width=85),
        ValueColumn(estimate.upper, "upper", SHARE, 1, width=85),
    )
    height = 2 + sum(all_shares(same_name) for same_name in gates(settings).values())
    yield table(
        "Gates",
        description,
        _columns(figures, estimate.samples, SHARE, matchers),
        height=height,
        empty="no gates yet",
        first="verdict",
    )
    if others:
        matchers = (PIPELINE, one_of("gate", others))
        value = (ValueColumn(worst(series_names.GATE_VALUE, _BY, *matchers), "value", NUMBER, 2, width=85),)
        samples = worst(series_names.GATE_SAMPLES, _BY, *matchers)
        description = "Counts and ratios of times do not add up: of several replicas the largest is shown."
        columns = _columns(value, samples, NUMBER, matchers)
        yield table("Gates on counts and times", description, columns, height=3 + len(others), empty="no gates yet")


def _columns(
    figures: tuple[ValueColumn, ...], samples: str, unit: str, matchers: tuple[str, ...]
) -> list[LabelColumn | ValueColumn]:
    return [
        LabelColumn("pipeline", "pipeline"),
        LabelColumn("gate", "gate"),
        ValueColumn(status(*matchers), "verdict", appearance=VERDICTS, width=105),
        *figures,
        LabelColumn("direction", "must be", 85),
        ValueColumn(worst(series_names.GATE_THRESHOLD, _BY, *matchers), "threshold", unit, 1, width=90),
        ValueColumn(samples, "n", decimals=0, width=75),
        ValueColumn(
            of_gate(at(series_names.GATE_ALARM, *matchers[:1])) + _only(matchers), "alarm", appearance=FIRING, width=85
        ),
        ValueColumn(
            of_gate(at(series_names.GATE_EVIDENCE, *matchers[:1])) + _only(matchers),
            "evidence",
            SHARE,
            0,
            gauge=True,
            width=120,
        ),
        LabelColumn("metric", "metric"),
        LabelColumn("source", "source", 75),
        LabelColumn("window", "window", 75),
        ValueColumn(worst(series_names.GATE_INFO, f"{_BY}, direction, metric, source, window", *matchers), ""),
    ]


def _only(matchers: tuple[str, ...]) -> str:
    """A condition that keeps only alarms of gates in this table; other alarms are named after metrics."""
    return f" and on ({_BY}) {at(series_names.GATE_THRESHOLD, *matchers)}"


def _alarms() -> Iterator[Any]:
    """Which alarms fire, since when, and which are close to firing."""
    firing = f"max by (pipeline, gate, severity) ({at(series_names.GATE_ALARM, PIPELINE)} == 1)"
    description = "When which alarm fired: gates by their name, a metric against its own past as `metric:what`."
    legend = "{{pipeline}} {{gate}} ({{severity}})"
    yield timeline("Alarms that fired", description, PanelQuery(firing, legend), {"1": ("firing", "red")})
    near = f"{worst(series_names.GATE_EVIDENCE, _BY, PIPELINE)} > 0.2"
    description = "How far alarms are on their way to firing, 0 to 1, logarithmic; those above 0.2."
    yield lines("Evidence", description, [PanelQuery(near, "{{pipeline}} {{gate}}")], SHARE, ceiling=1, many=True)
    columns: list[LabelColumn | ValueColumn] = [
        ValueColumn(f"max by (alertname, severity, pipeline, gate, alarm) ({FIRES})", ""),
        *(LabelColumn(name, name) for name in ("alertname", "severity", "pipeline", "gate", "alarm")),
    ]
    yield table("Alerts that fire", "What the alert rules say in Prometheus.", columns, empty="no alert fires")


def _seen() -> Iterator[Any]:
    """The builds, indexes and gold sets in use."""
    columns: list[LabelColumn | ValueColumn] = [
        ValueColumn(worst(series_names.BUILD_SEEN, "pipeline, build, index_hash", PIPELINE), ""),
        *(LabelColumn(name, name) for name in ("pipeline", "build", "index_hash")),
    ]
    yield table("Builds and indexes", "Which answered last; at most eight of each pipeline.", columns, width=12)
    sets: list[LabelColumn | ValueColumn] = [
        LabelColumn("gold", "gold"),
        LabelColumn("version", "version"),
        ValueColumn(worst(series_names.GOLD_ITEMS, "gold"), "items", decimals=0),
        ValueColumn(worst(series_names.GOLD_INFO, "gold, version"), ""),
    ]
    yield table("Gold sets", "The gold sets in use, and how many items each has.", sets, width=12)
