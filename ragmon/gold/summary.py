"""What a gold set holds, in numbers."""

from __future__ import annotations

from collections import Counter
from typing import TypedDict

from ragmon.gold.sets import GoldSet


class Stats(TypedDict):
    """Counts of a gold set; `with_…` count answerable items, `tags` all items by tag and value."""

    name: str
    version: str
    items: int
    answerable: int
    unanswerable: int
    with_substrings: int
    with_gold_claim: int
    with_citations: int
    with_contexts: int
    with_sections: int
    tags: dict[str, dict[str, int]]


def stats(gold: GoldSet) -> Stats:
    """Count what a set holds.

    >>> from ragmon.core.gold_item import GoldItem
    >>> counts = stats(GoldSet("g", (GoldItem("a", "Why?", answerable=False, tags={"lang": "en"}),)))
    >>> counts["items"], counts["answerable"], counts["tags"]
    (1, 0, {'lang': {'en': 1}})
    """
    answerable = [item for item in gold if item.answerable]
    tags = Counter((tag, value) for item in gold for tag, value in item.tags.items())
    by_tag: dict[str, dict[str, int]] = {}
    for (tag, value), count in sorted(tags.items()):
        by_tag.setdefault(tag, {})[value] = count
    return {
        "name": gold.name,
        "version": gold.version,
        "items": len(gold),
        "answerable": len(answerable),
        "unanswerable": len(gold) - len(answerable),
        "with_substrings": sum(1 for item in answerable if item.phrases),
        "with_gold_claim": sum(1 for item in answerable if item.gold_claim),
        "with_citations": sum(1 for item in answerable if item.ids),
        "with_contexts": sum(1 for item in answerable if item.texts),
        "with_sections": sum(1 for item in answerable if item.sections),
        "tags": by_tag,
    }
