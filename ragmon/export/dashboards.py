"""Grafana dashboards of a configuration: panels, tables, and the frame, of series of `ragmon.export.families` only.

Each dashboard answers one question: which gates hold (overview); does the monitor itself fare well (health); does
retrieval find the right documents; are the answers right, cited and grounded; how much traffic is there, how much of it
fails, and how long does it take. They need `ragmon[dashboard]`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Final

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders import dashboard as dashboard_builder
from grafana_foundation_sdk.builders import table as table_builder
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models.common import TableCellHeight
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    MatcherConfig,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from ragmon import metrics
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.policy import Gate
from ragmon.export import families as declared
from ragmon.export.families import (
    PIPELINE,
    SOURCE,
    WINDOW,
    at,
    equals,
    increase_in_range,
    label,
    of_gate,
    one_of,
    per_minute,
    pooled,
    quantile,
    rate,
    status,
    windowed,
    worst,
)
from ragmon.metrics.base import JudgeMetric, judged
from ragmon.scoring.buckets import METRIC

Queries = Mapping[str, str]
"""The legend of each query, by its PromQL."""
Look = Mapping[str, tuple[str, str]]
"""The text and the colour of each number."""
Rows = Iterator[Any]
"""The panels of a dashboard from left to right; a text is the heading of those that follow."""
DATASOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
SHARE: Final = "percentunit"
NUMBER: Final = "none"
REQUESTS: Final = "reqps"
PER_SECOND: Final = "cps"
PER_MINUTE: Final = "cpm"
SECONDS: Final = "s"
BYTES: Final = "bytes"
GREY: Final = "rgba(120, 120, 120, 0.8)"
STALE: Final = 900
"""Seconds without a scored record after which the panel turns red, as in the alert on it."""
NEVER: Final = "nothing here in this time"
"""The text of a panel without data."""
VERDICTS: Final[Look] = {"0": ("pass", "green"), "1": ("insufficient", "#8e8e8e"), "2": ("fail", "red")}
FIRING: Final[Look] = {"0": ("no", "transparent"), "1": ("firing", "red")}
YES: Final[Look] = {"0": ("no", "red"), "1": ("yes", "green")}
_BARS_HEIGHT: Final = 9
"""Steps of 30 pixels in which ten bars fit without a scroll bar."""
TAG: Final = "ragmon"
USUAL_WINDOW: Final = "1h"
_SAMPLES: Final = f"{declared.PREFIX}.+{declared.SAMPLES}"
_OPTIONS: Final = {
    "job": f"label_values({declared.BUILD_INFO}, job)",
    "instance": f'label_values({declared.BUILD_INFO}{{job=~"$job"}}, instance)',
    "pipeline": f"label_values({at(declared.GATE_THRESHOLD)}, pipeline)",
    "source": f'label_values({{__name__=~"{_SAMPLES}",job=~"$job",instance=~"$instance"}}, source)',
    "window": f'label_values({{__name__=~"{_SAMPLES}",job=~"$job",instance=~"$instance"}}, window)',
}
_SELECTED: Final = ("pipeline", "source", "window")
_BEFORE: Final = "1h"
"""A series that was absent for this long is new."""
_BY: Final = "pipeline, gate"
_POOLED: Final = "Replicas are put together by their requests; dots: 95 % interval."
_QUANTILES: Final = (0.5, 0.95, 0.99)
_BUILT_IN: Final = "ragmon.metrics."


def _targets(
    queries: Queries, *, instant: bool = False, table: bool = False, exemplars: bool = False
) -> list[Builder[Dataquery]]:
    builders: list[Builder[Dataquery]] = []
    for letter, (expr, legend) in zip(ascii_uppercase, queries.items(), strict=False):
        target = prometheus.Dataquery().datasource(DATASOURCE).ref_id(letter).expr(expr).legend_format(legend)
        target = target.instant() if instant or table else target.range()
        target = target.exemplar(True) if exemplars else target
        builders.append(target.format(PromQueryFormat.TABLE if table else PromQueryFormat.TIME_SERIES))
    return builders


def _mapping(appearance: Look) -> ValueMap:
    return ValueMap(
        {key: ValueMappingResult(text, colour, index=n) for n, (key, (text, colour)) in enumerate(appearance.items())}
    )


def lines(
    title: str,
    says: str,
    queries: Queries,
    unit: str,
    *,
    stacked: bool = False,
    floor: float | None = 0,
    ceiling: float | None = None,
    width: int = 12,
    many: bool = False,
    exemplars: bool = False,
    bands: Iterable[tuple[str, str]] = (),
) -> timeseries.Panel:
    """A time series panel.

    Args:
        title: The panel's title.
        says: The panel's description.
        queries: Series named `... lower` and `... upper` are drawn as faint dots, those named `threshold ...` as
            dashes.
        unit: Grafana's id of the unit.
        stacked: Whether the series are stacked.
        floor: The start of the axis, unless a value lies below.
        ceiling: The end of the axis, unless a value lies above.
        width: The width, of 24 columns.
        many: Whether there may be more series than fit into a legend below; then it is on the right and scrolls.
        exemplars: Whether to query exemplars as well.
        bands: Names of series between which the panel is shaded: the upper, the lower.
    """
    panel = timeseries.Panel().title(title).description(says).datasource(DATASOURCE).unit(unit).span(width).height(8)
    panel = panel.targets(_targets(queries, exemplars=exemplars)).no_value(NEVER)
    panel = panel.line_width(1.5).fill_opacity(25 if stacked else 0)
    panel = panel.show_points(kinds.VisibilityMode.AUTO).point_size(4)
    panel = panel.color_scheme(dashboard_builder.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
    mode = kinds.StackingMode.NORMAL if stacked else kinds.StackingMode.NONE
    panel = panel.stacking(common.StackingConfig().mode(mode))
    if floor is not None:
        panel = panel.axis_soft_min(floor)
    if ceiling is not None:
        panel = panel.axis_soft_max(ceiling)
    tooltip = common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING)
    legend = common.VizLegendOptions().display_mode(kinds.LegendDisplayMode.LIST).show_legend(True)
    legend = legend.placement(kinds.LegendPlacement.RIGHT if many else kinds.LegendPlacement.BOTTOM)
    panel = panel.tooltip(tooltip).legend(legend)
    faint = {
        "color": {"mode": "fixed", "fixedColor": GREY},
        "custom.lineWidth": 1,
        "custom.lineStyle": {"fill": "dot", "dash": [0, 4]},
        "custom.hideFrom": {"legend": True, "tooltip": False, "viz": False},
    }
    panel = panel.override_by_regexp("/ (lower|upper)$/", _properties(faint))
    for upper, lower in bands:
        panel = panel.override_by_name(upper, _properties({"custom.fillBelowTo": lower, "custom.fillOpacity": 12}))
    dashed = {
        "color": {"mode": "fixed", "fixedColor": "red"},
        "custom.lineWidth": 1,
        "custom.lineStyle": {"fill": "dash", "dash": [8, 6]},
        "custom.showPoints": "never",
    }
    return panel.override_by_regexp("/^threshold/", _properties(dashed))


def _properties(values: Mapping[str, Any]) -> list[DynamicConfigValue]:
    return [DynamicConfigValue(name, value) for name, value in values.items()]


def number(
    title: str,
    says: str,
    expr: str,
    unit: str = NUMBER,
    *,
    legend: str = "",
    limit: float | None = None,
    appearance: Look | None = None,
) -> stat.Panel:
    """A panel with one number for each series at the end of the time range, which is red from the limit on."""
    steps = [Threshold(None, "text" if limit is None else "green")]
    steps += [] if limit is None else [Threshold(limit, "red")]
    panel = stat.Panel().title(title).description(says).datasource(DATASOURCE).unit(unit).span(4).height(4)
    panel = panel.targets(_targets({expr: legend}, instant=True)).no_value("–")
    panel = panel.graph_mode(kinds.BigValueGraphMode.NONE)
    panel = panel.thresholds(dashboard_builder.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    panel = panel.mappings([_mapping(appearance)] if appearance else []).color_mode(kinds.BigValueColorMode.VALUE)
    return panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))


def timeline(title: str, says: str, queries: Queries) -> statetimeline.Panel:
    """A panel of alarms over time, one line for each series."""
    panel = statetimeline.Panel().title(title).description(says).datasource(DATASOURCE).span(12).height(8)
    panel = panel.targets(_targets(queries)).no_value(NEVER).unit(NUMBER)
    panel = panel.mappings([_mapping({"1": ("firing", "red")})])
    panel = panel.show_value(kinds.VisibilityMode.NEVER).row_height(0.8).fill_opacity(80).line_width(0)
    legend = common.VizLegendOptions().show_legend(False).display_mode(kinds.LegendDisplayMode.HIDDEN)
    return panel.legend(legend.placement(kinds.LegendPlacement.BOTTOM))


def bars(title: str, says: str, expr: str, legend: str) -> bargauge.Panel:
    """A panel with one bar for each bucket of a histogram, over the dashboard's time range."""
    target = prometheus.Dataquery().datasource(DATASOURCE).ref_id("A").expr(expr).legend_format(legend)
    panel = bargauge.Panel().title(title).description(says).datasource(DATASOURCE).span(12).height(_BARS_HEIGHT)
    panel = panel.targets([target.instant().format(PromQueryFormat.HEATMAP)]).no_value(NEVER).unit(NUMBER)
    panel = panel.orientation(kinds.VizOrientation.HORIZONTAL).display_mode(kinds.BarGaugeDisplayMode.BASIC).min(0)
    panel = panel.color_scheme(dashboard_builder.FieldColor().mode(FieldColorModeId.FIXED).fixed_color("blue"))
    return panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).decimals(0)


@dataclass(frozen=True)
class Column:
    """A column of a table: the value of a query, or a label where there is no query.

    Attributes:
        title: The title of the column; "" for a query of which only the labels are used.
        expr: The query.
        unit: Grafana's id of the unit.
        decimals: The number of decimal places.
        appearance: Texts and colours of numbers.
        gauge: Whether to draw a bar from 0 to 1 behind the number.
        width: The width in pixels; None for the remaining width.
        label: The name of the label where it is not the title.
    """

    title: str
    expr: str = ""
    unit: str = NUMBER
    decimals: int | None = None
    appearance: Look | None = None
    gauge: bool = False
    width: int | None = None
    label: str = ""

    @property
    def properties(self) -> list[DynamicConfigValue]:
        """What the column overrides of the panel's properties."""
        found: dict[str, Any] = {} if self.width is None else {"custom.width": self.width}
        if self.expr and self.title:
            found["unit"] = self.unit
            if self.decimals is not None:
                found["decimals"] = self.decimals
            if self.appearance:
                found["mappings"] = [_mapping(self.appearance)]
                found["custom.cellOptions"] = {"type": "color-background", "mode": "basic"}
                found["custom.align"] = "center"
            if self.gauge:
                cell = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
                found |= {"min": 0, "max": 1, "custom.cellOptions": cell}
        return _properties(found)


def _labels(*names: str) -> list[Column]:
    return [Column(name) for name in names]


def table(
    title: str,
    says: str,
    columns: Sequence[Column],
    *,
    width: int = 24,
    height: int = 8,
    empty: str = "none",
    first: str = "",
) -> table_builder.Panel:
    """A table of current values.

    Args:
        title: The panel's title.
        says: The panel's description.
        columns: From left to right.
        width: The width, of 24 columns.
        height: The height in steps of 30 pixels.
        empty: The text of a table without rows.
        first: The column to sort by, largest numbers first.
    """
    values = [column.expr for column in columns if column.expr]
    panel = table_builder.Panel().title(title).description(says).datasource(DATASOURCE).unit(NUMBER).no_value(empty)
    panel = panel.span(width).height(height).cell_height(TableCellHeight.SM).show_header(True).filterable(False)
    panel = panel.targets(_targets(dict.fromkeys(values, ""), table=True))
    if first:
        panel = panel.sort_by([common.TableSortByFieldState().display_name(first).desc(True)])
    # Grafana names the value of a query by its letter; the value of a single query has no letter.
    fields = {expr: f"Value #{letter}" for letter, expr in zip(ascii_uppercase, values, strict=False)}
    if len(values) > 1:
        panel = panel.with_transformation(DataTransformerConfig("merge", options={}))
    else:
        fields = dict.fromkeys(values, "Value")
    names = [fields[column.expr] if column.expr else column.label or column.title for column in columns]
    shown = {name: column.title for name, column in zip(names, columns, strict=True) if column.title}
    order = {
        "excludeByName": dict.fromkeys((name for name in ("Time", *names) if name not in shown), True),
        "indexByName": {name: index for index, name in enumerate(shown)},
        "renameByName": shown,
    }
    panel = panel.with_transformation(DataTransformerConfig("organize", options=order))
    for column in columns:
        if properties := column.properties:
            panel = panel.with_override(MatcherConfig("byName", column.title), properties)
    return panel


def _new(name: str, by: str, *matchers: str) -> str:
    """A query for series that were absent during the last hour."""
    series = at(name, *matchers)
    return f"max by ({by}) ({series}) unless max by ({by}) (max_over_time({series}[{_BEFORE}] offset 1m))"


_ANNOTATIONS: Final = {
    "Alerts that fire": (
        declared.FIRES,
        "red",
        {"titleFormat": "{{alertname}}", "textFormat": "{{pipeline}} {{gate}} {{incident}}", "tagKeys": "severity"},
    ),
    "New builds": (
        _new(declared.BUILD_SEEN, "pipeline, build, index_hash", PIPELINE),
        "blue",
        {"titleFormat": "{{pipeline}}: new build or index", "textFormat": "{{build}} {{index_hash}}", "tagKeys": ""},
    ),
    "New gold": (
        _new(declared.GOLD_INFO, "gold, version"),
        "purple",
        {"titleFormat": "gold set {{gold}}", "textFormat": "version {{version}}", "tagKeys": ""},
    ),
}
"""Query, colour, and further keys of Grafana's Prometheus annotations that the SDK does not know."""


def _variable(name: str, settings: Settings) -> dashboard_builder.QueryVariable:
    """A variable of several values, or of a single one: values of several windows must not be mixed."""
    variable = dashboard_builder.QueryVariable(name).label(name.capitalize()).datasource(DATASOURCE)
    variable = variable.query(_OPTIONS[name]).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    variable = variable.sort(VariableSort.ALPHABETICAL_ASC)
    if name == "window":
        first = USUAL_WINDOW if USUAL_WINDOW in settings.windows else next(iter(settings.windows))
        return variable.multi(False).include_all(False).current(VariableOption(True, first, first))
    all_values = VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).all_value(".+").current(all_values)


def dashboard(name: str, says: str, settings: Settings, variables: Iterable[str], rows: Rows) -> str:
    """A dashboard as JSON for Grafana's provisioning; panels are numbered in their order.

    Args:
        name: The end of the dashboard's uid and of its title.
        says: The dashboard's description.
        settings: The configuration.
        variables: Its variables, besides data source, job and instance.
        rows: Its panels; a heading without panels is left out.
    """
    board = dashboard_builder.Dashboard(f"ragmon: {name}").uid(f"{TAG}-{name}").description(says).tags([TAG])
    board = board.readonly().tooltip(DashboardCursorSync.CROSSHAIR).time("now-6h", "now").refresh("1m")
    source = dashboard_builder.DatasourceVariable("datasource").label("Data source").type("prometheus")
    board = board.timezone("browser").with_variable(source)
    for variable in ("job", "instance", *variables):
        board = board.with_variable(_variable(variable, settings))
    for title, (expr, colour, _) in _ANNOTATIONS.items():
        query = dashboard_builder.AnnotationQuery().name(title).datasource(DATASOURCE).enable(True).hide(False)
        board = board.annotation(query.icon_color(colour).expr(expr))
    link = dashboard_builder.DashboardLink("ragmon").type(DashboardLinkType.DASHBOARDS).tags([TAG]).as_dropdown(False)
    board = board.link(link.include_vars(True).keep_time(True))
    heading = ""
    for panel in rows:
        if isinstance(panel, str):
            heading = panel
        else:
            board = board.with_row(dashboard_builder.Row(heading)) if heading else board
            board, heading = board.with_panel(panel), ""
    document = json.loads(json.dumps(board.build(), cls=JSONEncoder))
    for panel_id, panel in enumerate(document["panels"], start=1):
        panel["id"] = panel_id
    for annotation in document["annotations"]["list"]:
        annotation.update(_ANNOTATIONS[annotation["name"]][2])
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def health(_: Settings) -> Rows:
    """Whether the monitor itself fares well."""
    yield "Now"
    residual = f"sum(abs({at(declared.RESIDUAL)}))"
    says = "Records nobody can account for: received less scored, ignored, dropped, duplicate and pending. 0, or a bug."
    yield number("Unaccounted records", says, residual, limit=1)
    age = f"time() - min by (instance) ({at(declared.LAST_SCORED)})"
    says = "How long ago the last record was scored."
    yield number("Last scored", says, age, SECONDS, legend="{{instance}}", limit=STALE)
    says = "Whether the configuration in force is the one on disk, everywhere."
    yield number("Configuration loaded", says, f"min({at(declared.RELOADED)})", appearance=YES)
    writable = f"min({at(declared.JOURNAL_WRITABLE)})"
    yield number("Journal writable", "Records are refused where it is not.", writable, appearance=YES)
    yield number("Series", "Prometheus series of all replicas in one scrape.", f"sum({at(declared.SERIES)})")
    yield number("Replicas", "How many answer.", f"count({at(declared.BUILD_INFO)})")

    yield "Accounting"
    says = "Records received, scored, and received before, per second, by stage."
    queries = {
        rate(declared.RECEIVED, "stage"): "{{stage}} received",
        rate(declared.RECORDS_SCORED, "stage"): "{{stage}} scored",
        rate(declared.DUPLICATE, "stage"): "{{stage}} duplicate",
    }
    yield lines("Records", says, queries, PER_SECOND, many=True)
    queries = {
        rate(declared.IGNORED, "stage, reason"): "{{stage}} ignored: {{reason}}",
        rate(declared.DROPPED, "stage, reason"): "{{stage}} dropped: {{reason}}",
    }
    says = "Records that are not RAG, and that were lost."
    yield lines("Ignored and dropped", says, queries, PER_SECOND, stacked=True)
    queries = {f"sum by (stage) ({at(declared.PENDING)})": "{{stage}}"}
    yield lines("Pending", "Records received and not scored yet.", queries, NUMBER, ceiling=1)
    queries = {f"sum by (stage, instance) ({at(declared.RESIDUAL)})": "{{stage}} {{instance}}"}
    says = "0; anything else is a bug in ragmon."
    yield lines("Unaccounted records by stage", says, queries, NUMBER, floor=None, ceiling=1)

    yield "What could not be judged"
    queries = {per_minute(declared.UNASSESSED, "metric, reason", 'metric!~".+@.+"'): "{{metric}}: {{reason}}"}
    says = (
        "Requests that a metric applies to but cannot score, by reason, per minute. No number includes them. "
        "A metric with a cut misses the same requests as without it."
    )
    yield lines("Unassessed", says, queries, PER_MINUTE, width=24, many=True)
    queries = {
        per_minute(declared.PRODUCER_DROPPED, "reason"): "lost by producers: {{reason}}",
        per_minute(declared.REFUSED, "reason"): "refused: {{reason}}",
        per_minute(declared.SPANS_DROPPED, "reason"): "spans: {{reason}}",
        per_minute(declared.ORPHANS, ""): "recorded outside of a call",
        per_minute(declared.REDACTION_FAILURES, ""): "text withheld: a redactor failed",
    }
    says = "What never became a record, or arrived without its text, per minute."
    yield lines("Lost on the way", says, queries, PER_MINUTE, ceiling=1)
    queries = {per_minute(declared.FIELDS_UNKNOWN, "field, reason"): "{{field}}: {{reason}}"}
    says = "Fields that spans of other instrumentations do not carry, per minute; `ragmon doctor` names the switch."
    yield lines("Fields unknown", says, queries, PER_MINUTE)

    yield "Probes, judges, labels"
    queries = {per_minute(declared.PROBES, "probe, result"): "{{probe}}: {{result}}"}
    says = "Gold questions that were due, by what became of them, per minute."
    yield lines("Probes", says, queries, PER_MINUTE, stacked=True)
    queries = {per_minute(declared.JUDGE_CALLS, "judge, result"): "{{judge}}: {{result}}"}
    says = "Requests that were due to be judged, by what became of them, per minute."
    yield lines("Judge calls", says, queries, PER_MINUTE, stacked=True)
    queries = {per_minute(declared.LABELS, "result"): "{{result}}"}
    says = "Labels, by what became of them, per minute."
    yield lines("Labels", says, queries, PER_MINUTE, stacked=True)
    queries = {f"sum({at(declared.LABELS_WAITING)})": "waiting"}
    yield lines("Labels that wait", "Labels whose answers have not arrived.", queries, NUMBER, ceiling=1)

    yield "The server"
    queries = {worst(declared.JOURNAL_BYTES, "instance"): "{{instance}}"}
    yield lines("Journal", "Bytes of the journal; `[serve] max_size` bounds it.", queries, BYTES)
    queries = {f"sum({at(declared.PRODUCER_MISSING)})": "missing"}
    says = "Records that producers sent and that have not arrived."
    yield lines("Records missing", says, queries, NUMBER, ceiling=1)
    queries = {
        per_minute(declared.STATE_RESETS, "instance"): "{{instance}} journals set aside",
        per_minute(declared.CLOCK_JUMPS, "instance"): "{{instance}} jumps of the clock",
    }
    says = "Damaged journals that were set aside, jumps of the system's clock, per minute."
    yield lines("Accidents", says, queries, PER_MINUTE, ceiling=1)
    columns = [
        *_labels("instance", "version"),
        Column("series", worst(declared.SERIES, "instance"), decimals=0),
        Column("", worst(declared.BUILD_INFO, "instance, version")),
    ]
    yield table("Replicas and versions", "Who answers, in which version, with how many series.", columns, width=12)


def overview(settings: Settings) -> Rows:
    """Which gates hold and which alarms fire."""
    yield "Now"
    failing = f"sum({worst(declared.GATE_STATUS, _BY, PIPELINE, equals('status', 'fail'))})"
    yield number("Gates that fail", "A gate fails where a replica proves that it does not hold.", failing, limit=1)
    undecided = f"sum(min by ({_BY}) ({at(declared.GATE_STATUS, PIPELINE, equals('status', 'insufficient'))}))"
    yield number("Gates undecided", "Gates for whose verdict no replica has enough data.", undecided)
    for severity, name in ((constants.PAGE, "Pages"), (constants.TICKET, "Tickets"), (constants.LOOK, "Looks")):
        alarm = worst(declared.GATE_ALARM, _BY, PIPELINE, equals("severity", severity))
        says = f"Alarms of severity {severity} that fire; each keeps the false-alarm budget of `[alarms]`."
        yield number(f"{name} firing", says, f"sum({alarm})", limit=1)
    age = f"time() - max({at(declared.LAST_SCORED)})"
    says = "How long ago the last record was scored. Quiet is no data: gates keep what they know of their window."
    yield number("Last scored", says, age, SECONDS, limit=STALE)
    info = worst(declared.INCIDENT_INFO, "pipeline, incident, summary", PIPELINE)
    told = f"topk by (pipeline, incident) (1, {info})"  # replicas that share traffic say it in sentences of their own
    columns = [Column("", told), Column("summary"), Column("incident", width=300), Column("pipeline", width=200)]
    yield table("Incidents", "What is wrong now, in a sentence.", columns, height=5, empty="no incident lasts")
    yield from _gate_tables(settings)

    yield "Alarms"
    firing = f"max by (pipeline, gate, severity) ({at(declared.GATE_ALARM, PIPELINE)} == 1)"
    says = "When which alarm fired: gates by their name, a metric against its own past as `metric:what`."
    yield timeline("Alarms that fired", says, {firing: "{{pipeline}} {{gate}} ({{severity}})"})
    near = {f"{worst(declared.GATE_EVIDENCE, _BY, PIPELINE)} > 0.2": "{{pipeline}} {{gate}}"}
    says = "How near alarms are to firing, from 0 to 1, logarithmic; those above 0.2."
    yield lines("Evidence", says, near, SHARE, ceiling=1, many=True)
    labels = ("alertname", "severity", "pipeline", "gate", "incident")
    columns = [Column("", f"max by ({', '.join(labels)}) ({declared.FIRES})"), *_labels(*labels)]
    yield table("Alerts that fire", "What the alert rules say in Prometheus.", columns)
    seen = Column("", worst(declared.BUILD_SEEN, "pipeline, build, index_hash", PIPELINE))
    columns = [seen, *_labels("pipeline", "build", "index_hash")]
    yield table("Builds and indexes", "Which answered last; at most eight of each pipeline.", columns, width=12)
    columns = [
        *_labels("gold", "version"),
        Column("items", worst(declared.GOLD_ITEMS, "gold"), decimals=0),
        Column("", worst(declared.GOLD_INFO, "gold, version")),
    ]
    yield table("Gold sets", "The gold sets in use, and how many items each has.", columns, width=12)

    for severity, title in ((constants.PAGE, "Gates worth a page"), (constants.TICKET, "Gates worth a ticket")):
        yield title
        for name, same_name in gates(settings).items():
            if same_name[0].severity == severity:
                yield gate_panel(name, same_name, settings)


def _gate_tables(settings: Settings) -> Rows:
    by_name = gates(settings)
    others = [name for name, same_name in by_name.items() if not all_shares(same_name)]

    def columns(matchers: tuple[str, ...], figures: Sequence[Column], samples: str, unit: str) -> list[Column]:
        # Other alarms than those of the gates in this table are named after metrics.
        only = f" and on ({_BY}) {at(declared.GATE_THRESHOLD, *matchers)}"
        alarm, evidence = (of_gate(at(name, PIPELINE)) + only for name in (declared.GATE_ALARM, declared.GATE_EVIDENCE))
        return [
            *_labels("pipeline", "gate"),
            Column("verdict", status(*matchers), appearance=VERDICTS, width=105),
            *figures,
            Column("must be", label="direction", width=85),
            Column("threshold", worst(declared.GATE_THRESHOLD, _BY, *matchers), unit, 1, width=90),
            Column("n", samples, decimals=0, width=75),
            Column("alarm", alarm, appearance=FIRING, width=85),
            Column("evidence", evidence, SHARE, 0, gauge=True, width=120),
            Column("metric"),
            Column("source", width=75),
            Column("window", width=75),
            Column("", worst(declared.GATE_INFO, f"{_BY}, direction, metric, source, window", *matchers)),
        ]

    matchers = (PIPELINE, one_of("gate", others, others=True)) if others else (PIPELINE,)
    estimate = pooled(declared.GATE, _BY, *matchers)
    figures = [Column(name, getattr(estimate, name), SHARE, 1, width=85) for name in ("value", "lower", "upper")]
    says = (
        "The verdict (fail where a replica fails, else pass where one passes), the value with its 95 % interval over "
        "all replicas, the threshold, requests behind it, and how near the gate's alarms are to firing."
    )
    found = columns(matchers, figures, estimate.samples, SHARE)
    height = 2 + len(by_name) - len(others)
    yield table("Gates", says, found, height=height, empty="no gates yet", first="verdict")
    if others:
        matchers = (PIPELINE, one_of("gate", others))
        figures = [Column("value", worst(declared.GATE_VALUE, _BY, *matchers), NUMBER, 2, width=85)]
        found = columns(matchers, figures, worst(declared.GATE_SAMPLES, _BY, *matchers), NUMBER)
        says = "Counts and ratios of times do not add up: of several replicas the largest is shown."
        yield table("Gates on counts and times", says, found, height=3 + len(others), empty="no gates yet")


def families(settings: Settings) -> dict[str, type[metrics.Metric]]:
    """Every metric class that is counted, by name: registered ones, those of plugins, and those of judges."""
    sections = (settings.unconfigured, *settings.pipelines.values())
    judges = (judged(name) for name in sorted({name for section in sections for name in section.judges}))
    return {**metrics.families(), **{family.name: family for family in judges}}


def gates(settings: Settings) -> dict[str, list[Gate]]:
    """The gates of all pipelines by name, in the order they are reported; those of the top level are the last."""
    by_name: dict[str, list[Gate]] = {}
    for pipeline in (*settings.pipelines.values(), settings.unconfigured):
        for gate in pipeline.resolved_gates:
            by_name.setdefault(gate.name, []).append(gate)
    return by_name


def all_shares(gates: Sequence[Gate]) -> bool:
    """Whether the gates of a name judge shares, which add up over replicas; counts and ratios of times do not."""
    return all(gate.kind == "threshold" for gate in gates)


def gate_panel(name: str, gates: Sequence[Gate], settings: Settings) -> timeseries.Panel:
    """The value, the interval and the threshold of the gates of a name in all pipelines."""
    matchers = (PIPELINE, equals("gate", name))
    threshold = {worst(declared.GATE_THRESHOLD, "pipeline", *matchers): "threshold {{pipeline}}"}
    metric = gates[0].metric
    title = name if name == metric else f"{name} ({metric})"
    if not all_shares(gates):
        description = f"What the gate judges ({metric}); of several replicas the largest. Dashes: its threshold."
        value = {worst(declared.GATE_VALUE, "pipeline", *matchers): "{{pipeline}}"}
        return lines(title, description, value | threshold, NUMBER, width=12)
    family = families(settings).get(metric.partition("@")[0])
    text = metric if family is None else family().help
    description = f"{text} Over the gate's window. {_POOLED} Dashes: the threshold."
    estimate = pooled(declared.GATE, "pipeline", *matchers)
    queries = {
        estimate.value: "{{pipeline}}",
        estimate.lower: "{{pipeline}} lower",
        estimate.upper: "{{pipeline}} upper",
    }
    bands = [(f"{name} upper", f"{name} lower") for name in dict.fromkeys(label(gate.pipeline) for gate in gates)]
    return lines(title, description, queries | threshold, SHARE, floor=None, bands=bands)


def metric_panel(family: type[metrics.Metric], settings: Settings) -> timeseries.Panel:
    """A metric over the chosen window, one line for each pipeline, source, gold set and cut-off."""
    labels = ["pipeline", "source", *(["gold"] if family.needs_gold else []), *(["k"] if family.at_k else [])]
    estimate = pooled(windowed(family.name), ", ".join(labels), PIPELINE, SOURCE, WINDOW)
    legend_labels = ("pipeline", "source", "gold") if len(settings.gold) > 1 else ("pipeline", "source")
    legend = " ".join(f"{{{{{name}}}}}" for name in labels if name in legend_labels)
    about = f"{family().help} {'More' if family.better == 'higher' else 'Less'} is better."
    if family.at_k:
        with_cutoff = f'label_replace({estimate.value}, "k", "all", "k", "")'
        description = f"{about} One line for each cut, `all` for the whole list. Over the window chosen above."
        return lines(family.name, description, {with_cutoff: f"{legend} @{{{{k}}}}"}, SHARE, ceiling=1, many=True)
    queries = {estimate.value: legend, estimate.lower: f"{legend} lower", estimate.upper: f"{legend} upper"}
    for name, same_name in gates(settings).items():
        if all_shares(same_name) and same_name[0].metric == family.name:
            expr = at(declared.GATE_THRESHOLD, PIPELINE, equals("gate", name))
            queries[f"max by (pipeline, gate) ({expr})"] = "threshold {{pipeline}} {{gate}}"
    return lines(family.name, f"{about} Over the window chosen above. {_POOLED}", queries, SHARE, floor=None)


def retrieval(settings: Settings) -> Rows:
    """Whether retrieval finds the right documents."""
    retrieval_metrics = [family for family in families(settings).values() if family.area == "retrieval"]
    labels, matchers = "pipeline, source", (PIPELINE, SOURCE)
    yield "Against gold documents"
    yield from (metric_panel(family, settings) for family in retrieval_metrics if family.needs_gold)

    yield "Without gold"
    yield from (metric_panel(family, settings) for family in retrieval_metrics if not family.needs_gold)
    count, total = (rate(f"{declared.DOCUMENTS}_{end}", labels, *matchers) for end in ("count", "sum"))
    queries = {
        f"{total} / {count}": "{{pipeline}} {{source}} mean",
        f"ceil({quantile(0.5, declared.DOCUMENTS, labels, *matchers)})": "{{pipeline}} {{source}} p50",
        f"ceil({quantile(0.95, declared.DOCUMENTS, labels, *matchers)})": "{{pipeline}} {{source}} p95",
    }
    says = "How many documents retrieval returned; quantiles are read from buckets and rounded up to whole documents."
    yield lines("Documents retrieved", says, queries, NUMBER)
    buckets = increase_in_range(f"{declared.DOCUMENTS}_bucket", "le", *matchers)
    says = "How many requests returned at most so many documents, and more than the bar before; over the time shown."
    yield bars("Documents retrieved, distribution", says, buckets, "{{le}}")

    yield "Index and gold"
    hashes = f"count by (pipeline) (count by (pipeline, index_hash) ({at(declared.BUILD_SEEN, PIPELINE)}))"
    says = "How many indexes answered lately, over all builds. More than one outside of a release is worth a look."
    yield lines("Indexes that answer", says, {hashes: "{{pipeline}}"}, NUMBER)
    ways = rate(declared.GOLD_MATCH, "pipeline, how", PIPELINE)
    says = "How the gold items of users' questions were found, requests per second; `none`: there is no gold item."
    yield lines("Gold matches", says, {ways: "{{pipeline}} {{how}}"}, REQUESTS, stacked=True)
    seen = worst(declared.GOLD_ITEMS_SEEN, "pipeline, source, gold", PIPELINE, SOURCE, WINDOW)
    share = f"{seen} / on (gold) group_left () {worst(declared.GOLD_ITEMS, 'gold')}"
    says = "Share of the gold set that was asked in the window; of several replicas the one that saw most."
    yield lines("Gold items seen", says, {share: "{{pipeline}} {{source}} {{gold}}"}, SHARE, ceiling=1)


def traffic(settings: Settings) -> Rows:
    """How many requests there are, how many fail, and how long they take."""
    labels, matchers = "pipeline, source", (PIPELINE, SOURCE)
    yield "Requests"
    calls = rate(declared.REQUESTS, labels, *matchers)
    yield lines("Requests", "All calls, sampled or not, per second.", {calls: "{{pipeline}} {{source}}"}, REQUESTS)
    strata = rate(declared.REQUESTS, "stratum", *matchers)
    says = "All calls by what they were kept for: errors, refusals and slow ones are kept more often than the rest."
    yield lines("Requests by stratum", says, {strata: "{{stratum}}"}, REQUESTS, stacked=True)
    errors = rate(declared.ERRORS, "pipeline, code", PIPELINE)
    says = "Calls of users that ended in an error, by its kind, per second."
    yield lines("Errors by kind", says, {errors: "{{pipeline}} {{code}}"}, REQUESTS, stacked=True)
    failed = rate(declared.ERRORS, "pipeline", PIPELINE)
    of_users = rate(declared.REQUESTS, "pipeline", PIPELINE, equals("source", constants.LIVE))
    says = "Share of users' calls that ended in an error: all errors over all calls, not a mean of replicas."
    yield lines("Share of errors", says, {f"{failed} / {of_users}": "{{pipeline}}"}, SHARE)

    yield "Latency"
    queries = {
        quantile(q, declared.LATENCY, labels, *matchers): f"{{{{pipeline}}}} {{{{source}}}} p{100 * q:g}"
        for q in _QUANTILES
    }
    says = "How long calls take from end to end. Points are traces, where the data source has exemplars."
    yield lines("Latency", says, queries, SECONDS, exemplars=True)
    queries = {
        quantile(q, declared.STAGE_LATENCY, "stage", *matchers): f"{{{{stage}}}} p{100 * q:g}" for q in _QUANTILES
    }
    yield lines("Latency by stage", "How long the stages of sampled calls take.", queries, SECONDS)

    yield "As gates see it"
    for family in families(settings).values():
        if family.area == "traffic":
            yield metric_panel(family, settings)


def answers(settings: Settings) -> Rows:
    """Whether the answers are right, cited and grounded."""
    rows: dict[str, list[Any]] = {"Against gold": [], "Without gold": [], "Judges": [], "Metrics of your own": []}
    for family in families(settings).values():
        if family.area == "answers" and family.name != METRIC:
            heading = "Against gold" if family.needs_gold else "Without gold"
            if issubclass(family, JudgeMetric):
                heading = "Judges"
            elif not family.__module__.startswith(_BUILT_IN):
                heading = "Metrics of your own"
            rows[heading].append(metric_panel(family, settings))
    for heading, panels in rows.items():
        yield heading
        yield from panels

    yield "Labels, by what became of them"
    yield metric_panel(families(settings)[METRIC], settings)
    series_name = f"{declared.PREFIX}{METRIC}{declared.PPI}"
    labels = "pipeline, instance"
    queries = {
        worst(series_name + ending, labels, PIPELINE, WINDOW): f"{{{{pipeline}}}} {{{{instance}}}}{suffix}"
        for ending, suffix in (("", ""), (declared.LOWER, " lower"), (declared.UPPER, " upper"))
    }
    says = (
        f"{METRIC} of all answers, from the labels of some and a score of all (prediction-powered); dots: 95 % "
        "interval. Labels come to one server, so replicas stand side by side."
    )
    yield lines(f"{METRIC}, all answers", says, queries, SHARE, floor=None)
    gain = worst(declared.PROXY_GAIN, f"{labels}, proxy", PIPELINE, WINDOW)
    says = "How many labels each label is worth beside this score; 1: the score does not help."
    yield lines("What a label is worth", says, {gain: "{{pipeline}} {{instance}} {{proxy}}"}, NUMBER)
    queries = {per_minute(declared.LABELS, "result"): "{{result}}"}
    says = "What became of labels, per minute."
    yield lines("Labels", says, queries, PER_MINUTE, stacked=True)

    if any(section.slices for section in (settings.unconfigured, *settings.pipelines.values())):
        yield "Slices"
        labels = "pipeline, metric, source, slice, gold"
        score, scored = (
            increase_in_range(name, labels, PIPELINE, SOURCE) for name in (declared.SLICE_SCORE, declared.SLICE_SCORED)
        )
        columns = [
            *_labels(*labels.split(", ")),
            Column("value", f"{score} / {scored}", SHARE, 1),
            Column("n", f"{scored} > 0", decimals=0),
        ]
        says = "Every gated metric of every slice over the time shown. Small n says little."
        yield table("Gated metrics by slice", says, columns, empty="no slice has data", height=12)


DASHBOARDS: Final[Mapping[str, tuple[Callable[[Settings], Rows], tuple[str, ...], str]]] = {
    "overview": (
        overview,
        ("pipeline",),
        "Which gates hold, by how much and on how many requests; which alarms fire; which builds answer.",
    ),
    "retrieval": (retrieval, _SELECTED, "Does retrieval bring the right documents, how many, and from which index?"),
    "answers": (answers, _SELECTED, "Are the answers right, cited and grounded, and are the right questions refused?"),
    "traffic": (
        traffic,
        _SELECTED,
        "How many requests there are, how many end in an error, how long they take from end to end and by stage.",
    ),
    "health": (
        health,
        (),
        "Is every record accounted for, what could not be judged, and is the monitor itself healthy?",
    ),
}
"""Panels, variables and description of each dashboard, by the end of its uid."""


def generate(settings: Settings) -> dict[str, str]:
    """Every dashboard as the text of a JSON file, by uid."""
    return {
        f"{TAG}-{name}": dashboard(name, says, settings, variables, make(settings))
        for name, (make, variables, says) in DASHBOARDS.items()
    }
