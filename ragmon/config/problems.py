"""Problems of a configuration: collected, each with file, line, key and a hint what would be right.

tomllib does not report the lines of keys, so `locate` finds them in the text.
"""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError

from ragmon.config.settings import RESERVED, ConfigDocument, table_at
from ragmon.config.units import Table, is_secret
from ragmon.core.errors import ConfigError, nearest
from ragmon.core.network import may_hold_password

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
    """A key that is defined twice: its path, the line of the second definition and the line of the first."""

    path: KeyPath
    line: int
    first: int


def locate(text: str) -> dict[KeyPath, int]:
    r"""The line of every table, key and array element.

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
    pass


class _Scanner:
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
                if self._next_is("["):
                    table = self._header()
                else:
                    self._pair(table)
        return self

    def _header(self) -> KeyPath:
        # `[a.b]` or `[[a.b]]`; returns the table that the following keys belong to.
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
        # The following headers belong to the last element of an array of tables.
        return (*path, self._lengths[path] - 1) if path in self._lengths else path

    def _pair(self, table: KeyPath) -> None:
        # `a.b = value`
        line, keys = self._line(), self._keys()
        self._expect("=")
        for end in range(1, len(keys)):
            self.lines.setdefault((*table, *keys[:end]), line)
        path = (*table, *keys)
        self._define(path, line)
        self._value(path)

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
_HINTS: Final = {  # message and hint for pydantic's own error types
    "string_type": ("must be text", "text in quotes"),
    "string_too_short": ("must not be empty", "at least one character"),
    "bool_type": ("must be true or false", "true or false, without quotes"),
    "int_type": ("must be a whole number", "a number without quotes and without a point"),
    "tuple_type": ("must be a list", "values in brackets: [1, 3, 5]"),
    "dict_type": ("must be a table", '{ name = "value" }, or a [table] of its own'),
    "model_type": ("must be a table", "{ key = value }, or a [table] of its own"),
}


@dataclass(frozen=True)
class SourceLocation:
    """Where a value was written."""

    path: str  # the file as the user named it, or the environment variable
    line: int | None = None
    label: str = ""  # the file name that origins show: relative to the main file
    folder: Path = Path()  # that relative paths in the value refer to

    @property
    def origin(self) -> str:
        """`ragmon.toml:12`, or `environment RAGMON_SAMPLE`."""
        return self.label if self.line is None else f"{self.label}:{self.line}"


CHOICE: Final = 0.7
"""How much a word has in common with the choice that it misspells; `prod` is no misspelt `probe`."""


@dataclass(frozen=True)
class Problem:
    """One problem of a configuration."""

    path: str
    line: int | None  # None for the whole file and for the environment
    key: str  # dotted; "" if the text is not TOML
    message: str
    value: object = None  # None if it is of no use, or a secret
    hint: str = ""
    warning: bool = False

    def __str__(self) -> str:
        return str(self.error())

    def error(self, count: int = 1) -> ConfigError:
        """The problem as an exception; its message mentions the total count of problems."""
        total = "" if count == 1 else f" (the first of {count} problems)"
        return ConfigError(self.message + total, path=self.path, line=self.line, value=self.value, hint=self.hint)


class Problems:
    """The problems found so far, and where every key was written."""

    def __init__(self, root: SourceLocation, locations: Mapping[KeyPath, SourceLocation]) -> None:
        self.root = root
        self._locations = locations
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
        """Where a key was written, or the nearest table that encloses it."""
        for end in range(len(path), 0, -1):
            for outer in (scope, ()):
                if (location := self._locations.get((*outer, *path[:end]))) is not None:
                    return location, (*outer, *path)
        location = self._locations.get(scope)
        return (self.root, path) if location is None else (location, (*scope, *path))

    def written(self, path: KeyPath, scope: KeyPath = ()) -> SourceLocation | None:
        """Where exactly this key was written, in the scope or else at the top level; None if nowhere."""
        return self._locations.get((*scope, *path)) or self._locations.get(path)

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
        """Add a problem of a key."""
        location, full = self.where(path, scope)
        is_hidden = isinstance(value, dict) or any(isinstance(part, str) and is_secret(part) for part in path)
        is_hidden = is_hidden or (isinstance(value, str) and may_hold_password(value))
        key, shown = dotted(full), None if is_hidden else value
        self.note(Problem(location.path, location.line, key, f"{key} {wrong}", shown, hint, warning))

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
        try:
            return model.model_validate(remaining)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        removed = False
        for detail in errors:
            path = tuple(part for part in detail["loc"] if part != "[key]")
            if not reported:
                predicate, hint = _explain(detail, path, model)
                problems.report(path, predicate, scope=scope, value=detail["input"], hint=hint)
            keys, table = [str(key) for key in (path[:-1] if detail["type"] == "missing" else path)], remaining
            # Of a list the whole is removed, not an element.
            while len(keys) > 1 and isinstance(table.get(keys[0]), dict):
                table = table[keys.pop(0)]
            removed = table.pop(keys[0], table) is not table or removed
        if not removed:  # the tables are invalid as a whole
            remaining = {}
        reported = True


def _explain(error: Mapping[str, Any], path: KeyPath, model: type[Table]) -> tuple[str, str]:
    # A predicate and a hint for an error of pydantic's.
    kind, context, key = error["type"], error.get("ctx", {}), str(path[-1]) if path else ""
    if kind == "ragmon":
        return context["message"], context["hint"]
    if kind in ("extra_forbidden", "missing"):
        table = table_at(path[:-1], model)
        if kind == "missing":
            examples = table.model_fields[key].examples if table is not None else None
            return "is missing", f'{key} = "{examples[0]}"' if examples else ""
        if model is not ConfigDocument and len(path) == 1 and key in ConfigDocument.model_fields:
            return "is not a known key", f"{key} holds for all pipelines: put it at the top of the file"
        return "is not a known key", nearest(key, table.model_fields) if table is not None else ""
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        *initial, last = [f'"{value}"' for value in allowed]
        alternatives = f"{', '.join(initial)} or {last}" if initial else last
        value = error["input"]
        hint = nearest(value, allowed, CHOICE) if isinstance(value, str) else "text in quotes"
        return f"must be {alternatives}", hint
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}", "a whole number"
    if kind == "model_type" and path[:-1] == ("gates",):
        return "is not a known key", f"{nearest(key, RESERVED)} (a gate is a table, [gates.{key}])"
    return _HINTS.get(kind, (error["msg"], ""))
