"""`ragmon config`: check ragmon.toml, or show every value of the resolved configuration with its origin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import click

from ragmon.config.load import examine, masked_values, scope_of, toml_text
from ragmon.config.problems import KeyPath, Problem, Problems
from ragmon.config.settings import PipelineSettings, Settings, judged_live
from ragmon.core.constants import GOLD_SET, MATCH, PROBE
from ragmon.core.errors import RagmonError, printable, printable_json, printable_line
from ragmon.core.policy import Gate
from ragmon.export.families import expected_series
from ragmon.export.text import text_table
from ragmon.gates.evaluate import usual_estimand
from ragmon.ingest.gold import GoldSet, load_gold
from ragmon.metrics import base
from ragmon.stats.intervals import needed_to_decide

SERIES: Final = "prometheus.series"
"""The row with the expected number of series."""
PROBLEMS: Final = 1
WIDE: Final = 40
"""Width of the value column; a longer value shifts its own origin to the right."""
_MORE: Final = 'add gold items, or lower min_samples; if the gate is for exact runs in CI: source = "probe" or "replay"'


def rows(settings: Settings) -> list[tuple[str, object, str]]:
    """Every value of a configuration."""
    return [*masked_values(settings), (SERIES, expected_series(settings), "estimate")]


def check_command(context: click.Context, path: str | None) -> None:
    """Name every problem with its line and what would be right; a warning alone is no failure."""
    settings, problems = examine(path)
    for gate in settings.gates():  # those that pass when their metric is worst
        lower = gate.kind != "threshold" or base.parse(gate.metric).better == "lower"
        if gate.at_least is lower:
            word, key = ("lower", "at_most") if lower else ("higher", "at_least")
            hint = f"{key} = {gate.threshold:g}: {gate.metric} is better the {word} it is"
            where, scope = ("gates", gate.name, gate.direction), scope_of(gate.pipeline)
            problems.report(where, "is the wrong way round", scope=scope, value=gate.threshold, hint=hint)
    # Warn of gates that no live window can fail, because their gold set has too few items.
    golds = _check_gold(settings, problems)
    for pipeline in map(settings.of, settings.expected_pipelines):
        scope, of_preset = scope_of(pipeline.name), dict[str, list[str]]()
        for gate in pipeline.resolved_gates if pipeline.gates.verdict == "interval" else ():
            too_few = _too_few(gate, pipeline, settings, golds)
            if too_few and problems.written(("gates", gate.name), scope):
                problems.report(("gates", gate.name), too_few, scope=scope, hint=_MORE, warning=True)
            elif too_few:
                of_preset.setdefault(too_few, []).append(gate.name)
        for too_few, names in of_preset.items():
            problems.report(("gates",), f"({', '.join(names)}) {too_few}", scope=scope, hint=_MORE, warning=True)
    listed, errors = problems.listed, len(problems.errors)
    for problem in listed:
        click.echo(f"{'warning: ' if problem.warning else ''}{_problem_text(problem)}")
    name = "no ragmon.toml here, the defaults are in force" if settings.path is None else str(settings.path)
    counts = f"{errors or 'no'} problem{'' if errors == 1 else 's'}"
    if warnings := len(listed) - errors:
        counts += f", {warnings} warning{'' if warnings == 1 else 's'}"
    click.echo(f"{printable(name)}: {counts}", err=True)
    context.exit(PROBLEMS if errors else 0)


def _check_gold(settings: Settings, problems: Problems) -> tuple[GoldSet, ...]:
    sets: tuple[GoldSet, ...] = ()

    def read(path: KeyPath, pipeline: str | None, reads: Callable[[], Any]) -> Any:
        try:
            return reads()
        except RagmonError as error:
            problems.report(path, f"cannot be used: {error}", scope=scope_of(pipeline), hint=error.hint)
            return ()

    for spec in settings.gold:
        sets += read(("gold", spec.name, "path"), spec.pipeline, partial(load_gold, [spec]))
    for pipeline in (settings.unconfigured, *settings.pipelines.values()):
        if (claims := pipeline.capture.gold) is not None:
            read(("capture", "gold"), pipeline.name, partial(GoldSet.load, claims))
    return sets


def _too_few(gate: Gate, pipeline: PipelineSettings, settings: Settings, golds: Sequence[GoldSet]) -> str:
    live = judged_live(gate, probed=pipeline.has_probe)
    source = live.source or live.awaits
    if gate.kind != "threshold" or source not in (PROBE, MATCH):
        return ""
    if not gate.gold and not base.parse(gate.metric).needs_gold:
        return ""
    own = [gold for gold in golds if gold.judges(pipeline.name, source) and gate.gold in (None, gold.name)]
    tag, _, value = gate.where.partition("=")
    sizes = [(sum(not gate.where or item.tags.get(tag) == value for item in gold), gold.name) for gold in own]
    most, name = max(sizes, default=(0, ""))
    reason = f"can never fail in a live window: gold {name} has {most} item{'' if most == 1 else 's'}"
    if (gate.estimand or usual_estimand(source)) == GOLD_SET:
        probes = [probe for probe in settings.probes if (probe.pipeline, probe.gold) == (pipeline.name, name)]
        if source == MATCH or not probes:  # users, and programs of one's own, may ask a question many times
            return ""
        rounds = sum(math.ceil(settings.windows[gate.window] / probe.every) for probe in probes)
        most = most * rounds + sum(min(most, probe.burst) for probe in probes)
        reason += f", at most {most} probes in {gate.window}"
    needed = max(gate.min_samples, needed_to_decide(0.0 if gate.at_least else 1.0, gate.threshold) or 0)
    return f"{reason}, {needed} are needed" if own and most < needed else ""


def show_command(context: click.Context, path: str | None, form: str) -> None:
    """Print every value with its origin: default, file and line, or the environment. Secrets are masked."""
    settings, problems = examine(path)
    for problem in problems.errors:
        click.echo(f"error: {_problem_text(problem)}", err=True)
    if problems.errors:
        context.exit(PROBLEMS)
    value_rows = rows(settings)
    if form == "json":
        values = {key: {"value": value, "origin": origin} for key, value, origin in value_rows}
        click.echo(printable_json(values, indent=2))
        return
    lines = [(key, toml_text(value), origin) for key, value, origin in value_rows]
    click.echo("\n".join(text_table(lines, widths={1: WIDE})))


def _problem_text(problem: Problem) -> str:
    message = printable_line(str(problem))
    return f"{message}\nhint: {printable_line(problem.hint)}" if problem.hint else message
