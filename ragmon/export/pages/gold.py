"""The page of gold: what is known to be right, which questions fail, who labelled what, and what judges are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragmon.core.escaping import printable
from ragmon.export.markdown import percent
from ragmon.export.pages.charts import share_bar
from ragmon.export.pages.overview import REFRESH, pipeline_path
from ragmon.export.pages.rendering import render
from ragmon.export.state import MonitorSnapshot
from ragmon.gates.coverage import covered
from ragmon.gates.gold_items import GoldItems, ItemCount
from ragmon.gold.labels.ratings import RESULTS, RatingSummary
from ragmon.scoring.predictions import Prediction
from ragmon.scoring.snapshot import ALL

HARDEST: Final = 20
"""Items with most failures that are listed of a set."""
FLIPS: Final = 20
"""Items that changed sides that are listed of a set."""
RATERS: Final = 20


def page(
    status: Mapping[str, Any], current: MonitorSnapshot, items: Sequence[GoldItems], ratings: RatingSummary
) -> str:
    """The page as HTML.

    Args:
        status: The data of `/api/status`.
        current: The state it was made of.
        items: The items of each gold set, by pipeline and source.
        ratings: What raters said.
    """
    golds = current.snapshot.golds
    return render(
        "gold.html.jinja",
        root="",
        title=f"ragmon: {len(golds)} gold {'set' if len(golds) == 1 else 'sets'}",
        refresh=REFRESH,
        now=status["now"],
        version=status["version"],
        golds=golds,
        coverage=_coverage(current),
        sets=[_set(each) for each in items],
        labels=_labels(current),
        waiting=current.labels_waiting,
        ratings=ratings,
        raters=sorted(ratings.raters.items(), key=lambda pair: (-pair[1], pair[0]))[:RATERS],
        agreement=percent(ratings.agreement),
        predictions=[_prediction(each) for each in current.predictions if each.estimate.value is not None],
        judges=current.judges,
    )


def _coverage(current: MonitorSnapshot) -> list[dict[str, Any]]:
    """How many items of each set were asked since counting began."""
    return [
        {
            **row._asdict(),
            "path": pipeline_path(row.pipeline),
            "share": percent(row.seen / row.items if row.items else None),
            "bar": share_bar(row.seen / row.items if row.items else 0.0, "bar"),
        }
        for row in covered(current.snapshot, ALL)
    ]


def _set(items: GoldItems) -> dict[str, Any]:
    """The items of a set: the hardest, and those that changed sides."""
    hardest = items.hardest(len(items.counts))
    return {
        "name": printable(f"{items.pipeline}, {items.source}, {items.gold} {items.version}"),
        "asked": len(items.counts),
        "failing": len(hardest),
        "hardest": [(qid, _figures(count)) for qid, count in hardest[:HARDEST]],
        "flips": [
            {**flip._asdict(), "before": _figures(flip.before), "after": _figures(flip.after)}
            for flip in items.flips[:FLIPS]
        ],
        "flipped": len(items.flips),
    }


def _figures(count: ItemCount) -> dict[str, Any]:
    share = count.failed / count.asked
    return {"n": count.asked, "failed": count.failed, "share": percent(share), "bar": share_bar(share, "fail")}


def _labels(current: MonitorSnapshot) -> list[tuple[str, int, str]]:
    """What became of labels, with what it means."""
    return [(result, n, RESULTS.get(result, "")) for result, n in sorted(current.labels.items()) if n]


def _prediction(prediction: Prediction) -> dict[str, Any]:
    """An estimate from labels and a judge, and how many labels alone would say as much."""
    estimate = prediction.estimate
    return {
        "pipeline": prediction.pipeline,
        "window": prediction.window,
        "proxy": prediction.proxy,
        "n": estimate.n,
        "value": percent(estimate.value),
        "interval": f"{percent(estimate.lower)} to {percent(estimate.upper)}",
        "gain": "–" if estimate.gain is None else f"{estimate.gain:.2f}",
    }
