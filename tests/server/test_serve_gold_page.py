"""The page of gold, labels and judges of a real server: its numbers are those of `/metrics` and `/api/status`."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from ragmon.export.pages import time_text
from tests.server.test_serve_admin import still
from tests.server.test_serve_why import gold
from tests.support.gold_world import (
    ASKED,
    BEGIN,
    BROKEN,
    ITEMS,
    MENDED,
    MINUTES,
    NEVER,
    RATED,
    TEXTS,
    USERS,
    gold_world,
    is_wrong,
)
from tests.support.incident import NASTY
from tests.support.serving import accounted, asked, send_body, serving, whole

pytestmark = pytest.mark.slow
XHTML = "{http://www.w3.org/1999/xhtml}"
ROUNDS = MINUTES // 10


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with gold_world(tmp_path_factory.mktemp("gold")) as running:
        yield running


def page(running, query=""):
    """The page as a tree; it must be well formed."""
    code, text = running.get(f"/gold{query}")
    assert code == 200, text
    return ET.fromstring(text)


def words(part):
    return " ".join("".join(part.itertext()).split())


def table(tree, name):
    """The rows of the table in a region, as text."""
    (region,) = [part for part in tree.iter(f"{XHTML}div") if part.get("aria-label") == name]
    return [[words(cell) for cell in row] for row in region.findall(f".//{XHTML}tbody/{XHTML}tr")]


def samples(running, name, **labels):
    """The values of the series of a name at `/metrics`, by their other labels."""
    found = {}
    for family in text_string_to_metric_families(running.get("/metrics")[1]):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                rest = {key: value for key, value in sample.labels.items() if key not in labels}
                found[tuple(rest.values())] = sample.value
    return found


def test_items_asked_are_those_of_metrics_and_of_the_status(running):
    (row,) = table(page(running), "items asked, main")
    assert row[:2] == ["support", "probe"]
    seen = dict(zip(("5m", "1h", "24h"), map(int, row[5:]), strict=True))
    exported = samples(running, "ragmon_gold_items_seen", pipeline="support", source="probe", gold="main")
    assert seen == {window: value for (window,), value in exported.items()} | {"5m": 0}
    status = running.status()["gold"]["sets"]
    assert {entry["window"]: entry["seen"] for entry in status} | {"5m": 0} == seen
    assert seen["1h"] == int(row[4]) == ASKED
    assert row[3] == f"{100 * ASKED / ITEMS:.1f} %"


def test_every_item_is_right_each_time_sometimes_never_or_not_asked(running):
    ((pipeline, _, always, sometimes, never, unknown, rest),) = table(page(running), "how items were answered, main")
    turned = len(BROKEN) + len(MENDED)
    assert pipeline == "support"
    assert [int(n) for n in (always, sometimes, never, unknown, rest)] == [
        ASKED - turned - len(NEVER),
        turned,
        len(NEVER),
        0,
        ITEMS - ASKED,
    ]


def test_the_hardest_items_come_first_with_how_often_they_were_asked(running):
    rows = table(page(running), "hardest items, main")
    rounds = range(0, MINUTES, 10)
    right = {qid: sum(not is_wrong(qid, minute) for minute in rounds) for qid in (*NEVER, *BROKEN, *MENDED)}
    expected = sorted(right.items(), key=lambda entry: (entry[1], entry[0]))
    assert [(row[0], row[3], row[4]) for row in rows] == [(qid, f"{n} of {ROUNDS}", str(ROUNDS)) for qid, n in expected]


def test_items_that_flipped_stand_with_both_spans_and_the_time_of_the_turn(running):
    shown = page(running, "?span=1h")
    rows = table(shown, "items that flipped, main")
    now = BEGIN + 60 * MINUTES
    cut = now - 3600 + 10
    in_last = [minute for minute in range(0, MINUTES, 10) if BEGIN + 60 * minute >= cut]
    assert {row[0] for row in rows if row[1] == "wrong"} == set(BROKEN)
    assert {row[0] for row in rows if row[1] == "right"} == set(MENDED)
    for qid, _, _, since, before, after, _ in rows:
        right = {minute: not is_wrong(qid, minute) for minute in range(0, MINUTES, 10)}
        last = sum(right[minute] for minute in in_last)
        assert after == f"{last} of {len(in_last)}"
        assert before == f"{sum(right.values()) - last} of {ROUNDS - len(in_last)}"
        turned = BEGIN + 60 * (BROKEN | MENDED)[qid]
        hour = re.fullmatch(r".* (\d\d):00:00 UTC to the hour|.* (\d\d):\d\d:\d\d UTC", since)
        shown_hour = int(hour[1] or hour[2]) * 3600 + BEGIN
        assert -3600 < shown_hour - turned <= 3600
    text = words(shown)
    assert f"Two spans: from {time_text(BEGIN)} to {time_text(cut)}, and from then to {time_text(now)}" in text
    assert f"Of {ASKED} items that were answered in both spans, {len(BROKEN) + len(MENDED)} flipped" in text
    assert shown.findtext(f".//{XHTML}title") == f"ragmon: {len(BROKEN)} gold questions got worse"


def test_where_no_item_flips_the_page_begins_with_those_that_were_answered_wrong(running):
    """In the last ten minutes none was asked."""
    items = {f"q{number}" for number in range(ASKED)}
    wrong = {qid for qid in items if any(is_wrong(qid, minute) for minute in range(0, MINUTES, 10))}
    shown = page(running, "?span=10m")
    title = f"ragmon: {len(wrong)} of {ASKED} gold questions were answered wrong at least once"
    assert shown.findtext(f".//{XHTML}title") == title


def test_a_span_that_does_not_exist_is_not_found(running):
    code, text = running.get("/gold?span=1y")
    assert code == 404
    assert "one of: 10m, 1h, 6h" in text


def test_labels_and_the_agreement_of_raters_are_those_that_came(running):
    shown = page(running)
    results = {row[0]: int(row[1]) for row in table(shown, "what became of labels")}
    assert results == {name: n for name, n in running.status()["labels"].items() if name != "waiting"}
    exported = samples(running, "ragmon_labels_total")
    assert results == {name: n for (name,), n in exported.items() if n}
    summary = shown.find(f".//{XHTML}dl")
    facts = {words(part[0]): words(part[1]) for part in summary}
    both, disputed = RATED // 2, RATED // 10
    assert facts == {
        "answers rated, last 7 days": str(RATED),
        "raters": "2",
        "rated by two or more": str(both),
        "of these, raters agree on": f"{100 * (both - disputed) / both:.1f} %",
        "labels waiting for their answers": "0",
    }
    ((field, judged, agreed, share, _),) = table(shown, "agreement of raters")
    assert (field, judged, agreed, share) == ("right or wrong", str(both), str(both - disputed), "80.0 %")
    assert f"can be rated: support {USERS}." in words(shown)
    assert "ada" not in words(shown).split()


def test_what_labels_say_and_what_a_judge_is_worth_are_the_numbers_of_metrics(running):
    shown = page(running)
    rated = table(shown, "what labels say")
    assert [row[1] for row in rated] == ["5m", "1h", "24h"]
    of_label = {"pipeline": "support", "source": "label", "gold": ""}
    for _, window, value, interval, n, _ in rated:
        lower, upper = interval.removesuffix(" %").split(" – ")
        for ending, number in (("", value.removesuffix(" %")), ("_lower", lower), ("_upper", upper)):
            (exported,) = samples(running, f"rag_answer_correct{ending}", **of_label, window=window).values()
            assert f"{100 * exported:.1f}" == number
        assert list(samples(running, "rag_answer_correct_samples", **of_label, window=window).values()) == [int(n)]
    gains = samples(running, "ragmon_proxy_gain", pipeline="support", proxy="judge_strict")
    worth = table(shown, "what scores are worth in labels")
    assert {(row[2],): row[6] for row in worth} == {window: f"{gain:.2f}" for window, gain in gains.items()}
    assert all(float(row[6]) > 1 for row in worth)
    for _, _, window, _, value, interval, *_ in worth:
        figures = (value.removesuffix(" %"), *interval.removesuffix(" %").split(" – "))
        for ending, number in zip(("", "_lower", "_upper"), figures, strict=True):
            (exported,) = samples(running, f"rag_answer_correct_ppi{ending}", **of_label, window=window).values()
            assert f"{100 * exported:.1f}" == number


def test_the_versions_of_judges_are_those_of_the_status_and_of_metrics(running):
    (judge,) = running.status()["judges"]
    ((pipeline, name, version, answers, *_),) = table(page(running), "judges")
    assert (pipeline, name, version, int(answers)) == (judge["pipeline"], judge["judge"], "v7", judge["answers"])
    assert (name, version) in samples(running, "ragmon_judge_info", pipeline="support")


def test_a_server_without_gold_labels_and_judges_says_what_to_configure(tmp_path):
    with serving(tmp_path, "[pipelines.support]\n") as running:
        text = words(page(running))
    assert "No gold set is configured: [gold.NAME]" in text
    assert "No label yet: ragmon label queue" in text
    assert "No judge is configured: [judges.NAME]" in text
    assert all(f"docs/how-to/{name}.md" in text for name in ("serve", "labels", "judges"))


def test_names_from_strangers_are_text_and_long_lists_are_cut(tmp_path):
    """Two hundred items with names that try to be markup are all wrong: twenty are shown, the rest is counted."""
    names = [f"{k} {NASTY[0]} {NASTY[1]}" for k in range(200)]
    items = [
        {"qid": name, "question": f"what is {name}", "gold_citations": ["d"], "answerable": True} for name in names
    ]
    (tmp_path / "gold.jsonl").write_text("\n".join(map(json.dumps, items)))
    with serving(tmp_path, '[gold.main]\npath = "gold.jsonl"\n') as running:
        refused = {"claim": "not in context", "citations": []}
        asked_now = [
            replace(asked(k, source="probe", pipeline=NASTY[0], build=NASTY[0], **refused), qid=name)
            for k, name in enumerate(names)
        ]
        send_body(running, whole(asked_now))
        accounted(running)
        _, text = running.get("/gold")
        shown = ET.fromstring(text)
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert len(table(shown, "hardest items, main")) == 20
    assert "180 more were answered wrong at least once." in words(shown)


def test_the_texts_of_questions_and_answers_are_not_on_the_page(running):
    text = words(page(running))
    assert not any(said in text for said in TEXTS)


def test_while_no_answer_is_older_than_the_span_there_is_nothing_to_compare(tmp_path):
    clock, moved = still()
    gold(tmp_path)
    config = '[pipelines.support]\n[gold.handbook]\npath = "gold.jsonl"\n'
    with serving(tmp_path, config, clock=clock) as young:
        begin = moved.now // 10 * 10
        for minute in range(8):
            claim, cited = ("right", ["d1"]) if minute < 4 else ("wrong", ["d404"])
            records = [
                asked(60 * minute + k, ts=moved.now + k, source="probe", q=f"q{k}?", claim=claim, citations=cited)
                for k in range(20)
            ]
            send_body(young, whole(records))
            moved.advance(60.0)
        accounted(young)
        text = words(page(young))
    assert "There is nothing to compare yet: answers are kept for less than the span" in text
    assert "Two spans" not in text
    assert f"Answers are kept since {time_text(begin)}. From {time_text(begin + 600)} on, the last 10 min is" in text
