"""Decompression within the limits of requests, and the memory limiter of a receiver.

The limiter counts requests in flight, bytes of bodies, and bodies that are being decompressed.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from types import TracebackType
from typing import Final, Self, TypeVar

from starlette.concurrency import run_in_threadpool

from ragmon.core import constants
from ragmon.ingest.compression import GZIP, ZSTD, BrokenStreamError, Inflated
from ragmon.monitor.http.requests import (
    DECOMPRESS_LIMIT,
    LIMITS,
    RATE_LIMITED,
    HTTPError,
    RejectedError,
    RequestLimits,
)

IDENTITY: Final = "identity"
MAGIC: Final = {"gzip": GZIP, "zstd": ZSTD[0]}
"""The first bytes of a body of each encoding."""
_CHUNK: Final = 1 << 18
_SLACK: Final = 1 << 18
"""Compressed bytes read before the meter applies: a decompressor returns its output in blocks."""


def encodings() -> tuple[str, ...]:
    """The supported content encodings: gzip, and zstd if the extra is installed."""
    return tuple(name for name in MAGIC if name != "zstd" or find_spec("zstandard") is not None)


class _Metered(io.BytesIO):
    """A compressed body that raises an error when its decompressed size is less than half of the bytes read.

    No compressor enlarges data that much. An attacker who joins hundreds of thousands of empty members does: they
    decompress to nothing, and take seconds to do so.

    Attributes:
        inflated: How many bytes were decompressed so far.
    """

    inflated = 0

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > _SLACK and self.inflated < self.tell() // 2:
            raise HTTPError(413, DECOMPRESS_LIMIT, "the body inflates to less than it takes")
        return super().read(size)


def inflate(body: bytes, encoding: str, limits: RequestLimits = LIMITS) -> bytes:
    """Decompress a body, and stop as soon as it exceeds the limits.

    Args:
        body: The compressed body.
        encoding: Its content encoding, one of `encodings()`.
        limits: The limits of its size and its ratio.

    Raises:
        HTTPError: It is too large (413), or damaged (400).

    >>> import gzip
    >>> inflate(gzip.compress(b"spans"), "gzip")
    b'spans'
    """
    source = _Metered(body)
    stream = Inflated(source, MAGIC[encoding])
    limit = min(limits.inflated, max(limits.free, limits.ratio * len(body)))
    chunks = []
    try:
        while chunk := stream.read(_CHUNK):
            source.inflated += len(chunk)
            if source.inflated > limit:
                raise HTTPError(413, DECOMPRESS_LIMIT, _too_large(limit, limits))
            chunks.append(chunk)
    except BrokenStreamError as error:
        raise HTTPError(400, constants.TRUNCATED, f"the body cannot be inflated: {error}") from None
    return b"".join(chunks)


def _too_large(limit: int, limits: RequestLimits) -> str:
    if limit == limits.inflated:
        return f"the body inflates to more than {limits.inflated} bytes"
    return f"the body inflates to more than {limits.free} bytes and {limits.ratio} times its size"


T = TypeVar("T")
RETRY_AFTER: Final = 1.0
"""Seconds after which a client may retry when the server is overloaded."""
_SMALL_SHARE: Final = 6
"""Small bodies may use a part of the memory limit, one in so many, in addition."""
_MAX_INFLATING: Final = 2
"""Bodies decompressed at once: each uses one processor, and its output is not yet counted as held."""


class MemoryLimiter:
    """Limits the requests and the memory of one receiver. Belongs to one event loop.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._inflating = asyncio.Semaphore(_MAX_INFLATING)
        self._turns = asyncio.Semaphore(limits.turns)
        self.in_flight = 0
        self.reserved = 0

    def ticket(self) -> Reservation:
        """A reservation for a request.

        Raises:
            HTTPError: Too many requests are in flight; the request need not be read.
        """
        self._check_in_flight()
        return Reservation(self)

    def begin(self) -> None:
        """Count a request that was received completely.

        Raises:
            HTTPError: Too many are in flight.
        """
        self._check_in_flight()
        self.in_flight += 1

    def reserve(self, size: int, *, whole: int | None = None) -> None:
        """Count bytes that are held; a negative number releases them.

        Args:
            size: How many bytes.
            whole: How many bytes the request holds with them; default: `size`.

        Raises:
            HTTPError: Too many bytes are held.
        """
        limit = self._limits.memory
        if (size if whole is None else whole) <= self._limits.small:
            limit += limit // _SMALL_SHARE
        if size > 0 and self.reserved + size > limit:
            raise busy_error()
        self.reserved += size

    def _check_in_flight(self) -> None:
        if self.in_flight >= self._limits.in_flight:
            raise busy_error()

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Wait until a body may be decoded; small bodies do not wait.

        One interpreter decodes all bodies, so decoding many at once is not faster, and fills the memory.

        Args:
            size: Bytes of the body.

        Raises:
            HTTPError: It waited longer than the deadline.
        """
        if size <= self._limits.small:
            yield
            return
        try:
            await asyncio.wait_for(self._turns.acquire(), self._limits.deadline)
        except TimeoutError:
            raise busy_error() from None
        try:
            yield
        finally:
            self._turns.release()

    async def inflated(self, ticket: Reservation, body: bytes, encoding: str) -> bytes:
        """Decompress a body, in a thread pool.

        Args:
            ticket: The reservation of its request.
            body: The body.
            encoding: Its content encoding.

        Raises:
            HTTPError: It is damaged or too large.
        """
        if encoding == IDENTITY:
            return body
        async with self._inflating:
            try:
                plain = await run_in_threadpool(inflate, body, encoding, self._limits)
            except HTTPError as error:
                raise error.with_traceback(None) from None  # its traceback would keep the output in memory
        ticket.reserve(len(plain) - len(body))
        return plain


class Reservation:
    """The reservation of one request; it is released when the block ends.

    Args:
        intake: The limiter.
    """

    def __init__(self, intake: MemoryLimiter) -> None:
        self._limiter = intake
        self._held = 0
        self._is_in_flight = False

    def reserve(self, size: int) -> None:
        """Reserve more bytes.

        Raises:
            HTTPError: Too many bytes are held.
        """
        self._limiter.reserve(size, whole=self._held + size)
        self._held += size

    def begin(self) -> None:
        """Count the request as in flight: it was received completely.

        Raises:
            HTTPError: Too many requests are in flight.
        """
        self._limiter.begin()
        self._is_in_flight = True

    def give_back(self) -> None:
        """Release the reservation; calling it again does nothing."""
        self._limiter.reserve(-self._held)
        self._limiter.in_flight -= self._is_in_flight
        self._held, self._is_in_flight = 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()


def busy_error() -> HTTPError:
    """The error for a request that exceeds the limits of the receiver."""
    return HTTPError(429, RATE_LIMITED, "there is too much to do", hint="try again", retry_after=RETRY_AFTER)


async def submit_and_wait(take: Callable[[], Future[T]]) -> T:
    """Submit a request to the consumer, in a thread pool, and wait until it is done.

    Cancelling the wait does not cancel the request: it may be on disk already.

    Args:
        take: Submits the request.

    Raises:
        RejectedError: The request is rejected.
    """
    try:
        future = await run_in_threadpool(take)
    except RejectedError as error:
        raise error.with_traceback(None) from None  # its traceback would keep the body in memory
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop has ended: no request is waiting
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(wake)
    await done.wait()
    return future.result()
