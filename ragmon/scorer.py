"""The only place where record, gold item, metrics and windows meet: one call per record, live and offline alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ragmon import names, stats
from ragmon.contract import Record, Sampling
from ragmon.facts import FactReader, Key
from ragmon.gold import GoldIndex, GoldSet
from ragmon.item import GoldItem
from ragmon.metrics.base import Metric, build
from ragmon.metrics.grounding import DEFAULT_THRESHOLD, Groundedness
from ragmon.rows import CELLS, Row
from ragmon.snapshot import ALL, ScoreTable, Snapshot, take
from ragmon.windows import Series, SeriesKey, State

_KEPT_ALL = Sampling()
_NOTHING: Mapping[str, int] = MappingProxyType({})
FUTURE = 300.0
"""Seconds a record's time may lie ahead of the clock."""


@dataclass(frozen=True)
class Rules:
    """How the records of a pipeline are reduced.

    Args:
        facts: The refusal rule and the latency bound.
        grounded_threshold: From which groundedness an answer counts as grounded.
        slices: Tags that become series: allowed values by tag name.
    """

    facts: FactReader = FactReader()
    grounded_threshold: float = DEFAULT_THRESHOLD
    slices: Mapping[str, Collection[str]] = field(default_factory=dict)


class Scorer:
    """Scores records into a state.

    Args:
        gold: The gold items records are matched with; None scores only what needs no gold.
        metrics: By key; default: every registered metric with k = 1, 3, 5, 10.
        rules: How records are reduced.
        by_pipeline: Other rules for some pipelines.
        state: Where to count; default: a new state that keeps everything.
        clock: Seconds since the epoch, to refuse records from the future; None trusts their time (replay).

    Example:
        >>> from ragmon.contract import Answer, Record
        >>> scorer = Scorer()
        >>> scorer.observe(Record(qid="a", answer_json=Answer(claim="not in context", citations=[])))
        True
        >>> scorer.snapshot().find("default", "replay").metrics["refusal_rate"].value
        1.0
    """

    def __init__(
        self,
        gold: GoldIndex | GoldSet | None = None,
        *,
        metrics: Mapping[str, Metric] | None = None,
        rules: Rules | None = None,
        by_pipeline: Mapping[str, Rules] | None = None,
        state: State | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.gold = gold if isinstance(gold, GoldIndex) else GoldIndex(gold or ())
        self.table = ScoreTable(metrics if metrics is not None else build())
        self.state = state if state is not None else State()
        self.dropped: dict[str, int] = {}
        self.scored = 0
        self.unmatched = 0
        self._rules = rules or Rules()
        self._by_pipeline = dict(by_pipeline or {})
        self._clock = clock
        self._measured = [m for m in self.table.metrics.values() if m.measured]
        self._always = any(metric.reads not in ("contexts", "measures") for metric in self._measured)
        self._known: dict[tuple[object, ...], Series] = {}

    def observe(self, record: Record) -> bool:
        """Score one record.

        Returns:
            True when it was scored; False when it was dropped, which `dropped` counts by reason.
        """
        ts = record.ts
        if self._clock is not None and ts is not None and ts > self._clock() + FUTURE:
            return self._drop(names.TOO_FUTURE)
        rules = self._rules if not self._by_pipeline else self._by_pipeline.get(record.pipeline or "", self._rules)
        item = self.gold.match(record)
        if record.contexts is None and record.measures is None and not self._always:
            measured, grounded = _NOTHING, record.facts.grounded if record.facts is not None else None
        else:
            measured, grounded = self._measure(record, item, rules.grounded_threshold)
        key = rules.facts.read(record, item, grounded)
        source = record.source or (names.PROBE if record.probe else names.REPLAY)
        if source == names.LIVE and item is not None:
            # A matched user question stays user traffic without its gold, and is a gold draw in a series of its own.
            plain = rules.facts.read(record, None, grounded)
            if not self._count(record, None, names.LIVE, plain, measured, rules):
                return self._drop(names.TOO_OLD)
            source = names.MATCH
        if not self._count(record, item, source, key, measured, rules):
            return self._drop(names.TOO_OLD)
        self.scored += 1
        if item is None:
            self.unmatched += 1
        return True

    def _drop(self, reason: str) -> bool:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        return False

    def _measure(
        self, record: Record, item: GoldItem | None, threshold: float
    ) -> tuple[Mapping[str, int], bool | None]:
        """The measured scores in micro-units, and whether the answer is grounded, where text was captured.

        A score that travelled with the record was measured where the text was, and counts as it stands.
        """
        told = record.measures or {}
        measured: dict[str, int] = {}
        grounded = record.facts.grounded if record.facts is not None else None
        for metric in self._measured:
            score = told[metric.key] if metric.key in told else metric.measure(record, item)
            if score is None or not math.isfinite(score):
                continue
            measured[metric.key] = stats.micro(min(1.0, max(0.0, score)))
            if metric.key == Groundedness.name:
                grounded = score >= threshold
        return measured, grounded

    def _count(  # noqa: PLR0913 - one record and everything that was found out about it
        self,
        record: Record,
        item: GoldItem | None,
        source: str,
        key: Key,
        measured: Mapping[str, int],
        rules: Rules,
    ) -> bool:
        """Count one request in its series, and again in each of its slices; False when it is too old."""
        series = self._series(record, item, source, "")
        row = self.state.row(series, record.ts)
        if row is None:
            return False
        self._add(row, record, key, measured)
        if item is not None:
            self.state.count_item(series, record.ts, item.qid, key)
        for where in _slices_of(record, item, rules.slices) if rules.slices else ():
            part = self._series(record, item, source, where)
            row = self.state.row(part, record.ts)
            if row is not None:
                self._add(row, record, key, measured)
                if item is not None:
                    self.state.count_item(part, record.ts, item.qid, key)
        return True

    def _series(self, record: Record, item: GoldItem | None, source: str, where: str) -> Series:
        sampling = record.sampling or _KEPT_ALL
        set_name, version = ("", "") if item is None else (item.set_name, item.set_version)
        known = (
            record.pipeline,
            source,
            set_name,
            version,
            where,
            sampling.audit,
            sampling.stratum,
            record.build,
            record.index_hash,
        )
        series = self._known.get(known)
        if series is None:
            key = SeriesKey(
                record.pipeline or names.DEFAULT_PIPELINE, *known[1:7], record.build or "", record.index_hash or ""
            )
            series = self._known[known] = self.state.at(key)
        return series

    def _add(self, row: Row, record: Record, key: Key, measured: Mapping[str, int]) -> None:
        cells = row.cells
        seen = cells.get(key)
        if seen is None and len(cells) >= CELLS:
            self.table.spill(row, key, measured)
        else:
            cells[key] = 1 if seen is None else seen + 1
            for name, score in measured.items():
                row.measure(name, key, score)
        if record.latency_ms is not None:
            row.add_latency(record.latency_ms)

    def snapshot(
        self,
        *,
        now: float | None = None,
        windows: Mapping[str, int | None] | None = None,
        gated: Sequence[str] = (),
    ) -> Snapshot:
        """What has been counted, ready to be read.

        Args:
            now: Where the windows end, seconds since the epoch; default: the newest record.
            windows: Spans in seconds by name; default: everything as one window.
            gated: Gold metrics whose per-item sums gates need.
        """
        return take(
            self.state,
            self.table,
            now=self.state.newest if now is None else now,
            windows=windows if windows is not None else {ALL: None},
            golds=self.gold.infos(),
            gated=gated,
        )


def _slices_of(record: Record, item: GoldItem | None, slices: Mapping[str, Collection[str]]) -> list[str]:
    """The slices a record belongs to, by its own tags and its gold item's."""
    tags = {**(item.tags if item is not None else {}), **(record.tags or {})}
    return [
        f"{tag}={tags[tag] if tags[tag] in allowed else names.OTHER}" for tag, allowed in slices.items() if tag in tags
    ]
