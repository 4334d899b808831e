"""How many requests there are, how many fail, how long they take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.dashboards.frame import Frame
from ragmon.dashboards.panels import REQUESTS, SECONDS, SHARE, Query, lines
from ragmon.dashboards.promql import PIPELINE, SOURCE, quantile, rate
from ragmon.dashboards.quality import families, metric_panel
from ragmon.metrics import Metric
from ragmon.metrics.serving import AnsweredWithin, ErrorRate
from ragmon.promql import equals

_QUANTILES = (0.5, 0.95, 0.99)


def is_traffic(family: type[Metric]) -> bool:
    """Whether a metric is about errors and time."""
    return family in (AnsweredWithin, ErrorRate)


def traffic(settings: Settings) -> Frame:
    """The dashboard."""
    frame = Frame(
        "traffic",
        "ragmon: traffic",
        "How many requests there are, how many end in an error, how long they take from end to end and by stage.",
        settings,
        ("pipeline", "source", "window"),
    )
    frame.row("Requests", [*_requests()])
    frame.row("Latency", [*_latency()])
    found = [family for family in families(settings).values() if is_traffic(family)]
    frame.row("As gates see it", [metric_panel(family, settings) for family in found])
    return frame


def _requests() -> Iterator[Any]:
    where = (PIPELINE, SOURCE)
    calls = rate(series_names.REQUESTS, "pipeline, source", *where)
    yield lines("Requests", "All calls, sampled or not, a second.", [Query(calls, "{{pipeline}} {{source}}")], REQUESTS)
    strata = rate(series_names.REQUESTS, "stratum", *where)
    says = "All calls by what they were kept for: errors, refusals and slow ones are kept more often than the rest."
    yield lines("Requests by stratum", says, [Query(strata, "{{stratum}}")], REQUESTS, stacked=True)
    errors = rate(series_names.ERRORS, "pipeline, code", PIPELINE)
    says = "Calls of users that ended in an error, by its kind, a second."
    yield lines("Errors by kind", says, [Query(errors, "{{pipeline}} {{code}}")], REQUESTS, stacked=True)
    failed = rate(series_names.ERRORS, "pipeline", PIPELINE)
    of_users = rate(series_names.REQUESTS, "pipeline", PIPELINE, equals("source", constants.LIVE))
    says = "Share of users' calls that ended in an error: all errors over all calls, not a mean of replicas."
    yield lines("Share of errors", says, [Query(f"{failed} / {of_users}", "{{pipeline}}")], SHARE)


def _latency() -> Iterator[Any]:
    where = (PIPELINE, SOURCE)
    by = "pipeline, source"
    queries = [
        Query(
            quantile(q, series_names.LATENCY, by, *where),
            f"{{{{pipeline}}}} {{{{source}}}} p{100 * q:g}",
            exemplar=True,
        )
        for q in _QUANTILES
    ]
    says = "How long calls take from end to end. Points are traces, where the data source has exemplars."
    yield lines("Latency", says, queries, SECONDS)
    queries = [
        Query(quantile(q, series_names.STAGE_LATENCY, "stage", *where), f"{{{{stage}}}} p{100 * q:g}")
        for q in _QUANTILES
    ]
    yield lines("Latency by stage", "How long the stages of sampled calls take.", queries, SECONDS)
