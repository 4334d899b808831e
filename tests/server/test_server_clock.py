"""The server's clocks: jumps of the system's are not followed at once, and arrival never goes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragmon.server.state import BELIEVED, JUMP, Clock


class System:
    """A system whose clock somebody sets."""

    def __init__(self):
        self.time, self.passed = 1_000_000.0, 0.0

    def wait(self, seconds):
        self.time += seconds
        self.passed += seconds

    def clock(self):
        return Clock(wall=lambda: self.time, passed=lambda: self.passed)


def test_without_jumps_it_is_the_systems_clock():
    system = System()
    clock = system.clock()
    for _ in range(1000):
        system.wait(7.0)
        system.time += 0.5  # it is being slewed
        assert clock.now() == clock.arrival() == system.time
    assert clock.jumps == 0


def test_a_jump_and_back_moves_nothing():
    """An hour forward and back, as when two time servers disagree."""
    system = System()
    clock = system.clock()
    for hour in (3600.0, -3600.0):
        system.wait(10.0)
        expected = system.time
        system.time += hour
        assert clock.now() == expected
        system.wait(10.0)
        assert clock.now() == expected + 10.0
        system.time -= hour
        assert clock.now() == system.time
    assert clock.jumps == 2


def test_a_jump_that_lasts_is_believed():
    """Somebody set a wrong clock right."""
    system = System()
    clock = system.clock()
    system.time += 86_400.0
    assert clock.now() == system.time - 86_400.0
    system.wait(BELIEVED)
    assert clock.now() == system.time
    assert clock.jumps == 1


def test_arrival_stands_still_for_no_one_and_never_goes_back():
    """Set back by an hour for good, it goes on at half its pace until the clock has caught up."""
    system = System()
    clock = system.clock()
    before = clock.arrival()
    system.time -= 3600.0
    clock.now()
    system.wait(BELIEVED)
    assert clock.now() == system.time
    found = clock.arrival()
    assert found > before
    system.wait(1000.0)
    assert clock.arrival() == found + 500.0
    system.wait(100_000.0)
    assert clock.arrival() == clock.now() == system.time


def test_arrival_goes_on_from_the_last_request_before_a_restart():
    system = System()
    clock = system.clock()
    clock.go_on_from(system.time + 100.0)
    assert clock.arrival() == system.time + 100.0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-7200, 7200)), max_size=60))
def test_whatever_the_system_does_arrival_is_in_order(steps):
    system = System()
    clock = system.clock()
    last = clock.arrival()
    for passed, jump in steps:
        system.wait(passed)
        system.time += jump
        found = clock.arrival()
        assert found >= last
        assert found - last <= passed + JUMP + 7200 * len(steps)
        last = found
