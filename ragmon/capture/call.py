"""One traced call while it runs: its sampling decision, its data, and how code inside it finds it.

Imported on the request path: it imports only the standard library and `ragmon.core.constants`.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar, Token, copy_context
from dataclasses import dataclass, fields
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


class Planned:
    """What has a sampling plan, in a slot: every call reads it, and from a dictionary that takes 30 ns longer."""

    __slots__ = ("plan",)
    plan: Plan | None


@dataclass(eq=False)
class TracedFunction(Planned):
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

    def __post_init__(self) -> None:
        self.plan = None

    def __getstate__(self) -> tuple[dict[str, Any], dict[str, None]]:
        """What a pickle or a copy takes along: the plan belongs to this process and stays here."""
        return {field.name: getattr(self, field.name) for field in fields(self)}, {"plan": None}

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

    @cached_property
    def defaults(self) -> tuple[Any, ...]:
        """The defaults of its parameters by position; `inspect.Parameter.empty` where there is none."""
        parameters = () if self.signature is None else self.signature.parameters.values()
        return tuple(parameter.default for parameter in parameters)


class UnsampledCall:
    """Marks a running call that was not sampled, so that no traced function inside it starts a call of its own.

    Attributes:
        ended: Whether it has ended; code it started may still run in its context.
    """

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False


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
        ended: Whether it has ended; code it started may still run in its context.
    """

    __slots__ = (
        "args",
        "bits",
        "context",
        "decision",
        "detailed",
        "ended",
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
        self.detailed = True
        self.ended = False
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


@final
class ProbeContext:
    """Marks a context whose calls ask a gold question.

    Attributes:
        qid: The gold question's id.
    """

    ended = False

    def __init__(self, qid: str) -> None:
        self.qid = qid


@final
class ThreadState:
    """The state of one thread.

    Attributes:
        busy: An unsampled sync call runs in the thread, by the sampler in plain Python.
        started: When it began, by `perf_counter`, None where it is not timed.
        mark: Marks an unsampled sync call; made when code inside first looks for the running call.
        counter_file: The counter file the thread counts in; None before its first count.
        column: Its column in that file.
    """

    __slots__ = ("__weakref__", "busy", "column", "counter_file", "mark", "started")

    def __init__(self) -> None:
        self.busy = False
        self.started: float | None = None
        self.mark: UnsampledCall | None = None
        self.counter_file: object = None
        self.column = 0


class _ThreadLocal(threading.local):
    def __init__(self) -> None:
        self.lane = ThreadState()


Mark = Token["Call | UnsampledCall | ProbeContext | None"]
active: ContextVar[Call | UnsampledCall | ProbeContext | None] = ContextVar("ragmon_call", default=None)
"""The call of this context; it may have ended."""
here: Final = _ThreadLocal()
"""The state of this thread: to mark an unsampled call there costs a quarter of a context variable."""


def reset_after_fork() -> None:
    """In a forked child: the call around the fork is the parent's."""
    active.set(None)
    here.lane.busy = False


def is_thread_busy() -> bool:
    """Whether an unsampled sync call runs in this thread."""
    return here.lane.busy


def end_mark() -> None:
    """Tell code that has looked for the unsampled sync call of this thread that it has ended."""
    thread_state = here.lane
    if thread_state.mark is not None:
        thread_state.mark.ended, thread_state.mark = True, None


def end_call(mark: Mark) -> None:
    """Remove a call from its context; a generator may be closed in another context, where the call is not set."""
    try:  # noqa: SIM105 - suppress() takes longer than all of this
        active.reset(mark)
    except ValueError:
        pass


def running_call() -> Call | UnsampledCall | None:
    """The traced call that runs in this context."""
    call = active.get()
    if call is None or isinstance(call, ProbeContext) or call.ended:
        thread_state = here.lane
        if not thread_state.busy:
            return None
        if thread_state.mark is None:
            thread_state.mark = UnsampledCall()
        return thread_state.mark
    return call


def count_value(counter: count[int]) -> int:
    """The number of `next` calls on a counter that started at 0, read without calling it.

    `next` on a counter is atomic between threads; adding 1 to an attribute is not.
    """
    return int(str(counter).removeprefix("count(").removesuffix(")"))
