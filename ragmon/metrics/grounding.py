"""Groundedness: the share of an answer's words that occur in the retrieved contexts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.core.text import UNSPACED, fold, head, is_cut
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
BIGRAMS: Final = rf"{UNSPACED}\uac00-\ud7a3"
_PUNCTUATION: Final = re.compile(r"[\u3000-\u303f\u0e2f\u0e4f\u0e5a\u0e5b\u104a-\u104f\u17d4-\u17da\u0f04-\u0f14\s]+")
# A run of letters and digits: of a script without spaces between words, or Korean; or of any other script.
_RUN: Final = re.compile(rf"([{BIGRAMS}]+)|(?:(?![{BIGRAMS}])[^\W_])+")
_NO_WORD: Final = bytes(ord(chr(i).lower()) if chr(i).isalnum() and i < 128 else 32 for i in range(256))


def words(text: str) -> list[str]:
    """The runs of letters and digits of a text, folded, in order; pairs of characters where no spaces part the words.

    Korean is parted into pairs as well, because its particles stand on the words.

    Source: the bigrams of Lucene's CJKBigramFilter, here for all scripts without spaces.

    >>> words("BM25 ranks, Röntgen's ray_7")
    ['bm25', 'ranks', 'röntgen', 's', 'ray', '7']
    >>> words("用紙は305番です。")
    ['用紙', '紙は', '305', '番で', 'です']
    """
    if text.isascii():
        return _spaced_words(text).split()
    found: list[str] = []
    for run in _RUN.finditer(fold(text)):
        if run[1] is None:
            found.append(run[0])
        else:
            for part in _PUNCTUATION.split(run[0]):
                found += map("".join, pairwise(part)) if len(part) > 1 else [part] * len(part)
    return found


def _spaced_words(text: str) -> str:
    # Of ASCII: replacing other bytes by spaces gives the same runs in a third of the time.
    return text.encode("ascii").translate(_NO_WORD).decode("ascii")


def content_words(text: str) -> list[str]:
    """The words with meaning: longer than one character and not stop words."""
    return [word for word in words(text) if len(word) > 1 and word not in STOP_WORDS]


def groundedness(claim: str, contexts: Sequence[str]) -> float | None:
    """The share of the claim's content words, repetitions counted, that occur in the contexts.

    Args:
        claim: The answer.
        contexts: The retrieved texts.

    Returns:
        A share in [0, 1]; None when the claim has no content word, or when the unread rest of a cut text
        (`ragmon.core.text.head`) could change the share.

    Source: the ResearchMate evaluation module's heuristic, extended to letters of every script.

    >>> groundedness("The ferry leaves at nine", ["A ferry leaves daily."])
    0.6666666666666666
    """
    claim_words = () if is_cut(claim) else content_words(fold(claim))
    if not claim_words:
        return None
    missing = {f" {word} " for word in claim_words}
    for context in map(head, contexts):
        # A search for each word takes half the time of a set of the context's words.
        spaced = f" {_spaced_words(context) if context.isascii() else ' '.join(words(context))} "
        missing = {word for word in missing if word not in spaced}
        if not missing:
            break
    found = sum(f" {word} " not in missing for word in claim_words)
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
