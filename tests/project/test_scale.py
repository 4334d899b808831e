"""docs/scale.md: its configurations are accepted, its commands exist, its programs run, its files are there."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
import types
from pathlib import Path

import pytest

from ragmon.config.load import check
from ragmon.core.record import encode
from tests.support.alarming import mixed, write_config
from tests.support.command_line import ragmon
from tests.support.docs_pages import DOCS

PAGE = (DOCS / "scale.md").read_text(encoding="utf-8")


def blocks(kind):
    """The blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", blocks("toml"))
def test_a_configuration_is_accepted(tmp_path, text):
    (tmp_path / "ragmon.toml").write_text(text)
    assert tomllib.loads(text)
    assert check(tmp_path / "ragmon.toml", environ={}) == []


def test_every_command_and_option_exists():
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("ragmon ")]
    assert len(lines) >= 3
    for line in lines:
        _, command, *words = shlex.split(line, comments=True)
        shown = ragmon(command, "--help").out
        for option in (word for word in words if word.startswith("--")):
            assert option in shown, line


def test_every_file_of_the_repository_that_it_names_is_there():
    quoted, typed = re.findall(r"`(deploy/[\w./-]+)`", PAGE), re.findall(r"^(deploy/\S+)", PAGE, re.MULTILINE)
    named = {*quoted, *typed}
    assert len(named) >= 2
    assert [name for name in sorted(named) if not (DOCS.parent / name).exists()] == []


def test_the_recipe_for_ray_gives_the_digest_of_the_command(tmp_path, monkeypatch):
    """With a `ray` that calls each task here: the recipe is about what a task gets and returns."""
    records = [encode(record) for record in mixed(3, 6)]
    paths = [str(tmp_path / f"{number}.jsonl") for number in range(3)]
    for number, path in enumerate(paths):
        Path(path).write_bytes(b"".join(records[number::3]))
    write_config(tmp_path)
    remote = lambda task: types.SimpleNamespace(remote=task)  # noqa: E731 - as short as the thing it stands for
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(remote=remote, get=list))
    monkeypatch.chdir(tmp_path)
    (recipe,) = (block for block in blocks("python") if "import ray" in block)
    found = {"paths": paths}
    exec(recipe, found)
    done = ragmon("replay", *paths, "--config", tmp_path / "ragmon.toml", "--format", "json")
    assert found["report"].digest == done.json["digest"]
    assert found["report"].scored == len(records)
