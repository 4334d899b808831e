"""One traced call while it runs, and how the code inside it finds it.

Imported on the request path: the standard library and ragmon's words, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from random import getrandbits
from typing import Any, Final

from ragmon import names

RANDOM_BITS: Final = 56
"""Bits of the draw; they are the low bits of the trace id, so every replica decides alike (OTEP 235)."""
_SPAN: Final = 1 << RANDOM_BITS


@dataclass(frozen=True)
class Site:
    """A decorated function, and what the decorator was told about it.

    Attributes:
        function: What was decorated.
        name: The pipeline's name; None takes the configured one.
        sample: Share of calls to keep; None takes the configured rate.
        question: Where the question is: a parameter, a dotted path from one, or a callable on the arguments.
        extract: Where answer and documents are in the result: dotted paths by field, or a callable on the result.
        id_from: Dotted path from a document to its id.
    """

    function: Callable[..., Any]
    name: str | None = None
    sample: float | None = None
    question: str | Callable[..., Any] | None = None
    extract: dict[str, str] | Callable[[Any], dict[str, Any]] | None = None
    id_from: str | None = None


class Call:
    """What is held of one call: references, not copies, until the worker looks at it."""

    __slots__ = (
        "args",
        "bits",
        "ended",
        "error",
        "fields",
        "high_bits",
        "kwargs",
        "p",
        "probe",
        "result",
        "seconds",
        "site",
        "stages",
        "stratum",
    )

    def __init__(self, site: Site, args: tuple[Any, ...], kwargs: dict[str, Any], bits: int, p: float) -> None:
        self.site = site
        self.args = args
        self.kwargs = kwargs
        self.bits = bits
        self.high_bits = getrandbits(128 - RANDOM_BITS)
        self.p = p
        self.probe: str | None = None
        self.fields: dict[str, Any] = {}
        self.stages: list[tuple[str, float, float]] = []
        self.result: Any = None
        self.error: BaseException | None = None
        self.stratum = names.REST
        self.seconds = 0.0
        self.ended = 0.0

    @property
    def trace_id(self) -> str:
        """The trace id, 32 hex digits."""
        return f"{(self.high_bits << RANDOM_BITS) | self.bits:032x}"


active: ContextVar[Call | None] = ContextVar("ragmon_call", default=None)
"""The call that runs in this context."""

probing: ContextVar[str | None] = ContextVar("ragmon_probe", default=None)
"""The gold question this context asks; its calls are probes, kept always and outside user totals."""


def threshold(rate: float) -> int:
    """The smallest draw that is kept at a rate, so that a higher rate keeps a superset (OTEP 235).

    >>> threshold(1.0), threshold(0.0) == 1 << 56
    (0, True)
    """
    return _SPAN - round(rate * _SPAN)
