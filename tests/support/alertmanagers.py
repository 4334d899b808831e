"""A real Alertmanager for tests, and a webhook that keeps what it is told."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.deployed import installed
from tests.support.waiting import TIMEOUT, wait_for


@contextmanager
def listening():
    """A webhook; yields its address and what it was told: receiver and alert, in order."""
    told = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == f"/{said['receiver']}"
            told.extend((said["receiver"], one) for one in said["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", told
        finally:
            server.shutdown()


@contextmanager
def alertmanager_in(folder):
    """An Alertmanager under the configuration in a folder; yields where it listens."""
    program = installed("prometheus-alertmanager")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    places = [f"--config.file={folder / 'alertmanager.yml'}", f"--storage.path={folder}"]
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            [program, *places, "--cluster.listen-address=", f"--web.listen-address={address}"], stderr=log
        )
        try:
            wait_for(lambda: "Listening on" in (folder / "log").read_text() or process.poll() is not None)
            said = (folder / "log").read_text()
            assert process.poll() is None, said
            assert "level=warn" not in said, said
            yield address
        finally:
            process.terminate()
            process.wait(timeout=TIMEOUT)
