"""Which part explains the change: one that was new when it began, that carries it, or in which alone it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ragmon.core.constants import STEP
from ragmon.scoring.score_table import Stat
from ragmon.why.change import ALPHA, LIKELY, chance, gain
from ragmon.why.levels import apart, level, without
from ragmon.why.look import Look
from ragmon.why.measures import Measure
from ragmon.why.model import Change, How, Suspect
from ragmon.why.parts import BOTH, BUILD, GOLD_VERSION, INDEX, STRATUM, Group
from ragmon.why.sides import Half

MOST: Final = 0.5
"""Share of the requests after the change that a part must hold to be named because it came shortly before."""


class _Four(NamedTuple):
    """A part and the rest, before and after."""

    before: Stat
    after: Stat
    rest_before: Stat
    rest_after: Stat


class _Found(NamedTuple):
    """What speaks against a part."""

    how: How
    evidence: float
    p: float


@dataclass(frozen=True, eq=False)
class Weighing:
    """Weighs parts against the change as a whole.

    Args:
        look: What is looked at.
        measure: What is followed.
        change: When it became worse.
        before: Before the change; None without one.
        after: After it.
        compared: How many parts are weighed.
    """

    look: Look
    measure: Measure
    change: Change
    before: Half | None
    after: Half
    compared: int

    def suspect(self, group: Group) -> Suspect | None:
        """What a part explains; None where it separates nothing that is more than chance."""
        whole = group.before if self.before is None else self.before.stat(self.measure)
        four = _Four(
            group.before,
            group.after,
            without(whole, group.before),
            without(self.after.stat(self.measure), group.after),
        )
        found = [one for one in (*self._carries(group, four), *self._inside(four)) if one.p <= ALPHA]
        if not found:
            return None
        best = min(found, key=lambda one: (one.how == "preceded", -one.evidence))
        return Suspect(
            dimension=group.dimension,
            name=group.name,
            how=best.how,
            evidence=best.evidence,
            p=best.p,
            before=level(four.before),
            after=level(four.after),
            rest_before=level(four.rest_before),
            rest_after=level(four.rest_after),
            share_before=_share(group.records_before, self.before),
            share_after=_share(group.records_after, self.after),
            first_seen=group.first_seen,
        )

    def _carries(self, group: Group, four: _Four) -> Iterator[_Found]:
        """What is in the part is worse than the rest at any time, and there is more of it than before.

        It must explain nearly as much as the cut in time does. One that came before the change and explains less may
        have taken a while to break.
        """
        a, b, c, d = map(self.measure.sums, four)
        inner, outer = a.plus(b), c.plus(d)
        if not b.n or not outer.n or inner.mean >= outer.mean:
            return
        share = _share(group.records_after, self.after)
        if self.before is not None and share <= _share(group.records_before, self.before):
            return
        evidence = gain(inner, outer)
        p, seen, change = chance(evidence, self.compared), group.first_seen, self.change
        if change.earliest is None or change.latest is None:
            yield _Found("carries", evidence, p)
        elif evidence >= change.evidence - LIKELY:
            new = seen is not None and change.earliest - STEP <= seen <= change.latest
            yield _Found("appeared" if new else "carries", evidence, p)
        elif seen is not None and min(self.look.steps) < seen < change.earliest and share >= MOST:
            yield _Found("preceded", evidence, p)

    def _inside(self, four: _Four) -> Iterator[_Found]:
        """The part became worse, and by more than the rest."""
        a, b, *_ = map(self.measure.sums, four)
        if not a.n or not b.n or b.mean >= a.mean:
            return
        z = apart(*four) if self.measure.at_least else -apart(*four)
        further = self.compared * math.erfc(-z / math.sqrt(2)) / 2
        evidence = gain(a, b)
        yield _Found("inside", evidence, max(further, chance(evidence, self.compared)))


def causes(groups: Sequence[Group]) -> list[Group]:
    """The parts that can be a cause: a stratum is what became of a call. A build and an index that go together are one.

    Args:
        groups: All parts.
    """
    together = {group.keys for group in groups if group.dimension == BOTH}
    return [
        group
        for group in groups
        if group.dimension != STRATUM and not (group.dimension in (BUILD, INDEX) and group.keys in together)
    ]


def ranked(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Best first: what was new when the change began, another gold version before all else; then by evidence."""

    def place(one: Suspect) -> tuple[bool, bool, bool, float]:
        return one.how != "appeared", one.dimension != GOLD_VERSION, one.how == "preceded", -one.evidence

    return tuple(sorted(suspects, key=place))


def _share(records: int, half: Half | None) -> float:
    return records / half.whole.count if half is not None and half.whole.count else 0.0
