"""What `[export]` says of a receiver: what is sent there, and that nothing else is."""

from __future__ import annotations

import gzip
import re
import ssl
from contextlib import closing

import pytest

from ragmon.config.load import load
from ragmon.core.errors import ConfigError, RagmonError
from ragmon.core.record import Record, Totals
from ragmon.monitor.capture_settings import Redactions
from ragmon.monitor.exporting import server
from tests.support.bad_servers import certificate
from tests.support.otlp_receiver import Answer, receiving
from tests.support.waiting import TIMEOUT

TOTALS = Totals(ts=2.0, instance="i-1", started=1.0, pipeline="p", source="live", calls=1)
TOKEN = "a-token-of-sixteen-bytes"


@pytest.fixture
def receiver():
    with receiving() as found:
        yield found


@pytest.fixture
def sink_of(tmp_path):
    """Makes the exporter of a configuration."""

    def make(text):
        (tmp_path / "ragmon.toml").write_text(text)
        settings = load(tmp_path / "ragmon.toml")
        sink = server(settings, lambda: Redactions(settings))
        assert sink is not None
        return closing(sink)

    return make


def deliver(sink, *qids):
    return sink.deliver([Record(qid=qid) for qid in qids or ["a"]])


def test_headers_go_with_every_request_and_the_token_of_a_file_beside_them(receiver, sink_of, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    text = f'[export]\nendpoint = "{receiver.endpoint}"\nheaders = {{ x-tenant = "docs" }}\n'
    with sink_of(f'{text}[serve]\ntoken_file = "token"\n') as sink:
        assert (deliver(sink), sink.report([TOTALS])) == ({}, True)
    for request in receiver.requests:
        assert request.headers["x-tenant"] == "docs"
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        assert request.headers["Content-Type"] == "application/x-protobuf"


def test_a_token_among_the_headers_takes_the_place_of_the_one_in_a_file(receiver, sink_of, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    text = f'[export]\nendpoint = "{receiver.endpoint}"\nheaders = {{ authorization = "Basic eDp5" }}\n'
    with sink_of(f'{text}[serve]\ntoken_file = "token"\n') as sink:
        deliver(sink)
    assert receiver.requests[0].headers["authorization"] == "Basic eDp5"


@pytest.mark.parametrize(("compression", "encoding"), [("gzip", "gzip"), ("none", None)])
def test_compression_is_as_configured(receiver, sink_of, compression, encoding):
    with sink_of(f'[export]\nendpoint = "{receiver.endpoint}"\ncompression = "{compression}"\n') as sink:
        deliver(sink)
    assert receiver.requests[0].headers.get("Content-Encoding") == encoding
    assert [record.qid for record in receiver.records()] == ["a"]


def test_the_timeout_is_that_of_a_batch(receiver, sink_of):
    receiver.answers.append(Answer(hang=True))
    with sink_of(f'[export]\nendpoint = "{receiver.endpoint}"\ntimeout = "200ms"\n') as sink:
        assert deliver(sink) == {"export_timeout": 1}


@pytest.fixture
def mutual(tmp_path):
    """A receiver that asks for the certificate of its client."""
    own = {name: certificate(tmp_path, name) for name in ("IP:127.0.0.1", "DNS:client.example")}
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own["IP:127.0.0.1"])
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(own["DNS:client.example"])
    with receiving(tls=tls) as found:
        yield found, f'[export]\nendpoint = "{found.endpoint}"\ncertificate = "{own["IP:127.0.0.1"]}"\n', own


def test_a_client_certificate_opens_a_receiver_that_asks_for_one(mutual, sink_of):
    found, text, own = mutual
    with sink_of(f'{text}timeout = "1s"\n') as sink:
        assert deliver(sink) == {"export_failed": 1}
    with sink_of(f'{text}client_certificate = "{own["DNS:client.example"]}"\n') as sink:
        assert deliver(sink) == {}
    assert [record.qid for record in found.records()] == ["a"]


def test_a_client_certificate_that_is_none_is_refused_at_once(mutual, sink_of, tmp_path):
    (tmp_path / "broken.pem").write_text("hello")
    with (
        pytest.raises(RagmonError, match=r"broken\.pem") as caught,
        sink_of(f'{mutual[1]}client_certificate = "broken.pem"\n'),
    ):
        pass
    assert "key" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "variables", "place"),
    [
        ('[serve]\ntoken_file = "token"\n', {}, r"the token is that of \[serve\] token_file \(ragmon.toml:4\)"),
        ("", {"RAGMON_TOKEN_FILE": "token"}, r"is that of \[serve\] token_file \(environment RAGMON_TOKEN_FILE\)"),
        ("", {}, r"the token is missing in \[serve\] token_file"),
        ("", {"RAGMON_EXPORT_HEADERS": "authorization=x"}, r"\[export\] headers \(environment RAGMON_EXPORT_HEADERS\)"),
    ],
)
def test_a_401_says_what_holds_the_token(receiver, sink_of, tmp_path, monkeypatch, caplog, text, variables, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    receiver.answers.append(Answer(401))
    with sink_of(f'[export]\nendpoint = "{receiver.endpoint}"\n{text}') as sink:
        assert deliver(sink) == {"export_refused": 1}
    (said,) = [message for message in caplog.messages if "401" in message]
    assert TOKEN not in said
    assert re.search(place, said)


# --- OpenTelemetry's variables ----------------------------------------------------------------------------------------


@pytest.fixture
def otel(monkeypatch, sink_of):
    """The exporter that OpenTelemetry's variables describe."""

    def make(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"OTEL_{name}", value)
        return sink_of('[export]\nendpoint = "otel"\n')

    return make


def test_otel_takes_endpoint_headers_compression_and_resource_of_the_variables(receiver, otel):
    with otel(
        EXPORTER_OTLP_ENDPOINT=receiver.endpoint,
        EXPORTER_OTLP_HEADERS="authorization=Bearer%20t,x-tenant=docs",
        EXPORTER_OTLP_COMPRESSION="gzip",
        RESOURCE_ATTRIBUTES="deployment.environment=prod,service.name=other",
        SERVICE_NAME="shop",
    ) as sink:
        assert (deliver(sink), sink.report([TOTALS])) == ({}, True)
    assert [request.path for request in receiver.requests] == ["/v1/traces", "/v1/metrics"]
    for request in receiver.requests:
        assert (request.headers["authorization"], request.headers["x-tenant"]) == ("Bearer t", "docs")
        assert request.headers["Content-Encoding"] == "gzip"
    (process,) = receiver.requests[0].message.resource_spans
    resource = {pair.key: pair.value.string_value for pair in process.resource.attributes}
    assert resource == {"deployment.environment": "prod", "service.name": "shop"}


def test_a_signals_own_variables_come_first_and_its_address_is_taken_as_it_is(receiver, otel):
    with (
        receiving() as other,
        otel(
            EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
            EXPORTER_OTLP_TRACES_ENDPOINT=f"{receiver.endpoint}/deep/traces",
            EXPORTER_OTLP_METRICS_ENDPOINT=f"{other.endpoint}/v1/metrics",
            EXPORTER_OTLP_HEADERS="x=general",
            EXPORTER_OTLP_METRICS_HEADERS="x=metrics",
        ) as sink,
    ):
        assert (deliver(sink), sink.report([TOTALS])) == ({}, True)
        assert [(request.path, request.headers["x"]) for request in receiver.requests] == [("/deep/traces", "general")]
        assert [(request.path, request.headers["x"]) for request in other.requests] == [("/v1/metrics", "metrics")]


def test_otel_takes_certificates_of_the_variables(mutual, otel):
    found, _, own = mutual
    pair = own["DNS:client.example"]
    with otel(
        EXPORTER_OTLP_ENDPOINT=found.endpoint,
        EXPORTER_OTLP_CERTIFICATE=str(own["IP:127.0.0.1"]),
        EXPORTER_OTLP_CLIENT_CERTIFICATE=str(pair),
        EXPORTER_OTLP_CLIENT_KEY=str(pair.with_suffix(".key")),
    ) as sink:
        assert deliver(sink) == {}


def test_otel_takes_the_timeout_of_the_variables(receiver, otel):
    receiver.answers.append(Answer(hang=True))
    with otel(EXPORTER_OTLP_ENDPOINT=receiver.endpoint, EXPORTER_OTLP_TIMEOUT="0.2") as sink:
        assert deliver(sink) == {"export_timeout": 1}


def test_otel_sends_no_token_of_ragmons_own(receiver, otel, tmp_path, monkeypatch, caplog):
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("RAGMON_TOKEN_FILE", str(tmp_path / "token"))
    receiver.answers.append(Answer(401))
    with otel(EXPORTER_OTLP_ENDPOINT=receiver.endpoint) as sink:
        deliver(sink)
    assert "Authorization" not in receiver.requests[0].headers
    assert "the token is missing in environment OTEL_EXPORTER_OTLP_HEADERS" in caplog.text


def test_a_protocol_that_is_not_http_ends_the_export_before_it_begins(receiver, otel):
    with (
        pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_PROTOCOL") as caught,
        otel(EXPORTER_OTLP_ENDPOINT=receiver.endpoint, EXPORTER_OTLP_PROTOCOL="grpc"),
    ):
        pass
    assert "4318" in caught.value.hint
    assert receiver.requests == []


# --- hostile receivers and environments -------------------------------------------------------------------------------


def test_a_secret_of_the_application_that_is_no_header_is_not_sent_and_not_said(receiver, sink_of, monkeypatch, caplog):
    """OpenTelemetry's parser of the variable quotes what it cannot read in a warning."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "hunter2;x=\x01hunter2")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "hunter2")
    with sink_of(f'[export]\nendpoint = "{receiver.endpoint}"\n') as sink:
        assert (deliver(sink), sink.report([TOTALS])) == ({}, True)
    assert "hunter2" not in caplog.text
    assert "hunter2" not in str([request.headers for request in receiver.requests])
    with (
        pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught,
        sink_of('[export]\nendpoint = "otel"\n'),
    ):
        pass
    assert "hunter2" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_a_refusal_and_nothing_goes_there(receiver, sink_of, caplog, status):
    with receiving() as other:
        receiver.answers.append(Answer(status, {"Location": f"{other.endpoint}/v1/traces"}))
        text = f'[export]\nendpoint = "{receiver.endpoint}"\nheaders = {{ authorization = "Bearer hunter2" }}\n'
        with sink_of(text) as sink:
            assert deliver(sink, "a", "b") == {"export_refused": 2}
        assert (other.requests, other.connections) == ([], 0)
    assert f"it answered with status {status}" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_bomb_as_answer_is_read_to_its_beginning_and_never_inflated(receiver, sink_of):
    bomb = gzip.compress(bytes(64 << 20), mtime=0)
    receiver.answers.extend([Answer(body=bomb, headers={"Content-Encoding": "gzip"}), Answer()])
    with sink_of(f'[export]\nendpoint = "{receiver.endpoint}"\n') as sink:
        assert deliver(sink) == {}
        assert deliver(sink) == {}
    assert len(receiver.requests) == 2


def test_a_certificate_of_another_name_ends_the_attempt_before_anything_is_sent(sink_of, tmp_path, caplog):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other = certificate(tmp_path, "DNS:other.example")
    tls.load_cert_chain(other)
    with receiving(tls=tls) as found:
        text = f'[export]\nendpoint = "{found.endpoint}"\ncertificate = "{other}"\ntimeout = "{TIMEOUT:g}s"\n'
        with sink_of(text) as sink:
            assert deliver(sink) == {"export_failed": 1}
        assert found.requests == []
    assert "its certificate is not trusted" in caplog.text


def test_opentelemetrys_own_complaints_stay_out_of_the_log_and_each_trouble_is_said_once(receiver, sink_of, caplog):
    receiver.answers.extend([Answer(500)] * 3)
    with sink_of(f'[export]\nendpoint = "{receiver.endpoint}"\n') as sink:
        assert [deliver(sink) for _ in range(3)] == [{"export_failed": 1}] * 3
    assert {record.name for record in caplog.records} == {"ragmon"}
    assert len(caplog.records) == 1
