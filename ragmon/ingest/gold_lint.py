"""Checks of a gold set that could be read, and the difference between two versions of a gold set.

A check finds a contradiction, or items that measure less than they seem to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal

from ragmon.core.errors import shorten
from ragmon.core.gold_item import GoldItem
from ragmon.core.text import ANYWHERE, contains_phrase, normalise_question
from ragmon.ingest.gold import FrozenGoldSet, GoldSet
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
    """

    qid: str | None
    severity: Severity
    message: str
    hint: str


def lint(gold: GoldSet) -> list[LintFinding]:
    """Check a gold set; the worst findings come first, within a severity grouped by kind.

    >>> [finding.message for finding in lint(GoldSet("g", (GoldItem("a", "Why?", True, ["so"], None, ["d1"]),)))][-1]
    'all substrings are shorter than 5 characters'
    """
    findings = [*_contradictions(gold), *_too_few_items(gold), *_missing_fields(gold), *_useless_substrings(gold)]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def _contradictions(gold: GoldSet) -> Iterator[LintFinding]:
    for item in gold:
        common_ids = sorted(item.ids.intersection(item.negatives))
        if common_ids:
            hint = "an id is either gold or a negative: drop it from one list"
            yield LintFinding(item.qid, "error", f"negatives that are also gold: {shorten(common_ids)}", hint)
    questions = [(item, item.question, "question") for item in gold]
    paraphrases = [(item, wording, "paraphrase") for item in gold for wording in item.paraphrases]
    owners: dict[str, GoldItem] = {}
    for item, wording, kind in questions + paraphrases:
        key = normalise_question(wording)
        owner = owners.setdefault(key, item)
        if key and owner is not item:
            message = f"{kind} {shorten(wording)} is also asked by {shorten(owner.qid)}"
            if owner.answerable == item.answerable:
                hint = "by its text it matches neither: reword one, or send the qid"
                yield LintFinding(item.qid, "warning", message, hint)
            else:
                message += ", and only one of them is answerable"
                hint = "no answer is right for both: keep one, or tell them apart"
                yield LintFinding(item.qid, "error", message, hint)


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


def _missing_fields(gold: GoldSet) -> Iterator[LintFinding]:
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
    answerable = _answerable(gold)
    message = "no gold_claim_substr, answer_precision stays unassessed"
    hint = 'name a phrase every right answer contains: ["rejects null keys"]'
    lacking = [item for item in answerable if not item.phrases]
    yield from _per_item(LintFinding(None, "warning", message, hint), lacking, answerable)
    message = "no gold_citations, answer_precision and citation_hit_rate stay unassessed"
    hint = 'name the documents that hold the answer: ["p1#2"]'
    lacking = [item for item in answerable if not item.ids]
    yield from _per_item(LintFinding(None, "warning", message, hint), lacking, answerable)
    hint = "it is matched by its qid only, and no probe can ask it"
    lacking = [item for item in gold if not normalise_question(item.question)]
    yield from _per_item(LintFinding(None, "info", "no question text", hint), lacking, gold.items)


def _per_item(finding: LintFinding, items: Sequence[GoldItem], out_of: Sequence[GoldItem]) -> Iterator[LintFinding]:
    """The finding once for each item, or once for the set where it applies to all of several items."""
    if 1 < len(items) == len(out_of):
        kind = "answerable " if all(item.answerable for item in items) else ""
        yield replace(finding, message=f"all {len(items)} {kind}items: {finding.message}")
        return
    for item in items:
        yield replace(finding, qid=item.qid)


def _useless_substrings(gold: GoldSet) -> Iterator[LintFinding]:
    for item in _answerable(gold):
        if item.phrases and all(len(phrase) < ANYWHERE for phrase in item.claim_substrings or ()):
            hint = "ragmon matches them at word boundaries; the published seed 000 scorer can never match them"
            yield LintFinding(item.qid, "info", f"all substrings are shorter than {ANYWHERE} characters", hint)
    for item in _answerable(gold):
        pairs = (
            (longer, shorter)
            for i, longer in enumerate(item.phrases)
            for j, shorter in enumerate(item.phrases)
            if i != j and contains_phrase(longer, shorter) and (longer != shorter or i > j)
        )
        for longer, shorter in islice(pairs, 1):
            message = f"substring {shorten(longer)} contains {shorten(shorter)}"
            hint = "any of them makes the claim right: the longer one adds nothing"
            yield LintFinding(item.qid, "info", message, hint)


def _answerable(gold: GoldSet) -> list[GoldItem]:
    return [item for item in gold if item.answerable]


MUTATED: Final = "mutated: qids are permanent, give it a new one"
"""The message for a qid whose question changed: its scores before and after are about different questions."""

_FILE_NAMES: Final = {
    "claim_substrings": "gold_claim_substr",
    "citations": "gold_citations",
    "contexts": "gold_contexts",
}
"""The names of fields in gold files, where they are different."""


@dataclass(frozen=True, slots=True)
class ItemChange:
    """An item both versions have, with the names of the fields that differ.

    The names are those of gold files. A frozen set holds only fingerprints, so its changes have no names.
    """

    qid: str
    fields: tuple[str, ...]

    @property
    def mutated(self) -> bool:
        """Whether the qid now names another question."""
        return "question" in self.fields


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference of two versions: qids in the order of their version, changed items in the new order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[ItemChange, ...]
    unchanged: int
    old_version: str
    new_version: str

    @property
    def same(self) -> bool:
        """Whether both versions have the same content."""
        return self.old_version == self.new_version


def diff(old: GoldSet | FrozenGoldSet, new: GoldSet | FrozenGoldSet) -> Diff:
    """Compare two versions of a gold set; the order of items does not matter.

    >>> one, two = (GoldItem("a", question, answerable=False) for question in ("Why?", "How?"))
    >>> diff(GoldSet("g", (one,)), GoldSet("g", (two,))).changed
    (ItemChange(qid='a', fields=('question',)),)
    """
    before, after = _fingerprints(old), _fingerprints(new)
    common = [qid for qid in after if qid in before]
    old_items, new_items = _items(old), _items(new)
    changed = []
    for qid in common:
        if before[qid] != after[qid]:
            fields: tuple[str, ...] = ()
            if old_items and new_items:
                was, now = _comparable_content(old_items[qid]), _comparable_content(new_items[qid])
                names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
                fields = tuple(_FILE_NAMES.get(name, name) for name in names)
            changed.append(ItemChange(qid, fields))
    return Diff(
        added=tuple(qid for qid in after if qid not in before),
        removed=tuple(qid for qid in before if qid not in after),
        changed=tuple(changed),
        unchanged=len(common) - len(changed),
        old_version=old.version,
        new_version=new.version,
    )


def _fingerprints(gold: GoldSet | FrozenGoldSet) -> Mapping[str, str]:
    return gold.fingerprints if isinstance(gold, FrozenGoldSet) else {item.qid: item.fingerprint for item in gold}


def _items(gold: GoldSet | FrozenGoldSet) -> Mapping[str, GoldItem]:
    return {} if isinstance(gold, FrozenGoldSet) else {item.qid: item for item in gold}


def _comparable_content(item: GoldItem) -> dict[str, object]:
    """The content with lists as tuples: both kinds have the same fingerprint, so they count as equal."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in item.content().items()}
