"""The open minutes of all pipelines, for alarms: each record is added to the step of the minute in which it arrived."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from ragmon.core.constants import ALSO_LIVE_SOURCES, LABEL
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.metrics.facts import Key
from ragmon.scoring.membership import CLUSTER, membership
from ragmon.scoring.steps import STEP, CountedRecord, Step

_NO_VERSIONS: Final[Mapping[str, str]] = MappingProxyType({})
_place: Final = lru_cache(256)(CountedRecord)
"""The key of the same names: to look it up is faster than to make it."""


class Minutes(msgspec.Struct):
    """The open steps, and what became of the closed ones.

    Attributes:
        closed: The last minute with records that was closed.
        late: Records that arrived after their minute was closed, and count in a later one.
        open: The open steps by minute and pipeline.
    """

    closed: int = -1
    late: int = 0
    open: dict[int, dict[str, Step]] = {}


def _by_name(entry: tuple[str, Step]) -> str:
    return entry[0]


class MinuteBatches:
    """The open steps of all pipelines.

    Args:
        slices: Slices that alarms watch; others are not collected.
        cluster: What makes a cluster, by pipeline.

    Attributes:
        state: The steps.
    """

    def __init__(
        self, slices: Collection[str] = (), cluster: Callable[[str], Collection[str]] = lambda _: CLUSTER
    ) -> None:
        self.state = Minutes()
        self._slices = frozenset(slices)
        self._cluster = lru_cache(256)(cluster)

    def collect(
        self,
        pipeline: str,
        arrival: float,
        source: str,
        record: Record,
        item: GoldItem | None,
        key: Key,
        measured: Mapping[str, int],
        slices: Iterable[str],
        in_gold: bool | None = None,
    ) -> None:
        """Add a record to the step of its minute, if the uniform sampler kept it at a known rate.

        Args:
            pipeline: Its pipeline.
            arrival: When it arrived, seconds since the epoch.
            source: The source it is counted under.
            record: The record.
            item: Its gold item.
            key: Its facts.
            measured: What was measured on its text, in micro-units.
            slices: The slices it belongs to.
            in_gold: Whether its retrieved ids occur in gold; None where there are none to compare.
        """
        if record.sampling is not None and not record.sampling.drawn:
            return
        is_first, minute = source not in ALSO_LIVE_SOURCES, int(arrival) // STEP
        if minute <= self.state.closed:  # matched and labelled records were already counted as live traffic
            self.state.late += is_first
        step, member = self._at(pipeline, minute), membership(record, item, source, self._cluster(pipeline))
        if not step.cites and record.cites:
            step.cites = True
        if in_gold is not None:
            step.in_gold = step.in_gold or in_gold
        gold, version = ("", "") if item is None else (item.set_name, item.set_version)
        step.count(_place(source, gold, version), member, key, measured)
        for where in slices:
            if where in self._slices:
                step.count(_place(source, gold, version, where), member, key, measured)
        if is_first:
            step.add_properties(source, member, record)
        if measured and (source == LABEL or is_first):
            step.add_scores(source, measured, record.judge_versions or _NO_VERSIONS)

    def _at(self, pipeline: str, minute: int) -> Step:
        """The step of a minute, or of the first one that is open where that was closed."""
        if minute <= self.state.closed:
            minute = self.state.closed + 1
        steps = self.state.open.get(minute)
        if steps is None:
            steps = self.state.open[minute] = {}
        step = steps.get(pipeline)
        if step is None:
            step = steps[pipeline] = Step(minute)
        return step

    def put(self, pipeline: str, step: Step) -> None:
        """Add what was seen elsewhere in a minute; if that was closed here, it counts in a later one.

        Args:
            pipeline: The pipeline.
            step: Its records of the minute; the step is not to be used any more.
        """
        if step.minute <= self.state.closed:
            self.state.late += step.records
        self._at(pipeline, step.minute).merge(step)

    def take(self) -> list[tuple[str, Step]]:
        """Hand out every open step in order, whether its minute ended or not, and begin anew."""
        opened, self.state.open = self.state.open, {}
        steps = [entry for minute in sorted(opened) for entry in sorted(opened[minute].items(), key=_by_name)]
        for _, step in steps:
            step.cut()
        return steps

    def close(self, before: float) -> list[tuple[str, Step]]:
        """Close and return every step that ended before a time, in order."""
        closed_steps = []
        for minute in sorted(minute for minute in self.state.open if (minute + 1) * STEP <= before):
            closed_steps += sorted(self.state.open.pop(minute).items(), key=_by_name)
            self.state.closed = minute
        for _, step in closed_steps:
            step.cut()
        return closed_steps
