"""What is wrong with a configuration: collected, each with its place and what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from ragmon.config.positions import KeyPath, dotted
from ragmon.config.tables import RESERVED, ConfigDocument, field_at, table_at
from ragmon.config.types import Table, is_secret
from ragmon.core.errors import ConfigError, nearest

M = TypeVar("M", bound=Table)
_HINTS: Final = {
    "string_type": ("must be text", "text in quotes"),
    "string_too_short": ("must not be empty", "at least one character"),
    "bool_type": ("must be true or false", "true or false, without quotes"),
    "int_type": ("must be a whole number", "a number without quotes and without a point"),
    "tuple_type": ("must be a list", "values in brackets: [1, 3, 5]"),
    "dict_type": ("must be a table", '{ name = "value" }, or a [table] of its own'),
    "model_type": ("must be a table", "{ key = value }, or a [table] of its own"),
}
"""What pydantic's own error types mean in ragmon.toml."""


@dataclass(frozen=True)
class SourceLocation:
    """Where a value was written.

    Attributes:
        path: The file as the user named it, or the environment variable.
        line: Counted from 1; None for the file as a whole and for the environment.
        label: The file as origins name it: relative to the main file.
        folder: What relative paths in the value are relative to.
    """

    path: str
    line: int | None = None
    label: str = ""
    folder: Path = Path()

    @property
    def origin(self) -> str:
        """`ragmon.toml:12`, or `environment RAGMON_SAMPLE`."""
        return self.label if self.line is None else f"{self.label}:{self.line}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: The file, as the user named it.
        line: The line in it; None where the file as a whole, or the environment, is meant.
        key: The dotted key; "" where the text is not TOML.
        message: What is wrong, with the key.
        value: The offending value; None where it says nothing, or is a secret.
        hint: What would be right.
    """

    path: str
    line: int | None
    key: str
    message: str
    value: object = None
    hint: str = ""

    def __str__(self) -> str:
        return str(self.error())

    def error(self, count: int = 1) -> ConfigError:
        """The problem as an exception, which says how many there are besides."""
        more = "" if count == 1 else f" (the first of {count} problems)"
        return ConfigError(self.message + more, path=self.path, line=self.line, value=self.value, hint=self.hint)


class Problems:
    """The problems that were found so far, and where every key was written.

    Args:
        root: The main file; what a key nobody wrote is held against.
        places: Where each key was written.
    """

    def __init__(self, root: SourceLocation, places: Mapping[KeyPath, SourceLocation]) -> None:
        self.root = root
        self._places = places
        self._found: dict[tuple[str, int | None, str], Problem] = {}

    @property
    def listed(self) -> list[Problem]:
        """All problems, by file (the main one first) and line."""
        files: dict[str, int] = {self.root.path: 0}
        for problem in self._found.values():
            files.setdefault(problem.path, len(files))
        return sorted(self._found.values(), key=lambda problem: (files[problem.path], problem.line or 0))

    def where(self, path: KeyPath, scope: KeyPath = ()) -> tuple[SourceLocation, KeyPath]:
        """The place of a key, or of the nearest table around it.

        Args:
            path: The key, as at the top of the file.
            scope: `("pipelines", name)` to look inside that pipeline first.

        Returns:
            The place, and the key with its scope where it was found inside.
        """
        for end in range(len(path), 0, -1):
            for outer in (scope, ()):
                if (place := self._places.get((*outer, *path[:end]))) is not None:
                    return place, (*outer, *path)
        return self._places.get(scope, self.root), (*scope, *path)

    def written(self, path: KeyPath, scope: KeyPath = ()) -> SourceLocation | None:
        """The place of a key itself; None where nobody wrote it."""
        return self._places.get((*scope, *path)) or self._places.get(path)

    def report(self, path: KeyPath, wrong: str, *, scope: KeyPath = (), value: object = None, hint: str = "") -> None:
        """Note a problem.

        Args:
            path: The key.
            wrong: A predicate: "must be a list".
            scope: `("pipelines", name)` for a key inside a pipeline.
            value: What was found there.
            hint: What would be right.
        """
        place, full = self.where(path, scope)
        hidden = isinstance(value, dict) or any(isinstance(part, str) and is_secret(part) for part in path)
        key = dotted(full)
        self.note(Problem(place.path, place.line, key, f"{key} {wrong}", None if hidden else value, hint))

    def note(self, problem: Problem) -> None:
        """Note a problem; the same one seen from several pipelines counts once."""
        self._found.setdefault((problem.path, problem.line, problem.message), problem)


def validate(model: type[M], data: Mapping[str, Any], problems: Problems, scope: KeyPath = ()) -> M:
    """The model of some tables; what is wrong in them is reported and falls back to its default.

    So one wrong value hides no other, and what refers to the rest of the file can still be checked.
    """
    rest = deepcopy(dict(data))
    reported = False
    while True:
        before = deepcopy(rest)
        try:
            return model.model_validate(rest)
        except ValidationError as error:
            wrongs = error.errors(include_url=False)
        for wrong in wrongs:
            path = tuple(part for part in wrong["loc"] if part != "[key]")
            if not reported:
                predicate, hint = _explain(wrong, path, model)
                problems.report(path, predicate, scope=scope, value=wrong["input"], hint=hint)
            _drop(rest, path[:-1] if wrong["type"] == "missing" else path)
        # Nothing more to take out means that the tables are wrong as a whole.
        rest = {} if rest == before else rest
        reported = True


def _drop(data: dict[str, Any], path: Sequence[str | int]) -> None:
    """Remove a key; in a list, the whole list goes."""
    keys = list(path)
    while len(keys) > 1 and isinstance(data.get(str(keys[0])), dict):
        data = data[str(keys.pop(0))]
    data.pop(str(keys[0]), None)


def _explain(wrong: Mapping[str, Any], path: KeyPath, model: type[Table]) -> tuple[str, str]:
    """What a pydantic error says, as a predicate and a hint."""
    kind, context = wrong["type"], wrong.get("ctx", {})
    if kind == "ragmon":
        return context["message"], context["hint"]
    if kind == "extra_forbidden":
        return "is not a known key", _neighbours(path, model)
    if kind == "missing":
        field = field_at(path, model)
        return "is missing", (field.description if field is not None else None) or ""
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        value = wrong["input"]
        return f"must be {_either(allowed)}", nearest(value, allowed) if isinstance(value, str) else "text in quotes"
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}", "a whole number"
    if kind == "model_type" and path[:-1] == ("gates",):
        return "is not a known key", f"{nearest(str(path[-1]), RESERVED)} (a gate is a table, [gates.{path[-1]}])"
    return _HINTS.get(kind, (wrong["msg"], ""))


def _neighbours(path: KeyPath, model: type[Table]) -> str:
    """The hint for an unknown key."""
    key = str(path[-1])
    if model is not ConfigDocument and len(path) == 1 and key in ConfigDocument.model_fields:
        return f"{key} holds for all pipelines: it stands at the top of the file"
    table = table_at(path[:-1], model)
    return nearest(key, table.model_fields) if table is not None else ""


def _either(allowed: Iterable[str]) -> str:
    *most, last = [f'"{value}"' for value in allowed]
    return f"{', '.join(most)} or {last}" if most else last


def syntax_problem(place: SourceLocation, message: str, text: str, hint: str) -> Problem:
    """A line that is not TOML; it is shown unless it may hold a secret."""
    lines = text.splitlines()
    line = lines[place.line - 1].strip() if place.line and place.line <= len(lines) else ""
    return Problem(place.path, place.line, "", message, line if line and not is_secret(line) else None, hint)
