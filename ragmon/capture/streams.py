"""What is known of a stream while it is followed: its call, what it has given so far, whether it is over.

Iterators that are no generators, such as the stream objects of model clients: same items, same attributes.

Results that come in parts: followed to their end, with the call's context in place only while a part is made.

A stream that nobody ever asks for its first part never ran, and is neither counted nor recorded.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from io import IOBase
from time import perf_counter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, Self, final

from ragmon.capture import runtime
from ragmon.capture.call import Call, Mark, TracedFunction, active, end_call
from ragmon.capture.outcomes import ABANDONED, CUT, count_ended, raised, returned, streamed
from ragmon.capture.runtime import start_call

ITEMS: Final = 65_536
SIZE: Final = 4 * 1024 * 1024
"""Items, and characters or bytes, of a stream that are held; of a longer one the answer is unknown."""


@final
class StreamTracker:
    """A stream of one call.

    Args:
        call: The call; None where the stream is part of another call, and followed by that.
        started: When the call began, by `perf_counter`.
    """

    __slots__ = ("_call", "_over", "_room", "_started")

    def __init__(self, call: Call | None, started: float) -> None:
        self._call = call
        self._started = started
        self._room = SIZE
        self._over = call is None
        if call is not None and (call.odds.audit or call.plan.keep):
            call.items = []

    def enter(self) -> Mark | None:
        """Put the call's context in place, to make one part."""
        return None if self._call is None else active.set(self._call)

    @staticmethod
    def leave(mark: Mark | None) -> None:
        """Take it away again."""
        if mark is not None:
            end_call(mark)

    def add(self, item: Any) -> None:
        """Hold a part that was made."""
        call = self._call
        if self._over or call is None or call.items is None:
            return
        self._room -= len(item) if isinstance(item, str | bytes) else 1
        if self._room < 0 or len(call.items) >= ITEMS:
            call.items, call.ending = None, CUT
        else:
            call.items.append(item)

    def finish(self) -> None:
        """It gave its last part."""
        if not self._over and self._call is not None:
            self._over = True
            streamed(self._call, perf_counter() - self._started)

    def abandon(self) -> None:
        """Nobody asks for the rest."""
        if not self._over and self._call is not None:
            self._over = True
            count_ended(self._call, perf_counter() - self._started, ABANDONED)

    def fail(self, error: BaseException) -> None:
        """Making a part raised."""
        if not self._over and self._call is not None:
            self._over = True
            raised(self._call, perf_counter() - self._started, error)


class _Followed:
    """Stands before an iterator; what it does not have itself is the iterator's.

    Args:
        call: The call the iterator belongs to.
        started: When that began, by `perf_counter`.
        inner: The iterator.
    """

    def __init__(self, call: Call, started: float, inner: Any) -> None:
        self._inner = inner
        self._flow = StreamTracker(call, started)

    def __getattr__(self, name: str) -> Any:
        if name in ("_inner", "_flow"):  # a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_inner", "_flow"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What `isinstance` sees: the iterator's own class."""
        return type(self._inner)

    def __del__(self) -> None:
        if flow := self.__dict__.get("_flow"):
            flow.abandon()


class TracedIterator(_Followed, Iterator[Any]):
    """A sync iterator, a WSGI body among them."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        flow = self._flow
        mark = flow.enter()
        try:
            item = next(self._inner)
        except StopIteration:
            flow.finish()
            raise
        except BaseException as error:
            flow.fail(error)
            raise
        finally:
            flow.leave(mark)
        flow.add(item)
        return item

    def __enter__(self) -> Any:
        entered = self._inner.__enter__()
        return self if entered is self._inner else entered

    def __exit__(self, *raised: object) -> Any:
        try:
            return self._inner.__exit__(*raised)
        finally:
            self._flow.abandon()

    def close(self) -> None:
        """Close the iterator, where it can be; the rest of it is abandoned."""
        try:
            getattr(self._inner, "close", _nothing)()
        finally:
            self._flow.abandon()


class FollowedAsyncIterator(_Followed, AsyncIterator[Any]):
    """An async iterator, the body of a streaming response among them."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        flow = self._flow
        mark = flow.enter()
        try:
            item = await anext(self._inner)
        except StopAsyncIteration:
            flow.finish()
            raise
        except BaseException as error:
            flow.fail(error)
            raise
        finally:
            flow.leave(mark)
        flow.add(item)
        return item

    async def __aenter__(self) -> Any:
        entered = await self._inner.__aenter__()
        return self if entered is self._inner else entered

    async def __aexit__(self, *raised: object) -> Any:
        try:
            return await self._inner.__aexit__(*raised)
        finally:
            self._flow.abandon()

    async def aclose(self) -> None:
        """Close the iterator, where it can be; the rest of it is abandoned."""
        try:
            close = getattr(self._inner, "aclose", None)
            if close is not None:
                await close()
        finally:
            self._flow.abandon()


def _nothing() -> None:
    """What an iterator does that cannot be closed."""


PLAIN: Final = frozenset({dict, str, bytes, list, tuple, set, int, float, bool, type(None)})
"""Types that are no streams, told without a further look."""

_BODY: Final = "body_iterator"
Follower = Callable[[Call, float, Any], Any]


def stream_wrapper(result: Any) -> Follower | None:
    """What follows a result to its end; None where it has ended already, or nobody can tell."""
    try:
        if type(result) in PLAIN:
            return None
        for kind, follower in _KINDS:
            if isinstance(result, kind):
                return None if isinstance(result, IOBase) else follower
        # Looked up where it is stored: asking an unknown object for an attribute may run anything.
        stored = getattr(result, "__dict__", None)
        return _follow_response if isinstance((stored or {}).get(_BODY), AsyncIterable) else None
    except Exception:  # noqa: BLE001 - the application's own classes answer these questions
        return None


def _follow(flow: StreamTracker, inner: Generator[Any, Any, Any], *, begun: bool = False) -> Generator[Any, Any, Any]:
    """A generator in place of another: same items, same answers to `send` and `throw`, same return value.

    Args:
        flow: What is known of it.
        inner: The other one.
        begun: Stop once before the first item, so that whoever closes or drops it from then on is noticed.
    """
    step, given, item = inner.send, None, None
    try:
        while True:
            if not begun:
                mark = flow.enter()
                try:
                    item = step(given)
                finally:
                    flow.leave(mark)
                    given = None
                flow.add(item)
            begun = False
            try:
                given = yield item
                step = inner.send
            except GeneratorExit:
                mark = flow.enter()
                try:
                    inner.close()
                finally:
                    flow.leave(mark)
                flow.abandon()
                raise
            except BaseException as error:  # noqa: BLE001 - thrown in by the consumer, for the inner one to see
                step, given = inner.throw, error
    except StopIteration as stop:
        flow.finish()
        return stop.value
    except BaseException as error:
        flow.fail(error)
        raise


def _following_async(
    begun: Callable[..., tuple[StreamTracker, AsyncGenerator[Any, Any]]], *, waits: bool = False
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """An async generator function in place of another: same items, same answers to `asend` and `athrow`.

    Args:
        begun: Gives what is known of it, and the other one.
        waits: Stop once before the first item, as above.
    """

    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        flow, inner = begun(*args, **kwargs)
        step, given, item, waiting = inner.asend, None, None, waits
        try:
            while True:
                if not waiting:
                    mark = flow.enter()
                    try:
                        item = await step(given)
                    finally:
                        flow.leave(mark)
                        given = None
                    flow.add(item)
                waiting = False
                try:
                    given = yield item
                    step = inner.asend
                except GeneratorExit:
                    mark = flow.enter()
                    try:
                        await inner.aclose()
                    finally:
                        flow.leave(mark)
                    flow.abandon()
                    raise
                except BaseException as error:  # noqa: BLE001 - as above
                    step, given = inner.athrow, error
        except StopAsyncIteration:
            flow.finish()
        except BaseException as error:
            flow.fail(error)
            raise

    return traced


def _follow_returned(call: Call, started: float, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """A generator a function returned, perhaps one that has given items already."""
    followed = _follow(StreamTracker(call, started), inner, begun=True)
    next(followed)
    return followed


def _follow_returned_async(call: Call, started: float, inner: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    """The same for an async generator; outside a loop nobody would close it, and it is left as it is."""
    looped = sys.get_asyncgen_hooks().firstiter is not None
    followed = _following_async(lambda: (StreamTracker(call, started), inner), waits=looped)()
    if looped:
        with suppress(StopIteration):
            followed.asend(None).__await__().__next__()
    return followed


async def _follow_coroutine(call: Call, started: float, inner: Coroutine[Any, Any, Any]) -> Any:
    """A coroutine a sync function returned: the call ends when it does."""
    flow = StreamTracker(call, started)
    mark = flow.enter()
    try:
        result = await inner
    except BaseException as error:
        raised(call, perf_counter() - started, error)
        raise
    finally:
        flow.leave(mark)
    follower = stream_wrapper(result)
    if follower is not None:
        return follower(call, started, result)
    call.items = None
    returned(call, perf_counter() - started, result)
    return result


def _follow_response(call: Call, started: float, response: Any) -> Any:
    """A response whose body is still to be made (Starlette, FastAPI): the very response, its body followed."""
    try:
        body = FollowedAsyncIterator(call, started, aiter(getattr(response, _BODY)))
        setattr(response, _BODY, body)
    except Exception:  # noqa: BLE001 - a response that cannot be followed is sent as it is, and counted as it stands
        returned(call, perf_counter() - started, response)
    return response


_KINDS: Final[tuple[tuple[type, Follower], ...]] = (
    (GeneratorType, _follow_returned),
    (AsyncGeneratorType, _follow_returned_async),
    (CoroutineType, _follow_coroutine),
    (Iterator, TracedIterator),
    (AsyncIterator, FollowedAsyncIterator),
)


def wrap_generator(site: TracedFunction) -> Callable[..., Generator[Any, Any, Any]]:
    """The traced form of a generator function; a call of it begins when its first item is asked for."""
    function = site.function

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = start_call(site, _plan(site), args, kwargs)
        inner = function(*args, **kwargs)
        return (yield from inner if call is None else _follow(StreamTracker(call, perf_counter()), inner))

    return traced


def wrap_async_generator(site: TracedFunction) -> Callable[..., AsyncGenerator[Any, Any]]:
    """The traced form of an async generator function; a call of it begins when its first item is asked for."""

    def begun(*args: Any, **kwargs: Any) -> tuple[StreamTracker, AsyncGenerator[Any, Any]]:
        call = start_call(site, _plan(site), args, kwargs)
        return StreamTracker(call, perf_counter()), site.function(*args, **kwargs)

    return functools.wraps(site.function)(_following_async(begun))


def _plan(site: TracedFunction) -> runtime.Plan:
    plan = site.plan
    return runtime.prepare(site) if plan is None or plan.of is not runtime.current else plan
