"""How large, how slow and how many requests may be, and bodies inflated within that.

What a door holds at once: requests in flight, bytes of bodies, bodies that are inflated.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import Final, Self, TypeVar

from starlette.concurrency import run_in_threadpool

from ragmon.core import constants
from ragmon.ingest.compression import GZIP, ZSTD, BrokenStreamError, Inflated
from ragmon.server.receiver.interface import DECOMPRESS_LIMIT, RATE_LIMITED, HTTPError, RejectedError

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
            raise HTTPError(413, DECOMPRESS_LIMIT, "the body inflates to less than it takes")
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
                raise HTTPError(413, DECOMPRESS_LIMIT, _too_large(most, limits))
            chunks.append(chunk)
    except BrokenStreamError as error:
        raise HTTPError(400, constants.TRUNCATED, f"the body cannot be inflated: {error}") from None
    return b"".join(chunks)


def _too_large(most: int, limits: RequestLimits) -> str:
    if most == limits.inflated:
        return f"the body inflates to more than {limits.inflated} bytes"
    return f"the body inflates to more than {limits.free} bytes and {limits.ratio} times its size"


T = TypeVar("T")
RETRY_AFTER: Final = 1.0
"""Seconds after which somebody who came to a full house may come again."""
_SPARE: Final = 6
"""The part of what may be held that is kept for small bodies beside it."""
_INFLATING: Final = 2
"""Bodies inflated at once: the work of one processor each, and not yet counted in what is held."""


class MemoryLimiter:
    """Counts what one door holds. Belongs to one event loop.

    Args:
        limits: How much it may be.
    """

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._inflating = asyncio.Semaphore(_INFLATING)
        self._turns = asyncio.Semaphore(limits.turns)
        self.in_flight = 0
        self.held = 0

    def ticket(self) -> Reservation:
        """A place for a request.

        Raises:
            TurnedAwayError: There is too much to do already; nothing more needs to be read.
        """
        self._poll()
        return Reservation(self)

    def begin(self) -> None:
        """Count a request that came in whole.

        Raises:
            TurnedAwayError: Too many are in flight.
        """
        self._poll()
        self.in_flight += 1

    def hold(self, size: int, *, whole: int | None = None) -> None:
        """Count bytes that are held, or with a negative number no more.

        Args:
            size: How many.
            whole: How many its request holds with them; default: these alone.

        Raises:
            TurnedAwayError: Too many are held.
        """
        most = self._limits.held
        if (size if whole is None else whole) <= self._limits.small:
            most += most // _SPARE
        if size > 0 and self.held + size > most:
            raise busy_error()
        self.held += size

    def _poll(self) -> None:
        if self.in_flight >= self._limits.in_flight:
            raise busy_error()

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Wait until a body may be taken apart; small ones wait for no large one.

        All are taken apart by one interpreter, so many at once are done no sooner, and fill the memory.

        Args:
            size: Bytes of the body.

        Raises:
            TurnedAwayError: Its turn does not come.
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
        """A body as it was before it was compressed; inflated off the event loop.

        Args:
            ticket: Of its request.
            body: The body.
            encoding: Its content encoding.

        Raises:
            TurnedAwayError: It is damaged, or becomes too large.
        """
        if encoding == IDENTITY:
            return body
        async with self._inflating:
            try:
                plain = await run_in_threadpool(inflate, body, encoding, self._limits)
            except HTTPError as error:
                raise error.with_traceback(None) from None  # its frames would keep what was inflated so far
        ticket.hold(len(plain) - len(body))
        return plain


class Reservation:
    """The place of one request; what it took is given back when the block ends.

    Args:
        intake: Whose.
    """

    def __init__(self, intake: MemoryLimiter) -> None:
        self._intake = intake
        self._held = 0
        self._begun = False

    def hold(self, size: int) -> None:
        """Hold so many bytes more.

        Raises:
            TurnedAwayError: The house is full.
        """
        self._intake.hold(size, whole=self._held + size)
        self._held += size

    def begin(self) -> None:
        """The request came in whole.

        Raises:
            TurnedAwayError: The house is full.
        """
        self._intake.begin()
        self._begun = True

    def give_back(self) -> None:
        """What it took is free again."""
        self._intake.hold(-self._held)
        self._intake.in_flight -= self._begun
        self._held, self._begun = 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()


def busy_error() -> HTTPError:
    """What somebody is told who comes to a full house."""
    return HTTPError(429, RATE_LIMITED, "there is too much to do", hint="try again", retry_after=RETRY_AFTER)


async def submit_and_wait(take: Callable[[], Future[T]]) -> T:
    """Hand something in at the desk, off the event loop, and wait until it is done.

    Whoever stops waiting does not take it back: it may be on disk already.

    Args:
        take: Hands it in.

    Raises:
        RefusedError: It is not taken.
    """
    try:
        future = await run_in_threadpool(take)
    except RejectedError as error:
        raise error.with_traceback(None) from None  # its frames would keep the body
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(tell)
    await done.wait()
    return future.result()
