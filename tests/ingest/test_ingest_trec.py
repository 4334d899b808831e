"""TREC runs: read and ranked as trec_eval does, and scored to the digits trec_eval prints."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.ingest.files import is_run
from ragmon.ingest.gold import GoldSet
from ragmon.metrics.base import build
from ragmon.scoring.scorer import Scorer
from tests.support.trace_files import take, write

CUTS = (1, 5, 10, 15, 20, 30, 100, 200, 500, 1000)
SAME = {
    "map": "average_precision",
    "recip_rank": "mrr",
    "ndcg": "ndcg",
    "set_P": "precision",
    "set_recall": "recall",
    **{f"P_{k}": f"precision@{k}" for k in CUTS},
    **{f"recall_{k}": f"recall@{k}" for k in CUTS},
    **{f"ndcg_cut_{k}": f"ndcg@{k}" for k in CUTS},
    **{f"success_{k}": f"hit_rate@{k}" for k in CUTS},
}
"""trec_eval's names and ragmon's for the same measures."""


def known_answers(path):
    """What trec_eval printed, by query and measure."""
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return {(qid, name): float(value) for name, qid, value in rows if name in SAME}


def scores(gold, records):
    """Ragmon's metrics of some records."""
    scorer = Scorer(gold, metrics=build(CUTS))
    for record in records:
        assert scorer.observe(record)
    return scorer.snapshot().find("default", "replay", gold=gold.name).metrics


@pytest.fixture(scope="module")
def trec(data):
    folder = data / "trec_eval"
    records, intake = take(folder / "results.test")
    assert (intake.read, intake.rejected) == (3, {})
    return folder, GoldSet.load(folder / "qrels.test"), {record.qid: record for record in records}


@pytest.mark.parametrize("qid", ["301", "302", "303"])
def test_every_measure_of_a_query_agrees_with_trec_eval(trec, qid):
    folder, gold, run = trec
    known = {name: value for (query, name), value in known_answers(folder / "out.test.aq").items() if query == qid}
    assert len(known) == 35
    ours = scores(gold, [run[qid]])
    assert {name: round(ours[SAME[name]].value, 4) for name in known} == known


@pytest.mark.parametrize("name", ["out.test.a", "out.test.aq"])
def test_the_mean_over_queries_agrees_with_trec_eval(trec, name):
    folder, gold, run = trec
    known = {name: value for (query, name), value in known_answers(folder / name).items() if query == "all"}
    assert len(known) == 35
    ours = scores(gold, run.values())
    assert {name: round(ours[SAME[name]].value, 4) for name in known} == known


def test_documents_are_ranked_by_score_and_ties_by_falling_document_id(tmp_path):
    """Neither the order of the lines nor the rank column counts."""
    path = write(
        tmp_path / "run",
        b"7 Q0 d1 1 0.5 tag\n",
        b"7 Q0 d3 2 0.5 tag\n",
        b"8 Q0 d9 1 -2 tag\n",
        b"7 Q0 d2 3 0.5 tag\n",
        b"7 Q0 d0 4 9e0 tag\n",
    )
    assert take(path)[0] == [
        Record(qid="7", retrieved_ids=["d0", "d3", "d2", "d1"], scores=[9, 0.5, 0.5, 0.5], partial=True),
        Record(qid="8", retrieved_ids=["d9"], scores=[-2], partial=True),
    ]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    run=st.dictionaries(
        st.sampled_from([f"d{n}" for n in range(12)]),
        st.sampled_from([0.0, -0.0, 1.0, 0.1234567891, 0.1234567892, 1e-46, -3.0, 1e39, 16_777_216.0, 16_777_217.0]),
        min_size=1,
    ),
    relevant=st.sets(st.sampled_from([f"d{n}" for n in range(12)]), min_size=1),
)
def test_any_run_scores_as_trec_eval_scores_it(tmp_path_factory, run, relevant):
    """trec_eval holds scores in single precision: what differs only past that is a tie."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    path = tmp_path_factory.mktemp("runs") / "run"
    write(path, *(f"q Q0 {document} 0 {score!r} tag\n".encode() for document, score in run.items()))
    judge = pytrec_eval.RelevanceEvaluator({"q": dict.fromkeys(relevant, 1)}, {"map", "recip_rank", "ndcg", "P"})
    known = judge.evaluate({"q": run})["q"]
    item = GoldItem(qid="q", question="", answerable=True, citations=tuple(relevant))
    ours = scores(GoldSet("gold", (item,)), take(path)[0])
    for name in ("map", "recip_rank", "ndcg", "P_5", "P_10"):
        assert ours[SAME[name]].value == pytest.approx(known[name], abs=1e-6)


def test_a_run_says_nothing_about_answers(trec):
    """No answer metric may take a run for empty answers."""
    _, gold, run = trec
    ours = scores(gold, run.values())
    for name in ("answer_precision", "citation_hit_rate", "over_refusal_rate", "refusal_rate", "compliance"):
        assert ours[name].n == 0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"7 Q0 d2 3 0.5\n", "invalid_schema"),
        (b"7 Q0 d2 3 0.5 tag more\n", "invalid_schema"),
        (b"7 Q0 d2 3 high tag\n", "invalid_schema"),
        (b"7 Q0 d\xff 3 0.5 tag\n", "invalid_utf8"),
        (b"7 Q0 d2 3 nan tag\n", "non_finite"),
        (b"7 Q0 d2 3 1e999 tag\n", "non_finite"),
        (b'{"qid":"7"}\n', "invalid_schema"),
    ],
)
def test_a_broken_line_of_a_run_is_counted_and_its_query_keeps_the_others(tmp_path, line, why):
    path = write(tmp_path / "run", b"7 Q0 d1 1 0.9 tag\n\n", line, b"7 Q0 d3 2 0.1 tag")
    records, intake = take(path)
    assert [record.retrieved_ids for record in records] == [["d1", "d3"]]
    assert (intake.read, intake.rejected, intake.examples[0].line) == (2, {why: 1}, 3)


@pytest.mark.parametrize("before", [b"", b"\n \n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["run", "run.gz"])
def test_a_run_is_known_by_its_first_line(tmp_path, before, name):
    content = before + b"7\tQ0\td1\t1\t0.9\ttag\r\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert [record.qid for record in take(tmp_path / name)[0]] == ["7"]


@pytest.mark.parametrize(
    "line", [b'{"a": 1, "b": 2, "c": 3}', b"[1, 2, 3, 4, 5, 6]", b"a line of six plain words", b"1 2 3 4 5", b"", b"{}"]
)
def test_what_is_no_run_is_left_to_the_json_reader(line):
    assert not is_run(line)


def test_an_enormous_first_line_is_not_split_into_its_words():
    """Eight megabytes of one-letter words would be hundreds of megabytes of objects."""
    line = b"a " * 4_000_000
    tracemalloc.start()
    assert not is_run(line)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * len(line)
