"""The page of a pipeline: all its metrics, its latency by stage, its traffic, and how many documents it retrieves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ragmon.core import constants
from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.series_names import label
from ragmon.export.pages.charts import ChartPoint, share_bar, sparkline
from ragmon.export.pages.overview import REFRESH, gate_row
from ragmon.export.pages.rendering import by_reason, render
from ragmon.export.prometheus_quality import exported_metrics, exported_series
from ragmon.export.state import MonitorSnapshot
from ragmon.gates.history import TimeSpan
from ragmon.metrics.base import is_labelled, judged, parse
from ragmon.scoring.snapshot import SeriesStats, Snapshot
from ragmon.stats.histograms import quantile

ROOT: Final = "../"
"""From this page to the overview."""
REFUSALS: Final = ("refusal_rate", "refusal_like_rate", "under_refusal_rate", "over_refusal_rate")
"""The metrics of the section on refusals."""
SECTIONS: Final = (
    "Answers, judged against gold",
    "Retrieval, judged against gold",
    "Refusals",
    "Answers",
    "Retrieval",
    "Traffic",
    "Judges and people",
)
"""The sections of metrics, in their order on the page."""
QUANTILES: Final = (0.50, 0.95, 0.99)
MOST_DOCUMENTS: Final = 12
"""Rows of the table of retrieved documents; larger lists share the last one."""

SeriesName = tuple[str, str]
"""The source and the gold set of a series."""


class PipelineHistory:
    """A pipeline over a span of time, in equal windows.

    Args:
        span: The span.
        now: Its end, seconds since the epoch.
        points: The state in each window, from `ragmon.scoring.snapshot.take_history`, in order of time.
    """

    def __init__(self, span: TimeSpan, now: float, points: Sequence[Snapshot]) -> None:
        self.span = span
        self._now = now
        self._points = [
            (point.now, {(series.source, series.gold): series for series in exported_series(point)}) for point in points
        ]

    def metric(self, series: SeriesName, key: str, threshold: float | None) -> str:
        """A metric as a sparkline."""
        values = [ChartPoint(end, _value(by_name.get(series), key)) for end, by_name in self._points]
        return self._line(values, threshold, key)

    def records(self, series: SeriesName) -> str:
        """The number of records as a sparkline."""
        values = [
            ChartPoint(end, float(by_name[series].records) if series in by_name else None)
            for end, by_name in self._points
        ]
        return self._line(values, None, "records")

    def _line(self, values: Sequence[ChartPoint], threshold: float | None, name: str) -> str:
        begin, words = self._now - self.span.seconds, f"{name}, {self.span.words}"
        return sparkline(values, begin=begin, threshold=threshold, name=words)


def _value(series: SeriesStats | None, key: str) -> float | None:
    return None if series is None or key not in series.metrics else series.estimate(key).value


def page(
    status: Mapping[str, Any],
    current: MonitorSnapshot,
    pipeline: str,
    windows: Sequence[str],
    window: str,
    history: PipelineHistory,
) -> str:
    """The page of a pipeline as HTML.

    Args:
        status: The data of `/api/status`.
        current: The state it was made of.
        pipeline: The pipeline.
        windows: The names of the windows that can be chosen.
        window: The one that was chosen.
        history: The pipeline over time.
    """
    gates = [gate_row(gate, None) for gate in status["gates"] if gate["pipeline"] == pipeline]
    shown = [s for s in exported_series(current.snapshot) if s.pipeline == pipeline and s.window == window]
    thresholds = {gate["metric"]: gate["threshold"] for gate in gates if gate["metric"] in _keys(shown)}
    return render(
        "pipeline.html.jinja",
        root=ROOT,
        title=f"ragmon: {pipeline} {_verdicts(gates)}",
        refresh=REFRESH,
        now=status["now"],
        version=status["version"],
        here=label(pipeline),
        gates=gates,
        windows=windows,
        window=window,
        span=history.span.words,
        sections=_sections(shown, current.snapshot, history, thresholds),
        latency=list(_latency(shown)),
        traffic=list(_traffic(shown, current, pipeline, history)),
        documents=list(_documents(current, pipeline)),
        builds=[(build, index) for name, build, index in current.builds if name == pipeline],
    )


def usual_window(gates: Sequence[Mapping[str, Any]], pipeline: str, windows: Sequence[str]) -> str:
    """The window of most gates of a pipeline; the first of all where it has none."""
    used = Counter(gate["window"] for gate in gates if gate["pipeline"] == pipeline and gate["window"] in windows)
    return used.most_common(1)[0][0] if used else windows[0]


def _verdicts(gates: Sequence[Mapping[str, Any]]) -> str:
    """The state of a pipeline in a few words."""
    failing, firing = (sum(test(gate) for gate in gates) for test in (_fails, _fires))
    alarms = f", {firing} {'alarm fires' if firing == 1 else 'alarms fire'}" if firing else ""
    return f"fails {failing} of {len(gates)} gates{alarms}"


def _fails(gate: Mapping[str, Any]) -> bool:
    return bool(gate["verdict"] == "fail")


def _fires(gate: Mapping[str, Any]) -> bool:
    return gate["firing"] is not None


def _keys(shown: Sequence[SeriesStats]) -> set[str]:
    return {key for series in shown for key in series.metrics}


def _sections(
    shown: Sequence[SeriesStats], snapshot: Snapshot, history: PipelineHistory, thresholds: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The metrics by section. Cuts that no gate is on are apart: there are many of them."""
    sections: dict[str, dict[str, Any]] = {name: {"name": name, "rows": [], "cuts": []} for name in SECTIONS}
    for series in shown:
        for key, stat in exported_metrics(series, snapshot):
            estimate = series.estimate(key)
            if estimate.value is None:
                continue
            place = "cuts" if "@" in key and key not in thresholds else "rows"
            row = {
                "key": key,
                "help": _help(key),
                "source": f"{series.source}, {series.gold}" if series.gold else series.source,
                "value": f"{estimate.value:.3f}",
                "interval": f"{estimate.lower:.3f} to {estimate.upper:.3f}",
                "n": estimate.n,
                "unassessed": by_reason(stat.unassessed),
                "line": history.metric((series.source, series.gold), key, thresholds.get(key)),
            }
            sections[_section(key, series)][place].append(row)
    for section in sections.values():
        section["rows"].sort(key=lambda row: row["key"])
    return [section for section in sections.values() if section["rows"] or section["cuts"]]


def _section(key: str, series: SeriesStats) -> str:
    """The section of a metric."""
    if key.startswith(JUDGE_PREFIX) or is_labelled(key):
        return "Judges and people"
    if key in REFUSALS:
        return "Refusals"
    area = {"answers": "Answers", "retrieval": "Retrieval", "traffic": "Traffic"}[parse(key).area]
    return f"{area}, judged against gold" if series.gold and area != "Traffic" else area


def _help(key: str) -> str:
    """What a metric is, in a sentence."""
    return judged(key.removeprefix(JUDGE_PREFIX))().help if key.startswith(JUDGE_PREFIX) else parse(key).help


def _latency(shown: Sequence[SeriesStats]) -> Iterator[dict[str, Any]]:
    """Latency quantiles by source and stage, milliseconds."""
    stages = [
        (series.source, stage, histogram, [quantile(histogram, q) or 0.0 for q in QUANTILES])
        for series in shown
        if not series.gold
        for stage, histogram in sorted(series.latency.items())
        if histogram
    ]
    longest = max((values[1] for *_, values in stages), default=0.0) or 1.0
    for source, stage, histogram, values in stages:
        yield {
            "source": source,
            "stage": stage,
            "n": sum(histogram.values()),
            "quantiles": [f"{value:,.0f}" for value in values],
            "bar": share_bar(values[1] / longest, "bar"),
        }


def _traffic(
    shown: Sequence[SeriesStats], current: MonitorSnapshot, pipeline: str, history: PipelineHistory
) -> Iterator[dict[str, Any]]:
    """Records in the window by source, and all calls that capture counted since it began."""
    calls: dict[str, Counter[str]] = {}
    for (name, source, stratum), n in current.captured.calls.items():
        if name == pipeline:
            calls.setdefault(source, Counter())[stratum or "all"] += n
    records = {series.source: series for series in shown if not series.gold}
    for source in [name for name in constants.SOURCES if name in {*calls, *records}]:
        series = records.get(source)
        yield {
            "source": source,
            "records": 0 if series is None else series.records,
            "of": "" if series is None else series.of,
            "calls": sum(calls.get(source, Counter()).values()),
            "strata": by_reason(calls.get(source, {})),
            "line": history.records((source, "")),
        }


def _documents(current: MonitorSnapshot, pipeline: str) -> Iterator[dict[str, Any]]:
    """How many requests retrieved how many documents, since the monitor began to count."""
    counts: Counter[int] = Counter()
    for (name, source), by_number in current.retrieved.items():
        if name == pipeline and source not in constants.ALSO_LIVE_SOURCES:
            for number, n in by_number.items():
                counts[min(number, MOST_DOCUMENTS)] += n
    total = sum(counts.values())
    for number, n in sorted(counts.items()):
        words = f"{number} or more" if number == MOST_DOCUMENTS else str(number)
        yield {"number": words, "n": n, "share": f"{n / total:.1%}", "bar": share_bar(n / total, "bar")}
