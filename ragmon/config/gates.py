"""Gate presets, and the resolution of `[gates]` into gates: defaults, checks of every key, and problems with hints.

The presets hold the thresholds of the published evaluation pages, and ragmon's own default.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final, Literal

from ragmon.config.problems import KeyPath, Problems
from ragmon.config.settings import GatesTable, GateTable, GoldSpec
from ragmon.config.units import NAME_HINT, is_name
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError, nearest
from ragmon.core.policy import Gate
from ragmon.metrics import families
from ragmon.metrics.base import DepthError, parse

Threshold = tuple[str, Literal["at_least", "at_most"], float]

WFGY_EVAL: Final[tuple[Threshold, ...]] = (
    ("answer_precision", "at_least", 0.80),
    ("citation_hit_rate", "at_least", 0.75),
    ("under_refusal_rate", "at_most", 0.05),
    ("over_refusal_rate", "at_most", 0.10),
)
WFGY_EXAMPLE_08: Final[tuple[Threshold, ...]] = (
    ("answer_precision_cited", "at_least", 0.80),
    ("under_refusal_rate", "at_most", 0.05),
    ("over_refusal_rate", "at_most", 0.25),
    ("citation_hit_rate_answerable", "at_least", 0.75),
    ("compliance", "at_least", 0.98),
)


def _gates(*thresholds: Threshold) -> tuple[Gate, ...]:
    return tuple(Gate(metric, metric, threshold, direction) for metric, direction, threshold in thresholds)


def default_gates() -> tuple[Gate, ...]:
    """The default gates of all registered metrics, including those of plugins."""
    return _gates(*((name, *family.default_gate) for name, family in families().items() if family.default_gate))


def preset_gates(name: str) -> tuple[Gate, ...]:
    """The gates of a preset; the default preset is computed now, so that metrics registered later are included."""
    return default_gates() if name == "default" else PRESETS[name]


PRESETS: Final[dict[str, tuple[Gate, ...]]] = {
    "default": default_gates(),
    "wfgy-eval": _gates(*WFGY_EVAL),
    "wfgy-example-08": _gates(*WFGY_EXAMPLE_08),
    "wfgy-live": (
        Gate("coverage", "coverage", 0.70, "at_least", window="5m", min_samples=200),
        Gate("citation_scope", "citation_scope", 0.95, "at_least", window="5m", min_samples=200),
        Gate("latency_p95", "latency", 1.3, "at_most", window="5m", min_samples=200, kind="quantile_ratio"),
        Gate("index_hash", "index_hash", 1, "at_most", kind="distinct"),
    ),
}
PUBLISHED: Final = "wfgy-"
"""The start of the names of presets with the thresholds and conventions of the published pages."""


def is_published(preset: str | None) -> bool:
    """Whether a preset follows the published pages: their template asks every answer for a list of citations."""
    return preset is not None and preset.startswith(PUBLISHED)


USUAL_WINDOW: Final = 3600
# What gates of these kinds compare; these names are no registered metrics.
_FIXED_METRIC: Final = {"quantile_ratio": "latency", "distinct": "index_hash"}
_Problem = tuple[str, str, object, str]  # the key, the message, the value and the hint


@dataclass(frozen=True)
class GateContext:
    """The names that the gates of one pipeline may refer to."""

    pipeline: str
    scope: KeyPath  # of the pipeline's own tables; () for the top level
    windows: Mapping[str, int]  # in seconds by name
    slices: Mapping[str, tuple[str, ...]]
    gold: Mapping[str, GoldSpec]
    gold_names: frozenset[str]  # all that are declared, including those with problems
    foreign_metrics: bool = False  # plugins were not imported: gates on unknown metrics are left out in silence


def resolve_gates(gates: GatesTable, common: GatesTable, context: GateContext, problems: Problems) -> dict[str, Gate]:
    """The gates of a pipeline by name, in the order of the report."""
    windows = context.windows
    usual = min(windows, key=lambda name: (abs(math.log(windows[name] / USUAL_WINDOW)), windows[name]))
    preset = gates.preset if gates.preset is not None else common.preset
    resolved: dict[str, Gate] = {}
    if preset in PRESETS:
        for gate in preset_gates(preset):
            window = gate.window if gate.window in windows else usual
            resolved[gate.name] = replace(gate, pipeline=context.pipeline, window=window)
    elif preset is not None:
        hint = nearest(preset, PRESETS)
        problems.report(("gates", "preset"), "is not a preset", scope=context.scope, value=preset, hint=hint)
    for name, table in gates.own.items():
        gate_problems = list(_problems(name, table, context))
        for key, message, value, hint in gate_problems:
            path = ("gates", name, key) if key else ("gates", name)
            problems.report(path, message, scope=context.scope, value=value, hint=hint)
        # A gate on the gold set of another pipeline is a gate of that pipeline only.
        gold, metric = context.gold.get(table.gold or ""), _metric(name, table)
        of_other_pipeline = gold is not None and gold.pipeline not in (None, context.pipeline)
        if gate_problems or of_other_pipeline or (context.foreign_metrics and metric is None):
            resolved.pop(name, None)
            continue
        resolved[name] = Gate(
            name,
            metric or name,
            table.threshold,
            table.direction,
            pipeline=context.pipeline,
            source=table.source,
            gold=table.gold,
            where=next((f"{tag}={value}" for tag, value in table.slice.items()), ""),
            window=table.window or usual,
            estimand=table.estimand,
            min_samples=table.min_samples,
            page_beyond=table.page_above if table.page_below is None else table.page_below,
            severity=table.severity,
            kind=table.kind,
        )
    return resolved


def _metric(name: str, table: GateTable) -> str | None:
    # The canonical key of the gate's metric; None if there is no such metric.
    if table.kind in _FIXED_METRIC:
        return _FIXED_METRIC[table.kind]
    try:
        return parse(table.metric or name).key
    except (UnknownNameError, DepthError):
        return None


def _problems(name: str, table: GateTable, context: GateContext) -> Iterator[_Problem]:
    if not is_name(name):
        yield "", "is not usable as a name", None, NAME_HINT
    elif ":" in name:
        hint = f'"{name.replace(":", "-")}"'
        yield "", "has a colon in its name, which separates a metric from its alarms", None, hint
    yield from _metric_problems(name, table, context)
    yield from _range_problems(table.direction, table.threshold, table)
    page_key, side = ("page_below", "below") if table.direction == "at_least" else ("page_above", "above")
    for key, level in (("page_below", table.page_below), ("page_above", table.page_above)):
        if level is not None and key != page_key:
            yield key, f"does not go with {table.direction}", level, f"{page_key} = the level worth a page"
        elif level is not None:
            yield from _range_problems(key, level, table)
            if (level >= table.threshold) if side == "below" else (level <= table.threshold):
                yield key, "must lie beyond the threshold", level, f"{side} {table.threshold:g}"
    if table.window is not None and table.window not in context.windows:
        further = json.dumps([*context.windows, table.window])
        hint = f"windows = {further} adds it; {nearest(table.window, context.windows)}"
        yield "window", "is not a window", table.window, hint
    gold = context.gold.get(table.gold or "")
    if table.gold is not None and table.gold not in context.gold_names:
        yield "gold", "is not a gold set", table.gold, nearest(table.gold, context.gold_names)
    elif table.gold is not None and table.source == constants.LIVE:
        yield "gold", "does not go with source live", table.gold, 'source = "match": questions found in the gold'
    elif gold is not None and table.source in (constants.PROBE, constants.MATCH) and table.source not in gold.use:
        hint = f'add "{table.source}" to use of [gold.{table.gold}]'
        yield "gold", f"is not used for source {table.source}", table.gold, hint
    if table.kind == "threshold" and (metric_key := _metric(name, table)) is not None:
        metric = parse(metric_key)
        if metric.labelled and table.source not in (None, constants.LABEL):
            yield "source", f"never has {metric.key}", table.source, '"label", or leave it out'
        elif metric.needs_gold and table.source == constants.LIVE:
            yield "source", f"never has {metric.key}", table.source, f'{metric.key} needs gold: "probe" or "match"'
    if len(table.slice) > 1:
        yield "slice", "has more than one tag", list(table.slice), "slices are one-dimensional: keep one"
        return
    for tag, value in table.slice.items():
        specs = [spec for spec in context.gold.values() if table.gold in (None, spec.name)]
        declared = {*context.slices.get(tag, ()), *(spec.tags[tag] for spec in specs if tag in spec.tags)}
        if declared and value not in declared:
            yield "slice", f"has a value of {tag} that is not declared", value, nearest(value, declared)
        elif not declared:
            tags = {*context.slices, *(tag for spec in specs for tag in spec.tags)}
            hint = f'declare it: [slices] {tag} = ["{value}"]'
            yield "slice", "names a tag that is not declared", tag, f"{hint}; {nearest(tag, tags)}" if tags else hint


def _metric_problems(name: str, table: GateTable, context: GateContext) -> Iterator[_Problem]:
    key = "" if table.metric is None else "metric"
    metric = table.metric or name
    if (fixed := _FIXED_METRIC.get(table.kind)) is not None:
        if table.metric not in (None, fixed):
            yield "metric", f"does not go with kind {table.kind}", metric, f'leave it out, or "{fixed}"'
        return
    if metric.startswith(constants.JUDGE_PREFIX):
        yield key, "judges by the score of a judge", metric, "a judge is a proxy: no gate may use its score alone"
        return
    try:
        parse(metric)
    except DepthError as error:
        yield key, "is cut beyond the ranks that are kept", metric, error.hint
    except UnknownNameError as error:
        if not context.foreign_metrics:
            surely = get_close_matches(metric, families(), n=1, cutoff=0.95)  # a letter or two, and no other is as near
            yield key, "is not the name of a metric", metric, nearest(metric, surely) if surely else error.hint


def _range_problems(key: str, value: float, table: GateTable) -> Iterator[_Problem]:
    if table.kind == "threshold" and not 0 <= value <= 1:
        yield key, "must be a number from 0 to 1", value, "0.80 is 80 %"
    elif table.kind == "quantile_ratio" and value <= 0:
        yield key, "must be above 0", value, "1.3 is 1.3 times the baseline"
    elif table.kind == "distinct" and (value < 1 or value % 1):
        yield key, "must be a whole number from 1", value, "how many index hashes one build may have"
