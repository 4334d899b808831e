"""Values and bounds over replicas are those that one ragmon would have of all requests, missing ones included."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from math import isclose

import pytest
import yaml

from ragmon import stats
from ragmon.core import series_names
from ragmon.core.policy import Gate
from ragmon.export.promql import selector
from ragmon.export.rules import RuleGroup, recording, render
from ragmon.gates.evaluate import Evidence
from ragmon.scoring.score_table import Stat
from ragmon.stats.strata import Stratum, post_stratified

NAMES = {"pipeline": "p", "gate": "g"}
CLOSE = 0.012
"""Replicas are strata: where they differ, their interval is a little narrower than one of all requests."""
SPLITS = {
    "alike, a third unknown": [(2000, 1600, 1000)] * 2,
    "alike, four of them": [(1000, 850, 500)] * 4,
    "one knows all, one nothing": [(2000, 1900, 0), (0, 0, 2000)],
    "one knows all, one a little": [(3000, 2700, 0), (300, 30, 900)],
    "nothing unknown": [(2000, 1600, 0), (4000, 3000, 0)],
    "a single one": [(500, 400, 200)],
}
"""Requests with a score, those of them that are right, and requests without, by replica."""


def scraped(name, target=None, /, **labels):
    """A series with the labels it has after a scrape."""
    return selector(name, {**labels, **(target or {"instance": "ragmon:9464", "job": "ragmon"})})


def stat(n, right, unknown):
    """What one ragmon counted."""
    return Stat(n, right * stats.MICRO, right * stats.MICRO**2, {"no_ids": unknown} if unknown else {})


def served(counts, *, with_unknown=True):
    """The series of each replica."""
    estimates = [(stat(n, right, unknown).estimate, unknown) for n, right, unknown in counts]
    return shown(estimates, with_unknown=with_unknown)


def shown(estimates, *, with_unknown=True):
    """The series of estimates and their unknown requests, one of each replica."""
    series = {}
    for place, (estimate, unknown) in enumerate(estimates):
        numbers = {series_names.GATE_SAMPLES: estimate.n}
        if with_unknown:
            numbers[series_names.GATE_UNKNOWN] = unknown
        if estimate.value is not None:
            numbers[series_names.GATE_VALUE] = estimate.value
            numbers[series_names.GATE_LOWER] = estimate.lower
            numbers[series_names.GATE_UPPER] = estimate.upper
        target = {"instance": f"ragmon-{place}:9464", "job": "ragmon"}
        series |= {scraped(name, target, **NAMES): f"{number!r}x5" for name, number in numbers.items()}
    return series


def recorded(real, folder, series, expected):
    """Have promtool compare what the rules record; gives what it says where they differ by more than is asked."""
    groups = [RuleGroup("ragmon.gates", recording.over_replicas())]
    (folder / "rules.yml").write_text(render(groups))
    tests = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f"abs({name} - {number!r}) < bool {within!r}",
                        "eval_time": "3m",
                        "exp_samples": [{"labels": '{pipeline="p", gate="g"}', "value": 1}],
                    }
                    for name, number, within in expected
                ],
            }
        ],
    }
    (folder / "tests.yml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        [real("promtool"), "test", "rules", folder / "tests.yml"], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("counts", SPLITS.values(), ids=SPLITS)
def test_a_share_of_unknown_adds_up_over_replicas_as_counts_do(real, tmp_path, counts):
    whole = stat(*map(sum, zip(*counts, strict=True))).estimate
    within = 1e-9 if len(counts) == 1 else CLOSE
    expected = [
        (recording.VALUE, whole.value, 1e-9),
        (recording.VALUE_LOWER, whole.lower, within),
        (recording.VALUE_UPPER, whole.upper, within),
    ]
    assert recorded(real, tmp_path, served(counts), expected) == ""


def test_the_unknown_share_is_what_makes_the_difference(real, tmp_path):
    """The same numbers, squared and added as if all of the distance were sampling error, are far off."""
    counts = SPLITS["alike, a third unknown"]
    whole = stat(*map(sum, zip(*counts, strict=True))).estimate
    only_squares = served(counts, with_unknown=False)
    assert recorded(real, tmp_path, only_squares, [(recording.VALUE_LOWER, whole.lower, 0.05)]) != ""


WEIGHTED = (
    Stratum("error", total=300, assessed=200, domain=200, sum=20, squares=20, unknown=100),
    Stratum("rest", total=30_000, assessed=900, domain=900, sum=800, squares=800, unknown=100),
)
"""Calls kept at different rates; a third of those kept for an error, and a tenth of the others, are unknown."""


def weighted(strata):
    """What one ragmon says of calls kept at different rates: the estimate, and its unknown requests."""
    evidence = Evidence(Gate("g", "coverage", 0.5, "at_least"), "live", None, Stat(), "", post_stratified(strata))
    return evidence.weighted, evidence.unknown


def test_unknown_requests_of_a_weighted_value_have_their_share_of_all_calls():
    estimate, unknown = weighted(WEIGHTED)
    all_calls = 300 * 100 / 300 + 30_000 * 100 / 1000
    assert unknown / (estimate.n + unknown) == pytest.approx(all_calls / 30_300)
    assert weighted([replace(part, unknown=0) for part in WEIGHTED])[1] == 0
    lost = Stratum("slow", total=3030, assessed=0, domain=0, sum=0, squares=0)
    estimate, unknown = weighted([*WEIGHTED, lost])
    assert unknown / (estimate.n + unknown) > all_calls / 30_300 + 0.05, "calls of which none was scored are unknown"


@pytest.mark.parametrize("replicas", [1, 2])
def test_weighted_replicas_keep_what_is_unknown(real, tmp_path, replicas):
    estimate, unknown = weighted(WEIGHTED)
    counts = ("total", "assessed", "domain", "sum", "squares", "unknown")
    every = [Stratum(part.name, **{name: replicas * getattr(part, name) for name in counts}) for part in WEIGHTED]
    whole, _ = weighted(every)
    within = 1e-9 if replicas == 1 else CLOSE
    expected = [(recording.VALUE_LOWER, whole.lower, within), (recording.VALUE_UPPER, whole.upper, within)]
    assert recorded(real, tmp_path, shown([(estimate, unknown)] * replicas), expected) == ""


def test_replicas_without_the_series_of_unknown_requests_keep_their_bounds(real, tmp_path):
    (counts,) = SPLITS["a single one"]
    own = stat(*counts).estimate
    assert not isclose(own.lower, own.value, abs_tol=0.1)
    expected = [(recording.VALUE_LOWER, own.lower, 1e-9), (recording.VALUE_UPPER, own.upper, 1e-9)]
    assert recorded(real, tmp_path, served([counts], with_unknown=False), expected) == ""
