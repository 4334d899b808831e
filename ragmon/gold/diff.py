"""What changed between two versions of a gold set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ragmon.core.gold_item import GoldItem
from ragmon.gold.freeze import FrozenGoldSet
from ragmon.gold.sets import GoldSet

MUTATED: Final = "mutated: qids are permanent, give it a new one"
"""What is said of a qid whose question changed: its scores before and after are about different things."""

_IN_FILES: Final = {
    "claim_substrings": "gold_claim_substr",
    "citations": "gold_citations",
    "contexts": "gold_contexts",
}


@dataclass(frozen=True, slots=True)
class ItemChange:
    """An item both versions have, with different content.

    Attributes:
        qid: The item.
        fields: Names of the fields that differ, as gold files spell them; none where a frozen set is compared, which
            holds fingerprints alone.
    """

    qid: str
    fields: tuple[str, ...]

    @property
    def mutated(self) -> bool:
        """Whether the qid now stands for another question."""
        return "question" in self.fields


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference of two versions.

    Attributes:
        added: qids only the new version has, in its order.
        removed: qids only the old version has, in its order.
        changed: Items whose content differs, in the new order.
        unchanged: How many items are the same.
        old_version, new_version: The versions compared.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[ItemChange, ...]
    unchanged: int
    old_version: str
    new_version: str

    @property
    def same(self) -> bool:
        """Whether both versions say the same."""
        return self.old_version == self.new_version


def diff(old: GoldSet | FrozenGoldSet, new: GoldSet | FrozenGoldSet) -> Diff:
    """Compare two versions of a gold set; the order of items does not matter.

    Args:
        old: A gold set, or what was frozen of one.
        new: The same, later.

    >>> one, two = (GoldItem("a", question, answerable=False) for question in ("Why?", "How?"))
    >>> diff(GoldSet("g", (one,)), GoldSet("g", (two,))).changed
    (ItemChange(qid='a', fields=('question',)),)
    """
    before, after = _fingerprints(old), _fingerprints(new)
    both = [qid for qid in after if qid in before]
    was, now = _items(old), _items(new)
    changed = tuple(
        ItemChange(qid, _differing(was[qid], now[qid]) if was and now else ())
        for qid in both
        if before[qid] != after[qid]
    )
    return Diff(
        added=tuple(qid for qid in after if qid not in before),
        removed=tuple(qid for qid in before if qid not in after),
        changed=changed,
        unchanged=len(both) - len(changed),
        old_version=old.version,
        new_version=new.version,
    )


def _fingerprints(gold: GoldSet | FrozenGoldSet) -> Mapping[str, str]:
    return gold.fingerprints if isinstance(gold, FrozenGoldSet) else {item.qid: item.fingerprint for item in gold}


def _items(gold: GoldSet | FrozenGoldSet) -> Mapping[str, GoldItem]:
    return {} if isinstance(gold, FrozenGoldSet) else {item.qid: item for item in gold}


def _differing(was: GoldItem, now: GoldItem) -> tuple[str, ...]:
    before, after = _comparable(was), _comparable(now)
    names = [*before, *(name for name in after if name not in before)]
    return tuple(_IN_FILES.get(name, name) for name in names if before.get(name) != after.get(name))


def _comparable(item: GoldItem) -> dict[str, object]:
    """A list and a tuple of the same values have one fingerprint, so they are no difference."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in item.content().items()}
