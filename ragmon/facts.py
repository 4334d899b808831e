"""A request reduced to a small tuple of integers: everything any metric can ask of it.

`ragmon.reader` makes the tuple; `Facts` gives it names and says *why* a fact is unknown. A plain tuple and `Facts` hash
and compare alike, so counts kept under one are found under the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.core.errors import Unassessed
from ragmon.core.gold_item import (
    ANSWERABLE,
    BY_TEXT,
    GOLD,
    HAS_GOLD_CLAIM,
    HAS_GOLD_IDS,
    HAS_PHRASES,
    HAS_RELEVANT,
    TOTAL_UNKNOWN,
)

DEPTH: Final = 1000
"""Ranks are kept this deep; a longer list leaves whole-list metrics unassessed (trec_eval's usual run depth)."""

Key = tuple[int, int, int, int, int, int, tuple[int, ...]]
"""Facts as the state counts them."""

# Bits 0 to 7 say what the gold item offers (`ragmon.core.gold_item`). How the call ended:
SHIPPED, REFUSED, ERROR, OUTCOME_UNKNOWN = (1 << i for i in range(8, 12))
# What the claim says:
CLAIM_KNOWN, CONTAINS_CLAIM, CONTAINS_GOLD_CLAIM, WRONG_GOLD_VERSION, TEXT, REFUSAL_LIKE = (
    1 << i for i in range(12, 18)
)
# What it cites:
COMPLIANT, HITS, IN_SCOPE, CITES_RETRIEVED = (1 << i for i in range(18, 22))
# What came back from retrieval:
IDS, EMPTY, RANKED, CANDIDATES, VERDICTS = (1 << i for i in range(22, 27))
# Time and text measures:
BOUNDED, TIMED, WITHIN, GROUNDED_KNOWN, GROUNDED = (1 << i for i in range(27, 32))
# Texts that are longer than what is read of them (`ragmon.core.text.READ`): what was not found may be in the rest.
CLAIM_CUT, CONTEXTS_CUT = (1 << i for i in range(32, 34))


class Facts(NamedTuple):
    """The facts of one request; a property whose fact is unknown raises `Unassessed` with the reason.

    Attributes:
        flags: Bits, named by this module's constants.
        wanted: How many gold ids (or gold texts) the item has.
        retrieved: How many distinct documents came back (gold by text: how many contexts).
        ranks: Bit r-1 is set when a gold document stands at rank r.
        candidate_ranks: The same before reranking.
        verdict_ranks: Bit r-1 is set when a recorded verdict calls rank r relevant.
        text_ranks: Gold by text only: for each gold text that was found, the rank of the first context holding it.
    """

    flags: int
    wanted: int = 0
    retrieved: int = 0
    ranks: int = 0
    candidate_ranks: int = 0
    verdict_ranks: int = 0
    text_ranks: tuple[int, ...] = ()

    def has(self, bits: int) -> bool:
        """Whether all the given flags are set."""
        return self.flags & bits == bits

    @property
    def matched(self) -> bool:
        """The request belongs to a gold item."""
        return self.has(GOLD)

    @property
    def answerable(self) -> bool:
        """The gold item says the corpus can answer."""
        return self.has(ANSWERABLE)

    @property
    def error(self) -> bool:
        """The call ended in an error."""
        return self.has(ERROR)

    @property
    def answered(self) -> bool:
        """There is an answer at all, refusal or not."""
        if self.has(OUTCOME_UNKNOWN):
            raise Unassessed(constants.NO_TEXT)
        return self.flags & (SHIPPED | REFUSED) != 0

    @property
    def shipped(self) -> bool:
        """An answer that is neither empty nor a refusal."""
        self._require_answer()
        return self.has(SHIPPED)

    @property
    def refused(self) -> bool:
        """The answer is a refusal."""
        self._require_answer()
        return self.has(REFUSED)

    def _require_answer(self) -> None:
        if self.flags & (SHIPPED | REFUSED):
            return
        if self.has(ERROR):
            raise Unassessed(constants.ERROR)
        raise Unassessed(constants.NO_TEXT if self.has(OUTCOME_UNKNOWN) else constants.NO_ANSWER)

    @property
    def refusal_like(self) -> bool:
        """The refusal matcher, not the token, calls it a refusal."""
        self._require_answer()
        if not self.has(TEXT):
            raise Unassessed(constants.NO_TEXT)
        return self.has(REFUSAL_LIKE)

    @property
    def contains_claim(self) -> bool:
        """C: a gold phrase occurs in the claim."""
        self._require(HAS_PHRASES, constants.NO_GOLD_CLAIM)
        return self._in_claim(CONTAINS_CLAIM)

    @property
    def contains_gold_claim(self) -> bool:
        """A phrase of the gold claim occurs in the claim, or C holds."""
        if not self.flags & (HAS_PHRASES | HAS_GOLD_CLAIM):
            raise Unassessed(constants.NO_GOLD_CLAIM)
        return self._in_claim(CONTAINS_GOLD_CLAIM | CONTAINS_CLAIM)

    def _in_claim(self, wanted: int) -> bool:
        """Whether one of the wanted phrases was found; in a claim that was cut, not to find it says nothing."""
        if not self.has(CLAIM_KNOWN):
            raise Unassessed(constants.GOLD_VERSION if self.has(WRONG_GOLD_VERSION) else constants.NO_TEXT)
        found = self.flags & wanted != 0
        if not found and self.has(CLAIM_CUT):
            raise Unassessed(constants.TEXT_CUT)
        return found

    @property
    def cites_gold(self) -> bool:
        """The citations meet the gold citations, wherever they were found (hit_only)."""
        self._require(HAS_GOLD_IDS, constants.NO_GOLD_CITATIONS)
        return self.has(HITS)

    @property
    def citation_hit(self) -> bool:
        """H: the citations meet the gold citations and all were retrieved."""
        self._require(HAS_GOLD_IDS, constants.NO_GOLD_CITATIONS)
        return self.cites_only_retrieved and self.has(HITS)

    @property
    def cites_only_retrieved(self) -> bool:
        """Every citation was retrieved."""
        self._require(IDS, constants.NO_IDS)
        return self.has(IN_SCOPE)

    @property
    def cites_retrieved(self) -> bool:
        """At least one citation was retrieved."""
        self._require(IDS, constants.NO_IDS)
        return self.has(CITES_RETRIEVED)

    @property
    def compliant(self) -> bool:
        """The answer has a citation list or is the exact refusal token."""
        if self.has(OUTCOME_UNKNOWN):
            raise Unassessed(constants.NO_TEXT)
        return self.has(COMPLIANT)

    @property
    def empty(self) -> bool:
        """Retrieval ran and found nothing."""
        self._require(IDS, constants.NO_IDS)
        return self.has(EMPTY)

    @property
    def bounded(self) -> bool:
        """A bound on the latency was declared."""
        return self.has(BOUNDED)

    @property
    def within(self) -> bool:
        """The call took no longer than the declared bound."""
        self._require(TIMED, constants.NO_LATENCY)
        return self.has(WITHIN)

    @property
    def grounded(self) -> bool:
        """Groundedness reached its threshold."""
        self.require_grounding()
        return self.has(GROUNDED)

    def require_grounding(self) -> None:
        """Raises `Unassessed` where claim or contexts were not captured, or not read to the end."""
        self._require(
            GROUNDED_KNOWN, constants.TEXT_CUT if self.flags & (CLAIM_CUT | CONTEXTS_CUT) else constants.NO_TEXT
        )

    def require_documents(self) -> None:
        """Raises `Unassessed` where the gold item names no document, by id, text or section."""
        self._require(HAS_RELEVANT, constants.NO_GOLD_CITATIONS)

    @property
    def has_verdicts(self) -> bool:
        """Relevance was recorded, document by document."""
        return self.has(VERDICTS)

    @property
    def has_candidates(self) -> bool:
        """The list before reranking was captured, and the item names ids."""
        return self.has(CANDIDATES)

    def relevant(self, k: int | None = None) -> int:
        """The ranks of relevant documents as bits, cut at k; None means the whole list."""
        lacking = constants.TEXT_CUT if self.has(CONTEXTS_CUT) else constants.NO_TEXT
        self._require(RANKED, lacking if self.has(BY_TEXT) else constants.NO_IDS)
        return cut(self.ranks, self.retrieved, k)

    def gains(self, k: int | None = None) -> int:
        """The ranks at which a gold document appears for the first time, as bits, cut at k."""
        relevant = self.relevant(k)
        return relevant & bits_at(self.text_ranks) if self.has(BY_TEXT) else relevant

    def found(self, k: int | None = None) -> int:
        """How many gold documents stand in the first k."""
        relevant = self.relevant(k)
        if self.has(BY_TEXT):
            return sum(1 for rank in self.text_ranks if k is None or rank <= k)
        return relevant.bit_count()

    def total(self) -> int:
        """How many gold documents there are."""
        if self.has(TOTAL_UNKNOWN):
            raise Unassessed(constants.TOTAL_UNKNOWN)
        return self.wanted

    def candidates(self, k: int | None = None) -> int:
        """The gold ranks before reranking as bits, cut at k."""
        return cut(self.candidate_ranks, 0, k)

    def _require(self, flag: int, reason: str) -> None:
        if not self.flags & flag:
            raise Unassessed(reason)


def cut(ranks: int, length: int, k: int | None) -> int:
    """The bits of the first k ranks; without k the list must not be longer than the depth that is kept."""
    if k is not None:
        return ranks & ((1 << k) - 1)
    if length > DEPTH:
        raise Unassessed(constants.BEYOND_DEPTH)
    return ranks


def bits_at(ranks: Iterable[int]) -> int:
    """Bit r-1 for every rank r."""
    bits = 0
    for rank in ranks:
        bits |= 1 << (rank - 1)
    return bits
