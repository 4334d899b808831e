"""Facts: a request reduced to a small tuple of integers that holds everything a metric can ask about it.

`FactReader` makes the tuple from a record and its gold item; this is the hot path. `Facts` gives names to its members
and the reason why a fact is unknown. A plain tuple and `Facts` hash and compare alike, so counts kept under one are
found under the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, islice, product
from typing import Final, Literal, NamedTuple

from ragmon.core import constants
from ragmon.core.citations import alike, ids_at
from ragmon.core.endings import CUT
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
    GoldItem,
)
from ragmon.core.record import Record, TextFacts, is_redacted
from ragmon.core.refusals import POLICY, TOKEN, RefusalRule
from ragmon.core.text import READ, contains_phrase, fold, head, is_cut, normalise_context

DEPTH: Final = 1000
"""Ranks are kept this deep (trec_eval's usual run depth); a fact that needs more of a longer list is unassessed."""
VERSION: Final = 5
"""The version of the facts; counts of another version are made anew from the records that are kept."""

Ranks = tuple[int, ...]  # ranks in order, each once; the first document has rank 1
Key = tuple[int, int, int, Ranks, Ranks, Ranks, Ranks]
"""The plain tuple of facts, the key under which requests are counted."""

# Bits 0 to 7 are what the gold item provides (`ragmon.core.gold_item`). How the call ended:
SHIPPED, REFUSED, ERROR, OUTCOME_UNKNOWN = (1 << i for i in range(8, 12))
# What the claim contains:
CLAIM_KNOWN, CONTAINS_CLAIM, CONTAINS_GOLD_CLAIM, WRONG_GOLD_VERSION, TEXT, REFUSAL_LIKE = (
    1 << i for i in range(12, 18)
)
# What the answer cites:
COMPLIANT, HITS, IN_SCOPE, CITES_RETRIEVED = (1 << i for i in range(18, 22))
# What retrieval returned:
IDS, EMPTY, RANKED, CANDIDATES, VERDICTS = (1 << i for i in range(22, 27))
# Time and text measures:
BOUNDED, TIMED, WITHIN, GROUNDED_KNOWN, GROUNDED = (1 << i for i in range(27, 32))
# Texts longer than the part that is read (`ragmon.core.text.READ`): a phrase that was not found may be in the rest.
CLAIM_CUT, CONTEXTS_CUT = (1 << i for i in range(32, 34))
# What was not captured: the list of citations; the details of a call that was kept for its outcome alone.
CITATIONS_MISSING, DETAILS_MISSING = (1 << i for i in range(34, 36))
# Lists that are longer than ranks are kept: what is not found in them may be in the rest.
IDS_CUT, CANDIDATES_CUT, VERDICTS_CUT = (1 << i for i in range(36, 39))
# The answer is a refusal because a policy forbids the answer.
POLICY_REFUSAL = 1 << 39
# How the citations are written: as ranks, one of which is 0 or the number of documents; as names unlike any retrieved
# id. That they cannot be read, or that the ranks are counted from 0, follows from the totals of the pipeline.
BY_RANK, FROM_ZERO, TO_LAST, UNLIKE_IDS, UNREADABLE, COUNTED_FROM_ZERO = (1 << i for i in range(40, 46))
CITED_OTHERWISE: Final = BY_RANK | UNLIKE_IDS
# Ids and gold ids: several documents are one gold document; one was found by its text alone; an id that was retrieved,
# cited, or among the candidates differs in form alone from a gold id that was not found there.
SEVERAL, FOUND_BY_TEXT, IDS_ALIKE, CITES_ALIKE, CANDIDATES_ALIKE = (1 << i for i in range(50, 55))
# What is cited; and by base, the same of citations that are ranks if they count from it.
_CITED_BITS: Final = (HITS, IN_SCOPE, CITES_RETRIEVED, CITES_ALIKE)
_CITED: Final = sum(_CITED_BITS)
_BITS_AT_BASE: Final = (tuple(1 << i for i in range(46, 50)), tuple(1 << i for i in range(55, 59)))


def _renamed(source: Sequence[int], target: Sequence[int]) -> dict[int, int]:
    # By every set of some flags, the same set of others: a look-up for each request is faster than a loop.
    chosen = product((False, True), repeat=len(source))
    return {sum(compress(source, each)): sum(compress(target, each)) for each in chosen}


_TO_BASE: Final = tuple(_renamed(_CITED_BITS, bits) for bits in _BITS_AT_BASE)
_AT_BASE: Final = tuple(sum(bits) for bits in _BITS_AT_BASE)
_OF_BASE: Final = tuple(_renamed(bits, _CITED_BITS) for bits in _BITS_AT_BASE)


class Facts(NamedTuple):
    """The facts of one request; a property whose fact is unknown raises `Unassessed` with the reason.

    Attributes:
        flags: Bits, named by the constants of this module.
        wanted: How many gold ids (or gold texts) the item has.
        retrieved: How many distinct documents were retrieved (gold by text: how many contexts).
        ranks: The ranks of gold documents.
        candidate_ranks: For each gold document that was found before reranking, the first of its ranks there.
        verdict_ranks: The ranks that recorded verdicts call relevant.
        text_ranks: For each gold text that was found, the rank of the first context with it; where several documents
            are one gold document, for each gold document that was found, the first of its ranks.
    """

    flags: int
    wanted: int = 0
    retrieved: int = 0
    ranks: Ranks = ()
    candidate_ranks: Ranks = ()
    verdict_ranks: Ranks = ()
    text_ranks: Ranks = ()

    def has(self, bits: int) -> bool:
        """Whether all the given flags are set."""
        return self.flags & bits == bits

    @property
    def matched(self) -> bool:
        """The request has a gold item."""
        return self.has(GOLD)

    @property
    def answerable(self) -> bool:
        """The corpus can answer the gold question."""
        return self.has(ANSWERABLE)

    @property
    def error(self) -> bool:
        """The call ended in an error."""
        return self.has(ERROR)

    @property
    def answered(self) -> bool:
        """There is an answer at all, refusal or not."""
        if self.has(OUTCOME_UNKNOWN):
            raise self._unassessed(constants.NO_TEXT)
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
        raise self._unassessed(constants.NO_TEXT if self.has(OUTCOME_UNKNOWN) else constants.NO_ANSWER)

    @property
    def refusal_like(self) -> bool:
        """The refusal matcher, not the token, calls it a refusal."""
        self._require_answer()
        self._require(TEXT, constants.NO_TEXT)
        return self.has(REFUSAL_LIKE)

    @property
    def policy_refusal(self) -> bool:
        """The refusal matcher says that a policy forbids the answer."""
        self._require_answer()
        self._require(TEXT, constants.NO_TEXT)
        return self.has(POLICY_REFUSAL)

    @property
    def contains_claim(self) -> bool:
        """C: a gold phrase occurs in the claim."""
        self._require(HAS_PHRASES, constants.NO_GOLD_CLAIM)
        return self._found_in_claim(CONTAINS_CLAIM)

    @property
    def contains_gold_claim(self) -> bool:
        """A phrase of the gold claim occurs in the claim, or C holds."""
        if not self.flags & (HAS_PHRASES | HAS_GOLD_CLAIM):
            raise Unassessed(constants.NO_GOLD_CLAIM)
        return self._found_in_claim(CONTAINS_GOLD_CLAIM | CONTAINS_CLAIM)

    def _found_in_claim(self, flags: int) -> bool:
        if self.has(WRONG_GOLD_VERSION) and not self.has(CLAIM_KNOWN):
            raise Unassessed(constants.GOLD_VERSION)
        self._require(CLAIM_KNOWN, constants.NO_TEXT)
        is_set = self.flags & flags != 0
        if not is_set and self.has(CLAIM_CUT):  # a phrase may be in the rest
            raise Unassessed(constants.TEXT_CUT)
        return is_set

    @property
    def names_gold_ids(self) -> bool:
        """The gold item names documents by id."""
        return self.has(HAS_GOLD_IDS)

    @property
    def cites_gold(self) -> bool:
        """The answer cites a gold document, retrieved or not (hit_only)."""
        self._require(HAS_GOLD_IDS, constants.NO_GOLD_CITATIONS)
        self._require_citations()
        return self._hits()

    @property
    def citation_hit(self) -> bool:
        """H: the answer cites a gold document, and every citation was retrieved."""
        self._require(HAS_GOLD_IDS, constants.NO_GOLD_CITATIONS)
        return self.cites_only_retrieved and self._hits()

    def _hits(self) -> bool:
        if self.has(CITES_ALIKE):
            raise Unassessed(constants.ID_FORM)
        return self.has(HITS)

    @property
    def cites_only_retrieved(self) -> bool:
        """Every citation was retrieved."""
        self._require(IDS, constants.NO_IDS)
        self._require_citations()
        return self._found_in_ids(IN_SCOPE)

    @property
    def cites_retrieved(self) -> bool:
        """At least one citation was retrieved."""
        self._require(IDS, constants.NO_IDS)
        self._require_citations()
        return self._found_in_ids(CITES_RETRIEVED)

    def _found_in_ids(self, flag: int) -> bool:
        # A citation that was not found may be in the rest of a cut list.
        if not self.has(flag) and self.has(IDS_CUT) and not self.has(IN_SCOPE):
            raise Unassessed(constants.BEYOND_DEPTH)
        return self.has(flag)

    @property
    def compliant(self) -> bool:
        """The answer has a citation list or is the exact refusal token; a refusal in other words is not compliant."""
        if self.has(OUTCOME_UNKNOWN):
            raise self._unassessed(constants.NO_TEXT)
        if not self.flags & (COMPLIANT | REFUSAL_LIKE):
            self._require_citations()
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
        """Raise `Unassessed` where claim or contexts were not captured, or were cut."""
        self._require(
            GROUNDED_KNOWN, constants.TEXT_CUT if self.flags & (CLAIM_CUT | CONTEXTS_CUT) else constants.NO_TEXT
        )

    def require_documents(self) -> None:
        """Raise `Unassessed` where the gold item names no document, by id, text or section."""
        self._require(HAS_RELEVANT, constants.NO_GOLD_CITATIONS)

    @property
    def has_verdicts(self) -> bool:
        """Relevance was recorded, document by document."""
        return self.has(VERDICTS)

    def relevant_by_verdict(self) -> int:
        """The ranks that recorded verdicts call relevant, as bits."""
        return cut(bits_at(self.verdict_ranks), DEPTH + self.has(VERDICTS_CUT), None)

    @property
    def has_candidates(self) -> bool:
        """The list before reranking was captured, and the item names ids."""
        return self.has(CANDIDATES)

    def relevant(self, k: int | None = None) -> int:
        """The ranks of relevant documents as bits, cut at k; None means the whole list."""
        # No further document is relevant where each gold id was found, and names one document.
        has_all = not self.flags & (BY_TEXT | TOTAL_UNKNOWN | SEVERAL) and len(self.ranks) == self.wanted > 0
        return cut(self._ranks(self.ranks), DEPTH if has_all else self.retrieved, k)

    def first(self, k: int | None = None) -> int | None:
        """The rank of the first relevant document among the first k; None where there is none."""
        ranks = self._ranks(self.ranks)
        if not ranks:
            cut(ranks, self.retrieved, k)
            return None
        return self.ranks[0] if k is None or self.ranks[0] <= k else None

    def gains(self, k: int | None = None) -> int:
        """The ranks at which a gold document appears for the first time, as bits, cut at k."""
        return self._cut_firsts(k)

    def gold_in_first(self, k: int | None = None) -> int:
        """How many gold documents are in the first k."""
        self._cut_firsts(k)
        return sum(1 for rank in self._firsts() if k is None or rank <= k)

    def listed(self, k: int | None = None) -> int:
        """The length of the list, cut at k."""
        cut(0, self.retrieved, k)
        return self.retrieved if k is None else k

    def _firsts(self) -> Ranks:
        return self.text_ranks if self.flags & (BY_TEXT | SEVERAL) else self.ranks

    def _cut_firsts(self, k: int | None) -> int:
        # Only in a list with gold documents still to be found may the rest say more.
        firsts = self._firsts()
        has_all = not self.has(TOTAL_UNKNOWN) and len(firsts) == self.wanted > 0
        return cut(self._ranks(firsts), DEPTH if has_all else self.retrieved, k)

    def _ranks(self, ranks: Ranks) -> int:
        text_reason = constants.TEXT_CUT if self.has(CONTEXTS_CUT) else constants.NO_TEXT
        self._require(RANKED, text_reason if self.has(BY_TEXT) else constants.NO_IDS)
        if self.has(IDS_ALIKE):
            raise Unassessed(constants.ID_FORM)
        return bits_at(ranks)

    def total(self) -> int:
        """How many gold documents there are."""
        if self.has(TOTAL_UNKNOWN):
            raise Unassessed(constants.TOTAL_UNKNOWN)
        return self.wanted

    def candidates(self, k: int | None = None) -> int:
        """How many gold documents were in the first k before reranking."""
        if self.has(CANDIDATES_ALIKE):
            raise Unassessed(constants.ID_FORM)
        is_cut = self.has(CANDIDATES_CUT) and len(self.candidate_ranks) < self.wanted
        cut(0, DEPTH + is_cut, k)
        return sum(1 for rank in self.candidate_ranks if k is None or rank <= k)

    def _require(self, flag: int, reason: str) -> None:
        if not self.flags & flag:
            raise self._unassessed(reason)

    def _require_citations(self) -> None:
        if self.has(UNREADABLE):
            raise self._unassessed(constants.CITATION_FORM)
        if self.has(CITATIONS_MISSING):
            raise self._unassessed(constants.NO_CITATIONS)

    def _unassessed(self, reason: str) -> Unassessed:
        # With the reason of the fact, unless the call has none of the details.
        if reason in constants.IGNORABLE:
            return Unassessed(reason)
        if self.has(ERROR):
            return Unassessed(constants.ERROR)
        return Unassessed(constants.PARTIAL if self.has(DETAILS_MISSING) else reason)


CitationBase = Literal[0, 1, "ids", "titles"]


class CitationForm(NamedTuple):
    """How the citations of a pipeline are read, which its totals decide.

    Attributes:
        base: The first rank, 0 or 1; None where it is undecided.
        are_ids: Whether names unlike any retrieved id are taken for ids.
    """

    base: int | None = 1
    are_ids: bool = True


USUAL: Final = CitationForm()


def read_as(key: Key, form: CitationForm) -> Key:
    """The same facts with the citations read in a form, whichever form they were read in before."""
    flags = key[0]
    return (flags_read_as(flags, form), *key[1:]) if flags & CITED_OTHERWISE else key


def all_read_as(counts: Mapping[Key, int], form: CitationForm) -> dict[Key, int]:
    """Requests by their facts, with the citations read in a form."""
    found: dict[Key, int] = {}
    for key, n in counts.items():
        key = read_as(key, form)  # noqa: PLW2901 - the facts they are counted under
        found[key] = found.get(key, 0) + n
    return found


def flags_read_as(flags: int, form: CitationForm) -> int:
    """The flags of citations in a form."""
    if flags & BY_RANK:
        flags &= ~(_CITED | CITATIONS_MISSING | UNREADABLE | COUNTED_FROM_ZERO)
        if form.base is None:
            return flags | UNREADABLE
        flags |= _OF_BASE[form.base][flags & _AT_BASE[form.base]]
        if form.base == 0:
            return flags | COUNTED_FROM_ZERO
        return flags | CITATIONS_MISSING if flags & FROM_ZERO else flags
    if flags & UNLIKE_IDS:
        return flags & ~UNREADABLE if form.are_ids else flags | UNREADABLE
    return flags


class CitationCounts(NamedTuple):
    """How the answers of a pipeline cite, over all time.

    Attributes:
        citing: Answers that cite something, where the retrieved ids are known.
        by_rank: Of them, those whose citations are ranks; and those with a 0, and with the number of their documents.
        unlike: Those that cite only names unlike any retrieved id.
    """

    citing: int = 0
    by_rank: int = 0
    from_zero: int = 0
    to_last: int = 0
    unlike: int = 0

    @classmethod
    def of(cls, flags: int, n: int) -> CitationCounts | None:
        """The counts of n answers with some flags; None for answers that cite nothing that could be compared."""
        if not flags & IDS or (flags & (IN_SCOPE | CITES_RETRIEVED | BY_RANK)) == IN_SCOPE:
            return None
        by_rank, unlike = n if flags & BY_RANK else 0, n if flags & UNLIKE_IDS else 0
        return cls(n, by_rank, n if flags & FROM_ZERO else 0, n if flags & TO_LAST else 0, unlike)

    @property
    def form(self) -> CitationForm:
        """The form in which the citations are read.

        Ranks count from 1; from 0 where at least 2 % of the answers that cite by rank have a 0 and none the number of
        its documents; where both are seen, the base is undecided. Names are no ids where nine in ten answers, and
        twenty at least, cite only names unlike any retrieved id.
        """
        has_zero = self.from_zero * ZERO_IN >= self.by_rank > 0
        base = 1 if not has_zero else None if self.to_last else 0
        return CitationForm(base, self.unlike < FEW or self.unlike * 10 < self.citing * 9)


ZERO_IN: Final = 50
FEW: Final = 20


def cut(ranks: int, length: int, k: int | None) -> int:
    """The bits of the first k ranks, of all ranks without k; of a list longer than `DEPTH`, no more are known."""
    if length > DEPTH and (k is None or k > DEPTH):
        raise Unassessed(constants.BEYOND_DEPTH)
    return ranks if k is None else ranks & ((1 << k) - 1)


def bits_at(ranks: Iterable[int]) -> int:
    """Bits with bit r-1 set for every rank r."""
    bits = 0
    for rank in ranks:
        bits |= 1 << (rank - 1)
    return bits


_NONE: Final[frozenset[str]] = frozenset()
_NO_RANKS: Final[Ranks] = ()


@dataclass(frozen=True)
class FactReader:
    """Reduces records to facts.

    Args:
        within_ms: The declared latency bound in milliseconds; None leaves `answered_within` out.
        citations_required: An answer without a list of citations cites nothing, which is a fault; otherwise its
            citations count as not captured.
        citations: What citations are: ranks that count from 0 or from 1, ids or titles; None tells by the totals.
    """

    refusal: RefusalRule = field(default_factory=RefusalRule)
    within_ms: float | None = None
    citations_required: bool = False
    citations: CitationBase | None = None

    def read(self, record: Record, item: GoldItem | None, grounded: bool | None = None) -> Key:
        """The facts of one request.

        `grounded` says whether the claim is grounded; None where text was not captured.
        """
        answer = record.answer_json
        claim = citations = cited_ranks = None
        if answer is not None:
            claim, citations, cited_ranks = answer.claim, answer.citations, answer.ranks
        flags = self._call_flags(record, item, claim, is_list=citations is not None or cited_ranks is not None)
        if not citations:
            sampling = record.sampling
            if citations is None and not cited_ranks and not self.citations_required:
                flags |= CITATIONS_MISSING
            without_details = sampling is not None and not sampling.audit
            if record.partial and (without_details if record.ended is None else record.ended != CUT):
                flags |= DETAILS_MISSING
        if grounded is not None:
            flags |= GROUNDED_KNOWN | GROUNDED if grounded else GROUNDED_KNOWN
        if self.within_ms is not None:
            flags |= BOUNDED
            if (latency := record.latency_ms) is not None and latency.total is not None:
                flags |= TIMED | WITHIN if latency.total <= self.within_ms else TIMED
        if contexts := record.contexts:
            # The longest context decides in nearly all cases, and max() over len() runs in C.
            flags |= CONTEXTS_CUT if max(map(len, contexts)) > READ and any(map(is_cut, contexts)) else 0
        if record.facts is not None and (cuts := record.facts.cut) is not None:
            flags |= (CLAIM_CUT if "claim" in cuts else 0) | (CONTEXTS_CUT if "contexts" in cuts else 0)
        verdicts = _NO_RANKS
        if record.verdicts is not None:
            flags |= VERDICTS if len(record.verdicts) <= DEPTH else VERDICTS | VERDICTS_CUT
            verdicts = ranks_of(record.verdicts)
        if not cited_ranks:
            return self._with_documents(record, item, flags, citations, verdicts)
        ids = record.retrieved_ids or ()
        if self.citations == "ids":
            return self._with_documents(record, item, flags, list(map(str, cited_ranks)), verdicts)
        if isinstance(self.citations, int):
            flags |= 0 if self.citations else COUNTED_FROM_ZERO
            return self._with_documents(record, item, flags, ids_at(cited_ranks, ids, self.citations), verdicts)
        from_one = self._with_documents(record, item, flags, citations or ids_at(cited_ranks, ids), verdicts)
        counted_from_zero = ids_at(cited_ranks, ids, base=0)
        if item is None and len(ids) <= DEPTH:  # most requests
            from_zero = scope(counted_from_zero, set(ids))
        else:
            from_zero = self._with_documents(record, item, flags, counted_from_zero, verdicts)[0]
        flags = (from_one[0] & ~UNLIKE_IDS) | BY_RANK
        flags |= FROM_ZERO | CITATIONS_MISSING if 0 in cited_ranks else 0
        flags |= TO_LAST if len(ids) in cited_ranks else 0
        flags |= _TO_BASE[0][from_zero & _CITED] | _TO_BASE[1][from_one[0] & _CITED]
        return (flags, *from_one[1:])  # as `USUAL` reads them

    def _with_documents(
        self, record: Record, item: GoldItem | None, flags: int, citations: Sequence[str] | None, verdicts: Ranks
    ) -> Key:
        # The facts with what was retrieved and cited.
        ids, length = record.retrieved_ids, 0
        id_set: set[str] | frozenset[str] = _NONE
        gold_ids = _NONE if item is None else item.ids
        if ids is not None:
            id_set = set(ids)
            if len(id_set) != len(ids) or len(ids) > DEPTH:
                # Cut as ingest cuts them, so that a record is read alike wherever it comes from.
                ids = list(dict.fromkeys(ids))[: DEPTH + 1]
                id_set = set(ids)
            length = len(id_set)
            flags |= scope(citations, id_set)
            if citations and id_set and not flags & CITES_RETRIEVED and gold_ids.isdisjoint(citations):
                if self.citations == "titles":
                    flags |= UNREADABLE
                elif self.citations is None and not alike(citations, id_set):
                    flags |= UNLIKE_IDS
        if item is None:
            return (flags, 0, length, (), (), verdicts, ())
        flags |= item.offers
        if not flags & HAS_GOLD_IDS:
            return self._facts_by_section_or_text(record, item, ids, flags, verdicts)
        candidates = _NO_RANKS
        if citations and not gold_ids.isdisjoint(citations):
            flags |= HITS
        if record.candidate_ids is not None:
            candidate_ids = list(dict.fromkeys(record.candidate_ids))
            flags |= CANDIDATES if len(candidate_ids) <= DEPTH else CANDIDATES | CANDIDATES_CUT
            candidates = ranks_among(candidate_ids, set(candidate_ids), gold_ids)
        ranks = _NO_RANKS
        if ids is not None:
            ranks = ranks_among(ids, id_set, gold_ids)
            flags |= RANKED
        key = (flags, len(gold_ids), length, ranks, candidates, verdicts, ())
        if len(ranks) == len(gold_ids) and not item.id_forms and (flags & HITS or not citations):
            return key  # most requests: every gold id was found
        return found_otherwise(key, record, item, ids or (), citations or ())

    def _call_flags(self, record: Record, item: GoldItem | None, claim: str | None, *, is_list: bool) -> int:
        # Of the outcome and of the text of the answer; whether it has a list of citations.
        flags = COMPLIANT if is_list else 0
        if record.error:
            return ERROR
        facts, answer = record.facts, record.answer_json
        if answer is not None and answer.refused:
            return flags & ~COMPLIANT | REFUSED | REFUSAL_LIKE | TEXT | CLAIM_KNOWN
        if claim is None or (facts is not None and is_redacted(record, "claim")):  # usually no facts: avoid the call
            if facts is not None:
                text_flags = self._text_fact_flags(facts, item)
                # A refusal in other words does not follow the template, whatever list it carries.
                return text_flags | (0 if text_flags & REFUSAL_LIKE else flags)
            return flags | OUTCOME_UNKNOWN if record.partial and record.answer_json is None else flags
        claim = claim.strip()
        if len(claim) > READ:
            claim, flags = claim[:READ], flags | CLAIM_CUT
        folded = fold(claim)
        if not folded:
            return flags | TEXT
        how = self.refusal.kind(claim, folded)
        if how == TOKEN:
            return REFUSED | TEXT | COMPLIANT | CLAIM_KNOWN
        if how is not None:
            # A refusal in other words does not follow the template, whatever list it carries.
            flags = flags & ~COMPLIANT | REFUSAL_LIKE | TEXT | (POLICY_REFUSAL if how == POLICY else 0)
            flags |= REFUSED if self.refusal.matcher_counts else SHIPPED
        else:
            flags |= SHIPPED | TEXT
        if item is None or not item.answerable:
            return flags
        flags |= CLAIM_KNOWN | CONTAINS_CLAIM if item.contained_in(folded) else CLAIM_KNOWN
        for phrase in item.gold_phrases:
            if contains_phrase(folded, phrase):
                flags |= CONTAINS_GOLD_CLAIM
        return flags

    @staticmethod
    def _text_fact_flags(text_facts: TextFacts, item: GoldItem | None) -> int:
        # The same flags from the facts that were decided where the text was.
        if text_facts.refused is None and text_facts.answered is None:
            return OUTCOME_UNKNOWN
        flags = 0
        if text_facts.refused:
            flags = REFUSED if text_facts.refusal_like else REFUSED | COMPLIANT
        elif text_facts.answered is not False:
            flags = SHIPPED
        if text_facts.refusal_like is not None:
            flags |= TEXT | REFUSAL_LIKE if text_facts.refusal_like else TEXT
            flags |= POLICY_REFUSAL if text_facts.policy_refusal else 0
        if item is None or not item.answerable:
            return flags
        if text_facts.gold_version is not None and text_facts.gold_version != item.set_version:
            return flags | WRONG_GOLD_VERSION
        compared = text_facts.gold_version is not None and text_facts.cut is not None and "claim" in text_facts.cut
        if text_facts.contains_claim is not None or text_facts.refused or compared:
            flags |= CLAIM_KNOWN
            flags |= CONTAINS_CLAIM if text_facts.contains_claim else 0
            flags |= CONTAINS_GOLD_CLAIM if text_facts.contains_gold_claim else 0
        return flags

    @staticmethod
    def _facts_by_section_or_text(
        record: Record, item: GoldItem, ids: Sequence[str] | None, flags: int, verdicts: Ranks
    ) -> Key:
        if not item.answerable:
            return (flags, 0, len(ids or ()), (), (), verdicts, ())
        if item.sections:
            if ids is None:
                return (flags, 0, 0, (), (), verdicts, ())
            prefixes = tuple(item.sections)
            ranks = ranks_of(name.startswith(prefixes) for name in ids)
            return (flags | RANKED, 0, len(ids), ranks, (), verdicts, ())
        if record.contexts is None or not item.texts or is_redacted(record, "contexts"):
            return (flags, len(item.texts), len(ids or ()), (), (), verdicts, ())
        found = match_texts(record.contexts, item)
        if found is None:
            return (flags, len(item.texts), len(ids or ()), (), (), verdicts, ())
        relevant, text_ranks = found
        return (flags | RANKED, len(item.texts), len(record.contexts), relevant, (), verdicts, text_ranks)


def scope(citations: Sequence[str] | None, seen: set[str] | frozenset[str]) -> int:
    """The flags of a list of distinct retrieved ids and of the citations from it."""
    flags = (IDS if len(seen) <= DEPTH else IDS | IDS_CUT) if seen else IDS | EMPTY
    if not citations:
        return flags | IN_SCOPE
    if seen.issuperset(citations):
        return flags | IN_SCOPE | CITES_RETRIEVED
    return flags if seen.isdisjoint(citations) else flags | CITES_RETRIEVED


def ranks_among(ids: Sequence[str], seen: set[str] | frozenset[str], wanted: frozenset[str]) -> Ranks:
    """The ranks of wanted ids."""
    if wanted.isdisjoint(seen):
        return ()
    return tuple([rank for rank, name in enumerate(ids[:DEPTH], start=1) if name in wanted])


def ranks_of(relevant: Iterable[bool]) -> Ranks:
    """The ranks at which there is a true value, as deep as ranks are kept."""
    return tuple(rank for rank, flag in enumerate(islice(relevant, DEPTH), start=1) if flag)


def found_otherwise(key: Key, record: Record, item: GoldItem, ids: Sequence[str], citations: Sequence[str]) -> Key:
    """The facts of a request some of whose gold ids were not found, with what was found in another form or by text."""
    flags, wanted, length, ranks, candidates, verdicts, _ = key
    missing = [name for name in dict.fromkeys(item.citations or ()) if name not in ids]
    by_text = named_by_text(record, item, missing)
    lists = ids, citations, tuple(dict.fromkeys(record.candidate_ids or ()))
    if not (by_text or item.id_forms or item.may_name(chain(*lists))):
        return key
    (ranks, firsts, is_alike), cited, before = (find_gold(names, item, by_text) for names in lists)
    flags |= FOUND_BY_TEXT if by_text else 0
    flags |= IDS_ALIKE if is_alike else 0
    flags |= HITS if cited.firsts else CITES_ALIKE if cited.is_alike else 0
    if flags & CANDIDATES:
        flags |= CANDIDATES_ALIKE if before.is_alike else 0
        candidates = tuple(sorted(before.firsts.values()))
    text_ranks = tuple(sorted(firsts.values()))
    if text_ranks == ranks:
        return (flags, wanted, length, ranks, candidates, verdicts, ())
    return (flags | SEVERAL, wanted, length, ranks, candidates, verdicts, text_ranks)


class FoundGold(NamedTuple):
    """The gold documents of a list of ids.

    Attributes:
        ranks: The ranks of gold documents.
        firsts: The first rank of each gold id that was found.
        is_alike: Whether an id differs in form alone from a gold id that was not found.
    """

    ranks: Ranks
    firsts: dict[str, int]
    is_alike: bool


def find_gold(names: Sequence[str], item: GoldItem, by_text: Mapping[str, Collection[str]]) -> FoundGold:
    """The gold documents among ids, in the forms that the item allows; `by_text` has the ids that stand for others."""
    ranks, firsts, alike, allowed = [], dict[str, int](), set[str](), frozenset(item.id_forms)
    for rank, name in enumerate(names[:DEPTH], start=1):
        found = set(by_text.get(name, ()))
        for gold, forms in item.named(name):
            (found if forms <= allowed else alike).add(gold)
        if found:
            ranks.append(rank)
        for gold in found:
            firsts.setdefault(gold, rank)
    return FoundGold(tuple(ranks), firsts, not alike <= firsts.keys())


def named_by_text(record: Record, item: GoldItem, missing: Sequence[str]) -> dict[str, set[str]]:
    """The retrieved ids whose contexts hold the text of a gold document that was not retrieved by its id.

    With the gold ids that they stand for: the n-th gold text is that of the n-th gold id; where there are more of the
    one than of the other, a text may be that of any.
    """
    named: dict[str, set[str]] = {}
    if not (missing and item.texts and record.contexts and record.retrieved_ids) or is_redacted(record, "contexts"):
        return named
    names, places = record.retrieved_ids, find_texts(record.contexts[: len(record.retrieved_ids)], item) or {}
    if item.texts_by_id:
        pairs = [(gold, places.get(text, [])) for gold in missing for text in item.texts_by_id[gold]]
    else:  # a text under the id of a gold document is that document's
        free = [[rank for rank in ranks if names[rank - 1] not in item.ids] for ranks in places.values()]
        pairs = [(missing[min(n, len(missing) - 1)], ranks) for n, ranks in enumerate(filter(None, free))]
    for gold, ranks in pairs:
        for rank in ranks:
            named.setdefault(names[rank - 1], set()).add(gold)
    return named


def match_texts(contexts: Sequence[str], item: GoldItem) -> tuple[Ranks, Ranks] | None:
    """The ranks of relevant contexts, and the sorted first ranks of the gold texts that were found; None if unknown."""
    if (places := find_texts(contexts, item)) is None:
        return None
    relevant = {rank for ranks in places.values() for rank in ranks}
    return tuple(sorted(relevant)), tuple(sorted(ranks[0] for ranks in places.values()))


def find_texts(contexts: Sequence[str], item: GoldItem) -> dict[str, list[int]] | None:
    """The ranks of the contexts with each gold text that was found, in the order of the first of them.

    None where the unread rest of a context may hold one.
    """
    places: dict[str, list[int]] = {}
    exact = item.match == "exact"
    for rank, raw_context in enumerate(contexts[:DEPTH], start=1):
        context = normalise_context(head(raw_context))
        matches = [text for text in item.texts if (text == context if exact else text in context)]
        if is_cut(raw_context) and (exact or len(matches) < len(item.texts)):
            return None
        for text in matches:
            places.setdefault(text, []).append(rank)
    return places
