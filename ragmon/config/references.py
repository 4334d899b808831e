"""The tables as they hold at the top and inside each pipeline, with their paths joined and their origins kept.

Pipelines, gold sets, probes and judges, and whether the names they use exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from ragmon.config.positions import KeyPath, dotted
from ragmon.config.problems import Problems, validate
from ragmon.config.services import JudgeKind, ProbeTable
from ragmon.config.settings import GoldSpec, ProbeSpec
from ragmon.config.sources import merge
from ragmon.config.tables import ConfigDocument, GoldTable, ScopedTable, flatten, is_merged
from ragmon.config.types import NAME_HINT, Table, is_name
from ragmon.core import constants
from ragmon.core.errors import nearest

M = TypeVar("M", bound=Table)
DEFAULT: Final = "default"
"""The origin of a value nobody wrote."""
DEFAULT_PRESET: Final = "default"
_OWN: Final = ("gold", "probe")
"""Tables of which a pipeline has only those written inside it."""

Row = tuple[str, object, str]
"""A dotted key, its value, where that came from."""


@dataclass(frozen=True)
class View:
    """The tables that hold in one place.

    Attributes:
        tables: Checked; wrong values stand at their defaults.
        scope: `()` for the top, `("pipelines", name)` for a pipeline.
        data: The same as they were written, the top's included.
        own: What is written in this place itself.
    """

    tables: ScopedTable
    scope: KeyPath
    data: Mapping[str, Any]
    own: Mapping[str, Any]


Views = Mapping[str | None, View]
"""The tables of every pipeline by its name, and under None those at the top."""


def views_of(data: Mapping[str, Any], problems: Problems) -> tuple[ConfigDocument, Views]:
    """The tables at the top, and of every `[pipelines.NAME]`: its own keys over those at the top."""
    top = {key: value for key, value in data.items() if key != "pipelines"}
    document = _joined(_with_preset(validate(ConfigDocument, top, problems)), (), problems, ())
    views: dict[str | None, View] = {None: View(document, (), top, top)}
    base = {key: value for key, value in top.items() if key in ScopedTable.model_fields and key not in _OWN}
    for name, own in _pipelines(data, problems):
        scope = ("pipelines", name)
        held = merge(base, own, merged=_is_merged_inside)
        views[name] = View(_joined(validate(ScopedTable, held, problems, scope), (), problems, scope), scope, held, own)
    return document, views


def _with_preset(document: ConfigDocument) -> ConfigDocument:
    """Where nobody names a preset, the default one holds, unless gates of one's own take its place."""
    gates = document.gates
    if gates.preset is not None or gates.own:
        return document
    return document.model_copy(update={"gates": gates.model_copy(update={"preset": DEFAULT_PRESET})})


def _pipelines(data: Mapping[str, Any], problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    pipelines = data.get("pipelines", {})
    if not isinstance(pipelines, dict):
        problems.report(("pipelines",), "must be a table", value=pipelines, hint="[pipelines.support]")
        return
    for name, own in pipelines.items():
        path = ("pipelines", name)
        if not is_name(name):
            problems.report(path, "is not usable as a name", hint=NAME_HINT)
        elif isinstance(own, dict):
            yield name, own
        else:
            problems.report(path, "must be a table", value=own, hint=f"[{dotted(path)}]; for one pipeline: [pipeline]")


def _is_merged_inside(path: Sequence[str | int]) -> bool:
    """A pipeline's gate replaces the one of the same name at the top; other tables are merged key by key."""
    return is_merged(path) and not (len(path) > 1 and path[0] == "gates")


def _joined(table: M, path: KeyPath, problems: Problems, scope: KeyPath) -> M:
    """The table with every relative path joined to the folder of the file it was written in."""
    changed = {}
    for key, value in table:
        new = _join(value, (*path, key), problems, scope)
        if new is not value:
            changed[key] = new
    return table.model_copy(update=changed) if changed else table


def _join(value: object, path: KeyPath, problems: Problems, scope: KeyPath) -> object:
    if isinstance(value, Path):
        return (problems.written(path, scope) or problems.root).folder / value
    if isinstance(value, tuple) and value and isinstance(value[0], Path):
        return tuple(_join(entry, path, problems, scope) for entry in value)
    if isinstance(value, dict) and any(isinstance(entry, Table) for entry in value.values()):
        return {key: _join(entry, (*path, key), problems, scope) for key, entry in value.items()}
    return _joined(value, path, problems, scope) if isinstance(value, Table) else value


def origins(view: View, problems: Problems) -> Iterator[Row]:
    """Every value of a view but the gates': at the top all of them, in a pipeline those written inside it."""
    for path, value in flatten(view.tables):
        if not view.scope or _has(view.own, path):
            place = problems.written(path, view.scope) if _has(view.data, path) else None
            yield dotted((*view.scope, *path)), value, DEFAULT if place is None else place.origin


def _has(data: Any, path: Sequence[str]) -> bool:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


@dataclass(frozen=True)
class Declared:
    """The names the rest of the file may use.

    Attributes:
        pipelines: The configured pipelines.
        default: The one of calls that name none.
        gold: Every gold set somebody wrote down, also those that are wrong.
    """

    pipelines: tuple[str, ...]
    default: str
    gold: frozenset[str]


def declared(document: ConfigDocument, views: Views) -> Declared:
    """The names that are declared.

    `[pipeline]` and `[pipelines.NAME]` declare pipelines; where there is neither, all tables are those of one pipeline
    called `default`.
    """
    tables = (view.own.get("gold") for view in views.values())
    gold = frozenset(name for table in tables if isinstance(table, dict) for name in table)
    pipelines = tuple(name for name in views if name is not None)
    default = document.pipeline.name
    if "pipeline" not in views[None].own:
        default = pipelines[0] if len(pipelines) == 1 else default
        return Declared(pipelines or (default,), default, gold)
    return Declared(pipelines if default in pipelines else (default, *pipelines), default, gold)


def gold_specs(views: Views, known: Declared, problems: Problems) -> tuple[GoldSpec, ...]:
    """The gold sets, those of one pipeline first: where two hold the same question, the nearer one wins."""
    found: dict[str, GoldSpec] = {}
    for pipeline, view in views.items():
        for name, table in view.tables.gold.items():
            report = partial(problems.report, scope=view.scope)
            if name in found:
                hint = "gold sets are told apart by their names in every series: choose another"
                report(("gold", name), "is defined twice", hint=hint)
            if name == constants.LABELS:
                hint = "what people say of answers is shown as gold of this name: choose another"
                report(("gold", name), "is taken", hint=hint)
            _check_pipeline(("gold", name, "pipeline"), table, pipeline, known, report)
            rest = {key: value for key, value in table if key not in ("path", "pipeline")}
            found[name] = GoldSpec(name, table.path, table.pipeline or pipeline, **rest)
    return tuple(sorted(found.values(), key=lambda spec: spec.pipeline is None))


def _check_pipeline(
    path: tuple[str, ...], table: GoldTable, inside: str | None, known: Declared, report: Callable[..., None]
) -> None:
    """Whether the pipeline a gold set names exists, and is the one it stands in."""
    if table.pipeline is None:
        return
    if inside is not None and table.pipeline != inside:
        hint = f"it stands inside {inside} and belongs to it: leave pipeline out"
        report(path, "contradicts its place", value=table.pipeline, hint=hint)
    elif table.pipeline not in known.pipelines:
        hint = f'{nearest(table.pipeline, known.pipelines)}; or declare it: [pipelines."{table.pipeline}"]'
        report(path, "names no pipeline", value=table.pipeline, hint=hint)


def probe_specs(
    views: Views, gold: Mapping[str, GoldSpec], known: Declared, problems: Problems
) -> tuple[ProbeSpec, ...]:
    """What is sent, and through which pipeline: the one it stands in, else the one of its gold set, else the default.

    Args:
        views: All tables.
        gold: The gold sets by name.
        known: The declared names.
        problems: Where problems are reported.
    """
    found: dict[str, ProbeSpec] = {}
    for pipeline, view in views.items():
        for name, table in view.tables.probe.items():
            report = partial(problems.report, scope=view.scope)
            if name in found:
                report(("probe", name), "is defined twice", hint="probes are told apart by their names: choose another")
            chosen = _gold_of(name, table, gold, known, report)
            if chosen is not None:
                target = pipeline or chosen.pipeline or known.default
                _check_target(name, target, chosen, known, report)
                found[name] = ProbeSpec(name, target, chosen.name, **{k: v for k, v in table if k != "gold"})
    return tuple(found.values())


def _check_target(name: str, target: str, chosen: GoldSpec, known: Declared, report: Callable[..., None]) -> None:
    if target not in known.pipelines:
        hint = f"write it inside one, [pipelines.NAME.probe.{name}], or give its gold set a pipeline"
        report(("probe", name), "does not say which pipeline it probes", hint=hint)
    elif chosen.pipeline not in (None, target):
        wrong = f"names a gold set that does not judge {target}"
        report(("probe", name, "gold"), wrong, value=chosen.name, hint=f"it judges {chosen.pipeline}")


def check_judges(views: Views, problems: Problems) -> None:
    """Whether every judge that is a model says what it is asked."""
    for view in views.values():
        for name, table in view.tables.judges.items():
            if table.url is not None and table.asks(name) is None:
                kinds = " or ".join(f'"{kind}"' for kind in get_args(JudgeKind))
                hint = f"kind = {kinds}; a judge called by one of these names need not say it"
                problems.report(("judges", name), "does not say what the model is asked", scope=view.scope, hint=hint)


def _gold_of(
    name: str, table: ProbeTable, gold: Mapping[str, GoldSpec], known: Declared, report: Callable[..., None]
) -> GoldSpec | None:
    """The gold set a probe asks; None where it cannot be told, which is reported."""
    path = ("probe", name, "gold")
    if table.gold is None and len(known.gold) != 1:
        report(path, "is missing", hint=f"a probe asks the questions of a gold set: {nearest('', known.gold)}")
        return None
    wanted = table.gold or next(iter(known.gold))
    if wanted not in known.gold:
        report(path, "names no gold set", value=wanted, hint=nearest(wanted, known.gold))
        return None
    chosen = gold.get(wanted)
    if chosen is not None and constants.PROBE not in chosen.use:
        report(path, "is not used for probes", value=wanted, hint=f'add "probe" to use of [gold.{wanted}]')
    return chosen
