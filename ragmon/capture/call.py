"""The draws that decide which calls are kept, and how likely each was to be kept.

Imported on the request path: the standard library alone.

One traced call while it runs, and how the code inside it finds it.

Imported on the request path: the standard library and ragmon's words, nothing else.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ragmon.core import constants

if TYPE_CHECKING:
    from ragmon.capture.parent import Parent
    from ragmon.capture.runtime import Plan
    from ragmon.core.paths import Path

RANDOM_BITS: Final = 56
"""Bits of a trace id the audit draw is read from, so every service and replica decides alike (OTEP 235)."""
SPAN: Final = 1 << RANDOM_BITS

# Not the module's own generator: an application that seeds that one would decide what is kept, and be disturbed.
_generator: Final = Random()  # noqa: S311 - a sample, not a secret
random: Final = _generator.random
getrandbits: Final = _generator.getrandbits
os.register_at_fork(after_in_child=_generator.seed)


class SamplingDecision(NamedTuple):
    """How the audit draw of a call went, and how likely that was.

    Attributes:
        audit: The call won the draw.
        p_audit: The probability of winning it, over all calls.
        p_parent: The probability that the call was eligible at all: its parent was sampled where that is respected.
        known: Whether these probabilities are known.
    """

    audit: bool
    p_audit: float
    p_parent: float = 1.0
    known: bool = True

    def p(self, keep: float) -> float:
        """The probability that a call of a stratum is kept, by either draw.

        Args:
            keep: The rate at which its stratum is kept.

        Source: two independent draws, so 1 - (1 - audit)(1 - keep) among eligible calls.

        >>> round(SamplingDecision(audit=False, p_audit=0.05).p(0.2), 10)
        0.24
        """
        if not self.p_parent:
            return 1.0
        audit = min(1.0, self.p_audit / self.p_parent)
        return self.p_parent * (1.0 - (1.0 - audit) * (1.0 - keep))


def threshold(rate: float) -> int:
    """The smallest draw that is kept at a rate, so that a higher rate keeps a superset (OTEP 235).

    >>> threshold(1.0), threshold(0.0) == 1 << 56
    (0, True)
    """
    return SPAN - round(rate * SPAN)


def trace_id(bits: int, lowest: int, *, won: bool) -> int:
    """A trace id whose low bits say how the draw went.

    Args:
        bits: 136 random bits.
        lowest: The smallest draw that is kept.
        won: Whether the draw was won.

    >>> trace_id((1 << 136) - 1, threshold(0.25), won=False) % (1 << 56) < threshold(0.25)
    True
    """
    chance = bits & 0xFFFF_FFFF_FFFF_FFFF
    draw = lowest + (chance * (SPAN - lowest) >> 64) if won else chance * lowest >> 64
    return (bits >> 64 << RANDOM_BITS) | draw


@dataclass(eq=False)
class TracedFunction:
    """A decorated function, and what the decorator was told about it.

    Attributes:
        function: What was decorated.
        name: The pipeline's name; None takes the configured one.
        sample: Share of calls to keep; None takes the configured rate.
        question: Where the question is: a path that starts at a parameter, or a callable on the arguments.
        extract: Where answer and documents are in the result: paths by field, or a callable on the result.
        reduce: Makes a result of the items of a stream; None joins text, else takes the last item.
        id_from: Path from a document to its id.
        plan: What the installed runtime made of it, remembered from the last call.
    """

    function: Callable[..., Any]
    name: str | None = None
    sample: float | None = None
    question: Path | Callable[..., Any] | None = None
    extract: dict[str, Path] | Callable[[Any], Mapping[str, Any]] | None = None
    reduce: Callable[[list[Any]], Any] | None = None
    id_from: Path | None = None
    plan: Plan | None = field(default=None, repr=False)

    @cached_property
    def signature(self) -> inspect.Signature | None:
        """The function's parameters; None where Python cannot tell them (some functions written in C)."""
        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError):
            return None

    @cached_property
    def places(self) -> tuple[str, ...] | None:
        """The names of its parameters by place; None where a catch-all or a nameless one is among them."""
        parameters = () if self.signature is None else self.signature.parameters.values()
        named = all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        return tuple(parameter.name for parameter in parameters) if parameters and named else None

    @cached_property
    def defaults(self) -> tuple[Any, ...]:
        """The defaults of its parameters by place; `inspect.Parameter.empty` where there is none."""
        parameters = () if self.signature is None else self.signature.parameters.values()
        return tuple(parameter.default for parameter in parameters)


@final
class UnsampledCall:
    """Marks a call that lost the draw, so that nothing inside it takes its place.

    Attributes:
        ended: Whether it has ended; code it started may go on in its context.
    """

    ended = False


@final
class Call:
    """What is held of a call that is kept, or may be: references, not copies, until the worker looks at it.

    What most calls leave as it is stands on the class: making a call is half of what keeping it costs.

    Attributes:
        odds: How the audit draw went.
        parent: The application's own span it runs in.
        probe: The gold question it asks; None for user traffic.
        bits: 136 random bits its trace id is made of; 0 before somebody asks.
        fields: What was said inside; None while nothing was.
        stages: Name, start and end of the stages inside; None while there was none.
        items: What it streamed; None where it is no stream.
        spans: Spans of the application's tracer that ended inside it; None while there was none.
        open: How many of those that began inside it have not ended.
        error: The name of what it raised.
        ending: How it ended where it neither returned nor raised.
        seconds: How long it took; None where it was not timed.
        ts: When it ended, seconds since the epoch.
        weight: Estimated bytes of what it holds.
        detailed: What was said inside is known.
        ended: Whether it has ended; code it started may go on in its context.
    """

    parent: Parent | None = None
    probe: str | None = None
    bits = 0
    fields: dict[str, Any] | None = None
    stages: list[tuple[str, float, float]] | None = None
    items: list[Any] | None = None
    spans: list[Any] | None = None
    open = 0
    result: Any = None
    error: str | None = None
    ending: str | None = None
    stratum = constants.REST
    seconds: float | None = None
    ts = 0.0
    weight = 0
    detailed = True
    ended = False

    def __init__(
        self, site: TracedFunction, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], odds: SamplingDecision
    ) -> None:
        self.site = site
        self.plan = plan
        self.args = args
        self.kwargs = kwargs
        self.odds = odds

    def forget(self) -> None:
        """Let go of what it holds of the application."""
        self.args, self.kwargs = (), {}
        self.result = self.fields = self.items = self.spans = self.stages = None

    @property
    def trace_id(self) -> str:
        """The trace id, 32 hex digits: its parent's, else one of its own."""
        if self.parent is not None:
            return f"{self.parent.trace_id:032x}"
        if not self.bits:
            self.bits = getrandbits(RANDOM_BITS + 80)
        # A probe is kept whatever the draw says: half of all draws stand for "won" and tell nothing.
        lowest = self.plan.threshold if self.probe is None else 0
        return f"{trace_id(self.bits, lowest, won=self.odds.audit):032x}"


@final
class ProbeContext:
    """Marks a context whose calls ask a gold question.

    Attributes:
        qid: The question.
    """

    ended = False

    def __init__(self, qid: str) -> None:
        self.qid = qid


@final
class ThreadState:
    """What one thread holds.

    Attributes:
        busy: A call that lost the draw runs in it, and was not async.
        mark: Stands for that call, once somebody has asked for it.
        page: Where it counts; None before it has counted.
        column: Its column there.
    """

    __slots__ = ("__weakref__", "busy", "column", "mark", "page")

    def __init__(self) -> None:
        self.busy = False
        self.mark: UnsampledCall | None = None
        self.page: object = None
        self.column = 0


class _Here(threading.local):
    def __init__(self) -> None:
        self.lane = ThreadState()


Mark = Token["Call | UnsampledCall | ProbeContext | None"]
active: ContextVar[Call | UnsampledCall | ProbeContext | None] = ContextVar("ragmon_call", default=None)
"""The call this context belongs to; it may have ended."""
here: Final = _Here()
"""This thread's lane: marking a lost call there costs a quarter of what a context variable costs."""


def end_call(mark: Mark) -> None:
    """Take a call out of its context; a generator may be closed in another, where it is not."""
    try:  # noqa: SIM105 - suppress() takes longer than all of this
        active.reset(mark)
    except ValueError:
        pass


def running_call() -> Call | UnsampledCall | None:
    """The traced call that runs in this context."""
    call = active.get()
    if call is None or isinstance(call, ProbeContext) or call.ended:
        lane = here.lane
        if lane.busy and lane.mark is None:
            lane.mark = UnsampledCall()
        return lane.mark if lane.busy else None
    return call


def count_value(counter: count[int]) -> int:
    """How often `next` was called on a counter that started at 0, without calling it.

    `next` on a counter is one step even among threads, which adding 1 to an attribute is not.
    """
    return int(str(counter).removeprefix("count(").removesuffix(")"))
