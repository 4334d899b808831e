"""The JSON Schema of ragmon.toml: never stricter than ragmon, and it sees what an editor should mark."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ragmon.config.load import check, defaults, masked_values
from ragmon.config.settings import config_schema
from tests.config.test_config_load import EVERY_TABLE
from tests.support.before_configs import KEYS

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "reference" / "schema" / "config.schema.json"
VALID = jsonschema.Draft7Validator(config_schema())


def errors(text):
    return [f"{error.json_path}: {error.message}" for error in VALID.iter_errors(tomllib.loads(text))]


def test_the_files_of_the_repository_are_valid():
    pytest.importorskip("check_jsonschema")
    files = [str(path) for top in ("deploy", "examples", "ragmon") for path in (ROOT / top).rglob("ragmon*.toml")]
    assert str(ROOT / "deploy" / "ragmon.toml") in files
    command = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(SCHEMA), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_file_with_every_table_is_valid():
    assert errors(EVERY_TABLE) == []


@pytest.mark.parametrize("key", KEYS)
def test_it_allows_each_value_that_ragmon_reads(key, tmp_path):
    for number, value in enumerate(KEYS[key]):
        path = tmp_path / f"{number}.toml"
        path.write_text(f"{key} = {value}\n", encoding="utf-8")
        assert check(path, environ={}) or not errors(path.read_text(encoding="utf-8")), value


def test_it_knows_every_default():
    tables = config_schema()["definitions"]
    default = {key: value for key, value, _ in masked_values(defaults())}
    sampling = tables["SamplingTable"]["properties"]
    assert sampling["slow_above"]["default"] == default["sampling.slow_above"] == "8s"
    assert tables["ServeTable"]["properties"]["max_size"]["default"] == default["serve.max_size"] == "5GiB"
    assert tables["ServeTable"]["properties"]["admin"]["default"] == default["serve.admin"] == "127.0.0.1:9464"


@pytest.mark.parametrize(
    "text",
    [
        "[smapling]\n",
        "[sampling]\nrate = 2\n",
        '[sampling]\nslow_above = "8 parsecs"\n',
        "[gold.g]\npath = 3\n",
        "[gates.coverage]\nat_lest = 0.5\n",
        '[pipelines.a.gates.coverage]\nsource = "prob"\n',
        '[export]\nendpoint = "ftp://x"\n',
        "[serve]\ntls = true\n",
    ],
)
def test_it_refuses_what_an_editor_should_mark(text):
    assert errors(text)


def test_a_table_that_another_file_completes_is_valid(tmp_path):
    (tmp_path / "base.toml").write_text('[gold.g]\npath = "gold.jsonl"\n', encoding="utf-8")
    text = 'extend = "base.toml"\n[gold.g]\ntags = { lang = "de" }\n'
    (tmp_path / "ragmon.toml").write_text(text, encoding="utf-8")
    assert check(tmp_path / "ragmon.toml", environ={}) == errors(text) == []
