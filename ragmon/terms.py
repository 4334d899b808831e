"""What the configuration asks of capture, per pipeline."""

from __future__ import annotations

from collections.abc import Callable

from ragmon.capture.runtime import Terms
from ragmon.capture.trace_buffer import Asked
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core.constants import DEFAULT_PIPELINE
from ragmon.core.paths import parse
from ragmon.core.text import fold
from ragmon.privacy import probe_key


def terms(settings: Settings) -> Callable[[str], Terms]:
    """What is asked of decorated functions, found before the first call needs it.

    Raises:
        RagmonError: `capture.id_from` is no path, or the key cannot be read.
    """
    common = _terms(settings.common)
    found = {name: _terms(pipeline) for name, pipeline in settings.pipelines.items()}
    return lambda pipeline: found.get(pipeline, common)


def _terms(pipeline: PipelineSettings) -> Terms:
    id_from = pipeline.capture.id_from
    return Terms(
        rate=pipeline.sampling.rate,
        keep=pipeline.sampling.keep.model_dump(),
        time_all=pipeline.sampling.latency == "all",
        detail=pipeline.sampling.detail,
        parent=pipeline.sampling.parent,
        refusals=frozenset(fold(token.strip()) for token in pipeline.refusal.tokens),
        slow_above=pipeline.sampling.slow_above,
        id_from=None if id_from is None else parse(id_from, "capture.id_from"),
        probe_key=probe_key(pipeline.capture),
    )


def asked(settings: Settings) -> Asked:
    """What is asked of requests nobody decorated: what is asked of the pipeline that has no name of its own."""
    found = _terms(settings.of(settings.pipeline))
    return Asked(
        rate=found.rate,
        keep=found.keep,
        slow_above=float("inf") if found.slow_above is None else found.slow_above,
        refusals=found.refusals,
        pipeline=None if settings.pipeline == DEFAULT_PIPELINE else settings.pipeline,
        id_from=found.id_from,
        merge=settings.of(settings.pipeline).capture.merge,
    )
