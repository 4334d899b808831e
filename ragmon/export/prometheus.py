"""`/metrics`: one collector that reads one moment of the monitor whenever Prometheus asks.

Ratios that add up over replicas are the counters; the gauges are for people. A metric without data has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from ragmon.core import series_names
from ragmon.export import books, quality, served, traffic, verdicts
from ragmon.reading import Reading


class Collector:
    """A prometheus_client collector over readings of the monitor.

    Args:
        read: Takes a reading.
        moment: What a reading depends on: as long as it is equal, the series of the last reading are given again. None
            takes a reading each time.
    """

    def __init__(self, read: Callable[[], Reading], moment: Callable[[], object] | None = None) -> None:
        self._read = read
        self._moment = moment
        self._held: tuple[object, list[Metric]] | None = None

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering the collector must not take a reading."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All series of this moment, and how many there are."""
        if self._moment is None:
            return self._collect()
        moment = self._moment()
        if self._held is None or self._held[0] != moment:
            self._held = (moment, self._collect())
        return self._held[1]

    def _collect(self) -> list[Metric]:
        found = list(families(self._read()))
        series = GaugeMetricFamily(series_names.SERIES, "Prometheus series of this scrape")
        series.add_metric((), 1 + sum(len(family.samples) for family in found))
        return [*found, series]


class Exposition:
    """What `/metrics` answers, made anew when something changed since the last scrape in the same format.

    Args:
        read: Takes a reading.
        moment: What a reading depends on.
    """

    def __init__(self, read: Callable[[], Reading], moment: Callable[[], object]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(Collector(read, moment))
        self._moment = moment
        self._held: dict[str, tuple[object, bytes]] = {}

    def page(self, accept: str) -> tuple[bytes, str]:
        """The series of this moment, and their content type.

        Args:
            accept: The formats that are understood, as the header says; the oldest one where it says nothing.
        """
        try:
            encode, kind = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is none
            encode, kind = choose_encoder("")
        moment = self._moment()
        held = self._held.get(kind)
        if held is None or held[0] != moment:
            held = self._held[kind] = (moment, encode(self._registry))
        return held[1], kind


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
