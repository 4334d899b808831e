"""`ragmon serve` under a clock that runs faster: `drill_server.py ragmon.toml`, until SIGTERM."""

from __future__ import annotations

import logging
import signal
import sys
from threading import Event

from tests.support import fast_clock  # before ragmon: it runs the clock

# isort: split

from ragmon.config.load import load
from ragmon.server.server import Server
from ragmon.server.state import Clock

if __name__ == "__main__":
    ended = Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    logging.basicConfig(level=logging.INFO)
    with Server(load(sys.argv[1]), clock=Clock(fast_clock.now, fast_clock.passed)) as server:
        for name, address in server.addresses().items():
            fast_clock.say(f"{name}: {address}")
        fast_clock.say("ready")
        ended.wait()
