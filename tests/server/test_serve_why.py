"""Traces beside an explanation: they are of the gate that is explained, and of the time in which it was bad."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.serving import accounted, asked, send_body, serving, whole
from tests.support.waiting import wait_for

GATES = """
[pipeline]
name = "support"
[slices]
lang = ["de", "en"]
[capture]
content = "full"
[gold.handbook]
path = "gold.jsonl"
[gates.probes]
metric = "answer_precision"
at_least = 0.8
source = "probe"
[gates.german]
metric = "answer_precision"
at_least = 0.8
source = "probe"
slice = { lang = "de" }
[gates.matched]
metric = "answer_precision"
at_least = 0.8
source = "match"
"""
MINUTES = 60
BAD = range(30, 45)
"""Minutes in which the answers were wrong."""
RIGHT, WRONG = "that is right", "something else"


ITEM = {"answerable": True, "gold_claim_substr": ["right"], "gold_citations": ["d1"]}


def gold(folder):
    items = ({"qid": f"q{n}", "question": f"q{n}?", **ITEM} for n in range(400))
    (folder / "gold.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items))


@pytest.fixture(scope="module")
def episode(tmp_path_factory):
    """A server with an hour of probes, wrong for a quarter and once after that; some users' were wrong as well."""
    folder, now, sent = tmp_path_factory.mktemp("episode"), time.time(), []
    gold(folder)
    for minute in range(MINUTES):
        for second in range(0, 60, 10):
            wrong = minute in BAD or (minute == 58 and second == 0)
            ts = now - 60 * (MINUTES - minute) + second
            told = {"build": "b2" if minute in BAD else "b1", "tags": {"lang": "de" if second == 20 else "en"}}
            sent.append(asked(len(sent), ts=ts, source="probe", claim=WRONG if wrong else RIGHT, **told))
    sent += [asked(len(sent) + n, ts=now - 60 * MINUTES + 60 * BAD.start + n, claim=WRONG) for n in range(20)]
    with serving(folder, GATES) as running:
        send_body(running, whole(sent))
        accounted(running)
        wrong = sum(record.answer_json.claim == WRONG for record in sent)
        wait_for(lambda: found(running, "records?limit=1000")["records"], lambda held: len(held) == wrong)
        yield running


def found(running, question):
    code, text = running.get(f"/api/{question}")
    assert code == 200, text
    return json.loads(text)


def test_they_are_of_the_source_the_gate_judges(episode):
    """The users' requests failed at the same time, and are another gate's."""
    assert {trace["source"] for trace in found(episode, "why?gate=support/probes")["traces"]} == {"probe"}


def test_they_are_of_the_time_in_which_it_was_bad_though_others_failed_since(episode):
    why = found(episode, "why?gate=support/probes")
    assert len(why["traces"]) == 10
    assert all(why["change"]["began"] <= trace["ts"] < why["end"] for trace in why["traces"])
    assert {trace["build"] for trace in why["traces"]} == {"b2"}


def test_they_are_of_the_slice_the_gate_judges(episode):
    traces = found(episode, "why?gate=support/german")["traces"]
    german = found(episode, "records?gate=support/german&limit=1000")["records"]
    assert len(traces) == 10
    assert {trace["trace_id"] for trace in traces} <= {record["trace_id"] for record in german}


@pytest.mark.parametrize(
    ("gate", "source", "n"), [("probes", "probe", 91), ("german", "probe", 15), ("matched", "match", 20)]
)
def test_the_records_that_fail_a_gate_are_of_its_source_and_its_slice(episode, gate, source, n):
    records = found(episode, f"records?gate=support/{gate}&limit=1000")["records"]
    assert ({record["source"] for record in records}, len(records)) == ({source}, n)
