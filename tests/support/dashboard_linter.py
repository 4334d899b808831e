"""The rules of Grafana's dashboard-linter, in Python: the linter is written in Go, and no release of it is at hand.

Each rule yields findings: where, and what is wrong. Exceptions stand in `grafana/.lint`, in the linter's own format,
each with a reason.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import yaml
from grafana_foundation_sdk.models import units

DATASOURCES = ("$datasource", "${datasource}")
DRAWN = ("stat", "singlestat", "graph", "table", "timeseries", "gauge")
"""Kinds of panels the rules on panels look at."""
UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("__")}
COUNTED = ("rate", "irate", "increase")
FUNCTIONS = ("label_names", "label_values", "metrics", "query_result")
_STRING = r'"(?:[^"\\]|\\.)*"'
_SELECTOR = re.compile(
    rf"(?P<before>\w+\s*\(\s*)?(?P<name>[a-zA-Z_:][\w:]*)\{{(?P<matchers>(?:[^{{}}\"]|{_STRING})*)\}}(?P<range>\[[^\]]*\])?"
)
_LABELS = re.compile(r"([a-z_]+)\((.+)\)")


class Finding(NamedTuple):
    """What a rule finds.

    Attributes:
        rule: Its name.
        dashboard: The dashboard's title.
        panel: The panel's title; "" where the dashboard as a whole is meant.
        target: Which query of the panel; None where the panel as a whole is meant.
        says: What is wrong.
    """

    rule: str
    dashboard: str
    panel: str
    target: int | None
    says: str


def lint(document, parse):
    """Everything the rules find in a dashboard.

    Args:
        document: The dashboard.
        parse: Says what is wrong with a PromQL expression that still has Grafana's variables; "" where nothing is.
    """
    for rule, look in ON_DASHBOARDS.items():
        yield from (Finding(rule, document["title"], "", None, says) for says in look(document, parse))
    for panel in (one for one in document["panels"] if one["type"] != "row"):
        for rule, look in ON_PANELS.items():
            yield from (Finding(rule, document["title"], panel["title"], None, says) for says in look(panel))
        for place, target in enumerate(panel.get("targets", ())):
            for rule, look in ON_TARGETS.items():
                found = look(target, parse)
                yield from (Finding(rule, document["title"], panel["title"], place, says) for says in found)


def exceptions(path):
    """What `.lint` leaves out, as findings without their text, each with its reason."""
    excluded = yaml.safe_load(path.read_text(encoding="utf-8"))["exclusions"]
    return {
        (rule, entry["dashboard"], entry.get("panel", ""), entry.get("targetIdx")): entry.get("reason", "")
        for rule, entries in excluded.items()
        for entry in entries["entries"]
    }


def variables(document, kind):
    return [one for one in document["templating"]["list"] if one["type"] == kind]


def template_datasource(document, parse):
    found = variables(document, "datasource")
    if not found:
        yield "has no data source to choose"
    for one in found:
        names = {f"{one['query']}_datasource"} | ({"datasource"} if len(found) == 1 else set())
        labels = {f"{one['query'].title()} data source"} | ({"Data source"} if len(found) == 1 else set())
        if one["name"] not in names:
            yield f"the data source is called {one['name']!r}"
        if one.get("label") not in labels:
            yield f"the data source is labelled {one.get('label')!r}"


def required(name):
    """The rule that a variable is there and as it should be."""

    def look(document, parse):
        found = next((one for one in document["templating"]["list"] if one["name"] == name), None)
        if found is None:
            yield f"has no variable {name}"
            return
        if found.get("datasource", {}).get("uid") not in DATASOURCES:
            yield f"{name} asks another data source"
        if found["type"] != "query":
            yield f"{name} is not a query"
        if found.get("label") != name.title():
            yield f"{name} is labelled {found.get('label')!r}"
        if not found.get("multi"):
            yield f"of {name} only one can be chosen"
        if found.get("allValue") != ".+":
            yield f"all values of {name} are {found.get('allValue')!r}"

    return look


def template_label_promql(document, parse):
    for one in variables(document, "query"):
        found = _LABELS.fullmatch(one["query"])
        if found is None or found[1] not in FUNCTIONS:
            yield f"{one['name']}: {one['query']} is not a query of labels"
        elif wrong := parse(found[2].rpartition(",")[0] or found[2]):
            yield f"{one['name']}: {wrong}"


def template_reload(document, parse):
    for one in variables(document, "query"):
        if one.get("refresh") != 2:
            yield f"{one['name']} is not read again when the time range changes"


def uneditable(document, parse):
    if document.get("editable", True):
        yield "can be edited; what is provisioned would be lost"


def panel_datasource(panel):
    if panel["type"] in DRAWN and panel.get("datasource", {}).get("uid") not in DATASOURCES:
        yield f"asks {panel.get('datasource')}"


def panel_title_description(panel):
    if panel["type"] in DRAWN and not (panel.get("title") and panel.get("description")):
        yield "has no title or no description"


def panel_units(panel):
    if panel["type"] in DRAWN and panel["fieldConfig"]["defaults"].get("unit") not in UNITS:
        yield f"has no unit, or none that exists: {panel['fieldConfig']['defaults'].get('unit')!r}"


def panel_no_targets(panel):
    if panel["type"] in DRAWN and not panel.get("targets"):
        yield "asks nothing"


def is_loki(target):
    return target.get("datasource", {}).get("type") == "loki"


def target_promql(target, parse):
    if not is_loki(target) and (wrong := parse(target["expr"])):
        yield wrong


def target_rate_interval(target, parse):
    for found in _SELECTOR.finditer(target["expr"]):
        function = (found["before"] or "").rstrip("( ")
        if function in ("rate", "irate") and found["range"] != "[$__rate_interval]":
            yield f"{found[0]}: a rate over {found['range']}"


def matcher(name):
    """The rule that every selector asks for the chosen jobs, or instances."""

    def look(target, parse):
        for found in _SELECTOR.finditer(target["expr"]) if not is_loki(target) else ():
            if f'{name}=~"${name}"' not in found["matchers"].split(","):
                yield f"{found[0]}: any {name}"

    return look


def target_counter_agg(target, parse):
    for found in _SELECTOR.finditer(target["expr"]):
        function = (found["before"] or "").rstrip("( ")
        if found["name"].endswith("_total") and (function not in COUNTED or not found["range"]):
            yield f"{found[0]}: a counter that is not turned into a rate"


def target_logql(target, parse):
    if is_loki(target) and target["expr"].count("{") != 1:
        yield "no LogQL"


def target_logql_auto(target, parse):
    if is_loki(target) and re.search(r"\[(?!\$__auto\])", target["expr"]):
        yield "a range that is not $__auto"


ON_DASHBOARDS = {
    "template-datasource-rule": template_datasource,
    "template-job-rule": required("job"),
    "template-instance-rule": required("instance"),
    "template-label-promql-rule": template_label_promql,
    "template-on-time-change-reload-rule": template_reload,
    "uneditable-dashboard-rule": uneditable,
}
ON_PANELS = {
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_title_description,
    "panel-units-rule": panel_units,
    "panel-no-targets-rule": panel_no_targets,
}
ON_TARGETS = {
    "target-promql-rule": target_promql,
    "target-rate-interval-rule": target_rate_interval,
    "target-job-rule": matcher("job"),
    "target-instance-rule": matcher("instance"),
    "target-counter-agg-rule": target_counter_agg,
    "target-logql-rule": target_logql,
    "target-logql-auto-rule": target_logql_auto,
}
RULES = (*ON_DASHBOARDS, *ON_PANELS, *ON_TARGETS)
