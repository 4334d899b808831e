"""Builds running parts from the settings: alarms, gold sets, the scorer, redaction, and the capture settings.

All processes that read the same ragmon.toml get the same parts.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from ragmon.alarms.baselines import LEARN, VERSION, AlarmTerms, FrozenPipeline, index_terms, version
from ragmon.alarms.pipelines import AlarmEngine
from ragmon.alarms.plan import budget_divisor, plan
from ragmon.capture.call import CaptureSettings
from ragmon.config.settings import CaptureTable, GoldSpec, PipelineSettings, Settings
from ragmon.core.constants import DEFAULT_PIPELINE, HOUR
from ragmon.core.errors import ConfigError, RagmonError
from ragmon.core.process import read_key, without_collector
from ragmon.core.record import Record
from ragmon.core.text import fold, parse
from ragmon.ingest.gold import GoldIndex, GoldSet, check, read_frozen
from ragmon.ingest.spans.span import SpanOptions
from ragmon.ingest.tables import USUAL, TableOptions
from ragmon.metrics.facts import FactReader
from ragmon.scoring.buckets import State
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.scorer import ReductionRules, ScoreObserver, Scorer

if TYPE_CHECKING:
    from ragmon.capture.redact import Redaction
    from ragmon.capture.span_processor import SpanSettings

CACHE_SIZE: Final = 1024
"""Pipelines whose alarm terms are cached."""
KIND: Final = "ragmon-baseline"
"""The `kind` of a baseline file."""
_HINT: Final = "write it with `ragmon baseline freeze TRACES --output FILE`"


def build_alarms(settings: Settings, table: ScoreTable) -> AlarmEngine:
    """The alarms of a configuration, in their initial state.

    Args:
        settings: The configuration.
        table: The metrics that are counted.

    Raises:
        ConfigError: A baseline file cannot be read, or is invalid.
    """
    pipelines = (settings.unconfigured, *settings.pipelines.values())
    files = {path for pipeline in pipelines if (path := pipeline.alarms.baseline.file) is not None}
    frozen = {path: _read(path) for path in files}
    slices = frozenset(gate.where for pipeline in pipelines for gate in pipeline.resolved_gates if gate.where)

    @lru_cache(CACHE_SIZE)  # pipeline names come from the traffic
    def terms(name: str, place: int) -> AlarmTerms:
        return _alarm_terms(settings.of(name), budget_divisor(len(settings.pipelines), place), table, frozen)

    return AlarmEngine(table, terms, slices, frozenset(settings.pipelines))


def _alarm_terms(
    pipeline: PipelineSettings, divisor: int, table: ScoreTable, frozen: dict[Path, dict[str, FrozenPipeline]]
) -> AlarmTerms:
    """The alarm terms of one pipeline, whose budgets are divided by a number (`budget_divisor`)."""
    alarms, baseline_file = pipeline.alarms, pipeline.alarms.baseline.file
    rules = plan(
        pipeline.resolved_gates,
        table.metrics,
        false_pages_per_30d=alarms.false_pages_per_30d,
        looks_per_day=alarms.looks_per_day,
        divisor=divisor,
    )
    learn = alarms.baseline.learn
    return AlarmTerms(
        rules,
        learn=LEARN if learn is None else max(1, round(float(learn) / 60)),
        given=None if baseline_file is None else frozen[baseline_file].get(pipeline.name),
        cluster=pipeline.metrics.cluster,
        indexes=index_terms(pipeline.resolved_gates),
        citations_required=bool(pipeline.metrics.citations_required),
    )


def frozen_file(pipelines: dict[str, FrozenPipeline]) -> dict[str, Any]:
    """A baseline file's content.

    Args:
        pipelines: The frozen baselines, by pipeline name.
    """
    frozen = msgspec.to_builtins(pipelines)
    return {"kind": KIND, "v": VERSION, "version": version(frozen), "pipelines": frozen}


def _read(path: Path) -> dict[str, FrozenPipeline]:
    """The pipelines of a baseline file.

    Raises:
        ConfigError: It cannot be read, is no baseline file, or was changed by hand.
    """
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"the baseline cannot be read ({error.strerror})", path=str(path), hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("the baseline is no JSON", path=str(path), hint=_HINT) from error
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("v") != VERSION:
        raise ConfigError("this is no baseline file", path=str(path), hint=_HINT)
    if data.get("version") != version(data.get("pipelines")):
        stated = data.get("version")
        raise ConfigError("the baseline was changed after it was frozen", path=str(path), value=stated, hint=_HINT)
    try:
        return msgspec.convert(data["pipelines"], dict[str, FrozenPipeline])
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise ConfigError(f"the baseline holds what none can ({error})", path=str(path), hint=_HINT) from error


_log: Final = logging.getLogger("ragmon")


def load_gold(specs: Sequence[GoldSpec]) -> tuple[GoldSet, ...]:
    """Read the gold sets of a configuration.

    Raises:
        GoldError: A file is broken, or differs from the frozen set.
        RagmonError: The key of a frozen set cannot be read.
    """
    with without_collector():
        return tuple(_load_set(spec) for spec in specs)


def gold_of(settings: Settings, paths: Sequence[str | Path], tables: TableOptions = USUAL) -> tuple[GoldSet, ...]:
    """The gold set of some files; without files, the gold sets of the configuration.

    Files that the configuration declares as a gold set are loaded as that set: with its name, pipeline and tags.

    Args:
        settings: The configuration.
        paths: The files.
        tables: How gold in tables is read; their columns have the usual names.

    Raises:
        GoldError: A gold file cannot be read or is invalid.
    """
    if not paths:
        return load_gold(settings.gold)
    files = [Path(path).resolve() for path in paths]
    configured = [spec for spec in settings.gold if [path.resolve() for path in spec.path] == files]
    if configured:
        return load_gold(configured)
    name, options = "gold" if len(paths) > 1 else None, replace(tables, columns={})
    return (GoldSet.load(list(paths), name, options=options),)


def read_gold(spec: GoldSpec) -> GoldSet:
    """The items of a gold set as in its files, for any pipeline and use.

    Raises:
        GoldError: A file is broken, or differs from the frozen set.
        RagmonError: The key of a frozen set cannot be read.
    """
    gold = GoldSet.load(list(spec.path), spec.name, match=spec.match)
    if spec.frozen is not None:
        key = None if spec.key_file is None else read_key(spec.key_file, f"[gold.{spec.name}] key_file")
        files = " ".join(str(path) for path in spec.path)
        check(gold, read_frozen(spec.frozen, key), at=files, file=str(spec.frozen), with_key=key is not None)
    return gold


def _load_set(spec: GoldSpec) -> GoldSet:
    gold = read_gold(spec)
    return GoldSet(gold.name, gold.items, pipeline=spec.pipeline, use=spec.use, tags=spec.tags)


def without_broken_gold(settings: Settings) -> Settings:
    """The settings without the gold sets and gold files that cannot be read."""
    gold = tuple(spec for spec in settings.gold if _can_be_read(partial(read_gold, spec)))

    def usable(pipeline: PipelineSettings) -> PipelineSettings:
        path = pipeline.capture.gold
        if path is None or _can_be_read(lambda: GoldSet.load(path)):
            return pipeline
        return pipeline.model_copy(update={"capture": pipeline.capture.model_copy(update={"gold": None})})

    pipelines = {name: usable(pipeline) for name, pipeline in settings.pipelines.items()}
    return replace(settings, gold=gold, unconfigured=usable(settings.unconfigured), pipelines=pipelines)


def _can_be_read(read: Callable[[], object]) -> bool:
    try:
        read()
    except RagmonError:
        return False
    return True


def hash_keys(settings: Settings) -> dict[str | None, bytes]:
    """The keys of question hashes by pipeline (None: all other pipelines), as far as this process has them.

    Where a key cannot be read, hashed questions match nothing, and are counted as such: a process that replays traces
    elsewhere need not have the key of the process that wrote them.
    """
    pipelines: list[tuple[str | None, PipelineSettings]] = [(None, settings.unconfigured), *settings.pipelines.items()]
    files = {name: file for name, pipeline in pipelines if (file := pipeline.capture.hash_key_file) is not None}
    keys: dict[Path, bytes] = {}
    for file in sorted({*files.values()}):
        try:
            keys[file] = read_key(file, "[capture] hash_key_file")
        except RagmonError as error:
            _log.warning("hashed questions match no gold item: %s", error)
    return {name: keys[file] for name, file in files.items() if file in keys}


def import_name(path: str) -> Any:
    """The object a configuration names as `module:name`; the name may have dots.

    Raises:
        ImportError: There is no such module.
        AttributeError: It has no such name.
        Exception: Any exception that loading the module raises.

    >>> import_name("math:pi")
    3.141592653589793
    """
    module, _, name = path.partition(":")
    value: Any = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def function_at(path: str, setting: str, example: str) -> Callable[..., Any]:
    """The function a configuration names as `module:function`.

    Args:
        path: The `module:function`.
        setting: The configuration key, for messages.
        example: A correct value, for messages.

    Raises:
        RagmonError: It does not exist, or is no function.
    """
    try:
        function = import_name(path)
    except (ImportError, AttributeError) as error:
        raise RagmonError(f"{setting}: {path} is not there ({error})", hint=example) from error
    if not callable(function):
        raise RagmonError(f"{setting}: {path} is no function", hint=example)
    return cast("Callable[..., Any]", function)


def retention_of(settings: Settings) -> float:
    """Seconds for which buckets are kept apart: the longest window, and an hour for what comes late."""
    return max(settings.windows.values(), default=HOUR) + HOUR


def reduction_rules(pipeline: PipelineSettings) -> ReductionRules:
    """How the records of one pipeline are reduced to facts."""
    return ReductionRules(
        facts=FactReader(
            pipeline.refusal.rule(),
            pipeline.metrics.answered_within_ms,
            citations_required=bool(pipeline.metrics.citations_required),
        ),
        grounded_threshold=pipeline.metrics.grounded_threshold,
        slices=pipeline.slices,
        cluster=pipeline.metrics.cluster,
    )


@dataclass(frozen=True)
class ScorerFactory:
    """Creates the same scorer in every process.

    Args:
        settings: The configuration.
        gold: The gold sets.
    """

    settings: Settings
    gold: tuple[GoldSet, ...]

    def table(self) -> ScoreTable:
        """A new table of the configured metrics' scores, for a scorer and its observers."""
        return ScoreTable(self.settings.build_metrics())

    def __call__(
        self,
        *,
        state: State | None = None,
        clock: Callable[[], float] | None = None,
        table: ScoreTable | None = None,
        observers: Sequence[ScoreObserver] = (),
        ages_by_clock: bool = False,
    ) -> Scorer:
        """A new scorer.

        Args:
            state: The state it counts in; default: one that keeps everything, for a replay.
            clock: Rejects records from the future; None accepts any time.
            table: The scores of the metrics; default: a new table.
            observers: Follow every counted request.
            ages_by_clock: Whether a record is too old by the clock alone.
        """
        settings = self.settings
        common = reduction_rules(settings.unconfigured)
        by_pipeline = {
            name: own_rules
            for name, pipeline in settings.pipelines.items()
            if (own_rules := reduction_rules(pipeline)) != common
        }
        return Scorer(
            GoldIndex(self.gold, hash_keys(settings)),
            metrics=self.table() if table is None else table,
            rules=common,
            by_pipeline=by_pipeline,
            state=State(retention=retention_of(settings)) if state is None else state,
            clock=clock,
            observers=observers,
            ages_by_clock=ages_by_clock,
        )


KEY_NAME: Final = "[capture] hash_key_file"


class Redactions:
    """Removes from records what must not leave the process; one policy per pipeline.

    Args:
        settings: The configuration.

    Raises:
        GoldError: A gold file is broken.
        RagmonError: The hash key is missing or cannot be read, or a redactor does not exist.
    """

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
        return Redaction(
            content=capture.content,
            probe_content=capture.probe_content,
            gold=self._gold if capture.gold is None else GoldIndex(self._gold_set(capture.gold)),
            facts=reduction.facts,
            grounded_threshold=reduction.grounded_threshold,
            measured=self._measured,
            key=None if capture.hash_key_file is None else read_key(capture.hash_key_file, KEY_NAME),
            redactors=[function_at(path, "capture.redactors", '"myapp.privacy:clear"') for path in capture.redactors],
        )

    def _gold_set(self, path: Path) -> GoldSet:
        """The gold set of a file; if it is a configured one, it is checked against its frozen version as well."""
        spec = next((spec for spec in self._settings.gold if spec.path == (path,)), None)
        return GoldSet.load(path) if spec is None else read_gold(spec)


def probe_key(capture: CaptureTable) -> bytes | None:
    """The key that signs probes, derived from the configured key so that neither use reveals the other.

    Args:
        capture: The capture table; without a key, no request is accepted as a probe.

    Raises:
        RagmonError: The key cannot be read, or is too weak.
    """
    path = capture.hash_key_file
    return None if path is None else hmac.digest(read_key(path, KEY_NAME), b"ragmon.probe", "sha256")


def capture_settings(settings: Settings) -> Callable[[str], CaptureSettings]:
    """Returns the capture settings of a pipeline; all are built now, before the first call.

    Raises:
        RagmonError: `capture.id_from` is no path, or the key cannot be read.
    """
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
        probe_key=probe_key(pipeline.capture),
    )


def file_options(settings: Settings, tables: TableOptions = USUAL) -> TableOptions:
    """How files are read: as the command line says, and with the settings of `[capture]` on documents.

    Args:
        settings: The configuration.
        tables: What the command line says.

    Raises:
        RagmonError: `capture.id_from` is no path.
    """
    capture = settings.of(settings.pipeline).capture
    id_from = None if capture.id_from is None else parse(capture.id_from, "capture.id_from")
    return replace(tables, id_from=id_from)


def file_span_options(settings: Settings) -> SpanOptions:
    """How the spans of files become records: as a server with these settings makes them."""
    pipeline = None if settings.pipeline == DEFAULT_PIPELINE else settings.pipeline
    common, merge = _capture_settings(settings.of(settings.pipeline)), settings.of(settings.pipeline).capture.merge
    return SpanOptions(common.id_from, merge, common.retrievers, pipeline)


def span_settings(settings: Settings) -> SpanSettings:
    """The settings for requests without a decorator: those of the process's own pipeline."""
    from ragmon.capture.span_processor import SpanSettings  # noqa: PLC0415 - brings the worker and its exporters

    common, options = _capture_settings(settings.of(settings.pipeline)), file_span_options(settings)
    return SpanSettings(
        rate=common.rate,
        keep=common.keep,
        slow_above=float("inf") if common.slow_above is None else common.slow_above,
        refusals=common.refusals,
        refuses=common.refuses,
        pipeline=options.pipeline,
        id_from=options.id_from,
        merge=options.merge,
        retrievers=options.retrievers,
    )
