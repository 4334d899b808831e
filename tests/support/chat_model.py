"""A server that speaks OpenAI's chat API over HTTP, with a stub in place of the model."""

from __future__ import annotations

import json
import re
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

TABLE = '[judges.faithfulness]\nurl = "{url}"\nmodel = "m"\nsample = 1.0\ntimeout = "20s"\n'
SECTION = re.compile(
    r"<<<(?P<label>[A-Z0-9 ]+) (?P<word>[0-9a-f]{16})>>>\n(?P<text>.*?)\n<<<END (?P=word)>>>", re.DOTALL
)


class Asked:
    """A request as the model reads it: only markers with the word its instructions name are real."""

    def __init__(self, path, headers, body):
        self.path, self.headers, self.body = path, headers, body
        self.system, self.user = (message["content"] for message in body["messages"])
        (self.word,) = set(re.findall(r"<<<END ([0-9a-f]{16})>>>", self.system))
        found = [match for match in SECTION.finditer(self.user) if match["word"] == self.word]
        self.sections = [(match["label"], match["text"]) for match in found]

    def texts(self, label):
        return [text for name, text in self.sections if name.split()[0] == label]


class ChatModel:
    """The stub: every sentence of an answer is a claim; a text that names `good` is relevant, or supported.

    `script` holds what the next requests get in place of that: a callable on the handler and the request, or a string
    that is the whole reply.
    """

    def __init__(self):
        self.asked = []
        self.script = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.url = ""

    def reply(self, asked):
        if not asked.texts("EXPECTED") and not asked.texts("CLAIM"):
            return json.dumps(
                {"claims": [part.strip() for part in asked.texts("ANSWER")[0].split(".") if part.strip()]}
            )
        judged = asked.texts("CLAIM") or asked.texts("CONTEXT")
        return verdicts(*("yes" if "good" in text else "no" for text in judged))

    def answer(self, handler):
        length = int(handler.headers["Content-Length"])
        asked = Asked(handler.path, dict(handler.headers), json.loads(handler.rfile.read(length)))
        with self.lock:
            self.asked.append(asked)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            step = self.script.pop(0) if self.script else None
        try:
            if callable(step):
                step(handler, asked)
            else:
                completion(handler, self.reply(asked) if step is None else step)
        finally:
            with self.lock:
                self.at_once -= 1


def verdicts(*words):
    """A reply with these verdicts."""
    listed = [{"number": n, "verdict": word, "reason": f"because {n}"} for n, word in enumerate(words, start=1)]
    return json.dumps({"verdicts": listed})


def completion(handler, content, **choice):
    """Answer with a chat completion."""
    message = {"role": "assistant", "content": content}
    choices = [{"index": 0, "message": message, "finish_reason": "stop", **choice}]
    send(handler, 200, json.dumps({"id": "c1", "object": "chat.completion", "choices": choices}).encode())


def send(handler, status, body=b"", **headers):
    """Answer with a status, a body and headers."""
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def status(code, **headers):
    """A step that answers with a status alone."""
    return lambda handler, _: send(handler, code, b"{}", **headers)


@contextmanager
def serving(model=None, tls=None):
    """Serve a model on a free port of this machine; over TLS with a certificate and its key."""
    model = ChatModel() if model is None else model

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            try:
                model.answer(self)
            except (BrokenPipeError, ConnectionResetError):  # the judge hung up
                self.close_connection = True

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    model.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def judge(monkeypatch):
    """`ragmon.judge`, forgotten after the test."""
    import ragmon  # noqa: PLC0415 - most tests have no judge
    from ragmon.capture import judges  # noqa: PLC0415
    from ragmon.metrics import base  # noqa: PLC0415

    monkeypatch.setattr(judges, "_functions", {})
    monkeypatch.setattr(base, "_families", dict(base._families))
    return ragmon.judge


@pytest.fixture
def model():
    """A model that answers as it is told to."""
    with serving() as found:
        yield found


def no_redactor(text):
    """A redactor that fails."""
    raise ValueError(text)
