"""Wrappers that take exactly the parameters of what they wrap.

`*args, **kwargs` is a third of what a wrapper costs a call: a tuple and a dictionary are made and taken apart again. So
the code of the general wrapper is compiled once more with the function's own parameters in their place. The general one
stays what is read and checked, and is used as it stands for whatever has catch-alls or clashing names.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from inspect import Parameter
from types import CodeType
from typing import Any, Final

from ragmon.capture.calls import Site

Factory = Callable[[Site], Callable[..., Any]]
Shape = tuple[tuple[str, int, bool], ...]
"""Of each parameter its name, its kind and whether it has a default."""
_WRAPPER: Final = "traced"


def exact(factory: Factory, site: Site) -> Callable[..., Any]:
    """The wrapper a factory makes, with the parameters of the function where that can be.

    Args:
        factory: Makes the general wrapper, an inner function `traced(*args, **kwargs)`.
        site: The decorated function.
    """
    parameters = [] if site.signature is None else list(site.signature.parameters.values())
    shape = tuple((each.name, int(each.kind), each.default is not Parameter.empty) for each in parameters)
    code = _compiled(factory, shape)
    if code is None:
        return factory(site)
    namespace = {**getattr(factory, "__globals__", {})}
    namespace |= {f"_default_{place}": each.default for place, each in enumerate(parameters)}
    exec(code, namespace)  # noqa: S102 - our own code, with other parameters
    made: Callable[..., Any] = namespace[factory.__name__](site)
    return made


@cache
def _compiled(factory: Factory, shape: Shape) -> CodeType | None:
    """The code of a factory whose wrapper has these parameters; None where it cannot have them."""
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
    _Exact(shape).visit(tree)
    return compile(ast.fix_missing_locations(tree), inspect.getfile(factory), "exec")


@cache
def _source(factory: Factory) -> ast.Module | None:
    """The code of a factory; None where its source is not at hand."""
    try:
        lines, first = inspect.getsourcelines(factory)
    except (OSError, TypeError):
        return None
    tree = ast.parse(textwrap.dedent("".join(lines)))
    return ast.increment_lineno(tree, first - 1)


def _parameters(shape: Shape) -> ast.arguments:
    """The parameters of a wrapper; defaults are looked up by name where the wrapper is made."""
    by_kind: dict[int, list[ast.arg]] = {}
    for name, kind, _ in shape:
        by_kind.setdefault(kind, []).append(ast.arg(name))
    defaults = {
        place: ast.Name(f"_default_{place}", ast.Load()) for place, (_, _, has_one) in enumerate(shape) if has_one
    }
    keyword = [place for place, (_, kind, _) in enumerate(shape) if kind == Parameter.KEYWORD_ONLY]
    return ast.arguments(
        posonlyargs=by_kind.get(Parameter.POSITIONAL_ONLY, []),
        args=by_kind.get(Parameter.POSITIONAL_OR_KEYWORD, []),
        kwonlyargs=by_kind.get(Parameter.KEYWORD_ONLY, []),
        kw_defaults=[defaults.get(place) for place in keyword],
        defaults=[default for place, default in defaults.items() if place not in keyword],
    )


class _Exact(ast.NodeTransformer):
    """Puts parameters in the place of `args` and `kwargs`."""

    def __init__(self, shape: Shape) -> None:
        self._by_place = [name for name, kind, _ in shape if kind != Parameter.KEYWORD_ONLY]
        self._by_name = [name for name, kind, _ in shape if kind == Parameter.KEYWORD_ONLY]

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """`function(*args, **kwargs)` becomes a call with the parameters themselves."""
        if any(isinstance(given, ast.Starred) for given in node.args):
            node.args = [_load(name) for name in self._by_place]
            node.keywords = [ast.keyword(name, _load(name)) for name in self._by_name]
            return node
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Elsewhere they become the tuple and the dictionary they were."""
        if node.id == "args":
            return ast.Tuple([_load(name) for name in self._by_place], ast.Load())
        if node.id == "kwargs":
            return ast.Dict([ast.Constant(name) for name in self._by_name], [_load(name) for name in self._by_name])
        return node


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())
