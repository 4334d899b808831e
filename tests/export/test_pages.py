"""The charts of pages: what is drawn is where the numbers say, and nothing that comes from requests becomes markup."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.export.charts import (
    INTERVAL_WIDTH,
    SPARKLINE_WIDTH,
    ChartPoint,
    Tick,
    flow_bands,
    flow_chart,
    interval_bar,
    round_ticks,
    sparkline,
    stacked_bar,
    stretches,
    tick_strip,
    time_chart,
)
from ragmon.export.pages import environment
from ragmon.export.status import StageCounters
from ragmon.gates.history import GateHistory, GatePoint, TimeSpan
from tests.support import vendored

SVG = "{http://www.w3.org/2000/svg}"
HOUR = TimeSpan("1h", "last hour", 3600, 60)
shares = st.floats(0, 1)


@given(st.tuples(shares, shares, shares).map(sorted), shares, st.booleans())
def test_an_interval_is_on_the_side_of_the_threshold_where_its_numbers_are(interval, threshold, at_least):
    lower, value, upper = interval
    drawn = ET.fromstring(interval_bar(value, lower, upper, threshold=threshold, at_least=at_least, verdict="pass"))
    middle = INTERVAL_WIDTH / 2
    good, bar = drawn.findall(f"{SVG}rect")
    (point,) = drawn.findall(f"{SVG}circle")
    left, width = float(bar.get("x")), float(bar.get("width"))
    rounding = 0.06
    assert left >= 0
    assert left + width <= INTERVAL_WIDTH + 1
    assert lower >= threshold or left <= middle + rounding
    assert upper <= threshold or left + width >= middle - rounding
    assert (float(point.get("cx")) >= middle - rounding) or value <= threshold
    assert float(good.get("x")) == (middle if at_least else 0)


def test_a_line_breaks_where_nothing_was_scored():
    values = [0.9, 0.8, None, None, 0.7, 0.6, 0.7]
    points = [ChartPoint(60.0 * k, value) for k, value in enumerate(values)]
    drawn = ET.fromstring(sparkline(points, begin=0, threshold=0.8, name="recall"))
    assert [len(line.get("points").split()) for line in drawn.findall(f"{SVG}polyline")] == [2, 3]
    assert [len(run) for run in stretches(points)] == [2, 3]
    assert drawn.get("aria-label") == "recall: lowest 60.0 %, highest 90.0 %, last 70.0 %"


def test_nothing_is_drawn_where_nothing_was_scored():
    assert sparkline([ChartPoint(60.0, None)], begin=0, threshold=0.8, name="recall") == ""
    assert time_chart(GateHistory(HOUR, 3600.0, []), threshold=0.8, at_least=True, name="recall") == ""


def history(values, alarms=()):
    points = [
        GatePoint(60 * k, value, value and value - 0.05, value and value + 0.05, 10 * k, "live")
        for k, value in enumerate(values, 1)
    ]
    return GateHistory(HOUR, 3600.0, points, alarms)


def test_a_gate_over_time_has_a_line_a_ribbon_bars_and_its_alarms():
    drawn = ET.fromstring(
        time_chart(
            history([0.9, 0.8, None, 0.7], [(60.0, 180.0)]), threshold=0.8, at_least=True, name='<b>"recall"</b>'
        )
    )
    kinds = [part.get("class") for part in drawn]
    assert (kinds.count("line"), kinds.count("ribbon"), kinds.count("whisker")) == (1, 1, 1)
    assert (kinds.count("bar"), kinds.count("firing"), kinds.count("threshold")) == (3, 1, 1)
    assert drawn.get("aria-label") == '<b>"recall"</b>: lowest 70.0 %, highest 90.0 %, last 70.0 %'
    heights = [float(part.get("height")) for part in drawn if part.get("class") == "bar"]
    assert heights == pytest.approx([50 * 10 / 40, 50 * 20 / 40, 50], abs=0.06)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6).filter(any))
def test_the_parts_of_a_bar_follow_each_other_and_are_as_long_as_they_are_large(sizes):
    drawn = ET.fromstring(stacked_bar([(size, f"kind{place}") for place, size in enumerate(sizes)], width=200))
    parts, begin = drawn.findall(f"{SVG}rect"), 0.0
    shown = [(place, size) for place, size in enumerate(sizes) if size]
    for part, (place, size) in zip(parts, shown, strict=True):
        assert part.get("class") == f"kind{place}"
        assert float(part.get("x")) == pytest.approx(begin, abs=0.06)
        assert float(part.get("width")) == pytest.approx(200 * size / sum(sizes), abs=0.06)
        begin += 200 * size / sum(sizes)


@given(st.floats(-1e4, 2e4), st.floats(0, 1e4), st.floats(0, 1e4))
def test_a_tick_lies_on_the_line_whatever_its_time(begin, length, cut):
    drawn = ET.fromstring(tick_strip([Tick(begin, begin + length, "pass")], begin=0.0, cut=cut, end=1e4))
    (tick,) = [part for part in drawn.findall(f"{SVG}rect") if part.get("class") == "pass"]
    left, width = float(tick.get("x")), float(tick.get("width"))
    assert left >= 0
    assert 2 <= width <= SPARKLINE_WIDTH
    assert left + width <= SPARKLINE_WIDTH + 0.11
    (mark,) = drawn.findall(f"{SVG}line")
    assert float(mark.get("x1")) == pytest.approx(SPARKLINE_WIDTH * cut / 1e4, abs=0.06)


@given(st.floats(-10, 10), st.floats(0.001, 50), st.integers(2, 9))
def test_ticks_are_round_and_between_the_edges(low, room, most):
    ticks = round_ticks(low, low + room, most)
    assert all(low - 1e-9 <= tick <= low + room + 1e-9 for tick in ticks)
    assert 1 <= len(ticks) <= most + 1


@given(st.text())
def test_text_never_becomes_markup(text):
    page = environment().from_string("<p>{{ text }}</p>").render(text=text)
    (found,) = [ET.fromstring(page)]
    assert len(found) == 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm here")
def test_the_chart_library_is_the_pinned_one_and_has_its_licence():
    try:
        assert vendored.main(["--check"]) == 0
    except subprocess.CalledProcessError as error:  # no registry answers here
        pytest.skip(error.stderr.splitlines()[-1] if error.stderr else "npm failed")


reasons = st.dictionaries(st.text(min_size=1, max_size=5), st.integers(1, 10**6), max_size=4)


@given(st.integers(0, 10**9), st.integers(0, 10**6), reasons, reasons)
def test_the_bands_of_a_flow_add_up_and_the_picture_says_the_same(scored, duplicate, ignored, dropped):
    received = scored + duplicate + sum(ignored.values()) + sum(dropped.values())
    counters = StageCounters(received, scored, ignored, dropped, duplicate)
    bands = flow_bands(counters)
    assert sum(band.n for band in bands) == received
    drawn = flow_chart("ingest", received, bands)
    if received:
        paths = [part for part in ET.fromstring(drawn) if part.get("class", "").startswith("band")]
        assert len(paths) == len(bands)
    else:
        assert drawn == ""
