"""The WFGY eval page, row by row: what ragmon decides, next to what the published scorer prints (seed 000)."""

from __future__ import annotations

import pytest

from ragmon.cli.main import main
from ragmon.config.gates import PRESETS
from ragmon.config.load import check
from ragmon.core.constants import MALFORMED_JSON, NO_ANSWER, NO_GOLD_CITATIONS, NO_GOLD_CLAIM
from ragmon.core.errors import GoldError
from ragmon.core.policy import Policy
from tests.support.side_by_side import SideBySide, gold, reasons, refusal, trace, unanswerable, values


@pytest.fixture
def both(tmp_path):
    return SideBySide(tmp_path)


def test_trace_missing_for_a_gold_item(both):
    """Own: in no denominator, and reported as missing. Published: an answer, here the only one, and a wrong one."""
    report = both.own([gold(), unanswerable()], [])
    assert values(report, "answer_precision", "citation_hit_rate", "under_refusal_rate") == [None, None, None]
    assert (report.data()["gold"][0]["items"], report.data()["gold"][0]["traced"]) == (2, 0)
    published = both.eval_page([gold(), unanswerable()], [])
    assert (published["precision"], published["chr"], published["under_refusal"]) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("answer", [{"claim": ""}, {"claim": "  ", "citations": []}, None])
def test_empty_claim_or_null_answer(both, answer):
    """Own: no answer, unassessed. Published: shipped."""
    traces = [{"qid": "q1", "retrieved_ids": ["p1"], "answer_json": answer}]
    report = both.own([gold()], traces)
    assert values(report, "answer_precision") is None
    assert reasons(report, "answer_precision") == {NO_ANSWER: 1}
    assert both.eval_page([gold()], traces)["answered"] == 1


@pytest.mark.parametrize(
    ("claim", "own", "published"),
    [("  NOT IN CONTEXT ", 0.0, 0.0), ("not in context.", 0.0, 1.0), ("ｎｏｔ in context", 0.0, 1.0)],
)
def test_refusal_token(both, claim, own, published):
    """Published: exact after strip and case; a period makes it a hallucination. Own: words count, wide ones too."""
    traces = [trace("u1", claim, ())]
    assert values(both.own([unanswerable()], traces), "under_refusal_rate") == own
    assert both.eval_page([unanswerable()], traces)["under_refusal"] == published


def test_answerable_absent(both):
    """Own: the gold file is refused. Published: unanswerable, yet it can be correct and is no under-refusal."""
    item = gold()
    del item["answerable"]
    with pytest.raises(GoldError, match=r"gold\.jsonl:1: answerable is missing"):
        both.gold([item])
    published = both.eval_page([item], [trace()])
    assert (published["unanswerable"], published["precision"], published["under_refusal"]) == (1, 1.0, 0.0)
    assert published["pass"] is True


def test_answerable_the_word_false(both):
    """Own: the gold file is refused. Published: answerable, but refusing it is no over-refusal."""
    item = gold(answerable="false")
    with pytest.raises(GoldError, match="answerable is not a boolean: 'false'"):
        both.gold([item])
    published = both.eval_page([item], [refusal()])
    assert (published["answerable"], published["over_refusal"], published["recall@k"]) == (1, 0.0, 0.0)


def test_chr_on_unanswerable_shipped(both):
    """Both: in the denominator, and no hit."""
    items, traces = [gold(), unanswerable()], [trace(), trace("u1")]
    assert values(both.own(items, traces), "citation_hit_rate") == 0.5
    assert both.eval_page(items, traces)["chr"] == 0.5


def test_chr_of_an_answerable_item_without_gold_citations(both):
    """Own: nothing to compare with, unassessed. Published: citing nothing is a hit."""
    item, traces = gold(gold_citations=[]), [trace(citations=())]
    report = both.own([item], traces)
    assert (values(report, "citation_hit_rate"), reasons(report, "citation_hit_rate")) == (None, {NO_GOLD_CITATIONS: 1})
    assert both.eval_page([item], traces)["chr"] == 1.0


def test_gold_claim_substr_empty(both):
    """Own: nothing to look for, unassessed. Published: vacuously contained."""
    item = gold(gold_claim_substr=[])
    report = both.own([item], [trace(claim="anything")])
    assert reasons(report, "answer_precision") == {NO_GOLD_CLAIM: 1}
    assert both.eval_page([item], [trace(claim="anything")])["precision"] == 1.0


@pytest.mark.parametrize("absent", [True, False])
def test_gold_claim_substr_absent_or_null(both, absent):
    """Own: the same as an empty list. Published: never contained, unlike the empty list."""
    item = gold(gold_claim_substr=None)
    if absent:
        del item["gold_claim_substr"]
    assert reasons(both.own([item], [trace()]), "answer_precision") == {NO_GOLD_CLAIM: 1}
    assert both.eval_page([item], [trace()])["precision"] == 0.0


@pytest.mark.parametrize(("claim", "own"), [("ITV has the rights", 1.0), ("BritITV has the rights", 0.0)])
def test_all_substrings_below_five_characters(both, claim, own):
    """Own: a short phrase matches as a word. Published: never, so the item cannot pass."""
    item = gold(gold_claim_substr=["ITV"])
    assert values(both.own([item], [trace(claim=claim)]), "answer_precision") == own
    assert both.eval_page([item], [trace(claim=claim)])["precision"] == 0.0


def test_substrings_that_must_appear(both):
    """Both: any of them is enough, whatever the page's first section says."""
    item = gold(gold_claim_substr=["null keys", "never said"])
    assert values(both.own([item], [trace()]), "answer_precision") == 1.0
    assert both.eval_page([item], [trace()])["precision"] == 1.0


def test_one_citation_outside_retrieved(both):
    """Both: no hit, even if another one is gold."""
    traces = [trace(citations=("p1", "elsewhere"))]
    assert values(both.own([gold()], traces), "citation_hit_rate", "citation_scope") == [0.0, 0.0]
    assert both.eval_page([gold()], traces)["chr"] == 0.0


def test_citations_a_string(both):
    """Both: no hit and no error. Own: the template was left, too."""
    report = both.own([gold()], [trace(citations="p1")])
    assert values(report, "citation_hit_rate", "compliance", "error_rate") == [0.0, 0.0, 0.0]
    assert both.eval_page([gold()], [trace(citations="p1")])["chr"] == 0.0


def test_nothing_shipped(both):
    """Own: no data, and a gate on it is undecided. Published: 1.0."""
    report = both.own([gold()], [refusal()], policy=Policy(gates=PRESETS["wfgy-eval"][:1]))
    assert values(report, "answer_precision", "citation_hit_rate") == [None, None]
    assert report.verdict == "insufficient"
    published = both.eval_page([gold()], [refusal()])
    assert (published["precision"], published["chr"]) == (1.0, 1.0)


def test_empty_gold_file(both):
    """Own: refused. Published: everything perfect, pass."""
    with pytest.raises(GoldError, match="holds no item"):
        both.gold([])
    assert both.eval_page([], [])["pass"] is True


def test_recall_of_an_item_without_gold_citations(both):
    """Own: unassessed. Published: recalled."""
    item = gold(gold_citations=[])
    report = both.own([item], [trace()])
    assert reasons(report, "full_recall@5") == {NO_GOLD_CITATIONS: 1}
    assert both.eval_page([item], [trace()])["recall@k"] == 1.0


def test_duplicates_in_retrieved_ids(both):
    """Own: one document counts once, at its best rank. Published: duplicates eat places."""
    traces = [trace(retrieved=("p2", "p2", "p2", "p1"))]
    assert values(both.own([gold()], traces), "full_recall@3", "mrr") == [1.0, 0.5]
    assert both.eval_page([gold()], traces, k=3)["recall@k"] == 0.0


def test_duplicate_qid_in_traces(both):
    """Own: every request counts, unless the last or first is asked for. Published: the last wins."""
    traces = [trace(), trace(claim="wrong"), trace(claim="wrong")]
    found = {d: values(both.own([gold()], traces, duplicates=d), "answer_precision") for d in ("all", "last", "first")}
    assert found == {"all": pytest.approx(1 / 3), "last": 0.0, "first": 1.0}
    assert both.own([gold()], traces).duplicate == 2
    assert both.eval_page([gold()], traces)["precision"] == 0.0


def test_duplicate_qid_in_gold(both):
    """Own: the file is refused. Published: the last wins."""
    items = [gold(gold_claim_substr=["never said"]), gold()]
    with pytest.raises(GoldError, match=r"gold\.jsonl:2: qid appears twice, first on line 1"):
        both.gold(items)
    assert both.eval_page(items, [trace()])["precision"] == 1.0


def test_unknown_qid(both):
    """Own: in the metrics that need no gold, and counted as unmatched. Published: ignored silently."""
    report = both.own([gold()], [trace("stranger")])
    assert (values(report, "answer_precision"), values(report, "coverage"), report.unmatched) == (None, 1.0, 1)
    assert both.eval_page([gold()], [trace(), refusal("stranger")])["refused"] == 0


def test_gates_that_lack_a_name_or_name_another(both, tmp_path):
    """Own: any gates may be set, an unknown one is refused with a suggestion. Published: KeyError, or ignored."""
    config = tmp_path / "ragmon.toml"
    config.write_text("[gates.answer_precision]\nat_least = 0.8\n[gates.recal]\nat_least = 0.9\n", encoding="utf-8")
    problems = [str(problem) for problem in check(config, environ={})]
    assert len(problems) == 1
    assert "recal" in problems[0]
    code, _ = both.published("seed-000", [gold()], [trace()], gates="precision=0.8")
    assert code == 3
    assert both.eval_page([gold()], [], gates="precision=0,chr=0,under=1,over=1,recall=1")["pass"] is True


def test_exit_code_on_fail(both, capsys):
    """Own: 1. Published: 0, as on a pass; only the printed word tells."""
    items, traces = [gold(f"q{i}") for i in range(40)], [trace(f"q{i}", claim="wrong") for i in range(40)]
    files = both.lines("gold.jsonl", items), both.lines("trace.jsonl", traces)
    with pytest.raises(SystemExit) as ended:
        main(["gate", files[1], "--gold", files[0]])
    assert ended.value.code == 1
    assert "answer_precision" in capsys.readouterr().out
    code, published = both.published("seed-000", items, traces)
    assert (code, published["pass"]) == (0, False)


def test_malformed_json_line(both):
    """Own: the line is counted as rejected, the rest is scored. Published: a traceback."""
    traces = ['{"qid": "q1", ', trace()]
    report = both.own([gold()], traces)
    assert (report.rejected, values(report, "answer_precision")) == ({MALFORMED_JSON: 1}, 1.0)
    assert both.published("seed-000", [gold()], traces)[0] == 3


def test_qid_0(both):
    """Own: an id like any other. Published: falsy, so its traces are dropped."""
    items, traces = [gold(0)], [trace(0)]
    assert values(both.own(items, traces), "answer_precision") == 1.0
    assert both.eval_page(items, traces)["precision"] == 0.0
