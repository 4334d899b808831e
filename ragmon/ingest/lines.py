r"""Lines of a file, a pipe or a compressed stream, in bounded memory whatever they hold.

Lines end at the byte `\n` alone: text inside a record may hold U+2028 and its like.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from ragmon.core import constants
from ragmon.core.errors import InputError
from ragmon.ingest.inflate import GZIP, ZSTD, BrokenStreamError, Inflated

MAX_LINE: Final = 8 << 20
"""Bytes of the longest line that is read; a longer one is skipped and counted."""
_BUFFER: Final = 1 << 20
_SKIP: Final = 1 << 16
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")

Reject = Callable[[int, str, str], None]
"""Told the line number, the reason and the details of what could not be read."""


@contextmanager
def open_bytes(path: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a trace file by its name, `-` for standard input; gzip and zstd are told by their first bytes.

    Yields:
        The inflated bytes and the file underneath, whose position tells the progress; one and the same where nothing
        is compressed.

    Raises:
        InputError: The file cannot be opened or read on, is a directory, or is UTF-16.
        RagmonError: zstd without the extra that reads it.
    """
    try:
        with _open(path) as raw:
            magic = raw.peek(4)
            if magic.startswith(_UTF_16):
                raise InputError("this is UTF-16", path=path, hint="write it as UTF-8")
            if magic.startswith((GZIP, *ZSTD)):
                yield io.BufferedReader(Inflated(raw, magic), _BUFFER), raw
            else:
                yield raw, raw
    except OSError as error:
        said = f"cannot be read ({error.strerror or error})"
        raise InputError(said, path=path, hint="check name and rights") from error


@contextmanager
def _open(path: str) -> Iterator[Any]:
    if path == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed", path=path, hint="pipe traces into it, or name a file")
        stdin: Any = sys.stdin.buffer  # a test runner may have put any stream there
        yield stdin if isinstance(stdin, io.BufferedReader) else io.BufferedReader(stdin)
    elif Path(path).is_dir():
        raise InputError("this is a directory", path=path, hint="name the trace files in it")
    else:
        with open(path, "rb", buffering=_BUFFER) as file:  # noqa: PTH123 - the buffer's size matters
            yield file


class Lines:
    """The non-blank lines of a stream, counted from where it stands.

    Args:
        stream: Inflated bytes.
        reject: Told about lines that are too long, and about a compressed stream that breaks off.
        length: Bytes after which no further line starts; None reads to the end.

    Attributes:
        number: Number of the line read last, from 1.
        blank: How many lines so far held nothing.
    """

    def __init__(self, stream: IO[bytes], reject: Reject, *, length: int | None = None) -> None:
        self.number = 0
        self.blank = 0
        self._stream = stream
        self._reject = reject
        self._length = length

    def __iter__(self) -> Iterator[bytes]:
        length, passed = self._length, 0
        read = iter(partial(self._stream.readline, MAX_LINE + 1), b"")
        try:
            for number, line in enumerate(read, 1):
                self.number = number
                if len(line) > MAX_LINE and not line.endswith(b"\n"):
                    passed += skip_line(self._stream)
                    self._reject(number, constants.OVERSIZE, f"it is longer than {MAX_LINE} bytes")
                elif line.isspace():
                    self.blank += 1
                else:
                    yield line
                if length is not None:
                    passed += len(line)
                    if passed >= length:
                        return
        except BrokenStreamError as error:
            self.number += 1
            self._reject(self.number, constants.TRUNCATED, str(error))


def skip_line(stream: IO[bytes]) -> int:
    """Read on to the end of a line without holding it; returns how many bytes that were."""
    passed = 0
    for chunk in iter(partial(stream.readline, _SKIP), b""):
        passed += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return passed


def byte_ranges(path: str, parts: int) -> list[tuple[int, int]]:
    """Cut a plain file into about equal ranges that start at line starts.

    Args:
        path: A file that is not compressed.
        parts: How many ranges at most.
    """
    size = os.stat(path).st_size  # noqa: PTH116 - one number
    starts = [0]
    with open(path, "rb") as file:  # noqa: PTH123
        for part in range(1, parts):
            file.seek(size * part // parts)
            skip_line(file)
            if starts[-1] < file.tell() < size:
                starts.append(file.tell())
    return list(zip(starts, [*starts[1:], size], strict=True))
