"""Replay of archives on Spark: each task counts its lines as `ragmon replay` does, and the driver adds up and judges.

The session is yours, and so are the readers: whatever becomes a column of lines can be replayed. A task that is tried
again counts the same lines again, and Spark hands on the result of one of the tries.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace as replaced
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ragmon.alarms.pipelines import AlarmTransition
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core.record import Label, Line, Record, trace_key
from ragmon.export.report import Report
from ragmon.ingest.files import ReadSummary
from ragmon.ingest.gold import load_gold
from ragmon.ingest.lines import Rejected, decode
from ragmon.monitor.replay import AlarmReplay, Run, RunCounts
from ragmon.scoring.labels import FinalLabels
from ragmon.scoring.scorer import ScorerFactory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SparkReplay(NamedTuple):
    """The result of a replay."""

    report: Report
    edges: Sequence[AlarmTransition]


def replay(lines: DataFrame, config: str | Path | Settings, labels: Iterable[Label] = ()) -> SparkReplay:
    """Score a DataFrame of trace lines, in the session it belongs to.

    Args:
        lines: One column of text, a line of a trace log each: `spark.read.text(...)`, or of other tables
            `frame.select(to_json(struct("*")))`.
        config: ragmon.toml, or settings already loaded. Gold is read here, and sent to the executors.
        labels: Labels of people, besides those among the lines.
    """
    settings = config if isinstance(config, Settings) else load(config)
    plan = ScorerFactory(settings, load_gold(settings.gold))
    alarms = AlarmReplay(plan)
    run = Run(alarms.scorer, ReadSummary())
    for counted in _results(lines, partial(_count, plan)):
        run.merge(counted)
        alarms.put(counted.steps)
    alarms.finish()
    final = FinalLabels()
    for label in (*run.labels, *labels):
        final.add(label)
    if final:
        for found in _results(lines, partial(_find, frozenset(final.traces))):
            final.meet(found)
        run.finalise(final, lambda pipeline: settings.of(pipeline).proxy)
    report = run.report(settings.policy(seen=run.pipelines()), notes=alarms.notes())
    return SparkReplay(replaced(report, histories=run.history(report)), alarms.transitions)


def _count(plan: ScorerFactory, lines: Iterable[str]) -> RunCounts:
    run = Run(AlarmReplay(plan).make_scorer(), intake := ReadSummary())
    run.feed(_decoded(lines, intake))
    return run.counted()


def _find(traces: frozenset[str], lines: Iterable[str]) -> list[Line]:
    decoded = _decoded(lines, ReadSummary())
    return [line for line in decoded if isinstance(line, Record) and trace_key(line.trace_id or "") in traces]


def _decoded(lines: Iterable[str], intake: ReadSummary) -> Iterator[Line]:
    for line in lines:
        intake.read += 1
        try:
            decoded = decode(line.encode("utf-8", "surrogatepass"), partial(intake.miss_at, "a line", intake.read))
        except Rejected as rejected:
            intake.reject("a line", intake.read, rejected.reason, str(rejected))
            continue
        yield decoded


def _results(lines: DataFrame, task: Any) -> Iterator[Any]:
    shipped = lines.sparkSession.sparkContext.broadcast(pickle.dumps(task))

    def run_task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - there with Spark

        texts = (text for batch in batches for text in batch.column(0).to_pylist() if text)
        result = pickle.dumps(pickle.loads(shipped.value)(texts))  # noqa: S301 - of this session's own driver
        yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], names=["result"])

    for row in lines.mapInArrow(run_task, "result binary").toLocalIterator():
        yield pickle.loads(bytes(row.result))  # noqa: S301 - of this session's own executors
