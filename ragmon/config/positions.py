"""On which line of a TOML file each key stands; tomllib reads values and forgets where they were."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

KeyPath = tuple[str | int, ...]
"""Where a value is: table names, keys, and positions in arrays from 0."""

# Possessive quantifiers would say it better, but Debian 12's Python 3.11.2 gets them wrong in a group that repeats.
# Each repeated alternative starts with another character instead, so that nothing is tried twice.
_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_KEY: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[A-Za-z0-9_-]+')
_SCALAR: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'  # up to two quotes may stand right before the closing three
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|[^\s,\[\]{}#\"'][^,\[\]{}#\n]*",  # numbers, booleans, dates (which may hold a space)
    re.DOTALL,
)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class Repeat(NamedTuple):
    """A key that is defined again."""

    path: KeyPath
    line: int
    first: int


def locate(text: str) -> dict[KeyPath, int]:
    r"""The line of every table, key and array element.

    Args:
        text: A TOML document that tomllib accepts.

    Returns:
        Lines, counted from 1. A table's line is that of its header; where it has none, that of its first key.

    >>> locate('[sampling]\nkeep = { error = 1.0 }\n')
    {('sampling',): 1, ('sampling', 'keep'): 2, ('sampling', 'keep', 'error'): 2}
    """
    return _Scanner(text).scan().lines


def repeat(text: str) -> Repeat | None:
    """The first key or table that is defined twice, which TOML forbids; None where none is."""
    return next(iter(_Scanner(text).scan().repeats), None)


def dotted(path: Iterable[str | int]) -> str:
    """A key the way TOML writes it.

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


class _Lost(Exception):  # noqa: N818 - control flow: the text is not TOML from here on
    """The scanner cannot go on."""


class _Scanner:
    """Walks over a TOML text once, from left to right."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.repeats: list[Repeat] = []
        self._text = text
        self._pos = 0
        self._starts = [match.end() for match in re.finditer("\n", text)]
        self._defined: dict[KeyPath, int] = {}
        self._lengths: dict[KeyPath, int] = {}

    def scan(self) -> _Scanner:
        """Read to the end, or to where the text stops being TOML: tomllib says what is wrong there."""
        table: KeyPath = ()
        with suppress(_Lost, RecursionError, tomllib.TOMLDecodeError):
            while not self._at_end():
                table = self._header() if self._peek("[") else self._pair(table)
        return self

    def _header(self) -> KeyPath:
        """`[a.b]` or `[[a.b]]`: the table the following keys belong to."""
        line, is_array = self._line(), self._peek("[[")
        self._take("[[" if is_array else "[")
        keys = self._keys()
        self._take("]]" if is_array else "]")
        table: KeyPath = ()
        for key in keys[:-1]:
            table = self._newest((*table, key))
            self.lines.setdefault(table, line)
        path = (*table, keys[-1])
        if not is_array:
            path = self._newest(path)
            self._define(path, line)
            return path
        self.lines.setdefault(path, line)
        index = self._lengths.get(path, 0)
        self._lengths[path] = index + 1
        self.lines[(*path, index)] = line
        return (*path, index)

    def _newest(self, path: KeyPath) -> KeyPath:
        """For an array of tables its last element, to which a header below it belongs."""
        return (*path, self._lengths[path] - 1) if path in self._lengths else path

    def _pair(self, table: KeyPath) -> KeyPath:
        """`a.b = value`."""
        line, keys = self._line(), self._keys()
        self._take("=")
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
        while self._peek("."):
            self._take(".")
            keys.append(self._key())
        return tuple(keys)

    def _key(self) -> str:
        self._match(_SPACE)
        key = self._match(_KEY)
        self._match(_SPACE)
        return str(tomllib.loads(f"key = {key}")["key"]) if key[0] in "\"'" else key

    def _value(self, path: KeyPath) -> None:
        self._match(_SPACE)
        if self._peek("["):
            self._take("[")
            index = 0
            while not self._at_end() and not self._peek("]"):
                self.lines[(*path, index)] = self._line()
                self._value((*path, index))
                index += 1
                self._comma()
            self._take("]")
        elif self._peek("{"):
            self._take("{")
            while not self._at_end() and not self._peek("}"):
                self._pair(path)
                self._comma()
            self._take("}")
        else:
            self._match(_SCALAR)

    def _comma(self) -> None:
        self._match(_BLANK)
        if self._peek(","):
            self._take(",")

    def _at_end(self) -> bool:
        self._match(_BLANK)
        return self._pos >= len(self._text)

    def _peek(self, sign: str) -> bool:
        return self._text.startswith(sign, self._pos)

    def _take(self, sign: str) -> None:
        if not self._peek(sign):
            raise _Lost
        self._pos += len(sign)

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._pos)
        if match is None:
            raise _Lost
        self._pos = match.end()
        return match[0]

    def _line(self) -> int:
        return bisect_right(self._starts, self._pos) + 1
