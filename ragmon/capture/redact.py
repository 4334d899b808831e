"""How much of a record's text may leave the process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ragmon import facts as bits
from ragmon import names
from ragmon.contract import Answer, Record, TextFacts
from ragmon.gold import GoldIndex
from ragmon.item import GoldItem
from ragmon.metrics.base import Metric
from ragmon.metrics.grounding import DEFAULT_THRESHOLD, Groundedness
from ragmon.reader import FactReader

Content = Literal["none", "full"]


@dataclass(frozen=True)
class Redaction:
    """What of one pipeline's records may leave the process.

    With `none` every text is replaced by what was decided about it: whether it was a refusal, the measured scores, and,
    where the gold set is at hand, which item was asked and whether the claim contains its gold claim. Ids, flags, times
    and tags travel.

    Args:
        content: Of user traffic.
        probe_content: Of probes; gold questions are not user data.
        gold: The gold sets, if the application has them.
        facts: The refusal rule.
        grounded_threshold: From which groundedness an answer counts as grounded.
        measured: The metrics that read text.
    """

    content: Content = "none"
    probe_content: Content = "full"
    gold: GoldIndex = field(default_factory=GoldIndex)
    facts: FactReader = field(default_factory=FactReader)
    grounded_threshold: float = DEFAULT_THRESHOLD
    measured: tuple[Metric, ...] = ()

    def __call__(self, record: Record) -> Record:
        """The record without what the policy keeps back."""
        if (self.probe_content if record.source == names.PROBE else self.content) == "full":
            return record
        item = self.gold.match(record)
        measures = self._measures(record, item)
        answer = record.answer_json
        told = answer is not None and answer.claim is not None
        return msgspec.structs.replace(
            record,
            # The question may be all that tells which gold item was asked.
            qid=record.qid if item is None else item.qid,
            q=None,
            contexts=None,
            answer_json=None if answer is None else Answer(claim=None, citations=answer.citations),
            facts=self._facts(record, item, measures) if told else record.facts,
            measures=measures or None,
        )

    def _measures(self, record: Record, item: GoldItem | None) -> dict[str, float]:
        """The scores that need the text; one that was measured already stands."""
        found = dict(record.measures or {})
        for metric in self.measured:
            score = None if metric.key in found else metric.measure(record, item)
            if score is not None and math.isfinite(score):
                found[metric.key] = score
        return found

    def _facts(self, record: Record, item: GoldItem | None, measures: Mapping[str, float]) -> TextFacts:
        """What the text says, decided here because it does not travel."""
        flags = self.facts.read(record, item)[0]
        told = TextFacts(
            answered=bool(flags & (bits.SHIPPED | bits.REFUSED)),
            refused=bool(flags & bits.REFUSED),
            refusal_like=bool(flags & bits.REFUSAL_LIKE),
        )
        if item is not None and flags & bits.CLAIM_KNOWN:
            told.gold_version = item.set_version
            told.contains_claim = bool(flags & bits.CONTAINS_CLAIM)
            told.contains_gold_claim = bool(flags & bits.CONTAINS_GOLD_CLAIM)
        score = measures.get(Groundedness.name)
        told.grounded = None if score is None else score >= self.grounded_threshold
        return told
