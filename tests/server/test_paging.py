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
from ragmon.monitor.embedded import Monitor
from ragmon.testing import FakeClock
from tests.server.test_drill import CONFIGURATION, PACE, program
from tests.support.alarming import NOON, Traffic, write_config
from tests.support.alertmanagers import alertmanager_in, listening
from tests.support.deployed import DEPLOY, document
from tests.support.servers import prometheus
from tests.support.serving import PORTS
from tests.support.waiting import TIMEOUT, wait_for

SENTENCE = r"harbour: since \d\d:\d\d UTC .+ \(.*index.* \w+\), \d+ % of gold questions(?: \(\d+ % before\))?"
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
    """What people were told as pages and tickets: status and alert."""
    return {(one["status"], one["labels"]["alertname"]) for receiver, one in told if receiver in ("page", "ticket")}


def pages(told, status="firing"):
    """The incidents that somebody was paged for, or whose page ended, as often as it was said."""
    return [
        one
        for receiver, one in told
        if (receiver, one["status"], one["labels"]["alertname"]) == ("page", status, "RagmonIncident")
    ]


@pytest.mark.slow
def test_a_fault_pages_once_with_its_sentence_and_resolves_and_a_quiet_time_as_long_tells_nobody_anything(chain):
    app, told, server = chain
    server.wait_for(
        "count(ragmon_gate_samples >= on (pipeline, gate) pipeline_gate:ragmon_gate_min_samples:constant) > bool 2",
        1.0,
    )
    silence(told, QUIET)
    assert {receiver for receiver, _ in told} <= {"watchdog", "info"}

    begun = time.monotonic()
    app.send_signal(signal.SIGUSR1)
    wait_for(lambda: pages(told))
    app.send_signal(signal.SIGUSR2)
    wait_for(lambda: pages(told, "resolved"))
    paged, (page,), (ended,) = list(told), pages(told), pages(told, "resolved")
    lasted = time.monotonic() - begun
    told.clear()
    silence(told, lasted - QUIET)  # as long as the fault and its end took, on a slow machine too

    said, incident = page["annotations"], page["labels"]["incident"]
    assert ended["labels"]["incident"] == incident
    assert re.fullmatch(SENTENCE, said["summary"]), said["summary"]
    assert re.search(r"New within the hour: demo-1 on index \w+", said["description"]), said
    assert f"`ragmon why {incident}`" in said["description"]
    shown = re.search(r"http://127\.0\.0\.1:\d+/incidents/\S+$", said["description"])[0]
    assert shown.endswith(f"/{incident}")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/runbook#ragmonincident", said["runbook_url"])
    for address, text in ((shown, "severity</dt>"), (said["runbook_url"], '<h2 id="ragmonincident">')):
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            assert text in answer.read().decode()
    assert said["dashboard_url"] == "https://grafana.example/d/ragmon-overview?var-pipeline=harbour"
    assert {one["labels"]["alertname"] for receiver, one in paged if receiver == "page"} == {"RagmonIncident"}


def silence(told, seconds):
    """Wait for a time in which nobody is told that something urgent fires; end at once if somebody is."""
    ended = time.monotonic() + seconds
    tick = threading.Event()
    while time.monotonic() < ended:
        assert [alert for status, alert in urgent(told) if status == "firing"] == []
        tick.wait(0.5)


class Watched:
    """A monitor under a clock that moves as fast as requests can be counted, and who is told of what it says.

    Args:
        monitor: The monitor, which serves.
        clock: Its clock.
        told: What the webhook was told.
        server: The Prometheus that scrapes it.
    """

    def __init__(self, monitor, clock, told, server):
        self.monitor, self.told = monitor, told
        self._clock, self._server, self._minute, self._fed = clock, server, NOON, 0
        self._traffic = Traffic(live=60, gold=12, pipeline="harbour")

    def run(self, minutes, **shares):
        """So many minutes, in which these shares of the answers are wrong, and a look of Prometheus at the end."""
        for minute in range(self._minute, self._minute + minutes):
            for record in self._traffic.minute(minute, **shares):
                self._clock.now = record.ts
                self.monitor.submit(record)
                self._fed += 1
        self._minute += minutes
        self._clock.now = 60.0 * self._minute
        self._server.wait_for('ragmon_records_scored_total{stage="score"}', self._fed)

    def acknowledge(self, incident):
        """Somebody says what it was."""
        assert self.monitor.acknowledge(incident, "harbour", "parser taken back")


@pytest.fixture
def watched(real, tmp_path):
    """The deployed gates, rules and Alertmanager, and an hour of traffic in which all is well."""
    settings = load(write_config(tmp_path, (DEPLOY / "ragmon.toml").read_text()), environ={})
    rules = render(rule_groups(settings)).replace("keep_firing_for: 2m", "keep_firing_for: 2s")
    (tmp_path / "rules.yml").write_text(rules)
    clock = FakeClock(60.0 * NOON)
    with ExitStack() as stack:
        hook, told = stack.enter_context(listening())
        (tmp_path / "alertmanager.yml").write_text(json.dumps(impatient(document("alertmanager.yml"), hook)))
        manager = stack.enter_context(alertmanager_in(tmp_path))
        monitor = stack.enter_context(Monitor(settings, clock=clock).start("127.0.0.1:0"))
        watch = prometheus(real("prometheus"), tmp_path, [monitor.address], [tmp_path / "rules.yml"], [manager])
        found = Watched(monitor, clock, told, stack.enter_context(watch))
        found.run(70)
        yield found


@pytest.mark.slow
def test_two_faults_that_overlap_are_two_pages_each_told_once_with_its_own_sentence(watched):
    invented = {"foreign": 0.5}
    watched.run(8, **invented)
    (first,) = wait_for(lambda: pages(watched.told))
    watched.run(12, **invented, over=0.6)
    _, second = wait_for(lambda: pages(watched.told), lambda found: len(found) > 1)
    watched.acknowledge(first["labels"]["incident"])
    (ended,) = wait_for(lambda: pages(watched.told, "resolved"))
    assert ended["labels"] == first["labels"]
    assert pages(watched.told) == [first, second]
    cited, refused = (one["annotations"]["summary"] for one in (first, second))
    assert re.match(
        r"harbour: since 01:10 UTC answers cite documents that were not retrieved, \d+ % of requests", cited
    )
    assert re.match(r"harbour: since 01:1[78] UTC answerable questions are refused, \d+ % of gold questions", refused)


@pytest.mark.slow
def test_a_fault_that_moves_many_metrics_for_an_hour_is_one_page(watched):
    for _ in range(6):
        watched.run(10, missed=0.7)
    (page,) = wait_for(lambda: pages(watched.told))
    (incident,) = watched.monitor.snapshot().incidents
    assert len(incident.metrics) > 2
    assert page["labels"]["incident"] == incident.name
    assert {alert for _, alert in urgent(watched.told)} == {"RagmonIncident"}
    summary = page["annotations"]["summary"]
    assert summary.startswith("harbour: since 01:10 UTC retrieval misses the right documents, ")
