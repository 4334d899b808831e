"""Prometheus rules from ragmon.toml: what is recorded, what alerts, and promtool's tests of both."""

from __future__ import annotations

from ragmon.alerting.cases import every_case, render_tests
from ragmon.alerting.groups import rule_groups
from ragmon.alerting.rulefile import Group, Rule, render

__all__ = ["Group", "Rule", "every_case", "render", "render_tests", "rule_groups"]
