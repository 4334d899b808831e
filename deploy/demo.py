# ruff: noqa: INP001
"""The demo's application as a service: it answers users and gold questions, and sends what it captures to a server.

`--incident KIND --after SECONDS` breaks it.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
from pathlib import Path
from threading import Event, Timer

import ragmon
from ragmon.demo.app import Application
from ragmon.demo.show import INCIDENTS, Load

DELIVERED = Path(tempfile.gettempdir()) / "delivered"
"""Touched whenever everything captured so far was delivered; the health check looks at its age."""
EVERY = 5.0
"""Seconds between two looks."""


def main() -> None:
    """Answer until SIGTERM."""
    parser = argparse.ArgumentParser(description="The demo's application as a service.")
    parser.add_argument("--incident", choices=sorted(INCIDENTS), help="break the pipeline with this fault")
    parser.add_argument("--after", type=float, default=60.0, help="seconds until it breaks (default: 60)")
    asked = parser.parse_args()
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    installed = ragmon.install()
    application = Application()
    load = Load(application)
    load.start()
    if asked.incident:
        fault = Timer(asked.after, INCIDENTS[asked.incident], [application.pipeline])
        fault.daemon = True
        fault.start()
    lost = 0
    while not stop.wait(EVERY):
        flushed, before = installed.flush(), lost
        lost = sum(installed.counters().dropped.values())
        if flushed and lost == before:
            DELIVERED.touch()
    load.stop()
    installed.shutdown()


if __name__ == "__main__":
    main()
