"""The difference between two versions of a gold set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ragmon.core.gold_item import GoldItem
from ragmon.gold.freeze import FrozenGoldSet
from ragmon.gold.sets import GoldSet

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
    """An item both versions have, with different content.

    Attributes:
        qid: The item.
        fields: Names of the fields that differ, as gold files spell them; empty where a frozen set is compared, which
            holds only fingerprints.
    """

    qid: str
    fields: tuple[str, ...]

    @property
    def mutated(self) -> bool:
        """Whether the qid now names another question."""
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
        """Whether both versions have the same content."""
        return self.old_version == self.new_version


def diff(old: GoldSet | FrozenGoldSet, new: GoldSet | FrozenGoldSet) -> Diff:
    """Compare two versions of a gold set; the order of items does not matter.

    Args:
        old: A gold set, or a frozen one.
        new: A later version of it.

    >>> one, two = (GoldItem("a", question, answerable=False) for question in ("Why?", "How?"))
    >>> diff(GoldSet("g", (one,)), GoldSet("g", (two,))).changed
    (ItemChange(qid='a', fields=('question',)),)
    """
    before, after = _fingerprints(old), _fingerprints(new)
    common = [qid for qid in after if qid in before]
    old_items, new_items = _items(old), _items(new)
    changed = tuple(
        ItemChange(qid, _changed_fields(old_items[qid], new_items[qid]) if old_items and new_items else ())
        for qid in common
        if before[qid] != after[qid]
    )
    return Diff(
        added=tuple(qid for qid in after if qid not in before),
        removed=tuple(qid for qid in before if qid not in after),
        changed=changed,
        unchanged=len(common) - len(changed),
        old_version=old.version,
        new_version=new.version,
    )


def _fingerprints(gold: GoldSet | FrozenGoldSet) -> Mapping[str, str]:
    return gold.fingerprints if isinstance(gold, FrozenGoldSet) else {item.qid: item.fingerprint for item in gold}


def _items(gold: GoldSet | FrozenGoldSet) -> Mapping[str, GoldItem]:
    return {} if isinstance(gold, FrozenGoldSet) else {item.qid: item for item in gold}


def _changed_fields(old: GoldItem, new: GoldItem) -> tuple[str, ...]:
    before, after = _comparable_content(old), _comparable_content(new)
    names = [*before, *(name for name in after if name not in before)]
    return tuple(_FILE_NAMES.get(name, name) for name in names if before.get(name) != after.get(name))


def _comparable_content(item: GoldItem) -> dict[str, object]:
    """The content with lists as tuples: both kinds have the same fingerprint, so they count as equal."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in item.content().items()}
