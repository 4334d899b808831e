"""However a process ends, delivered and counted as lost are together what was kept: exactly.

Real processes, real signals, real forks. Every call is kept, so the number of calls is known.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from ragmon.capture.worker import read_counts
from tests.support.waiting import TIMEOUT

PROGRAM = """
import os, signal, sys, threading, time
import ragmon

@ragmon.trace(sample=1.0)
def answer(question):
    return {"answer": question, "citations": ["d1"], "retrieved": ["d1"]}

def ask(count):
    for number in range(count):
        answer(str(number))

def told(*words):
    print(*words, flush=True)

installation = ragmon.install("ragmon.toml", sink=None)
"""
CONFIG = """
[serve]
admin = "127.0.0.1:0"
[export]
jsonl = "trace.jsonl"
"""


@pytest.fixture
def start(tmp_path):
    """Starts programs in a folder of their own, and ends them."""
    (tmp_path / "ragmon.toml").write_text(CONFIG)
    environment = {**os.environ, "TMPDIR": str(tmp_path), "RAGMON_SAMPLE": "1.0"}  # where counters lie
    started = []

    def run(program):
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM + program]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def ended(process):
    """What a program printed, once it has ended well."""
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, err) == (0, "")
    return out.split()


def account(folder):
    """Records in the log, and losses told in it: of each process the last word."""
    delivered, last = 0, {}
    for line in (folder / "trace.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry.get("kind") != "totals":
            delivered += 1
        elif "dropped" in entry:
            last[entry["instance"]] = entry["dropped"]
    return delivered, sum(map(Counter, last.values()), Counter())


@pytest.mark.slow
def test_the_calls_of_a_process_that_ends_in_order_are_all_delivered_and_all_told(start, tmp_path):
    ended(start("ask(3000)"))
    delivered, lost = account(tmp_path)
    assert delivered + lost.total() == 3000
    totals = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()[-2:]]
    assert {line.get("calls") for line in totals if line.get("kind") == "totals"} >= {3000}


@pytest.mark.slow
@pytest.mark.parametrize("times", range(3))
def test_what_os_exit_leaves_behind_in_a_forked_child_is_counted_by_the_next_process(start, tmp_path, times):
    """Such a child runs no exit handlers and flushes nothing."""
    ended(
        start(
            """
for _ in range(4):
    child = os.fork()
    if child == 0:
        ask(1000)
        os._exit(0)
    os.waitpid(child, 0)
"""
        )
    )
    ended(start("ask(1)\nassert installation.flush()"))
    delivered, lost = account(tmp_path)
    assert delivered + lost.total() == 4001
    assert set(lost) <= {"process_died", "queue_full", "unconfirmed"}
    assert not list(tmp_path.rglob("*.page")), "every page was told once and removed"


@pytest.mark.slow
def test_children_of_multiprocessing_deliver_before_they_end(start, tmp_path):
    ended(
        start(
            """
import multiprocessing
context = multiprocessing.get_context("fork")
children = [context.Process(target=ask, args=(500,)) for _ in range(3)]
for child in children:
    child.start()
for child in children:
    child.join()
assert [child.exitcode for child in children] == [0, 0, 0]
"""
        )
    )
    assert account(tmp_path) == (1500, Counter())


@pytest.mark.slow
def test_a_child_reports_only_its_own_calls(start, tmp_path):
    """What its parent had waiting, and what ran while it was forked, is the parent's to deliver: once."""
    ended(
        start(
            """
@ragmon.trace(sample=1.0)
def forks(question):
    child = os.fork()
    return {"answer": str(child), "citations": ["d1"], "retrieved": ["d1"]}

ask(200)
forks("q")
ask(100)
"""
        )
    )
    delivered, lost = account(tmp_path)
    assert (delivered, lost) == (200 + 1 + 2 * 100, Counter())


@pytest.mark.slow
def test_a_fork_while_the_worker_holds_its_locks_leaves_the_child_whole(start, tmp_path):
    """Threads ask without pause, so that locks are held whenever the fork comes."""
    ended(
        start(
            """
stop = threading.Event()
asked = []
def without_pause():
    count = 0
    while not stop.is_set():
        answer("q")
        count += 1
        if count % 50 == 0:
            installation.counters()
    asked.append(count)
threads = [threading.Thread(target=without_pause) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        ask(10)
        assert installation.flush(30)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
installation.shutdown(60)
with open("asked", "w") as file:
    file.write(str(sum(asked) + 200))
"""
        )
    )
    delivered, lost = account(tmp_path)
    assert delivered + lost.total() == int((tmp_path / "asked").read_text())


LOAD = """
ragmon.install_signal_handlers()
ask(500)
told("ready")
while True:
    answer("q")
"""


def test_sigterm_under_load_drains_and_then_ends_the_process_by_that_signal(start, tmp_path):
    process = start(LOAD)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT)
    assert process.returncode == -signal.SIGTERM
    page = read_counts(next(tmp_path.rglob("*.page")).read_bytes())
    delivered, _ = account(tmp_path)
    assert delivered >= page.delivered > 0
    assert page.kept == page.delivered + sum(page.dropped.values()) + page.missing
    assert page.missing <= 1, "between the drain and the end, at most the call that was running"


@pytest.mark.slow
def test_the_handler_that_was_there_runs_after_the_drain(start, tmp_path):
    process = start(
        """
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"mine\\n"), sys.exit(0)))
ragmon.install_signal_handlers()
ask(50)
told("ready")
signal.pause()
"""
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, err) == (0, "mine\n", "")
    assert account(tmp_path) == (50, Counter())


@pytest.mark.slow
def test_a_second_signal_passes_straight_through(start):
    """A drain that hangs must not make a process immortal; this one would take five seconds."""
    process = start(
        """
class Hangs:
    def submit(self, record):
        threading.Event().wait()

def watch(handler):
    while signal.getsignal(signal.SIGTERM) is handler:
        time.sleep(0.001)
    os.write(1, b"draining\\n")

installation.shutdown()
ragmon.install("ragmon.toml", sink=Hangs())
ragmon.install_signal_handlers()
ask(1)
threading.Thread(target=watch, args=(signal.getsignal(signal.SIGTERM),), daemon=True).start()
told("ready")
while True:
    signal.pause()
"""
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "draining\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=4) == -signal.SIGTERM


@pytest.mark.slow
def test_a_kill_loses_nothing_uncounted(start, tmp_path):
    """SIGKILL at any moment: what the log holds and what the next process counts is what was kept."""
    process = start('told("ready")\nwhile True:\n    answer("q")')
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate()
    kept = read_counts(next(tmp_path.rglob("*.page")).read_bytes()).kept
    ended(start("assert installation.flush()"))
    delivered, lost = account(tmp_path)
    assert delivered + lost.total() == kept


FORK = """
ask(5)
child = os.fork()
if child == 0:
    ask(7)
    assert installation.flush(30)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert installation.flush(30)
"""


@pytest.mark.slow
def test_what_a_fork_captures_is_scored_in_the_monitor_of_its_parent(start, tmp_path):
    (tmp_path / "ragmon.toml").write_text('[serve]\nadmin = "127.0.0.1:0"')
    show = """
reading = installation.monitor.snapshot()
for stage in ("capture", "score"):
    books = reading.stages[stage]
    told(books.received, books.scored, dict(books.dropped), books.residual)
told(reading.captured.calls["default", "live", "rest"])
"""
    out, err = start(FORK + show).communicate(timeout=TIMEOUT)
    assert (out, err) == ("12 12 {} 0\n12 12 {} 0\n12\n", "")


@pytest.mark.slow
def test_a_fork_of_a_process_with_a_monitor_of_its_own_says_that_nobody_sees_it(start, tmp_path):
    """A monitor that was given as the sink is in the parent's memory; what a child keeps is counted as lost."""
    (tmp_path / "ragmon.toml").write_text("")
    given = """
installation.shutdown()
installation = ragmon.install("ragmon.toml", sink=ragmon.Monitor())
"""
    show = """
books = installation.counters()
told(books.received, books.scored, dict(books.dropped), books.residual)
"""
    process = start(given + FORK + show)
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert out == "12 5 {'forked': 7} 0\n"
    assert "name a server in [export] endpoint" in err


@pytest.mark.slow
def test_the_parents_metrics_tell_what_a_child_lost_by_dying(start, tmp_path):
    process = start(
        """
installation.shutdown()
installation = ragmon.install("ragmon.toml")
child = os.fork()
if child == 0:
    installation._worker.start = lambda: None
    ask(7)
    os._exit(0)
os.waitpid(child, 0)
assert installation.flush(30)
books = installation.counters()
told(books.received, dict(books.dropped), books.residual)
"""
    )
    assert ended(process) == ["7", "{'process_died':", "7}", "0"]


@pytest.mark.slow
def test_a_fork_with_spans_alone_delivers_them(start, tmp_path):
    """Nothing is decorated in the child: its first span must wake the thread the fork did not copy."""
    ended(
        start(
            """
from opentelemetry.sdk.trace import TracerProvider
provider = TracerProvider(shutdown_on_exit=False)
installation.watch(provider)
child = os.fork()
if child == 0:
    with provider.get_tracer("app").start_as_current_span("retrieval") as span:
        span.set_attribute("gen_ai.operation.name", "retrieval")
    assert installation.flush(30)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
        )
    )
    assert account(tmp_path) == (1, Counter())
