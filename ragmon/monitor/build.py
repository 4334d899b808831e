"""From settings to armed alarms: gates, budgets, clusters, and the baselines of a release run.

From settings to working parts: the gold, the rules and the scorer that one ragmon.toml describes.

What of a record may leave the process: one policy per pipeline, from the configuration.

What the configuration asks of capture, per pipeline.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from ragmon.alarms import AlarmEngine, AlarmTerms, index_terms, plan
from ragmon.alarms.frozen import LEARN, VERSION, FrozenPipeline, version
from ragmon.capture.pii import redact
from ragmon.capture.redaction import Redaction
from ragmon.capture.runtime import CaptureSettings
from ragmon.capture.trace_buffer import SpanSettings
from ragmon.config.settings import GoldSpec, PipelineSettings, Settings
from ragmon.config.tables import CaptureTable
from ragmon.core.constants import DEFAULT_PIPELINE
from ragmon.core.errors import ConfigError, RagmonError
from ragmon.core.paths import parse
from ragmon.core.private_files import read_key
from ragmon.core.record import Record
from ragmon.core.text import fold
from ragmon.gold import GoldIndex, GoldSet
from ragmon.gold.freeze import check, read_frozen
from ragmon.metrics.facts import FactReader
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.scorer import ReductionRules, Scorer
from ragmon.scoring.windows import State

TERMS: Final = 1024
"""Pipelines whose terms are remembered."""
KIND: Final = "ragmon-baseline"
"""What a baseline file calls itself."""
_HINT: Final = "write it with `ragmon baseline freeze TRACES --output FILE`"


def build_alarms(settings: Settings, table: ScoreTable) -> AlarmEngine:
    """The alarms of a configuration, silent and without a past.

    Args:
        settings: The configuration.
        table: The metrics that are counted.

    Raises:
        ConfigError: A baseline file cannot be read, or is none.
    """
    shared = (settings.common, *settings.pipelines.values())
    files = {path for one in shared if (path := one.alarms.baseline.file) is not None}
    frozen = {path: _read(path) for path in files}
    slices = frozenset(gate.where for one in shared for gate in one.gates if gate.where)
    remembered = lru_cache(TERMS)  # names come and go
    return AlarmEngine(table, remembered(lambda name: _alarm_terms(settings.of(name), settings, table, frozen)), slices)


def _alarm_terms(
    one: PipelineSettings, settings: Settings, table: ScoreTable, frozen: dict[Path, dict[str, FrozenPipeline]]
) -> AlarmTerms:
    """What holds for one pipeline. Configured pipelines share the budgets; one nobody configured has its own."""
    alarms, file = one.alarms, one.alarms.baseline.file
    shared = len(settings.pipelines) if one.name in settings.pipelines else 1
    watches = plan(
        one.gates,
        table.metrics,
        false_pages_per_30d=alarms.false_pages_per_30d,
        looks_per_day=alarms.looks_per_day,
        pipelines=shared,
    )
    learn = alarms.baseline.learn
    return AlarmTerms(
        watches,
        learn=LEARN if learn is None else max(1, round(float(learn) / 60)),
        given=None if file is None else frozen[file].get(one.name),
        cluster=one.metrics.cluster,
        indexes=index_terms(one.gates),
    )


def frozen_file(pipelines: dict[str, Any]) -> dict[str, Any]:
    """A baseline file's content.

    Args:
        pipelines: What each pipeline was, by its name.
    """
    return {"kind": KIND, "v": VERSION, "version": version(pipelines), "pipelines": pipelines}


def _read(path: Path) -> dict[str, FrozenPipeline]:
    """The pipelines of a baseline file.

    Raises:
        ConfigError: It cannot be read, is none, or was changed by hand.
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
        told = data.get("version")
        raise ConfigError("the baseline was changed after it was frozen", path=str(path), value=told, hint=_HINT)
    try:
        return msgspec.convert(data["pipelines"], dict[str, FrozenPipeline])
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise ConfigError(f"the baseline holds what none can ({error})", path=str(path), hint=_HINT) from error


_log: Final = logging.getLogger("ragmon")


def load_gold(specs: Sequence[GoldSpec]) -> tuple[GoldSet, ...]:
    """Read the gold sets of a configuration.

    Raises:
        GoldError: One of the files is broken, or is not what was frozen.
        RagmonError: The key of a frozen set cannot be read.
    """
    return tuple(_load_set(spec) for spec in specs)


def read_gold(spec: GoldSpec) -> GoldSet:
    """The items of a gold set as its files say them, for any pipeline and use.

    Raises:
        GoldError: A file is broken, or is not what was frozen.
        RagmonError: The key of a frozen set cannot be read.
    """
    read = GoldSet.load(list(spec.paths), spec.name, match=spec.match)
    if spec.frozen is not None:
        key = None if spec.key_file is None else read_key(spec.key_file, f"[gold.{spec.name}] key_file")
        files = " ".join(str(path) for path in spec.paths)
        check(read, read_frozen(spec.frozen, key), at=files, file=str(spec.frozen), with_key=key is not None)
    return read


def _load_set(spec: GoldSpec) -> GoldSet:
    read = read_gold(spec)
    return GoldSet(read.name, read.items, pipeline=spec.pipeline, use=spec.use, tags=spec.tags)


def hash_keys(settings: Settings) -> dict[str | None, bytes]:
    """The secrets of question hashes by pipeline, under None that of all others, as far as this process has them.

    Where one is not to be had, hashed questions match nothing, and are counted so: whoever replays traces elsewhere
    need not have the secret of those who wrote them.
    """
    shared: list[tuple[str | None, PipelineSettings]] = [(None, settings.common), *settings.pipelines.items()]
    files = {name: file for name, one in shared if (file := one.capture.hash_key_file) is not None}
    found: dict[Path, bytes] = {}
    for file in sorted({*files.values()}):
        try:
            found[file] = read_key(file, "[capture] hash_key_file")
        except RagmonError as error:
            _log.warning("hashed questions match no gold item: %s", error)
    return {name: found[file] for name, file in files.items() if file in found}


def named(path: str) -> Any:
    """What a configuration names as `module:name`, the name with dots where it is inside of something.

    Raises:
        ImportError: There is no such module.
        AttributeError: It has no such name.
        Exception: Whatever the module raises while it is loaded.

    >>> named("math:pi")
    3.141592653589793
    """
    module, _, name = path.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def function_at(path: str, setting: str, example: str) -> Callable[..., Any]:
    """The function a configuration names as `module:function`.

    Args:
        path: Where it is.
        setting: The key that names it, for messages.
        example: What would be right, for messages.

    Raises:
        RagmonError: It is not there.
    """
    try:
        found = named(path)
    except (ImportError, AttributeError) as error:
        raise RagmonError(f"{setting}: {path} is not there ({error})", hint=example) from error
    if not callable(found):
        raise RagmonError(f"{setting}: {path} is no function", hint=example)
    return cast("Callable[..., Any]", found)


def rules(pipeline: PipelineSettings) -> ReductionRules:
    """How one pipeline's records are reduced."""
    return ReductionRules(
        facts=FactReader(pipeline.refusal, pipeline.metrics.answered_within_ms),
        grounded_threshold=pipeline.metrics.grounded_threshold,
        slices=pipeline.slices,
    )


@dataclass(frozen=True)
class ScorerPlan:
    """Makes the same scorer in every process.

    Args:
        settings: The configuration.
        gold: The gold sets.
    """

    settings: Settings
    gold: tuple[GoldSet, ...]

    def __call__(self, *, state: State | None = None, clock: Callable[[], float] | None = None) -> Scorer:
        """A fresh scorer.

        Args:
            state: Where it counts; default: a state that keeps everything.
            clock: Refuses records from the future; None trusts their time.
        """
        settings = self.settings
        common = rules(settings.common)
        own = {name: found for name, one in settings.pipelines.items() if (found := rules(one)) != common}
        return Scorer(
            GoldIndex(self.gold, hash_keys(settings)),
            metrics=settings.build_metrics(),
            rules=common,
            by_pipeline=own,
            state=state,
            clock=clock,
        )


KEY_NAME: Final = "[capture] hash_key_file"


class Redactions:
    """Takes out of records what must not leave the process.

    Args:
        settings: The configuration.

    Raises:
        GoldError: A gold file is broken.
        RagmonError: The hash key is missing or cannot be read, or a redactor is not there.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gold = GoldIndex(load_gold(settings.gold))
        self._measured = tuple(metric for metric in settings.build_metrics().values() if metric.measured)
        self._of = {name: self._redaction(settings.of(name)) for name in {*settings.pipelines, settings.pipeline}}

    def __call__(self, record: Record) -> Record:
        """What may leave of a record."""
        return self._for(record)(record)

    def cleared(self, record: Record) -> Record:
        """What judges may see of a record, who see text that does not leave."""
        return self._for(record).cleared(record)

    def _for(self, record: Record) -> Redaction:
        pipeline = record.pipeline or DEFAULT_PIPELINE
        redaction = self._of.get(pipeline)
        if redaction is None:
            redaction = self._of[pipeline] = self._redaction(self._settings.of(pipeline))
        return redaction

    def comment(self, text: str | None) -> str | None:
        """What may leave of words that somebody said of an answer: as much as of user traffic."""
        content = self._settings.common.capture.content
        if text is None or content in ("none", "hash"):
            return None
        return text if content == "full" else redact(text)

    @property
    def failed(self) -> int:
        """Records that lost their text because a redactor failed."""
        return sum(redaction.failed for redaction in list(self._of.values()))

    def _redaction(self, pipeline: PipelineSettings) -> Redaction:
        capture, known = pipeline.capture, rules(pipeline)
        return Redaction(
            content=capture.content,
            probe_content=capture.probe_content,
            gold=self._gold if capture.gold is None else GoldIndex(self._set_in(capture.gold)),
            facts=known.facts,
            grounded_threshold=known.grounded_threshold,
            measured=self._measured,
            key=None if capture.hash_key_file is None else read_key(capture.hash_key_file, KEY_NAME),
            redactors=[function_at(path, "capture.redactors", '"myapp.privacy:clear"') for path in capture.redactors],
        )

    def _set_in(self, path: Path) -> GoldSet:
        """The gold set in a file: where it is one of the configured ones, what was frozen of that holds here too."""
        spec = next((spec for spec in self._settings.gold if spec.paths == (path,)), None)
        return GoldSet.load(path) if spec is None else read_gold(spec)


def probe_key(capture: CaptureTable) -> bytes | None:
    """What proves that a request is a probe: derived from the configured key, so that neither use tells of the other.

    Args:
        capture: What is configured; without a key, nobody is believed.

    Raises:
        RagmonError: The key cannot be read, or can be guessed.
    """
    path = capture.hash_key_file
    return None if path is None else hmac.digest(read_key(path, KEY_NAME), b"ragmon.probe", "sha256")


def terms(settings: Settings) -> Callable[[str], CaptureSettings]:
    """What is asked of decorated functions, found before the first call needs it.

    Raises:
        RagmonError: `capture.id_from` is no path, or the key cannot be read.
    """
    common = _capture_settings(settings.common)
    found = {name: _capture_settings(pipeline) for name, pipeline in settings.pipelines.items()}
    return lambda pipeline: found.get(pipeline, common)


def _capture_settings(pipeline: PipelineSettings) -> CaptureSettings:
    id_from = pipeline.capture.id_from
    return CaptureSettings(
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


def span_settings(settings: Settings) -> SpanSettings:
    """What is asked of requests nobody decorated: what is asked of the pipeline that has no name of its own."""
    found = _capture_settings(settings.of(settings.pipeline))
    return SpanSettings(
        rate=found.rate,
        keep=found.keep,
        slow_above=float("inf") if found.slow_above is None else found.slow_above,
        refusals=found.refusals,
        pipeline=None if settings.pipeline == DEFAULT_PIPELINE else settings.pipeline,
        id_from=found.id_from,
        merge=settings.of(settings.pipeline).capture.merge,
    )
