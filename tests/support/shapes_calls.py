"""Shapes of functions and of streams, times the ways in which they end; see `shapes_plain`."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import ragmon
from tests.support.shapes_plain import DICTS, Q, Shape

SHAPES: dict[str, Shape] = {}
PARTS = ["the harbour", " opens", " at six"]


class BrokenError(LookupError):
    pass


class Feed:
    """An iterator that is no generator, with an attribute of its own, as clients of models return them."""

    model = "m1"

    def __init__(self, question: str) -> None:
        self._left = iter(PARTS)
        self._question = question

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> str:
        if self._question == "raise":
            raise BrokenError(self._question)
        return next(self._left)

    def close(self) -> None:
        """As files have it."""


class AsyncFeed:
    def __init__(self, question: str) -> None:
        self._feed = Feed(question)

    def __aiter__(self) -> AsyncFeed:
        return self

    async def __anext__(self) -> str:
        try:
            return next(self._feed)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """As clients of models have it."""


def plain(question: str) -> str:
    ragmon.record(retrieved=["d1"])
    if question == "raise":
        raise BrokenError(question)
    return "".join(PARTS)


async def coroutine(question: str) -> str:
    await asyncio.sleep(0)
    if question == "wait":
        await asyncio.Event().wait()
    return plain(question)


def generator(question: str) -> Iterator[str]:
    for part in PARTS:
        ragmon.record(retrieved=["d1"])
        yield part
        if question == "raise":
            raise BrokenError(question)


async def async_generator(question: str) -> AsyncIterator[str]:
    for part in PARTS:
        await asyncio.sleep(0)
        ragmon.record(retrieved=["d1"])
        yield part
        if question == "raise":
            raise BrokenError(question)
        if question == "wait":
            await asyncio.Event().wait()


class Service:
    def method(self, question: str) -> str:
        return plain(question)

    async def async_method(self, question: str) -> str:
        return await coroutine(question)

    @classmethod
    def of_class(cls, question: str) -> str:
        return plain(question)

    @staticmethod
    def static(question: str) -> str:
        return plain(question)

    def __call__(self, question: str) -> str:
        return plain(question)


class AsyncService:
    async def __call__(self, question: str) -> str:
        return await coroutine(question)


def returns(make: Callable[[str], Any]) -> Callable[[str], Any]:
    def answer(question: str) -> Any:
        return make(question)

    return answer


def returns_async(make: Callable[[str], Any]) -> Callable[[str], Any]:
    async def answer(question: str) -> Any:
        await asyncio.sleep(0)
        return make(question)

    return answer


FUNCTIONS: dict[str, Callable[[str], Any]] = {
    "function": plain,
    "method": Service().method,
    "class method": Service.of_class,
    "static method": Service.static,
    "partial": functools.partial(plain),
    "callable object": Service(),
    "async function": coroutine,
    "async method": Service().async_method,
    "async callable object": AsyncService(),
    "function that returns a coroutine": returns(coroutine),
    "generator": generator,
    "partial of a generator": functools.partial(generator),
    "async generator": async_generator,
    "returned generator": returns(generator),
    "returned iterator": returns(Feed),
    "returned async generator": returns(async_generator),
    "returned async iterator": returns(AsyncFeed),
    "coroutine that returns a generator": returns_async(generator),
    "coroutine that returns an async generator": returns_async(async_generator),
    "coroutine that returns an iterator": returns_async(Feed),
}


async def consume(result: Any, take: int | None = None) -> list[Any]:
    """All parts of a result, or as many as are asked for; what is left is closed as its consumer would."""
    result = await result if inspect.isawaitable(result) else result
    if isinstance(result, AsyncIterator):
        return await _consume_async(result, take)
    if not isinstance(result, Iterator):
        return [result]
    parts: list[Any] = []
    while take is None or len(parts) < take:
        try:
            parts.append(next(result))
        except StopIteration:
            return parts
    result.close()  # type: ignore[attr-defined]
    return parts


async def _consume_async(result: Any, take: int | None) -> list[Any]:
    parts: list[Any] = []
    while take is None or len(parts) < take:
        try:
            parts.append(await anext(result))
        except StopAsyncIteration:
            return parts
    await result.aclose()
    return parts


def ending(function: Callable[[str], Any], question: str, take: int | None = None) -> Any:
    """A shape: what is decorated is consumed; a stream only as far as is asked for."""

    def run(trace: Callable[..., Any]) -> object:
        return asyncio.run(consume(trace(function)(question), take))

    return run


def cancelled(function: Callable[[str], Any]) -> Any:
    async def main(trace: Callable[..., Any]) -> None:
        task = asyncio.create_task(consume(trace(function)("wait")))
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()
        await task

    def run(trace: Callable[..., Any]) -> object:
        return asyncio.run(main(trace))

    return run


for name, function in FUNCTIONS.items():
    SHAPES[f"{name} that returns"] = ending(function, Q)
    SHAPES[f"{name} that raises"] = ending(function, "raise")
    if "gener" in name or "iter" in name:
        SHAPES[f"{name} that is abandoned"] = ending(function, Q, take=2)
        SHAPES[f"{name} that nobody reads"] = ending(function, Q, take=0)
    if ("async" in name and "iter" not in name) or name == "function that returns a coroutine":
        SHAPES[f"{name} that is cancelled"] = cancelled(function)


def raising(error: BaseException) -> Any:
    def run(trace: Callable[..., Any]) -> object:
        @trace
        def answer(question: str) -> object:
            raise error

        return answer(Q)

    return run


for error in (
    *(
        KeyError("a secret"),
        ValueError(),
        TimeoutError("slow"),
        ConnectionResetError(),
        MemoryError(),
        OSError(5, "io"),
    ),
    *(SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), ExceptionGroup("two", [KeyError(), OSError()])),
    *(UnicodeDecodeError("utf-8", b"x", 0, 1, "why"), GeneratorExit(), StopAsyncIteration(), RecursionError()),
):
    SHAPES[f"raises {type(error).__name__}"] = raising(error)

# --- items of streams -------------------------------------------------------------------------------------------------

WORDS = ["The", " harbour", " opens", " at", " nine."]
WHOLE = "".join(WORDS)
ITEMS: dict[str, list[Any]] = {
    "texts": WORDS,
    "bytes": [b"an ", b"answer"],
    "bytes cut within a letter": [b"caf\xc3", b"\xa9"],
    "nothing": [],
    "nulls": [None, None],
    "empty texts": ["", ""],
    "numbers": [1, 2],
    "growing answers": [{"answer": "".join(WORDS[: n + 1])} for n in range(5)],
    "texts and sources": ["y", "es", {"sources": DICTS}],
    "sources and texts": [{"sources": DICTS}, "y", "es"],
    "a thought and a result": ["thinking", {"answer": "yes", "sources": DICTS}],
    "the last of two": [{"answer": "y"}, {"answer": "yes", "documents": DICTS}],
    "sources, texts, usage": [{"sources": DICTS}, "y", "es", {"usage": 3}],
    "typed tokens": [{"type": "token", "content": word} for word in WORDS],
    "dicts of text": [{"text": word} for word in WORDS],
    "tokens and done": [*({"token": word} for word in WORDS), {"done": True}],
    "events": [{"event": "token", "data": word} for word in WORDS],
    "server-sent events": [f"data: {word}\n\n" for word in WORDS],
    "server-sent bytes": [f"data: {word}\n\n".encode() for word in WORDS],
    "server-sent JSON": [f"data: {json.dumps({'token': word})}\n\n" for word in WORDS],
    "lines of JSON": [json.dumps({"text": word}) + "\n" for word in WORDS],
    "heartbeats": [*WORDS[:2], ": ping\n\n", *WORDS[2:]],
    "data stream protocol": [f"0:{json.dumps(word)}\n" for word in WORDS],
    "pairs": [("token", word) for word in WORDS],
    "deltas": [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in WORDS],
    "deltas of a tool": [{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]}, *WORDS],
    "deltas as objects": [SimpleNamespace(delta=word, text=WHOLE) for word in WORDS],
    "response events": [
        {"type": "response.reasoning_summary_text.delta", "delta": "Doc 2 is wrong. "},
        *({"type": "response.output_text.delta", "delta": word} for word in WORDS),
    ],
    "updates of a graph": [{"search": {"docs": [1]}}, {"generate": {"answer": WHOLE}}],
    "values of a graph": [{"question": Q}, {"question": Q, "answer": WHOLE}],
    "chain that streams": [{"question": Q}, {"context": DICTS}, *({"answer": word} for word in WORDS)],
    "citations in the text": ["yes", " [1]", {"documents": DICTS}],
    "a long one": ["word "] * 5000,
}


def streaming(items: list[Any], **told: Any) -> Any:
    def run(trace: Callable[..., Any]) -> object:
        @trace(**told)
        def answer(question: str) -> Iterator[Any]:
            yield from items

        return list(answer(Q))

    return run


def streaming_async(items: list[Any]) -> Any:
    def run(trace: Callable[..., Any]) -> object:
        @trace
        async def answer(question: str) -> AsyncIterator[Any]:
            for item in items:
                yield item

        return asyncio.run(consume(answer(Q)))

    return run


for name, items in ITEMS.items():
    SHAPES[f"stream of {name}"] = streaming(items)
    SHAPES[f"async stream of {name}"] = streaming_async(items)
SHAPES["reduced stream"] = streaming(["4", "2"], reduce=lambda parts: {"answer": "-".join(parts), "documents": DICTS})
SHAPES["reduced stream, raises"] = streaming(["4"], reduce=lambda parts: parts[7])
SHAPES["reduced stream, a text"] = streaming(["4", "2"], reduce="".join)
SHAPES["extracted stream"] = streaming(["4", "2"], extract=lambda parts: {"claim": str(parts)})
