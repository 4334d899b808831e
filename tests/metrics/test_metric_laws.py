"""The laws every registered metric keeps, found by reflection: whoever adds a metric gets these tests with it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core import constants
from ragmon.core.errors import Unassessed
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.core.refusals import RefusalRule
from ragmon.metrics import build, families
from ragmon.metrics.facts import DEPTH, FactReader, Facts
from tests.support.examples import cases
from tests.support.oracle.draw import drawn
from tests.support.random_records import IDS, item, pairs, record, worlds

READERS = (
    FactReader(within_ms=1000),
    FactReader(RefusalRule(replace=True)),
    FactReader(RefusalRule(matcher_counts=True), within_ms=0),
)
KS = (1, 2, 3, 5, 10)
METRICS = build(KS)
CUT = {name: family for name, family in families().items() if family.at_k}
law = settings(max_examples=cases(1500), deadline=None, derandomize=True)


def outcome(metric, facts):
    """The score, None, or the reason why there is none."""
    try:
        return metric.applies(facts) if metric.measured else metric.score(facts)
    except Unassessed as unknown:
        return unknown.reason


def outcomes(metrics, facts):
    return {key: outcome(metric, facts) for key, metric in metrics.items()}


@law
@given(pairs(), st.sampled_from(READERS), st.sampled_from((None, True, False)), st.booleans())
def test_a_score_is_a_share_or_nothing_or_a_known_reason(pair, reader, grounded, matched):
    found = outcomes(METRICS, Facts._make(reader.read(pair[1], pair[0] if matched else None, grounded)))
    for key, score in found.items():
        if isinstance(score, str):
            assert score in constants.REASONS, key
        else:
            assert score is None or 0.0 <= score <= 1.0, key


@law
@given(pairs())
def test_a_measured_score_is_a_share_or_nothing(pair):
    for metric in METRICS.values():
        score = metric.measure(pair[1], pair[0]) if metric.measured else None
        assert score is None or 0.0 <= score <= 1.0


@law
@given(pairs(), st.sampled_from(READERS))
def test_a_metric_depends_on_nothing_but_the_facts(pair, reader):
    """Not on what it scored before, nor on anything else it could remember."""
    facts = Facts._make(reader.read(pair[1], pair[0]))
    assert outcomes(METRICS, facts) == outcomes(build(KS), facts)
    assert all(vars(metric) == {"k": metric.k} for metric in METRICS.values())


@law
@given(pairs())
def test_other_names_for_the_same_documents_change_nothing(pair):
    """Ids are compared, never interpreted; only sections are prefixes of them."""
    gold, seen = pair
    gold = replace(gold, sections=None)
    before = READERS[0].read(seen, gold)
    seen.retrieved_ids, seen.candidate_ids = renamed(seen.retrieved_ids), renamed(seen.candidate_ids)
    if seen.answer_json is not None:
        seen.answer_json.citations = renamed(seen.answer_json.citations)
    assert READERS[0].read(seen, replace(gold, citations=renamed(gold.citations))) == before


def renamed(ids):
    return None if ids is None else [f"document {IDS.index(name)}" for name in ids]


def ranked(draw):
    """A gold item, a record with a ranking, a cut no longer than the ranking, and documents to append."""
    gold, seen = item(draw, "a"), record(draw)
    seen.retrieved_ids = [*draw.distinct(IDS, 6), "last"]
    seen.contexts = seen.retrieved_ids if draw.number(1) else [*draw.some(("The cat sat.", "dog"), 6), "last"]
    seen.candidate_ids = list(seen.retrieved_ids)
    k = 1 + draw.number(min(len(seen.retrieved_ids), len(seen.contexts)) - 1)
    return gold, seen, k, draw.some((*IDS, "new", "The cat sat.", "C++ rejects null keys"), 6)


def appended(seen, more):
    """The record with more documents at the end of each of its lists."""
    lists = ("retrieved_ids", "contexts", "candidate_ids")
    return type(seen)(answer_json=seen.answer_json, **{name: [*getattr(seen, name), *more] for name in lists})


@law
@given(drawn(ranked, 200), st.sampled_from((1, 400)))
def test_documents_appended_below_rank_k_never_change_a_metric_at_k(case, times):
    """However many: the last case is longer than the ranks that are kept."""
    gold, seen, k, more = case
    at_k = {key: metric for key, metric in build((k,)).items() if metric.k is not None}
    below = more + [f"filler {number}" for number in range(times)] * (times > 1)
    before, after = (Facts._make(READERS[0].read(appended(seen, tail), gold)) for tail in ([], below * 3))
    assert outcomes(at_k, after) == outcomes(at_k, before)


def test_a_list_longer_than_the_ranks_that_are_kept_leaves_only_whole_lists_unassessed():
    fillers = [f"filler {number}" for number in range(DEPTH)]
    found = outcomes(METRICS, read_ranking(["gold"], [*fillers, "gold"]))
    assert {key for key, score in found.items() if score == constants.BEYOND_DEPTH} == {
        *(name for name in CUT if name != "candidate_recall"),
        *("mrr", "average_precision", "contextual_precision"),
    }
    assert found["recall@10"] == 0


def read_ranking(wanted, ids):
    """The facts of a ranking, seen from an answerable item."""
    gold = GoldItem("a", "?", answerable=True, citations=wanted)
    return Facts._make(READERS[0].read(Record(retrieved_ids=ids), gold))


@law
@given(drawn(ranked, 200))
def test_a_cut_at_the_end_of_the_list_or_beyond_it_is_the_whole_list(case):
    """Of precision only the hits stay the same: its denominator is k."""
    gold, seen, _, _ = case
    facts = Facts._make(READERS[0].read(seen, gold))
    length = max(len(seen.retrieved_ids), len(seen.contexts), facts.wanted)
    for name, family in CUT.items():
        whole, cut = outcome(family(), facts), outcome(family(length), facts)
        if name == "precision" and isinstance(whole, float):
            assert cut * length == pytest.approx(whole * facts.retrieved)
        else:
            assert cut == whole, name


def test_a_metric_says_what_it_is():
    """Direction, one sentence of help, a name Prometheus and ragmon can use, a gate that points the right way."""
    for name in families():
        family = families()[name]
        assert family.better in ("higher", "lower"), name
        assert re.fullmatch(r"[A-Z][^\n]+[.?]", family().help), name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), name
        assert not name.endswith(constants.RESERVED_ENDINGS), name
        if family.default_gate is not None:
            direction, threshold = family.default_gate
            assert direction == {"higher": "at_least", "lower": "at_most"}[family.better], name
            assert 0 < threshold < 1, name


@law
@given(worlds(most=4))
def test_metrics_that_need_gold_have_no_score_without_a_gold_item(world):
    """But recorded verdicts: they are relevance judgements that came with the request."""
    for seen in world[1]:
        facts = Facts._make(READERS[0].read(seen, None))
        for key, metric in METRICS.items():
            if metric.needs_gold and not (key == "contextual_precision" and seen.verdicts is not None):
                assert outcome(metric, facts) is None, key


@pytest.mark.parametrize("wanted", [1, 2, 3, 10, 99, DEPTH])
def test_every_gold_document_first_is_a_perfect_ranking(wanted):
    """By floating point too: no score may exceed 1."""
    ids = [f"d{number}" for number in range(wanted)]
    found = outcomes(METRICS, read_ranking(ids, ids))
    perfect = ("full_recall", "recall", "hit_rate", "precision", "ndcg", "mrr", "average_precision")
    assert {name: found[name] for name in perfect} == dict.fromkeys(perfect, 1.0)
