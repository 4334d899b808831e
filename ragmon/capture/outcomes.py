"""The outcome of a call: its stratum, whether it is kept for it, and its submission to the worker."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from time import time
from typing import Any, Final

from ragmon.capture.call import Call, random
from ragmon.core import constants
from ragmon.core.errors import error_location, warn_once

CANCELLED: Final = "cancelled"
ABANDONED: Final = "abandoned"
CUT: Final = "cut"
"""Endings of calls that neither return nor raise; `cut` is a stream longer than the limit."""
_CANCELLATIONS: Final = ("CancelledError", "Cancelled")
"""The exceptions of asyncio and trio in a cancelled task."""
_SMALL: Final = 64
_ENTRY: Final = 1024
"""Estimated bytes of a value that is neither text nor a list, and of a list's entry."""


def streamed(call: Call, seconds: float) -> None:
    """Count a call whose stream ended, and submit it if it is kept."""
    items, text = call.items, None
    if items and call.traced_function.reduce is None and len(items) <= call.plan.longest_refusal:
        text = "".join(items) if all(type(item) is str for item in items) else None
    count(call, call.plan.stratum(seconds, text), seconds)


def raised(call: Call, seconds: float, error: BaseException) -> None:
    """Count a call that raised; only the exception's class name is kept, as its frames reference many objects."""
    with suppress(Exception):  # the application must see its own error, not an error of ours
        code = type(error).__name__
        if isinstance(error, GeneratorExit):  # the coroutine was closed
            count_ended(call, seconds, ABANDONED)
        elif code in _CANCELLATIONS:
            count_ended(call, seconds, CANCELLED)
        else:
            call.error = code
            if call.probe is None:
                call.plan.tally.count_error(code)
            count(call, "error", seconds)


def count_ended(call: Call, seconds: float, ending: str) -> None:
    """Count a call that neither returned nor raised."""
    call.ending = ending
    count(call, constants.REST, seconds)


def count(call: Call, stratum: str | None, seconds: float, result: Any = None) -> None:
    """Count a call that has ended, and hand it to the worker if it is kept.

    Args:
        call: The call.
        stratum: Its stratum; None where its duration decides.
        seconds: Its duration.
        result: What it returned.
    """
    plan, odds = call.plan, call.decision
    if not odds.known:
        stratum = constants.UNKNOWN_WEIGHT
    elif stratum is None:
        stratum = constants.REST if seconds <= plan.slow_above else "slow"
    if call.probe is not None:
        next(plan.tally.probes[stratum])
        plan.tally.latencies[constants.PROBE, stratum].append(seconds)
    else:
        next(plan.live[stratum])
        if odds.audit or plan.times:
            plan.timings[stratum].append(seconds)
        if odds.known and not (odds.audit or _wins_draw_of(call, stratum)):
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
        next(plan.kept[stratum] if call.probe is None else plan.tally.kept[constants.PROBE, stratum])
        if plan.runtime is not None:
            plan.runtime.submit(call)
    except Exception as error:  # noqa: BLE001 - the application must not see it
        warn_once(f"a captured call could not be handed over: {error_location(error)}")


def _wins_draw_of(call: Call, stratum: str) -> bool:
    """The draw for calls that lost the audit draw, at the rate of their stratum."""
    keep = call.plan.outcome_rates.get(stratum) if call.decision.p_parent else None
    return keep is not None and random() < keep


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
