"""`ragmon replay --format html`: one file that needs nothing else, with the numbers of the report and no content."""

from __future__ import annotations

import json
import random
import re
import shutil
from xml.etree import ElementTree as ET

import pytest

from tests.support.command_line import ragmon

XHTML = "{http://www.w3.org/1999/xhtml}"
NASTY = '<img src=x onerror="alert(1)">'
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A thousand gold questions asked over ten hours, a fifth of them answered wrongly, and one with a hostile id."""
    folder, rng = tmp_path_factory.mktemp("run"), random.Random(19)
    qids = [f"question-{k}" for k in range(999)] + [NASTY]
    secret = "what nobody else may read"
    gold = [
        {"qid": qid, "question": secret, "gold_claim_substr": ["yes"], "gold_citations": ["d"], "answerable": True}
        for qid in qids
    ]
    traces = [
        {
            "qid": qid,
            "q": secret,
            "ts": 1_763_683_200 + 36 * place,
            "source": "probe",
            "retrieved_ids": ["d"],
            "latency_ms": {"total": 100 + place % 50},
            "answer_json": {"claim": "yes" if rng.random() > 0.2 else "not in context", "citations": ["d"]},
        }
        for place, qid in enumerate(qids)
    ]
    for name, lines in (("gold", gold), ("traces", traces)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


def replay(files, form, *options):
    done = ragmon("replay", files / "traces.jsonl", "--gold", files / "gold.jsonl", "--format", form, *options)
    assert done.code == 0, done.err
    return done.out


@pytest.fixture(scope="module")
def page(files):
    return replay(files, "html", "--questions", "all")


def table(page, name):
    """The rows of the table in a region, as text. The script is cut out: it is not XML."""
    tree = ET.fromstring(re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))
    (region,) = [part for part in tree.iter(f"{XHTML}div") if part.get("aria-label") == name]
    rows = region.findall(f".//{XHTML}tbody/{XHTML}tr")
    return [[" ".join("".join(cell.itertext()).split()) for cell in row] for row in rows]


def test_the_numbers_are_those_of_the_report(files, page):
    report = json.loads(replay(files, "json"))
    rows = {row[0]: row for row in table(page, "gates")}
    for gate in report["gates"]:
        row = rows[f"{gate['pipeline']}/{gate['gate']}"]
        assert row[1] == gate["verdict"]
        assert row[2] == ("–" if gate["value"] is None else f"{100 * gate['value']:.1f} %")
        assert row[5] == f"{gate['n']:,}"
    assert report["digest"] in page
    assert f"{report['records']['scored']:,} of {report['records']['read']:,} records could be scored" in page


def test_every_question_is_a_row_and_the_file_is_small(page):
    rows = table(page, "questions")
    assert len({row[0] for row in rows}) == 1000
    assert {row[1] for row in rows} == {"OK", "OVER_REFUSAL"}
    assert len(page.encode()) < 1_000_000


def test_it_needs_nothing_else_and_holds_no_content(page):
    assert "what nobody else may read" not in page
    assert not re.findall(r'(?:src|href)="', page.replace(NASTY, ""))
    assert "url(" not in page
    assert "<img" not in page
    assert "&lt;img src=x" in page


def test_gates_are_drawn_over_the_time_of_the_records(page):
    tree = ET.fromstring(re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))
    charts = [part for part in tree.iter("{http://www.w3.org/2000/svg}svg") if part.get("class") == "over-time"]
    names = [chart.get("aria-label").partition(":")[0] for chart in charts]
    assert "default/over_refusal_rate over time" in names


def test_records_without_times_have_no_charts(files, tmp_path):
    lines = [json.loads(line) for line in (files / "traces.jsonl").read_text().splitlines()]
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(json.dumps({**line, "ts": None}) for line in lines))
    done = ragmon("replay", path, "--gold", files / "gold.jsonl", "--format", "html", "-o", tmp_path / "report.html")
    assert done.code == 0, done.err
    assert "Over time" not in (tmp_path / "report.html").read_text()


@pytest.fixture(scope="module")
def earlier(files):
    """The same questions, of which the first ten and the hostile one were answered otherwise, as traces."""
    traces = [json.loads(line) for line in (files / "traces.jsonl").read_text().splitlines()]
    for trace in (*traces[:10], traces[-1]):
        refused = trace["answer_json"]["claim"] == "not in context"
        trace["answer_json"]["claim"] = "yes" if refused else "not in context"
    path = files / "earlier.jsonl"
    path.write_text("\n".join(map(json.dumps, traces)))
    return path


def test_against_a_baseline_it_lists_the_items_that_flipped(files, earlier):
    page = replay(files, "html", "--baseline", earlier)
    rows = {row[0]: row for row in table(page, "against the baseline")}
    assert rows["default/over_refusal_rate"][4] == "11 of 1000"
    flips = re.search(r"default/over_refusal_rate: gold items.*?</details>", page, re.DOTALL)[0]
    for qid in (*(f"question-{k}" for k in range(10)), "&lt;img src=x onerror=&#34;alert(1)&#34;&gt;"):
        assert f'<th scope="row">{qid}</th>' in flips
    assert "question-11" not in flips


@pytest.mark.slow
def test_a_baseline_is_compared_as_by_the_gate_command(files, earlier, tmp_path):
    gold = "--gold", files / "gold.jsonl"
    assert ragmon("replay", earlier, *gold, "--format", "json", "-o", tmp_path / "report.json").code == 0
    for baseline in (earlier, tmp_path / "report.json"):
        found = json.loads(replay(files, "json", "--baseline", baseline, "--max-drop", "0.001"))
        judged = ragmon("gate", files / "traces.jsonl", *gold, "--format", "json", "--baseline", baseline)
        assert found["baseline"] == judged.json["baseline"]
        assert any(entry["drop"] for entry in found["baseline"])
    assert "Against the baseline" in replay(files, "md", "--baseline", tmp_path / "report.json")


def test_a_drop_that_is_too_large_fails_its_gate_and_says_so(files, tmp_path):
    better = [json.loads(line) for line in (files / "traces.jsonl").read_text().splitlines()]
    for trace in better:
        trace["answer_json"]["claim"] = "yes"
    (tmp_path / "better.jsonl").write_text("\n".join(map(json.dumps, better)))
    (tmp_path / "ragmon.toml").write_text("[gates]\nover_refusal_rate.at_most = 0.9\n")
    options = "--baseline", tmp_path / "better.jsonl", "--config", tmp_path / "ragmon.toml"
    page = replay(files, "html", *options)
    assert "points worse than the baseline, 2.0 are allowed." in page
    assert 'Verdict: <span class="fail">' in page
    assert 'Verdict: <span class="pass">' in replay(files, "html", *options, "--max-drop", "0.5")


def test_options_of_a_baseline_that_do_nothing_are_refused(files):
    done = ragmon("replay", files / "traces.jsonl", "--max-drop", "0.1")
    assert done.error == ("--max-drop does nothing without --baseline", "ragmon replay --help")
    done = ragmon("replay", "--journal", files, "--baseline", files / "traces.jsonl")
    assert done.error[0] == "--baseline does nothing with --journal"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
def test_in_a_browser_questions_are_sorted_and_filtered(files, earlier, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    path = tmp_path / "report.html"
    path.write_text(replay(files, "html", "--questions", "all", "--baseline", earlier))
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown, errors = browser.new_page(viewport={"width": 390, "height": 800}), []
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.goto(f"file://{path}")
        rows = shown.locator("#questions tbody tr:visible")
        assert rows.count() == 1000
        shown.fill("#filter", "question-77")
        assert rows.count() == 11
        shown.fill("#filter", "")
        shown.get_by_role("button", name="question", exact=True).click()
        assert rows.nth(1).locator("td").first.inner_text() == "question-0"
        assert rows.nth(3).locator("td").first.inner_text() == "question-2"
        for summary in shown.locator("summary").all():
            summary.click()
        assert shown.evaluate("document.documentElement.scrollWidth - window.innerWidth") == 0
        found = axe.Axe().run(shown).response["violations"]
        assert (errors, [each["id"] for each in found]) == ([], [])
        browser.close()
