"""The dashboards keep the rules of Grafana's linter, and each rule finds what it is for."""

from __future__ import annotations

import json
import urllib.error
from copy import deepcopy

import pytest

from tests.support.alarming import SEVERAL, write_config
from tests.support.command_line import ragmon
from tests.support.dashboard_linter import RULES, exceptions, lint
from tests.support.dashboard_world import GRAFANA, asked, panels, read
from tests.support.servers import prometheus

DASHBOARDS = read(GRAFANA)
OVERVIEW = DASHBOARDS["ragmon-overview"]


@pytest.fixture(scope="module")
def parse(real, tmp_path_factory):
    """What a real Prometheus says of an expression; "" where it has nothing to say."""
    with prometheus(real("prometheus"), tmp_path_factory.mktemp("parser"), []) as server:

        def look(expression):
            try:
                server.ask("format_query", query=asked(expression))
            except urllib.error.HTTPError as error:
                return json.load(error)["error"]
            return ""

        yield look


def test_nothing_is_found_but_what_is_excepted_and_every_exception_is_needed(parse):
    excepted = exceptions(GRAFANA / ".lint")
    assert all(excepted.values()), "an exception without a reason"
    found = [finding for document in DASHBOARDS.values() for finding in lint(document, parse)]
    assert {finding[:4] for finding in found} == set(excepted), found


HOSTILE = r"""
[pipelines.'a "b" \ | $c']
[gates.'more than (half) "right" \ | 50.5%']
metric = "answer_precision"
at_least = 0.5
[gates.'p95.latency|total']
metric = "latency"
kind = "quantile_ratio"
at_most = 2.0
[gates.'index "hash"']
kind = "distinct"
at_most = 1.0
"""
"""Names people may give, although they mean something in PromQL."""


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", SEVERAL, HOSTILE], ids=["defaults", "several pipelines", "hostile names"])
def test_whatever_the_configuration_nothing_new_is_found(text, parse, tmp_path):
    path = write_config(tmp_path, text)
    assert ragmon("generate", "dashboard", "--config", path, "--output", tmp_path / "grafana").code == 0
    found = [finding for document in read(tmp_path / "grafana").values() for finding in lint(document, parse)]
    assert {finding[:4] for finding in found} == set(exceptions(GRAFANA / ".lint")), found


def variable(document, name):
    return next(one for one in document["templating"]["list"] if one["name"] == name)


def panel(document, kind="timeseries"):
    return next(one for one in panels(document) if one["type"] == kind)


def target(document):
    return panel(document)["targets"][0]


BROKEN = {
    "template-datasource-rule": lambda one: variable(one, "datasource").update(label="Source"),
    "template-job-rule": lambda one: variable(one, "job").update(allValue=".*"),
    "template-instance-rule": lambda one: variable(one, "instance").update(multi=False),
    "template-label-promql-rule": lambda one: variable(one, "pipeline").update(query="label_values(up{, job)"),
    "template-on-time-change-reload-rule": lambda one: variable(one, "job").update(refresh=1),
    "uneditable-dashboard-rule": lambda one: one.update(editable=True),
    "panel-datasource-rule": lambda one: panel(one).update(datasource={"uid": "prometheus"}),
    "panel-title-description-rule": lambda one: panel(one).update(description=""),
    "panel-units-rule": lambda one: panel(one)["fieldConfig"]["defaults"].update(unit="percent_unit"),
    "panel-no-targets-rule": lambda one: panel(one).update(targets=[]),
    "target-promql-rule": lambda one: target(one).update(expr="sum("),
    "target-rate-interval-rule": lambda one: target(one).update(
        expr='rate(x_total{job=~"$job",instance=~"$instance"}[5m])'
    ),
    "target-job-rule": lambda one: target(one).update(expr='x{instance=~"$instance"}'),
    "target-instance-rule": lambda one: target(one).update(expr='x{job=~"$job",instance="a"}'),
    "target-counter-agg-rule": lambda one: target(one).update(expr='x_total{job=~"$job",instance=~"$instance"}'),
    "target-logql-rule": lambda one: target(one).update(datasource={"type": "loki"}, expr="rate("),
    "target-logql-auto-rule": lambda one: target(one).update(datasource={"type": "loki"}, expr="rate({a=1}[5m])"),
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_finds_what_it_is_for_and_no_other_rule_does(rule, parse):
    document = deepcopy(OVERVIEW)
    BROKEN[rule](document)
    before = set(lint(OVERVIEW, parse))
    found = {finding.rule for finding in set(lint(document, parse)) - before}
    assert found == {rule}


def test_there_are_seventeen_rules():
    assert len(RULES) == 17
