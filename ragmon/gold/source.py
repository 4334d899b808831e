"""A gold file as text: opened, unpacked and decoded, or refused with the place where that failed."""

from __future__ import annotations

import codecs
import gzip
import sys
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from ragmon.core.errors import GoldError

STDIN: Final = "-"
SHAPES: Final = (
    "a gold file is JSON Lines (one object a line), one JSON array of objects, TREC qrels, or a directory holding "
    "queries.json, qrels.json and answers.json"
)
_GZIP: Final = b"\x1f\x8b"


class Place(NamedTuple):
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


def place_of(path: str | Path) -> Place:
    """A file as a whole."""
    return Place("<stdin>" if str(path) == STDIN else str(path))


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
        at = Place(place.path, raw.count(b"\n", 0, broken.start) + 1)
        raise at.error("not UTF-8", raw[broken.start : broken.end], "save the file as UTF-8") from broken


def _bytes(path: str | Path, place: Place) -> bytes:
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


def _unpacked(raw: bytes, place: Place) -> bytes:
    if not raw.startswith(_GZIP):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as broken:
        raise place.error(f"broken gzip file: {broken}", hint="pack the file again, or name the plain one") from broken
