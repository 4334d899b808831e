"""Two environments in one Prometheus: staging covers nothing that production lacks, and alerts say whose they are."""

from __future__ import annotations

import json
import re
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pytest
import yaml

from ragmon.config.load import load
from ragmon.core.errors import RagmonError
from ragmon.export.rules import render, rule_groups
from tests.export.test_rules import promtool
from tests.server.test_paging import impatient
from tests.support.alertmanagers import alertmanager_in, listening
from tests.support.deployed import document
from tests.support.servers import prometheus
from tests.support.waiting import wait_for

CASES = Path(__file__).with_name("environments.test.yml")
PROD = 'env="prod"'


@pytest.fixture(scope="module")
def settings():
    return load(CASES.with_name("rules.toml"), environ={})


def failures(real, folder, rules, cases):
    """What promtool says of cases that do not hold; "" where all do."""
    (folder / "ragmon.rules.yml").write_text(rules, encoding="utf-8")
    (folder / "cases.yml").write_text(yaml.safe_dump(cases), encoding="utf-8")
    done = promtool(real, "test", "rules", folder / "cases.yml")
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.slow
def test_a_dead_or_silent_production_is_told_beside_a_live_staging(real, settings, tmp_path):
    cases = yaml.safe_load(CASES.read_text(encoding="utf-8"))
    assert failures(real, tmp_path, render(rule_groups(settings)), cases) == ""


@pytest.mark.slow
def test_rules_of_one_environment_tell_what_is_its_own_alone(real, settings, tmp_path):
    """Of the same series: production's alerts are there, and staging's are not."""
    cases = yaml.safe_load(CASES.read_text(encoding="utf-8"))
    for case in cases["tests"]:
        (check,) = case["promql_expr_test"]
        check["exp_samples"] = [one for one in check["exp_samples"] if PROD in one["labels"]]
    assert failures(real, tmp_path, render(rule_groups(settings, selector=PROD)), cases) == ""


def test_production_that_prometheus_does_not_know_is_missed_by_its_own_rules(real, settings, tmp_path):
    firing = f'ALERTS{{alertname="RagmonDown",alertstate="firing",severity="page",{PROD}}}'
    case = {
        "interval": "1m",
        "input_series": [{"series": 'up{job="ragmon",instance="b",env="staging"}', "values": "1x20"}],
        "promql_expr_test": [
            {
                "expr": 'ALERTS{alertname="RagmonDown",alertstate="firing"}',
                "eval_time": "15m",
                "exp_samples": [{"labels": firing, "value": 1}],
            }
        ],
    }
    cases = {"rule_files": ["ragmon.rules.yml"], "evaluation_interval": "1m", "tests": [case]}
    assert failures(real, tmp_path, render(rule_groups(settings, selector=PROD)), cases) == ""


@pytest.mark.slow
def test_rules_by_label_tell_what_the_usual_ones_do(real, settings, tmp_path):
    cases = yaml.safe_load(CASES.read_text(encoding="utf-8"))
    assert failures(real, tmp_path, render(rule_groups(settings, by=["env"])), cases) == ""


UPS = {
    "goes": {"prod": "1x10", "staging": "1x1600"},
    "goes and comes back": {"prod": "1x10 _x30 1x20", "staging": "1x60"},
    "both go": {"prod": "1x10", "staging": "1x10"},
    "is down": {"prod": "1x10 0x50", "staging": "1x60"},
    "was never there": {},
}


@pytest.mark.parametrize(
    ("prod", "minute", "down"),
    [
        ("goes", 18, []),  # for five minutes a series that ended is still there, and for five an alert waits
        ("goes", 25, ["prod"]),
        ("goes", 1500, []),  # after a day nobody waits for it
        ("goes and comes back", 35, ["prod"]),
        ("goes and comes back", 45, []),
        ("both go", 25, ["prod", "staging"]),
        ("is down", 25, ["prod"]),
        ("was never there", 10, [""]),
    ],
)
def test_rules_by_label_miss_a_deployment_that_prometheus_knew(real, settings, tmp_path, prod, minute, down):
    firing = 'ALERTS{{alertname="RagmonDown",alertstate="firing",severity="page"{0}}}'
    labels = [firing.format(f',env="{name}"' if name else "") for name in down]
    case = {
        "interval": "1m",
        "input_series": [
            {"series": f'up{{job="ragmon",instance="{name}",env="{name}"}}', "values": values}
            for name, values in UPS[prod].items()
        ],
        "promql_expr_test": [
            {
                "expr": 'ALERTS{alertname="RagmonDown",alertstate="firing"}',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": text, "value": 1} for text in labels],
            }
        ],
    }
    cases = {"rule_files": ["ragmon.rules.yml"], "evaluation_interval": "1m", "tests": [case]}
    assert failures(real, tmp_path, render(rule_groups(settings, by=["env"])), cases) == ""


def test_rules_by_label_of_one_environment(settings):
    """The matchers are in every selector, and their labels are kept as well."""
    groups = rule_groups(settings, by=["team"], selector=PROD)
    (down,) = [rule for group in groups for rule in group.rules if rule.name == "RagmonDown"]
    assert down.expr.count(f'up{{job="ragmon",{PROD}}}') == 4
    assert down.expr.count("by (team, env)") == 4


def test_a_label_on_the_command_line_that_is_none_is_refused(settings):
    with pytest.raises(RagmonError, match="--by is not the name of a Prometheus label: data-center"):
        rule_groups(settings, by=["data-center"])


def test_labels_of_the_configuration_and_of_the_selector_are_kept(configured):
    groups = rule_groups(configured('[rules]\nby = ["datacenter"]\n'), selector='env=~"prod|canary", tier!="x"')
    (down,) = [rule for group in groups for rule in group.rules if rule.name == "RagmonDown"]
    assert down.expr.startswith("max by (datacenter, env, tier) (up{")
    for group in groups:
        for rule in group.rules:
            for series in re.findall(r"[a-z_]+:?(?:rag|ragmon)_[a-z0-9_:]+\{([^}]*)\}", rule.expr):
                assert 'env=~"prod|canary", tier!="x"' in series, rule.name


@pytest.mark.parametrize("selector", ["prod", "env=prod", 'env="prod', '{env="prod"}', 'env="prod"} or up{a="b"'])
def test_a_selector_that_is_none_is_refused_with_one_that_is(configured, selector):
    with pytest.raises(RagmonError, match="--selector is not a list of matchers") as caught:
        rule_groups(configured(""), selector=selector)
    assert """--selector 'env="prod"'""" in caught.value.hint


def test_a_label_that_prometheus_could_not_have_is_refused(configured):
    with pytest.raises(RagmonError, match=r"ragmon\.toml:2: rules\.by\[0\] must be the name of a Prometheus label"):
        configured('[rules]\nby = ["data-center"]\n')


class Exposition(ThreadingHTTPServer):
    """Serves the metrics of one environment, with calls that come as many at each scrape."""

    def __init__(self, build, incidents, calls):
        scrapes = count(1000, calls) if calls else None

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                counted = next(scrapes) if scrapes else 1000
                text = (
                    f'ragmon_build_seen_info{{pipeline="shop",build="{build}",index_hash="i"}} 1\n'
                    'ragmon_gate_threshold{pipeline="shop",gate="answer_precision"} 0.8\n'
                    f'rag_e2e_latency_seconds_count{{pipeline="shop",source="live"}} {counted}\n'
                    + incidents
                    * 'ragmon_incident{pipeline="shop",incident="shop-1",severity="page"} 1\n'
                )
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                """Say nothing of requests."""

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.address = f"127.0.0.1:{self.server_port}"


@pytest.mark.slow
def test_people_are_told_of_a_silent_then_dead_production_while_staging_lives_and_pages_on(real, settings, tmp_path):
    """The deployed Alertmanager inhibits within an environment: a dead production hides nothing of staging."""
    rules = tmp_path / "rules.yml"
    rules.write_text(re.sub(r"\bfor: \w+", "for: 1s", render(rule_groups(settings))), encoding="utf-8")
    with ExitStack() as stack:
        hook, told = stack.enter_context(listening())
        (tmp_path / "alertmanager.yml").write_text(json.dumps(impatient(document("alertmanager.yml"), hook)))
        manager = stack.enter_context(alertmanager_in(tmp_path))
        production, staging = (stack.enter_context(Exposition(*of)) for of in (("p7", 0, 0), ("s9", 1, 10)))
        targets = {production.address: {"env": "prod"}, staging.address: {"env": "staging"}}
        watch = prometheus(real("prometheus"), tmp_path, targets, [rules], [manager])
        stack.enter_context(watch)

        def firing():
            labels = [one["labels"] for receiver, one in told if receiver in ("page", "ticket")]
            return {(one["alertname"], one.get("env")) for one in labels}

        wait_for(firing, lambda found: {("RagmonIncident", "staging"), ("RagmonNoData", "prod")} <= found)
        (said,) = {
            one["annotations"]["description"] for _, one in told if one["labels"]["alertname"] == "RagmonIncident"
        }
        assert "Answered last: s9 on index i." in said, "builds of its own environment"
        production.shutdown()
        production.server_close()
        wait_for(firing, lambda found: ("RagmonDown", "prod") in found)
        of_staging = {"alertname": "RagmonIncident", "env": "staging"}
        ended = [one for _, one in told if one["status"] == "resolved" and of_staging.items() <= one["labels"].items()]
        assert ended == [], "staging's page goes on"
        assert not firing() & {("RagmonIncident", "prod"), ("RagmonDown", "staging"), ("RagmonNoData", "staging")}
