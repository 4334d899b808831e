"""Single requests that fail a gate: what the list of failing requests shows."""

from __future__ import annotations

import pytest

from ragmon.core.policy import Gate, Policy
from ragmon.gates.request import FailureDetector
from ragmon.scoring.scorer import Scorer
from ragmon.testing import make_record


def failing(gate, *records):
    """The failing scores of the requests that fail a gate."""
    table = Scorer().table
    detector = FailureDetector(table, lambda _: Policy((gate,)))
    scorer = Scorer(metrics=table, observers=[detector])
    for record in records:
        assert scorer.observe(record)
    return [failed.scores for failed in detector.take()]


@pytest.mark.parametrize(("direction", "beyond"), [("at_least", 0.25), ("at_most", 0.75)])
def test_a_request_on_the_threshold_keeps_the_gate_and_one_beyond_it_fails(direction, beyond):
    gate = Gate("grounded", "groundedness", 0.5, direction)
    records = [
        make_record(ts=0.0, source="live", measures={"groundedness": score}) for score in (0.5, beyond, 1 - beyond)
    ]
    assert failing(gate, *records) == [{"groundedness": beyond}]
