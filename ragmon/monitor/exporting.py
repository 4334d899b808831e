"""The exporters that a configuration names: a server, a trace log, and the tracing backend for scores.

Records are redacted and matched by meaning before export, scores are sent after it. Matching by meaning needs the text,
so it runs in the application's worker and over trace files, never in a server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from ragmon.capture.exporters import BATCH, BatchExporter, ChangingExporter, Exporter, JsonlExporter, Scored, Tee
from ragmon.config.load import DEFAULT, RESOURCE, resource_attributes
from ragmon.config.services import OTEL, SIGNALS, WrongVariable, otel_receiver
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import ConfigError, RagmonError, error_location, warn_once
from ragmon.core.process import function_at, read_token
from ragmon.core.record import Line, Record, is_redacted
from ragmon.ingest.gold import GoldIndex, GoldSet, Nearest, load_gold
from ragmon.monitor.capture_settings import Redactions
from ragmon.monitor.sharing import SharedMonitor
from ragmon.scoring.scorer import Scorer, ScorerFactory

if TYPE_CHECKING:
    from ragmon.capture.otlp_exporter import ScoreExporter


class ScoreExporting(Tee):
    """Exports records, then sends the tracing backend the scores of gated metrics for records whose traces it has.

    Failures of the backend do not affect the records: they are logged once. `gated` names the metrics of a pipeline.
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
        lost, metrics, scored = super().deliver(records), self._scorer.table.metrics, list[Scored]()
        try:
            for record in records:
                if not record.exported:
                    continue
                gated = self._gated(record.pipeline or constants.DEFAULT_PIPELINE)
                scores: list[tuple[str, float, str | None]] = []
                for name, value in self._scorer.scores(record).items():
                    if name in gated:
                        label = "pass" if (value == 1.0) is (metrics[name].better == "higher") else "fail"
                        scores.append((name, value, label if value in (0.0, 1.0) else None))
                if scores:
                    scored.append(Scored(record.trace_id or "", record.parent_span_id, scores))
            if scored and self._backend.deliver(scored):
                warn_once("scores could not be sent to the tracing backend that [export] scores names")
        except Exception as error:  # noqa: BLE001 - a metric is third-party code and may raise anything
            warn_once(f"scores could not be sent: {error_location(error)}")
        return lost

    def close(self) -> None:
        """Close the connection to the backend; the exporter of the records is closed by its owner."""
        self._backend.close()


def server(settings: Settings, redact: Callable[[], Redactions]) -> ChangingExporter | None:
    """The exporter to the server that the configuration names."""
    export = settings.export
    if export.endpoint is None:
        return None
    from ragmon.capture.otlp_exporter import OtlpExporter, OtlpSession  # noqa: PLC0415 - loads requests and protobuf

    if export.endpoint == OTEL:
        sessions = []
        for signal in SIGNALS:
            wrong: list[WrongVariable] = []
            found = otel_receiver(os.environ, signal, wrong.append)
            for name, message, hint, value in wrong:
                raise ConfigError(message, path=f"environment {name}", value=value, hint=hint)
            session = OtlpSession(
                found.url,
                is_exact=True,
                token_location=f"environment {found.variable}",
                headers=found.headers,
                certificate=found.certificate,
                client_certificate=found.client_certificate,
                compression=found.compression,
                timeout=found.timeout,
            )
            sessions.append(session)
        resource = {**resource_attributes(os.environ.get(RESOURCE, "")), **_resource(settings)}
        return ChangingExporter(OtlpExporter(sessions[0], metrics=sessions[1], resource=resource), redact())
    headers = dict(export.headers)
    has_token = any(name.lower() == "authorization" for name in headers)
    token = None if has_token else read_token(settings.serve.token_file)
    table, option = ("export", "headers") if headers and token is None else ("serve", "token_file")
    origin = settings.origins.get(f"{table}.{option}", DEFAULT)
    session = OtlpSession(
        export.endpoint,
        token=token,
        token_location=f"[{table}] {option}" + ("" if origin == DEFAULT else f" ({origin})"),
        headers=headers,
        certificate=None if export.certificate is None else str(export.certificate),
        client_certificate=None if export.client_certificate is None else (str(export.client_certificate), None),
        compression=export.compression,
        timeout=export.timeout,
    )
    return ChangingExporter(OtlpExporter(session, resource=_resource(settings)), redact())


def with_feedback(settings: Settings, sink: Exporter | BatchExporter) -> Exporter | BatchExporter:
    """The exporter, extended by sending scores to the tracing backend if the configuration names one."""
    if settings.export.scores is None:
        return sink
    from ragmon.capture.otlp_exporter import ScoreExporter  # noqa: PLC0415 - loads requests and protobuf

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
    return ChangingExporter(sink, match) if match else sink


def _resource(settings: Settings) -> dict[str, str]:
    attributes = {"service.name": settings.service or settings.pipeline}
    return {**attributes, "service.version": settings.build} if settings.build else attributes


def trace_log(settings: Settings, redact: Callable[[], Redactions], *, strict: bool = True) -> JsonlExporter | None:
    """The exporter to the trace log that the configuration names."""
    export = settings.export
    if export.jsonl is None:
        return None
    size, age = export.rotate_size, export.rotate_every
    return JsonlExporter(export.jsonl, redact(), size=size, age=age, fsync=export.fsync, strict=strict)


def combine(target: Exporter | BatchExporter | None, log: Exporter | None) -> Exporter | BatchExporter:
    """One exporter that delivers to both."""
    if log is None:
        return Tee() if target is None else target
    if target is None:
        return log
    # To the monitor record by record, so that the log knows which arrived.
    is_batch = isinstance(target, BatchExporter) and not isinstance(target, SharedMonitor)
    return Tee(target, log, at_once=BATCH if is_batch else 1)


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
            warn_once(f"[gold.{gold.name}] embed failed, so nothing is matched by meaning: {error_location(error)}")
            continue
        if nearest.calibration.reason:
            warn_once(f"[gold.{gold.name}] embed is off: {nearest.calibration.reason}")
        matchers.append(nearest)
    return matchers


class Embeddings:
    """Matches records to gold items by meaning, where their words match none."""

    def __init__(self, sets: Sequence[GoldSet], nearest: Sequence[Nearest]) -> None:
        self._index = GoldIndex(sets)
        self._nearest = [matcher for matcher in nearest if matcher.calibration.threshold is not None]

    def __bool__(self) -> bool:
        return bool(self._nearest)

    def __call__(self, record: Record) -> Record:
        """The record, with the qid of the item its question means; it never raises."""
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
