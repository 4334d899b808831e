"""The page of gold on real servers: its numbers are those of the status and of `/metrics`."""

from __future__ import annotations

import json

import pytest

from ragmon.core.record import Answer, Record
from ragmon.server.pipeline.clock import Clock
from ragmon.testing import FakeClock
from tests.server.test_serve_labels import send_labels
from tests.server.test_serve_pages import XHTML, page, sample, table
from tests.support.incident import incident
from tests.support.serving import accounted, asked, send_body, serving, whole
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
ITEM = {"gold_claim_substr": ["x"], "gold_citations": ["d"], "answerable": True}
GOLD = """
[gold.main]
path = "gold.jsonl"
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with incident(tmp_path_factory.mktemp("incident")) as running:
        yield running


def shares(cell):
    """The two numbers of `3 of 12`."""
    return tuple(map(int, cell.split(" of ")))


def test_what_was_asked_is_what_metrics_say(running):
    rows = table(page(running, "/gold"), "items asked")
    assert {row[3] for row in rows} == {"match", "probe"}
    for gold, version, pipeline, source, items, *_ in rows:
        seen, known = shares(items)
        labels = {"pipeline": pipeline, "source": source, "gold": gold, "window": "24h"}
        assert sample(running, "ragmon_gold_items_seen", **labels) == seen == 30
        assert known == 30
        assert version in running.get("/api/status")[1]


def test_the_hardest_items_come_first(running):
    """A third of the answers are refused from the build v2 on."""
    rows = table(page(running, "/gold"), f"hardest items of {heading(running, 'support, probe')}")
    assert len(rows) == 20
    ratios = [shares(row[1])[0] / shares(row[1])[1] for row in rows]
    assert ratios == sorted(ratios, reverse=True)


def heading(running, start):
    """The name of a set on the page."""
    texts = [each.text or "" for each in page(running, "/gold").iter(f"{XHTML}h2")]
    return next(text for text in texts if text.startswith(start))


def test_items_that_began_to_fail_have_changed_sides_since_then(tmp_path):
    """Two of ten items are refused from a moment on: they are listed, with the step in which that began."""
    moved = FakeClock(1_763_683_200.0)
    items = [{"qid": f"q{k}", "question": f"what is {k}", **ITEM} for k in range(10)]
    (tmp_path / "gold.jsonl").write_text("\n".join(map(json.dumps, items)))
    with serving(tmp_path, GOLD, clock=Clock(wall=moved, passed=moved)) as running:
        for minute in range(0, 180, 5):
            refused = 2 if minute >= 140 else 0
            sent = [answer(100 * minute + k, moved.now, k, refuses=k < refused) for k in range(10)]
            send_body(running, whole(sent))
            moved.advance(300.0)
        accounted(running)
        rows = table(page(running, "/gold"), f"changed sides of {heading(running, 'default, probe')}")
        assert sorted(row[0] for row in rows) == ["q0", "q1"]
        began = "2025-11-21 02:20:00 UTC"
        assert [row[1:] for row in rows] == [["fails", began, "0 of 24", "8 of 12"]] * 2


def answer(number, now, k, *, refuses):
    """A probe of a gold item."""
    claim = Answer(claim="not in context" if refuses else "x", citations=[] if refuses else ["d"])
    names = {"trace_id": f"{number + 1:032x}", "source": "probe", "qid": f"q{k}", "q": f"what is {k}"}
    return Record(v=1, ts=now, answer_json=claim, retrieved_ids=["d"], **names)


def test_labels_raters_and_their_agreement_are_shown(tmp_path):
    with serving(tmp_path, "") as running:
        send_body(running, whole([asked(number) for number in range(3)]))
        accounted(running)
        said = [(0, "ada", 1), (0, "bob", 1), (1, "ada", 1), (1, "bob", 0), (2, "ada", 1), (99, "bob", 1)]
        labels = [{"trace_id": f"{k + 1:032x}", "rater": rater, "correct": correct} for k, rater, correct in said]
        send_labels(running, labels)
        wait_for(lambda: running.status()["labels"], lambda found: sum(found.values()) == len(said))
        shown = page(running, "/gold")
        text = " ".join(" ".join(shown.itertext()).split())
        assert "rated by several 2 raters agree 50.0 %" in text
        assert "wait for their answer 1" in text
        raters = [part for part in shown.iter(f"{XHTML}table") if part.findtext(f"{XHTML}caption") == "Raters"]
        cells = [["".join(cell.itertext()) for cell in row] for row in raters[0].findall(f".//{XHTML}tbody/{XHTML}tr")]
        assert cells == [["ada", "3"], ["bob", "2"]]


def test_without_gold_labels_and_judges_the_page_says_what_to_do(tmp_path):
    with serving(tmp_path, "") as running:
        text = running.get("/gold")[1]
        assert "No gold set is configured" in text
        assert "ragmon label import" in text
        assert "No judge has scored an answer" in text
        assert json.loads(running.get("/api/status")[1])["gold"]["sets"] == []
