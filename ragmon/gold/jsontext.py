"""Strict JSON that knows on which line every element stands.

Refused beyond the standard library's decoder: NaN and infinities, a name given twice in one object, half of a
surrogate pair. A gold file with any of these means something else to every program that reads it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from ragmon.gold.source import Place

_SPACE: Final = " \t\n\r"
_HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")
_HINT: Final = "write one JSON object a line, or one JSON array of objects"


class _RefusedError(ValueError):
    """Something the standard decoder would accept."""

    def __init__(self, message: str, value: object, hint: str) -> None:
        super().__init__(message)
        self.value = value
        self.hint = hint


class JsonText:
    """A cursor over JSON text.

    Args:
        path: The file, for messages.
        text: JSON, or one line of a JSONL file.
        first_line: The line of the file the text starts on.
    """

    def __init__(self, path: str, text: str, first_line: int = 1) -> None:
        self._path = path
        self._text = text
        self._at = 0
        self._line = first_line

    @classmethod
    def lines(cls, path: str, text: str) -> Iterator[tuple[Place, Any]]:
        """The values of JSON Lines, each with its place; blank lines are skipped."""
        # Not splitlines(): U+2028 and its kin may stand inside a JSON string.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip(_SPACE):
                cursor = cls(path, line, number)
                yield cursor._value()
                cursor._end()

    def array(self) -> Iterator[tuple[Place, Any]]:
        """The elements of the one array the text is, each with its place."""
        for _ in self._elements("[", "]"):
            yield self._value()

    def members(self) -> Iterator[tuple[str, Place, Any]]:
        """The members of the one object the text is: name, place, value."""
        seen: dict[str, Place] = {}
        for _ in self._elements("{", "}"):
            if self._peek() != '"':
                self._refuse("a name in double quotes belongs here", self._at)
            place, name = self._value()
            if name in seen:
                raise place.error(f"name appears twice, first on line {seen[name].line}", name, "keep one of them")
            seen[name] = place
            self._take(":")
            yield name, place, self._value()[1]

    def _elements(self, opening: str, closing: str) -> Iterator[None]:
        """Stops once before every element; the caller reads it."""
        self._take(opening)
        if self._peek() != closing:
            yield
            while self._peek() == ",":
                self._take(",")
                yield
        self._take(closing)
        self._end()

    def _value(self) -> tuple[Place, Any]:
        self._peek()
        start, place = self._at, Place(self._path, self._line)
        try:
            value, end = _DECODER.raw_decode(self._text, start)
        except json.JSONDecodeError as broken:
            self._refuse(broken.msg, broken.pos)
        except _RefusedError as refused:
            raise place.error(str(refused), refused.value, refused.hint) from refused
        except RecursionError as deep:
            raise place.error("nested too deeply", hint=_HINT) from deep
        except ValueError as number:  # Python refuses to read integers of thousands of digits
            raise place.error(f"number cannot be read: {number}", hint="write long ids as strings") from number
        if _HALF_PAIR.search(self._text, start, end):
            _refuse_half_pairs(value, place)
        self._move(end)
        return place, value

    def _take(self, char: str) -> None:
        if self._peek() != char:
            self._refuse(f"{char!r} belongs here", self._at)
        self._move(self._at + 1)

    def _end(self) -> None:
        if self._peek():
            self._refuse("nothing may follow here", self._at)

    def _peek(self) -> str:
        """The next character that is not white space; "" at the end."""
        end = self._at
        while end < len(self._text) and self._text[end] in _SPACE:
            end += 1
        self._move(end)
        return self._text[end : end + 1]

    def _move(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _refuse(self, message: str, at: int) -> NoReturn:
        line = self._line + self._text.count("\n", self._at, at)
        column = at - self._text.rfind("\n", 0, at)
        found = self._text[at:].partition("\n")[0].strip()
        where = Place(self._path, line)
        raise where.error(f"not JSON at column {column}, {message[0].lower()}{message[1:]}", found or None, _HINT)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError("name appears twice in one object", twice, "keep one of them")
    return members


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _RefusedError("not a finite number", text, "JSON knows finite numbers only")
    return number


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_number)


def _refuse_half_pairs(value: Any, place: Place) -> None:
    """A stack, not recursion: the value may be nested as deeply as the decoder allows."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            waiting += [*found.keys(), *found.values()]
        elif isinstance(found, list):
            waiting += found
        elif isinstance(found, str) and any("\ud800" <= char <= "\udfff" for char in found):
            hint = "write the character itself, or both halves of its pair"
            raise place.error("half of a surrogate pair is no character", found, hint)
