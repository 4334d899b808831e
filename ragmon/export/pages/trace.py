"""The page of a trace: its requests, what each of them retrieved, and why it scores as it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from ragmon.core.series_names import label
from ragmon.export.pages.charts import share_bar
from ragmon.export.pages.rendering import render
from ragmon.gates.request import MetricResult, RequestReport

ROOT: Final = "../"
"""From this page to the overview."""
_ORDER: Final = ("fail", "pass", "scored", "unassessed", "outside")
"""The outcomes of metrics, the worst first."""
_HEADINGS: Final = {
    "fail": "Why it fails",
    "pass": "Gates that it keeps",
    "scored": "Other scores",
    "unassessed": "Not known",
    "outside": "Does not concern it",
}


def page(asked: str, requests: Sequence[RequestReport], *, now: float, version: str, may_ask: bool) -> str:
    """The page of a trace as HTML.

    Args:
        asked: The trace id, or its beginning.
        requests: Its requests, with as much content as may be shown.
        now: Seconds since the epoch.
        version: That of ragmon.
        may_ask: Whether the page offers to show the texts to whoever has the token.
    """
    return render(
        "trace.html.jinja",
        root=ROOT,
        title=f"ragmon: {_state(requests)}",
        refresh=0,
        now=now,
        version=version,
        asked=asked,
        requests=[_shown(request) for request in requests],
        may_ask=may_ask,
    )


def _state(requests: Sequence[RequestReport]) -> str:
    failed = {gate for request in requests for result in request.metrics for gate in result.gates}
    return f"a trace that fails {', '.join(sorted(failed))}" if failed else "a trace that fails no gate"


def _shown(request: RequestReport) -> dict[str, Any]:
    """A request with its latency as bars and its scores by outcome."""
    longest = max(request.latency_ms.values(), default=0.0) or 1.0
    return {
        "report": request,
        "pipeline_path": f"p/{label(request.pipeline)}",
        "latency": [(stage, f"{ms:,.0f}", share_bar(ms / longest, "bar")) for stage, ms in request.latency_ms.items()],
        "metrics": list(_by_outcome(request.metrics)),
    }


def _by_outcome(metrics: Sequence[MetricResult]) -> Iterator[tuple[str, str, list[MetricResult]]]:
    ordered = sorted(metrics, key=lambda result: _ORDER.index(result.outcome))
    for outcome, results in groupby(ordered, lambda result: result.outcome):
        yield outcome, _HEADINGS[outcome], list(results)
