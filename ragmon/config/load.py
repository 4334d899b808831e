"""Loads the configuration: `load` returns settings, `check` lists every problem.

Plugins that register metrics are imported first: the modules that ragmon.toml names, and installed distributions with
an entry point.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from ragmon.config import sources
from ragmon.config.gates import GateContext, is_published, resolve_gates
from ragmon.config.otel import OTEL, SIGNALS, WrongVariable, otel_receiver
from ragmon.config.problems import KeyPath, Problem, Problems, SourceLocation, dotted
from ragmon.config.references import (
    DEFAULT,
    Row,
    Views,
    check_judges,
    effective_tables,
    gold_specs,
    origins,
    probe_specs,
    scope_of,
)
from ragmon.config.settings import GoldSpec, PipelineSettings, Settings, default_source
from ragmon.config.sources import Process, Tree, gather
from ragmon.config.tables import MetricsTable, ScopedTable
from ragmon.config.types import duration
from ragmon.core.policy import Gate

GROUP: Final = "ragmon.metrics"
"""The entry-point group of distributions with metrics."""


def import_plugins(modules: Sequence[str], problems: Problems) -> None:
    """Import every plugin; a failure is reported and does not stop the others.

    Args:
        modules: Modules by their dotted names.
        problems: Problems are reported here.
    """
    for index, module in enumerate(modules):
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a plugin is third-party code and may raise anything
            hint = f"{type(error).__name__}: {error}; a plugin is installed or stands on PYTHONPATH"
            problems.report(("plugins", index), "cannot be imported", value=module, hint=hint)
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # noqa: BLE001 - as above
            hint = f"{type(error).__name__}: {error}; uninstall or repair its distribution"
            problems.report(("plugins",), f"cannot load the installed {point.name}", value=point.value, hint=hint)


def resolve(tree: Tree, process: Process, problems: Problems, *, path: Path | None, plugins: bool) -> Settings:
    """Resolve a tree of tables into settings; problems are reported, and wrong values replaced by their defaults.

    Args:
        tree: The merged tables, including overrides of the environment.
        process: Settings of the process, from the environment.
        problems: Problems are reported here.
        path: The main file.
        plugins: Import the modules with metrics; otherwise gates on unknown metrics are omitted.
    """
    document, views, declared = effective_tables(tree.data, problems, process.pipeline)
    if plugins:
        import_plugins(document.plugins, problems)
    gold = gold_specs(views, declared, problems)
    by_name = {spec.name: spec for spec in gold}
    probes = probe_specs(views, by_name, declared, problems)
    check_judges(views, problems)
    windows = {window: int(duration(window)) for window in document.windows}

    def of_pipeline(name: str, view: str | None) -> PipelineSettings:
        tables, foreign = views[view], bool(document.plugins) and not plugins
        about = GateContext(name, scope_of(view), windows, tables.slices, by_name, declared.gold, foreign)
        gates = resolve_gates(tables.gates, document.gates, about, problems)
        metrics = _metrics(tables, tables.gates.preset or document.gates.preset)
        known = {"name": name, "metrics": metrics, "resolved_gates": tuple(gates.values())}
        known["has_probe"] = any(probe.pipeline == name for probe in probes)
        return PipelineSettings.model_construct(**dict(tables) | known)

    common = of_pipeline(declared.default, None)
    pipelines = {name: of_pipeline(name, name) if name in views else common for name in declared.pipelines}
    unconfigured = _of_any_pipeline(common, gold, is_probed=common.has_probe and not pipelines)
    rows = list(_all_rows(process, views, pipelines, unconfigured, declared.default, problems))
    return Settings(
        path,
        process.build,
        process.service,
        process.disabled,
        windows,
        declared.default,
        pipelines,
        unconfigured,
        gold,
        probes,
        document.serve,
        document.stream,
        document.rules,
        document.export,
        values={key: value for key, value, _ in rows},
        origins={key: origin for key, _, origin in rows},
    )


def _metrics(tables: ScopedTable, preset: str | None) -> MetricsTable:
    """The parameters of metrics; a published preset asks for a list of citations where the file does not say it."""
    if tables.metrics.citations_required is not None:
        return tables.metrics
    return tables.metrics.model_copy(update={"citations_required": is_published(preset)})


def _of_any_pipeline(common: PipelineSettings, gold: Sequence[GoldSpec], *, is_probed: bool) -> PipelineSettings:
    """The settings of the top level without what belongs to one pipeline: gates on its gold, and its probes.

    Args:
        common: The settings of the top level, for the default pipeline.
        gold: The gold sets.
        is_probed: Whether probes go through the pipelines that nothing names.
    """
    of_one_pipeline = {spec.name for spec in gold if spec.pipeline is not None}
    gates = tuple(gate for gate in common.resolved_gates if gate.gold not in of_one_pipeline)
    return common.model_copy(update={"resolved_gates": gates, "has_probe": is_probed})


def _all_rows(
    process: Process,
    views: Views,
    pipelines: Mapping[str, PipelineSettings],
    unconfigured: PipelineSettings,
    default: str,
    problems: Problems,
) -> Iterator[Row]:
    """The rows of all values: key, value and origin. The gates of the top level come first."""
    for key in ("build", "service", "disabled"):
        yield key, getattr(process, key), process.origins[key]
    for key, value, origin in sorted(origins(views[None], (), problems), key=lambda row: "." in row[0]):
        if key != "pipeline.name":
            yield key, value, origin
        elif not pipelines and default == process.pipeline:
            yield key, default, process.origins["service"]
        else:
            yield key, default, origin
    top = next((pipeline for name, pipeline in pipelines.items() if name not in views), unconfigured)
    for gate in top.resolved_gates:
        yield from _gate_rows(gate, top, (), problems)
    for name, pipeline in pipelines.items():
        if name in views:
            yield from origins(views[name], scope_of(name), problems)
            for gate in pipeline.resolved_gates:
                yield from _gate_rows(gate, pipeline, scope_of(name), problems)


def _gate_rows(gate: Gate, pipeline: PipelineSettings, scope: KeyPath, problems: Problems) -> Iterator[Row]:
    """The rows of a gate, including its default source; the origin of a preset's gate is the line of the preset.

    A gate of a pipeline stands in place of the gate of the top level, so none of its keys has its origin there.
    """
    path: KeyPath = ("gates", gate.name)
    table = (*scope, *path) if problems.written((*scope, *path)) else path
    preset = None if problems.written(table) else problems.written(("gates", "preset"), scope)
    for key, value in _gate_values(gate, pipeline):
        place = problems.written((*table, key)) or (preset if key != "source" else None)
        yield dotted((*scope, *path, key)), value, DEFAULT if place is None else place.origin


def _gate_values(gate: Gate, pipeline: PipelineSettings) -> Iterator[tuple[str, object]]:
    yield "metric", gate.metric
    yield gate.direction, gate.threshold
    yield "source", gate.source or default_source(gate, probed=pipeline.has_probe)
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
"""The file that is read by default, if it exists."""


def load(path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, plugins: bool = True) -> Settings:
    """The settings from a configuration file and the environment.

    Args:
        path: The file; None for the one `RAGMON_CONFIG` names, else `ragmon.toml` in the working directory, else the
            defaults.
        environ: The environment; None for that of the process.
        plugins: Import the modules under `plugins`. Capture does not: it evaluates no gates, and the application need
            not have them installed.

    Raises:
        ConfigError: The first problem, with file, line and hint, and the number of problems.
    """
    settings, problems = examine(path, environ=environ, plugins=plugins)
    if errors := problems.errors:
        raise errors[0].error(len(errors))
    return settings


def defaults() -> Settings:
    """The built-in defaults, without file and environment."""
    return resolve(
        Tree(), sources.process({})[0], Problems(SourceLocation(FILE, label=FILE), {}), path=None, plugins=False
    )


def check(path: str | Path | None = None, *, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """All errors of a configuration file, in the order of its lines.

    Args:
        path: As for `load`.
        environ: As for `load`.

    Raises:
        ConfigError: The file cannot be read as text.
    """
    return examine(path, environ=environ)[1].errors


def find(path: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file to read: the argument, else that of the environment, else ragmon.toml here; None for the defaults."""
    if path is not None:
        return Path(path)
    environ_path = environ.get(sources.CONFIG, "").strip()
    if environ_path:
        return Path(environ_path)
    default_path = Path(FILE)
    return default_path if default_path.is_file() else None


def _of_variable(found: WrongVariable) -> Problem:
    place = f"environment {found.name}"
    return Problem(place, None, found.name, f"{found.name} {found.message}", found.value, found.hint)


def examine(
    path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, plugins: bool = True
) -> tuple[Settings, Problems]:
    """The settings, with defaults in place of wrong values, and the problems found; more may be reported to them.

    Args:
        path: As for `load`.
        environ: As for `load`.
        plugins: As for `load`.

    Raises:
        ConfigError: The file cannot be read as text.
    """
    environ = os.environ if environ is None else environ
    path = find(path, environ)
    file_problems: list[Problem] = []
    root, tree = (SourceLocation(FILE, label=FILE), Tree()) if path is None else gather(path, file_problems.append)
    tree = sources.overlay(tree, environ)
    process, process_problems = sources.process(environ)
    problems = Problems(root, tree.places)
    export = tree.data.get("export")
    if isinstance(export, dict) and export.get("endpoint") == OTEL:
        for signal in SIGNALS:
            otel_receiver(environ, signal, lambda found: file_problems.append(_of_variable(found)))
    for problem in (*file_problems, *process_problems, *sources.mistyped(environ)):
        problems.note(problem)
    settings = resolve(tree, process, problems, path=path, plugins=plugins)
    return settings, problems
