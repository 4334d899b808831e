"""A report that was read back from its JSON: the same page, but for what the JSON does not hold."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import ragmon
from ragmon.core.errors import InputError
from ragmon.core.policy import Gate, Policy
from ragmon.export.report_page import FROM_FILE, stored_page
from ragmon.export.schema import load_report
from ragmon.testing import make_gold
from tests.export.test_report_views import NASTY, timed
from tests.support.runs import small_report


def back(report):
    return load_report(json.loads(report.json()), "report.json")


@pytest.mark.parametrize("kind", ["small", "timed", "other gates", "nothing"])
def test_the_page_is_the_same_with_what_the_json_does_not_hold(kind):
    gates = (
        Gate("latency_p95", "latency", 1.3, "at_most", kind="quantile_ratio"),
        Gate("index_hash", "index_hash", 1, "at_most", kind="distinct"),
        Gate("slice", "error_rate", 0.1, "at_most", where="lang=de"),
    )
    report = {
        "small": small_report,
        "timed": lambda: ragmon.replay(timed(60), make_gold(*((f"q{k}", True) for k in range(60)))),
        "other gates": lambda: ragmon.replay(timed(60, index_hash="f00"), None, Policy(gates)),
        "nothing": lambda: ragmon.replay([], None),
    }[kind]()
    bare = replace(report, notes=[FROM_FILE], questions=(), histories={})
    assert stored_page(back(report)) == bare.to_html()


def test_a_page_from_json_says_what_it_lacks():
    report = ragmon.replay(timed(60), make_gold(*((f"q{k}", True) for k in range(60))))
    page = stored_page(back(report))
    assert "no results of single questions and no gates over time" in page
    for heading in ("<h2>Questions</h2>", "<h2>Over time</h2>", "<script>"):
        assert heading in report.to_html()
        assert heading not in page
    for heading in ("<h2>Gates</h2>", "<h2>All metrics</h2>", report.digest):
        assert heading in page


def test_names_in_json_are_text():
    report = ragmon.replay(timed(60, pipeline=NASTY))
    page = stored_page(back(report))
    assert "<script" not in page
    assert "\u202e" not in page
    assert "x" * 5000 not in page


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": '"><script>'},
        {"gates": [{"gate": "g"}]},
        {"records": None},
        {"digest": 5},
        {"latency_ms": {"total": {"p50": "fast"}}},
        {"series": [{"pipeline": "a", "source": "live", "window": "all", "metrics": {"m": {"n": -1}}}]},
    ],
)
def test_what_is_no_report_is_refused_with_the_place(change):
    data = json.loads(small_report().json()) | change
    with pytest.raises(InputError, match=r"report\.json: this is not a report of ragmon: ") as caught:
        load_report(data, "report.json")
    assert "ragmon replay" in caught.value.hint


@pytest.mark.parametrize("figures", [{"threshold": 7.0}, {"value": 1e300}, {"verdict": "maybe"}, {"direction": "up"}])
def test_a_gate_with_impossible_figures_is_refused(figures):
    data = json.loads(small_report().json())
    data["gates"][0] |= figures
    with pytest.raises(InputError, match="this is not a report of ragmon"):
        load_report(data, "report.json")


def test_keys_of_later_versions_are_passed_over():
    data = json.loads(small_report().json())
    data["later"] = data["gates"][0]["later"] = data["series"][0]["later"] = [1]
    assert stored_page(load_report(data, "report.json")) == stored_page(back(small_report()))
