"""Are the answers right, cited and grounded, and does the pipeline refuse what it should?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragmon.config.settings import Settings
from ragmon.core import series_names
from ragmon.dashboards.frame import Frame
from ragmon.dashboards.panels import NUMBER, PER_MINUTE, SHARE, Query, lines
from ragmon.dashboards.promql import PIPELINE, SOURCE, WINDOW, grown, per_minute, worst
from ragmon.dashboards.quality import families, metric_panel
from ragmon.dashboards.retrieval import is_retrieval
from ragmon.dashboards.tables import Label, Value, table
from ragmon.dashboards.traffic import is_traffic
from ragmon.metrics import Metric
from ragmon.metrics.base import Judged
from ragmon.scoring.predictions import METRIC

_OWN = "ragmon.metrics."


def answers(settings: Settings) -> Frame:
    """The dashboard."""
    frame = Frame(
        "answers",
        "ragmon: answers",
        "Are the answers right, cited and grounded, and is refused what should be?",
        settings,
        ("pipeline", "source", "window"),
    )
    rows: dict[str, list[Any]] = {"Against gold": [], "Without gold": [], "Judges": [], "Metrics of your own": []}
    for family in families(settings).values():
        if not is_retrieval(family) and not is_traffic(family) and family.name != METRIC:
            rows[_heading(family)].append(metric_panel(family, settings))
    for title, panels in rows.items():
        frame.row(title, panels)
    frame.row("Labels people gave", [metric_panel(families(settings)[METRIC], settings), *_labels()])
    if any(one.slices for one in (settings.common, *settings.pipelines.values())):
        frame.row("Slices", [_slices()])
    return frame


def _heading(family: type[Metric]) -> str:
    if issubclass(family, Judged):
        return "Judges"
    if not family.__module__.startswith(_OWN):
        return "Metrics of your own"
    return "Against gold" if family.needs_gold else "Without gold"


def _labels() -> Iterator[Any]:
    """What labels say, alone and with a score every answer has."""
    shown = f"{series_names.PREFIX}{METRIC}{series_names.PPI}"
    by = "pipeline, instance"
    queries = [
        Query(worst(shown + ending, by, PIPELINE, WINDOW), f"{{{{pipeline}}}} {{{{instance}}}}{told}")
        for ending, told in (("", ""), (series_names.LOWER, " lower"), (series_names.UPPER, " upper"))
    ]
    says = (
        f"{METRIC} of all answers, from the labels of some and a score of all (prediction-powered); dots: 95 % "
        "interval. Labels come to one server, so replicas stand side by side."
    )
    yield lines(f"{METRIC}, all answers", says, queries, SHARE, floor=None)
    gain = worst(series_names.PROXY_GAIN, f"{by}, proxy", PIPELINE, WINDOW)
    says = "How many labels each label is worth beside this score; 1: the score does not help."
    yield lines("What a label is worth", says, [Query(gain, "{{pipeline}} {{instance}} {{proxy}}")], NUMBER)
    query = Query(per_minute(series_names.LABELS, "result"), "{{result}}")
    yield lines("Labels", "What became of the labels people gave, labels a minute.", [query], PER_MINUTE, stacked=True)


def _slices() -> Any:
    """The gated metrics of every slice."""
    by = "pipeline, metric, source, slice, gold"
    score, scored = (
        grown(name, by, PIPELINE, SOURCE) for name in (series_names.SLICE_SCORE, series_names.SLICE_SCORED)
    )
    columns: list[Label | Value] = [
        *(Label(name, name) for name in by.split(", ")),
        Value(f"{score} / {scored}", "value", SHARE, 1),
        Value(f"{scored} > 0", "n", NUMBER, 0),
    ]
    says = "Every gated metric of every slice over the time shown. Small n says little."
    return table("Gated metrics by slice", says, columns, empty="no slice has data", height=12)
