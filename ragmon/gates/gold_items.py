"""Single gold items: how often each was asked and failed, which are the hardest, and which have changed sides.

A request fails where its own score breaks the threshold of a gate on a metric that needs gold: the requests that the
page of a gate lists. An item has failed in a stretch of time where at least half of its requests failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ragmon.core.policy import Gate
from ragmon.metrics.facts import Key
from ragmon.scoring.score_table import ScoreTable
from ragmon.stats import MICRO

RECENT: Final = 3600.0
"""Seconds before now that are compared with everything before them."""


class ItemCount(NamedTuple):
    """The requests for a gold item in a stretch of time.

    Attributes:
        asked: How many there were.
        failed: How many of them failed.
    """

    asked: int = 0
    failed: int = 0

    def plus(self, other: ItemCount) -> ItemCount:
        """The requests of two stretches together."""
        return ItemCount(self.asked + other.asked, self.failed + other.failed)

    @property
    def fails(self) -> bool:
        """Whether at least half of them failed."""
        return self.asked > 0 and 2 * self.failed >= self.asked


class ItemStretch(NamedTuple):
    """The items of a stretch of time.

    Attributes:
        begin: Its beginning, seconds since the epoch.
        counts: The requests by item.
    """

    begin: float
    counts: Mapping[str, ItemCount]


class FlippedItem(NamedTuple):
    """A gold item that was answered before and fails now, or the other way round.

    Attributes:
        qid: The item.
        fails: Whether it fails now.
        since: The beginning of the stretch in which it changed, seconds since the epoch.
        before, after: Its requests before the last hour and in it.
    """

    qid: str
    fails: bool
    since: float
    before: ItemCount
    after: ItemCount


@dataclass(frozen=True)
class GoldItems:
    """The items of a gold set that a source of a pipeline asked.

    Attributes:
        pipeline, source, gold, version: What was asked, and of whom.
        counts: All requests by item.
        flips: The items that changed sides, those that fail now first, the latest change first.
    """

    pipeline: str
    source: str
    gold: str
    version: str
    counts: Mapping[str, ItemCount]
    flips: Sequence[FlippedItem] = field(default_factory=tuple)

    def hardest(self, most: int) -> list[tuple[str, ItemCount]]:
        """The items that fail most often, as a share of their requests; only such as have failed.

        Args:
            most: How many at the most.
        """
        failed = [(qid, count) for qid, count in self.counts.items() if count.failed]
        return sorted(failed, key=lambda pair: (-pair[1].failed / pair[1].asked, -pair[1].asked, pair[0]))[:most]


def item_counts(
    table: Mapping[str, Mapping[Key, int]], scores: ScoreTable, gates: Sequence[Gate]
) -> dict[str, ItemCount]:
    """The requests by item, of a table of counts by facts.

    Args:
        table: The counts of facts by item.
        scores: Scores facts.
        gates: The gates on metrics that need gold.

    >>> item_counts({}, ScoreTable({}), [])
    {}
    """
    places = {name: place for place, name in enumerate(scores.metrics)}
    judged = [(places[gate.metric], gate) for gate in gates if gate.metric in places]
    fails: dict[Key, bool] = {}
    counts: dict[str, ItemCount] = {}
    for qid, facts in table.items():
        asked = failed = 0
        for key, n in facts.items():
            if key not in fails:
                fails[key] = _fails(scores.scores(key), judged)
            asked += n
            failed += n if fails[key] else 0
        counts[qid] = ItemCount(asked, failed)
    return counts


def _fails(scores: Sequence[object], judged: Iterable[tuple[int, Gate]]) -> bool:
    """Whether one of the gates is broken by the scores of a request; what was not assessed breaks none."""
    return any(isinstance(score := scores[place], int) and not gate.holds(score / MICRO) for place, gate in judged)


def add(stretches: Iterable[Mapping[str, ItemCount]]) -> dict[str, ItemCount]:
    """The requests of several stretches together, by item."""
    total: dict[str, ItemCount] = {}
    for counts in stretches:
        for qid, count in counts.items():
            total[qid] = total[qid].plus(count) if qid in total else count
    return total


def flips(stretches: Sequence[ItemStretch], now: float) -> list[FlippedItem]:
    """The items whose side in the last hour differs from before, those that fail now first, the latest change first.

    Args:
        stretches: The items over time.
        now: The end of the last hour, seconds since the epoch.
    """
    ordered = sorted(stretches)
    before = add(each.counts for each in ordered if each.begin < now - RECENT)
    after = add(each.counts for each in ordered if each.begin >= now - RECENT)
    changed = [qid for qid, count in after.items() if qid in before and count.fails != before[qid].fails]
    found = [
        FlippedItem(qid, after[qid].fails, _since(qid, ordered, fails=after[qid].fails), before[qid], after[qid])
        for qid in changed
    ]
    return sorted(found, key=lambda flip: (not flip.fails, -flip.since, flip.qid))


def _since(qid: str, ordered: Sequence[ItemStretch], *, fails: bool) -> float:
    """The beginning of the first stretch since which an item has always been on its side of now."""
    since = ordered[-1].begin
    for stretch in reversed(ordered):
        count = stretch.counts.get(qid)
        if count is not None:
            if count.fails != fails:
                break
            since = stretch.begin
    return since
