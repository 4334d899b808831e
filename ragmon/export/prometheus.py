"""`/metrics`: one collector that reads one moment of the monitor whenever Prometheus asks.

Ratios that add up over replicas are the counters; the gauges are for people. A metric without data has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from ragmon import exposition
from ragmon.export import books, quality, served, traffic, verdicts
from ragmon.reading import Reading


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
        """All series of this moment, and how many there are."""
        series = GaugeMetricFamily(exposition.SERIES, "Prometheus series of this scrape")
        count = 1
        for family in families(self._read()):
            count += len(family.samples)
            yield family
        series.add_metric((), count)
        yield series


def families(reading: Reading) -> Iterator[Metric]:
    """Every family that has a sample: quality, slices, traffic, gates, the monitor's books."""
    for part in (
        quality.families(reading.snapshot),
        quality.estimands(reading.snapshot),
        quality.slices(reading.snapshot, reading.outcomes),
        quality.predicted(reading.predictions),
        traffic.families(reading),
        verdicts.families(reading.outcomes),
        verdicts.alarms(reading.alarms),
        books.families(reading),
        () if reading.served is None else served.families(reading.served),
    ):
        yield from (family for family in part if family.samples)
