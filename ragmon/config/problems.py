"""Problems of a configuration: collected, each with file, line, key and a hint what would be right.

tomllib does not report the lines of keys, so `locate` finds them in the text.
"""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError

from ragmon.config.settings import RESERVED, ConfigDocument, table_at
from ragmon.config.units import Table, is_secret
from ragmon.core.errors import ConfigError, nearest
from ragmon.core.http_client import may_hold_password

KeyPath = tuple[str | int, ...]
"""The path of a value: table names, keys, and array indexes from 0."""

# Possessive quantifiers would be clearer, but Python 3.11.2 of Debian 12 handles them wrongly in a repeated group.
# Instead, each repeated alternative starts with a different character, so that there is no backtracking.
_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_KEY: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[A-Za-z0-9_-]+')
_SCALAR: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'  # up to two quotes may come right before the closing three
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|[^\s,\[\]{}#\"'][^,\[\]{}#\n]*",  # numbers, booleans, dates (which may contain a space)
    re.DOTALL,
)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class Repeat(NamedTuple):
    """A key that is defined twice: its path, the line of the second definition and that of the first."""

    path: KeyPath
    line: int
    first: int


def locate(text: str) -> dict[KeyPath, int]:
    r"""The line of every table, key and array element.

    Args:
        text: A TOML document that tomllib accepts.

    Returns:
        Lines, counted from 1. A table's line is that of its header; without a header, that of its first key.

    >>> locate('[sampling]\nkeep = { error = 1.0 }\n')
    {('sampling',): 1, ('sampling', 'keep'): 2, ('sampling', 'keep', 'error'): 2}
    """
    return _Scanner(text).scan().lines


def repeat(text: str) -> Repeat | None:
    """The first key or table that is defined twice, which TOML forbids; None if there is none."""
    return next(iter(_Scanner(text).scan().repeats), None)


def dotted(path: Iterable[str | int]) -> str:
    """A key in the syntax of TOML.

    >>> dotted(("gates", "recall@5", "at_least")), dotted(("refusal", "patterns", 1))
    ('gates."recall@5".at_least', 'refusal.patterns[1]')
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{key}" if text else key
    return text


class _SyntaxStop(Exception):  # noqa: N818 - control flow: the text is not TOML from this position
    """The scanner cannot continue."""


class _Scanner:
    """A scanner that reads a TOML text once, from left to right."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.repeats: list[Repeat] = []
        self._text = text
        self._pos = 0
        self._starts = [match.end() for match in re.finditer("\n", text)]
        self._defined: dict[KeyPath, int] = {}
        self._lengths: dict[KeyPath, int] = {}

    def scan(self) -> _Scanner:
        """Read to the end, or to the first syntax error, which tomllib reports."""
        table: KeyPath = ()
        with suppress(_SyntaxStop, RecursionError, tomllib.TOMLDecodeError):
            while not self._at_end():
                table = self._header() if self._next_is("[") else self._pair(table)
        return self

    def _header(self) -> KeyPath:
        """Read `[a.b]` or `[[a.b]]`; return the table that the following keys belong to."""
        line, is_array = self._line(), self._next_is("[[")
        self._expect("[[" if is_array else "[")
        keys = self._keys()
        self._expect("]]" if is_array else "]")
        table: KeyPath = ()
        for key in keys[:-1]:
            table = self._last_element((*table, key))
            self.lines.setdefault(table, line)
        path = (*table, keys[-1])
        if not is_array:
            path = self._last_element(path)
            self._define(path, line)
            return path
        self.lines.setdefault(path, line)
        index = self._lengths.get(path, 0)
        self._lengths[path] = index + 1
        self.lines[(*path, index)] = line
        return (*path, index)

    def _last_element(self, path: KeyPath) -> KeyPath:
        """The path itself; for an array of tables, its last element, to which the following headers belong."""
        return (*path, self._lengths[path] - 1) if path in self._lengths else path

    def _pair(self, table: KeyPath) -> KeyPath:
        """Read `a.b = value`."""
        line, keys = self._line(), self._keys()
        self._expect("=")
        for end in range(1, len(keys)):
            self.lines.setdefault((*table, *keys[:end]), line)
        path = (*table, *keys)
        self._define(path, line)
        self._value(path)
        return table

    def _define(self, path: KeyPath, line: int) -> None:
        if path in self._defined:
            self.repeats.append(Repeat(path, line, self._defined[path]))
        self._defined[path] = self.lines[path] = line

    def _keys(self) -> tuple[str, ...]:
        keys = [self._key()]
        while self._next_is("."):
            self._expect(".")
            keys.append(self._key())
        return tuple(keys)

    def _key(self) -> str:
        self._consume(_SPACE)
        key = self._consume(_KEY)
        self._consume(_SPACE)
        return str(tomllib.loads(f"key = {key}")["key"]) if key[0] in "\"'" else key

    def _value(self, path: KeyPath) -> None:
        self._consume(_SPACE)
        if self._next_is("["):
            self._expect("[")
            index = 0
            while not self._at_end() and not self._next_is("]"):
                self.lines[(*path, index)] = self._line()
                self._value((*path, index))
                index += 1
                self._comma()
            self._expect("]")
        elif self._next_is("{"):
            self._expect("{")
            while not self._at_end() and not self._next_is("}"):
                self._pair(path)
                self._comma()
            self._expect("}")
        else:
            self._consume(_SCALAR)

    def _comma(self) -> None:
        self._consume(_BLANK)
        if self._next_is(","):
            self._expect(",")

    def _at_end(self) -> bool:
        self._consume(_BLANK)
        return self._pos >= len(self._text)

    def _next_is(self, sign: str) -> bool:
        return self._text.startswith(sign, self._pos)

    def _expect(self, sign: str) -> None:
        if not self._next_is(sign):
            raise _SyntaxStop
        self._pos += len(sign)

    def _consume(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._pos)
        if match is None:
            raise _SyntaxStop
        self._pos = match.end()
        return match[0]

    def _line(self) -> int:
        return bisect_right(self._starts, self._pos) + 1


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
        warning: Whether the configuration can be used all the same.
    """

    path: str
    line: int | None
    key: str
    message: str
    value: object = None
    hint: str = ""
    warning: bool = False

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
    def errors(self) -> list[Problem]:
        """All problems but warnings, in the order of `listed`."""
        return [problem for problem in self.listed if not problem.warning]

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
        place = self._places.get(scope)
        return (self.root, path) if place is None else (place, (*scope, *path))

    def written(self, path: KeyPath, scope: KeyPath = ()) -> SourceLocation | None:
        """The place of exactly this key, in the scope or else at the top level; None if it is not written."""
        return self._places.get((*scope, *path)) or self._places.get(path)

    def report(
        self,
        path: KeyPath,
        wrong: str,
        *,
        scope: KeyPath = (),
        value: object = None,
        hint: str = "",
        warning: bool = False,
    ) -> None:
        """Add a problem of a key.

        Args:
            path: The key.
            wrong: A predicate: "must be a list".
            scope: `("pipelines", name)` for a key inside a pipeline.
            value: The value of the key.
            hint: What would be right.
            warning: Whether the configuration can be used all the same.
        """
        place, full = self.where(path, scope)
        is_hidden = isinstance(value, dict) or any(isinstance(part, str) and is_secret(part) for part in path)
        is_hidden = is_hidden or (isinstance(value, str) and may_hold_password(value))
        key = dotted(full)
        self.note(Problem(place.path, place.line, key, f"{key} {wrong}", None if is_hidden else value, hint, warning))

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
        table = table_at(path[:-1], model)
        examples = table.model_fields[str(path[-1])].examples if table is not None else None
        return "is missing", f'{path[-1]} = "{examples[0]}"' if examples else ""
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
    is_hidden = not line or is_secret(line) or may_hold_password(line)
    return Problem(place.path, place.line, "", message, None if is_hidden else line, hint)
