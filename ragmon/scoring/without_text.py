"""An answer without its texts: what a label needs of it, where it travels to whoever joins the two.

Question, contexts and claim go; decisions about them, made here, take their place (`TextFacts`). With its label such an
answer counts exactly as the whole one does, because the gold item that a label implies has no phrases to be searched.
"""

from __future__ import annotations

from msgspec.structs import replace

from ragmon.core import constants
from ragmon.core.record import Answer, Record, TextFacts, is_redacted
from ragmon.core.refusal import RefusalRule
from ragmon.core.text import READ, fold
from ragmon.metrics import facts as bits
from ragmon.scoring.membership import question_of
from ragmon.scoring.scorer import Scorer
from ragmon.stats import MICRO


def without_text(answer: Record, scorer: Scorer) -> Record:
    """An answer without question, contexts and claim; a claim that is the refusal token alone stays.

    User and tags stay as well: an erasure goes by them.

    Args:
        answer: The answer.
        scorer: Has the rules by which it is scored.
    """
    rules = scorer.rules_of(answer.pipeline or constants.DEFAULT_PIPELINE)
    measured, grounded = scorer.measured(answer)
    flags = rules.facts.read(answer, None, grounded)[0]
    given = answer.answer_json
    claim = None if given is None else given.claim
    is_token = claim is not None and _is_token(claim, rules.facts.refusal)
    facts = _facts(answer, claim, flags, is_token=is_token)
    facts.grounded, facts.question_hash = grounded, question_of(answer) or None
    return replace(
        answer,
        kind=None,
        q=None,
        qid=None,
        matched=None,
        contexts=None,
        scores=None,
        exported=None,
        parent_span_id=None,
        answer_json=None if given is None else Answer(claim if is_token else None, given.citations),
        facts=None if facts == TextFacts() else facts,
        measures={name: n / MICRO for name, n in measured.items()} | (answer.measures or {}) or None,
    )


def _is_token(claim: str, refusal: RefusalRule) -> bool:
    return refusal.is_token(fold(claim.strip()[:READ]))


def _facts(answer: Record, claim: str | None, flags: int, *, is_token: bool) -> TextFacts:
    """The decisions that take the place of the texts."""
    facts = TextFacts() if answer.facts is None else replace(answer.facts)
    if is_token or (claim is None and answer.facts is not None) or is_redacted(answer, "claim"):
        return _with_cuts(facts, flags)
    if claim is None:
        # With facts an outcome that they do not tell is unknown; without, there simply is no answer.
        facts.answered = None if flags & bits.OUTCOME_UNKNOWN else False
        return _with_cuts(facts, flags)
    facts.answered = bool(flags & (bits.SHIPPED | bits.REFUSED))
    facts.refused, facts.refusal_like = bool(flags & bits.REFUSED), bool(flags & bits.REFUSAL_LIKE)
    facts.gold_version = facts.contains_gold_claim = None
    facts.contains_claim = False if flags & bits.SHIPPED else None
    return _with_cuts(facts, flags)


def _with_cuts(facts: TextFacts, flags: int) -> TextFacts:
    cuts = {"claim": bits.CLAIM_CUT, "contexts": bits.CONTEXTS_CUT}
    facts.cut = [name for name, flag in cuts.items() if flags & flag] or None
    return facts
