"""Iterators that are no generators, such as the stream objects of model clients: same items, same attributes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from ragmon.capture.calls import Call
from ragmon.capture.flows import Flow


class _Followed:
    """Stands before an iterator; what it does not have itself is the iterator's.

    Args:
        call: The call the iterator belongs to.
        started: When that began, by `perf_counter`.
        inner: The iterator.
    """

    def __init__(self, call: Call, started: float, inner: Any) -> None:
        self._inner = inner
        self._flow = Flow(call, started)

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


class FollowedIterator(_Followed, Iterator[Any]):
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
