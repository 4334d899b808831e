"""The export keeps to itself: nothing of the application's telemetry steers it, and it leaves no trace in there."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from contextlib import closing
from time import monotonic

import pytest
import urllib3
from opentelemetry import context

from ragmon.capture.exporters import Scored
from ragmon.capture.otlp_exporter import OtlpExporter, OtlpSession, ScoreExporter
from ragmon.core.errors import RagmonError
from ragmon.core.record import Record, Totals
from tests.support.otlp_receiver import Answer, receiving
from tests.support.waiting import TIMEOUT

TOTALS = Totals(ts=2.0, instance="i-1", started=1.0, pipeline="p", source="live", calls=1)
RECORD = Record(trace_id="1" * 32, q="x" * 200, retrieved_ids=[f"d{n}" for n in range(200)])
SCORED = Scored("1" * 32, "2" * 16, [("mrr", 0.5, None)])


@pytest.fixture
def receiver():
    with receiving() as server:
        yield server


def run(script, *arguments, **variables):
    """Run a program that has the sink; gives what it prints."""
    head = "import os, sys\nfrom ragmon.capture.otlp_exporter import OtlpExporter, OtlpSession, ScoreExporter\n"
    head += "from ragmon.capture.exporters import Scored\n"
    head += "from ragmon.core.record import *\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", head + script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


HOSTILE = {
    "OTEL_SDK_DISABLED": "true",
    "OTEL_SERVICE_NAME": "evil",
    "OTEL_RESOURCE_ATTRIBUTES": "service.name=evil,x=y",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "1",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3",
    "OTEL_ATTRIBUTE_COUNT_LIMIT": "1",
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "DELTA",
    **{
        f"OTEL_EXPORTER_OTLP_{signal}{name}": value
        for signal in ("", "TRACES_", "METRICS_", "LOGS_")
        for name, value in {
            "ENDPOINT": "http://127.0.0.1:9",
            "HEADERS": "authorization=Bearer evil,x-evil=1,content-type=text/evil",
            "TIMEOUT": "0.000001",
            "COMPRESSION": "gzip",
            "PROTOCOL": "grpc",
            "CERTIFICATE": "/nowhere",
            "CLIENT_CERTIFICATE": "/nowhere",
            "CLIENT_KEY": "/nowhere",
            "INSECURE": "false",
        }.items()
    },
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER": "evil",
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
}


def test_variables_of_the_applications_own_exporters_change_nothing(receiver, tmp_path):
    """Not its endpoint, headers, timeout, compression, certificates, limits or temporality; no proxy and no .netrc."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login evil password evil\n")
    script = (
        "sink = OtlpExporter(OtlpSession(sys.argv[1], token='t'), resource={'service.name': 'shop'})\n"
        f"record, totals, scored = {RECORD!r}, {TOTALS!r}, {SCORED!r}\n"
        "print(sink.deliver([record]), sink.report([totals]), sep='')\n"
        "scores = ScoreExporter(OtlpSession(sys.argv[1], token='t'), resource={'service.name': 'shop'})\n"
        "print(scores.deliver([scored]))\n"
        "sink.close(); scores.close()\n"
    )
    variables = {**HOSTILE, "HOME": str(tmp_path), "NETRC": str(tmp_path / ".netrc")}
    assert run(script, receiver.endpoint, **variables) == ["{}True", "{}"]
    plain = run(script, receiver.endpoint)
    assert plain == ["{}True", "{}"]
    assert receiver.records() == [RECORD, RECORD]
    assert len(receiver.events()) == 2
    for under_them, without in zip(receiver.requests[:3], receiver.requests[3:], strict=True):
        assert under_them.headers == without.headers
        assert without.headers["Authorization"] == "Bearer t"
        assert without.headers["Content-Type"] == "application/x-protobuf"
        assert "evil" not in str(under_them.message)


@pytest.mark.parametrize(("host", "encoding"), [("127.0.0.1", None), ("localhost", None), ("0.0.0.0", "gzip")])
def test_bodies_are_compressed_unless_the_receiver_is_on_this_machine(host, encoding):
    """0.0.0.0 leads here as well, but does not say so."""
    with receiving(host="0.0.0.0" if host == "0.0.0.0" else "127.0.0.1") as server:
        with closing(OtlpExporter(f"http://{host}:{server.port}", resource={})) as sink:
            assert sink.deliver([RECORD]) == {}
            assert sink.report([TOTALS]) is True
        assert server.records() == [RECORD]
        assert {request.headers.get("Content-Encoding") for request in server.requests} == {encoding}


def test_the_applications_instrumentations_are_told_to_look_away(receiver, monkeypatch):
    """An instrumentation of urllib3 or requests reads the suppression from the context, as OpenTelemetry's own do."""
    keys = (
        context._SUPPRESS_INSTRUMENTATION_KEY,
        context._SUPPRESS_HTTP_INSTRUMENTATION_KEY,
        "suppress_instrumentation",
    )
    plain, seen = urllib3.HTTPConnectionPool.urlopen, []

    def instrumented(*arguments, **told):
        seen.append([context.get_value(key) for key in keys])
        return plain(*arguments, **told)

    monkeypatch.setattr(urllib3.HTTPConnectionPool, "urlopen", instrumented)
    with closing(OtlpExporter(receiver.endpoint, resource={})) as sink:
        sink.deliver([RECORD])
        sink.report([TOTALS])
    with closing(ScoreExporter(receiver.endpoint, resource={})) as sink:
        sink.deliver([SCORED])
    assert seen == [[True, True, True]] * 3
    assert [context.get_value(key) for key in keys] == [None, None, None]


def test_a_forked_child_opens_a_connection_of_its_own(receiver):
    """Two processes writing into one connection would garble both."""
    script = """
sink = OtlpExporter(sys.argv[1], resource={})
lost = [sink.deliver([Record(qid="parent")])]
child = os.fork()
if child == 0:
    lost = sink.deliver([Record(qid="child")])
    sink.close()
    os._exit(len(lost))
_, status = os.waitpid(child, 0)
lost.append(sink.deliver([Record(qid="parent again")]))
sink.close()
print(status, len(lost[0]) + len(lost[1]))
"""
    assert run(script, receiver.endpoint) == ["0", "0"]
    assert [record.qid for record in receiver.records()] == ["parent", "child", "parent again"]
    before, child, after = [request.connection for request in receiver.requests]
    assert before == after != child


def test_a_child_forked_in_the_middle_of_a_request_is_not_held_up_by_it(receiver):
    """The parent's thread holds locks that nobody in the child will ever give back."""
    script = """
import os, signal, sys, threading, warnings
from ragmon.capture.otlp_exporter import OtlpExporter, OtlpSession
from ragmon.core.record import Record
warnings.simplefilter("ignore", DeprecationWarning)  # that forking beside threads is risky is what this is about
sink = OtlpExporter(OtlpSession(sys.argv[1], timeout=60.0), resource={})
sink.deliver([Record(qid="before")])
thread = threading.Thread(target=sink.deliver, args=([Record(qid="hanging")],))
thread.start()
input()
child = os.fork()
if child == 0:
    signal.alarm(20)
    lost = sink.deliver([Record(qid="child")])
    sink.close()
    os._exit(len(lost))
_, status = os.waitpid(child, 0)
sink.close()
thread.join()
print(status)
"""
    receiver.answers.extend([Answer(), Answer(hang=True)])
    command = [sys.executable, "-c", script, receiver.endpoint]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        receiver.wait_for(lambda: len(receiver.requests) == 2)
        assert process.communicate("\n", timeout=TIMEOUT)[0] == "0\n"
    assert [record.qid for record in receiver.records()] == ["before", "hanging", "child"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "cert.pem", folder / "key.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=receiver", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", key, "-out", made]
    subprocess.run([openssl, "req", "-x509", *kind, *names, *files], check=True, capture_output=True)
    return made, key


@pytest.fixture
def secure(certificate):
    """A receiver that speaks TLS."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    with receiving(tls=tls) as server:
        yield server


def test_a_receiver_with_a_trusted_certificate_is_sent_to_over_tls(secure, certificate):
    session = OtlpSession(secure.endpoint, certificate=str(certificate[0]), token="t")
    with closing(OtlpExporter(session, resource={})) as sink:
        assert [sink.deliver([RECORD]) for _ in range(3)] == [{}, {}, {}]
    assert secure.records() == [RECORD] * 3
    assert secure.connections == 1


@pytest.mark.slow
@pytest.mark.parametrize("answer", [Answer(hang=True), Answer(drip=True)])
def test_over_tls_too_a_receiver_that_hangs_or_dribbles_costs_the_timeout(secure, certificate, answer):
    secure.answers.append(answer)
    started = monotonic()
    session = OtlpSession(secure.endpoint, certificate=str(certificate[0]), timeout=0.4)
    with closing(OtlpExporter(session, resource={})) as sink:
        assert sink.deliver([RECORD]) == {"export_timeout": 1}
    assert monotonic() - started < TIMEOUT / 3, "the receiver would never end"


def test_a_certificate_nobody_vouches_for_ends_the_attempt_at_once_and_the_token_stays_here(secure):
    started = monotonic()
    session = OtlpSession(secure.endpoint, token="t", timeout=TIMEOUT)
    with closing(OtlpExporter(session, resource={})) as sink:
        assert sink.deliver([RECORD]) == {"export_failed": 1}
    assert monotonic() - started < TIMEOUT / 3
    assert secure.requests == []


def test_a_certificate_file_that_is_none_is_refused_at_once(tmp_path):
    broken = tmp_path / "broken.pem"
    broken.write_text("hello")
    for path in (tmp_path / "missing.pem", broken):
        with pytest.raises(RagmonError, match=path.name) as caught:
            OtlpSession("https://127.0.0.1:4318", certificate=str(path))
        assert "PEM" in caught.value.hint
