"""The object of the native core that decides about calls: drawn, marked and counted without Python.

The library is no extension module: it looks up the functions of CPython's stable ABI that it needs in the running
process, and makes the type when it is asked to.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol

from ragmon.native.library import native_core


class NativeSampler(Protocol):
    """Decides about the calls of one sampling plan, and counts those that lose the draw and are only counted.

    Its operations are operators and not methods. After a call Python looks for signals, and what their handlers raise
    there would come between a thread's mark and the `try` that takes it off again; after an operator it does not look.

    `+sampler` begins a call: True for one that is only counted, a decision for one that is or may be kept, None where
    Python must decide. `result in sampler` ends the first kind: True where it is counted, False where more is to do.
    `-sampler` ends it uncounted, and gives its seconds, or None.

    A sync call marks its thread. Async calls have an object each in place of True, which marks their context, has the
    other two operators and an attribute `ended`.

    Args:
        running: Gives the running call of the context; None where there is none. An ended one has a true `ended`.
        p_unsampled: The probability that a call is not sampled.
        sampled: The sampling decision of a sampled call.
        unsampled: The sampling decision of one that is not.
        mark: Sets the context's running call, for async calls; None for sync ones.
        times: Read the clock for each call that is only counted.
        slow_above: Seconds above which a call is not counted here.
        shortest: Characters of the shortest answer that is surely no refusal.
        refuses: Whether a shorter one is; None where results are not looked at.
    """

    def __init__(
        self,
        running: Callable[[], object],
        p_unsampled: float,
        sampled: object,
        unsampled: object,
        mark: Callable[[Any], object] | None,
        times: bool,
        slow_above: float,
        shortest: int,
        refuses: Callable[[str], bool] | None,
        /,
    ) -> None: ...

    def __pos__(self) -> Any: ...

    def __contains__(self, result: object, /) -> bool: ...

    def __neg__(self) -> float | None: ...

    def is_usual(self, result: object, /) -> bool:
        """Whether a result is surely no stream and no refusal."""
        ...

    @staticmethod
    def weigh(result: object, args: tuple[Any, ...], /) -> int:
        """Estimated bytes that a call's result and positional arguments keep alive."""
        ...

    def calls(self) -> int:
        """How many calls it has counted."""
        ...

    def take_seconds(self) -> bytes:
        """The seconds of those that were timed since this was asked last, as an array of doubles."""
        ...

    def refresh(self, watch: Callable[[], Mapping[str, Any]] | None, remembers: bool, /) -> None:
        """Say what the application has begun to use.

        Args:
            watch: Is not empty where a call may have a parent; None while it cannot.
            remembers: Unsampled calls get a call object as well.
        """

    @staticmethod
    def is_busy() -> bool:
        """Whether a call that is only counted runs in this thread."""
        ...

    @staticmethod
    def look() -> bool:
        """The same; and that call is not counted by `in`, so that Python hears of its end."""
        ...

    @staticmethod
    def leave() -> None:
        """Take the mark off this thread."""

    @staticmethod
    def seed(number: int, /) -> None:
        """Begin the draws anew, from 64 random bits."""


def sampler_type() -> type[NativeSampler] | None:
    """The type; None where the native core is not there, or this build of Python has other objects."""
    brief = native_core().brief
    return None if brief is None else _made(brief)


@cache
def _made(brief: ctypes.PyDLL) -> type[NativeSampler] | None:
    """The type, made once: all threads share one mark, so there must not be two."""
    head = 2 * ctypes.sizeof(ctypes.c_void_p)
    if (
        sys.implementation.name != "cpython"
        or object.__basicsize__ != head
        or sysconfig.get_config_var("Py_GIL_DISABLED")
    ):
        return None
    make = brief.ragmon_sampler_type
    make.restype = ctypes.py_object
    try:
        made: type[NativeSampler] = make()
    except ValueError:  # a null pointer: the symbols of Python are hidden in this process
        return None
    return made
