"""gzip and zstd streams, decompressed in bounded memory.

Of a damaged stream, every byte before the damage is read.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final

from ragmon.core.errors import RagmonError

GZIP: Final = b"\x1f\x8b"
ZSTD: Final = (b"\x28\xb5\x2f\xfd", *(bytes([n]) + b"\x2a\x4d\x18" for n in range(0x50, 0x60)))
"""The first bytes of a zstd stream: the magic number of a frame, or of a skippable frame."""

_GZIP_WBITS: Final = 31
_READ: Final = 1 << 16
_INFLATED: Final = 1 << 18
# A zstd decompressor has no limit on its output; 128 bytes of input hold at most 32 blocks of 128 KiB.
_ZSTD_READ: Final = 128


class BrokenStreamError(Exception):
    """A compressed stream is truncated or damaged; everything before that place was read."""


class Inflated(io.RawIOBase):
    """The decompressed bytes of a compressed stream.

    Args:
        raw: The compressed stream.
        magic: Its first bytes.

    Raises:
        RagmonError: The stream is zstd, and the extra that reads zstd is not installed.
    """

    def __init__(self, raw: IO[bytes], magic: bytes) -> None:
        self._chunks = _gunzip(raw) if magic.startswith(GZIP) else _unzstd(raw, _zstandard())
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from at most one chunk.

        Returns:
            The number of bytes; 0 at the end of the stream.

        Raises:
            BrokenStreamError: The stream is truncated or damaged here.
        """
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _gunzip(raw: IO[bytes]) -> Iterator[bytes]:
    """Decompress the members of a gzip stream in order; zeros between and after them are padding."""
    data = raw.read(_READ)
    while data:
        member = zlib.decompressobj(_GZIP_WBITS)
        while not member.eof:
            if not data:
                raise BrokenStreamError("the gzip stream breaks off")
            try:
                yield member.decompress(data, _INFLATED)
            except zlib.error as error:
                raise BrokenStreamError(f"the gzip stream is damaged ({error})") from None
            data = member.unconsumed_tail or (b"" if member.eof else raw.read(_READ))
        data = member.unused_data.lstrip(b"\0")
        while not data and (more := raw.read(_READ)):
            data = more.lstrip(b"\0")


def _unzstd(raw: IO[bytes], zstandard: Any) -> Iterator[bytes]:
    """Decompress the frames of a zstd stream in order."""
    data = raw.read(_ZSTD_READ)
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            if not data:
                raise BrokenStreamError("the zstd stream breaks off")
            try:
                yield frame.decompress(data)
            except zstandard.ZstdError as error:
                raise BrokenStreamError(f"the zstd stream is damaged ({error})") from None
            data = b"" if frame.eof else raw.read(_ZSTD_READ)
        data = frame.unused_data or raw.read(_ZSTD_READ)


def _zstandard() -> Any:
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise RagmonError("this file needs zstandard to be read", hint="pip install 'ragmon[zstd]'") from error
    return zstandard
