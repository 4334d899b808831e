"""Does retrieval bring the right documents?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragmon.config.settings import Settings
from ragmon.core import series_names
from ragmon.dashboards.frame import Frame
from ragmon.dashboards.panels import NUMBER, REQUESTS, SHARE, Query, bars, lines
from ragmon.dashboards.promql import PIPELINE, SOURCE, WINDOW, at, grown, quantile, rate, worst
from ragmon.dashboards.quality import families, metric_panel
from ragmon.metrics import Metric
from ragmon.metrics import retrieval as rules
from ragmon.metrics.serving import EmptyRetrievalRate


def is_retrieval(family: type[Metric]) -> bool:
    """Whether a metric is about what was retrieved."""
    return family.__module__ == rules.__name__ or family is EmptyRetrievalRate


def retrieval(settings: Settings) -> Frame:
    """The dashboard."""
    frame = Frame(
        "retrieval",
        "ragmon: retrieval",
        "Does retrieval bring the right documents, how many, and from which index?",
        settings,
        ("pipeline", "source", "window"),
    )
    found = [family for family in families(settings).values() if is_retrieval(family)]
    golden = [metric_panel(family, settings) for family in found if family.needs_gold]
    frame.row("Against gold documents", golden)
    free = [metric_panel(family, settings) for family in found if not family.needs_gold]
    frame.row("Without gold", [*free, *_documents()])
    frame.row("Index and gold", [*_index(), *_coverage()])
    return frame


def _documents() -> Iterator[Any]:
    """How many documents came back."""
    by, where = "pipeline, source", (PIPELINE, SOURCE)
    count, total = (rate(f"{series_names.DOCUMENTS}_{end}", by, *where) for end in ("count", "sum"))
    queries = [
        Query(f"{total} / {count}", "{{pipeline}} {{source}} mean"),
        Query(f"ceil({quantile(0.5, series_names.DOCUMENTS, by, *where)})", "{{pipeline}} {{source}} p50"),
        Query(f"ceil({quantile(0.95, series_names.DOCUMENTS, by, *where)})", "{{pipeline}} {{source}} p95"),
    ]
    says = (
        "How many documents retrieval brought back; quantiles are read from buckets and rounded up to whole documents."
    )
    yield lines("Documents retrieved", says, queries, NUMBER)
    query = Query(grown(f"{series_names.DOCUMENTS}_bucket", "le", *where), "{{le}}")
    says = (
        "How many requests brought back so many documents, at most, and more than the bar before; over the time shown."
    )
    yield bars("Documents retrieved, distribution", says, query, NUMBER)


def _index() -> Iterator[Any]:
    hashes = f"count by (pipeline) (count by (pipeline, index_hash) ({at(series_names.BUILD_SEEN, PIPELINE)}))"
    says = "How many indexes answered lately, over all builds. More than one outside of a release is worth a look."
    yield lines("Indexes that answer", says, [Query(hashes, "{{pipeline}}")], NUMBER)


def _coverage() -> Iterator[Any]:
    """How much of the traffic the gold covers, and how much of the gold was asked."""
    ways = rate(series_names.GOLD_MATCH, "pipeline, how", PIPELINE)
    says = "How the gold items of users' questions were found, requests a second; `none`: there is no gold item."
    yield lines("Gold matches", says, [Query(ways, "{{pipeline}} {{how}}")], REQUESTS, stacked=True)
    seen = worst(series_names.GOLD_ITEMS_SEEN, "pipeline, source, gold", PIPELINE, SOURCE, WINDOW)
    share = f"{seen} / on (gold) group_left () {worst(series_names.GOLD_ITEMS, 'gold')}"
    says = "Share of the gold set that was asked in the window; of several replicas the one that saw most."
    yield lines("Gold items seen", says, [Query(share, "{{pipeline}} {{source}} {{gold}}")], SHARE, ceiling=1)
