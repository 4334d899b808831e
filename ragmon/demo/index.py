"""The retriever: a BM25 index of a small corpus, built in memory, offline and deterministic."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from types import ModuleType
from typing import Any, Final

from ragmon.demo.terms import terms

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
    """A passage that came back for a question.

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


class Index:
    """A BM25 index; it never changes once built.

    Args:
        passages: At least one passage, ids all different.

    Raises:
        ModuleNotFoundError: bm25s is not installed.
        ValueError: There is no passage, or an id appears twice.
    """

    def __init__(self, passages: Iterable[Passage]) -> None:
        self.passages = tuple(passages)
        _check(self.passages)
        tokens = [terms(f"{passage.title}. {passage.text}") for passage in self.passages]
        # bm25s ships no type information.
        self._bm25: Any = _bm25s().BM25()
        self._bm25.index(tokens, show_progress=False)
        spread = Counter(term for passage in tokens for term in set(passage))
        self._idf = {term: self._rarity(count) for term, count in spread.items()}
        self.hash = _fingerprint(self.passages)

    def search(self, question: str, k: int) -> list[Hit]:
        """The k best passages that share a term with the question, best first; equal scores in corpus order."""
        query = terms(question)
        if not query:
            return []
        scores: list[float] = self._bm25.get_scores(query).tolist()
        ranked = sorted(range(len(scores)), key=lambda at: (-scores[at], at))[:k]
        found = [(self.passages[at], scores[at]) for at in ranked if scores[at] > 0]
        return [Hit(passage.id, score, passage.text, passage.title) for passage, score in found]

    def idf(self, term: str) -> float:
        """How rare a term is, in nats; a term no passage holds is the rarest."""
        return self._idf.get(term, self._rarity(0))

    def _rarity(self, passages_with_term: int) -> float:
        """Inverse document frequency as BM25 in Lucene has it: ln(1 + (N - n + 0.5) / (n + 0.5))."""
        without = len(self.passages) - passages_with_term
        return math.log(1 + (without + 0.5) / (passages_with_term + 0.5))


def _check(passages: tuple[Passage, ...]) -> None:
    if not passages:
        raise ValueError("the corpus is empty\nhint: an index needs at least one passage")
    (id_, times), *_ = Counter(passage.id for passage in passages).most_common(1)
    if times > 1:
        raise ValueError(f"passage id appears {times} times: '{id_}'\nhint: every passage needs an id of its own")


def _fingerprint(passages: tuple[Passage, ...]) -> str:
    """The first digits of the sha256 of all ids and texts: another corpus, order or id gives another one."""
    content = json.dumps([(passage.id, passage.text) for passage in passages], ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()[:_HASH_DIGITS]


def _bm25s() -> ModuleType:
    """The BM25 library, imported late: only the demo needs it."""
    try:
        import bm25s  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "the demo retrieves with bm25s, which is not installed\nhint: pip install 'ragmon[demo]'", name="bm25s"
        ) from missing
    module: ModuleType = bm25s
    return module
