"""The traffic and the incidents of the demo.

Threads of users and probers ask the application questions until they are stopped: users from an endless, seeded stream
of questions in everyday wording, probers the gold questions. Incidents are faults that real RAG systems have had; a new
`RagPipeline` is healthy again.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import resources
from itertools import accumulate, cycle
from threading import Event, Thread
from time import monotonic
from types import MappingProxyType
from typing import Final

from ragmon.capture.trace import probe
from ragmon.demo.answerer import Application, RagPipeline

_SEED: Final = 20
_WRONG_SCALE: Final = 8.0
_SLOW_SECONDS: Final = 0.3


def index_drift(pipeline: RagPipeline) -> None:
    """Rebuild the index with half of the ids handed round; turns answer_precision and citation_hit_rate red."""
    corpus = list(pipeline.corpus)
    # A fixed seed, so that an incident looks the same in every run; no randomness for security is needed.
    drifted = random.Random(_SEED).sample(range(len(corpus)), len(corpus) // 2)  # noqa: S311
    ids = [corpus[position].id for position in drifted]
    for position, id_ in zip(drifted, ids[1:] + ids[:1], strict=True):
        corpus[position] = replace(corpus[position], id=id_)
    pipeline.rebuild(corpus)


def refusal_wave(pipeline: RagPipeline) -> None:
    """Set the score threshold as for another retriever's scale; turns over_refusal_rate red."""
    pipeline.min_score = _WRONG_SCALE


def hallucination(pipeline: RagPipeline) -> None:
    """Drop the thresholds, so that everything is answered; under_refusal_rate, answer_precision, citation_hit_rate."""
    pipeline.min_score = pipeline.min_support = 0.0


def citation_break(pipeline: RagPipeline) -> None:
    """Cite the document instead of the passage; citation_scope, coverage, answer_precision, citation_hit_rate."""
    pipeline.cite = _without_chunk


def latency(pipeline: RagPipeline) -> None:
    """Let every answer wait a few hundred milliseconds; turns answered_within and the p95 latency ratio red."""
    pipeline.delay = _SLOW_SECONDS


INCIDENTS: Final[Mapping[str, Callable[[RagPipeline], None]]] = MappingProxyType(
    {incident.__name__: incident for incident in (index_drift, refusal_wave, hallucination, citation_break, latency)}
)
"""The faults by name."""


def _without_chunk(passage_id: str) -> str:
    return passage_id.partition("#")[0]


_MIN_TYPO_LENGTH: Final = 6
_TYPO_SHARE: Final = 0.02
_CASUAL_SHARE: Final = 0.3
_OFF_TOPIC_WEIGHT: Final = 0.3
"""Weight of gold questions that the handbook does not answer: users ask them less often than the gold set does."""

_REWORDINGS: Final = tuple(
    (re.compile(pattern), wordings)
    for pattern, wordings in (
        (r"^What does (.{1,200}) cost(.{0,200})\?$", (r"How much is \1\2?", r"What is the price of \1\2?")),
        (r"^How much is (.+)\?$", (r"What does \1 cost?", r"What is the price of \1?")),
        (r"^How long is (the .+)\?$", (r"What is the length of \1?", r"Just how long is \1?")),
        (r"^How (?:high|tall) is (.+)\?$", (r"What is the height of \1?", r"Just how tall is \1?")),
        (r"^How heavy (?:is|are) (.+)\?$", (r"What is the weight of \1?",)),
        (r"^What colour is (.+)\?$", (r"Which colour is \1?",)),
        (r"^In which year was (.+)\?$", (r"When was \1?", r"What year was \1?")),
        (r"^When was (.+)\?$", (r"In what year was \1?", r"Which year was \1?")),
        (r"^When (does|do) (.+)\?$", (r"At what time \1 \2?", r"What time \1 \2?")),
        (r"^On which (day|evening)\b(.+)\?$", (r"Which \1\2?", r"What \1\2?")),
        (r"^How many (.+)\?$", (r"Roughly how many \1?", r"Exactly how many \1?")),
    )
)
_OPENERS: Final = (
    "",
    "",
    "",
    "Hi, ",
    "Hello! ",
    "Good morning. ",
    "Excuse me, ",
    "Quick question: ",
    "Sorry to bother you. ",
    "I was wondering: ",
    "Can you tell me: ",
    "Does anyone know? ",
)
_CLOSERS: Final = ("", "", "", "", " Thanks!", " Thank you.", " Thanks in advance.")


def load_questions() -> dict[str, float]:
    """All questions of the gold set and the extra questions without a gold answer, with their relative frequency."""
    folder = resources.files(__package__)
    gold = map(json.loads, folder.joinpath("gold.jsonl").read_text("utf-8").splitlines())
    extra = folder.joinpath("questions.txt").read_text("utf-8").splitlines()
    return {item["question"]: 1.0 if item["answerable"] else _OFF_TOPIC_WEIGHT for item in gold} | dict.fromkeys(
        extra, 1.0
    )


def user_questions(seed: int = 0, *, verbatim: float = 0.2) -> Iterator[str]:
    """An endless stream of questions as users would ask them; the same seed gives the same stream.

    Args:
        seed: Seed of the stream.
        verbatim: The share of questions asked exactly as written, 0 to 1; the others are reworded.

    Raises:
        ValueError: The share is outside 0 to 1.
    """
    if not 0 <= verbatim <= 1:
        raise ValueError(f"verbatim is not a share: {verbatim!r}\nhint: a number from 0 to 1")
    # Synthetic traffic: it must be repeatable, not unpredictable.
    return _stream(random.Random(seed), load_questions(), verbatim)  # noqa: S311


def _stream(rng: random.Random, popularity: Mapping[str, float], verbatim: float) -> Iterator[str]:
    questions, weights = list(popularity), list(accumulate(popularity.values()))
    while True:
        (question,) = rng.choices(questions, cum_weights=weights)
        yield question if rng.random() < verbatim else reworded(question, rng)


def reworded(question: str, rng: random.Random) -> str:
    """The question in other words, sometimes with a greeting, in lower case, or with a typing error."""
    for pattern, wordings in _REWORDINGS:
        if pattern.match(question):
            question = pattern.sub(rng.choice((*wordings, r"\g<0>")), question)
            break
    if rng.random() < _TYPO_SHARE:
        question = _with_typo(question, rng)
    text = rng.choice(_OPENERS) + question + rng.choice(_CLOSERS)
    return text.lower().replace("?", "") if rng.random() < _CASUAL_SHARE else text


def _with_typo(question: str, rng: random.Random) -> str:
    """The question with two adjacent letters swapped inside one of its longer words."""
    tokens = question.split(" ")
    position = rng.choice([position for position, word in enumerate(tokens) if len(word) >= _MIN_TYPO_LENGTH] or [0])
    word, index = tokens[position], rng.randrange(1, max(2, len(tokens[position]) - 2))
    tokens[position] = word[:index] + word[index : index + 2][::-1] + word[index + 2 :]
    return " ".join(tokens)


# Many users with a low rate each: the request rate stays up when answers become slow, as with real users.
USERS: Final = 16
USER_RATE: Final = 2.0
"""Questions a second of each user."""
PROBERS: Final = 16
PROBE_RATE: Final = 2.5
"""Gold questions a second of each prober."""
PLANNED_RATE: Final = USERS * USER_RATE + PROBERS * PROBE_RATE
"""Calls a second of all of them together."""

Question = tuple[Callable[[str], object], str]
"""The function to call, and the question."""


class Load:
    """Concurrent users and probers.

    Args:
        application: The application to call.
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
        """Start all threads."""
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def stop(self) -> None:
        """Stop all threads, and wait for the requests in progress."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _users(self, seed: int) -> None:
        self._ask(((self._application.ask, question) for question in user_questions(seed)), USER_RATE, seed)

    def _probes(self, prober: int, gold: list[tuple[str, str]]) -> None:
        # Shuffled, so that any part of a sweep is a random sample of the set, not a section of the file.
        random.Random(prober).shuffle(gold)  # noqa: S311 - repeatable, not secret
        self._ask(((self._probe(qid), question) for qid, question in cycle(gold)), PROBE_RATE, -prober - 1)

    def _probe(self, qid: str) -> Callable[[str], object]:
        def ask(question: str) -> object:
            with probe(qid):
                return self._application.ask(question)

        return ask

    def _ask(self, questions: Iterator[Question], rate: float, seed: int) -> None:
        """Call at random times (Poisson), `rate` times a second on average, or less often if answers take longer."""
        rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
        due = monotonic()
        for ask, question in questions:
            due = max(due + rng.expovariate(rate), monotonic())
            if self._stop.wait(due - monotonic()):
                return
            ask(question)


def gold_questions() -> list[tuple[str, str]]:
    """The id and the text of every gold question."""
    lines = resources.files(__package__).joinpath("gold.jsonl").read_text("utf-8").splitlines()
    return [(item["qid"], item["question"]) for item in map(json.loads, lines)]
