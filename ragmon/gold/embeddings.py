"""Questions that mean a gold item in words nobody wrote down: found by the nearest embedding, or not at all.

How near is near enough is calibrated on the set itself: its paraphrases against the questions of its other items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragmon import stats
from ragmon.core.errors import RagmonError
from ragmon.core.gold_item import GoldItem
from ragmon.core.text import normalise_question
from ragmon.gold.sets import GoldSet

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Matrix = NDArray[float64]

Embed = Callable[[list[str]], Sequence[Sequence[float]]]
"""Texts in, one vector each out."""
PRECISION: Final = 0.99
"""Share of the pairs above the threshold that must be of one item."""
_ROWS: Final = 256
"""Wordings that are compared with all others at once."""
_LEVELS: Final = 1001
"""Thresholds that are tried: thousandths."""


@dataclass(frozen=True)
class Calibration:
    """How near is near enough.

    Attributes:
        threshold: The least cosine similarity of a match; None where nothing is matched so.
        pairs: Paraphrases, each held against the other wordings of its item.
        others: Wordings held against the wordings of another item.
        kept: Share of the paraphrases that lie above the threshold.
        reason: Why nothing is matched; "" where something is.
    """

    threshold: float | None
    pairs: int
    others: int
    kept: float = 0.0
    reason: str = ""


class Nearest:
    """The item whose wording is nearest to a question.

    Args:
        gold: The set.
        embed: Makes vectors of texts; the same text must always give the same one.

    Attributes:
        calibration: How near is near enough.

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
        self._vectors = self._units(texts)
        self.calibration = self._calibrate()

    def find(self, question: str) -> GoldItem | None:
        """The item that is near enough, and the nearest one.

        Raises:
            Exception: Whatever the embedder raises.
        """
        if self.calibration.threshold is None or not normalise_question(question):
            return None
        near = self._vectors @ self._units([question])[0]
        place = int(near.argmax())
        found = float(near[place]) >= self.calibration.threshold
        return self._items[int(self._owner[place])] if found else None

    def _units(self, texts: list[str]) -> Matrix:
        """The vectors of texts, of length 1; one that is zero stays so, and is near to nothing.

        Raises:
            ValueError: What the embedder returned are no vectors.
        """
        np = self._np
        if not texts:
            nothing: Matrix = np.zeros((0, 1))
            return nothing
        found = np.asarray(self._embed(list(texts)), dtype=np.float64)
        if found.ndim != 2 or len(found) != len(texts) or not np.isfinite(found).all():
            raise ValueError(f"embed made {found.shape} of {len(texts)} texts, not one vector of finite numbers each")
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        units: Matrix = found / np.where(lengths > 0, lengths, 1.0)
        return units

    def _calibrate(self) -> Calibration:
        """The smallest threshold above which at least 99 % of pairs are of one item, by Wilson's lower bound.

        Every wording is held against every other item, though a question is matched with one at most: more is counted
        as mistaken than would be.
        """
        np = self._np
        same = self._paraphrases()
        levels = np.linspace(0.0, 1.0, _LEVELS)
        above = np.zeros(len(levels) + 1, dtype=int)
        others = 0
        for first in range(0, len(self._owner), _ROWS):
            near = self._near(first)[1]
            others += near.size - len(near)
            above += np.bincount(np.searchsorted(levels, near.ravel(), side="right"), minlength=len(levels) + 1)
        wrong = above[::-1].cumsum()[::-1][1:]
        for level, mistaken in zip(levels.tolist(), wrong.tolist(), strict=True):
            right = int((same >= level).sum())
            if stats.wilson(right, right + mistaken)[0] >= PRECISION:
                return Calibration(level, len(same), others, right / len(same))
        return Calibration(None, len(same), others, reason=_why(len(same)))

    def _paraphrases(self) -> Matrix:
        """How near every paraphrase is to the nearest other wording of its item."""
        np = self._np
        found = [np.zeros(0)]
        for first in range(0, len(self._owner), _ROWS):
            own = self._near(first)[0]
            rows = np.arange(first, first + len(own))
            found.append(own[~np.isin(rows, self._starts)])
        together: Matrix = np.concatenate(found)
        return together

    def _near(self, first: int) -> tuple[Matrix, Matrix]:
        """How near some wordings are to the others of their item, and to every other item; -1 to their own."""
        np = self._np
        block = self._vectors[first : first + _ROWS] @ self._vectors.T
        rows = np.arange(len(block))
        block[rows, first + rows] = -1.0
        near = np.maximum.reduceat(block, self._starts, axis=1)
        owner = self._owner[first : first + _ROWS]
        own = near[rows, owner].copy()
        near[rows, owner] = -1.0
        return own, near


def _wordings(item: GoldItem) -> tuple[str, ...]:
    """The question and its paraphrases, each once."""
    found = {normalise_question(text): text for text in reversed((item.question, *item.paraphrases))}
    found.pop("", None)
    return tuple(reversed(found.values()))


def _why(pairs: int) -> str:
    needed = stats.needed_for_pass(PRECISION, at_least=True) or 0
    if pairs < needed:
        return f"{pairs} paraphrases: it takes {needed} to show that {PRECISION:.0%} of matches are right"
    return f"no similarity tells paraphrases from other items' questions with {PRECISION:.0%} precision"
