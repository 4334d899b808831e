"""The Helm chart lints, renders in every mode and agrees with itself and with `deploy/kubernetes`; no cluster is asked.

Without `helm-python-sdk` the tests are skipped; without `kubernetes-validate` those of the schemas are.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import tomllib
from itertools import pairwise

import pytest
import yaml

from ragmon.config.services import StreamTable
from ragmon.core.addresses import is_known
from tests.support.deployed import DEPLOY, PORTS, ROOT, Strict, document
from tests.support.manifests import (
    CHECKS,
    container,
    helm,
    jobs,
    kustomized,
    named,
    of_kind,
    own,
    pod,
    problems,
    valid,
)

CHART = DEPLOY / "chart"
MODES = ("single", "stream")
VARIANTS = {
    "as it stands": {},
    "watched": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "stack"}},
        "prometheusRule": {
            "enabled": True,
            "rules": (DEPLOY / "prometheus" / "ragmon.rules.yml").read_text(encoding="utf-8"),
        },
    },
    "changed": {
        "replicas": 5,
        "image": {"repository": "images.example/r", "tag": "7"},
        "imagePullSecrets": [{"name": "pull"}],
        "config": (DEPLOY / "ragmon.toml").read_text(encoding="utf-8"),
        "files": {"gold.jsonl": (ROOT / "ragmon" / "demo" / "gold.jsonl").read_text(encoding="utf-8")},
        "hosts": ["quality.example"],
        "token": {"secret": "write"},
        "persistence": {"enabled": False},
        "networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}]},
    },
    "with a disk of a class": {"persistence": {"storageClass": "fast", "size": "20Gi"}},
}
DEFAULTS = document("chart/values.yaml")
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


@functools.cache
def rendered(mode, variant="as it stands"):
    """The manifests of a mode; what Helm tells people is left out."""
    told = helm({"mode": mode, **VARIANTS[variant]})
    assert isinstance(told, dict), told
    texts = [text for name, text in sorted(told.items()) if name.endswith(".yaml")]
    return [one for text in texts for one in yaml.load_all(text, Strict) if one is not None]


def configuration(made, folder, name="ragmon"):
    """A ConfigMap as a folder of files."""
    for file, text in named(made, "ConfigMap", name)["data"].items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder


every = pytest.mark.parametrize(("mode", "variant"), [(mode, variant) for mode in MODES for variant in VARIANTS])


@every
def test_helm_finds_nothing_to_say(mode, variant):
    """But that the chart has no icon, which is information alone."""
    said = helm({"mode": mode, **VARIANTS[variant]}, lint=True)
    assert said["errors"] == []
    assert [message["error"] for message in said["messages"] if message["severity"] > 1] == []


@pytest.mark.slow
@every
def test_kubernetes_schemas_know_every_key(mode, variant):
    for one in own(rendered(mode, variant)):
        valid(one)


@every
@pytest.mark.parametrize("holds", CHECKS, ids=lambda check: check.__name__)
def test_manifests_agree_with_each_other(mode, variant, holds):
    holds(rendered(mode, variant))


@every
def test_every_configuration_is_one_ragmon_takes(mode, variant, tmp_path):
    made = rendered(mode, variant)
    folder = configuration(made, tmp_path)
    read = {
        argument.removeprefix("/etc/ragmon/")
        for one in of_kind(made, "StatefulSet", "Deployment")
        for argument in container(one)["args"]
        if argument.startswith("/etc/ragmon/")
    }
    assert {path.name for path in folder.glob("*.toml")} == read | {"ragmon.toml"}
    for name in sorted(read):
        assert problems(folder / name) == []
        serve = tomllib.loads((folder / name).read_text())["serve"]
        assert {key: serve[key] for key in PORTS} == {key: f"0.0.0.0:{port}" for key, port in PORTS.items()}


@pytest.mark.parametrize("mode", MODES)
def test_the_admin_service_is_a_name_the_asked_pod_knows(mode, tmp_path):
    made = rendered(mode, "changed")
    (service,) = [one for one in of_kind(made, "Service") if one["metadata"]["name"].endswith("-admin")]
    part = service["spec"]["selector"]["app.kubernetes.io/component"]
    (asked,) = [
        one for one in of_kind(made, "StatefulSet") if one["metadata"]["labels"]["app.kubernetes.io/component"] == part
    ]
    file = configuration(made, tmp_path) / container(asked)["args"][-1].rpartition("/")[2]
    known = tomllib.loads(file.read_text())["serve"]["hosts"]
    name = service["metadata"]["name"]
    for host in (name, f"{name}.quality", f"{name}.quality.svc", "quality.example"):
        assert is_known(f"{host}:{PORTS['admin']}", known)


@pytest.mark.parametrize("mode", MODES)
def test_alarms_are_in_one_pod(mode):
    (judge,) = [
        one
        for one in of_kind(rendered(mode), "StatefulSet")
        if one["metadata"]["name"] == ("ragmon" if mode == "single" else "ragmon-head")
    ]
    assert judge["spec"]["replicas"] == 1


@every
def test_only_what_is_asked_for_needs_the_prometheus_operator(mode, variant):
    monitoring = of_kind(rendered(mode, variant), "ServiceMonitor", "PrometheusRule")
    if variant != "watched":
        assert monitoring == []
        return
    assert all(one["metadata"]["labels"]["release"] == "stack" for one in of_kind(monitoring, "ServiceMonitor"))
    (rules,) = of_kind(monitoring, "PrometheusRule")
    assert rules["spec"] == document("prometheus/ragmon.rules.yml")


def test_the_head_is_the_job_the_rules_ask_for_and_workers_are_not():
    assert jobs(rendered("single", "watched")) == {"ragmon": "ragmon"}
    assert jobs(rendered("stream", "watched")) == {"ragmon-head": "ragmon", "ragmon-work": "ragmon-work"}


@pytest.mark.parametrize("mode", MODES)
def test_the_image_is_that_of_the_chart_unless_another_one_is_named(mode):
    version = document("chart/Chart.yaml")["appVersion"]
    for variant, image in {
        "as it stands": f"registry.example/ragmon:{version}",
        "changed": "images.example/r:7",
    }.items():
        for one in of_kind(rendered(mode, variant), "StatefulSet", "Deployment"):
            assert container(one)["image"] == image


@pytest.mark.parametrize("mode", MODES)
def test_without_a_disk_the_state_is_a_folder_that_goes_with_the_pod(mode):
    for one in of_kind(rendered(mode, "changed"), "StatefulSet"):
        assert "volumeClaimTemplates" not in one["spec"]
        (disk,) = [volume for volume in pod(one)["volumes"] if volume["name"] == "state"]
        assert disk["emptyDir"] == {}
    for one in of_kind(rendered(mode, "with a disk of a class"), "StatefulSet"):
        (claim,) = one["spec"]["volumeClaimTemplates"]
        assert claim["spec"]["storageClassName"] == "fast"


def test_the_stream_is_that_of_the_file(tmp_path):
    folder = configuration(rendered("stream"), tmp_path)
    one, other = (tomllib.loads((where / "stream.toml").read_text()) for where in (folder, DEPLOY))
    assert one["stream"] == other["stream"]
    assert one["serve"]["from"] == other["serve"]["from"] == "stream"
    assert set(DEFAULTS["stream"]) - {"partitions"} <= set(StreamTable.model_fields)


def test_workers_are_those_of_kustomize():
    one, other = rendered("stream"), kustomized("stream")
    chart, plain = (named(made, "Deployment", "ragmon-work") for made in (one, other))
    assert {key: container(chart)[key] for key in container(plain)} == container(plain)
    assert chart["spec"]["strategy"] == plain["spec"]["strategy"]
    scalers = [named(made, "HorizontalPodAutoscaler", "ragmon-work")["spec"] for made in (one, other)]
    assert scalers[0] == {**scalers[1], "minReplicas": DEFAULTS["replicas"]}


@pytest.mark.parametrize("mode", MODES)
def test_a_release_of_another_name_has_names_of_its_own(mode):
    told = helm({"mode": mode}, name="staging")
    made = [one for name, text in told.items() if name.endswith(".yaml") for one in yaml.load_all(text, Strict) if one]
    assert all(one["metadata"]["name"].startswith("staging-ragmon") for one in made)
    for holds in CHECKS:
        holds(made)


@pytest.mark.parametrize("mode", MODES)
def test_the_notes_name_services_and_the_secret_there_are(mode):
    told = helm({"mode": mode})
    (text,) = [text for name, text in told.items() if name.endswith("NOTES.txt")]
    made = rendered(mode)
    services = {one["metadata"]["name"] for one in of_kind(made, "Service")}
    assert {name.partition(".")[0] for name in re.findall(r"http://(\S+?):4318", text)} <= services
    assert re.findall(r"service/(\S+)", text) == ["ragmon-admin"]
    assert "create secret generic ragmon --namespace quality" in text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"mode": "several"}, "mode"),
        ({"replicas": 0}, "replicas"),
        ({"replica": 3}, "replica"),
        ({"config": ""}, "config"),
        ({"files": {"server.toml": "x"}}, "server.toml"),
        ({"prometheusRule": {"enabled": True}}, "rules"),
        ({"mode": "stream", "autoscaling": {"maxReplicas": 13}}, "only 12 workers have something to do"),
        ({"mode": "stream", "replicas": 13}, "make the first one smaller"),
    ],
)
def test_values_that_cannot_work_are_refused(values, said):
    told = helm(values)
    assert isinstance(told, str)
    assert said in told


def test_the_schema_knows_every_value_and_every_value_is_in_the_schema():
    def compare(values, schema):
        if "properties" not in schema:
            return
        assert schema["additionalProperties"] is False
        assert set(values) == set(schema["properties"]) - {"global"}
        for key, value in values.items():
            if isinstance(value, dict):
                compare(value, schema["properties"][key])

    compare(DEFAULTS, SCHEMA)


def test_every_template_is_rendered_in_some_mode():
    templates = {path.name for path in (CHART / "templates").iterdir() if path.suffix == ".yaml"}
    seen = {
        name.rpartition("/")[2]
        for mode in MODES
        for name, text in helm({"mode": mode, **VARIANTS["watched"]}).items()
        if name.endswith(".yaml") and any(yaml.safe_load_all(text))
    }
    assert templates <= seen


def test_what_the_readme_sets_are_values_of_the_chart():
    (command,) = re.findall(r"helm install ragmon deploy/chart .*(?:\n    .*)*", (DEPLOY / "README.md").read_text())
    words = shlex.split(command)
    paths = [word.partition("=")[0] for flag, word in pairwise(words) if flag in ("--set", "--set-file")]
    assert len(paths) == 5
    for path in paths:
        first, _, second = path.partition(".")
        assert second in ("", r"gold\.jsonl") or second in DEFAULTS[first]
        assert first in DEFAULTS
