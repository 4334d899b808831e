"""The decorator `@ragmon.trace`: the checks of its arguments, and what it puts around a function.

A traced function draws, reads the clock, marks its context, runs the function, looks at the outside of the result, and
counts. That is all for a usual call that lost the draw, and most of what ragmon costs.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from time import perf_counter
from typing import Any, Final, Literal, ParamSpec, TypeVar, overload

from ragmon.capture import call as calls  # by its name, as a module and not its objects can be pickled
from ragmon.capture.call import UNSAMPLED, Call, Running, TracedFunction, end_mark
from ragmon.capture.outcomes import raised
from ragmon.capture.runtime import Plan, prepare, start_call
from ragmon.capture.streams import StreamTracker, finish, trace_async_generator, trace_generator
from ragmon.core.constants import DISABLED, ON, REST
from ragmon.core.errors import RagmonError, nearest, shorten
from ragmon.core.text import Path, parse

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
    "model",
    "user",
    "tags",
)
"""The fields `extract` may return; `ragmon.record` takes the same names."""
_SITE: Final = "__ragmon__"


@overload
def trace(name: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def trace(
    name: str | None = None,
    sample: float | None = None,
    question: str | Callable[..., Any] | None = None,
    extract: Extract | None = None,
    reduce: Callable[[list[Any]], Any] | None = None,
    id_from: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def trace(
    name: Any = None,
    sample: float | None = None,
    question: str | Callable[..., Any] | None = None,
    extract: Extract | None = None,
    reduce: Callable[[list[Any]], Any] | None = None,
    id_from: str | None = None,
) -> Any:
    """Trace a pipeline function; usable with or without arguments.

    The function behaves as before: same result, same errors, same signature. A traced function called inside another is
    part of the outer call. The caller may change a returned dict or list at once, but nested objects only after the
    worker has read them (some milliseconds).

    Args:
        name: The pipeline's name; default: the configured one.
        sample: Share of its calls to keep, in [0, 1]; default: the configured rate, `[sampling] rate`.
        question: Where the question is: a parameter's name, a dotted path from one, or a callable that gets the
            call's arguments; default: the parameter or field with a usual name, else the first text.
        extract: Where the answer is: dotted paths into the result by field of `ragmon.record`, or a callable that
            gets the result and returns such fields; default: every known shape.
        reduce: Makes a result of the list of items of a stream; default: texts joined, and the last other item.
        id_from: Dotted path from a document to its id; default: `[capture] id_from`, else `id`, then `id`,
            `chunk_id` and `doc_id` of its metadata.

    Raises:
        RagmonError: An argument is not valid, or the decorated object cannot be traced.

    Examples:
        >>> import ragmon
        >>> @ragmon.trace(sample=1.0)
        ... def answer(question: str) -> dict:
        ...     return {"answer": "not in context", "citations": []}
        >>> with ragmon.testing.capture_traces():
        ...     answer("Where is the harbour?")["answer"]
        'not in context'
    """
    if callable(name) or isinstance(name, (staticmethod, classmethod)):
        return _wrap(name, TracedFunction)
    if name is not None and not (isinstance(name, str) and name):
        raise RagmonError(f"name is {shorten(name)}", hint='the name of a pipeline, such as "support"')
    if sample is not None and not _is_share(sample):
        raise RagmonError(f"sample is {shorten(sample)}", hint="a share of calls between 0 and 1")
    if reduce is not None and not callable(reduce):
        raise RagmonError(f"reduce is {shorten(reduce)}", hint="a callable that makes a result of a list of items")
    make = functools.partial(
        TracedFunction,
        name=name,
        sample=sample,
        question=question if question is None or callable(question) else parse(question, "question"),
        extract=extract if extract is None or callable(extract) else _paths(extract),
        reduce=reduce,
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


def _wrap(function: Any, make: Callable[[Callable[..., Any]], TracedFunction]) -> Any:
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_wrap(function.__func__, make))
    if not callable(function) or inspect.isclass(function):
        raise RagmonError(f"{shorten(function)} cannot be traced", hint="decorate a function or a method")
    if is_disabled():
        return function
    site = make(function)
    _check_parameter(site)
    traced = wrap(site)
    setattr(traced, _SITE, site)
    return traced


def traced_as(function: Any) -> TracedFunction | None:
    """The decorator's arguments of a traced function; None if it is not traced."""
    site = getattr(function, _SITE, None)
    return site if isinstance(site, TracedFunction) else None


def is_disabled() -> bool:
    """Whether `RAGMON_DISABLED` switches ragmon off: then decorators return the functions unchanged."""
    return os.environ.get(DISABLED, "").strip().lower() in ON


def _check_parameter(site: TracedFunction) -> None:
    """Reject a `question=` that does not start at a parameter: it would never find a value."""
    signature = site.signature
    if not isinstance(site.question, tuple) or signature is None:
        return
    parameters = signature.parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if site.question[0] not in parameters and not takes_any:
        name = getattr(site.function, "__qualname__", shorten(site.function))
        message = f"question starts at {shorten(site.question[0])}, which is no parameter of {name}"
        raise RagmonError(message, hint=nearest(str(site.question[0]), parameters))


def wrap(site: TracedFunction) -> Callable[..., Any]:
    """The traced form of a function, of the same kind: sync, async, generator or async generator."""
    function, call_method = site.function, inspect.getattr_static(type(site.function), "__call__")
    for is_of_kind, wrapper in (
        (inspect.iscoroutinefunction, _wrap_async),
        (inspect.isasyncgenfunction, _wrap_async_generator),
        (inspect.isgeneratorfunction, _wrap_generator),
    ):
        if is_of_kind(function) or is_of_kind(call_method):
            return wrapper(site)
    return _wrap_sync(site)


def _wrap_sync(site: TracedFunction) -> Callable[..., Any]:
    function = site.function

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        plan = site.plan
        if plan is None or plan.stale:
            plan = prepare(site)
        lost, watch = calls.random() < plan.p_unsampled, plan.watch
        call: Call | Literal[False] | None
        if calls.active.get()[0] is None and (watch is None or not watch()):
            call = UNSAMPLED if lost else Call(site, plan, args, kwargs, plan.sampled)
        else:
            call = start_call(site, plan, args, kwargs, lost=lost)
            if call is None:
                return function(*args, **kwargs)
        running: Running = [call]
        mark, stratum, started = None, None, perf_counter()
        # After each call in here the handler of a signal may raise: then the function has raised, for whoever counts.
        try:
            mark = calls.active.set(running)
            result = function(*args, **kwargs) if kwargs else function(*args)  # the first makes two dictionaries
            seconds = perf_counter() - started
            stratum = plan.stratum(seconds, result)
        except BaseException as error:
            raised(call or _unsampled(site, plan, args, kwargs), perf_counter() - started, error)
            raise
        finally:
            running[0] = None
            # Where it stays, it says nothing. A stream sets it again, and a probe may make more calls.
            if mark is not None and (stratum is None or (call and call.probe)):
                end_mark(mark)
        if stratum is REST and not call:
            next(plan.count_rest)
            if plan.times:
                plan.time_rest(seconds)
            return result
        return finish(call or _unsampled(site, plan, args, kwargs), seconds, running, result, stratum)

    return traced


def _wrap_async(site: TracedFunction) -> Callable[..., Awaitable[Any]]:
    function = site.function

    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        plan = site.plan
        if plan is None or plan.stale:
            plan = prepare(site)
        lost, watch = calls.random() < plan.p_unsampled, plan.watch
        call: Call | Literal[False] | None
        if calls.active.get()[0] is None and (watch is None or not watch()):
            call = UNSAMPLED if lost else Call(site, plan, args, kwargs, plan.sampled)
        else:
            call = start_call(site, plan, args, kwargs, lost=lost)
            if call is None:
                return await function(*args, **kwargs)
        running: Running = [call]
        mark, stratum, started = None, None, perf_counter()
        # After each call in here the handler of a signal may raise: then the function has raised, for whoever counts.
        try:
            mark = calls.active.set(running)
            result = await (function(*args, **kwargs) if kwargs else function(*args))  # as above
            seconds = perf_counter() - started
            stratum = plan.stratum(seconds, result)
        except BaseException as error:
            raised(call or _unsampled(site, plan, args, kwargs), perf_counter() - started, error)
            raise
        finally:
            running[0] = None
            # Where it stays, it says nothing. A stream sets it again, and a probe may make more calls.
            if mark is not None and (stratum is None or (call and call.probe)):
                end_mark(mark)
        if stratum is REST and not call:
            next(plan.count_rest)
            if plan.times:
                plan.time_rest(seconds)
            return result
        return finish(call or _unsampled(site, plan, args, kwargs), seconds, running, result, stratum)

    return traced


def _unsampled(site: TracedFunction, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """A call that lost the draw, for what is not usual about its end."""
    return Call(site, plan, args, kwargs, plan.unsampled, detailed=False)


def _wrap_generator(site: TracedFunction) -> Callable[..., Generator[Any, Any, Any]]:
    """The traced form of a generator function; its call begins when the first item is requested."""
    function = site.function

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call, inner = _start(site, args, kwargs), function(*args, **kwargs)
        return (yield from inner if call is None else trace_generator(StreamTracker(call, perf_counter()), inner))

    return traced


def _wrap_async_generator(site: TracedFunction) -> Callable[..., AsyncGenerator[Any, Any]]:
    """As above, for an async generator function."""

    def start(*args: Any, **kwargs: Any) -> tuple[StreamTracker, AsyncGenerator[Any, Any]]:
        return StreamTracker(_start(site, args, kwargs), perf_counter()), site.function(*args, **kwargs)

    return functools.wraps(site.function)(trace_async_generator(start))


def _start(site: TracedFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    plan = site.plan
    if plan is None or plan.stale:
        plan = prepare(site)
    return start_call(site, plan, args, kwargs, lost=calls.random() < plan.p_unsampled)
