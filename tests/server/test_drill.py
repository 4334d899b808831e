"""The incident drill, on real processes: an application, a server, a swapped index, somebody who asks what broke.

The clocks of both run sixty times faster, so that an hour takes a minute; nothing else is changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import pytest

from ragmon.config.load import load
from ragmon.server.state import recover, replay
from ragmon.server.store import JournalReader
from tests.support.command_line import ragmon
from tests.support.serving import PORTS, get
from tests.support.waiting import TIMEOUT, wait_for

ROOT = Path(__file__).parents[2]
PACE = 60
CONFIGURATION = """
[pipeline]
name = "harbour"
[sampling]
rate = 0.25
[capture]
gold = "gold.jsonl"
[gold.harbour]
path = "gold.jsonl"
[gates.answer_precision]
at_least = 0.80
source = "probe"
[gates.citation_hit_rate]
at_least = 0.75
source = "probe"
[gates.compliance]
at_least = 0.98
[gates.index_hash]
kind = "distinct"
at_most = 1.0
[links]
trace = "http://127.0.0.1:6006/traces/{trace_id}"
"""


@contextmanager
def program(name, *arguments, env):
    """A program of the drill, once it has said that it is ready; ended at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.support.{name}", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        cwd=ROOT,
    )
    said = []
    for line in process.stdout:
        said.append(line.rstrip())
        if said[-1] in ("ready", "asking"):
            break
    try:
        yield process, said
        process.send_signal(signal.SIGTERM)
        said += process.communicate(timeout=TIMEOUT)[0].splitlines()
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_swapped_index_is_found_named_and_seen_to_be_put_right(tmp_path):
    """In minutes the gate fires; `ragmon why` names gate, minute, index and traces; the fix ends the alarm."""
    config = tmp_path / "ragmon.toml"
    config.write_text(CONFIGURATION + PORTS, encoding="utf-8")
    shutil.copy(resources.files("ragmon.demo") / "gold.jsonl", tmp_path)
    begun = time.time()
    env = {**os.environ, "PACE": str(PACE), "PACE_FROM": str(begun), "TMPDIR": str(tmp_path)}

    def now():
        return begun + (time.time() - begun) * PACE

    with program("drill_server", config, env=env) as (_, said):
        places = dict(line.split(": ") for line in said if ": " in line)
        admin = f"http://{places['admin']}"

        def status():
            return json.loads(get(f"{admin}/api/status")[1])

        def firing():
            return {alarm["alert"] for alarm in status()["alarms"]}

        sent = {**env, "RAGMON_CONFIG": str(config), "RAGMON_ENDPOINT": f"http://{places['otlp']}"}
        with program("drill_app", env=sent) as (app, told):
            wait_for(status, lambda found: found["books"].get("ingest", {}).get("scored", 0) > 800)
            assert firing() == set()
            swapped = now()
            app.send_signal(signal.SIGUSR1)
            wait_for(firing, lambda found: {"answer_precision", "index_hash"} <= found)
            assert now() - swapped < 30 * 60
            wait_for(lambda: ask(admin), lambda found: found["change"]["began"] is not None)
            explained = ask(admin)
            text = ragmon("why", "harbour/answer_precision", "--url", admin, "--config", config).out
            app.send_signal(signal.SIGUSR2)
            wait_for(firing, lambda found: "answer_precision" not in found)
        assert told[-1] == "0", "the application accounts for everything it captured"
        books = wait_for(status, lambda found: not found["producers"]["missing"])["books"]["ingest"]
    assert books["residual"] == 0
    assert abs(explained["change"]["began"] - swapped) < 3 * 60
    indexes = re.findall(r"index_hash ([0-9a-f]{8})", text)
    assert explained["suspects"][0]["name"] == indexes[0]
    assert datetime.fromtimestamp(explained["change"]["began"], UTC).strftime("worse since %H:%M UTC") in text
    assert text.count("http://127.0.0.1:6006/traces/") >= 3
    assert len(text.splitlines()) <= 25
    same_again(tmp_path, load(config, environ={}))


def ask(admin):
    return json.loads(get(f"{admin}/api/why?gate=harbour/answer_precision")[1])


def same_again(folder, settings):
    """A replay of the journal gives the server's own counts and alarms."""
    with JournalReader(folder / "state") as journal:
        server, again = recover(settings, journal), replay(settings, journal)
    assert again.engine.scorer.state.digest() == server.engine.scorer.state.digest()
    edges = list(server.engine.transitions)
    assert list(again.engine.transitions)[: len(edges)] == edges
    assert {edge.state for edge in edges if edge.alert == "answer_precision"} == {"firing", "resolved"}
