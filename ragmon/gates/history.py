"""Over time: the value and the interval of gates in each of many windows; and what the items of gold show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragmon.core.policy import Policy
from ragmon.gates.evaluate import evaluate
from ragmon.scoring.ratings import Raters
from ragmon.scoring.snapshot import POINT, ItemPoint, SetPipeline, Snapshot
from ragmon.stats.intervals import flip_chance, tail_chance

GateKey = tuple[str, str]
"""A pipeline and the name of one of its gates."""


@dataclass(frozen=True)
class GatePoint:
    """A gate in one window.

    Attributes:
        end: The end of the window, seconds since the epoch.
        value: The estimate; None without data.
        n: Requests in the denominator.
        source: What was judged.
    """

    end: int
    value: float | None
    lower: float | None
    upper: float | None
    n: int
    source: str


@dataclass(frozen=True)
class TimeSpan:
    """A span of time up to now, in equal windows.

    Attributes:
        name: Its name in addresses.
        words: What a reader calls it.
        step: The length of a window, seconds.
    """

    name: str
    words: str
    seconds: int
    step: int


class ChangeMark(NamedTuple):
    """A change that a gate's value may follow.

    Attributes:
        ts: When, seconds since the epoch.
        kind: What changed: `build`, `index`, `gold NAME` or `configuration`.
        name: To what; "" where there is nothing to name.
    """

    ts: float
    kind: str
    name: str = ""


@dataclass(frozen=True)
class GateHistory:
    """A gate over a span of time.

    Attributes:
        now: Its end, seconds since the epoch.
        alarms: When its alarm fired: from and to, seconds since the epoch.
        marks: What changed meanwhile, in order of time.
    """

    span: TimeSpan
    now: float
    points: list[GatePoint]
    alarms: Sequence[tuple[float, float]] = ()
    marks: Sequence[ChangeMark] = ()

    @property
    def values(self) -> list[float]:
        """The values that are not missing, in order of time."""
        return [point.value for point in self.points if point.value is not None]


def gate_points(snapshot: Snapshot, policies: Iterable[Policy]) -> dict[GateKey, GatePoint]:
    """The points of every gate in one window. Gates on distinct values have none: those are not counted by time."""
    points: dict[GateKey, GatePoint] = {}
    for policy in policies:
        gates = (replace(gate, window=POINT) for gate in policy.gates if gate.kind != "distinct")
        at_point = replace(policy, gates=tuple(gates))
        for outcome in evaluate(snapshot, at_point):
            point = GatePoint(
                int(snapshot.now) + 1, outcome.value, outcome.lower, outcome.upper, outcome.n, outcome.source
            )
            points[outcome.gate.pipeline, outcome.gate.name] = point
    return points


class ItemShare(NamedTuple):
    """How often an item was answered rightly (`right`, `wrong`, `unknown` as in `ItemPoint`)."""

    qid: str
    right: int
    wrong: int
    unknown: int

    @property
    def judged(self) -> int:
        """The answers of which it is known whether they are right."""
        return self.right + self.wrong

    @property
    def share(self) -> float:
        """The share of right answers among those; 1 where there are none."""
        return self.right / self.judged if self.judged else 1.0


class ItemSpread(NamedTuple):
    """How many items of a set were answered how.

    Attributes:
        always, sometimes, never: Items that were answered rightly each time, at times, and not once.
        unknown: Items that were asked, and it is not known of any answer.
    """

    always: int = 0
    sometimes: int = 0
    never: int = 0
    unknown: int = 0

    @property
    def asked(self) -> int:
        """How many items were asked."""
        return sum(self)


class FlippedItem(NamedTuple):
    """An item that was mostly right and is mostly wrong, or the other way round.

    Attributes:
        before, after: Its answers in both spans.
        since: When the step or hour began from which on it has been as it is now, seconds since the epoch.
        until: When that step or hour ended.
        points: Its answers in order of time.
    """

    qid: str
    before: ItemShare
    after: ItemShare
    since: int
    until: int
    points: Sequence[ItemPoint]

    @property
    def broke(self) -> bool:
        """Whether it is wrong now."""
        return self.after.share < self.before.share

    @property
    def order(self) -> tuple[bool, float, str]:
        """Its place: those that broke first, and of these what chance explains least."""
        right, judged = self.before.right + self.after.right, self.before.judged + self.after.judged
        return not self.broke, tail_chance(right, judged, self.after.judged, self.after.right), self.qid


@dataclass(frozen=True)
class ItemFindings:
    """What the items of a set show of one pipeline.

    Attributes:
        hardest: The items with the lowest share of right answers, the lowest first; of equal ones the most asked.
        wrong: How many items were answered wrongly at least once.
        compared: How many items were judged in both spans.
        broke: How many of these are wrong now.
        by_chance: How many items would flip on average if nothing had changed, and their answers came in random order.
    """

    spread: ItemSpread
    hardest: Sequence[ItemShare] = ()
    wrong: int = 0
    compared: int = 0
    flips: Sequence[FlippedItem] = ()
    flipped: int = 0
    broke: int = 0
    by_chance: float = 0.0


@dataclass(frozen=True)
class GoldFindings:
    """What is known of gold items and of labels, beside what a snapshot has.

    Attributes:
        span: The last part of the time, which is compared with what was before it.
        begin: The start of the first step or hour that is kept, seconds since the epoch; None where no item was asked.
        cut: Where the last part begins.
        raters: Who rated answers in the last days.
        labellable: By pipeline, the answers to users of these days that are in the uniform sample and may be rated.
        days: How many days these are.
    """

    span: TimeSpan
    begin: int | None
    cut: float
    now: float
    sets: Mapping[SetPipeline, ItemFindings]
    raters: Raters
    labellable: Mapping[str, int]
    days: int


def item_findings(points: Mapping[str, Sequence[ItemPoint]], cut: float, most: int) -> ItemFindings:
    """The hardest items, and those that flipped.

    Args:
        points: The answers to each item.
        cut: What begins before it is compared with what begins later, seconds since the epoch.
        most: How many items of either kind are wanted.

    >>> item_findings({"q": [ItemPoint(0, 10, right=3), ItemPoint(10, 20, wrong=1)]}, 10, 5).flips[0].since
    10
    """
    shares = [_share(qid, of_item) for qid, of_item in points.items()]
    spread = ItemSpread(
        always=sum(1 for share in shares if share.right and not share.wrong),
        sometimes=sum(1 for share in shares if share.right and share.wrong),
        never=sum(1 for share in shares if share.wrong and not share.right),
        unknown=sum(1 for share in shares if not share.judged),
    )
    hard = sorted((s for s in shares if s.wrong), key=lambda s: (s.share, -s.judged, s.qid))
    compared = []
    for qid, of_item in points.items():
        before = _share(qid, (point for point in of_item if 0 <= point.begin < cut))
        after = _share(qid, (point for point in of_item if point.begin >= max(0, cut)))
        if before.judged and after.judged:
            compared.append((before, after))
    flips = [
        _flip(before, after, points[after.qid])
        for before, after in compared
        if (before.right - before.wrong) * (after.right - after.wrong) < 0
    ]
    flips.sort(key=lambda flip: flip.order)
    return ItemFindings(
        spread=spread,
        hardest=hard[:most],
        wrong=len(hard),
        compared=len(compared),
        flips=flips[:most],
        flipped=len(flips),
        broke=sum(flip.broke for flip in flips),
        by_chance=sum(
            flip_chance(before.right + after.right, before.judged + after.judged, after.judged)
            for before, after in compared
        ),
    )


def oldest(points: Iterable[Sequence[ItemPoint]]) -> int | None:
    """The start of the first step or hour with an answer, seconds since the epoch; None without one."""
    return min((point.begin for of_item in points for point in of_item if point.begin >= 0), default=None)


def _share(qid: str, points: Iterable[ItemPoint]) -> ItemShare:
    right = wrong = unknown = 0
    for point in points:
        right, wrong, unknown = right + point.right, wrong + point.wrong, unknown + point.unknown
    return ItemShare(qid, right, wrong, unknown)


def _flip(before: ItemShare, after: ItemShare, points: Sequence[ItemPoint]) -> FlippedItem:
    # The answers with a time, those of the same step or hour added up.
    sums: dict[tuple[int, int], ItemPoint] = {}
    for point in points:
        if point.begin >= 0:
            edges = (point.begin, point.end)
            own = sums.get(edges, ItemPoint(*edges))
            right, wrong, unknown = own.right + point.right, own.wrong + point.wrong, own.unknown + point.unknown
            sums[edges] = ItemPoint(*edges, right, wrong, unknown)
    merged, side = [sums[edges] for edges in sorted(sums)], after.right - after.wrong
    since = until = 0
    for point in reversed(merged):
        lead = (point.right - point.wrong) * side
        if lead < 0 and since:
            break
        if lead > 0:
            since, until = point.begin, point.end
    return FlippedItem(after.qid, before, after, since, until, merged)
