"""The page of gold, labels and judges: which items were asked, which are hard, which flipped, and how far raters agree.

It has ids, facts and numbers, and neither texts nor the names of raters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final
from urllib.parse import quote

from ragmon.config.settings import Settings
from ragmon.core.constants import HOUR, LABEL
from ragmon.core.series_names import label
from ragmon.export.pages.charts import Tick, stacked_bar, tick_strip
from ragmon.export.pages.overview import REFRESH
from ragmon.export.pages.rendering import by_reason, render
from ragmon.export.prometheus_quality import exported_series
from ragmon.export.state import MonitorSnapshot
from ragmon.gates import coverage
from ragmon.gates.history import FlippedItem, GoldFindings, ItemFindings, ItemShare, TimeSpan
from ragmon.ingest.gold import GoldInfo
from ragmon.scoring.cohorts import METRIC
from ragmon.scoring.labels import Prediction
from ragmon.scoring.ratings import RESULTS
from ragmon.scoring.snapshot import ALL

SHOWN: Final = 20
"""Items of either kind that are listed for a gold set."""
ROWS: Final = 50
"""Rows of the tables of pipelines that are listed."""
_SPREAD: Final = (
    ("always", "pass", "right each time"),
    ("sometimes", "sometimes", "right at times"),
    ("never", "fail", "never right"),
    ("unknown", "bar", "asked, not known"),
)
"""How items were answered, with the class of their part of a bar and its name."""
SPREAD_WIDTH: Final = 240
"""Width of the bar of a whole set, CSS pixels."""
_SMALL: Final = 0.1
"""Smallest number of items by chance that is shown."""
_WAITING: Final = "waiting"
_FIELDS: Final = {"correct": "right or wrong", "answerable": "can be answered", "relevant_ids": "relevant documents"}
"""What a reader calls the fields of a label."""


def page(
    status: Mapping[str, Any],
    current: MonitorSnapshot,
    settings: Settings,
    found: GoldFindings,
    spans: Sequence[TimeSpan],
) -> str:
    """The page as HTML.

    Args:
        status: The data of `/api/status`.
        current: The state it was made of.
        settings: The configuration in force.
        found: What is known of items and raters.
        spans: The spans of time that can be compared with what was before them.
    """
    windows = list(settings.windows)
    return render(
        "gold.html.jinja",
        root="",
        title=f"ragmon: {_title(current, found)}",
        refresh=REFRESH,
        now=status["now"],
        version=status["version"],
        windows=windows,
        sets=[_set(gold, current, windows, found) for gold in current.snapshot.golds],
        parts=[*((kind, words) for _, kind, words in _SPREAD), ("track", "not asked")],
        found=found,
        spans=spans,
        has_probes=bool(settings.probes),
        **_labels(status, current, windows, found),
        **_judges(status, current, settings),
    )


def _title(current: MonitorSnapshot, found: GoldFindings) -> str:
    """The state in a few words."""
    if not current.snapshot.golds:
        return "there is no gold"
    broke = sum(findings.broke for findings in found.sets.values())
    words = "gold item is wrong that was right" if broke == 1 else "gold items are wrong that were right"
    return f"{broke or 'no'} {words if broke else 'gold item is wrong that was right'}"


def _set(gold: GoldInfo, current: MonitorSnapshot, windows: Sequence[str], found: GoldFindings) -> dict[str, Any]:
    """A gold set: its coverage, its items as a bar for each pipeline, the hardest items, and those that flipped."""
    parts = {
        key.pipeline: findings
        for key, findings in found.sets.items()
        if (key.gold, key.version) == (gold.name, gold.version)
    }
    hard = [(share, pipeline) for pipeline, findings in parts.items() for share in findings.hardest]
    hard.sort(key=lambda row: (row[0].share, -row[0].judged))
    flips = [(flip, pipeline) for pipeline, findings in parts.items() for flip in findings.flips]
    flips.sort(key=lambda row: row[0].order)
    flipped = sum(findings.flipped for findings in parts.values())
    return {
        "name": gold.name,
        "version": gold.version,
        "items": gold.items,
        "coverage": (rows := _coverage(gold, current, windows))[:ROWS],
        "more_rows": len(rows) - ROWS,
        "spreads": [_spread(pipeline, findings, gold.items) for pipeline, findings in sorted(parts.items())[:ROWS]],
        "hardest": [_hard(share, pipeline) for share, pipeline in hard[:SHOWN]],
        "more_hard": sum(findings.wrong for findings in parts.values()) - min(SHOWN, len(hard)),
        "flips": [_flip(flip, pipeline, found) for flip, pipeline in flips[:SHOWN]],
        "more_flips": flipped - min(SHOWN, len(flips)),
        "flipped": flipped,
        "compared": sum(findings.compared for findings in parts.values()),
        "by_chance": _about(sum(findings.by_chance for findings in parts.values())),
    }


def _about(number: float) -> str:
    """A number of items that is an average."""
    return f"About {number:.1f}" if number >= _SMALL else f"Fewer than {_SMALL}"


def _coverage(gold: GoldInfo, current: MonitorSnapshot, windows: Sequence[str]) -> list[dict[str, Any]]:
    """How many items each pipeline and source asked, in every window and in all that is kept."""
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for covered in chain.from_iterable(coverage.covered(current.snapshot, window) for window in (*windows, ALL)):
        if covered.gold == gold.name:
            rows.setdefault((covered.pipeline, covered.source), {})[covered.window] = covered.seen
    return [
        {
            "pipeline": pipeline,
            "path": f"p/{quote(label(pipeline), safe='')}",
            "source": source,
            "seen": [seen.get(window, 0) for window in windows],
            "kept": seen.get(ALL, 0),
            "share": f"{seen.get(ALL, 0) / gold.items:.0%}" if gold.items else "–",
            "bar": stacked_bar([(seen.get(ALL, 0), "asked"), (max(0, gold.items - seen.get(ALL, 0)), "track")]),
        }
        for (pipeline, source), seen in sorted(rows.items())
    ]


def _spread(pipeline: str, findings: ItemFindings, items: int) -> dict[str, Any]:
    """The items of a set by how a pipeline answered them, as numbers and as a bar."""
    numbers = [(getattr(findings.spread, name), kind) for name, kind, _ in _SPREAD]
    numbers.append((max(0, items - findings.spread.asked), "track"))
    bar = stacked_bar(numbers, width=SPREAD_WIDTH)
    return {"pipeline": pipeline, "numbers": [n for n, _ in numbers], "bar": bar}


def _hard(share: ItemShare, pipeline: str) -> dict[str, Any]:
    """A hard item as a row."""
    return {
        "qid": share.qid,
        "pipeline": pipeline,
        "share": f"{share.share:.0%}",
        "right": share.right,
        "judged": share.judged,
        "asked": share.judged + share.unknown,
        "bar": stacked_bar([(share.right, "pass"), (share.wrong, "fail")]),
    }


def _flip(flip: FlippedItem, pipeline: str, found: GoldFindings) -> dict[str, Any]:
    """An item that flipped as a row; its answers over time are drawn from the first that is kept."""
    ticks = [
        Tick(point.begin, point.end, "fail" if point.wrong > point.right else "pass" if point.right else "bar")
        for point in flip.points
    ]
    begin = found.cut if found.begin is None else found.begin
    return {
        "qid": flip.qid,
        "pipeline": pipeline,
        "broke": flip.broke,
        "before": f"{flip.before.right} of {flip.before.judged}",
        "after": f"{flip.after.right} of {flip.after.judged}",
        "since": flip.since,
        "by_hour": flip.until - flip.since >= HOUR,
        "strip": tick_strip(ticks, begin=begin, cut=found.cut, end=found.now),
    }


def _labels(
    status: Mapping[str, Any], current: MonitorSnapshot, windows: Sequence[str], found: GoldFindings
) -> dict[str, Any]:
    """What became of labels, how far raters agree, what can be labelled, and what the labels say."""
    results = [(name, n, RESULTS.get(name, "")) for name, n in sorted(status["labels"].items()) if name != _WAITING]
    return {
        "results": results,
        "waiting": status["labels"][_WAITING],
        "agreement": [_agreement(name, *counts) for name, counts in found.raters.fields.items()],
        "agree": _percent(found.raters.shared - found.raters.disputed, found.raters.shared),
        "labellable": sorted(found.labellable.items())[:ROWS],
        "unlisted": max(0, len(found.labellable) - ROWS),
        "rated": list(_rated(current, windows))[:ROWS],
        "maturity": [(pipeline, f"{share:.0%}") for pipeline, share in sorted(current.snapshot.maturity.items())],
    }


def _agreement(name: str, judged: int, agreed: int) -> dict[str, Any]:
    """How far raters agree on a field of a label."""
    bar = stacked_bar([(agreed, "pass"), (judged - agreed, "fail")])
    return {"field": _FIELDS[name], "judged": judged, "agreed": agreed, "share": _percent(agreed, judged), "bar": bar}


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def _rated(current: MonitorSnapshot, windows: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What labels say of the answers of each pipeline, by window."""
    for series in exported_series(current.snapshot):
        if series.source != LABEL or series.gold or series.window not in windows or METRIC not in series.metrics:
            continue
        estimate = series.estimate(METRIC)
        if estimate.value is not None:
            yield {
                "pipeline": series.pipeline,
                "path": f"p/{quote(label(series.pipeline), safe='')}",
                "window": series.window,
                "n": estimate.n,
                "value": f"{estimate.value:.3f}",
                "interval": f"{estimate.lower:.3f} to {estimate.upper:.3f}",
                "bar": stacked_bar([(right := round(1000 * estimate.value), "asked"), (1000 - right, "track")]),
            }


def _judges(status: Mapping[str, Any], current: MonitorSnapshot, settings: Settings) -> dict[str, Any]:
    """The versions of judges, what became of requests before them, and what their scores are worth in labels."""
    calls: dict[str, dict[str, int]] = {}
    for (judge, result), n in sorted(current.captured.judged.items()):
        calls.setdefault(judge, {})[result] = n
    scopes = (settings.unconfigured, *settings.pipelines.values())
    worth = [prediction for prediction in current.predictions if prediction.estimate.gain is not None]
    return {
        "judges": status["judges"],
        "configured_judges": sorted(
            {name for judges in (settings.unconfigured.judges, *(scope.judges for scope in scopes)) for name in judges}
        ),
        "calls": [(judge, by_reason(results)) for judge, results in calls.items()],
        "worth": [_worth(prediction) for prediction in worth[:ROWS]],
    }


def _worth(prediction: Prediction) -> dict[str, Any]:
    """What the scores of a judge, or another proxy, are worth beside labels."""
    estimate = prediction.estimate
    return {
        "pipeline": prediction.pipeline,
        "window": prediction.window,
        "proxy": prediction.proxy,
        "n": estimate.n,
        "value": "–" if estimate.value is None else f"{estimate.value:.3f}",
        "interval": f"{estimate.lower:.3f} to {estimate.upper:.3f}",
        "gain": f"{estimate.gain or 0.0:.2f}",
        "n_eff": f"{estimate.n_eff:.0f}",
        "bar": stacked_bar([(estimate.n, "asked"), (max(0, round(estimate.n_eff) - estimate.n), "sometimes")]),
    }
