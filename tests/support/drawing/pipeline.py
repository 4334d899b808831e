"""The demo's pipeline as one over a network: with the times of an index and a model elsewhere, and with their faults.

Its faults come by the clock of `tests.support.fast_clock`: all processes that run it have them at the same time.
"""

from __future__ import annotations

import math
import random
from functools import cache
from time import sleep

from tests.support import fast_clock  # before ragmon: it runs the clock

# isort: split

import ragmon
from ragmon.demo.app import Application, RagPipeline, load_corpus
from ragmon.demo.show import gold_questions, index_drift

HOUR = 3600.0
OUTAGE = (-3.4 * HOUR, -3.0 * HOUR)
"""When the model is often out of reach, in seconds before the moment at which the clock agrees with the real one."""
DRIFT = -0.8 * HOUR
"""When the index is rebuilt with wrong ids."""
FAILING, FAILING_IN_OUTAGE = 0.008, 0.12
LABELLED, SHORT = 0.15, 90
"""The share of the captured answers to users that somebody rates, and the length of answers they like."""
rng = random.Random(11)


def until_end():
    """Seconds until the clock agrees with the real one, below 0."""
    return fast_clock.now() - fast_clock.START


@ragmon.judge("brief")
def brief(record):
    """A score that all answers have, and that tells something of their labels."""
    return 0.9 if len(record.answer_json.claim) <= SHORT else 0.4


class ModelOutOfReachError(Exception):
    """What the application's client raises where its model cannot be reached."""


class RemotePipeline(RagPipeline):
    """The demo's pipeline, in which retrieval and answers take their time and sometimes fail."""

    drifted = False

    def retrieve(self, question, k=5):
        """The passages; those that were found before the cut are recorded as candidates."""
        if not self.drifted and until_end() >= DRIFT:
            self.drifted = True
            index_drift(self)
        sleep(rng.lognormvariate(math.log(0.03), 0.5))
        candidates = super().retrieve(question, 4 * k)
        ragmon.record(candidates=[hit.id for hit in candidates])
        return candidates[:k]

    def answer(self, question, hits):
        """The answer."""
        sleep(min(rng.lognormvariate(math.log(0.35), 0.5), 3.0))
        if rng.random() < (FAILING_IN_OUTAGE if OUTAGE[0] <= until_end() < OUTAGE[1] else FAILING):
            raise TimeoutError if rng.random() < 0.8 else ModelOutOfReachError
        return super().answer(question, hits)


class RatedApplication(Application):
    """The application, some of whose answers to users people rate."""

    def __init__(self):
        super().__init__()
        self.pipeline = RemotePipeline(load_corpus())
        self._gold = {question for _, question in gold_questions()}

    def _ask(self, question):
        answered = super()._ask(question)
        trace = ragmon.trace_id()
        if trace is not None and question not in self._gold and rng.random() < LABELLED:
            right = 0.95 if len(answered["answer"]) <= SHORT else 0.6
            correct = rng.random() < (right - 0.35 if self.pipeline.drifted else right)
            ragmon.label(trace, correct=correct, rater=f"rater-{rng.randrange(3)}")
        return answered


@cache
def _probed():
    return RatedApplication()


def answer(question):
    """What the server's probe asks, in the server's own process."""
    return _probed().ask(question)
