"""Users for the demo: an endless, seeded stream of questions in everyday wording."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from itertools import accumulate
from typing import Final

_LONG_ENOUGH: Final = 6
_TYPO_SHARE: Final = 0.02
_CASUAL_SHARE: Final = 0.3
_OFF_TOPIC: Final = 0.3
"""Users ask for what the handbook does not hold less often than the gold set, where it is every third question."""

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
    """Every question of the gold set and the extra ones nobody wrote an answer for, with how often it is asked."""
    folder = resources.files(__package__)
    gold = map(json.loads, folder.joinpath("gold.jsonl").read_text("utf-8").splitlines())
    extra = folder.joinpath("questions.txt").read_text("utf-8").splitlines()
    return {item["question"]: 1.0 if item["answerable"] else _OFF_TOPIC for item in gold} | dict.fromkeys(extra, 1.0)


def user_questions(seed: int = 0, *, verbatim: float = 0.2) -> Iterator[str]:
    """Questions as users would ask them, without end; the same seed gives the same stream.

    Args:
        seed: Seed of the stream.
        verbatim: Share of the questions asked exactly as they are written, 0 to 1; the others are reworded.

    Raises:
        ValueError: The share is outside 0 to 1.
    """
    if not 0 <= verbatim <= 1:
        raise ValueError(f"verbatim is not a share: {verbatim!r}\nhint: a number from 0 to 1")
    # Made-up traffic: repeatability matters here, unpredictability does not.
    return _stream(random.Random(seed), load_questions(), verbatim)  # noqa: S311


def _stream(rng: random.Random, popularity: Mapping[str, float], verbatim: float) -> Iterator[str]:
    questions, weights = list(popularity), list(accumulate(popularity.values()))
    while True:
        (question,) = rng.choices(questions, cum_weights=weights)
        yield question if rng.random() < verbatim else reworded(question, rng)


def reworded(question: str, rng: random.Random) -> str:
    """The question in other words, perhaps with a greeting, carelessly typed, or with a typing error."""
    for pattern, wordings in _REWORDINGS:
        if pattern.match(question):
            question = pattern.sub(rng.choice((*wordings, r"\g<0>")), question)
            break
    if rng.random() < _TYPO_SHARE:
        question = _mistyped(question, rng)
    asked = rng.choice(_OPENERS) + question + rng.choice(_CLOSERS)
    return asked.lower().replace("?", "") if rng.random() < _CASUAL_SHARE else asked


def _mistyped(question: str, rng: random.Random) -> str:
    """Two neighbouring letters inside one of the longer words change places."""
    spoken = question.split(" ")
    at = rng.choice([at for at, word in enumerate(spoken) if len(word) >= _LONG_ENOUGH] or [0])
    word, cut = spoken[at], rng.randrange(1, max(2, len(spoken[at]) - 2))
    spoken[at] = word[:cut] + word[cut : cut + 2][::-1] + word[cut + 2 :]
    return " ".join(spoken)
