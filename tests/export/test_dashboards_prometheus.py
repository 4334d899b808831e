"""Every query of every dashboard, asked of a real Prometheus that scraped two replicas."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import pytest
import yaml

from ragmon.config.load import load
from ragmon.export.families import GATE, PIPELINE, equals, pooled, windowed
from tests.support.alarming import NOON
from tests.support.command_line import ragmon
from tests.support.dashboard_world import ILL, LATER, ROOT, WELL, WRONG, Replica, asked, configuration, panels, read
from tests.support.servers import prometheus

_LEGEND = re.compile(r"\{\{(\w+)\}\}")
_ORGANIZED = "organize"


@pytest.fixture(scope="module")
def world(real, tmp_path_factory):
    """A Prometheus, two replicas it scraped before and after some minutes, and their dashboards."""
    folder = tmp_path_factory.mktemp("dashboards")
    path = configuration(folder)
    settings = load(path, environ={})
    # A process of its own: other tests may have registered metrics in this one.
    assert ragmon("generate", "dashboard", "--config", path, "--output", folder / "grafana").code == 0
    with Replica(settings, 1) as one, Replica(settings, 2) as other:
        replicas = (one, other)
        for replica in replicas:
            replica.run(WELL)
            replica.run(ILL, **WRONG)
        rules = [ROOT / "deploy" / "prometheus" / "ragmon.rules.yml"]
        with prometheus(real("prometheus"), folder, [replica.address for replica in replicas], rules) as server:
            server.wait_for("count(count_over_time(ragmon_series[1h]) > 1)", 2)
            for replica in replicas:
                replica.run(LATER, **WRONG)
            server.wait_for('sum(ragmon_records_scored_total{stage="score"})', one.fed + other.fed)
            server.wait_for('count(ALERTS{alertname="RagmonIncident",alertstate="firing"}) > bool 0', 1)
            yield SimpleNamespace(server=server, replicas=replicas, dashboards=read(folder / "grafana"))


def series(world, expression, **chosen):
    """The series an expression brings, with their labels and numbers."""
    found = world.server.ask("query", query=asked(expression, **chosen))["result"]
    return [(one["metric"], float(one["value"][1])) for one in found]


@pytest.mark.slow
def test_every_query_of_every_panel_brings_series_with_the_labels_its_legend_names(world):
    seen = 0
    for document in world.dashboards.values():
        for panel in panels(document):
            for target in panel["targets"]:
                here = (document["uid"], panel["title"], target["refId"], target["expr"])
                found = series(world, target["expr"])
                assert found, here
                for label in _LEGEND.findall(target["legendFormat"]):
                    assert all(labels.get(label) for labels, _ in found), (here, label)
                seen += 1
    assert seen > 150


@pytest.mark.slow
def test_every_number_is_one_and_every_share_is_between_0_and_1(world):
    for document in world.dashboards.values():
        for panel in panels(document):
            for target in panel["targets"]:
                numbers = [number for _, number in series(world, target["expr"])]
                here = (document["uid"], panel["title"], target["expr"], numbers)
                assert all(map(math.isfinite, numbers)), here
                if panel["fieldConfig"]["defaults"].get("unit") == "percentunit":
                    assert all(-1e-9 <= number <= 1 + 1e-9 for number in numbers), here


@pytest.mark.slow
def test_every_column_of_a_table_is_a_label_or_a_value_that_is_there(world):
    checked = 0
    for document in world.dashboards.values():
        for panel in panels(document):
            if panel["type"] == "table":
                found = [series(world, target["expr"]) for target in panel["targets"]]
                labels = {label for one in found for metric, _ in one for label in metric}
                values = {f"Value #{target['refId']}" for target in panel["targets"]}
                there = labels | ({"Value"} if len(values) == 1 else values)
                (order,) = [one["options"] for one in panel["transformations"] if one["id"] == _ORGANIZED]
                assert set(order["renameByName"]) <= there, panel["title"]
                assert there - set(order["renameByName"]) <= set(order["excludeByName"]), panel["title"]
                checked += 1
    assert checked >= 6


@pytest.mark.slow
def test_every_variable_has_values_to_choose_from(world):
    for document in world.dashboards.values():
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()
                assert world.server.ask(f"label/{label}/values", **{"match[]": asked(selector)}), variable
    window = {found["name"]: found for found in world.dashboards["ragmon-answers"]["templating"]["list"]}["window"]
    values = world.server.ask("label/window/values", **{"match[]": "rag_compliance_samples"})
    assert window["current"]["value"] in values


@pytest.mark.slow
def test_every_annotation_has_events_whose_text_is_filled(world):
    seen = set()
    for annotation in world.dashboards["ragmon-overview"]["annotations"]["list"]:
        found = series(world, annotation["expr"])
        assert found, annotation["expr"]
        for label in _LEGEND.findall(annotation["titleFormat"] + annotation["textFormat"]):
            assert any(labels.get(label) for labels, _ in found), (annotation["name"], label)
        seen.add(annotation["name"])
    assert seen == {"Alerts that fire", "New builds", "New gold"}


@pytest.mark.slow
def test_of_one_replica_value_and_interval_are_its_own(world):
    told = pooled(GATE, "pipeline, gate", PIPELINE, equals("gate", "answer_precision"))
    for replica in world.replicas:
        (outcome,) = [one for one in replica.monitor.outcomes() if one.gate.name == "answer_precision"]
        for expression, expected in (
            (told.value, outcome.value),
            (told.lower, outcome.lower),
            (told.upper, outcome.upper),
            (told.samples, outcome.n),
        ):
            ((_, number),) = series(world, expression, instance=replica.address)
            assert number == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_of_two_replicas_ratios_are_weighed_and_the_interval_holds_that_of_each(world):
    each = [
        found
        for replica in world.replicas
        for found in replica.monitor.snapshot().snapshot.series
        if (found.source, found.window, found.gold, found.slice) == ("live", "1h", "", "")
    ]
    estimates = [found.estimate("error_rate") for found in each]
    told = pooled(windowed("error_rate"), "source", 'window="$window"', 'source="live"')
    (value, lower, upper) = (series(world, one)[0][1] for one in told[:3])
    n = sum(one.n for one in estimates)
    assert value == pytest.approx(sum(one.value * one.n for one in estimates) / n)
    assert (lower, upper) == (min(one.lower for one in estimates), max(one.upper for one in estimates))
    assert lower < value < upper


@pytest.mark.slow
def test_a_gate_that_fails_is_seen_and_so_is_its_alarm(world):
    (panel,) = [found for found in panels(world.dashboards["ragmon-overview"]) if found["title"] == "Gates"]
    (order,) = [found["options"]["renameByName"] for found in panel["transformations"] if found["id"] == _ORGANIZED]
    by_title = {title: name.removeprefix("Value #") for name, title in order.items()}
    expressions = {target["refId"]: target["expr"] for target in panel["targets"]}

    def column(title):
        return {labels["gate"]: number for labels, number in series(world, expressions[by_title[title]])}

    outcomes = {one.gate.name: one for one in world.replicas[0].monitor.outcomes() if one.gate.kind == "threshold"}
    assert set(column("verdict")) == set(outcomes)
    assert column("verdict")["answer_precision"] == 2 == column("verdict")["under_refusal_rate"]
    assert column("verdict")["citation_scope"] == 0
    assert column("alarm")["answer_precision"] == 1 == column("evidence")["answer_precision"]
    assert column("threshold") == {name: one.gate.threshold for name, one in outcomes.items()}


@pytest.mark.slow
def test_the_latency_panel_leads_to_traces_that_can_be_opened(world):
    (panel,) = [found for found in panels(world.dashboards["ragmon-traffic"]) if found["title"] == "Latency"]
    assert all(target["exemplar"] for target in panel["targets"])
    (source,) = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    (link,) = source["jsonData"]["exemplarTraceIdDestinations"]
    times = {"start": 0, "end": 60 * (NOON + 10_000)}
    found = world.server.ask("query_exemplars", query=asked(panel["targets"][0]["expr"]), **times)
    assert {one["seriesLabels"]["source"] for one in found} == {"live", "probe"}
    assert {len(one["labels"][link["name"]]) for series in found for one in series["exemplars"]} == {32}
