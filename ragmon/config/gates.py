"""Gate presets: the thresholds of the published evaluation pages, and ragmon's default.

From [gates] to gates: presets, defaults, and everything that can be wrong with a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from ragmon.config.positions import KeyPath
from ragmon.config.problems import Problems
from ragmon.config.settings import GoldSpec
from ragmon.config.tables import GatesTable, GateTable
from ragmon.config.types import NAME_HINT, is_name
from ragmon.core import constants
from ragmon.core.errors import UnknownNameError, nearest
from ragmon.core.policy import LABELLED, Gate
from ragmon.metrics import families
from ragmon.metrics.base import Metric, parse

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
    return tuple(Gate(metric, metric, bar, direction) for metric, direction, bar in thresholds)


def default() -> tuple[Gate, ...]:
    """The gates that registered metrics bring along, those of plugins included."""
    return _gates(*((name, *family.default_gate) for name, family in families().items() if family.default_gate))


def preset_gates(name: str) -> tuple[Gate, ...]:
    """The gates of a preset; a metric registered a moment ago may have a gate in the default one."""
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


USUAL_WINDOW: Final = 3600
_FIXED_METRIC: Final = {"quantile_ratio": "latency", "distinct": "index_hash"}
"""What gates of these kinds compare; it is no registered metric."""


@dataclass(frozen=True)
class Surroundings:
    """What the gates of one pipeline may refer to.

    Attributes:
        pipeline: Its name.
        scope: Where its own tables stand.
        windows: Spans by name.
        slices: Declared values by tag.
        gold: Gold sets by name.
        gold_names: Every name that is defined, also where the set itself is wrong.
        foreign_metrics: Gates on metrics unknown here are left out silently.
    """

    pipeline: str
    scope: KeyPath
    windows: Mapping[str, int]
    slices: Mapping[str, tuple[str, ...]]
    gold: Mapping[str, GoldSpec]
    gold_names: frozenset[str]
    foreign_metrics: bool = False


class Wrong(NamedTuple):
    """A key of a gate, what is wrong with it, its value and what would be right."""

    key: str
    message: str
    value: object
    hint: str


def resolve_gates(gates: GatesTable, common: GatesTable, about: Surroundings, problems: Problems) -> dict[str, Gate]:
    """The gates of a pipeline, by name, in the order they are reported.

    Args:
        gates: [gates] as it holds for the pipeline: its own keys over those at the top.
        common: [gates] at the top: its preset holds where the pipeline names none.
        about: What gates may refer to.
        problems: Where problems are reported.
    """
    preset = gates.preset if gates.preset is not None else common.preset
    found: dict[str, Gate] = {}
    if preset in PRESETS:
        found = {gate.name: _placed(gate, about) for gate in preset_gates(preset)}
    elif preset is not None:
        problems.report(
            ("gates", "preset"),
            "names no preset",
            scope=about.scope,
            value=preset,
            hint=nearest(preset, PRESETS),
        )
    for name, table in gates.own.items():
        at = ("gates", name)
        wrongs = list(_wrongs(name, table, about))
        for wrong in wrongs:
            path = (*at, wrong.key) if wrong.key else at
            problems.report(path, wrong.message, scope=about.scope, value=wrong.value, hint=wrong.hint)
        if wrongs or _elsewhere(table, about) or (about.foreign_metrics and _metric(name, table) is None):
            found.pop(name, None)
            continue
        found[name] = _gate(name, table, about)
    return found


def _placed(gate: Gate, about: Surroundings) -> Gate:
    """A preset's gate for this pipeline; a window nobody configured becomes the nearest that is."""
    window = gate.window if gate.window in about.windows else _usual_window(about.windows)
    return replace(gate, pipeline=about.pipeline, window=window)


def _usual_window(windows: Mapping[str, int]) -> str:
    return min(windows, key=lambda window: (abs(math.log(windows[window] / USUAL_WINDOW)), windows[window]))


def _gate(name: str, table: GateTable, about: Surroundings) -> Gate:
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
        window=table.window or _usual_window(about.windows),
        estimand=table.estimand,
        min_samples=table.min_samples,
        page_beyond=page,
        severity=table.severity,
        kind=table.kind,
    )


def _elsewhere(table: GateTable, about: Surroundings) -> bool:
    """A gate at the top that names the gold set of one pipeline judges that pipeline only."""
    gold = about.gold.get(table.gold or "")
    return gold is not None and gold.pipeline not in (None, about.pipeline)


def _metric(name: str, table: GateTable) -> str | None:
    """The canonical key of the gate's metric; None where there is no such metric."""
    if table.kind in _FIXED_METRIC:
        return _FIXED_METRIC[table.kind]
    try:
        return parse(table.metric or name).key
    except UnknownNameError:
        return None


def _wrongs(name: str, table: GateTable, about: Surroundings) -> Iterator[Wrong]:
    if not is_name(name):
        yield Wrong("", "is not usable as a name", None, NAME_HINT)
    elif ":" in name:
        hint = f'"{name.replace(":", "-")}"'
        yield Wrong("", "has a colon in its name, which parts a metric from its alarms", None, hint)
    yield from _wrong_metric(name, table, about)
    yield from _wrong_bounds(table)
    if table.window is not None and table.window not in about.windows:
        yield Wrong("window", "names no window", table.window, nearest(table.window, about.windows))
    yield from _wrong_gold(table, about)
    metric = _metric(name, table)
    if metric is not None and table.kind == "threshold":
        yield from _wrong_source(parse(metric), table)
    yield from _wrong_slice(table, about)


def _wrong_metric(name: str, table: GateTable, about: Surroundings) -> Iterator[Wrong]:
    key = "" if table.metric is None else "metric"
    metric = table.metric or name
    fixed = _FIXED_METRIC.get(table.kind)
    if fixed is not None:
        if table.metric not in (None, fixed):
            yield Wrong("metric", f"does not go with kind {table.kind}", metric, f'leave it out, or "{fixed}"')
        return
    if metric.startswith(constants.JUDGE_PREFIX):
        yield Wrong(key, "gates on a judge's score", metric, "a judge is a proxy and never gates alone")
        return
    try:
        parse(metric)
    except UnknownNameError as error:
        if not about.foreign_metrics:
            yield Wrong(key, "names no metric", metric, error.hint)


def _wrong_bounds(table: GateTable) -> Iterator[Wrong]:
    yield from _wrong_range(table.direction, table.threshold, table)
    for key, page, direction in (
        ("page_below", table.page_below, "at_least"),
        ("page_above", table.page_above, "at_most"),
    ):
        if page is None:
            continue
        if direction != table.direction:
            right = "page_below" if table.direction == "at_least" else "page_above"
            yield Wrong(key, f"does not go with {table.direction}", page, f"{right} = the level worth a page")
            continue
        yield from _wrong_range(key, page, table)
        if (page >= table.threshold) if direction == "at_least" else (page <= table.threshold):
            side = "below" if direction == "at_least" else "above"
            yield Wrong(key, "must lie beyond the threshold", page, f"{side} {table.threshold:g}")


def _wrong_range(key: str, value: float, table: GateTable) -> Iterator[Wrong]:
    if table.kind == "threshold" and not 0 <= value <= 1:
        yield Wrong(key, "must be a number from 0 to 1", value, "0.80 is 80 %")
    elif table.kind == "quantile_ratio" and value <= 0:
        yield Wrong(key, "must be above 0", value, "1.3 is 1.3 times the baseline")
    elif table.kind == "distinct" and (value < 1 or value % 1):
        yield Wrong(key, "must be a whole number from 1", value, "how many index hashes one build may have")


def _wrong_gold(table: GateTable, about: Surroundings) -> Iterator[Wrong]:
    if table.gold is None:
        return
    if table.gold not in about.gold_names:
        yield Wrong("gold", "names no gold set", table.gold, nearest(table.gold, about.gold_names))
        return
    spec = about.gold.get(table.gold)
    if table.source == constants.LIVE:
        yield Wrong("gold", "does not go with source live", table.gold, 'source = "match": questions found in the gold')
    elif spec is not None and table.source in (constants.PROBE, constants.MATCH) and table.source not in spec.use:
        hint = f'add "{table.source}" to use of [gold.{table.gold}]'
        yield Wrong("gold", f"is not used for source {table.source}", table.gold, hint)


def _wrong_source(metric: Metric, table: GateTable) -> Iterator[Wrong]:
    if metric.key in LABELLED and table.source not in (None, constants.LABEL):
        yield Wrong("source", f"never has {metric.key}", table.source, '"label", or leave it out')
    elif metric.needs_gold and table.source == constants.LIVE:
        hint = f'{metric.key} needs gold: "probe" or "match"'
        yield Wrong("source", f"never has {metric.key}", table.source, hint)


def _wrong_slice(table: GateTable, about: Surroundings) -> Iterator[Wrong]:
    if not table.slice:
        return
    if len(table.slice) > 1:
        yield Wrong("slice", "has more than one tag", list(table.slice), "slices are one-dimensional: keep one")
        return
    ((tag, value),) = table.slice.items()
    sets = [spec for spec in about.gold.values() if table.gold in (None, spec.name)]
    known = {*about.slices.get(tag, ()), *(spec.tags[tag] for spec in sets if tag in spec.tags)}
    if value in known:
        return
    if known:
        yield Wrong("slice", f"has a value of {tag} nobody declared", value, nearest(value, known))
    else:
        tags = {*about.slices, *(tag for spec in sets for tag in spec.tags)}
        hint = f'declare it: [slices] {tag} = ["{value}"]'
        yield Wrong("slice", "names a tag nobody declared", tag, f"{hint}; {nearest(tag, tags)}" if tags else hint)
