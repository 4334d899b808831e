"""The charts of `ragmon top`: what is drawn is on the side of the threshold where its numbers are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.cli.top import Axis, interval_text, sparkline_text

WIDTH = 11
MIDDLE = WIDTH // 2
figures = st.floats(0, 1) | st.floats(0, 50)


def side(figure, threshold):
    return (figure > threshold) - (figure < threshold)


@given(st.tuples(figures, figures, figures).map(sorted), figures, st.booleans())
def test_value_and_interval_are_on_their_side_of_the_threshold_however_near(interval, threshold, at_least):
    lower, value, upper = interval
    bounds = {"threshold": threshold, "at_least": at_least, "verdict": "pass", "width": WIDTH}
    drawn = interval_text(value, lower, upper, **bounds).plain
    places = [place for place, char in enumerate(drawn) if char in "●━┿"]
    assert len(drawn) == WIDTH
    assert side(drawn.index("●"), MIDDLE) == side(value, threshold)
    assert side(places[0], MIDDLE) == side(lower, threshold)
    assert side(places[-1], MIDDLE) == side(upper, threshold)
    assert drawn[MIDDLE] in "│┿●"


@pytest.mark.parametrize(
    ("value", "bounds", "at_least", "drawn"),
    [
        (0.9, (0.85, 0.95), True, "     │━━●━·"),
        (0.9, (0.85, 0.95), False, "·····│━━●━ "),
        (0.8, (0.7, 0.9), True, " ━━━━●━━━━·"),
        (0.7, (0.6, 0.85), True, " ━━●━┿━····"),
        (0.5, (None, None), True, " ●   │·····"),
        (None, (None, None), True, "           "),
    ],
)
def test_a_gate_is_drawn_as_its_page_draws_it(value, bounds, at_least, drawn):
    assert interval_text(value, *bounds, threshold=0.8, at_least=at_least, verdict="pass", width=WIDTH).plain == drawn


def trend(values, *, at_least=True, width=24):
    points = [(3600.0 * hour, value) for hour, value in enumerate(values, 1)]
    return sparkline_text(points, Axis(0, 24 * 3600, 3600), threshold=0.8, at_least=at_least, width=width)


def test_a_day_has_a_column_an_hour_and_gaps_where_nothing_was_scored():
    drawn = trend([None] * 20 + [0.9, None, 0.7, 1.0])
    assert drawn.plain == " " * 20 + "▆ ▁█"
    assert [drawn.plain[span.start : span.end] for span in drawn.spans if span.style == "red"] == ["▁"]


@pytest.mark.parametrize(("at_least", "worst"), [(True, "▁"), (False, "█")])
def test_a_column_of_several_windows_shows_the_worst(at_least, worst):
    assert trend([0.6, 1.0] * 12, at_least=at_least, width=12).plain == worst * 12


def test_noise_is_not_magnified():
    assert set(trend([0.800, 0.801] * 12).plain) == {"▄", "▅"}


def test_nothing_is_drawn_where_nothing_was_scored():
    assert trend([None] * 24, width=12).plain == " " * 12
    assert sparkline_text([], Axis(0.0, 0.0, 0.0), threshold=0.8, at_least=True, width=5).plain == " " * 5
