"""What Prometheus answers to every query of the boards, from hours of a real server and a real application.

Server and application run under a clock that is sixty times as fast. Their `/metrics` are read every half minute of
that clock, written as OpenMetrics with those times, and put into blocks by `promtool`. A Prometheus that has the blocks
and the deployed rules answers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from importlib import resources
from threading import Event

from tests.support.dashboard_world import DEPLOYED, GRAFANA, ROOT, asked, panels, read
from tests.support.servers import prometheus
from tests.support.serving import PORTS
from tests.support.waiting import TIMEOUT

PACE = 60
HOURS = 7.0
"""How long the application lives; the boards show six, as they do when they are opened."""
SHOWN = 6 * 3600
STARTING = 15.0
"""Seconds until server and application run."""
EVERY = 30.0
"""Seconds between two looks at /metrics, and between two points of a panel, by the clock of the server."""
TARGET = 'instance="ragmon:9464",job="ragmon"'
"""The labels that Prometheus gives to what it scrapes, as deploy/prometheus/prometheus.yml has them."""
CHOSEN = {"__rate_interval": "2m", "__range": f"{SHOWN}s"}
"""What Grafana makes of a scrape interval of 30 seconds, and of six hours."""
CONFIGURATION = """
extend = "{deployed}"
plugins = ["tests.support.drawing.pipeline"]
[sampling]
rate = 0.2
[capture]
gold = "gold.jsonl"
[gold.harbour]
path = "gold.jsonl"
[probe.harbour]
target = "tests.support.drawing.pipeline:answer"
every = "60s"
max_per_day = 1000000
concurrency = 8
[judges.brief]
sample = 1.0
max_per_day = 100000
[labels]
proxy = "judge_brief"
"""
"""What the server of the pictures has beside deploy/ragmon.toml. A round of probes takes an hour of its clock."""
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)(?: # .*)?$")


def answers(folder):
    """Live through the hours; returns the time shown, and each board with what Prometheus answers.

    Args:
        folder: An empty one, for configurations, journal and blocks.
    """
    lines = folder / "metrics.txt"
    with lines.open("w", encoding="utf-8") as written:
        _live(folder, written)
    data = folder / "data"
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(lines), str(data)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rules = [ROOT / "deploy" / "prometheus" / "ragmon.rules.yml"]
    with prometheus(shutil.which("prometheus"), folder, [], rules) as server:
        server.wait_for('count(ALERTS{alertname="RagmonIncident",alertstate="firing"}) > bool 0', 1)
        end = time.time()
        boards = [_board(server, board, end - SHOWN, end) for board in read(GRAFANA).values()]
    return {"from": end - SHOWN, "to": end, "boards": boards}


def _live(folder, written):
    """Run server and application to the end of their hours, and write what /metrics says in between."""
    shutil.copy(resources.files("ragmon.demo") / "gold.jsonl", folder)
    config = folder / "ragmon.toml"
    config.write_text(CONFIGURATION.format(deployed=DEPLOYED) + PORTS + 'tls = "off"\n', encoding="utf-8")
    end = time.time() + STARTING + HOURS * 3600 / PACE
    env = {**os.environ, "PACE": str(PACE), "PACE_FROM": str(end), "TMPDIR": str(folder)}
    with _program("tests.support.drill_server", str(config), env=env) as places:
        env |= {"RAGMON_CONFIG": str(config), "RAGMON_ENDPOINT": f"http://{places['otlp']}"}
        with _program("tests.support.drawing.application", env=env):
            _scrape(f"http://{places['admin']}/metrics", end, written)


def _scrape(url, end, written):
    """Write every sample with the labels of its target and the time of the server's clock, until the end."""
    accepted = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    pause = Event()
    while (real := time.time()) < end:
        at = end + (real - end) * PACE
        with urllib.request.urlopen(accepted, timeout=TIMEOUT) as answer:
            for line in answer.read().decode().splitlines():
                if found := _SAMPLE.match(line):
                    name, labels, value = found.groups()
                    written.write(f"{name}{{{f'{labels},' if labels else ''}{TARGET}}} {value} {at:.3f}\n")
        written.write(f"up{{{TARGET}}} 1 {at:.3f}\n")
        pause.wait(max(0.0, real + EVERY / PACE - time.time()))
    written.write("# EOF\n")


@contextmanager
def _program(module, *arguments, env):
    """A program once it has said that it is ready, and the addresses it named; ended at the end."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT)
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if lines[-1] in ("ready", "asking"):
            break
    try:
        assert process.poll() is None, lines
        yield dict(line.split(": ") for line in lines if ": " in line)
        assert process.poll() is None, f"{module} ended by itself"
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT)


def _board(server, board, start, end):
    """A board, the answers to its panels by number and letter, and to its annotations by name."""
    over_time = {"start": start, "end": end, "step": EVERY}
    found = {}
    for panel in panels(board):
        for target in panel["targets"]:
            path, times = ("query_range", over_time) if target.get("range") else ("query", {"time": end})
            query = asked(target["expr"], **CHOSEN)
            found[f"{panel['id']}{target['refId']}"] = server.ask(path, query=query, **times)["result"]
    marks = {
        annotation["name"]: server.ask("query_range", query=asked(annotation["expr"], **CHOSEN), **over_time)["result"]
        for annotation in board["annotations"]["list"]
    }
    return {"board": board, "answers": found, "marks": marks}
