"""What tests of an application record: `ragmon.testing.Recorder`, the fixture `ragmon` and `--ragmon-gate`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ragmon
from ragmon.testing import Recorder
from tests.support.probed import web

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "github-actions"
TESTS = """
import pytest
import answering
import ragmon as product
from ragmon.ingest.gold import GoldSet

answer = product.trace(answering.answer)


@pytest.mark.parametrize("item", list(GoldSet.load("gold.jsonl")))
def test_an_answer(item, ragmon):
    product.install()
    answer(item.question)
    assert len(ragmon.report().golds()) == 1
    assert [record.q for record in ragmon.records] == [item.question]


def test_nothing():
    pass
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The example of CI, whose gates name probes, with tests of its function."""
    for name in ("answering.py", "gold.jsonl", "ragmon.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    (tmp_path / "test_answers.py").write_text(TESTS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAGMON_CONFIG", raising=False)
    return tmp_path


def run(folder, *arguments, **environ):
    """Pytest with this plugin and no others that are installed, whichever they are."""
    plugins = ["-p", "ragmon.pytest_plugin", "-p", "no:cacheprovider", "-o", "addopts="]
    environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    env = {**os.environ, **environ}
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST_XDIST")}
    command = [sys.executable, "-m", "pytest", *plugins, *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def answered(question, answer="yes"):
    return {"question": question, "answer": answer, "documents": [{"id": "d1", "text": "yes"}], "citations": ["d1"]}


def test_every_call_is_kept_whatever_the_configuration_samples(folder):
    (folder / "ragmon.toml").write_text("[sampling]\nrate = 0.0\n", encoding="utf-8")
    call = ragmon.trace(answered)
    with Recorder() as recorder:
        for n in range(40):
            call(f"Question {n}?")
        assert recorder.report().metric("citation_scope").n == 40
        call("One more?")
    assert len(recorder.records) == 41


def test_nothing_is_exported_and_no_judge_is_asked(folder):
    asked = []
    with web(asked.append) as model:
        judge = f'[judges.faithfulness]\nurl = "{model.url}"\nmodel = "m"\nsample = 1.0\n'
        (folder / "ragmon.toml").write_text(f'[export]\njsonl = "log.jsonl"\n{judge}', encoding="utf-8")
        with Recorder() as recorder:
            ragmon.trace(answered)("Why?")
    assert (len(recorder.records), asked) == (1, [])
    assert not (folder / "log.jsonl").exists()


def test_a_gate_is_judged_whatever_source_it_names(folder):
    call = ragmon.trace(answered)
    with Recorder() as recorder:
        call("Who owns the moon?")
        report = recorder.report(gold=[{"qid": "q3", "question": "Who owns the moon?", "answerable": False}])
    verdicts = {outcome.gate.name: outcome.verdict for outcome in report.outcomes}
    assert verdicts["under_refusal_rate"] == "fail"


@pytest.mark.slow
class TestPlugin:
    def test_the_fixture_judges_within_a_test(self, folder):
        code, printed = run(folder)
        assert (code, "4 passed" in printed) == (0, True), printed
        assert "verdict" not in printed

    def test_the_option_prints_the_verdicts(self, folder):
        code, printed = run(folder, "--ragmon-gate")
        assert code == 0, printed
        assert re.search(r"^default/under_refusal_rate +0.0 % .* pass +exact over 3 gold items", printed, re.MULTILINE)
        assert "\nverdict: pass\n" in printed

    @pytest.mark.parametrize("processes", [(), ("-p", "xdist", "-n", "2")])
    def test_the_run_fails_where_a_gate_fails(self, folder, processes):
        code, printed = run(folder, "--ragmon-gate", *processes, BROKEN="1")
        assert (code, "4 passed" in printed) == (1, True), printed
        assert "verdict: fail" in printed

    def test_it_fails_where_nothing_was_recorded(self, folder):
        code, printed = run(folder, "--ragmon-gate", "-k", "nothing")
        assert (code, "1 passed" in printed) == (1, True), printed
        assert "no test recorded a call" in printed

    def test_it_fails_and_says_why_where_the_gold_cannot_be_read(self, folder):
        test = "import ragmon as product\nfrom answering import answer\n\ndef test_it(ragmon):\n    "
        (folder / "test_answers.py").write_text(test + "product.trace(answer)('Why?')\n", encoding="utf-8")
        (folder / "gold.jsonl").unlink()
        code, printed = run(folder, "--ragmon-gate")
        assert (code, "1 passed" in printed, "Traceback" in printed) == (1, True, False), printed
        assert "error: gold.jsonl: no such file\nhint: " in printed

    def test_a_failed_test_stays_the_reason(self, folder):
        (folder / "test_answers.py").write_text("def test_it():\n    assert 0\n", encoding="utf-8")
        assert run(folder, "--ragmon-gate")[0] == 1

    def test_a_run_that_records_nothing_imports_nothing(self, folder):
        heavy = "{'msgspec', 'pydantic', 'ragmon.testing'}"
        text = f"import sys\n\ndef test_it():\n    assert {heavy}.isdisjoint(sys.modules)\n"
        (folder / "test_answers.py").write_text(text, encoding="utf-8")
        code, printed = run(folder)
        assert code == 0, printed


def test_pytest_finds_the_plugin_by_its_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"ragmon": "ragmon.pytest_plugin"}
