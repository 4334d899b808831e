"""`ragmon doctor` sends one trace through the configured chain, and names the link that is broken."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ragmon.cli.client import ServerStatus
from ragmon.cli.doctor import _dropped, chain_checks
from ragmon.config.load import load
from ragmon.export.status import StageCounters
from ragmon.scoring import cardinality
from ragmon.server.server import Server
from ragmon.server.state import Clock
from tests.support.collectors import collector, free_port
from tests.support.command_line import ragmon
from tests.support.fake_consumer import certificate
from tests.support.otlp_receiver import Answer, receiving
from tests.support.serving import PORTS, configuration, journalled, process, serving
from tests.support.waiting import TIMEOUT

GATES = '[gates.compliance]\nat_least = 0.9\nsource = "probe"\n[gates.answer_precision]\nat_least = 0.8\n'
TOKEN = "open-sesame-1234"
LINKS = ["endpoint", "exporter", "server", "journal", "scored", "metrics"]


def configured(folder, endpoint, admin, text=""):
    """A configuration of an application beside the server's own."""
    path = folder / "application.toml"
    listens = admin.removeprefix("http://")
    path.write_text(f'[export]\nendpoint = "{endpoint}"\n[serve]\nadmin = "{listens}"\n{text}')
    return path


def doctor(folder, endpoint, admin, *options, text="", **more):
    """The command; it waits long for what comes, unless the options say otherwise."""
    patient = () if "--wait" in options else ("--wait", TIMEOUT)
    return ragmon("doctor", "--config", configured(folder, endpoint, admin, text), *patient, *options, **more)


def links(done):
    """The links that were tried, in order: ok or bad, what was told, and the hint."""
    found = {}
    name = ""
    for line in done.out.partition("\n\n")[0].splitlines():
        if line.startswith(" "):
            found[name] = (*found[name][:2], line.strip().removeprefix("hint: "))
        else:
            name, how, told = line.split(maxsplit=2)
            found[name] = (how, told, "")
    assert list(found)[:4] == ["config", "gold", "baseline", "capture"], done
    return {name: found[name] for name in list(found)[4:]}


def broken(done):
    """The broken link, which must be the last that was tried and the only one."""
    assert done.code == 1, done
    *before, (name, (how, told, hint)) = links(done).items()
    assert [one[1][0] for one in before] == ["ok"] * len(before)
    assert how == "bad"
    assert hint
    return name, told, hint


@contextmanager
def guarded(folder, **how):
    """A server with a token and TLS; yields its endpoint, its admin port and its certificate."""
    made, key = certificate(folder)
    (folder / "token").write_text(TOKEN)
    tls = f'token_file = "token"\ntls = {{ cert = "{made}", key = "{key}" }}\n'
    (folder / "ragmon.toml").write_text(PORTS + tls)
    with Server(load(folder / "ragmon.toml", environ={}), **how) as server:
        places = server.addresses()
        yield f"https://{places['otlp']}", f"http://{places['admin']}", str(made)


@pytest.mark.slow
def test_a_chain_that_holds_is_seen_link_by_link_and_its_trace_is_in_no_gate(tmp_path):
    with serving(tmp_path, GATES) as running:
        done = doctor(tmp_path, running.otlp, running.admin)
        assert done.code == 0, done
        assert list(links(done)) == LINKS
        assert links(done)["scored"] == ("ok", "as pipeline ragmon-doctor, which no metric, gate or alarm reads", "")
        status, books, text = running.status(), running.books(), running.get("/metrics")[1]
    assert (books["scored"], books["residual"]) == (1, 0)
    assert status["gates"] == []
    named = [line for line in text.splitlines() if "ragmon-doctor" in line]
    assert [line.partition("{")[0] for line in named] == ["ragmon_build_seen_info"]
    (record,) = journalled(tmp_path)
    assert (record.pipeline, record.source, record.tags) == ("ragmon-doctor", "probe", {"ragmon": "doctor"})
    assert (record.q, record.qid, record.contexts) == (None, None, None)


def test_however_often_it_is_tried_no_gate_counts_it(tmp_path):
    with serving(tmp_path, GATES) as running:
        settings = load(configured(tmp_path, running.otlp, running.admin), environ={})
        for _ in range(5):
            checks = list(chain_checks(settings, running.admin, TIMEOUT))
            assert all(check.ok for check in checks), checks
        assert running.books()["scored"] == 5
        assert all(gate["n"] == 0 for gate in running.status()["gates"])


def test_past_so_many_tries_that_builds_lose_their_names_it_is_still_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(cardinality, "PAIRS", 1)
    with serving(tmp_path) as running:
        settings = load(configured(tmp_path, running.otlp, running.admin), environ={})
        for _ in range(3):
            assert [check.name for check in chain_checks(settings, running.admin, TIMEOUT)] == LINKS
        assert running.status()["builds"][-1] == ["ragmon-doctor", "__other__", "__other__"]


@pytest.mark.slow
def test_its_traces_can_be_forgotten(tmp_path):
    with serving(tmp_path) as running:
        assert doctor(tmp_path, running.otlp, running.admin).code == 0
        done = ragmon("forget", "--tag", "ragmon=doctor", "--state-dir", tmp_path / "state")
    assert done.out.startswith("forgotten: 1 record,")


@pytest.mark.slow
def test_nobody_answers_where_traces_are_sent(tmp_path):
    with serving(tmp_path) as running:
        port = free_port()
        name, told, hint = broken(doctor(tmp_path, f"http://127.0.0.1:{port}", running.admin))
    assert (name, told) == ("endpoint", f"no answer from 127.0.0.1:{port} (Connection refused)")
    assert hint == "start the server, or correct `[export] endpoint`"


@pytest.mark.slow
def test_somebody_listens_and_says_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        name, told, _ = broken(doctor(tmp_path, endpoint, "127.0.0.1:9464"))
    assert (name, told) == ("exporter", f"exporting to {endpoint} fails: it does not answer in time")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "`[serve] token_file` here and there"),
        (403, "ask for an address or localhost"),
        (404, "base address of an OTLP/HTTP receiver"),
        (413, "raise the limit of the proxy"),
        (415, "name a receiver of OTLP over HTTP"),
        (418, "its log says why"),
        (429, "sample less"),
        (503, "cannot write at the moment"),
    ],
)
def test_each_refusal_has_its_hint(tmp_path, status, hint):
    with receiving() as receiver:
        receiver.answers.append(Answer(status=status, headers={"Retry-After": "3600"}))
        name, told, given = broken(doctor(tmp_path, receiver.endpoint, "127.0.0.1:9464"))
    assert (name, told.split(" (")[0]) == (
        "exporter",
        f"exporting to {receiver.endpoint} fails: it answered with status {status}",
    )
    assert hint in given


@pytest.mark.slow
def test_a_receiver_that_takes_the_request_and_refuses_the_record(tmp_path):
    with receiving() as receiver:
        receiver.answers.append(Answer(rejected=1))
        name, told, _ = broken(doctor(tmp_path, receiver.endpoint, "127.0.0.1:9464"))
    place = receiver.endpoint.removeprefix("http://")
    assert (name, told) == ("exporter", f"{place} refused the record itself (export_refused)")


@pytest.mark.slow
def test_the_port_of_grpc_is_no_place_for_http(tmp_path):
    with serving(tmp_path) as running:
        name, told, hint = broken(doctor(tmp_path, running.grpc, running.admin))
    assert name == "exporter"
    assert "it does not speak HTTP" in told
    assert "4318" in told
    assert hint == "correct `[export] endpoint`"


@pytest.mark.slow
def test_the_admin_port_is_no_place_to_write(tmp_path):
    with serving(tmp_path) as running:
        name, told, _ = broken(doctor(tmp_path, running.admin, running.admin))
    assert name == "exporter"
    assert "status 405 (it accepts no records: of `ragmon serve`, use the port `[serve] otlp`, not `admin`)" in told


@pytest.mark.slow
def test_token_and_tls_are_those_of_the_configuration(tmp_path):
    with guarded(tmp_path) as (endpoint, admin, cert):
        text = f'token_file = "{tmp_path / "token"}"\n'
        done = doctor(tmp_path, endpoint, admin, text=text, env={"SSL_CERT_FILE": cert})
    assert done.code == 0, done
    assert list(links(done)) == LINKS
    assert TOKEN not in done.out + done.err


@pytest.mark.slow
@pytest.mark.parametrize("token", ["another-token-5678", None])
def test_a_wrong_token_and_a_missing_one_are_named_and_not_shown(tmp_path, token):
    with guarded(tmp_path) as (endpoint, admin, cert):
        (tmp_path / "wrong").write_text(token or "")
        text = f'token_file = "{tmp_path / "wrong"}"\n' if token else ""
        done = doctor(tmp_path, endpoint, admin, text=text, env={"SSL_CERT_FILE": cert})
    name, told, hint = broken(done)
    assert name == "exporter"
    assert "status 401" in told
    assert hint == "`[serve] token_file` here and there must hold the same token"
    assert not {TOKEN, token} & set(re.findall(r"[\w-]+", done.out + done.err))


@pytest.mark.slow
def test_a_token_that_cannot_be_read_is_named_before_anything_is_sent(tmp_path):
    with receiving() as receiver:
        done = doctor(tmp_path, receiver.endpoint, "127.0.0.1:9464", text='token_file = "nowhere"\n')
        assert receiver.requests == []
    name, told, hint = broken(done)
    assert (name, hint) == ("exporter", "check `[serve] token_file`")
    assert told.startswith("not tried: ")


@pytest.mark.slow
def test_a_certificate_nobody_trusts_is_named(tmp_path):
    with guarded(tmp_path) as (endpoint, admin, _):
        name, told, hint = broken(doctor(tmp_path, endpoint, admin))
    assert name == "exporter"
    assert "its certificate is not trusted (self-signed certificate)" in told
    assert hint.startswith("`[export] certificate`")


@pytest.mark.slow
def test_plain_http_to_a_port_with_tls_is_named(tmp_path):
    with guarded(tmp_path) as (endpoint, admin, _):
        name, _, hint = broken(doctor(tmp_path, endpoint.replace("https:", "http:"), admin))
    assert (name, hint) == ("exporter", "it speaks TLS: write https:// in `[export] endpoint`")


@pytest.mark.slow
def test_tls_to_a_port_without_is_named(tmp_path):
    with serving(tmp_path) as running:
        name, _, hint = broken(doctor(tmp_path, running.otlp.replace("http:", "https:"), running.admin))
    assert (name, hint) == ("exporter", "it does not speak TLS: write http:// in `[export] endpoint`")


@pytest.mark.slow
def test_what_cannot_be_seen_is_no_success(tmp_path):
    """The trace is sent all the same: the rest of the chain may be looked at where the admin port is reached."""
    with serving(tmp_path) as running:
        port = free_port()
        name, told, hint = broken(doctor(tmp_path, running.otlp, f"http://127.0.0.1:{port}"))
        assert running.books()["scored"] == 1
    assert name == "server"
    assert told.startswith(f"what became of the trace cannot be seen: no answer from 127.0.0.1:{port} (")
    assert hint.startswith("--admin-url URL")


@pytest.mark.slow
def test_the_admin_port_can_be_named(tmp_path):
    with serving(tmp_path) as running:
        done = doctor(tmp_path, running.otlp, "127.0.0.1:1", "--admin-url", running.admin)
    assert done.code == 0, done


@pytest.mark.slow
@pytest.mark.parametrize("admin", ["write port", "no address"])
def test_what_is_no_admin_port_is_named(tmp_path, admin):
    with serving(tmp_path) as running:
        url = running.otlp if admin == "write port" else "http://"
        name, told, _ = broken(doctor(tmp_path, running.otlp, running.admin, "--admin-url", url))
    assert name == "server"
    assert ("not the admin port" if admin == "write port" else "not an address") in told


@pytest.mark.slow
def test_two_servers_are_told_apart(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    with serving(first) as one, serving(second) as other:
        name, told, hint = broken(doctor(tmp_path, one.otlp, other.admin, "--wait", "0.3"))
    assert (name, told) == ("arrived", "a `ragmon serve` took the trace, but not the one at this admin port")
    assert "--admin-url" in hint


@pytest.mark.slow
def test_somebody_else_took_the_trace(tmp_path):
    with serving(tmp_path) as running, receiving() as receiver:
        done = doctor(tmp_path, receiver.endpoint, running.admin, "--wait", "0.3")
        (record,) = receiver.records()
    name, told, hint = broken(done)
    assert record.pipeline == "ragmon-doctor"
    assert (name, "not a `ragmon serve`: a collector? It passed nothing on within 0.3 s" in told) == ("arrived", True)
    assert "--wait" in hint


@pytest.mark.slow
def test_through_a_real_collector(tmp_path):
    with serving(tmp_path) as running, collector(tmp_path, running.otlp) as endpoint:
        done = doctor(tmp_path, endpoint, running.admin)
    assert done.code == 0, done
    assert list(links(done)) == LINKS
    assert [record.pipeline for record in journalled(tmp_path)] == ["ragmon-doctor"]


@pytest.mark.slow
def test_a_collector_without_the_token_is_named(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "ragmon.toml").write_text(f'{PORTS}token_file = "token"\n')
    with Server(load(tmp_path / "ragmon.toml", environ={})) as server:
        places = server.addresses()
        with collector(tmp_path, f"http://{places['otlp']}") as endpoint:
            done = doctor(tmp_path, endpoint, f"http://{places['admin']}", "--wait", "3")
    name, told, hint = broken(done)
    assert name == "arrived"
    assert re.fullmatch(r"the collector's requests are turned away: unauthorised \d+", told)
    assert hint == "give its exporter the server's token and protocol"


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "reason"), [(-86_400.0, "too_future"), (3 * 86_400.0, "too_old")])
def test_clocks_that_differ_drop_the_trace_and_that_is_said(tmp_path, shift, reason):
    clock = Clock(wall=lambda: time.time() + shift)
    with serving(tmp_path, clock=clock) as running:
        done = doctor(tmp_path, running.otlp, running.admin, "--wait", "0.5")
    name, told, hint = broken(done)
    assert (name, told) == ("scored", f"something arrived and was dropped: {reason} 1")
    assert hint == "compare the clocks of this machine and the server's"
    assert re.search(rf"its clock is {abs(shift):.0f} s {'ahead' if shift > 0 else 'behind'}", links(done)["server"][1])


@contextmanager
def in_front_of(admin, spoil):
    """A proxy that passes on what an admin port answers.

    Args:
        admin: The admin port.
        spoil: Makes of a path, a status and a body what is passed on.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            with urllib.request.urlopen(f"{admin}{self.path}") as answer:
                status, body = spoil(self.path, answer.status, answer.read())
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Say nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_what_is_scored_and_not_on_metrics_is_named(tmp_path):
    def unread(path, status, body):
        return (500, b"") if path == "/metrics" else (status, body)

    def emptied(path, status, body):
        return (status, b"up 1\n") if path == "/metrics" else (status, body)

    with serving(tmp_path) as running:
        with in_front_of(running.admin, unread) as admin:
            name, told, _ = broken(doctor(tmp_path, running.otlp, admin))
            assert (name, told) == ("metrics", "/metrics answered with status 500")
        with in_front_of(running.admin, emptied) as admin:
            name, told, _ = broken(doctor(tmp_path, running.otlp, admin))
            assert (name, told) == ("metrics", "the trace was scored but is not on /metrics")


@pytest.mark.slow
def test_a_server_that_cannot_write_is_named_before_and_after_a_trace_was_sent(tmp_path):
    looks = []

    def troubled(path, status, body):
        looks.append(path)
        told = json.loads(body)
        return status, json.dumps({**told, "trouble": "the disk is full" if len(looks) >= late else ""}).encode()

    with serving(tmp_path) as running, receiving() as receiver, in_front_of(running.admin, troubled) as admin:
        late = 1
        name, told, _ = broken(doctor(tmp_path, receiver.endpoint, admin))
        assert (name, told) == ("server", "it accepts nothing: the disk is full")
        late = len(looks) + 2
        name, told, _ = broken(doctor(tmp_path, receiver.endpoint, admin, "--wait", "0.3"))
        assert (name, told) == ("journal", "it cannot be written: the disk is full")


@pytest.mark.slow
def test_with_a_server_in_a_process_of_its_own_nothing_is_said_on_stderr(tmp_path):
    configuration(tmp_path)
    with process(tmp_path) as running:
        done = doctor(tmp_path, running.otlp, running.admin)
        assert (done.code, done.err) == (0, "")
        assert running.stop() == 0


def test_what_was_dropped_for_one_reason_in_several_stages_is_added_up():
    books = {stage: StageCounters(received=2, dropped={"too_late": 2}) for stage in ("receive", "score")}
    before, after = (ServerStatus("1", 0.0, each) for each in ({}, books))
    assert _dropped(before, after) == {"too_late": 4}
