"""The three retrieval documents, rule by rule: what ragmon decides, next to the published scorers (001, 003, 004)."""

from __future__ import annotations

import json

import pytest

from ragmon.core.constants import NO_GOLD_CITATIONS, NO_TEXT, TOTAL_UNKNOWN
from ragmon.core.errors import GoldError
from ragmon.core.policy import Gate, Policy
from ragmon.ingest.gold import GoldSet
from tests.support.side_by_side import SideBySide, reasons, values


@pytest.fixture
def both(tmp_path):
    return SideBySide(tmp_path)


# --- seed 001: contextual precision of a judge's verdicts -------------------------------------------------------------


@pytest.fixture
def judged(both):
    """Own value and published result of one case."""

    def score(verdicts, nodes=3, policy=None, **options):
        case = {"qid": "q", "retrieved_ids": [f"d{n}" for n in range(nodes)], "verdicts": verdicts}
        report = both.own(GoldSet("gold", ()), [case], policy=policy)
        return report, both.published("seed-001", [], [case], **options)[1]

    return score


@pytest.mark.parametrize(
    ("verdicts", "score"), [("yes yes no", 1.0), ("yes no yes", 0.83), ("no yes yes", 0.58), ("no no yes", 0.33)]
)
def test_worked_table(judged, verdicts, score):
    report, published = judged(verdicts.split())
    assert round(values(report, "contextual_precision"), 2) == round(published["score"], 2) == score


@pytest.mark.parametrize("verdicts", [[], ["no", "no"]])
def test_no_verdict_or_none_relevant(judged, verdicts):
    """Both: 0."""
    report, published = judged(verdicts)
    assert values(report, "contextual_precision") == published["score"] == 0.0


def test_verdict_words(judged):
    """Both: yes after strip and case. Own: another word leaves the verdicts unknown. Published: a no."""
    report, published = judged([" Yes\n", "NO"])
    assert values(report, "contextual_precision") == published["score"] == 1.0
    report, published = judged(["idk", "yes"])
    assert (report.rejected, report.unknown, published["score"]) == ({}, {"verdicts: unreadable": 1}, 0.5)


def test_threshold_and_strict_mode(judged):
    """Own: a threshold is a gate on the mean. Published: case by case, .5, or 1 where strict."""
    gates = Policy(gates=(Gate("strict", "contextual_precision", 1.0, "at_least"),), mode="point")
    report, published = judged(["no", "yes"], policy=gates)
    assert (values(report, "contextual_precision"), report.verdict) == (0.5, "fail")
    assert (published["success"], published["threshold"]) == (True, 0.5)
    _, strict = judged(["no", "yes"], strict=True)
    assert (strict["score"], strict["success"]) == (0.0, False)


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_fewer_or_more_verdicts_than_nodes(judged, nodes):
    """Both: the verdicts are what is scored, however many nodes there are."""
    report, published = judged(["no", "yes"], nodes)
    assert values(report, "contextual_precision") == published["score"] == 0.5
    assert published["metadata"]["context_count"] == nodes


def test_a_perfect_list_is_exactly_1(judged):
    """Unlike the twin elsewhere that divides by a little more than n."""
    report, published = judged(["yes"] * 7, 7)
    assert values(report, "contextual_precision") == published["score"] == 1.0


def test_missing_verdicts(judged):
    """Own: not in the denominator without gold. Published: an error in the result's place."""
    report, published = judged(None)
    assert (values(report, "contextual_precision"), list(published)) == (None, ["error"])


# --- seed 003: the retriever evaluator --------------------------------------------------------------------------------


@pytest.fixture
def evaluated(both):
    """Own report and published dictionary, by text."""

    def score(retrieved, wanted, match="exact"):
        items = [{"qid": f"q{n}", "answerable": True, "gold_contexts": texts} for n, texts in enumerate(wanted)]
        traces = [{"qid": f"q{n}", "contexts": texts} for n, texts in enumerate(retrieved)]
        return both.own(items, traces, match=match), both.published("seed-003", items, traces)[1]

    return score


@pytest.mark.parametrize(("one", "other"), [("C++", "c"), ("C#", "C"), ("The  cat, an OWL", "cat owl")])
def test_normalisation(evaluated, one, other):
    """Both: lower, no ASCII punctuation, no articles, single spaces."""
    report, published = evaluated([[one]], [[other]])
    assert values(report, "recall") == published["avg_recall"] == 1.0


def test_a_text_of_which_nothing_is_left(evaluated):
    """Own: no gold text, unassessed. Published: equal to every other such text."""
    report, published = evaluated([["An!"]], [["The A!!"]])
    assert (reasons(report, "recall"), published["avg_recall"]) == ({NO_GOLD_CITATIONS: 1}, 1.0)


DAYS = ["Feburary has 28 days in common years", "Feburary has 29 days in leap years"]
RETRIEVED = [["Apple is founded before Google."], [". ".join([*DAYS, "Feburary is the second month of the year."])]]
WANTED = [["Apple is founded in 1976.", "Google is founded in 1998.", "Apple is founded before Google."], DAYS]


def test_joined_context_or_exact_set(evaluated):
    """The docstring's 2/3 needs containment, the code compares whole strings. Own: both, by name."""
    report, published = evaluated(RETRIEVED, WANTED)
    assert values(report, "recall") == pytest.approx(1 / 6, abs=1e-6)
    assert (published["recall_list"], published["avg_recall"]) == ([1 / 3, 0.0], pytest.approx(1 / 6))
    report, _ = evaluated(RETRIEVED, WANTED, "contains")
    assert values(report, "recall") == pytest.approx(2 / 3, abs=1e-6)


def test_empty_ground_truth(evaluated):
    """Own: unassessed. Published: division by zero."""
    report, published = evaluated([["x"]], [[]])
    assert (reasons(report, "recall"), published) == ({NO_GOLD_CITATIONS: 1}, "")


def test_nothing_retrieved(evaluated):
    """Own: a miss. Published: division by zero."""
    report, published = evaluated([[]], [["x"]])
    assert (values(report, "recall", "precision"), published) == ([0.0, 0.0], "")


def test_no_query_at_all(both):
    """Own: no gold, refused. Published: IndexError."""
    with pytest.raises(GoldError, match="holds no item"):
        both.gold([])
    assert both.published("seed-003", [], [])[0] == 3


def test_top_k(evaluated):
    """Own: the cut is part of the metric's name. Published: the length of the first query's list, whatever it is."""
    report, published = evaluated([["x"], ["y", "z"]], [["x"], ["z"]])
    assert published["top_k"] == 1
    assert values(report, "recall@1", "recall@3") == [0.5, 1.0]


def test_duplicates(evaluated):
    """Both: equal gold texts are one. Own: every context is a rank of its own. Published: retrieved ones are a set."""
    report, published = evaluated([["cat", "A cat!", "dog"]], [["the cat", "cat"]])
    assert (values(report, "recall"), published["avg_recall"]) == (1.0, 1.0)
    assert (values(report, "precision"), published["avg_precision"]) == (pytest.approx(2 / 3, abs=1e-6), 0.5)


def test_ids_instead_of_texts(both):
    """Own: ids are compared as they are. Published: normalised like texts, so p1#1 and p11 are one."""
    items, traces = (
        [{"qid": "q", "answerable": True, "gold_citations": ["p1#1"]}],
        [{"qid": "q", "retrieved_ids": ["p11"]}],
    )
    assert values(both.own(items, traces), "recall") == 0.0
    assert both.published("seed-003", items, traces)[1]["avg_recall"] == 1.0


# --- seed 004: the ResearchMate evaluation ----------------------------------------------------------------------------

CHUNK = "2401.1v1_12_0"


@pytest.fixture
def researched(both):
    """Own report and published figures of traces about one section; their qids are q0, q1 and so on."""

    def score(*traces, **options):
        qids = [f"q{n}" for n in range(len(traces))]
        files = {
            "queries": {qid: {"query": f"Question {qid}?"} for qid in [*qids, "unjudged"]},
            "qrels": {qid: {"doc_id": "2401.1v1", "section_id": 12} for qid in qids},
            "answers": {},
        }
        for name, content in files.items():
            (both.folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        lines = [{"qid": qid, "retrieved_ids": [CHUNK], **trace} for qid, trace in zip(qids, traces, strict=True)]
        report = both.own(GoldSet.load(both.folder, "gold"), lines)
        return report, both.published("seed-004", str(both.folder), lines, include_details=True, **options)[1][
            "metrics"
        ]

    return score


def at_rank(rank):
    return {"retrieved_ids": [*(f"other_1_{n}" for n in range(rank - 1)), CHUNK]}


def test_recall_at_k_is_a_hit_rate(researched):
    """Own: hit_rate; recall would need the number of relevant chunks, which a section does not tell."""
    report, published = researched(at_rank(1), at_rank(4), {"retrieved_ids": ["x_1_0"]})
    for k in (3, 5, 10):
        assert values(report, f"hit_rate@{k}") == pytest.approx(published[f"recall@{k}"], abs=1e-4)
    assert (values(report, "recall@5"), reasons(report, "recall@5")) == (None, {TOTAL_UNKNOWN: 3})


def test_mrr_below_rank_10(researched):
    """Own: the whole list. Published: its retriever returns ten. Both: 0 where nothing was found."""
    report, published = researched(at_rank(11), {"retrieved_ids": []})
    assert (values(report, "mrr"), published["mrr"]) == (pytest.approx(1 / 22, abs=1e-6), 0.0)


@pytest.mark.parametrize(
    ("chunk", "own", "published"), [("2401.1v1_12_3", 1, 1), ("2401.1v1_1_2", 0, 0), ("2401.1v1_12_a", 1, 0)]
)
def test_every_chunk_of_the_section_is_relevant(researched, chunk, own, published):
    """Own: whatever starts with document and section. Published: and ends in the chunk's number."""
    report, figures = researched({"retrieved_ids": [chunk]})
    assert (values(report, "hit_rate@3"), figures["recall@3"]) == (own, published)


def said(answer, contexts=("Paris is the capital of France",), **fields):
    return {"answer": answer, "contexts": None if contexts is None else list(contexts), **fields}


def test_groundedness_counts_repeated_tokens(researched):
    """Both."""
    report, published = researched(said("Paris! Paris, then-Berlin"))
    assert values(report, "groundedness") == pytest.approx(2 / 3, abs=1e-6)
    assert published["groundedness"] == 0.6667


def test_grounded_threshold(researched):
    """Own and README: .10. The stored code: .20, which is an option here."""
    answer = "Paris one1 two2 three3 four4 five5 six6"
    report, published = researched(said(answer))
    assert (values(report, "grounded_rate"), published["grounded_ratio"]) == (1.0, 1.0)
    assert researched(said(answer), threshold=0.2)[1]["grounded_ratio"] == 0.0


@pytest.mark.parametrize("answer", ["It is so.", "?!"])
def test_an_answer_without_tokens(researched, answer):
    """Own: unassessed. Published: fully grounded."""
    report, published = researched(said(answer))
    assert (reasons(report, "groundedness"), published["groundedness"]) == ({NO_TEXT: 1}, 1.0)


def test_no_retrieved_text(researched):
    """Own: unassessed, by reason. Published: silently not in the denominator."""
    report, published = researched(said("Paris", None), said("Paris"))
    assert (values(report, "groundedness"), reasons(report, "groundedness")) == (1.0, {NO_TEXT: 1})
    assert (published["groundedness"], published["queries_with_groundedness"]) == (1.0, 1)


def test_generation_error(researched):
    """Both: not in the denominator. Own: in the error rate."""
    report, published = researched(said("Berlin", error="timeout"))
    assert (values(report, "groundedness"), reasons(report, "groundedness"), values(report, "error_rate")) == (
        None,
        {},
        1,
    )
    assert published["queries_with_groundedness"] == 0


def test_tokens_beyond_ascii(researched):
    """Own: letters of every script. Compat: runs of ASCII letters and digits."""
    report, published = researched(said("naïve", ["na ve"]))
    assert (values(report, "groundedness"), published["groundedness"]) == (0.0, 1.0)


def test_queries_without_usable_qrel(researched, caplog):
    """Both drop them. Own: and says how many."""
    report, published = researched(at_rank(1))
    assert report.data()["gold"][0]["items"] == published["total_queries"] == 1
    assert "1 of 2 queries left out, no usable qrel" in caplog.text
