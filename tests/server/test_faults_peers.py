"""Peers that hang, flood, lie, vanish or never come: everybody else is served, and nothing is counted twice or lost."""

from __future__ import annotations

import gzip
import signal
import socket
import struct
import threading
from contextlib import ExitStack

import pytest

from ragmon.capture.otlp_exporter import OtlpExporter
from ragmon.core.addresses import Address
from tests.server.test_faults_kill import application
from tests.support.fake_consumer import connect, send, trickling
from tests.support.otlp_requests import export
from tests.support.process_usage import peak
from tests.support.serving import (
    BEGIN,
    PROTOBUF,
    Time,
    accounted,
    asked,
    configuration,
    digest,
    foreign,
    get,
    journalled,
    pass_by,
    process,
    replayed,
    send_body,
    serving,
    values,
    whole,
)
from tests.support.waiting import TIMEOUT, wait_for

MIB = 1 << 20


def address(url):
    """Where a door is."""
    host, port = url.removeprefix("http://").split(":")
    return Address(host, int(port))


def request(url, body, *headers):
    """An export as it goes over the wire."""
    head = (f"Host: {address(url).host}", f"Content-Type: {PROTOBUF}", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join(("POST /v1/traces HTTP/1.1", *head, "", "")).encode() + body


def answered(url, body, *headers):
    """The status of what is answered to a body."""
    with connect(address(url)) as sock:
        send(sock, request(url, body, *headers))
        return int(sock.recv(4096).split(b" ")[1])


@pytest.mark.slow
def test_a_producer_is_served_among_slow_strange_and_greedy_clients(tmp_path, monkeypatch):
    """Two hundred that dawdle on each port, strangers who guess the token, a bomb: at once, in bounded memory."""
    token = tmp_path / "token"
    token.write_text("open-sesame-1234\n", encoding="ascii")
    monkeypatch.setenv("RAGMON_TOKEN_FILE", str(token))
    configuration(tmp_path)
    bomb = gzip.compress(bytes(256 * MIB))
    known = "Authorization: Bearer open-sesame-1234"
    stop, told = threading.Event(), []
    with process(tmp_path) as running, ExitStack() as opened:
        sink = OtlpExporter(running.otlp, token="open-sesame-1234", resource={"service.name": "support"}, timeout=60.0)
        assert sink.deliver([asked(n) for n in range(200)]) == {}
        before = peak(running.pid)
        for url in (running.otlp, running.admin):
            slow = [opened.enter_context(connect(address(url))) for _ in range(200)]
            for sock in slow:
                send(sock, b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n")
            opened.callback(trickling(slow, b"X: y\r\n").set)

        def stranger():
            while not stop.is_set():
                told.append(answered(running.otlp, b"x" * 1000, "Authorization: Bearer guess"))

        strangers = [threading.Thread(target=stranger) for _ in range(8)]
        for one in strangers:
            one.start()
        opened.callback(stop.set)
        once = answered(running.otlp, bomb, known, "Content-Encoding: gzip")
        twice = answered(running.otlp, gzip.compress(bomb), known, "Content-Encoding: gzip, gzip")
        assert sink.deliver([asked(n) for n in range(200, 2000)]) == {}
        stop.set()
        for one in strangers:
            one.join()
        assert (once, twice, set(told)) == (413, 415, {401})
        books = wait_for(running.books, lambda found: found["scored"] == 2000)
        assert (books["received"], books["residual"], books["dropped"]) == (2000, 0, {})
        refused = running.status()["refused"]
        assert (refused["unauthorised"], refused["decompress_limit"]) == (len(told), 1)
        assert peak(running.pid) - before < 64 * MIB
        assert values(get(f"{running.admin}/metrics")[1])['ragmon_accounting_residual{stage="ingest"}'] == 0
        sink.close()


def hang_up(sock):
    """End a connection as a process does that is gone: with a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.slow
def test_clients_that_vanish_lose_nothing_that_was_taken_and_add_nothing_when_they_come_back(tmp_path):
    """In the middle of a body, or with all of it sent and no answer read; then they send it again."""
    bodies = [whole([asked(10 * n + k) for k in range(10)]) for n in range(60)]
    bodies += [export(foreign(n)).SerializeToString() for n in range(60)]
    with serving(tmp_path) as running:
        for n, body in enumerate(bodies):
            sock, sent = connect(address(running.otlp)), request(running.otlp, body)
            send(sock, sent[: len(sent) // 2] if n % 3 == 0 else sent)
            hang_up(sock)
        for body in bodies:
            send_body(running, body)
        books = accounted(running)
        assert books["scored"] == 660
        assert running.status()["journal"]["resets"] == 0
        found = digest(running)
    traces = [record.trace_id for record in journalled(tmp_path)]
    assert (len(traces), len(set(traces))) == (660, 660)
    assert replayed(tmp_path) == found


@pytest.mark.slow
def test_a_server_that_stands_still_holds_no_application_up_and_every_call_is_accounted_for(tmp_path):
    """More calls than an application's queue holds while the server is stopped: what does not fit is told."""
    configuration(tmp_path)
    with process(tmp_path) as running:
        send_body(running, whole([asked(10**6)]))
        running.send(signal.SIGSTOP)
        try:
            with application(tmp_path, running.otlp, 9000) as asking:
                assert asking.stdout.readline() == b"asked\n"
                running.send(signal.SIGCONT)
                asking.communicate(b"end\n", timeout=TIMEOUT)
                assert asking.returncode == 0
        finally:
            running.send(signal.SIGCONT)
        told = running.status()["producers"]
        books = accounted(running)
        assert told["missing"] == 0
        assert books["scored"] - 1 + sum(told["dropped"].values()) == 9000
        assert told["dropped"].keys() == {"queue_full"}
        assert running.stop() == 0


@pytest.mark.slow
def test_it_does_not_matter_to_what_is_counted_whether_anybody_looks(tmp_path):
    """An hour and a half in which nobody scrapes, and the same with somebody who never stops."""
    found = {}
    for name in ("unseen", "seen"):
        time, stop = Time(), threading.Event()
        (tmp_path / name).mkdir()
        with serving(tmp_path / name, clock=time.clock()) as running:
            looking = threading.Thread(target=scrape, args=(running, stop))
            if name == "seen":
                looking.start()
            for minute in range(90):
                records = [asked(10 * minute + n, ts=BEGIN + 60 * minute + n) for n in range(6)]
                send_body(running, whole(records))
                pass_by(running, time, 60.0)
            stop.set()
            if name == "seen":
                looking.join()
            assert accounted(running)["scored"] == 540
            shown = running.metrics()
            del shown["ragmon_journal_bytes"]
            found[name] = digest(running), shown
        assert replayed(tmp_path / name) == found[name][0]
    assert found["unseen"] == found["seen"]


def scrape(running, stop):
    while not stop.is_set():
        for path in ("/metrics", "/", "/api/status", "/api/records", "/readyz"):
            assert running.get(path)[0] == 200


@pytest.mark.slow
def test_many_bombs_take_no_more_memory_than_one(tmp_path):
    configuration(tmp_path)
    bomb = gzip.compress(bytes(256 * MIB))
    with process(tmp_path) as running:
        send_body(running, whole([asked(1)]))
        before = peak(running.pid)
        codes = {answered(running.otlp, bomb, "Content-Encoding: gzip") for _ in range(16)}
        assert codes == {413}
        assert peak(running.pid) - before < 64 * MIB
        assert accounted(running)["scored"] == 1
