"""One traced call while it runs, the process's runtime with its sampling plans and counters, and how a call ends.

Imported on the request path: it imports only the standard library and light modules of `ragmon.core`. OpenTelemetry is
looked up in `sys.modules`, never imported: an application that does not use it does not pay for it.

A request whose baggage names a gold question is a probe only with a valid token: an HMAC over its trace, its question
and its time, under a key both ends have. Any client can write baggage: a request marked falsely would be missing in the
totals of users, and its text would be kept.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import Context, ContextVar, Token, copy_context
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import count
from random import Random
from time import time
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, final

from ragmon.core import constants
from ragmon.core.constants import REST
from ragmon.core.endings import ending_of_error
from ragmon.core.errors import error_location, warn_once
from ragmon.core.sampling import RANDOM_BITS, SPAN, bits, members

if TYPE_CHECKING:
    from ragmon.core.text import Path

# Not the generator of the `random` module: an application that seeds it would decide what is kept, and our draws would
# change its sequence.
_generator: Final = Random()  # noqa: S311 - a sample, not a secret
random: Final = _generator.random
getrandbits: Final = _generator.getrandbits
os.register_at_fork(after_in_child=_generator.seed)


class SamplingDecision(NamedTuple):
    """The result of a call's audit draw, and its probability over all calls.

    `p_parent` is the probability that the call was eligible: its parent was sampled, where that is respected.
    """

    audit: bool
    p_audit: float
    p_parent: float = 1.0
    known: bool = True

    def p(self, keep: float) -> float:
        """The probability that a call of a stratum that is kept at a rate is kept, by the audit draw or its own draw.

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
    """A trace id made of 136 random bits, whose low bits agree with the result of the draw.

    >>> trace_id((1 << 136) - 1, threshold(0.25), won=False) % (1 << 56) < threshold(0.25)
    True
    """
    uniform = bits & 0xFFFF_FFFF_FFFF_FFFF
    draw = lowest + (uniform * (SPAN - lowest) >> 64) if won else uniform * lowest >> 64
    return (bits >> 64 << RANDOM_BITS) | draw


@dataclass(eq=False)
class TracedFunction:
    """A decorated function and the arguments of its decorator (`ragmon.trace`).

    `plan` is the sampling plan under the installed runtime, cached by the last call.
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
        """The function's signature; None if Python has none."""
        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError):
            return None

    @cached_property
    def parameter_names(self) -> tuple[str, ...] | None:
        """The names of its parameters by position; None if one is a catch-all, positional-only or keyword-only."""
        parameters = () if self.signature is None else self.signature.parameters.values()
        named = all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        return tuple(parameter.name for parameter in parameters) if parameters and named else None


@final
class Call:
    """A call that is kept or may be kept: references, not copies, until the worker reads it.

    With slots: an attribute that the class has as well, as a default, takes 30 ns at every access.

    Attributes:
        bits: 136 random bits its trace id is made of; 0 until the trace id is first read.
        items: Items it streamed; None if it is no stream.
        context: The context it began in, where a web framework keeps the request there; else None.
        open: Number of spans inside the call that have not ended.
        ending: How it ended if it neither returned nor raised.
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


QID: Final = "ragmon.qid"
PROBE: Final = "ragmon.probe"
TOKEN: Final = "ragmon.token"  # noqa: S105 - the name of a token, not a token
VALID: Final = 300.0
"""Seconds for which a token is valid, in either direction: clocks differ."""
_MAX_QID_LENGTH: Final = 512


def sign(key: bytes, trace_id: int, qid: str, at: float) -> str:
    """The token that authenticates a probe of a gold question in a trace (HMAC-SHA256, RFC 2104).

    >>> sign(b"key", 1, "q", 1e9).partition("-")[0] == format(10**9, "x")
    True
    """
    import hmac  # noqa: PLC0415 - most processes never see a probe

    moment = int(at)
    message = "\0".join(("ragmon.probe", f"{trace_id:032x}", f"{moment:x}", qid))
    return f"{moment:x}-{hmac.new(key, message.encode('utf-8', 'surrogatepass'), 'sha256').hexdigest()}"


def probe_question(key: bytes, trace_id: int) -> str | None:
    """The gold question of the running request; None for a user's request, or if the token is not valid."""
    module = sys.modules.get("opentelemetry.baggage")
    baggage: Mapping[str, Any] = {} if module is None else module.get_all()
    qid, code = baggage.get(QID), baggage.get(TOKEN)
    if not (isinstance(qid, str) and isinstance(code, str)) or not 0 < len(qid) <= _MAX_QID_LENGTH:
        return None
    return qid if is_proved(key, trace_id, qid, code) else None


def is_proved(key: bytes, trace_id: int, qid: str, code: str) -> bool:
    """Whether a token is valid for this key, trace and question, and recent."""
    import hmac  # noqa: PLC0415 - as above

    try:
        moment = int(code.partition("-")[0], 16)
    except ValueError:
        return False
    fresh = abs(time() - moment) <= VALID
    return fresh and hmac.compare_digest(sign(key, trace_id, qid, moment).encode(), code.encode("utf-8", "replace"))


class Parent(NamedTuple):
    """The span a call runs in.

    `draw` is the trace's randomness, 56 bits; its sampler rejected smaller draws than `rejected` (`ot=th` in
    tracestate), if that is known.
    """

    trace_id: int
    span_id: int
    sampled: bool
    draw: int
    rejected: int | None

    def decision(self, rate: float, lowest: int, *, respected: bool) -> SamplingDecision | None:
        """The result of the audit draw; None if the parent was not sampled and that is respected."""
        audit = self.draw >= lowest
        if not respected:
            return SamplingDecision(audit, rate)
        if not self.sampled:
            return None
        if self.rejected is None:
            return SamplingDecision(audit=False, p_audit=0.0, known=False)
        p_parent = 1 - self.rejected / SPAN
        return SamplingDecision(audit, min(rate, p_parent), p_parent)


def watcher() -> Callable[[], Mapping[str, Any]] | None:
    """A function that checks cheaply if a call may have a parent; None while the application uses no OpenTelemetry."""
    module = sys.modules.get("opentelemetry.context")
    if module is None or "opentelemetry.trace" not in sys.modules:
        return None
    # The context variable behind the public function, if it is still there: read on every call, it is ten times faster.
    variable = getattr(getattr(module, "_RUNTIME_CONTEXT", None), "_current_context", None)
    # While another thread is still importing the module, its functions may be missing.
    return variable.get if isinstance(variable, ContextVar) else getattr(module, "get_current", None)


def active_span() -> Parent | None:
    """The span that is active in this context."""
    trace = sys.modules.get("opentelemetry.trace")
    span = None if trace is None else trace.get_current_span().get_span_context()
    return read_span_context(span) if span is not None and span.is_valid else None


def read_span_context(span: Any) -> Parent:
    """The parent described by a span context (`opentelemetry.trace.SpanContext`)."""
    state = members(span.trace_state.get("ot") or "")
    rejected = bits(state.get("th", ""))
    return Parent(span.trace_id, span.span_id, bool(span.trace_flags.sampled), trace_randomness(span), rejected)


def trace_randomness(span: Any) -> int:
    """The randomness of a span's trace: from its trace id, or an explicit one (`tracestate ot=rv`)."""
    state: str = span.trace_state.get("ot") if span.trace_state else ""
    explicit = bits(members(state).get("rv", ""), exact=True) if state else None
    return int(span.trace_id % SPAN) if explicit is None else explicit


WAITING: Final = 65_536
"""Latencies of a stratum that wait to be counted; if the worker does not read them, the oldest are dropped."""
CODES: Final = 32
"""Error types of a pipeline that are counted by name; all others are counted together."""
LONGEST_REFUSAL: Final = 400
"""Characters of the longest answer that is searched for a refusal in other words, because the caller waits for it.

A stratum only says what is kept: whether an answer is a refusal is decided later, whatever its length.
"""
_MAX_WHITESPACE: Final = 8


@dataclass(frozen=True)
class CaptureSettings:
    """The capture settings of one pipeline: `[sampling]` and `[capture]` of the configuration.

    Args:
        refusals: Casefolded refusal tokens, to detect a refusal by a cheap comparison.
        refuses: Whether an answer is a refusal in other words; None where those do not count.
        slow_above: Seconds above which a call counts as slow; None where nothing is slow.
        probe_key: The key that authenticates probes of an external prober; None accepts none.
        ignored: The exceptions that are no errors of the pipeline: `[errors] ignore`.
    """

    rate: float = 1.0
    keep: Mapping[str, float] = field(default_factory=dict)
    refusals: frozenset[str] = frozenset({constants.REFUSAL_TOKEN})
    refuses: Callable[[str], bool] | None = None
    slow_above: float | None = None
    time_all: bool = True
    detail: bool = False
    parent: Literal["ignore", "respect"] = "ignore"
    id_from: Path | None = None
    retrievers: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    probe_key: bytes | None = field(default=None, repr=False)


class CallCounters:
    """Counters of all calls of one pipeline, kept or not; `latencies` holds seconds that are in no histogram yet."""

    def __init__(self) -> None:
        pairs = [(source, stratum) for stratum in constants.CALL_STRATA for source in (constants.LIVE, constants.PROBE)]
        self.calls = {pair: count() for pair in pairs}
        self.kept = {pair: count() for pair in pairs}
        self.latencies: dict[tuple[str, str], deque[float]] = {pair: deque(maxlen=WAITING) for pair in pairs}
        self.errors: dict[str, count[int]] = {}

    def take_latencies(self, source: str, stratum: str) -> list[float]:
        """The latencies of a stratum, which are not given again."""
        waiting = self.latencies[source, stratum]
        return [waiting.popleft() for _ in range(len(waiting))]

    def count_error(self, code: str) -> None:
        """Count a user call that raised."""
        counter = self.errors.get(code)
        if counter is None:
            counter = self.errors.setdefault(code if len(self.errors) < CODES else constants.OTHER, count())
        next(counter)


class Plan:
    """The sampling plan of one decorated function under one runtime; computed once, read on every call.

    Attributes:
        sampled, unsampled: The sampling decisions of calls without a parent.
        detail: `record` and `stage` data of unsampled calls are kept, so these calls need a call object from the start.
        times: All latencies are counted, and not only those of kept calls.
        slow_above: Seconds above which a call is slow; infinite where no outcome is looked for.
        longest_refusal: Characters of the longest answer that may be a refusal; -1 where no outcome is looked for.
        requests_in_context: The application uses a web framework whose request is no argument but a context variable.
        parents: Cheap check whether a call may have a parent; None while it cannot.
        watch: Cheap check whether `start_call` must look at a call before it begins; None while it need not.
    """

    __slots__ = (
        "_refuses",
        "_tokens",
        "count_rest",
        "counters",
        "detail",
        "id_from",
        "ignored",
        "longest_refusal",
        "outcome_rates",
        "p_unsampled",
        "parents",
        "pipeline",
        "probe_key",
        "reasoning",
        "requests_in_context",
        "respected",
        "retrievers",
        "runtime",
        "sampled",
        "slow_above",
        "stale",
        "threshold",
        "time_rest",
        "times",
        "unsampled",
        "watch",
    )

    def __init__(
        self,
        runtime: Runtime | None,
        pipeline: str,
        rate: float,
        settings: CaptureSettings,
        counters: CallCounters,
    ) -> None:
        self.runtime = runtime
        self.pipeline = pipeline
        self.p_unsampled = 1.0 - rate
        self.threshold = threshold(rate)
        self.sampled, self.unsampled = (
            SamplingDecision(audit=True, p_audit=rate),
            SamplingDecision(audit=False, p_audit=rate),
        )
        self.outcome_rates = {stratum: p for stratum, p in settings.keep.items() if p}
        peeks = "refusal" in self.outcome_rates or "slow" in self.outcome_rates
        self.times = settings.time_all or peeks
        self._tokens = settings.refusals
        self._refuses = settings.refuses if "refusal" in self.outcome_rates else None
        longest_token = max(map(len, settings.refusals), default=0) + _MAX_WHITESPACE
        longest = longest_token if self._refuses is None else max(longest_token, LONGEST_REFUSAL)
        self.longest_refusal = longest if peeks else -1
        self.slow_above = settings.slow_above if peeks and settings.slow_above is not None else float("inf")
        self.detail = settings.detail and bool(self.outcome_rates)
        self.refresh()
        self.respected = settings.parent == "respect"
        self.id_from = settings.id_from
        self.retrievers = settings.retrievers
        self.reasoning = settings.reasoning
        self.probe_key = settings.probe_key
        self.ignored = settings.ignored
        self.counters = counters
        self.count_rest = counters.calls[constants.LIVE, REST]
        self.time_rest = counters.latencies[constants.LIVE, REST].append
        self.stale = False

    def refresh(self) -> None:
        """Detect what the application has begun to use: OpenTelemetry's spans, Flask or Quart."""
        self.parents = watcher()
        self.watch = _always if self.runtime is None or self.detail else self.parents
        self.requests_in_context = "flask" in sys.modules or "quart" in sys.modules

    def stratum(self, seconds: float, result: Any) -> str | None:
        """The stratum of a call that returned, by a look at the outside of its result; None if it may be a stream."""
        text, kind = result, type(result)
        try:
            if kind is dict:
                text = result.get("claim")
                if text is None:
                    text = result.get("answer")
                    if text is None:
                        text = result.get("answer_json")
                if type(text) is dict:
                    text = text.get("claim")
            elif kind is not str:
                return None
            if (
                type(text) is str
                and len(text) <= self.longest_refusal
                and (text.strip().casefold() in self._tokens or (self._refuses is not None and self._refuses(text)))
            ):
                return "refusal"
        except Exception as error:  # noqa: BLE001 - keys of the application's classes may raise anything
            warn_once(f"an answer could not be looked at: {error_location(error)}")
        return REST if seconds <= self.slow_above else "slow"


def _always() -> Mapping[str, Any]:
    return {"": None}


class Runtime:
    """The installed capture.

    Args:
        pipeline: Name of pipelines without a name of their own.
        awaken: Called before the first call of a function, to restart in a forked child the threads a fork stops.

    Attributes:
        claim: Called with the span a call begins in; set while spans are collected as well.
    """

    def __init__(
        self,
        submit: Callable[[Call], None],
        *,
        awaken: Callable[[], None] | None = None,
        pipeline: str = constants.DEFAULT_PIPELINE,
        settings: Callable[[str], CaptureSettings] = lambda _: CaptureSettings(),
        keep_all: bool = False,
    ) -> None:
        self.submit = submit
        self.claim: Callable[[int], None] | None = None
        self._awaken = awaken
        self._pipeline = pipeline
        self._settings = settings
        self._keep_all = keep_all
        self._plans: dict[tuple[str, float], Plan] = {}
        self.counters: dict[str, CallCounters] = {}

    def plan(self, function: TracedFunction) -> Plan:
        """The sampling plan of a decorated function; its own sample rate overrides the configured one."""
        pipeline = self._pipeline if function.name is None else function.name
        settings = self._settings(pipeline)
        rate = 1.0 if self._keep_all else settings.rate if function.sample is None else function.sample
        plan = self._plans.get((pipeline, rate))
        if plan is None:
            counters = self.counters.setdefault(pipeline, CallCounters())
            made = Plan(self, pipeline, rate, settings, counters)
            plan = self._plans.setdefault((pipeline, rate), made)  # another thread may have made one meanwhile
        try:
            if self._awaken is not None:
                self._awaken()
        except Exception as error:  # noqa: BLE001 - the process may be out of threads, and must go on
            warn_once(f"capture could not be started: {error_location(error)}")
        return plan

    def reset_after_fork(self) -> Runtime:
        """The runtime of a forked child: the same settings, no counts; the parent reports the calls that still run."""
        child = Runtime(
            self.submit, awaken=self._awaken, pipeline=self._pipeline, settings=self._settings, keep_all=self._keep_all
        )
        child.claim = self.claim
        self.submit = _leave_to_parent
        return child

    def refresh(self) -> None:
        """Detect what the application has begun to use; called periodically, off the request path."""
        for plan in list(self._plans.values()):
            plan.refresh()

    def mark(self, *, stale: bool) -> None:
        """Tell the plans whether another runtime is installed, so that no call has to compare."""
        for plan in list(self._plans.values()):
            plan.stale = stale

    def totals(self) -> dict[tuple[str, str, str], int]:
        """Counts of all calls so far by pipeline, source and stratum; rare strata only where there were calls."""
        totals = {}
        for pipeline, counters in list(self.counters.items()):
            for (source, stratum), counter in counters.calls.items():
                calls = count_value(counter)
                if calls or (source == constants.LIVE and stratum in constants.STRATA):
                    totals[pipeline, source, stratum] = calls
        return totals

    def errors(self) -> dict[tuple[str, str], int]:
        """User calls that raised, by pipeline and class name of the exception."""
        return {
            (pipeline, code): count_value(counter)
            for pipeline, counters in list(self.counters.items())
            for code, counter in list(counters.errors.items())
        }


def _leave_to_parent(_call: Call) -> None:
    # The call was running during the fork: the parent counts it.
    pass


NO_PLAN: Final = Plan(None, "", 0.0, CaptureSettings(), CallCounters())

current: Runtime | None = None
_warn_if_missing = True
_orphans = count()


def install_runtime(runtime: Runtime | None) -> Runtime | None:
    """Set the runtime of the process; returns the previous one."""
    global current  # one process has one capture, and decorated functions must find it without a lookup
    expect_none()
    previous, current = current, runtime
    # After `current` is set: `prepare` looks at it when it has made a plan, so that none stays valid by mistake.
    if previous is not None:
        previous.mark(stale=True)
    if runtime is not None:
        runtime.mark(stale=False)
    NO_PLAN.stale = runtime is not None
    return previous


def expect_none() -> None:
    """Do not warn when no runtime is installed: it was not installed on purpose."""
    global _warn_if_missing  # noqa: PLW0603 - as above
    _warn_if_missing = False


def prepare(function: TracedFunction) -> Plan:
    """Compute and cache the plan of a function under the runtime installed now."""
    if current is None:
        _not_installed()
    found = current
    plan = function.plan = NO_PLAN if found is None else found.plan(function)
    if found is not current:  # another one was installed meanwhile
        plan.stale = True
    return plan


def _not_installed() -> None:
    if _warn_if_missing:
        warn_once("ragmon.install() was not called: functions under @ragmon.trace run as they are, unmonitored")


def recorded_call() -> Call | None:
    """The running call, if it is kept, for `ragmon.record`; a use outside any call is counted and warned about once."""
    call = running_call()
    if call is None:
        if current is None:
            _not_installed()
        else:
            next(_orphans)
            warn_once("ragmon.record() was called outside a traced call; it is counted and ignored")
    return call if isinstance(call, Call) else None


def outside_calls() -> int:
    """How often `record` and the like were used outside a traced call."""
    return count_value(_orphans)


_PROBE = SamplingDecision(audit=True, p_audit=1.0)
_PARENT_UNSAMPLED = SamplingDecision(audit=False, p_audit=0.0, p_parent=0.0)


def start_call(
    function: TracedFunction, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], *, lost: bool
) -> Call | None:
    """Start a call; None if it is part of an outer call, or nothing is monitored.

    `lost` is the result of the audit draw for a call without a parent.
    """
    probe = active.get()[0]
    if plan.runtime is None or not (probe is None or isinstance(probe, str)):
        return None
    parent = None
    if plan.parents is not None and plan.parents():
        try:
            parent = active_span()
        except Exception as error:  # noqa: BLE001 - whatever the application has put there
            warn_once(f"the span around a call could not be read: {error_location(error)}")
    if parent is not None and plan.runtime.claim is not None:
        plan.runtime.claim(parent.span_id)
    if probe is None and parent is not None and plan.probe_key is not None:
        try:
            probe = probe_question(plan.probe_key, parent.trace_id)
        except Exception as error:  # noqa: BLE001 - whatever the application has put there
            warn_once(f"the baggage of a call could not be read: {error_location(error)}")
    if probe is not None:
        decision = _PROBE
    elif parent is not None:
        decision = parent.decision(plan.sampled.p_audit, plan.threshold, respected=plan.respected) or _PARENT_UNSAMPLED
    else:
        decision = plan.unsampled if lost else plan.sampled
    call = Call(function, plan, args, kwargs, decision)
    call.parent = parent
    call.probe = probe
    call.detailed = decision.audit or plan.detail
    return call


_SMALL: Final = 64
_ENTRY: Final = 1024
"""Estimated bytes of a value that is neither text nor a list, and of a list's entry."""


def streamed(call: Call, seconds: float) -> None:
    """Count a call whose stream ended, and submit it if it is kept."""
    items, text = call.items, None
    if items and call.traced_function.reduce is None and len(items) <= call.plan.longest_refusal:
        text = "".join(items) if all(type(item) is str for item in items) else None
    count_outcome(call, call.plan.stratum(seconds, text), seconds)


def raised(call: Call, seconds: float, error: BaseException) -> None:
    """Count a call that raised; only the exception's class name is kept, as its frames reference many objects."""
    with suppress(Exception):  # the application must see its own error, not an error of ours
        ending = ending_of_error(error, call.plan.ignored)
        if ending is not None:
            count_ended(call, seconds, ending)
            return
        call.error = code = type(error).__name__
        if call.probe is None:
            call.plan.counters.count_error(code)
        count_outcome(call, "error", seconds)


def count_ended(call: Call, seconds: float, ending: str) -> None:
    """Count a call that neither returned nor raised."""
    call.ending = ending
    count_outcome(call, constants.REST, seconds)


def count_outcome(call: Call, stratum: str | None, seconds: float, result: Any = None) -> None:
    """Count a call that has ended, and hand it to the worker if it is kept; its duration decides a stratum of None."""
    plan, decision = call.plan, call.decision
    if not decision.known:
        stratum = constants.UNKNOWN_WEIGHT
    elif stratum is None:
        stratum = constants.REST if seconds <= plan.slow_above else "slow"
    counters, key = plan.counters, (constants.LIVE if call.probe is None else constants.PROBE, stratum)
    next(counters.calls[key])
    if decision.audit or plan.times:  # a probe always won its draw
        counters.latencies[key].append(seconds)
    if decision.known and not decision.audit:
        keep = plan.outcome_rates.get(stratum) if decision.p_parent else None
        if keep is None or random() >= keep:
            call.forget()
            return
    call.stratum = stratum
    call.seconds = seconds
    call.ts = time()
    try:
        # The application may change the result after it has returned it.
        kind = type(result)
        call.result = result.copy() if kind is dict or kind is list else result
        parts = [*(result.values() if kind is dict else (result,)), *call.args, *call.kwargs.values()]
        if call.fields:
            parts += call.fields.values()
        if call.items:
            parts += call.items
        call.weight = estimated_bytes(parts)
        next(counters.kept[key])
        if plan.runtime is not None:
            plan.runtime.submit(call)
    except Exception as error:  # noqa: BLE001 - the application must not see it
        warn_once(f"a captured call could not be passed on: {error_location(error)}")


def shallow_copy(value: Any) -> Any:
    """A copy of a list or dict, which the application may change; its members are not copied."""
    return value.copy() if type(value) in (list, dict) else value


def estimated_bytes(parts: Iterable[Any]) -> int:
    """A rough estimate of the bytes that values keep alive, without walking through them."""
    size = 0
    for part in parts:
        kind = type(part)
        if kind is str or kind is bytes:
            size += len(part)
        elif kind is list and part:  # all entries count as the first one
            first = part[0]
            if type(first) is str:
                entry = len(first)
            else:
                entry = _ENTRY
                if type(first) is dict:
                    for value in first.values():
                        if type(value) is str:
                            entry += len(value)
            size += len(part) * entry
        else:
            size += _SMALL
    return size
