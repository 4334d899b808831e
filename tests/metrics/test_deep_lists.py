"""Lists longer than ranks are kept: what is known of them counts, and what may be in the rest is unassessed."""

from __future__ import annotations

import json

import pytest

import ragmon
from ragmon.config.load import load
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Record, bounded
from ragmon.ingest.gold import GoldSet
from ragmon.metrics import build
from ragmon.metrics.base import parse
from ragmon.metrics.facts import DEPTH
from ragmon.scoring.scorer import Scorer
from ragmon.testing import capture_traces
from tests.support.command_line import lines
from tests.support.command_line import ragmon as command

FILLERS = [f"filler {number}" for number in range(2 * DEPTH)]
DEEP = [*FILLERS[:1500], "g-a"]
ITEM = GoldItem("a", "Is it?", True, citations=("g-a",), set_name="gold")
CUT = constants.BEYOND_DEPTH
AT_A_RANK = {"recall@10": 0, "precision@1": 0, "hit_rate@5": 0, "ndcg@3": 0, "full_recall@1": 0}
WHOLE = ("recall", "full_recall", "hit_rate", "precision", "mrr", "average_precision", "ndcg")


def scores(record, metrics=None, item=ITEM):
    scorer = Scorer(GoldSet("gold", (item,)), metrics=metrics)
    by_path = [scorer.assess(each).scores for each in (record, bounded(record)[0])]
    assert by_path[0] == by_path[1], "a record is read alike before and after ingest cut it"
    return by_path[0]


def test_of_a_deep_list_ranks_that_are_kept_count_and_whole_lists_are_unassessed():
    found = scores(Record(qid="a", retrieved_ids=DEEP))
    assert {name: found[name] for name in AT_A_RANK} == AT_A_RANK
    assert {found[name] for name in WHOLE} == {CUT}


CERTAIN = ("recall", "full_recall", "hit_rate", "mrr", "average_precision", "ndcg", "contextual_precision")


@pytest.mark.parametrize("rank", [1, 7, DEPTH])
def test_what_stands_within_the_depth_is_certain_where_the_rest_cannot_change_it(rank):
    """The only gold id was found: no further document is relevant. Of how many documents it is one is not known."""
    deep = [*FILLERS[: rank - 1], "g-a", *FILLERS[rank - 1 : 1500]]
    short = scores(Record(qid="a", retrieved_ids=deep[:DEPTH], candidate_ids=deep[:DEPTH]))
    found = scores(Record(qid="a", retrieved_ids=deep, candidate_ids=deep))
    assert {name: found[name] for name in CERTAIN} == {name: short[name] for name in CERTAIN}
    assert found["candidate_recall"] == found["recall"] == 1_000_000
    assert found["precision"] == CUT


def test_of_several_gold_ids_one_within_the_depth_makes_the_first_rank_certain_alone():
    item = GoldItem("a", "Is it?", True, citations=("g-a", "g-b"), set_name="gold")
    deep = [FILLERS[0], "g-a", *FILLERS[1:1500], "g-b"]
    found = scores(Record(qid="a", retrieved_ids=deep, candidate_ids=deep), item=item)
    assert (found["hit_rate"], found["mrr"]) == (1_000_000, 500_000)
    unknown = ("recall", "full_recall", "average_precision", "ndcg", "contextual_precision", "candidate_recall")
    assert {found[name] for name in (*unknown, "precision")} == {CUT}


@pytest.mark.parametrize("rank", [3, DEPTH])
def test_gold_by_text_and_by_section_is_certain_where_its_score_is(rank):
    texts = [*FILLERS[: rank - 1], "gold text", *FILLERS[rank - 1 : 1500]]
    by_text = GoldItem("a", "Is it?", True, contexts=("gold text",), set_name="gold")
    found = scores(Record(qid="a", contexts=texts), item=by_text)
    assert (found["recall"], found["hit_rate"], found["mrr"]) == (1_000_000, 1_000_000, round(1_000_000 / rank))
    assert (found["precision"], found["contextual_precision"]) == (CUT, CUT), "further contexts may hold the text"
    by_section = GoldItem("a", "Is it?", True, sections=("gold",), set_name="gold")
    found = scores(Record(qid="a", retrieved_ids=texts), item=by_section)
    assert (found["hit_rate"], found["mrr"], found["precision"]) == (1_000_000, round(1_000_000 / rank), CUT)


@pytest.mark.parametrize("length", [DEPTH, DEPTH + 1])
def test_candidates_beyond_the_depth_are_unassessed_not_missing(length):
    """A true recall of 1 that reads 0 is what a monitor must not print."""
    found = scores(Record(qid="a", retrieved_ids=["g-a"], candidate_ids=[*FILLERS[: length - 1], "g-a"]))
    assert found["candidate_recall@10"] == 0
    assert found["candidate_recall"] == (1_000_000 if length == DEPTH else CUT)


@pytest.mark.parametrize("length", [DEPTH, DEPTH + 1])
def test_verdicts_beyond_the_depth_are_unassessed_not_irrelevant(length):
    found = scores(Record(qid="a", retrieved_ids=["x"], verdicts=[*[False] * (length - 1), True]))
    assert found["contextual_precision"] == (1000 if length == DEPTH else CUT)


def test_a_citation_that_may_be_in_the_rest_is_not_called_unretrieved():
    def cited(*citations):
        found = scores(Record(qid="a", retrieved_ids=DEEP, answer_json=Answer("g-a", list(citations))))
        return found["citation_scope"], found["coverage"], found["citation_hit_rate"]

    assert cited("filler 3") == (1_000_000, 1_000_000, 0)
    assert cited("g-a") == (CUT, CUT, CUT)
    assert cited("filler 3", "g-a") == (CUT, 1_000_000, CUT)
    assert cited() == (1_000_000, 0, 0)


@pytest.mark.parametrize("make", [lambda: parse("recall@1001"), lambda: build((5, 1001))])
def test_a_cut_beyond_the_depth_is_refused(make):
    with pytest.raises(RagmonError, match=r"@1001: k is 1001") as refused:
        make()
    assert refused.value.hint == "at most 1000: ranks are kept to that depth"
    assert parse("recall@1000").k == DEPTH


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("[metrics]\nk = [5, 2000]\n", "metrics.k", "2000"),
        ('[gates."recall@2000"]\nat_least = 0.9\n', 'gates."recall@2000"', "recall@2000"),
        ('[gates.deep]\nmetric = "recall@2000"\nat_least = 0.9\n', "gates.deep.metric", "recall@2000"),
    ],
)
def test_the_configuration_refuses_it_with_key_value_and_what_would_be_right(tmp_path, text, key, value):
    (tmp_path / "ragmon.toml").write_text(text)
    with pytest.raises(RagmonError) as refused:
        load(tmp_path / "ragmon.toml")
    shown = f"{refused.value} {refused.value.hint}"
    assert key in shown, shown
    assert value in shown, shown
    assert "at most 1000" in shown, shown


def test_every_way_in_says_the_same(tmp_path):
    """Records, files, tables, and the decorator, whose records are cut where they are made."""
    gold = tmp_path / "gold.jsonl"
    lines(gold, [{"qid": "a", "question": "Is it?", "answerable": True, "gold_citations": ["g-a"]}])
    told = {"qid": "a", "question": "Is it?", "retrieved_ids": DEEP, "candidate_ids": DEEP}
    lines(tmp_path / "t.jsonl", [{**told, "answer_json": {"claim": "yes", "citations": ["g-a"]}}])
    (tmp_path / "t.csv").write_text(
        'qid,question,answer,retrieved_ids,citations\na,Is it?,yes,"{}","[""g-a""]"\n'.format(
            json.dumps(DEEP).replace('"', '""')
        )
    )

    @ragmon.trace(question="question")
    def answer(question):
        ragmon.record(qid="a", retrieved=DEEP, candidates=DEEP, claim="yes", citations=["g-a"])
        return "yes"

    with capture_traces() as captured:
        answer("Is it?")
    (record,) = captured
    decorated = Scorer(GoldSet("gold", (ITEM,)))
    assert {decorated.assess(record).scores[name] for name in ("recall", "candidate_recall", "citation_scope")} == {CUT}
    for name in ("t.jsonl", "t.csv"):
        done = command("replay", tmp_path / name, "--gold", gold, "--format", "json")
        (metrics,) = [series["metrics"] for series in done.json["series"] if series["gold"]]
        assert metrics["recall@10"]["value"] == 0.0
        assert metrics["recall"]["unassessed"] == metrics["citation_scope"]["unassessed"] == {CUT: 1}, name
