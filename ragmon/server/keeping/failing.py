"""Which requests fail a gate: what somebody will want to open at three in the morning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ragmon import stats
from ragmon.core.policy import Policy
from ragmon.core.record import Record
from ragmon.metrics.facts import Key
from ragmon.scoring.score_table import ScoreTable

MEMORY: Final = 16_384
"""Facts whose verdict is remembered."""


class Failed(NamedTuple):
    """A request that fails.

    Attributes:
        pipeline, source: Where it was counted.
        record: The request.
        key: Its facts.
        scores: What the metrics say that fail it, by metric.
    """

    pipeline: str
    source: str
    record: Record
    key: Key
    scores: dict[str, float]
    slices: Sequence[str]


class Failing:
    """Finds the requests that alone would not keep a gate's threshold.

    Args:
        table: The metrics.
        policy: The gates of a pipeline.

    Attributes:
        found: Those found since somebody took them away.
    """

    def __init__(self, table: ScoreTable, policy: Callable[[str], Policy]) -> None:
        self.found: list[Failed] = []
        self._table = table
        self._policy = policy
        self._places = {name: place for place, name in enumerate(table.metrics)}
        self._known: dict[tuple[str, str, Key], dict[str, float]] = {}
        self._gates: dict[tuple[str, str], list[tuple[str, int, bool, float]]] = {}

    def __call__(  # what a scorer knows of a request
        self,
        pipeline: str,
        source: str,
        record: Record,
        key: Key,
        measured: Mapping[str, int],
        slices: Sequence[str],
    ) -> None:
        """Look at a request that was counted; one that counts as user traffic and as a gold draw is found once."""
        failed = self._known.get((pipeline, source, key))
        if failed is None or measured:
            failed = self._judge(pipeline, source, key, measured)
        if failed and self.found and self.found[-1].record is record:
            self.found[-1] = Failed(pipeline, source, record, key, {**self.found[-1].scores, **failed}, slices)
        elif failed:
            self.found.append(Failed(pipeline, source, record, key, failed, slices))

    def _judge(self, pipeline: str, source: str, key: Key, measured: Mapping[str, int]) -> dict[str, float]:
        """What fails a request; of facts alone it is remembered, since many requests have the same."""
        gates = self._gates.get((pipeline, source))
        if gates is None:
            gates = self._gates[pipeline, source] = self._of(pipeline, source)
        scores = self._table.scores(key)
        failed: dict[str, float] = {}
        for metric, place, at_least, threshold in gates:
            score = scores[place]
            if isinstance(score, int) and self._table.metrics[metric].measured:
                score = measured.get(metric)
            if isinstance(score, int) and (score < threshold if at_least else score > threshold):
                failed[metric] = score / stats.MICRO
        if not measured:
            if len(self._known) >= MEMORY:
                self._known.clear()
            self._known[pipeline, source, key] = failed
        return failed

    def _of(self, pipeline: str, source: str) -> list[tuple[str, int, bool, float]]:
        """The gates a request is held against, one for each metric and direction; thresholds in micro-units."""
        told = [
            (gate.metric, self._places[gate.metric], gate.at_least, gate.threshold * stats.MICRO)
            for gate in self._policy(pipeline).gates
            if gate.kind == "threshold" and gate.metric in self._places and gate.source in (None, source)
        ]
        return sorted(set(told))
