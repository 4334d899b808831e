"""Values somebody else computed: the naive scorer, trec_eval, ranx and the judge's verdicts, on SQuAD 2.0."""

from __future__ import annotations

import gzip
import json
from functools import cache
from random import Random

import pytest

from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Policy
from ragmon.core.record import Record
from ragmon.ingest.gold import GoldIndex, GoldSet
from ragmon.ingest.lines import decode
from ragmon.metrics import build
from ragmon.metrics.facts import FactReader, Facts
from ragmon.monitor.replay import Run, run_files
from ragmon.scoring.scorer import Scorer

SYSTEMS = ("bert", "nlnet", "extractive", "small")


@pytest.fixture(scope="module")
def squad2(data):
    return data / "squad2"


def read_jsonl(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def replayed(folder, system):
    """The report of a replay of one system's traces; the set is called `gold`."""
    small = folder / "small"
    paths = (small / "gold.jsonl", small / "traces.jsonl")
    if system != "small":
        paths = (folder / "gold.jsonl.gz", folder / "traces" / f"{system}.jsonl.gz")
    index = GoldIndex(GoldSet.load(paths[0], "gold"))
    return run_files([str(paths[1])], lambda: Scorer(index)).report(Policy())


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_own_definitions_give_the_values_of_the_naive_scorer(squad2, system):
    """All forty metrics, over exactly as many requests, to the millionth that every score is rounded to."""
    report = replayed(squad2, system)
    expected = read_json(squad2 / "expected" / "own.json")[system]
    found = {name: report.metric(name, gold="gold") for name in expected}
    assert {name: stat.n for name, stat in found.items()} == {name: n for name, (_, n) in expected.items()}
    values = {name: value for name, (value, _) in expected.items()}
    # The naive scorer looks at the list alone; three quotations of texts read like refusals that are not the token.
    values["compliance"] -= report.metric("refusal_like_rate", gold="gold").sum / 1e6 / found["compliance"].n
    assert {name: stat.value for name, stat in found.items()} == pytest.approx(values, abs=1e-6, rel=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "precision", "n", "citations", "under", "over"),
    [
        ("bert", 0.7129, 3083, 0.7642, 0.1774, 0.1337),
        ("nlnet", 0.6731, 3102, 0.7427, 0.1995, 0.1512),
        ("extractive", 0.4633, 2698, 0.4933, 0.3958, 0.5038),
    ],
)
def test_the_table_of_known_values(squad2, system, precision, n, citations, under, over):
    """And no published value, which counts an answer as wrong when its gold phrase is shorter than five letters."""
    report = replayed(squad2, system)
    names = ("answer_precision", "citation_hit_rate", "under_refusal_rate", "over_refusal_rate")
    assert [round(report.metric(name).value, 4) for name in names] == [precision, citations, under, over]
    assert report.metric("answer_precision").n == n
    assert [round(report.metric(name).value, 4) for name in ("full_recall@5", "mrr")] == [0.9351, 0.8595]
    published = read_json(squad2 / "expected" / "wfgy_000.json")["dev_half"][system]["k=5"]
    assert published["precision"] < precision


# --- retrieval --------------------------------------------------------------------------------------------------------

TREC = {
    "mrr": "recip_rank",
    "average_precision": "map",
    "ndcg": "ndcg",
    **{f"precision@{k}": f"P_{k}" for k in (1, 3, 5, 10)},
    **{f"recall@{k}": f"recall_{k}" for k in (1, 3, 5, 10)},
    **{f"hit_rate@{k}": f"success_{k}" for k in (1, 3, 5, 10)},
    **{f"ndcg@{k}": f"ndcg_cut_{k}" for k in (1, 3, 5, 10)},
}
RANX = {
    "mrr": "mrr",
    "average_precision": "map",
    "ndcg": "ndcg",
    "hit_rate@5": "hit_rate@5",
    "recall@5": "recall@5",
    "precision@5": "precision@5",
    "ndcg@10": "ndcg@10",
}


def by_paragraph(squad2):
    """Each answerable question's one gold paragraph, and what BM25 retrieved."""
    gold = [item for item in read_jsonl(squad2 / "gold.jsonl.gz") if item["answerable"]]
    retrieved = {trace["qid"]: trace["retrieved_ids"] for trace in read_jsonl(squad2 / "traces" / "bert.jsonl.gz")}
    return {item["qid"]: (item["gold_citations"], retrieved[item["qid"]]) for item in gold}


def by_answer(squad2):
    """The retrieved paragraphs that hold the answer, for the questions that have one."""
    cases = {}
    for row in read_jsonl(squad2 / "verdicts.jsonl.gz"):
        relevant = [name for name, holds in zip(row["retrieved_ids"], row["has_answer"], strict=True) if holds]
        if relevant:
            cases[row["qid"]] = (relevant, row["retrieved_ids"])
    return cases


def at_random(_):
    """Up to eight gold documents of sixty, anywhere in a ranking of up to forty."""
    chance, documents = Random(20), [f"d{number}" for number in range(60)]
    return {
        f"q{number}": (chance.sample(documents, chance.randint(1, 8)), chance.sample(documents, chance.randint(1, 40)))
        for number in range(1000)
    }


CASES = [(by_paragraph, "gold_paragraph"), (by_answer, "has_answer_in_top10"), (at_random, None)]


def scores(case):
    """Every metric of one ranking."""
    relevant, retrieved = case
    item = GoldItem("q", "?", answerable=True, citations=relevant)
    facts = Facts._make(FactReader().read(Record(qid="q", retrieved_ids=retrieved), item))
    return {name: metric.score(facts) for name, metric in build(only=TREC).items()}


def as_trec(cases):
    """Judgements and runs; the similarity falls with the rank."""
    qrels = {qid: dict.fromkeys(relevant, 1) for qid, (relevant, _) in cases.items()}
    runs = {qid: {name: float(len(ids) - place) for place, name in enumerate(ids)} for qid, (_, ids) in cases.items()}
    return qrels, runs


@pytest.mark.slow
@pytest.mark.parametrize(("cases_of", "recorded"), CASES)
def test_retrieval_metrics_are_those_of_trec_eval(squad2, cases_of, recorded):
    """Question by question, and on average as pytrec_eval and the recorded values have it."""
    import pytrec_eval  # noqa: PLC0415 - heavy

    cases = cases_of(squad2)
    qrels, runs = as_trec(cases)
    measures = {"recip_rank", "map", "ndcg", "P.1,3,5,10", "recall.1,3,5,10", "success.1,3,5,10", "ndcg_cut.1,3,5,10"}
    expected = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(runs)
    found = {qid: scores(case) for qid, case in cases.items()}
    for qid, values in found.items():
        assert values == pytest.approx({ours: expected[qid][trec] for ours, trec in TREC.items()}, abs=1e-9), qid
    if recorded:
        values = read_json(squad2 / "expected" / "retrieval.json")[recorded]
        means = {trec: mean([of[ours] for of in found.values()]) for ours, trec in TREC.items()}
        assert len(found) == values["n_queries"]
        for trec, value in values["pytrec_eval"].items():
            assert means[trec] == pytest.approx(value, abs=1e-9), trec


def mean(values):
    return sum(values) / len(values)


@pytest.mark.slow
def test_retrieval_metrics_are_those_of_ranx(squad2, monkeypatch):
    """Interpreted: to compile its metrics takes ranx a minute."""
    import numba  # noqa: PLC0415 - heavy

    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    from ranx import Qrels, evaluate  # noqa: PLC0415 - heavy
    from ranx import Run as RanxRun  # noqa: PLC0415

    for cases_of, recorded in CASES:
        cases = cases_of(squad2)
        qrels, runs = as_trec(cases)
        expected = evaluate(Qrels(qrels), RanxRun(runs), list(RANX.values()))
        found = [scores(case) for case in cases.values()]
        for ours, theirs in RANX.items():
            assert mean([of[ours] for of in found]) == pytest.approx(expected[theirs], abs=1e-9), (recorded, ours)
        if recorded:
            values = read_json(squad2 / "expected" / "retrieval.json")[recorded]["ranx"]
            known = set(values) & set(expected)
            assert {name: expected[name] for name in known} == pytest.approx({name: values[name] for name in known})


# --- contextual precision ---------------------------------------------------------------------------------------------


def judged(squad2):
    """Records that carry verdicts: whether each retrieved paragraph holds the answer."""
    for row in read_jsonl(squad2 / "verdicts.jsonl.gz"):
        line = {"qid": row["qid"], "retrieved_ids": row["retrieved_ids"], "verdicts": row["has_answer"]}
        yield decode(json.dumps(line).encode())


def test_contextual_precision_of_recorded_verdicts_question_by_question(squad2):
    metric = build(only=["contextual_precision"])["contextual_precision"]
    found = {record.qid: metric.score(Facts._make(FactReader().read(record, None))) for record in judged(squad2)}
    expected = read_json(squad2 / "expected" / "contextual_precision_per_query.json")
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("with_gold", [True, False])
def test_contextual_precision_of_recorded_verdicts_on_average(squad2, with_gold):
    """Verdicts win over gold ids, and need no gold item."""
    run = Run(Scorer(GoldIndex(GoldSet.load(squad2 / "gold.jsonl.gz", "gold") if with_gold else ())))
    run.feed(judged(squad2))
    stat = run.report(Policy()).metric("contextual_precision")
    expected = read_json(squad2 / "expected" / "retrieval.json")["contextual_precision"]
    assert (stat.n, stat.value) == (expected["n"], pytest.approx(expected["mean"], abs=1e-6))
