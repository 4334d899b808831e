"""Who means no good, or reads too much, or breaks something inside: others are served, and nobody waits for ever."""

from __future__ import annotations

import json
import resource
import signal
import socket
import threading
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ragmon.cli.serve import TEMPORARY
from ragmon.core.http_server import bind
from ragmon.core.network import Address
from tests.support.command_line import ragmon
from tests.support.fake_consumer import certificate
from tests.support.otlp_requests import export
from tests.support.serving import (
    PROTOBUF,
    Process,
    asked,
    between_rows,
    configuration,
    foreign,
    get,
    post,
    process,
    send_body,
    serving,
    whole,
)
from tests.support.small_disk import fill
from tests.support.waiting import TIMEOUT, wait_for

SUPPORT = '[pipeline]\nname = "support"\n'
SILENT = 1100
"""Connections that say nothing: more than a process may have files open."""


@pytest.fixture
def few_files():
    """A process that is started now may open 1024 files at first, as services usually may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8000), hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("door", ["grpc", "tls"])
def test_connections_that_say_nothing_do_not_shut_the_admin_port(tmp_path, few_files, door):
    path = configuration(tmp_path, SUPPORT)
    if door == "tls":
        cert, key = certificate(tmp_path)
        path.write_text(f'{path.read_text()}tls = {{ cert = "{cert}", key = "{key}" }}\n')
    with process(tmp_path) as running:
        few_files()
        place = urllib.parse.urlsplit(running.grpc if door == "grpc" else running.otlp)
        with ExitStack() as silent:
            for _ in range(SILENT):
                silent.enter_context(socket.create_connection((place.hostname, place.port), timeout=TIMEOUT))
            assert get(f"{running.admin}/healthz")[0] == 200
            assert get(f"{running.admin}/metrics")[0] == 200


@pytest.mark.slow
def test_a_storm_of_reloads_is_one_and_does_not_hold_the_end_up(tmp_path):
    """Three thousand gold items are read for each: three hundred of those take minutes."""
    item = {"answerable": True, "gold_claim_substr": ["yes"], "gold_citations": ["d1"]}
    lines = (json.dumps({"qid": f"g{n}", "question": f"what is {n}?", **item}) for n in range(3000))
    (tmp_path / "gold.jsonl").write_text("\n".join(lines))
    configuration(tmp_path, f'{SUPPORT}[gold.support]\npath = "gold.jsonl"\n')
    with process(tmp_path) as running:
        for _ in range(300):
            running.send(signal.SIGHUP)
        assert running.stop() == 0


def test_once_the_thread_that_writes_has_ended_nobody_waits_for_it(tmp_path, monkeypatch):
    """Whatever ends it: senders are told to come again, pages say so, and a reload returns."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with serving(tmp_path, SUPPORT) as running:
        writer = running.server.writer
        monkeypatch.setattr(writer, "_together", lambda: 1 / 0)
        writer._thread.join(TIMEOUT)
        assert post(f"{running.otlp}/v1/traces", whole([asked(1)]), PROTOBUF)[0] == 503
        assert running.metrics()["ragmon_journal_writable"] == 0
        assert not running.server.reloading.reload()
        assert get(f"{running.admin}/healthz")[0] == 503


@pytest.mark.slow
def test_many_who_ask_what_broke_take_turns(tmp_path):
    """Each holds what the thread that writes needs; between two of them it has its turn."""
    configuration(tmp_path, f"{SUPPORT}[gates.citation_scope]\nat_least = 0.95\n")
    with process(tmp_path) as running:
        now, asked_so_far, stop = time.time(), [], threading.Event()
        for batch in range(5):
            many = [asked(batch * 400 + n, ts=now - batch * 400 - n, build=f"b{n % 8}") for n in range(400)]
            send_body(running, whole(many))

        def ask():
            while not stop.is_set():
                asked_so_far.append(get(f"{running.admin}/api/why?gate=citation_scope")[0])

        readers = [threading.Thread(target=ask) for _ in range(8)]
        for reader in readers:
            reader.start()
        wait_for(lambda: len(asked_so_far), lambda n: n >= 8)
        before = len(asked_so_far)
        send_body(running, whole([asked(10**6)]))
        waited_for = len(asked_so_far) - before
        stop.set()
        for reader in readers:
            reader.join()
    assert set(asked_so_far) == {200}
    assert waited_for <= 8, "whoever sends waits for one of them, or two, not for all of them again and again"


@pytest.mark.slow
def test_the_token_is_not_shown_to_a_port_that_only_reads(tmp_path):
    """The admin port speaks no TLS, so whoever listens on the way would know it."""
    seen = []

    class Admin(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(self.headers.get("Authorization"))
            self.send_response(405)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Admin) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (tmp_path / "token").write_text("s3cr3t-of-16-bytes")
        ports = f'admin = "127.0.0.1:{server.server_port}"\notlp = "127.0.0.1:1"\n'
        (tmp_path / "ragmon.toml").write_text(f'[serve]\n{ports}token_file = "token"\n')
        ragmon("ack", "support/x", "--reason", "y", "--config", tmp_path / "ragmon.toml")
        server.shutdown()
    assert seen == [None]


def test_every_address_is_of_both_versions_on_every_port():
    """As gRPC has it: `[::]` takes IPv4 as well."""
    with bind(Address("::", 0), "otlp") as place:
        place.listen()
        socket.create_connection(("127.0.0.1", place.getsockname()[1]), timeout=TIMEOUT).close()


def test_metrics_are_served_whatever_somebody_accepts(tmp_path):
    with serving(tmp_path, SUPPORT) as running:
        told = {"Accept": "application/openmetrics-text; version=x"}
        with urllib.request.urlopen(urllib.request.Request(f"{running.admin}/metrics", headers=told)) as answer:
            assert answer.status == 200


@pytest.mark.slow
@pytest.mark.parametrize("command", [("why", "x"), ("verify",)])
def test_what_speaks_no_http_does_not_write_on_the_terminal(tmp_path, command):
    with serving(tmp_path, SUPPORT) as running:
        done = ragmon(*command, "--url", running.grpc)
    assert done.code == 3
    assert "it speaks no HTTP" in done.err
    assert "\\x00" not in done.err


@pytest.mark.slow
def test_a_start_on_a_full_disk_may_be_tried_again(disk):
    """The exit code is another one than that of a wrong configuration, which no service manager need try again."""
    configuration(disk, SUPPORT)
    with process(disk) as running:
        assert running.stop() == 0
    fill(disk / "full")
    refused = Process(disk)
    assert refused.wait() == TEMPORARY


@pytest.mark.slow
def test_users_words_are_not_on_disk_once_their_trace_is_done(tmp_path):
    """Not in the journal and not in its log, the next time the house is kept."""
    with serving(tmp_path, SUPPORT) as running:
        send_body(running, export(foreign(1, content="SECRETD")).SerializeToString())
        running.settled(1)
        writer = running.server.writer
        wait_for(lambda: writer.open_traces.released, lambda left: not left)
        between_rows(running, lambda: setattr(writer, "_due", 0.0))
        wait_for(lambda: holding(b"SECRETD", tmp_path / "state"), lambda found: not found)


def holding(text, folder):
    """The files of a folder in which a text stands."""
    return [path.name for path in folder.iterdir() if text in path.read_bytes()]
