"""What tests of Kubernetes manifests share: kustomize, Helm, schemas, and what must hold of any set of manifests."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import PurePosixPath

import pytest
import yaml

from ragmon.config.load import check
from tests.support.deployed import DEPLOY, PORTS, USER, Strict, installed
from tests.support.waiting import TIMEOUT

WORKLOADS = ("StatefulSet", "Deployment")
_HELM = """
import json, sys
import helm_python
asked = json.load(sys.stdin)
if asked["lint"]:
    said = helm_python.lint(asked["chart"], asked["values"], strict=True)
else:
    with helm_python.Chart.load(asked["chart"]) as chart:
        chart.validate_schema(asked["values"])
        said = chart.render(asked["values"], name=asked["name"], namespace=asked["namespace"])
json.dump(said, sys.stdout)
"""


def problems(path):
    """What the loader says is wrong with a configuration."""
    return [str(problem) for problem in check(path, environ={})]


@functools.cache
def kustomized(folder):
    """What `kubectl kustomize` makes of a folder in `deploy/kubernetes`; no cluster is asked."""
    alone = {"PATH": os.environ["PATH"], "HOME": os.devnull, "KUBECONFIG": os.devnull}
    command = [installed("kubectl"), "kustomize", str(DEPLOY / "kubernetes" / folder)]
    done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, Strict))


def helm(values, *, lint=False, name="ragmon", namespace="quality"):
    """What Helm says of the chart, in a process of its own: its library brings threads, and other tests fork.

    Returns:
        The findings, or the text of each file by its name; the error as a string if Helm refuses.
    """
    if importlib.util.find_spec("helm_python") is None:
        pytest.skip("helm-python-sdk is not installed")
    asked = {"chart": str(DEPLOY / "chart"), "values": values, "lint": lint, "name": name, "namespace": namespace}
    command = [sys.executable, "-c", _HELM]
    told = json.dumps(asked)
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def valid(manifest):
    """Hold a manifest against Kubernetes' schema, where `kubernetes-validate` is installed."""
    schemas = pytest.importorskip("kubernetes_validate")
    schemas.validate(manifest, schemas.latest_version(), strict=True)


def own(manifests):
    """Those of kinds that Kubernetes itself knows; the Prometheus operator's have no schema here."""
    return [one for one in manifests if not one["apiVersion"].startswith("monitoring.coreos.com/")]


def of_kind(manifests, *kinds):
    return [one for one in manifests if one["kind"] in kinds]


def named(manifests, kind, name):
    (found,) = [one for one in of_kind(manifests, kind) if one["metadata"]["name"] == name]
    return found


def pod(workload):
    return workload["spec"]["template"]["spec"]


def container(workload):
    (found,) = pod(workload)["containers"]
    return found


def selected(manifests, labels):
    """The workloads whose pods have these labels."""
    assert labels
    has = [(one, one["spec"]["template"]["metadata"]["labels"]) for one in of_kind(manifests, *WORKLOADS)]
    return [one for one, held in has if labels.items() <= held.items()]


def ports(workload):
    return {port["name"]: port["containerPort"] for port in container(workload)["ports"]}


def check_selectors(manifests):
    """Each workload, Service, policy and budget finds the pods of one workload, and every port has its name there."""
    for one in of_kind(manifests, *WORKLOADS):
        assert selected(manifests, one["spec"]["selector"]["matchLabels"]) == [one]
        for spread in pod(one).get("topologySpreadConstraints", ()):
            assert selected(manifests, spread["labelSelector"]["matchLabels"]) == [one]
        if one["kind"] == "StatefulSet":
            governing = named(manifests, "Service", one["spec"]["serviceName"])
            assert selected(manifests, governing["spec"]["selector"]) == [one]
    for one in of_kind(manifests, "Service"):
        (target,) = selected(manifests, one["spec"]["selector"])
        assert [port["port"] for port in one["spec"]["ports"]] == [
            ports(target)[port["targetPort"]] for port in one["spec"]["ports"]
        ]
    for one in of_kind(manifests, "PodDisruptionBudget"):
        assert len(selected(manifests, one["spec"]["selector"]["matchLabels"])) == 1
    for one in of_kind(manifests, "HorizontalPodAutoscaler"):
        target = one["spec"]["scaleTargetRef"]
        assert "replicas" not in named(manifests, target["kind"], target["name"])["spec"]


def check_monitors(manifests):
    """Every ServiceMonitor finds Services that have its port, and the head or the only server is the job `ragmon`."""
    for one in of_kind(manifests, "ServiceMonitor"):
        found = watched(manifests, one)
        assert found
        for endpoint in one["spec"]["endpoints"]:
            assert all(endpoint["port"] in {port["name"] for port in s["spec"]["ports"]} for s in found)


def watched(manifests, monitor):
    """The Services a ServiceMonitor finds."""
    selector = monitor["spec"]["selector"]
    must = [rule["key"] for rule in selector.get("matchExpressions", ())]
    return [
        one
        for one in of_kind(manifests, "Service")
        if selector["matchLabels"].items() <= one["metadata"]["labels"].items()
        and all(key in one["metadata"]["labels"] for key in must)
    ]


def jobs(manifests):
    """The job's name of each workload that is scraped."""
    found = {}
    for monitor in of_kind(manifests, "ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        for service in watched(manifests, monitor):
            (target,) = selected(manifests, service["spec"]["selector"])
            given = [rule["replacement"] for rule in endpoint.get("relabelings", ()) if rule["targetLabel"] == "job"]
            job = given[0] if given else service["metadata"]["labels"][monitor["spec"]["jobLabel"]]
            found[target["metadata"]["name"]] = job
    return found


def check_pods(manifests):
    """Every pod runs without privilege, has what it mounts, and asks Kubernetes nothing."""
    for one in of_kind(manifests, *WORKLOADS):
        spec, inside = pod(one), container(one)
        assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert {spec["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {USER}
        assert inside["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        claims = [claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", ())]
        held = [*claims, *(volume["name"] for volume in spec["volumes"])]
        assert sorted(held) == sorted(mount["name"] for mount in inside["volumeMounts"])
        mounted = {mount["name"]: mount["mountPath"] for mount in inside["volumeMounts"]}
        told = {entry["name"]: entry.get("value") for entry in inside.get("env", ())}
        # The volume's own folder is readable by all under fsGroup, and ragmon refuses such a folder.
        assert (
            "state" not in mounted or PurePosixPath(mounted["state"]) in PurePosixPath(told["RAGMON_STATE_DIR"]).parents
        )
        assert {"requests", "limits"} == set(inside["resources"])
        for name, number in ports(one).items():
            assert PORTS.get(name, number) == number
        for probe in ("livenessProbe", "readinessProbe"):
            assert inside[probe]["httpGet"]["port"] in ports(one)


def inside_peers(rule, side):
    """The labels of the pods of the same namespace a rule of a policy is about."""
    return [peer["podSelector"]["matchLabels"] for peer in rule[side] if list(peer) == ["podSelector"]]


def check_policies(manifests):
    """Every workload has one policy, and whoever may call another pod is let in there, at the same port."""
    policies = {}
    for one in of_kind(manifests, "NetworkPolicy"):
        (target,) = selected(manifests, one["spec"]["podSelector"]["matchLabels"])
        assert one["spec"]["policyTypes"] == ["Ingress", "Egress"]
        known = set(ports(target))
        assert {port["port"] for rule in one["spec"]["ingress"] for port in rule["ports"]} <= known
        policies[target["metadata"]["name"]] = one["spec"]
    assert set(policies) == {one["metadata"]["name"] for one in of_kind(manifests, *WORKLOADS)}
    called = calls(manifests, policies, "egress", "to")
    assert called == {(caller, target, port) for target, caller, port in calls(manifests, policies, "ingress", "from")}


def calls(manifests, policies, side, peers):
    """Which workload a policy lets reach, or be reached by, which other one, and at which port."""
    return {
        (name, other["metadata"]["name"], port["port"])
        for name, spec in policies.items()
        for rule in spec[side]
        for labels in inside_peers(rule, peers)
        for other in selected(manifests, labels)
        for port in rule["ports"]
    }


CHECKS = (check_selectors, check_monitors, check_pods, check_policies)
