"""What is begun is noted where the end of a process does not reach it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from ragmon.server.quarantine import FILE, MAX_ATTEMPTS, SIZE, Attempts, WorkItem, body_key, row_key, row_of, trace_key
from tests.support.effort import effort
from tests.support.small_disk import fill, small_disk  # noqa: F401 - a fixture

TRACE = trace_key(bytes(range(15)) + b"\0")
"""An id may end in zeros."""
ROW = row_key(7, 1_763_683_200.5)
MANY = 500


def ends_over(folder, key, place=0):
    """A process ends while it works on something."""
    attempts = Attempts(folder)
    attempts.begin(key)
    attempts.at(place)
    attempts.close()


def poison(folder):
    """What was begun twice without an end, as the next process finds it."""
    attempts = Attempts(folder)
    found = attempts.poison()
    attempts.close()
    return found


@pytest.mark.parametrize(("key", "place"), [(TRACE, 0), (ROW, 3), (body_key(2**40, 0.0), 0)])
def test_what_is_begun_twice_without_an_end_is_poison(tmp_path, key, place):
    ends_over(tmp_path, key, place)
    assert poison(tmp_path) == []
    ends_over(tmp_path, key, place)
    assert poison(tmp_path) == [WorkItem(key, place)]
    assert poison(tmp_path) == [WorkItem(key, place)], "until it is set aside, whoever starts knows of it"


def test_what_ended_once_is_no_poison_whenever_the_process_ended_over_it(tmp_path):
    ends_over(tmp_path, TRACE)
    attempts = Attempts(tmp_path)
    attempts.begin(TRACE)
    attempts.end(TRACE)
    attempts.close()
    ends_over(tmp_path, TRACE)
    assert poison(tmp_path) == []


def test_another_line_of_the_row_is_another_thing(tmp_path):
    for place in (3, 4, 3):
        ends_over(tmp_path, ROW, place)
    assert poison(tmp_path) == [WorkItem(ROW, 3)]
    assert row_of(ROW) == (7, 1_763_683_200.5)
    assert row_of(TRACE) is None


def test_what_is_set_aside_is_known_no_more(tmp_path):
    for _ in range(MAX_ATTEMPTS):
        ends_over(tmp_path, TRACE)
    ends_over(tmp_path, ROW)
    attempts = Attempts(tmp_path)
    attempts.commit()
    attempts.close()
    ends_over(tmp_path, ROW)
    assert poison(tmp_path) == [WorkItem(ROW, 0)]


def test_the_page_has_room_for_the_newest(tmp_path):
    """Each start adds one thing at most; what has waited longest for its second time goes."""
    for number in range(MANY):
        ends_over(tmp_path, trace_key(number.to_bytes(16, "big")))
    for number in (0, MANY - 1):
        ends_over(tmp_path, trace_key(number.to_bytes(16, "big")))
    assert poison(tmp_path) == [WorkItem(trace_key((MANY - 1).to_bytes(16, "big")))]
    assert (tmp_path / FILE).stat().st_size == SIZE


@pytest.mark.parametrize("held", [b"", b"x" * 100, b"\xff" * SIZE, os.urandom(2 * SIZE)])
def test_a_page_that_says_nothing_sensible_harms_nobody(tmp_path, held):
    (tmp_path / FILE).write_bytes(held)
    for _ in range(MAX_ATTEMPTS):
        ends_over(tmp_path, TRACE)
    assert WorkItem(TRACE) in poison(tmp_path)


def test_without_room_on_the_disk_it_is_kept_in_memory(disk):
    """A server starts on a full disk: a note that could not be written would end it."""
    fill(disk / "full")
    attempts = Attempts(disk)
    attempts.begin(TRACE)
    assert attempts.busy
    attempts.end(TRACE)
    assert not attempts.busy
    attempts.close()


def test_a_killed_process_leaves_its_note(tmp_path):
    """No write, no flush: the kernel keeps the page."""
    script = f"""
import os, signal, sys
from pathlib import Path
from ragmon.server.quarantine import Attempts
attempts = Attempts(Path(sys.argv[1]))
attempts.begin({TRACE!r})
os.kill(os.getpid(), signal.SIGKILL)
"""
    for _ in range(MAX_ATTEMPTS):
        done = subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
        assert done.returncode == -signal.SIGKILL
    assert poison(tmp_path) == [WorkItem(TRACE)]


@pytest.mark.slow
def test_a_note_costs_next_to_nothing(tmp_path):
    """About a hundredth of what a trace takes: it goes to no disk."""
    attempts = Attempts(tmp_path)

    def note_many():
        for _ in range(10_000):
            attempts.begin(TRACE)
            attempts.end(TRACE)

    assert effort(note_many)[0] < 2
    attempts.close()


def test_what_ends_with_an_exception_has_ended(tmp_path):
    """A journal that is found damaged while a request is read, say: nobody works on that any more."""
    attempts = Attempts(tmp_path)
    with suppress(ValueError), attempts.attempt(TRACE):
        assert attempts.busy
        raise ValueError
    assert not attempts.busy
    attempts.close()
    for _ in range(MAX_ATTEMPTS):
        assert Attempts(tmp_path).poison() == []
