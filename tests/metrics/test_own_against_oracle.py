"""ragmon's own metrics against the naive oracle: every metric, every reason, on ten thousand generated gold sets."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core.gold_item import GoldItem
from ragmon.core.refusals import RefusalRule
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.lines import decode
from ragmon.metrics import build
from ragmon.metrics.builtin import STOP_WORDS
from ragmon.metrics.facts import FactReader
from ragmon.scoring.score_table import Stat
from ragmon.scoring.scorer import ReductionRules, Scorer
from tests.support.examples import cases
from tests.support.oracle import generators, own
from tests.support.oracle.own_facts import ident

WITHIN_MS = 1000
MICRO = 1_000_000


def gold_set(items, match):
    return GoldSet(
        "gold",
        tuple(
            GoldItem(
                qid=ident(item["qid"]),
                question=item["question"],
                answerable=item["answerable"],
                claim_substrings=item.get("gold_claim_substr"),
                gold_claim=item.get("gold_claim"),
                citations=[ident(one) for one in item["gold_citations"]] if item.get("gold_citations") else None,
                contexts=item.get("gold_contexts"),
                sections=item.get("gold_sections"),
                match=match,
            )
            for item in items
        ),
    )


def decoded(trace):
    """The record of a trace that was a line of a file."""
    return decode(json.dumps(trace).encode())


def scored(gold, traces, ks=(1, 3, 10), match="exact"):
    """What ragmon counts over all traces, those of gold items and the others: n, sum and unassessed by metric."""
    rules = ReductionRules(FactReader(RefusalRule(replace=True), within_ms=WITHIN_MS))
    scorer = Scorer(gold_set(gold, match), metrics=build(ks), rules=rules)
    for trace in traces:
        assert scorer.observe(decoded(trace))
    snapshot = scorer.snapshot()
    all_requests, with_gold = (snapshot.find("default", "replay", gold=name) for name in ("", "gold"))
    totals = {}
    for name, metric in scorer.table.metrics.items():
        parts = (all_requests, with_gold) if metric.needs_gold else (all_requests,)
        stats = [part.metrics[name] if part is not None else Stat() for part in parts]
        unassessed = sum((Counter(stat.unassessed) for stat in stats), Counter())
        totals[name] = (sum(stat.n for stat in stats), sum(stat.sum for stat in stats), dict(unassessed))
    return totals


def assert_equal(counted, results):
    """Same denominators, same reasons, and sums that differ by no more than each score's rounding to 1e-6."""
    assert {name: counted[name][::2] for name in results} == {
        name: (result.n, dict(result.unassessed)) for name, result in results.items()
    }
    for name, result in results.items():
        rounding = 0.5001 * result.n
        assert abs(counted[name][1] - float(result.total) * MICRO) <= rounding, (name, counted[name], result)


def expected(gold, traces, ks=(1, 3, 10), match="exact"):
    return own.score(
        gold, traces, ks, match=match, stop=STOP_WORDS, within_ms=WITHIN_MS, refusal_patterns=(), refusal_window=120
    )


@settings(max_examples=cases(3_000), deadline=None, derandomize=True)
@given(generators.pairs())
def test_every_metric_equals_the_oracle(pair):
    assert_equal(scored(*pair), expected(*pair))


@settings(max_examples=cases(2_000), deadline=None, derandomize=True)
@given(generators.pairs(), st.integers(1, 9))
def test_every_metric_equals_the_oracle_at_any_cut_where_contexts_contain_gold_texts(pair, k):
    assert_equal(scored(*pair, ks=(k,), match="contains"), expected(*pair, ks=(k,), match="contains"))


def test_the_oracle_knows_every_metric_there_is():
    """All but human labels, which arrive with a record, and wordings of a policy, which are data."""
    assert set(scored([], [])) - set(expected([], [])) == {"answer_correct", "policy_refusal_rate"}
