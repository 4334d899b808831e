"""How large, how slow and how many requests may be, and bodies inflated within that."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from ragmon.core import constants
from ragmon.ingest.compression import GZIP, ZSTD, BrokenStreamError, Inflated
from ragmon.server.doors.refusals import DECOMPRESS_LIMIT, TurnedAwayError

IDENTITY: Final = "identity"
MAGIC: Final = {"gzip": GZIP, "zstd": ZSTD[0]}
"""What a body of each encoding starts with."""
_CHUNK: Final = 1 << 18
_SLACK: Final = 1 << 18
"""Compressed bytes that may have brought forth little: a compressor gives in blocks."""


@dataclass(frozen=True)
class RequestLimits:
    """What a request may cost.

    Attributes:
        header: Bytes of the request line and the headers.
        wire: Bytes of a body as it is sent.
        inflated: Bytes of a body once it is inflated.
        ratio: How many times its compressed size a body may have, once it is larger than `free`.
        free: Inflated bytes up to which the ratio does not matter.
        deadline: Seconds in which the headers must have come, and then the body.
        in_flight: Requests that came in whole and are not answered.
        held: Bytes of all bodies together; small ones may take a sixth of that beside it.
        small: Bytes up to which a body is small: it waits for no turn, and finds room where large ones do not.
        turns: Large bodies that are taken apart or written at once; what is made of one takes several times its bytes.
    """

    header: int = 16 << 10
    wire: int = 8 << 20
    inflated: int = 20 << 20
    ratio: int = 200
    free: int = 1 << 20
    deadline: float = 32.0
    in_flight: int = 64
    held: int = 64 << 20
    small: int = 256 << 10
    turns: int = 2


LIMITS: Final = RequestLimits()


def encodings() -> tuple[str, ...]:
    """The content encodings that can be inflated here: gzip, and zstd where the extra is installed."""
    return tuple(name for name in MAGIC if name != "zstd" or find_spec("zstandard") is not None)


class _Metered(io.BytesIO):
    """A compressed body that stops being read when it brings forth less than half of what is put in.

    No compressor makes more of less. Somebody who strings hundreds of thousands of empty members together does: they
    inflate to nothing, and take seconds to do so.

    Attributes:
        inflated: How many bytes it has brought forth.
    """

    inflated = 0

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > _SLACK and self.inflated < self.tell() // 2:
            raise TurnedAwayError(413, DECOMPRESS_LIMIT, "the body inflates to less than it takes")
        return super().read(size)


def inflate(body: bytes, encoding: str, limits: RequestLimits = LIMITS) -> bytes:
    """Inflate a body, and give up as soon as it is larger than it may be.

    Args:
        body: The compressed body.
        encoding: Its content encoding, of `encodings()`.
        limits: How large it may become.

    Raises:
        TurnedAwayError: It becomes too large (413), or it is damaged (400).

    >>> import gzip
    >>> inflate(gzip.compress(b"spans"), "gzip")
    b'spans'
    """
    source = _Metered(body)
    stream = Inflated(source, MAGIC[encoding])
    most = min(limits.inflated, max(limits.free, limits.ratio * len(body)))
    chunks = []
    try:
        while chunk := stream.read(_CHUNK):
            source.inflated += len(chunk)
            if source.inflated > most:
                raise TurnedAwayError(413, DECOMPRESS_LIMIT, _too_large(most, limits))
            chunks.append(chunk)
    except BrokenStreamError as error:
        raise TurnedAwayError(400, constants.TRUNCATED, f"the body cannot be inflated: {error}") from None
    return b"".join(chunks)


def _too_large(most: int, limits: RequestLimits) -> str:
    if most == limits.inflated:
        return f"the body inflates to more than {limits.inflated} bytes"
    return f"the body inflates to more than {limits.free} bytes and {limits.ratio} times its size"
