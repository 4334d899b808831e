"""Who wins: argument before environment before ragmon.toml before default."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragmon.config.load import check, load

IN_THE_FILE = """\
[capture]
content = "hash"
hash_key_file = "hash.key"
[export]
endpoint = "http://file:4318"
[serve]
token_file = "token"
state_dir = "state"
"""


@pytest.fixture
def write(tmp_path):
    """Writes ragmon.toml, and other files by their stem, into one folder; returns the path of ragmon.toml."""

    def _write(text: str, **others: str) -> Path:
        for stem, content in {"ragmon": text, **others}.items():
            (tmp_path / f"{stem}.toml").write_text(content, encoding="utf-8")
        return tmp_path / "ragmon.toml"

    return _write


def test_the_argument_beats_the_variable_that_names_a_file(write, tmp_path):
    path = write("sampling.rate = 0.3\n", other="sampling.rate = 0.4\n")
    environ = {"RAGMON_CONFIG": str(tmp_path / "other.toml")}
    assert load(path, environ=environ).unconfigured.sampling.rate == 0.3
    assert load(environ=environ).unconfigured.sampling.rate == 0.4


def test_the_variable_that_names_a_file_beats_the_file_that_lies_here(write, tmp_path, monkeypatch):
    write("sampling.rate = 0.3\n", other="sampling.rate = 0.4\n")
    monkeypatch.chdir(tmp_path)
    assert load(environ={}).unconfigured.sampling.rate == 0.3
    assert load(environ={"RAGMON_CONFIG": "other.toml"}).unconfigured.sampling.rate == 0.4


def test_the_environment_beats_the_file_in_every_pipeline(write):
    path = write("sampling.rate = 0.3\n[pipelines.a.sampling]\nrate = 0.4\n")
    settings = load(path, environ={"RAGMON_SAMPLE": "0.9"})
    assert settings.pipelines["a"].sampling.rate == settings.unconfigured.sampling.rate == 0.9
    assert settings.origins["sampling.rate"] == "environment RAGMON_SAMPLE"
    assert "pipelines.a.sampling.rate" not in settings.origins


@pytest.mark.parametrize(
    ("variable", "value", "key", "shown"),
    [
        ("RAGMON_CONTENT", "full", "capture.content", "full"),
        ("RAGMON_HASH_KEY_FILE", "/run/hash", "capture.hash_key_file", "/run/hash"),
        ("RAGMON_ENDPOINT", "http://collector:4318", "export.endpoint", "http://collector:4318"),
        ("RAGMON_TOKEN_FILE", "/run/token", "serve.token_file", "/run/token"),
        ("RAGMON_STATE_DIR", "/var/lib/ragmon", "serve.state_dir", "/var/lib/ragmon"),
        ("RAGMON_BUILD", "v7", "build", "v7"),
        ("OTEL_SERVICE_NAME", "shop", "service", "shop"),
    ],
)
def test_each_variable_sets_its_key_and_is_named_as_origin(write, variable, value, key, shown):
    settings = load(write(IN_THE_FILE), environ={variable: value})
    assert str(settings.values[key]) == shown
    assert settings.origins[key] == f"environment {variable}"


def test_an_empty_variable_says_nothing(write):
    settings = load(write("sampling.rate = 0.3\n"), environ={"RAGMON_SAMPLE": "", "RAGMON_CONFIG": ""})
    assert settings.unconfigured.sampling.rate == 0.3


def test_an_endpoint_from_the_environment_takes_the_place_of_a_file(write):
    path = write('[export]\njsonl = "t.jsonl"\n')
    settings = load(path, environ={"RAGMON_ENDPOINT": "http://ragmon:4318"})
    assert (settings.export.endpoint, settings.export.jsonl) == ("http://ragmon:4318", None)


def test_a_path_from_the_environment_is_relative_to_the_working_directory(write, tmp_path, monkeypatch):
    path = write("")
    monkeypatch.chdir(tmp_path.parent)
    settings = load(path, environ={"RAGMON_STATE_DIR": "here"})
    assert settings.serve.state_dir == tmp_path.parent / "here"


def test_the_build_is_the_service_version_unless_ragmon_is_told():
    resource = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop,service.version=1%2E2"}
    settings = load(environ=resource)
    assert (settings.build, settings.service) == ("1.2", "shop")
    assert settings.origins["build"] == "environment OTEL_RESOURCE_ATTRIBUTES"
    assert load(environ={**resource, "RAGMON_BUILD": "7"}).build == "7"


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("TRUE", True), ("0", False), ("", False)])
def test_the_switch_is_read(value, expected):
    assert load(environ={"RAGMON_DISABLED": value}).disabled is expected


def test_a_service_name_is_not_a_pipeline_name():
    found = load(environ={"OTEL_SERVICE_NAME": "shop"})
    assert (dict(found.pipelines), found.pipeline) == ({}, "default")


def test_exporter_variables_of_the_application_are_not_read():
    assert load(environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1"}).export.endpoint is None


def test_a_variable_does_not_hide_that_its_table_is_none(write):
    assert [p.key for p in check(write("export = 1\n"), environ={"RAGMON_ENDPOINT": "http://x"})] == ["export"]
