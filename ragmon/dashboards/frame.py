"""What every dashboard has around its panels: variables, annotations, links, time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from grafana_foundation_sdk.builders import dashboard as dashboard_builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from ragmon.config.settings import Settings
from ragmon.core import series_names
from ragmon.dashboards.panels import DATASOURCE
from ragmon.dashboards.promql import FIRES, PIPELINE, at

TAG: Final = "ragmon"
USUAL_WINDOW: Final = "1h"
_EVERYTHING: Final = ".+"
_SAMPLES: Final = f"{series_names.PREFIX}.+{series_names.SAMPLES}"
_OPTIONS: Final = {
    "job": f"label_values({series_names.BUILD_INFO}, job)",
    "instance": f'label_values({series_names.BUILD_INFO}{{job=~"$job"}}, instance)',
    "pipeline": f"label_values({at(series_names.GATE_THRESHOLD)}, pipeline)",
    "source": f'label_values({{__name__=~"{_SAMPLES}",job=~"$job",instance=~"$instance"}}, source)',
    "window": f'label_values({{__name__=~"{_SAMPLES}",job=~"$job",instance=~"$instance"}}, window)',
}
_BEFORE: Final = "1h"
"""What was not seen for so long is new."""


def _new(name: str, by: str, *matchers: str) -> str:
    """Series that nobody saw in the time before."""
    series = at(name, *matchers)
    return f"max by ({by}) ({series}) unless max by ({by}) (max_over_time({series}[{_BEFORE}] offset 1m))"


_ANNOTATIONS: Final = {
    "Alerts that fire": (
        FIRES,
        "red",
        {"titleFormat": "{{alertname}}", "textFormat": "{{pipeline}} {{alarm}}", "tagKeys": "severity"},
    ),
    "New builds": (
        _new(series_names.BUILD_SEEN, "pipeline, build, index_hash", PIPELINE),
        "blue",
        {"titleFormat": "{{pipeline}}: new build or index", "textFormat": "{{build}} {{index_hash}}", "tagKeys": ""},
    ),
    "New gold": (
        _new(series_names.GOLD_INFO, "gold, version"),
        "purple",
        {"titleFormat": "gold set {{gold}}", "textFormat": "version {{version}}", "tagKeys": ""},
    ),
}
"""Query, colour, and what Grafana's Prometheus shows of it: keys the SDK does not know."""


class Frame:
    """A dashboard under construction.

    Args:
        name: What its uid ends with.
        title: Of the dashboard.
        says: What it answers.
        settings: The configuration.
        variables: What can be chosen, beside the data source, the job and the instance.
    """

    def __init__(self, name: str, title: str, says: str, settings: Settings, variables: Sequence[str]) -> None:
        found = dashboard_builder.Dashboard(title).uid(f"{TAG}-{name}").description(says).tags([TAG]).readonly()
        found = found.tooltip(DashboardCursorSync.CROSSHAIR).time("now-6h", "now").refresh("1m").timezone("browser")
        found = found.with_variable(_datasource())
        for variable in ("job", "instance", *variables):
            found = found.with_variable(_window(settings) if variable == "window" else _several(variable))
        for title_, (expr, colour, _) in _ANNOTATIONS.items():
            asked = dashboard_builder.AnnotationQuery().name(title_).datasource(DATASOURCE).enable(True).hide(False)
            found = found.annotation(asked.icon_color(colour).expr(expr))
        link = (
            dashboard_builder.DashboardLink("ragmon").type(DashboardLinkType.DASHBOARDS).tags([TAG]).as_dropdown(False)
        )
        self._built = found.link(link.include_vars(True).keep_time(True))

    def row(self, title: str, panels: Sequence[Any]) -> None:
        """A heading, and its panels from left to right; nothing where there are none."""
        if panels:
            self._built = self._built.with_row(dashboard_builder.Row(title))
            for panel in panels:
                self._built = self._built.with_panel(panel)

    def json(self) -> str:
        """The dashboard as Grafana provisions it; panels are numbered in their order."""
        document = json.loads(json.dumps(self._built.build(), cls=JSONEncoder))
        for place, panel in enumerate(document["panels"], start=1):
            panel["id"] = place
        for annotation in document["annotations"]["list"]:
            annotation.update(_ANNOTATIONS[annotation["name"]][2])
        return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _datasource() -> dashboard_builder.DatasourceVariable:
    return dashboard_builder.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _asked(name: str) -> dashboard_builder.QueryVariable:
    found = dashboard_builder.QueryVariable(name).label(name.capitalize()).datasource(DATASOURCE).query(_OPTIONS[name])
    return found.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)


def _several(name: str) -> dashboard_builder.QueryVariable:
    """A variable of which several values may be chosen; all at first."""
    every = VariableOption(selected=True, text=["All"], value=["$__all"])
    return _asked(name).multi(True).include_all(True).all_value(_EVERYTHING).current(every)


def _window(settings: Settings) -> dashboard_builder.QueryVariable:
    """One window: numbers of several would be told as one."""
    first = USUAL_WINDOW if USUAL_WINDOW in settings.windows else next(iter(settings.windows))
    return _asked("window").multi(False).include_all(False).current(VariableOption(True, first, first))
