"""The retriever of the demo: text to terms, and a BM25 index of a small corpus, in memory, offline and deterministic.

Terms are words without stop words, with suffixes stripped and a few synonyms merged. Passages and questions use the
same function, so only their agreement matters: a stem need not be a word.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+(?:[.,:](?=\d)\d+)*(?:'s\b)?")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")
_SUFFIX: Final = re.compile(r"(?:ings?|ed|es|e|s)$")
_SHORTEST_STEM: Final = 3

_FUNCTION_WORDS: Final = """
    a about after all also am an and any anyone anything are as at be been before being but by can could did do does
    doing each else ever every for from had has have having he her hers him his how i if in into is it its just like
    many may me might more most much must my no not of on one only or other our out own shall she should so some still
    such than that the their them then there these they this those to too up us very was we were what when where which
    while who whom whose why will with would you your
"""
_LIGHT_WORDS: Final = """
    bring brings call called currently exactly find fit fits found get gets getting give given go goes going got happen
    happens held hold holds keep keeps kept kind let look looks made make makes maximum mean minimum need needs normal
    normally possible ring roughly send sent sort stay stays take taken takes thing things use used usual usually want
"""
_POLITE_WORDS: Final = """
    advance bother excuse good hello hi know morning please question quick say sorry tell thank thanks wonder wondering
"""
STOP_WORDS: Final = frozenset((_FUNCTION_WORDS + _LIGHT_WORDS + _POLITE_WORDS).split())
"""Words that carry no information about the subject of a question."""

_SYNONYMS: Final = (
    "build built building construct",
    "passenger people person traveller",
    "bicycle bike cycle",
    "price cost fare fee",
    "leave leaves left depart departure",
    "child children kid",
    "write written",
    "pay paid",
    "allow permit",
    "start begin began begun",
    "colour color",
    "dog pet",
    "inhabitant resident",
    "freeze froze frozen",
    "burn burnt fire",
    "sale sell sold",
    "lie lies lay laid",
    "car automobile",
)


@cache
def stem(word: str) -> str:
    """The word without its plural or verb ending, so that all forms of a word have one stem.

    >>> stem("ferries") == stem("ferry"), stem("charging") == stem("charges"), stem("stopped") == stem("stops")
    (True, True, True)
    """
    if word[0].isdigit():
        return word
    if word.endswith("ies") and len(word) > len("ties"):
        return word[:-3] + "y"
    stripped = word if word.endswith("ss") else _SUFFIX.sub("", word)
    if len(stripped) < _SHORTEST_STEM:
        return word
    is_doubled = stripped[-1] == stripped[-2] and stripped[-1] not in "lsz" and word.endswith(("ed", "ing"))
    return stripped[:-1] if is_doubled else stripped


_CANONICAL: Final = {stem(word): stem(group.split()[0]) for group in _SYNONYMS for word in group.split()}


def words(text: str) -> list[str]:
    """The words and numbers of a text, folded, without possessive endings."""
    return [word.removesuffix("'s") for word in _WORD.findall(text.casefold().replace("\u2019", "'"))]


def term(word: str) -> str:
    """The term under which a word and its synonyms are indexed."""
    stemmed = stem(word)
    return _CANONICAL.get(stemmed, stemmed)


def terms(text: str) -> list[str]:
    """The content terms of a text, in order and with repetitions.

    >>> terms("How many bikes can the Grey Heron's rack hold?")
    ['bicycl', 'grey', 'heron', 'rack']
    """
    return [term(word) for word in words(text) if word not in STOP_WORDS]


def sentences(text: str) -> list[str]:
    """The sentences of a passage."""
    return _SENTENCE_END.split(text)


_HASH_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk of the corpus.

    Args:
        id: Its chunk id, for example `grey-heron#1`.
        title: The document and the section it was cut from.
        text: A few sentences.
    """

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved passage.

    Args:
        id: The passage's id.
        score: Its BM25 score, above 0 and without an upper bound.
        text: The passage's text.
        title: The passage's title.
    """

    id: str
    score: float
    text: str
    title: str = ""


def load_corpus() -> tuple[Passage, ...]:
    """The handbook that ships with ragmon: an invented harbour town and its ferry line."""
    lines = resources.files(__package__).joinpath("corpus.jsonl").read_text("utf-8").splitlines()
    return tuple(Passage(**json.loads(line)) for line in lines)


_K1: Final = 1.5
_B: Final = 0.75


class Bm25Index:
    """A BM25 index; it never changes once built.

    It scores as Lucene does (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020), with k1 = 1.5 and b = 0.75. A
    hundred passages need no library, and the demo runs wherever ragmon is installed.

    Args:
        passages: At least one passage, ids all different.

    Raises:
        ValueError: There is no passage, or an id appears twice.
    """

    def __init__(self, passages: Iterable[Passage]) -> None:
        self.passages = tuple(passages)
        _check(self.passages)
        tokens = [terms(f"{passage.title}. {passage.text}") for passage in self.passages]
        self._postings = _postings(tokens)
        self.hash = _fingerprint(self.passages)

    def search(self, question: str, k: int) -> list[Hit]:
        """The k best passages that share a term with the question, best first; equal scores in corpus order."""
        scores: dict[int, float] = {}
        for query_term in terms(question):
            idf = self.idf(query_term)
            for position, weight in self._postings.get(query_term, {}).items():
                scores[position] = scores.get(position, 0.0) + idf * weight
        ranked = sorted(scores, key=lambda position: (-scores[position], position))[:k]
        results = [(self.passages[position], scores[position]) for position in ranked]
        return [Hit(passage.id, score, passage.text, passage.title) for passage, score in results]

    def idf(self, term: str) -> float:
        """Inverse document frequency in nats, ln(1 + (N - n + 0.5) / (n + 0.5)); highest for an unknown term."""
        passages_with_term = len(self._postings.get(term, ()))
        without = len(self.passages) - passages_with_term
        return math.log(1 + (without + 0.5) / (passages_with_term + 0.5))


def _postings(passages: list[list[str]]) -> dict[str, dict[int, float]]:
    """For each term the passages that contain it, by position, with its saturated frequency: tf / (tf + norm)."""
    mean_length = sum(map(len, passages)) / len(passages)
    postings: dict[str, dict[int, float]] = {}
    for position, tokens in enumerate(passages):
        norm = _K1 * (1 - _B + _B * len(tokens) / mean_length) if mean_length else _K1
        for token, frequency in Counter(tokens).items():
            postings.setdefault(token, {})[position] = frequency / (frequency + norm)
    return postings


def _check(passages: tuple[Passage, ...]) -> None:
    if not passages:
        raise ValueError("the corpus is empty\nhint: an index needs at least one passage")
    (id_, count), *_ = Counter(passage.id for passage in passages).most_common(1)
    if count > 1:
        raise ValueError(f"passage id appears {count} times: '{id_}'\nhint: every passage needs an id of its own")


def _fingerprint(passages: tuple[Passage, ...]) -> str:
    """The first digits of the sha256 of all ids and texts; it depends on content, ids and order."""
    content = json.dumps([(passage.id, passage.text) for passage in passages], ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()[:_HASH_DIGITS]
