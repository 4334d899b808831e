"""The oracles themselves, held against values somebody else computed or printed."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict

import pytest
from hypothesis import given, settings

from tests.support.oracle import generators, own, seed_000, seed_001, seed_002, seed_003, seed_004
from tests.support.oracle.own_facts import fold, occurs, phrases

SYSTEMS = ("bert", "nlnet", "extractive")


def read_jsonl(path):
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [json.loads(line) for line in text.splitlines()]


def read_json(path):
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


@pytest.fixture(scope="module")
def squad2(data):
    return data / "squad2"


@pytest.fixture(scope="module")
def squad2_gold(squad2):
    return read_jsonl(squad2 / "gold.jsonl.gz")


# --- the published scorers --------------------------------------------------------------------------------------------

MINI_GOLD = [
    {"qid": "A0001", "answerable": True, "gold_claim_substr": ["rejects null keys"], "gold_citations": ["p1#2"]},
    {"qid": "A0002", "answerable": False, "gold_claim_substr": [], "gold_citations": []},
    {"qid": "A0003", "answerable": True, "gold_claim_substr": ["only domain example.com"], "gold_citations": ["pB#1"]},
]
MINI_TRACES = [
    {
        "qid": "A0001",
        "retrieved_ids": ["p1#1", "p1#2", "p2#1"],
        "answer_json": {"claim": "X rejects null keys.", "citations": ["p1#2"]},
    },
    {
        "qid": "A0002",
        "retrieved_ids": ["p1#1", "p2#1"],
        "answer_json": {"claim": "not in context", "citations": []},
    },
    {
        "qid": "A0003",
        "retrieved_ids": ["pB#1", "p1#2"],
        "answer_json": {"claim": "Only domain example.com is allowed.", "citations": ["pB#1"]},
    },
]


def test_seed_000_mini_example_of_the_page():
    report = seed_000.score(MINI_GOLD, MINI_TRACES, 5, "precision=0.80,chr=0.75,under=0.05,over=0.10")
    assert report == {
        "answered": 2,
        "refused": 1,
        "answerable": 2,
        "unanswerable": 1,
        "precision": 1.0,
        "chr": 1.0,
        "under_refusal": 0.0,
        "over_refusal": 0.0,
        "recall@k": 1.0,
        "k": 5,
        "gates": {"precision": "0.80", "chr": "0.75", "under": "0.05", "over": "0.10"},
        "pass": True,
    }


def test_seed_000_passes_an_empty_gold_file():
    report = seed_000.score([], [])
    assert (report["precision"], report["recall@k"], report["pass"]) == (1.0, 0.0, True)


def test_seed_000_counts_an_unanswerable_item_without_trace_as_a_hallucination():
    assert seed_000.score(MINI_GOLD[1:2], [])["under_refusal"] == 1.0


def test_seed_000_looks_no_further_than_the_first_failing_gate():
    assert seed_000.score(MINI_GOLD, [], gates="precision=0.80")["pass"] is False
    with pytest.raises(KeyError, match="chr"):
        seed_000.score(MINI_GOLD, MINI_TRACES, gates="precision=0.80")


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_seed_000_gives_the_recorded_reports(squad2, squad2_gold, system):
    traces = read_jsonl(squad2 / "traces" / f"{system}.jsonl.gz")
    for expected in read_json(squad2 / "expected" / "wfgy_000.json")["dev_half"][system].values():
        assert seed_000.score(squad2_gold, traces, expected["k"]) == expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [("yes yes no", 1.0), ("yes no yes", 0.83), ("no yes yes", 0.58), ("no no yes", 0.33), ("no no", 0.0), ("", 0.0)],
)
def test_seed_001_gives_the_table_of_the_page(verdicts, expected):
    assert round(seed_001.score(verdicts.split()), 2) == expected


def test_seed_001_gives_the_recorded_values_per_question(squad2):
    expected = read_json(squad2 / "expected" / "contextual_precision_per_query.json")
    recorded = {row["qid"]: row["has_answer"] for row in read_jsonl(squad2 / "verdicts.jsonl.gz")}
    computed = {qid: seed_001.score(["yes" if one else "no" for one in recorded[qid]]) for qid in expected}
    assert computed == pytest.approx(expected, abs=1e-12)


def test_seed_002_gives_the_recorded_report(squad2):
    gold, predictions = read_json(squad2 / "small" / "qaset.json"), read_jsonl(squad2 / "small" / "traces_002.jsonl")
    expected = (squad2 / "expected" / "wfgy_002_report_small.md").read_text(encoding="utf-8")
    assert seed_002.report(gold, predictions) == expected


def test_seed_002_gives_the_recorded_figures_on_the_large_set(squad2):
    expected = read_json(squad2 / "expected" / "wfgy_002.json")["dev_half_bert"]
    predictions = read_jsonl(squad2 / "traces_002" / "bert.jsonl.gz")
    lines = seed_002.report(read_json(squad2 / "qaset.json.gz"), predictions).splitlines()
    assert [line for line in lines if line.startswith("- ")] == expected["report_head"]
    assert {label: sum(f"**{label}**" in line for line in lines) for label in expected["labels"]} == expected["labels"]


def test_seed_003_matches_whole_strings_not_the_joined_context():
    """The evaluator's docstring shows [1/3, 1.0] for this example; its code does not."""
    february = "Feburary has 28 days in common years", "Feburary has 29 days in leap years"
    result = seed_003.evaluate(
        [["Apple is founded before Google."], [". ".join((*february, "Feburary is the second month of the year."))]],
        [
            ["Apple is founded in 1976.", "Google is founded in 1998.", "Apple is founded before Google."],
            list(february),
        ],
    )
    assert result["recall_list"] == [1 / 3, 0.0]
    assert result["avg_recall"] == pytest.approx(1 / 6)
    assert (result["precision_list"], result["top_k"]) == ([1.0, 0.0], 1)


@pytest.mark.parametrize(
    ("text", "normal"), [("The A!!", ""), ("C++", "c"), ("C#", "c"), ("The  cat, an OWL", "cat owl")]
)
def test_seed_003_normalisation(text, normal):
    assert seed_003.normalise(text) == normal


def test_seed_004_worked_by_hand():
    """First query found at rank 2, second at rank 4 and half grounded, third not found and without an answer."""
    qrel = {"doc_id": "d", "section_id": 1}
    queries = [
        {"qrel": qrel, "retrieved": ["d_12_0", "d_1_3"], "contexts": ["red fox"], "answer": "the red fox"},
        {
            "qrel": qrel,
            "retrieved": ["x_1_0", "e_1_0", "d_2_0", "d_1_0"],
            "contexts": ["cat"],
            "answer": "Cat cat, DOG owl",
        },
        {"qrel": qrel, "retrieved": ["d_10_0"], "contexts": ["cat"], "answer": None},
    ]
    expected = {"recall@3": 1 / 3, "recall@5": 2 / 3, "recall@10": 2 / 3, "mrr": 0.25, "groundedness": 0.75}
    assert seed_004.score(queries, {"the"}) == pytest.approx(expected)
    assert seed_004.grounded_ratio(queries, {"the"}, 0.6) == 0.5


# --- ragmon's own definitions -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_own_gives_the_recorded_values(squad2, squad2_gold, system):
    qids = {item["qid"] for item in squad2_gold}
    traces = [trace for trace in read_jsonl(squad2 / "traces" / f"{system}.jsonl.gz") if trace["qid"] in qids]
    results = own.score(squad2_gold, traces)
    expected = read_json(squad2 / "expected" / "own.json")[system]
    assert {name: [round(float(results[name].value), 6), results[name].n] for name in expected} == expected


@pytest.mark.slow
def test_own_agrees_with_trec_eval(shared):
    """Hundreds of gold ids a query; trec_eval orders by score, ties by descending document id."""
    relevant, scored = defaultdict(list), defaultdict(list)
    for line in (shared / "trec_eval" / "qrels.test").read_text().splitlines():
        qid, _, document, grade = line.split()
        relevant[qid] += [document] * (grade == "1")
    for line in (shared / "trec_eval" / "results.test").read_text().splitlines():
        qid, _, document, _, similarity, _ = line.split()
        scored[qid].append((float(similarity), document))
    gold = [{"qid": qid, "answerable": True, "gold_citations": ids} for qid, ids in relevant.items()]
    ranked = {qid: [document for _, document in sorted(pairs, reverse=True)] for qid, pairs in scored.items()}
    results = own.score(gold, [{"qid": qid, "retrieved_ids": ids} for qid, ids in ranked.items()], ks=(1, 5, 10, 100))
    lines = (line.split() for line in (shared / "trec_eval" / "out.test.a").read_text().splitlines())
    trec = {name: value for name, _, value in lines}
    names = {"average_precision": "map", "mrr": "recip_rank", "ndcg": "ndcg"}
    names |= {f"precision@{k}": f"P_{k}" for k in (5, 10, 100)} | {f"recall@{k}": f"recall_{k}" for k in (5, 10, 100)}
    names |= {f"ndcg@{k}": f"ndcg_cut_{k}" for k in (5, 10, 100)} | {
        f"hit_rate@{k}": f"success_{k}" for k in (1, 5, 10)
    }
    assert {ours: f"{float(results[ours].value):.4f}" for ours in names} == {o: trec[t] for o, t in names.items()}


@settings(max_examples=60, deadline=None)
@given(generators.pairs())
def test_own_scores_lie_between_0_and_1_and_every_trace_is_accounted_for(pair):
    gold, traces = pair
    results = own.score(
        gold, traces, match="contains", stop=generators.STOP, within_ms=1000, refusal_patterns=["not in"]
    )
    for result in results.values():
        assert result.value is None or 0 <= result.value <= 1
        assert result.n + sum(result.unassessed.values()) <= len(traces)
    assert results["error_rate"].n == len(traces)


@settings(max_examples=60, deadline=None)
@given(generators.pairs())
def test_own_totals_add_up_over_any_split_of_the_traces(pair):
    gold, traces = pair
    whole, left, right = (own.score(gold, part) for part in (traces, traces[:3], traces[3:]))
    for name, result in whole.items():
        assert result.n == left[name].n + right[name].n
        assert float(result.total) == pytest.approx(float(left[name].total + right[name].total))
        assert result.unassessed == left[name].unassessed + right[name].unassessed


@pytest.mark.parametrize(
    ("phrase", "claim", "found"),
    [
        ("ITV", "It was itv.", True),
        ("ITV", "BritITV", False),
        ("12", "1920s: 112", False),
        ("12", "in 12 (twelve)", True),
        ("C++", "C++20", True),
        ("Röntgen", "xRO\u0308NTGENx", True),
        ("北京", "首都是北京市", True),
        ("กทม", "ในกทมนี้", True),
        ("ｎｕｌｌ", "null", True),
    ],
)
def test_own_short_phrases_need_a_boundary_only_in_scripts_with_spaces(phrase, claim, found):
    assert occurs(fold(phrase), fold(claim)) is found


def test_own_phrases_are_maximal_runs_of_any_script():
    assert phrases("- Röntgen-Strahlen, 1895; ein Preis!") == ["röntgen-strahlen", "ein preis"]


def by_text(contexts, texts, match="contains"):
    gold = [{"qid": "q", "answerable": True, "gold_contexts": texts}]
    return own.score(gold, [{"qid": "q", "contexts": contexts}], match=match)


def test_own_text_gold_counts_relevant_contexts_but_each_gold_text_once():
    """Two copies of one text: both ranks are relevant, one gold text of two is found."""
    results = by_text(["The cat sat.", "a cat sat", "dog"], ["cat sat!", "an owl"], "exact")
    assert (results["precision"].value, results["recall"].value) == (pytest.approx(2 / 3), 0.5)
    assert (results["average_precision"].value, results["contextual_precision"].value) == (0.5, 1)


def test_own_text_gold_never_exceeds_1_when_one_context_holds_two_texts():
    results = by_text(["the cat sat by an owl"], ["cat", "owl"])
    assert (results["full_recall@1"].value, results["average_precision"].value) == (1, 0.5)
    assert results["ndcg"].value < 1


def reasons(name, trace, **item):
    """Why a metric could not be assessed for one trace of one answerable item."""
    gold = [{"qid": "q", "answerable": True, **item}]
    return dict(own.score(gold, [{"qid": "q", **trace}])[name].unassessed)


SAID = {"answer_json": {"claim": "X", "citations": []}}


def test_own_names_the_first_unknown_fact():
    full = {"gold_claim_substr": ["rejects"], "gold_citations": ["p1"]}
    assert reasons("answer_precision", SAID) == {"no_gold_claim": 1}
    assert reasons("answer_precision", SAID, gold_claim_substr=["X"]) == {"no_gold_citations": 1}
    assert reasons("answer_precision", SAID, **full) == {"no_ids": 1}
    assert reasons("answer_precision", {"error": "timeout", **SAID}, **full) == {"error": 1}
    assert reasons("answer_precision", {"retrieved_ids": []}, **full) == {"no_answer": 1}
    assert reasons("answer_precision", {"retrieved_ids": [], **SAID}, **full) == {}


def test_own_shipping_an_unanswerable_item_scores_0_and_needs_no_gold_facts():
    results = own.score([{"qid": "q", "answerable": False}], [{"qid": "q", **SAID}])
    for name in ("answer_precision", "answer_precision_cited", "citation_hit_rate"):
        assert (results[name].value, results[name].n) == (0, 1)


def test_own_duplicate_ids_count_once_at_their_best_rank():
    gold = [{"qid": 7, "answerable": True, "gold_citations": [1]}]
    results = own.score(gold, [{"qid": "7", "retrieved_ids": ["2", 2, "2", "1", 1]}], ks=(2,))
    assert (results["mrr"].value, results["full_recall@2"].value, results["precision"].value) == (0.5, 1, 0.5)
