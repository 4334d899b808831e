"""Streams: generators, iterators, coroutines and streaming responses, traced until they end.

The call's context is set only while an item is made. A wrapped iterator that is no generator, such as a model client's
stream object, gives the same items and has the same attributes.

A stream whose first item is never requested did not run; it is neither counted nor recorded.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from io import IOBase
from time import perf_counter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, Self, final

from ragmon.capture.call import (
    Call,
    Mark,
    Running,
    active,
    count_ended,
    count_outcome,
    end_mark,
    raised,
    streamed,
)
from ragmon.capture.objects import held
from ragmon.core import constants
from ragmon.core.endings import ABANDONED, CUT

ITEMS: Final = 65_536
SIZE: Final = 4 * 1024 * 1024
"""Items, and characters or bytes, of a stream that are kept; the answer of a longer stream is unknown."""


@final
class StreamTracker:
    """Tracks the stream of one call: its items so far, and its end; no call if it is part of another call."""

    __slots__ = ("_call", "_ended", "_free_size", "_running", "_started")

    def __init__(self, call: Call | None, started: float, running: Running | None = None) -> None:
        self._call = call
        self._started = started
        self._running: Running = [None] if running is None else running
        self._running[0] = call
        self._free_size = SIZE
        self._ended = call is None
        if call is not None and (call.decision.audit or call.plan.outcome_rates):
            call.items = []

    def enter(self) -> Mark:
        """Mark the context, to make one item."""
        return active.set(active.get() if self._call is None else self._running)

    def add(self, item: Any) -> None:
        """Keep an item."""
        call = self._call
        if self._ended or call is None or call.items is None:
            return
        self._free_size -= len(item) if type(item) in (str, bytes) else 1
        if self._free_size < 0 or len(call.items) >= ITEMS:
            call.items, call.ending = None, CUT
        else:
            call.items.append(item)

    def finish(self) -> None:
        """The stream gave its last item: count the call."""
        if (call := self._end()) is not None:
            streamed(call, perf_counter() - self._started)

    def abandon(self) -> None:
        """The consumer stopped before the end: count the call as abandoned."""
        if (call := self._end()) is not None:
            count_ended(call, perf_counter() - self._started, ABANDONED)

    def fail(self, error: BaseException) -> None:
        """Making an item raised: count the call as failed."""
        if (call := self._end()) is not None:
            raised(call, perf_counter() - self._started, error)

    def _end(self) -> Call | None:
        call, self._ended, self._running[0] = None if self._ended else self._call, True, None
        return call


class _IteratorProxy:
    """A proxy of an iterator; it delegates all other attributes to the iterator."""

    def __init__(self, call: Call, started: float, running: Running, inner: Any) -> None:
        self._inner = inner
        self._flow = StreamTracker(call, started, running)

    def __getattr__(self, name: str) -> Any:
        if name in ("_inner", "_flow"):  # a copy whose attributes are not set yet
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_inner", "_flow"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._inner)

    def __del__(self) -> None:
        if tracker := self.__dict__.get("_flow"):
            tracker.abandon()


class TracedIterator(_IteratorProxy, Iterator[Any]):
    """A sync iterator, for example a WSGI body."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        tracker = self._flow
        mark = tracker.enter()
        try:
            item = next(self._inner)
        except StopIteration:
            tracker.finish()
            raise
        except BaseException as error:
            tracker.fail(error)
            raise
        finally:
            end_mark(mark)
        tracker.add(item)
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
        """Close the iterator, if it has `close`; the rest of it is abandoned."""
        try:
            close = getattr(self._inner, "close", None)
            if close is not None:
                close()
        finally:
            self._flow.abandon()


class TracedAsyncIterator(_IteratorProxy, AsyncIterator[Any]):
    """An async iterator, for example the body of a streaming response."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        tracker = self._flow
        mark = tracker.enter()
        try:
            item = await anext(self._inner)
        except StopAsyncIteration:
            tracker.finish()
            raise
        except BaseException as error:
            tracker.fail(error)
            raise
        finally:
            end_mark(mark)
        tracker.add(item)
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
        """Close the iterator, if it has `aclose`; the rest of it is abandoned."""
        try:
            close = getattr(self._inner, "aclose", None)
            if close is not None:
                await close()
        finally:
            self._flow.abandon()


PLAIN: Final = frozenset({dict, str, bytes, list, tuple, set, int, float, bool, type(None)})
"""Types that are no streams; a fast check before the slower ones."""

_BODIES: Final = ("body_iterator", "response", "_iterator")
"""Where a response has the body that it streams: Starlette; Flask; Django."""
StreamWrapper = Callable[[Call, float, Running, Any], Any]


def stream_wrapper(result: Any) -> StreamWrapper | None:
    """The wrapper for a result that is a stream; None if it is not one, or that cannot be determined."""
    try:
        if type(result) in PLAIN:
            is_body = type(result) is tuple and result and type(result[0]) in (GeneratorType, AsyncGeneratorType)
            return _trace_body_and_status if is_body else None
        for kind, follower in _KINDS:
            if issubclass(type(result), kind):  # `isinstance` would run code of a proxy
                return None if issubclass(type(result), IOBase) else follower
        return _trace_response if _streamed_body(result)[0] else None
    except Exception:  # noqa: BLE001 - these checks run code of the application's classes
        return None


def _streamed_body(response: Any) -> tuple[str, Any]:
    # The name and the iterator of the body; no name where there is none, or the server sends a file by itself.
    fields = held(response)
    name = next((name for name in _BODIES if dict.get(fields, name) is not None), "")
    body = dict.get(fields, name)
    if name in _BODIES[1:]:
        is_file = dict.get(fields, "direct_passthrough") is True or dict.get(fields, "file_to_stream") is not None
        is_response = dict.get(fields, "headers") is not None and not is_file
        return (name, body) if is_response and issubclass(type(body), Iterator | AsyncIterator) else ("", None)
    return (name, body) if issubclass(type(body), AsyncIterable) else ("", None)


def trace_generator(
    tracker: StreamTracker, inner: Generator[Any, Any, Any], *, pause_first: bool = False
) -> Generator[Any, Any, Any]:
    """A generator around another: same items, same replies to `send` and `throw`, same return value.

    With `pause_first` it pauses once before the first item, so that a close or deletion from then on is noticed.
    """
    step, sent, item = inner.send, None, None
    try:
        while True:
            if not pause_first:
                mark = tracker.enter()
                try:
                    item = step(sent)
                finally:
                    end_mark(mark)
                    sent = None
                tracker.add(item)
            pause_first = False
            try:
                sent = yield item
                step = inner.send
            except GeneratorExit:
                mark = tracker.enter()
                try:
                    inner.close()
                finally:
                    end_mark(mark)
                tracker.abandon()
                raise
            except BaseException as error:  # noqa: BLE001 - thrown in by the consumer, passed to the inner generator
                step, sent = inner.throw, error
    except StopIteration as stop:
        tracker.finish()
        return stop.value
    except BaseException as error:
        tracker.fail(error)
        raise


def trace_async_generator(
    start: Callable[..., tuple[StreamTracker, AsyncGenerator[Any, Any]]], *, pause_first: bool = False
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """An async generator function around another: same items, same replies to `asend` and `athrow`.

    `start` returns the tracker and the original generator; `pause_first` is as in `trace_generator`.
    """

    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        tracker, inner = start(*args, **kwargs)
        step, sent, item, pause = inner.asend, None, None, pause_first
        try:
            while True:
                if not pause:
                    mark = tracker.enter()
                    try:
                        item = await step(sent)
                    finally:
                        end_mark(mark)
                        sent = None
                    tracker.add(item)
                pause = False
                try:
                    sent = yield item
                    step = inner.asend
                except GeneratorExit:
                    mark = tracker.enter()
                    try:
                        await inner.aclose()
                    finally:
                        end_mark(mark)
                    tracker.abandon()
                    raise
                except BaseException as error:  # noqa: BLE001 - as above
                    step, sent = inner.athrow, error
        except StopAsyncIteration:
            tracker.finish()
        except BaseException as error:
            tracker.fail(error)
            raise

    return traced


def _trace_returned_generator(
    call: Call, started: float, running: Running, inner: Generator[Any, Any, Any]
) -> Generator[Any, Any, Any]:
    # It may have given items already.
    traced = trace_generator(StreamTracker(call, started, running), inner, pause_first=True)
    next(traced)
    return traced


def _trace_returned_async_generator(
    call: Call, started: float, running: Running, inner: AsyncGenerator[Any, Any]
) -> AsyncGenerator[Any, Any]:
    # Without an event loop, no hook would close the generator: then it is not paused first.
    has_loop = sys.get_asyncgen_hooks().firstiter is not None
    tracker = StreamTracker(call, started, running)
    traced = trace_async_generator(lambda: (tracker, inner), pause_first=has_loop)()
    if has_loop:
        with suppress(StopIteration):
            traced.asend(None).__await__().__next__()
    return traced


async def _trace_coroutine(call: Call, started: float, running: Running, inner: Coroutine[Any, Any, Any]) -> Any:
    # The call ends with the coroutine.
    running[0] = call
    mark = active.set(running)
    try:
        result = await inner
    except BaseException as error:
        raised(call, perf_counter() - started, error)
        raise
    finally:
        running[0] = None
        end_mark(mark)
    seconds = perf_counter() - started
    stratum = call.plan.stratum(seconds, result)
    if stratum is None:
        return finish(call, seconds, running, result)
    count_outcome(call, stratum, seconds, result)
    return result


def finish(call: Call, seconds: float, running: Running, result: Any) -> Any:
    """Count a call whose result may be a stream; returns the result, or a traced stream, with which the call ends."""
    wrap_stream = stream_wrapper(result)
    if wrap_stream is not None:
        return wrap_stream(call, perf_counter() - seconds, running, result)
    count_outcome(call, None, seconds, result)
    return result


def _trace_response(call: Call, started: float, running: Running, response: Any) -> Any:
    # The response object stays the same.
    try:
        name, body = _streamed_body(response)
        if name == _BODIES[0]:
            traced: Any = TracedAsyncIterator(call, started, running, aiter(body))
        else:
            wrap = next(wrap for kind, wrap in _KINDS if issubclass(type(body), kind))
            traced = wrap(call, started, running, body)
        setattr(response, name, traced)
    except Exception:  # noqa: BLE001 - a response that cannot be traced is sent unchanged, and counted as returned
        count_outcome(call, constants.REST, perf_counter() - started, response)
    return response


def _trace_body_and_status(call: Call, started: float, running: Running, result: tuple[Any, ...]) -> tuple[Any, ...]:
    # Flask takes a generator with its status and headers.
    wrap = _trace_returned_generator if type(result[0]) is GeneratorType else _trace_returned_async_generator
    return (wrap(call, started, running, result[0]), *result[1:])


_KINDS: Final[tuple[tuple[type, StreamWrapper], ...]] = (
    (GeneratorType, _trace_returned_generator),
    (AsyncGeneratorType, _trace_returned_async_generator),
    (CoroutineType, _trace_coroutine),
    (Iterator, TracedIterator),
    (AsyncIterator, TracedAsyncIterator),
)
