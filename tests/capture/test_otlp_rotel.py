"""Through a real OpenTelemetry collector, rotel: what ragmon sends arrives behind it as it was."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import closing, contextmanager, suppress

import pytest

import ragmon
from ragmon.capture.exporters import Scored
from ragmon.capture.otlp_exporter import OtlpExporter, OtlpSession, ScoreExporter
from ragmon.core.network import split_url
from ragmon.core.record import Totals
from ragmon.stats.histograms import bucket
from ragmon.testing import make_record
from tests.support.bad_servers import certificate
from tests.support.collectors import collector
from tests.support.otlp_receiver import attributes, receiving
from tests.support.waiting import TIMEOUT

TOKEN = "of-the-proxy"


@pytest.fixture
def behind(tmp_path):
    """A receiver behind a collector, and the collector's own endpoint."""
    with receiving() as server, collector(tmp_path, server.endpoint) as endpoint:
        yield server, endpoint


class Proxy:
    """What stands in front of a collector in the world: it ends TLS, and lets pass who shows the token.

    Attributes:
        url: Its address.
        heads: The headers of every request, as they came.
    """

    def __init__(self, door, tls, target):
        self.url = f"https://127.0.0.1:{door.getsockname()[1]}"
        self.heads = []
        self._door, self._tls, self._target = door, tls, target

    def run(self):
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with (
            suppress(OSError),
            self._tls.wrap_socket(client, server_side=True) as secure,
            secure.makefile("rb") as said,
            socket.create_connection(self._target) as behind,
            behind.makefile("rb") as answered,
        ):
            while start := said.readline():
                head = [start, *iter(said.readline, b"\r\n")]
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head)}
                body = said.read(int(fields[b"content-length"]))
                self.heads.append(fields)
                if fields.get(b"authorization") != f"Bearer {TOKEN}".encode():
                    secure.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
                    continue
                behind.sendall(b"".join(head) + b"\r\n" + body)
                head = list(iter(answered.readline, b"\r\n"))
                size = next((int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-l")), 0)
                secure.sendall(b"".join(head) + b"\r\n" + answered.read(size))


@contextmanager
def guarded(folder, endpoint):
    """A proxy in front of a collector, and the file of its certificate."""
    made = certificate(folder, "IP:127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made)
    url = split_url(endpoint)
    with socket.create_server(("127.0.0.1", 0)) as door:
        proxy = Proxy(door, tls, (url.host, url.port))
        thread = threading.Thread(target=proxy.run, daemon=True)
        thread.start()
        try:
            yield proxy, made
        finally:
            door.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_an_application_is_captured_to_a_collector_behind_tls_that_wants_a_token(behind, tmp_path, caplog):
    """From the decorator on: what it was told in `[export]` is what the proxy sees, and nothing else."""
    server, endpoint = behind
    with guarded(tmp_path, endpoint) as (proxy, made):
        text = f'[sampling]\nrate = 1.0\n[export]\nendpoint = "{proxy.url}"\ncertificate = "{made}"\n'
        (tmp_path / "ragmon.toml").write_text(
            f'{text}headers = {{ authorization = "Bearer {TOKEN}", x-tenant = "t" }}\n'
        )
        installed = ragmon.install(tmp_path / "ragmon.toml", strict=True)
        try:
            answer = ragmon.trace(lambda question: {"answer": f"{question} [1]", "documents": [{"id": "d1"}]})
            for number in range(20):
                answer(f"question {number}")
            assert installed.flush(TIMEOUT)
        finally:
            installed.shutdown(TIMEOUT)
        server.wait_for(lambda: len(server.records()) == 20 and server.metrics())
    assert {record.retrieved_ids[0] for record in server.records()} == {"d1"}
    own = {b"host", b"user-agent", b"content-type", b"content-length", b"accept-encoding"}
    for head in proxy.heads:
        names = {name for name in head if not name.startswith(b"post ")}
        assert names == own | {b"authorization", b"x-tenant"}
        assert (head[b"authorization"], head[b"x-tenant"]) == (f"Bearer {TOKEN}".encode(), b"t")
    assert caplog.messages == []


def test_records_totals_and_scores_pass_a_collector_unchanged(behind):
    server, endpoint = behind
    sent = [
        make_record(f"q{n}", trace_id=f"{n + 1:032x}", ts=1.7e9 + n, q="Wo ist das Ächt-Ei? 🥚") for n in range(1000)
    ]
    totals = Totals(
        ts=2.0, instance="i-1", started=1.0, pipeline="p", source="live", calls=9, kept=4, latency_ms={bucket(250.0): 9}
    )
    with closing(OtlpExporter(OtlpSession(endpoint, timeout=TIMEOUT), resource={"service.name": "shop"})) as sink:
        assert sink.deliver(sent) == {}
        assert sink.report([totals]) is True
    with closing(ScoreExporter(endpoint, resource={}, carriers=True)) as scores:
        assert scores.deliver([Scored("1" * 32, "2" * 16, [("mrr", 0.5, "pass")])]) == {}
    server.wait_for(lambda: len(server.spans()) >= 1001 and server.metrics() and server.events())
    assert sorted(server.records(), key=lambda record: record.ts) == sent
    by_name = {metric.name: metric for metric in server.metrics()}
    assert [point.as_int for point in by_name["rag.requests"].sum.data_points] == [4, 5]
    (point,) = by_name["rag.e2e_latency"].exponential_histogram.data_points
    assert (point.count, list(point.positive.bucket_counts)) == (9, [9])
    (event,) = server.events()
    assert (event.trace_id.hex(), attributes(event)["gen_ai.evaluation.score.value"]) == ("1" * 32, 0.5)
