"""Trace files as blocks of whole lines, for a scan that reads many lines at once.

Line numbers, over-long lines and a stream that breaks off are what `ragmon.ingest.files.LineReader` makes of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.ingest.compression import BrokenStreamError
from ragmon.ingest.files import MAX_LINE, skip_line
from ragmon.ingest.trec import Reject

SMALLEST: Final = 1 << 14
"""Bytes of the first block, about: Python has to see the first record of a stream before a scan knows the others."""
LARGEST: Final = 1 << 18
"""Bytes of a block after some: what of it is looked at more than once stays in the processor's cache."""
_GROWTH: Final = 4


class LineBlock(NamedTuple):
    """Some lines.

    Attributes:
        data: Whole lines; the last one of a file may have no newline.
        before: The number of lines before them in the file, or in its part.
    """

    data: bytes
    before: int


class BlockReader:
    """The lines of a stream in blocks.

    Args:
        stream: Decompressed bytes.
        reject: Called for lines that are too long, and for a truncated or damaged compressed stream.
        length: The number of bytes to read, which end with a line; None reads to the end.

    Attributes:
        number: The number of lines so far; the user of a block adds its lines before it asks for the next one.
    """

    def __init__(self, stream: io.BufferedReader, reject: Reject, *, length: int | None = None) -> None:
        self.number = 0
        self._stream = stream
        self._reject = reject
        self._left = length

    def __iter__(self) -> Iterator[LineBlock]:
        size = SMALLEST
        try:
            while data := self._read(self._stream.read1, size):
                size = min(LARGEST, size * _GROWTH)
                end = data.rfind(b"\n") + 1
                try:
                    rest = self._rest_of_line(len(data) - end) if end < len(data) else b""
                except BrokenStreamError:
                    yield from self._block(data[:end])
                    raise
                if rest is not None:
                    yield from self._block(data + rest)
                    continue
                yield from self._block(data[:end])
                self.number += 1
                self._reject(self.number, constants.OVERSIZE, f"it is longer than {MAX_LINE} bytes")
        except BrokenStreamError as error:
            self.number += 1
            self._reject(self.number, constants.TRUNCATED, str(error))

    def _block(self, data: bytes) -> Iterator[LineBlock]:
        if data:
            yield LineBlock(data, self.number)

    def _rest_of_line(self, begun: int) -> bytes | None:
        """Read the rest of a line of which some bytes were read; None where it is too long."""
        rest = self._read(self._stream.readline, MAX_LINE + 1 - begun)
        if begun + len(rest) <= MAX_LINE or rest.endswith(b"\n"):
            return rest
        skipped = skip_line(self._stream)
        self._left = None if self._left is None else self._left - skipped
        return None

    def _read(self, read: Callable[[int], bytes], size: int) -> bytes:
        """Read at most so many bytes, and no more than are left."""
        data = read(size if self._left is None else min(size, self._left))
        if self._left is not None:
            self._left -= len(data)
        return data
