"""The kinds of panels every dashboard is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_uppercase
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders import dashboard as dashboard_builder
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DynamicConfigValue,
    FieldColorModeId,
    MatcherConfig,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
SHARE: Final = "percentunit"
NUMBER: Final = "none"
REQUESTS: Final = "reqps"
PER_SECOND: Final = "cps"
PER_MINUTE: Final = "cpm"
SECONDS: Final = "s"
GREY: Final = "rgba(120, 120, 120, 0.8)"
STALE: Final = 900
"""Seconds without a scored record that are worth a look, as in the alert on it."""
NEVER: Final = "nothing here in this time"
"""What a panel says that has no data."""
Look = Mapping[str, tuple[str, str]]
"""A text and a colour for a number."""
VERDICTS: Final[Look] = {"0": ("pass", "green"), "1": ("insufficient", "#8e8e8e"), "2": ("fail", "red")}
FIRING: Final[Look] = {"0": ("no", "transparent"), "1": ("firing", "red")}


class Query(NamedTuple):
    """A query of a panel over time.

    Attributes:
        expr: PromQL.
        legend: What its series are called.
        exemplar: Ask for exemplars as well.
    """

    expr: str
    legend: str
    exemplar: bool = False


def targets(queries: Sequence[Query], *, instant: bool = False, table: bool = False) -> list[Builder[Dataquery]]:
    """The queries as Grafana sends them."""
    found: list[Builder[Dataquery]] = []
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        one = prometheus.Dataquery().datasource(DATASOURCE).ref_id(letter).expr(query.expr).legend_format(query.legend)
        one = one.instant() if instant or table else one.range()
        one = one.exemplar(True) if query.exemplar else one
        found.append(one.format(PromQueryFormat.TABLE if table else PromQueryFormat.TIME_SERIES))
    return found


def lines(
    title: str,
    says: str,
    queries: Sequence[Query],
    unit: str,
    *,
    stacked: bool = False,
    floor: float | None = 0,
    ceiling: float | None = None,
    width: int = 12,
    many: bool = False,
    bands: Iterable[tuple[str, str]] = (),
) -> timeseries.Panel:
    """Lines over time.

    Args:
        title: Of the panel.
        says: What it shows.
        queries: Names that end in `lower`, `upper` are drawn as faint dots, those that begin with `threshold` as
            dashes.
        unit: Grafana's id of it.
        stacked: On top of one another.
        floor: Where the axis begins, as long as nothing lies below.
        ceiling: Where it ends.
        width: Of 24.
        many: There may be more lines than fit below: their names stand on the right, where they can be scrolled.
        bands: Names of series between which is shaded: the upper, the lower.
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
    return _thresholds(_bounds(_names(panel, many=many), bands))


def _names(panel: timeseries.Panel, *, many: bool) -> timeseries.Panel:
    """Where the names of the lines stand: in a legend, and at the cursor."""
    panel = panel.tooltip(
        common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING)
    )
    legend = common.VizLegendOptions().display_mode(kinds.LegendDisplayMode.LIST).show_legend(True)
    return panel.legend(legend.placement(kinds.LegendPlacement.RIGHT if many else kinds.LegendPlacement.BOTTOM))


def _bounds(panel: timeseries.Panel, bands: Iterable[tuple[str, str]]) -> timeseries.Panel:
    """Bounds are seen where they are looked for, and do not fill the legend."""
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


def _thresholds(panel: timeseries.Panel) -> timeseries.Panel:
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
    query: Query,
    unit: str,
    *,
    limit: float | None = None,
    look: Look | None = None,
    width: int = 4,
) -> stat.Panel:
    """One number for each series.

    Args:
        title: Of the panel.
        says: What it shows.
        query: What is asked, as of now.
        unit: Grafana's id of it.
        limit: From here on it is red; None: it has no colour.
        look: Texts and colours of numbers.
        width: Of 24.
    """
    steps = [Threshold(None, "text" if limit is None else "green")]
    steps += [] if limit is None else [Threshold(limit, "red")]
    panel = stat.Panel().title(title).description(says).datasource(DATASOURCE).unit(unit).span(width).height(4)
    panel = panel.targets(targets([query], instant=True)).no_value("–").graph_mode(kinds.BigValueGraphMode.NONE)
    panel = panel.thresholds(dashboard_builder.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    panel = panel.mappings([mapping(look)] if look else []).color_mode(kinds.BigValueColorMode.VALUE)
    return panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))


def timeline(title: str, says: str, query: Query, look: Look, *, width: int = 12) -> statetimeline.Panel:
    """States over time, one line for each series."""
    panel = statetimeline.Panel().title(title).description(says).datasource(DATASOURCE).span(width).height(8)
    panel = panel.targets(targets([query])).no_value(NEVER).unit(NUMBER).mappings([mapping(look)])
    panel = panel.show_value(kinds.VisibilityMode.NEVER).row_height(0.8).fill_opacity(80).line_width(0)
    legend = common.VizLegendOptions().show_legend(False).display_mode(kinds.LegendDisplayMode.HIDDEN)
    return panel.legend(legend.placement(kinds.LegendPlacement.BOTTOM))


def bars(title: str, says: str, query: Query, unit: str, *, width: int = 12) -> bargauge.Panel:
    """One bar for each bucket of a histogram, over the time that is shown."""
    asked = prometheus.Dataquery().datasource(DATASOURCE).ref_id("A").expr(query.expr).legend_format(query.legend)
    panel = bargauge.Panel().title(title).description(says).datasource(DATASOURCE).span(width).height(8)
    panel = panel.targets([asked.instant().format(PromQueryFormat.HEATMAP)]).no_value(NEVER).unit(unit)
    panel = panel.orientation(kinds.VizOrientation.HORIZONTAL).display_mode(kinds.BarGaugeDisplayMode.BASIC).min(0)
    panel = panel.color_scheme(dashboard_builder.FieldColor().mode(FieldColorModeId.FIXED).fixed_color("blue"))
    return panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).decimals(0)


def mapping(look: Look) -> ValueMap:
    """Texts and colours in place of numbers."""
    return ValueMap(
        {key: ValueMappingResult(text, colour, index=n) for n, (key, (text, colour)) in enumerate(look.items())}
    )


def named(title: str) -> MatcherConfig:
    """The field of this name."""
    return MatcherConfig("byName", title)
