"""kustomize's ways beyond one server agree with themselves, with each other's files and with Kubernetes' schemas."""

from __future__ import annotations

import re
import shutil
import tomllib

import pytest

from tests.support.deployed import DEPLOY, ROOT, document
from tests.support.manifests import (
    CHECKS,
    container,
    jobs,
    kustomized,
    named,
    of_kind,
    own,
    pod,
    problems,
    valid,
)

WAYS = ("", "stream")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
STREAM = tomllib.loads((DEPLOY / "stream.toml").read_text())["stream"]


@pytest.fixture
def folder(tmp_path):
    """`/etc/ragmon` as the README's command puts it together."""
    for path in DEPLOY.glob("*.toml"):
        shutil.copy(path, tmp_path)
    shutil.copy(ROOT / "ragmon" / "demo" / "gold.jsonl", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["ragmon", "stream"])
def test_every_configuration_is_one_ragmon_takes(folder, name):
    assert problems(folder / f"{name}.toml") == []


def test_a_key_that_is_not_known_is_found(folder):
    (folder / "wrong.toml").write_text('extend = "stream.toml"\nwindow = 3\n[stream]\ntopic = "t"\n')
    window, topic = problems(folder / "wrong.toml")
    assert "wrong.toml:2: window is not a known key" in window
    assert "wrong.toml:4: stream.topic is not a known key" in topic


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_kubernetes_schemas_know_every_key(way):
    for one in own(kustomized(way)):
        valid(one)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("holds", CHECKS, ids=lambda check: check.__name__)
def test_manifests_agree_with_each_other(way, holds):
    holds(kustomized(way))


@pytest.mark.parametrize("way", WAYS)
def test_everything_is_in_one_namespace_and_of_this_version(way):
    made = kustomized(way)
    assert {one["metadata"]["namespace"] for one in made} == {"ragmon"}
    images = {container(one)["image"] for one in of_kind(made, "StatefulSet", "Deployment")}
    assert images == {f"registry.example/ragmon:{VERSION}"}


@pytest.mark.parametrize("way", WAYS)
def test_every_file_of_a_way_is_used(way):
    here = DEPLOY / "kubernetes" / (way or "base")
    told = document(f"kubernetes/{way or 'base'}/kustomization.yaml")
    used = {*told["resources"], *(patch["path"] for patch in told.get("patches", ()))}
    assert {path.name for path in here.iterdir()} == used - {"../base"} | {"kustomization.yaml"}


def test_the_readme_puts_into_the_configuration_what_the_pods_read():
    text = (DEPLOY / "README.md").read_text()
    blocks = re.findall(r"^```bash\n(.+?)^```", text, re.DOTALL | re.MULTILINE)
    (block,) = [one for one in blocks if "kubectl apply --kustomize deploy/kubernetes/stream\n" in one]
    (command,) = re.findall(r"kubectl create configmap ragmon --namespace ragmon(?: .*\\\n)* .*", block)
    for one in of_kind(kustomized("stream"), "StatefulSet", "Deployment"):
        for argument in container(one)["args"]:
            if argument.startswith("/etc/ragmon/"):
                name = argument.removeprefix("/etc/ragmon/")
                assert f"--from-file={name}=deploy/{name}" in command
    assert "--from-file=ragmon.toml=deploy/ragmon.toml" in command
    assert "--from-file=gold.jsonl=" in command


# On Kafka.


def test_workers_keep_nothing_and_run_the_same_configuration_as_the_head():
    made = kustomized("stream")
    worker, head = named(made, "Deployment", "ragmon-work"), named(made, "StatefulSet", "ragmon")
    assert [container(one)["args"] for one in (worker, head)] == [
        ["work", "--config", "/etc/ragmon/stream.toml"],
        ["serve", "--config", "/etc/ragmon/stream.toml"],
    ]
    assert not any("persistentVolumeClaim" in volume for volume in pod(worker)["volumes"])
    assert head["spec"]["replicas"] == 1
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        assert container(worker)[probe] == container(head)[probe]
    assert container(worker)["securityContext"] == container(head)["securityContext"]


def test_workers_come_one_at_a_time_and_leave_slowly():
    made = kustomized("stream")
    rolling = named(made, "Deployment", "ragmon-work")["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 1, "maxUnavailable": 0}
    scaler = named(made, "HorizontalPodAutoscaler", "ragmon-work")["spec"]
    assert scaler["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 1800
    assert [metric["resource"]["name"] for metric in scaler["metrics"]] == ["cpu"]
    assert named(made, "PodDisruptionBudget", "ragmon-work")["spec"]["maxUnavailable"] == 1


def test_whoever_reads_kafka_may_reach_its_port():
    port = int(STREAM["brokers"].rpartition(":")[2])
    for policy in of_kind(kustomized("stream"), "NetworkPolicy"):
        reached = [at["port"] for rule in policy["spec"]["egress"] for at in rule["ports"] if at["port"] != 53]
        assert reached == [port]


def test_the_head_is_the_job_the_rules_ask_for_and_workers_are_not():
    assert jobs(kustomized("")) == {"ragmon": "ragmon"}
    assert jobs(kustomized("stream")) == {"ragmon": "ragmon", "ragmon-work": "ragmon-work"}
