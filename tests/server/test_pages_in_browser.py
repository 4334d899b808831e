"""The pages in a real browser: no error, no request to elsewhere, nothing that a screen reader stumbles over."""

from __future__ import annotations

import os
import re
import shutil
from itertools import pairwise

import pytest

import ragmon
from tests.server.test_serve_why import gold
from tests.support.gold_world import BROKEN, MENDED, gold_world
from tests.support.incident import NASTY, incident
from tests.support.serving import accounted, asked, send_body, serving, whole

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")]
GATE = "/p/support/over_refusal_rate"
INCIDENT, TRACE = "/incidents/support-20251121T0131", "/t/0000000000000000000000000000059d"
PATHS = [
    *(
        "/",
        "/?span=7d",
        "/p/support",
        "/p/support?span=6h",
        GATE,
        f"{GATE}?span=6h&until=2025-11-21T01:00",
        "/monitor",
        "/incidents",
        INCIDENT,
        "/gold",
        "/runbook",
        TRACE,
    ),
    *("/requests", "/requests?gate=support/over_refusal_rate&trait=refused"),
]
SCREENS = {
    "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "light"},
    "large phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
    "tablet": {"viewport": {"width": 1000, "height": 800}, "color_scheme": "light"},
    "laptop": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "wall": {"viewport": {"width": 2000, "height": 1100}, "color_scheme": "light"},
}
WIDE = "document.documentElement.scrollWidth - window.innerWidth"
CUT = """[...document.querySelectorAll(".wide:has(> table)")]
    .filter((region) => region.scrollWidth > region.clientWidth + 1)
    .map((region) => region.getAttribute("aria-label"))"""
"""Tables that are wider than their place: a part of them is out of sight."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with incident(tmp_path_factory.mktemp("incident"), builds=(NASTY[0], NASTY[2])) as running:
        yield running


@pytest.fixture(scope="module")
def rated(tmp_path_factory):
    with gold_world(tmp_path_factory.mktemp("gold")) as running:
        yield running


@pytest.fixture(scope="module")
def long_named(tmp_path_factory):
    """A server and a report whose pipeline has a name of 300 characters."""
    folder, name = tmp_path_factory.mktemp("long"), "p" * 300
    gold(folder)
    config = f'[pipelines.{name}]\n[pipelines.other]\n[gold.handbook]\npath = "gold.jsonl"\n'
    wrong = {"claim": "x", "citations": ["d404"], "pipeline": name}
    records = [
        asked(k, source="probe" if k % 2 else None, q=f"q{k % 30}?", error="E" if k % 5 == 0 else None, **wrong)
        for k in range(120)
    ]
    (folder / "report.html").write_text(ragmon.replay(records, config=os.devnull).to_html())
    with serving(folder, config) as running:
        send_body(running, whole(records))
        accounted(running)
        pages = ("", "gold", f"p/{name}", f"p/{name}/error_rate", "requests", "monitor", f"p/{name}x")
        yield [*(f"{running.admin}/{page}" for page in pages), (folder / "report.html").as_uri()]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A page that is open, what its console says, and what it asked for."""

    def __init__(self, browser, url, **screen):
        self.context = browser.new_context(**screen)
        self.page, self.errors, self.requests = self.context.new_page(), [], []
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url, wait_until="load")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_sound_on_every_screen(running, browser, path, screen):
    with Visit(browser, f"{running.admin}{path}", bypass_csp=True, **SCREENS[screen]) as visit:
        wide, cut = visit.page.evaluate(WIDE), visit.page.evaluate(CUT)
        found = axe.Axe().run(visit.page).response["violations"]
        assert (visit.errors, wide, cut) == ([], 0, [])
        assert [url for url in visit.requests if not url.startswith(running.admin)] == []
        assert [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found] == []


@pytest.mark.parametrize("screen", SCREENS)
def test_the_page_of_gold_with_labels_and_judges_is_sound_on_every_screen(rated, browser, screen):
    with Visit(browser, f"{rated.admin}/gold", bypass_csp=True, **SCREENS[screen]) as visit:
        wide = visit.page.evaluate(WIDE)
        found = axe.Axe().run(visit.page).response["violations"]
        assert (visit.errors, wide) == ([], 0)
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
        assert visit.page.locator("svg.strip").count() == len(BROKEN) + len(MENDED)


@pytest.mark.parametrize("screen", ["large phone", "laptop"])
def test_a_long_name_widens_no_page_and_no_table(long_named, browser, screen):
    for url in long_named:
        with Visit(browser, url, **SCREENS[screen]) as visit:
            assert visit.page.evaluate(WIDE) == 0, url
            assert screen != "laptop" or visit.page.evaluate(CUT) == [], url


def test_the_times_under_a_chart_lie_apart_and_have_no_seconds_where_all_are_whole_minutes(running, browser):
    with Visit(browser, f"{running.admin}{GATE}?span=10m", **SCREENS["laptop"]) as visit:
        labels, apart = visit.page.evaluate(
            "[plots[0].axes[0]._values, plots[0].axes[0]._splits.map((x) => plots[0].valToPos(x, 'x'))]"
        )
    assert all(re.fullmatch(r"\d\d:\d\d", label) for label in labels), labels
    assert min(right - left for left, right in pairwise(apart)) >= 90


def test_the_policy_holds_nothing_back_that_a_page_needs(running, browser):
    for path in PATHS:
        with Visit(browser, f"{running.admin}{path}") as visit:
            assert visit.errors == [], path


def test_the_chart_is_read_with_the_cursor(running, browser):
    with Visit(browser, f"{running.admin}{GATE}?span=6h", **SCREENS["laptop"]) as visit:
        over = visit.page.locator(".u-over").first
        legend = "".join(visit.page.locator(".u-legend").first.inner_text().split("\n"))
        assert re.search(r"value[\d.]+ %", legend), "the newest window, before the cursor comes"
        box = over.bounding_box()
        visit.page.mouse.move(box["x"] + 0.98 * box["width"], box["y"] + box["height"] / 2)
        legend = "".join(visit.page.locator(".u-legend").first.inner_text().split())
        assert re.fullmatch(r"UTC2025-11-21[\d:]+value[\d.]+%95%interval[\d.]+%to[\d.]+%limit10\.0%n\d+", legend)


def test_a_page_is_refreshed_without_a_jump(running, browser):
    with Visit(browser, f"{running.admin}/monitor", **SCREENS["laptop"]) as visit:
        visit.page.locator("summary").click()
        visit.page.evaluate("window.scrollTo({ top: 400, behavior: 'instant' })")
        before = visit.page.evaluate("window.scrollY")
        visit.page.evaluate("refresh()")
        assert visit.page.locator("details").get_attribute("open") is not None
        assert visit.page.evaluate("window.scrollY") == before


def test_without_a_script_a_page_shows_the_same_numbers_and_a_picture(running, browser):
    with Visit(browser, f"{running.admin}{GATE}?span=6h", java_script_enabled=False, **SCREENS["laptop"]) as visit:
        assert visit.page.locator("svg.over-time").is_visible()
        assert visit.page.locator("div[aria-label='windows in figures'] tbody tr").count() > 3


def test_names_from_requests_are_text(running, browser):
    with Visit(browser, f"{running.admin}/p/support") as visit:
        visit.page.on("dialog", lambda dialog: visit.errors.append(dialog.message))
        assert NASTY[0] in visit.page.locator("div[aria-label='builds']").inner_text()
        assert visit.errors == []


@pytest.mark.parametrize("path", ["/", "/p/support", GATE])
def test_the_overview_a_pipeline_and_a_gate_lead_to_the_incident(running, browser, path):
    """The first two begin with its sentence, the page of the gate names it below its own."""
    with Visit(browser, f"{running.admin}{path}") as visit:
        sentence = "support: since 01:30 UTC answerable questions are refused"
        assert visit.page.locator("h1").inner_text().startswith("support/" if path == GATE else sentence)
        visit.page.locator(f"a[href$='{INCIDENT[1:]}']").first.click()
        assert visit.page.locator("h1").inner_text().startswith(sentence)
        assert visit.errors == []


def test_an_incident_is_copied_as_a_report(running, browser):
    with Visit(browser, f"{running.admin}{INCIDENT}", permissions=["clipboard-read", "clipboard-write"]) as visit:
        visit.page.get_by_text("copy as report").click()
        visit.page.get_by_text("copied").wait_for()
        report = visit.page.evaluate("navigator.clipboard.readText()")
        assert visit.errors == []
    first, known, _, *rest = report.splitlines()
    assert first.startswith("support: since 01:30 UTC answerable questions are refused")
    assert known.startswith("confirmed incident support-20251121T0131, began 2025-11-21 01:30:00 UTC, has lasted 30 ")
    assert any(line.startswith("suspect") for line in rest)


def test_requests_are_searched_in_the_form(running, browser):
    with Visit(browser, f"{running.admin}/requests", **SCREENS["laptop"]) as visit:
        visit.page.get_by_label("fails gate").select_option("support/over_refusal_rate")
        visit.page.get_by_role("button", name="Search").click()
        visit.page.wait_for_url("**gate=support**")
        assert visit.page.locator("h1").inner_text() == "Requests that fail a gate"
        assert visit.page.locator("tbody tr").count() == 50
        assert visit.errors == []
