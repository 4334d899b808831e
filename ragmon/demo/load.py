"""Users and probes: threads that ask the application questions until they are told to stop."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from importlib import resources
from itertools import cycle
from threading import Event, Thread

from ragmon.capture.said import probe
from ragmon.demo.application import Application
from ragmon.demo.traffic import user_questions

USERS = 4
PROBERS = 2
USER_RATE = 8.0
"""Questions a second of each user."""
PROBE_RATE = 12.0
"""Gold questions a second of each prober."""


class Load:
    """Concurrent users and probers.

    Args:
        application: What they ask.
        seed: Seed of the users' questions.
    """

    def __init__(self, application: Application, seed: int = 0) -> None:
        self._application = application
        self._stop = Event()
        self._threads = [
            Thread(target=self._users, args=(seed + user,), name=f"user-{user}", daemon=True) for user in range(USERS)
        ]
        self._threads += [
            Thread(target=self._probes, args=(prober,), name=f"prober-{prober}", daemon=True)
            for prober in range(PROBERS)
        ]

    def start(self) -> None:
        """Start asking."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop asking, and wait for the questions under way."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _users(self, seed: int) -> None:
        self._ask(((self._application.ask, question) for question in user_questions(seed)), USER_RATE, seed)

    def _probes(self, prober: int) -> None:
        mine = gold_questions()[prober::PROBERS]
        # Any stretch of the sweep should be a fair sample of the set, not a stretch of the file.
        random.Random(prober).shuffle(mine)  # noqa: S311 - repeatable, not secret
        self._ask(((self._probe(qid), question) for qid, question in cycle(mine)), PROBE_RATE, -prober - 1)

    def _probe(self, qid: str) -> Callable[[str], object]:
        def ask(question: str) -> object:
            with probe(qid):
                return self._application.ask(question)

        return ask

    def _ask(self, questions: Iterator[tuple[Callable[[str], object], str]], rate: float, seed: int) -> None:
        """Ask at random moments, as people do, on average `rate` times a second."""
        rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
        for ask, question in questions:
            if self._stop.wait(rng.expovariate(rate)):
                return
            ask(question)


def gold_questions() -> list[tuple[str, str]]:
    """Id and text of every gold question."""
    lines = resources.files(__package__).joinpath("gold.jsonl").read_text("utf-8").splitlines()
    return [(item["qid"], item["question"]) for item in map(json.loads, lines)]
