"""A server on loopback that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qsl, urlsplit


@contextmanager
def serving(answer):
    """A server on loopback; yields its address and the questions it was asked.

    Args:
        answer: From path, parameters and headers to a status and a body; the three are what is remembered.
    """
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            place = urlsplit(self.path)
            asked.append((place.path, dict(parse_qsl(place.query)), self.headers))
            status, body = answer(*asked[-1])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
