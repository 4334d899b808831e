"""The example workflow does what it says: its commands are run, in order, against a real application over HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest
import yaml

from ragmon.demo.app import Application
from ragmon.demo.show import INCIDENTS
from tests.support.command_line import environment
from tests.support.deployed import DEPLOY, ROOT, Strict, run
from tests.support.probed import web
from tests.support.waiting import TIMEOUT

FILE = DEPLOY / "github-actions" / "rag-quality.yml"
WORKFLOW = yaml.load(FILE.read_text(encoding="utf-8"), Strict)
(JOB,) = WORKFLOW["jobs"].values()
STEPS = JOB["steps"]
GOLD = Path(str(resources.files("ragmon.demo"))) / "gold.jsonl"
KEY = "k3y-of-the-service"
CONFIG = """
[pipeline]
name = "harbour"
[gold.harbour]
path = "gold.jsonl"
[gates.answer_precision]
at_least = 0.80
[gates.citation_hit_rate]
at_least = 0.75
[gates.error_rate]
at_most = 0.05
"""


def over_http(application):
    """The demo behind HTTP, for whoever knows the key."""

    def answer(asked):
        if asked.headers.get("authorization") != f"Bearer {KEY}":
            return 401, {}, b"who are you?"
        hits = application.pipeline.retrieve(asked.question)
        found = application.pipeline.answer(asked.question, hits)
        documents = [{"id": hit.id, "text": hit.text, "score": hit.score} for hit in hits]
        return {"answer": found.claim, "citations": found.citations, "documents": documents}

    return web(answer)


class Ran:
    """A run of the workflow's commands, as GitHub runs them.

    Args:
        folder: The repository.
        url: Where the application answers.
        key: What the secret holds.
    """

    def __init__(self, folder, url, key=KEY):
        self.folder = folder
        self.summary = folder / "summary.md"
        self.codes = {}
        values = {"${{ vars.RAG_URL }}": url, "${{ secrets.RAG_KEY }}": key}
        for step in commands():
            always = "!cancelled()" in step.get("if", "")
            if not any(self.codes.values()) or (always and (folder / "traces.jsonl").exists()):
                own = {name: values[value] for name, value in step.get("env", {}).items()}
                self.codes[step["name"]] = self._run(step["run"], own)

    def _run(self, script, own):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = environment(PATH=path, GITHUB_STEP_SUMMARY=str(self.summary), **own)
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        done = subprocess.run(
            shell, cwd=self.folder, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        assert KEY not in done.stdout + done.stderr
        return done.returncode


def commands():
    """The steps that are commands, but the one that needs the network."""
    return [step for step in STEPS if "run" in step and "pip install" not in step["run"]]


def fresh(folder):
    """A team's repository before its first run."""
    shutil.copy(GOLD, folder)
    (folder / "ragmon.toml").write_text(CONFIG)
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The first run of all."""
    with over_http(Application()) as there:
        return Ran(fresh(tmp_path_factory.mktemp("first")), there.url)


@pytest.fixture
def repository(tmp_path, first):
    """A team's repository, with the report of the first run."""
    shutil.copy(first.folder / "report.json", tmp_path / "baseline.json")
    return fresh(tmp_path)


@pytest.mark.slow
def test_the_first_run_has_no_baseline_and_writes_one(first):
    assert first.codes == {"Say who is asked": 0, "Ask every gold question once": 0, "Judge": 3, "Write the report": 0}
    assert json.loads((first.folder / "report.json").read_text())["verdict"] == "pass"


@pytest.mark.slow
def test_a_good_pipeline_makes_it_green_with_a_summary_and_a_report(repository):
    with over_http(Application()) as there:
        ran = Ran(repository, there.url)
    assert set(ran.codes.values()) == {0}
    assert ran.summary.read_text().startswith("# Gates: ✅ pass\n")
    assert "## Against the baseline" in ran.summary.read_text()
    assert json.loads((repository / "report.json").read_text())["verdict"] == "pass"


@pytest.mark.slow
def test_a_broken_pipeline_makes_it_red_and_the_summary_and_the_report_say_why(repository):
    broken = Application()
    INCIDENTS["citation_break"](broken.pipeline)
    with over_http(broken) as there:
        ran = Ran(repository, there.url)
    assert ran.codes == {"Say who is asked": 0, "Ask every gold question once": 0, "Judge": 1, "Write the report": 0}
    assert ran.summary.read_text().startswith("# Gates: ❌ fail\n")
    assert "citation_hit_rate" in ran.summary.read_text()
    assert json.loads((repository / "report.json").read_text())["verdict"] == "fail"


@pytest.mark.slow
def test_a_service_that_refuses_the_key_makes_it_red(repository):
    with over_http(Application()) as there:
        ran = Ran(repository, there.url, key="another")
    assert ran.codes["Judge"] == 1
    assert re.search("error_rate .* ❌ fail", ran.summary.read_text())


@pytest.mark.slow
def test_a_service_that_is_not_there_ends_it_before_anything_is_judged(repository):
    with over_http(Application()) as there:
        url = there.url
    ran = Ran(repository, url)
    assert ran.codes["Ask every gold question once"] == 3
    assert "Judge" not in ran.codes


def test_the_key_lies_in_a_file_of_its_own_that_nobody_else_reads(first):
    holding = [path for path in first.folder.iterdir() if KEY in path.read_text()]
    assert [path.name for path in holding] == ["ragmon.ci.toml"]
    assert stat.S_IMODE(holding[0].stat().st_mode) == 0o600
    assert holding[0].name not in [step["with"].get("path") for step in STEPS if "with" in step]


# The words.


def test_the_schema_of_workflows_knows_every_key():
    pytest.importorskip("check_jsonschema")
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(FILE))


def test_the_schema_of_compose_knows_every_key():
    pytest.importorskip("check_jsonschema")
    file = str(DEPLOY / "compose.yaml")
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", file)


def test_it_may_only_read_and_takes_secrets_from_the_environment_of_one_step():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in JOB
    assert "pull_request_target" not in FILE.read_text()
    for step in STEPS:
        assert "${{" not in step.get("run", "")  # whatever stands there would be part of the command
    assert [step["name"] for step in STEPS if "secrets." in str(step.get("env"))] == ["Say who is asked"]
    assert next(step for step in STEPS if "checkout" in step.get("uses", ""))["with"]["persist-credentials"] is False


def test_actions_are_named_by_commit_with_their_tag_beside_it():
    used = re.findall(r"^ +- uses: (.*)$", FILE.read_text(), re.MULTILINE)
    assert len(used) == len([step for step in STEPS if "uses" in step]) == 3
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} +# v\d+\.\d+\.\d+", line) for line in used)


def test_it_installs_this_version_and_never_waits_for_ever():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert any(f'"ragmon=={version}"' in step.get("run", "") for step in STEPS)
    assert JOB["timeout-minutes"] <= 60
    assert WORKFLOW["concurrency"]["group"]
