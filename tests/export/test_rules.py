"""Rules from ragmon.toml: every alert is proved both ways by promtool, and what could never fire is refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from ragmon.config.load import load
from ragmon.core.errors import RagmonError
from ragmon.export.rules import render, rule_groups, rule_scopes
from tests.support.command_line import ragmon

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMMITTED = {
    ("prometheus", "ragmon.toml"): "prometheus/ragmon.rules.yml",
    ("prometheus", "stream.toml"): "prometheus/ragmon.kafka.rules.yml",
    ("kubernetes", "ragmon.toml"): "kubernetes/base/prometheusrule.yaml",
    ("kubernetes", "stream.toml"): "kubernetes/stream/prometheusrule.yaml",
}
MANY = """
plugins = []
[pipelines.support]
[pipelines.support.gates.answer_precision]
at_least = 0.9
[pipelines.support.gates.precision-de]
metric = "answer_precision"
at_least = 0.8
source = "probe"
gold = "support"
slice = { lang = "de" }
[pipelines.support.gates."recall@5"]
at_least = 0.6
[pipelines.support.gates.correct]
metric = "answer_correct"
at_least = 0.8
[pipelines."sales & ümläut".gates.error_rate]
at_most = 0.02
[pipelines."sales & ümläut".gates.latency_p95]
metric = "latency"
kind = "quantile_ratio"
at_most = 1.3
[pipelines."sales & ümläut".gates.index_hash]
kind = "distinct"
at_most = 1.0
[slices]
lang = ["de", "en"]
[gold.support]
path = "gold.jsonl"
pipeline = "support"
[metrics]
answered_within = "5s"
[links]
runbook = "https://wiki.example/runbook#{alert}"
dashboard = "https://grafana.example/"
"""


def rules_of(settings, *, alerts):
    """The rules of a configuration by their names."""
    found = defaultdict(list)
    for group in rule_groups(settings):
        for rule in group.rules:
            if rule.alert == alerts:
                found[rule.name].append(rule)
    return found


@pytest.fixture(scope="module")
def deployed():
    return load(DEPLOY / "ragmon.toml", environ={})


@pytest.fixture
def many(configured, tmp_path):
    """Two pipelines with every kind of gate."""
    (tmp_path / "gold.jsonl").write_text('{"qid": "a", "question": "A?", "answerable": false}\n')
    return configured(MANY)


def promtool(real, *arguments):
    """Run promtool to its end; it takes a third less time where it collects garbage less often."""
    command = [real("promtool"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "GOGC": "400"})


def written(settings, folder):
    """The rules as a file."""
    rules = folder / "ragmon.rules.yml"
    rules.write_text(render(rule_groups(settings)), encoding="utf-8")
    return rules


CASES = Path(__file__).with_name("rules.test.yml")


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """The rules that the cases of `rules.test.yml` are about, beside these."""
    folder = tmp_path_factory.mktemp("cases")
    written(load(CASES.with_name("rules.toml"), environ={}), folder)
    shutil.copy(CASES, folder)
    return folder


@pytest.mark.slow
def test_alerts_fire_when_they_must_and_only_then(real, tested):
    done = promtool(real, "test", "rules", tested / CASES.name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("config", ["ragmon.toml", "stream.toml"])
@pytest.mark.parametrize("form", ["prometheus", "kubernetes"])
def test_what_is_committed_is_what_would_be_generated(form, config):
    file = DEPLOY / COMMITTED[form, config]
    done = ragmon("generate", "rules", "--config", DEPLOY / config, "--format", form, "--output", file, "--check")
    assert (done.code, done.err) == (0, "")


@pytest.mark.slow
def test_the_committed_rules_pass_promtool(real):
    done = promtool(real, "check", "rules", "--lint=all", "--lint-fatal", DEPLOY / "prometheus" / "ragmon.rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_rules_of_several_pipelines_and_every_kind_of_gate_pass_promtool(real, many, tmp_path):
    rules = written(many, tmp_path)
    done = promtool(real, "check", "rules", "--lint=all", "--lint-fatal", rules)
    assert done.returncode == 0, done.stdout + done.stderr


def test_severities_are_those_people_route_by(deployed):
    """Incidents bring their own: page or ticket."""
    said = {
        name: {rule.labels.get("severity") for rule in rules} for name, rules in rules_of(deployed, alerts=True).items()
    }
    assert {name for name, severities in said.items() if severities == {None}} == {"RagmonIncident"}
    assert set().union(*said.values()) == {None, "page", "ticket", "info", "none"}
    pages = {name for name, severities in said.items() if "page" in severities}
    assert pages == {"RagmonDown", "RagmonJournalNotWritable"}, (
        "beside alarms with a budget only what makes ragmon blind"
    )


def test_every_alert_says_what_it_is_and_where_to_read_on(many):
    for name, rules in rules_of(many, alerts=True).items():
        for rule in rules:
            assert set(rule.annotations) == {"summary", "description", "runbook_url", "dashboard_url"}
            assert rule.annotations["runbook_url"] == f"https://wiki.example/runbook#{name.lower()}"
            assert "{{ $labels.pipeline }}" not in rule.annotations["dashboard_url"], "a name is no part of an address"
            assert rule.annotations["dashboard_url"].startswith("https://grafana.example/d/ragmon-overview")


def test_every_alert_has_its_place_in_the_runbook():
    headings = re.findall(r"^## (Ragmon\w+)$", (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(rules_of(load(DEPLOY / "stream.toml", environ={}), alerts=True))


def test_names_of_recorded_rules_have_level_metric_and_operation(deployed):
    own = [name for name in rules_of(deployed, alerts=False) if not name.startswith(("rag_", "retriever_"))]
    assert all(re.fullmatch(r"[a-z_]+:(rag|ragmon)_[a-z0-9_]+:[a-z0-9_]+", name) for name in own), own


@pytest.mark.slow
def test_check_finds_a_file_somebody_changed_and_one_that_is_missing(tmp_path):
    target = tmp_path / "ragmon.rules.yml"
    ask = ("generate", "rules", "--config", DEPLOY / "ragmon.toml", "--output", target)
    missing = ragmon(*ask, "--check")
    assert (missing.code, missing.out) == (1, f"{target}: missing\n")
    assert not target.exists()
    assert ragmon(*ask).code == 0
    assert ragmon(*ask, "--check").code == 0
    target.write_text(target.read_text().replace("+ 0.8\n", "+ 0.5\n"))
    changed = ragmon(*ask, "--check")
    assert (changed.code, changed.out) == (1, f"{target}: out of date\n")
    assert "+ 0.5\n" in target.read_text()


@pytest.mark.slow
def test_check_finds_that_a_file_is_no_text(tmp_path):
    target = tmp_path / "ragmon.rules.yml"
    target.write_bytes(b"\xff\xfe")
    done = ragmon("generate", "rules", "--config", DEPLOY / "ragmon.toml", "--output", target, "--check")
    assert (done.code, done.out) == (1, f"{target}: out of date\n")


@pytest.mark.slow
def test_check_without_a_file_is_a_usage_error(tmp_path):
    error, _ = ragmon("generate", "rules", "--config", DEPLOY / "ragmon.toml", "--check").error
    assert "--output" in error


def test_the_operators_rules_are_the_same_ones(deployed):
    plain = yaml.safe_load(render(rule_groups(deployed)))
    wrapped = yaml.safe_load(render(rule_groups(deployed), "kubernetes"))
    assert wrapped["kind"] == "PrometheusRule"
    assert wrapped["spec"] == plain


def test_without_gates_what_watches_ragmon_itself_is_left(configured, real, tmp_path):
    settings = configured("[gates]\n[pipeline]\nname = 'quiet'\n")
    rules = written(settings, tmp_path)
    assert promtool(real, "check", "rules", "--lint=all", rules).returncode == 0
    assert {"RagmonDown", "RagmonNoData", "RagmonAccountingMismatch"} <= set(rules_of(settings, alerts=True))


@pytest.mark.slow
def test_names_that_look_like_templates_or_expressions_give_rules_that_load(real, configured, tmp_path):
    name = '{{ $labels }} "q\\uote" |.*+[x'
    settings = configured(f"""
[pipelines.'{name}'.gates.'{{{{b `ü` "']
metric = "error_rate"
at_most = 0.02
[pipelines.other]
""")
    done = promtool(real, "check", "rules", "--lint=all", "--lint-fatal", written(settings, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_gate_has_at_most_36_rules_in_300_lines(configured):
    text = render(rule_groups(configured("[gates.answer_precision]\nat_least = 0.8\n")))
    assert len(re.findall(r"- (?:alert|record):", text)) <= 36
    assert len(text.splitlines()) <= 300


def test_alerts_on_streams_are_there_where_a_stream_is_configured(configured):
    streams = {"RagmonPartitionBehind", "RagmonStreamIncomplete", "RagmonStreamConfigsDiffer"}
    alone = set(rules_of(configured(""), alerts=True))
    assert not streams & alone
    streamed = configured('[stream]\nbrokers = "kafka.example:9092"\n')
    assert set(rules_of(streamed, alerts=True)) == alone | streams


def test_pipelines_with_the_top_level_gates_share_rules_and_one_with_its_own_has_a_set(configured):
    """Whatever their names: a list of names would lack the pipelines that come later."""
    own = configured(
        '[gates.compliance]\nat_least = 0.9\n[pipelines.a]\n[pipelines."b.c".gates.coverage]\nat_least = 0.7\n'
    )
    top, alone = rule_scopes(own)
    assert (top.names, top.matchers, top.unnamed) == (("a",), ('pipeline!~"b\\\\.c"',), True)
    assert (alone.names, alone.matchers, alone.unnamed) == (("b.c",), ('pipeline="b.c"',), False)
    assert [gate.name for gate in alone.gates] == ["compliance", "coverage"]
    (everything,) = rule_scopes(configured("[pipeline]\nname = 'shop'\n"))
    assert (everything.names, everything.matchers) == (("shop",), ())


def test_rules_for_configured_pipelines_alone_leave_another_ragmons_alone(configured):
    settings = configured("[pipelines.a]\n[pipelines.b.gates.compliance]\nat_least = 0.9\n")
    groups = rule_groups(settings, configured_only=True)
    recorded = [rule.expr for group in groups for rule in group.rules if not rule.alert and "_score_total" in rule.expr]
    own = [expr for expr in recorded if "rag_compliance_score_total{" in expr]
    assert own
    assert all('pipeline=~"a"' in expr or 'pipeline="b"' in expr for expr in own)
    with pytest.raises(RagmonError, match="names no pipeline"):
        rule_groups(configured(""), configured_only=True)
