"""How many series Prometheus will hold for a configuration, before anything runs, and what is left for strangers.

The resolved configuration as rows: every value, where it came from, and no secret.

`ragmon config`: what is wrong with ragmon.toml, and what holds in the end.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from ragmon.alarms import plan
from ragmon.cli import Commands
from ragmon.config.load import check, find, load
from ragmon.config.positions import dotted
from ragmon.config.problems import Problem
from ragmon.config.settings import GoldSpec, PipelineSettings, Settings
from ragmon.config.types import Address, Bytes, Seconds, Table, is_secret
from ragmon.core import constants
from ragmon.core.escaping import printable, printable_json, printable_line
from ragmon.core.policy import LABELLED
from ragmon.core.refusal import DEFAULT_PATTERNS
from ragmon.scoring.cardinality import Budget
from ragmon.scoring.minutes import SHAPES

GAUGES: Final = 4
"""Value, lower, upper, samples."""
COUNTERS: Final = 3
"""Scores, scored, squares."""
GATE: Final = 9
"""Threshold, value, lower, upper, samples, three statuses, info."""
ALARM: Final = 2
"""Whether it fires, and its evidence."""
BASELINE: Final = 2
"""What it holds its metric against, and where that comes from."""
DRIFT: Final = 1 + len(SHAPES)
"""Drift alarms: the index, and every property whose distribution is watched."""
SLICE: Final = 2
HISTOGRAMS: Final = 2 + len(constants.STAGES) - 1
"""Latency end to end, one per stage, retrieved documents."""
BUCKETS: Final = 12
"""A histogram's buckets, its sum and its count."""
MONITOR: Final = 60
"""What the monitor says about itself, whatever it watches."""
REASONS: Final = 2
"""Reasons for which a metric usually is unassessed."""
RESULTS: Final = 3
"""Outcomes a probe's calls are counted by."""
CODES: Final = 32
"""Kinds of errors of a pipeline that are kept apart; others are one more."""
BUILDS: Final = 8
"""Builds and indexes of a pipeline that are shown: those seen last."""
ESTIMANDS: Final = 6
"""Two bounds and how much it is worth, of both estimands."""
PREDICTED: Final = 4
"""What labels and a proxy say together."""


def expected_series(settings: Settings) -> int:
    """An estimate of the number of Prometheus series, an upper bound for steady traffic.

    Per pipeline: every metric has 4 gauges per window, and 3 counters, for each source and gold set it can be seen
    under (live for those without gold; every use of every gold set of the pipeline for all; `label` for human labels);
    every gate 9, every alarm 2, or 4 with a baseline; every slice value, and the one for all others, 2 per gated metric
    and source; a request counter per source and stratum, an error counter, and histograms. Per gold set 2, per probe
    and judge one per outcome. Beside them what the monitor says about itself and, per metric, the usual reasons for not
    assessing.

    Args:
        settings: The configuration.
    """
    metrics = settings.build_metrics()
    return sum(_pipeline(one, settings, len(metrics)) for one in settings.pipelines.values()) + _beside(settings)


def budget(settings: Settings) -> Budget:
    """What pipelines nobody configured may share of `[serve] max_series`, and what each takes of it at most.

    Configured pipelines, `__other__` and what the monitor says of itself have their place before all others.
    """
    pipeline, sources = _stranger(settings), {source: _source(source, settings) for source in constants.SOURCES}
    reserved = expected_series(settings) + pipeline + sources[constants.LIVE]
    return Budget(max(0, settings.serve.max_series - reserved), pipeline, sources)


def _beside(settings: Settings) -> int:
    """Series that belong to no pipeline."""
    metrics = settings.build_metrics()
    judges = {name for one in settings.pipelines.values() for name in one.judges}
    beside = 2 * len(settings.gold) + RESULTS * len(settings.probes) + len(constants.JUDGE_RESULTS) * len(judges)
    return beside + REASONS * len(metrics) + MONITOR


def _stranger(settings: Settings) -> int:
    """What a pipeline nobody configured takes at most, whatever its sources."""
    gates = settings.common.gates
    watches = plan(gates, settings.build_metrics())
    return (
        GATE * len(gates)
        + ALARM * (len(watches) + DRIFT)
        + BASELINE * sum(watch.kind != "gate" for watch in watches)
        + CODES
        + 1
        + BUILDS
        + (len(constants.WAYS) if settings.gold else 0)
    )


def _source(source: str, settings: Settings) -> int:
    """What one source of such a pipeline takes at most; gold is found for users' requests and for probes."""
    metrics, windows = settings.build_metrics(), len(settings.windows)
    needing = [metric for metric in metrics.values() if metric.needs_gold]
    shown = GAUGES * windows + COUNTERS
    gated = {gate.metric for gate in settings.common.gates}
    sliced = sum(len(values) + 1 for values in settings.common.slices.values())
    golden = len(needing) * shown + ESTIMANDS * windows * sum(metric.key in gated for metric in needing) + windows
    if source == constants.LABEL:
        return golden + len(LABELLED) * shown + PREDICTED * windows + SLICE * len(gated) * sliced
    uses = [use for spec in settings.gold if spec.pipeline is None for use in spec.use]
    sets = sum((constants.LIVE if use == constants.MATCH else use) == source for use in uses)
    plain = len(metrics) - len(needing) - len(LABELLED)
    slices = SLICE * len(gated) * sliced * (1 + sets)
    return plain * shown + golden * sets + slices + len(constants.CALL_STRATA) + HISTOGRAMS * BUCKETS


def _pipeline(one: PipelineSettings, settings: Settings, metrics: int) -> int:
    golden = sum(metric.needs_gold for metric in settings.build_metrics().values())
    plain = metrics - golden - len(LABELLED)
    watches = plan(one.gates, settings.build_metrics())
    uses = sum(len(spec.use) for spec in settings.gold if _judges(spec, one.name))
    sources = 1 + uses
    seen = plain * sources + golden * uses + len(LABELLED)
    gated = len({gate.metric for gate in one.gates if gate.kind == "threshold"})
    sliced = sum(len(values) + 1 for values in one.slices.values())
    return (
        seen * (GAUGES * len(settings.windows) + COUNTERS)
        + GATE * len(one.gates)
        + ALARM * (len(watches) + DRIFT)
        + BASELINE * sum(watch.kind != "gate" for watch in watches)
        + SLICE * gated * sliced * sources
        + len(constants.STRATA) * sources
        + 1
        + HISTOGRAMS * BUCKETS
    )


def _judges(spec: GoldSpec, pipeline: str) -> bool:
    return spec.pipeline in (None, pipeline)


MASK: Final = "***"
SERIES: Final = "prometheus.series"
"""The row with the expected number of series."""
_LOGIN: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def rows(settings: Settings) -> list[tuple[str, object, str]]:
    """Every value of a configuration.

    Args:
        settings: The configuration.

    Returns:
        `(dotted key, value as ragmon.toml would hold it, origin)`; None for what is not set. A gate that names no
        source shows its default one. The last row is the expected number of Prometheus series.
    """
    found = [(key, _shown(key, value), settings.origins[key]) for key, value in settings.values.items()]
    return [*found, (SERIES, expected_series(settings), "estimate")]


def _shown(key: str, value: object) -> object:
    """A value that may be printed. Users choose the tags of slices themselves; no tag is a secret."""
    table, _, option = key.rpartition(".")
    if value is not None and is_secret(option) and not table.endswith("slices"):
        return MASK
    if option == "patterns" and value == DEFAULT_PATTERNS:
        return "default"
    if option == "target" and isinstance(value, str) and "?" in value:
        value = f"{value.partition('?')[0]}?{MASK}"
    return _plain(value, masked=option in ("headers", "tls"))


def _plain(value: object, *, masked: bool = False) -> object:
    """A value as plain data, durations and sizes with their unit."""
    if isinstance(value, Seconds | Bytes | Address | Path):
        return str(value)
    if isinstance(value, str):
        return _LOGIN.sub(MASK, value)
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping | Table):
        items = value.items() if isinstance(value, Mapping) else iter(value)
        return {key: MASK if masked and is_secret(key) else _plain(entry) for key, entry in items if entry is not None}
    return value


PROBLEMS: Final = 1
WIDE: Final = 40
"""A longer value pushes its origin to the right instead of every other one."""
_option = click.option(
    "--config", "-c", "path", metavar="FILE", help="ragmon.toml. Default: RAGMON_CONFIG, then ./ragmon.toml."
)


@click.group(cls=Commands)
def config() -> None:
    """The configuration: check it, show it."""


@config.command("check")
@_option
@click.pass_context
def check_command(context: click.Context, path: str | None) -> None:
    """Name every problem with its line and what would be right.

    Exit codes: 0 clean, 1 problems, 3 the file cannot be read.
    """
    problems = check(path)
    for problem in problems:
        click.echo(_told(problem))
    file = find(path, os.environ)
    name = "no ragmon.toml here, the defaults hold" if file is None else str(file)
    click.echo(f"{printable(name)}: {len(problems) or 'no'} problem{'' if len(problems) == 1 else 's'}", err=True)
    context.exit(PROBLEMS if problems else 0)


@config.command("show")
@_option
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)
@click.pass_context
def show_command(context: click.Context, path: str | None, form: str) -> None:
    """Print every value with its origin: default, file and line, or the environment. Secrets are masked.

    Exit codes: 0, 1 the file has problems, 3 it cannot be read.
    """
    problems = check(path)
    for problem in problems:
        click.echo(f"error: {_told(problem)}", err=True)
    if problems:
        context.exit(PROBLEMS)
    found = rows(load(path))
    if form == "json":
        values = {key: {"value": value, "origin": origin} for key, value, origin in found}
        click.echo(printable_json(json.dumps(values, indent=2, ensure_ascii=False)))
        return
    lines = [(key, _toml(value), origin) for key, value, origin in found]
    width = max(len(key) for key, _, _ in lines)
    for key, value, origin in lines:
        click.echo(printable_line(f"{key:{width}}  {value:{WIDE}}  {origin}"))


def _told(problem: Problem) -> str:
    what = printable_line(str(problem))
    return f"{what}\nhint: {printable_line(problem.hint)}" if problem.hint else what


def _toml(value: object) -> str:
    """A value the way ragmon.toml writes it."""
    if value is None:
        return "(not set)"
    if isinstance(value, dict):
        entries = ", ".join(f"{dotted((str(key),))} = {_toml(entry)}" for key, entry in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
