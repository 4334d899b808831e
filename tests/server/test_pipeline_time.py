"""Time that passes, jumps and is slept through: what was counted is what a replay of the journal counts."""

from __future__ import annotations

import pytest

from tests.support.keepers import HOUR, NO_ERRORS, SHORT, Hand
from tests.support.serving import asked, whole

EVERY = 50.0
"""Seconds between two rows."""
ROWS = 200
"""Rows in almost three hours, twice as long as what the windows hold."""
DAYS = 2 * 24 * HOUR


def hours(hand, between):
    """Serve a request every fifty seconds; yields where a replay may be looked at, in the last hour.

    Args:
        hand: Who serves.
        between: Called with the number of each row that was written.
    """
    for n in range(ROWS):
        hand.send(whole([asked(n, ts=hand.time.now)]))
        hand.time.now += EVERY
        between(n)
        if n > ROWS - 60 and not n % 4:
            yield n


@pytest.mark.slow
def test_checkpoints_change_no_window_however_old_what_they_hold(tmp_path):
    """`ragmon verify` begins with the newest one and with the first row, and comes to the same."""
    with Hand(tmp_path, SHORT) as hand:
        wrong = [hand.verified().wrong for _ in hours(hand, lambda n: None if n % 3 else hand.save())]
    assert wrong == [()] * len(wrong)


@pytest.mark.slow
def test_a_restart_changes_no_window_however_old_what_it_goes_on_from(tmp_path):
    """The server begins with a checkpoint; a replay begins with the first row."""

    def between(n):
        if n in (50, 110):
            hand.save()
        if n == 110:
            hand.again()

    with Hand(tmp_path, SHORT) as hand:
        assert all(hand.agrees() for _ in hours(hand, between))


@pytest.mark.slow
def test_a_configuration_that_is_read_again_unchanged_changes_no_window(tmp_path):
    with Hand(tmp_path, SHORT) as hand:
        assert all(hand.agrees() for _ in hours(hand, lambda n: hand.reload() if n == 100 else None))


def test_a_clock_that_was_two_days_ahead_loses_no_request_once_it_is_right_again(tmp_path):
    """It was so for long enough to be believed; for two days rows come in the server's own past."""
    with Hand(tmp_path) as hand:
        numbers = iter(range(1000))

        def minute(off):
            hand.time.off = off
            for _ in range(6):
                hand.time.now += 10
                hand.send(whole([asked(next(numbers), ts=hand.time.now)]))

        for off in (0.0, DAYS, DAYS, 0.0, 0.0):
            minute(off)
        assert hand.writer.clock.arrival() > hand.time.now + DAYS - HOUR
        before = hand.books
        for _ in range(60):
            hand.time.now += HOUR
            minute(0.0)
        assert (hand.books.scored, hand.books.dropped) == (before.scored + 60 * 6, before.dropped)
        assert hand.agrees()


def test_a_clock_that_is_set_back_while_nobody_serves_opens_no_minute_again(tmp_path):
    """A minute whose alarms were judged stays judged; what comes then counts in the next one, in a replay too."""
    with Hand(tmp_path, NO_ERRORS) as hand:
        hand.time.now += 58
        hand.send(whole([asked(1, ts=hand.time.now)]))
        hand.tick(10)
        hand.tick(60)
        hand.save()
        hand.kill()
        hand.time.off -= 90
        hand.open()
        hand.send(whole([asked(2, ts=hand.time.now + hand.time.off)]))
        hand.tick(200)
        mine, other = hand.server_state.engine.alarms.steps, hand.replayed().engine.alarms.steps
        assert (mine.late, mine.closed) == (other.late, other.closed)
        assert mine.late == 0
