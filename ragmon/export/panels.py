"""Panels, tables, and the frame of every dashboard: variables, annotations, links and time range."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Final, NamedTuple

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

from ragmon.config.settings import Settings
from ragmon.export.families import (
    BUILD_INFO,
    BUILD_SEEN,
    FIRES,
    GATE_THRESHOLD,
    GOLD_INFO,
    PIPELINE,
    PREFIX,
    SAMPLES,
    at,
)

DATASOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
SHARE: Final = "percentunit"
NUMBER: Final = "none"
REQUESTS: Final = "reqps"
PER_SECOND: Final = "cps"
PER_MINUTE: Final = "cpm"
SECONDS: Final = "s"
GREY: Final = "rgba(120, 120, 120, 0.8)"
STALE: Final = 900
"""Seconds without a scored record after which the panel turns red, as in the alert on it."""
NEVER: Final = "nothing here in this time"
"""The text of a panel without data."""
Look = Mapping[str, tuple[str, str]]
"""The text and the colour of each number."""
VERDICTS: Final[Look] = {"0": ("pass", "green"), "1": ("insufficient", "#8e8e8e"), "2": ("fail", "red")}
FIRING: Final[Look] = {"0": ("no", "transparent"), "1": ("firing", "red")}
_BARS_HEIGHT: Final = 9
"""Steps of 30 pixels in which ten bars fit without a scroll bar."""
TAG: Final = "ragmon"
USUAL_WINDOW: Final = "1h"
_EVERYTHING: Final = ".+"
_SAMPLES: Final = f"{PREFIX}.+{SAMPLES}"
_OPTIONS: Final = {
    "job": f"label_values({BUILD_INFO}, job)",
    "instance": f'label_values({BUILD_INFO}{{job=~"$job"}}, instance)',
    "pipeline": f"label_values({at(GATE_THRESHOLD)}, pipeline)",
    "source": f'label_values({{__name__=~"{_SAMPLES}",job=~"$job",instance=~"$instance"}}, source)',
    "window": f'label_values({{__name__=~"{_SAMPLES}",job=~"$job",instance=~"$instance"}}, window)',
}
_BEFORE: Final = "1h"
"""A series that was absent for this long is new."""
_TIME: Final = "Time"


class PanelQuery(NamedTuple):
    """A query of a panel over time.

    Attributes:
        expr: PromQL.
        legend: The legend of its series.
        exemplar: Whether to query exemplars as well.
    """

    expr: str
    legend: str
    exemplar: bool = False


def targets(queries: Sequence[PanelQuery], *, instant: bool = False, table: bool = False) -> list[Builder[Dataquery]]:
    """The queries in Grafana's form."""
    builders: list[Builder[Dataquery]] = []
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        target = (
            prometheus.Dataquery().datasource(DATASOURCE).ref_id(letter).expr(query.expr).legend_format(query.legend)
        )
        target = target.instant() if instant or table else target.range()
        target = target.exemplar(True) if query.exemplar else target
        builders.append(target.format(PromQueryFormat.TABLE if table else PromQueryFormat.TIME_SERIES))
    return builders


def lines(
    title: str,
    says: str,
    queries: Sequence[PanelQuery],
    unit: str,
    *,
    stacked: bool = False,
    floor: float | None = 0,
    ceiling: float | None = None,
    width: int = 12,
    many: bool = False,
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
        bands: Names of series between which the panel is shaded: the upper, the lower.
    """
    panel = timeseries.Panel().title(title).description(says).datasource(DATASOURCE).unit(unit).span(width).height(8)
    panel = panel.targets(targets(queries)).no_value(NEVER).line_width(1.5).fill_opacity(25 if stacked else 0)
    panel = panel.show_points(kinds.VisibilityMode.AUTO).point_size(4)
    panel = panel.color_scheme(dashboard_builder.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
    mode = kinds.StackingMode.NORMAL if stacked else kinds.StackingMode.NONE
    panel = panel.stacking(common.StackingConfig().mode(mode))
    if floor is not None:
        panel = panel.axis_soft_min(floor)
    if ceiling is not None:
        panel = panel.axis_soft_max(ceiling)
    return _with_thresholds(_with_bounds(_with_legend(panel, many=many), bands))


def _with_legend(panel: timeseries.Panel, *, many: bool) -> timeseries.Panel:
    panel = panel.tooltip(
        common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING)
    )
    legend = common.VizLegendOptions().display_mode(kinds.LegendDisplayMode.LIST).show_legend(True)
    return panel.legend(legend.placement(kinds.LegendPlacement.RIGHT if many else kinds.LegendPlacement.BOTTOM))


def _with_bounds(panel: timeseries.Panel, bands: Iterable[tuple[str, str]]) -> timeseries.Panel:
    """The panel with faint bounds that are not in the legend, and with shaded bands."""
    faint = [
        DynamicConfigValue("color", {"mode": "fixed", "fixedColor": GREY}),
        DynamicConfigValue("custom.lineWidth", 1),
        DynamicConfigValue("custom.lineStyle", {"fill": "dot", "dash": [0, 4]}),
        DynamicConfigValue("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
    ]
    panel = panel.override_by_regexp("/ (lower|upper)$/", faint)
    for upper, lower in bands:
        shade = [DynamicConfigValue("custom.fillBelowTo", lower), DynamicConfigValue("custom.fillOpacity", 12)]
        panel = panel.override_by_name(upper, shade)
    return panel


def _with_thresholds(panel: timeseries.Panel) -> timeseries.Panel:
    dashed = [
        DynamicConfigValue("color", {"mode": "fixed", "fixedColor": "red"}),
        DynamicConfigValue("custom.lineWidth", 1),
        DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}),
        DynamicConfigValue("custom.showPoints", "never"),
    ]
    return panel.override_by_regexp("/^threshold/", dashed)


def number(
    title: str,
    says: str,
    query: PanelQuery,
    unit: str,
    *,
    limit: float | None = None,
    appearance: Look | None = None,
    width: int = 4,
) -> stat.Panel:
    """A panel with one number for each series.

    Args:
        title: The panel's title.
        says: The panel's description.
        query: The query, evaluated at the end of the time range.
        unit: Grafana's id of the unit.
        limit: The number from which on it is red; None for no colour.
        appearance: Texts and colours of numbers.
        width: The width, of 24 columns.
    """
    steps = [Threshold(None, "text" if limit is None else "green")]
    steps += [] if limit is None else [Threshold(limit, "red")]
    panel = stat.Panel().title(title).description(says).datasource(DATASOURCE).unit(unit).span(width).height(4)
    panel = panel.targets(targets([query], instant=True)).no_value("–").graph_mode(kinds.BigValueGraphMode.NONE)
    panel = panel.thresholds(dashboard_builder.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    panel = panel.mappings([mapping(appearance)] if appearance else []).color_mode(kinds.BigValueColorMode.VALUE)
    return panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))


def timeline(title: str, says: str, query: PanelQuery, appearance: Look, *, width: int = 12) -> statetimeline.Panel:
    """A panel of states over time, one line for each series."""
    panel = statetimeline.Panel().title(title).description(says).datasource(DATASOURCE).span(width).height(8)
    panel = panel.targets(targets([query])).no_value(NEVER).unit(NUMBER).mappings([mapping(appearance)])
    panel = panel.show_value(kinds.VisibilityMode.NEVER).row_height(0.8).fill_opacity(80).line_width(0)
    legend = common.VizLegendOptions().show_legend(False).display_mode(kinds.LegendDisplayMode.HIDDEN)
    return panel.legend(legend.placement(kinds.LegendPlacement.BOTTOM))


def bars(title: str, says: str, query: PanelQuery, unit: str, *, width: int = 12) -> bargauge.Panel:
    """A panel with one bar for each bucket of a histogram, over the dashboard's time range."""
    target = prometheus.Dataquery().datasource(DATASOURCE).ref_id("A").expr(query.expr).legend_format(query.legend)
    panel = bargauge.Panel().title(title).description(says).datasource(DATASOURCE).span(width).height(_BARS_HEIGHT)
    panel = panel.targets([target.instant().format(PromQueryFormat.HEATMAP)]).no_value(NEVER).unit(unit)
    panel = panel.orientation(kinds.VizOrientation.HORIZONTAL).display_mode(kinds.BarGaugeDisplayMode.BASIC).min(0)
    panel = panel.color_scheme(dashboard_builder.FieldColor().mode(FieldColorModeId.FIXED).fixed_color("blue"))
    return panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).decimals(0)


def mapping(appearance: Look) -> ValueMap:
    """Grafana's mapping from numbers to texts and colours."""
    return ValueMap(
        {key: ValueMappingResult(text, colour, index=n) for n, (key, (text, colour)) in enumerate(appearance.items())}
    )


def named(title: str) -> MatcherConfig:
    """A matcher for the field of this name."""
    return MatcherConfig("byName", title)


def _new(name: str, by: str, *matchers: str) -> str:
    """A query for series that were absent during the last hour."""
    series = at(name, *matchers)
    return f"max by ({by}) ({series}) unless max by ({by}) (max_over_time({series}[{_BEFORE}] offset 1m))"


_ANNOTATIONS: Final = {
    "Alerts that fire": (
        FIRES,
        "red",
        {"titleFormat": "{{alertname}}", "textFormat": "{{pipeline}} {{alarm}}", "tagKeys": "severity"},
    ),
    "New builds": (
        _new(BUILD_SEEN, "pipeline, build, index_hash", PIPELINE),
        "blue",
        {"titleFormat": "{{pipeline}}: new build or index", "textFormat": "{{build}} {{index_hash}}", "tagKeys": ""},
    ),
    "New gold": (
        _new(GOLD_INFO, "gold, version"),
        "purple",
        {"titleFormat": "gold set {{gold}}", "textFormat": "version {{version}}", "tagKeys": ""},
    ),
}
"""Query, colour, and further keys of Grafana's Prometheus annotations that the SDK does not know."""


class DashboardBuilder:
    """A dashboard under construction.

    Args:
        name: The end of the dashboard's uid.
        title: The dashboard's title.
        says: The dashboard's description.
        settings: The configuration.
        variables: Its variables, besides data source, job and instance.
    """

    def __init__(self, name: str, title: str, says: str, settings: Settings, variables: Sequence[str]) -> None:
        dashboard = dashboard_builder.Dashboard(title).uid(f"{TAG}-{name}").description(says).tags([TAG]).readonly()
        dashboard = (
            dashboard.tooltip(DashboardCursorSync.CROSSHAIR).time("now-6h", "now").refresh("1m").timezone("browser")
        )
        dashboard = dashboard.with_variable(_datasource())
        for variable in ("job", "instance", *variables):
            dashboard = dashboard.with_variable(_window(settings) if variable == "window" else _several(variable))
        for title_, (expr, colour, _) in _ANNOTATIONS.items():
            query = dashboard_builder.AnnotationQuery().name(title_).datasource(DATASOURCE).enable(True).hide(False)
            dashboard = dashboard.annotation(query.icon_color(colour).expr(expr))
        link = (
            dashboard_builder.DashboardLink("ragmon").type(DashboardLinkType.DASHBOARDS).tags([TAG]).as_dropdown(False)
        )
        self._dashboard = dashboard.link(link.include_vars(True).keep_time(True))

    def row(self, title: str, panels: Sequence[Any]) -> None:
        """Add a heading and its panels from left to right; nothing without panels."""
        if panels:
            self._dashboard = self._dashboard.with_row(dashboard_builder.Row(title))
            for panel in panels:
                self._dashboard = self._dashboard.with_panel(panel)

    def json(self) -> str:
        """The dashboard as JSON for Grafana's provisioning; panels are numbered in their order."""
        document = json.loads(json.dumps(self._dashboard.build(), cls=JSONEncoder))
        for panel_id, panel in enumerate(document["panels"], start=1):
            panel["id"] = panel_id
        for annotation in document["annotations"]["list"]:
            annotation.update(_ANNOTATIONS[annotation["name"]][2])
        return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _datasource() -> dashboard_builder.DatasourceVariable:
    return dashboard_builder.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _query_variable(name: str) -> dashboard_builder.QueryVariable:
    variable = (
        dashboard_builder.QueryVariable(name).label(name.capitalize()).datasource(DATASOURCE).query(_OPTIONS[name])
    )
    return variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)


def _several(name: str) -> dashboard_builder.QueryVariable:
    all_values = VariableOption(selected=True, text=["All"], value=["$__all"])
    return _query_variable(name).multi(True).include_all(True).all_value(_EVERYTHING).current(all_values)


def _window(settings: Settings) -> dashboard_builder.QueryVariable:
    """The variable of the window, with a single choice: values of several windows must not be mixed."""
    first = USUAL_WINDOW if USUAL_WINDOW in settings.windows else next(iter(settings.windows))
    return _query_variable("window").multi(False).include_all(False).current(VariableOption(True, first, first))


@dataclass(frozen=True)
class LabelColumn:
    """A table column with a label.

    Attributes:
        name: The label.
        title: The title of the column.
        width: The width in pixels; None for the remaining width.
    """

    name: str
    title: str
    width: int | None = None


@dataclass(frozen=True)
class ValueColumn:
    """A table column with the value of a query.

    Attributes:
        expr: The query.
        title: The title of the column; "" for a query of which only the labels are used.
        unit: Grafana's id of the unit.
        decimals: The number of decimal places.
        appearance: Texts and colours of numbers.
        gauge: Whether to draw a bar from 0 to 1 behind the number.
        width: The width in pixels; None for the remaining width.
    """

    expr: str
    title: str
    unit: str = NUMBER
    decimals: int | None = None
    appearance: Look | None = None
    gauge: bool = False
    width: int | None = None


def table(
    title: str,
    says: str,
    columns: Sequence[LabelColumn | ValueColumn],
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
    values = [column for column in columns if isinstance(column, ValueColumn)]
    panel = table_builder.Panel().title(title).description(says).datasource(DATASOURCE).unit(NUMBER).no_value(empty)
    panel = panel.span(width).height(height).cell_height(TableCellHeight.SM).show_header(True).filterable(False)
    panel = panel.targets(targets([PanelQuery(column.expr, "") for column in values], table=True))
    if first:
        panel = panel.sort_by([common.TableSortByFieldState().display_name(first).desc(True)])
    if len(values) > 1:
        panel = panel.with_transformation(DataTransformerConfig("merge", options={}))
    # Grafana names the value of a query by its letter; the value of a single query has no letter.
    fields = {column.expr: f"Value #{letter}" for letter, column in zip(ascii_uppercase, values, strict=False)}
    if len(values) == 1:
        fields = {values[0].expr: "Value"}
    names = [column.name if isinstance(column, LabelColumn) else fields[column.expr] for column in columns]
    shown = {name: column.title for name, column in zip(names, columns, strict=True) if column.title}
    order = {
        "excludeByName": dict.fromkeys((name for name in (_TIME, *names) if name not in shown), True),
        "indexByName": {name: index for index, name in enumerate(shown)},
        "renameByName": shown,
    }
    panel = panel.with_transformation(DataTransformerConfig("organize", options=order))
    for column in columns:
        if properties := _properties(column):
            panel = panel.with_override(named(column.title), properties)
    return panel


def _properties(column: LabelColumn | ValueColumn) -> list[DynamicConfigValue]:
    properties = [] if column.width is None else [DynamicConfigValue("custom.width", column.width)]
    if isinstance(column, LabelColumn) or not column.title:
        return properties if column.title else []
    properties.append(DynamicConfigValue("unit", column.unit))
    if column.decimals is not None:
        properties.append(DynamicConfigValue("decimals", column.decimals))
    if column.appearance:
        properties.append(DynamicConfigValue("mappings", [mapping(column.appearance)]))
        properties.append(DynamicConfigValue("custom.cellOptions", {"type": "color-background", "mode": "basic"}))
        properties.append(DynamicConfigValue("custom.align", "center"))
    if column.gauge:
        cell = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        properties += [DynamicConfigValue("min", 0), DynamicConfigValue("max", 1)]
        properties.append(DynamicConfigValue("custom.cellOptions", cell))
    return properties
