"""`ragmon demo` as a newcomer runs it: every incident turns its gate red, on screen and on its page, and replays."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import tomllib
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
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
SHOWN = re.compile(r'">(\w+)</a> <small>[^<]*</small></th>\s*<td><span class="verdict fail">')


@dataclass
class Show:
    """A demo under way, in folders of its own, and what it has said so far."""

    home: Path
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    begun: threading.Event = field(default_factory=threading.Event)
    red: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self):
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        """Take every line; whenever a gate turns red, look at /metrics and at the page which gates fail."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("-- "):
                self.begun.set()
            if " RED " in line:
                self.failing |= set(FAILS.findall(self.get("metrics")))
                self.shown |= set(SHOWN.findall(self.get("").replace("<wbr/>", "")))
                self.red.set()

    def get(self, path):
        """What the address that it names answers."""
        with urlopen(self.page + path, timeout=TIMEOUT) as reply:
            return reply.read().decode()

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
    def page(self):
        return self.text_after("Page: ").split()[0]

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
    shows = {
        incident: show(tmp_path_factory.mktemp(incident), "--port", 0, "--for", 30, "--incident", incident)
        for incident in EXPECTED
    }
    bare = {"PYTHONPATH": os.pathsep.join((str(without_extras), os.environ.get("PYTHONPATH", "")))}
    shows["bare"] = show(tmp_path_factory.mktemp("bare"), "--port", 0, "--for", 1, **bare)
    shows["stopped"] = show(tmp_path_factory.mktemp("stopped"), "--port", 0)
    yield shows
    for one in shows.values():
        if one.process.returncode is None:
            os.killpg(one.process.pid, signal.SIGINT)
        one.end()


@pytest.fixture(params=EXPECTED)
def finished(request, shows):
    """The demo of each incident, ended."""
    return shows[request.param].end()


def test_ctrl_c_ends_it_with_its_summary(shows):
    """Until then it goes on, red as it is, and its page answers."""
    stopped = shows["stopped"]
    assert stopped.red.wait(timeout=TIMEOUT)
    assert "harbour/" in stopped.get("")
    os.killpg(stopped.process.pid, signal.SIGINT)
    stopped.end()
    assert stopped.process.returncode == 0
    assert stopped.text_after(" turned red: ").startswith("index_hash after ")
    assert any(re.fullmatch(r"(\d+) calls captured, \1 scored, 0 lost\.", line) for line in stopped.lines)


def test_it_needs_no_extra_and_ends_by_itself_once_a_gate_is_red(shows):
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
def test_another_port_is_taken_where_the_usual_one_is_not_free(tmp_path):
    """Ctrl-C before the incident ends it as well."""
    with ExitStack() as held:
        with suppress(OSError):  # another program has it
            held.enter_context(socket.create_server(("127.0.0.1", 9464)))
        other = show(tmp_path)
        assert other.begun.wait(timeout=TIMEOUT)
        os.killpg(other.process.pid, signal.SIGINT)
        other.end()
    assert re.fullmatch(r"http://127\.0\.0\.1:(?!9464/)\d+/", other.page)
    assert other.process.returncode == 0
    assert "Stopped before the incident." in other.lines
    assert Path(other.text_after("Trace log: ")).is_file()


@pytest.mark.usefixtures("shows")
def test_a_terminal_gets_a_table_that_is_drawn_anew(tmp_path):
    """80 columns hold every name, number and verdict."""
    done = on_terminal("stdout", "demo", "--port", 0, "--for", 1, env={"TMPDIR": str(tmp_path)})
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\x1b[1A") > 100  # the cursor goes up, to the start of the table
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.out)
    last = text[text.rindex("95 % interval") :]
    for name in ("answer_precision", "citation_hit_rate", "under_refusal_rate", "index_hash"):
        row = next(line for line in last.splitlines() if line.split()[:1] == [name])
        assert row.split()[-1] in ("pass", "fail", "insufficient")
    assert "digest " in last


def test_it_introduces_itself_in_four_lines_that_say_how_dense_the_traffic_is(finished):
    assert finished.lines[0].startswith("A small RAG pipeline answers users, and probes")
    assert "72 questions a second, and gates over the last 20s" in finished.lines[2]
    assert finished.lines[4].startswith("-- ")


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
def test_the_page_and_metrics_show_the_red_gates_while_it_runs(shows, incident):
    told = shows[incident].end()
    assert told.failing >= EXPECTED[incident]
    assert told.shown >= EXPECTED[incident]


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
