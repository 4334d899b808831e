"""`ragmon probe --once`: a round through the demo's pipeline, as a function and over HTTP, is a gold run like any."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

import pytest

from ragmon.capture.trace import probe
from ragmon.core.record import encode
from ragmon.demo.app import Application
from ragmon.demo.show import INCIDENTS, gold_questions
from ragmon.testing import capture_traces
from tests.support.command_line import gold, lines, ragmon, start
from tests.support.probed import web
from tests.support.waiting import TIMEOUT

DEMO = Path(str(resources.files("ragmon.demo")))
CONFIG = """
[pipeline]
name = "harbour"
[metrics]
answered_within = "1h"
[gold.harbour]
path = "gold.jsonl"
[probe.harbour]
target = "{}"
"""
MODULE = "from ragmon.demo.app import Application\nask = Application()._ask\n"


@pytest.fixture(scope="module")
def application():
    return Application()


@pytest.fixture(scope="module")
def direct(application):
    """The lines of the demo's gold set asked without a prober."""
    with capture_traces() as records:
        for qid, question in gold_questions():
            with probe(qid):
                application.ask(question)
    return b"".join(map(encode, records))


@pytest.fixture
def home(tmp_path):
    """A folder with the demo's gold, a module to import and a configuration."""

    def make(target):
        shutil.copy(DEMO / "gold.jsonl", tmp_path)
        (tmp_path / "answering.py").write_text(MODULE)
        (tmp_path / "ragmon.toml").write_text(CONFIG.format(target))
        return tmp_path

    return make


def metrics(folder, traces):
    """All metrics of a trace file, and its gates, as a replay sees them."""
    done = ragmon("gate", traces, "--format", "json", cwd=folder)
    assert done.code == 0, done.err
    return done.json["series"], done.json["gates"]


def over_http(application):
    """The demo behind HTTP, as a service would answer that shows its sources."""

    def answer(asked):
        hits = application.pipeline.retrieve(asked.question)
        found = application.pipeline.answer(asked.question, hits)
        documents = [{"id": hit.id, "text": hit.text, "score": hit.score} for hit in hits]
        told = {"answer": found.claim, "citations": found.citations, "documents": documents}
        return {**told, "index": application.pipeline.index_hash, "build": "demo-1"}

    return web(answer)


class TestTheDemo:
    @pytest.mark.slow
    def test_as_a_function_it_has_the_metrics_of_its_gold_set_asked_directly(self, home, direct):
        folder = home("answering:ask")
        done = ragmon("probe", "--once", "--output", "probed.jsonl", cwd=folder)
        assert (done.code, done.out) == (0, ""), done.err
        assert "225 of 225 accounted for: 225 ok" in done.err
        (folder / "direct.jsonl").write_bytes(direct)
        assert metrics(folder, "probed.jsonl") == metrics(folder, "direct.jsonl")

    @pytest.mark.slow
    def test_over_http_it_has_the_same(self, home, application, direct):
        paths = '{claim = "answer", citations = "citations", index_hash = "index", build = "build"}'
        with over_http(application) as there:
            folder = home(there.url)
            with (folder / "ragmon.toml").open("a") as file:
                file.write(f"concurrency = 4\nanswer = {paths}\n".replace("}", ', retrieved = "documents"}'))
            done = ragmon("probe", "--once", "--output", "probed.jsonl", cwd=folder)
        assert done.code == 0, done.err
        assert 1 <= there.most <= 4
        (folder / "direct.jsonl").write_bytes(direct)
        assert metrics(folder, "probed.jsonl") == metrics(folder, "direct.jsonl")

    @pytest.mark.slow
    def test_the_questions_stand_in_their_order_whatever_came_back_first(self, home):
        folder = home("answering:ask")
        done = ragmon("probe", "--once", cwd=folder)
        found = [json.loads(line) for line in done.out.splitlines()]
        assert [record["qid"] for record in found] == [qid for qid, _ in gold_questions()]
        assert {record["source"] for record in found} == {"probe"}

    @pytest.mark.slow
    def test_gate_judges_the_round_as_ragmon_gate_judges_its_file(self, home):
        folder = home("answering:ask")
        probed = ragmon("probe", "--once", "--output", "t.jsonl", "--gate", "--format", "json", cwd=folder)
        judged = ragmon("gate", "t.jsonl", "--format", "json", cwd=folder)
        assert (probed.code, probed.json) == (judged.code, judged.json)
        assert probed.code == 0

    @pytest.mark.slow
    def test_an_incident_fails_the_gate(self, home, application):
        broken = Application()
        INCIDENTS["citation_break"](broken.pipeline)
        with over_http(broken) as there:
            folder = home(there.url)
            done = ragmon("probe", "--once", "--gate", cwd=folder)
        assert done.code == 1, done.err
        assert done.out.endswith("\nverdict: fail\n")


@pytest.fixture
def asked(tmp_path):
    """`ragmon probe` without a configuration, on 60 questions."""

    def run(target, *options):
        questions = lines(tmp_path / "gold.jsonl", gold())
        return ragmon("probe", "--gold", questions, "--target", target, *options, cwd=tmp_path)

    return run


RIGHT = {"answer": "that is right", "citations": [], "sources": []}


class TestWithoutAConfiguration:
    @pytest.mark.slow
    def test_gold_and_target_are_enough(self, asked):
        with web(lambda _: RIGHT) as there:
            done = asked(there.url, "--once")
        assert (done.code, len(done.out.splitlines()), len(there.asked)) == (0, 60, 60)

    @pytest.mark.slow
    def test_an_application_that_fails_is_measured_and_not_refused(self, asked):
        with web(lambda asked: (500, {}, b"") if "What is 1?" in asked.question else RIGHT) as there:
            done = asked(there.url, "--once")
        errors = [json.loads(line).get("error") for line in done.out.splitlines()]
        assert (done.code, errors.count("Http500Error"), errors.count(None)) == (0, 1, 59)
        assert "1 error, 59 ok" in done.err

    @pytest.mark.slow
    def test_one_that_is_busy_at_first_is_asked_again(self, asked):
        busy = {"What is 0?": 2, "Who is 3?": 1}

        def answer(asked):
            if busy.get(asked.question):
                busy[asked.question] -= 1
                return 429, {"Retry-After": "0"}, b""
            return RIGHT

        with web(answer) as there:
            done = asked(there.url, "--once")
        assert (done.code, len(done.out.splitlines()), len(there.asked)) == (0, 60, 63)
        assert "60 ok, 3 throttled" in done.err

    @pytest.mark.slow
    def test_answers_of_a_cache_are_missing_from_the_run(self, asked):
        with web(lambda _: (200, {"Age": "9"}, json.dumps(RIGHT).encode())) as there:
            done = asked(there.url, "--once", "--gate")
        assert done.code == 2
        assert "60 cached" in done.err
        assert "no data" in done.out

    @pytest.mark.slow
    def test_calls_that_never_return_leave_the_rest_unasked(self, asked, tmp_path):
        (tmp_path / "stuck.py").write_text("import time\ndef ask(question):\n    time.sleep(600)\n")
        (tmp_path / "ragmon.toml").write_text(
            '[gold.g]\npath = "gold.jsonl"\n[probe.p]\ntarget = "stuck:ask"\ntimeout = "100ms"\n'
        )
        lines(tmp_path / "gold.jsonl", gold())
        done = ragmon("probe", "--once", cwd=tmp_path)
        assert done.code == 3
        assert [json.loads(line)["error"] for line in done.out.splitlines()] == ["TimeoutError"] * 2
        assert "58 questions could not be sent" in done.err
        assert "2 calls do not return" in done.err


class TestRefused:
    @pytest.mark.slow
    def test_nobody_there(self, asked):
        done = asked("http://127.0.0.1:1/", "--once")
        assert done.code == 3
        assert "error: nothing answers at http://127.0.0.1:1/: Connection refused" in done.err
        assert "hint: is the application running?" in done.err

    @pytest.mark.slow
    def test_a_module_that_cannot_be_imported(self, asked, tmp_path):
        (tmp_path / "half.py").write_text("import nothing_of_that_name\n")
        message, hint = asked("half:ask", "--once").error
        assert message.startswith("half:ask cannot be probed: ModuleNotFoundError: No module named")
        assert "importable from here" in hint

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (("--gate",), "--gate judges one round: add --once"),
            (("--once", "--gate", "-o", "-"), "--output - and --gate both write to stdout: name a file"),
            (("--once", "--format", "md"), "--format does nothing without --gate"),
            (("--once", "--name", "x"), "unknown probe: 'x'"),
            ((), "there is nowhere to send the answers"),
        ],
    )
    def test_what_cannot_be_meant(self, asked, options, told):
        assert asked("a:b", *options).error[0] == told

    def test_neither_gold_nor_target(self, tmp_path):
        message, hint = ragmon("probe", "--once", cwd=tmp_path).error
        assert message == "no probe is configured"
        assert hint == "--gold FILE --target module:function, or [probe.NAME]"

    @pytest.mark.slow
    def test_a_target_that_is_none(self, asked):
        message, hint = asked("myapp.rag", "--once").error
        assert message == "--target is neither a function nor an address: 'myapp.rag'"
        assert hint.startswith("myapp.rag:answer, or")

    @pytest.mark.slow
    def test_several_probes_and_no_word_which(self, tmp_path):
        lines(tmp_path / "gold.jsonl", gold())
        probes = '[probe.a]\ntarget = "a:b"\n[probe.c]\ntarget = "c:d"\n'
        (tmp_path / "ragmon.toml").write_text('[gold.g]\npath = "gold.jsonl"\n' + probes)
        message, hint = ragmon("probe", "--once", "--target", "e:f", cwd=tmp_path).error
        assert (message.startswith("the configuration has several probes"), hint) == (True, "--name, one of: a, c")


@pytest.mark.slow
def test_for_ever_it_appends_to_a_file_until_a_signal_ends_it(tmp_path):
    lines(tmp_path / "gold.jsonl", gold())
    with web(lambda _: RIGHT) as there:
        (tmp_path / "ragmon.toml").write_text(
            f'[gold.g]\npath = "gold.jsonl"\n[probe.p]\ntarget = "{there.url}"\nevery = "1s"\nmax_per_day = 100000000\n'
        )
        with start("probe", "--output", "t.jsonl", cwd=tmp_path) as process:
            for line in process.stderr:
                assert "a question every" in line
                break
            while not (tmp_path / "t.jsonl").exists() or not (tmp_path / "t.jsonl").stat().st_size:
                assert process.poll() is None
            process.terminate()
            _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    records = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert {record["source"] for record in records} == {"probe"}
    assert f"probe p: {len(records)} ok" in err
