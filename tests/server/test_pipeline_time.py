"""Time that passes, jumps and is slept through: what was counted is what a replay of the journal counts."""

from __future__ import annotations

import pytest

from tests.support.manual_writer import HOUR, NO_ERRORS, SHORT, ManualWriter
from tests.support.serving import asked, whole

EVERY = 50.0
"""Seconds between two rows."""
ROWS = 200
"""Rows in almost three hours, twice as long as what the windows hold."""
DAYS = 2 * 24 * HOUR


def hours(manual, between):
    """Serve a request every fifty seconds; yields where a replay may be looked at, in the last hour.

    Args:
        manual: Who serves.
        between: Called with the number of each row that was written.
    """
    for n in range(ROWS):
        manual.send(whole([asked(n, ts=manual.time.now)]))
        manual.time.now += EVERY
        between(n)
        if n > ROWS - 60 and not n % 4:
            yield n


@pytest.mark.slow
def test_checkpoints_change_no_window_however_old_what_they_hold(tmp_path):
    """`ragmon verify` begins with the newest one and with the first row, and comes to the same."""
    with ManualWriter(tmp_path, SHORT) as manual:
        wrong = [manual.verified().failed for _ in hours(manual, lambda n: None if n % 3 else manual.save())]
    assert wrong == [()] * len(wrong)


@pytest.mark.slow
def test_a_restart_changes_no_window_however_old_what_it_goes_on_from(tmp_path):
    """The server begins with a checkpoint; a replay begins with the first row."""

    def between(n):
        if n in (50, 110):
            manual.save()
        if n == 110:
            manual.again()

    with ManualWriter(tmp_path, SHORT) as manual:
        assert all(manual.agrees() for _ in hours(manual, between))


@pytest.mark.slow
def test_a_configuration_that_is_read_again_unchanged_changes_no_window(tmp_path):
    with ManualWriter(tmp_path, SHORT) as manual:
        assert all(manual.agrees() for _ in hours(manual, lambda n: manual.reload() if n == 100 else None))


def test_a_clock_that_was_two_days_ahead_loses_no_request_once_it_is_right_again(tmp_path):
    """It was so for long enough to be believed; for two days rows come in the server's own past."""
    with ManualWriter(tmp_path) as manual:
        numbers = iter(range(1000))

        def minute(off):
            manual.time.off = off
            for _ in range(6):
                manual.time.now += 10
                manual.send(whole([asked(next(numbers), ts=manual.time.now)]))

        for off in (0.0, DAYS, DAYS, 0.0, 0.0):
            minute(off)
        assert manual.writer.clock.arrival() > manual.time.now + DAYS - HOUR
        before = manual.books
        for _ in range(60):
            manual.time.now += HOUR
            minute(0.0)
        assert (manual.books.scored, manual.books.dropped) == (before.scored + 60 * 6, before.dropped)
        assert manual.agrees()


def test_a_clock_that_is_set_back_while_nobody_serves_opens_no_minute_again(tmp_path):
    """A minute whose alarms were judged stays judged; what comes then counts in the next one, in a replay too."""
    with ManualWriter(tmp_path, NO_ERRORS) as manual:
        manual.time.now += 58
        manual.send(whole([asked(1, ts=manual.time.now)]))
        manual.tick(10)
        manual.tick(60)
        manual.save()
        manual.kill()
        manual.time.off -= 90
        manual.open()
        manual.send(whole([asked(2, ts=manual.time.now + manual.time.off)]))
        manual.tick(200)
        mine, other = manual.server_state.engine.alarms.steps, manual.replayed().engine.alarms.steps
        assert (mine.state.late, mine.state.closed) == (other.state.late, other.state.closed)
        assert mine.state.late == 0
