"""`compose.kafka.yaml`, its collector and `kafka-topics.sh` agree with `stream.toml`; no container is run here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.deployed import DEPLOY, DRAIN, PORTS, check_confined, check_image, check_mounts, document, run
from tests.support.manifests import kustomized, named
from tests.support.waiting import TIMEOUT

COMPOSE = document("compose.kafka.yaml")
SERVICES = COMPOSE["services"]
SINGLE = document("compose.yaml")["services"]
COLLECTOR = document("otel-collector.kafka.yaml")
EXPORTER = COLLECTOR["exporters"]["kafka/ragmon"]
CONFIGURED = tomllib.loads((DEPLOY / "stream.toml").read_text())["stream"]
SCRIPT = DEPLOY / "kafka-topics.sh"
DAY = 24 * 60 * 60 * 1000

# The topics.


def created(tmp_path, *arguments):
    """What the script asks of Kafka's own program: the settings of each topic."""
    (tmp_path / "kafka").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "kafka").chmod(0o755)
    env = {"PATH": os.environ["PATH"], "KAFKA_TOPICS": str(tmp_path / "kafka")}
    topics = {}
    for line in run("bash", str(SCRIPT), *arguments, env=env).splitlines():
        words = shlex.split(line)
        asked = dict(pairwise(words))
        configs = [word.partition("=") for flag, word in pairwise(words) if flag == "--config"]
        assert {"--create", "--if-not-exists"} <= set(words)
        topics[asked["--topic"]] = asked | {key: value for key, _, value in configs}
    return topics


def test_it_creates_the_topics_of_the_configuration_with_equal_partitions(tmp_path):
    topics = created(tmp_path, "kafka:9092")
    assert set(topics) == {CONFIGURED[key] for key in ("spans", "metrics", "chunks")}
    assert {topic["--bootstrap-server"] for topic in topics.values()} == {CONFIGURED["brokers"]}
    assert {topic["--partitions"] for topic in topics.values()} == {"12"}
    assert {topic["--replication-factor"] for topic in topics.values()} == {"3"}
    assert {topic["min.insync.replicas"] for topic in topics.values()} == {"2"}


def test_time_is_the_logs_and_a_day_of_spans_and_a_week_of_chunks_stay(tmp_path):
    topics = created(tmp_path, "kafka:9092")
    assert {topic["message.timestamp.type"] for topic in topics.values()} == {"LogAppendTime"}
    kept = {name: int(topic["retention.ms"]) for name, topic in topics.items()}
    assert kept == {
        CONFIGURED["spans"]: DAY,
        CONFIGURED["metrics"]: DAY,
        CONFIGURED["chunks"]: 7 * DAY,
    }


def test_a_chunk_that_a_worker_may_write_is_one_the_topic_takes(tmp_path):
    taken = int(created(tmp_path, "kafka:9092")[CONFIGURED["chunks"]]["max.message.bytes"])
    assert CONFIGURED["kafka"]["message.max.bytes"] == taken


@pytest.mark.parametrize(("replicas", "in_sync"), [("1", "1"), ("2", "1"), ("3", "2"), ("5", "2")])
def test_one_broker_may_be_away_and_with_three_no_message_is_only_on_one(tmp_path, replicas, in_sync):
    topics = created(tmp_path, "kafka:9092", "4", replicas)
    assert {topic["min.insync.replicas"] for topic in topics.values()} == {in_sync}
    assert {topic["--partitions"] for topic in topics.values()} == {"4"}


@pytest.mark.parametrize(
    "arguments", [(), ("--help",), ("k", "none"), ("k", "0"), ("k", "1", "-1"), ("a", "1", "1", "1")]
)
def test_it_refuses_what_is_no_number_and_says_how_it_is_used(arguments):
    command = ["bash", str(SCRIPT), *arguments]
    env = {"PATH": os.environ["PATH"], "KAFKA_TOPICS": "false"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search("usage:|give a whole number", done.stderr)


def test_the_first_topic_that_cannot_be_created_ends_it():
    env = {"PATH": os.environ["PATH"], "KAFKA_TOPICS": "false"}
    done = subprocess.run(["bash", str(SCRIPT), "k"], env=env, capture_output=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 1


def test_bash_and_shellcheck_find_nothing_to_say():
    assert run("bash", "-n", str(SCRIPT)) == ""
    assert os.access(SCRIPT, os.X_OK)
    beside = Path(sys.executable).with_name("shellcheck")
    checker = str(beside) if beside.exists() else shutil.which("shellcheck")
    if checker is None:
        pytest.skip("shellcheck is not installed")
    run(checker, str(SCRIPT))


# Partitions.


def test_wherever_the_number_of_partitions_stands_it_is_the_same(tmp_path):
    (number,) = {int(topic["--partitions"]) for topic in created(tmp_path, "kafka:9092").values()}
    values = document("chart/values.yaml")
    assert values["stream"]["partitions"] == number
    assert values["autoscaling"]["maxReplicas"] <= number
    assert int(SERVICES["topics"]["entrypoint"][3]) == number
    scaler = named(kustomized("stream"), "HorizontalPodAutoscaler", "ragmon-work")
    assert scaler["spec"]["maxReplicas"] == number
    assert SERVICES["work"]["deploy"]["replicas"] <= number


# The collectors.


def test_the_collector_writes_the_topics_that_are_read_keyed_by_trace():
    assert {kind: EXPORTER[kind]["topic"] for kind in ("traces", "metrics")} == {
        "traces": CONFIGURED["spans"],
        "metrics": CONFIGURED["metrics"],
    }
    assert {EXPORTER[kind]["encoding"] for kind in ("traces", "metrics")} == {"otlp_proto"}
    assert ",".join(EXPORTER["brokers"]) == CONFIGURED["brokers"]
    assert EXPORTER["partition_traces_by_id"] is EXPORTER["partition_metrics_by_resource_attributes"] is True


def test_the_collectors_hash_is_the_one_that_is_configured():
    """The exporter's default is Sarama's FNV-1a; only an entry of its own would change it."""
    assert "record_partitioner" not in EXPORTER
    assert CONFIGURED["partitioner"] == "fnv1a"


def test_a_span_is_delivered_when_all_brokers_in_sync_have_it_and_no_topic_comes_about_by_itself():
    assert EXPORTER["producer"] == {"required_acks": -1, "compression": "zstd", "allow_auto_topic_creation": False}


def test_the_collector_uses_all_it_defines_loses_nothing_and_lets_nobody_in_without_the_token():
    pipelines = COLLECTOR["service"]["pipelines"]
    assert set(pipelines) == {"traces", "metrics"}
    for kind in ("exporters", "receivers", "processors"):
        assert {one for pipeline in pipelines.values() for one in pipeline[kind]} == set(COLLECTOR[kind])
    assert set(COLLECTOR["processors"]) == {"memory_limiter"}
    assert set(COLLECTOR["service"]["extensions"]) == set(COLLECTOR["extensions"])
    assert EXPORTER["retry_on_failure"]["max_elapsed_time"] == "0s"
    assert EXPORTER["sending_queue"]["storage"] in COLLECTOR["extensions"]
    for protocol, name in {"grpc": "grpc", "http": "otlp"}.items():
        heard = COLLECTOR["receivers"]["otlp"]["protocols"][protocol]
        assert heard["endpoint"] == f"0.0.0.0:{PORTS[name]}"
        assert heard["auth"]["authenticator"] in COLLECTOR["extensions"]


def test_every_token_a_collector_reads_is_made_without_a_lines_end():
    """The collector's extension takes the empty line after a line's end for one more token."""
    for path in (DEPLOY / "README.md", DEPLOY / "chart" / "values.yaml", DEPLOY / "chart" / "templates" / "NOTES.txt"):
        made = re.findall(r"head -c 32 /dev/urandom \| base64(.*)", path.read_text())
        assert made
        assert all(rest.startswith(" --wrap=0 > ") for rest in made), path


# Compose.


def test_images_are_pinned_and_those_that_are_built_have_what_they_need():
    for name, service in SERVICES.items():
        check_image(service)
        if name in ("work", "ragmon"):
            assert "kafka" in service["build"]["args"]["EXTRAS"].split(",")
    assert SERVICES["prometheus"]["image"] == SINGLE["prometheus"]["image"]
    assert SERVICES["kafka"]["image"] == SERVICES["topics"]["image"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_confined_and_open_to_this_machine_alone(name):
    service = SERVICES[name]
    check_confined(service, COMPOSE)
    assert service.get("read_only", False) == (name != "kafka")


def test_what_is_mounted_exists_and_only_volumes_can_be_written():
    check_mounts(COMPOSE)


def test_head_and_workers_read_one_configuration_and_what_it_extends():
    assert SERVICES["work"]["command"] == ["work", "--config", "/etc/ragmon/stream.toml"]
    assert SERVICES["ragmon"]["command"] == ["serve", "--config", "/etc/ragmon/stream.toml"]
    read = [{v for v in SERVICES[name]["volumes"] if ":/etc/ragmon/" in v} for name in ("work", "ragmon")]
    assert read[0] == read[1] > {v for v in SINGLE["ragmon"]["volumes"] if ":/etc/ragmon/" in v}
    assert SERVICES["work"]["deploy"]["replicas"] == 2
    assert not any(volume.startswith("state:") for volume in SERVICES["work"]["volumes"])


def test_the_broker_is_called_what_the_configuration_calls_it():
    broker = SERVICES["kafka"]["environment"]
    assert broker["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{CONFIGURED['brokers']}"
    assert broker["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert broker["KAFKA_PROCESS_ROLES"] == "broker,controller"
    program, mounted, brokers, _, replicas = SERVICES["topics"]["entrypoint"]
    assert (program, brokers, replicas) == ("bash", CONFIGURED["brokers"], "1")
    assert f"./{SCRIPT.name}:{mounted}:ro" in SERVICES["topics"]["volumes"]


def test_nobody_writes_or_reads_before_the_topics_are_there():
    done = {"topics": {"condition": "service_completed_successfully"}}
    assert [SERVICES[name]["depends_on"] for name in ("collector", "work", "ragmon")] == [done] * 3
    assert SERVICES["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}


def test_the_application_writes_to_the_collector_and_differs_in_nothing_else():
    here, there = (dict(services["application"]) for services in (SERVICES, SINGLE))
    assert here.pop("environment") == {
        **there.pop("environment"),
        "RAGMON_ENDPOINT": f"http://collector:{PORTS['otlp']}",
    }
    assert here.pop("depends_on") == ["collector"]
    there.pop("depends_on")
    assert here == there


def test_the_collectors_files_are_where_it_looks():
    collector = SERVICES["collector"]
    targets = [volume.split(":")[1] for volume in collector["volumes"]]
    assert collector["command"] == [f"--config={targets[1]}"]
    assert COLLECTOR["extensions"]["file_storage/ragmon"]["directory"].startswith(targets[0] + "/")
    assert COLLECTOR["extensions"]["bearertokenauth/ragmon"]["filename"] == f"/run/secrets/{collector['secrets'][0]}"


def test_networks_are_shared_by_those_alone_who_have_something_to_say():
    members = {
        network: {name for name, service in SERVICES.items() if network in service["networks"]}
        for network in COMPOSE["networks"]
    }
    assert members == {
        "write": {"application", "collector"},
        "log": {"collector", "kafka", "topics", "work", "ragmon"},
        "watch": {"work", "ragmon", "prometheus"},
    }
    assert [name for name, told in COMPOSE["networks"].items() if told.get("internal")] == ["write", "log"]


def test_there_is_time_to_drain():
    for name in ("application", "work", "ragmon"):
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > DRAIN


def test_prometheus_asks_the_head_as_before_and_each_worker_by_its_address(real):
    here, there = (document(f"prometheus/{name}.yml") for name in ("prometheus.kafka", "prometheus"))
    head, workers = here["scrape_configs"]
    assert [head] == there["scrape_configs"]
    assert workers["dns_sd_configs"] == [{"names": ["work"], "type": "A", "port": PORTS["admin"]}]
    assert here["global"] == there["global"]
    assert "--config.file=/etc/prometheus/prometheus.kafka.yml" in SERVICES["prometheus"]["command"]
    run(real("promtool"), "check", "config", str(DEPLOY / "prometheus" / "prometheus.kafka.yml"))
