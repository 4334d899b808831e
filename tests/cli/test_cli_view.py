"""`ragmon view`: the pages on a journal or on files are those of the server that had it, and nothing is written."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from tests.support.command_line import SMALL, ragmon
from tests.support.incident import incident
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.slow
GATE = "p/support/over_refusal_rate?span=6h"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def viewing(*arguments):
    """The command in a process of its own: its address; it is ended with Ctrl-C, and must exit with 0."""
    command = [sys.executable, "-m", "ragmon", "view", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT) == 0


def get(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        return answer.read().decode()


def without_time(page):
    """A page without the times since something, which go on."""
    return re.sub(r"[\d.]+ (s|min|h|d) ago|\d\d:\d\d:\d\d UTC", "", page)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of a server that was stopped after an incident, and what its pages said before."""
    folder = tmp_path_factory.mktemp("incident")
    with incident(folder) as running:
        gate = running.get(f"/{GATE}")[1]
        return folder, running.status(), {GATE: gate, "gold": running.get("/gold")[1]}


def test_a_journal_is_shown_as_its_server_showed_it(recorded):
    folder, before, pages = recorded
    content = (folder / "state" / "journal.db").read_bytes()
    with viewing(folder / "state", "--config", folder / "ragmon.toml") as url:
        status = json.loads(get(f"{url}api/status"))
        shown = {path: get(f"{url}{path}") for path in pages}
    for part in ("gates", "books", "alarms", "gold", "captured", "verdicts"):
        assert status[part] == before[part], part
    for path, page in pages.items():
        cells = re.findall(r"<td[^<]*</td>", without_time(page))
        assert cells
        assert re.findall(r"<td[^<]*</td>", without_time(shown[path])) == cells
    assert (folder / "state" / "journal.db").read_bytes() == content


def test_trace_files_are_shown_as_they_were_at_their_newest_record(tmp_path):
    lines = [
        {"ts": 1_763_683_200 + 30 * k, "q": "what", "error": "E" if k % 4 == 0 else None, "retrieved_ids": ["d"]}
        for k in range(80)
    ]
    path = tmp_path / "traces.jsonl"
    path.write_text(
        "\n".join(json.dumps({**line, "answer_json": {"claim": "x", "citations": ["d"]}}) for line in lines)
    )
    with viewing(path) as url:
        status = json.loads(get(f"{url}api/status"))
        page = get(f"{url}p/default/error_rate")
        for path in ("", "monitor"):
            assert "hese pages show files and keep nothing" in get(f"{url}{path}")
    (gate,) = [gate for gate in status["gates"] if gate["gate"] == "error_rate"]
    assert gate["value"] == 0.25
    assert status["books"]["score"]["scored"] == 80
    assert "2025-11-21" in page


@pytest.mark.parametrize(
    ("content", "error"), [("", "there is no record in it"), ("{}\nno json\n", "no record could be read")]
)
def test_what_cannot_be_shown_is_said(tmp_path, content, error):
    path = tmp_path / "traces.jsonl"
    path.write_text(content)
    done = ragmon("view", path)
    assert done.code == 3
    assert error in done.err


def test_an_empty_folder_is_no_journal(tmp_path):
    done = ragmon("view", tmp_path)
    assert done.code == 3
    assert "there is no journal" in done.err


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """A report of the small set as JSON and as a page, and a comparison of two releases as JSON."""
    folder = tmp_path_factory.mktemp("reports")
    for name in ("report.json", "report.html"):
        files = SMALL / "traces.jsonl", "--gold", SMALL / "gold.jsonl"
        assert ragmon("replay", *files, "--format", name.partition(".")[2], "-o", folder / name).code == 0
    (folder / "ragmon.toml").write_text("[gates]\nerror_rate.at_most = 0.5\n")
    records = [{"q": f"q{k}", "build": "ab"[k % 2], "source": "live", "error": None} for k in range(40)]
    (folder / "traces.jsonl").write_text("\n".join(map(json.dumps, records)))
    named = "--by", "build", "--baseline", "a", "--candidate", "b", "--format", "json"
    done = ragmon("compare", "traces.jsonl", *named, "-o", "comparison.json", cwd=folder)
    assert done.code == 2, done.err
    return folder


def test_a_report_in_json_is_shown_as_its_page(reports):
    report = json.loads((reports / "report.json").read_text())
    with viewing(reports / "report.json") as url:
        page = get(url)
    assert f'Verdict: <span class="{report["verdict"]}">' in page
    for gate in report["gates"]:
        assert f'<th scope="row">{gate["pipeline"]}/{gate["gate"]}</th><td class="verdict {gate["verdict"]}">' in page
    assert "no results of single questions" in page


def test_a_page_is_shown_as_it_is_and_may_fetch_nothing(reports):
    with viewing(reports / "report.html") as url:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            page, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(urllib.request.Request(url, headers={"Origin": "https://elsewhere.example"}))
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{url}api/status")
    assert page == (reports / "report.html").read_text()
    assert "default-src 'none'" in policy
    assert policy.startswith("sandbox allow-scripts;")


def test_a_comparison_in_json_is_shown_as_its_page(reports):
    with viewing(reports / "comparison.json") as url:
        page = get(url)
    assert 'build b against a: <span class="insufficient">undecided</span>' in page


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("page.html", "<!DOCTYPE html><html><head></head></html>", "this is not a page of ragmon"),
        ("page.html", b"\xff\xfe", "the page cannot be read"),
        ("report.json", '{"gates": [], "verdict": "pass"}', "this is not a report of ragmon"),
        ("compared.json", '{"gates": [], "candidate": "b"}', "this is no comparison of releases"),
        ("absent.json", None, "the report cannot be read"),
        ("absent.html", None, "the page cannot be read"),
    ],
)
def test_what_is_no_report_is_said(tmp_path, name, content, error):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = ragmon("view", path)
    assert error in done.error[0]
    assert done.error[1]


def test_traces_in_a_json_file_are_traces(tmp_path):
    path = tmp_path / "traces.json"
    path.write_text(json.dumps([{"ts": 1_763_683_200 + k, "q": "what", "error": "E"} for k in range(40)]))
    with viewing(path) as url:
        assert json.loads(get(f"{url}api/status"))["books"]["score"]["scored"] == 40


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
def test_in_a_browser_its_table_is_filtered_and_its_styles_are_in_force(reports):
    playwright = pytest.importorskip("playwright.sync_api")
    with viewing(reports / "report.html") as url, playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown, errors = browser.new_page(), []
        shown.on("console", lambda message: message.type == "error" and errors.append(message.text))
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.goto(url)
        rows = shown.locator("#questions tbody tr:visible")
        before = rows.count()
        shown.fill("#filter", "HALLUCINATION")
        assert 0 < rows.count() < before
        assert shown.locator("main table").first.evaluate("e => getComputedStyle(e).borderCollapse") == "collapse"
        assert [error for error in errors if "favicon" not in error] == []
        browser.close()
