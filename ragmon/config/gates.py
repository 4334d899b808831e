"""Gate presets, and the resolution of `[gates]` into gates: defaults, checks of every key, and problems with hints.

The presets hold the thresholds of the published evaluation pages, and ragmon's own default.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple

from ragmon.config.problems import KeyPath, Problems
from ragmon.config.settings import GatesTable, GateTable, GoldSpec
from ragmon.config.units import NAME_HINT, is_name
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError, nearest
from ragmon.core.policy import Gate
from ragmon.metrics import families
from ragmon.metrics.base import DepthError, Metric, parse

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


def default() -> tuple[Gate, ...]:
    """The default gates of all registered metrics, including those of plugins."""
    return _gates(*((name, *family.default_gate) for name, family in families().items() if family.default_gate))


def preset_gates(name: str) -> tuple[Gate, ...]:
    """The gates of a preset; the default preset is computed now, so that metrics registered later are included."""
    return default() if name == "default" else PRESETS[name]


PRESETS: Final[dict[str, tuple[Gate, ...]]] = {
    "default": default(),
    "wfgy-eval": _gates(*WFGY_EVAL),
    "wfgy-example-08": _gates(*WFGY_EXAMPLE_08),
    "wfgy-live": (
        Gate("coverage", "coverage", 0.70, "at_least", window="5m", min_samples=200),
        Gate("citation_scope", "citation_scope", 0.95, "at_least", window="5m", min_samples=200),
        Gate("latency_p95", "latency", 1.3, "at_most", window="5m", min_samples=200, kind="quantile_ratio"),
        Gate("index_hash", "index_hash", 1, "at_most", kind="distinct"),
    ),
}
"""Gates by preset name."""


PUBLISHED: Final = "wfgy-"
"""How the names of presets begin whose thresholds and conventions are those of the published pages."""


def is_published(preset: str | None) -> bool:
    """Whether a preset follows the published pages: their template asks every answer for a list of citations."""
    return preset is not None and preset.startswith(PUBLISHED)


USUAL_WINDOW: Final = 3600
_FIXED_METRIC: Final = {"quantile_ratio": "latency", "distinct": "index_hash"}
"""What gates of these kinds compare; these names are no registered metrics."""


@dataclass(frozen=True)
class GateContext:
    """The names that the gates of one pipeline may refer to.

    Attributes:
        pipeline: The pipeline's name.
        scope: The key of the pipeline's own tables; `()` for the top level.
        windows: Window lengths in seconds by name.
        slices: Declared values by tag.
        gold: Gold sets by name.
        gold_names: All declared names of gold sets, including those with problems.
        foreign_metrics: Omit gates on unknown metrics without a problem, because plugins were not imported.
    """

    pipeline: str
    scope: KeyPath
    windows: Mapping[str, int]
    slices: Mapping[str, tuple[str, ...]]
    gold: Mapping[str, GoldSpec]
    gold_names: frozenset[str]
    foreign_metrics: bool = False


class GateProblem(NamedTuple):
    """A problem of a gate: the key, the message, the value and the hint."""

    key: str
    message: str
    value: object
    hint: str


def resolve_gates(gates: GatesTable, common: GatesTable, about: GateContext, problems: Problems) -> dict[str, Gate]:
    """The gates of a pipeline by name, in the order of the report.

    Args:
        gates: [gates] of the pipeline, merged over the top level.
        common: [gates] at the top level; its preset is used if the pipeline names none.
        about: The names that gates may refer to.
        problems: Problems are reported here.
    """
    preset = gates.preset if gates.preset is not None else common.preset
    resolved: dict[str, Gate] = {}
    if preset in PRESETS:
        resolved = {gate.name: _preset_gate(gate, about) for gate in preset_gates(preset)}
    elif preset is not None:
        problems.report(
            ("gates", "preset"),
            "names no preset",
            scope=about.scope,
            value=preset,
            hint=nearest(preset, PRESETS),
        )
    for name, table in gates.own.items():
        gate_key = ("gates", name)
        gate_problems = list(_gate_problems(name, table, about))
        for gate_problem in gate_problems:
            path = (*gate_key, gate_problem.key) if gate_problem.key else gate_key
            problems.report(
                path, gate_problem.message, scope=about.scope, value=gate_problem.value, hint=gate_problem.hint
            )
        if (
            gate_problems
            or _of_other_pipeline(table, about)
            or (about.foreign_metrics and _metric(name, table) is None)
        ):
            resolved.pop(name, None)
            continue
        resolved[name] = _gate(name, table, about)
    return resolved


def _preset_gate(gate: Gate, about: GateContext) -> Gate:
    """A gate of a preset for this pipeline; a window that is not configured is replaced by the default one."""
    window = gate.window if gate.window in about.windows else _default_window(about.windows)
    return replace(gate, pipeline=about.pipeline, window=window)


def _default_window(windows: Mapping[str, int]) -> str:
    return min(windows, key=lambda window: (abs(math.log(windows[window] / USUAL_WINDOW)), windows[window]))


def _gate(name: str, table: GateTable, about: GateContext) -> Gate:
    page = table.page_above if table.page_below is None else table.page_below
    return Gate(
        name,
        _metric(name, table) or name,
        table.threshold,
        table.direction,
        pipeline=about.pipeline,
        source=table.source,
        gold=table.gold,
        where=next((f"{tag}={value}" for tag, value in table.slice.items()), ""),
        window=table.window or _default_window(about.windows),
        estimand=table.estimand,
        min_samples=table.min_samples,
        page_beyond=page,
        severity=table.severity,
        kind=table.kind,
    )


def _of_other_pipeline(table: GateTable, about: GateContext) -> bool:
    """Whether the gate names the gold set of another pipeline: then it is a gate of that pipeline only."""
    gold = about.gold.get(table.gold or "")
    return gold is not None and gold.pipeline not in (None, about.pipeline)


def _metric(name: str, table: GateTable) -> str | None:
    """The canonical key of the gate's metric; None if there is no such metric."""
    if table.kind in _FIXED_METRIC:
        return _FIXED_METRIC[table.kind]
    try:
        return parse(table.metric or name).key
    except (UnknownNameError, DepthError):
        return None


def _gate_problems(name: str, table: GateTable, about: GateContext) -> Iterator[GateProblem]:
    if not is_name(name):
        yield GateProblem("", "is not usable as a name", None, NAME_HINT)
    elif ":" in name:
        hint = f'"{name.replace(":", "-")}"'
        yield GateProblem("", "has a colon in its name, which parts a metric from its alarms", None, hint)
    yield from _metric_problems(name, table, about)
    yield from _range_problems(table.direction, table.threshold, table)
    for key, level, direction in (
        ("page_below", table.page_below, "at_least"),
        ("page_above", table.page_above, "at_most"),
    ):
        if level is None:
            continue
        if direction != table.direction:
            expected_key = "page_below" if table.direction == "at_least" else "page_above"
            yield GateProblem(
                key, f"does not go with {table.direction}", level, f"{expected_key} = the level worth a page"
            )
            continue
        yield from _range_problems(key, level, table)
        if (level >= table.threshold) if direction == "at_least" else (level <= table.threshold):
            side = "below" if direction == "at_least" else "above"
            yield GateProblem(key, "must lie beyond the threshold", level, f"{side} {table.threshold:g}")
    if table.window is not None and table.window not in about.windows:
        yield GateProblem("window", "names no window", table.window, nearest(table.window, about.windows))
    yield from _gold_problems(table, about)
    metric = _metric(name, table)
    if metric is not None and table.kind == "threshold":
        yield from _source_problems(parse(metric), table)
    yield from _slice_problems(table, about)


def _metric_problems(name: str, table: GateTable, about: GateContext) -> Iterator[GateProblem]:
    key = "" if table.metric is None else "metric"
    metric = table.metric or name
    fixed_metric = _FIXED_METRIC.get(table.kind)
    if fixed_metric is not None:
        if table.metric not in (None, fixed_metric):
            yield GateProblem(
                "metric", f"does not go with kind {table.kind}", metric, f'leave it out, or "{fixed_metric}"'
            )
        return
    if metric.startswith(constants.JUDGE_PREFIX):
        yield GateProblem(key, "gates on a judge's score", metric, "a judge is a proxy and never gates alone")
        return
    try:
        parse(metric)
    except DepthError as error:
        yield GateProblem(key, "is cut beyond the ranks that are kept", metric, error.hint)
    except UnknownNameError as error:
        if not about.foreign_metrics:
            surely = get_close_matches(metric, families(), n=1, cutoff=0.95)  # a letter or two, and no other is as near
            yield GateProblem(key, "names no metric", metric, nearest(metric, surely) if surely else error.hint)


def _range_problems(key: str, value: float, table: GateTable) -> Iterator[GateProblem]:
    if table.kind == "threshold" and not 0 <= value <= 1:
        yield GateProblem(key, "must be a number from 0 to 1", value, "0.80 is 80 %")
    elif table.kind == "quantile_ratio" and value <= 0:
        yield GateProblem(key, "must be above 0", value, "1.3 is 1.3 times the baseline")
    elif table.kind == "distinct" and (value < 1 or value % 1):
        yield GateProblem(key, "must be a whole number from 1", value, "how many index hashes one build may have")


def _gold_problems(table: GateTable, about: GateContext) -> Iterator[GateProblem]:
    if table.gold is None:
        return
    if table.gold not in about.gold_names:
        yield GateProblem("gold", "names no gold set", table.gold, nearest(table.gold, about.gold_names))
        return
    spec = about.gold.get(table.gold)
    if table.source == constants.LIVE:
        yield GateProblem(
            "gold", "does not go with source live", table.gold, 'source = "match": questions found in the gold'
        )
    elif spec is not None and table.source in (constants.PROBE, constants.MATCH) and table.source not in spec.use:
        hint = f'add "{table.source}" to use of [gold.{table.gold}]'
        yield GateProblem("gold", f"is not used for source {table.source}", table.gold, hint)


def _source_problems(metric: Metric, table: GateTable) -> Iterator[GateProblem]:
    if metric.labelled and table.source not in (None, constants.LABEL):
        yield GateProblem("source", f"never has {metric.key}", table.source, '"label", or leave it out')
    elif metric.needs_gold and table.source == constants.LIVE:
        hint = f'{metric.key} needs gold: "probe" or "match"'
        yield GateProblem("source", f"never has {metric.key}", table.source, hint)


def _slice_problems(table: GateTable, about: GateContext) -> Iterator[GateProblem]:
    if not table.slice:
        return
    if len(table.slice) > 1:
        yield GateProblem("slice", "has more than one tag", list(table.slice), "slices are one-dimensional: keep one")
        return
    ((tag, value),) = table.slice.items()
    specs = [spec for spec in about.gold.values() if table.gold in (None, spec.name)]
    declared = {*about.slices.get(tag, ()), *(spec.tags[tag] for spec in specs if tag in spec.tags)}
    if value in declared:
        return
    if declared:
        yield GateProblem("slice", f"has a value of {tag} nobody declared", value, nearest(value, declared))
    else:
        tags = {*about.slices, *(tag for spec in specs for tag in spec.tags)}
        hint = f'declare it: [slices] {tag} = ["{value}"]'
        yield GateProblem(
            "slice", "names a tag nobody declared", tag, f"{hint}; {nearest(tag, tags)}" if tags else hint
        )
