"""A real OpenTelemetry collector, rotel, that passes on what it is sent."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from tests.support.waiting import TIMEOUT


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def find():
    """The collector's program, which comes with a package of the registry; without it the test is skipped."""
    found = importlib.util.find_spec("rotel")
    path = found and Path(found.origin).parent / "rotel-agent"
    if not path or not path.is_file():
        reason = "rotel is not installed: run `make setup`"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return path


@contextmanager
def collector(folder, target):
    """A collector on a free port; yields its endpoint.

    Args:
        folder: Where it keeps its files.
        target: The endpoint it sends to.
    """
    program, ports = find(), (free_port(), free_port())
    told = {
        "otlp-http-endpoint": f"127.0.0.1:{ports[0]}",
        "otlp-grpc-endpoint": f"127.0.0.1:{ports[1]}",
        "exporter": "otlp",
        "otlp-exporter-protocol": "http",
        "otlp-exporter-endpoint": target,
        "batch-timeout": "50ms",
        "pid-file": folder / "pid",
        "log-file": folder / "log",
    }
    arguments = [f"--{name}={value}" for name, value in told.items()]
    with (folder / "out").open("w") as out:
        process = subprocess.Popen([program, "start", *arguments], stdout=out, stderr=out)
        try:
            _until_it_listens(ports[0], process)
            yield f"http://127.0.0.1:{ports[0]}"
        finally:
            process.terminate()
            process.wait(timeout=TIMEOUT)


def _until_it_listens(port, process):
    deadline = monotonic() + TIMEOUT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT).close()
        except ConnectionRefusedError:
            assert process.poll() is None, "the collector has ended"
            assert monotonic() < deadline, "the collector does not listen"
            threading.Event().wait(0.05)
        else:
            return
