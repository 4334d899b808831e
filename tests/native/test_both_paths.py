"""Replay with the native core says what plain Python says, to the last field, for every input."""

from __future__ import annotations

import pytest

from ragmon.core.refusal import RefusalRule
from ragmon.gold import GoldIndex
from ragmon.metrics.facts import FactReader
from ragmon.scoring.scorer import ReductionRules, Scorer
from tests.support.both_paths import assert_equal
from tests.support.mutated_lines import Mutator, gold_sets
from tests.support.native_core import needs_native

pytestmark = needs_native
GOLD = gold_sets()


def scorer():
    """The usual rules."""
    return Scorer(GoldIndex(GOLD))


def other_rules():
    """Rules of somebody's own for one pipeline."""
    reader = FactReader(
        RefusalRule(tokens=("n/a", "Straße"), matcher_counts=False), within_ms=100.0, citations_required=True
    )
    own = FactReader(RefusalRule(patterns=("sorry|42",), window=20))
    off = FactReader(RefusalRule(patterns=()))
    return Scorer(
        GoldIndex(GOLD),
        rules=ReductionRules(reader, cluster=("question",)),
        by_pipeline={"support": ReductionRules(own, cluster=()), "sales": ReductionRules(off, cluster=("session",))},
    )


def no_gold():
    """Traffic alone."""
    return Scorer()


def write(path, lines):
    path.write_bytes(b"".join(lines))
    return path


@pytest.mark.parametrize("make", [scorer, other_rules, no_gold])
@pytest.mark.parametrize("seed", range(4))
def test_weird_lines_count_alike(tmp_path, make, seed):
    assert_equal([write(tmp_path / "traces.jsonl", Mutator(seed).lines(700))], make)


@pytest.mark.parametrize("seed", range(2))
def test_lines_that_nobody_damaged_are_mostly_the_cores(tmp_path, seed):
    found = assert_equal([write(tmp_path / "traces.jsonl", Mutator(100 + seed, wild=0).lines(1500))], scorer)
    assert found["report"]["records"]["scored"] > 1000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_many_weird_lines_count_alike(tmp_path, seed):
    lines = Mutator(1000 + seed, wild=seed % 4 / 8).lines(5000)
    assert_equal([write(tmp_path / "traces.jsonl", lines)], (scorer, other_rules, no_gold)[seed % 3])
