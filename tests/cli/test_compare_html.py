"""`ragmon compare --format html`: one file that needs nothing else, with the numbers and verdicts of the comparison."""

from __future__ import annotations

import json
import re
import shutil
from xml.etree import ElementTree as ET

import pytest

from tests.cli.test_cli_compare import CONFIG, first, run
from tests.support.command_line import gold, lines, ragmon

XHTML = "{http://www.w3.org/1999/xhtml}"
NASTY = "<script>alert(1)</script>\u202egnp" + "x" * 10_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def compare(tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases")
    (folder / "ragmon.toml").write_text(CONFIG)
    lines(folder / "gold.jsonl", gold(400, 320))
    worse = first("a", 3) | {"u1"} | {f"u{i}" for i in range(20, 50)}
    records = run("a", first("u", 2)) + run("b", worse) + run(NASTY, worse)
    files = lines(folder / "traces.jsonl", records), "--gold", folder / "gold.jsonl", "-c", folder / "ragmon.toml"

    def go(form, candidate="b"):
        options = "--by", "build", "--baseline", "a", "--candidate", candidate, "--format", form
        done = ragmon("compare", *files, *options)
        assert done.code == 1, done.err
        return done.out

    return go


@pytest.fixture(scope="module")
def page(compare):
    return compare("html")


def rows(page, label="metric by metric"):
    tree = ET.fromstring(page)
    (region,) = [part for part in tree.iter(f"{XHTML}div") if part.get("aria-label") == label]
    found = region.findall(f".//{XHTML}tbody/{XHTML}tr")
    return {row[0].text: [" ".join(" ".join(cell.itertext()).split()) for cell in row] for row in found}


def test_the_numbers_are_those_of_the_comparison(compare, page):
    found = rows(page)
    for gate in json.loads(compare("json"))["gates"]:
        row = found[f"{gate['pipeline']}/{gate['gate']}"]
        assert row[1] == {"fail": "worse", "pass": "not worse", "insufficient": "undecided"}[gate["verdict"]]
        for cell, side in ((row[2], gate["baseline"]), (row[3], gate["candidate"])):
            assert cell.startswith(f"{100 * side['value']:.1f} % ")
            assert cell.endswith(f", of {side['n']}")
        assert row[4].startswith(f"{-100 * gate['drop']:+.1f} ")
        assert row[6].startswith(f"{gate['items']} {len(gate['flips'])} flipped")


def test_a_proven_drop_has_its_whole_interval_below_0(page):
    for row in rows(page).values():
        assert row[1] == "worse"
        change, low, high = map(float, re.fullmatch(r"(\S+) (\S+) to (\S+)", row[4]).groups())
        assert low < change < high < 0


def test_items_that_flipped_are_listed(compare, page):
    for gate in json.loads(compare("json"))["gates"]:
        for flip in gate["flips"]:
            assert f'<th scope="row">{flip["qid"]}</th>' in page


def test_it_needs_nothing_else_and_is_small(page):
    assert not re.findall(r'(?:src|href)="', page)
    assert "url(" not in page
    assert len(page.encode()) < 100_000


def test_names_of_builds_are_text(compare):
    page = compare("html", NASTY)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\u202e" not in page
    assert "x" * 1000 not in page
    ET.fromstring(page)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_in_a_browser_it_is_sound(page, tmp_path, width, scheme):
    playwright = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    path = tmp_path / "comparison.html"
    path.write_text(page, encoding="utf-8")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        shown, errors, requests = context.new_page(), [], []
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.on("request", lambda request: requests.append(request.url))
        shown.goto(f"file://{path}")
        shown.locator("summary").first.click()
        assert shown.locator("#flips-1 tbody tr").first.is_visible()
        assert shown.evaluate("document.documentElement.scrollWidth - window.innerWidth") == 0
        found = axe.Axe().run(shown).response["violations"]
        assert (errors, [each["id"] for each in found], len(requests)) == ([], [], 1)
        browser.close()
