"""The page of requests, and what the page of an incident shows of them: what is listed, found and kept back."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode
from xml.etree import ElementTree as ET

import httpx
import pytest

from tests.server.test_serve_admin import still
from tests.server.test_serve_pages import TOKEN, page, table
from tests.support.incident import MINUTES, PER_MINUTE, incident
from tests.support.serving import PROTOBUF, accounted, asked, send_body, serving, whole
from tests.support.token_server import post_with_token, serving_with_token
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
XHTML = "{http://www.w3.org/1999/xhtml}"
GATES = "[pipelines.support]\n[gates.error_rate]\nat_most = 0.05\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with incident(tmp_path_factory.mktemp("incident")) as running:
        yield running


def listed(running, **search):
    """The trace ids of all pages that answer a search, in order."""
    ids, path = [], f"/requests?{urlencode(search)}"
    while path:
        shown = page(running, path)
        ids += [
            link.get("href").removeprefix("t/")
            for link in shown.iter(f"{XHTML}a")
            if link.get("href", "").startswith("t/")
        ]
        older = [link.get("href") for link in shown.iter(f"{XHTML}a") if link.text == "Older requests"]
        path = f"/requests{older[0]}" if older else ""
    return ids


def trace(number):
    return f"{number + 1:032x}"


def test_every_request_is_listed_once_the_newest_first(running):
    ids = listed(running)
    assert len(ids) == len(set(ids)) == MINUTES * PER_MINUTE
    assert [int(name, 16) for name in ids[:20]] == list(range(MINUTES * PER_MINUTE, MINUTES * PER_MINUTE - 20, -1))


def test_requests_that_fail_a_gate_are_those_of_the_index(running):
    rows = running.get("/api/records?pipeline=support&gate=over_refusal_rate&limit=1000")[1]
    ids = listed(running, gate="support/over_refusal_rate")
    assert len(ids) == len(set(ids)) == rows.count('"trace_id"')
    assert listed(running, trait="refused what can be answered", build="v1") == [
        name for name in ids if int(name, 16) <= 90 * PER_MINUTE
    ]
    assert listed(running, trait="retrieved nothing") == []


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({}, "All requests in the journal, the newest first."),
        ({"build": "v9"}, "Searched: build v9; the newest first."),
        (
            {"pipeline": "support", "where": "tenant=acme", "since": "2025-11-21 01:40"},
            "Searched: pipeline support, slice tenant=acme, since 2025-11-21 01:40; the newest first.",
        ),
        ({"trait": "refused"}, "Searched: what went wrong refused; the newest first. Only requests that fail a gate"),
    ],
)
def test_the_page_says_what_was_searched(running, search, said):
    told = ["".join(part.itertext()) for part in page(running, f"/requests?{urlencode(search)}").iter(f"{XHTML}p")]
    assert any(text.startswith(said) for text in told), told


def test_requests_are_found_by_the_minute_in_which_they_were_made(running):
    """Record k of a minute has the number of the minute times the requests a minute, plus k."""
    minute = {"since": "2025-11-21 01:40", "until": "2025-11-21T01:42"}
    numbers = [int(name, 16) - 1 for name in listed(running, **minute)]
    assert numbers == list(reversed(range(100 * PER_MINUTE, 102 * PER_MINUTE)))
    failing = [int(name, 16) - 1 for name in listed(running, gate="support/over_refusal_rate", **minute)]
    assert failing
    assert set(failing) < set(numbers)
    assert listed(running, until="2025-11-21T00:00") == listed(running, since="2025-11-21 03:00") == []


def test_an_incident_links_to_the_requests_that_fail_in_its_time_and_in_each_stretch(running):
    shown = page(running, "/incidents/support-20251121T0131")
    links = [link for link in shown.iter(f"{XHTML}a") if "requests?" in link.get("href", "")]
    stretch, every = [
        {int(name, 16) - 1 for name in listed(running, **dict(parse_qsl(link.get("href").partition("?")[2])))}
        for link in links
    ]
    assert min(stretch) // PER_MINUTE == 90
    assert min(every) // PER_MINUTE == 90, "the minute of the change that diagnosis finds"
    (failing, _) = table(shown, "failing requests")
    probes = [number for number in stretch if number % 2]
    assert len(probes) == int(failing[1])


def test_requests_are_found_by_build_session_slice_and_the_beginning_of_their_trace(tmp_path):
    with serving(tmp_path, GATES) as running:
        records = [
            asked(
                k,
                build=f"v{k % 2}",
                session=f"s{k // 5}",
                tags={"tenant": f"t{k % 5}"},
                error="E" if k % 4 == 0 else None,
            )
            for k in range(20)
        ]
        send_body(running, whole(records))
        accounted(running)
        assert sorted(listed(running, build="v1")) == [trace(k) for k in range(1, 20, 2)]
        assert sorted(listed(running, session="s2")) == [trace(k) for k in range(10, 15)]
        assert sorted(listed(running, where="tenant=t3", build="v1")) == [trace(3), trace(13)]
        assert sorted(listed(running, session="s2", trait="ended in an error")) == [trace(12)]
        assert listed(running, trace="0" * 31) == [trace(k) for k in range(14, -1, -1)]
        found = httpx.get(f"{running.admin}/requests", params={"trace": trace(7)})
        assert (found.status_code, found.headers["Location"]) == (303, f"t/{trace(7)}")


@pytest.mark.parametrize(
    ("search", "error"),
    [
        ("cursor=x", "this is not a cursor"),
        ("gate=support/nope", "gate"),
        ("pipeline=nope&trait=refused", "pipeline"),
        ("since=yesterday", "a time in UTC"),
        ("x=1", "x"),
        ("pipeline=nope", "unknown pipeline: 'nope'"),
        ("where=tenant", "a slice, tag=value"),
        ("where==acme", "a slice, tag=value"),
        ("trait=foo", "trait is 'foo'"),
        ("trace=xyz", "trace is 'xyz'"),
        ("since=2026-11-28&until=2026-11-27", "swap them"),
    ],
)
def test_a_search_that_makes_no_sense_is_an_error_that_says_why(running, search, error):
    code, text = running.get(f"/requests?{search}")
    assert code in (400, 404)
    assert error in text


@pytest.mark.parametrize(
    "path", ["/p/nosuch", "/t/bad", "/incidents/bad", "/nothing", "/requests?cursor=x", "/gold?span=1y"]
)
def test_an_error_is_a_page_for_a_browser_and_json_for_others(running, path):
    told = httpx.get(f"{running.admin}{path}")
    shown = httpx.get(f"{running.admin}{path}", headers={"Accept": "text/html,*/*;q=0.8"})
    assert told.status_code == shown.status_code >= 400
    assert shown.headers["Content-Security-Policy"]
    text = " ".join(ET.fromstring(shown.text).itertext()).casefold()
    assert told.json()["error"].casefold() in text
    links = [link.get("href") for link in ET.fromstring(shown.text).iter(f"{XHTML}a")]
    assert all(httpx.get(shown.url.join(link)).status_code == 200 for link in links)


def test_the_page_of_an_incident_has_its_diagnosis_in_tables_and_as_text(running):
    shown = page(running, "/incidents/support-20251121T0131")
    moved = {row[0]: row[1:] for row in table(shown, "before and since")}
    assert moved["requests that refused what can be answered"][2] == "100.0 %"
    assert moved["metric over_refusal_rate"] == [*moved["requests that refused what can be answered"][:2], ""]
    (suspect,) = table(shown, "suspects")
    assert suspect[0] == "build v2"
    *stretches, rest = table(shown, "failing requests")
    failed = next(
        "".join(part.itertext()) for part in shown.iter(f"{XHTML}h2") if "failing" in "".join(part.itertext())
    )
    assert failed == f"All {sum(int(row[1]) for row in (*stretches, rest))} failing requests"
    assert len(table(shown, "requests that fail")) == 10
    (report,) = [part for part in shown.iter(f"{XHTML}pre") if part.get("id") == "report"]
    text = "".join(report.itertext())
    assert text.startswith(shown.findtext(f".//{XHTML}h1"))
    assert "suspect     build v2" in text


def test_an_interval_is_the_same_on_every_page(running):
    for gate in running.status()["gates"]:
        if gate["pipeline"] == "support" and gate["lower"] is not None:
            shown = page(running, f"/p/support?window={gate['window']}")
            rows = [
                row
                for section in ("Answers, judged against gold", "Refusals", "Answers", "Retrieval", "Traffic")
                for row in table(shown, section)
            ]
            of = f"{gate['source']}, {gate['gold']}" if gate["gold"] else gate["source"]
            (row,) = [row for row in rows if row[:2] == [gate["metric"], of]]
            interval = f"{100 * gate['lower']:.1f} – {100 * gate['upper']:.1f} %"
            assert row[3] == interval
            assert interval in running.get(f"/p/support/{gate['gate']}")[1]
            assert interval in running.get("/")[1]


def test_failing_gates_come_first(running):
    gates = [row.get("href") for row in page(running, "/").iter(f"{XHTML}a") if (row.get("href") or "").count("/") == 2]
    verdicts = {f"p/{gate['pipeline']}/{gate['gate']}": gate["verdict"] for gate in running.status()["gates"]}
    shown = [verdicts[path] for path in gates if path.startswith("p/support/")]
    assert shown == sorted(shown)  # fail, insufficient, pass
    assert shown[0] == "fail"


def test_the_environment_stands_in_the_head_where_it_is_known(running, monkeypatch):
    def head():
        return [part.text for part in page(running, "/").iter(f"{XHTML}strong") if part.get("class") == "environment"]

    monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES", raising=False)
    assert head() == []
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=1,deployment.environment.name=staging")
    assert head() == ["staging"]


def test_a_gate_is_shown_over_the_shortest_span_that_holds_its_data(tmp_path):
    clock, moved = still()
    with serving(tmp_path, GATES, clock=clock) as running:
        for minute in range(40):
            send_body(running, whole([asked(100 * minute + k, ts=moved.now) for k in range(2)]))
            moved.advance(60.0)
            if minute == 7:
                accounted(running)
                assert current_span(running) == "last 10 min"
        accounted(running)
        assert current_span(running) == "last hour"


def current_span(running):
    (nav,) = [
        part
        for part in page(running, "/p/support/error_rate").iter(f"{XHTML}nav")
        if part.get("aria-label") == "span of time"
    ]
    return nav.findtext(f"{XHTML}strong")


def test_questions_and_answers_are_on_the_page_of_an_incident_for_whoever_has_the_token(tmp_path):
    question, config = "what only they may read", f'{GATES}[capture]\ncontent = "full"\n'
    clock, moved = still()
    with serving_with_token(tmp_path, TOKEN, config, clock=clock) as running:
        for minute in range(12):
            errors = "E" if minute >= 6 else None
            records = [
                asked(100 * minute + k, ts=moved.now, q=f"{question} {minute}.{k}", error=errors) for k in range(60)
            ]
            moved.advance(60.0)
            assert post_with_token(f"{running.otlp}/v1/traces", whole(records), TOKEN, PROTOBUF)[0] == 200
        running.settled(12 * 60)
        moved.advance(1.0)
        (found,) = wait_for(lambda: httpx.get(f"{running.admin}/api/incidents").json()["incidents"], bool)
        url = f"{running.admin}/incidents/{found['incident']}"
        without = httpx.get(url)
        assert question not in without.text
        assert "Show questions and answers" in without.text
        challenge = httpx.get(url, params={"text": "1"})
        assert (challenge.status_code, challenge.headers["WWW-Authenticate"].split()[0]) == (401, "Basic")
        shown = httpx.get(url, params={"text": "1"}, auth=("", TOKEN))
        assert shown.status_code == 200
        assert question in shown.text
