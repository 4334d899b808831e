"""A gold file as text: opened, unpacked and decoded, or refused with the place where that failed.

Strict JSON that knows on which line every element stands.

Refused beyond the standard library's decoder: NaN and infinities, a name given twice in one object, half of a
surrogate pair. A gold file with any of these means something else to every program that reads it.
"""

from __future__ import annotations

import codecs
import gzip
import json
import math
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from ragmon.core.errors import GoldError

STDIN: Final = "-"
SHAPES: Final = (
    "a gold file is JSON Lines (one object a line), one JSON array of objects, TREC qrels, or a directory holding "
    "queries.json, qrels.json and answers.json"
)
_GZIP: Final = b"\x1f\x8b"


class JsonLocation(NamedTuple):
    """Where something stands.

    Attributes:
        path: The file, as the user named it.
        line: The line in it, counted from 1; None where the file as a whole is meant.
    """

    path: str
    line: int | None = None

    def error(self, message: str, value: object = None, hint: str = "") -> GoldError:
        """The refusal of what stands here."""
        return GoldError(message, path=self.path, line=self.line, value=value, hint=hint)


def place_of(path: str | Path) -> JsonLocation:
    """A file as a whole."""
    return JsonLocation("<stdin>" if str(path) == STDIN else str(path))


def read_text(path: str | Path) -> str:
    """The text of a file.

    Args:
        path: A UTF-8 file, with or without byte order mark, plain or gzip; `-` is standard input.

    Raises:
        GoldError: It cannot be opened or unpacked, or is not UTF-8.
    """
    place = place_of(path)
    raw = _unpacked(_bytes(path, place), place).removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode()
    except UnicodeDecodeError as broken:
        at = JsonLocation(place.path, raw.count(b"\n", 0, broken.start) + 1)
        raise at.error("not UTF-8", raw[broken.start : broken.end], "save the file as UTF-8") from broken


def _bytes(path: str | Path, place: JsonLocation) -> bytes:
    if str(path) == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as absent:
        raise place.error("no such file", hint=f"{SHAPES}; - is standard input") from absent
    except IsADirectoryError as directory:
        raise place.error("is a directory, not a file", hint=SHAPES) from directory
    except (OSError, ValueError) as trouble:
        reason = getattr(trouble, "strerror", None) or trouble
        raise place.error(f"cannot be read: {reason}", hint="name a file this user may read") from trouble


def _unpacked(raw: bytes, place: JsonLocation) -> bytes:
    if not raw.startswith(_GZIP):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as broken:
        raise place.error(f"broken gzip file: {broken}", hint="pack the file again, or name the plain one") from broken


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
    def lines(cls, path: str, text: str) -> Iterator[tuple[JsonLocation, Any]]:
        """The values of JSON Lines, each with its place; blank lines are skipped."""
        # Not splitlines(): U+2028 and its kin may stand inside a JSON string.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip(_SPACE):
                cursor = cls(path, line, number)
                yield cursor._value()
                cursor._end()

    def array(self) -> Iterator[tuple[JsonLocation, Any]]:
        """The elements of the one array the text is, each with its place."""
        for _ in self._elements("[", "]"):
            yield self._value()

    def members(self) -> Iterator[tuple[str, JsonLocation, Any]]:
        """The members of the one object the text is: name, place, value."""
        seen: dict[str, JsonLocation] = {}
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

    def _value(self) -> tuple[JsonLocation, Any]:
        self._peek()
        start, place = self._at, JsonLocation(self._path, self._line)
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
        where = JsonLocation(self._path, line)
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


def _refuse_half_pairs(value: Any, place: JsonLocation) -> None:
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
