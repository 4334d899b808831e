"""`@ragmon.trace`: a draw before the call, one small object when it is kept, and the call exactly as it was."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from random import getrandbits
from time import perf_counter, time
from typing import Any, ParamSpec, TypeVar, cast, overload

from ragmon.capture import runtime
from ragmon.capture.calls import RANDOM_BITS, Call, Site, active, probing, threshold
from ragmon.errors import RagmonError, shorten

P = ParamSpec("P")
R = TypeVar("R")
Extract = dict[str, str] | Callable[[Any], dict[str, Any]]


@overload
def trace(name: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def trace(
    name: str | None = None,
    sample: float | None = None,
    question: str | Callable[..., Any] | None = None,
    extract: Extract | None = None,
    id_from: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def trace(
    name: Any = None,
    sample: float | None = None,
    question: str | Callable[..., Any] | None = None,
    extract: Extract | None = None,
    id_from: str | None = None,
) -> Any:
    """Trace a pipeline function; usable bare or with arguments.

    Args:
        name: The pipeline's name; default: the configured one.
        sample: Share of its calls to keep, in [0, 1]; default: the configured rate.
        question: Where the question is: a parameter's name, a dotted path from one, or a callable that gets the
            call's arguments; default: the parameter named question, query or q, else the first string.
        extract: Where the answer is: dotted paths into the result by field of `ragmon.record`, or a callable that
            gets the result; default: every known shape.
        id_from: Dotted path from a document to its id; default: `id`, then metadata id, chunk_id, doc_id.

    Raises:
        RagmonError: `sample` is no share, or what is decorated cannot be called.

    Example:
        >>> import ragmon
        >>> @ragmon.trace(sample=0.05)
        ... def answer(question: str) -> dict:
        ...     return {"answer": "not in context", "citations": []}
        >>> answer("Where is the harbour?")["answer"]
        'not in context'
    """
    if callable(name):
        return _wrap(Site(name))
    if sample is not None and not 0 <= sample <= 1:
        raise RagmonError(f"sample is {shorten(sample)}", hint="a share of calls between 0 and 1")
    return lambda function: _wrap(Site(function, name, sample, question, extract, id_from))


def _wrap(site: Site) -> Callable[..., Any]:
    if not callable(site.function):
        raise RagmonError(f"{shorten(site.function)} cannot be traced", hint="decorate a function")
    if inspect.iscoroutinefunction(site.function):
        return _wrap_async(site)
    return _wrap_sync(site)


def _wrap_sync(site: Site) -> Callable[..., Any]:
    function, limit = site.function, _own_threshold(site)

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        now = runtime.installed()
        if now is None or active.get() is not None:
            return function(*args, **kwargs)
        call = _draw(now, site, limit, args, kwargs)
        token = active.set(call) if call is not None else None
        started = perf_counter()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            _finish(now, site, call, started, error=error)
            raise
        finally:
            if token is not None:
                active.reset(token)
        _finish(now, site, call, started, result=result)
        return result

    return traced


def _wrap_async(site: Site) -> Callable[..., Awaitable[Any]]:
    function, limit = cast("Callable[..., Awaitable[Any]]", site.function), _own_threshold(site)

    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        now = runtime.installed()
        if now is None or active.get() is not None:
            return await function(*args, **kwargs)
        call = _draw(now, site, limit, args, kwargs)
        token = active.set(call) if call is not None else None
        started = perf_counter()
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            _finish(now, site, call, started, error=error)
            raise
        finally:
            if token is not None:
                active.reset(token)
        _finish(now, site, call, started, result=result)
        return result

    return traced


def _own_threshold(site: Site) -> int | None:
    return None if site.sample is None else threshold(site.sample)


def _draw(
    now: runtime.Runtime, site: Site, limit: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Call | None:
    """Decide before the call whether it is kept; probes always are."""
    bits = getrandbits(RANDOM_BITS)
    probe = probing.get()
    if probe is None and bits < (now.threshold if limit is None else limit):
        return None
    rate = now.rate if site.sample is None else site.sample
    call = Call(site, args, kwargs, bits, 1.0 if probe is not None else rate)
    call.probe = probe
    return call


def _finish(
    now: runtime.Runtime,
    site: Site,
    call: Call | None,
    started: float,
    *,
    result: Any = None,
    error: BaseException | None = None,
) -> None:
    """Count the call and hand over what is kept of it."""
    seconds = perf_counter() - started
    stratum = "error" if error is not None else now.stratum(result, seconds)
    if call is None or call.probe is None:
        now.count(site.name or now.pipeline, stratum)
    if call is None:
        return
    # The application may go on changing what it returned.
    call.result = dict(result) if type(result) is dict else list(result) if type(result) is list else result
    call.error, call.stratum, call.seconds, call.ended = error, stratum, seconds, time()
    now.submit(call)
