"""Everything an attacker has, in any order, beside honest clients, for as long as `RAGMON_ATTACK_SECONDS` says.

`make attack` runs ten minutes of it.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import statistics
import sys
import threading
from collections import Counter
from itertools import count
from time import monotonic

import pytest

from tests.support.attacking import Idlers, Target, doses, give, trusting
from tests.support.command_line import ragmon
from tests.support.fake_consumer import certificate
from tests.support.otlp_requests import as_json, export
from tests.support.process_usage import cpu_seconds, resident
from tests.support.serving import PROTOBUF, asked, configuration, foreign, journalled, process, whole
from tests.support.waiting import TIMEOUT, wait_for

SECONDS = float(os.environ.get("RAGMON_ATTACK_SECONDS", "20"))
KILLED_EVERY = 60.0
"""Seconds after which the server is killed and started again."""
ATTACKERS = 2
CPU = 0.25
"""Seconds of its processor time in which a server answers a scrape and a probe of its health."""


class Honest(threading.Thread):
    """Sends its requests until each is acknowledged.

    Args:
        feed: Bodies to send, and the traces in each.

    Attributes:
        target: Where the server is; None while there is none.
        acknowledged: The traces that were acknowledged.
    """

    def __init__(self, feed):
        super().__init__(daemon=True)
        self.target = None
        self.acknowledged = []
        self.stopping = threading.Event()
        self._feed = feed

    def run(self):
        for body, kind, trace_ids in self._feed:
            while not self._sent(body, kind):
                self.stopping.wait(0.05)
            self.acknowledged += trace_ids
            if self.stopping.wait(0.05):
                return

    def _sent(self, body, kind):
        if (target := self.target) is None:
            return False
        try:
            status, text = target.post("/v1/traces", body, kind)
        except (OSError, http.client.HTTPException):
            return False
        assert status in (200, 429, 503), text
        return status == 200


def users(numbers):
    """Whole records of decorated calls, some to an export."""
    while True:
        records = [asked(next(numbers)) for _ in range(5)]
        yield whole(records), PROTOBUF, [record.trace_id for record in records]


def frameworks(numbers):
    """Traces of an instrumentation, in JSON."""
    while True:
        spans = foreign(next(numbers))
        yield as_json(export(spans)), "application/json", [spans[0].trace_id]


class Watch(threading.Thread):
    """Scrapes a server and probes its health, and notes what that takes of its processor time.

    Attributes:
        cost: Seconds, by path.
        wrong: Answers that were none.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.running = None
        self.cost = {"/metrics": [], "/healthz": []}
        self.wrong = Counter()
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.wait(0.5):
            for path in self.cost:
                if (found := self.running) is not None:
                    self._look(path, *found)

    def _look(self, path, target, pid):
        try:
            before = cpu_seconds(pid)
            status, _ = target.get(path)
            taken = cpu_seconds(pid) - before
        except (OSError, http.client.HTTPException) as error:
            if self.running is not None:
                self.wrong[f"{path}: {error!r}"] += 1
            return
        self.cost[path].append(taken)
        if status != 200:
            self.wrong[f"{path}: {status}"] += 1


class Attacker(threading.Thread):
    """Gives doses, in any order, until some moment.

    Attributes:
        target: Where the server is; None while there is none.
        given: How many doses of each kind, and whether they were answered.
    """

    def __init__(self, seed, until):
        super().__init__(daemon=True)
        self.target = None
        self.given = Counter()
        self._rng = random.Random(seed)
        self._until = until

    def run(self):
        idlers = Idlers()
        known = doses(idlers)
        while monotonic() < self._until:
            if (target := self.target) is None:
                threading.Event().wait(0.05)
                continue
            name = self._rng.choice(list(known))
            answered = give(known[name], target, self._rng)
            self.given[f"{name}: {'answered' if answered else 'cut'}"] += 1
        idlers.close()


def configured(folder):
    """Configures a server that speaks TLS; returns what its clients trust."""
    cert, key = certificate(folder)
    path = configuration(folder, "[pipelines.support]\n")
    path.write_text(f'{path.read_text()}tls = {{ cert = "{cert}", key = "{key}" }}\n')
    return trusting(cert)


def at_work(running, trust, threads, watch):
    """Tell everybody where the server is."""
    target = Target(running.otlp, running.admin, trust)
    for thread in threads:
        thread.target = target
    watch.running = target, running.pid


def ended(running, attackers, clients, watch):
    """The books of a server that nobody attacks any more, once nothing waits; it ends in order."""
    for thread in (*attackers, *clients, watch):
        thread.stopping.set() if hasattr(thread, "stopping") else None
        thread.join(TIMEOUT)
        assert not thread.is_alive(), thread
    books = wait_for(running.books, lambda found: not found["pending"])
    held = resident(running.pid)
    assert running.stop(signal.SIGTERM) == 0, running.lines
    return {**books, "rss_mib": held >> 20}


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_honest_requests_are_all_counted_beside_every_attack(tmp_path):
    """Each acknowledged trace is one record, the books close, the journal verifies, and it answers all the while."""
    trust, numbers, watch = configured(tmp_path), count(), Watch()
    until = monotonic() + SECONDS
    clients = [Honest(users(numbers)), Honest(frameworks(numbers))]
    attackers = [Attacker(seed, until) for seed in range(ATTACKERS)]
    for thread in (*clients, *attackers, watch):
        thread.start()
    while True:
        with process(tmp_path) as running:
            at_work(running, trust, (*clients, *attackers), watch)
            threading.Event().wait(min(KILLED_EVERY, max(until - monotonic(), 0.0)))
            if monotonic() >= until:
                books = ended(running, attackers, clients, watch)
                break
            watch.running = None
            for attacker in attackers:
                attacker.target = None
            running.kill()
    honest = [trace_id for client in clients for trace_id in client.acknowledged]
    report(sum((one.given for one in attackers), Counter()), watch, {**books, "honest": len(honest)})
    scored = Counter(record.trace_id for record in journalled(tmp_path) if record.pipeline == "support")
    assert {trace_id: scored[trace_id] for trace_id in honest} == dict.fromkeys(honest, 1)
    assert books["residual"] == 0
    verified = ragmon("verify", "--state-dir", tmp_path / "state", "--config", tmp_path / "ragmon.toml")
    assert verified.code == 0, verified.err
    assert not watch.wrong
    # The processor's time counts for whatever the process does meanwhile: one in ten may take longer.
    for path, taken in watch.cost.items():
        assert sum(cost > CPU for cost in taken) <= 1 + len(taken) // 10, (path, sorted(taken)[-10:])


def report(given, watch, books):
    """Say what was done, for whoever runs it by hand."""
    told = {
        path: {"median": statistics.median(taken), "highest": [round(cost, 2) for cost in sorted(taken)[-5:]]}
        for path, taken in watch.cost.items()
    }
    found = {"doses": dict(sorted(given.items())), "books": books, "cpu": told, "wrong": dict(watch.wrong)}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
