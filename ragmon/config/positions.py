"""The line of each key in a TOML file, which tomllib does not report."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

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
