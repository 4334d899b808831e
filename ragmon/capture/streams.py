"""Results that come in parts: followed to their end, with the call's context in place only while a part is made.

A stream that nobody ever asks for its first part never ran, and is neither counted nor recorded.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterator
from io import IOBase
from time import perf_counter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from ragmon.capture import runtime
from ragmon.capture.begin import begin
from ragmon.capture.calls import Call, Site
from ragmon.capture.flows import Flow
from ragmon.capture.iterators import FollowedAsyncIterator, FollowedIterator
from ragmon.capture.outcomes import raised, returned

PLAIN: Final = frozenset({dict, str, bytes, list, tuple, set, int, float, bool, type(None)})
"""Types that are no streams, told without a further look."""

_BODY: Final = "body_iterator"
Follower = Callable[[Call, float, Any], Any]


def follower_of(result: Any) -> Follower | None:
    """What follows a result to its end; None where it has ended already, or nobody can tell."""
    try:
        for kind, follower in _KINDS:
            if isinstance(result, kind):
                return None if isinstance(result, IOBase) else follower
        # Looked up where it is stored: asking an unknown object for an attribute may run anything.
        stored = getattr(result, "__dict__", None)
        return _follow_response if isinstance((stored or {}).get(_BODY), AsyncIterable) else None
    except Exception:  # noqa: BLE001 - the application's own classes answer these questions
        return None


def _follow(flow: Flow, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """A generator in place of another: same items, same answers to `send` and `throw`, same return value."""
    step, given = inner.send, None
    try:
        while True:
            mark = flow.enter()
            try:
                item = step(given)
            finally:
                flow.leave(mark)
            flow.add(item)
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
    begun: Callable[..., tuple[Flow, AsyncGenerator[Any, Any]]],
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """An async generator function in place of another: same items, same answers to `asend` and `athrow`."""

    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        flow, inner = begun(*args, **kwargs)
        step, given = inner.asend, None
        try:
            while True:
                mark = flow.enter()
                try:
                    item = await step(given)
                finally:
                    flow.leave(mark)
                flow.add(item)
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


async def _follow_coroutine(call: Call, started: float, inner: Coroutine[Any, Any, Any]) -> Any:
    """A coroutine a sync function returned: the call ends when it does."""
    flow = Flow(call, started)
    mark = flow.enter()
    try:
        result = await inner
    except BaseException as error:
        raised(call, perf_counter() - started, error)
        raise
    finally:
        flow.leave(mark)
    follower = None if type(result) in PLAIN else follower_of(result)
    if follower is not None:
        return follower(call, started, result)
    call.items = None
    returned(call, perf_counter() - started, result)
    return result


def _follow_response(call: Call, started: float, response: Any) -> Any:
    """A response whose body is still to be made (Starlette, FastAPI): the very response, its body followed."""
    body = aiter(getattr(response, _BODY))
    setattr(response, _BODY, FollowedAsyncIterator(call, started, body))
    return response


_KINDS: Final[tuple[tuple[type, Follower], ...]] = (
    (GeneratorType, lambda call, started, inner: _follow(Flow(call, started), inner)),
    (AsyncGeneratorType, lambda call, started, inner: _following_async(lambda: (Flow(call, started), inner))()),
    (CoroutineType, _follow_coroutine),
    (Iterator, FollowedIterator),
    (AsyncIterator, FollowedAsyncIterator),
)


def wrap_generator(site: Site) -> Callable[..., Generator[Any, Any, Any]]:
    """The traced form of a generator function; a call of it begins when its first item is asked for."""
    function = site.function

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = begin(site, _plan(site), args, kwargs)
        inner = function(*args, **kwargs)
        return (yield from inner if call is None else _follow(Flow(call, perf_counter()), inner))

    return traced


def wrap_async_generator(site: Site) -> Callable[..., AsyncGenerator[Any, Any]]:
    """The traced form of an async generator function; a call of it begins when its first item is asked for."""

    def begun(*args: Any, **kwargs: Any) -> tuple[Flow, AsyncGenerator[Any, Any]]:
        call = begin(site, _plan(site), args, kwargs)
        return Flow(call, perf_counter()), site.function(*args, **kwargs)

    return functools.wraps(site.function)(_following_async(begun))


def _plan(site: Site) -> runtime.Plan:
    plan = site.plan
    return runtime.prepare(site) if plan is None or plan.of is not runtime.current else plan
