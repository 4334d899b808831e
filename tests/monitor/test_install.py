"""`ragmon.install`: one call connects decorated functions with where their records go, and takes itself down again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from urllib.request import urlopen

import pytest

import ragmon
from ragmon.capture import call
from ragmon.config.load import defaults
from ragmon.core.errors import ConfigError, GoldError, RagmonError
from ragmon.monitor import install as installation
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.install import Installation
from ragmon.testing import Collected, capture_traces
from tests.support.capturing import BrokenError, pipeline
from tests.support.waiting import TIMEOUT, wait_for

traced = ragmon.trace(sample=1.0)(pipeline)


@pytest.fixture(autouse=True)
def nothing_stays():
    """Every test leaves the process as it found it, with books that close."""
    yield
    assert call.current is None
    assert installation._current is None


def shut_down(installed):
    assert installed.shutdown()
    assert installed.counters().residual == 0
    assert installed.counters().pending == 0


def test_a_second_call_changes_nothing(configured):
    first = ragmon.install(configured(), sink=Collected())
    try:
        assert ragmon.install() is first
        assert ragmon.install(configured(), sink=Collected()) is first
    finally:
        shut_down(first)


def test_of_many_threads_that_install_one_does():
    barrier = threading.Barrier(8)

    def install(_):
        barrier.wait(timeout=TIMEOUT)
        return ragmon.install(defaults(), sink=Collected())

    with ThreadPoolExecutor(8) as pool:
        installed = set(pool.map(install, range(8)))
    assert len(installed) == 1
    shut_down(installed.pop())


def test_it_can_be_installed_again_after_shutdown():
    for question in "ab":
        sink = Collected()
        installed = ragmon.install(defaults(), sink=sink)
        traced(question)
        shut_down(installed)
        assert [record.q for record in sink.records] == [question]
        assert installed.shutdown(), "a second shutdown changes nothing"


def test_records_carry_the_build_of_the_process(configured, monkeypatch):
    monkeypatch.setenv("RAGMON_BUILD", "2024-11")
    monkeypatch.chdir(configured().path.parent)
    sink = Collected()
    installed = ragmon.install(sink=sink)
    traced("q")
    shut_down(installed)
    assert [record.build for record in sink.records] == ["2024-11"]


def test_a_broken_configuration_is_refused_and_nothing_is_installed(tmp_path):
    path = tmp_path / "ragmon.toml"
    path.write_text("[sampling]\nrate = 5")
    with pytest.raises(ConfigError, match=r"ragmon.toml:2"):
        ragmon.install(path, sink=Collected())


def test_a_broken_id_path_is_found_at_start_up_and_not_by_the_first_request(configured):
    with pytest.raises(RagmonError, match=r"capture.id_from is not a path: 'metadata\[\]'"):
        ragmon.install(configured('[pipelines.support.capture]\nid_from = "metadata[]"'), sink=Collected())


def test_a_port_that_is_taken_is_refused_and_nothing_is_installed(configured):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RagmonError, match=f"127.0.0.1:{port}") as caught:
            ragmon.install(configured(f'[serve]\nadmin = "127.0.0.1:{port}"\n[export]\njsonl = "trace.jsonl"'))
    assert "another process has the port" in caught.value.hint


@pytest.fixture
def warned(caplog):
    """The warnings that ragmon logs."""
    caplog.set_level("WARNING", "ragmon")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "ragmon"]


def page(monitor, path):
    with urlopen(f"http://{monitor.address}{path}", timeout=TIMEOUT) as answer:
        return answer.read().decode()


class TestInProductionNothingStopsTheApplication:
    """Without strict mode `install` returns, whatever is wrong, and logs one warning with the remedy."""

    def test_a_broken_configuration_switches_capture_off(self, tmp_path, warned):
        path = tmp_path / "ragmon.toml"
        path.write_text("[sampling]\nrate = 5")
        installed = ragmon.install(path, strict=False)
        assert traced("q")["answer"] == "q"
        assert installed.flush()
        assert (installed.settings.disabled, installed.monitor, installed.shutdown()) == (True, None, True)
        (warning,) = warned()
        assert "ragmon is off in this process" in warning
        assert f"{path}:2" in warning
        assert "a number from 0 to 1" in warning or "0.05" in warning

    @pytest.mark.parametrize("text", [None, "{"], ids=["missing", "broken"])
    def test_a_gold_file_that_cannot_be_read_costs_its_metrics_alone(self, configured, tmp_path, warned, text):
        if text is not None:
            (tmp_path / "gold.jsonl").write_text(text)
        settings = configured('[serve]\nadmin = "127.0.0.1:0"\n[gold.support]\npath = "gold.jsonl"')
        with pytest.raises(GoldError):
            ragmon.install(settings, strict=True)
        installed = ragmon.install(settings, strict=False)
        traced("q")
        assert installed.flush()
        (warning,) = warned()
        assert "gold metrics are off" in warning
        assert "gold.jsonl" in warning
        shown = page(installed.monitor, "/metrics")
        assert "ragmon_config_last_reload_successful 0.0" in shown
        assert 'rag_refusal_rate_samples{gold="",pipeline="default",source="live",window="5m"} 1.0' in shown
        assert "gold.jsonl" in json.loads(page(installed.monitor, "/api/status"))["wrong"][0]["what"]
        shut_down(installed)

    def test_a_taken_port_is_waited_for_and_the_monitor_is_elsewhere_meanwhile(self, configured, warned, monkeypatch):
        monkeypatch.setattr("ragmon.monitor.sharing._PORT_EVERY", 0.0)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            place = f"127.0.0.1:{taken.getsockname()[1]}"
            installed = ragmon.install(configured(f'[serve]\nadmin = "{place}"'), strict=False)
            traced("q")
            assert installed.flush()
            assert installed.monitor.address != place
            assert installed.monitor.snapshot().stages["score"].scored == 1
            (warning,) = warned()
            assert place in warning
            assert "change `[serve] admin`" in warning
            assert f"http://{installed.monitor.address}" in warning
        wait_for(lambda: installed.monitor.address, lambda address: address == place)
        assert "ragmon_records_scored_total" in page(installed.monitor, "/metrics")
        shut_down(installed)

    def test_a_trace_log_that_cannot_be_written_costs_its_lines_until_it_can_be(self, configured, tmp_path, warned):
        (tmp_path / "logs").write_text("no folder")
        settings = configured('[serve]\nadmin = "127.0.0.1:0"\n[export]\njsonl = "logs/trace.jsonl"')
        installed = ragmon.install(settings, strict=False)
        traced("lost")
        assert installed.flush()
        assert installed.counters().dropped == {"export_failed": 1}
        assert installed.monitor.snapshot().stages["score"].scored == 1
        (warning,) = warned()
        assert "trace.jsonl: cannot be written" in warning
        (tmp_path / "logs").unlink()
        wait_for(lambda: traced("later") and installed.flush() and (tmp_path / "logs" / "trace.jsonl").exists())
        assert installed.counters().scored >= 1
        shut_down(installed)

    def test_a_judge_without_its_key_is_left_out(self, configured, warned):
        judge = '[judges.faithfulness]\nurl = "http://127.0.0.1:1"\nmodel = "m"\napi_key_file = "nowhere"'
        installed = ragmon.install(configured(judge), sink=(sink := Collected()), strict=False)
        traced("q")
        shut_down(installed)
        assert len(sink.records) == 1
        assert len(warned()) == 1

    def test_an_error_that_nobody_foresaw_switches_capture_off(self, warned):
        installed = ragmon.install(defaults(), sink=object(), strict=False)
        assert traced("q")["answer"] == "q"
        assert installed.settings.disabled
        assert installed.shutdown()
        (warning,) = warned()
        assert "RAGMON_STRICT=1 shows where" in warning

    def test_a_provider_without_processors_is_left_alone(self, warned):
        installed = ragmon.install(defaults(), sink=Collected(), provider=object(), strict=False)
        shut_down(installed)
        assert "takes no span processors" in warned()[0]

    @pytest.mark.parametrize(
        ("value", "argument", "raises"), [("1", None, True), ("", None, False), ("1", False, False)]
    )
    def test_the_environment_makes_it_strict_where_the_code_says_nothing(
        self, tmp_path, monkeypatch, value, argument, raises
    ):
        monkeypatch.setenv("RAGMON_STRICT", value)
        with pytest.raises(ConfigError) if raises else nullcontext():
            ragmon.install(tmp_path / "missing.toml", strict=argument).shutdown()


def test_without_a_sink_a_monitor_scores_and_is_served(configured):
    installed = ragmon.install(configured('[serve]\nadmin = "127.0.0.1:0"'))
    monitor = installed.monitor
    for question in ("a", "b", "raise"):
        with suppress(BrokenError):
            traced(question)
    assert installed.flush()
    assert monitor.address.startswith("127.0.0.1:")
    reading = monitor.snapshot()
    assert reading.stages["capture"].scored == reading.stages["score"].received == reading.stages["score"].scored == 3
    assert reading.captured.calls["default", "live", "error"] == 1
    shut_down(installed)
    assert monitor.address is None
    assert monitor.snapshot().captured.calls["default", "live", "rest"] == 2, "what was counted stays readable"


def test_a_monitor_given_as_the_sink_knows_of_all_calls_and_stays_its_owners():
    with Monitor(defaults(), clock=lambda: 0).start("127.0.0.1:0") as monitor:
        installed = ragmon.install(defaults(), sink=monitor)
        ragmon.trace(sample=0.0)(pipeline)("q")
        shut_down(installed)
        assert installed.monitor is monitor
        assert monitor.address is not None
        assert monitor.snapshot().captured.calls["default", "live", "rest"] == 1


def test_a_sink_that_fails_costs_the_record_and_nothing_else():
    class Broken(Collected):
        def submit(self, record):
            raise BrokenError(record.q)

    installed = ragmon.install(defaults(), sink=Broken())
    assert traced("q")["answer"] == "q"
    shut_down(installed)
    assert installed.counters().dropped == {"export_failed": 1}


def test_capture_traces_takes_the_place_of_what_is_installed_for_a_while():
    outside = Collected()
    installed = ragmon.install(defaults(), sink=outside)
    traced("before")
    with capture_traces() as inside:
        traced("during")
        with capture_traces() as nested:
            traced("nested")
        traced("still during")
    traced("after")
    shut_down(installed)
    assert [record.q for record in outside.records] == ["before", "after"]
    assert [record.q for record in inside] == ["during", "still during"]
    assert [record.q for record in nested] == ["nested"]


def test_calls_under_way_at_shutdown_are_counted():
    """They return later, to a worker that has left."""
    entered, leave = threading.Event(), threading.Event()

    @ragmon.trace(sample=1.0)
    def slow(question):
        entered.set()
        assert leave.wait(timeout=TIMEOUT)
        return question

    installed = ragmon.install(defaults(), sink=Collected())
    thread = threading.Thread(target=slow, args=("q",))
    thread.start()
    assert entered.wait(timeout=TIMEOUT)
    assert installed.shutdown()
    leave.set()
    thread.join(timeout=TIMEOUT)
    assert installed.counters().dropped == {"shutdown_timeout": 1}
    assert installed.counters().residual == 0


PROGRAM = """
import os, ragmon
@ragmon.trace(sample=1.0)
def answer(question):
    return {"answer": question, "citations": ["d1"], "retrieved": ["d1"]}
ragmon.install("ragmon.toml", sink=None)
for number in range(100):
    answer(str(number))
"""


def lines_of(folder, program):
    """The trace log of a program that ran to its end."""
    (folder / "ragmon.toml").write_text('[serve]\nadmin = "127.0.0.1:0"\n[export]\njsonl = "trace.jsonl"')
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    environment = {**os.environ, "TMPDIR": str(folder)}  # where counters lie
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = map(json.loads, (folder / "trace.jsonl").read_text().splitlines())
    return [line for line in found if line.get("kind") != "totals"]


@pytest.mark.slow
def test_the_end_of_the_program_waits_for_what_is_on_its_way(tmp_path):
    assert len(lines_of(tmp_path, PROGRAM)) == 100


@pytest.mark.slow
def test_a_forked_child_ends_without_waiting_for_threads_it_does_not_have(tmp_path):
    """Neither the worker nor the server lives in the child; its exit must not wait for them."""
    forking = "import sys\nif os.fork() == 0:\n    sys.exit(0)\nassert os.wait()[1] == 0\n"
    assert len(lines_of(tmp_path, PROGRAM + forking)) == 100


def test_disabled_nothing_is_opened_served_or_kept(configured, tmp_path):
    settings = configured('[export]\njsonl = "trace.jsonl"\n[gold.gold]\npath = "missing.jsonl"')
    sink = Collected()
    installed = Installation(replace(settings, disabled=True), sink)
    installed.start()
    traced("q")
    assert (installed.shutdown(), sink.records) == (True, [])
    assert [path.name for path in tmp_path.iterdir()] == ["ragmon.toml"]


@pytest.mark.parametrize(
    ("configured", "expected"),
    [("", "ragmon: ragmon is off in this process: "), ("logging.basicConfig()", "WARNING:ragmon:")],
)
def test_a_log_line_names_the_library_also_where_no_logging_is_configured(tmp_path, configured, expected):
    code = f"import logging, ragmon\n{configured}\nragmon.install({str(tmp_path / 'none.toml')!r})\n"
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAGMON_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stderr.startswith(expected)
    assert done.stderr.count("\n") == 1


def test_a_log_line_goes_to_the_stderr_of_its_time(tmp_path):
    """A runner of tests replaces it for every test, and closes it."""
    code = f"""
import io, logging, sys, ragmon
sys.stderr = io.StringIO()
ragmon.install({str(tmp_path / "none.toml")!r})
sys.stderr.close()
sys.stderr = sys.__stderr__
logging.getLogger("ragmon").warning("later")
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAGMON_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stderr == "ragmon: later\n"
