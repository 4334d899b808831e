"""Drift alarms that need no labels: distributions of the traffic, the indexes of each build, and judges that changed.

They are tickets: they report that something changed, never that it is worse. A distribution is compared block by block
with its first block. The mean of a judge's scores is compared with that of all blocks before, under the same version,
and so is label minus score: scores that moved tell of the judge or of the answers; labels tell which.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import log, sqrt
from typing import Final, NamedTuple

import msgspec

from ragmon.alarms.baselines import AlarmSettings
from ragmon.core import constants
from ragmon.scoring.minutes import SHAPES, Minute
from ragmon.stats.histograms import MICRO, add_counts, bucket_edge, decile_edges

INDEX_WINDOW: Final = 60  # minutes within which several indexes under one build are counted together
REFERENCE: Final = 3_000
BLOCK: Final = 300  # observations of the reference; and the minimum of a block that is compared with it
PERIOD: Final = 60  # minimum length in minutes of a block and of the reference
MIN_PSI: Final = 0.1  # shifts below this population stability index are irrelevant, however certain
_CRITICAL: Final = (10.828, 13.816, 16.266, 18.467, 20.515, 22.458, 24.322, 26.124, 27.877)
"""The 99.9 % quantile of chi-squared with 1 to 9 degrees of freedom."""
_SMALL: Final = 0.5  # the count used for an empty bin, because log(0) is undefined
MIN_SHIFT: Final = 0.1  # smaller changes of a mean are irrelevant, however certain
FULL: Final = 168  # blocks of a reference; it learns no more when it has them
SILENT: Final = 1440  # minutes without a score after which a version is forgotten
MAX_VERSIONS: Final = 8
"""Versions of a judge that are compared at the same time; the one that was silent longest gives way."""
Sums = list[int]  # `[n, sum, sum of squares]` in micro-units
_LARGEST: Final = 2**63  # a sum is saved as a number of 64 bits
_DISTRIBUTIONS: Final = {f"{name}:drift": name for name in SHAPES}
"""By alert, the property whose distribution is watched."""


class DriftMonitor(msgspec.Struct):
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


def psi(reference: Sequence[int], block: Sequence[int]) -> float:
    """The population stability index: how far a block's counts by bin moved from those of a reference.

    Source: symmetrised Kullback-Leibler divergence (Jeffreys, Proc. R. Soc. A 186 (1946)) of two histograms.
    """
    m, n = sum(reference), sum(block)
    index = 0.0
    for old, new in zip(reference, block, strict=True):
        p, q = max(old, _SMALL) / m, max(new, _SMALL) / n
        index += (q - p) * log(q / p)
    return index


def has_drifted(reference: Sequence[int], block: Sequence[int]) -> bool:
    """Whether a block drifted: by more than chance explains in 99.9 % of blocks, and by at least `MIN_PSI`.

    Source: without drift, `psi * n * m / (n + m)` is about chi-squared with one degree of freedom less than bins.
    """
    m, n, index = sum(reference), sum(block), psi(reference, block)
    freedom = len(reference) - 1
    return freedom > 0 and index >= MIN_PSI and index * n * m / (n + m) > _CRITICAL[min(freedom, len(_CRITICAL)) - 1]


class Shift(NamedTuple):
    """Where a distribution differs most from its reference.

    Attributes:
        below: A value, in the unit of the property.
        before, after: The share of requests below it, in the reference and in the block.
        n: The requests of the block.
        begin, end: Its first minute, and the one after its last.
    """

    below: float
    before: float
    after: float
    n: int
    begin: int
    end: int


class DistributionMonitor(DriftMonitor):
    """Compares one property of the traffic, block by block, with its first block of at least an hour.

    Attributes:
        edges: The buckets that divide the reference into bins; None before there is one.
        reference: Counts of the reference by bin.
        block: Counts of the open block by log bucket.
        begun: The first minute of the open block.
        compared: Counts by bin of the block that was compared last; empty before there is one.
        compared_from, compared_to: Its first minute, and the one after its last.
    """

    edges: list[int] | None = None
    reference: list[int] = msgspec.field(default_factory=list)
    block: dict[int, int] = msgspec.field(default_factory=dict)
    begun: int | None = None
    compared: list[int] = msgspec.field(default_factory=list)
    compared_from: int = 0
    compared_to: int = 0

    def step(self, minute: int, counts: Mapping[int, int]) -> bool:
        """Process a minute's log-bucket counts; returns whether the alarm changed."""
        if self.begun is None:
            self.begun = minute
        elif minute - self.begun >= PERIOD and sum(self.block.values()) >= (BLOCK if self.edges else REFERENCE):
            return self._close(minute, counts)
        add_counts(self.block, counts)
        return False

    def _close(self, minute: int, counts: Mapping[int, int]) -> bool:
        block, begun = self.block, self.begun
        self.block, self.begun = dict(counts), minute
        if self.edges is None:
            self.edges = decile_edges(block)
            self.reference = self._binned(block)
            return False
        self.compared, self.compared_from, self.compared_to = self._binned(block), begun or minute, minute
        return self.turn(minute, changed=has_drifted(self.reference, self.compared))

    def shift(self) -> Shift | None:
        """What moved most from the reference to the block that was compared last; None before there is one."""
        edges, reference, compared = self.edges or [], self.reference, self.compared
        if not (edges and compared):
            return None
        before, after = ([total / sum(bins) for total in accumulate(bins)] for bins in (reference, compared))
        widest = max(range(len(edges)), key=lambda n: abs(after[n] - before[n]))
        below = bucket_edge(edges[widest])
        return Shift(below, before[widest], after[widest], sum(compared), self.compared_from, self.compared_to)

    def clear(self) -> None:
        """Reset: the next block becomes the reference."""
        self.firing, self.edges, self.reference = None, None, []
        self.block, self.begun, self.compared = {}, None, []

    def _binned(self, counts: Mapping[int, int]) -> list[int]:
        edges = self.edges or []
        bins = [0] * (len(edges) + 1)
        for bucket, n in counts.items():
            bins[bisect_left(edges, bucket)] += n
        return bins


class IndexMonitor(DriftMonitor):
    """Counts the indexes that answered under each build within `INDEX_WINDOW` minutes.

    Attributes:
        seen: By build and index, the last minute in which it answered.
    """

    seen: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)

    def step(self, minute: int, indexes: Iterable[tuple[str, str]], limit: int) -> bool:
        """Process a minute; returns whether the alarm changed."""
        for build, index in sorted(indexes):
            self.seen.setdefault(build, {})[index] = minute
        recent = (
            (build, {index: last for index, last in seen.items() if last > minute - INDEX_WINDOW})
            for build, seen in self.seen.items()
        )
        self.seen = {build: seen for build, seen in recent if seen}
        return self.turn(minute, changed=any(len(seen) > limit for seen in self.seen.values()))

    def clear(self) -> None:
        """Forget all indexes."""
        self.firing = None
        self.seen.clear()


class BlockRule(NamedTuple):
    """How blocks are made and compared.

    Attributes:
        size: Observations of a block, at least.
        z: How many standard errors are too many; more while the reference has few blocks.
    """

    size: int
    blocks: int
    minutes: int
    z: float


SCORES: Final = BlockRule(300, 8, 1440, 4.0)  # of scores: a day is the least, because traffic cycles by the day
AGREEMENT: Final = BlockRule(50, 2, 0, 3.3)  # of label minus score: labels are few


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


def _added(own: Sums, other: Sequence[int]) -> Sums:
    # Both together; the first alone where the squares, of more than nine million scores, are too many to be saved.
    both = [a + b for a, b in zip(own, other, strict=True)]
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


class JudgeMonitor(DriftMonitor, kw_only=True):
    """Compares the scores of a judge, or its agreement with labels, version by version."""

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
    """The name of the alarm."""
    return f"{metric}:label:drift" if labelled else f"{metric}:drift"


class DriftSignal(NamedTuple):
    """One drift alarm.

    Attributes:
        firing: The minute since which it fires; None while it is silent.
    """

    alert: str
    metric: str
    severity: str
    firing: int | None


class DriftMonitors(msgspec.Struct):
    """What the drift alarms of a pipeline watch, by alert."""

    indexes: dict[str, IndexMonitor] = {}
    distributions: dict[str, DistributionMonitor] = {}
    judges: dict[str, JudgeMonitor] = {}


class Drift:
    """The drift alarms of a pipeline."""

    def __init__(self, settings: AlarmSettings, state: DriftMonitors | None = None) -> None:
        self.state = state = state or DriftMonitors()
        self._indexes = settings.indexes
        state.indexes = {limit.alert: state.indexes.get(limit.alert, IndexMonitor()) for limit in settings.indexes}
        state.distributions = {alert: state.distributions.get(alert, DistributionMonitor()) for alert in _DISTRIBUTIONS}

    @property
    def signals(self) -> list[DriftSignal]:
        """Every drift alarm."""
        state, ticket = self.state, constants.TICKET
        return [
            *(
                DriftSignal(limit.alert, constants.INDEX_HASH, limit.severity, state.indexes[limit.alert].firing)
                for limit in self._indexes
            ),
            *(
                DriftSignal(alert, _DISTRIBUTIONS[alert], ticket, monitor.firing)
                for alert, monitor in state.distributions.items()
            ),
            *(DriftSignal(alert, monitor.metric, ticket, monitor.firing) for alert, monitor in state.judges.items()),
        ]

    def step(self, step: Minute, source: str) -> list[DriftSignal]:
        """Process one step, with the source of user traffic; returns the alarms that changed."""
        state, minute = self.state, step.minute
        changed = {
            limit.alert for limit in self._indexes if state.indexes[limit.alert].step(minute, step.indexes, limit.limit)
        }
        for alert, monitor in state.distributions.items():
            counts = step.shape(source, _DISTRIBUTIONS[alert])
            if counts and monitor.step(minute, counts):
                changed.add(alert)
        scored: dict[str, dict[str, list[int]]] = {}
        for (scored_source, metric, version), sums in step.judged.items():
            if scored_source in (source, constants.LABEL):
                labelled = scored_source == constants.LABEL
                alert = alert_name(metric, labelled=labelled)
                scored.setdefault(alert, {})[version] = sums
                if alert not in state.judges:  # the alarm of a judge begins with its first score
                    state.judges[alert] = JudgeMonitor(metric=metric, labelled=labelled)
        changed |= {alert for alert, judge in state.judges.items() if judge.step(minute, scored.get(alert, {}))}
        return [signal for signal in self.signals if signal.alert in changed] if changed else []

    def restart(self) -> list[DriftSignal]:
        """Forget the distributions, because the traffic has another source now. Returns the alarms that fired."""
        state = self.state
        fired = [signal for signal in self.signals if signal.firing is not None and signal.alert not in state.indexes]
        for distribution in state.distributions.values():
            distribution.clear()
        for judge in state.judges.values():
            judge.clear()
        return fired

    def clear(self, alert: str) -> bool:
        """Silence the alarm with a name; returns whether it fired."""
        state = self.state
        monitor = state.indexes.get(alert) or state.distributions.get(alert) or state.judges[alert]
        fired = monitor.firing is not None
        monitor.clear()
        return fired
