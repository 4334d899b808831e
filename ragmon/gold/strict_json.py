"""Reading of gold files: text that may be gzipped, and strict JSON that knows the line of every element.

Every error names the place. Beyond what the standard library's decoder rejects, this one rejects NaN and infinities, a
name given twice in one object, and unpaired surrogates: programs read a gold file with any of these differently.
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
    """A place in a file.

    Attributes:
        path: The file, as the user named it.
        line: The line in it, counted from 1; None where the whole file is meant.
    """

    path: str
    line: int | None = None

    def error(self, message: str, value: object = None, hint: str = "") -> GoldError:
        """The error about the value at this place."""
        return GoldError(message, path=self.path, line=self.line, value=value, hint=hint)


def file_location(path: str | Path) -> JsonLocation:
    """The location of a whole file."""
    return JsonLocation("<stdin>" if str(path) == STDIN else str(path))


def read_text(path: str | Path) -> str:
    """The text of a file.

    Args:
        path: A UTF-8 file, with or without byte order mark, plain or gzip; `-` is standard input.

    Raises:
        GoldError: It cannot be opened or decompressed, or is not UTF-8.
    """
    return as_text(read_bytes(path), file_location(path).path)


def read_bytes(path: str | Path) -> bytes:
    """The decompressed bytes of a file, plain or gzip; `-` is standard input.

    Raises:
        GoldError: It cannot be opened or decompressed.
    """
    place = file_location(path)
    return _decompressed(_bytes(path, place), place)


def as_text(raw: bytes, path: str) -> str:
    """Decoded UTF-8, without its byte order mark.

    Raises:
        GoldError: It is not UTF-8.
    """
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        location = JsonLocation(path, raw.count(b"\n", 0, error.start) + 1)
        raise location.error("not UTF-8", raw[error.start : error.end], "save the file as UTF-8") from error


def _bytes(path: str | Path, place: JsonLocation) -> bytes:
    if str(path) == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise place.error("no such file", hint=f"{SHAPES}; - is standard input") from error
    except IsADirectoryError as error:
        raise place.error("is a directory, not a file", hint=SHAPES) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise place.error(f"cannot be read: {reason}", hint="name a file this user may read") from error


def _decompressed(raw: bytes, place: JsonLocation) -> bytes:
    if not raw.startswith(_GZIP):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise place.error(f"broken gzip file: {error}", hint="pack the file again, or name the plain one") from error


_SPACE: Final = " \t\n\r"
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_HINT: Final = "write one JSON object a line, or one JSON array of objects"


class _RejectedError(ValueError):
    """A value the standard decoder would accept."""

    def __init__(self, message: str, value: object, hint: str) -> None:
        super().__init__(message)
        self.value = value
        self.hint = hint


class JsonText:
    """A cursor over JSON text.

    Args:
        path: The file, for messages.
        text: JSON, or one line of a JSONL file.
        first_line: The line of the file on which the text starts.
    """

    def __init__(self, path: str, text: str, first_line: int = 1) -> None:
        self._path = path
        self._text = text
        self._at = 0
        self._line = first_line

    @classmethod
    def lines(cls, path: str, text: str) -> Iterator[tuple[JsonLocation, Any]]:
        """The values of JSON Lines, each with its location; blank lines are skipped."""
        # Not splitlines(): U+2028 and similar characters may occur inside a JSON string.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip(_SPACE):
                cursor = cls(path, line, number)
                yield cursor._value()
                cursor._end()

    def array(self) -> Iterator[tuple[JsonLocation, Any]]:
        """The elements of the text, which must be one array, each with its location."""
        for _ in self._elements("[", "]"):
            yield self._value()

    def members(self) -> Iterator[tuple[str, JsonLocation, Any]]:
        """The members of the text, which must be one object: name, location, value."""
        earlier: dict[str, JsonLocation] = {}
        for _ in self._elements("{", "}"):
            if self._peek() != '"':
                self._reject("a name in double quotes belongs here", self._at)
            place, name = self._value()
            if name in earlier:
                raise place.error(f"name appears twice, first on line {earlier[name].line}", name, "keep one of them")
            earlier[name] = place
            self._expect(":")
            yield name, place, self._value()[1]

    def _elements(self, opening: str, closing: str) -> Iterator[None]:
        """Stop before every element, so that the caller can read it."""
        self._expect(opening)
        if self._peek() != closing:
            yield
            while self._peek() == ",":
                self._expect(",")
                yield
        self._expect(closing)
        self._end()

    def _value(self) -> tuple[JsonLocation, Any]:
        self._peek()
        start, place = self._at, JsonLocation(self._path, self._line)
        try:
            value, end = _DECODER.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            self._reject(error.msg, error.pos)
        except _RejectedError as rejected:
            raise place.error(str(rejected), rejected.value, rejected.hint) from rejected
        except RecursionError as deep:
            raise place.error("nested too deeply", hint=_HINT) from deep
        except ValueError as number:  # Python does not parse integers of thousands of digits
            raise place.error(f"number cannot be read: {number}", hint="write long ids as strings") from number
        if _SURROGATE.search(self._text, start, end):
            _reject_lone_surrogates(value, place)
        self._advance(end)
        return place, value

    def _expect(self, char: str) -> None:
        if self._peek() != char:
            self._reject(f"{char!r} belongs here", self._at)
        self._advance(self._at + 1)

    def _end(self) -> None:
        if self._peek():
            self._reject("nothing may follow here", self._at)

    def _peek(self) -> str:
        """The next character that is not white space; "" at the end."""
        end = self._at
        while end < len(self._text) and self._text[end] in _SPACE:
            end += 1
        self._advance(end)
        return self._text[end : end + 1]

    def _advance(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _reject(self, message: str, at: int) -> NoReturn:
        line = self._line + self._text.count("\n", self._at, at)
        column = at - self._text.rfind("\n", 0, at)
        rest = self._text[at:].partition("\n")[0].strip()
        place = JsonLocation(self._path, line)
        raise place.error(f"not JSON at column {column}, {message[0].lower()}{message[1:]}", rest or None, _HINT)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise _RejectedError("name appears twice in one object", duplicate, "keep one of them")
    return members


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _RejectedError("not a finite number", text, "JSON knows finite numbers only")
    return number


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_number)


def _reject_lone_surrogates(value: Any, place: JsonLocation) -> None:
    """Reject unpaired surrogates, without recursion: the value may be nested as deeply as the decoder allows."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack += [*node.keys(), *node.values()]
        elif isinstance(node, list):
            stack += node
        elif isinstance(node, str) and any("\ud800" <= char <= "\udfff" for char in node):
            hint = "write the character itself, or both halves of its pair"
            raise place.error("half of a surrogate pair is no character", node, hint)
