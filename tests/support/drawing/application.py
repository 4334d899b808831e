"""Hours of the demo's application in minutes: users who ask, raters, and a website that is no RAG.

Run as a program of its own, with the environment of `tests.support.fast_clock`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from tests.support import fast_clock  # before ragmon: it runs the clock

# isort: split

import ragmon
from ragmon.demo.show import user_questions
from tests.support.drawing.pipeline import HOUR, ModelOutOfReachError, RatedApplication, rng, until_end
from tests.support.waiting import TIMEOUT

USERS, VISITORS = 40.0, 3.0
"""Questions, and requests of the website that send their traces to the same server, a minute."""
TICK = 0.1
"""Seconds between two looks at the clock, by a real one."""


def busy():
    """How many times as many users as usual there are."""
    return 1.0 + 0.35 * math.sin(until_end() / HOUR)


def ask(application, question):
    """Ask; an error of the application is in its record."""
    try:
        application.ask(question)
    except (TimeoutError, ModelOutOfReachError):
        return


def visit():
    """The trace of a request that neither retrieves nor asks a model."""
    at = str(int(fast_clock.now() * 1e9))
    span = {"traceId": f"{rng.getrandbits(128):032x}", "spanId": f"{rng.getrandbits(64):016x}", "kind": 2}
    span |= {"name": "GET /timetable", "startTimeUnixNano": at, "endTimeUnixNano": at}
    service = {"attributes": [{"key": "service.name", "value": {"stringValue": "website"}}]}
    body = {"resourceSpans": [{"resource": service, "scopeSpans": [{"spans": [span]}]}]}
    url = f"{os.environ['RAGMON_ENDPOINT']}/v1/traces"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=TIMEOUT).close()


def poisson(mean):
    """A draw of how many of something there are."""
    count, product = -1, 1.0
    while product > math.exp(-mean):
        count, product = count + 1, product * rng.random()
    return count


def main():
    """Answer until SIGTERM."""
    ended = Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    installed = ragmon.install()
    application, users, last = RatedApplication(), user_questions(7), fast_clock.now()
    fast_clock.say("asking")
    with ThreadPoolExecutor(48) as pool:
        while not ended.wait(TICK):
            now = fast_clock.now()
            minutes, last = (now - last) / 60, now
            for _ in range(poisson(busy() * USERS * minutes)):
                pool.submit(ask, application, next(users))
            for _ in range(poisson(VISITORS * minutes)):
                pool.submit(visit)
            installed.flush()
    installed.shutdown()


if __name__ == "__main__":
    main()
