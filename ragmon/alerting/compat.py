"""The names of the WFGY page on live monitoring (ProblemMap/ops/live_monitoring_rag.md), recorded from ragmon's own."""

from __future__ import annotations

from collections.abc import Mapping

from ragmon import exposition
from ragmon.alerting.promql import selector
from ragmon.alerting.rulefile import Rule

USUAL: int = 3600
"""Seconds of the window a sliding value is taken from, or of the one that is nearest."""


def recorded(windows: Mapping[str, int]) -> list[Rule]:
    """Dashboards that were made for these names go on.

    Args:
        windows: Spans in seconds by name.
    """
    window = {"window": min(windows, key=lambda name: abs(windows[name] - USUAL))}
    precision = selector(f"{exposition.PREFIX}answer_precision", window)
    samples = selector(f"{exposition.PREFIX}answer_precision{exposition.SAMPLES}", window)
    by = "sum by (pipeline, source, gold)"
    refusals = f"{exposition.PREFIX}under_refusal_rate{exposition.SCORE}"
    empty = selector(f"{exposition.DOCUMENTS}_bucket", {"le": "0.0"})
    return [
        Rule("rag_precision_shipped", f"{by} ({precision} * {samples}) / ({by} ({samples}) > 0)"),
        Rule("rag_under_refusal_count_total", f"{by} ({refusals})"),
        Rule("retriever_empty_result_count_total", f"sum by (pipeline) ({empty})"),
        Rule("rag_error_count_total", f"sum by (pipeline) ({exposition.ERRORS})"),
        Rule("rag_request_count_total", f"sum by (pipeline) ({exposition.REQUESTS})"),
    ]
