"""`@ragmon.judge`: functions of the application that score its answers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from ragmon.core.errors import RagmonError, shorten
from ragmon.core.record import Record
from ragmon.judges.results import Verdict
from ragmon.metrics.base import judged, register

Said = float | Verdict | None
Function = Callable[[Record], Said | Awaitable[Said]]
F = TypeVar("F", bound=Callable[..., Any])
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*\Z")

_functions: dict[str, Function] = {}


def judge(name: str) -> Callable[[F], F]:
    """Score answers by a function of your own; its mean is the metric `judge_<name>`.

    The function gets the record of a shipped answer and returns a score in [0, 1], a `ragmon.Verdict`, or None where it
    has nothing to say. It may be async. `[judges.<name>]` says how many answers it sees; it runs off the request path,
    and what it raises is counted and scores nothing.

    Args:
        name: Lower-case letters, digits, underscores.

    Raises:
        RagmonError: The name is taken or cannot be used.

    Example::

        @ragmon.judge("short")
        def short(record):
            return float(len(record.answer_json.claim) < 400)
    """
    if not isinstance(name, str) or not _NAME.match(name):
        hint = 'lower-case letters, digits, underscores: @ragmon.judge("faithfulness")'
        raise RagmonError(f"judge name {shorten(name)} is not usable", hint=hint)

    def keep(function: F) -> F:
        if not callable(function):
            raise RagmonError(
                f"judge {name} is no function: {shorten(function)}", hint="a callable that takes a record"
            )
        held = _functions.get(name)
        if held is not None and _place(held) != _place(function):
            raise RagmonError(f"judge {name!r} is registered already", hint="one function a name")
        register(judged(name))
        _functions[name] = function
        return function

    return keep


def functions() -> dict[str, Function]:
    """All judge functions by name."""
    return dict(_functions)


def _place(function: Callable[..., Any]) -> tuple[object, object]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", function)
