"""Who wins: argument before environment before ragmon.toml before default."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragmon.config.load import check, load, masked_values

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
        (
            "RAGMON_EXPORT_HEADERS",
            "x-tenant=docs,api-key=a%20b",
            "export.headers",
            "{'x-tenant': 'docs', 'api-key': 'a b'}",
        ),
        ("RAGMON_EXPORT_CERTIFICATE", "/run/ca.pem", "export.certificate", "/run/ca.pem"),
        ("RAGMON_EXPORT_CLIENT_CERTIFICATE", "/run/own.pem", "export.client_certificate", "/run/own.pem"),
        ("RAGMON_EXPORT_COMPRESSION", "none", "export.compression", "none"),
        ("RAGMON_EXPORT_TIMEOUT", "3s", "export.timeout", "3s"),
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


def test_a_service_name_is_the_pipeline_where_none_is_configured(write):
    """It declares none: what sends records under another name is expected as much."""
    found = load(environ={"OTEL_SERVICE_NAME": "shop"})
    assert (dict(found.pipelines), found.pipeline) == ({}, "shop")
    assert found.origins["pipeline.name"] == "environment OTEL_SERVICE_NAME"
    for text in ('[pipeline]\nname = "docs"\n', "[pipelines.docs.sampling]\nrate = 0.5\n"):
        assert load(write(text), environ={"OTEL_SERVICE_NAME": "shop"}).pipeline == "docs"
    for environ in ({"OTEL_SERVICE_NAME": "team/shop"}, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop"}):
        assert load(environ=environ).pipeline == "default"


def test_opentelemetrys_switch_is_read_unless_ragmons_own_is_set():
    assert load(environ={"OTEL_SDK_DISABLED": "True"}).disabled is True
    assert load(environ={"OTEL_SDK_DISABLED": "1"}).disabled is False
    assert load(environ={"OTEL_SDK_DISABLED": "true", "RAGMON_DISABLED": "0"}).disabled is False


def test_exporter_variables_of_the_application_are_not_read():
    assert load(environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1"}).export.endpoint is None
    assert check(None, environ={"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_HEADERS": "s3cret"}) == []


def test_grpc_is_refused_and_the_port_of_http_named(write):
    """By ragmon's key, and by OpenTelemetry's variable where those are asked for."""
    (of_key,) = check(write('[export]\nendpoint = "http://c:4317"\nprotocol = "grpc"\n'), environ={})
    path, variables = write('[export]\nendpoint = "otel"\n'), {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    (of_variable,) = check(path, environ=variables)
    assert (of_key.key, of_variable.key) == ("export.protocol", "OTEL_EXPORTER_OTLP_PROTOCOL")
    assert "4318" in of_key.hint
    assert of_key.hint == of_variable.hint
    assert check(path, environ={**variables, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}) == [of_variable]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ENDPOINT", "nowhere"),
        ("HEADERS", "authorization: Bearer s3cret"),
        ("HEADERS", "x=s3cret%0d%0aHost: evil"),
        ("HEADERS", "host=s3cret"),
        ("TIMEOUT", "soon"),
        ("COMPRESSION", "brotli"),
        ("TRACES_ENDPOINT", "http://me:s3cret@"),
    ],
)
def test_a_variable_of_opentelemetry_that_is_wrong_is_named_and_a_secret_is_not(write, variable, value):
    found = check(write('[export]\nendpoint = "otel"\n'), environ={f"OTEL_EXPORTER_OTLP_{variable}": value})
    assert {problem.key for problem in found} == {f"OTEL_EXPORTER_OTLP_{variable}"}
    assert all(problem.hint and "s3cret" not in str(problem) for problem in found)


@pytest.mark.parametrize("headers", ['{ "a b" = "x" }', '{ Host = "evil" }', '{ x = "a\\r\\nb" }'])
def test_a_header_that_cannot_be_sent_is_refused(write, headers):
    (found,) = check(write(f"[export]\nheaders = {headers}\n"), environ={})
    assert found.key == "export.headers"


def test_values_of_headers_are_not_shown(write):
    settings = load(write('[export]\nheaders = { x-tenant = "s3cret" }\n'), environ={})
    assert dict(row[:2] for row in masked_values(settings))["export.headers"] == {"x-tenant": "***"}
    assert "s3cret" not in repr(settings)


def test_a_variable_does_not_hide_that_its_table_is_none(write):
    assert [p.key for p in check(write("export = 1\n"), environ={"RAGMON_ENDPOINT": "http://x"})] == ["export"]
