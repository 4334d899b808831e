"""Matching a question to the gold item with the nearest embedding, for wordings that no file lists.

The similarity threshold is calibrated on the set itself: paraphrases against the questions of other items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragmon.core.errors import RagmonError
from ragmon.core.gold_item import GoldItem
from ragmon.core.text import normalise_question
from ragmon.gold.sets import GoldSet
from ragmon.stats.intervals import needed_for_pass, wilson

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Matrix = NDArray[float64]

Embed = Callable[[list[str]], Sequence[Sequence[float]]]
"""Takes texts, returns one vector for each."""
PRECISION: Final = 0.99
"""Share of the pairs above the threshold that must belong to the same item."""
_ROWS: Final = 256
"""Wordings that are compared with all others in one matrix product."""
_LEVELS: Final = 1001
"""Thresholds that are tried, from 0 to 1 in steps of a thousandth."""


@dataclass(frozen=True)
class Calibration:
    """The similarity threshold and its evidence.

    Attributes:
        threshold: The least cosine similarity of a match; None where no question is matched by embedding.
        pairs: Paraphrases, each compared with the other wordings of its item.
        others: Comparisons of a wording with the wordings of another item.
        kept: Share of the paraphrases above the threshold.
        reason: Why there is no threshold; "" where there is one.
    """

    threshold: float | None
    pairs: int
    others: int
    kept: float = 0.0
    reason: str = ""


class Nearest:
    """Finds the item with the wording nearest to a question.

    Args:
        gold: The set.
        embed: Makes vectors of texts; the same text must always give the same one.

    Attributes:
        calibration: The similarity threshold.

    Raises:
        RagmonError: numpy is missing.
        Exception: Whatever the embedder raises.
    """

    def __init__(self, gold: GoldSet, embed: Embed) -> None:
        try:
            import numpy as np  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise RagmonError(f"[gold.{gold.name}] embed needs numpy", hint="pip install 'ragmon[embed]'") from error
        self._np = np
        self.gold = gold
        self._embed = embed
        wordings = {item: _wordings(item) for item in gold}
        self._items = [item for item, words in wordings.items() if words]
        texts = [text for item in self._items for text in wordings[item]]
        sizes = [len(wordings[item]) for item in self._items]
        self._starts = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, dtype=int)
        self._owner = np.repeat(np.arange(len(sizes)), sizes)
        self._vectors = self._unit_vectors(texts)
        self.calibration = self._calibrate()

    def find(self, question: str) -> GoldItem | None:
        """The nearest item, if its similarity reaches the threshold.

        Raises:
            Exception: Whatever the embedder raises.
        """
        if self.calibration.threshold is None or not normalise_question(question):
            return None
        similarities = self._vectors @ self._unit_vectors([question])[0]
        best = int(similarities.argmax())
        matches = float(similarities[best]) >= self.calibration.threshold
        return self._items[int(self._owner[best])] if matches else None

    def _unit_vectors(self, texts: list[str]) -> Matrix:
        """The vectors of texts, scaled to length 1; a zero vector stays zero and is similar to nothing.

        Raises:
            ValueError: The embedder did not return one vector of finite numbers for each text.
        """
        np = self._np
        if not texts:
            empty: Matrix = np.zeros((0, 1))
            return empty
        vectors = np.asarray(self._embed(list(texts)), dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            raise ValueError(f"embed made {vectors.shape} of {len(texts)} texts, not one vector of finite numbers each")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units: Matrix = vectors / np.where(lengths > 0, lengths, 1.0)
        return units

    def _calibrate(self) -> Calibration:
        """Find the smallest threshold at which at least 99 % of matches are of one item, by Wilson's lower bound.

        Every wording is compared with every other item, although a question matches at most one, so the error is
        overestimated.
        """
        np = self._np
        same = self._paraphrase_similarities()
        levels = np.linspace(0.0, 1.0, _LEVELS)
        above = np.zeros(len(levels) + 1, dtype=int)
        other_count = 0
        for start in range(0, len(self._owner), _ROWS):
            similarities = self._similarities(start)[1]
            other_count += similarities.size - len(similarities)
            above += np.bincount(np.searchsorted(levels, similarities.ravel(), side="right"), minlength=len(levels) + 1)
        wrong_above = above[::-1].cumsum()[::-1][1:]
        for level, wrong in zip(levels.tolist(), wrong_above.tolist(), strict=True):
            right = int((same >= level).sum())
            if wilson(right, right + wrong)[0] >= PRECISION:
                return Calibration(level, len(same), other_count, right / len(same))
        return Calibration(None, len(same), other_count, reason=_no_threshold_reason(len(same)))

    def _paraphrase_similarities(self) -> Matrix:
        """The similarity of every paraphrase to the nearest other wording of its item."""
        np = self._np
        parts = [np.zeros(0)]
        for start in range(0, len(self._owner), _ROWS):
            own = self._similarities(start)[0]
            rows = np.arange(start, start + len(own))
            parts.append(own[~np.isin(rows, self._starts)])
        similarities: Matrix = np.concatenate(parts)
        return similarities

    def _similarities(self, start: int) -> tuple[Matrix, Matrix]:
        """The similarities of a block of wordings: to the nearest other wording of their item, and to every other item.

        In the second matrix the column of the own item is -1.
        """
        np = self._np
        block = self._vectors[start : start + _ROWS] @ self._vectors.T
        rows = np.arange(len(block))
        block[rows, start + rows] = -1.0
        by_item = np.maximum.reduceat(block, self._starts, axis=1)
        owner = self._owner[start : start + _ROWS]
        own = by_item[rows, owner].copy()
        by_item[rows, owner] = -1.0
        return own, by_item


def _wordings(item: GoldItem) -> tuple[str, ...]:
    """The question and its paraphrases, each once."""
    by_key = {normalise_question(text): text for text in reversed((item.question, *item.paraphrases))}
    by_key.pop("", None)
    return tuple(reversed(by_key.values()))


def _no_threshold_reason(pairs: int) -> str:
    needed = needed_for_pass(PRECISION, at_least=True) or 0
    if pairs < needed:
        return f"{pairs} paraphrases: it takes {needed} to show that {PRECISION:.0%} of matches are right"
    return f"no similarity tells paraphrases from other items' questions with {PRECISION:.0%} precision"
