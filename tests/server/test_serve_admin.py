"""The admin port of a real server: what it answers, in which order, to whom, and what it never says."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import re
import socket
import subprocess
import threading
import time
import urllib.request
from urllib.parse import urlencode, urlsplit

import pytest
from msgspec import convert
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from ragmon.config.load import load
from ragmon.export.text import why_text
from ragmon.gates.change import Why
from ragmon.server import queries as asking_module
from ragmon.server.server import Server
from ragmon.server.state import Clock, entries
from ragmon.testing import FakeClock
from tests.server.test_faults_disk import send_until_refused
from tests.support.command_line import ragmon
from tests.support.otlp_requests import export
from tests.support.serving import PROTOBUF, Running, accounted, asked, configuration, foreign, send_body, serving, whole
from tests.support.token_server import post_with_token, serving_with_token
from tests.support.waiting import TIMEOUT, wait_for

GATES = """
[pipelines.support]
[pipelines.sales]
[gates.errors]
metric = "error_rate"
at_most = 0.0
[gates.empty]
metric = "empty_retrieval_rate"
at_most = 0.0
[gates.slow]
kind = "quantile_ratio"
metric = "latency"
at_most = 1.3
"""
FAILS = {"errors": "error_rate", "empty": "empty_retrieval_rate"}
"""The metric each gate judges that a request alone can fail."""
KINDS = {"errors": {"error": "TimeoutError"}, "empty": {"retrieved": [], "citations": []}, "well": {}}


def still():
    """A clock that stands still, and what moves it."""
    moved = FakeClock(time.time())
    return Clock(wall=moved, passed=moved), moved


def mixed(n, now, seed=1, first=0):
    """Requests of two pipelines in any order of time within three hours, with what fails them."""
    rng = random.Random(seed)
    for number in range(first, first + n):
        kind = rng.choice([*KINDS])
        told = {"pipeline": rng.choice(["support", "sales"]), "ts": now - rng.uniform(1, 3 * 3600)}
        told |= {"build": rng.choice(["b1", "b2"]), "index_hash": rng.choice(["i1", "i2"])}
        yield kind, asked(number, **told, **KINDS[kind])


def failing(sent, now, *, gate=None, since=None, **same):
    """The trace ids that are to be found, newest first: worked out from what was sent."""
    found = [
        record
        for kind, record in sent
        if kind in ((gate,) if gate else FAILS)
        and (since is None or record.ts >= now - since)
        and all(getattr(record, name) == value for name, value in same.items())
    ]
    return [record.trace_id for record in sorted(found, key=lambda record: -record.ts)]


def pages(running, limit, **how):
    """The records of every page."""
    cursor, found = None, []
    while True:
        told = {**how, "limit": limit, **({"cursor": cursor} if cursor else {})}
        code, text = running.get(f"/api/records?{urlencode(told)}")
        assert code == 200, text
        page, cursor = json.loads(text).values()
        assert len(page) <= limit
        found += page
        if cursor is None:
            return found


def ids(records):
    return [record["trace_id"] for record in records]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A server with 600 requests of two pipelines, two builds and two indexes; two thirds of them fail a gate."""
    clock, moved = still()
    sent = list(mixed(600, moved.now))
    with serving(tmp_path_factory.mktemp("filled"), GATES, clock=clock) as running:
        send_body(running, whole([record for _, record in sent]))
        accounted(running)
        wanted = failing(sent, moved.now)
        wait_for(lambda: len(pages(running, 1000)), lambda found: found == len(wanted))
        yield running, sent, moved.now


@pytest.fixture
def answered(filled):
    """Status and object of an answer of that server."""

    def ask(path, **parameters):
        code, text = filled[0].get(f"{path}?{urlencode(parameters)}" if parameters else path)
        return code, json.loads(text)

    return ask


# --- requests that fail -----------------------------------------------------------------------------------------------

SINGLE = [{}, {"pipeline": "sales"}, {"build": "b2"}, {"index_hash": "i1"}, {"since": "90m"}, {"outcome": "fail"}]
GATED = [{"pipeline": "support", "gate": gate} for gate in FAILS]


@pytest.mark.slow
@pytest.mark.parametrize("how", [*SINGLE, *GATED, *({**a, **b} for a, b in itertools.product(GATED, SINGLE[2:]))])
def test_every_filter_finds_what_was_sent_newest_first(filled, how):
    running, sent, now = filled
    told = {name: value for name, value in how.items() if name != "outcome"}
    if "since" in told:
        told["since"] = 5400
    assert ids(pages(running, 37, **how)) == failing(sent, now, **told)


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_pages_of_any_length_hold_the_same(filled, limit):
    running, sent, now = filled
    expected = failing(sent, now, since=1200)
    assert len(expected) > 20
    assert ids(pages(running, limit, since=1200)) == expected


def test_a_record_says_what_failed_it_and_where_to_open_it(filled):
    running, sent, _ = filled
    (found,) = json.loads(running.get("/api/records?pipeline=support&gate=errors&limit=1")[1])["records"]
    record = next(record for _, record in sent if record.trace_id == found["trace_id"])
    assert found["scores"] == {"error_rate": 1.0}
    assert (found["ts"], found["build"], found["index_hash"]) == (record.ts, record.build, record.index_hash)
    names = {"ts", "pipeline", "source", "trace_id", "build", "index_hash", "latency_ms", "scores", "traits"}
    assert set(found) == names


def test_a_gate_may_be_named_with_its_pipeline(answered):
    assert answered("/api/records", gate="support/errors") == answered(
        "/api/records", gate="errors", pipeline="support"
    )


@pytest.mark.slow
def test_pages_have_neither_holes_nor_repeats_while_more_arrive(tmp_path):
    """What comes meanwhile may be older or newer than the page that is read."""
    now = time.time()
    first = [record for kind, record in mixed(400, now) if kind != "well"]
    with serving(tmp_path, GATES) as running:
        send_body(running, whole(first))
        wait_for(lambda: len(pages(running, 1000)), lambda found: found == len(first))
        stop, sent = threading.Event(), []

        def more():
            while not stop.is_set():
                some = [record for _, record in mixed(20, now, seed=len(sent), first=10_000 + 20 * len(sent))]
                send_body(running, whole(some))
                sent.append(some)

        sender = threading.Thread(target=more)
        sender.start()
        try:
            wait_for(lambda: len(sent), lambda n: n >= 3)
            found = pages(running, 5)
            before = len(sent)
        finally:
            stop.set()
            sender.join()
        assert before > 3, "nothing came meanwhile"
        assert len(set(ids(found))) == len(found)
        assert set(ids(found)) >= {record.trace_id for record in first}
        assert [one["ts"] for one in found] == sorted((one["ts"] for one in found), reverse=True)
        accounted(running)


# --- what is asked wrongly --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "error", "hint"),
    [
        ("records?outcome=pass", "outcome is 'pass'", "the index holds only requests that fail a gate"),
        ("records?buidl=b1", "there is no parameter 'buidl'", "did you mean build?"),
        ("records?limit=0", "limit is '0'", "at least 1"),
        ("records?limit=ten", "limit is 'ten'", "at least 1"),
        ("records?limit=-1", "limit is '-1'", "at least 1"),
        ("records?limit=%D9%A3", "limit is", "at least 1"),
        ("records?since=soon", "since is 'soon'", "30m, 2h"),
        ("records?since=0", "since is '0'", "30m, 2h"),
        ("records?since=nan", "since is 'nan'", "30m, 2h"),
        ("records?since=1e999", "since is '1e999'", "30m, 2h"),
        ("records?cursor=abc", "this is not a cursor: 'abc'", "use the cursor that the page before gives"),
        ("records?cursor=%C3%A9", "this is not a cursor", "use the cursor that the page before gives"),
        ("records?build=b1&build=b2", "the parameter build is given twice", "once"),
        ("records?gate=support/slow", "no single request can fail slow", "/api/why"),
        ("records?gate=support/errors&metric=coverage", "gate errors judges error_rate, not coverage", "one of them"),
        ("records?gate=support/errors&pipeline=sales", "gate names the pipeline 'support'", "once"),
        ("records?gate=support/", "'support/' names no alarm", "PIPELINE"),
        ("why", "the parameter gate is missing", "?gate="),
        ("why?gate=", "the parameter gate is missing", "?gate="),
        ("why?gate=support/errors&since=-3", "since is '-3'", "30m, 2h"),
        ("compare?by=colour", "by is 'colour'", "build, index_hash"),
        ("compare?baseline=b1", "the parameter candidate is missing", "?candidate="),
        ("compare?pipeline=support&baseline=b1&candidate=b1", "are the same: 'b1'", "two releases"),
        ("compare?baseline=b1&candidate=b2&max_drop=1", "max_drop is '1'", "0.02 is 2 points"),
        ("compare?baseline=b1&candidate=b2&max_drop=nan", "max_drop is 'nan'", "0.02 is 2 points"),
        ("compare?baseline=b1&candidate=b2&intervals=1", "intervals is '1'", "true or false"),
    ],
)
def test_a_wrong_parameter_is_refused_with_a_hint(filled, question, error, hint):
    code, text = filled[0].get(f"/api/{question}")
    told = json.loads(text)
    assert code == 400, text
    assert error in told["error"]
    assert hint in told["hint"]


@pytest.mark.parametrize("path", ["/", "/incidents", "/metrics", "/api/status", "/api/history"])
def test_where_no_parameter_is_read_none_is_refused(filled, path):
    assert filled[0].get(f"{path}?utm_source=mail")[0] == 200


@pytest.mark.parametrize(
    ("question", "error", "hint"),
    [
        ("records?pipeline=suport", "unknown pipeline: 'suport'", "did you mean support?"),
        ("records?gate=support/eror", "unknown gate: 'eror'", "did you mean errors?"),
        ("records?gate=suport/errors", "unknown pipeline: 'suport'", "did you mean support?"),
        ("records?metric=eror_rate", "unknown metric: 'eror_rate'", "did you mean error_rate"),
        ("records?source=life", "unknown source: 'life'", "did you mean live?"),
        ("why?gate=support/eror", "unknown gate: 'eror'", "did you mean errors?"),
        ("why?gate=suport/errors", "unknown pipeline: 'suport'", "did you mean support?"),
        ("compare?pipeline=suport&baseline=b1&candidate=b2", "unknown pipeline: 'suport'", "did you mean support?"),
        ("compare?pipeline=support&baseline=b1&candidate=b3", "unknown build: 'b3'", "one of: b1, b2"),
        ("compare?pipeline=support&by=index_hash&baseline=i1&candidate=i9", "unknown index hash: 'i9'", "i1"),
    ],
)
def test_an_unknown_name_is_not_found_and_the_nearest_is_named(filled, question, error, hint):
    code, text = filled[0].get(f"/api/{question}")
    told = json.loads(text)
    assert (code, told["error"]) == (404, error)
    assert hint in told["hint"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/api/statuss", "did you mean /api/status"),
        ("/api/status/", "did you mean /api/status"),
        ("/nothing/here", "one of: /, /gold, /healthz, /incidents, /metrics, /monitor, /p, /readyz, /requests"),
    ],
)
def test_an_unknown_path_is_not_found_and_the_nearest_is_named(answered, path, hint):
    code, told = answered(path)
    assert (code, told["error"]) == (404, f"there is nothing at {path!r}")
    assert told["hint"].startswith(hint)


def exchange(running, method, path, **headers):
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection(urlsplit(running.admin).netloc, timeout=TIMEOUT)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/api/status", "/v1/ack", "/v1/traces"])
def test_the_port_only_reads(filled, method, path):
    code, headers, body = exchange(filled[0], method, path)
    assert (code, headers["Allow"]) == (405, "GET, HEAD")
    assert json.loads(body)["hint"] == "POST labels and acknowledgements to the write port: `[serve] otlp`"


ROUTES = (
    "/",
    "/runbook",
    "/metrics",
    "/healthz",
    "/readyz",
    "/api/status",
    "/api/history",
    "/api/incidents",
    "/api/records",
    "/api/why?gate=support/errors",
)


@pytest.mark.parametrize("path", ROUTES)
def test_every_answer_is_of_now_and_of_the_type_it_says(filled, path):
    for method in ("GET", "HEAD"):
        code, headers, body = exchange(filled[0], method, path)
        assert (code, headers["Cache-Control"], headers["X-Content-Type-Options"]) == (200, "no-store", "nosniff")
        assert bool(body) == (method == "GET")


@pytest.mark.parametrize("path", [*ROUTES, "/nothing"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.evil.example:9464"},
        {"Host": "localhost.evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_a_web_page_reads_nothing(filled, path, headers):
    """Neither one that says where it comes from, nor one whose own name was made to lead here."""
    code, told, body = exchange(filled[0], "GET", path, **headers)
    assert (code, set(json.loads(body))) == (403, {"error", "hint"})
    assert told["Cache-Control"] == "no-store"


def test_who_asks_by_a_name_that_is_not_known_is_told_what_to_write(filled):
    _, _, body = exchange(filled[0], "GET", "/metrics", Host="ragmon.monitoring.svc:9464")
    assert json.loads(body)["error"] == "this server is not known by that name"
    assert "[serve] hosts" in json.loads(body)["hint"]


@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost:9464", "10.0.0.7:9464", "[::1]", socket.gethostname(), "RAGMON:9464"])
def test_addresses_this_machine_and_configured_names_are_known(tmp_path, host):
    """As Prometheus, kubelets and people ask; a link from another site is followed, too."""
    path = configuration(tmp_path)
    path.write_text(f'{path.read_text()}hosts = ["Ragmon."]\n')
    with Server(load(path, environ={})) as server:
        running = Running(server)
        assert exchange(running, "GET", "/metrics", Host=host)[0] == 200
        assert exchange(running, "GET", "/", Host=host, Sec_Fetch_Site="cross-site", Referer="http://other")[0] == 200


def test_a_health_check_that_names_no_host_is_answered(filled):
    """Balancers ask so in HTTP/1.0; a browser always names one."""
    place = urlsplit(filled[0].admin)
    with socket.create_connection((place.hostname, place.port), timeout=TIMEOUT) as sock:
        sock.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_promtool_has_nothing_to_say_about_the_metrics(filled, real):
    text = filled[0].get("/metrics")[1]
    done = subprocess.run(
        [real("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_both_expositions_hold_the_same(filled):
    """OpenMetrics is what Prometheus asks for; everybody else gets the plain text."""
    running = filled[0]
    _, plain, text = exchange(running, "GET", "/metrics")
    _, opened, lines = exchange(running, "GET", "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert plain["Content-Type"].startswith("text/plain; version=")
    assert opened["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert lines.endswith(b"# EOF\n")
    assert sum(len(family.samples) for family in parse_openmetrics(lines.decode())) > 100
    values = [{line for line in body.decode().splitlines() if not line.startswith("#")} for body in (text, lines)]
    moving = re.compile("^ragmon_journal_bytes")
    assert {line for line in values[0] ^ values[1] if not moving.match(line)} == set()


def test_an_unreadable_version_of_a_format_gets_the_plain_text(filled):
    _, headers, text = exchange(filled[0], "GET", "/metrics", Accept="application/openmetrics-text; version=x.y")
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert b"\nragmon_build_info{" in text


# --- explanations and comparisons -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_why_is_what_the_command_renders(filled):
    running = filled[0]
    answer = json.loads(running.get("/api/why?gate=support/errors")[1])
    traces = answer["traces"]
    assert len(traces) == asking_module.TO_OPEN
    done = ragmon("why", "support/errors", "--url", running.admin)
    assert (done.code, done.err) == (0, "")
    assert done.out == why_text(convert(answer, Why), traces, show=f"ragmon show {{trace_id}} --url {running.admin}")
    assert done.out.startswith("gate        support/errors FAILS: ")


def test_since_is_a_span_of_time_or_seconds(answered):
    assert answered("/api/why", gate="support/errors", since="2h") == answered(
        "/api/why", gate="support/errors", since="7200"
    )
    begun = [answered("/api/why", gate="support/errors", since=since)[1]["begin"] for since in ("1h", "3h")]
    assert begun[0] - begun[1] == 7200


def test_a_comparison_says_the_verdict_and_what_it_rests_on(answered):
    code, found = answered(
        "/api/compare", pipeline="support", by="build", baseline="b1", candidate="b2", max_drop="0.5"
    )
    assert code == 200
    assert (found["by"], found["baseline"], found["candidate"], found["max_drop"]) == ("build", "b1", "b2", 0.5)
    assert [gate["gate"] for gate in found["gates"]] == ["errors", "empty"]
    assert found["verdict"] in ("pass", "insufficient")
    assert "not compared: slow" in found["notes"]


def test_a_comparison_has_intervals_where_they_are_asked_for(answered):
    named = {"pipeline": "support", "by": "build", "baseline": "b1", "candidate": "b2"}
    plain, wide = (answered("/api/compare", **named, **more)[1]["gates"] for more in ({}, {"intervals": "true"}))
    found = [gate.pop("intervals") for gate in wide]
    assert plain == wide
    for gate, intervals in zip(wide, found, strict=True):
        for name, value in (
            *((side, gate[side]["value"]) for side in ("baseline", "candidate")),
            ("drop", gate["drop"]),
        ):
            assert intervals[name][0] <= value <= intervals[name][1]


def test_only_what_came_lately_is_compared(tmp_path):
    """A release that answered last week is nobody's baseline."""
    clock, moved = still()
    told = {"baseline": "b1", "candidate": "b2"}
    with serving(tmp_path, GATES, clock=clock) as running:
        send_body(running, whole([asked(n, ts=moved.now, build="b1") for n in range(50)]))
        moved.advance(asking_module.COMPARED + 60)
        send_body(running, whole([asked(n, ts=moved.now, build="b2") for n in range(50, 100)]))
        accounted(running)
        code, text = running.get(f"/api/compare?{urlencode({'pipeline': 'support', **told})}")
    assert (code, json.loads(text)["error"]) == (404, "unknown build: 'b1'")


def test_requests_that_name_no_pipeline_are_those_of_the_usual_one(tmp_path):
    records = [asked(n, pipeline=None, build=f"b{n % 2}") for n in range(40)]
    with serving(tmp_path, "[gates.errors]\nmetric = 'error_rate'\nat_most = 0.1\n") as running:
        send_body(running, whole(records))
        accounted(running)
        code, text = running.get("/api/compare?baseline=b0&candidate=b1")
    assert code == 200, text
    assert json.loads(text)["gates"][0]["candidate"]["n"] == 20


def test_one_comparison_is_made_at_a_time(filled, monkeypatch):
    """It scores a day of records again, and must not starve those who write."""
    running = filled[0]
    begun, go_on, decode = threading.Event(), threading.Event(), entries

    def slowly(lines):
        begun.set()
        assert go_on.wait(TIMEOUT)
        return decode(lines)

    monkeypatch.setattr(asking_module, "entries", slowly)
    path = "/api/compare?pipeline=support&baseline=b1&candidate=b2"
    codes = []
    first = threading.Thread(target=lambda: codes.append(running.get(path)[0]))
    first.start()
    try:
        assert begun.wait(TIMEOUT)
        code, headers, body = exchange(running, "GET", path)
        assert (code, json.loads(body)["error"]) == (503, "another comparison is being made")
        assert int(headers["Retry-After"]) > 0
    finally:
        go_on.set()
        first.join()
    assert codes == [200]
    assert running.get(path)[0] == 200


# --- health -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_health_is_told_while_everybody_else_waits(filled):
    """An orchestrator would kill a server that only has much to do."""
    running = filled[0]
    with running.server.writer.lock:
        askers = [threading.Thread(target=running.get, args=("/api/status",)) for _ in range(60)]
        for client in askers:
            client.start()
        assert [running.get(path) for path in ("/healthz", "/readyz")] == [(200, "ok\n")] * 2
    for client in askers:
        client.join()


@pytest.mark.slow
def test_it_is_not_ready_while_the_journal_cannot_be_written_and_says_since_when(disk):
    """What it takes to be ready again is room, not a request: an orchestrator sends none to who is not ready."""
    clock, moved = still()
    with serving(disk, GATES, clock=clock) as running:
        began = moved.now
        send_until_refused(running, disk)
        moved.advance(90.0)
        assert running.get("/healthz")[0] == 200
        assert running.get("/readyz") == (503, "the journal cannot be written (disk_full)\n")
        found = running.status()["wrong"][0]
        assert (found["what"], found["since"]) == ("the journal cannot be written (disk_full)", began)
        assert "ragmon: the journal cannot be written (disk_full); " in running.get("/")[1]
        (disk / "ballast").unlink()
        wait_for(lambda: running.get("/readyz"), lambda found: found == (200, "ok\n"))
        assert "cannot be written" not in json.dumps(running.status())


# --- what is never said -----------------------------------------------------------------------------------------------

SAID = {
    "question": "zebra-is-asked-about",
    "answer": "walrus-is-the-answer",
    "document": "narwhal-is-written-there",
    "tag": "tapir-is-a-customer",
    "comment": "quokka-is-what-the-rater-thinks",
    "rater": "okapi-rates",
    "reason": "lemur-was-rolled-back",
    "gold": "kiwi-is-gold",
    "token": "ibis-opens-the-door",
}


def everything(running):
    """What every route answers, with every parameter that could make it tell more."""
    names = {"gate": "support/empty", "pipeline": "support"}
    routes = ["/", "/metrics", "/healthz", "/readyz", "/api/status", "/api/records?limit=1000", "/nothing"]
    routes += ["/monitor", "/runbook", "/p/support", "/p/support/empty", "/api/history", "/incidents", "/gold"]
    routes += [f"/api/why?{urlencode({**names, 'gate': gate})}" for gate in ("empty", "errors", "nothing")]
    routes += [f"/api/records?{urlencode(names | {'source': source})}" for source in ("live", "match", "probe")]
    routes += [
        f"/api/compare?{urlencode({'pipeline': 'support', 'baseline': a, 'candidate': b})}"
        for a, b in (("b1", "b2"), ("b1", "b3"))
    ]
    routes += [
        f"{place}/{n:032x}" for n in (1, 2, 11) for place in ("/api/traces", "/t")
    ]  # the last one matches a gold item
    found = {route: running.get(route)[1] for route in routes}
    asked_for = urllib.request.Request(f"{running.admin}/metrics", headers={"Accept": "application/openmetrics-text"})
    with urllib.request.urlopen(asked_for, timeout=TIMEOUT) as answer:
        found["openmetrics"] = answer.read().decode()
    return found


def telling(now):
    """Requests of which every text is one nobody may read elsewhere; every third retrieved nothing."""
    for n in range(60):
        found = {"retrieved": [], "citations": []} if n % 3 == 0 else {"contexts": [SAID["document"]] * 3}
        record = asked(n, ts=now, claim=SAID["answer"], tags={"customer": SAID["tag"]}, build=f"b{n % 2 + 1}", **found)
        record.q = SAID["question"] if n % 10 else f"What is {SAID['gold']}?"
        yield record


def hand_in(running, moved):
    """Hand in what is not to be told: records, another framework's spans, a label, an acknowledgement."""
    token, records = SAID["token"], list(telling(moved.now))
    spans = foreign(7, content=SAID["document"])
    call = {"input.value": SAID["question"], "output.value": SAID["answer"]}
    spans[0] = spans[0]._replace(attributes={**spans[0].attributes, **call})
    for body in (whole(records), export(spans).SerializeToString()):
        assert post_with_token(f"{running.otlp}/v1/traces", body, token, PROTOBUF)[0] == 200
    moved.advance(60.0)  # traces are complete then, and a minute is judged
    wait_for(lambda: running.books()["scored"], lambda scored: scored == len(records) + 1)
    label = {"trace_id": records[0].trace_id, "correct": False, "rater": SAID["rater"], "comment": SAID["comment"]}
    assert post_with_token(f"{running.otlp}/v1/labels", label, token)[0] == 200
    ack = {"gate": "empty", "pipeline": "support", "reason": SAID["reason"]}
    assert post_with_token(f"{running.otlp}/v1/ack", ack, token)[0] == 200
    wait_for(lambda: len(pages(running, 1000)), lambda found: found >= 20)


@pytest.mark.slow
def test_no_route_ever_holds_content_or_a_secret(tmp_path, caplog):
    """Neither while all is well nor when a broken file quotes it; the journal and the log do hold it."""
    gold, item = tmp_path / "gold.jsonl", {"qid": "g1", "question": f"What is {SAID['gold']}?", "answerable": True}
    gold.write_text(json.dumps({**item, "gold_claim_substr": [SAID["gold"]]}) + "\n")
    text = f'{GATES}[gold.gold]\npath = "gold.jsonl"\n[capture]\ncontent = "full"\n'
    clock, moved = still()
    with serving_with_token(tmp_path, SAID["token"], text, clock=clock) as running:
        hand_in(running, moved)
        found = {("well", route): text for route, text in everything(running).items()}
        gold.write_text(json.dumps({**item, "answerable": SAID["gold"]}) + "\n")
        assert not running.server.reloading.reload()
        assert "gold.jsonl:1: " in running.status()["config"]["broken"]
        found |= {("gold", route): text for route, text in everything(running).items()}
        config = tmp_path / "ragmon.toml"
        config.write_text(f'{config.read_text()}token = "{SAID["token"]}"\n')
        assert not running.server.reloading.reload()
        assert "serve.token" in running.status()["config"]["broken"]
        found |= {("config", route): text for route, text in everything(running).items()}
    held = b"".join(path.read_bytes() for path in (tmp_path / "state").glob("journal.db*"))
    assert [what for what, word in SAID.items() if word.encode() not in held] == ["token"]
    assert SAID["gold"] in caplog.text
    assert SAID["token"] not in caplog.text
    told = {(what, *where) for where, text in found.items() for what, word in SAID.items() if word in text}
    # Why somebody acknowledged an alarm is for everybody who looks at the page.
    assert told == {("reason", state, route) for state in ("well", "gold", "config") for route in ("/", "/api/status")}
