"""`/metrics`: one collector that reads one moment of the monitor whenever Prometheus asks.

Ratios that add up over replicas are the counters; the gauges are for people. A metric without data has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ragmon import stats
from ragmon.export.books import families as book_families
from ragmon.export.verdicts import families as gate_families
from ragmon.metrics.base import families as metric_families
from ragmon.reading import Reading
from ragmon.scores import Stat
from ragmon.snapshot import ALL, SeriesStats

LATENCY_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper bounds in seconds of the exported latency buckets."""
_LABELS = ("pipeline", "source", "gold", "window")
_COUNTER_LABELS = ("pipeline", "source", "gold", "gold_version")


class Collector:
    """A prometheus_client collector over readings of the monitor.

    Args:
        read: Takes a reading.
    """

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering the collector must not take a reading."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All series of this moment."""
        reading = self._read()
        yield from quality(reading)
        yield from requests(reading)
        yield from gate_families(reading.outcomes)
        yield from book_families(reading)


def label(text: str) -> str:
    """A label value Prometheus can always render: valid UTF-8, at most 128 characters."""
    return text.encode("utf-8", "replace").decode("utf-8")[:128]


def _exported(series: SeriesStats, needs_gold: bool) -> bool:
    """Metrics with gold are exported per gold set, the others over all requests; slices have series of their own."""
    return not series.slice and needs_gold == bool(series.gold)


def quality(reading: Reading) -> Iterator[Metric]:
    """The quality metrics: gauges per window, counters over all time."""
    for name, family in sorted(metric_families().items()):
        text = (family.__doc__ or name).strip().splitlines()[0]
        cut = ("k",) if family.at_k else ()
        gauges = [
            GaugeMetricFamily(f"rag_{name}", text, labels=(*_LABELS, *cut)),
            GaugeMetricFamily(f"rag_{name}_lower", f"Lower 95 % bound of rag_{name}", labels=(*_LABELS, *cut)),
            GaugeMetricFamily(f"rag_{name}_upper", f"Upper 95 % bound of rag_{name}", labels=(*_LABELS, *cut)),
            GaugeMetricFamily(f"rag_{name}_samples", f"Requests in rag_{name}", labels=(*_LABELS, *cut)),
        ]
        counters = [
            CounterMetricFamily(f"rag_{name}_score", f"Sum of scores of rag_{name}", labels=(*_COUNTER_LABELS, *cut)),
            CounterMetricFamily(
                f"rag_{name}_scored", f"Requests scored by rag_{name}", labels=(*_COUNTER_LABELS, *cut)
            ),
        ]
        for series, k, stat in _of_family(reading, name, needs_gold=family.needs_gold):
            at = (k,) if family.at_k else ()
            if series.window == ALL:
                labels = (label(series.pipeline), series.source, label(series.gold), series.gold_version, *at)
                counters[0].add_metric(labels, stat.sum / stats.MICRO)
                counters[1].add_metric(labels, stat.n)
            elif (value := stat.value) is not None and (interval := stat.interval) is not None:
                labels = (label(series.pipeline), series.source, label(series.gold), series.window, *at)
                for gauge, number in zip(gauges, (value, *interval, stat.n), strict=True):
                    gauge.add_metric(labels, number)
        yield from (metric for metric in (*gauges, *counters) if metric.samples)


def _of_family(reading: Reading, name: str, *, needs_gold: bool) -> Iterator[tuple[SeriesStats, str, Stat]]:
    for series in reading.snapshot.series:
        if _exported(series, needs_gold):
            for key, stat in series.metrics.items():
                found, _, k = key.partition("@")
                if found == name:
                    yield series, k, stat


def requests(reading: Reading) -> Iterator[Metric]:
    """Requests and latency."""
    calls = CounterMetricFamily("rag_requests", "All calls, sampled or not", labels=("pipeline", "source", "stratum"))
    errors = CounterMetricFamily("rag_errors", "Calls that ended in an error", labels=("pipeline", "code"))
    for (pipeline, source, stratum), n in sorted(reading.calls.items()):
        calls.add_metric((label(pipeline), source, stratum), n)
        if stratum == "error":
            errors.add_metric((label(pipeline), "error"), n)
    whole = HistogramMetricFamily("rag_e2e_latency_seconds", "Latency of calls", labels=("pipeline", "source"))
    stage = HistogramMetricFamily(
        "rag_stage_latency_seconds", "Latency of stages", labels=("pipeline", "source", "stage")
    )
    for series in reading.snapshot.series:
        if series.window != ALL or series.slice or series.gold:
            continue
        for name, histogram in sorted(series.latency.items()):
            buckets, total = _buckets(histogram)
            labels = (label(series.pipeline), series.source)
            if name == "total":
                whole.add_metric(labels, buckets, total)
            else:
                stage.add_metric((*labels, name), buckets, total)
    yield from (metric for metric in (calls, errors, whole, stage) if metric.samples)


def _buckets(histogram: dict[int, int] | object) -> tuple[list[tuple[str, float]], float]:
    """Cumulative Prometheus buckets in seconds, and the sum, from log buckets of milliseconds."""
    assert isinstance(histogram, dict)  # noqa: S101 - what the snapshot holds
    counts = [(stats.bucket_value(index) / 1000, n) for index, n in histogram.items()]
    cumulative = [(str(bound), float(sum(n for seconds, n in counts if seconds <= bound))) for bound in LATENCY_BOUNDS]
    cumulative.append(("+Inf", float(sum(n for _, n in counts))))
    return cumulative, sum(seconds * n for seconds, n in counts)
