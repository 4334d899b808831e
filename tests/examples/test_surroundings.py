"""The pages of examples around an application (files, CI, alerts), typed command by command, print what they say."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.deployed import ROOT, run
from tests.support.example_pages import EXAMPLES, blocks, type_page

WORKFLOW = EXAMPLES / "github-actions" / "rag-gate.yml"


def typed_well(name, tmp_path):
    typed = type_page(name, tmp_path)
    assert typed.promised
    assert typed.code == 0, typed.output
    assert typed.missing == [], typed.output
    assert "Traceback" not in typed.output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spreadsheet", "github-actions"])
def test_a_page_can_be_typed_and_says_what_one_sees(name, tmp_path):
    typed_well(name, tmp_path)


@pytest.mark.slow
def test_real_prometheus_and_alertmanager_page_for_invented_citations(real, tmp_path):
    for program in ("prometheus", "prometheus-alertmanager", "promtool", "amtool"):
        real(program)
    typed_well("prometheus-alertmanager", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "program"), [("node", "npm"), ("kubernetes", "kubectl")])
def test_a_page_for_another_program_can_be_typed(name, program, tmp_path):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    typed_well(name, tmp_path)


def test_every_example_has_a_page_with_the_usual_sections_and_a_place_in_the_list():
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    folders = [path for path in EXAMPLES.iterdir() if path.is_dir()]
    assert len(folders) == 11
    for folder in folders:
        page = (folder / "README.md").read_text(encoding="utf-8")
        assert "\n## Verify\n" in page, folder.name
        assert "\n## Troubleshooting\n" in page, folder.name
        assert f"]({folder.name}/README.md)" in listed, folder.name


def test_pages_install_what_the_tests_ran_with():
    """A version that a page names is the one of pyproject.toml."""
    tested = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for page in EXAMPLES.glob("*/README.md"):
        for needed in re.findall(r"'([a-z-]+>=[^']+)'", page.read_text(encoding="utf-8")):
            assert f'"{needed}"' in tested, f"{page.parent.name}: {needed}"


def test_the_workflow_is_one_to_github():
    run(Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", WORKFLOW)


def test_the_page_types_the_commands_of_the_workflow():
    """What the job runs is what the page has run."""
    (job,) = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values()
    typed = "\n".join(blocks(WORKFLOW.with_name("README.md").read_text(encoding="utf-8"), "bash")).replace(
        ".venv/bin/", ""
    )
    runs = [step["run"] for step in job["steps"] if step.get("name") not in (None, "Install")]
    assert len(runs) == 2
    assert [run for run in runs if run not in typed] == []
