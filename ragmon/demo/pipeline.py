"""A small RAG pipeline that works offline: BM25 retrieval and an extractive answerer that can refuse."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ragmon.demo.evidence import best_evidence
from ragmon.demo.index import Hit, Index, Passage, load_corpus

__all__ = ["REFUSAL", "Answer", "Hit", "Passage", "Pipeline", "load_corpus"]

REFUSAL: Final = "not in context"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the user gets.

    Args:
        claim: One sentence of the corpus, or exactly `not in context`.
        citations: The ids of the passages the claim rests on; empty for a refusal.
    """

    claim: str
    citations: list[str] = field(default_factory=list)


class Pipeline:
    """Retrieval and answering over a corpus.

    The thresholds, `cite` and `delay` may be changed at run time, and `rebuild` swaps the index: that is how
    ragmon.demo.incidents breaks it.

    Args:
        corpus: The passages to index.
        min_score: BM25 score the cited passage needs.
        min_support: Share of the question's terms, weighted by idf, that the evidence must cover, 0 to 1.
        cite: Turns a passage's id into the citation.
        delay: Seconds an answer waits before it starts.

    Raises:
        ModuleNotFoundError: bm25s is not installed.
        ValueError: The corpus is empty or repeats an id.

    >>> corpus = [Passage("ferry#1", "The ferry", "The ferry is 30 metres long. She carries 90 people.")]
    >>> pipeline = Pipeline(corpus, min_score=0.1)
    >>> pipeline.answer("How long is the ferry?", pipeline.retrieve("How long is the ferry?"))
    Answer(claim='The ferry is 30 metres long.', citations=['ferry#1'])
    """

    def __init__(
        self,
        corpus: Iterable[Passage],
        *,
        min_score: float = 1.5,
        min_support: float = 0.72,
        cite: Callable[[str], str] = str,
        delay: float = 0.0,
    ) -> None:
        self.min_score = min_score
        self.min_support = min_support
        self.cite = cite
        self.delay = delay
        self._index = Index(corpus)

    @property
    def corpus(self) -> tuple[Passage, ...]:
        """The passages in the index."""
        return self._index.passages

    @property
    def index_hash(self) -> str:
        """Eight hexadecimal digits that change whenever an indexed id or text does."""
        return self._index.hash

    def rebuild(self, corpus: Iterable[Passage]) -> None:
        """Index another corpus and swap it in; requests under way finish on the old one or the new one."""
        self._index = Index(corpus)

    def retrieve(self, question: str, k: int = 5) -> list[Hit]:
        """The k passages that match the question best, best first; fewer where fewer share a term with it."""
        return self._index.search(question, k)

    def answer(self, question: str, hits: Sequence[Hit]) -> Answer:
        """The best supported sentence of the hits with its citation, or the refusal where the evidence is weak."""
        if self.delay:
            time.sleep(self.delay)
        evidence = best_evidence(question, hits, self._index)
        if evidence is None or evidence.score < self.min_score or evidence.support < self.min_support:
            return Answer(REFUSAL)
        return Answer(evidence.sentence, [self.cite(evidence.passage_id)])
