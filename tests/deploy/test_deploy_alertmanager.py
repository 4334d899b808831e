"""`deploy/alertmanager.yml` in a real Alertmanager: who is told, who is not, and what is silenced by what."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest
import yaml

from tests.support.alertmanagers import alertmanager_in, listening
from tests.support.deployed import DEPLOY, document, installed, run, uncommented
from tests.support.serving import get
from tests.support.waiting import TIMEOUT, wait_for

CONFIG = document("alertmanager.yml")
ROUTES = {route["receiver"]: route for route in CONFIG["route"]["routes"]}
TOLD = ("page", "ticket", "info", "watchdog")
WAIT = "2s"
"""How long a group waits here before it is told; 30 seconds in the file."""


def alert(name, severity, pipeline="", gate="", **more):
    """The labels of an alert; those that are empty are not there."""
    labels = {"alertname": name, "severity": severity, "pipeline": pipeline, "gate": gate, **more}
    return {key: value for key, value in labels.items() if value}


class Alertmanager:
    """A running Alertmanager."""

    def __init__(self, address, told):
        self._alerts = f"http://{address}/api/v2/alerts"
        self.address = address
        self.told = told

    def send(self, *alerts):
        """Alerts that fire."""
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        request = urllib.request.Request(self._alerts, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=TIMEOUT).close()

    def seen(self):
        """Every alert it knows, by name, pipeline and gate."""
        with urllib.request.urlopen(self._alerts, timeout=TIMEOUT) as response:
            return {key(one["labels"]): one for one in json.load(response)}

    def heard(self):
        """What the webhook was told: receiver, name, pipeline and gate."""
        return {(receiver, *key(one["labels"])) for receiver, one in self.told}

    def inhibited(self):
        """The alerts that are silenced by others."""
        return {name for name, one in self.seen().items() if one["status"]["inhibitedBy"]}


def key(labels):
    return labels["alertname"], labels.get("pipeline", ""), labels.get("gate", "")


@pytest.fixture
def alertmanager(tmp_path):
    """A real Alertmanager with our configuration, sooner, and whose receivers tell a real webhook."""
    with listening() as (hook, told):
        config = json.loads(json.dumps(CONFIG))
        assert config["route"]["group_wait"] == "30s"
        config["route"]["group_wait"] = WAIT
        for receiver in config["receivers"]:
            receiver["webhook_configs"] = [{"url": f"{hook}/{receiver['name']}"}]
        (tmp_path / "alertmanager.yml").write_text(json.dumps(config))  # JSON is YAML
        with alertmanager_in(tmp_path) as address:
            yield Alertmanager(address, told)


def test_it_takes_its_configuration():
    assert "SUCCESS" in run(installed("amtool"), "check-config", str(DEPLOY / "alertmanager.yml"))


@pytest.mark.parametrize("name", ["page", "watchdog"])
def test_it_takes_the_receivers_of_its_comment(tmp_path, name):
    text = (DEPLOY / "alertmanager.yml").read_text()
    (example,) = yaml.safe_load(uncommented(text, f"- name: {name}"))
    assert example["webhook_configs"][0]["url"].startswith("http://127.0.0.1:9094/")
    receivers = [example if one["name"] == name else one for one in CONFIG["receivers"]]
    (tmp_path / "alertmanager.yml").write_text(json.dumps({**CONFIG, "receivers": receivers}))
    assert "SUCCESS" in run(installed("amtool"), "check-config", str(tmp_path / "alertmanager.yml"))


@pytest.mark.slow
def test_the_page_of_an_incident_is_told_and_what_is_about_gates_of_its_pipeline_is_not(alertmanager):
    alertmanager.send(
        alert("RagmonIncident", "page", "p", incident="p-1"),
        alert("RagmonGateSlowBurn", "ticket", "p", "coverage"),
        alert("RagmonDrift", "ticket", "p", "latency", alarm="latency:drift"),
        alert("RagmonGateBreach", "info", "p", "compliance"),
        alert("RagmonIndexDrift", "page", "p", "index_hash"),
        alert("RagmonErrors", "ticket", "p"),
        alert("RagmonIncident", "ticket", "q", incident="q-1"),
        alert("RagmonGateSlowBurn", "ticket", "q", "coverage"),
        alert("RagmonIndexDrift", "page", "r", "index_hash"),
        alert("RagmonGateBreach", "info", "r", "index_hash"),
        alert("RagmonGateBreach", "info", "r", "compliance"),
        alert("RagmonAccountingMismatch", "ticket", stage="ingest"),
        alert("RagmonWatchdog", "none"),
        alert("SomebodyElses", ""),
    )
    expected = {
        ("page", "RagmonIncident", "p", ""),
        ("page", "RagmonIndexDrift", "p", "index_hash"),
        ("ticket", "RagmonErrors", "p", ""),
        ("ticket", "RagmonIncident", "q", ""),
        ("ticket", "RagmonGateSlowBurn", "q", "coverage"),
        ("page", "RagmonIndexDrift", "r", "index_hash"),
        ("info", "RagmonGateBreach", "r", "compliance"),
        ("ticket", "RagmonAccountingMismatch", "", ""),
        ("watchdog", "RagmonWatchdog", "", ""),
        ("nobody", "SomebodyElses", "", ""),
    }
    wait_for(lambda: alertmanager.heard() >= expected)
    silenced = {("RagmonGateSlowBurn", "coverage"), ("RagmonDrift", "latency"), ("RagmonGateBreach", "compliance")}
    silenced = {(name, "p", gate) for name, gate in silenced} | {("RagmonGateBreach", "r", "index_hash")}
    wait_for(lambda: alertmanager.inhibited() == silenced)
    # Whatever came with the first alerts would have been told before one that came after them.
    alertmanager.send(alert("RagmonGateSlowBurn", "ticket", "q", "later"))
    wait_for(lambda: ("ticket", "RagmonGateSlowBurn", "q", "later") in alertmanager.heard())
    assert alertmanager.heard() - expected == {("ticket", "RagmonGateSlowBurn", "q", "later")}


@pytest.mark.slow
def test_incidents_of_a_pipeline_are_told_one_by_one_and_a_confirmed_one_is_no_ticket(alertmanager):
    """Each in a notification of its own: who silences one hears of the other."""
    confirmed, suspected = (alert("RagmonIncident", severity, "p", incident="p-1") for severity in ("page", "ticket"))
    others = [alert("RagmonIncident", severity, "p", incident=f"p-{severity}") for severity in ("page", "ticket")]
    alertmanager.send(confirmed, suspected, *others)

    def told():
        return sorted((receiver, one["labels"]["incident"]) for receiver, one in alertmanager.told)

    wait_for(told, lambda found: len(found) == 3)
    assert told() == [("page", "p-1"), ("page", "p-page"), ("ticket", "p-ticket")]
    groups = json.loads(get(f"http://{alertmanager.address}/api/v2/alerts/groups")[1])
    assert [len(group["alerts"]) for group in groups] == [1, 1, 1, 1]


def test_pages_and_the_watchdog_do_not_wait_for_their_group(alertmanager):
    assert {ROUTES[name].get("group_wait") for name in ("page", "watchdog")} == {"0s"}
    assert {ROUTES[name].get("group_wait") for name in ("ticket", "info")} == {None}


def test_without_ragmon_only_that_and_the_watchdog_are_told(alertmanager):
    gone = [
        alert("RagmonIncident", "page", "p", incident="p-1"),
        alert("RagmonNoData", "ticket", "p"),
        alert("RagmonJournalNotWritable", "page"),
        alert("RagmonGateBreach", "info", "q", "compliance"),
    ]
    alertmanager.send(
        alert("RagmonDown", "page"), *gone, alert("RagmonWatchdog", "none"), alert("SomebodyElses", "page")
    )
    wait_for(lambda: alertmanager.inhibited() == {key(labels) for labels in gone})
    heard = {("page", "RagmonDown"), ("watchdog", "RagmonWatchdog"), ("page", "SomebodyElses")}
    wait_for(lambda: {found[:2] for found in alertmanager.heard()} >= heard)


@pytest.mark.slow
def test_a_pipeline_without_requests_is_not_told_to_have_few(alertmanager):
    alertmanager.send(
        alert("RagmonNoData", "ticket", "p"),
        alert("RagmonGateInsufficient", "info", "p", "coverage"),
        alert("RagmonErrors", "ticket", "p"),
        alert("RagmonGateInsufficient", "info", "q", "coverage"),
        alert("RagmonRecordsDropped", "ticket", "p"),
    )
    wait_for(lambda: alertmanager.inhibited() == {("RagmonGateInsufficient", "p", "coverage")})
    told = (("RagmonErrors", "p"), ("RagmonRecordsDropped", "p"))
    heard = {("ticket", name, pipeline, "") for name, pipeline in told}
    wait_for(lambda: alertmanager.heard() >= heard)
    assert not {name[1:] for name in alertmanager.heard()} & alertmanager.inhibited()


def test_every_receiver_is_reached_and_empty():
    """Whoever takes the file fills them in; until then nobody is told anything."""
    assert [receiver["name"] for receiver in CONFIG["receivers"]] == ["nobody", *TOLD]
    assert set(ROUTES) == set(TOLD)
    assert all(set(receiver) == {"name"} for receiver in CONFIG["receivers"])
    assert {tuple(ROUTES[name]["matchers"]) for name in TOLD[:3]} == {(f'severity="{name}"',) for name in TOLD[:3]}


def test_nothing_is_repeated_later_than_alertmanager_remembers():
    """It keeps what it told for five days unless told otherwise."""
    hours = {"h": 1, "d": 24, "m": 1 / 60}
    spans = [re.fullmatch(r"(\d+)([mhd])", route["repeat_interval"]) for route in ROUTES.values() if len(route) > 3]
    assert spans
    assert all(int(found[1]) * hours[found[2]] < 120 for found in spans)
