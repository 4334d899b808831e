"""What tests of probes share: an application behind a real HTTP server, gold for it, and an asker for either."""

from __future__ import annotations

import json
import ssl
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ragmon.config.load import defaults
from ragmon.config.settings import ProbeSpec
from ragmon.server.probe_client import GoldQuestion, ProbeCapture, ProbeClient

QUESTION = GoldQuestion(0, "q1", 'Say "hello"\nto the pier')
JSON = {"Content-Type": "application/json"}
REFUSED = {"answer": "not in context", "citations": []}


@dataclass
class Asked:
    """A request as the application sees it."""

    path: str
    headers: dict
    body: bytes

    @property
    def question(self):
        return json.loads(self.body)["question"]


@dataclass
class Web:
    """An application behind HTTP.

    Attributes:
        url: Where it is.
        asked: The requests so far.
        most: How many of them there were at once.
    """

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    most: int = 0
    now: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def web(answer, *, tls=None):
    """An application on a free port of this machine.

    Args:
        answer: From a request to what is answered: JSON, or status, headers and body; None hangs up without a word.
        tls: A certificate and its key; None for plain HTTP.
    """
    found = Web()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            with found.lock:
                found.asked.append(asked)
                found.now += 1
                found.most = max(found.most, found.now)
            try:
                told = answer(asked)
            finally:
                with found.lock:
                    found.now -= 1
            if told is None:
                self.close_connection = True
                return
            status, headers, text = told if isinstance(told, tuple) else (200, JSON, json.dumps(told).encode())
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_):
            pass  # a client that hangs up is what some tests are about

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trust.load_cert_chain(*tls)
        server.socket = trust.wrap_socket(server.socket, server_side=True)
    found.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}/ask"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def spec_of(target, **keys):
    """A probe."""
    return ProbeSpec(name="support", pipeline="support", gold="gold", target=target, **keys)


@contextmanager
def asking(target, *, key=None, settings=None, **keys):
    """An asker of a target."""
    capture = ProbeCapture(settings or defaults())
    client = None
    try:
        client = ProbeClient.of(spec_of(target, **keys), capture, key=key)
        yield client
    finally:
        if client is not None:
            client.close()
        capture.close()


def ask(target, question=QUESTION, **keys):
    """What becomes of one question."""
    with asking(target, **keys) as client:
        return client.ask(client.sending(question))
