"""What lies in `deploy/` agrees with ragmon and with the programs that read it; no container is run here."""

from __future__ import annotations

import http.server
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
import urllib.request
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ragmon.alarms.plan import plan
from ragmon.cli.main import BAD_INPUT
from ragmon.config.load import BUILD, CONFIG, OVERRIDES, check, load
from ragmon.core import constants, semconv
from ragmon.core.errors import ConfigError
from ragmon.core.http_server import CONNECTIONS, shares
from ragmon.core.network import is_known
from ragmon.core.record import Totals
from ragmon.ingest.gold import load_gold
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import _CONVENTIONS, OWN_SCOPE
from ragmon.server import server as security
from tests.support.deployed import (
    DEPLOY,
    DRAIN,
    PORTS,
    ROOT,
    USER,
    Strict,
    check_confined,
    check_image,
    check_mounts,
    document,
    documents,
    final,
    installed,
    run,
    stages,
)
from tests.support.otlp_receiver import attributes as held_by
from tests.support.otlp_receiver import receiving
from tests.support.otlp_requests import of_totals
from tests.support.recorded_spans import made, recorded
from tests.support.waiting import TIMEOUT, wait_for

YAML = sorted(path for path in DEPLOY.rglob("*.y*ml") if path.parent != DEPLOY / "chart" / "templates")
"""Files that are YAML as they stand; what a chart's templates make is read where it is rendered."""
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("RAGMON_", "OTEL_"))}
"""The environment without what would configure ragmon."""


COMPOSE = document("compose.yaml")
SERVICES = COMPOSE["services"]
COLLECTOR = document("otel-collector.yaml")


@pytest.fixture
def mounted(tmp_path):
    """`/etc/ragmon` as compose.yaml puts it together, alike for the server and the application."""
    volumes = [[v.split(":") for v in SERVICES[name]["volumes"]] for name in ("ragmon", "application")]
    one, other = [{source: target for source, target, *_ in v if target.startswith("/etc/ragmon/")} for v in volumes]
    assert one == other
    for source, target in one.items():
        shutil.copy(DEPLOY / source, tmp_path / Path(target).name)
    return tmp_path / "ragmon.toml"


def test_yaml_holds_no_key_twice():
    for path in YAML:
        assert all(documents(path)), path


def test_the_strict_reader_finds_a_key_that_stands_twice():
    with pytest.raises(AssertionError, match="twice"):
        yaml.load("a: {b: 1, b: 2}", Strict)


# ragmon's own names.


def test_the_configuration_has_no_problems_and_its_gold_is_mounted(mounted):
    assert check(mounted, environ={}) == []
    settings = load(mounted, environ={})
    assert len(load_gold(settings.gold)) == len(settings.gold) == 1
    assert {name: getattr(settings.serve, name).port for name in PORTS} == PORTS
    assert tomllib.loads(mounted.read_text())["pipeline"]["name"] == settings.pipeline == "harbour"


def test_who_listens_beyond_loopback_has_a_token_and_says_where_tls_ends(mounted):
    serve = load(mounted, environ={}).serve
    assert not serve.otlp.is_loopback
    assert serve.tls == "upstream"
    with pytest.raises(ConfigError, match="without a token"):
        security.check_listen_addresses(serve, insecure=False)
    token = {"RAGMON_TOKEN_FILE": SERVICES["ragmon"]["environment"]["RAGMON_TOKEN_FILE"]}
    serve = load(mounted, environ=token).serve
    assert str(serve.token_file) == f"/run/secrets/{SERVICES['ragmon']['secrets'][0]}"
    assert all("admin" in warning for warning in security.check_listen_addresses(serve, insecure=False))


def test_every_variable_that_is_named_is_one_ragmon_reads():
    known = {*OVERRIDES, CONFIG, BUILD, constants.DISABLED}
    for path in filter(Path.is_file, DEPLOY.rglob("*")):
        assert set(re.findall(r"\bRAGMON_[A-Z_]+", path.read_text(encoding="utf-8"))) <= known, path


def test_every_port_is_ragmons_own():
    (job,) = document("prometheus/prometheus.yml")["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"ragmon:{PORTS['admin']}"]}]
    assert SERVICES["ragmon"]["ports"] == [f"127.0.0.1:{PORTS['admin']}:{PORTS['admin']}"]
    endpoint = f"http://ragmon:{PORTS['otlp']}"
    assert SERVICES["application"]["environment"]["RAGMON_ENDPOINT"] == endpoint
    assert COLLECTOR["exporters"]["otlp_http/ragmon"]["endpoint"] == endpoint
    assert {int(port) for port in final()["EXPOSE"][0].split()} == set(PORTS.values())


# The image.


def test_the_admin_port_knows_every_name_it_is_asked_by(mounted):
    """Prometheus of compose.yaml by its service, Argo Rollouts by Kubernetes'; the others ask by address."""
    (job,) = document("prometheus/prometheus.yml")["scrape_configs"]
    asked = [target for held in job["static_configs"] for target in held["targets"]]
    analysis = document("kubernetes/analysistemplate.yaml")["spec"]["args"]
    asked += [urlsplit(arg["value"]).netloc for arg in analysis if arg["name"] == "ragmon"]
    assert len(asked) == 2
    names = load(mounted, environ={}).serve.hosts
    assert [host for host in asked if not is_known(host, names)] == []


def test_the_unit_and_the_container_leave_files_for_all_connections():
    limits = [int(UNIT["LimitNOFILE"][0]), SERVICES["ragmon"]["ulimits"]["nofile"]]
    assert [shares(files) for files in limits] == [(CONNECTIONS, CONNECTIONS)] * 2


def test_the_image_holds_the_wheel_and_not_the_source():
    build, last = stages()
    assert "ADD" not in build | last
    assert "COPY" not in last
    assert any("--mount=type=bind,from=build,source=/wheels" in command for command in last["RUN"])
    assert {line.split()[0] for line in build["FROM"] + last["FROM"]} == {"python:3.11-slim-bookworm"}


def test_the_image_runs_as_nobody_in_particular_and_ends_on_sigterm():
    last = final()
    assert last["USER"] == [f"{USER}:{USER}"]
    assert json.loads(last["ENTRYPOINT"][0]) == ["ragmon"]
    assert json.loads(last["CMD"][0]) == ["serve", "--config", "/etc/ragmon/ragmon.toml"]
    assert last["STOPSIGNAL"] == ["SIGTERM"]
    assert json.loads(last["VOLUME"][0]) == [re.search(r"RAGMON_STATE_DIR=(\S+)", last["ENV"][0])[1]]
    assert not re.search(r"TOKEN|SECRET|PASSWORD", " ".join([*last["ENV"], *last["ARG"]]))


def health_check(port):
    """The program of the image's health check, for another port."""
    python, _, program = json.loads(final()["HEALTHCHECK"][0].partition("CMD ")[2])
    assert python == "python"
    assert str(PORTS["admin"]) in program
    return program.replace(str(PORTS["admin"]), str(port))


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_asks_healthz(status, code):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        proxied = {**os.environ, "http_proxy": "http://127.0.0.1:9"}
        program = health_check(server.server_port)
        assert subprocess.run([sys.executable, "-c", program], env=proxied, check=False).returncode == code


@pytest.mark.slow
def test_what_the_build_stage_copies_makes_a_wheel_with_the_package_alone(tmp_path):
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed: the wheel cannot be built without the network")
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for line in stages()[0]["COPY"]:
        for source in line.split()[:-1]:
            assert f"!{source}" in allowed
            copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
            (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
            copy(ROOT / source, tmp_path / source)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(tmp_path / "wheels"))
    run(sys.executable, "-m", "pip", "wheel", *options, str(tmp_path))
    (wheel,) = (tmp_path / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as opened:
        files = opened.namelist()
    assert {name.split("/")[0].split("-")[0] for name in files} == {"ragmon"}
    assert {"ragmon/cli/__init__.py", "ragmon/demo/gold.jsonl", "ragmon/py.typed"} <= set(files)


# Compose.


def test_images_are_pinned():
    for service in SERVICES.values():
        check_image(service)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_confined_checked_and_open_to_this_machine_alone(name):
    service = SERVICES[name]
    check_confined(service, COMPOSE)
    # An entrypoint of its own has nothing for the image's health check to ask.
    assert "healthcheck" in service or ("build" in service and "entrypoint" not in service)


def test_what_is_mounted_exists_and_only_volumes_can_be_written():
    check_mounts(COMPOSE)


def test_secrets_lie_where_git_and_the_image_do_not_look():
    ignored = (DEPLOY / ".gitignore").read_text().split()
    assert {Path(secret["file"]).parts[0] + "/" for secret in COMPOSE["secrets"].values()} == set(ignored)
    assert "*" in (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for service in SERVICES.values():
        for variable, value in service.get("environment", {}).items():
            if re.search("TOKEN|PASSWORD", variable):
                assert str(value).removeprefix("/run/secrets/") in service["secrets"]


def test_records_have_a_network_of_their_own():
    assert COMPOSE["networks"]["write"] == {"internal": True}
    assert [name for name, service in SERVICES.items() if "write" in service["networks"]] == ["application", "ragmon"]
    assert SERVICES["application"]["networks"] == ["write"]


def test_there_is_time_to_drain():
    for name in ("application", "ragmon"):
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > DRAIN
    assert int(UNIT["TimeoutStopSec"][0].removesuffix("s")) > DRAIN


def test_grafana_finds_prometheus_the_dashboards_and_traces(mounted):
    (source,) = document("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    assert (source["url"], source["uid"]) == ("http://prometheus:9090", "prometheus")
    held = source["jsonData"]
    assert held["timeInterval"] == document("prometheus/prometheus.yml")["global"]["scrape_interval"]
    assert held["httpMethod"] == "POST"
    (traces,) = held["exemplarTraceIdDestinations"]
    link = traces["url"].replace(
        "$${__value.raw}", "{trace_id}"
    )  # Grafana reads `$$` as a dollar, and `${x}` as a variable
    assert "$" not in link
    mounted.write_text(mounted.read_text().replace("[links]", f'[links]\ntrace = "{link}"'))
    assert str(load(mounted, environ={}).unconfigured.links.trace) == link
    (provider,) = document("grafana/provisioning/dashboards/ragmon.yaml")["providers"]
    assert f"../grafana:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
    assert provider["allowUiUpdates"] is False


@pytest.fixture
def demo(mounted, tmp_path):
    """Starts `demo.py` as compose.yaml does, with an endpoint of ours; it has ended well when the test has."""
    (tmp_path / "token").write_text("s3cret-of-16-bytes\n")
    started = []

    def start(endpoint):
        own = {"RAGMON_CONFIG": mounted, "RAGMON_ENDPOINT": endpoint, "RAGMON_TOKEN_FILE": tmp_path / "token"}
        assert set(own) | {"RAGMON_SAMPLE"} == set(SERVICES["application"]["environment"])
        env = {**CLEAN, **{key: str(value) for key, value in own.items()}, "RAGMON_SAMPLE": "1.0"}
        script = [sys.executable, str(DEPLOY / "demo.py")]
        started.append(subprocess.Popen(script, env={**env, "TMPDIR": str(tmp_path)}, cwd=tmp_path))

    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(timeout=TIMEOUT) for process in started] == [0]


@pytest.mark.slow
def test_the_demos_application_delivers_with_the_token_and_is_healthy(demo, tmp_path):
    with receiving() as server:
        demo(server.endpoint)
        wait_for((tmp_path / "delivered").exists)
        program = SERVICES["application"]["healthcheck"]["test"][-1]
        run(sys.executable, "-c", program.replace("/tmp/delivered", str(tmp_path / "delivered")))
        assert {request.headers["Authorization"] for request in server.requests} == {"Bearer s3cret-of-16-bytes"}
        assert {record.source for record in server.records()} == {constants.LIVE, constants.PROBE}
        assert all(routed(held_by(span), OWN_SCOPE) and routed(held_by(span), "") for span in server.spans())
        assert {metric.name for metric in server.metrics()} <= TOTALS


@pytest.fixture
def serving(mounted, tmp_path):
    """`ragmon serve` as the image starts it, but on loopback and free ports; gives its addresses."""
    mounted.write_text(re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", mounted.read_text()))
    (tmp_path / "token").write_text("s3cret-of-16-bytes\n")
    own = {"RAGMON_STATE_DIR": str(tmp_path / "state"), "RAGMON_TOKEN_FILE": str(tmp_path / "token")}
    _, *arguments = json.loads(final()["CMD"][0])
    command = [sys.executable, "-m", "ragmon", "serve", arguments[0], str(mounted)]
    log = tmp_path / "serve.log"
    with log.open("w") as said:
        process = subprocess.Popen(command, env={**CLEAN, **own}, stderr=said)
    try:
        wait_for(lambda: "ready\n" in log.read_text() or process.poll() is not None)
        yield dict(re.findall(r"^(\w+): ([\d.]+:\d+)$", log.read_text(), re.MULTILINE))
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=TIMEOUT) == 0, log.read_text()


@pytest.mark.slow
def test_what_the_application_sends_is_scored_by_the_server_and_the_image_says_it_is_well(serving, demo):
    """The chain of compose.yaml without its containers: demo.py, the token, `ragmon serve`, `/metrics`."""
    assert set(serving) == set(PORTS)
    demo(f"http://{serving['otlp']}")

    def scored():
        with urllib.request.urlopen(f"http://{serving['admin']}/metrics", timeout=TIMEOUT) as response:
            text = response.read().decode()
        return re.search(r"^ragmon_records_scored_total\{.*\} [1-9]", text, re.MULTILINE)

    wait_for(scored)
    host, _, port = serving["admin"].partition(":")
    assert host == "127.0.0.1"
    run(sys.executable, "-c", health_check(port))


# systemd.


def unit():
    text = re.sub(r"^[#;].*\n", "", (DEPLOY / "ragmon.service").read_text(), flags=re.MULTILINE)
    found = {}
    for line in text.partition("[Service]\n")[2].partition("\n[")[0].splitlines():
        key, _, value = line.partition("=")
        found.setdefault(key, []).append(value)
    return found


UNIT = unit()


@pytest.fixture
def unit_file(tmp_path):
    """The unit with a ragmon that is installed here."""
    text = (DEPLOY / "ragmon.service").read_text()
    here = text.replace("/opt/ragmon/bin/ragmon", str(Path(sys.executable).with_name("ragmon")))
    assert here != text
    (tmp_path / "ragmon.service").write_text(here)
    return str(tmp_path / "ragmon.service")


def test_systemd_finds_nothing_to_say_about_the_unit(unit_file):
    assert run(installed("systemd-analyze"), "verify", "--man=no", unit_file).strip() == ""


def test_systemd_rates_the_exposure_of_the_unit_as_low(unit_file):
    """Of 100; 11 today. A service without any of the directives has 96."""
    run(installed("systemd-analyze"), "security", "--offline=true", "--threshold=15", "--no-pager", unit_file)


def test_the_unit_keeps_state_token_and_signals_where_ragmon_looks():
    assert shlex.split(UNIT["ExecStart"][0])[1:] == ["serve", "--config", "/etc/ragmon/ragmon.toml"]
    assert UNIT["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    (credential,) = UNIT["LoadCredential"]
    assert UNIT["Environment"] == [
        f"RAGMON_STATE_DIR=%S/{UNIT['StateDirectory'][0]}",
        f"RAGMON_TOKEN_FILE=%d/{credential.partition(':')[0]}",
    ]
    assert UNIT["KillSignal"] == ["SIGTERM"]
    assert UNIT["Restart"] == ["on-failure"]
    assert UNIT["RestartPreventExitStatus"] == [str(BAD_INPUT)]
    strict = {"DynamicUser": "yes", "ProtectSystem": "strict", "NoNewPrivileges": "yes", "CapabilityBoundingSet": ""}
    assert {key: UNIT[key][0] for key in strict} == strict


# Prometheus.


def test_prometheus_takes_its_configuration_and_the_rules(real):
    said = run(real("promtool"), "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    assert "1 rule files found" in said
    run(
        real("promtool"),
        "check",
        "rules",
        "--lint=all",
        "--lint-fatal",
        str(DEPLOY / "prometheus" / "ragmon.rules.yml"),
    )


def test_the_rules_cut_an_alarms_name_to_its_gate_or_metric(mounted):
    settings = load(mounted, environ={})
    watches = plan(settings.of(settings.pipeline).resolved_gates, settings.build_metrics())
    assert any(":" in watch.alert for watch in watches)
    for watch in watches:
        assert watch.alert.split(":")[0] == watch.metric  # here every gate is called by its metric


# The collector.

PIPELINES = COLLECTOR["service"]["pipelines"]
TABLES = {name: connector["table"][0] for name, connector in COLLECTOR["connectors"].items()}
CLAUSE = re.compile(r'attributes\["([^"]+)"\] != nil|instrumentation_scope\.name == "([^"]+)"')
CLAUSES = [CLAUSE.fullmatch(clause) for clause in TABLES["routing/ragmon_spans"]["condition"].split(" or ")]
TOTALS = set(re.findall(r'name == "([^"]+)"', TABLES["routing/ragmon_totals"]["condition"]))


def routed(held, scope):
    """Whether the collector sends a span to ragmon."""
    return any(clause[1] in held if clause[1] else clause[2] == scope for clause in CLAUSES)


def upstream(pipeline):
    """The pipelines a pipeline is fed by, itself included, from its end to the receiver."""
    feeders = [name for name, other in PIPELINES.items() if set(other["exporters"]) & set(pipeline["receivers"])]
    return [pipeline, *(above for name in feeders for above in upstream(PIPELINES[name]))]


def test_whatever_the_collector_defines_is_used_and_the_other_way_round():
    def used(kind):
        return {one for pipeline in PIPELINES.values() for one in pipeline.get(kind, ())}

    connectors = set(COLLECTOR["connectors"])
    assert used("processors") == set(COLLECTOR["processors"])
    assert used("receivers") == set(COLLECTOR["receivers"]) | connectors
    assert used("exporters") == set(COLLECTOR["exporters"]) | connectors
    assert set(COLLECTOR["service"]["extensions"]) == set(COLLECTOR["extensions"])
    exporter = COLLECTOR["exporters"]["otlp_http/ragmon"]
    assert {exporter["auth"]["authenticator"], exporter["sending_queue"]["storage"]} == set(COLLECTOR["extensions"])
    for name, table in TABLES.items():
        assert all(PIPELINES[target]["receivers"] == [name] for target in table["pipelines"])


def test_memory_is_limited_first_wherever_data_comes_in():
    fed = [pipeline for pipeline in PIPELINES.values() if set(pipeline["receivers"]) & set(COLLECTOR["receivers"])]
    assert len(fed) == 4
    assert {pipeline["processors"][0] for pipeline in fed} == {"memory_limiter"}


@pytest.mark.parametrize("signal", ["traces", "metrics"])
def test_nothing_on_the_way_to_ragmon_samples_batches_or_changes_anything(signal):
    ends = [
        one for name, one in PIPELINES.items() if name.startswith(signal) and "otlp_http/ragmon" in one["exporters"]
    ]
    (end,) = ends
    passed = upstream(end)
    assert passed[-1]["receivers"] == ["otlp"]
    assert [one for pipeline in passed for one in pipeline.get("processors", ())] == ["memory_limiter"]
    assert "tail_sampling" in PIPELINES["traces"]["processors"]


def test_nothing_is_lost_while_ragmon_is_away():
    exporter = COLLECTOR["exporters"]["otlp_http/ragmon"]
    assert exporter["retry_on_failure"]["enabled"]
    assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"
    assert exporter["sending_queue"]["storage"].startswith("file_storage")
    assert exporter["compression"] == "gzip"


def test_the_conditions_name_keys_ragmon_reads():
    assert all(CLAUSES)
    known = {value for value in vars(semconv).values() if isinstance(value, str)}
    assert {clause[1] for clause in CLAUSES if clause[1]} <= known
    assert {clause[2] for clause in CLAUSES if clause[2]} == {OWN_SCOPE}
    assert [table["context"] for table in TABLES.values()] == ["span", "metric"]


def test_every_key_that_tells_a_spans_part_in_a_request_leads_to_ragmon():
    telling = [key for key, _ in _CONVENTIONS]
    assert all(routed({key: "anything"}, "a scope") for key in telling)
    assert not routed({"http.request.method": "POST", "db.system": "redis"}, "opentelemetry.instrumentation.httpx")


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "data" / "spans").glob("*.json")), ids=lambda path: path.stem)
def test_what_is_routed_of_a_recorded_trace_makes_the_same_record(path):
    for spans in recorded(path):
        around = [made({"http.request.method": "GET"}, name="GET"), *spans]
        kept = [span for span in around if routed(span.attributes, span.scope)]
        assert 0 < len(kept) < len(around)
        assert to_record(kept) == to_record(spans)


def test_the_totals_that_pass_are_those_producers_send():
    counted = {"calls": 3, "kept": 1, "dropped": {constants.QUEUE_FULL: 1}, "latency_ms": {100: 3}}
    told = Totals(ts=2.0, started=1.0, instance="i", pipeline="p", source=constants.LIVE, **counted)
    request = ExportMetricsServiceRequest.FromString(of_totals([told], {}))
    sent = {m.name for found in request.resource_metrics for scope in found.scope_metrics for m in scope.metrics}
    assert sent == TOTALS == {semconv.REQUESTS, semconv.E2E_LATENCY, semconv.RECORDS_DROPPED}


# The words.


def test_the_readme_is_short_and_names_every_file():
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 190
    for path in filter(Path.is_file, DEPLOY.rglob("*")):
        named = path.relative_to(DEPLOY).parts[0]
        assert named in ("README.md", ".gitignore") or named in text, path
