"""A release: deploy/release.py in a copy of the repository, and the workflow that publishes, its commands run here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.support.command_line import environment
from tests.support.deployed import DEPLOY, ROOT, Strict, run
from tests.support.waiting import TIMEOUT

FILE = DEPLOY / "github-actions" / "release.yml"
WORKFLOW = yaml.load(FILE.read_text(encoding="utf-8"), Strict)
JOBS = WORKFLOW["jobs"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
LATER = "7.8.9"
COPIED = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "mkdocs.yml",
    "pyproject.toml",
)
FOLDERS = ("deploy", "docs", "examples", "grafana", "ragmon")


@pytest.fixture
def copy(tmp_path):
    """The repository, without tests and benchmarks."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in COPIED:
        shutil.copy(ROOT / name, folder)
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "node_modules", ".venv", "secrets")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    announce(folder, LATER, "Something new.")
    return folder


def announce(folder, version, change):
    """Write a section of the changelog for a version that is not released, above those that are there."""
    path = folder / "CHANGELOG.md"
    introduction, mark, earlier = path.read_text(encoding="utf-8").partition("\n## ")
    path.write_text(f"{introduction}\n## {version} (unreleased)\n\n- {change}\n{mark}{earlier}", encoding="utf-8")


def release(folder, *arguments):
    """What the script did in a copy."""
    command = [sys.executable, folder / "deploy" / "release.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)


def files(folder):
    """The content of every file."""
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_section_of_the_changelog_gets_its_date_and_the_other_sections_stay(copy):
    before = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    done = release(copy, LATER, "--date", "2031-02-03")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    after = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    assert after == before.replace(f"## {LATER} (unreleased)\n", f"## {LATER} (2031-02-03)\n") != before


def test_the_version_is_the_new_one_wherever_it_is_named(copy):
    assert release(copy, LATER).returncode == 0
    named = [
        str(path)
        for path, content in files(copy).items()
        if re.search(rb"(?<![\d.])" + re.escape(VERSION.encode()) + rb"(?![\d.])", content)
        # Programs whose reports lie in ragmon, and recorded ones, have versions of their own; the changelog keeps its
        # sections.
        and path.parts[0] not in ("ragmon", "CHANGELOG.md")
        and path.name != "instrumentations.md"
    ]
    assert named == []
    assert tomllib.loads((copy / "pyproject.toml").read_text())["project"]["version"] == LATER


def test_the_first_release_has_the_version_that_is_there_and_a_second_one_stands_above_it(copy):
    assert release(copy, VERSION).returncode == 0
    assert release(copy, VERSION, "--check").stdout.startswith(f"## {VERSION} (2")
    assert release(copy, LATER).returncode == 0
    text = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", text, re.MULTILINE) == [LATER, VERSION]
    assert release(copy, LATER, "--check").stdout.splitlines()[1:] == ["", "- Something new.", ""]


@pytest.mark.parametrize(
    ("version", "spoil", "said"),
    [
        ("v1.0.0", None, "no version"),
        ("1.0", None, "no version"),
        ("0.0.9", None, "is before"),
        ("7.8.10", None, "no section '## 7.8.10 (unreleased)'"),
        (LATER, lambda folder: (folder / "deploy" / "kubernetes" / "kustomization.yaml").write_text("x"), "newTag"),
        (VERSION, lambda folder: release(folder, VERSION), "released once"),
    ],
)
def test_what_cannot_be_released_changes_nothing(copy, version, spoil, said):
    if spoil is not None:
        spoil(copy)
    before = files(copy)
    done = release(copy, version)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert files(copy) == before


def test_a_tag_is_released_only_where_the_files_are_prepared(copy):
    assert "no date for" in release(copy, VERSION, "--check").stderr
    assert "not 7.8.9" in release(copy, LATER, "--check").stderr
    assert release(copy, LATER).returncode == 0
    done = release(copy, LATER, "--check")
    assert (done.returncode, done.stderr) == (0, "")


# The workflow.


@pytest.fixture
def packages(tmp_path):
    """A folder with the packages of this environment, but ragmon: what an index would give."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "ragmon" not in path.name:
            (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.slow
def test_the_commands_of_the_build_make_files_that_work(copy, packages, tmp_path):
    """All but those that ask an index for tools; the environment is empty but for what ragmon needs."""
    pytest.importorskip("hatchling")
    shutil.copytree(ROOT / "tests" / "data" / "squad2" / "small", copy / "tests" / "data" / "squad2" / "small")
    assert release(copy, LATER).returncode == 0
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "release"]):
        subprocess.run([*git, *command], cwd=copy, check=True, capture_output=True)
    (tmp_path / "runner").mkdir()
    env = environment(
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        PYTHONPATH=str(packages),
        PIP_NO_INDEX="1",
        PIP_NO_DEPS="1",
        TAG=f"v{LATER}",
        RUNNER_TEMP=str(tmp_path / "runner"),
        GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"),
    )
    for step in JOBS["build"]["steps"]:
        if "run" not in step or "hatchling>=" in step["run"] or "twine" in step["run"]:
            continue
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(shell, cwd=copy, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        assert done.returncode == 0, (step["name"], done.stdout, done.stderr)
    assert (tmp_path / "summary.md").read_text().startswith(f"## {LATER} (")
    made = sorted(path.name for path in (copy / "dist").iterdir())
    assert made == [f"ragmon-{LATER}-py3-none-any.whl", f"ragmon-{LATER}.tar.gz"]
    with zipfile.ZipFile(copy / "dist" / made[0]) as wheel:
        assert b"Metadata-Version: 2.4\n" in wheel.read(f"ragmon-{LATER}.dist-info/METADATA")
    with tarfile.open(copy / "dist" / made[1]) as source:
        inside = {Path(*Path(name).parts[1:]).as_posix() for name in source.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "mkdocs.yml", "pyproject.toml", "ragmon/py.typed"} <= inside


def test_the_schema_of_workflows_knows_every_key():
    pytest.importorskip("check_jsonschema")
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(FILE))


def test_it_runs_for_tags_of_versions_alone():
    assert WORKFLOW[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}  # YAML 1.1 reads `on` as true
    assert WORKFLOW["concurrency"]["cancel-in-progress"] is False
    assert all(job["timeout-minutes"] <= 60 for job in JOBS.values())


def test_each_job_has_the_rights_it_needs_and_no_others():
    assert WORKFLOW["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "build": {"contents": "read"},
        "test": {"contents": "read"},
        "publish": {"id-token": "write"},
        "image": {"contents": "read", "packages": "write"},
    }


def test_what_publishes_waits_for_tests_and_people_and_runs_no_code_of_the_repository():
    for name in ("publish", "image"):
        assert JOBS[name]["needs"] == ["build", "test"]
        assert JOBS[name]["environment"] == "release"
    assert [step["uses"].partition("@")[0] for step in JOBS["publish"]["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    assert "secrets." not in str(JOBS["publish"])  # trusted publishing: there is no password


def test_the_image_is_the_one_of_the_dockerfile_with_its_provenance():
    built = next(step["with"] for step in JOBS["image"]["steps"] if "build-push-action" in step.get("uses", ""))
    assert (ROOT / built["context"] / built["file"]).is_file()
    assert (built["provenance"], built["sbom"], built["push"]) == ("mode=max", True, True)


def test_actions_are_named_by_commit_with_their_tag_beside_it():
    used = re.findall(r"^ +- uses: (.*)$", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(used) == sum("uses" in step for job in JOBS.values() for step in job["steps"])
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} +# v\d+\.\d+\.\d+", line)] == []


def test_no_command_holds_what_somebody_else_may_write():
    """An expression in a command would be part of it, whatever a tag is called."""
    commands = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
    assert [command for command in commands if "${{" in command] == []


def test_no_checkout_leaves_its_credentials():
    checkouts = [step for job in JOBS.values() for step in job["steps"] if "actions/checkout" in step.get("uses", "")]
    assert len(checkouts) == 3
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
