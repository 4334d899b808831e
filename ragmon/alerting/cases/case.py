"""One unit test of a rule file, and how promtool reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ragmon.alerting.promql import selector
from ragmon.alerting.rulefile import HEADER, Group, dump

RULES: Final = "ragmon.rules.yml"
"""The rule file, beside its tests."""
TARGET: Final = {"instance": "ragmon:9464", "job": "ragmon"}
"""The labels Prometheus gives what it scrapes."""
OTHER: Final = {"instance": "ragmon-2:9464", "job": "ragmon"}
"""The same for a second replica."""
_EVERY: Final = "1m"
_EVALUATED: Final = "2m"
"""Half as often as values come: rules over hours are what takes the time."""


@dataclass(frozen=True)
class Case:
    """What is put in, and which alerts must fire then.

    Args:
        alert: Which alert is looked at.
        name: What happens.
        series: Values minute by minute, in promtool's short form, by series.
        at: When it is looked at.
        fires: The labels of every alert of this name that must fire; none: it must be silent.
        among: Only alerts with these labels are looked at: others of this name are about something else.
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
        asked: dict[str, Any] = {"expr": selector("ALERTS", {**firing, **self.among}), "eval_time": self.at}
        if expected:
            asked["exp_samples"] = expected
        verb = "fires" if expected else "is silent"
        return {
            "interval": _EVERY,
            "name": f"{self.alert} {verb}: {self.name}",
            "input_series": [{"series": series, "values": values} for series, values in self.series.items()],
            "promql_expr_test": [asked],
        }


def scraped(name: str, target: Mapping[str, str] = TARGET, /, **labels: str) -> str:
    """A series as it is after a scrape."""
    return selector(name, {**labels, **target})


def render_tests(cases: Sequence[Case], groups: Sequence[Group]) -> str:
    """The text of a file for `promtool test rules`.

    Args:
        cases: The tests.
        groups: The rules they are about: evaluated in this order, or results would depend on chance.
    """
    return HEADER.format(what="tests") + dump(
        {
            "rule_files": [RULES],
            "evaluation_interval": _EVALUATED,
            "group_eval_order": [group.name for group in groups],
            "tests": [case.plain() for case in cases],
        }
    )
