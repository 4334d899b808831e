"""A request that ends or freezes the process twice is set aside: real servers, and functions that do such harm."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from http.client import HTTPException
from time import monotonic

import pytest

from ragmon.server.erasure import erase
from ragmon.server.process import FROZEN, LEAVE
from ragmon.server.store import JournalReader
from tests.support.otlp_requests import export
from tests.support.serving import (
    accounted,
    asked,
    configuration,
    foreign,
    get,
    journalled,
    process,
    send_body,
    values,
    whole,
)
from tests.support.waiting import wait_for

GUILTY = 7
"""The request that harms."""
POISON = "poison"
FUNCTIONS = """
import os, re, signal, threading
from pathlib import Path

def harm():
    Path("harmed").touch()
    {harm}

def clear(text):
    if "poison" in text:
        harm()
    return text
"""
METRIC = """
from ragmon.metrics import Metric, register

@register
class Harming(Metric):
    name = "harming"

    def score(self, facts):
        if facts.error:
            harm()
        return 1.0
"""
HARMS = {
    "a regular expression that keeps Python's lock": 're.match(r"(a+)+$", "a" * 64 + "b")',
    "a function that does not return": "threading.Event().wait()",
    "the end of the process": "os.kill(os.getpid(), signal.SIGKILL)",
}
HOLDS, HANGS, DIES = HARMS


def poisoned(folder, harm, *, metric=False):
    """A configuration whose redactor, or whose metric, does harm."""
    (folder / "clearing.py").write_text(FUNCTIONS.format(harm=HARMS[harm]) + METRIC * metric)
    redacted = '[capture]\ncontent = "redacted"\nredactors = ["clearing:clear"]\n'
    configuration(folder, 'plugins = ["clearing"]\n' if metric else redacted)


def traces(numbers):
    """What a framework traced; the answer of one request is poison."""
    for number in numbers:
        for span in foreign(number):
            said = {"output.value": POISON} if number == GUILTY and "output.value" in span.attributes else {}
            yield span._replace(attributes={**span.attributes, **said})


def harmed(folder):
    """Wait until the function does its harm; it may be done again then."""
    wait_for((folder / "harmed").exists, bool)
    (folder / "harmed").unlink()


@contextmanager
def set_aside(folder, received, *, trace_id):
    """A third start: healthy, all but one request scored, and that one named everywhere."""
    with process(folder) as running:
        send_body(running, whole([asked(n) for n in range(1000, 1005)]))
        books = accounted(running)
        assert (books["received"], books["scored"]) == (received + 5, received + 4)
        assert books["dropped"] == {"quarantined": 1}
        assert get(f"{running.admin}/healthz") == (200, "ok\n")
        code, said = get(f"{running.admin}/readyz")
        assert (code, "1 request is quarantined" in said) == (200, True)
        shown = values(get(f"{running.admin}/metrics")[1])
        assert shown['ragmon_records_dropped_total{reason="quarantined",stage="ingest"}'] == 1
        status = running.status()
        assert [one["trace_id"] for one in status["quarantined"]] == [trace_id]
        assert any("1 request is quarantined" in doubt["what"] for doubt in status["doubts"])
        yield running
        assert running.stop() == 0


def kept(folder):
    """What the journal keeps to be looked at."""
    with JournalReader(folder / "state") as journal:
        return list(journal.quarantined())


def command(folder, *arguments):
    """What a command says, in a process of its own: the functions are this folder's."""
    line = [sys.executable, "-m", "ragmon", *arguments, "--config", folder / "ragmon.toml"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def cpu_of_children():
    """CPU seconds of processes that this one started and that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS)
def test_a_trace_that_harms_twice_is_set_aside_at_the_third_start_and_the_others_count(tmp_path, harm):
    """Frozen, hanging or killed: the requests that came with it, before it and after it are all scored once."""
    poisoned(tmp_path, harm)
    for attempt in range(2):
        with process(tmp_path) as running:
            if not attempt:
                send_body(running, whole([asked(n) for n in range(50)]))
                send_body(running, export(traces(range(20))).SerializeToString())
            harmed(tmp_path)
            running.kill()
    guilty = foreign(GUILTY)[0].trace_id
    with set_aside(tmp_path, 70, trace_id=guilty):
        assert f"trace {guilty}" in command(tmp_path, "doctor")
    (one,) = kept(tmp_path)
    assert (one.trace_id, one.step, POISON.encode() in one.body) == (guilty, "assembling", True)
    assert b"What is 6?" not in one.body, "what others asked in the same request is not kept with it"
    scored = [record.trace_id for record in journalled(tmp_path)]
    honest = {foreign(n)[0].trace_id for n in range(20) if n != GUILTY} | {asked(n).trace_id for n in range(50)}
    assert honest < set(scored)
    assert len(scored) == len(set(scored))


@pytest.mark.slow
def test_a_frozen_process_is_ended_by_the_kernel_and_one_that_is_asked_to_end_does_not_wait(tmp_path):
    """SIGTERM reaches no Python while a call keeps its lock: after seconds of CPU the process is gone all the same."""
    poisoned(tmp_path, HOLDS)
    with process(tmp_path) as running:
        send_body(running, export(traces(range(GUILTY, GUILTY + 1))).SerializeToString())
        before = cpu_of_children()
        harmed(tmp_path)
        running.send(signal.SIGTERM)
        assert running.wait() == -signal.SIGPROF
        assert any("clearing.py" in line for line in running.lines), "it says where it was"
        assert not any(POISON in line for line in running.lines), "and quotes nobody"
    # Two seconds are for the start.
    assert cpu_of_children() - before < FROZEN + 4


@pytest.mark.slow
def test_a_server_that_hangs_over_a_trace_ends_within_ten_seconds_of_a_signal(tmp_path):
    """What it accepted is on disk, so it leaves with 0; that it was at the trace is remembered like a crash."""
    poisoned(tmp_path, HANGS)
    with process(tmp_path) as running:
        send_body(running, export(traces(range(10))).SerializeToString())
        harmed(tmp_path)
        asked_at = monotonic()
        assert running.stop() == 0
        assert LEAVE - 1 < monotonic() - asked_at < LEAVE + 12  # a promise about time: the rest is for a busy machine
        assert any("takes too long: it exits" in line for line in running.lines)
    with process(tmp_path) as running:
        harmed(tmp_path)
        running.kill()
    with set_aside(tmp_path, 10, trace_id=foreign(GUILTY)[0].trace_id):
        pass


@pytest.mark.slow
def test_a_line_that_harms_twice_while_it_is_scored_is_set_aside_and_stays_so_in_every_replay(tmp_path):
    """The records in its row count, and so do those that came after it; forgotten, it is off the disk."""
    poisoned(tmp_path, DIES, metric=True)
    guilty = asked(GUILTY, error="TimeoutError", tags={"who": "somebody in particular"})
    records = [guilty if n == GUILTY else asked(n) for n in range(20)]
    with process(tmp_path) as running:
        # What came is on disk before it is scored, and answered meanwhile: the answer may be lost with the process.
        with suppress(OSError, HTTPException):
            send_body(running, whole(records))
        harmed(tmp_path)
        running.wait()
    with process(tmp_path) as running:  # it never gets ready
        harmed(tmp_path)
        running.wait()
    with set_aside(tmp_path, 20, trace_id=guilty.trace_id) as running:
        before = running.status()["books"]["ingest"]
    (one,) = kept(tmp_path)
    assert (one.step, b"somebody in particular" in one.body) == ("scoring", True)
    assert guilty.trace_id not in {record.trace_id for record in journalled(tmp_path)}
    report = json.loads(command(tmp_path, "replay", "--journal", tmp_path / "state"))
    assert report["records"]["scored"] == before["scored"]
    command(tmp_path, "verify", "--deep", "--state-dir", tmp_path / "state")
    assert erase(tmp_path / "state", tag=("who", "somebody in particular")).quarantined == 1
    assert kept(tmp_path) == []
    files = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())
    assert b"somebody in particular" not in files
