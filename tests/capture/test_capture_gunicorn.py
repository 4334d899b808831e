"""Under a real gunicorn: workers forked from a preloaded application, recycled, killed; every request accounted for."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.waiting import TIMEOUT

APP = """
import os
import ragmon

@ragmon.trace(sample=1.0)
def answer(question):
    return {"answer": question, "citations": []}

def app(environ, start_response):
    os.write(asked, b"x")
    if environ["PATH_INFO"] == "/leave":
        answer("last words")
        os._exit(1)
    body = (answer(environ["PATH_INFO"])["answer"] + " " + str(os.getpid())).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

asked = os.open("asked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
ragmon.install("ragmon.toml")
"""
CONFIG = '[capture]\ncontent = "full"\n[serve]\nadmin = "127.0.0.1:0"\n[export]\njsonl = "trace.jsonl"\n'


class Server:
    """A gunicorn with preloaded workers in a folder."""

    def __init__(self, folder, *options):
        (folder / "service.py").write_text(APP)
        (folder / "ragmon.toml").write_text(CONFIG)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "gunicorn", "--preload", "--bind", f"127.0.0.1:{self.port}", *options]
        environment = {**os.environ, "TMPDIR": str(folder)}
        with (folder / "gunicorn.log").open("w") as log:
            self.process = subprocess.Popen([*command, "service:app"], cwd=folder, env=environment, stderr=log)
        deadline = time.monotonic() + TIMEOUT
        while not self._listens():
            assert time.monotonic() < deadline, (folder / "gunicorn.log").read_text()
            assert self.process.poll() is None, (folder / "gunicorn.log").read_text()

    def _listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def ask(self, path):
        """The worker that answered; None where the connection broke."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
            connection.request("GET", path)
            answer = connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return int(answer.split()[-1])

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=TIMEOUT) == 0


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(*options):
        servers.append(Server(tmp_path, *options))
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.wait()


def account(folder):
    """Records in the log by question, losses told there by reason, and calls: of each process the last word."""
    delivered, losses, calls = Counter(), {}, {}
    for line in (folder / "trace.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry.get("kind") != "totals":
            delivered[entry["q"]] += 1
        elif entry["dropped"]:
            losses[entry["instance"]] = entry["dropped"]
        else:
            calls[entry["instance"], entry["stratum"]] = entry["calls"]
    return delivered, sum(map(Counter, losses.values()), Counter()), sum(calls.values())


def asked(folder):
    """How many requests the application itself counted."""
    return (folder / "asked").stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "gevent"])
def test_four_preloaded_workers_that_are_recycled_deliver_every_request(serve, tmp_path, kind):
    recycled = ("--max-requests", "25", "--max-requests-jitter", "10")
    server = serve("--worker-class", kind, "--workers", "4", *recycled)
    answered, deadline = [], time.monotonic() + TIMEOUT
    with ThreadPoolExecutor(4) as pool:
        while len(set(answered)) <= 8:  # until workers were recycled; gevent's look for that once a second
            assert time.monotonic() < deadline
            paths = [f"/{len(answered) + n}" for n in range(300)]
            answered += [pid or 0 for pid in pool.map(server.ask, paths)]
    server.end()
    answered = [pid for pid in answered if pid]
    delivered, lost, calls = account(tmp_path)
    assert delivered.total() == calls == asked(tmp_path) >= len(answered)
    assert lost == Counter()
    assert max(delivered.values()) == 1, "no request is recorded twice"


@pytest.mark.slow
def test_workers_that_leave_by_os_exit_lose_nothing_uncounted(serve, tmp_path):
    """The master, or whoever comes next, finds what they left and tells it."""
    server = serve("--workers", "2")
    for n in range(40):
        server.ask("/leave" if n % 10 == 9 else f"/{n}")
    server.end()
    subprocess.run(
        [sys.executable, "-c", "import service, ragmon; assert ragmon.install().flush()"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=True,
        timeout=TIMEOUT,
    )
    delivered, lost, _ = account(tmp_path)
    assert delivered.total() + lost.total() == asked(tmp_path) == 40
    assert not list(tmp_path.rglob("*.page"))
