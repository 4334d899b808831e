"""One traced call while it runs: its sampling decision, its data, and how code inside it finds it.

Imported on the request path: it imports only the standard library and `ragmon.core.constants`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar, Token, copy_context
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, final

from ragmon.core import constants

if TYPE_CHECKING:
    from ragmon.capture.parent import Parent
    from ragmon.capture.runtime import Plan
    from ragmon.core.text import Path

RANDOM_BITS: Final = 56
"""Low bits of a trace id that the audit draw is read from, so all services and replicas decide alike (OTEP 235)."""
SPAN: Final = 1 << RANDOM_BITS

# Not the generator of the `random` module: an application that seeds it would decide what is kept, and our draws would
# change its sequence.
_generator: Final = Random()  # noqa: S311 - a sample, not a secret
random: Final = _generator.random
getrandbits: Final = _generator.getrandbits
os.register_at_fork(after_in_child=_generator.seed)


class SamplingDecision(NamedTuple):
    """The result of a call's audit draw, and its probability.

    Attributes:
        audit: The call was sampled by the audit draw.
        p_audit: The probability of that, over all calls.
        p_parent: The probability that the call was eligible: its parent was sampled, where that is respected.
        known: Whether these probabilities are known.
    """

    audit: bool
    p_audit: float
    p_parent: float = 1.0
    known: bool = True

    def p(self, keep: float) -> float:
        """The probability that a call of a stratum is kept, by the audit draw or the draw of its stratum.

        Args:
            keep: The rate at which the stratum is kept.

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
    """A trace id whose low bits agree with the result of the draw.

    Args:
        bits: 136 random bits.
        lowest: The smallest draw that is kept.
        won: Whether the draw sampled the call.

    >>> trace_id((1 << 136) - 1, threshold(0.25), won=False) % (1 << 56) < threshold(0.25)
    True
    """
    uniform = bits & 0xFFFF_FFFF_FFFF_FFFF
    draw = lowest + (uniform * (SPAN - lowest) >> 64) if won else uniform * lowest >> 64
    return (bits >> 64 << RANDOM_BITS) | draw


@dataclass(eq=False)
class TracedFunction:
    """A decorated function and the arguments of its decorator.

    Attributes:
        function: The original function.
        name: The pipeline's name; None takes the configured one.
        sample: Share of calls to keep; None takes the configured rate.
        question: Where the question is: a path that starts at a parameter, or a callable on the arguments.
        extract: Where answer and documents are in the result: paths by field, or a callable on the result.
        reduce: Makes a result of the items of a stream; None joins texts, and takes the rest from the last other item.
        id_from: Path from a document to its id.
        plan: The sampling plan under the installed runtime, cached by the last call.
    """

    function: Callable[..., Any]
    name: str | None = None
    sample: float | None = None
    question: Path | Callable[..., Any] | None = None
    extract: dict[str, Path] | Callable[[Any], Mapping[str, Any]] | None = None
    reduce: Callable[[list[Any]], Any] | None = None
    id_from: Path | None = None
    plan: Plan | None = field(init=False)  # no default: a class that has the attribute as well makes it slower

    def __post_init__(self) -> None:
        self.plan = None

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle or a copy takes along: the plan belongs to this process and stays here."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"plan": None}

    @cached_property
    def signature(self) -> inspect.Signature | None:
        """The function's signature; None if Python has none (some functions written in C)."""
        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError):
            return None

    @cached_property
    def places(self) -> tuple[str, ...] | None:
        """The names of its parameters by position; None if one is a catch-all, positional-only or keyword-only."""
        parameters = () if self.signature is None else self.signature.parameters.values()
        named = all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        return tuple(parameter.name for parameter in parameters) if parameters and named else None


@final
class Call:
    """A call that is kept or may be kept: references, not copies, until the worker reads it.

    With slots: an attribute that the class has as well, as a default, takes 30 ns at every access.

    Attributes:
        decision: The result of the audit draw.
        parent: The application's own span that the call runs in.
        probe: The gold question it asks; None for user traffic.
        bits: 136 random bits its trace id is made of; 0 until the trace id is first read.
        fields: Fields from `ragmon.record`; None if there are none.
        stages: Name, start and end of the stages inside; None if there are none.
        items: Items it streamed; None if it is no stream.
        spans: Ended spans of the application's tracer inside the call; None if there are none.
        context: The context it began in, where a web framework keeps the request there; else None.
        open: Number of spans inside the call that have not ended.
        error: The class name of the exception it raised.
        ending: How it ended if it neither returned nor raised.
        seconds: Its duration; None if it was not timed.
        ts: When it ended, seconds since the epoch.
        weight: Estimated bytes it keeps alive.
        detailed: Whether fields and stages from inside the call were kept.
    """

    __slots__ = (
        "args",
        "bits",
        "context",
        "decision",
        "detailed",
        "ending",
        "error",
        "fields",
        "items",
        "kwargs",
        "open",
        "parent",
        "plan",
        "probe",
        "result",
        "seconds",
        "spans",
        "stages",
        "stratum",
        "traced_function",
        "ts",
        "weight",
    )

    def __init__(
        self,
        traced_function: TracedFunction,
        plan: Plan,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        decision: SamplingDecision,
        *,
        detailed: bool = True,
    ) -> None:
        self.traced_function = traced_function
        self.plan = plan
        self.args = args
        self.kwargs = kwargs
        self.decision = decision
        self.parent: Parent | None = None
        self.probe: str | None = None
        self.bits = 0
        self.fields: dict[str, Any] | None = None
        self.stages: list[tuple[str, float, float]] | None = None
        self.items: list[Any] | None = None
        self.spans: list[Any] | None = None
        self.open = 0
        self.result: Any = None
        self.error: str | None = None
        self.ending: str | None = None
        self.stratum = constants.REST
        self.seconds: float | None = None
        self.ts = 0.0
        self.weight = 0
        self.detailed = detailed
        self.context: Context | None = copy_context() if plan.requests_in_context else None

    def forget(self) -> None:
        """Drop all references to the application's objects."""
        self.args, self.kwargs = (), {}
        self.result = self.fields = self.items = self.spans = self.stages = self.context = None

    @property
    def trace_id(self) -> str:
        """The trace id, 32 hex digits: its parent's, else a new one."""
        if self.parent is not None:
            return f"{self.parent.trace_id:032x}"
        if not self.bits:
            self.bits = getrandbits(RANDOM_BITS + 80)
        # A probe is always kept, so its trace id need not agree with a draw.
        lowest = self.plan.threshold if self.probe is None else 0
        return f"{trace_id(self.bits, lowest, won=self.decision.audit):032x}"


UNSAMPLED: Final = False
"""Stands for a running call that was not sampled: it is counted, and nothing is kept of it."""
Running = list[Call | str | Literal[False] | None]
"""The mark of what runs in a context, a list of one: a call, `UNSAMPLED`, or the gold question that a probe asks.

Its end puts None in: tasks and threads that it started and that go on see the same list, and are requests of their own.
"""
active: ContextVar[Running | tuple[None]] = ContextVar("ragmon_call", default=(None,))
Mark = Token[Running | tuple[None]]


def reset_after_fork() -> None:
    """In a forked child: the call around the fork is the parent's."""
    active.set((None,))


def end_mark(mark: Mark) -> None:
    """Take a mark out of its context; a generator may be closed in another context, where it is not set."""
    try:  # noqa: SIM105 - suppress() takes longer than all of this
        active.reset(mark)
    except ValueError:
        pass


def running_call() -> Call | Literal[False] | None:
    """The traced call that runs in this context."""
    running = active.get()[0]
    return None if isinstance(running, str) else running


def count_value(counter: count[int]) -> int:
    """The number of `next` calls on a counter that started at 0, read without calling it.

    `next` on a counter is atomic between threads; adding 1 to an attribute is not.
    """
    return int(str(counter).removeprefix("count(").removesuffix(")"))
