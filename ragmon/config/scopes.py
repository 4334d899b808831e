"""The tables as they hold at the top and inside each pipeline, with their paths joined and their origins kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from ragmon.config.files import merge
from ragmon.config.kinds import NAME_HINT, Table, is_name
from ragmon.config.locate import KeyPath, dotted
from ragmon.config.models import Document, Scoped, flatten, is_merged
from ragmon.config.problems import Problems, validate

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

    tables: Scoped
    scope: KeyPath
    data: Mapping[str, Any]
    own: Mapping[str, Any]


Views = Mapping[str | None, View]
"""The tables of every pipeline by its name, and under None those at the top."""


def views_of(data: Mapping[str, Any], problems: Problems) -> tuple[Document, Views]:
    """The tables at the top, and of every `[pipelines.NAME]`: its own keys over those at the top."""
    top = {key: value for key, value in data.items() if key != "pipelines"}
    document = _joined(_with_preset(validate(Document, top, problems)), (), problems, ())
    views: dict[str | None, View] = {None: View(document, (), top, top)}
    base = {key: value for key, value in top.items() if key in Scoped.model_fields and key not in _OWN}
    for name, own in _pipelines(data, problems):
        scope = ("pipelines", name)
        held = merge(base, own, merged=_is_merged_inside)
        views[name] = View(_joined(validate(Scoped, held, problems, scope), (), problems, scope), scope, held, own)
    return document, views


def _with_preset(document: Document) -> Document:
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
