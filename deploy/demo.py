# ruff: noqa: INP001
"""The demo's application as a service: it answers users and gold questions, and sends what it captures to a server."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from threading import Event

import ragmon
from ragmon.demo.application import Application
from ragmon.demo.load import Load

DELIVERED = Path(tempfile.gettempdir()) / "delivered"
"""Touched whenever everything captured so far was delivered; the health check looks at its age."""
EVERY = 5.0
"""Seconds between two looks."""


def main() -> None:
    """Answer until SIGTERM."""
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    installed = ragmon.install()
    load = Load(Application())
    load.start()
    lost = 0
    while not stop.wait(EVERY):
        flushed, before = installed.flush(), lost
        lost = sum(installed.books().dropped.values())
        if flushed and lost == before:
            DELIVERED.touch()
    load.stop()
    installed.shutdown()


if __name__ == "__main__":
    main()
