"""The hot path: one record and its gold item become the tuple of facts that is counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ragmon.core.gold_item import HAS_GOLD_IDS, GoldItem
from ragmon.core.record import Record, TextFacts, redacted
from ragmon.core.refusal import RefusalRule
from ragmon.core.text import READ, fold, head, is_cut, normalise_context
from ragmon.facts import (
    BOUNDED,
    CANDIDATES,
    CITES_RETRIEVED,
    CLAIM_CUT,
    CLAIM_KNOWN,
    COMPLIANT,
    CONTAINS_CLAIM,
    CONTAINS_GOLD_CLAIM,
    CONTEXTS_CUT,
    DEPTH,
    EMPTY,
    ERROR,
    GROUNDED,
    GROUNDED_KNOWN,
    HITS,
    IDS,
    IN_SCOPE,
    OUTCOME_UNKNOWN,
    RANKED,
    REFUSAL_LIKE,
    REFUSED,
    SHIPPED,
    TEXT,
    TIMED,
    VERDICTS,
    WITHIN,
    WRONG_GOLD_VERSION,
    Key,
)

FEW: Final = 2
"""Gold ids up to which searching each beats walking the list."""
_DEPTH_BITS: Final = (1 << DEPTH) - 1
_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class FactReader:
    """Reduces records to facts.

    Args:
        refusal: What counts as a refusal.
        within_ms: The declared latency bound in milliseconds; None leaves `answered_within` out.
    """

    refusal: RefusalRule = field(default_factory=RefusalRule)
    within_ms: float | None = None

    def read(self, record: Record, item: GoldItem | None, grounded: bool | None = None) -> Key:
        """The facts of one request.

        Args:
            record: The request.
            item: Its gold item; None where it has none.
            grounded: Whether the claim is grounded; None where text was not captured.
        """
        answer = record.answer_json
        citations = answer.citations if answer is not None else None
        flags = self._outcome(record, item, answer.claim if answer is not None else None, citations)
        if grounded is not None or self.within_ms is not None:
            flags |= self._measured(record, grounded)
        flags |= _cut(record) if record.contexts or record.facts is not None else 0
        verdicts = 0
        if record.verdicts is not None:
            flags |= VERDICTS
            verdicts = bits_of(record.verdicts)
        ids, length = record.retrieved_ids, 0
        seen: set[str] | frozenset[str] = _NONE
        if ids is not None:
            seen = set(ids)
            length = len(seen)
            if length != len(ids):
                ids = list(dict.fromkeys(ids))
            flags |= scope(citations, seen)
        if item is None:
            return (flags, 0, length, 0, 0, verdicts, ())
        flags |= item.offers
        if not flags & HAS_GOLD_IDS:
            return self._by_section_or_text(record, item, ids, flags, verdicts)
        wanted, candidates = item.ids, 0
        if citations and not wanted.isdisjoint(citations):
            flags |= HITS
        if record.candidate_ids is not None:
            flags |= CANDIDATES
            before = list(dict.fromkeys(record.candidate_ids))
            candidates = rank_bits(before, set(before), wanted)
        if ids is None:
            return (flags, len(wanted), 0, 0, candidates, verdicts, ())
        return (flags | RANKED, len(wanted), length, rank_bits(ids, seen, wanted), candidates, verdicts, ())

    def _measured(self, record: Record, grounded: bool | None) -> int:
        """The flags of groundedness and of the latency bound."""
        flags = 0 if grounded is None else GROUNDED_KNOWN | GROUNDED if grounded else GROUNDED_KNOWN
        if self.within_ms is None:
            return flags
        latency = record.latency_ms
        if latency is None or latency.total is None:
            return flags | BOUNDED
        return flags | BOUNDED | TIMED | (WITHIN if latency.total <= self.within_ms else 0)

    def _outcome(self, record: Record, item: GoldItem | None, claim: str | None, citations: list[str] | None) -> int:
        """The flags of the answer's text and form."""
        flags = 0 if citations is None else COMPLIANT
        if record.error:
            return ERROR
        facts = record.facts
        if claim is None or (facts is not None and redacted(record, "claim")):  # mostly there are none: spare the call
            if facts is not None:
                told = self._told(facts, item)
                # An own-words refusal with nothing cited has left the template, whatever list it carries.
                return told | (flags if citations or not told & REFUSAL_LIKE else 0)
            return flags | OUTCOME_UNKNOWN if record.partial and record.answer_json is None else flags
        claim = claim.strip()
        if len(claim) > READ:
            claim, flags = claim[:READ], flags | CLAIM_CUT
        folded = claim.lower() if claim.isascii() else fold(claim)
        if not folded:
            return flags | TEXT
        refusal = self.refusal
        if refusal.is_token(folded):
            return REFUSED | TEXT | COMPLIANT | CLAIM_KNOWN
        if refusal.is_like(folded):
            # An own-words refusal with nothing cited has left the template, whatever list it carries.
            flags = (flags if citations else flags & ~COMPLIANT) | REFUSAL_LIKE | TEXT
            flags |= REFUSED if refusal.matcher_counts else SHIPPED
        else:
            flags |= SHIPPED | TEXT
        return flags if item is None or not item.answerable else flags | _contained(folded, item)

    @staticmethod
    def _told(told: TextFacts, item: GoldItem | None) -> int:
        """The same flags from decisions made where the text was."""
        if told.refused is None and told.answered is None:
            return OUTCOME_UNKNOWN
        flags = 0
        if told.refused:
            flags = REFUSED if told.refusal_like else REFUSED | COMPLIANT
        elif told.answered is not False:
            flags = SHIPPED
        if told.refusal_like is not None:
            flags |= TEXT | REFUSAL_LIKE if told.refusal_like else TEXT
        if item is None or not item.answerable:
            return flags
        if told.gold_version is not None and told.gold_version != item.set_version:
            return flags | WRONG_GOLD_VERSION
        compared = told.gold_version is not None and told.cut is not None and "claim" in told.cut
        if told.contains_claim is not None or told.refused or compared:
            flags |= CLAIM_KNOWN
            flags |= CONTAINS_CLAIM if told.contains_claim else 0
            flags |= CONTAINS_GOLD_CLAIM if told.contains_gold_claim else 0
        return flags

    @staticmethod
    def _by_section_or_text(
        record: Record, item: GoldItem, ids: Sequence[str] | None, flags: int, verdicts: int
    ) -> Key:
        """The facts of an item whose documents are named by section or by text."""
        if not item.answerable:
            return (flags, 0, len(ids or ()), 0, 0, verdicts, ())
        if item.sections:
            if ids is None:
                return (flags, 0, 0, 0, 0, verdicts, ())
            prefixes = tuple(item.sections)
            return (flags | RANKED, 0, len(ids), bits_of(name.startswith(prefixes) for name in ids), 0, verdicts, ())
        if record.contexts is None or not item.texts or redacted(record, "contexts"):
            return (flags, len(item.texts), len(ids or ()), 0, 0, verdicts, ())
        ranks = match_texts(record.contexts, item)
        if ranks is None:
            return (flags, len(item.texts), len(ids or ()), 0, 0, verdicts, ())
        relevant, found = ranks
        return (flags | RANKED, len(item.texts), len(record.contexts), relevant, 0, verdicts, found)


def _cut(record: Record) -> int:
    """The flags of contexts that are not read to their end, and of texts that were not where they were read."""
    contexts = record.contexts
    # The longest decides nearly always, and is found without a call of Python's own.
    flags = CONTEXTS_CUT if contexts and max(map(len, contexts)) > READ and any(map(is_cut, contexts)) else 0
    told = record.facts
    if told is not None and told.cut is not None:
        flags |= (CLAIM_CUT if "claim" in told.cut else 0) | (CONTEXTS_CUT if "contexts" in told.cut else 0)
    return flags


def _contained(folded: str, item: GoldItem) -> int:
    """The flags of what a folded claim says of the gold claim."""
    flags = CLAIM_KNOWN | CONTAINS_CLAIM if item.contained_in(folded) else CLAIM_KNOWN
    for phrase in item.gold_phrases:
        if phrase in folded:
            flags |= CONTAINS_GOLD_CLAIM
    return flags


def scope(citations: Sequence[str] | None, seen: set[str] | frozenset[str]) -> int:
    """The flags of a list of distinct retrieved ids and of what was cited from it."""
    flags = IDS if seen else IDS | EMPTY
    if not citations:
        return flags | IN_SCOPE
    if seen.issuperset(citations):
        return flags | IN_SCOPE | CITES_RETRIEVED
    return flags if seen.isdisjoint(citations) else flags | CITES_RETRIEVED


def rank_bits(ids: Sequence[str], seen: set[str] | frozenset[str], wanted: frozenset[str]) -> int:
    """Bit r-1 for every wanted id at rank r.

    Args:
        ids: In rank order, each once.
        seen: The same ids as a set.
        wanted: The gold ids.
    """
    bits = 0
    if len(wanted) <= FEW:
        for name in wanted:
            if name in seen:
                bits |= 1 << ids.index(name)
    else:
        for index, name in enumerate(ids[:DEPTH]):
            if name in wanted:
                bits |= 1 << index
    return bits & _DEPTH_BITS


def bits_of(relevant: Iterable[bool]) -> int:
    """Bit r-1 for every true value at place r."""
    return sum(1 << index for index, flag in enumerate(relevant) if flag) & _DEPTH_BITS


def match_texts(contexts: Sequence[str], item: GoldItem) -> tuple[int, tuple[int, ...]] | None:
    """Which contexts hold a gold text, and where each gold text is found first.

    Returns:
        Bit r-1 for every relevant context, and the sorted first ranks of the gold texts that were found; None where
        the rest of a context that is cut may hold one.
    """
    first: dict[str, int] = {}
    relevant, exact = 0, item.match == "exact"
    for rank, whole in enumerate(contexts[:DEPTH], start=1):
        context = normalise_context(head(whole))
        held = [text for text in item.texts if (text == context if exact else text in context)]
        if is_cut(whole) and (exact or len(held) < len(item.texts)):
            return None
        if held:
            relevant |= 1 << (rank - 1)
        for text in held:
            first.setdefault(text, rank)
    return relevant, tuple(sorted(first.values()))
