"""The outcome of a call: its stratum, whether it is kept for it, and its submission to the worker."""

from __future__ import annotations

from contextlib import suppress
from time import time
from typing import Any, Final

from ragmon.capture.call import Call, TracedFunction, random
from ragmon.capture.runtime import LONGEST_REFUSAL, Plan
from ragmon.capture.sampler import answer_of, estimated_bytes
from ragmon.core import constants
from ragmon.core.log import error_location, warn_once

CANCELLED: Final = "cancelled"
ABANDONED: Final = "abandoned"
CUT: Final = "cut"
"""Endings of calls that neither return nor raise; `cut` is a stream longer than the limit."""
_CANCELLATIONS: Final = ("CancelledError", "Cancelled")
"""The exceptions of asyncio and trio in a cancelled task."""


def _stratum(plan: Plan, seconds: float, result: Any) -> str:
    if plan.blind:
        return "rest"
    text = answer_of(result)
    if type(text) is str and plan.is_refusal(text):
        return "refusal"
    return "slow" if seconds > plan.slow_above else "rest"


def count_unsampled(
    site: TracedFunction, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float, result: Any
) -> None:
    """Count an unsampled call that returned; it may be kept for its outcome."""
    stratum = _stratum(plan, seconds, result)
    next(plan.live[stratum])
    plan.timings[stratum].append(seconds)
    keep = plan.outcome_rates.get(stratum)
    if keep is not None and random() < keep:
        call = Call(site, plan, args, kwargs, plan.unsampled)
        call.detailed = False
        submit(call, stratum, seconds, result)


def count_unsampled_error(
    site: TracedFunction,
    plan: Plan,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    seconds: float | None,
    error: BaseException,
) -> None:
    """Count an unsampled call that raised; it may be kept for its outcome."""
    with suppress(Exception):  # the application must see its own error, not an error of ours
        _count_unsampled_error(site, plan, args, kwargs, seconds, error)


def _count_unsampled_error(
    site: TracedFunction,
    plan: Plan,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    seconds: float | None,
    error: BaseException,
) -> None:
    code, ending = _classify_error(error)
    stratum = constants.REST if ending else "error"
    next(plan.live[stratum])
    if seconds is not None:
        plan.timings[stratum].append(seconds)
    if ending is None:
        plan.tally.count_error(code)
    keep = plan.outcome_rates.get(stratum)
    if keep is not None and random() < keep:
        call = Call(site, plan, args, kwargs, plan.unsampled)
        call.detailed, call.error = False, code
        submit(call, stratum, seconds, None)


def returned(call: Call, seconds: float, result: Any) -> None:
    """Count a call that returned, and submit it if it is kept."""
    _finish(call, _stratum(call.plan, seconds, result), seconds, result)


def streamed(call: Call, seconds: float) -> None:
    """Count a call whose stream ended, and submit it if it is kept."""
    items, plan = call.items, call.plan
    text = None
    if items and call.traced_function.reduce is None:
        longest = plan.longest_refusal if plan.refuses is None else max(plan.longest_refusal, LONGEST_REFUSAL)
        text = _joined(items) if len(items) < longest else None
    _finish(call, _stratum(plan, seconds, text), seconds)


def _joined(items: list[Any]) -> str | None:
    """The text of a stream; None if its items are not text."""
    return "".join(items) if all(type(item) is str for item in items) else None


def raised(call: Call, seconds: float, error: BaseException) -> None:
    """Count a call that raised; only the exception's class name is kept, as its frames reference many objects."""
    with suppress(Exception):  # as above
        code, ending = _classify_error(error)
        if ending is not None:
            count_ended(call, seconds, ending)
            return
        call.error = code
        if call.probe is None:
            call.plan.tally.count_error(code)
        _finish(call, "error", seconds)


def count_ended(call: Call, seconds: float, ending: str) -> None:
    """Count a call that neither returned nor raised."""
    call.ending = ending
    _finish(call, "rest", seconds)


def _classify_error(error: BaseException) -> tuple[str, str | None]:
    """The class name of an exception, and the ending if it is a cancellation and no error."""
    code = type(error).__name__
    if isinstance(error, GeneratorExit):  # the coroutine was closed
        return code, ABANDONED
    return code, CANCELLED if code in _CANCELLATIONS else None


def _finish(call: Call, stratum: str, seconds: float, result: Any = None) -> None:
    plan, odds = call.plan, call.decision
    call.ended = True
    if not odds.known:
        stratum = constants.UNKNOWN_WEIGHT
    if call.probe is not None:
        next(plan.tally.probes[stratum])
        plan.tally.latencies[constants.PROBE, stratum].append(seconds)
    else:
        next(plan.live[stratum])
        plan.timings[stratum].append(seconds)
        if not odds.audit and odds.known:
            keep = plan.outcome_rates.get(stratum) if odds.p_parent else None
            if keep is None or random() >= keep:
                call.forget()
                return
    submit(call, stratum, seconds, result)


def submit(call: Call, stratum: str, seconds: float | None, result: Any) -> None:
    """Hand a call that is kept to the worker."""
    call.ended = True
    call.stratum = stratum
    call.seconds = seconds
    call.ts = time()
    plan = call.plan
    try:
        # The application may change the result after it has returned it.
        kind = type(result)
        call.result = result.copy() if kind is dict or kind is list else result
        weight = plan.weigh(result, call.args)
        if call.kwargs:
            weight += plan.weigh(call.kwargs, ())
        if call.fields:
            weight += plan.weigh(call.fields, ())
        if call.items:
            weight += estimated_bytes(call.items)
        call.weight = weight
        next(plan.kept[stratum] if call.probe is None else plan.tally.kept[constants.PROBE, stratum])
        if plan.runtime is not None:
            plan.runtime.submit(call)
    except Exception as error:  # noqa: BLE001 - the application must not see it
        warn_once(f"a captured call could not be handed over: {error_location(error)}")


def shallow_copy(value: Any) -> Any:
    """A copy of a list or dict, which the application may change; its members are not copied."""
    return value.copy() if type(value) in (list, dict) else value
