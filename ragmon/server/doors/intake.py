"""What a door holds at once: requests in flight, bytes of bodies, bodies that are inflated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self, TypeVar

from starlette.concurrency import run_in_threadpool

from ragmon.server.desk import RefusedError
from ragmon.server.doors.limits import IDENTITY, RequestLimits, inflate
from ragmon.server.doors.refusals import RATE_LIMITED, TurnedAwayError

T = TypeVar("T")
RETRY_AFTER: Final = 1.0
"""Seconds after which somebody who came to a full house may come again."""
_SPARE: Final = 6
"""The part of what may be held that is kept for small bodies beside it."""
_INFLATING: Final = 2
"""Bodies inflated at once: the work of one processor each, and not yet counted in what is held."""


class Intake:
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

    def ticket(self) -> Ticket:
        """A place for a request.

        Raises:
            TurnedAwayError: There is too much to do already; nothing more needs to be read.
        """
        self._look()
        return Ticket(self)

    def begin(self) -> None:
        """Count a request that came in whole.

        Raises:
            TurnedAwayError: Too many are in flight.
        """
        self._look()
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
            raise busy()
        self.held += size

    def _look(self) -> None:
        if self.in_flight >= self._limits.in_flight:
            raise busy()

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
            raise busy() from None
        try:
            yield
        finally:
            self._turns.release()

    async def inflated(self, ticket: Ticket, body: bytes, encoding: str) -> bytes:
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
            except TurnedAwayError as error:
                raise error.with_traceback(None) from None  # its frames would keep what was inflated so far
        ticket.hold(len(plain) - len(body))
        return plain


class Ticket:
    """The place of one request; what it took is given back when the block ends.

    Args:
        intake: Whose.
    """

    def __init__(self, intake: Intake) -> None:
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


def busy() -> TurnedAwayError:
    """What somebody is told who comes to a full house."""
    return TurnedAwayError(429, RATE_LIMITED, "there is too much to do", hint="try again", retry_after=RETRY_AFTER)


async def handed(take: Callable[[], Future[T]]) -> T:
    """Hand something in at the desk, off the event loop, and wait until it is done.

    Whoever stops waiting does not take it back: it may be on disk already.

    Args:
        take: Hands it in.

    Raises:
        RefusedError: It is not taken.
    """
    try:
        future = await run_in_threadpool(take)
    except RefusedError as error:
        raise error.with_traceback(None) from None  # its frames would keep the body
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(tell)
    await done.wait()
    return future.result()
