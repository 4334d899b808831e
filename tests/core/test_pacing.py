"""How often others are asked: a quota per day, over processes, restarts and midnight; and pauses between attempts."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.network import DAY, MAX_RETRY_AFTER, BackOff, DailyQuota
from ragmon.testing import FakeClock
from tests.support.waiting import TIMEOUT

NOON = 20_000.5 * DAY


@pytest.mark.parametrize("shared", [True, False])
def test_a_day_has_so_many_requests_and_the_next_has_them_again(tmp_path, shared):
    clock = FakeClock(NOON)
    quota = DailyQuota(3, clock=clock, path=tmp_path / "of" / "app" / "judge" if shared else None)
    (tmp_path / "of").mkdir()
    assert [quota.spend() for _ in range(5)] == [True] * 3 + [False] * 2
    clock.advance(DAY / 2 - 1)
    assert not quota.spend()
    clock.advance(1)
    assert [quota.spend() for _ in range(4)] == [True] * 3 + [False]


def test_a_restart_goes_on_from_what_was_spent(tmp_path):
    for expected in ([True, True], [True, False]):
        quota = DailyQuota(3, clock=FakeClock(NOON), path=tmp_path / "a" / "judge")
        assert [quota.spend() for _ in range(2)] == expected


def test_processes_share_it(tmp_path):
    code = (
        "import sys; from pathlib import Path; from ragmon.core.network import DailyQuota\n"
        f"b = DailyQuota(50, clock=lambda: {NOON}, path=Path(sys.argv[1], 'judge'))\n"
        "print(sum(b.spend() for _ in range(30)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sum(int(process.communicate(timeout=TIMEOUT)[0]) for process in running) == 50


@pytest.mark.parametrize("shared", [True, False])
def test_a_request_that_reached_nobody_is_put_back_and_taken_next(tmp_path, shared):
    clock = FakeClock(NOON)
    quota = DailyQuota(2, clock=clock, path=tmp_path / "a" / "judge" if shared else None)
    for _ in range(10):
        assert quota.spend()
        quota.give_back()
    assert [quota.spend() for _ in range(3)] == [True, True, False]
    quota.give_back()
    assert [quota.spend(), quota.spend()] == [True, False]
    clock.advance(DAY)
    assert [quota.spend() for _ in range(3)] == [True, True, False]


def test_threads_share_it():
    quota = DailyQuota(50, clock=FakeClock(NOON))
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: quota.spend(), range(200))) == 50


def test_judges_do_not_share_it(tmp_path):
    one, other = (DailyQuota(1, clock=FakeClock(NOON), path=tmp_path / "a" / name) for name in ("one", "other"))
    assert [one.spend(), one.spend(), other.spend(), other.spend()] == [True, False, True, False]


def test_files_of_older_days_than_yesterday_are_removed(tmp_path):
    """Yesterday's stays: a clock that is put back over midnight finds what was spent then."""
    clock = FakeClock(NOON)
    quota = DailyQuota(3, clock=clock, path=tmp_path / "a" / "judge")
    for _ in range(4):
        quota.spend()
        clock.advance(DAY)
    assert len(list((tmp_path / "a").iterdir())) == 2


def test_a_clock_that_was_put_back_over_midnight_and_right_again_gives_no_day_twice(tmp_path):
    def spent(at):
        quota = DailyQuota(3, clock=FakeClock(at), path=tmp_path / "a" / "judge")
        return sum(quota.spend() for _ in range(5))

    assert [spent(NOON), spent(NOON - DAY), spent(NOON), spent(NOON - DAY)] == [3, 3, 0, 0]


def test_where_nothing_can_be_written_the_process_counts_for_itself(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o777)  # anybody's: what lies there may be anybody's
    quota = DailyQuota(2, clock=FakeClock(NOON), path=tmp_path / "a" / "judge")
    assert [quota.spend() for _ in range(3)] == [True, True, False]
    assert not list((tmp_path / "a").iterdir())


def test_a_link_in_the_files_place_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "a").mkdir(mode=0o700)
    (tmp_path / "a" / f"judge-{int(NOON // DAY)}.spent").symlink_to(victim)
    assert DailyQuota(2, clock=FakeClock(NOON), path=tmp_path / "a" / "judge").spend()
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("shared", [True, False])
def test_a_clock_put_back_over_midnight_begins_no_new_day(tmp_path, shared):
    clock = FakeClock(20_001 * DAY + 5)
    quota = DailyQuota(2, clock=clock, path=tmp_path / "a" / "judge" if shared else None)
    found = [quota.spend()]
    for step in (-10, 10, -10, 10):
        clock.advance(step)
        found.append(quota.spend())
    assert found == [True, True, False, False, False]


def test_what_another_day_left_and_cannot_be_removed_does_not_begin_today_anew(tmp_path):
    (tmp_path / "judge-1.spent").mkdir()
    for left in (5, 2):
        quota = DailyQuota(5, path=tmp_path / "judge", make_folder=False, clock=FakeClock(2.5 * DAY))
        assert quota.left == left
        assert all(quota.spend() for _ in range(min(3, left)))
    assert not quota.spend()


class TestLeft:
    """How much of a day is left, for who plans ahead."""

    def test_it_is_of_a_utc_day(self):
        clock = FakeClock(NOON)
        quota = DailyQuota(2, clock=clock)
        assert quota.spend()
        assert quota.spend()
        found = [quota.left]
        for step in (DAY / 2 - 1, 1, 1):
            clock.advance(step)
            found.append(quota.left)
        assert found == [0, 0, 2, 2]

    def test_a_process_that_ends_leaves_what_it_sent_to_the_next_and_the_day_ends_all_the_same(self, tmp_path):
        clock = FakeClock(NOON)
        for left in (5, 3):
            quota = DailyQuota(5, path=tmp_path / "probe", make_folder=False, clock=clock)
            assert quota.left == left
            quota.spend()
            quota.spend()
        assert quota.left == 1
        clock.advance(DAY)
        assert quota.left == 5
        clock.advance(DAY)
        assert quota.left == 5
        assert not list(tmp_path.iterdir()), "yesterday's file stays a day, the one before it does not"

    def test_processes_that_send_at_once_share_it(self, tmp_path):
        one, other = (DailyQuota(3, path=tmp_path / "a" / "probe", clock=FakeClock(NOON)) for _ in range(2))
        assert (one.left, other.left) == (3, 3)
        one.spend()
        other.spend()
        assert (one.left, other.left) == (2, 1)

    def test_where_nothing_can_be_written_the_process_counts_for_itself(self, tmp_path):
        quota = DailyQuota(3, path=tmp_path / "gone" / "probe", make_folder=False, clock=FakeClock(NOON))
        quota.spend()
        assert quota.left == 2

    def test_a_quota_that_is_lowered_lets_no_more_through(self):
        quota = DailyQuota(5, clock=FakeClock(NOON))
        assert [quota.spend() for _ in range(3)] == [True] * 3
        quota.per_day = 2
        assert (quota.left, quota.spend()) == (-1, False)
        quota.per_day = 4
        assert (quota.left, quota.spend(), quota.spend()) == (1, True, False)


class TestBackOff:
    """Pauses between attempts."""

    def test_their_limit_doubles_up_to_the_longest(self):
        back_off = BackOff(1.0, 300.0, draw=lambda: 1.0)
        assert [back_off.pause() for _ in range(12)] == [min(300.0, 2.0**n) for n in range(12)]

    @given(st.floats(0, 1, exclude_max=True), st.integers(0, 5000))
    def test_they_are_random_below_their_limit_however_many_there_were(self, draw, before):
        back_off = BackOff(0.1, 5.0, draw=lambda: draw)
        for _ in range(before):
            back_off.pause()
        assert back_off.pause() == draw * min(5.0, 0.1 * 2.0 ** min(before, 16))

    def test_they_are_not_the_same_for_all(self):
        assert len({BackOff(1.0, 5.0).pause() for _ in range(20)}) > 1

    def test_a_success_ends_them(self):
        back_off = BackOff(1.0, 300.0, draw=lambda: 1.0)
        for _ in range(5):
            back_off.pause()
        back_off.reset()
        assert back_off.pause() == 1.0

    @pytest.mark.parametrize(
        ("asked", "pause"), [(None, 1.0), (0.0, 0.0), (30.0, 30.0), (1e9, MAX_RETRY_AFTER), (float("inf"), 3600.0)]
    )
    def test_a_server_is_left_alone_as_long_as_it_asks_for_within_an_hour(self, asked, pause):
        assert BackOff(1.0, 300.0, draw=lambda: 1.0).pause(asked) == pause

    def test_attempts_after_which_the_server_asked_to_wait_count_as_well(self):
        back_off = BackOff(1.0, 300.0, draw=lambda: 1.0)
        assert [back_off.pause(0.5), back_off.pause(0.5), back_off.pause()] == [0.5, 0.5, 4.0]

    def test_a_limit_of_what_a_server_may_ask_for_can_be_shorter(self):
        assert BackOff(1.0, 30.0, max_retry_after=60.0, draw=lambda: 1.0).pause(3600.0) == 60.0
