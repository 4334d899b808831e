"""Whatever stands in ragmon.toml, the answer is a list of problems."""

from __future__ import annotations

import copy
import tomllib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragmon.config.load import Tree, overlay, process_settings, resolve
from ragmon.config.problems import Problems, SourceLocation
from tests.support.examples import cases

JUNK = st.one_of(
    st.booleans(),
    st.integers(-2, 3),
    st.floats(),
    st.sampled_from(["", "x", "default", "1h", "{question}"]),
    st.lists(st.one_of(st.integers(-1, 2), st.just("x")), max_size=2),
    st.dictionaries(st.sampled_from(["x", "rate", "path", "at_least", "learn", "a/b"]), st.integers(-1, 2), max_size=2),
)
SOUND = tomllib.loads(
    """
windows = ["5m"]
plugins = []
[pipelines.a.sampling]
rate = 0.5
[pipelines.a.gates.coverage]
at_least = 0.5
[pipeline]
name = "b"
[sampling]
keep = { error = 1.0 }
[refusal]
patterns = ["x"]
[slices]
lang = ["de"]
[gold.g]
path = ["g"]
tags = { lang = "de" }
[gates]
preset = "default"
[gates.coverage]
at_least = 0.5
slice = { lang = "de" }
[probe.p]
target = "a:b"
answer = { claim = "x" }
[judges.j]
url = "http://x"
model = "m"
kind = "faithfulness"
[labels.values]
true = ["y"]
[serve]
tls = { cert = "c", key = "k" }
"""
)


def spots(table, at=()):
    for key, value in table.items():
        yield (*at, key)
        if isinstance(value, dict):
            yield from spots(value, (*at, key))


def resolved(data):
    """The settings of a tree that stands in no file, and what is wrong with it."""
    problems = Problems(SourceLocation("ragmon.toml", label="ragmon.toml"), {})
    tree = overlay(Tree(data), {"RAGMON_ENDPOINT": "http://x"})
    return resolve(tree, process_settings({})[0], problems, path=None, plugins=False), problems.listed


def test_the_tree_the_next_test_spoils_is_sound():
    assert resolved(copy.deepcopy(SOUND))[1] == []


@settings(deadline=None, max_examples=cases(150), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(sorted(spots(SOUND))), JUNK), min_size=1, max_size=3))
def test_whatever_stands_anywhere_is_a_problem_and_never_a_crash(spoils):
    """Junk in any place: settings come back with the wrong values at their defaults, never another exception."""
    data = copy.deepcopy(SOUND)
    for path, junk in spoils:
        table = data
        for key in path[:-1]:
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table[path[-1]] = junk
    found, wrong = resolved(data)
    assert all(problem.message for problem in wrong)
    assert 0 <= found.unconfigured.sampling.rate <= 1
    assert all(gate.window in found.windows for gate in found.policy(found.pipeline).gates)
