"""The quality metrics as Prometheus series: gauges per window for people, counters that add up over replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ragmon import metrics, stats
from ragmon.core import series_names
from ragmon.core.constants import JUDGE_PREFIX, LABEL
from ragmon.core.policy import LABELLED, Outcome
from ragmon.core.series_names import label
from ragmon.gates.evaluate import bounds
from ragmon.metrics.base import judged
from ragmon.scoring.predictions import METRIC, Prediction
from ragmon.scoring.score_table import Stat
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot

_WINDOWED: Final = ("pipeline", "source", "gold", "window")
_COUNTED: Final = ("pipeline", "source", "gold", "gold_version")
_SLICED: Final = ("pipeline", "metric", "source", "slice", "gold", "gold_version")
_WHICH: Final = "; with gold, estimand gold_set (ragmon_gold_lower and ragmon_gold_upper have both)"
_BINARY: Final = frozenset(
    {
        "answer_precision",
        "answer_precision_cited",
        "answered_within",
        "citation_hit_rate",
        "citation_hit_rate_answerable",
        "citation_scope",
        "claim_containment",
        "compliance",
        "coverage",
        "empty_retrieval_rate",
        "error_rate",
        "full_recall",
        "grounded_rate",
        "hit_rate",
        "over_refusal_rate",
        "refusal_like_rate",
        "refusal_rate",
        "under_refusal_rate",
    }
)
"""Metrics whose scores are 0 or 1, and their own squares."""


class _Family:
    """The series of one metric name.

    Args:
        family: The metric class.
    """

    def __init__(self, family: type[metrics.Metric]) -> None:
        name, help_ = family.name, family().help
        shown = f"{series_names.PREFIX}{name}"
        cut = ("k",) if family.at_k else ()
        self._at_k = family.at_k
        windowed, counted = (*_WINDOWED, *cut), (*_COUNTED, *cut)
        told = {
            shown: help_,
            f"{shown}{series_names.LOWER}": f"Lower 95 % bound of {shown}{_WHICH}",
            f"{shown}{series_names.UPPER}": f"Upper 95 % bound of {shown}{_WHICH}",
            f"{shown}{series_names.SAMPLES}": f"Scored requests in {shown}",
        }
        sums = {
            f"{shown}{series_names.SCORE}": f"Sum of the scores of {shown}",
            f"{shown}{series_names.SCORED}": f"Requests scored by {shown}",
        }
        if name not in _BINARY:
            sums[f"{shown}{series_names.SQUARES}"] = f"Sum of the squared scores of {shown}"
        self._gauges = [GaugeMetricFamily(name, says, labels=windowed) for name, says in told.items()]
        self._counters = [CounterMetricFamily(name, says, labels=counted) for name, says in sums.items()]

    def add(self, series: SeriesStats, k: str, key: str, stat: Stat) -> None:
        """Add what one series says of the metric, unless it says nothing.

        Gauges tell of all calls where they are known; counters count audit members, which add up over replicas.

        Args:
            series: The series.
            k: The metric's cut; "" where it has none.
            key: The metric.
            stat: What the series says of it.
        """
        found = series.estimate(key)
        if found.value is None:
            return
        labels = [label(series.pipeline), series.source, label(series.gold)]
        cut = [k] if self._at_k else []
        if series.window == ALL:
            sums = (stat.sum / stats.MICRO, stat.n, stat.squares / stats.MICRO**2)
            if not stat.n:
                return
            for counter, number in zip(self._counters, sums, strict=False):
                counter.add_metric([*labels, series.gold_version, *cut], number)
        else:
            for gauge, number in zip(self._gauges, (found.value, found.lower, found.upper, found.n), strict=True):
                gauge.add_metric([*labels, label(series.window), *cut], number)

    def __iter__(self) -> Iterator[Metric]:
        yield from self._gauges
        yield from self._counters


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Every metric: gauges per window, counters over all time."""
    seen = {key for series in snapshot.series for key in series.metrics if key.startswith(JUDGE_PREFIX)}
    judges = {name: judged(name.removeprefix(JUDGE_PREFIX)) for name in seen}  # a name in ragmon.toml makes a metric
    found = {name: _Family(family) for name, family in sorted({**judges, **metrics.families()}.items())}
    versions = _Versions(snapshot)
    for series in snapshot.series:
        if not series.slice and versions.show(series):
            for key, stat in _own(series, snapshot):
                name, _, k = key.partition("@")
                found[name].add(series, k, key, stat)
    for family in found.values():
        yield from family


class _Versions:
    """Which versions of the gold sets are shown: gauges of the one in force, counters as long as a window has it.

    Args:
        snapshot: What was counted.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._present = {(gold.name, gold.version) for gold in snapshot.golds}
        self._windowed = {(one.gold, one.gold_version) for one in snapshot.series if one.window != ALL}

    def show(self, series: SeriesStats) -> bool:
        """Whether a series is exported."""
        version = (series.gold, series.gold_version)
        if not series.gold_version:  # no gold, or labels, which have no versions
            return True
        return version in self._present or (series.window == ALL and version in self._windowed)


def estimands(snapshot: Snapshot) -> Iterator[Metric]:
    """Both intervals of every gated metric over the gold sets in force, each under the name of what it is about."""
    labels = ("pipeline", "metric", "source", "gold", "window", "estimand")
    about = "gold_set: these very items; questions_like_these: what they stand for, items as observations"
    families = (
        GaugeMetricFamily(series_names.GOLD_LOWER, f"Lower 95 % bound of a gold metric ({about})", labels=labels),
        GaugeMetricFamily(series_names.GOLD_UPPER, f"Upper 95 % bound of a gold metric ({about})", labels=labels),
        GaugeMetricFamily(series_names.GOLD_N_EFF, f"How many plain samples it is worth ({about})", labels=labels),
    )
    present = {(gold.name, gold.version) for gold in snapshot.golds}
    for series in snapshot.series:
        replaced = series.gold_version and (series.gold, series.gold_version) not in present
        if series.slice or series.window == ALL or replaced:
            continue
        for metric in series.clusters:
            where = (label(series.pipeline), metric, series.source, label(series.gold), label(series.window))
            for estimand, found in bounds(series, metric).items():
                for family, number in zip(families, found, strict=True):
                    family.add_metric((*where, estimand), number)
    yield from families


def _own(series: SeriesStats, snapshot: Snapshot) -> Iterator[tuple[str, Stat]]:
    """The metrics a series speaks for: with gold those that need it, without gold all others.

    Labels without gold speak of what people said alone: of which answers they did so is no sample of anything else.
    """
    for key, stat in series.metrics.items():
        spoken = series.source != LABEL or series.gold or key in LABELLED
        if spoken and (key in snapshot.gold_metrics) == bool(series.gold):
            yield key, stat


def predicted(told: Sequence[Prediction]) -> Iterator[Metric]:
    """What labels and a proxy say together: the estimate with its interval, and how much the proxy helps."""
    shown = f"{series_names.PREFIX}{METRIC}{series_names.PPI}"
    says = f"of {series_names.PREFIX}{METRIC} from labels and a proxy (prediction-powered)"
    value = GaugeMetricFamily(shown, f"Estimate {says}", labels=_WINDOWED)
    lower = GaugeMetricFamily(f"{shown}{series_names.LOWER}", f"Lower 95 % bound {says}", labels=_WINDOWED)
    upper = GaugeMetricFamily(f"{shown}{series_names.UPPER}", f"Upper 95 % bound {says}", labels=_WINDOWED)
    gain = GaugeMetricFamily(
        series_names.PROXY_GAIN,
        "How many labels each label is worth beside this proxy",
        labels=("pipeline", "window", "proxy"),
    )
    for one in told:
        here = (label(one.pipeline), LABEL, "", label(one.window))
        found = one.told
        if found.value is not None and found.gain is not None:
            for family, number in ((value, found.value), (lower, found.lower), (upper, found.upper)):
                family.add_metric(here, number)
            gain.add_metric((label(one.pipeline), label(one.window), one.proxy), found.gain)
    yield from (value, lower, upper, gain)


def slices(snapshot: Snapshot, outcomes: Sequence[Outcome]) -> Iterator[Metric]:
    """The gated metrics of every slice, over all time."""
    gated = {(outcome.gate.pipeline, outcome.gate.metric) for outcome in outcomes}
    versions = _Versions(snapshot)
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    for series in snapshot.series:
        if not series.slice or series.window != ALL or not versions.show(series):
            continue
        golden = (label(series.gold), series.gold_version)
        for key, stat in _own(series, snapshot):
            if stat.n and (series.pipeline, key) in gated:
                labels: tuple[str, ...] = (label(series.pipeline), key, series.source, label(series.slice), *golden)
                total, n = sums.get(labels, (0, 0))  # labels of long names are cut, and may be the same
                sums[labels] = (total + stat.sum, n + stat.n)
    score = CounterMetricFamily(series_names.SLICE_SCORE, "Sum of a metric's scores in a slice", labels=_SLICED)
    scored = CounterMetricFamily(series_names.SLICE_SCORED, "Requests a metric scored in a slice", labels=_SLICED)
    for labels, (total, n) in sums.items():
        score.add_metric(labels, total / stats.MICRO)
        scored.add_metric(labels, n)
    yield from (score, scored)
