"""The admin port of an embedded monitor: what it shows, to whom, and how it lives in somebody else's process."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import logging
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import closing
from urllib.parse import urldefrag, urljoin
from xml.etree import ElementTree as ET

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from ragmon.cli.client import status as server_status
from ragmon.config.load import defaults, load
from ragmon.core.errors import UnknownNameError
from ragmon.core.http_server import LONGEST_ACK
from ragmon.core.record import Answer, Label, Record
from ragmon.export.status import MonitorSnapshot
from ragmon.monitor.admin import AdminView, admin_app
from ragmon.monitor.embedded import Monitor
from ragmon.server.state import Clock
from ragmon.testing import FakeClock
from tests.support.command_line import ragmon
from tests.support.serving import accounted, asked, send_body, serving, whole
from tests.support.waiting import TIMEOUT

GATES = """
[pipelines.support]
[gates.errors]
metric = "error_rate"
at_most = 0.0
[gates.slow]
kind = "quantile_ratio"
metric = "latency"
at_most = 1.3
"""


def records(now):
    """A hundred requests of a pipeline; every fifth fails a gate."""
    return [asked(n, ts=now - 1, pipeline="support", error="E" if n % 5 == 0 else None) for n in range(100)]


@pytest.fixture(scope="module")
def monitor(tmp_path_factory):
    """A served monitor that has counted the requests."""
    path = tmp_path_factory.mktemp("embedded") / "ragmon.toml"
    path.write_text(GATES)
    clock = FakeClock(time.time())
    with Monitor(load(path, environ={}), clock=clock).start("127.0.0.1:0") as monitor:
        for record in records(clock()):
            monitor.submit(record)
        yield monitor


def exchange(monitor, method, path, body=None, **headers):
    """Status, headers and body of an answer."""
    with closing(http.client.HTTPConnection(monitor.address, timeout=TIMEOUT)) as connection:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


# --- what it shows ----------------------------------------------------------------------------------------------------


def test_the_page_shows_what_is_wrong_and_no_link_that_leads_nowhere(monitor):
    code, headers, body = exchange(monitor, "GET", "/")
    assert (code, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    page = ET.fromstring(body)
    text = " ".join(page.itertext())
    assert "support/errors fails: 20.0 %" in text
    assert "keeps no journal" in text
    assert "ragmon why" not in text
    links = [link.get("href") for link in page.iter("{http://www.w3.org/1999/xhtml}a")]
    head = ["./", "./", "incidents", "gold", "monitor", "runbook", "p/support"]
    spans = ["?span=1h", "?span=6h", "?span=24h", "?span=7d"]
    wrong, *gates = ["p/support/errors#broke", "p/support", "p/support/errors", "p/support/slow"]
    assert [link for link in links if link != wrong] == [*head, *spans, *gates, "api/status", "metrics"]
    assert wrong in links
    assert all(exchange(monitor, "GET", urldefrag(urljoin("/", link)).url)[0] == 200 for link in links)


def test_the_page_of_a_gate_draws_its_last_hours(monitor):
    """20 of 100 requests are errors: the last window says so, as the overview does."""
    code, _, body = exchange(monitor, "GET", "/p/support/errors?span=1h")
    page = ET.fromstring(body)
    assert code == 200
    assert page.findtext(".//{*}title") == "ragmon: support/errors fails"
    (chart,) = page.iter("{http://www.w3.org/2000/svg}svg")
    assert chart.get("aria-label") == "support/errors, last hour: lowest 20.0 %, highest 20.0 %, last 20.0 %"
    (figures,) = [part for part in page.findall(".//{*}div") if part.get("aria-label") == "windows in figures"]
    row = [cell.text for cell in figures.find(".//{*}tbody")[0]]
    assert row[1:] == ["20.0 %", "13.3 – 28.9 %", "100", "live"]


def test_the_page_of_a_failing_gate_says_what_broke_although_no_request_can_be_opened(monitor):
    page = ET.fromstring(exchange(monitor, "GET", "/p/support/errors")[2])
    (failing,) = [part for part in page.findall(".//{*}div") if part.get("aria-label") == "before and since"]
    rows = [
        [" ".join("".join(cell.itertext()).split()) for cell in row] for row in failing.findall(".//{*}tbody/{*}tr")
    ]
    assert rows[:2] == [
        ["metric error_rate", "–", "20.0 %", ""],
        ["requests that ended in an error", "–", "20.0 %", "100.0 %"],
    ]
    assert "requests that fail" not in "".join(page.itertext())


def test_the_page_of_gold_of_an_embedded_monitor_shows_its_items_and_its_labels(tmp_path):
    """Of ten items the first is wrong in the last ten minutes; one answer has a label."""
    item = {"gold_claim_substr": ["x"], "gold_citations": ["d"], "answerable": True}
    rows = [json.dumps({"qid": f"g{k}", "question": f"what is {k}", **item}) for k in range(10)]
    (tmp_path / "gold.jsonl").write_text("\n".join(rows))
    (tmp_path / "ragmon.toml").write_text('[pipelines.support]\n[gold.main]\npath = "gold.jsonl"\n')
    clock = FakeClock(1_763_683_200.0)
    with Monitor(load(tmp_path / "ragmon.toml", environ={}), clock=clock).start("127.0.0.1:0") as monitor:
        for minute in range(0, 30, 5):
            clock.advance(300.0)
            for k in range(8):
                cites = [] if k == 0 and minute >= 20 else ["d"]
                answer = Answer(claim="x", citations=cites)
                probe = Record(ts=clock(), pipeline="support", source="probe", qid=f"g{k}", answer_json=answer)
                monitor.submit(probe)
        monitor.submit(asked(1, ts=clock(), pipeline="support"))
        monitor.label([Label(trace_id=f"{2:032x}", rater="ada", correct=True)])
        code, _, body = exchange(monitor, "GET", "/gold")
        metrics = exchange(monitor, "GET", "/metrics")[2].decode()
    assert code == 200
    page = ET.fromstring(body)
    tables = {
        part.get("aria-label"): [
            ["".join(cell.itertext()).strip() for cell in row] for row in part.findall(".//{*}tbody/{*}tr")
        ]
        for part in page.findall(".//{*}div")
        if part.get("role") == "region"
    }
    assert page.findtext(".//{*}title") == "ragmon: 1 gold question got worse"
    assert tables["items asked, main"] == [["support", "probe", "", "80.0 %", "8", "8", "8", "8"]]
    assert 'ragmon_gold_items_seen{gold="main",pipeline="support",source="probe",window="1h"} 8.0' in metrics
    assert tables["hardest items, main"] == [["g0", "", "66.7 %", "4 of 6", "6", "support"]]
    ((qid, now, _, since, before, after, _),) = tables["items that flipped, main"]
    assert (qid, now, since, before, after) == ("g0", "wrong", "2025-11-21 00:25:00 UTC", "4 of 4", "0 of 2")
    assert [row[:2] for row in tables["what became of labels"]] == [["joined", "1"]]


@pytest.mark.parametrize(
    ("path", "status", "hint"),
    [
        ("/p/support/error", 404, "did you mean support/errors"),
        ("/p/support/errors?span=1y", 404, "one of: 10m, 1h, 24h, 6h, 7d"),
        ("/p/support/", 404, ""),
        ("/p/support/errors/more", 404, ""),
    ],
)
def test_the_page_of_a_gate_that_does_not_exist_names_the_nearest(monitor, path, status, hint):
    code, _, body = exchange(monitor, "GET", path)
    assert code == status
    assert json.loads(body)["hint"].startswith(hint)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_an_orchestrator_is_told_that_it_lives(monitor, path):
    code, _, body = exchange(monitor, "GET", path)
    assert (code, body) == (200, b"ok\n")


PATHS = (
    "/",
    "/static/ragmon.css",
    "/static/ragmon.js",
    "/gold",
    "/runbook",
    "/metrics",
    "/healthz",
    "/readyz",
    "/api/status",
    "/api/history",
    "/api/incidents",
)


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_of_now_and_of_the_type_it_says(monitor, path):
    for method in ("GET", "HEAD"):
        code, headers, body = exchange(monitor, method, path)
        assert (code, headers["Cache-Control"], headers["X-Content-Type-Options"]) == (200, "no-store", "nosniff")
        assert bool(body) == (method == "GET")


def shape(value):
    """The keys of JSON data at every depth, and the types of its values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def test_the_status_is_a_servers_without_the_journal(monitor, tmp_path):
    """What both count is equal to the last figure; the rest has the same keys and types."""
    embedded = json.loads(exchange(monitor, "GET", "/api/status")[2])
    now = FakeClock(embedded["now"])
    with serving(tmp_path, GATES, clock=Clock(wall=now, passed=now)) as running:
        send_body(running, whole(records(now())))
        accounted(running)
        served = running.status()
    assert list(embedded) == list(served)
    assert embedded["journal"] is None
    assert embedded["quarantined"] == []
    for key in ("verdicts", "gates", "gold", "alarms", "version", "now", "last_scored", "labels", "refused"):
        assert embedded[key] == served[key], key
    counts = embedded["books"].pop("score"), next(iter(served["books"].values()))
    assert shape(counts[0]) == shape(counts[1])
    assert counts[0]["scored"] == counts[1]["scored"] == 100
    apart = {"books", "journal"}
    assert {key: shape(embedded[key]) for key in embedded if key not in apart | {"wrong", "doubts"}} == {
        key: shape(served[key]) for key in served if key not in apart | {"wrong", "doubts"}
    }
    assert [item["what"] for item in embedded["wrong"]] == [item["what"] for item in served["wrong"]]


@pytest.mark.parametrize(
    "path", ["/api/records", "/api/why?gate=support/errors", "/api/compare?baseline=a&candidate=b"]
)
def test_what_needs_a_journal_says_that_there_is_none(monitor, path):
    code, _, body = exchange(monitor, "GET", path)
    assert code == 404
    assert json.loads(body) == {
        "error": "an embedded monitor has no journal",
        "hint": "`ragmon serve` keeps one, and answers this",
    }


def test_the_command_that_needs_a_journal_passes_that_on(monitor):
    done = ragmon("why", "support/errors", "--url", f"http://{monitor.address}")
    assert done.code == 3
    assert done.err.startswith("error: an embedded monitor has no journal\nhint: `ragmon serve` keeps one")


def test_the_commands_that_read_a_status_read_this_one(monitor):
    """It has no journal, and its books are counted all the same."""
    done = ragmon("verify", "--url", monitor.address)
    assert done.code == 0, done.err
    assert re.search(r"^score +\d+ +\d+ ", done.out, re.MULTILINE)
    assert server_status(monitor.address).journal is None


def test_metrics_are_compressed_and_in_the_format_that_was_asked_for(monitor):
    _, plain, text = exchange(monitor, "GET", "/metrics")
    assert plain["Content-Type"].startswith("text/plain; version=")
    assert "Content-Encoding" not in plain
    _, packed, body = exchange(monitor, "GET", "/metrics", Accept_Encoding="deflate, gzip;q=1.0")
    assert packed["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == text
    assert len(body) < len(text) / 3
    _, opened, lines = exchange(monitor, "GET", "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert opened["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert sum(len(family.samples) for family in parse_openmetrics(lines.decode())) > 50


# --- to whom ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PATHS, "/nothing"])
@pytest.mark.parametrize("headers", [{"Host": "rebound.evil.example:9464"}, {"Origin": "http://evil.example"}])
def test_a_web_page_reads_nothing(monitor, path, headers):
    code, told, body = exchange(monitor, "GET", path, **headers)
    assert (code, set(json.loads(body))) == (403, {"error", "hint"})
    assert told["Cache-Control"] == "no-store"


def test_a_configured_name_and_a_health_check_without_one_are_answered(configured):
    with Monitor(configured('[serve]\nadmin = "127.0.0.1:0"\nhosts = ["app.example"]')) as named:
        assert exchange(named, "GET", "/metrics", Host="app.example:9464")[0] == 200
        host, _, port = named.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT) as sock:
            sock.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/nothing", "/api/statuss", "/metrics/", "/metrics%0A", "/v1/ack%0A"])
def test_an_unknown_path_is_not_found(monitor, path):
    code, _, body = exchange(monitor, "GET", path)
    assert code == 404
    assert json.loads(body)["error"].startswith("there is nothing at ")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/v1/labels"])
def test_nothing_but_an_acknowledgement_is_posted(monitor, method, path):
    code, headers, body = exchange(monitor, method, path)
    assert (code, headers["Allow"]) == (405, "GET, HEAD")
    assert json.loads(body)["hint"] == "POST acknowledgements to /v1/ack"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_an_acknowledgement_is_posted(monitor, method):
    code, headers, _ = exchange(monitor, method, "/v1/ack")
    assert (code, headers["Allow"]) == (405, "POST")


GOOD = json.dumps({"gate": "errors", "pipeline": "support", "reason": "rolled back"}).encode()
JSON = {"Content-Type": "application/json"}


def acknowledging(client, content=GOOD, headers=JSON, host="127.0.0.1:9464"):
    """Status and body of the answer to an acknowledgement from an address, and what was acknowledged."""
    came = []

    def acknowledge(*alarm):
        came.append(alarm)
        return True

    view = AdminView(lambda: pytest.fail("read"), object, lambda _: {}, None, None)
    transport = httpx.ASGITransport(admin_app(view, {"app.example"}, acknowledge=acknowledge), client=client)

    async def post():
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as session:
            return await session.post("/v1/ack", content=content, headers=headers)

    answer = asyncio.run(post())
    return answer.status_code, answer.json(), came


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_this_machine_acknowledges(address):
    assert acknowledging((address, 1)) == (200, {"fired": True}, [("errors", "support", "rolled back", "")])


@pytest.mark.parametrize("address", ["192.0.2.7", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.7", "", "unix"])
def test_other_machines_do_not(address):
    """Whoever may scrape may not silence."""
    code, told, came = acknowledging((address, 1))
    assert (code, told["error"], came) == (403, "acknowledgements are accepted only from this machine", [])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"headers": JSON | {"Origin": "http://evil.example"}}, 403),
        ({"headers": JSON | {"Origin": "null"}}, 403),
        ({"host": "rebound.evil.example"}, 403),
        ({"host": "app.example"}, 403),  # a name that scrapers use may be looked up by a browser here as well
        ({"headers": {"Content-Type": "text/plain"}}, 415),  # what a web page may send to another site
        ({"headers": {"Content-Type": "application/x-www-form-urlencoded"}}, 415),
        ({"headers": {}}, 415),
        ({"content": b"x" * (LONGEST_ACK + 1)}, 413),
        ({"content": b""}, 400),
        ({"content": b"{"}, 400),
        ({"content": b"[" * 60_000}, 400),
        ({"content": b"\xff\xfe"}, 400),
        ({"content": b'["errors"]'}, 400),
        ({"content": b'{"gate": "errors", "reason": 1}'}, 400),
    ],
)
def test_what_a_browser_could_send_or_is_malformed_silences_nothing(how, expected):
    code, told, came = acknowledging(("127.0.0.1", 1), **how)
    assert (code, came) == (expected, [])
    assert told["error"]
    assert told["hint"]


def test_a_body_of_unknown_length_is_read_to_its_limit_and_no_further(monitor):
    """Chunks say no Content-Length."""
    body = (b"x" * 10_000 for _ in range(100))
    code, _, told = exchange(monitor, "POST", "/v1/ack", body, Content_Type="application/json")
    assert (code, json.loads(told)["error"]) == (413, f"the body is larger than {LONGEST_ACK} bytes")
    code, _, told = exchange(monitor, "POST", "/v1/ack", iter([GOOD]), Content_Type="application/json")
    assert (code, json.loads(told)["error"]) == (404, "unknown pipeline: 'support'"), "it was read, and handed on"


def test_an_alarm_nobody_knows_is_not_found(monitor):
    body = json.dumps({"gate": "eror", "pipeline": "support", "reason": "x"})
    code, _, told = exchange(monitor, "POST", "/v1/ack", body, Content_Type="application/json")
    with pytest.raises(UnknownNameError) as caught:
        monitor.acknowledge("eror", "support")
    assert (code, json.loads(told)) == (404, {"error": str(caught.value), "hint": caught.value.hint})


# --- in somebody else's process ---------------------------------------------------------------------------------------


def test_an_error_of_one_request_says_nothing_of_the_data_and_harms_no_other(caplog):
    def status(_):
        raise ValueError("what a user asked")

    view = AdminView(MonitorSnapshot, object, status, None, None)
    transport = httpx.ASGITransport(admin_app(view, ()))

    async def ask():
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as session:
            return [await session.get(path) for path in ("/api/status", "/healthz")]

    broken, healthy = asyncio.run(ask())
    assert (broken.status_code, broken.json()["error"]) == (500, "an error in ragmon")
    assert (healthy.status_code, healthy.text) == (200, "ok\n")
    assert "what a user asked" not in caplog.text


def test_the_loggers_of_an_application_that_runs_under_uvicorn_stay_as_they_are(caplog):
    """Neither their levels nor their handlers change, and none of the monitor's requests is logged there."""
    loggers = [logging.getLogger(f"uvicorn.{name}") for name in ("error", "access", "asgi")]
    before = [(logger.level, list(logger.handlers), logger.propagate) for logger in loggers]
    with caplog.at_level(logging.DEBUG), Monitor(defaults()).start("127.0.0.1:0") as monitor:
        assert exchange(monitor, "GET", "/metrics")[0] == 200
        logging.getLogger("uvicorn.error").info("Application startup complete.")
    assert [(logger.level, list(logger.handlers), logger.propagate) for logger in loggers] == before
    assert [line.getMessage() for line in caplog.records if line.name.startswith("uvicorn")] == [
        "Application startup complete."
    ]


def test_a_client_that_keeps_its_connection_or_sends_half_a_request_does_not_hold_up_the_end():
    monitor = Monitor(defaults()).start("127.0.0.1:0")
    host, _, port = monitor.address.rpartition(":")
    with closing(http.client.HTTPConnection(monitor.address, timeout=TIMEOUT)) as idle:
        idle.request("GET", "/healthz")
        assert idle.getresponse().read() == b"ok\n"
        with socket.create_connection((host, int(port)), timeout=TIMEOUT) as slow:
            slow.sendall(b"POST /v1/ack HTTP/1.1\r\nHost: localhost\r\n")
            monitor.stop()
            assert slow.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=TIMEOUT)


def program(code):
    """Runs a program to its end; its output."""
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


START = """
import os, sys, ragmon
from urllib.request import urlopen
from ragmon.config.load import defaults
monitor = ragmon.Monitor(defaults()).start("127.0.0.1:0")
def get(path):
    with urlopen(f"http://{monitor.address}{path}", timeout=30) as answer:
        return answer.read()
"""


@pytest.mark.slow
def test_a_program_ends_though_its_monitor_was_asked_and_never_stopped():
    assert program(START + "print([len(get(path)) > 0 for path in ('/', '/metrics')])") == "[True, True]\n"


@pytest.mark.slow
def test_a_forked_child_may_stop_its_copy_and_the_parent_goes_on_serving():
    forking = """
get("/metrics")
child = os.fork()
if child == 0:
    monitor.stop()
    sys.exit(0 if monitor.address is None else 1)
print(os.waitpid(child, 0)[1], get("/healthz"))
"""
    assert program(START + forking) == "0 b'ok\\n'\n"


@pytest.mark.slow
def test_a_monitor_that_is_not_served_loads_no_web_server():
    code = """
import sys, ragmon
from ragmon.config.load import defaults
from ragmon.core.record import Record
monitor = ragmon.Monitor(defaults())
monitor.submit(Record(source="live"))
monitor.snapshot()
print([name for name in ("starlette", "uvicorn", "h11", "anyio") if name in sys.modules])
"""
    assert program(code) == "[]\n"


def test_a_client_sees_the_end_although_a_forked_child_still_has_its_connection():
    """Otherwise a scraper with a kept connection would wait for a dead port until its own timeout."""
    served = Monitor(defaults()).start("127.0.0.1:0")
    host, _, port = served.address.rpartition(":")
    release, wait = os.pipe()
    with socket.create_connection((host, int(port)), timeout=TIMEOUT) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        child = os.fork()
        if child == 0:
            os.close(wait)
            os.read(release, 1)  # until the parent closes its end
            os._exit(0)
        try:
            served.stop()
            while client.recv(1000):
                pass
        finally:
            os.close(wait)
            os.close(release)
            os.waitpid(child, 0)


def test_a_library_that_replaces_the_entry_of_event_loops_does_not_stop_the_port(monkeypatch):
    """nest_asyncio does in notebooks: what it puts in place does not know all arguments."""
    monkeypatch.setattr("asyncio.run", lambda main, *, debug=False: pytest.fail("the port runs its own loop"))
    monkeypatch.setattr("uvicorn._compat.asyncio_run", asyncio.run, raising=False)
    monkeypatch.setattr("uvicorn.server.asyncio_run", asyncio.run, raising=False)
    with Monitor(defaults()).start("127.0.0.1:0") as served:
        assert httpx.get(f"http://{served.address}/healthz", timeout=TIMEOUT).status_code == 200
