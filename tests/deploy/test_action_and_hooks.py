"""action.yml and .pre-commit-hooks.yaml do what they say: their commands are run as GitHub and pre-commit run them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from tests.support.command_line import environment, gold, lines, ragmon, traces
from tests.support.deployed import ROOT, Strict, run
from tests.support.waiting import TIMEOUT

ACTION = yaml.load((ROOT / "action.yml").read_text(encoding="utf-8"), Strict)
HOOKS = yaml.load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"), Strict)
GATES = '[gold.own]\npath = "gold.jsonl"\n[gates.answer_precision]\nat_least = 0.8\n'


def judged(folder, runner, **inputs):
    """The exit codes of the steps of the action until one fails, and the summary of the job."""
    given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | inputs
    values = {f"${{{{ inputs.{name} }}}}": value for name, value in given.items()}
    values["${{ inputs.package || github.action_path }}"] = str(ROOT)
    summary, codes = folder / "summary.md", []
    for step in ACTION["runs"]["steps"]:
        own = {name: values[value] for name, value in step["env"].items()}
        # Nothing is taken from an index: hatchling and what ragmon needs are those of this environment.
        offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
        path = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "RUNNER_TEMP": str(runner),
            "GITHUB_STEP_SUMMARY": str(summary),
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder / values.get(step.get("working-directory"), "."),
            env=environment(**own, **offline, **path),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        codes.append(done.returncode)
        if done.returncode:
            break
    return codes, summary.read_text(encoding="utf-8") if summary.exists() else done.stderr


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """The folder for temporary files of a runner: ragmon is installed there once."""
    pytest.importorskip("hatchling")
    return tmp_path_factory.mktemp("runner temp")


@pytest.fixture
def folder(tmp_path):
    """A repository with its answers, in a folder of its own."""
    own = tmp_path / "my answers"
    own.mkdir()
    lines(own / "gold.jsonl", gold())
    lines(own / "good.jsonl", traces())
    lines(own / "bad one.jsonl", traces(wrong={f"a{n}" for n in range(30)}))
    (own / "ragmon.toml").write_text(GATES, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
class TestAction:
    def test_good_answers_are_green_and_the_summary_says_so(self, folder, runner):
        codes, summary = judged(folder, runner, traces="good.jsonl", **{"working-directory": "my answers"})
        assert codes == [0, 0], summary
        assert summary.startswith("# Gates: ✅ pass\n")

    def test_bad_ones_are_red(self, folder, runner):
        inputs = {"traces": "bad one.jsonl\n", "baseline": "good.jsonl", "working-directory": "my answers"}
        codes, summary = judged(folder, runner, **inputs)
        assert codes == [0, 1], summary
        assert summary.startswith("# Gates: ❌ fail\n")
        assert "## Against the baseline" in summary

    def test_every_input_reaches_the_command(self, folder, runner):
        (folder / "other.toml").write_text(GATES.replace('"gold.jsonl"', '"my answers/gold.jsonl"'), encoding="utf-8")
        codes, summary = judged(
            folder,
            runner,
            traces="my answers/good.jsonl\nmy answers/bad one.jsonl",
            gold="my answers/gold.jsonl",
            config="other.toml",
            arguments="--estimand=questions_like_these\n--on-insufficient\nfail",
        )
        assert codes == [0, 1], summary
        assert "| default/answer_precision | 62.5 % |" in summary

    def test_an_input_is_no_code(self, folder, runner):
        codes, told = judged(folder, runner, traces="$(touch broken)", gold="; touch broken", config="`touch broken`")
        assert codes == [0, 3], told
        assert not list(folder.rglob("broken"))


def test_the_action_is_one_for_github():
    pytest.importorskip("check_jsonschema")
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions", ROOT / "action.yml")


def hook(name, folder):
    """What a hook says of the files of a folder that it is for."""
    (own,) = (one for one in HOOKS if one["id"] == name)
    program, *arguments = shlex.split(own["entry"])
    assert (program, own["language"]) == ("ragmon", "python")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    matching = [file for file in files if re.search(own["files"], file)]
    assert matching
    return ragmon(*arguments, *(matching if own.get("pass_filenames", True) else []), cwd=folder)


class TestHooks:
    def test_they_pass_what_is_right(self, folder):
        own = folder / "my answers"
        assert [hook(one["id"], own).code for one in HOOKS] == [0, 0]

    def test_a_mistake_in_the_configuration_is_found(self, folder):
        (folder / "my answers" / "ragmon.toml").write_text("[gates.answer_precison]\nat_least = 0.8\n")
        done = hook("ragmon-config-check", folder / "my answers")
        assert (done.code, done.out.splitlines()[-1]) == (1, "hint: did you mean answer_precision?")

    def test_so_is_one_in_gold(self, folder):
        own = folder / "my answers"
        shutil.copy(own / "gold.jsonl", own / "more-gold.jsonl")
        (own / "ragmon.toml").write_text('[gold.own]\npath = ["gold.jsonl", "more-gold.jsonl"]\n')
        done = hook("ragmon-gold-lint", own)
        assert done.code in (1, 3), done
        assert "a0" in done.out + done.err

    def test_two_gold_sets_may_have_the_same_ids(self, folder):
        own = folder / "my answers"
        shutil.copy(own / "gold.jsonl", own / "more-gold.jsonl")
        (own / "ragmon.toml").write_text(f'{GATES}[gold.more]\npath = "more-gold.jsonl"\n')
        done = hook("ragmon-gold-lint", own)
        assert (done.code, done.out.count("60 items: ")) == (0, 2), done
