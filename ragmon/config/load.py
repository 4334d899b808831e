"""Importing what registers metrics: the modules ragmon.toml names, and installed distributions that announce some.

From a tree of tables to settings.

Where configuration enters: `load` for programs, `check` for people.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from ragmon.config import sources
from ragmon.config.gates import Surroundings, resolve_gates
from ragmon.config.positions import dotted
from ragmon.config.problems import Problem, Problems, SourceLocation
from ragmon.config.references import (
    DEFAULT,
    Declared,
    Row,
    View,
    Views,
    check_judges,
    declared,
    gold_specs,
    origins,
    probe_specs,
    views_of,
)
from ragmon.config.settings import GoldSpec, PipelineSettings, ProbeSpec, Settings, default_source
from ragmon.config.sources import Process, Tree, gather
from ragmon.config.tables import ConfigDocument
from ragmon.config.types import duration
from ragmon.core.policy import Gate

GROUP: Final = "ragmon.metrics"
"""The entry-point group of distributions that bring metrics."""


def import_plugins(modules: Sequence[str], problems: Problems) -> None:
    """Import every plugin; one that cannot be imported is reported, and the others still are.

    Args:
        modules: Modules by their dotted names.
        problems: Where problems are reported.
    """
    for index, module in enumerate(modules):
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a plugin is foreign code and may raise anything
            hint = f"{type(error).__name__}: {error}; a plugin is installed or stands on PYTHONPATH"
            problems.report(("plugins", index), "cannot be imported", value=module, hint=hint)
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # noqa: BLE001 - as above
            hint = f"{type(error).__name__}: {error}; uninstall or repair its distribution"
            problems.report(("plugins",), f"cannot load the installed {point.name}", value=point.value, hint=hint)


@dataclass(frozen=True)
class _Shared:
    """What all pipelines are resolved against."""

    document: ConfigDocument
    known: Declared
    gold: tuple[GoldSpec, ...]
    probes: tuple[ProbeSpec, ...]
    windows: Mapping[str, int]
    foreign_metrics: bool


def resolve(tree: Tree, process: Process, problems: Problems, *, path: Path | None, plugins: bool) -> Settings:
    """The settings a tree of tables stands for; what is wrong is reported and stands at its default.

    Args:
        tree: The merged tables, the environment on top.
        process: What the environment says about the process.
        problems: Where problems are reported.
        path: The main file.
        plugins: Import the modules that bring metrics; without them gates on unknown metrics are left out.
    """
    document, views = views_of(tree.data, problems)
    if plugins:
        import_plugins(document.plugins, problems)
    known = declared(document, views)
    gold = gold_specs(views, known, problems)
    probes = probe_specs(views, {spec.name: spec for spec in gold}, known, problems)
    check_judges(views, problems)
    windows = {window: int(duration(window)) for window in document.windows}
    shared = _Shared(document, known, gold, probes, windows, bool(document.plugins) and not plugins)
    common = _pipeline(known.default, views[None], shared, problems)
    pipelines = {
        name: _pipeline(name, views[name], shared, problems) if name in views else common for name in known.pipelines
    }
    rows = list(_rows(process, views, pipelines, known.default, problems))
    return Settings(
        path,
        process.build,
        process.service,
        process.disabled,
        windows,
        document.plugins,
        known.default,
        pipelines,
        common,
        gold,
        probes,
        document.alarms,
        document.judges,
        document.labels,
        document.links,
        document.serve,
        document.export,
        values={key: value for key, value, _ in rows},
        origins={key: origin for key, _, origin in rows},
    )


def _pipeline(name: str, view: View, shared: _Shared, problems: Problems) -> PipelineSettings:
    tables = view.tables
    about = Surroundings(
        name,
        view.scope,
        shared.windows,
        tables.slices,
        {spec.name: spec for spec in shared.gold},
        shared.known.gold,
        shared.foreign_metrics,
    )
    gates = resolve_gates(tables.gates, shared.document.gates, about, problems)
    return PipelineSettings(
        name,
        tables.sampling,
        tables.capture,
        tables.refusal.rule(),
        tables.slices,
        tables.metrics,
        tuple(gates.values()),
        tables.gates.verdict,
        tables.gates.on_insufficient,
        tables.alarms,
        tables.judges,
        tables.labels,
        tables.links,
        tables.export,
        probed=any(probe.pipeline == name for probe in shared.probes),
    )


def _rows(
    process: Process, views: Views, pipelines: Mapping[str, PipelineSettings], default: str, problems: Problems
) -> Iterator[Row]:
    """Every value with its key and its origin."""
    for key in ("build", "service", "disabled"):
        yield key, getattr(process, key), process.origins[key]
    for key, value, origin in sorted(origins(views[None], problems), key=lambda row: "." in row[0]):
        yield key, default if key == "pipeline.name" else value, origin
    for name, pipeline in pipelines.items():
        view = views.get(name, views[None])
        if view.scope:
            yield from origins(view, problems)
        for gate in pipeline.gates:
            yield from _gate_rows(gate, pipeline, view, problems)


def _gate_rows(gate: Gate, pipeline: PipelineSettings, view: View, problems: Problems) -> Iterator[Row]:
    """What a gate says, its default source included; a preset's gate comes from where the preset is named."""
    at = ("gates", gate.name)
    gates = view.data.get("gates")
    table = gates.get(gate.name) if isinstance(gates, dict) else None
    preset = problems.written(("gates", "preset"), view.scope)
    for key, value in _gate_values(gate, pipeline):
        if isinstance(table, dict):
            place = problems.written((*at, key), view.scope) if key in table else None
        else:
            place = preset if key != "source" else None
        yield dotted((*view.scope, *at, key)), value, DEFAULT if place is None else place.origin


def _gate_values(gate: Gate, pipeline: PipelineSettings) -> Iterator[tuple[str, object]]:
    yield "metric", gate.metric
    yield gate.direction, gate.threshold
    yield "source", gate.source or default_source(gate, probed=pipeline.probed)
    optional = {
        "gold": gate.gold,
        "slice": dict([gate.where.split("=", 1)]) if gate.where else None,
        "window": gate.window,
        "estimand": gate.estimand,
        "min_samples": gate.min_samples,
        "page_below" if gate.at_least else "page_above": gate.page_beyond,
        "severity": gate.severity,
        "kind": gate.kind,
    }
    yield from ((key, value) for key, value in optional.items() if value is not None)


FILE: Final = "ragmon.toml"
"""What is read when nobody names a file, if it is there."""


def load(path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, plugins: bool = True) -> Settings:
    """The settings of a configuration file under an environment.

    Args:
        path: The file; None takes the one `RAGMON_CONFIG` names, else `ragmon.toml` here, else the defaults.
        environ: The environment; None takes the process's own.
        plugins: Import the modules under `plugins`. Capture does without: it judges no gates, and the application
            need not have them installed.

    Raises:
        ConfigError: The first thing that is wrong, with file, line and hint, and how many more there are.
    """
    environ = os.environ if environ is None else environ
    settings, problems = _resolve(find(path, environ), environ, plugins=plugins)
    if problems:
        raise problems[0].error(len(problems))
    return settings


def defaults() -> Settings:
    """The built-in defaults alone: no file and no environment."""
    return resolve(
        Tree(), sources.process({})[0], Problems(SourceLocation(FILE, label=FILE), {}), path=None, plugins=False
    )


def check(path: str | Path | None = None, *, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """Everything that is wrong with a configuration file, in the order of its lines.

    Args:
        path: As for `load`.
        environ: As for `load`.

    Raises:
        ConfigError: The file cannot be read as text.
    """
    environ = os.environ if environ is None else environ
    return _resolve(find(path, environ), environ, plugins=True)[1]


def find(path: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file that holds: the argument, else the environment's, else the one here; None for the defaults."""
    if path is not None:
        return Path(path)
    named = environ.get(sources.CONFIG, "").strip()
    if named:
        return Path(named)
    here = Path(FILE)
    return here if here.is_file() else None


def _resolve(path: Path | None, environ: Mapping[str, str], *, plugins: bool) -> tuple[Settings, list[Problem]]:
    early: list[Problem] = []
    root, tree = (SourceLocation(FILE, label=FILE), Tree()) if path is None else gather(path, early.append)
    tree = sources.overlay(tree, environ)
    process, wrong = sources.process(environ)
    problems = Problems(root, tree.places)
    for problem in (*early, *wrong):
        problems.note(problem)
    settings = resolve(tree, process, problems, path=path, plugins=plugins)
    return settings, problems.listed
