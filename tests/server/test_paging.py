"""From a swapped index to somebody's pager and back, on a real Prometheus and a real Alertmanager.

The clocks of the application and of ragmon run sixty times faster; Prometheus and Alertmanager keep real time, and are
configured to scrape, evaluate and wait sixty times sooner.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
import urllib.request
from contextlib import ExitStack
from importlib import resources

import pytest

from ragmon.config.load import load
from ragmon.export.rules import render, rule_groups
from tests.server.test_drill import CONFIGURATION, PACE, program
from tests.support.alertmanagers import alertmanager_in, listening
from tests.support.deployed import document
from tests.support.servers import prometheus
from tests.support.serving import PORTS
from tests.support.waiting import TIMEOUT, wait_for

PAGE = r"harbour/answer_precision fires: ([\d.]+)% in 5m \(n = \d+\), threshold 80%"
QUIET = 45.0
"""Seconds in which nothing may be told: three quarters of an hour by the hurried clocks."""
PATIENT = 15
"""Seconds an alert that waits at all waits at least: on a busy machine a few scrapes may come late."""
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION = r"(?<=[\[:])(\d+)([smhd])(?=[\]:])|(?<=offset )(\d+)([smhd])|(?<=for: )(\d+)([smhd])"


def hurried(rules):
    """Rules whose times pass sixty times faster."""

    def sooner(found):
        number, unit = (group for group in found.groups() if group)
        least = PATIENT if rules.endswith(" for: ", 0, found.start()) else 1
        return f"{max(least, round(float(number) * UNITS[unit] / PACE))}s"

    return re.sub(DURATION, sooner, rules)


@pytest.fixture
def chain(real, tmp_path):
    """The whole chain under way and well; gives the application, what the webhook was told, and Prometheus."""
    config = tmp_path / "ragmon.toml"
    config.write_text(CONFIGURATION + 'dashboard = "https://grafana.example"\n' + PORTS, encoding="utf-8")
    shutil.copy(resources.files("ragmon.demo") / "gold.jsonl", tmp_path)
    (tmp_path / "rules.yml").write_text(hurried(render(rule_groups(load(config, environ={})))))
    env = {**os.environ, "PACE": str(PACE), "PACE_FROM": str(time.time()), "TMPDIR": str(tmp_path)}
    with ExitStack() as stack:
        hook, told = stack.enter_context(listening())
        (tmp_path / "alertmanager.yml").write_text(json.dumps(impatient(document("alertmanager.yml"), hook)))
        manager = stack.enter_context(alertmanager_in(tmp_path))
        _, said = stack.enter_context(program("drill_server", config, env=env))
        places = dict(line.split(": ") for line in said if ": " in line)
        sent = {**env, "RAGMON_CONFIG": str(config), "RAGMON_ENDPOINT": f"http://{places['otlp']}"}
        app, _ = stack.enter_context(program("drill_app", env=sent))
        watch = prometheus(real("prometheus"), tmp_path, [places["admin"]], [tmp_path / "rules.yml"], [manager])
        yield app, told, stack.enter_context(watch)


def impatient(config, hook):
    """The deployed Alertmanager's routes and inhibitions, told at once, and to the webhook."""
    for route in (config["route"], *config["route"]["routes"]):
        route.update(group_wait="1s", group_interval="1s", repeat_interval="1h")
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [{"url": f"{hook}/{receiver['name']}"}]
    return config


def urgent(told):
    """What people were told: pages and tickets by status, alert and gate, with the annotations."""
    return {
        (one["status"], one["labels"]["alertname"], one["labels"].get("gate")): one["annotations"]
        for receiver, one in told
        if receiver in ("page", "ticket")
    }


@pytest.mark.slow
def test_a_fault_pages_with_the_reason_and_resolves_and_a_quiet_time_as_long_tells_nobody_anything(chain):
    app, told, server = chain
    server.wait_for(
        "count(ragmon_gate_samples >= on (pipeline, gate) pipeline_gate:ragmon_gate_min_samples:constant) > bool 2",
        1.0,
    )
    silence(told, QUIET)
    assert {receiver for receiver, _ in told} <= {"watchdog", "info"}

    begun = time.monotonic()
    app.send_signal(signal.SIGUSR1)
    page = ("firing", "RagmonGateAlarm", "answer_precision")
    said = wait_for(lambda: urgent(told), lambda found: page in found)[page]
    resolved = ("resolved", *page[1:])
    app.send_signal(signal.SIGUSR2)
    wait_for(lambda: urgent(told), lambda found: resolved in found)
    during = urgent(told)
    lasted = time.monotonic() - begun
    told.clear()
    silence(told, lasted - QUIET)  # as long as the fault and its end took, on a slow machine too

    told_of = re.fullmatch(PAGE, said["summary"])
    assert told_of, said["summary"]
    assert float(told_of[1]) < 80, "what people read is what the alarm has seen"
    assert re.search(r"New within the hour: demo-1 on index \w+", said["description"]), said
    assert "`ragmon why harbour/answer_precision`" in said["description"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/runbook#ragmongatealarm", said["runbook_url"])
    with urllib.request.urlopen(said["runbook_url"], timeout=TIMEOUT) as runbook:
        assert '<h2 id="ragmongatealarm">' in runbook.read().decode()
    assert said["dashboard_url"] == "https://grafana.example/d/ragmon-overview?var-pipeline=harbour"
    assert ("firing", "RagmonIndexDrift", "index_hash") in during


def silence(told, seconds):
    """Wait for a time in which nobody is told that something urgent fires; end at once if somebody is."""
    ended = time.monotonic() + seconds
    tick = threading.Event()
    while time.monotonic() < ended:
        assert [key for key in urgent(told) if key[0] == "firing"] == []
        tick.wait(0.5)
