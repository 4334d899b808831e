"""`make stack`: the whole chain without containers, and nothing left of it afterwards."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.command_line import environment
from tests.support.deployed import DEPLOY
from tests.support.waiting import TIMEOUT, wait_for

SCRIPT = DEPLOY / "stack.py"


@pytest.fixture
def stack(real, tmp_path):
    """The running stack and what it said; killed with all it started if the test did not end it."""
    real("prometheus")
    real("prometheus-alertmanager")
    env = environment(TMPDIR=str(tmp_path))
    process = subprocess.Popen([sys.executable, SCRIPT, "--free-ports"], stdout=subprocess.PIPE, text=True, env=env)
    try:
        yield process, [process.stdout.readline() for _ in range(5)]
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=TIMEOUT)


def asked(place, path):
    with urllib.request.urlopen(f"http://{place}{path}", timeout=TIMEOUT) as response:
        return response.read().decode()


def queried(place, expression):
    found = json.loads(asked(place, f"/api/v1/query?query={urllib.request.quote(expression)}"))
    return [one["value"][1] for one in found["data"]["result"]]


@pytest.mark.slow
def test_it_says_where_everything_is_and_the_chain_is_closed_and_ends_without_a_trace(stack, tmp_path):
    process, said = stack
    ragmon, prometheus, alertmanager = (re.search(r"http://([\d.]+:\d+)", line)[1] for line in said[:3])
    folder = Path(said[3].split()[1])
    assert all(place.startswith("127.0.0.1:") for place in (ragmon, prometheus, alertmanager))
    assert "ragmon" in asked(ragmon, "/")
    wait_for(
        lambda: queried(prometheus, 'sum(ragmon_records_scored_total{stage="ingest"}) > bool 50'), lambda v: v == ["1"]
    )
    groups = json.loads(asked(prometheus, "/api/v1/rules"))["data"]["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
    wait_for(
        lambda: json.loads(asked(alertmanager, "/api/v2/alerts")),
        lambda alerts: "RagmonWatchdog" in {alert["labels"]["alertname"] for alert in alerts},
    )
    began = children(process.pid)
    assert len(began) == 4
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=TIMEOUT) == 0
    assert [pid for pid in began if Path(f"/proc/{pid}").exists()] == []
    assert not folder.exists()


def children(pid):
    """The processes a process started."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@pytest.mark.slow
def test_what_cannot_start_is_named_with_its_last_words_and_the_rest_is_ended(real, tmp_path):
    real("prometheus-alertmanager")
    (tmp_path / "prometheus").write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
    (tmp_path / "prometheus").chmod(0o755)
    env = environment(TMPDIR=str(tmp_path), PATH=f"{tmp_path}:{environment()['PATH']}")
    command = [sys.executable, SCRIPT, "--free-ports"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=TIMEOUT, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: prometheus does not become ready:\nno such flag\n"
    assert list(tmp_path.glob("ragmon-stack-*")) == []
