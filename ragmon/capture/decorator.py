"""`@ragmon.trace`: a draw before the call, one small object when it is kept, and the call exactly as it was."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from random import getrandbits
from time import perf_counter, time
from typing import Any, Final, ParamSpec, TypeVar, cast, overload

from ragmon.capture import runtime
from ragmon.capture.calls import RANDOM_BITS, Call, Site, Unkept, active, probing
from ragmon.capture.notices import warn_once, whereabouts
from ragmon.capture.paths import Path, parse
from ragmon.errors import RagmonError, nearest, shorten

# Bound once: these run in every call.
_outer, _asked, _enter, _leave = active.get, probing.get, active.set, active.reset

P = ParamSpec("P")
R = TypeVar("R")
Extract = Mapping[str, str] | Callable[[Any], Mapping[str, Any]]

FIELDS: Final = (
    "qid",
    "question",
    "retrieved",
    "candidates",
    "claim",
    "citations",
    "index_hash",
    "build",
    "session",
    "tags",
)
"""What `extract` may find; `ragmon.record` takes the same names."""


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

    The function behaves as before: same result, same errors, same signature. A traced function called inside another
    belongs to the outer call. A dict or list it returns may be changed by the caller at once, what lies inside it only
    after the worker has looked at it (some milliseconds).

    Args:
        name: The pipeline's name; default: the configured one.
        sample: Share of its calls to keep, in [0, 1]; default: the configured rate.
        question: Where the question is: a parameter's name, a dotted path from one, or a callable that gets the
            call's arguments; default: the parameter named question, query or q, else the first string.
        extract: Where the answer is: dotted paths into the result by field of `ragmon.record`, or a callable that
            gets the result and returns such fields; default: every known shape.
        id_from: Dotted path from a document to its id; default: the configured one, else `id`, then metadata id,
            chunk_id, doc_id.

    Raises:
        RagmonError: An argument cannot be meant, or what is decorated cannot be traced.

    Example:
        >>> import ragmon
        >>> @ragmon.trace(sample=1.0)
        ... def answer(question: str) -> dict:
        ...     return {"answer": "not in context", "citations": []}
        >>> with ragmon.testing.capture_traces():
        ...     answer("Where is the harbour?")["answer"]
        'not in context'
    """
    if callable(name) or isinstance(name, (staticmethod, classmethod)):
        return _wrap(name, Site)
    if name is not None and not (isinstance(name, str) and name):
        raise RagmonError(f"name is {shorten(name)}", hint='the name of a pipeline, such as "support"')
    if sample is not None and not _is_share(sample):
        raise RagmonError(f"sample is {shorten(sample)}", hint="a share of calls between 0 and 1")
    make = functools.partial(
        Site,
        name=name,
        sample=sample,
        question=question if question is None or callable(question) else parse(question, "question"),
        extract=extract if extract is None or callable(extract) else _paths(extract),
        id_from=None if id_from is None else parse(id_from, "id_from"),
    )
    return functools.partial(_wrap, make=make)


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _paths(extract: Any) -> dict[str, Path]:
    """The paths of `extract=` by field."""
    if not isinstance(extract, Mapping):
        hint = 'paths by field, {"claim": "answer"}, or a callable on the result'
        raise RagmonError(f"extract is {shorten(extract)}", hint=hint)
    unknown = next((field for field in extract if field not in FIELDS), None)
    if unknown is not None:
        raise RagmonError(f"extract names an unknown field: {shorten(unknown)}", hint=nearest(str(unknown), FIELDS))
    return {field: parse(path, f"extract[{field!r}]") for field, path in extract.items()}


def _wrap(function: Any, make: Callable[[Callable[..., Any]], Site]) -> Any:
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_wrap(function.__func__, make))
    if not callable(function) or inspect.isclass(function):
        raise RagmonError(f"{shorten(function)} cannot be traced", hint="decorate a function or a method")
    site = make(function)
    _check_parameter(site)
    return _wrap_async(site) if _is_async(function) else _wrap_sync(site)


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether it is an async function, or an object that is called like one."""
    called = inspect.getattr_static(type(function), "__call__")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _check_parameter(site: Site) -> None:
    """Refuse a `question=` that starts at no parameter: it would never find anything."""
    signature = site.signature
    if not isinstance(site.question, tuple) or signature is None:
        return
    parameters = signature.parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if site.question[0] not in parameters and not takes_any:
        name = getattr(site.function, "__qualname__", shorten(site.function))
        wrong = f"question starts at {shorten(site.question[0])}, which is no parameter of {name}"
        raise RagmonError(wrong, hint=nearest(str(site.question[0]), parameters))


def _wrap_sync(site: Site) -> Callable[..., Any]:
    function = site.function

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        call = _begin(site, args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        token = _enter(call)
        started = perf_counter()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            _raised(call, perf_counter() - started, error)
            raise
        finally:
            _leave(token)
        _returned(call, perf_counter() - started, result)
        return result

    return traced


def _wrap_async(site: Site) -> Callable[..., Awaitable[Any]]:
    function = cast("Callable[..., Awaitable[Any]]", site.function)

    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        call = _begin(site, args, kwargs)
        if call is None:
            return await function(*args, **kwargs)
        token = _enter(call)
        started = perf_counter()
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            _raised(call, perf_counter() - started, error)
            raise
        finally:
            _leave(token)
        _returned(call, perf_counter() - started, result)
        return result

    return traced


def _begin(site: Site, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | Unkept | None:
    """Decide before the call whether it is kept; None where it is no call of its own, or nothing is monitored."""
    now = runtime.current
    if now is None:
        runtime.not_installed()
        return None
    outer = _outer()
    if outer is not None and not outer.ended:
        return None
    plan = site.plan
    if plan is None or plan.of is not now:
        plan = site.plan = now.plan(site)
    bits = getrandbits(RANDOM_BITS)
    probe = _asked()
    if bits >= plan.threshold or probe is not None:
        return Call(site, plan, args, kwargs, bits, probe)
    unkept = Unkept()
    unkept.plan, unkept.ended = plan, False
    return unkept


def _returned(call: Call | Unkept, seconds: float, result: Any) -> None:
    """Count a call that returned, by a look that costs next to nothing, and hand over what is kept of it."""
    call.ended = True
    plan = call.plan
    text = result
    if type(result) is dict:
        text = result.get("claim")
        if text is None:
            text = result.get("answer")
    if type(text) is str and len(text) < plan.longest and text.strip().casefold() in plan.refusals:
        stratum = "refusal"
    else:
        stratum = "slow" if seconds > plan.slow_above else "rest"
    if type(call) is Unkept:
        next(plan.live[stratum])
        return
    next((plan.live if call.probe is None else plan.tally.probes)[stratum])
    # The application may go on changing what it returned.
    call.result = result.copy() if type(result) in (dict, list) else result
    _hand_over(call, stratum, seconds)


def _raised(call: Call | Unkept, seconds: float, error: BaseException) -> None:
    """Count a call that raised, and hand over what is kept of it: not the error, whose frames hold much."""
    call.ended = True
    tally, code = call.plan.tally, type(error).__name__
    if isinstance(call, Call) and call.probe is not None:
        next(tally.probes["error"])
    else:
        next(tally.live["error"])
        tally.count_error(code)
    if isinstance(call, Call):
        call.error = code
        _hand_over(call, "error", seconds)


def _hand_over(call: Call, stratum: str, seconds: float) -> None:
    call.stratum, call.seconds, call.ts = stratum, seconds, time()
    try:
        call.plan.of.submit(call)
    except Exception as error:  # noqa: BLE001 - whatever it is, the application must not see it
        warn_once(f"a captured call could not be handed over: {whereabouts(error)}")
