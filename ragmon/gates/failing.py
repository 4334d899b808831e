"""The requests that fail a gate: whose own score does not reach the gate's threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Policy
from ragmon.core.record import Record
from ragmon.metrics.facts import Key
from ragmon.scoring.score_table import ScoreTable
from ragmon.stats.histograms import MICRO

MEMORY: Final = 16_384
"""Facts whose results are cached."""


class Failed(NamedTuple):
    """A request that fails a gate.

    Attributes:
        pipeline, source: The series it was counted in.
        record: The request.
        key: Its facts.
        scores: The failing scores, by metric.
        slices: The slices it belongs to.
    """

    pipeline: str
    source: str
    record: Record
    key: Key
    scores: dict[str, float]
    slices: Sequence[str]


class FailureDetector:
    """Finds the single requests that do not reach a gate's threshold.

    Args:
        table: The metrics.
        policy: The gates of a pipeline.

    Attributes:
        failures: Failures found since the list was last taken.
    """

    def __init__(self, table: ScoreTable, policy: Callable[[str], Policy]) -> None:
        self.failures: list[Failed] = []
        self._table = table
        self._policy = policy
        self._places = {name: place for place, name in enumerate(table.metrics)}
        self._cache: dict[tuple[str, str, Key], dict[str, float]] = {}
        self._gates: dict[tuple[str, str], list[tuple[str, int, bool, float]]] = {}

    def collect(
        self,
        pipeline: str,
        arrival: float,
        source: str,
        record: Record,
        item: GoldItem | None,
        key: Key,
        measured: Mapping[str, int],
        slices: Sequence[str],
        in_gold: bool | None,
    ) -> None:
        """Check a counted request; one that is counted as live traffic and as a gold match is reported once."""
        failing_scores = self._cache.get((pipeline, source, key))
        if failing_scores is None or measured:
            failing_scores = self._judge(pipeline, source, key, measured)
        if failing_scores and self.failures and self.failures[-1].record is record:
            self.failures[-1] = Failed(
                pipeline, source, record, key, {**self.failures[-1].scores, **failing_scores}, slices
            )
        elif failing_scores:
            self.failures.append(Failed(pipeline, source, record, key, failing_scores, slices))

    def fails(self, pipeline: str, source: str, key: Key) -> bool:
        """Whether requests with some facts, of which no text was measured, fail a gate."""
        scores = self._cache.get((pipeline, source, key))
        return bool(self._judge(pipeline, source, key, {}) if scores is None else scores)

    def _judge(self, pipeline: str, source: str, key: Key, measured: Mapping[str, int]) -> dict[str, float]:
        """The failing scores of a request; cached where they depend on facts alone, which many requests share."""
        gates = self._gates.get((pipeline, source))
        if gates is None:
            gates = self._gates[pipeline, source] = self._thresholds(pipeline, source)
        scores = self._table.scores(key)
        failing_scores: dict[str, float] = {}
        for metric, place, at_least, threshold in gates:
            score = scores[place]
            if isinstance(score, int) and self._table.metrics[metric].measured:
                score = measured.get(metric)
            if isinstance(score, int) and (score < threshold if at_least else score > threshold):
                failing_scores[metric] = score / MICRO
        if not measured:
            if len(self._cache) >= MEMORY:
                self._cache.clear()
            self._cache[pipeline, source, key] = failing_scores
        return failing_scores

    def _thresholds(self, pipeline: str, source: str) -> list[tuple[str, int, bool, float]]:
        """The thresholds that apply to a request, once per metric and direction, in micro-units."""
        thresholds = [
            (gate.metric, self._places[gate.metric], gate.at_least, gate.threshold * MICRO)
            for gate in self._policy(pipeline).gates
            if gate.kind == "threshold" and gate.metric in self._places and gate.source in (None, source)
        ]
        return sorted(set(thresholds))

    def take(self) -> list[Failed]:
        """The failures that were found since the last time."""
        found = self.failures
        if found:
            self.failures = []
        return found
