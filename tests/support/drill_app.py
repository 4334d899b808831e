"""The demo's application under traffic: SIGUSR1 swaps its index for a wrong one, SIGUSR2 puts it right."""

from __future__ import annotations

import signal
from threading import Event

from tests.support.fast_clock import say  # before ragmon: it runs the clock

# isort: split

import ragmon
from ragmon.demo.app import Application, load_corpus
from ragmon.demo.show import Load, index_drift

if __name__ == "__main__":
    ended = Event()
    installed = ragmon.install()
    application = Application()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGUSR1, lambda *_: index_drift(application.pipeline))
    signal.signal(signal.SIGUSR2, lambda *_: application.pipeline.rebuild(load_corpus()))
    load = Load(application)
    load.start()
    say("asking")
    ended.wait()
    load.stop()
    installed.shutdown()
    say(installed.counters().residual)
