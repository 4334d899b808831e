"""The status of a real server and the page that shows it: what is wrong, since when, and whether to believe it."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree as ET

import pytest

from ragmon.alarms.pipelines import AlarmState
from ragmon.capture.otlp_exporter import OtlpExporter
from ragmon.core.record import Latency, Sampling, Totals
from ragmon.export import status as views
from ragmon.export.status import MonitorSnapshot, ServerStats, StageCounters, problems, warnings
from ragmon.gates.incidents import Incident
from ragmon.scoring.snapshot import Snapshot
from tests.server.test_serve_admin import GATES, exchange, filled, still  # noqa: F401 - a fixture
from tests.support.serving import accounted, asked, send_body, serving, whole
from tests.support.waiting import wait_for


def minutes(running, moved, n, **fields):
    """So many minutes of sixty requests each."""
    for _ in range(n):
        first = int(moved.now) * 10
        records = [asked(first + k, ts=moved.now + k, **fields) for k in range(60)]
        moved.advance(60.0)
        send_body(running, whole(records))


BROKEN = {"citations": ["d404"]}
"""An answer that cites what was not retrieved."""


@pytest.mark.slow
def test_the_status_begins_with_what_is_wrong_and_since_when(tmp_path):
    clock, moved = still()
    with serving(tmp_path, "[pipelines.support]\n", clock=clock) as running:
        minutes(running, moved, 2)
        assert running.status()["wrong"] == []
        broke = moved.now
        minutes(running, moved, 4, **BROKEN)
        moved.advance(1.0)
        accounted(running)  # from now on no number moves
        status = wait_for(running.status, lambda found: found["alarms"])
        assert next(iter(status)) == "wrong"
        first = status["wrong"][0]
        clock = time.strftime("%H:%M", time.gmtime(broke))
        assert re.fullmatch(rf"support: since {clock} .*, \d+ % of requests.*", first["what"])
        assert first["hint"] == "ragmon why support"
        shown = running.get("/")[1]
        assert f'<h1 class="{first["severity"]}">{status["headline"]}</h1>' in shown
        assert first["what"] in status["headline"]
        assert running.get(f"/incidents/{first['incident']}")[0] == 200
        firing = {(one["pipeline"], one["gate"]): one["firing"] for one in status["gates"]}
        page_alarm = status["alarms"][0]
        assert page_alarm["severity"] == "page"
        assert broke < firing[page_alarm["pipeline"], page_alarm["alert"]] <= moved.now


def test_gates_of_configured_pipelines_come_first_and_of_the_others_those_that_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(views, "OTHERS", 30)
    strangers = [asked(n, pipeline=f"p{n:02}") for n in range(60)]
    many = [asked(1000 + 100 * n + k, pipeline=f"p{n:02}", error="E") for n in (3, 5) for k in range(40)]
    with serving(tmp_path, GATES) as running:
        send_body(running, whole([*strangers, *many]))
        accounted(running)
        status = running.status()
    shown = [gate["pipeline"] for gate in status["gates"]]
    assert shown[:6] == ["support"] * 3 + ["sales"] * 3
    assert len(shown) == 6 + 30
    assert {gate["pipeline"] for gate in status["gates"] if gate["verdict"] == "fail"} == {"p03", "p05"}
    assert shown[6:8] == ["p03", "p05"]
    assert sum(status["verdicts"].values()) > 6 + 30


def reading(**how):
    served = how.pop("served", {})
    books = StageCounters(**how.pop("books", {"received": 1000, "scored": 1000}))
    found = {"last_scored": 5000.0, "stages": {"ingest": books}, "served": ServerStats(**served), **how}
    return MonitorSnapshot(Snapshot(5000.0, [], [], [], frozenset()), **found)


@pytest.mark.parametrize(
    ("how", "doubt"),
    [
        ({"books": {"received": 1000, "scored": 998}}, "ingest: 2 records are not accounted for"),
        (
            {"books": {"received": 1000, "scored": 900, "dropped": {"too_old": 100}}},
            "ingest: 100 of 1,000 records dropped: too_old 100",
        ),
        ({"served": {"resets": 1}}, "damaged journals that were set aside: 1"),
        ({"served": {"missing": 11}}, "11 records that producers sent have not arrived"),
        ({"served": {"lost": {"queue_full": 30}}}, "producers lost 30 records before sending them: queue_full 30"),
        ({"last_scored": 4399.0}, "no record was scored lately, so the numbers are old"),
        ({"last_scored": None}, "no record has been scored yet"),
    ],
)
def test_a_reason_for_doubt_is_named(how, doubt):
    assert [found.what for found in warnings(reading(**how))] == [doubt]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"books": {"received": 1000, "scored": 995, "dropped": {"too_old": 5}}},
        {"served": {"missing": 10}},
        {"served": {"lost": {"queue_full": 10}, "resets": 0}},
        {"last_scored": 4400.0},
    ],
)
def test_a_little_loss_is_no_reason(how):
    assert warnings(reading(**how)) == []


def test_each_incident_comes_with_the_command_that_tells_of_it():
    """A pipeline's name asks for its newest incident, so that others are asked for by their own."""
    incidents = [
        Incident(name, name.partition("-")[0], 1.0, "hit_rate", metrics=("hit_rate",), ended=ended)
        for name, ended in (("a-1", None), ("b-1", None), ("b-2", None), ("c-1", None), ("c-2", 2.0))
    ]
    hints = [found.hint for found in problems(reading(incidents=incidents))]
    assert hints == ["ragmon why a", "ragmon why b-1", "ragmon why b-2", "ragmon why c"]


def test_the_most_urgent_comes_first_then_what_began_it_and_not_without_end():
    """What began first is nearest to the cause."""
    kinds = [("ticket", 10.0), ("page", 30.0), ("look", 5.0), ("page", 20.0)]
    alarms = [AlarmState("p", f"{kind}{at:.0f}", "m", kind, at, 1.0) for kind, at in kinds]
    alarms.append(AlarmState("p", "silent", "m", "page", None, 0.0))
    found = problems(reading(alarms=alarms))
    assert [one.what.split()[0] for one in found] == ["p/page20", "p/page30", "p/look5", "p/ticket10"]
    assert [one.since for one in found] == [20.0, 30.0, 5.0, 10.0]
    many = [AlarmState("p", f"a{n:02}", "m", "page", 1.0, 1.0) for n in range(25)]
    assert [one.what for one in problems(reading(alarms=many))][-2:] == ["p/a19 fires (page)", "and 5 more"]


def test_what_producers_sent_and_what_did_not_come_is_a_doubt(tmp_path):
    now = time.time()
    kept = Sampling(audit=True, stratum="rest", p_audit=1.0, p=1.0)
    told = {"ts": now, "instance": "a", "started": now - 60, "pipeline": "support", "source": "live", "stratum": "rest"}
    with serving(tmp_path, GATES) as running:
        sink = OtlpExporter(running.otlp, resource={"service.name": "support"})
        sink.deliver([asked(n, sampling=kept, latency_ms=Latency(total=3.0)) for n in range(100)])
        sink.report([Totals(**told, calls=150, kept=150, dropped={"queue_full": 20}, latency_ms={})])
        sink.close()
        accounted(running)
        found = wait_for(running.status, lambda status: len(status["doubts"]) == 2)
    assert [doubt["what"] for doubt in found["doubts"]] == [
        "30 records that producers sent have not arrived",
        "producers lost 20 records before sending them: queue_full 20",
    ]
    assert found["producers"] == {"missing": 30, "dropped": {"queue_full": 20}}


def test_the_journal_says_how_far_it_goes_back(tmp_path):
    clock, moved = still()
    with serving(tmp_path, GATES, clock=clock) as running:
        empty = running.status()["journal"]
        assert (empty["row"], empty["oldest"], empty["newest"], empty["resets"]) == (0, None, None, 0)
        began = moved.now
        send_body(running, whole([asked(0, ts=began)]))
        moved.advance(7200.0)
        send_body(running, whole([asked(1, ts=moved.now)]))
        running.settled(2)
        found = running.status()["journal"]
        assert (found["row"], found["oldest"]) == (2, began)
        assert began < found["newest"] <= moved.now
        assert 0 < found["bytes"] < found["limit"] == 5 << 30
        assert f"from {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(began))} UTC" in running.get("/")[1]


# --- the page ---------------------------------------------------------------------------------------------------------

NASTY = "<script>alert(1)</script>"
TREACHEROUS = [
    NASTY,
    '"><img src=x onerror=alert(1)>',
    "a&b'\"</td>",
    "\x1b[31mred",
    "\u202egnp.exe",
    "\ufffe\x00",
    "x" * 3000,
]


@pytest.fixture(scope="module")
def treacherous(tmp_path_factory):
    """A server whose pipelines and builds are called what an attacker would call them."""
    clock, moved = still()
    with serving(tmp_path_factory.mktemp("page"), GATES, clock=clock) as running:
        for minute in range(3):
            first = 10_000 * minute
            for place, name in enumerate(TREACHEROUS):
                told = {"ts": moved.now, "pipeline": name, "build": name, "error": "E"}
                send_body(running, whole([asked(first + 100 * place + k, **told) for k in range(40)]))
            moved.advance(60.0)
        accounted(running)
        wait_for(running.status, lambda found: found["alarms"])
        yield running


class Tags(HTMLParser):
    """The tags and addresses of a page, as a browser's parser finds them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("href", "src", "action", "data")]


@pytest.mark.parametrize("which", ["filled", "treacherous"])
def test_the_page_is_well_formed_and_fetches_nothing(which, request):
    found = request.getfixturevalue(which)
    running = found[0] if isinstance(found, tuple) else found
    code, headers, body = exchange(running, "GET", "/")
    assert (code, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    root = ET.fromstring(body)
    assert root.tag == "{http://www.w3.org/1999/xhtml}html"
    head = {"html", "head", "meta", "title", "link", "script", "noscript", "body", "header", "nav", "main", "footer"}
    text = {
        "section",
        "h1",
        "h2",
        "h3",
        "p",
        "small",
        "strong",
        "code",
        "a",
        "div",
        "span",
        "img",
        "details",
        "summary",
        "wbr",
    }
    table = {"table", "thead", "tbody", "tr", "th", "td"}
    chart = {"svg", "rect", "line", "circle", "polyline"}
    read = Tags(body.decode())
    assert set(read.tags) <= head | text | table | chart
    assert read.tags.count("script") == 1  # the page's own
    assert all(urlsplit(link).scheme == urlsplit(link).netloc == "" for link in read.links), read.links


def test_the_policy_of_the_page_allows_its_own_files_and_nothing_inline(filled):  # noqa: F811 - a fixture
    _, headers, body = exchange(filled[0], "GET", "/")
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    nothing = ("default-src", "base-uri", "frame-ancestors")
    own = ("style-src", "script-src", "connect-src", "img-src", "form-action")
    assert policy == {**dict.fromkeys(nothing, "'none'"), **dict.fromkeys(own, "'self'")}
    page = body.decode()
    assert "style=" not in page
    assert "<style" not in page
    assert not re.search(r"\son\w+=", page)
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]


@pytest.mark.slow
def test_the_links_of_the_page_lead_somewhere(treacherous):
    running = treacherous
    links = Tags(running.get("/")[1]).links
    assert len(links) > 10
    for link in links:
        assert running.get(urljoin("/", link).partition("#")[0])[0] == 200, link


def test_a_name_is_shown_as_text(treacherous):
    shown = treacherous.get("/")[1]
    assert NASTY not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert not [char for char in shown if not char.isprintable() and char != "\n"]


@pytest.mark.slow
def test_a_page_of_nothing_says_so(tmp_path):
    with serving(tmp_path) as running:
        shown = running.get("/")[1]
    assert "<title>ragmon: Nothing to judge yet</title>" in shown
    assert "no record has been scored yet" in shown
    assert "No request has arrived yet" in shown
