"""Facts that were decided where the text was: when they count, and against which gold."""

from __future__ import annotations

import pytest

from ragmon.core import constants
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Record, TextFacts
from ragmon.ingest.gold import GoldSet
from ragmon.scoring.scorer import Scorer

MICRO = 1_000_000
GOLD = GoldSet("gold", (GoldItem("a", "Who wrote it?", answerable=True, claim_substrings=["Ada Lovelace"]),))
(ITEM,) = GOLD


def containment(claim=None, **facts):
    """What an answer to the gold question scores."""
    told = TextFacts(answered=True, refused=False, refusal_like=False, **facts)
    scorer = Scorer(GOLD)
    record = Record(qid="a", retrieved_ids=[], answer_json=Answer(claim, []), facts=told)
    return scorer.assess(record).scores["claim_containment"]


@pytest.mark.parametrize("contains", [True, False])
def test_of_a_claim_that_redaction_changed_what_was_decided_on_the_whole_of_it_counts(contains):
    """Redaction took out of one claim the name that gold asks for, and left it in the other, which was about a ship."""
    claim = "[name] wrote it." if contains else "[name] sailed on the Ada Lovelace."
    assert containment(claim, contains_claim=contains, redacted=["claim"]) == MICRO * contains


def test_a_claim_that_redaction_left_alone_is_compared_with_gold_again():
    assert containment("Ada Lovelace wrote it.", contains_claim=False, redacted=["q"]) == MICRO


@pytest.mark.parametrize("contains", [True, False])
def test_facts_decided_against_another_version_of_gold_do_not_count_as_those_of_this_one(contains):
    assert containment(contains_claim=contains, gold_version=ITEM.set_version) == MICRO * contains
    assert containment(contains_claim=contains, gold_version="elsewhere") == constants.GOLD_VERSION
