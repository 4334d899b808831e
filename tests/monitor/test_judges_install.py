"""Judges in an application: from a decorated function to `/metrics`, through whatever happens on the way."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from time import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import ragmon
from ragmon.core.record import Answer, Record
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.install import Installation
from ragmon.monitor.judges import Panel
from ragmon.testing import Collected
from tests.support.chat_model import TABLE
from tests.support.waiting import TIMEOUT

ALL = '[sampling]\nrate = 1.0\n[serve]\nadmin = "127.0.0.1:0"\n'


@pytest.fixture
def start(monkeypatch):
    """Install; taken down after the test, with books that close."""
    started = []

    def install(settings, sink=None, **fields):
        started.append(ragmon.install(settings, sink=sink, **fields))
        return started[-1]

    yield install
    for one in started:
        one.shutdown()
        assert one.counters().residual == 0
        assert one.counters().pending == 0


@ragmon.trace
def answer(question):
    return {"answer": question, "retrieved": [{"id": "d1", "text": "what was found"}], "citations": ["d1"]}


def scraped(monitor):
    with urllib.request.urlopen(f"http://{monitor.address}/metrics", timeout=TIMEOUT) as page:
        return page.read().decode()


def series(page, name):
    return {
        line.partition("}")[0]: float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith(name + "{")
    }


class TestFromCallToMetrics:
    def test_answers_are_judged_and_their_mean_is_a_series(self, configured, model, start):
        installed = start(configured(ALL + TABLE.format(url=model.url)))
        for question in ("good 1. good 2", "good 3. bad 4", "not in context"):
            answer(question)
        assert installed.flush(30)
        page = scraped(installed.monitor)
        assert set(series(page, "rag_judge_faithfulness").values()) == {0.75}
        assert set(series(page, "rag_judge_faithfulness_samples").values()) == {2.0}
        assert series(page, "ragmon_judge_calls_total") == {
            'ragmon_judge_calls_total{judge="faithfulness",result="scored"': 2.0,
            'ragmon_judge_calls_total{judge="faithfulness",result="skipped"': 1.0,
        }
        assert installed.monitor.snapshot().stages["score"].scored == 3

    def test_a_judge_that_fails_leaves_no_number_behind(self, configured, model, start):
        model.script = ["I am sure the answer is fine: yes"] * 2
        installed = start(configured(ALL + TABLE.format(url=model.url)))
        answer("good")
        answer("good as well")
        assert installed.flush(30)
        page = scraped(installed.monitor)
        assert series(page, "rag_judge_faithfulness") == {}
        assert series(page, "ragmon_judge_calls_total") == {
            'ragmon_judge_calls_total{judge="faithfulness",result="judge_error"': 2.0
        }
        assert installed.monitor.snapshot().stages["score"].scored == 2

    def test_before_anybody_is_judged_there_is_no_series(self, configured, model, start):
        installed = start(configured(ALL + TABLE.format(url=model.url)))
        assert "judge_" not in scraped(installed.monitor)

    def test_a_function_judges_and_what_it_calls_is_no_traffic(self, configured, judge, start):
        provider = TracerProvider(shutdown_on_exit=False)

        @judge("again")
        def again(record):
            with provider.get_tracer("client").start_as_current_span("chat") as span:
                span.set_attribute("gen_ai.operation.name", "retrieval")
                span.set_attribute("gen_ai.retrieval.documents", json.dumps([{"id": "x"}]))
                return float(answer("inside")["answer"] == "inside")

        settings = configured(ALL + "[judges.again]\nsample = 1.0")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trace, "_TRACER_PROVIDER", provider)
            installed = start(settings, provider=provider)
            answer("outside")
            assert installed.flush(30)
            reading = installed.monitor.snapshot()
        assert set(series(scraped(installed.monitor), "rag_judge_again").values()) == {1.0}
        assert reading.stages["score"].received == 1
        assert reading.captured.calls["default", "live", "rest"] == 1

    @pytest.mark.parametrize("content", ["none", "redacted", "full"])
    def test_what_leaves_for_a_log_has_the_score_and_no_reason(self, configured, model, start, tmp_path, content):
        log = f'[export]\njsonl = "{tmp_path}/trace.jsonl"\n[capture]\ncontent = "{content}"\n'
        installed = start(configured(ALL + log + TABLE.format(url=model.url)), sink=Collected())
        answer("good, says jane@mail. bad")
        assert installed.shutdown(30)
        text = (tmp_path / "trace.jsonl").read_text()
        (line,) = (one for one in map(json.loads, text.splitlines()) if one.get("kind") != "totals")
        assert line["measures"]["judge_faithfulness"] == 0.5
        assert "because" not in text
        assert ("says" in text) is (content != "none")
        assert model.asked[0].texts("ANSWER") == ["good, says jane@mail. bad"]

    def test_probes_are_judged_against_their_gold_item(self, configured, model, start, tmp_path):
        gold = {"qid": "a", "question": "Who?", "answerable": True, "gold_claim": "x"}
        (tmp_path / "gold.jsonl").write_text(json.dumps(gold))
        table = TABLE.format(url=model.url).replace("faithfulness", "contextual_precision")
        monitor = Monitor(configured(f'{ALL}[gold.g]\npath = "gold.jsonl"\nuse = ["probe", "match"]\n{table}'))
        probe = Record(source="probe", qid="a", q="Who?", contexts=["bad", "good"], ts=time())
        probe.answer_json = Answer(claim="y")
        with monitor.start(), Panel(monitor.settings) as panel:
            monitor.submit(panel.judge(probe)[0])
            page = scraped(monitor)
        (labels,) = {key for key in series(page, "rag_judge_contextual_precision") if 'window="5m"' in key}
        assert 'source="probe"' in labels
        assert set(series(page, "rag_judge_contextual_precision").values()) == {0.5}

    def test_a_server_that_only_knows_the_name_counts_what_came(self, configured):
        """It asks nobody: no address of the table is ever connected to."""
        monitor = Monitor(configured('[judges.faithfulness]\nurl = "http://127.0.0.1:1"\nmodel = "m"'))
        for score in (0.5, 1.0, None):
            measures = None if score is None else {"judge_faithfulness": score}
            monitor.submit(ragmon.testing.make_record(source="live", measures=measures))
        (live,) = (found for found in monitor.snapshot().snapshot.series if found.window == "all")
        assert (live.metrics["judge_faithfulness"].value, live.metrics["judge_faithfulness"].n) == (0.75, 2)

    def test_nothing_a_user_wrote_and_no_key_is_in_any_log(self, configured, model, start, tmp_path, caplog):
        (tmp_path / "judge.key").write_text("sesame\n")
        model.script = [None, None, "garbage that says secret"]
        caplog.set_level(logging.DEBUG)
        installed = start(configured(ALL + TABLE.format(url=model.url) + 'api_key_file = "judge.key"'))
        answer("good secret")
        answer("another secret")
        assert installed.flush(30)
        assert model.asked[0].headers["Authorization"] == "Bearer sesame"
        assert installed.judges.calls()["faithfulness", "judge_error"] == 1
        assert caplog.records
        assert not re.search("secret|sesame", caplog.text)


class TestTheEnd:
    @pytest.mark.slow
    @pytest.mark.parametrize("end", ["flush", "shutdown"])
    def test_records_before_a_judge_that_hangs_are_handed_on_in_time(self, configured, judge, start, end):
        opened = threading.Event()
        judge("hung")(lambda _: opened.wait(TIMEOUT) and 1.0)
        sink = Collected()
        installed = start(configured(ALL + "[judges.hung]\nsample = 1.0"), sink=sink)
        for n in range(5):
            answer(str(n))
        assert getattr(installed, end)(2.0)
        assert sorted(record.q for record in sink.records) == list("01234")
        assert installed.judges.calls() == {("hung", "skipped"): 5}
        opened.set()

    def test_the_sink_is_called_from_one_thread_alone(self, configured, judge, start):
        threads = set()

        class Sink(Collected):
            def submit(self, record):
                threads.add(threading.get_ident())
                super().submit(record)

        judge("quick")(lambda _: 1.0)
        sink = Sink()
        installed = start(configured(ALL + "[judges.quick]\nsample = 0.5"), sink=sink)
        for n in range(50):
            answer(str(n))
        assert installed.flush(30)
        assert len(threads) == 1
        assert len(sink.records) == 50
        assert 5 < sum(record.measures is not None for record in sink.records) < 45

    @pytest.mark.slow
    def test_a_model_that_hangs_keeps_no_program_from_ending(self, model, tmp_path):
        over = threading.Event()
        model.script = [lambda *_: over.wait(TIMEOUT)] * 100
        lines, done = ended(tmp_path, model, PROGRAM)
        over.set()
        assert (done.returncode, done.stderr) == (0, "")
        assert len(lines) == 20

    @pytest.mark.slow
    def test_a_signal_delivers_what_a_model_holds_up(self, model, tmp_path):
        over = threading.Event()
        model.script = [lambda *_: over.wait(TIMEOUT)] * 100
        killing = (
            f"import signal\nragmon.install_signal_handlers()\nos.kill(os.getpid(), {signal.SIGTERM:d})\nsignal.pause()"
        )
        lines, done = ended(tmp_path, model, PROGRAM + killing)
        over.set()
        assert done.returncode == -signal.SIGTERM
        assert len(lines) == 20

    @pytest.mark.slow
    def test_a_forked_child_judges_what_is_its_own(self, model, tmp_path):
        forking = """
installation.flush(30)
if os.fork() == 0:
    answer("good child")
    assert installation.shutdown(30)
    assert installation.judges.calls() == {("faithfulness", "scored"): 1}, installation.judges.calls()
    os._exit(0)
assert os.wait()[1] == 0
"""
        lines, done = ended(tmp_path, model, PROGRAM + forking)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(lines) == 21
        assert all(line["measures"]["judge_faithfulness"] == 1.0 for line in lines)


PROGRAM = """
import os, ragmon
from ragmon.testing import Collected
@ragmon.trace(sample=1.0)
def answer(question):
    return {"answer": question, "retrieved": [{"id": "d1", "text": "found"}], "citations": []}
installation = ragmon.install("ragmon.toml", sink=Collected())
for number in range(20):
    answer(f"good {number}")
"""


def ended(folder, model, program):
    """The trace log of a program, and how it ended."""
    log = '[export]\njsonl = "trace.jsonl"\n'
    (folder / "ragmon.toml").write_text(log + TABLE.format(url=model.url))
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    found = map(json.loads, (folder / "trace.jsonl").read_text().splitlines())
    return [line for line in found if line.get("kind") != "totals"], done


def test_a_key_that_cannot_be_read_is_said_at_the_start(configured):
    with pytest.raises(ragmon.core.errors.RagmonError, match="the key cannot be read") as caught:
        Installation(configured(TABLE.format(url="http://127.0.0.1:1") + 'api_key_file = "nowhere"'), Collected())
    assert "[judges.faithfulness] api_key_file" in caught.value.hint


def test_an_address_with_a_password_is_refused_and_not_repeated(configured):
    with pytest.raises(ragmon.core.errors.RagmonError, match="names a user") as caught:
        Installation(configured(TABLE.format(url="http://me:hunter2@127.0.0.1:1")), Collected())
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


def test_without_a_judge_httpx_is_not_loaded():
    code = "import sys, ragmon, ragmon.monitor.install; ragmon.judge; print('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
