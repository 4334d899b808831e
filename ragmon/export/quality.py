"""The quality metrics as Prometheus series: gauges per window for people, counters that add up over replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ragmon import metrics, stats
from ragmon.export.labels import label
from ragmon.gates import LABELLED, Outcome
from ragmon.metrics.judged import judged
from ragmon.names import JUDGE_PREFIX, LABEL
from ragmon.pairs import METRIC, Prediction
from ragmon.scores import Stat
from ragmon.snapshot import ALL, SeriesStats, Snapshot

_WINDOWED: Final = ("pipeline", "source", "gold", "window")
_COUNTED: Final = ("pipeline", "source", "gold", "gold_version")
_SLICED: Final = ("pipeline", "metric", "source", "slice")
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
        cut = ("k",) if family.at_k else ()
        self._at_k = family.at_k
        self._gauges = [
            GaugeMetricFamily(f"rag_{name}", help_, labels=(*_WINDOWED, *cut)),
            GaugeMetricFamily(
                f"rag_{name}_lower",
                f"Lower 95 % bound of rag_{name}",
                labels=(*_WINDOWED, *cut),
            ),
            GaugeMetricFamily(
                f"rag_{name}_upper",
                f"Upper 95 % bound of rag_{name}",
                labels=(*_WINDOWED, *cut),
            ),
            GaugeMetricFamily(f"rag_{name}_samples", f"Scored requests in rag_{name}", labels=(*_WINDOWED, *cut)),
        ]
        self._counters = [
            CounterMetricFamily(f"rag_{name}_score", f"Sum of the scores of rag_{name}", labels=(*_COUNTED, *cut)),
            CounterMetricFamily(f"rag_{name}_scored", f"Requests scored by rag_{name}", labels=(*_COUNTED, *cut)),
        ]
        if name not in _BINARY:
            squares = f"Sum of the squared scores of rag_{name}"
            self._counters.append(CounterMetricFamily(f"rag_{name}_score_squares", squares, labels=(*_COUNTED, *cut)))

    def add(self, series: SeriesStats, k: str, key: str, stat: Stat) -> None:
        """Add what one series says of the metric, unless it says nothing.

        Gauges tell of all calls where they are known; counters count audit members, which add up over replicas.
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
    for series in snapshot.series:
        if not series.slice:
            for key, stat in _own(series, snapshot):
                name, _, k = key.partition("@")
                found[name].add(series, k, key, stat)
    for family in found.values():
        yield from family


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
    says = f"of rag_{METRIC} from labels and a proxy (prediction-powered)"
    value = GaugeMetricFamily(f"rag_{METRIC}_ppi", f"Estimate {says}", labels=_WINDOWED)
    lower = GaugeMetricFamily(f"rag_{METRIC}_ppi_lower", f"Lower 95 % bound {says}", labels=_WINDOWED)
    upper = GaugeMetricFamily(f"rag_{METRIC}_ppi_upper", f"Upper 95 % bound {says}", labels=_WINDOWED)
    gain = GaugeMetricFamily(
        "ragmon_proxy_gain",
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
    """The gated metrics of every slice, over all time; gold sets are added up, they have no label here."""
    gated = {(outcome.gate.pipeline, outcome.gate.metric) for outcome in outcomes}
    sums: dict[tuple[str, str, str, str], tuple[int, int]] = {}
    for series in snapshot.series:
        if not series.slice or series.window != ALL:
            continue
        for key, stat in _own(series, snapshot):
            if stat.n and (series.pipeline, key) in gated:
                labels = (label(series.pipeline), key, series.source, label(series.slice))
                total, n = sums.get(labels, (0, 0))
                sums[labels] = (total + stat.sum, n + stat.n)
    score = CounterMetricFamily("rag_slice_score", "Sum of a metric's scores in a slice", labels=_SLICED)
    scored = CounterMetricFamily("rag_slice_scored", "Requests a metric scored in a slice", labels=_SLICED)
    for labels, (total, n) in sums.items():
        score.add_metric(labels, total / stats.MICRO)
        scored.add_metric(labels, n)
    yield from (score, scored)
