"""How a server fares, as Prometheus series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ragmon.core import series_names
from ragmon.core.series_names import label
from ragmon.reading import Served


def families(served: Served) -> Iterator[Metric]:
    """What a server turned away, lost sight of, and could not do."""
    yield _counter(series_names.REFUSED, "Requests that were turned away", "reason", served.refused)
    yield _counter(series_names.PRODUCER_DROPPED, "Records that producers lost", "reason", served.lost)
    unknown = CounterMetricFamily(
        series_names.FIELDS_UNKNOWN,
        "Fields that spans of other instrumentations do not tell",
        labels=("field", "reason"),
    )
    for key, n in sorted(served.unknown.items()):
        unknown.add_metric([label(text) for text in key], n)
    yield unknown
    probes = CounterMetricFamily(
        series_names.PROBES, "Gold questions that were due, and what became of them", labels=("probe", "result")
    )
    for (probe, result), n in sorted(served.probes.items()):
        probes.add_metric((label(probe), result), n)
    yield probes
    own = "Applications' own records of probes, and whether the reply came too"
    yield _counter(series_names.PROBE_RECORDS, own, "result", served.probed)
    resets = CounterMetricFamily(series_names.STATE_RESETS, "Damaged journals that were set aside")
    resets.add_metric((), served.resets)
    jumps = CounterMetricFamily(series_names.CLOCK_JUMPS, "Jumps of the system's clock")
    jumps.add_metric((), served.jumps)
    missing = GaugeMetricFamily(series_names.PRODUCER_MISSING, "Records that were sent and have not come")
    missing.add_metric((), served.missing)
    size = GaugeMetricFamily(series_names.JOURNAL_BYTES, "Bytes of the journal")
    size.add_metric((), served.size)
    writable = GaugeMetricFamily(series_names.JOURNAL_WRITABLE, "Whether the journal can be written")
    writable.add_metric((), float(not served.trouble))
    yield from (resets, jumps, missing, size, writable)


def _counter(name: str, says: str, by: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, says, labels=(by,))
    for key, n in sorted(counts.items()):
        family.add_metric((label(key),), n)
    return family
