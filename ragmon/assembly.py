"""From settings to working parts: the gold, the rules and the scorer that one ragmon.toml describes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from ragmon.config.settings import GoldSpec, PipelineSettings, Settings
from ragmon.core.errors import RagmonError
from ragmon.core.private_files import read_key
from ragmon.gold import GoldIndex, GoldSet
from ragmon.gold.freeze import check, read_frozen
from ragmon.metrics.facts import FactReader
from ragmon.scoring.scorer import Rules, Scorer
from ragmon.scoring.windows import State

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


def rules(pipeline: PipelineSettings) -> Rules:
    """How one pipeline's records are reduced."""
    return Rules(
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
