"""Tables of panels: queries side by side, one row for each combination of their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from grafana_foundation_sdk.builders import common
from grafana_foundation_sdk.builders import table as table_builder
from grafana_foundation_sdk.models.common import TableCellHeight
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue

from ragmon.dashboards.panels import DATASOURCE, NUMBER, Look, Query, mapping, named, targets

_TIME: Final = "Time"


@dataclass(frozen=True)
class Label:
    """A column that is a label.

    Attributes:
        name: The label.
        title: Of the column.
        width: In pixels; None: what is left.
    """

    name: str
    title: str
    width: int | None = None


@dataclass(frozen=True)
class Value:
    """A column that is what a query says.

    Attributes:
        expr: The query.
        title: Of the column; "" for a query that is asked for its labels alone.
        unit: Grafana's id of it.
        decimals: How many are shown.
        look: Texts and colours of numbers.
        gauge: A bar from 0 to 1 behind the number.
        width: In pixels; None: what is left.
    """

    expr: str
    title: str
    unit: str = NUMBER
    decimals: int | None = None
    look: Look | None = None
    gauge: bool = False
    width: int | None = None


def table(
    title: str,
    says: str,
    columns: Sequence[Label | Value],
    *,
    width: int = 24,
    height: int = 8,
    empty: str = "none",
    first: str = "",
) -> table_builder.Panel:
    """A table of what holds now.

    Args:
        title: Of the panel.
        says: What it shows.
        columns: From left to right.
        width: Of 24.
        height: In steps of 30 pixels.
        empty: What is said where there is no row.
        first: The column whose largest numbers come first.
    """
    asked = [column for column in columns if isinstance(column, Value)]
    panel = table_builder.Panel().title(title).description(says).datasource(DATASOURCE).unit(NUMBER).no_value(empty)
    panel = panel.span(width).height(height).cell_height(TableCellHeight.SM).show_header(True).filterable(False)
    panel = panel.targets(targets([Query(column.expr, "") for column in asked], table=True))
    if first:
        panel = panel.sort_by([common.TableSortByFieldState().display_name(first).desc(True)])
    if len(asked) > 1:
        panel = panel.with_transformation(DataTransformerConfig("merge", options={}))
    panel = panel.with_transformation(DataTransformerConfig("organize", options=_order(columns, _fields(asked))))
    for column in columns:
        if properties := _properties(column):
            panel = panel.with_override(named(column.title), properties)
    return panel


def _fields(asked: Sequence[Value]) -> dict[str, str]:
    """What Grafana calls the value of each query."""
    if len(asked) == 1:
        return {asked[0].expr: "Value"}
    return {column.expr: f"Value #{chr(ord('A') + place)}" for place, column in enumerate(asked)}


def _order(columns: Sequence[Label | Value], fields: dict[str, str]) -> dict[str, object]:
    """Which fields are shown, where, and under which name."""
    names = [column.name if isinstance(column, Label) else fields[column.expr] for column in columns]
    shown = {name: column.title for name, column in zip(names, columns, strict=True) if column.title}
    hidden = [name for name in (_TIME, *names) if name not in shown]
    return {
        "excludeByName": dict.fromkeys(hidden, True),
        "indexByName": {name: place for place, name in enumerate(shown)},
        "renameByName": shown,
    }


def _properties(column: Label | Value) -> list[DynamicConfigValue]:
    found = [] if column.width is None else [DynamicConfigValue("custom.width", column.width)]
    if isinstance(column, Label) or not column.title:
        return found if column.title else []
    found.append(DynamicConfigValue("unit", column.unit))
    if column.decimals is not None:
        found.append(DynamicConfigValue("decimals", column.decimals))
    if column.look:
        found.append(DynamicConfigValue("mappings", [mapping(column.look)]))
        found.append(DynamicConfigValue("custom.cellOptions", {"type": "color-background", "mode": "basic"}))
        found.append(DynamicConfigValue("custom.align", "center"))
    if column.gauge:
        cell = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        found += [DynamicConfigValue("min", 0), DynamicConfigValue("max", 1)]
        found.append(DynamicConfigValue("custom.cellOptions", cell))
    return found
