"""Where captured records go, by configuration: a monitor in this process, a server, a trace log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ragmon.assembly import ScorerPlan, load_gold
from ragmon.capture.exporters.base import BatchSink, BatchTee, Sink, Tee
from ragmon.capture.exporters.jsonl import JsonlSink
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError
from ragmon.core.record import Record
from ragmon.feedback import Feedback
from ragmon.privacy import Redactions

if TYPE_CHECKING:
    from ragmon.capture.exporters import OtlpSink


class Redacting:
    """Takes out of records what must not leave the process, before they go to a sink.

    Args:
        sink: The sink.
        redact: Makes of a record what may leave.
    """

    def __init__(self, sink: OtlpSink, redact: Redactions) -> None:
        self._sink = sink
        self._redact = redact
        self.report = sink.report
        self.label = sink.label
        self.close = sink.close

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Deliver records; returns how many were lost, by reason."""
        return self._sink.deliver([self._redact(record) for record in records])


def server(settings: Settings, redact: Callable[[], Redactions]) -> BatchSink | None:
    """The server the configuration names.

    Raises:
        RagmonError: Its token cannot be read, or is none.
    """
    if settings.export.endpoint is None:
        return None
    from ragmon.capture.exporters import (  # noqa: PLC0415 - protobuf alone takes longer to load than all of ragmon
        OtlpSink,
    )

    token = settings.serve.token_file
    secret = None if token is None else _read(token)
    sink = OtlpSink(str(settings.export.endpoint), token=secret, resource=_resource(settings))
    return Redacting(sink, redact())


def with_feedback(settings: Settings, sink: Sink | BatchSink) -> Sink | BatchSink:
    """The sink, and beside it the tracing backend that gets the scores, where the configuration names one."""
    if settings.export.scores is None:
        return sink
    from ragmon.capture.exporters import ScoreSink  # noqa: PLC0415 - as above

    backend = ScoreSink(str(settings.export.scores), resource=_resource(settings), carriers=settings.export.score_spans)
    gated = cache(lambda pipeline: frozenset(gate.metric for gate in settings.of(pipeline).gates))
    return Feedback(sink, backend, ScorerPlan(settings, load_gold(settings.gold))(), gated)


def with_embeddings(settings: Settings, sink: Sink | BatchSink) -> Sink | BatchSink:
    """The sink, and before it what matches questions by meaning, where a gold set names an embedder."""
    if not any(spec.embed is not None for spec in settings.gold):
        return sink
    from ragmon.embedding import Embeddings, Matching, nearest_of  # noqa: PLC0415 - few have one

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


def trace_log(settings: Settings, redact: Callable[[], Redactions]) -> JsonlSink | None:
    """The trace log the configuration names."""
    export = settings.export
    if export.jsonl is None:
        return None
    return JsonlSink(export.jsonl, redact(), size=export.rotate_size, age=export.rotate_every, fsync=export.fsync)


def together(target: Sink | BatchSink | None, log: Sink | None) -> Sink | BatchSink:
    """One sink of both."""
    if log is None:
        return Tee() if target is None else target
    if target is None:
        return log
    return BatchTee(target, log) if isinstance(target, BatchSink) else Tee(target, log)


def identity(settings: Settings) -> str:
    """What tells this application from others on the machine: whose lost records it may report."""
    export = settings.export
    told = "|".join([settings.service, settings.pipeline, str(export.endpoint), str(export.jsonl), *settings.pipelines])
    return sha256(told.encode()).hexdigest()[:16]
