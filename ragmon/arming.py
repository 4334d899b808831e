"""From settings to armed alarms: gates, budgets, clusters, and the baselines of a release run."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from ragmon.alarms import Alarms, AlarmTerms, index_terms, plan
from ragmon.alarms.frozen import LEARN, VERSION, FrozenPipeline, version
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core.errors import ConfigError
from ragmon.scoring.score_table import ScoreTable

TERMS: Final = 1024
"""Pipelines whose terms are remembered."""
KIND: Final = "ragmon-baseline"
"""What a baseline file calls itself."""
_HINT: Final = "write it with `ragmon baseline freeze TRACES --output FILE`"


def arm(settings: Settings, table: ScoreTable) -> Alarms:
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
    return Alarms(table, remembered(lambda name: _terms(settings.of(name), settings, table, frozen)), slices)


def _terms(
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
