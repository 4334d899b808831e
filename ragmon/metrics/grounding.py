"""Groundedness: the share of an answer's words that occur in the retrieved contexts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.core.text import fold, head, is_cut
from ragmon.metrics.base import Metric, register
from ragmon.metrics.facts import Facts

DEFAULT_THRESHOLD: Final = 0.10
"""An answer with a smaller share counts as ungrounded."""

STOP_WORDS: Final = frozenset(
    """
    a about after again all also although an and any are as at be because been before being below between both but by
    can could did do does doing done down during each either else few for from further had has have having he her here
    hers him his how however i if in into is it its itself just may me might more most much must my nor not now of off
    on once only or other our out over own per rather same shall she should since so some such than that the their
    them then there these they this those though through thus to too under until up upon us very was we were what when
    where whether which while who whom whose why will with within without would yet you your
    """.split()
)
CACHE: Final = 1_000_000
"""Characters of contexts whose words are cached: about 600 chunks of the usual size, 10 MB."""

_WORD = re.compile(r"[^\W_]+")
_LOWER_OR_SPACE = bytes(ord(chr(i).lower()) if chr(i).isalnum() and i < 128 else 32 for i in range(256))


def words(text: str) -> list[str]:
    """The runs of letters and digits of a text, folded, in order.

    >>> words("BM25 ranks, Röntgen's ray_7")
    ['bm25', 'ranks', 'röntgen', 's', 'ray', '7']
    """
    if text.isascii():  # replacing other bytes by spaces gives the same runs in a third of the time
        return text.encode("ascii").translate(_LOWER_OR_SPACE).decode("ascii").split()
    return _WORD.findall(fold(text))


def content_words(text: str) -> list[str]:
    """The words with meaning: longer than one character and not stop words."""
    return [word for word in words(text) if len(word) > 1 and word not in STOP_WORDS]


class TokenCache:
    """The word sets of recent contexts: in production the same chunks are retrieved again and again.

    Args:
        capacity: The most characters of contexts to keep; when it is full, the older half is dropped.
    """

    def __init__(self, capacity: int = CACHE) -> None:
        self._capacity = capacity
        self._sets: dict[str, frozenset[str]] = {}
        self._size = 0

    def words(self, context: str) -> frozenset[str]:
        """The words of a context."""
        word_set = self._sets.get(context)
        if word_set is None:
            word_set = frozenset(words(context))
            if len(context) <= self._capacity // 2:
                # Threads may store at the same time: in the worst case one drops what another has stored.
                if self._size + len(context) > self._capacity:
                    self._drop_older()
                self._sets[context] = word_set
                self._size += len(context)
        return word_set

    def _drop_older(self) -> None:
        kept: dict[str, frozenset[str]] = {}
        size = 0
        for context, word_set in reversed(list(self._sets.items())):
            if size + len(context) > self._capacity // 2:
                break
            kept[context] = word_set
            size += len(context)
        self._sets, self._size = dict(reversed(kept.items())), size


_cache = TokenCache()


def groundedness(claim: str, contexts: Sequence[str], cache: TokenCache = _cache) -> float | None:
    """The share of the claim's content words, repetitions counted, that occur in the contexts.

    Args:
        claim: The answer.
        contexts: The retrieved texts.
        cache: Word sets of contexts.

    Returns:
        A share in [0, 1]; None when the claim has no content word, or when the unread rest of a cut text
        (`ragmon.core.text.head`) could change the share.

    Source: the ResearchMate evaluation module's heuristic, extended to letters of every script.

    >>> groundedness("The ferry leaves at nine", ["A ferry leaves daily."])
    0.6666666666666666
    """
    claim_words = () if is_cut(claim) else content_words(claim)
    if not claim_words:
        return None
    missing = set(claim_words)
    for context in contexts:
        missing -= cache.words(head(context))
        if not missing:
            break
    found = sum(word not in missing for word in claim_words)
    if found < len(claim_words) and any(map(is_cut, contexts)):
        return None
    return found / len(claim_words)


@register
class Groundedness(Metric):
    """Mean share of an answer's words that occur in the retrieved contexts."""

    name = "groundedness"
    reads = "contexts"

    def measure(self, record: Record, item: GoldItem | None) -> float | None:
        """The share of the claim's words; None where claim or contexts were not captured, or were cut."""
        answer = record.answer_json
        if record.contexts is None or answer is None or not answer.claim:
            return None
        return groundedness(answer.claim, record.contexts)

    def applies(self, facts: Facts) -> bool:
        """Shipped answers are in the denominator; they are unassessed where their text was not captured."""
        if not (facts.answered and facts.shipped):
            return False
        facts.require_grounding()
        return True


@register
class GroundedRate(Metric):
    """Share of answers with at least the threshold of their words in the retrieved contexts."""

    name = "grounded_rate"
    binary = True

    def score(self, facts: Facts) -> float | None:
        """Shipped answers are in the denominator."""
        return float(facts.grounded) if facts.answered and facts.shipped else None
