"""The effective tables at the top level and in each pipeline, and checks that the names they refer to exist.

Paths are joined to the folder of their file, and the origin of every value is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from ragmon.config.gates import is_published
from ragmon.config.problems import KeyPath, Problems, dotted, validate
from ragmon.config.services import JudgeKind, ProbeTable
from ragmon.config.settings import GoldSpec, ProbeSpec
from ragmon.config.sources import merge
from ragmon.config.tables import ConfigDocument, GoldTable, ScopedTable, flatten, is_merged
from ragmon.config.types import NAME_HINT, Table, is_name
from ragmon.core import constants
from ragmon.core.errors import nearest

M = TypeVar("M", bound=Table)
S = TypeVar("S", bound=ScopedTable)
DEFAULT: Final = "default"
"""The origin of a value that is not written anywhere."""
DEFAULT_PRESET: Final = "default"
_PRESET: Final = ("gates", "preset")
_MATCHER_COUNTS: Final = ("refusal", "matcher_counts")
_NOT_INHERITED: Final = ("gold", "probe")
"""Tables that a pipeline does not inherit from the top level."""

Row = tuple[str, object, str]
"""A dotted key, its value, and the origin of the value."""


Views = Mapping[str | None, ScopedTable]
"""The effective tables of every pipeline by name; those of the top level under None."""


@dataclass(frozen=True)
class DeclaredNames:
    """The declared names, to which other tables may refer.

    Attributes:
        pipelines: The configured pipelines; none where the configuration names none.
        default: The pipeline of calls that name none.
        gold: All gold sets in the file, including those with problems.
    """

    pipelines: tuple[str, ...]
    default: str
    gold: frozenset[str]


def scope_of(pipeline: str | None) -> KeyPath:
    """The key of a pipeline's own tables; `()` for the top level."""
    return () if pipeline is None else ("pipelines", pipeline)


def effective_tables(
    data: Mapping[str, Any], problems: Problems, service: str | None = None
) -> tuple[ConfigDocument, Views, DeclaredNames]:
    """The document, the effective tables of every scope, and the names they declare.

    A pipeline's tables are merged over the top level. `[pipeline] name` and `[pipelines.NAME]` declare pipelines.
    Without either, none is declared: the top level of the file holds for every pipeline that sends records, and the
    default one has the name of the service.
    """
    top = {key: value for key, value in data.items() if key != "pipelines"}
    document = _completed(validate(ConfigDocument, top, problems), None, problems)
    if document.gates.preset is None and not document.gates.own:
        usual = document.gates.model_copy(update={"preset": DEFAULT_PRESET})
        document = document.model_copy(update={"gates": usual})
    views: dict[str | None, ScopedTable] = {None: document}
    base = {key: value for key, value in top.items() if key in ScopedTable.model_fields and key not in _NOT_INHERITED}
    scopes = dict(_pipelines(data, problems))
    for name, own in scopes.items():
        merged = merge(base, own, merged=_is_merged_inside)
        views[name] = _completed(validate(ScopedTable, merged, problems, scope_of(name)), name, problems)
    golds = (own.get("gold") for own in (top, *scopes.values()))
    gold = frozenset(name for table in golds if isinstance(table, dict) for name in table)
    default, pipelines = document.pipeline.name, tuple(scopes)
    if problems.written(("pipeline", "name")) is None:
        default = pipelines[0] if len(pipelines) == 1 else default if pipelines else service or default
        return document, views, DeclaredNames(pipelines, default, gold)
    return document, views, DeclaredNames(tuple(dict.fromkeys((default, *pipelines))), default, gold)


def _completed(tables: S, pipeline: str | None, problems: Problems) -> S:
    """The tables of a scope with paths joined to the folder of their file, and what the preset says of refusals.

    Under a published preset a refusal in other words does not count, unless the file says that it does.
    """
    scope = scope_of(pipeline)
    tables = _with_joined_paths(tables, (), problems, scope)
    if not is_published(tables.gates.preset) or problems.written(_MATCHER_COUNTS, scope):
        return tables
    return tables.model_copy(update={"refusal": tables.refusal.model_copy(update={"matcher_counts": False})})


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
    """Whether a table is merged key by key; a pipeline's gate replaces the top-level gate of the same name."""
    return is_merged(path) and not (len(path) > 1 and path[0] == "gates")


def _with_joined_paths(table: M, path: KeyPath, problems: Problems, scope: KeyPath) -> M:
    """The table, with every relative path joined to the folder of the file it was written in."""
    joined_values = {}
    for key, value in table:
        joined = _join(value, (*path, key), problems, scope)
        if joined is not value:
            joined_values[key] = joined
    return table.model_copy(update=joined_values) if joined_values else table


def _join(value: object, path: KeyPath, problems: Problems, scope: KeyPath) -> object:
    if isinstance(value, Path):
        return (problems.written(path, scope) or problems.root).folder / value
    if isinstance(value, tuple) and value and isinstance(value[0], Path):
        return tuple(_join(entry, path, problems, scope) for entry in value)
    if isinstance(value, dict) and any(isinstance(entry, Table) for entry in value.values()):
        return {key: _join(entry, (*path, key), problems, scope) for key, entry in value.items()}
    return _with_joined_paths(value, path, problems, scope) if isinstance(value, Table) else value


def origins(tables: ScopedTable, scope: KeyPath, problems: Problems) -> Iterator[Row]:
    """The rows of a scope except gates: at the top level all values, in a pipeline the values written inside it.

    Where `refusal.matcher_counts` is not written, the preset of the gates decides it and is its origin.
    """
    for path, value in flatten(tables):
        key = _PRESET if path == _MATCHER_COUNTS and problems.written(path, scope) is None else path
        place = problems.written(key, scope)
        if not scope or problems.written((*scope, *key)):
            yield dotted((*scope, *path)), value, DEFAULT if place is None else place.origin


def gold_specs(views: Views, known: DeclaredNames, problems: Problems) -> tuple[GoldSpec, ...]:
    """The gold sets, those of one pipeline first: they take precedence if two sets hold the same question."""
    specs: dict[str, GoldSpec] = {}
    for pipeline, view in views.items():
        for name, table in view.gold.items():
            report = partial(problems.report, scope=scope_of(pipeline))
            if name in specs:
                hint = "gold sets are told apart by their names in every series: choose another"
                report(("gold", name), "is defined twice", hint=hint)
            if name == constants.LABELS:
                hint = "what people say of answers is shown as gold of this name: choose another"
                report(("gold", name), "is taken", hint=hint)
            _check_pipeline(("gold", name, "pipeline"), table, pipeline, known, report)
            found = {"name": name, "pipeline": table.pipeline or pipeline}
            specs[name] = GoldSpec.model_construct(**dict(table) | found)
    return tuple(sorted(specs.values(), key=lambda spec: spec.pipeline is None))


def _check_pipeline(
    path: tuple[str, ...], table: GoldTable, enclosing: str | None, known: DeclaredNames, report: Callable[..., None]
) -> None:
    """Check that the pipeline of a gold set exists, and is the one whose table holds the set."""
    if table.pipeline is None:
        return
    if enclosing is not None and table.pipeline != enclosing:
        hint = f"it stands inside {enclosing} and belongs to it: leave pipeline out"
        report(path, "contradicts its place", value=table.pipeline, hint=hint)
    elif table.pipeline not in known.pipelines:
        hint = f'{nearest(table.pipeline, known.pipelines)}; or declare it: [pipelines."{table.pipeline}"]'
        report(path, "names no pipeline", value=table.pipeline, hint=hint)


def probe_specs(
    views: Views, gold: Mapping[str, GoldSpec], known: DeclaredNames, problems: Problems
) -> tuple[ProbeSpec, ...]:
    """The probes; the pipeline of each is the one whose table holds it, else that of its gold set, else the default.

    Args:
        views: All tables.
        gold: The gold sets by name.
        known: The declared names.
        problems: Problems are reported here.
    """
    specs: dict[str, ProbeSpec] = {}
    for pipeline, view in views.items():
        for name, table in view.probe.items():
            report = partial(problems.report, scope=scope_of(pipeline))
            if name in specs:
                report(("probe", name), "is defined twice", hint="probes are told apart by their names: choose another")
            gold_set = _gold_set_of(name, table, gold, known, report)
            if gold_set is not None:
                probed_pipeline = pipeline or gold_set.pipeline or known.default
                _check_probed_pipeline(name, probed_pipeline, gold_set, known, report)
                found = {"name": name, "pipeline": probed_pipeline, "gold": gold_set.name}
                specs[name] = ProbeSpec.model_construct(**dict(table) | found)
    return tuple(specs.values())


def _check_probed_pipeline(
    name: str, pipeline: str, gold_set: GoldSpec, known: DeclaredNames, report: Callable[..., None]
) -> None:
    if known.pipelines and pipeline not in known.pipelines:
        hint = f"write it inside one, [pipelines.NAME.probe.{name}], or give its gold set a pipeline"
        report(("probe", name), "does not say which pipeline it probes", hint=hint)
    elif gold_set.pipeline not in (None, pipeline):
        wrong = f"names a gold set that does not judge {pipeline}"
        report(("probe", name, "gold"), wrong, value=gold_set.name, hint=f"it judges {gold_set.pipeline}")


def check_judges(views: Views, problems: Problems) -> None:
    """Check that every judge with a model has a kind."""
    for pipeline, view in views.items():
        for name, table in view.judges.items():
            if table.url is not None and table.asks(name) is None:
                kinds = " or ".join(f'"{kind}"' for kind in get_args(JudgeKind))
                hint = f"kind = {kinds}; a judge called by one of these names need not say it"
                problems.report(
                    ("judges", name), "does not say what the model is asked", scope=scope_of(pipeline), hint=hint
                )


def _gold_set_of(
    name: str, table: ProbeTable, gold: Mapping[str, GoldSpec], known: DeclaredNames, report: Callable[..., None]
) -> GoldSpec | None:
    """The gold set of a probe; None, with a problem reported, if it is not clear."""
    path = ("probe", name, "gold")
    if table.gold is None and len(known.gold) != 1:
        report(path, "is missing", hint=f"a probe asks the questions of a gold set: {nearest('', known.gold)}")
        return None
    gold_name = table.gold or next(iter(known.gold))
    if gold_name not in known.gold:
        report(path, "names no gold set", value=gold_name, hint=nearest(gold_name, known.gold))
        return None
    spec = gold.get(gold_name)
    if spec is not None and constants.PROBE not in spec.use:
        report(path, "is not used for probes", value=gold_name, hint=f'add "probe" to use of [gold.{gold_name}]')
    return spec
