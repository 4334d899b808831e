"""A process that cannot end itself is ended; one that merely waits, or does not run, is left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from time import monotonic, thread_time

import pytest

from ragmon.server import process
from ragmon.server.process import Attempts, Watchdog, trace_key
from tests.support.waiting import TIMEOUT

STUCK = 75
KEY = trace_key(bytes(16))


@pytest.fixture(name="attempts")
def noted(tmp_path):
    attempts = Attempts(tmp_path)
    yield attempts
    attempts.close()


@pytest.fixture(name="left")
def leaving(monkeypatch, attempts):
    """A watchdog at work; what it would have left with comes here."""
    monkeypatch.setattr(process, "LOOK", 0.01)
    codes = []
    ended = threading.Event()

    def leave(code):
        codes.append(code)
        ended.set()

    with Watchdog(STUCK, leave) as guard:
        guard.watch(attempts)
        yield guard, codes, ended


def burn(seconds):
    """Use CPU in this thread."""
    until = thread_time() + seconds
    while thread_time() < until:
        pass


def test_one_trace_that_takes_too_much_cpu_ends_the_process(monkeypatch, left, attempts):
    monkeypatch.setattr(process, "STUCK", 0.05)
    _, codes, ended = left
    attempts.begin(KEY)
    until = monotonic() + TIMEOUT
    while not ended.is_set() and monotonic() < until:
        burn(0.01)
    assert codes[:1] == [STUCK]
    attempts.end(KEY)


def test_one_trace_that_waits_for_ever_ends_the_process(monkeypatch, left, attempts):
    monkeypatch.setattr(process, "WAITING", 0.05)
    _, codes, ended = left
    attempts.begin(KEY)
    assert ended.wait(TIMEOUT)
    assert codes[:1] == [STUCK]
    attempts.end(KEY)


def test_progress_is_no_reason_to_leave_however_much_there_is_to_do(monkeypatch, left, attempts):
    """Many lines of one row, many traces after each other: none of them takes long."""
    monkeypatch.setattr(process, "STUCK", 0.2)
    _, codes, _ = left
    attempts.begin(KEY)
    for place in range(200):
        attempts.at(place)
        burn(0.002)
    attempts.end(KEY)
    burn(0.3)
    assert codes == [], "and when nothing is worked on, nobody is stuck"


def test_who_is_asked_to_end_leaves_in_time_with_the_code_of_an_end_in_order(monkeypatch, left):
    guard, codes, ended = left
    monkeypatch.setattr(process, "LEAVE", 0.05)
    guard.hurry()
    assert ended.wait(TIMEOUT)
    assert codes[:1] == [0]


SCRIPT = """
import re, sys, time
from ragmon.server import process as watchdog
watchdog.FROZEN, watchdog.LOOK = 0.5, 0.05
with watchdog.Watchdog(75):
    print("begun", flush=True)
    {what}
print("ended", flush=True)
"""


def child(what, script=SCRIPT):
    """A process under a watchdog that gives it half a second of CPU."""
    command = [sys.executable, "-c", script.format(what=what)]
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stdout.readline() == "begun\n"
    return started


def test_a_call_that_keeps_pythons_lock_is_ended_by_the_kernel_which_says_where():
    frozen = child("re.match(r'(a+)+$', 'a' * 64 + 'b')")
    said, complaint = frozen.communicate(timeout=TIMEOUT)
    assert (frozen.returncode, said) == (-signal.SIGPROF, "")
    assert 'File "<string>", line 7' in complaint


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["t = time.thread_time()\n    while time.thread_time() < t + 1.5: pass", "sys.stdin.read(1)"]
)
def test_a_process_whose_threads_get_their_turns_is_left_alone(what):
    """It works hard, or waits: neither is frozen; and afterwards no timer is left."""
    working = child(what)
    assert working.communicate(timeout=TIMEOUT) == ("ended\n", "")
    assert working.returncode == 0


@pytest.mark.slow
def test_work_on_all_processors_that_leaves_pythons_lock_to_others_is_no_freeze():
    """It looks as often as the number of processors asks for, however seldom it looks otherwise."""
    script = SCRIPT.replace("0.05", "3600")
    assert script != SCRIPT
    work = "import hashlib; data = bytes(1 << 22); t = time.process_time()\n    "
    working = child(work + "while time.process_time() < t + 2: hashlib.sha256(data)", script)
    assert working.communicate(timeout=TIMEOUT) == ("ended\n", "")
    assert working.returncode == 0


@pytest.mark.slow
def test_time_in_which_the_process_is_stopped_does_not_count():
    """As on a machine that sleeps: the timer counts the process' own CPU time."""
    stopped = child("sys.stdin.read(1)")
    stopped.send_signal(signal.SIGSTOP)
    threading.Event().wait(1.0)  # nothing happens meanwhile: that is the point
    stopped.send_signal(signal.SIGCONT)
    assert stopped.communicate(timeout=TIMEOUT) == ("ended\n", "")
    assert stopped.returncode == 0
