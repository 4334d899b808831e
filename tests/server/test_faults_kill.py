"""Processes that die: the server at any moment, its producers, and servers that want the same folder."""

from __future__ import annotations

import http.client
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from itertools import count

import pytest

from ragmon.cli.serve import TEMPORARY
from ragmon.server.store import JournalReader
from ragmon.stream.assembler import AssemblyLimits
from tests.support.command_line import environment
from tests.support.fork_server import Command
from tests.support.otlp_requests import as_json, export
from tests.support.serving import (
    PROTOBUF,
    accounted,
    asked,
    between_rows,
    configuration,
    digest,
    foreign,
    journalled,
    post,
    process,
    replayed,
    send_body,
    serving,
    whole,
    within,
)
from tests.support.waiting import TIMEOUT, wait_for

KILLS = 50
OFTEN = 12
"""Requests of users in one export."""


class Victim:
    """A server that may be killed at any moment, also while it starts.

    Attributes:
        otlp: Where it takes exports; None before it does.
        said: What it wrote.
        ready: It takes them, or has ended.
    """

    def __init__(self, folder):
        self.otlp = None
        self.said = []
        self.ready = threading.Event()
        self.process = Command(["serve", "--config", folder / "ragmon.toml"], env=environment(), cwd=folder)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith("otlp: "):
                self.otlp = f"http://{line.removeprefix('otlp: ').strip()}"
            if line == "ready\n":
                self.ready.set()
        self.ready.set()

    def end(self, number):
        """Send it a signal and wait for its end; returns its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(TIMEOUT)
        self._reader.join()
        self.process.stderr.close()
        return code


class Producer(threading.Thread):
    """Sends each export until it is acknowledged, then the next one; told to stop, it ends the group it is at.

    Told to give up as well, it ends at once.

    Args:
        groups: What it sends: groups of exports.

    Attributes:
        place: Where the server is, as far as anybody knows.
        tries: How often it sent something.
    """

    def __init__(self, groups):
        super().__init__(daemon=True)
        self.place = None
        self.tries = 0
        self.stopping = threading.Event()
        self.giving_up = threading.Event()
        self._groups = groups

    def run(self):
        for group in self._groups:
            for body, kind in group:
                while not self._sent(body, kind):
                    if self.giving_up.wait(0.02):
                        return
            if self.stopping.is_set():
                return

    def _sent(self, body, kind):
        if (place := self.place) is None:
            return False
        self.tries += 1
        try:
            code, text = post(f"{place}/v1/traces", body, kind)
        except (OSError, http.client.HTTPException):
            return False  # it was killed before, while, or just after it took the export
        assert code in (200, 429, 503), text
        return code == 200


@contextmanager
def producing(*feeds):
    """Producers at work, and a way to wait until each has ended what it began; behind the block all have stopped."""
    producers = [Producer(feed) for feed in feeds]
    for one in producers:
        one.start()

    def finish():
        for one in producers:
            one.stopping.set()
        for one in producers:
            one.join(TIMEOUT)
            assert not one.is_alive()

    try:
        yield producers, finish
    finally:
        for one in producers:
            one.stopping.set()
            one.giving_up.set()
        for one in producers:
            one.join(TIMEOUT)


def users(numbers, sent):
    """Exports of ragmon's own spans."""
    while True:
        records = [asked(next(numbers)) for _ in range(OFTEN)]
        sent["own"] += [record.trace_id for record in records]
        yield [(whole(records), PROTOBUF)]


def frameworks(numbers, sent, rng):
    """Exports of other instrumentations: what was retrieved, in JSON, before the call; some inside a decorated one."""
    while True:
        traces = [foreign(next(numbers)) for _ in range(3)]
        sent["foreign"] += [spans[0].trace_id for spans in traces]
        record = asked(next(numbers))
        sent["own"].append(record.trace_id)
        sent["decorated"].append(record.trace_id)
        inside = within(record, next(numbers))
        early = as_json(export([spans[1] for spans in traces] + inside[1:])), "application/json"
        group = [early, (export([spans[0] for spans in traces] + inside[:1]).SerializeToString(), PROTOBUF)]
        group.insert(rng.randrange(3), (whole([record]), PROTOBUF))
        yield group


@pytest.mark.slow
def test_whenever_the_server_is_killed_every_acknowledged_request_is_scored_once(tmp_path):
    """Fifty times, one in five while it starts; now and then it is stopped in order, so that there are checkpoints."""
    configuration(tmp_path)
    rng, numbers = random.Random(5), count()
    sent = {"own": [], "foreign": [], "decorated": []}
    feeds = users(numbers, sent), users(numbers, sent), frameworks(numbers, sent, rng)
    with producing(*feeds) as (producers, finish):
        for number in range(KILLS + KILLS // 10):
            victim = Victim(tmp_path)
            in_order = number % 11 == 10
            if number % 5 == 0 and not in_order:
                victim.ready.wait(rng.uniform(0.0, 1.0))
            else:
                assert victim.ready.wait(TIMEOUT)
                for one in producers:
                    one.place = victim.otlp
                threading.Event().wait(rng.uniform(0.0, 0.3))
            code = victim.end(signal.SIGTERM if in_order else signal.SIGKILL)
            assert code == (0 if in_order else -signal.SIGKILL), victim.said
        with process(tmp_path) as last:
            for one in producers:
                one.place = last.otlp
            finish()
            assert last.status()["journal"]["resets"] == 0
    with serving(tmp_path) as running:
        books = accounted(running)
        scored = Counter(record.trace_id for record in journalled(tmp_path))
        found = digest(running)
    assert scored == dict.fromkeys(sent["own"] + sent["foreign"], 1)
    assert books["scored"] == len(scored)
    assert books["ignored"] == {"decorated": len(sent["decorated"])}
    assert replayed(tmp_path) == found
    assert sum(one.tries for one in producers) > 2 * KILLS


def test_what_came_twice_leaves_no_text_behind(tmp_path):
    """A producer whose answer was lost sends a trace again: no copy of it stays on disk once it is a record."""
    with serving(tmp_path) as running:
        for _ in range(3):
            send_body(running, export(foreign(1)).SerializeToString())
        assert accounted(running)["scored"] == 1
        wait_for(lambda: _bodies(tmp_path), lambda bodies: not bodies)


def _bodies(folder):
    with JournalReader(folder / "state") as journal:
        return list(journal.pending_requests())


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.02, 1.0])
def test_what_waits_keeps_its_draw_when_the_rate_is_another_after_a_restart(tmp_path, rate):
    """Of traces that came together some were drawn and wait, some were not: each counts once, whatever is drawn now."""
    folder, left, rng = tmp_path / "folder", tmp_path / "left", random.Random(1)
    folder.mkdir()
    ids = [f"{rng.getrandbits(128):032x}" for _ in range(40)]
    spans = [span._replace(trace_id=trace_id) for trace_id in ids for span in foreign(0)]
    with serving(
        folder, "[sampling]\nrate = 0.5\n", assembly_limits=AssemblyLimits(idle=600.0, rootless=600.0)
    ) as running:
        send_body(running, export(spans).SerializeToString())
        before = running.wait_for(lambda books: books["received"] == 40)
        between_rows(running, lambda: shutil.copytree(folder, left))
    assert 0 < before["pending"] < 40
    with serving(left, f"[sampling]\nrate = {rate}\n") as running:
        books = accounted(running)
    assert (books["received"], books["scored"]) == (40, before["pending"])
    assert books["ignored"] == {"unsampled": 40 - before["pending"]}


APPLICATION = """
import sys
import ragmon
ragmon.install(sys.argv[1])

@ragmon.trace(name="support", sample=1.0)
def answer(question):
    return {"answer": "yes", "citations": []}

for calls in map(int, sys.argv[2:]):
    for n in range(calls):
        answer(f"Question {n}?")
    print("asked", flush=True)
    sys.stdin.readline()
"""


def application(folder, endpoint, *arguments):
    """A program whose calls go to a server."""
    path = folder / "application.toml"
    path.write_text(f'pipeline = {{ name = "support" }}\n[export]\nendpoint = "{endpoint}"\n', encoding="utf-8")
    private = folder / "pages"
    private.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-c", APPLICATION, str(path), *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, env={**os.environ, "TMPDIR": str(private)}, **pipes)


@pytest.mark.slow
def test_what_a_killed_producer_had_not_sent_is_told_by_the_next_one(tmp_path):
    """What it had sent is scored; the rest is a number of lost records, not a silence."""
    with serving(tmp_path) as running:
        with application(tmp_path, running.otlp, 1000, 3000) as killed:
            assert killed.stdout.readline() == b"asked\n"
            running.wait_for(lambda books: books["scored"] == 1000)
            killed.stdin.write(b"go on\n")
            killed.stdin.flush()
            assert killed.stdout.readline() == b"asked\n"
            killed.kill()
        with application(tmp_path, running.otlp, 10) as next_one:
            assert next_one.stdout.readline() == b"asked\n"
            assert next_one.communicate(b"end\n", timeout=TIMEOUT)
            assert next_one.returncode == 0
        lost = wait_for(running.status, lambda found: found["producers"]["dropped"])["producers"]["dropped"]
        scored = accounted(running)["scored"]
        on_its_way = lost.pop("unconfirmed", 0)  # it may have arrived
        assert lost.keys() == {"process_died"}
        assert scored + lost["process_died"] <= 4010 <= scored + lost["process_died"] + on_its_way


@pytest.mark.slow
def test_a_server_asked_to_stop_under_load_answers_what_it_took(tmp_path):
    """Asked again while it does so, it goes on doing it; what it acknowledged is there, the rest was refused."""
    configuration(tmp_path)
    sent, numbers = {"own": []}, count()
    with process(tmp_path) as running, producing(*(users(numbers, sent) for _ in range(4))) as (producers, finish):
        for one in producers:
            one.place = running.otlp
        wait_for(running.books, lambda books: books["scored"] > 200)
        running.send(signal.SIGTERM)
        running.send(signal.SIGTERM)
        assert running.stop() == 0
        with process(tmp_path) as again:
            for one in producers:
                one.place = again.otlp
            finish()
            books = accounted(again)
            assert again.stop() == 0
    assert Counter(record.trace_id for record in journalled(tmp_path)) == dict.fromkeys(sent["own"], 1)
    assert books["scored"] == len(sent["own"])


@pytest.mark.slow
def test_of_servers_that_want_one_folder_at_once_one_has_it(tmp_path):
    """The others say who; when that one is killed the next one goes on at once."""
    configuration(tmp_path)
    rivals = [Victim(tmp_path) for _ in range(3)]
    for one in rivals:
        assert one.ready.wait(TIMEOUT)
    (winner,) = (one for one in rivals if one.otlp)
    send_body(winner, whole([asked(n) for n in range(20)]))
    for one in rivals:
        if one is not winner:
            assert one.process.wait(TIMEOUT) == TEMPORARY
            assert any(f"in use by process {winner.process.pid}" in line for line in one.said), one.said
            assert one.end(0) == TEMPORARY
    assert winner.end(signal.SIGKILL) == -signal.SIGKILL
    with serving(tmp_path) as running:
        send_body(running, whole([asked(n) for n in range(10, 30)]))
        books = accounted(running)
        assert (books["scored"], books["duplicate"]) == (30, 10)
        found = digest(running)
    assert replayed(tmp_path) == found
