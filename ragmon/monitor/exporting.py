"""The exporters that a configuration names: a server, a trace log, and the tracing backend for scores.

Exporters are wrapped: records are redacted and matched by meaning before export, and scores are sent after it. Matching
by meaning needs the text, so it runs in the application's worker and over trace files, never in a server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from ragmon.capture.exporters import BatchExporter, BatchTee, Exporter, ForwardingExporter, JsonlExporter, Tee
from ragmon.config.load import DEFAULT, RESOURCE, resource_attributes
from ragmon.config.services import OTEL, SIGNALS, Signal, WrongVariable, otel_receiver
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import ConfigError, RagmonError, error_location, warn_once
from ragmon.core.process import function_at, read_token
from ragmon.core.record import Line, Record, is_redacted
from ragmon.ingest.gold import GoldIndex, GoldSet, Nearest, load_gold
from ragmon.metrics import Metric
from ragmon.monitor.capture_settings import Redactions
from ragmon.monitor.sharing import SharedMonitor
from ragmon.scoring.scorer import Scorer, ScorerFactory

if TYPE_CHECKING:
    from ragmon.capture.exporters import Scored, ScoreExporter
    from ragmon.capture.otlp_exporter import OtlpExporter, OtlpSession


class ScoreExporting(ForwardingExporter):
    """Exports records, then sends the tracing backend the scores of gated metrics for records whose traces it has.

    Failures of the backend do not affect the records: they are logged once.

    Args:
        sink: The exporter of the records.
        backend: The exporter of the scores.
        scorer: Computes the scores; it counts nothing.
        gated: The gated metrics of a pipeline.
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
            scored = [scores for record in records if record.exported and (scores := self._scores(record)) is not None]
            if scored and self._backend.deliver(scored):
                warn_once("scores could not be sent to the tracing backend that [export] scores names")
        except Exception as error:  # noqa: BLE001 - a metric is third-party code and may raise anything
            warn_once(f"scores could not be sent: {error_location(error)}")
        return lost

    def _scores(self, record: Record) -> Scored | None:
        from ragmon.capture.exporters import Scored  # noqa: PLC0415 - needed only if a backend is configured

        gated, metrics = self._gated(record.pipeline or constants.DEFAULT_PIPELINE), self._scorer.table.metrics
        scores = [
            (name, value, _label(metrics[name], value))
            for name, value in self._scorer.scores(record).items()
            if name in gated
        ]
        return Scored(record.trace_id or "", record.parent_span_id, scores) if scores else None

    def close(self) -> None:
        """Close the connection to the backend; the exporter of the records is closed by its owner."""
        self._backend.close()


def deliver(sink: Exporter | BatchExporter, records: Sequence[Record]) -> Mapping[str, int]:
    """Deliver records to an exporter of either kind; returns how many were lost, by reason."""
    if isinstance(sink, BatchExporter):
        return sink.deliver(records)
    failed = 0
    for record in records:
        try:
            sink.submit(record)
        except Exception as error:  # noqa: BLE001 - counted
            failed += 1
            warn_once(f"a record could not be delivered and is dropped: {error_location(error)}")
    return {constants.EXPORT_FAILED: failed} if failed else {}


def _label(metric: Metric, value: float) -> str | None:
    if value not in (0.0, 1.0):
        return None
    return "pass" if (value == 1.0) is (metric.better == "higher") else "fail"


class Redacting:
    """Redacts records before they are exported.

    Args:
        sink: The exporter.
        redact: Removes what must not leave the process.
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
    """The exporter to the server the configuration names.

    Raises:
        RagmonError: The token cannot be read, or is invalid.
    """
    export = settings.export
    if export.endpoint is None:
        return None
    # Requests and protobuf take long to load.
    from ragmon.capture.otlp_exporter import OtlpExporter, OtlpSession  # noqa: PLC0415 - as above

    if export.endpoint == OTEL:
        traces, metrics = (_otel_session(signal) for signal in SIGNALS)
        return Redacting(
            OtlpExporter(
                traces,
                metrics=metrics,
                resource={**resource_attributes(os.environ.get(RESOURCE, "")), **_resource(settings)},
            ),
            redact(),
        )
    headers = dict(export.headers)
    has_token = any(name.lower() == "authorization" for name in headers)
    token = None if has_token else read_token(settings.serve.token_file)
    session = OtlpSession(
        export.endpoint,
        token=token,
        token_place=_place(settings, "export.headers" if headers and token is None else "serve.token_file"),
        headers=headers,
        certificate=None if export.certificate is None else str(export.certificate),
        client_certificate=None if export.client_certificate is None else (str(export.client_certificate), None),
        compression=export.compression,
        timeout=export.timeout,
    )
    return Redacting(OtlpExporter(session, resource=_resource(settings)), redact())


def _place(settings: Settings, key: str) -> str:
    table, _, option = key.partition(".")
    origin = settings.origins.get(key, DEFAULT)
    return f"[{table}] {option}" + ("" if origin == DEFAULT else f" ({origin})")


def _otel_session(signal: Signal) -> OtlpSession:
    from ragmon.capture.otlp_exporter import OtlpSession  # noqa: PLC0415 - as above

    wrong: list[WrongVariable] = []
    found = otel_receiver(os.environ, signal, wrong.append)
    for name, message, hint, value in wrong:
        raise ConfigError(message, path=f"environment {name}", value=value, hint=hint)
    return OtlpSession(
        found.url,
        is_exact=True,
        token_place=f"environment {found.variable}",
        headers=found.headers,
        certificate=found.certificate,
        client_certificate=found.client_certificate,
        compression=found.compression,
        timeout=found.timeout,
    )


def with_feedback(settings: Settings, sink: Exporter | BatchExporter) -> Exporter | BatchExporter:
    """The exporter, extended by sending scores to the tracing backend if the configuration names one."""
    if settings.export.scores is None:
        return sink
    from ragmon.capture.exporters import ScoreExporter  # noqa: PLC0415 - as above

    backend = ScoreExporter(
        str(settings.export.scores), resource=_resource(settings), carriers=settings.export.score_spans
    )
    gated = cache(lambda pipeline: frozenset(gate.metric for gate in settings.of(pipeline).resolved_gates))
    return ScoreExporting(sink, backend, ScorerFactory(settings, load_gold(settings.gold))(), gated)


def with_embeddings(settings: Settings, sink: Exporter | BatchExporter) -> Exporter | BatchExporter:
    """The exporter, preceded by matching questions by meaning if a gold set names an embedder."""
    if not any(spec.embed is not None for spec in settings.gold):
        return sink

    sets = load_gold(settings.gold)
    match = Embeddings(sets, nearest_of(settings, sets))
    return Matching(sink, match) if match else sink


def _resource(settings: Settings) -> dict[str, str]:
    attributes = {"service.name": settings.service or settings.pipeline}
    return {**attributes, "service.version": settings.build} if settings.build else attributes


def trace_log(settings: Settings, redact: Callable[[], Redactions], *, strict: bool = True) -> JsonlExporter | None:
    """The exporter to the trace log the configuration names.

    Args:
        settings: The configuration.
        redact: Makes what removes from a record what must not be written.
        strict: A log that cannot be opened is an error; otherwise records are lost, and counted, until it can be.

    Raises:
        RagmonError: The log cannot be opened, in strict mode.
    """
    export = settings.export
    if export.jsonl is None:
        return None
    return JsonlExporter(
        export.jsonl,
        redact(),
        size=export.rotate_size,
        age=export.rotate_every,
        fsync=export.fsync,
        strict=strict,
    )


def combine(target: Exporter | BatchExporter | None, log: Exporter | None) -> Exporter | BatchExporter:
    """One exporter that delivers to both."""
    if log is None:
        return Tee() if target is None else target
    if target is None:
        return log
    if isinstance(target, SharedMonitor):  # one by one: of a record alone the log can tell whether it arrived
        return Tee(target, log)
    return BatchTee(target, log) if isinstance(target, BatchExporter) else Tee(target, log)


def application_identity(settings: Settings) -> str:
    """An identifier of this application on the machine: only its own dead processes are reported."""
    export = settings.export
    identity = "|".join(
        [settings.service, settings.pipeline, str(export.endpoint), str(export.jsonl), *settings.expected_pipelines]
    )
    return sha256(identity.encode()).hexdigest()[:16]


def nearest_of(settings: Settings, sets: Sequence[GoldSet]) -> list[Nearest]:
    """Nearest-neighbour matchers of the gold sets that name an embedder.

    An embedder that fails is logged once, and its set matches nothing by meaning.

    Raises:
        RagmonError: The function does not exist, or numpy is missing.
    """
    functions = {spec.name: spec.embed for spec in settings.gold if spec.embed is not None}
    matchers = []
    for gold in sets:
        if gold.name not in functions:
            continue
        embed = function_at(functions[gold.name], f"gold.{gold.name}.embed", '"myapp.vectors:embed"')
        try:
            nearest = Nearest(gold, embed)
        except RagmonError:
            raise
        except Exception as error:  # noqa: BLE001 - an embedder is third-party code
            warn_once(f"[gold.{gold.name}] embed failed, and nothing is matched by meaning: {error_location(error)}")
            continue
        if nearest.calibration.reason:
            warn_once(f"[gold.{gold.name}] embed is off: {nearest.calibration.reason}")
        matchers.append(nearest)
    return matchers


class Embeddings:
    """Matches records to gold items by meaning, where their words match none.

    Args:
        sets: All gold sets.
        nearest: The matchers.
    """

    def __init__(self, sets: Sequence[GoldSet], nearest: Sequence[Nearest]) -> None:
        self._index = GoldIndex(sets)
        self._nearest = [matcher for matcher in nearest if matcher.calibration.threshold is not None]

    def __bool__(self) -> bool:
        return bool(self._nearest)

    def __call__(self, record: Record) -> Record:
        has_question = record.source in (constants.LIVE, None) and record.q is not None and not is_redacted(record, "q")
        if not has_question or record.q is None or self._index.match(record) is not None:
            return record
        for nearest in self._nearest:
            if not nearest.gold.judges(record.pipeline or constants.DEFAULT_PIPELINE, record.source):
                continue
            try:
                item = nearest.find(record.q)
            except Exception as error:  # noqa: BLE001 - as above
                warn_once(
                    f"[gold.{nearest.gold.name}] embed failed, such records match nothing: {error_location(error)}"
                )
                continue
            if item is not None:
                return msgspec.structs.replace(record, qid=item.qid, matched=constants.BY_EMBEDDING)
        return record

    def follow(self, records: Iterable[Line]) -> Iterator[Line]:
        """Pass records of trace files through, with the matched qid."""
        for record in records:
            yield self(record) if isinstance(record, Record) else record


class Matching(ForwardingExporter):
    """Matches records by meaning before they are exported, in the worker's thread.

    Args:
        sink: The exporter.
        match: Adds the matching qid to a record.
    """

    def __init__(self, sink: Exporter | BatchExporter, match: Embeddings) -> None:
        super().__init__(sink)
        self._match = match

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Deliver records; returns how many were lost, by reason."""
        return deliver(self._sink, [self._match(record) for record in records])
