"""Who acknowledged an alarm, when and why: on the page and in the API of a real server, also after it was killed."""

from __future__ import annotations

import json
import re
import time
from html import unescape

import pytest

from ragmon.core.record import Ack, decode_entry, encode
from tests.server.test_serve_admin import still
from tests.support.command_line import ragmon
from tests.support.serving import accounted, asked, configuration, journalled, post, process, send_body, serving, whole
from tests.support.waiting import wait_for

PIPELINE = "[pipelines.support]\n"
BROKEN = {"citations": ["d404"]}


def broken(running, moved, minutes=4):
    """Some minutes in which every answer cites what was not retrieved; returns the alarms that fire then."""
    for _ in range(minutes):
        first = int(moved.now) * 10
        send_body(running, whole([asked(first + k, ts=moved.now + k, **BROKEN) for k in range(60)]))
        moved.advance(60.0)
    moved.advance(1.0)
    accounted(running)
    return {alarm["alert"] for alarm in wait_for(running.status, lambda status: status["alarms"])["alarms"]}


def ack(running, *arguments, **options):
    return ragmon("ack", "support/citation_scope", "--url", running.otlp, *arguments, **options)


def test_an_incident_is_acknowledged_by_its_name_with_every_alarm_of_it(tmp_path):
    clock, moved = still()
    with serving(tmp_path, PIPELINE, clock=clock) as running:
        fired = broken(running, moved)
        (incident,) = json.loads(running.get("/api/incidents")[1])["incidents"]
        assert fired == set(incident["firing"])
        assert len(fired) > 1
        moved.advance(45.0)  # within the next minute
        done = ragmon("ack", incident["incident"], "--by", "Ada", "--reason", "rolled back", "--url", running.otlp)
        assert (done.code, done.out) == (0, f"{incident['incident']}: silenced and reset\n"), done.err
        accounted(running)
        assert running.status()["alarms"] == []
        page = unescape(running.get("/incidents")[1])
        assert len(re.findall(r"UTC by Ada: rolled back</td>", page)) == len(fired)
        page = unescape(running.get(f"/incidents/{incident['incident']}")[1])
        assert len(re.findall(r"<dt>acknowledged</dt><dd>[\d :-]+ UTC by Ada: rolled back</dd>", page)) == 1
        assert {entry["alert"] for entry in running.status()["acknowledged"]} == fired
        (incident,) = json.loads(running.get("/api/incidents")[1])["incidents"]
        assert incident["ended"] is not None


def test_an_incident_that_ended_or_does_not_exist_is_named_as_such(tmp_path):
    clock, moved = still()
    with serving(tmp_path, PIPELINE, clock=clock) as running:

        def refused(*arguments):
            return ragmon(*arguments, cwd=tmp_path).error

        def unknown(name):
            return refused("why", name, "--url", running.admin), refused("ack", name, "--reason", "x", "--url", url)

        url, no_incident = running.otlp, "there is no incident 'support-20260101T0000'"
        send_body(running, whole([asked(0, ts=moved.now)]))
        accounted(running)
        assert unknown("support-20260101T0000") == ((no_incident, "there is no incident yet"),) * 2
        assert running.get("/incidents/x")[1].count("there is no incident yet") == 1
        error, hint = refused("why", "support", "--url", running.admin)
        assert (error, "citation_scope" in hint) == ("support has no incident", True)
        broken(running, moved)
        (incident,) = json.loads(running.get("/api/incidents")[1])["incidents"]
        assert [error for error, _ in unknown("support-20260101T0000")] == [no_incident] * 2
        name = incident["incident"]
        assert ragmon("ack", name, "--reason", "x", "--url", url).code == 0
        error, hint = refused("ack", name, "--reason", "x", "--url", url)
        assert re.fullmatch(rf"incident '{name}' ended at [\d-]+ [\d:]+ UTC", error)
        assert ragmon("why", name, "--url", running.admin).code == 0


def test_what_the_alarms_of_an_incident_fired_for_is_told_after_its_end_and_a_restart(tmp_path):
    clock, moved = still()

    def told(running):
        """What is told of the incident, by alarm; it is the same everywhere."""
        (incident,) = json.loads(running.get("/api/incidents")[1])["incidents"]
        page = unescape(running.get(f"/incidents/{incident['incident']}")[1])
        lines = ragmon("why", incident["incident"], "--url", running.admin).out
        for alarm, proof in incident["proofs"].items():
            assert f'<td class="words long">{proof}</td>' in page
            assert f"{alarm}: {proof}" in lines
        return incident["ended"], incident["proofs"]

    with serving(tmp_path, PIPELINE, clock=clock) as running:
        fired = broken(running, moved)
        ended, proofs = told(running)
        assert ended is None
        assert proofs.keys() == fired
        assert proofs == {alarm["alert"]: alarm["proof"]["text"] for alarm in running.status()["alarms"]}
        (incident,) = json.loads(running.get("/api/incidents")[1])["incidents"]
        ragmon("ack", incident["incident"], "--reason", "rolled back", "--url", running.otlp)
        accounted(running)
        ended, kept = told(running)
        assert ended is not None
        assert kept == proofs
    with serving(tmp_path, PIPELINE, clock=clock) as again:
        assert told(again) == (ended, proofs)


def test_an_incident_of_the_day_before_is_shown_in_the_hours_around_it(tmp_path):
    clock, moved = still()
    with serving(tmp_path, PIPELINE, clock=clock) as running:
        broken(running, moved)
        (incident,) = json.loads(running.get("/api/incidents")[1])["incidents"]
        ragmon("ack", incident["incident"], "--reason", "rolled back", "--url", running.otlp)
        moved.advance(30 * 3600.0)
        accounted(running)
        (incident,) = json.loads(running.get("/api/incidents")[1])["incidents"]
        page = running.get(f"/incidents/{incident['incident']}")[1]
        drawn = json.loads(re.search(r'id="drawn">(.*?)</script>', page)[1])
    assert drawn["begin"] < incident["began"] < incident["ended"] < drawn["end"] < incident["ended"] + 3 * 3600
    assert drawn["end"] - drawn["begin"] == 6 * 3600
    assert sum(drawn["n"]) == 4 * 60


def test_page_and_api_show_who_when_why_and_until_it_fires_again(tmp_path):
    clock, moved = still()
    with serving(tmp_path, PIPELINE, clock=clock) as running:
        assert "citation_scope" in broken(running, moved)
        at = moved.now
        done = ack(running, "--by", "Ada <on call>", "--reason", "index rebuilt\x1b[31m")
        assert (done.code, done.out) == (0, "support/citation_scope: silenced and reset\n"), done.err
        (entry,) = running.status()["acknowledged"]
        assert at <= entry.pop("at") <= moved.now
        assert entry == {
            "pipeline": "support",
            "alert": "citation_scope",
            "by": "Ada <on call>",
            "reason": "index rebuilt\x1b[31m",
            "fired": True,
            "until": None,
        }
        shown = running.get("/")[1]
        assert "support/citation_scope: acknowledged by Ada &lt;on call&gt; at " in shown
        assert "index rebuilt\\x1b[31m" in shown
        assert "until it fires again" in shown
        assert "citation_scope" in broken(running, moved)
        (entry,) = running.status()["acknowledged"]
        assert at < entry["until"] <= moved.now
        assert "until it fired again at " in running.get("/")[1]
        moved.advance(8 * 86_400.0)
        send_body(running, whole([asked(1, ts=moved.now)]))
        accounted(running)
        assert running.status()["acknowledged"] == [], "after a week it is history"


@pytest.mark.slow
def test_it_survives_the_death_of_the_process(tmp_path):
    configuration(tmp_path, PIPELINE)
    with process(tmp_path) as running:
        send_body(running, whole([asked(n) for n in range(5)]))
        accounted(running)
        assert ack(running, "--by", "ada", "--reason", "a drill").code == 0
        before = running.status()["acknowledged"]
        running.kill()
    with process(tmp_path) as running:
        assert running.status()["acknowledged"] == before
        assert before[0]["by"] == "ada"
        assert before[0]["fired"] is False
        assert abs(before[0]["at"] - time.time()) < 60
        assert running.stop() == 0
    assert journalled(tmp_path, Ack) == [Ack(pipeline="support", alert="citation_scope", reason="a drill", by="ada")]


def test_without_a_name_it_is_the_login_and_the_api_need_not_say(tmp_path):
    with serving(tmp_path, PIPELINE) as running:
        send_body(running, whole([asked(0)]))
        accounted(running)
        assert ack(running, "--reason", "x", env={"LOGNAME": "grace"}).code == 0
        assert running.status()["acknowledged"][0]["by"] == "grace"
        body = {"gate": "citation_scope", "pipeline": "support", "reason": "y"}
        assert post(f"{running.otlp}/v1/ack", body)[0] == 200
        assert [(entry["by"], entry["reason"]) for entry in running.status()["acknowledged"]] == [("", "y")]
        assert "support/citation_scope: acknowledged at " in running.get("/")[1]
        for by in (7, "x" * 201, None):
            code, text = post(f"{running.otlp}/v1/ack", {**body, "by": by})
            assert (code, json.loads(text)["error"].startswith("by is ")) == (400, True)


def test_an_entry_of_an_older_journal_opens_and_a_new_one_without_a_name_is_as_it_was():
    line = b'{"kind":"ack","pipeline":"support","alert":"mrr","reason":"x"}\n'
    entry = decode_entry(line)
    assert entry == Ack(pipeline="support", alert="mrr", reason="x", by="")
    assert encode(entry) == line
