"""Checks of a gold set that could be read: contradictions, and items that measure less than they seem to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from ragmon.core.errors import shorten
from ragmon.core.gold_item import GoldItem
from ragmon.core.text import ANYWHERE, contains_phrase, normalise_question
from ragmon.gold.sets import GoldSet
from ragmon.stats.intervals import needed_for_pass

Severity = Literal["error", "warning", "info"]

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")
"""The worst first."""

FLOORS: Final = (("answer_precision", 0.80), ("citation_hit_rate", 0.75))
CEILINGS: Final = (("over_refusal_rate", 0.10),)
UNDER_REFUSAL: Final = ("under_refusal_rate", 0.05)
"""Gates that a set should be large enough to prove: those of the preset `wfgy-eval`."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One problem.

    Attributes:
        qid: The item; None for the set as a whole.
        severity: error (the item contradicts itself or another), warning (it measures less than it seems), info.
        message: What was found.
        hint: How to correct it.
    """

    qid: str | None
    severity: Severity
    message: str
    hint: str


def lint(gold: GoldSet) -> list[LintFinding]:
    """Check a gold set.

    Args:
        gold: A set that was read without an error.

    Returns:
        Findings, the worst first; within a severity grouped by kind, in the order of the items.

    >>> [finding.message for finding in lint(GoldSet("g", (GoldItem("a", "Why?", True, ["so"], None, ["d1"]),)))][-1]
    'all substrings are shorter than 5 characters'
    """
    findings = [finding for rule in _RULES for finding in rule(gold)]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def _negatives_in_gold(gold: GoldSet) -> Iterator[LintFinding]:
    for item in gold:
        common_ids = sorted(item.ids.intersection(item.negatives))
        if common_ids:
            hint = "an id is either gold or a negative: drop it from one list"
            yield LintFinding(item.qid, "error", f"negatives that are also gold: {shorten(common_ids)}", hint)


def _shared_wordings(gold: GoldSet) -> Iterator[LintFinding]:
    questions = [(item, item.question, "question") for item in gold]
    paraphrases = [(item, wording, "paraphrase") for item in gold for wording in item.paraphrases]
    owners: dict[str, GoldItem] = {}
    for item, wording, kind in questions + paraphrases:
        key = normalise_question(wording)
        owner = owners.setdefault(key, item)
        if not key or owner is item:
            continue
        message = f"{kind} {shorten(wording)} is also asked by {shorten(owner.qid)}"
        if owner.answerable != item.answerable:
            message += ", and only one of them is answerable"
            yield LintFinding(item.qid, "error", message, "no answer is right for both: keep one, or tell them apart")
        else:
            yield LintFinding(
                item.qid, "warning", message, "by its text it matches neither: reword one, or send the qid"
            )


def _gold_of_unanswerables(gold: GoldSet) -> Iterator[LintFinding]:
    for item in gold:
        fields = {
            "gold_claim_substr": item.claim_substrings,
            "gold_claim": item.gold_claim,
            "gold_citations": item.citations,
            "gold_contexts": item.contexts,
        }
        present = [name for name, value in fields.items() if value]
        if present and not item.answerable:
            hint = "its one right answer is the refusal: drop them, or set answerable to true"
            yield LintFinding(item.qid, "warning", f"unanswerable, with {' and '.join(present)}", hint)


def _without_substrings(gold: GoldSet) -> Iterator[LintFinding]:
    answerable = _answerable(gold)
    lacking = [item for item in answerable if not item.phrases]
    hint = 'name a phrase every right answer contains: ["rejects null keys"]'
    finding = LintFinding(None, "warning", "no gold_claim_substr, answer_precision stays unassessed", hint)
    yield from _per_item(finding, lacking, answerable)


def _without_citations(gold: GoldSet) -> Iterator[LintFinding]:
    answerable = _answerable(gold)
    lacking = [item for item in answerable if not item.ids]
    message = "no gold_citations, answer_precision and citation_hit_rate stay unassessed"
    finding = LintFinding(None, "warning", message, 'name the documents that hold the answer: ["p1#2"]')
    yield from _per_item(finding, lacking, answerable)


def _without_question(gold: GoldSet) -> Iterator[LintFinding]:
    lacking = [item for item in gold if not normalise_question(item.question)]
    finding = LintFinding(None, "info", "no question text", "it is matched by its qid only, and no probe can ask it")
    yield from _per_item(finding, lacking, gold.items)


def _per_item(finding: LintFinding, items: Sequence[GoldItem], out_of: Sequence[GoldItem]) -> Iterator[LintFinding]:
    """The finding once for each item, or once for the set where it applies to all of several items."""
    if 1 < len(items) == len(out_of):
        yield replace(finding, message=f"all {len(items)} {_answerable_prefix(items)}items: {finding.message}")
        return
    for item in items:
        yield replace(finding, qid=item.qid)


def _answerable_prefix(items: Sequence[GoldItem]) -> str:
    return "answerable " if all(item.answerable for item in items) else ""


def _short_substrings(gold: GoldSet) -> Iterator[LintFinding]:
    for item in _answerable(gold):
        if item.phrases and all(len(phrase) < ANYWHERE for phrase in item.claim_substrings or ()):
            hint = "ragmon matches them at word boundaries; the published seed 000 scorer can never match them"
            yield LintFinding(item.qid, "info", f"all substrings are shorter than {ANYWHERE} characters", hint)


def _nested_substrings(gold: GoldSet) -> Iterator[LintFinding]:
    for item in _answerable(gold):
        pairs = (
            (longer, shorter)
            for i, longer in enumerate(item.phrases)
            for j, shorter in enumerate(item.phrases)
            if i != j and contains_phrase(longer, shorter) and (longer != shorter or i > j)
        )
        for longer, shorter in pairs:
            message = f"substring {shorten(longer)} contains {shorten(shorter)}"
            yield LintFinding(
                item.qid, "info", message, "any of them makes the claim right: the longer one adds nothing"
            )
            break


def _too_few_items(gold: GoldSet) -> Iterator[LintFinding]:
    answerable = len(_answerable(gold))
    gates = [(name, ">=", limit, "answerable", answerable) for name, limit in FLOORS]
    gates += [(name, "<=", limit, "answerable", answerable) for name, limit in CEILINGS]
    gates.append((UNDER_REFUSAL[0], "<=", UNDER_REFUSAL[1], "unanswerable", len(gold) - answerable))
    for metric, sign, limit, kind, count in gates:
        needed = needed_for_pass(limit, at_least=sign == ">=")
        if needed is not None and count < needed:
            message = f"too few {kind} items to prove {metric} {sign} {limit:.2f}: {count}, and it takes {needed}"
            hint = f"a flawless run over fewer than {needed} is still compatible with a rate on the wrong side"
            yield LintFinding(None, "warning", message, hint)


def _answerable(gold: GoldSet) -> list[GoldItem]:
    return [item for item in gold if item.answerable]


_RULES: Final[tuple[Callable[[GoldSet], Iterator[LintFinding]], ...]] = (
    _negatives_in_gold,
    _shared_wordings,
    _too_few_items,
    _gold_of_unanswerables,
    _without_substrings,
    _without_citations,
    _without_question,
    _short_substrings,
    _nested_substrings,
)
