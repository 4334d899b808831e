"""The reader: the one retrieved sentence that answers best, and how well the passage supports it.

Support is the share of the question's content terms that the evidence covers, each weighted by its idf. A term found
in the sentence itself counts most, in the passage's title less, elsewhere in the passage least.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ragmon.demo.expected import Expected, expected
from ragmon.demo.index import Hit, Index
from ragmon.demo.terms import STOP_WORDS, sentences, term, terms, words

IN_TITLE: Final = 0.8
IN_PASSAGE: Final = 0.5
BESIDE_THE_POINT: Final = 0.5
"""What remains of the support of a sentence of the wrong kind, about another name, or that says the opposite."""

_ANNOUNCING: Final = 0.01
"""Weight of the terms that only announce the kind of answer: enough to choose between equals."""

_NAME: Final = re.compile(r"(?<=\s)[A-Z]\w+")
_OPPOSITES: Final = tuple(
    (term(one), term(other))
    for one, other in (("open", "close"), ("start", "end"), ("arrive", "leave"), ("first", "last"))
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A sentence and its backing.

    Args:
        sentence: The sentence as it stands in the passage.
        passage_id: The passage it was taken from.
        score: The passage's BM25 score.
        support: Weighted share of the question's terms covered, 0 to 1.
    """

    sentence: str
    passage_id: str
    score: float
    support: float


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question, taken apart once."""

    weights: Mapping[str, float]
    announcing: Mapping[str, float]
    names: frozenset[str]
    kind: Expected


def best_evidence(question: str, hits: Sequence[Hit], index: Index) -> Evidence | None:
    """The best supported sentence of all hits; the higher ranked hit and the earlier sentence win a tie.

    Args:
        question: The user's words.
        hits: What the retriever found, best first.
        index: Where the hits came from; it knows how rare each term is.

    Returns:
        The evidence, or None where nothing was retrieved.
    """
    asked = _take_apart(question, index)
    ranked = [pair for hit in hits for pair in _weigh(asked, hit)]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _take_apart(question: str, index: Index) -> _Asked:
    kind = expected(question)
    weights = {found: index.idf(found) for found in terms(question)}
    # A question made of nothing but cues ("What does it cost?") still owes evidence for them.
    owed = {found: weight for found, weight in weights.items() if found not in kind.cues} or weights
    announcing = {found: weight for found, weight in weights.items() if found not in owed}
    names = (word for name in _NAME.findall(question) for word in words(name))
    return _Asked(owed, announcing, frozenset(term(word) for word in names if word not in STOP_WORDS), kind)


def _weigh(asked: _Asked, hit: Hit) -> Iterator[tuple[float, Evidence]]:
    """Every sentence of a hit with the value it is ranked by."""
    title, passage = set(terms(hit.title)), set(terms(hit.text))
    total = sum(asked.weights.values())
    if not total:
        return
    for sentence in sentences(hit.text):
        own = set(terms(sentence))
        places = ((own, 1.0), (title, IN_TITLE), (passage, IN_PASSAGE))
        support = _covered(asked.weights, places) / total
        if not _to_the_point(asked, sentence, own, title | passage):
            support *= BESIDE_THE_POINT
        value = support + _ANNOUNCING * _covered(asked.announcing, places)
        yield value, Evidence(sentence, hit.id, hit.score, support)


def _covered(weights: Mapping[str, float], places: Sequence[tuple[set[str], float]]) -> float:
    """The weight of the terms that were found, each credited for the best place it was found in."""
    return sum(
        weight * next((credit for place, credit in places if found in place), 0.0) for found, weight in weights.items()
    )


def _to_the_point(asked: _Asked, sentence: str, own: set[str], around: set[str]) -> bool:
    """Whether the sentence is of the expected kind, about the names asked for, and not about the opposite."""
    reversed_ = any(
        (one in asked.weights and one not in own and other in own)
        or (other in asked.weights and other not in own and one in own)
        for one, other in _OPPOSITES
    )
    return asked.kind.met_by(sentence) and asked.names <= around and not reversed_
