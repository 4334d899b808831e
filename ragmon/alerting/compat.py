"""The names of the WFGY page on live monitoring (ProblemMap/ops/live_monitoring_rag.md), recorded from ragmon's own."""

from __future__ import annotations

from collections.abc import Mapping

from ragmon.alerting.promql import selector
from ragmon.alerting.rulefile import Rule
from ragmon.core import series_names

USUAL: int = 3600
"""Seconds of the window a sliding value is taken from, or of the one that is nearest."""


def recorded(windows: Mapping[str, int]) -> list[Rule]:
    """Dashboards that were made for these names go on.

    Args:
        windows: Spans in seconds by name.
    """
    window = {"window": min(windows, key=lambda name: abs(windows[name] - USUAL))}
    precision = selector(f"{series_names.PREFIX}answer_precision", window)
    samples = selector(f"{series_names.PREFIX}answer_precision{series_names.SAMPLES}", window)
    by = "sum by (pipeline, source, gold)"
    refusals = f"{series_names.PREFIX}under_refusal_rate{series_names.SCORE}"
    empty = selector(f"{series_names.DOCUMENTS}_bucket", {"le": "0.0"})
    return [
        Rule("rag_precision_shipped", f"{by} ({precision} * {samples}) / ({by} ({samples}) > 0)"),
        Rule("rag_under_refusal_count_total", f"{by} ({refusals})"),
        Rule("retriever_empty_result_count_total", f"sum by (pipeline) ({empty})"),
        Rule("rag_error_count_total", f"sum by (pipeline) ({series_names.ERRORS})"),
        Rule("rag_request_count_total", f"sum by (pipeline) ({series_names.REQUESTS})"),
    ]
