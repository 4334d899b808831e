"""What `ragmon.replay` returns shows itself: as a line, in a notebook, as a DataFrame, as a plot, as a file."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import matplotlib as mpl
import pandas as pd
import pytest

import ragmon
from ragmon.core.errors import RagmonError

NASTY = "<script>alert(1)</script>"
ITEM = {"gold_claim_substr": ["yes"], "gold_citations": ["d"], "answerable": True}
GOLD = [{"qid": f"q{k}", "question": f"what is {k}", **ITEM} for k in range(40)]
TRACES = [
    {
        "qid": f"q{k}",
        "ts": 1_763_683_200 + 600 * k,
        "pipeline": NASTY,
        "retrieved_ids": ["d"],
        "answer_json": {"claim": "not in context" if k % 3 else "yes", "citations": ["d"]},
    }
    for k in range(40)
]


@pytest.fixture(scope="module")
def report():
    return ragmon.replay(TRACES, GOLD)


def test_the_short_form_is_one_line_with_the_verdict_and_what_fails(report):
    short = repr(report)
    assert short.startswith("<Report fail: ")
    assert "over_refusal_rate 65.0 % (≤ 0.1)" in short
    assert short.endswith("40 of 40 records scored>")
    assert "\n" not in short


def test_a_notebook_shows_each_gate_with_its_numbers_and_the_charts(report):
    shown = report._repr_html_()
    for gate in report.data()["gates"]:
        assert gate["gate"] in shown
    assert shown.count('class="over-time"') == sum(len(each.values) > 2 for each in report.histories.values()) > 0
    assert NASTY not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "<script" not in shown


def test_every_style_of_the_notebooks_report_is_for_its_inside_alone(report):
    (style,) = re.findall(r"<style>(.*?)</style>", report._repr_html_(), re.DOTALL)
    rules = re.sub(r"/\*.*?\*/|\{[^}]*\}", "\n", style, flags=re.DOTALL).split("\n")
    selectors = [each.strip() for rule in rules for each in rule.split(",") if each.strip()]
    assert len(selectors) > 15
    assert [each for each in selectors if not each.startswith(".ragmon-report")] == []


def test_the_metrics_are_a_frame_with_the_numbers_of_the_report(report):
    frame = report.to_frame()
    assert isinstance(frame, pd.DataFrame)
    row = frame[(frame.metric == "over_refusal_rate") & (frame.gold != "")].iloc[0]
    stat = report.metric("over_refusal_rate")
    assert (row.value, row.n) == (stat.value, stat.n) == (0.65, 40)
    assert row.lower < 0.65 < row.upper


def test_gates_and_questions_are_frames_too(report):
    assert list(report.to_frame("gates").gate) == [outcome.gate.name for outcome in report.outcomes]
    questions = report.to_frame("questions")
    assert questions.times.sum() == 40
    assert set(questions.outcome) == {"OK", "OVER_REFUSAL"}
    with pytest.raises(RagmonError, match="what='x' is no table"):
        report.to_frame("x")


def test_the_files_are_those_of_the_command(report):
    assert report.to_markdown().startswith("# RAG quality report\n\n**❌ fail**")
    page = report.to_html()
    assert page.startswith("<!DOCTYPE html>")
    assert 'class="over-time"' in page
    assert NASTY not in page


def test_a_plot_has_a_row_for_each_gate_with_a_value(report):
    mpl.use("agg")
    axes = report.plot()
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[::-1] == [o.gate.name for o in report.outcomes if o.value is not None and o.gate.kind == "threshold"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "call", "remedy"),
    [("pandas", "to_frame()", "pip install 'ragmon[table]'"), ("matplotlib", "plot()", "pip install matplotlib")],
)
def test_a_missing_package_is_named_with_what_to_type(missing, call, remedy):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\nimport ragmon\n"
        "try:\n"
        f"    ragmon.replay([{{'answer_json': {{'claim': 'a'}}}}]).{call}\n"
        "except ragmon.core.errors.RagmonError as error:\n    print(error, error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"needs {missing}, which is not installed {remedy}" in done.stdout


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
def test_in_a_page_with_another_style_nothing_outside_changes(report):
    """The notebook's own table keeps its look beside the report."""
    driver = pytest.importorskip("playwright.sync_api")
    style = "<style>td { padding: 7px } body { color: rgb(1, 2, 3) }</style>"
    page = f"{style}<table><tr><td id='own'>1</td></tr></table>{report._repr_html_()}"
    look = "getComputedStyle(document.getElementById('own')).padding + getComputedStyle(document.body).color"
    with driver.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab, errors = browser.new_page(), []
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.set_content(page)
        assert tab.evaluate(look) == "7pxrgb(1, 2, 3)"
        assert tab.locator(".ragmon-report svg.over-time").first.is_visible()
        assert errors == []
        browser.close()
