"""The runbook can be followed: every alert has its section, and every command runs against a real chain."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from time import time

import pytest

from ragmon.config.load import load
from ragmon.core.record import Latency
from ragmon.export import families as series_names
from ragmon.metrics import families
from ragmon.testing import make_record
from tests.support.alertmanagers import alertmanager_in
from tests.support.command_line import environment, ragmon
from tests.support.deployed import DEPLOY, ROOT, document
from tests.support.servers import prometheus
from tests.support.serving import PORTS, asked, get, process, send_body, whole
from tests.support.waiting import TIMEOUT, wait_for

TEXT = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
HEAD, *PARTS = re.split(r"^## ", TEXT, flags=re.MULTILINE)
SECTIONS = {part.partition("\n")[0]: part.partition("\n")[2] for part in PARTS}
ORDER = ("What it means", "Look at", "Likely causes", "Silence and end")


def blocks(text):
    return re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(text):
    """The commands of all blocks, one by one; a line that ends in a backslash goes on."""
    joined = "".join(blocks(text)).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


COMMANDS = [(name, command) for name, text in SECTIONS.items() for command in commands(text)]


# The words.


@pytest.mark.slow
def test_every_alert_of_the_rules_has_a_section_and_no_other_does():
    rules = [rule for group in document("prometheus/ragmon.kafka.rules.yml")["groups"] for rule in group["rules"]]
    assert set(SECTIONS) == {rule["alert"] for rule in rules if "alert" in rule}


def test_a_section_has_its_four_parts_in_order():
    for name, section in SECTIONS.items():
        assert tuple(re.findall(r"^\*\*([^*]+)\.\*\*", section, re.MULTILINE)) == ORDER, name
        means, look, *_ = re.split(r"^\*\*[^*]+\.\*\*", section, flags=re.MULTILINE)[1:]
        assert 2 <= len(re.findall(r"[.:](?:\s|$)", means)) <= 5, name
        assert len(commands(look)) == 3, name


@pytest.mark.parametrize("name", SECTIONS)
def test_a_silence_is_of_this_alert_ends_and_says_why(name):
    quiet = SECTIONS[name].partition("**Silence and end.**")[2]
    silences = [command for command in commands(quiet) if command.startswith("amtool silence add")]
    if name == "RagmonWatchdog":  # silent, it would call
        assert not commands(quiet)
        return
    (silence,) = silences
    assert f"alertname={name}" in silence
    assert re.search(r"--duration=\d+[mh] ", silence)
    assert re.search(r'--comment="[^"]+"', silence)
    for acknowledged in set(commands(quiet)) - set(silences):
        assert re.match(r'ragmon ack "\$(INCIDENT|PIPELINE/\S+)" .*--reason "[^"]+"', acknowledged)


def test_alerts_that_are_incidents_or_alarms_of_ragmon_can_be_acknowledged():
    able = {name for name, command in COMMANDS if command.startswith("ragmon ack")}
    assert able == {"RagmonIncident", "RagmonDrift", "RagmonIndexDrift"}


def test_no_section_says_to_raise_a_threshold():
    assert "Raise a threshold only as a decision on a release" in HEAD
    for text in SECTIONS.values():
        assert not re.search(r"rais\w* (the|a) threshold", text)


def test_the_values_at_the_top_are_those_of_the_deployment():
    given = dict(re.findall(r"(\w+)=(\S+)", blocks(HEAD)[0]))
    settings = load(DEPLOY / "ragmon.toml", environ={})
    assert given["PIPELINE"] == settings.pipeline
    assert given["GATE"] in {gate.name for gate in settings.of(settings.pipeline).resolved_gates}
    assert given["ADMIN"].endswith(f":{settings.serve.admin.port}")
    assert given["WRITE"].endswith(f":{settings.serve.otlp.port}")
    assert given["RAGMON_CONFIG"] in (DEPLOY / "ragmon.service").read_text()
    assert given["STATE"] in (DEPLOY / "Dockerfile").read_text()


@pytest.mark.slow
def test_every_inline_command_of_ragmon_exists():
    told = set(re.findall(r"`ragmon ([a-z]+(?: [a-z]+)?)", TEXT)) - {"generate rules"}  # tested where it is made
    assert {"ack", "verify", "gold diff", "label queue"} <= told
    for command in told:
        assert ragmon(*command.split(), "--help").code == 0, command


# The commands.


@pytest.fixture(scope="module")
def chain(tmp_path_factory, real):
    """The chain of compose.yaml without containers, and an incident; gives the environment of the runbook's shell."""
    folder = tmp_path_factory.mktemp("chain")
    configuration = (DEPLOY / "ragmon.toml").read_text().partition("[serve]")[0]
    (folder / "ragmon.toml").write_text(configuration + PORTS)
    (folder / "token").write_text("s3cret-of-the-server\n")
    shutil.copy(ROOT / "ragmon" / "demo" / "gold.jsonl", folder)
    promtool = Path(real("promtool")).parent
    with process(folder) as server:
        timed = {"pipeline": "harbour", "build": "b1", "latency_ms": Latency(total=900.0)}
        invented = {"retrieved": ["d1"], "citations": ["d7"]}
        live = [asked(n, **timed, **invented, error="Timeout" if n < 10 else None) for n in range(200)]
        told = {"pipeline": "harbour", "source": "probe", "v": 1}
        gold = [make_record(f"d{n:03}", ts=time(), trace_id=f"{9000 + n:032x}", **told) for n in range(1, 21)]
        send_body(server, whole([*live, *gold]))
        wait_for(server.books, lambda books: books["scored"] == 220)
        (folder / "prometheus").mkdir()
        (folder / "alertmanager").mkdir()
        shutil.copy(DEPLOY / "alertmanager.yml", folder / "alertmanager")
        scraped = server.admin.removeprefix("http://")
        with (
            prometheus(real("prometheus"), folder / "prometheus", [scraped]) as watching,
            alertmanager_in(folder / "alertmanager") as told,
        ):
            watching.wait_for('up{job="ragmon"}', 1.0)
            incident = wait_for(lambda: json.loads(get(f"{server.admin}/api/incidents")[1])["incidents"])[0]["incident"]
            names = dict(re.findall(r"(\w+)=(\S+)", blocks(HEAD)[0]))
            own = {
                "INCIDENT": incident,
                "RAGMON_CONFIG": str(folder / "ragmon.toml"),
                "RAGMON_TOKEN_FILE": str(folder / "token"),
                "STATE": str(folder / "state"),
                "ADMIN": server.admin,
                "WRITE": server.otlp,
                "PROMETHEUS": f"http://{watching.address}",
                "ALERTMANAGER": f"http://{told}",
            }
            path = os.pathsep.join([str(Path(sys.executable).parent), str(promtool), os.environ["PATH"]])
            yield environment(**{**names, **own, "PATH": path})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(COMMANDS)])
def test_a_command_runs(chain, name, command):
    shell = ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", command]
    done = subprocess.run(shell, env=chain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr


def test_every_series_that_is_asked_for_is_called_as_ragmon_calls_it():
    asked_for = {name for _, command in COMMANDS for name in re.findall(r"\b(?:rag|ragmon)_[a-z0-9_]+", command)}
    served = {value for value in vars(series_names).values() if isinstance(value, str)}
    served |= {f"{series_names.PREFIX}{metric}" for metric in families()}
    known = {re.sub("_(bucket|sum|count)$", "", name) for name in asked_for} - served
    parts = {name for name in known if name.endswith("_")}  # the beginning of a pattern
    assert known == parts
    assert all(any(one.startswith(part) for one in served) for part in parts)


def test_the_watchdog_is_routed_where_the_runbook_says(chain):
    (command,) = [command for _, command in COMMANDS if "routes test" in command]
    done = subprocess.run(
        ["bash", "-c", command], env=chain, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.stdout.strip() == "watchdog"
