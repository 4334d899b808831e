"""The wrappers that `@ragmon.trace` puts around functions: the audit draw, then the call itself, unchanged.

The first half of `traced` runs in every call, kept or not, and is most of ragmon's cost.

A wrapper takes exactly the parameters of its function: `*args, **kwargs` is a third of a wrapper's cost per call, as a
tuple and a dictionary are built and unpacked again. So the code of the general wrapper is compiled once more with the
function's own parameters in their place. The general wrapper remains the one that is read and type-checked; it is used
as it is for functions with catch-all parameters or with parameters named like its variables.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Awaitable, Callable
from copy import deepcopy
from functools import cache
from inspect import Parameter
from time import perf_counter
from types import CodeType
from typing import Any, Final, cast

from ragmon.capture.call import Call, SamplingDecision, TracedFunction, active, end_call, end_mark
from ragmon.capture.outcomes import count_unsampled, count_unsampled_error, raised, returned, submit
from ragmon.capture.runtime import Plan, prepare, start_call
from ragmon.capture.streams import stream_wrapper, wrap_async_generator, wrap_generator
from ragmon.core.log import error_location, warn_once

Factory = Callable[[TracedFunction], Callable[..., Any]]
Shape = tuple[tuple[str, int, bool], ...]
"""For each parameter its name, its kind and whether it has a default."""
_WRAPPER: Final = "traced"


def specialise(factory: Factory, site: TracedFunction) -> Callable[..., Any]:
    """The wrapper that a factory makes, with the function's own parameters where possible.

    Args:
        factory: Makes the general wrapper, an inner function `traced(*args, **kwargs)`.
        site: The decorated function.
    """
    parameters = [] if site.signature is None else list(site.signature.parameters.values())
    shape = tuple(
        (parameter.name, int(parameter.kind), parameter.default is not Parameter.empty) for parameter in parameters
    )
    code = _compiled(factory, shape)
    if code is None:
        return factory(site)
    namespace = {**getattr(factory, "__globals__", {})}
    namespace |= {f"_default_{place}": parameter.default for place, parameter in enumerate(parameters)}
    exec(code, namespace)  # noqa: S102 - our own code, with other parameters
    wrapper: Callable[..., Any] = namespace[factory.__name__](site)
    return wrapper


@cache
def _compiled(factory: Factory, shape: Shape) -> CodeType | None:
    """The compiled code of a factory whose wrapper has these parameters; None if it cannot have them."""
    source = _source(factory)
    if (
        source is None
        or not shape
        or any(kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for _, kind, _ in shape)
    ):
        return None
    tree = deepcopy(source)
    if {name for name, _, _ in shape} & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}:
        return None
    wrapper = next(node for node in ast.walk(tree) if getattr(node, "name", None) == _WRAPPER)
    wrapper.args = _parameters(shape)  # type: ignore[attr-defined]
    _InsertParameters(shape).visit(tree)
    return compile(ast.fix_missing_locations(tree), inspect.getfile(factory), "exec")


@cache
def _source(factory: Factory) -> ast.Module | None:
    """The syntax tree of a factory; None if its source is not available."""
    try:
        lines, first = inspect.getsourcelines(factory)
    except (OSError, TypeError):
        return None
    tree = ast.parse(textwrap.dedent("".join(lines)))
    return ast.increment_lineno(tree, first - 1)


def _parameters(shape: Shape) -> ast.arguments:
    """The parameters of a wrapper; their defaults are global names, looked up when the wrapper is defined."""
    by_kind: dict[int, list[ast.arg]] = {}
    for name, kind, _ in shape:
        by_kind.setdefault(kind, []).append(ast.arg(name))
    defaults = {
        position: ast.Name(f"_default_{position}", ast.Load())
        for position, (_, _, has_default) in enumerate(shape)
        if has_default
    }
    keyword_only = [position for position, (_, kind, _) in enumerate(shape) if kind == Parameter.KEYWORD_ONLY]
    return ast.arguments(
        posonlyargs=by_kind.get(Parameter.POSITIONAL_ONLY, []),
        args=by_kind.get(Parameter.POSITIONAL_OR_KEYWORD, []),
        kwonlyargs=by_kind.get(Parameter.KEYWORD_ONLY, []),
        kw_defaults=[defaults.get(position) for position in keyword_only],
        defaults=[default for position, default in defaults.items() if position not in keyword_only],
    )


class _InsertParameters(ast.NodeTransformer):
    """Replaces `args` and `kwargs` by the parameters."""

    def __init__(self, shape: Shape) -> None:
        self._positional = [name for name, kind, _ in shape if kind != Parameter.KEYWORD_ONLY]
        self._keyword_only = [name for name, kind, _ in shape if kind == Parameter.KEYWORD_ONLY]

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """`function(*args, **kwargs)` becomes a call with the parameters themselves."""
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            node.args = [_load(name) for name in self._positional]
            node.keywords = [ast.keyword(name, _load(name)) for name in self._keyword_only]
            return node
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Elsewhere `args` becomes a tuple and `kwargs` a dictionary of them."""
        if node.id == "args":
            return ast.Tuple([_load(name) for name in self._positional], ast.Load())
        if node.id == "kwargs":
            return ast.Dict(
                [ast.Constant(name) for name in self._keyword_only], [_load(name) for name in self._keyword_only]
            )
        return node


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


# Bound once: these run in every call.
_get_active, _set_active, _reset_active = active.get, active.set, active.reset


def wrap(site: TracedFunction) -> Callable[..., Any]:
    """The traced form of a function, of the same kind: sync, async, generator or async generator."""
    function, call_method = site.function, inspect.getattr_static(type(site.function), "__call__")
    for is_of_kind, wrapper in (
        (inspect.iscoroutinefunction, lambda site: specialise(_wrap_async, site)),
        (inspect.isasyncgenfunction, wrap_async_generator),
        (inspect.isgeneratorfunction, wrap_generator),
    ):
        if is_of_kind(function) or is_of_kind(call_method):
            return wrapper(site)
    return specialise(_wrap_sync, site)


def _wrap_sync(site: TracedFunction) -> Callable[..., Any]:
    function = site.function

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        plan = site.plan
        if plan is None or plan.stale:
            plan = prepare(site)
        sampler = plan.sampler
        fate: Any = +sampler
        if fate is True:
            try:
                result = function(*args, **kwargs)
                if result in sampler:
                    return result
                seconds = -sampler
            except BaseException as error:
                seconds = -sampler
                end_mark()
                count_unsampled_error(site, plan, args, kwargs, seconds, error)
                raise
            end_mark()
            return _finish_unsampled(site, plan, args, kwargs, seconds, result)
        call = start_call(site, plan, args, kwargs) if fate is None else Call(site, plan, args, kwargs, fate)
        return function(*args, **kwargs) if call is None else _run(call, function, args, kwargs)

    return traced


def _run(call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call with its context set, and return its result, or a traced stream."""
    token, started = None, perf_counter()
    try:
        token = _set_active(call)
        result = function(*args, **kwargs)
    except BaseException as error:
        raised(call, perf_counter() - started, error)
        raise
    finally:
        if token is not None:
            _reset_active(token)
    return _finish_call(call, started, result)


def _wrap_async(site: TracedFunction) -> Callable[..., Awaitable[Any]]:
    function = cast("Callable[..., Awaitable[Any]]", site.function)

    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        plan = site.plan
        if plan is None or plan.stale:
            plan = prepare(site)
        fate: Any = +plan.async_sampler
        if fate is None:
            call = start_call(site, plan, args, kwargs)
        elif fate.__class__ is SamplingDecision:  # no call here, after which Python looks for signals
            call = Call(site, plan, args, kwargs, fate)
        else:
            try:
                result = await function(*args, **kwargs)
                if result in fate:
                    return result
                seconds = -fate
            except BaseException as error:
                count_unsampled_error(site, plan, args, kwargs, -fate, error)
                raise
            return _finish_unsampled(site, plan, args, kwargs, seconds, result)
        return await (function(*args, **kwargs) if call is None else _run_async(call, function, args, kwargs))

    return traced


async def _run_async(
    call: Call, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """As `_run`, for an async function."""
    token, started = None, perf_counter()
    try:
        token = _set_active(call)
        result = await function(*args, **kwargs)
    except BaseException as error:
        raised(call, perf_counter() - started, error)
        raise
    finally:
        if token is not None:
            end_call(token)
    return _finish_call(call, started, result)


def _finish_unsampled(
    site: TracedFunction, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float | None, result: Any
) -> Any:
    """Count an unsampled call that returned; it may be kept for its outcome. Returns its result, or a traced stream."""
    if type(result) is not dict and (wrap_stream := stream_wrapper(result)) is not None:
        call = Call(site, plan, args, kwargs, plan.unsampled)
        call.detailed = False
        return wrap_stream(call, perf_counter() - (seconds or 0.0), result)
    try:
        if seconds is None:
            next(plan.count_rest)
        else:
            count_unsampled(site, plan, args, kwargs, seconds, result)
    except Exception as error:  # noqa: BLE001 - as above
        _warn_uncounted(error)
    return result


def _finish_call(call: Call, started: float, result: Any) -> Any:
    """Count a call that returned; returns its result, or a traced stream."""
    if type(result) is not dict and (wrap_stream := stream_wrapper(result)) is not None:
        return wrap_stream(call, started, result)
    try:
        seconds, plan = perf_counter() - started, call.plan
        decision = call.decision
        if (
            (decision is plan.sampled or decision is plan.unsampled)
            and seconds <= plan.slow_above
            and plan.sampler.is_usual(result)
        ):
            next(plan.count_rest)
            plan.time_rest(seconds)
            call.ended = True
            if decision.audit:
                submit(call, "rest", seconds, result)
        else:
            returned(call, seconds, result)
    except Exception as error:  # noqa: BLE001 - as above
        _warn_uncounted(error)
    return result


def _warn_uncounted(error: Exception) -> None:
    warn_once(f"a call could not be counted: {error_location(error)}")
