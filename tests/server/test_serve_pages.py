"""The pages of a real server: their numbers are those of `/metrics`, and their links lead somewhere."""

from __future__ import annotations

import json
import re
from urllib.parse import urljoin
from xml.etree import ElementTree as ET

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.command_line import ragmon
from tests.support.incident import BROKE, MINUTES, NASTY, PER_MINUTE, incident
from tests.support.serving import PROTOBUF, asked, whole
from tests.support.token_server import post_with_token, serving_with_token

pytestmark = pytest.mark.slow
GATE = "/p/support/over_refusal_rate"
XHTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with incident(tmp_path_factory.mktemp("incident")) as running:
        yield running


def page(running, path):
    """A page as a tree; it must be well formed."""
    code, text = running.get(path)
    assert code == 200, text
    return ET.fromstring(text)


def table(tree, name):
    """The rows of the table in a region, as text."""
    (region,) = [part for part in tree.iter(f"{XHTML}div") if part.get("aria-label") == name]
    rows = region.findall(f".//{XHTML}tbody/{XHTML}tr")
    return [[" ".join("".join(cell.itertext()).split()) for cell in row] for row in rows]


def sample(running, name, **labels):
    """The value of a series at `/metrics`."""
    for family in text_string_to_metric_families(running.get("/metrics")[1]):
        for found in family.samples:
            if found.name == name and labels.items() <= found.labels.items():
                return found.value
    raise AssertionError(f"{name}{labels} is not exported")


def test_the_page_of_a_pipeline_shows_the_numbers_of_metrics(running):
    shown = page(running, "/p/support?window=1h")
    gates = {(gate["metric"], gate["source"]) for gate in running.status()["gates"] if gate["pipeline"] == "support"}
    compared = 0
    for section in ("Answers, judged against gold", "Refusals", "Answers", "Retrieval", "Traffic"):
        for key, of, value, interval, n, *_ in table(shown, section):
            source, _, gold = of.partition(", ")
            labels = {"pipeline": "support", "source": source, "gold": gold, "window": "1h"}
            assert sample(running, f"rag_{key}_samples", **labels) == int(n)
            figures = [("", value)]
            if (key, source) not in gates:  # a gate has an interval of its own
                figures += zip(("_lower", "_upper"), interval.removesuffix(" %").split(" – "), strict=True)
            for ending, number in figures:
                exported = sample(running, f"rag_{key}{ending}", **labels)
                assert f"{100 * exported:.1f}" == number.removesuffix(" %"), (key, of, ending)
                compared += 1
    assert compared > 40


def test_the_page_of_a_pipeline_has_latency_by_stage_traffic_and_documents(running):
    shown = page(running, "/p/support?window=1h")
    latency = {(stage, source): cells for stage, source, *cells in table(shown, "latency by stage")}
    assert latency["retrieve", "live"][:3] == ["40", "40", "40"]
    traffic = {row[0]: row[1] for row in table(shown, "traffic and sampling")}
    in_window = 60 * PER_MINUTE // 2
    assert in_window - PER_MINUTE <= int(traffic["probe"]) <= in_window
    assert latency["total", "probe"][3] == traffic["probe"]
    documents = table(shown, "documents retrieved")
    assert [(number, n) for number, n, *_ in documents] == [(k, str(MINUTES * PER_MINUTE // 2)) for k in ("1", "2")]
    assert sorted(table(shown, "builds")) == [["v1", "index-1"], ["v2", "index-1"]]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/p/suport", "there is no pipeline"),
        ("/p/support?window=2h", "window"),
        *((f"{path}?span=2h", "span") for path in ("/", "/p/support", GATE)),
    ],
)
def test_an_unknown_name_is_not_found_and_the_nearest_is_named(running, path, error):
    code, text = running.get(path)
    assert code == 404
    assert error in text
    assert "hint" in text


def links_of(shown):
    """The first link of a page with each text."""
    links = reversed([*shown.iter(f"{XHTML}a")])
    return {" ".join("".join(link.itertext()).split()): link.get("href") for link in links}


@pytest.mark.parametrize("path", ["/", "/p/support"])
def test_a_reader_chooses_the_span_of_the_lines_and_links_keep_it(running, path):
    shown = page(running, f"{path}?span=10m")
    headings = {"".join(cell.itertext()) for cell in shown.iter(f"{XHTML}th")}
    lines = [line.get("aria-label") for line in shown.iter(f"{SVG}svg") if line.get("class") == "sparkline"]
    assert "last 10 min" in headings
    assert "last 24 h" not in headings
    assert lines
    assert all(", last 10 min: " in words for words in lines)
    links = links_of(shown)
    assert {name for name in links if name.startswith("last ")} >= {"last hour", "last 6 h", "last 24 h", "last 7 d"}
    kept = [href for name, href in links.items() if name in ("overview", "support", "over_refusal_rate")]
    assert len(kept) == 3
    assert all(href.endswith("?span=10m") for href in kept)
    followed = page(running, f"/p/support/{links['over_refusal_rate'].rpartition('/')[2]}")
    assert [part.text for part in followed.iter(f"{XHTML}strong") if part.get("aria-current") == "page"] == [
        "last 10 min"
    ]


def test_the_window_of_the_values_and_the_span_of_the_lines_are_chosen_apart(running):
    links = links_of(page(running, "/p/support?window=1h&span=6h"))
    assert links["last 24h"] == "?window=24h&span=6h"
    assert links["last 10 min"] == "?window=1h&span=10m"
    assert "span" not in links_of(page(running, "/p/support"))["last 24h"], "nobody chose one"


def test_the_chart_of_a_gate_is_paged_back_to_an_earlier_time_and_forth(running):
    def drawn(shown):
        (data,) = [part.text for part in shown.iter(f"{XHTML}script") if part.get("id") == "drawn"]
        return json.loads(data)

    now = drawn(page(running, f"{GATE}?span=6h"))
    past = page(running, f"{GATE}?span=6h&until=2025-11-21 01:00".replace(" ", "%20"))
    before = drawn(past)
    assert (before["end"], now["end"]) == (now["end"] - 3600, running.moved.now)
    assert before["n"][12:] == now["n"][:-12], "the same windows, an hour later"
    assert before["marks"] == [], "build v2 came later"
    links = links_of(past)
    assert links["earlier"] == "?span=6h&until=2025-11-20+19%3A00"
    assert links["later"] == "?span=6h", "which is now"
    assert links["last 24 h"] == "?until=2025-11-21+01%3A00&span=24h"
    assert "last hour" not in links, "there are windows of five minutes alone"
    assert "later" not in links_of(page(running, f"{GATE}?span=6h"))
    assert running.get(f"{GATE}?until=soon")[0] == 400


def test_the_gates_of_a_pipeline_without_data_are_folded(running):
    (folded,) = page(running, "/").iter(f"{XHTML}details")
    assert folded.findtext(f"{XHTML}summary") == "8 gates without data"
    assert {link.get("href").split("/")[1] for link in folded.iter(f"{XHTML}a")} == {"harbour"}


def test_the_page_of_a_gate_says_what_changed_and_how_soon_its_alarm_finds_what(running):
    shown = page(running, f"{GATE}?span=6h")
    text = " ".join(" ".join(shown.itertext()).split())
    assert re.search(r"At this rate a rise to 20 % is found in about \d+ min", text)
    (changes,) = [part for part in shown.iter(f"{XHTML}table") if part.findtext(f"{XHTML}caption") == "Changes"]
    rows = [["".join(cell.itertext()) for cell in row] for row in changes.findall(f".//{XHTML}tbody/{XHTML}tr")]
    assert [row[2:] for row in rows] == [["build", "v2"]]
    assert {row[0] for row in table(shown, "by source")} >= {"match, main", "probe, main"}


def test_the_page_of_a_gate_lists_the_newest_requests_that_fail_it_and_leads_to_all(running):
    def listed(shown, name):
        links = {"".join(link.itertext()): link.get("href") for link in shown.iter(f"{XHTML}a")}
        return [row[1] for row in table(shown, name)], links

    newest, links = listed(page(running, GATE), "requests that fail")
    (all_of_them,) = [href for words, href in links.items() if words.startswith("Search all")]
    seen, path = [], urljoin(GATE, all_of_them)
    while path:
        found, links = listed(page(running, path), "requests")
        seen += found
        path = f"/requests{links['Older requests']}" if "Older requests" in links else ""
    status = running.get("/api/records?pipeline=support&gate=over_refusal_rate&limit=1000")[1]
    assert len(seen) == len(set(seen)) == status.count('"trace_id"')
    assert newest == seen[:20]


def test_the_page_of_the_monitor_accounts_for_every_record(running):
    books = running.status()["books"]["ingest"]
    shown = page(running, "/monitor")
    (caption,) = [part for part in shown.iter(f"{XHTML}caption") if "ingest" in "".join(part.itertext())]
    assert "".join(caption.itertext()) == f"ingest: {books['received']:,} received"
    (flow,) = [part for part in shown.iter("{http://www.w3.org/2000/svg}svg") if part.get("class") == "flow"]
    assert flow.get("aria-label") == f"ingest: {books['received']:,} received; scored {books['scored']:,}"
    text = "".join(shown.itertext())
    assert "Every record is accounted for" in text


def test_the_configuration_in_force_is_shown_with_its_origins_and_without_secrets(running):
    shown = page(running, "/monitor")
    written = {key: (value, origin) for key, value, origin in table(shown, "values that are written")}
    assert written["links.trace"] == ('"https://***@traces.example/{trace_id}"', "ragmon.toml:7")
    assert "secret" not in "".join(shown.itertext())
    defaults = {key: origin for key, _, origin in table(shown, "values by default")}
    assert set(defaults.values()) == {"default"}


def test_a_reload_of_the_configuration_is_a_mark(tmp_path):
    with incident(tmp_path) as running:
        path = tmp_path / "ragmon.toml"
        path.write_text(f"{path.read_text()}[pipelines.other]\n")
        assert running.server.reloading.reload()
        running.moved.advance(30.0)
        shown = page(running, f"{GATE}?span=6h")
        assert "configuration" in "".join(shown.itertext())


def test_names_of_builds_are_text_on_every_page(tmp_path):
    with incident(tmp_path, builds=(NASTY[0], NASTY[1])) as running:
        for path in ("/", "/monitor", "/incidents", "/requests", "/gold", "/p/support", GATE):
            code, text = running.get(path)
            assert code == 200
            assert "<script>alert" not in text
            assert "\u202e" not in text
            ET.fromstring(text)


def test_what_the_script_draws_is_what_the_table_says(running):
    shown = page(running, f"{GATE}?span=6h")
    drawn = json.loads(shown.find(f".//{XHTML}script[@id='drawn']").text)
    figures = table(shown, "windows in figures")
    assert [n for n in reversed(drawn["n"]) if n] == [int(row[3]) for row in figures]
    values = [value for value in reversed(drawn["value"]) if value is not None]
    assert [f"{100 * value:.1f} %" for value in values] == [row[1] for row in figures]
    assert len(drawn["alarms"]) == 1
    begin = drawn["end"] - 60 * (MINUTES - BROKE)
    assert begin < drawn["alarms"][0][0] < drawn["alarms"][0][1] == drawn["end"]


def test_the_page_of_incidents_shows_what_fires_and_the_budget(running):
    alarms = running.status()["alarms"]
    shown = page(running, "/incidents")
    rows = table(shown, "what fired")
    by_name = {f"{alarm['pipeline']}/{alarm['alert']}": alarm for alarm in alarms}
    assert {row[0] for row in rows if row[3] == "fires"} == set(by_name)
    proofs = {name: alarm["proof"]["text"] for name, alarm in by_name.items() if alarm["proof"]}
    assert {row[0]: row[5].removesuffix(" incident") for row in rows if row[0] in proofs} == proofs
    assert all(row[5].endswith(" incident") != (f"ragmon ack {row[0]} --reason" in row[6]) for row in rows)
    (budget,) = [part for part in shown.iter(f"{XHTML}table") if part.get("class") == "figures"]
    cells = [["".join(cell.itertext()) for cell in row] for row in budget.findall(f".//{XHTML}tbody/{XHTML}tr")]
    pages = sum(alarm["severity"] == "page" for alarm in alarms)
    assert cells[0] == ["page", str(pages), "30 days", "1"]
    timeline = [part for part in shown.iter("{http://www.w3.org/2000/svg}rect") if "alarm" in part.get("class", "")]
    assert len(timeline) == len(rows)


def failing_trace(running):
    found = json.loads(running.get("/api/records?pipeline=support&gate=over_refusal_rate&limit=1")[1])
    return found["records"][0]["trace_id"]


def test_the_page_of_a_trace_says_why_it_fails_as_the_command_does(running):
    trace_id = failing_trace(running)
    (report,) = json.loads(running.get(f"/api/traces/{trace_id}")[1])["requests"]
    text = " ".join("".join(page(running, f"/t/{trace_id}").itertext()).split())
    for metric in report["metrics"]:
        assert metric["metric"] in text
        assert " ".join(metric["why"].split()) in text
    assert "Show the texts" not in text  # this server has no token


def test_a_trace_that_is_not_there_is_not_found(running):
    code, text = running.get("/t/" + "f" * 32)
    assert code == 404
    assert "hint" in text


TOKEN = "a-token-of-at-least-some-length"


def test_the_texts_of_a_trace_are_shown_to_whoever_gives_the_token_as_password(tmp_path):
    question, config = "what only they may read", '[pipelines.support]\n[capture]\ncontent = "full"\n'
    with serving_with_token(tmp_path, TOKEN, config) as running:
        record = asked(1, q=question)
        assert post_with_token(f"{running.otlp}/v1/traces", whole([record]), TOKEN, PROTOBUF)[0] == 200
        running.settled(1)
        url = f"{running.admin}/t/{record.trace_id}"
        without = httpx.get(url)
        assert question not in without.text
        assert "Show the texts" in without.text
        challenge = httpx.get(url, params={"text": "1"})
        assert (challenge.status_code, challenge.headers["WWW-Authenticate"].split()[0]) == (401, "Basic")
        assert httpx.get(url, params={"text": "1"}, auth=("", "wrong")).status_code == 401
        shown = httpx.get(url, params={"text": "1"}, auth=("", TOKEN))
        assert shown.status_code == 200
        assert question in shown.text
        assert TOKEN not in shown.text


def test_the_requests_that_fail_say_how_long_they_took(running):
    rows = table(page(running, GATE), "requests that fail")
    listed = json.loads(running.get("/api/records?pipeline=support&gate=over_refusal_rate&limit=20")[1])["records"]
    assert [row[5] for row in rows] == [f"{record['latency_ms']:.1f}" for record in listed]
    assert {record["latency_ms"] for record in listed} <= {300.0 + 10 * item for item in range(30)}


def test_the_page_of_a_pipeline_shows_the_numbers_of_a_report_of_the_same_moment(running):
    """All records are younger than a day: that window is the whole journal, which the command scores again."""
    folder = running.folder
    done = ragmon("replay", "--journal", folder / "state", "-c", folder / "ragmon.toml", "--format", "json")
    assert done.code == 0, done.err
    series = [each for each in json.loads(done.out)["series"] if each["window"] == "all" and not each.get("slice")]
    reported = {
        (key, f"{each['source']}, {each['gold']}" if each["gold"] else each["source"]): stat
        for each in series
        for key, stat in each["metrics"].items()
    }
    shown, compared = page(running, "/p/support?window=24h"), 0
    for section in ("Answers, judged against gold", "Refusals", "Answers", "Retrieval", "Traffic"):
        for key, of, value, _, n, *_ in table(shown, section):
            stat = reported[key, of]
            assert (f"{100 * stat['value']:.1f} %", str(stat["n"])) == (value, n), (key, of)
            compared += 1
    assert compared > 20
