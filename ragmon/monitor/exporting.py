"""Scores of kept requests, sent to the tracing backend where the application keeps their traces.

Where captured records go, by configuration: a monitor in this process, a server, a trace log.

Matching by meaning, where the text is: in the application's worker and over trace files, never in a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ragmon.capture.exporters.base import BatchExporter, Exporter, ForwardingExporter
from ragmon.core import constants
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import Record
from ragmon.metrics import Metric
from ragmon.scoring.scorer import Scorer

if TYPE_CHECKING:
    from ragmon.capture.exporters import Scored, ScoreExporter
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ragmon.capture.exporters.base import BatchTee, Tee
from ragmon.capture.exporters.jsonl import JsonlExporter
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError
from ragmon.monitor.build import Redactions, ScorerPlan, load_gold

if TYPE_CHECKING:
    from ragmon.capture.exporters import OtlpExporter
from collections.abc import Iterable, Iterator

import msgspec

from ragmon.core.record import Line, redacted
from ragmon.gold import GoldIndex, GoldSet
from ragmon.gold.embeddings import Nearest
from ragmon.monitor.build import function_at


class ScoreExporting(ForwardingExporter):
    """Hands records on, then tells the backend what gated metrics say of those whose traces it keeps.

    What becomes of the scores is no matter of the records: a backend that is down is said once in the log.

    Args:
        sink: Where records go.
        backend: Where scores go.
        scorer: Says what they are; it counts nothing.
        gated: Which metrics, by pipeline.
    """

    def __init__(
        self,
        sink: Exporter | BatchExporter,
        backend: ScoreExporter,
        scorer: Scorer,
        gated: Callable[[str], frozenset[str]],
    ) -> None:
        super().__init__(sink)
        self._backend = backend
        self._scorer = scorer
        self._gated = gated

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Deliver records; returns how many were lost, by reason."""
        lost = deliver(self._sink, records)
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


def deliver(sink: Exporter | BatchExporter, records: Sequence[Record]) -> Mapping[str, int]:
    """Deliver records to a sink of either kind; returns how many were lost, by reason."""
    if isinstance(sink, BatchExporter):
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


class Redacting:
    """Takes out of records what must not leave the process, before they go to a sink.

    Args:
        sink: The sink.
        redact: Makes of a record what may leave.
    """

    def __init__(self, sink: OtlpExporter, redact: Redactions) -> None:
        self._sink = sink
        self._redact = redact
        self.report = sink.report
        self.label = sink.label
        self.close = sink.close

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Deliver records; returns how many were lost, by reason."""
        return self._sink.deliver([self._redact(record) for record in records])


def server(settings: Settings, redact: Callable[[], Redactions]) -> BatchExporter | None:
    """The server the configuration names.

    Raises:
        RagmonError: Its token cannot be read, or is none.
    """
    if settings.export.endpoint is None:
        return None
    from ragmon.capture.exporters import (  # noqa: PLC0415 - protobuf alone takes longer to load than all of ragmon
        OtlpExporter,
    )

    token = settings.serve.token_file
    secret = None if token is None else _read(token)
    sink = OtlpExporter(str(settings.export.endpoint), token=secret, resource=_resource(settings))
    return Redacting(sink, redact())


def with_feedback(settings: Settings, sink: Exporter | BatchExporter) -> Exporter | BatchExporter:
    """The sink, and beside it the tracing backend that gets the scores, where the configuration names one."""
    if settings.export.scores is None:
        return sink
    from ragmon.capture.exporters import ScoreExporter  # noqa: PLC0415 - as above

    backend = ScoreExporter(
        str(settings.export.scores), resource=_resource(settings), carriers=settings.export.score_spans
    )
    gated = cache(lambda pipeline: frozenset(gate.metric for gate in settings.of(pipeline).gates))
    return ScoreExporting(sink, backend, ScorerPlan(settings, load_gold(settings.gold))(), gated)


def with_embeddings(settings: Settings, sink: Exporter | BatchExporter) -> Exporter | BatchExporter:
    """The sink, and before it what matches questions by meaning, where a gold set names an embedder."""
    if not any(spec.embed is not None for spec in settings.gold):
        return sink

    sets = load_gold(settings.gold)
    match = Embeddings(sets, nearest_of(settings, sets))
    return Matching(sink, match) if match else sink


def _resource(settings: Settings) -> dict[str, str]:
    """What this process says of itself."""
    found = {"service.name": settings.service or settings.pipeline}
    return {**found, "service.version": settings.build} if settings.build else found


def _read(token: Path) -> str:
    try:
        return token.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RagmonError(f"{token}: the token cannot be read ({error})", hint="check `[serve] token_file`") from error


def trace_log(settings: Settings, redact: Callable[[], Redactions]) -> JsonlExporter | None:
    """The trace log the configuration names."""
    export = settings.export
    if export.jsonl is None:
        return None
    return JsonlExporter(export.jsonl, redact(), size=export.rotate_size, age=export.rotate_every, fsync=export.fsync)


def combine(target: Exporter | BatchExporter | None, log: Exporter | None) -> Exporter | BatchExporter:
    """One sink of both."""
    if log is None:
        return Tee() if target is None else target
    if target is None:
        return log
    return BatchTee(target, log) if isinstance(target, BatchExporter) else Tee(target, log)


def application_identity(settings: Settings) -> str:
    """What tells this application from others on the machine: whose lost records it may report."""
    export = settings.export
    told = "|".join([settings.service, settings.pipeline, str(export.endpoint), str(export.jsonl), *settings.pipelines])
    return sha256(told.encode()).hexdigest()[:16]


def nearest_of(settings: Settings, sets: Sequence[GoldSet]) -> list[Nearest]:
    """What finds the items of the sets that name an embedder.

    An embedder that fails is said once in the log, and matches nothing.

    Args:
        settings: The configuration.
        sets: The gold sets.

    Raises:
        RagmonError: The function is not there, or numpy is missing.
    """
    named = {spec.name: spec.embed for spec in settings.gold if spec.embed is not None}
    found = []
    for gold in sets:
        if gold.name not in named:
            continue
        embed = function_at(named[gold.name], f"gold.{gold.name}.embed", '"myapp.vectors:embed"')
        try:
            nearest = Nearest(gold, embed)
        except RagmonError:
            raise
        except Exception as error:  # noqa: BLE001 - an embedder is foreign code
            warn_once(f"[gold.{gold.name}] embed failed, and nothing is matched by meaning: {whereabouts(error)}")
            continue
        if nearest.calibration.reason:
            warn_once(f"[gold.{gold.name}] embed is off: {nearest.calibration.reason}")
        found.append(nearest)
    return found


class Embeddings:
    """Gives records that match no gold item by their words the one they mean.

    Args:
        sets: All gold sets.
        nearest: What finds items by meaning.
    """

    def __init__(self, sets: Sequence[GoldSet], nearest: Sequence[Nearest]) -> None:
        self._index = GoldIndex(sets)
        self._nearest = [one for one in nearest if one.calibration.threshold is not None]

    def __bool__(self) -> bool:
        return bool(self._nearest)

    def __call__(self, record: Record) -> Record:
        """The record, with the qid of the item its question means; it never raises."""
        asked = record.source in (constants.LIVE, None) and record.q is not None and not redacted(record, "q")
        if not asked or record.q is None or self._index.match(record) is not None:
            return record
        for nearest in self._nearest:
            if not nearest.gold.judges(record.pipeline or constants.DEFAULT_PIPELINE, record.source):
                continue
            try:
                item = nearest.find(record.q)
            except Exception as error:  # noqa: BLE001 - as above
                warn_once(f"[gold.{nearest.gold.name}] embed failed, such records match nothing: {whereabouts(error)}")
                continue
            if item is not None:
                return msgspec.structs.replace(record, qid=item.qid, matched=constants.BY_EMBEDDING)
        return record

    def follow(self, records: Iterable[Line]) -> Iterator[Line]:
        """Pass records of trace files on, matched."""
        for record in records:
            yield self(record) if isinstance(record, Record) else record


class Matching(ForwardingExporter):
    """Matches records by meaning on their way to a sink, in the worker's thread.

    Args:
        sink: The sink.
        match: Gives a record the qid of the item it means.
    """

    def __init__(self, sink: Exporter | BatchExporter, match: Embeddings) -> None:
        super().__init__(sink)
        self._match = match

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Deliver records; returns how many were lost, by reason."""
        return deliver(self._sink, [self._match(record) for record in records])
