"""An answer without its texts: with any label it counts as the whole answer does, and it holds no text."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings

from ragmon.core.record import Answer, Record, TextFacts, encode
from ragmon.scoring.labels import gold_item, labelled_record, without_text
from ragmon.scoring.ratings import Consensus
from ragmon.scoring.scorer import Scorer
from tests.support.oracle.draw import drawn
from tests.support.random_records import IDS, NOON, record

TRACE = "5" * 32


def labelled(draw):
    """A record that has a trace, and what its raters say."""
    answer = msgspec.structs.replace(record(draw), trace_id=TRACE, user="ada", session=draw.one((None, "s1")))
    ids = draw.one((None, (), tuple(sorted(draw.some(IDS, 2) or ()))))
    return answer, Consensus(draw.one((None, 0.0, 1.0)), draw.one((None, True, False)), ids)


def counted(answer, verdict):
    """The digest of a scorer that counted an answer with its label."""
    scorer = Scorer()
    scorer.observe_label(labelled_record(answer, verdict, NOON), gold_item(TRACE, verdict), answer.ts)
    return scorer.state.digest()


@settings(max_examples=400)
@given(drawn(labelled, 200))
def test_it_counts_with_any_label_as_the_whole_answer_does(world):
    answer, verdict = world
    assert counted(without_text(answer, Scorer()), verdict) == counted(answer, verdict)


@settings(max_examples=100)
@given(drawn(labelled, 200))
def test_taking_the_text_out_twice_changes_nothing_more(world):
    answer, _ = world
    once = without_text(answer, Scorer())
    assert without_text(once, Scorer()) == once


def test_it_holds_no_question_no_context_and_no_claim_and_keeps_what_an_erasure_goes_by():
    answer = Record(
        trace_id=TRACE,
        q="what does Ada earn?",
        contexts=["Ada earns 7"],
        answer_json=Answer("7", ["doc"]),
        user="ada",
        tags={"customer": "42"},
    )
    line = encode(without_text(answer, Scorer())).decode()
    assert "earn" not in line
    assert '"claim"' not in line
    assert '"user":"ada"' in line
    assert '"customer":"42"' in line


def test_a_refusal_token_is_no_text_of_anybody_and_stays():
    answer = Record(trace_id=TRACE, answer_json=Answer("NOT IN CONTEXT", []))
    assert without_text(answer, Scorer()).answer_json == Answer("NOT IN CONTEXT", [])


def test_an_outcome_that_is_unknown_stays_unknown():
    unknown = Record(trace_id=TRACE, facts=TextFacts())
    assert without_text(unknown, Scorer()).facts == TextFacts()
