"""What `@ragmon.trace` puts around a function: a draw before the call, and the call exactly as it was.

The first half of `traced` runs in every call, kept or not, and is most of what ragmon ever costs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, cast

from ragmon.capture import runtime
from ragmon.capture.begin import begin
from ragmon.capture.calls import Call, Lost, Site, active, here, leave
from ragmon.capture.draws import random
from ragmon.capture.exact import exact
from ragmon.capture.outcomes import is_refusal, lost, lost_error, raised, returned
from ragmon.capture.runtime import Plan
from ragmon.capture.streams import follower_of, wrap_async_generator, wrap_generator
from ragmon.core.log import warn_once, whereabouts

# Bound once: these run in every call.
_outer, _enter, _leave = active.get, active.set, active.reset


def wrap(site: Site) -> Callable[..., Any]:
    """The traced form of a function, of its own kind: sync, async, generator or async generator."""
    function, called = site.function, inspect.getattr_static(type(site.function), "__call__")
    for is_kind, wrapper in (
        (inspect.iscoroutinefunction, lambda site: exact(_wrap_async, site)),
        (inspect.isasyncgenfunction, wrap_async_generator),
        (inspect.isgeneratorfunction, wrap_generator),
    ):
        if is_kind(function) or is_kind(called):
            return wrapper(site)
    return exact(_wrap_sync, site)


def _wrap_sync(site: Site) -> Callable[..., Any]:
    function = site.function

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        plan = site.plan
        if plan is None or plan.of is not runtime.current:
            plan = runtime.prepare(site)
        lane, outer = here.lane, _outer()
        if plan.on and not lane.busy and (outer is None or outer.ended) and (plan.watch is None or not plan.watch()):
            if random() >= plan.p_lost:
                call = Call(site, plan, args, kwargs, plan.won)
            elif plan.remembers:
                call = Call(site, plan, args, kwargs, plan.lost)
            else:
                started = perf_counter() if plan.times else None
                try:
                    lane.busy = True
                    result = function(*args, **kwargs)
                except BaseException as error:
                    lost_error(site, plan, args, kwargs, started, error)
                    raise
                finally:
                    lane.busy = False
                    if lane.mark is not None:
                        lane.mark.ended, lane.mark = True, None
                if started is None and (type(result) is dict or type(result) is str):
                    next(plan.rest)
                    return result
                return _lost(site, plan, args, kwargs, started, result)
        else:
            begun = begin(site, plan, args, kwargs)
            if begun is None:
                return function(*args, **kwargs)
            call = begun
        return _run(call, function, args, kwargs)

    return traced


def _run(call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call whose context must be known inside, and give what its caller gets."""
    token, started = None, perf_counter()
    try:
        token = _enter(call)
        result = function(*args, **kwargs)
    except BaseException as error:
        raised(call, perf_counter() - started, error)
        raise
    finally:
        if token is not None:
            _leave(token)
    return _returned(call, started, result)


def _wrap_async(site: Site) -> Callable[..., Awaitable[Any]]:
    function = cast("Callable[..., Awaitable[Any]]", site.function)

    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        plan = site.plan
        if plan is None or plan.of is not runtime.current:
            plan = runtime.prepare(site)
        outer = _outer()
        if (
            plan.on
            and not here.lane.busy
            and (outer is None or outer.ended)
            and (plan.watch is None or not plan.watch())
        ):
            if random() >= plan.p_lost:
                call = Call(site, plan, args, kwargs, plan.won)
            elif plan.detail:
                call = Call(site, plan, args, kwargs, plan.lost)
            else:
                mark, started = Lost(), perf_counter() if plan.times else None
                try:
                    _enter(mark)  # it stays there when it has ended: it says nothing then
                    result = await function(*args, **kwargs)
                except BaseException as error:
                    lost_error(site, plan, args, kwargs, started, error)
                    raise
                finally:
                    mark.ended = True
                if started is None and (type(result) is dict or type(result) is str):
                    next(plan.rest)
                    return result
                return _lost(site, plan, args, kwargs, started, result)
        else:
            begun = begin(site, plan, args, kwargs)
            if begun is None:
                return await function(*args, **kwargs)
            call = begun
        return await _run_async(call, function, args, kwargs)

    return traced


async def _run_async(
    call: Call, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The same for an async function."""
    token, started = None, perf_counter()
    try:
        token = _enter(call)
        result = await function(*args, **kwargs)
    except BaseException as error:
        raised(call, perf_counter() - started, error)
        raise
    finally:
        if token is not None:
            leave(token)
    return _returned(call, started, result)


def _lost(
    site: Site, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], started: float | None, result: Any
) -> Any:
    """Count a call that lost the draw and returned, and give what its caller gets; it may be kept for how it ended."""
    if type(result) is not dict and (follower := follower_of(result)) is not None:
        call = Call(site, plan, args, kwargs, plan.lost)
        call.detailed = False
        return follower(call, perf_counter() if started is None else started, result)
    try:
        seconds = None if started is None else perf_counter() - started
        if seconds is None:
            next(plan.rest)
        elif plan.blind or (seconds <= plan.slow_above and not is_refusal(plan, result)):
            next(plan.rest)
            plan.time_rest(seconds)
        else:
            lost(site, plan, args, kwargs, seconds, result)
    except Exception as error:  # noqa: BLE001 - a result may raise whatever it is asked
        warn_once(f"a call could not be counted: {whereabouts(error)}")
    return result


def _returned(call: Call, started: float, result: Any) -> Any:
    """Count a call that returned, and give what its caller gets: the result, or the stream it is, followed."""
    if type(result) is not dict and (follower := follower_of(result)) is not None:
        return follower(call, started, result)
    try:
        seconds, plan = perf_counter() - started, call.plan
        if call.odds is plan.lost and (plan.blind or (seconds <= plan.slow_above and not is_refusal(plan, result))):
            call.ended = True
            next(plan.rest)
            plan.time_rest(seconds)
        else:
            returned(call, seconds, result)
    except Exception as error:  # noqa: BLE001 - as above
        warn_once(f"a call could not be counted: {whereabouts(error)}")
    return result
