"""A report in a notebook, in a real browser: styles of the notebook do not reach it, and its own stay inside."""

from __future__ import annotations

import shutil

import pytest

import ragmon
from ragmon.testing import make_gold
from tests.export.test_report_views import NASTY, timed

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")]
NOTEBOOK = """
.output td, .output th { text-align: right; padding: 30px; border: 5px dotted orange; font-size: 30px; }
.output tbody tr:nth-child(odd) { background: rgb(1, 2, 3); }
.output p { color: purple; margin: 99px; }
table { margin: 50px; }
details { background: yellow; }
svg { fill: red; }
"""
THEMES = {"light": ("rgb(255, 255, 255)", "rgb(17, 17, 17)"), "dark": ("rgb(17, 17, 17)", "rgb(238, 238, 238)")}


def page(shown, background, colour):
    return f"""<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"/><title>notebook</title>
<style>{NOTEBOOK} body {{ background: {background}; color: {colour}; }}</style></head>
<body><main class="output"><h1>Notebook</h1><p id="before">text</p>{shown}
<table><tr><td id="after">cell</td></tr></table></main></body></html>"""


@pytest.fixture(scope="module")
def shown():
    gold = make_gold(*((f"q{k}", True) for k in range(400)))
    return ragmon.replay(timed(pipeline=NASTY), gold)._repr_html_()


@pytest.mark.parametrize("theme", THEMES)
def test_it_looks_the_same_among_other_styles(shown, tmp_path, theme):
    background, colour = THEMES[theme]
    with_it, without = tmp_path / "with.html", tmp_path / "without.html"
    with_it.write_text(page(shown, background, colour), encoding="utf-8")
    without.write_text(page("", background, colour), encoding="utf-8")
    others = "['before', 'after'].map(id => JSON.stringify([...getComputedStyle(document.getElementById(id))].map(k => "
    others += "[k, getComputedStyle(document.getElementById(id))[k]]).filter(([k]) => !k.includes('origin'))))"
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        # the theme of a notebook need not be that of the system
        context = browser.new_context(color_scheme="light", viewport={"width": 1000, "height": 800})
        visit, errors, requests = context.new_page(), [], []
        visit.on("pageerror", lambda error: errors.append(str(error)))
        visit.on("dialog", lambda dialog: errors.append(dialog.message))
        visit.on("request", lambda request: requests.append(request.url))
        visit.goto(f"file://{without}")
        untouched = visit.evaluate(others)
        visit.goto(f"file://{with_it}")
        assert visit.evaluate(others) == untouched
        cell = visit.locator(".ragmon-report tbody td").first
        css = {
            name: cell.evaluate(f"e => getComputedStyle(e)['{name}']") for name in ("color", "text-align", "padding")
        }
        assert css == {"color": colour, "text-align": "left", "padding": "4px 9.6px"}
        row = visit.locator(".ragmon-report tbody tr").first
        assert row.evaluate("e => getComputedStyle(e).backgroundColor") == "rgba(0, 0, 0, 0)"
        assert visit.locator(".ragmon-report svg.over-time").first.is_visible()
        found = axe.Axe().run(visit).response["violations"]
        ours = [one["id"] for one in found for node in one["nodes"] if "ragmon-report" in str(node["target"])]
        assert (errors, ours, len(requests)) == ([], [], 2)
        browser.close()
