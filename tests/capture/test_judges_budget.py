"""How often a judge may be asked in a day: over processes, restarts and midnight."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ragmon.core.quota import DAY, DailyQuota, JudgeBudget
from ragmon.testing import FakeClock

NOON = 20_000.5 * DAY


@pytest.mark.parametrize("shared", [True, False])
def test_a_day_has_so_many_requests_and_the_next_has_them_again(tmp_path, shared):
    clock = FakeClock(NOON)
    budget = JudgeBudget(3, clock=clock, folder=tmp_path / "of" / "app" if shared else None)
    (tmp_path / "of").mkdir()
    assert [budget.spend() for _ in range(5)] == [True] * 3 + [False] * 2
    clock.advance(DAY / 2 - 1)
    assert not budget.spend()
    clock.advance(1)
    assert [budget.spend() for _ in range(4)] == [True] * 3 + [False]


def test_a_restart_goes_on_from_what_was_spent(tmp_path):
    for expected in ([True, True], [True, False]):
        budget = JudgeBudget(3, clock=FakeClock(NOON), folder=tmp_path / "a")
        assert [budget.spend() for _ in range(2)] == expected


def test_processes_share_it(tmp_path):
    code = (
        "import sys; from pathlib import Path; from ragmon.core.quota import JudgeBudget\n"
        f"b = JudgeBudget(50, clock=lambda: {NOON}, folder=Path(sys.argv[1]))\n"
        "print(sum(b.spend() for _ in range(30)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sum(int(process.communicate(timeout=60)[0]) for process in running) == 50


@pytest.mark.parametrize("shared", [True, False])
def test_a_request_that_reached_nobody_is_put_back_and_taken_next(tmp_path, shared):
    clock = FakeClock(NOON)
    budget = JudgeBudget(2, clock=clock, folder=tmp_path / "a" if shared else None)
    for _ in range(10):
        assert budget.spend()
        budget.give_back()
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    budget.give_back()
    assert [budget.spend(), budget.spend()] == [True, False]
    clock.advance(DAY)
    assert [budget.spend() for _ in range(3)] == [True, True, False]


def test_threads_share_it():
    budget = JudgeBudget(50, clock=FakeClock(NOON))
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: budget.spend(), range(200))) == 50


def test_judges_do_not_share_it(tmp_path):
    one, other = (JudgeBudget(1, clock=FakeClock(NOON), folder=tmp_path / "a", name=name) for name in ("one", "other"))
    assert [one.spend(), one.spend(), other.spend(), other.spend()] == [True, False, True, False]


def test_files_of_older_days_than_yesterday_are_removed(tmp_path):
    """Yesterday's stays: a clock that is put back over midnight finds what was spent then."""
    clock = FakeClock(NOON)
    budget = JudgeBudget(3, clock=clock, folder=tmp_path / "a")
    for _ in range(4):
        budget.spend()
        clock.advance(DAY)
    assert len(list((tmp_path / "a").iterdir())) == 2


def test_a_clock_that_was_put_back_over_midnight_and_right_again_gives_no_day_twice(tmp_path):
    def spent(at):
        budget = JudgeBudget(3, clock=FakeClock(at), folder=tmp_path / "a")
        return sum(budget.spend() for _ in range(5))

    assert [spent(NOON), spent(NOON - DAY), spent(NOON), spent(NOON - DAY)] == [3, 3, 0, 0]


def test_where_nothing_can_be_written_the_process_counts_for_itself(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o777)  # anybody's: what lies there may be anybody's
    budget = JudgeBudget(2, clock=FakeClock(NOON), folder=tmp_path / "a")
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    assert not list((tmp_path / "a").iterdir())


def test_a_link_in_the_files_place_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "a").mkdir(mode=0o700)
    (tmp_path / "a" / f"judge-{int(NOON // DAY)}.spent").symlink_to(victim)
    assert JudgeBudget(2, clock=FakeClock(NOON), folder=tmp_path / "a").spend()
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("shared", [True, False])
def test_a_clock_put_back_over_midnight_begins_no_new_day(tmp_path, shared):
    clock = FakeClock(20_001 * DAY + 5)
    budget = JudgeBudget(2, clock=clock, folder=tmp_path / "a" if shared else None)
    found = [budget.spend()]
    for step in (-10, 10, -10, 10):
        clock.advance(step)
        found.append(budget.spend())
    assert found == [True, True, False, False, False]


def test_what_another_day_left_and_cannot_be_removed_does_not_begin_today_anew(tmp_path):
    (tmp_path / "judge-1.spent").mkdir()
    for _ in range(3):
        DailyQuota(tmp_path, "judge").add(2)
    assert DailyQuota(tmp_path, "judge").begin(2) == 3
