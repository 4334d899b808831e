"""`ragmon demo` as a newcomer runs it: every incident turns its gate red, on screen and on /metrics, and replays."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
import tomllib
from dataclasses import dataclass, field
from datetime import datetime
from datetime import time as time_of_day
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.command_line import environment, on_terminal, ragmon, start
from tests.support.deployed import ROOT
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.slow

EXPECTED = {
    "index_drift": {"answer_precision", "citation_hit_rate", "index_hash"},
    "refusal_wave": {"over_refusal_rate"},
    "hallucination": {"under_refusal_rate"},
    "citation_break": {"citation_scope", "coverage"},
    "latency": {"answered_within"},
}
"""What must turn red, at least."""
EXTRAS = ("judge", "embed", "zstd", "table")
GATE = re.compile(r"^(\w+) (–|[\d.]+ %|\d+) (pass|fail|insufficient)$")
FAILS = re.compile(r'^ragmon_gate_status\{gate="(\w+)",pipeline="harbour",status="fail"\} 1\.0$', re.MULTILINE)


@dataclass
class Show:
    """A demo under way, in folders of its own, and what it has said so far."""

    home: Path
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    shown: threading.Event = field(default_factory=threading.Event)
    broken: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self):
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        """Take every line; whenever a gate turns red, ask /metrics which gates fail."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("-- "):
                self.shown.set()
            if " INCIDENT " in line:
                self.broken.set()
            if " RED " in line:
                with urlopen(self.text_after("Metrics: "), timeout=TIMEOUT) as reply:
                    self.failing |= set(FAILS.findall(reply.read().decode()))

    def end(self):
        """Wait for the end; stderr must have stayed empty."""
        if self.process.returncode is None:
            self.reader.join(timeout=TIMEOUT)
            with self.process:
                assert self.process.stderr.read() == ""
        return self

    def text_after(self, mark):
        return next(line.partition(mark)[2] for line in self.lines if mark in line)

    @property
    def incident(self):
        """The number of the line that announces the incident."""
        return next(number for number, line in enumerate(self.lines) if " INCIDENT " in line)

    @property
    def reds(self):
        return {line.split(" RED ")[1].split(":")[0] for line in self.lines if " RED " in line}

    def commands(self):
        """The two commands it proposes, word for word."""
        return [line.strip() for line in self.lines if line.startswith("  ")]


def show(home, *arguments, **env):
    for folder in ("tmp", "home", "work"):
        (home / folder).mkdir()
    env |= {"TMPDIR": str(home / "tmp"), "HOME": str(home / "home")}
    return Show(home, start("demo", *arguments, env=env, cwd=home / "work", start_new_session=True))


@pytest.fixture(scope="module")
def without_extras(tmp_path_factory):
    """A folder for PYTHONPATH, under which Python finds no package that only an extra of ragmon brings."""
    folder = tmp_path_factory.mktemp("without_extras")
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    packages = [requirement for extra in EXTRAS for requirement in metadata[extra]]
    names = sorted({re.match("[a-z0-9]+", package)[0] for package in packages} | {"bm25s"})
    assert {"numpy", "pyarrow"} <= set(names)
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({names}))\n")
    return folder


@pytest.fixture(scope="module")
def shows(tmp_path_factory, without_extras):
    """All demos at once; most of the time they wait for their users."""
    half_minute = ("--seconds", 30, "--incident")
    shows = {incident: show(tmp_path_factory.mktemp(incident), *half_minute, incident) for incident in EXPECTED}
    shows["short"] = show(tmp_path_factory.mktemp("short"), "--seconds", 20)
    shows["paused"] = show(tmp_path_factory.mktemp("paused"), "--seconds", 20)
    shows["bare"] = show(tmp_path_factory.mktemp("bare"), "--seconds", 20, PYTHONPATH=str(without_extras))
    yield shows
    for one in shows.values():
        if one.process.returncode is None:
            os.killpg(one.process.pid, signal.SIGINT)
        one.end()


@pytest.fixture(params=EXPECTED)
def finished(request, shows):
    """The demo of each incident, ended."""
    return shows[request.param].end()


def test_after_a_pause_of_the_machine_it_says_so_and_still_turns_its_gates_red(shows):
    """The process is stopped at the incident for longer than the rest of the run; the other demos run meanwhile."""
    paused = shows["paused"]
    assert paused.broken.wait(timeout=TIMEOUT)
    os.killpg(paused.process.pid, signal.SIGSTOP)
    stopped = datetime.now().astimezone()
    time.sleep(12)  # a pause is a time
    os.killpg(paused.process.pid, signal.SIGCONT)
    paused.end()
    said = re.match(r"(\d+) s at ([\d:]+); the run goes on", paused.text_after("PAUSE this machine paused for "))
    assert int(said[1]) >= 12
    began = datetime.combine(stopped.date(), time_of_day.fromisoformat(said[2]), stopped.tzinfo)
    assert abs(began - stopped).total_seconds() < 5
    assert f"This machine paused for {said[1]} s at {said[2]}." in paused.lines
    assert paused.reds
    assert paused.process.returncode == 0


def test_it_needs_no_extra(shows):
    bare = shows["bare"].end()
    assert bare.process.returncode == 0
    assert bare.reds


@pytest.mark.usefixtures("shows")
def test_a_taken_port_is_refused_and_leaves_nothing_behind(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        message, hint = ragmon("demo", "--port", port, env={"TMPDIR": str(tmp_path)}).error
    assert message.startswith(f"/metrics cannot be served on 127.0.0.1:{port} (")
    assert hint == "give another --port, or none"
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("shows")
def test_ctrl_c_ends_it_early_and_still_says_where_the_log_is(tmp_path):
    stopped = show(tmp_path, "--seconds", 600)
    assert stopped.shown.wait(timeout=TIMEOUT)
    os.killpg(stopped.process.pid, signal.SIGINT)
    stopped.end()
    assert stopped.process.returncode == 130
    assert "Stopped before the incident." in stopped.lines
    assert Path(stopped.text_after("Trace log: ")).is_file()


@pytest.mark.usefixtures("shows")
def test_a_terminal_gets_a_table_that_is_drawn_anew(tmp_path):
    """80 columns hold every name, number and verdict."""
    done = on_terminal("stdout", "demo", "--seconds", 12, env={"TMPDIR": str(tmp_path)})
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\x1b[1A") > 100  # the cursor goes up, to the start of the table
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.out)
    last = text[text.rindex("95 % interval") :]
    for name in ("answer_precision", "citation_hit_rate", "under_refusal_rate", "index_hash"):
        row = next(line for line in last.splitlines() if line.split()[:1] == [name])
        assert row.split()[-1] in ("pass", "fail", "insufficient")
    assert "digest " in last


def test_a_demo_of_twenty_seconds_turns_a_gate_red(shows):
    assert shows["short"].end().reds


def test_it_introduces_itself_in_three_lines(finished):
    assert finished.lines[0].startswith("A small RAG pipeline answers users, and probes")
    assert finished.lines[3].startswith("-- ")


def test_no_gate_is_red_before_the_incident_and_all_have_passed_by_then(finished):
    before = [found.groups() for line in finished.lines[: finished.incident] if (found := GATE.match(line))]
    assert "fail" not in {verdict for _, _, verdict in before}
    latest = {name: verdict for name, _, verdict in before}
    assert (len(latest), set(latest.values())) == (10, {"pass"})


@pytest.mark.parametrize("incident", EXPECTED)
def test_the_incident_turns_its_gates_red_with_value_interval_and_threshold(shows, incident):
    told = shows[incident].end()
    assert told.reds >= EXPECTED[incident]
    for gate in EXPECTED[incident] - {"index_hash"}:
        line = next(line for line in told.lines if f" RED {gate}: " in line)
        assert re.search(r": [\d.]+ % \(95 % interval [\d.]+ – [\d.]+ %\), needs [≥≤] 0\.\d+: \w", line)


@pytest.mark.parametrize("incident", EXPECTED)
def test_metrics_show_the_red_gates_while_it_runs(shows, incident):
    assert shows[incident].end().failing >= EXPECTED[incident]


def test_the_end_says_how_long_after_the_incident_each_gate_turned_red(finished):
    summary = next(line for line in finished.lines if " turned red: " in line)
    assert set(re.findall(r"(\w+) after [\d.]+ s", summary)) == finished.reds


def test_it_ends_with_0_and_nothing_goes_on_running(finished):
    assert finished.process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(finished.process.pid, 0)


def test_it_leaves_one_file_where_it_says(finished):
    left = [path for path in finished.home.rglob("*") if path.is_file()]
    assert [str(path) for path in left] == [finished.text_after("Trace log: ")]


def test_nothing_is_lost(finished):
    found = re.search(r"^(\d+) calls captured, (\d+) scored, 0 lost\.$", "\n".join(finished.lines), re.MULTILINE)
    assert found
    assert found[1] == found[2]


def test_live_equals_replay(finished):
    """The proposed command, word for word, scores the trace log to the digest the live monitor had."""
    replay, _ = finished.commands()
    report = subprocess.run(replay, shell=True, capture_output=True, text=True, check=True, env=environment())
    assert f"digest `{finished.text_after('digest ')}`" in report.stdout


def test_the_log_as_ci_would_judge_it_fails(finished):
    _, gate = finished.commands()
    judged = subprocess.run(gate, shell=True, capture_output=True, text=True, check=False, env=environment())
    assert (judged.returncode, judged.stderr) == (1, "")
    assert judged.stdout.endswith("\nverdict: fail\n")
