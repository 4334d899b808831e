"""The runtime of this process, its sampling plans and call counters, and the start of calls that need a lookup.

`ragmon.install` sets one runtime for the process; every decorated function reads it. The plan's sampler decides about
usual calls; one with a parent span, a probe or an outer call starts in `start_call`.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal

from ragmon.capture.call import (
    Call,
    ProbeContext,
    SamplingDecision,
    TracedFunction,
    active,
    count_value,
    is_thread_busy,
    random,
    running_call,
    threshold,
)
from ragmon.capture.parent import Parent, active_span, probe_question, watcher
from ragmon.capture.sampler import WAITING, Sampler, weigh
from ragmon.core import constants
from ragmon.core.log import error_location, warn_once

if TYPE_CHECKING:
    from ragmon.core.paths import Path

CODES: Final = 32
"""Error types of a pipeline that are counted by name; all others are counted together."""
LONGEST_REFUSAL: Final = 400
"""Characters of the longest answer that is searched for a refusal in other words, because the caller waits for it.

A stratum only says what is kept: whether an answer is a refusal is decided later, whatever its length.
"""
_MAX_WHITESPACE: Final = 8
"""Whitespace that may surround a refusal token, in characters."""


@dataclass(frozen=True)
class CaptureSettings:
    """The capture settings of one pipeline.

    Args:
        rate: Share of all calls that are kept.
        keep: Rates at which calls are kept for their outcome, by stratum.
        refusals: Casefolded refusal tokens, to detect a refusal by a cheap comparison.
        refuses: Whether an answer is a refusal in other words; None where those do not count.
        slow_above: Seconds above which a call counts as slow; None where nothing is slow.
        time_all: Time all calls, not only kept ones.
        detail: Keep `record` and `stage` data of a call that may be kept for its outcome.
        parent: Whether calls are kept when the application's tracer did not sample their parent (`ignore`) or not
            (`respect`).
        id_from: Path from a document to its id.
        retrievers: Names of tools, tasks, functions and spans that retrieve, in spans of other instrumentations.
        probe_key: The key that authenticates probes of an external prober; None accepts none.
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
    probe_key: bytes | None = field(default=None, repr=False)


class CallCounters:
    """Counters of all calls of one pipeline, kept or not.

    Attributes:
        live: User calls by stratum, but for those that a sampler counts.
        samplers: Count the usual calls: those that nobody keeps, and whose result nobody has to look at.
        probes: Calls that asked a gold question, by stratum.
        kept: Kept calls, by source and stratum.
        latencies: Seconds of calls that are not in a histogram yet, by source and stratum.
        errors: User calls that raised, by the class name of the exception.
    """

    def __init__(self) -> None:
        self.live = {stratum: count() for stratum in constants.CALL_STRATA}
        self.probes = {stratum: count() for stratum in constants.CALL_STRATA}
        pairs = [(source, stratum) for source in (constants.LIVE, constants.PROBE) for stratum in constants.CALL_STRATA]
        self.kept = {pair: count() for pair in pairs}
        self.latencies: dict[tuple[str, str], deque[float]] = {pair: deque(maxlen=WAITING) for pair in pairs}
        self.errors: dict[str, count[int]] = {}
        self.samplers: list[Sampler] = []

    def user_calls(self, stratum: str) -> int:
        """User calls of a stratum."""
        usual = sum(sampler.calls() for sampler in list(self.samplers)) if stratum == constants.REST else 0
        return count_value(self.live[stratum]) + usual

    def take_latencies(self, source: str, stratum: str) -> list[float]:
        """The seconds of calls that are in no histogram yet; they are not given again."""
        waiting = self.latencies[source, stratum]
        seconds = array("d", [waiting.popleft() for _ in range(len(waiting))])
        if (source, stratum) == (constants.LIVE, constants.REST):
            for sampler in list(self.samplers):
                seconds.frombytes(sampler.take_seconds())
        return seconds.tolist()

    def count_error(self, code: str) -> None:
        """Count a user call that raised."""
        counter = self.errors.get(code)
        if counter is None:
            counter = self.errors.setdefault(code if len(self.errors) < CODES else constants.OTHER, count())
        next(counter)


class Plan:
    """The sampling plan of one decorated function under one runtime; computed once, read on every call.

    Attributes:
        threshold: The smallest draw that is kept.
        p_unsampled: The probability that the audit draw does not sample a call.
        sampled: The sampling decision of a sampled call without a parent.
        unsampled: The sampling decision of an unsampled one.
        peeks: Look at results and durations to detect refusals and slow calls.
        times: Read the clock for every call.
        refuses: As in the settings; None where no refusals are kept, so that nobody pays for it.
        is_refusal: Whether an answer is one, by a token or by its words.
        blind: Results are not looked at: all calls that return count as one stratum.
        sampler: Decides about sync calls.
        async_sampler: Decides about async calls, without a mark in the thread.
        stale: Another runtime is installed than the one it is of.
        probe_key: As in the settings.
        remembers: Unsampled calls get a call object too: to keep their details, or because greenlets share a thread.
        requests_in_context: The application uses a web framework whose request is no argument but a context variable.
        watch: Cheap check whether a call may have a parent; None while it cannot.
        weigh: Estimates the bytes that a result and positional arguments keep alive.
    """

    __slots__ = (
        "async_sampler",
        "blind",
        "count_rest",
        "detail",
        "id_from",
        "is_refusal",
        "kept",
        "live",
        "longest_refusal",
        "outcome_rates",
        "p_unsampled",
        "peeks",
        "pipeline",
        "probe_key",
        "refuses",
        "remembers",
        "requests_in_context",
        "respected",
        "retrievers",
        "runtime",
        "sampled",
        "sampler",
        "slow_above",
        "stale",
        "tally",
        "threshold",
        "time_rest",
        "times",
        "timings",
        "unsampled",
        "watch",
        "weigh",
    )

    def __init__(
        self,
        runtime: Runtime | None,
        pipeline: str,
        rate: float,
        terms: CaptureSettings,
        tally: CallCounters,
    ) -> None:
        self.runtime = runtime
        self.pipeline = pipeline
        self.p_unsampled = 1.0 - rate
        self.threshold = threshold(rate)
        self.sampled, self.unsampled = (
            SamplingDecision(audit=True, p_audit=rate),
            SamplingDecision(audit=False, p_audit=rate),
        )
        self.outcome_rates = {stratum: p for stratum, p in terms.keep.items() if p}
        self.peeks = "refusal" in self.outcome_rates or "slow" in self.outcome_rates
        self.times = terms.time_all or self.peeks
        self.blind = not self.peeks
        self.refuses = terms.refuses if "refusal" in self.outcome_rates else None
        self.longest_refusal = max(map(len, terms.refusals), default=0) + _MAX_WHITESPACE
        self.slow_above = float("inf") if terms.slow_above is None else terms.slow_above
        self.detail = terms.detail and bool(self.outcome_rates)
        self.is_refusal = _refusal_check(terms.refusals, self.longest_refusal, self.refuses)
        self.weigh = weigh
        self.sampler, self.async_sampler = self._samplers()
        tally.samplers += (self.sampler, self.async_sampler)
        self.refresh()
        self.respected = terms.parent == "respect"
        self.id_from = terms.id_from
        self.retrievers = terms.retrievers
        self.probe_key = terms.probe_key
        self.tally = tally
        self.live = tally.live
        self.kept = {stratum: tally.kept[constants.LIVE, stratum] for stratum in constants.CALL_STRATA}
        self.count_rest = tally.live[constants.REST]
        self.stale = False
        self.timings = {stratum: tally.latencies[constants.LIVE, stratum] for stratum in constants.CALL_STRATA}
        self.time_rest = self.timings[constants.REST].append

    def _samplers(self) -> tuple[Sampler, ...]:
        """The samplers of sync and async calls."""
        draw = active.get, self.p_unsampled, self.sampled, self.unsampled
        shortest = self.longest_refusal if self.refuses is None else max(self.longest_refusal, LONGEST_REFUSAL + 1)
        looks = (float("inf"), 0, None) if self.blind else (self.slow_above, shortest, self.is_refusal)
        return Sampler(*draw, None, self.times, *looks), Sampler(*draw, active.set, self.times, *looks)

    def refresh(self) -> None:
        """Detect what the application has begun to use: OpenTelemetry's spans, greenlets, Flask or Quart."""
        self.watch: Callable[[], Mapping[str, Any]] | None = watcher()
        self.remembers = self.detail or "greenlet" in sys.modules
        self.requests_in_context = "flask" in sys.modules or "quart" in sys.modules
        watch = _undecided if self.runtime is None else self.watch
        self.sampler.refresh(watch, self.remembers)
        self.async_sampler.refresh(watch, self.detail)


def _refusal_check(
    tokens: frozenset[str], longest: int, refuses: Callable[[str], bool] | None
) -> Callable[[str], bool]:
    """A function that tells whether an answer is a refusal: a token, which is shorter than this, or in other words."""

    def is_refusal(text: str) -> bool:
        if len(text) < longest and text.strip().casefold() in tokens:
            return True
        return refuses is not None and len(text) <= LONGEST_REFUSAL and refuses(text)

    return is_refusal


def _undecided() -> Mapping[str, Any]:
    """Leaves every call of a plan without a runtime to `start_call`."""
    return {"": None}


class Runtime:
    """The installed capture.

    Attributes:
        submit: The callable given as `submit`.
        claim: Called with the span a call begins in; set while spans are collected as well.

    Args:
        submit: Hands a finished call to the worker; never blocks, never raises.
        pipeline: Name of pipelines without a name of their own.
        terms: Returns the settings of a pipeline, by its name.
        keep_all: Keep every call, ignoring the rates.
        awaken: Called before the first call of a function, to restart in a forked child the threads a fork stops.
    """

    def __init__(
        self,
        submit: Callable[[Call], None],
        *,
        awaken: Callable[[], None] | None = None,
        pipeline: str = constants.DEFAULT_PIPELINE,
        terms: Callable[[str], CaptureSettings] = lambda _: CaptureSettings(),
        keep_all: bool = False,
    ) -> None:
        self.submit = submit
        self.claim: Callable[[int], None] | None = None
        self._awaken = awaken
        self._pipeline = pipeline
        self._terms = terms
        self._keep_all = keep_all
        self._plans: dict[tuple[str, float], Plan] = {}
        self.tallies: dict[str, CallCounters] = {}

    def plan(self, site: TracedFunction) -> Plan:
        """The sampling plan of a decorated function; its own sample rate overrides the configured one."""
        pipeline = self._pipeline if site.name is None else site.name
        terms = self._terms(pipeline)
        rate = 1.0 if self._keep_all else terms.rate if site.sample is None else site.sample
        plan = self._plans.get((pipeline, rate))
        if plan is None:
            tally = self.tallies.setdefault(pipeline, CallCounters())
            made = Plan(self, pipeline, rate, terms, tally)
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
            self.submit, awaken=self._awaken, pipeline=self._pipeline, terms=self._terms, keep_all=self._keep_all
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
        for pipeline, counters in list(self.tallies.items()):
            for stratum in constants.CALL_STRATA:
                calls = counters.user_calls(stratum)
                if calls or stratum in constants.STRATA:
                    totals[pipeline, constants.LIVE, stratum] = calls
                if probes := count_value(counters.probes[stratum]):
                    totals[pipeline, constants.PROBE, stratum] = probes
        return totals

    def errors(self) -> dict[tuple[str, str], int]:
        """User calls that raised, by pipeline and class name of the exception."""
        return {
            (pipeline, code): count_value(counter)
            for pipeline, counters in list(self.tallies.items())
            for code, counter in list(counters.errors.items())
        }


def _leave_to_parent(_call: Call) -> None:
    """Ignore a call that was running during the fork: the parent counts it."""


NO_PLAN: Final = Plan(None, "", 0.0, CaptureSettings(), CallCounters())
"""The plan of every function while no runtime is installed."""

current: Runtime | None = None
"""The runtime of this process; None if `ragmon.install` was not called."""
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


def prepare(site: TracedFunction) -> Plan:
    """Compute and cache the plan of a function under the runtime installed now."""
    if current is None:
        _not_installed()
    found = current
    plan = site.plan = NO_PLAN if found is None else found.plan(site)
    if found is not current:  # another one was installed meanwhile
        plan.stale = True
    return plan


def _not_installed() -> None:
    """Warn once that nothing is monitored, unless that is intended."""
    if _warn_if_missing:
        warn_once("ragmon.install() was not called: functions under @ragmon.trace run as they are, unmonitored")


def current_call(what: str) -> Call | None:
    """The running call, if it is kept; a use outside any traced call is counted and warned about once."""
    call = running_call()
    if call is None:
        if current is None:
            _not_installed()
        else:
            next(_orphans)
            warn_once(f"ragmon.{what}() was called outside a traced call; it is counted and ignored")
    return call if isinstance(call, Call) else None


def outside_calls() -> int:
    """How often `record` and the like were used outside a traced call."""
    return count_value(_orphans)


_PROBE = SamplingDecision(audit=True, p_audit=1.0)
_PARENT_UNSAMPLED = SamplingDecision(audit=False, p_audit=0.0, p_parent=0.0)
"""The sampling decision of a call whose parent was not sampled, where that is respected."""


def start_call(site: TracedFunction, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """Start a call; None if it is part of an outer call, or nothing is monitored."""
    outer_call = active.get()
    if (
        plan.runtime is None
        or is_thread_busy()
        or not (outer_call is None or isinstance(outer_call, ProbeContext) or outer_call.ended)
    ):
        return None
    parent = _parent_span() if plan.watch is not None and plan.watch() else None
    if parent is not None and plan.runtime.claim is not None:
        plan.runtime.claim(parent.span_id)
    probe = (
        outer_call.qid if isinstance(outer_call, ProbeContext) and not outer_call.ended else _probe_qid(plan, parent)
    )
    if probe is not None:
        odds = _PROBE
    elif parent is not None:
        odds = parent.decision(plan.sampled.p_audit, plan.threshold, respected=plan.respected) or _PARENT_UNSAMPLED
    else:
        odds = plan.unsampled if random() < plan.p_unsampled else plan.sampled
    call = Call(site, plan, args, kwargs, odds)
    call.parent = parent
    call.probe = probe
    call.detailed = odds.audit or plan.detail
    return call


def _probe_qid(plan: Plan, parent: Parent | None) -> str | None:
    """The gold question an external prober asks; None unless its token is valid."""
    if parent is None or plan.probe_key is None:
        return None
    try:
        return probe_question(plan.probe_key, parent.trace_id)
    except Exception as error:  # noqa: BLE001 - whatever the application has put there
        warn_once(f"the baggage of a call could not be read: {error_location(error)}")
        return None


def _parent_span() -> Parent | None:
    """The span the call runs in; None if there is none, or it cannot be read."""
    try:
        return active_span()
    except Exception as error:  # noqa: BLE001 - whatever the application has put there
        warn_once(f"the span around a call could not be read: {error_location(error)}")
        return None
