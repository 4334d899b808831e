"""Lines of a file, a pipe or a compressed file, in bounded memory whatever they hold.

Lines end at the byte `\\n` alone: text inside a record may hold U+2028 and its like.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Final

from ragmon import names
from ragmon.errors import InputError, RagmonError

MAX_LINE: Final = 8 << 20
"""Bytes of the longest line that is read; a longer one is skipped and counted."""
_BUFFER: Final = 1 << 20
_BOM: Final = b"\xef\xbb\xbf"

Reject = Callable[[str, int], None]
"""Told the reason and the line number of what could not be read."""


@contextmanager
def open_bytes(path: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a trace file by its name: plain, `.gz`, `.zst` or `-` for standard input.

    Yields:
        The inflated bytes and the file underneath, whose position tells the progress.

    Raises:
        InputError: The file cannot be opened, or is a directory.
        RagmonError: `.zst` without the extra that reads it.
    """
    if path == "-":
        yield sys.stdin.buffer, sys.stdin.buffer
        return
    if Path(path).is_dir():
        raise InputError("this is a directory", path=path, hint="name the trace files in it")
    try:
        raw = open(path, "rb", buffering=_BUFFER)  # noqa: SIM115, PTH123 - closed below, buffer size matters
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", path=path, hint="check the name") from error
    with raw:
        if path.endswith(".gz"):
            with gzip.GzipFile(fileobj=raw) as inflated:
                yield io.BufferedReader(inflated, _BUFFER), raw  # type: ignore[type-var]
        elif path.endswith(".zst"):
            yield _zstd(raw), raw
        else:
            yield raw, raw


def _zstd(raw: IO[bytes]) -> IO[bytes]:
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise RagmonError(".zst files need zstandard", hint="pip install 'ragmon[zstd]'") from error
    reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    return io.BufferedReader(reader, _BUFFER)


def read_lines(stream: IO[bytes], reject: Reject, *, length: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The non-empty lines of a stream with their numbers, counted from where it stands.

    Args:
        stream: Inflated bytes.
        reject: Told about lines that are too long, and about a compressed stream that breaks off.
        length: Bytes after which no further line starts; None reads to the end.
    """
    number = consumed = 0
    lines = iter(partial(stream.readline, MAX_LINE + 1), b"")
    try:
        for line in lines:
            number += 1
            if len(line) > MAX_LINE and not line.endswith(b"\n"):
                _skip_line(stream)
                reject(names.OVERSIZE, number)
            elif number == 1 and line.startswith(_BOM):
                yield number, line[len(_BOM) :]
            elif line != b"\n" and not line.isspace():
                yield number, line
            if length is not None:
                consumed += len(line)
                if consumed >= length:
                    return
    except (EOFError, zlib.error, gzip.BadGzipFile):
        reject(names.TRUNCATED, number + 1)
    except Exception as error:
        # zstandard's own error type exists only where the extra is installed.
        if type(error).__name__ != "ZstdError":
            raise
        reject(names.TRUNCATED, number + 1)


def _skip_line(stream: IO[bytes]) -> None:
    """Read on to the end of an over-long line without holding it."""
    while True:
        chunk = stream.readline(MAX_LINE)
        if not chunk or chunk.endswith(b"\n"):
            return


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
            file.seek(max(size * part // parts, 1) - 1)
            file.readline()
            if starts[-1] < file.tell() < size:
                starts.append(file.tell())
    return list(zip(starts, [*starts[1:], size], strict=True))
