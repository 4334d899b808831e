"""One traced call while it runs, and how the code inside it finds it.

Imported on the request path: the standard library and ragmon's words, nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from random import getrandbits
from typing import TYPE_CHECKING, Any, Final, final

from ragmon import names

if TYPE_CHECKING:
    from ragmon.capture.paths import Path
    from ragmon.capture.runtime import Plan

RANDOM_BITS: Final = 56
"""Bits of the draw; they are the low bits of the trace id, so every replica decides alike (OTEP 235)."""
_SPAN: Final = 1 << RANDOM_BITS


@dataclass(eq=False)
class Site:
    """A decorated function, and what the decorator was told about it.

    Attributes:
        function: What was decorated.
        name: The pipeline's name; None takes the configured one.
        sample: Share of calls to keep; None takes the configured rate.
        question: Where the question is: a path that starts at a parameter, or a callable on the arguments.
        extract: Where answer and documents are in the result: paths by field, or a callable on the result.
        id_from: Path from a document to its id.
        plan: What the installed runtime made of it, remembered from the last call.
    """

    function: Callable[..., Any]
    name: str | None = None
    sample: float | None = None
    question: Path | Callable[..., Any] | None = None
    extract: dict[str, Path] | Callable[[Any], Mapping[str, Any]] | None = None
    id_from: Path | None = None
    plan: Plan | None = field(default=None, repr=False)

    @cached_property
    def signature(self) -> inspect.Signature | None:
        """The function's parameters; None where Python cannot tell them (some functions written in C)."""
        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError):
            return None


@final
class Unkept:
    """A call that lost the draw. It runs in its context all the same, so that nothing inside it takes its place.

    Attributes:
        plan: What holds for its function.
        ended: Whether it has ended; code it started may go on in its context.
    """

    __slots__ = ("ended", "plan")

    plan: Plan
    ended: bool


@final
class Call:
    """What is held of a kept call: references, not copies, until the worker looks at it."""

    __slots__ = (
        "args",
        "bits",
        "ended",
        "error",
        "fields",
        "high_bits",
        "kwargs",
        "plan",
        "probe",
        "result",
        "seconds",
        "site",
        "stages",
        "stratum",
        "ts",
    )

    def __init__(
        self, site: Site, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], bits: int, probe: str | None = None
    ) -> None:
        self.site = site
        self.plan = plan
        self.args = args
        self.kwargs = kwargs
        self.bits = bits
        self.high_bits = getrandbits(128 - RANDOM_BITS)
        self.probe = probe
        self.fields: dict[str, Any] = {}
        self.stages: list[tuple[str, float, float]] = []
        self.result: Any = None
        self.error: str | None = None
        self.stratum = names.REST
        self.seconds = 0.0
        self.ts = 0.0
        self.ended = False

    @property
    def trace_id(self) -> str:
        """The trace id, 32 hex digits."""
        return f"{(self.high_bits << RANDOM_BITS) | self.bits:032x}"


active: ContextVar[Call | Unkept | None] = ContextVar("ragmon_call", default=None)
"""The call this context belongs to; it may have ended."""

probing: ContextVar[str | None] = ContextVar("ragmon_probe", default=None)
"""The gold question this context asks; its calls are probes, kept always and outside user totals."""


def running() -> Call | Unkept | None:
    """The traced call that runs in this context."""
    call = active.get()
    return None if call is None or call.ended else call


def threshold(rate: float) -> int:
    """The smallest draw that is kept at a rate, so that a higher rate keeps a superset (OTEP 235).

    >>> threshold(1.0), threshold(0.0) == 1 << 56
    (0, True)
    """
    return _SPAN - round(rate * _SPAN)


def seen(counter: count[int]) -> int:
    """How often `next` was called on a counter that started at 0, without calling it.

    `next` on a counter is one step even among threads, which adding 1 to an attribute is not.
    """
    return int(str(counter).removeprefix("count(").removesuffix(")"))
