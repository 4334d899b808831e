"""Users and probes: threads that ask the application questions until they are told to stop."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from importlib import resources
from itertools import cycle
from threading import Event, Thread
from time import monotonic
from typing import Final

from ragmon.capture.api import probe
from ragmon.demo.application import Application
from ragmon.demo.traffic import user_questions

# Many who each ask seldom: when answers become slow, the questions keep coming, as they do from people.
USERS: Final = 16
USER_RATE: Final = 2.0
"""Questions a second of each user."""
PROBERS: Final = 16
PROBE_RATE: Final = 2.5
"""Gold questions a second of each prober."""

Question = tuple[Callable[[str], object], str]
"""Who is asked, and what."""


class Load:
    """Concurrent users and probers.

    Args:
        application: What they ask.
        seed: Seed of the users' questions.
    """

    def __init__(self, application: Application, seed: int = 0) -> None:
        self._application = application
        self._stop = Event()
        gold = gold_questions()
        users = [Thread(target=self._users, args=(seed + user,), name=f"user-{user}") for user in range(USERS)]
        probers = [
            Thread(target=self._probes, args=(prober, gold[prober::PROBERS]), name=f"prober-{prober}")
            for prober in range(PROBERS)
        ]
        self._threads = [*users, *probers]

    def start(self) -> None:
        """Start asking."""
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def stop(self) -> None:
        """Stop asking, and wait for the questions under way."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _users(self, seed: int) -> None:
        self._ask(((self._application.ask, question) for question in user_questions(seed)), USER_RATE, seed)

    def _probes(self, prober: int, gold: list[tuple[str, str]]) -> None:
        # Any stretch of the sweep should be a fair sample of the set, not a stretch of the file.
        random.Random(prober).shuffle(gold)  # noqa: S311 - repeatable, not secret
        self._ask(((self._probe(qid), question) for qid, question in cycle(gold)), PROBE_RATE, -prober - 1)

    def _probe(self, qid: str) -> Callable[[str], object]:
        def ask(question: str) -> object:
            with probe(qid):
                return self._application.ask(question)

        return ask

    def _ask(self, questions: Iterator[Question], rate: float, seed: int) -> None:
        """Ask at random moments, as people do, on average `rate` times a second; later where answers take longer."""
        rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
        due = monotonic()
        for ask, question in questions:
            due = max(due + rng.expovariate(rate), monotonic())
            if self._stop.wait(due - monotonic()):
                return
            ask(question)


def gold_questions() -> list[tuple[str, str]]:
    """Id and text of every gold question."""
    lines = resources.files(__package__).joinpath("gold.jsonl").read_text("utf-8").splitlines()
    return [(item["qid"], item["question"]) for item in map(json.loads, lines)]
