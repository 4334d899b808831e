"""Judges that changed while their version did not: their scores against their own past, and against people's labels.

Each alarm compares the mean of a block with that of all blocks before, and fires when two blocks in a row differ. It
is a ticket: scores that moved tell of the judge or of the answers; labels tell which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Final, NamedTuple

import msgspec

from ragmon.stats import MICRO

MIN_SHIFT: Final = 0.1
"""Smaller changes of a mean are irrelevant, however certain."""
FULL: Final = 168
"""Blocks of a reference; it learns no more when it has them."""
SILENT: Final = 1440
"""Minutes without a score after which a version is forgotten."""
MAX_VERSIONS: Final = 8
"""Versions of a judge that are compared at the same time; the one that was silent longest gives way."""
PERIOD: Final = 60
"""Minimum length of a block, in minutes."""


class BlockRule(NamedTuple):
    """How blocks are made and compared.

    Attributes:
        size: Observations of a block, at least.
        blocks: Blocks that the reference needs.
        minutes: Minutes that the reference needs.
        z: How many standard errors are too many; more while the reference has few blocks.
    """

    size: int
    blocks: int
    minutes: int
    z: float


SCORES: Final = BlockRule(300, 8, 1440, 4.0)
"""Of scores: a day is the least, because traffic cycles by the day."""
AGREEMENT: Final = BlockRule(50, 2, 0, 3.3)
"""Of label minus score: labels are few."""


class JudgeShift(NamedTuple):
    """How the mean of a judge's scores, or of label minus score, moved.

    Attributes:
        version: The version of the judge; "" where it has none.
        before, after: The mean of the reference, and of the block that was compared last.
        n: The observations of that block.
        begin, end: Its first minute, and the one after its last.
    """

    version: str
    before: float
    after: float
    n: int
    begin: int
    end: int


class Monitor(msgspec.Struct):
    """What an alarm on a change watches, block by block.

    Attributes:
        firing: The minute since which the alarm fires; None while it is silent.
    """

    firing: int | None = None

    def turn(self, minute: int, *, changed: bool) -> bool:
        """Fire as long as what is watched has changed; returns whether the alarm began or ended."""
        if changed == (self.firing is not None):
            return False
        self.firing = minute if changed else None
        return True


Sums = list[int]
"""`[n, sum, sum of squares]` in micro-units."""
_LARGEST: Final = 2**63
"""A sum is saved as a number of 64 bits."""


def _added(own: Sums, other: Sequence[int]) -> Sums:
    """Both together; the first alone where the squares are too many to be saved, of more than nine million scores."""
    both = [one + another for one, another in zip(own, other, strict=True)]
    return both if both[2] < _LARGEST else own


class VersionMonitor(msgspec.Struct):
    """Compares the blocks of one version with its earlier ones.

    Attributes:
        firing: The last two blocks differed to the same side.
        reference: The sums of the blocks it learned.
        blocks: How many.
        means, squares: The sum of their means, and of the squared means.
        block: The open block.
        first, begun, last: The first minute, that of the open block, and the latest with an observation.
        side: 1 or -1 where the last block was too high or too low, else 0.
        before, after, n, begin, end: What was compared last (`JudgeShift`).
    """

    firing: bool = False
    reference: Sums = msgspec.field(default_factory=lambda: [0, 0, 0])
    blocks: int = 0
    means: float = 0.0
    squares: float = 0.0
    block: Sums = msgspec.field(default_factory=lambda: [0, 0, 0])
    first: int = 0
    begun: int = 0
    last: int = 0
    side: int = 0
    before: float = 0.0
    after: float = 0.0
    n: int = 0
    begin: int = 0
    end: int = 0

    def step(self, minute: int, sums: Sequence[int], rule: BlockRule) -> None:
        """Process the observations of a minute."""
        if not self.last:
            self.first = self.begun = minute
        if self.block[0] >= rule.size and minute - self.begun >= PERIOD:
            self._close(minute, rule)
            self.block, self.begun = [0, 0, 0], minute
        self.last = minute
        self.block = _added(self.block, sums)

    def _close(self, minute: int, rule: BlockRule) -> None:
        """Compare the open block with the reference, and learn it where it does not differ."""
        n, total, _ = self.block
        mean = total / n / MICRO
        if self.blocks < rule.blocks or self.begun - self.first < rule.minutes:
            self._learn(mean)
            return
        self.before, self.after = self.reference[1] / self.reference[0] / MICRO, mean
        self.n, self.begin, self.end = n, self.begun, minute
        difference = mean - self.before
        error = 0.0 if self.firing else rule.z * self._error(n, rule)  # what changed stays changed until it is undone
        differs = abs(difference) >= max(MIN_SHIFT, error)
        side = (1 if difference > 0 else -1) if differs else 0
        if side == self.side:
            self.firing = side != 0
        self.side = side
        if not side and self.blocks < FULL:
            self._learn(mean)

    def _error(self, n: int, rule: BlockRule) -> float:
        """The standard error of the difference of a block: by single observations, and by the blocks before.

        Blocks vary more than single observations say where traffic comes in sessions or cycles.
        """
        m, total, squares = self.reference
        variance = max(0.0, squares / m - (total / m) ** 2) / MICRO**2
        within = variance / n + variance / m
        if rule.blocks < SCORES.blocks:
            return sqrt(within)
        k = self.blocks
        between = max(0.0, self.squares - self.means**2 / k) / (k - 1) * (1 + 1 / k)
        return sqrt(max(within, between)) * (1 + 2 / k)

    def _learn(self, mean: float) -> None:
        self.reference = _added(self.reference, self.block)
        self.blocks += 1
        self.means += mean
        self.squares += mean * mean


class JudgeMonitor(Monitor, kw_only=True):
    """Compares the scores of a judge, or its agreement with labels, version by version.

    Attributes:
        metric: The judge's metric.
        labelled: It compares label minus score, not scores.
        versions: By version.
    """

    metric: str
    labelled: bool = False
    versions: dict[str, VersionMonitor] = msgspec.field(default_factory=dict)

    def step(self, minute: int, by_version: Mapping[str, Sequence[int]]) -> bool:
        """Process a minute's `[n, sum, sum of squares]` by version; returns whether the alarm changed."""
        rule = AGREEMENT if self.labelled else SCORES
        for version, sums in sorted(by_version.items()):
            monitor = self.versions.setdefault(version, VersionMonitor())
            monitor.step(minute, sums, rule)
        silent = sorted(self.versions, key=lambda version: (self.versions[version].last, version))[:-MAX_VERSIONS]
        limit = 7 * SILENT if self.labelled else SILENT
        silent += [version for version, monitor in self.versions.items() if monitor.last < minute - limit]
        for version in silent:
            self.versions.pop(version, None)
        return self.turn(minute, changed=any(monitor.firing for monitor in self.versions.values()))

    def shift(self) -> JudgeShift | None:
        """What was compared last: of a version that differs, else of the latest; None before anything was."""
        compared = [(m.firing, m.end, version, m) for version, m in self.versions.items() if m.n]
        if not compared:
            return None
        *_, version, monitor = max(compared, key=lambda entry: entry[:3])
        return JudgeShift(version, monitor.before, monitor.after, monitor.n, monitor.begin, monitor.end)

    def clear(self) -> None:
        """Forget everything: the next blocks are the new reference."""
        self.firing = None
        self.versions.clear()


def alert_name(metric: str, *, labelled: bool) -> str:
    """The name of the alarm.

    >>> alert_name("judge_tone", labelled=True)
    'judge_tone:label:drift'
    """
    return f"{metric}:label:drift" if labelled else f"{metric}:drift"
