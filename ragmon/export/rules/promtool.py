"""A test of the rules as data, and the file that `promtool test rules` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ragmon.core import series_names
from ragmon.core.policy import Gate
from ragmon.core.series_names import label
from ragmon.export.promql import exact, quoted, selector
from ragmon.export.rules import recording
from ragmon.export.rules.file import HEADER, RuleGroup, dump
from ragmon.metrics.base import parse

RULES: Final = "ragmon.rules.yml"
"""The rule file, beside its tests."""
TARGET: Final = {"instance": "ragmon:9464", "job": "ragmon"}
"""The labels Prometheus adds to scraped series."""
OTHER: Final = {"instance": "ragmon-2:9464", "job": "ragmon"}
"""The same labels for a second replica."""
_VERSION: Final = "v1"
"""The version of the gold set in force."""
_EVERY: Final = "1m"
_EVALUATED: Final = "2m"
"""Half as often as samples: evaluating rules over hours takes most of the time."""


@dataclass(frozen=True)
class Case:
    """One test: input series, and which alerts must fire.

    Args:
        alert: The alert under test.
        name: What happens in the test.
        series: Values minute by minute, in promtool's short form, by series.
        at: The time of the check.
        fires: The labels of every alert of this name that must fire; empty if it must not fire.
        among: Labels of the alerts to check; other alerts of this name are ignored.
    """

    alert: str
    name: str
    series: Mapping[str, str]
    at: str
    fires: Sequence[Mapping[str, str]] = field(default=())
    among: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The case as promtool reads it."""
        firing = {"alertname": self.alert, "alertstate": "firing"}
        alerts = [selector("ALERTS", dict(sorted({**firing, **labels}.items()))) for labels in self.fires]
        expected = [{"labels": labels, "value": 1} for labels in alerts]
        check: dict[str, Any] = {"expr": selector("ALERTS", {**firing, **self.among}), "eval_time": self.at}
        if expected:
            check["exp_samples"] = expected
        verb = "fires" if expected else "is silent"
        return {
            "interval": _EVERY,
            "name": f"{self.alert} {verb}: {self.name}",
            "input_series": [{"series": series, "values": values} for series, values in self.series.items()],
            "promql_expr_test": [check],
        }


def scraped(name: str, target: Mapping[str, str] = TARGET, /, **labels: str) -> str:
    """A series with the labels it has after a scrape."""
    return selector(name, {**labels, **target})


def scraped_as(series_selector: str, target: Mapping[str, str]) -> str:
    """A series that a selector matches, with the labels of a target."""
    name, _, matchers = series_selector.partition("{")
    labels = matchers[:-1].replace('gold!=""', 'gold="any"')
    if "gold=" in labels and 'gold=""' not in labels:
        labels += f",gold_version={quoted(_VERSION)}"
    return f"{name}{{{labels},{selector('', target)[1:-1]}}}"


def served(gate: Gate, length: int) -> Mapping[str, str]:
    """The threshold of a gate that ragmon serves: the rules are of the pipelines that have one."""
    return {scraped(series_names.GATE_THRESHOLD, **recording.named(gate)): f"{exact(gate.threshold)}x{length}"}


def judged_on_gold(gate: Gate, length: int) -> Mapping[str, str]:
    """What ragmon serves of the gold set that a gate is judged on; nothing of a gate without gold."""
    if not (parse(gate.metric).needs_gold or gate.gold):
        return {}
    gold = label(gate.gold or "any")
    info = scraped(series_names.GATE_INFO, **recording.named(gate), gold=gold)
    return {
        info: f"1x{length}",
        scraped(series_names.GATE_SAMPLES, **recording.named(gate)): f"100x{length}",
        scraped(series_names.GOLD_INFO, gold=gold, version=_VERSION): f"1x{length}",
    }


def render_tests(cases: Sequence[Case], groups: Sequence[RuleGroup]) -> str:
    """The text of a file for `promtool test rules`.

    Args:
        cases: The tests.
        groups: The rules under test, evaluated in this order, so that results do not depend on chance.
    """
    return HEADER.format(what="tests") + dump(
        {
            "rule_files": [RULES],
            "evaluation_interval": _EVALUATED,
            "group_eval_order": [group.name for group in groups],
            "tests": [case.plain() for case in cases],
        }
    )
