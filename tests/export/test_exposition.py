"""The body of `/metrics` is what prometheus_client writes, byte for byte, in every format, page after page."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import Exemplar, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder

from ragmon.core.series_names import Family, SeriesScope
from ragmon.export.exposition import FORMATS, CounterRows, Exposition, ExpositionWriter, GaugeRows
from tests.support.examples import cases

ACCEPTS = (
    "",
    "text/plain; version=0.0.4",
    "text/plain; version=1.0.0; escaping=allow-utf-8",
    "application/openmetrics-text",
    "application/openmetrics-text; version=1.0.0",
    "application/openmetrics-text; version=1.0.0; escaping=dots",
    "application/openmetrics-text; version=1.0.0; escaping=values",
    "application/openmetrics-text; version=2.0.0; escaping=allow-utf-8",
)
GAUGE = Family("rag_some", 'HELP with "quotes" \\ and\na second line', SeriesScope.MONITOR, ("z", "a"))
COUNTER = Family("rag_calls_total", "Calls", SeriesScope.MONITOR, ("a",))
ONE_LABEL = Family("rag_items", "Items", SeriesScope.MONITOR, ("a",))
ALONE = Family("rag_alone", "One number", SeriesScope.MONITOR)
texts = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ('"', "\\", "a b", "x\n", "\u2028", "# EOF\n")
)
numbers = st.floats(allow_nan=True) | st.integers(0, 10**18).map(float) | st.sampled_from((1e21, 0.1, -0.0, 3e-7))


class Shown:
    """A collector of given families."""

    def __init__(self, families):
        self._families = families

    def describe(self):
        return ()

    def collect(self):
        return self._families


def client_page(families, accept):
    """What the client alone writes."""
    registry = CollectorRegistry()
    registry.register(Shown(families))
    return choose_encoder(accept)[0](registry)


def histogram(counts, exemplar=None):
    family = HistogramMetricFamily("rag_seconds", "Seconds", labels=("a",))
    for label, n in counts.items():
        buckets = [("0.5", float(n)), ("+Inf", float(n + 1))]
        if exemplar is not None:
            buckets[0] = (*buckets[0], Exemplar({"trace_id": exemplar}, 0.25, 17.5))
        family.add_metric((label,), buckets, n / 3)
    return family


@st.composite
def pages(draw):
    """Families of every kind."""
    gauge, counter = GaugeRows(GAUGE), CounterRows(COUNTER)
    for labels in draw(st.lists(st.tuples(texts, texts), max_size=5, unique=True)):
        gauge.add_metric(labels, draw(numbers))
    for label in draw(st.lists(texts, max_size=3, unique=True)):
        counter.add_metric((label,), draw(numbers))
    exemplar = draw(st.none() | st.just('4b"f9'))
    counts = draw(st.dictionaries(texts, st.integers(0, 10**7), max_size=3))
    return [gauge, counter, GaugeRows(ALONE, draw(numbers)), histogram(counts, exemplar)]


@pytest.mark.parametrize("accept", ACCEPTS)
@settings(max_examples=cases(40), deadline=None, derandomize=True)
@given(st.lists(pages(), min_size=1, max_size=3))
def test_every_page_is_what_the_client_writes(accept, shown):
    """Page after page with the same writer: what it kept of a page must not show in the next."""
    writer = ExpositionWriter(choose_encoder(accept)[0])
    for families in shown:
        assert writer.write(families) == client_page(families, accept)


def test_a_page_is_written_again_only_when_the_data_changed():
    numbers, version = iter((1.0, 2.0)), [0]
    exposition = Exposition(lambda: [GaugeRows(ALONE, next(numbers))], lambda: version[0])
    assert exposition.page("")[0].endswith(b"rag_alone 1.0\n")
    assert exposition.page("")[0].endswith(b"rag_alone 1.0\n")
    version[0] = 1
    assert exposition.page("")[0].endswith(b"rag_alone 2.0\n")


def test_series_that_go_come_back_and_change_places_keep_their_labels_and_numbers():
    """What is kept of a page may be of other series than the next one has."""
    names = [["a", "b"], ["b"], ["b", "a"], [], ["c", "b", "a"], ["a", "c", "b"], ["d", "e", "f"]]
    number = itertools.count(1)
    pages = [[(name, float(next(number))) for name in page] for page in names]
    moment = [0]

    def families():
        family = GaugeRows(ONE_LABEL)
        for name, value in pages[moment[0]]:
            family.add_metric((name,), value)
        return [family]

    exposition = Exposition(families, lambda: moment[0])
    for moment[0], page in enumerate(pages):
        lines = [line for line in exposition.page("")[0].decode().splitlines() if not line.startswith("#")]
        assert lines == [f'{ONE_LABEL}{{a="{name}"}} {value}' for name, value in page]


def test_who_asks_for_a_thousand_versions_of_a_format_fills_no_memory():
    exposition = Exposition(lambda: [GaugeRows(ALONE, 1.0)], lambda: 0)
    for version in range(1000):
        accept = f"application/openmetrics-text; version=1.0.{version}"
        assert f"version=1.0.{version};" in exposition.page(accept)[1]
    assert len(exposition._cached) <= FORMATS
    assert len(exposition._writers) <= FORMATS


def test_an_unreadable_header_gets_the_oldest_format():
    exposition = Exposition(lambda: [GaugeRows(ALONE, 1.0)], lambda: 0)
    body, content_type = exposition.page("application/openmetrics-text; version=x.y")
    assert body.endswith(b"rag_alone 1.0\n")
    assert content_type.startswith("text/plain; version=0.0.4")
