"""`ragmon why` explains every alarm by the name under which pages, `/metrics` and alerts show it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest

from tests.server.test_serve_admin import still
from tests.support.command_line import ragmon
from tests.support.serving import accounted, asked, send_body, serving, whole
from tests.support.waiting import wait_for

CONFIG = """
[pipelines.support]
[capture]
content = "full"
[gold.handbook]
path = "gold.jsonl"
"""
LEARNED, BROKEN = 90, 40
"""Minutes in which all is well, and in which no gold document is retrieved."""


def gold(folder):
    item = {"answerable": True, "gold_claim_substr": ["right"], "gold_citations": ["d1"]}
    items = ({"qid": f"g{n}", "question": f"g{n}?", **item} for n in range(30))
    (folder / "gold.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in items))


def minute(moved, number, **fields):
    """The probes of a minute and as many users' requests."""
    for k in range(30):
        told = {"ts": moved.now + k, "claim": "that is right", "build": "b1", "index_hash": "i1", **fields}
        yield asked(100 * number + k, **{**told, "source": "probe", "q": f"g{k}?"})
        yield asked(100 * number + 50 + k, **{**told, "q": "why?" if fields else "why is it so and not otherwise?"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the configuration and the state of the server are."""
    return tmp_path_factory.mktemp("alarms")


@pytest.fixture(scope="module")
def world(folder):
    """A server that learned what is usual, and whose index was swapped for one that has nothing of gold."""
    clock, moved = still()
    gold(folder)
    with serving(folder, CONFIG, clock=clock) as running:
        for number in range(LEARNED + BROKEN):
            bad = number >= LEARNED
            broken = {"retrieved": ["d7", "d8"], "citations": ["d7"], "build": "b2", "index_hash": "i2"} if bad else {}
            send_body(running, whole(minute(moved, number, **broken)))
            moved.advance(60.0)
        moved.advance(1.0)
        accounted(running)
        wait_for(running.status, lambda status: any(a["alert"] == "hit_rate:baseline" for a in status["alarms"]))
        yield running


def test_one_fault_is_one_incident(world):
    status = world.status()
    code, text = world.get("/api/incidents")
    (incident,) = json.loads(text)["incidents"]
    assert (code, incident["pipeline"], incident["severity"], incident["ended"]) == (200, "support", "confirmed", None)
    fire = [alarm for alarm in status["alarms"] if not alarm["alert"].endswith(":drift")]
    assert sorted(incident["alarms"]) == sorted(incident["firing"]) == sorted(alarm["alert"] for alarm in fire)
    assert incident["cause"]["trait"] == "retrieved no gold document"
    assert incident["summary"].endswith("(build and index b2 with i2), 100 % of gold questions")
    assert status["headline"] == incident["summary"] == status["wrong"][0]["what"]
    assert set(incident["metrics"]) >= {alarm["alert"].partition(":")[0] for alarm in fire}
    assert abs(status["now"] - BROKEN * 60 - incident["began"]) <= 180


def explained(running, name):
    code, text = running.get(f"/api/why?{urlencode({'gate': f'support/{name}'})}")
    assert code == 200, (name, text)
    return json.loads(text)


def test_a_metric_without_a_gate_is_explained_as_a_gate_is(world):
    why = explained(world, "hit_rate:baseline")
    assert why["gate"]["derived"] is True
    assert re.fullmatch(
        r"[\d.]+ % of \d+ since .* UTC, its own past says at least [\d.]+ %; by chance at most once in .*",
        why["gate"]["alarm"],
    )
    assert why["change"]["began"] is not None
    assert [suspect["name"] for suspect in why["suspects"]] == ["b2 with i2"]
    assert len(why["traces"]) == 10
    assert all(trace["scores"] == {"hit_rate": 0.0} and trace["build"] == "b2" for trace in why["traces"])


def test_every_alarm_that_is_shown_is_explained_by_its_name(world):
    shown = {
        re.search(r'gate="([^"]+)"', name)[1] for name in world.metrics() if name.startswith("ragmon_gate_alarm{")
    } | {alarm["alert"] for alarm in world.status()["alarms"]}
    assert {"hit_rate:baseline", "hit_rate:look", "hit_rate:paired", "latency:look", "question_length:drift"} < shown
    for name in sorted(shown):
        assert explained(world, name)["gate"]["name"] == name


def test_the_command_prints_the_alarm_its_proof_and_a_command_for_a_trace(world):
    done = ragmon("why", "support/hit_rate:baseline", "--url", world.admin)
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^alarm +support/hit_rate:baseline fires since \d\d:\d\d$", done.out, re.MULTILINE)
    assert "its own past says at least" in done.out
    command = re.search(r"^one of them +ragmon (show \S+ --url \S+)$", done.out, re.MULTILINE)[1]
    shown = ragmon(*command.split())
    assert shown.code == 0, shown.err
    assert "none of the 2 retrieved documents is in gold (gold: d1)" in shown.out


def test_a_time_to_look_back_to_is_one_that_a_server_takes(world):
    then = f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%d %H:%M:%S}"
    done = ragmon("why", "support/hit_rate:baseline", "--since", then, "--url", world.admin)
    assert (done.code, done.err) == (0, "")


def test_the_page_of_incidents_links_to_the_gates_that_exist(world):
    text = world.get("/incidents")[1]
    links = set(re.findall(r'<th scope="row"><a href="([^"]+)">support/', text))
    assert links
    assert {world.get(f"/{link}")[0] for link in links} == {200}
    assert '<th scope="row">support/hit_rate:baseline</th>' in text


def test_a_pipeline_alone_asks_for_its_newest_incident(world):
    _, text = world.get("/api/incidents")
    (incident,) = json.loads(text)["incidents"]
    assert incident["alarm"] in incident["alarms"]
    done = ragmon("why", "support", "--url", world.admin)
    assert (done.code, done.err) == (0, "")
    sentence, _, rest = done.out.partition("\n")
    assert sentence == incident["summary"]
    diagnosis = ragmon("why", f"support/{incident['alarm']}", "--url", world.admin).out
    assert rest.startswith(diagnosis)
    fired = rest.removeprefix(diagnosis).removeprefix("fired for").splitlines()
    assert [line.strip() for line in fired] == [f"{alarm}: {proof}" for alarm, proof in incident["proofs"].items()]
    assert list(incident["proofs"]) == incident["alarms"]
    assert ragmon("why", incident["incident"], "--url", world.admin).out == done.out
    assert "b2" in done.out
    lost = ragmon("why", "sales", "--url", world.admin)
    assert (lost.code, lost.out) == (3, "")
    assert "unknown pipeline" in lost.err


def test_a_replay_of_the_journal_tells_of_the_same_incident(world, folder, tmp_path):
    (incident,) = json.loads(world.get("/api/incidents")[1])["incidents"]
    out, report = tmp_path / "incidents.jsonl", tmp_path / "report.json"
    where = (
        "--journal",
        folder / "state",
        "--config",
        folder / "ragmon.toml",
        "--incidents-out",
        out,
        "--output",
        report,
    )
    assert ragmon("replay", *map(str, where)).code == 0
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert {(line["incident"], line["began"], line["state"]) for line in lines} == {
        (incident["incident"], incident["began"], "firing")
    }
    (told,) = json.loads(report.read_text(encoding="utf-8"))["incidents"]
    assert (told["summary"], told["proofs"]) == (incident["summary"], incident["proofs"])


def test_an_incident_has_a_page_with_its_sentence_its_alarms_and_requests_to_open(world):
    (incident,) = json.loads(world.get("/api/incidents")[1])["incidents"]
    code, page = world.get(f"/incidents/{incident['incident']}")
    assert code == 200
    assert incident["summary"] in page
    assert all(f">{alarm}<" in page for alarm in incident["alarms"])
    assert page.count('href="../t/') == 10
    assert f"incidents/{incident['incident']}" in world.get("/")[1]
    assert incident["summary"] in world.get("/incidents")[1]
    code, text = world.get("/incidents/support-1")
    assert (code, json.loads(text)["hint"]) == (404, f"did you mean {incident['incident']}?")


def test_a_silent_alarm_says_what_it_compares(world):
    text = explained(world, "error_rate:look")["gate"]["alarm"]
    assert re.match(r"compares error_rate with its own past", text), text
    assert explained(world, "hit_rate:paired")["gate"]["derived"] is True


def test_a_shift_of_a_distribution_says_what_moved_and_with_what(world):
    """The questions became shorter with the new build."""
    why = explained(world, "question_length:drift")
    assert why["measure"] == "requests"
    assert "the length of questions" in why["gate"]["alarm"]
    out = ragmon("why", "support/question_length:drift", "--url", world.admin).out
    assert "alarm       support/question_length:drift" in out
    assert ragmon("why", "support/index_hash:drift", "--url", world.admin).code == 0


def test_a_name_of_no_alarm_is_answered_with_the_nearest(world):
    error, hint = ragmon("why", "support/hit_rate:basline", "--url", world.admin).error
    assert (error, hint.startswith("did you mean hit_rate:baseline")) == ("unknown gate: 'hit_rate:basline'", True)
