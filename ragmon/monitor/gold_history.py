"""What became of single gold items in a running monitor; hours that are over are read once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final, Literal, NamedTuple

from ragmon.core.constants import DROPPED_PIPELINES, HOUR, LABEL
from ragmon.gates.gold_items import GoldItems, ItemCount, ItemStretch, add, flips, item_counts
from ragmon.gold.labels.ratings import RatingSummary, summary
from ragmon.monitor.engine import Engine
from ragmon.scoring.counts import UNTIMED
from ragmon.scoring.series import SeriesKey

OVER: Final = 2 * HOUR
"""Seconds after which an hour is not read again: records that come later are missing in it."""


class _SeriesName(NamedTuple):
    """Whose items are counted together: builds, indexes and strata are added up."""

    pipeline: str
    source: str
    gold: str
    version: str


class GoldHistory:
    """The items of every gold set over the time that is kept.

    Args:
        locked: The engine and the time, and what they are locked by while they are read.
    """

    def __init__(self, locked: Callable[[], AbstractContextManager[tuple[Engine, float]]]) -> None:
        self._locked = locked
        self._engine: Engine | None = None
        self._finished: dict[SeriesKey, dict[int, Mapping[str, ItemCount]]] = {}

    def items(self) -> list[GoldItems]:
        """The items of every gold set that was asked, by pipeline, source and set."""
        with self._locked() as (engine, now):
            if engine is not self._engine:
                self._engine, self._finished = engine, {}
            keys = [key for key in engine.scorer.state.series if _is_shown(key)]
        stretches: dict[_SeriesName, list[ItemStretch]] = defaultdict(list)
        for key in keys:
            name = _SeriesName(key.pipeline, key.source, key.gold, key.gold_version)
            stretches[name] += self._stretches(key, now)
        return [
            GoldItems(*name, add(stretch.counts for stretch in parts), flips(parts, now))
            for name, parts in sorted(stretches.items())
            if parts
        ]

    def ratings(self) -> RatingSummary:
        """Who rated answers, and how far raters agree."""
        with self._locked() as (engine, _):
            rated = engine.labels.book.rated()
        return summary(rated)

    def _stretches(self, key: SeriesKey, now: float) -> Iterator[ItemStretch]:
        """The items of a series by step and by hour; whoever counts records waits for one of them at a time."""
        finished = self._finished.setdefault(key, {})
        with self._locked() as (engine, _):
            items = engine.scorer.state.series[key].items
            hours, steps = list(items.hours), list(items.steps)
        for hour in hours:
            counts = finished[hour] if hour in finished else self._read(key, "hours", hour)
            if hour != UNTIMED and hour * HOUR + OVER < now:
                finished[hour] = counts
            yield ItemStretch(0.0 if hour == UNTIMED else float(hour * HOUR), counts)
        for step in steps:
            yield ItemStretch(float(step), self._read(key, "steps", step))

    def _read(self, key: SeriesKey, tables: Literal["hours", "steps"], start: int) -> dict[str, ItemCount]:
        """The items of one table of a series; none where it is gone."""
        with self._locked() as (engine, _):
            scorer = engine.scorer
            metrics = scorer.table.metrics
            gates = [gate for gate in engine.policy(key.pipeline).gates if gate.kind == "threshold"]
            on_gold = [gate for gate in gates if gate.metric in metrics and metrics[gate.metric].needs_gold]
            found = getattr(scorer.state.series[key].items, tables).get(start, {})
            return item_counts(found, scorer.table, on_gold)


def _is_shown(key: SeriesKey) -> bool:
    """Whether a series has items of a gold set: labels have one item an answer."""
    return bool(key.gold) and key.audit and not key.slice and key.source != LABEL and key.pipeline != DROPPED_PIPELINES
