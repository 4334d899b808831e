"""The compat modes against naive re-implementations of the published scorers: ten thousand generated inputs each.

Where the published script crashes, the oracle raises and the mode ends with exit code 3; else both give the same text.
"""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.compat import Options, run
from ragmon.compat.seed_004 import STOP_WORDS
from tests.support.examples import cases
from tests.support.oracle import generators, generators_others, seed_000, seed_001, seed_002, seed_003, seed_004

CRASHES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
often = settings(max_examples=cases(4_000), deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose files are kept in memory: a quarter of a million real ones would take longer than all the rest."""
    path, files = tmp_path_factory.mktemp("compat"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragmon.compat.base._stream", lambda name: io.StringIO(files[name]))
        yield Folder(path, files)


class Folder:
    """Files by name; what the modes are given is the path each would have."""

    def __init__(self, path, files):
        self.path, self._files = path, files
        self.write("queries.json", json.dumps({f"query-{number}": {"query": f"{number}?"} for number in range(6)}))
        self.write("answers.json", "{}")

    def write(self, name, content):
        path = str(self.path / name)
        self._files[path] = content
        return path

    def lines(self, name, records):
        return self.write(name, "".join(json.dumps(record) + "\n" for record in records))


def published(oracle):
    """Exit code and standard output of the published scorer, as the oracle has them."""
    try:
        return 0, oracle()
    except CRASHES:
        return 3, ""


def compat(mode, traces, gold, **options):
    """Exit code and standard output of the compat mode."""
    result = run(mode, [traces], gold, Options(**options))
    assert (result.error is None) == (result.exit_code == 0)
    return result.exit_code, result.text


@pytest.mark.slow
@often
@given(generators.pairs(raw=True), generators.gates(), st.integers(-1, 9))
def test_seed_000(folder, pair, gates, k):
    gold, traces = pair
    files = folder.lines("trace.jsonl", traces), folder.lines("gold.jsonl", gold)
    expected = published(lambda: json.dumps(seed_000.score(gold, traces, k, gates), indent=2) + "\n")
    assert compat("seed-000", *files, k=k, gates=gates) == expected


@pytest.mark.slow
@often
@given(generators_others.verdict_cases(), st.sampled_from((None, 0.0, 0.83, 1.0)), st.booleans())
def test_seed_001(folder, cases, threshold, strict):
    """A case without a list of verdicts has nothing to score: an error takes the place of its result."""
    code, text = compat("seed-001", folder.lines("cases.jsonl", cases), None, threshold=threshold, strict=strict)
    assert code == 0
    for case, line in zip(cases, text.splitlines(), strict=True):
        if isinstance(case.get("verdicts"), list):
            nodes = len(case["retrieval_context"]) if "retrieval_context" in case else None
            bar = 0.5 if threshold is None else threshold
            expected = seed_001.result(case["verdicts"], nodes, case.get("reason"), bar, strict=strict)
            assert line == json.dumps(expected)
        else:
            assert list(json.loads(line)) == ["error"]


@pytest.mark.slow
@often
@given(generators_others.example_08_runs())
def test_seed_002(folder, example):
    gold, predictions = example
    files = folder.lines("trace.jsonl", predictions), folder.write("qaset.json", json.dumps(gold))
    assert compat("seed-002", *files) == published(lambda: seed_002.report(gold, predictions))


@pytest.mark.slow
@often
@given(
    generators_others.context_lists(empty=True),
    st.sampled_from((("contexts", "gold_contexts"), ("retrieved_ids", "gold_citations"))),
    st.integers(0, 9),
)
def test_seed_003(folder, lists, fields, lost):
    """By text or by id; one run in ten lacks its last trace."""
    retrieved, wanted = lists
    retrieved = retrieved[:-1] if lost == 9 else retrieved
    traces = [{"qid": f"q{number}", fields[0]: found} for number, found in enumerate(retrieved)]
    gold = [{"qid": f"q{number}", fields[1]: texts} for number, texts in enumerate(wanted)]
    files = folder.lines("trace.jsonl", traces), folder.lines("gold.jsonl", gold)
    expected = published(lambda: json.dumps(seed_003.evaluate(retrieved, wanted), indent=2) + "\n")
    assert compat("seed-003", *files) == expected


def rounded(figures):
    return {name: figure if isinstance(figure, int) else round(figure, 4) for name, figure in figures.items()}


@pytest.mark.slow
@often
@given(generators_others.research_runs(), st.sampled_from((None, 0.2, 0.5)), st.booleans())
def test_seed_004(folder, queries, threshold, details):
    """The README's flat JSON, or the metrics of the file the code writes."""
    by_id = {query["query_id"]: query for query in queries}
    traces = [
        {"qid": qid, "retrieved_ids": query["retrieved"], "contexts": query["contexts"], "answer": query["answer"]}
        for qid, query in by_id.items()
    ]
    qrels = {qid: query["qrel"] for qid, query in by_id.items() if query["qrel"] is not None}
    folder.write("qrels.json", json.dumps(qrels))
    bar = 0.1 if threshold is None else threshold
    expected = published(lambda: rounded(seed_004.metrics(queries, STOP_WORDS, bar)))
    options = {"threshold": threshold, "include_details": details}
    code, text = compat("seed-004", folder.lines("trace.jsonl", traces), str(folder.path), **options)
    if code == 0 and details:
        assert (code, json.loads(text)["metrics"]) == expected
    elif code == 0:
        flat = dict(list(expected[1].items())[:5])
        assert (0, text) == (expected[0], json.dumps(flat, indent=2) + "\n")
    else:
        assert (code, text) == expected
