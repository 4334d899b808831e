"""Gold ids that a new index does not have: the gate that fails names them, and the index since which."""

from __future__ import annotations

import ragmon
from ragmon.core.policy import Gate, Policy
from ragmon.testing import make_record

HOUR = 3600.0
GATE = Gate("recall", "recall@5", 0.9, "at_least")
GOLD = [
    {"qid": f"q{n}", "question": f"Question {n}?", "answerable": True, "gold_citations": [f"page-{n}"]}
    for n in range(60)
]


def asked(index, at, renamed=()):
    """The records of one run of the gold set over an index in which some pages have other names."""
    return [
        make_record(
            f"q{n}",
            claim="yes",
            retrieved=["new" if n in renamed else f"page-{n}", "other"],
            citations=[],
            index_hash=index,
            ts=at + n,
        )
        for n in range(len(GOLD))
    ]


def reason(*runs):
    records = [record for run in runs for record in run]
    (outcome,) = ragmon.replay(records, gold=GOLD, policy=Policy((GATE,))).outcomes
    return outcome.verdict, outcome.reason


def test_a_failing_gate_names_the_gold_ids_that_nobody_retrieves_any_more_and_the_index():
    verdict, why = reason(asked("a", 0.0), asked("b", HOUR, range(30)))
    assert (verdict, "30 gold ids are no longer retrieved since index b: page-0, page-1, page-10, …" in why) == (
        "fail",
        True,
    ), why


def test_it_is_the_first_index_without_them_whatever_order_the_records_come_in():
    _, why = reason(asked("c", 2 * HOUR, range(30)), asked("b", HOUR, range(30)), asked("a", 0.0))
    assert "30 gold ids are no longer retrieved since index b" in why


def test_an_index_that_brings_them_back_loses_nothing():
    _, why = reason(asked("a", 0.0), asked("b", HOUR, range(60)), asked("c", 2 * HOUR))
    assert "no longer retrieved" not in why


def test_what_no_index_ever_retrieved_did_not_vanish():
    verdict, why = reason(asked("a", 0.0, range(30)), asked("b", HOUR, range(30)))
    assert (verdict, "no longer retrieved" in why) == ("fail", False)


def test_without_times_no_index_is_the_newer_one():
    runs = [asked("a", 0.0), asked("b", HOUR, range(60))]
    for record in (record for run in runs for record in run):
        record.ts = None
    assert "no longer retrieved" not in reason(*runs)[1]
