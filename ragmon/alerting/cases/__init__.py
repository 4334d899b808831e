"""Promtool's unit tests of the rules: for every alert what must fire it and what must not."""

from __future__ import annotations

from ragmon.alerting.cases.case import Case, render_tests
from ragmon.alerting.cases.every import every_case

__all__ = ["Case", "every_case", "render_tests"]
