"""What changed between two versions of a gold set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ragmon.gold.sets import GoldSet
from ragmon.item import GoldItem

MUTATED: Final = "mutated: qids are permanent, give it a new one"
"""What is said of a qid whose question changed: its scores before and after are about different things."""

_IN_FILES: Final = {
    "claim_substrings": "gold_claim_substr",
    "citations": "gold_citations",
    "contexts": "gold_contexts",
}


@dataclass(frozen=True, slots=True)
class Change:
    """An item both versions have, with different content.

    Attributes:
        qid: The item.
        fields: Names of the fields that differ, as gold files spell them.
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
    changed: tuple[Change, ...]
    unchanged: int
    old_version: str
    new_version: str

    @property
    def same(self) -> bool:
        """Whether both versions say the same."""
        return self.old_version == self.new_version


def diff(old: GoldSet, new: GoldSet) -> Diff:
    """Compare two versions of a gold set; the order of items does not matter.

    >>> one, two = (GoldItem("a", question, answerable=False) for question in ("Why?", "How?"))
    >>> diff(GoldSet("g", (one,)), GoldSet("g", (two,))).changed
    (Change(qid='a', fields=('question',)),)
    """
    before = {item.qid: item for item in old}
    after = {item.qid: item for item in new}
    both = [(before[qid], item) for qid, item in after.items() if qid in before]
    changed = tuple(Change(was.qid, _differing(was, now)) for was, now in both if was.fingerprint != now.fingerprint)
    return Diff(
        added=tuple(qid for qid in after if qid not in before),
        removed=tuple(qid for qid in before if qid not in after),
        changed=changed,
        unchanged=len(both) - len(changed),
        old_version=old.version,
        new_version=new.version,
    )


def _differing(was: GoldItem, now: GoldItem) -> tuple[str, ...]:
    before, after = _comparable(was), _comparable(now)
    names = [*before, *(name for name in after if name not in before)]
    return tuple(_IN_FILES.get(name, name) for name in names if before.get(name) != after.get(name))


def _comparable(item: GoldItem) -> dict[str, object]:
    """A list and a tuple of the same values have one fingerprint, so they are no difference."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in item.content().items()}
