"""What capture needs of the settings: redaction, the key of probes, rates, and how files and spans are read."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ragmon.capture.call import CaptureSettings
from ragmon.config.settings import CaptureTable, PipelineSettings, Settings
from ragmon.core.constants import DEFAULT_PIPELINE
from ragmon.core.process import function_at, read_key
from ragmon.core.record import Record
from ragmon.core.text import fold, parse
from ragmon.ingest.gold import GoldIndex, GoldSet, load_gold, read_gold
from ragmon.ingest.spans.span import SpanOptions
from ragmon.ingest.tables import USUAL, TableOptions
from ragmon.scoring.scorer import reduction_rules

if TYPE_CHECKING:
    from ragmon.capture.redact import Redaction

KEY_NAME: Final = "[capture] hash_key_file"


class Redactions:
    """Removes from records what must not leave the process; each pipeline has its policy."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gold = GoldIndex(load_gold(settings.gold))
        self._measured = tuple(metric for metric in settings.build_metrics().values() if metric.measured)
        self._by_pipeline = {
            name: self._redaction(settings.of(name)) for name in {*settings.pipelines, settings.pipeline}
        }

    def __call__(self, record: Record) -> Record:
        """The redacted copy of a record, which may leave the process."""
        return self._for(record)(record)

    def redacted_copy(self, record: Record) -> Record:
        """The redacted copy of a record for judges, who see text that does not leave the process."""
        return self._for(record).redacted_copy(record)

    def _for(self, record: Record) -> Redaction:
        pipeline = record.pipeline or DEFAULT_PIPELINE
        redaction = self._by_pipeline.get(pipeline)
        if redaction is None:
            redaction = self._by_pipeline[pipeline] = self._redaction(self._settings.of(pipeline))
        return redaction

    def comment(self, text: str | None) -> str | None:
        """The part of a rater's comment that may leave the process; the rule is that of user traffic."""
        content = self._settings.unconfigured.capture.content
        if text is None or content in ("none", "hash"):
            return None
        from ragmon.capture.redact import redact  # noqa: PLC0415 - compiles the patterns of personal data

        return text if content == "full" else redact(text)

    @property
    def failed(self) -> int:
        """Records that lost their text because a redactor failed."""
        return sum(redaction.failed for redaction in list(self._by_pipeline.values()))

    def _redaction(self, pipeline: PipelineSettings) -> Redaction:
        from ragmon.capture.redact import Redaction  # noqa: PLC0415 - as above

        capture, reduction = pipeline.capture, reduction_rules(pipeline)
        if capture.gold is None:
            gold = self._gold
        else:  # a configured set is checked against its frozen version as well
            spec = next((spec for spec in self._settings.gold if spec.path == (capture.gold,)), None)
            gold = GoldIndex(GoldSet.load(capture.gold) if spec is None else read_gold(spec))
        return Redaction(
            content=capture.content,
            probe_content=capture.probe_content,
            gold=gold,
            facts=reduction.facts,
            grounded_threshold=reduction.grounded_threshold,
            measured=self._measured,
            key=None if capture.hash_key_file is None else read_key(capture.hash_key_file, KEY_NAME),
            redactors=[function_at(path, "capture.redactors", '"myapp.privacy:clear"') for path in capture.redactors],
        )


def probe_key(capture: CaptureTable) -> bytes | None:
    """The key that signs probes, derived from the configured key; without it no request is accepted as a probe."""
    path = capture.hash_key_file
    return None if path is None else hmac.digest(read_key(path, KEY_NAME), b"ragmon.probe", "sha256")


def capture_settings(settings: Settings) -> Callable[[str], CaptureSettings]:
    """A function that returns the settings of a pipeline; all are built now, before the first call."""
    common = _capture_settings(settings.unconfigured)
    by_pipeline = {name: _capture_settings(pipeline) for name, pipeline in settings.pipelines.items()}
    return lambda pipeline: by_pipeline.get(pipeline, common)


def _capture_settings(pipeline: PipelineSettings) -> CaptureSettings:
    id_from, refusal = pipeline.capture.id_from, pipeline.refusal.rule()
    return CaptureSettings(
        rate=pipeline.sampling.rate,
        keep=pipeline.sampling.keep.model_dump(),
        time_all=pipeline.sampling.latency == "all",
        detail=pipeline.sampling.detail,
        parent=pipeline.sampling.parent,
        refusals=frozenset(fold(token.strip()) for token in refusal.tokens),
        refuses=refusal.refuses if refusal.matcher_counts and (refusal.patterns or not refusal.replace) else None,
        slow_above=pipeline.sampling.slow_above,
        id_from=None if id_from is None else parse(id_from, "capture.id_from"),
        retrievers=pipeline.capture.retrievers,
        reasoning=pipeline.capture.reasoning,
        ignored=pipeline.errors.ignore,
        probe_key=probe_key(pipeline.capture),
    )


def file_options(settings: Settings, tables: TableOptions = USUAL) -> TableOptions:
    """How files are read: as the command line says, and with `[capture] id_from` and `reasoning`.

    Rows, and lines of other programs, belong to the configured pipeline, where there is exactly one.
    """
    capture = settings.of(settings.pipeline).capture
    id_from = None if capture.id_from is None else parse(capture.id_from, "capture.id_from")
    pipeline = settings.pipeline if len(settings.pipelines) == 1 else None
    return replace(tables, id_from=id_from, pipeline=pipeline, reasoning=capture.reasoning)


def file_span_options(settings: Settings) -> SpanOptions:
    """How spans that no decorated call holds become records: those of files, a server and an application alike."""
    pipeline, own = settings.pipeline, settings.of(settings.pipeline)
    common = _capture_settings(own)
    name = None if pipeline == DEFAULT_PIPELINE else pipeline
    return SpanOptions(
        common.id_from,
        own.capture.merge,
        common.retrievers,
        name,
        own.capture.pipeline == "workflow",
        {name: judge.range for name, judge in own.judges.items()},
        ignored=common.ignored,
        reasoning=common.reasoning,
    )
