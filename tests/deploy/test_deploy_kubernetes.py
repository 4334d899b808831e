"""What lies in `deploy/kubernetes/` agrees with itself, with ragmon and with Kubernetes; no cluster is asked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from ragmon.config.load import load
from ragmon.server import server as security
from tests.support.deployed import (
    DEPLOY,
    DRAIN,
    PORTS,
    ROOT,
    USER,
    Strict,
    document,
    documents,
    final,
    installed,
    uncommented,
)
from tests.support.serving import asked, get, send_body, serving, whole
from tests.support.waiting import TIMEOUT, wait_for

FOLDER = DEPLOY / "kubernetes"
KUSTOMIZATION = document("kubernetes/kustomization.yaml")
BASE = document("kubernetes/base/kustomization.yaml")
STATEFUL = document("kubernetes/base/statefulset.yaml")
POLICY = document("kubernetes/base/networkpolicy.yaml")
MONITOR = document("kubernetes/base/servicemonitor.yaml")
ANALYSIS = document("kubernetes/analysistemplate.yaml")
WRITE, ADMIN = documents(FOLDER / "base" / "service.yaml")
POD = STATEFUL["spec"]["template"]["spec"]
LABELS = STATEFUL["spec"]["template"]["metadata"]["labels"]
(CONTAINER,) = POD["containers"]
OWN = ["statefulset.yaml", "service.yaml", "networkpolicy.yaml"]
"""What Kubernetes itself knows; the other files are of what is added to it."""


def test_every_file_is_applied_or_said_not_to_be():
    files = {path.name for path in (FOLDER / "base").iterdir()} - {"kustomization.yaml"}
    assert set(BASE["resources"]) == files == {*OWN, "servicemonitor.yaml", "prometheusrule.yaml"}
    assert KUSTOMIZATION["resources"] == ["base"]
    text = (FOLDER / "kustomization.yaml").read_text()
    beside = {path.name for path in FOLDER.iterdir()} - {"kustomization.yaml", "base"}
    told = set(re.findall(r"^# (\S+\.yaml) is not among them", text, re.MULTILINE))
    assert beside == told | set(re.findall(r"(\w+)/", re.search(r"Neither is (.+?):", text, re.DOTALL)[1]))


def test_kustomize_puts_everything_into_one_namespace_with_the_image_of_this_version(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    alone = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": os.devnull}
    command = [installed("kubectl"), "kustomize", str(tmp_path / "kubernetes")]
    done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    made = list(yaml.load_all(done.stdout, Strict))
    assert {one["metadata"]["namespace"] for one in made} == {KUSTOMIZATION["namespace"]}
    (stateful,) = (one for one in made if one["kind"] == "StatefulSet")
    assert stateful["spec"]["template"]["spec"]["containers"][0]["image"] == CONTAINER["image"]


@pytest.mark.parametrize("name", OWN)
def test_kubernetes_schemas_know_every_key(name):
    """Where kubernetes-validate is installed: it is 100 MB, and no requirement of the suite."""
    schemas = pytest.importorskip("kubernetes_validate")
    for one in documents(FOLDER / "base" / name):
        schemas.validate(one, schemas.latest_version(), strict=True)


# The pod.


def test_it_runs_one_writer_without_privilege():
    assert STATEFUL["spec"]["replicas"] == 1
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert {POD["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {USER}
    assert POD["automountServiceAccountToken"] is False
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    probes = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness", "startup")}
    assert {probe["port"] for probe in probes.values()} == {"admin"}
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/readyz", "/healthz"]


def test_the_probes_paths_answer(tmp_path):
    with serving(tmp_path) as running:
        for name in ("liveness", "readiness", "startup"):
            assert running.get(CONTAINER[f"{name}Probe"]["httpGet"]["path"])[0] == 200


def test_there_is_time_to_drain():
    assert POD["terminationGracePeriodSeconds"] > DRAIN


def test_the_image_is_of_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert CONTAINER["image"].endswith(f":{version}")
    (image,) = KUSTOMIZATION["images"]
    assert CONTAINER["image"] == f"{image['name']}:{image['newTag']}"


def test_it_mounts_what_it_names_and_whole_folders_so_that_changes_arrive():
    mounts = {mount["name"]: mount for mount in CONTAINER["volumeMounts"]}
    claims = {claim["metadata"]["name"] for claim in STATEFUL["spec"]["volumeClaimTemplates"]}
    assert set(mounts) == claims | {volume["name"] for volume in POD["volumes"]}
    assert not any("subPath" in mount for mount in mounts.values())
    assert mounts["state"]["mountPath"] == json.loads(final()["VOLUME"][0])[0]
    (state,) = [entry["value"] for entry in CONTAINER["env"] if entry["name"] == "RAGMON_STATE_DIR"]
    assert Path(state).parent == Path(mounts["state"]["mountPath"])  # fsGroup leaves the volume's own readable by all


def test_the_token_is_in_a_folder_that_is_mounted():
    (named,) = [variable["value"] for variable in CONTAINER["env"] if variable["name"] == "RAGMON_TOKEN_FILE"]
    assert Path(named).parent in {Path(mount["mountPath"]) for mount in CONTAINER["volumeMounts"]}
    serve = load(DEPLOY / "ragmon.toml", environ={"RAGMON_TOKEN_FILE": named}).serve
    assert all("admin" in warning for warning in security.check_listen_addresses(serve, insecure=False))


def test_what_the_readme_creates_is_what_the_pod_mounts():
    text = (DEPLOY / "README.md").read_text()
    namespace = KUSTOMIZATION["namespace"]
    assert f"kubectl create namespace {namespace}\n" in text
    names = {"config": POD["volumes"][0]["configMap"]["name"], "token": POD["volumes"][1]["secret"]["secretName"]}
    assert f"kubectl create configmap {names['config']} --namespace {namespace} " in text
    assert f"kubectl create secret generic {names['token']} --namespace {namespace} " in text
    assert "kubectl apply --kustomize deploy/kubernetes\n" in text


# Who reaches it.


def test_every_port_is_ragmons_own_and_in_one_service_alone():
    assert {port["name"]: port["containerPort"] for port in CONTAINER["ports"]} == PORTS
    offered = [{port["targetPort"]: port["port"] for port in one["spec"]["ports"]} for one in (WRITE, ADMIN)]
    assert offered == [{name: PORTS[name] for name in ("otlp", "grpc")}, {"admin": PORTS["admin"]}]


def test_every_selector_finds_the_pod():
    assert STATEFUL["spec"]["selector"]["matchLabels"] == LABELS
    assert WRITE["spec"]["selector"] == ADMIN["spec"]["selector"] == LABELS
    assert POLICY["spec"]["podSelector"]["matchLabels"] == LABELS
    assert STATEFUL["spec"]["serviceName"] == WRITE["metadata"]["name"]


def test_what_cannot_be_written_to_can_still_be_looked_at():
    assert ADMIN["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in WRITE["spec"]


def test_producers_reach_the_write_ports_and_whoever_watches_the_admin_port():
    write, admin = POLICY["spec"]["ingress"]
    assert [port["port"] for port in write["ports"]] == ["otlp", "grpc"]
    assert [port["port"] for port in admin["ports"]] == ["admin"]
    (producers,) = write["from"]  # one peer: the pod and its namespace must be labelled
    assert set(producers) == {"namespaceSelector", "podSelector"}
    assert {peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for peer in admin["from"]} == {
        "monitoring",
        "argo-rollouts",
    }
    assert all(peer["namespaceSelector"]["matchLabels"] for rule in (write, admin) for peer in rule["from"])


def test_nothing_is_reached_because_the_configuration_names_no_address():
    settings = load(DEPLOY / "ragmon.toml", environ={})
    assert not settings.probes
    assert not settings.unconfigured.judges
    assert settings.export.endpoint is None
    assert POLICY["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert POLICY["spec"]["egress"] == []


def test_the_example_of_what_may_be_reached_is_a_policy():
    schemas = pytest.importorskip("kubernetes_validate")
    example = yaml.safe_load(uncommented((FOLDER / "base" / "networkpolicy.yaml").read_text(), "egress:"))
    policy = {**POLICY, "spec": {**POLICY["spec"], **example}}
    assert len(policy["spec"]["egress"]) == 2
    schemas.validate(policy, schemas.latest_version(), strict=True)


def test_prometheus_finds_the_admin_port_and_calls_the_job_as_the_rules_do():
    wanted = MONITOR["spec"]["selector"]["matchLabels"]
    found = [one for one in (WRITE, ADMIN) if wanted.items() <= one["metadata"]["labels"].items()]
    assert found == [ADMIN]
    (job,) = document("prometheus/prometheus.yml")["scrape_configs"]
    assert ADMIN["metadata"]["labels"][MONITOR["spec"]["jobLabel"]] == job["job_name"]
    assert f'job="{job["job_name"]}"' in (DEPLOY / "prometheus" / "ragmon.rules.yml").read_text()
    (endpoint,) = MONITOR["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in ADMIN["spec"]["ports"]}
    assert endpoint["interval"] == document("prometheus/prometheus.yml")["global"]["scrape_interval"]


# Releases.

(METRIC,) = ANALYSIS["spec"]["metrics"]


def address(**given):
    """What Argo Rollouts asks, with its arguments filled in."""
    values = {one["name"]: one["value"] for one in ANALYSIS["spec"]["args"] if "value" in one} | given
    assert set(values) == {one["name"] for one in ANALYSIS["spec"]["args"]}
    return re.sub(r"\{\{args\.(\w+)\}\}", lambda found: values[found[1]], METRIC["provider"]["web"]["url"])


def measured(answer):
    """What Argo Rollouts makes of an answer: its three phases, by the two conditions."""
    assert METRIC["provider"]["web"]["jsonPath"] == "{$.verdict}"
    conditions = {"Successful": METRIC["successCondition"], "Failed": METRIC["failureCondition"]}
    held = [phase for phase, told in conditions.items() if json.loads(told.removeprefix("result == ")) == answer]
    return held[0] if held else "Inconclusive"


GATE = "[pipelines.harbour]\n[gates.error_rate]\nat_most = 0.5\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("errors", "n", "phase"), [(0, 1500, "Successful"), (700, 700, "Failed"), (0, 3, "Inconclusive")]
)
def test_a_canary_goes_on_stops_or_waits_as_a_real_server_judges_it(tmp_path, errors, n, phase):
    with serving(tmp_path, GATE) as running:
        for first, build, wrong in ((0, "stable", 0), (10_000, "canary", errors)):
            told = {"pipeline": "harbour", "build": build}
            records = [asked(first + k, **told, error="E" if k < wrong else None) for k in range(n)]
            send_body(running, whole(records))
        url = address(ragmon=running.admin, pipeline="harbour", baseline="stable", candidate="canary")
        status, text = wait_for(lambda: get(url), lambda found: found[0] == 200 and counted(found[1]) == [n, n])
        assert status == 200
        assert measured(json.loads(text)["verdict"]) == phase


def counted(text):
    """How many requests of each release were compared."""
    (gate,) = json.loads(text)["gates"]
    return [gate["baseline"]["n"], gate["candidate"]["n"]]


def test_it_asks_the_admin_service_in_the_namespace_of_ragmon():
    (port,) = (one["port"] for one in ADMIN["spec"]["ports"])
    host = f"{ADMIN['metadata']['name']}.{KUSTOMIZATION['namespace']}.svc"
    assert address(pipeline="p", baseline="b", candidate="c").startswith(f"http://{host}:{port}/api/compare?")


def test_one_proof_among_many_measurements_is_enough_and_none_pauses_the_rollout():
    assert METRIC["failureLimit"] == 0
    assert METRIC["inconclusiveLimit"] == METRIC["count"] - 1


def test_the_rollout_in_the_comment_names_the_template_and_its_arguments():
    example = yaml.safe_load(uncommented((FOLDER / "analysistemplate.yaml").read_text(), "spec:"))
    pod = example["spec"]["template"]
    (producers,) = POLICY["spec"]["ingress"][0]["from"]
    assert pod["metadata"]["labels"] == producers["podSelector"]["matchLabels"]
    assert [variable["name"] for variable in pod["spec"]["containers"][0]["env"]] == ["RAGMON_BUILD"]
    (analysis,) = (step["analysis"] for step in example["spec"]["strategy"]["canary"]["steps"] if "analysis" in step)
    assert analysis["templates"] == [{"templateName": ANALYSIS["metadata"]["name"]}]
    needed = {one["name"] for one in ANALYSIS["spec"]["args"] if "value" not in one}
    assert {one["name"] for one in analysis["args"]} == needed
