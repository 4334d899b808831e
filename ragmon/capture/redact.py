"""How much of a record's text may leave the process."""

from __future__ import annotations

from typing import Literal

import msgspec

from ragmon import facts as bits
from ragmon.contract import Answer, Record, TextFacts
from ragmon.gold import GoldIndex
from ragmon.metrics.grounding import DEFAULT_THRESHOLD, groundedness
from ragmon.reader import FactReader

Content = Literal["none", "full"]


def strip(record: Record, content: Content, gold: GoldIndex | None, reader: FactReader) -> Record:
    """The record without what the policy keeps back.

    With `none` every text is replaced by what was decided about it: whether it was a refusal, and, where the gold set
    is at hand, whether it contains the gold claim. Ids, flags and times travel.

    Args:
        record: With its text.
        content: The policy.
        gold: The gold set, if the application has it.
        reader: The refusal rule.
    """
    if content == "full":
        return record
    answer = record.answer_json
    claim = answer.claim if answer is not None else None
    return msgspec.structs.replace(
        record,
        q=None,
        contexts=None,
        answer_json=None if answer is None else Answer(claim=None, citations=answer.citations),
        facts=_facts(record, gold, reader) if claim is not None else record.facts,
        measures=_measures(record, claim),
    )


def _facts(record: Record, gold: GoldIndex | None, reader: FactReader) -> TextFacts:
    """What the text says, decided here because it does not travel."""
    item = gold.match(record) if gold is not None else None
    flags = reader.read(record, item)[0]
    told = TextFacts(
        answered=bool(flags & (bits.SHIPPED | bits.REFUSED)),
        refused=bool(flags & bits.REFUSED),
        refusal_like=bool(flags & bits.REFUSAL_LIKE),
    )
    if item is not None and flags & bits.CLAIM_KNOWN:
        told.gold_version = item.set_version
        told.contains_claim = bool(flags & bits.CONTAINS_CLAIM)
        told.contains_gold_claim = bool(flags & bits.CONTAINS_GOLD_CLAIM)
    score = _grounding(record)
    told.grounded = None if score is None else score >= DEFAULT_THRESHOLD
    return told


def _grounding(record: Record) -> float | None:
    claim = record.answer_json.claim if record.answer_json is not None else None
    return groundedness(claim, record.contexts) if claim and record.contexts is not None else None


def _measures(record: Record, claim: str | None) -> dict[str, float] | None:
    score = _grounding(record) if claim is not None else None
    return record.measures if score is None else {**(record.measures or {}), "groundedness": score}
