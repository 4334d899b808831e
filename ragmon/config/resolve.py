"""From a tree of tables to settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ragmon.config.environment import Process
from ragmon.config.files import Tree
from ragmon.config.kinds import duration
from ragmon.config.locate import dotted
from ragmon.config.models import Document
from ragmon.config.plugins import import_plugins
from ragmon.config.policy import Surroundings, resolve_gates
from ragmon.config.problems import Problems
from ragmon.config.references import Declared, check_judges, declared, gold_specs, probe_specs
from ragmon.config.scopes import DEFAULT, Row, View, Views, origins, views_of
from ragmon.config.settings import GoldSpec, PipelineSettings, ProbeSpec, Settings, default_source
from ragmon.core.policy import Gate


@dataclass(frozen=True)
class _Shared:
    """What all pipelines are resolved against."""

    document: Document
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
