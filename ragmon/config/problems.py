"""Problems of a configuration: collected, each with file, line, key and a hint what would be right."""

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
"""Message and hint for pydantic's own error types."""


@dataclass(frozen=True)
class SourceLocation:
    """The place where a value was written.

    Attributes:
        path: The file as the user named it, or the environment variable.
        line: Counted from 1; None for the whole file and for the environment.
        label: The file name used in origins: relative to the main file.
        folder: The folder that relative paths in the value refer to.
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
    """One problem of a configuration.

    Attributes:
        path: The file, as the user named it, or the environment variable.
        line: The line in the file; None for the whole file and for the environment.
        key: The dotted key; "" if the text is not TOML.
        message: The description of the problem, including the key.
        value: The invalid value; None if it is not useful, or a secret.
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
        """The problem as an exception; its message mentions the total count of problems."""
        total = "" if count == 1 else f" (the first of {count} problems)"
        return ConfigError(self.message + total, path=self.path, line=self.line, value=self.value, hint=self.hint)


class Problems:
    """The problems found so far, and the place where every key was written.

    Args:
        root: The main file; the place of keys that are not written anywhere.
        places: The place of each key.
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
        """The place of a key, or of the nearest table that encloses it.

        Args:
            path: The key, relative to the scope.
            scope: `("pipelines", name)` to search inside that pipeline first, then at the top level.

        Returns:
            The place, and the full key; it includes the scope if the place is inside.
        """
        for end in range(len(path), 0, -1):
            for outer in (scope, ()):
                if (place := self._places.get((*outer, *path[:end]))) is not None:
                    return place, (*outer, *path)
        return self._places.get(scope, self.root), (*scope, *path)

    def written(self, path: KeyPath, scope: KeyPath = ()) -> SourceLocation | None:
        """The place of exactly this key, in the scope or else at the top level; None if it is not written."""
        return self._places.get((*scope, *path)) or self._places.get(path)

    def report(self, path: KeyPath, wrong: str, *, scope: KeyPath = (), value: object = None, hint: str = "") -> None:
        """Add a problem of a key.

        Args:
            path: The key.
            wrong: A predicate: "must be a list".
            scope: `("pipelines", name)` for a key inside a pipeline.
            value: The value of the key.
            hint: What would be right.
        """
        place, full = self.where(path, scope)
        is_hidden = isinstance(value, dict) or any(isinstance(part, str) and is_secret(part) for part in path)
        key = dotted(full)
        self.note(Problem(place.path, place.line, key, f"{key} {wrong}", None if is_hidden else value, hint))

    def note(self, problem: Problem) -> None:
        """Add a problem; the same problem reported by several pipelines is kept once."""
        self._found.setdefault((problem.path, problem.line, problem.message), problem)


def validate(model: type[M], data: Mapping[str, Any], problems: Problems, scope: KeyPath = ()) -> M:
    """Validate tables; each wrong value is reported and replaced by its default.

    So one wrong value hides no other, and references to other tables can still be checked.
    """
    remaining = deepcopy(dict(data))
    reported = False
    while True:
        before = deepcopy(remaining)
        try:
            return model.model_validate(remaining)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        for detail in errors:
            path = tuple(part for part in detail["loc"] if part != "[key]")
            if not reported:
                predicate, hint = _explain(detail, path, model)
                problems.report(path, predicate, scope=scope, value=detail["input"], hint=hint)
            _remove(remaining, path[:-1] if detail["type"] == "missing" else path)
        # If nothing was removed, the tables are invalid as a whole.
        remaining = {} if remaining == before else remaining
        reported = True


def _remove(data: dict[str, Any], path: Sequence[str | int]) -> None:
    """Remove a key; for an element of a list, remove the whole list."""
    keys = list(path)
    while len(keys) > 1 and isinstance(data.get(str(keys[0])), dict):
        data = data[str(keys.pop(0))]
    data.pop(str(keys[0]), None)


def _explain(error: Mapping[str, Any], path: KeyPath, model: type[Table]) -> tuple[str, str]:
    """Translate a pydantic error into a predicate and a hint."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "ragmon":
        return context["message"], context["hint"]
    if kind == "extra_forbidden":
        return "is not a known key", _unknown_key_hint(path, model)
    if kind == "missing":
        field = field_at(path, model)
        return "is missing", (field.description if field is not None else None) or ""
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        value = error["input"]
        return f"must be {_alternatives(allowed)}", nearest(value, allowed) if isinstance(
            value, str
        ) else "text in quotes"
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}", "a whole number"
    if kind == "model_type" and path[:-1] == ("gates",):
        return "is not a known key", f"{nearest(str(path[-1]), RESERVED)} (a gate is a table, [gates.{path[-1]}])"
    return _HINTS.get(kind, (error["msg"], ""))


def _unknown_key_hint(path: KeyPath, model: type[Table]) -> str:
    """The hint for an unknown key."""
    key = str(path[-1])
    if model is not ConfigDocument and len(path) == 1 and key in ConfigDocument.model_fields:
        return f"{key} holds for all pipelines: it stands at the top of the file"
    table = table_at(path[:-1], model)
    return nearest(key, table.model_fields) if table is not None else ""


def _alternatives(allowed: Iterable[str]) -> str:
    *initial, last = [f'"{value}"' for value in allowed]
    return f"{', '.join(initial)} or {last}" if initial else last


def syntax_problem(place: SourceLocation, message: str, text: str, hint: str) -> Problem:
    """The problem of a line that is not TOML; the line is shown unless it may hold a secret."""
    lines = text.splitlines()
    line = lines[place.line - 1].strip() if place.line and place.line <= len(lines) else ""
    return Problem(place.path, place.line, "", message, line if line and not is_secret(line) else None, hint)
