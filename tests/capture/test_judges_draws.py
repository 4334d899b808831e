"""Which records a judge looks at: a share of them, by the trace id and the judge's own name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.capture.judges import Judge
from ragmon.config.services import JudgeTable
from ragmon.core.record import Record


@given(st.binary(min_size=16, max_size=16), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_share_draws_a_superset(bits, low, high):
    low, high = sorted((low, high))
    one = Record(trace_id=bits.hex())
    drawn = [Judge("x", JudgeTable.model_construct(sample=share), lambda _: None).draws(one) for share in (low, high)]
    assert drawn != [True, False]


@pytest.mark.parametrize("share", [0.01, 0.3])
def test_the_share_is_kept_among_records_the_audit_draw_kept(share):
    """Kept trace ids all have high low bits; the judge's draw is blind to that."""
    kept = [f"{n:018x}{(1 << 56) - 1 - n:014x}" for n in range(20_000)]
    judge = Judge("x", JudgeTable.model_construct(sample=share), lambda _: None)
    drawn = sum(judge.draws(Record(trace_id=one)) for one in kept)
    assert abs(drawn - 20_000 * share) < 5 * (20_000 * share) ** 0.5


def test_judges_draw_apart():
    one, other = (Judge(name, JudgeTable.model_construct(sample=0.5), lambda _: None) for name in ("one", "other"))
    ids = [Record(trace_id=f"{n:032x}") for n in range(1000)]
    assert 400 < sum(one.draws(r) == other.draws(r) for r in ids) < 600
