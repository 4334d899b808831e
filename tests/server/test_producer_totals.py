"""The sums of what producers report are those of the latest totals of each, whatever was reported in between."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core.record import Totals
from ragmon.monitor import producers
from ragmon.monitor.producers import ProducerTotals
from tests.support.examples import cases
from tests.support.saved import saved

counts = st.integers(0, 9)
totals = st.builds(
    Totals,
    ts=st.just(0.0),
    instance=st.sampled_from(("a", "b", "c", producers.GONE)),
    started=st.sampled_from((0.0, 5.0)),
    pipeline=st.sampled_from(("support", "sales")),
    source=st.sampled_from(("live", "probe")),
    stratum=st.sampled_from(("rest", "slow")),
    calls=counts,
    kept=counts,
    dropped=st.dictionaries(st.sampled_from(("queue_full", "other", "what?")), counts),
    latency_ms=st.dictionaries(st.integers(0, 4), counts),
)
"""Also of producers that lower a count or leave one out, and of one that has the name of those that are gone."""


def walked(seen):
    """Calls, latency, losses and kept calls, of the latest totals of each producer."""
    calls, latency, dropped, kept = Counter(), {}, Counter(), 0
    for key, last in seen.last.items():
        calls[key.pipeline, key.source, key.stratum] += last.calls
        latency.setdefault((key.pipeline, key.source), Counter()).update(last.latency)
        dropped.update(last.dropped)
        kept += last.kept
    return calls, {key: +histogram for key, histogram in latency.items() if +histogram}, +dropped, kept


def without_zeros(histograms):
    return {key: +Counter(histogram) for key, histogram in histograms.items() if any(histogram.values())}


def agree(seen):
    calls, latency, dropped, kept = walked(seen)
    assert seen.calls() == calls
    assert without_zeros(seen.latency()) == latency
    assert +seen.dropped() == dropped
    assert seen.missing(3) == max(0, kept - dropped.total() - 3)


@settings(max_examples=cases(200), deadline=None)
@given(st.lists(totals, max_size=25), st.integers(0, 2**32 - 1).map(Random))
def test_sums_are_those_of_the_latest_totals(lines, chance):
    """Also once silent producers were added up, and in a state that was saved and loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producers, "MOST", 3)
        seen, now = ProducerTotals(), 0.0
        for one in lines:
            now += chance.choice((1.0, 3600.0, 40_000.0))
            seen.see(one, now)
            if chance.random() < 0.1:
                seen = saved(seen)
            agree(seen)


def test_what_is_read_is_a_copy():
    """A reader that changes it changes no sum."""
    seen = ProducerTotals()
    line = Totals(ts=0.0, instance="a", started=0.0, pipeline="p", source="live", calls=2, latency_ms={1: 2})
    seen.see(line, 0.0)
    seen.calls().clear()
    seen.latency()["p", "live"].clear()
    seen.dropped()["other"] = 7
    agree(seen)
    assert seen.latency() == {("p", "live"): {1: 2}}
