"""The runtime of this process, its sampling plans and call counters, and the start of calls that need a lookup.

`ragmon.install` sets one runtime for the process; every decorated function reads it. The wrappers themselves begin a
call that lost the draw; one that won it, or may have a parent span, a probe or an outer call, starts in `start_call`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal

from ragmon.capture.call import (
    Call,
    SamplingDecision,
    TracedFunction,
    active,
    count_value,
    running_call,
    threshold,
)
from ragmon.capture.parent import Parent, active_span, probe_question, watcher
from ragmon.core import constants
from ragmon.core.constants import REST
from ragmon.core.errors import error_location, warn_once

if TYPE_CHECKING:
    from ragmon.core.text import Path

WAITING: Final = 65_536
"""Latencies of a stratum that wait to be counted; if the worker does not read them, the oldest are dropped."""
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
        live: User calls by stratum.
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

    def take_latencies(self, source: str, stratum: str) -> list[float]:
        """The seconds of calls that are in no histogram yet; they are not given again."""
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
        threshold: The smallest draw that is kept.
        p_unsampled: The probability that the audit draw does not sample a call.
        sampled: The sampling decision of a sampled call without a parent.
        unsampled: The sampling decision of an unsampled one.
        detail: What is said inside unsampled calls is kept, so they need a call object from the beginning.
        outcome_rates: Rates at which unsampled calls are kept, by stratum.
        times: All latencies are counted, and not only those of kept calls.
        slow_above: Seconds above which a call is slow; infinite where no outcome is looked for.
        longest_refusal: Characters of the longest answer that may be a refusal; -1 where no outcome is looked for.
        stale: Another runtime is installed than the one it is of.
        probe_key: As in the settings.
        requests_in_context: The application uses a web framework whose request is no argument but a context variable.
        parents: Cheap check whether a call may have a parent; None while it cannot.
        watch: Cheap check whether `start_call` must look at a call before it begins; None while it need not.
    """

    __slots__ = (
        "_refuses",
        "_tokens",
        "count_rest",
        "detail",
        "id_from",
        "kept",
        "live",
        "longest_refusal",
        "outcome_rates",
        "p_unsampled",
        "parents",
        "pipeline",
        "probe_key",
        "requests_in_context",
        "respected",
        "retrievers",
        "runtime",
        "sampled",
        "slow_above",
        "stale",
        "tally",
        "threshold",
        "time_rest",
        "times",
        "timings",
        "unsampled",
        "watch",
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
        peeks = "refusal" in self.outcome_rates or "slow" in self.outcome_rates
        self.times = terms.time_all or peeks
        self._tokens = terms.refusals
        self._refuses = terms.refuses if "refusal" in self.outcome_rates else None
        longest_token = max(map(len, terms.refusals), default=0) + _MAX_WHITESPACE
        longest = longest_token if self._refuses is None else max(longest_token, LONGEST_REFUSAL)
        self.longest_refusal = longest if peeks else -1
        self.slow_above = terms.slow_above if peeks and terms.slow_above is not None else float("inf")
        self.detail = terms.detail and bool(self.outcome_rates)
        self.refresh()
        self.respected = terms.parent == "respect"
        self.id_from = terms.id_from
        self.retrievers = terms.retrievers
        self.probe_key = terms.probe_key
        self.tally = tally
        self.live = tally.live
        self.kept = {stratum: tally.kept[constants.LIVE, stratum] for stratum in constants.CALL_STRATA}
        self.count_rest = tally.live[REST]
        self.stale = False
        self.timings = {stratum: tally.latencies[constants.LIVE, stratum] for stratum in constants.CALL_STRATA}
        self.time_rest = self.timings[REST].append

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
            if type(text) is str and len(text) <= self.longest_refusal and self._is_refusal(text):
                return "refusal"
        except Exception as error:  # noqa: BLE001 - keys of the application's classes may raise anything
            warn_once(f"an answer could not be looked at: {error_location(error)}")
        return REST if seconds <= self.slow_above else "slow"

    def _is_refusal(self, text: str) -> bool:
        return text.strip().casefold() in self._tokens or (self._refuses is not None and self._refuses(text))


def _always() -> Mapping[str, Any]:
    """Leaves every call to `start_call`."""
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
                calls = count_value(counters.live[stratum])
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


def start_call(
    site: TracedFunction, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], *, lost: bool
) -> Call | None:
    """Start a call; None if it is part of an outer call, or nothing is monitored.

    Args:
        site: The function.
        plan: Its plan.
        args: Positional arguments.
        kwargs: Keyword arguments.
        lost: The result of the audit draw, for a call without a parent.
    """
    probe = active.get()[0]
    if plan.runtime is None or not (probe is None or isinstance(probe, str)):
        return None
    parent = _parent_span() if plan.parents is not None and plan.parents() else None
    if parent is not None and plan.runtime.claim is not None:
        plan.runtime.claim(parent.span_id)
    if probe is None:
        probe = _probe_qid(plan, parent)
    if probe is not None:
        odds = _PROBE
    elif parent is not None:
        odds = parent.decision(plan.sampled.p_audit, plan.threshold, respected=plan.respected) or _PARENT_UNSAMPLED
    else:
        odds = plan.unsampled if lost else plan.sampled
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
