"""WFGY Example 08, rule by rule: what ragmon decides, next to what the published scorer prints (seed 002)."""

from __future__ import annotations

import json

import pytest

from ragmon.config.gates import PRESETS
from ragmon.core.constants import NO_ANSWER, NO_GOLD_CITATIONS
from ragmon.core.policy import Policy
from ragmon.export.text import report_markdown
from tests.support.side_by_side import SideBySide, reasons, values


@pytest.fixture
def both(tmp_path):
    return SideBySide(tmp_path)


@pytest.fixture
def markdown(both):
    """The published report: its six figures by name, or None where it crashes."""

    def score(items, predictions):
        path = both.lines("qaset.json", [json.dumps(items)])
        code, text = both.published("seed-002", path, predictions)
        figures = [line[2:-2].rsplit(": **", 1) for line in text.splitlines() if line.startswith("- ")]
        return {name.split(" (")[0].split(" /")[0]: value for name, value in figures} if code == 0 else None

    return score


def item(number=1, **fields):
    return {"qid": f"q{number}", "q": f"What is {number}?", "answerable": True, "gold_ids": [f"p{number}"], **fields}


def prediction(number=1, answer=None, ids=("p1", "p2", "p3"), **fields):
    """A prediction that cites the right document in its text."""
    said = f"- It is so.\n- citations: [p{number}]" if answer is None else answer
    return {"q": f"What is {number}?", "chunks": [{"id": name} for name in ids], "answer": said, "ok": True, **fields}


def test_join_on_question_text(both, markdown):
    """Own: folded, without punctuation. Published: letter by letter."""
    asked = [prediction(q="what is  1")]
    assert values(both.own([item()], asked), "answer_precision_cited") == 1.0
    assert markdown([item()], asked)["Questions scored"] == "0"


def test_two_gold_items_with_one_question(both, markdown):
    """Own: the text tells them apart no longer, a qid does. Published: the last one wins."""
    items = [item(), item(2, q="What is 1?")]
    assert both.own(items, [prediction()]).unmatched == 1
    assert values(both.own(items, [prediction(qid="q1")]), "answer_precision_cited") == 1.0
    assert markdown(items, [prediction()])["Answer precision"] == "0.0%"


@pytest.mark.parametrize(
    ("answer", "field", "hit"),
    [
        ("- so\n- CITATIONS : [ p1,p9 ]", None, 1.0),
        ("- so\n- citations: [p1;p9]", None, 0.0),
        ("citations: [p9] citations: [p1]", None, 0.0),
        ("- so\n- citations: [p9]", ["p1"], 1.0),
    ],
    ids=["in the text", "a semicolon stays", "the first list", "a field wins"],
)
def test_where_citations_are_read(both, markdown, answer, field, hit):
    """Both the same."""
    predictions = [prediction(answer=answer, citations=field)]
    assert values(both.own([item()], predictions), "answer_precision_cited") == hit
    assert markdown([item()], predictions)["Answer precision"] == f"{100 * hit:.1f}%"


def test_a_refusal_with_a_citation_list_behind_it(both, markdown):
    """Own: the citation list is no part of what was said. Published: the whole answer must be the token."""
    predictions = [prediction(answer="- not in context\n- citations: []")]
    assert values(both.own([item()], predictions), "over_refusal_rate") == 1.0
    assert markdown([item()], predictions)["Over-refusal"] == "0.0%"


def test_an_answer_that_is_nothing_but_a_citation_list(both, markdown):
    """Own: no answer. Published: an answer, and a good one."""
    predictions = [prediction(answer="citations: [p1]")]
    assert reasons(both.own([item()], predictions), "answer_precision_cited") == {NO_ANSWER: 1}
    assert markdown([item()], predictions)["Answer precision"] == "100.0%"


def test_precision_without_claim_and_scope(both, markdown):
    """Own: answer_precision_cited is this rule; answer_precision wants claim and scope as well."""
    items = [item(gold_claim_substr=["never said"])]
    report = both.own(items, [prediction()])
    assert values(report, "answer_precision_cited", "answer_precision") == [1.0, 0.0]
    assert values(both.own([item()], [prediction(ids=("p2",))]), "answer_precision_cited", "citation_hit_rate") == [
        1,
        0,
    ]
    assert markdown(items, [prediction()])["Answer precision"] == "100.0%"


def test_chr_over_all_answerable(both, markdown):
    """Own: citation_hit_rate_answerable is this rule; citation_hit_rate is over shipped answers."""
    items, predictions = [item(1), item(2)], [prediction(1), prediction(2, answer="not in context")]
    assert values(both.own(items, predictions), "citation_hit_rate_answerable", "citation_hit_rate") == [0.5, 1.0]
    assert markdown(items, predictions)["Citation hit rate"] == "50.0%"


def test_zero_denominators(both, markdown):
    """Own: no data. Published: 0.0 %."""
    assert values(both.own([item()], []), "answer_precision_cited", "over_refusal_rate") == [None, None]
    published = markdown([item()], [])
    assert (published["Answer precision"], published["Over-refusal"]) == ("0.0%", "0.0%")


def test_duplicated_predictions(both, markdown):
    """Both count every one of them; own says how many there were."""
    predictions = [prediction(), prediction(), prediction(answer="wrong")]
    report = both.own([item()], predictions)
    assert (values(report, "answer_precision_cited"), report.duplicate) == (pytest.approx(2 / 3), 2)
    published = markdown([item()], predictions)
    assert (published["Questions scored"], published["Answer precision"]) == ("3", "66.7%")


def test_gold_items_without_prediction(both, markdown):
    """Own: in no denominator, and reported. Published: in no denominator, silently."""
    report = both.own([item(1), item(2)], [prediction(1)])
    assert values(report, "citation_hit_rate_answerable") == 1.0
    assert "1 of 2 items traced, 1 missing" in report_markdown(report)
    assert markdown([item(1), item(2)], [prediction(1)])["Citation hit rate"] == "100.0%"


def test_a_the_script_never_calls_main(both, markdown):
    """Own: the per-question table is part of the report. Compat: what the script would print if it called `main`."""
    report = both.own([item(), item(2, answerable=False)], [prediction(), prediction(2)])
    assert "| q1 | true | true | false | **OK** |" in report_markdown(report)
    assert "| q2 | true | false | false | **HALLUCINATION** |" in report_markdown(report)
    assert len(markdown([item()], [prediction()])) == 6


def test_b_compliance_is_defined_and_never_computed(both, markdown):
    """Own: computed, on every answer. Published: no such line."""
    predictions = [prediction(), prediction(answer="not in context"), prediction(answer="just so")]
    assert values(both.own([item()], predictions), "compliance") == pytest.approx(2 / 3)
    assert not any("ompliance" in name for name in markdown([item()], predictions))


def test_c_no_gate_is_enforced(both, markdown):
    """Own: the preset judges and fails. Published: the figures are printed, and nothing looks at them."""
    items = [item(n) for n in range(40)]
    predictions = [prediction(n, answer="wrong") for n in range(40)]
    report = both.own(items, predictions, policy=Policy(gates=PRESETS["wfgy-example-08"]))
    assert report.verdict == "fail"
    assert markdown(items, predictions)["Answer precision"] == "0.0%"


@pytest.mark.parametrize(
    ("gold_claim", "answer", "own", "published"),
    [
        ("X is a constrained mapping.", "X is a constrained map", 0.0, "0.0%"),
        ("X is a constrained mapping.", "We hold that X is a constrained mapping!", 1.0, "100.0%"),
        ("naïveté", "it is naïveté", 1.0, "0.0%"),
        ("Рентгеновские лучи", "это рентгеновские лучи", 1.0, "0.0%"),
    ],
    ids=["a whole sentence must match", "it does", "accents", "another script"],
)
def test_d_containment(both, markdown, gold_claim, answer, own, published):
    """Both: the longest runs of letters must occur as a whole. Own: letters of every script."""
    items, predictions = [item(gold_claim=gold_claim)], [prediction(answer=f"{answer}\ncitations: [p1]")]
    assert values(both.own(items, predictions), "claim_containment") == own
    assert markdown(items, predictions)["Claim containment"] == published


def test_d_containment_of_any_phrase(both):
    """What the prose means by any phrase: gold_claim_substr, which counts beside the sentence."""
    items = [item(gold_claim="X is a constrained mapping.", gold_claim_substr=["constrained map"])]
    assert values(both.own(items, [prediction(answer="X is a constrained map")]), "claim_containment") == 1.0


def test_e_gold_ids_absent(both, markdown):
    """Own: unassessed. Published: no hit (the Node twin throws)."""
    bare = item()
    del bare["gold_ids"]
    assert reasons(both.own([bare], [prediction()]), "answer_precision_cited") == {NO_GOLD_CITATIONS: 1}
    assert markdown([bare], [prediction()])["Answer precision"] == "0.0%"


def test_e_lines_of_white_space(both, markdown):
    """Both skip them (the Node twin throws)."""
    report = both.own([item()], ["   ", prediction(), "\t"])
    assert (report.read, report.rejected) == (1, {})
    assert markdown([item()], ["   ", prediction(), "\t"])["Questions scored"] == "1"


def test_gate_g3_and_the_other_pages_gate():
    """Two thresholds for over-refusal, .25 and .10: two presets, and neither is silently the other."""
    bars = {
        name: next(gate.threshold for gate in PRESETS[name] if gate.metric == "over_refusal_rate")
        for name in ("wfgy-example-08", "wfgy-eval", "default")
    }
    assert bars == {"wfgy-example-08": 0.25, "wfgy-eval": 0.10, "default": 0.10}
    assert {gate.metric: gate.threshold for gate in PRESETS["wfgy-example-08"]}["compliance"] == 0.98
