"""Scores of kept requests, sent to the tracing backend where the application keeps their traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ragmon.capture.exporters.base import BatchSink, Before, Sink
from ragmon.core import constants
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import Record
from ragmon.metrics import Metric
from ragmon.scoring.scorer import Scorer

if TYPE_CHECKING:
    from ragmon.capture.exporters import Scored, ScoreSink


class Feedback(Before):
    """Hands records on, then tells the backend what gated metrics say of those whose traces it keeps.

    What becomes of the scores is no matter of the records: a backend that is down is said once in the log.

    Args:
        sink: Where records go.
        backend: Where scores go.
        scorer: Says what they are; it counts nothing.
        gated: Which metrics, by pipeline.
    """

    def __init__(
        self, sink: Sink | BatchSink, backend: ScoreSink, scorer: Scorer, gated: Callable[[str], frozenset[str]]
    ) -> None:
        super().__init__(sink)
        self._backend = backend
        self._scorer = scorer
        self._gated = gated

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Deliver records; returns how many were lost, by reason."""
        lost = hand_on(self._sink, records)
        try:
            scored = [found for record in records if record.exported and (found := self._scores(record)) is not None]
            if scored and self._backend.deliver(scored):
                warn_once("scores could not be sent to the tracing backend that [export] scores names")
        except Exception as error:  # noqa: BLE001 - a metric is foreign code and may raise anything
            warn_once(f"scores could not be sent: {whereabouts(error)}")
        return lost

    def _scores(self, record: Record) -> Scored | None:
        from ragmon.capture.exporters import Scored  # noqa: PLC0415 - loaded where a backend is configured

        gated, metrics = self._gated(record.pipeline or constants.DEFAULT_PIPELINE), self._scorer.table.metrics
        told = [
            (name, value, _label(metrics[name], value))
            for name, value in self._scorer.scores(record).items()
            if name in gated
        ]
        return Scored(record.trace_id or "", record.parent_span_id, told) if told else None

    def close(self) -> None:
        """End the connection to the backend; where records go is its owner's to end."""
        self._backend.close()


def hand_on(sink: Sink | BatchSink, records: Sequence[Record]) -> Mapping[str, int]:
    """Deliver records to a sink of either kind; returns how many were lost, by reason."""
    if isinstance(sink, BatchSink):
        return sink.deliver(records)
    failed = 0
    for record in records:
        try:
            sink.submit(record)
        except Exception as error:  # noqa: BLE001 - counted
            failed += 1
            warn_once(f"a record could not be delivered and is dropped: {whereabouts(error)}")
    return {constants.EXPORT_FAILED: failed} if failed else {}


def _label(metric: Metric, value: float) -> str | None:
    """`pass` or `fail` where a score is one or the other."""
    if value not in (0.0, 1.0):
        return None
    return "pass" if (value == 1.0) is (metric.better == "higher") else "fail"
