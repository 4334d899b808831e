"""Fortnights in which no gate is broken: nobody is paged, and few people look.

Two pipelines have six gates each: a third of them exactly at the truth, a third with a tenth fewer failures than they
allow, a third with far fewer. Every metric has its usual alarms on its own past as well.
"""

from __future__ import annotations

from math import sqrt

import pytest

from ragmon.core import constants
from tests.support.fortnight import WORLDS, World, configuration, fortnight

SEED = 20261123


def simulated(configured, world, seed=SEED):
    return fortnight(configured(configuration(world)), world, seed, seed % 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_nobody_is_paged_in_fourteen_days_and_at_most_four_looks_come_on_one(configured, name):
    found = simulated(configured, WORLDS[name])
    assert found.of(constants.PAGE) == {}
    assert found.most_a_day(constants.LOOK) <= 4


@pytest.mark.slow
def test_a_world_has_the_failures_that_its_margins_say(configured):
    """By four standard errors of a count; a graded failure is a part of one."""
    for gate, (failures, expected) in simulated(configured, World(days=3)).failures.items():
        assert abs(failures - expected) <= 4 * sqrt(expected), gate


def test_in_the_same_traffic_a_gate_that_is_broken_pages(configured):
    """Three times the failures that are allowed or fewer, for half a day."""
    found = simulated(configured, World(days=1, failures=lambda days: 1 + 2.0 * (days > 0.5)))
    assert {"support/error_rate", "support/answered_within"} & found.of(constants.PAGE).keys()
