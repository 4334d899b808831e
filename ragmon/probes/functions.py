"""A function of the application as the target of probes: found by its name, and its answer followed to its end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Awaitable, Iterator
from threading import Lock, Thread
from typing import Any, Final

from ragmon.assembly import named
from ragmon.capture.decorator import traced_as
from ragmon.core.errors import RagmonError
from ragmon.probes.question import Sending

_HINT: Final = 'target = "myapp.rag:answer", importable from here: a function that takes a question'
_BODY: Final = "body_iterator"
_PATIENCE: Final = 1.0
"""Seconds a loop may take to end."""


class Function:
    """Calls a function with the question.

    Args:
        path: `module:function`.

    Attributes:
        function: It.
        site: What its own `@ragmon.trace` was told; None where it has none.

    Raises:
        RagmonError: There is no such function.
    """

    def __init__(self, path: str) -> None:
        self.function = _find(path)
        self.site = traced_as(self.function)

    def __call__(self, text: str, sending: Sending) -> Any:
        """Call it."""
        return self.function(text)


def _find(path: str) -> Any:
    try:
        found = named(path)
    except (Exception, SystemExit) as error:
        raise RagmonError(f"{path} cannot be probed: {type(error).__name__}: {error}", hint=_HINT) from error
    if not callable(found) or inspect.isclass(found):
        raise RagmonError(f"{path} cannot be probed: it is no function", hint=_HINT)
    return found


class Loop:
    """An event loop in a thread of its own, the same for all questions: clients of an application belong to a loop."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def run(self, awaited: Awaitable[Any], sending: Sending) -> Any:
        """What an awaitable gives; it is cancelled at the deadline.

        Raises:
            TimeoutError: It took too long.
        """
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=_turn, args=(self._loop,), name="ragmon-probe-loop", daemon=True)
                self._thread.start()

        async def in_time() -> Any:
            return await asyncio.wait_for(awaited, sending.left())

        return asyncio.run_coroutine_threadsafe(in_time(), self._loop).result()

    def close(self) -> None:
        """End the thread, unless something in it holds it up; what waits there is dropped."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(_PATIENCE)


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def follow(found: Any, loop: Loop, sending: Sending) -> None:
    """Wait for an answer to its end, as whoever asked would: a stream nobody reads was never given.

    Args:
        found: What a target returned.
        loop: Where awaitables run.
        sending: When to give up.

    Raises:
        TimeoutError: It took too long.
        Exception: Whatever making the answer raises.
    """
    while inspect.isawaitable(found):
        found = loop.run(found, sending)
    body = (getattr(found, "__dict__", None) or {}).get(_BODY)
    if isinstance(body, AsyncIterable):
        found = body
    if isinstance(found, AsyncIterable):
        loop.run(_read(found), sending)
    elif isinstance(found, Iterator):
        for _ in found:
            sending.left()


async def _read(stream: AsyncIterable[Any]) -> None:
    async for _ in stream:
        pass
